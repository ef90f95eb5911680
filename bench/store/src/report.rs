//! The table at the end.

use std::fmt::Write as _;

/// One row of the table.
#[derive(Debug, Clone)]
struct Row {
    database: &'static str,
    what: String,
    ours: String,
    beside: String,
    ratio: f64,
    wanted: Option<f64>,
}

/// All rows in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds rates per second and their ratio, and prints them.
    pub(crate) fn rate(
        &mut self,
        database: &'static str,
        what: impl Into<String>,
        ours: f64,
        beside: f64,
        wanted: Option<f64>,
    ) {
        let row = Row {
            database,
            what: what.into(),
            ours: format!("{ours:.0}/s"),
            beside: format!("{beside:.0}/s"),
            ratio: ours / beside,
            wanted,
        };

        eprintln!(
            "{database:9} {:58} {:>10} beside {:>10}: {:.2}",
            row.what, row.ours, row.beside, row.ratio
        );
        self.rows.push(row);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| database | what | Longhaul | beside | ratio | target |\n| --- | --- | ---: | ---: \
             | ---: | ---: |\n",
        );

        for row in &self.rows {
            let wanted = row
                .wanted
                .map_or(String::new(), |wanted| format!("≥ {wanted:.1}"));
            let missed = if row.wanted.is_some_and(|wanted| row.ratio < wanted) {
                " ✗"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.2}{missed} | {wanted} |",
                row.database, row.what, row.ours, row.beside, row.ratio
            );
        }

        text
    }
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
