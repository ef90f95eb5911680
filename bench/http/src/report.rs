//! The table at the end.

use std::fmt::Write as _;

/// The required value of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// All figures in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: String,
}

impl Report {
    /// Adds a figure and prints it.
    pub(crate) fn add(
        &mut self,
        database: &str,
        what: &str,
        figure: f64,
        shown: &str,
        wanted: Wanted,
    ) {
        let (is_met, wanted) = match wanted {
            Wanted::AtLeast(least) => (figure >= least, format!("≥ {least}")),
            Wanted::AtMost(most) => (figure <= most, format!("≤ {most}")),
        };
        let missed = if is_met { "" } else { " ✗" };

        eprintln!("{database:9} {what}: {shown}, target {wanted}{missed}");
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.rows,
            "| {database} | {what} | {shown}{missed} | {wanted} |"
        );
    }

    pub(crate) fn markdown(&self) -> String {
        format!(
            "| database | what | measured | target |\n| --- | --- | --- | --- |\n{}",
            self.rows
        )
    }
}

/// The value that this share of the values does not exceed.
pub(crate) fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
    values
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}
