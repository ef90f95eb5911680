//! The table at the end.

use std::fmt::Write as _;

/// One measured line.
#[derive(Debug, Clone)]
struct Line {
    database: &'static str,
    what: String,
    ours: String,
    beside: String,
    ratio: f64,
    wanted: Option<f64>,
}

/// Everything that was measured, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

impl Report {
    /// Adds rates per second and their ratio, and says so at once.
    pub(crate) fn rate(
        &mut self,
        database: &'static str,
        what: impl Into<String>,
        ours: f64,
        beside: f64,
        wanted: Option<f64>,
    ) {
        let line = Line {
            database,
            what: what.into(),
            ours: format!("{ours:.0}/s"),
            beside: format!("{beside:.0}/s"),
            ratio: ours / beside,
            wanted,
        };
        eprintln!(
            "{database:9} {:58} {:>10} beside {:>10}: {:.2}",
            line.what, line.ours, line.beside, line.ratio
        );
        self.lines.push(line);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| database | what | Longhaul | beside | ratio | wanted |\n| --- | --- | ---: | ---: | ---: | ---: |\n",
        );
        for line in &self.lines {
            let wanted = line
                .wanted
                .map_or(String::new(), |wanted| format!("≥ {wanted:.1}"));
            let missed = if line.wanted.is_some_and(|wanted| line.ratio < wanted) {
                " ✗"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.2}{missed} | {wanted} |",
                line.database, line.what, line.ours, line.beside, line.ratio
            );
        }
        text
    }
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
