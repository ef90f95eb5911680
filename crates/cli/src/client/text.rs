//! Times, progress and texts from elsewhere, formatted for people.

use longhaul_api::{Moment, TaskSummary, client::Json};
use serde::Deserialize;

/// The fields of a progress document that most documents have.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct ProgressSummary {
    #[serde(default)]
    pub(crate) percent: Option<f64>,
    #[serde(default)]
    pub(crate) message: Option<String>,
}

impl ProgressSummary {
    /// Reads a document. One of another shape gives an empty summary.
    pub(crate) fn of(progress: Option<&Json>) -> Self {
        progress
            .and_then(|json| json.read().ok())
            .unwrap_or_default()
    }

    pub(crate) fn of_value(progress: Option<&serde_json::Value>) -> Self {
        progress
            .and_then(|value| Self::deserialize(value).ok())
            .unwrap_or_default()
    }
}

/// `42%`, or nothing.
pub(crate) fn percent(progress: &ProgressSummary) -> String {
    match progress.percent {
        Some(percent) => format!("{:.0}%", percent.clamp(0.0, 100.0)),
        None => String::new(),
    }
}

/// `42% step 21 of 50`, or as much of it as there is.
pub(crate) fn progress_text(progress: &ProgressSummary) -> String {
    let message = progress.message.as_deref().map(clean).unwrap_or_default();
    format!("{} {message}", percent(progress)).trim().to_owned()
}

/// `2 of 5`, or `7` if manual retries or rate limits made more attempts than the task allows.
pub(crate) fn attempt_of(task: &TaskSummary) -> String {
    let attempt = task.attempt;
    let most = task.max_attempts;
    if attempt > most {
        attempt.to_string()
    } else {
        format!("{attempt} of {most}")
    }
}

/// How long before `now` it was: `3s`, `5m`, `2d`. A moment in the future is `in 5m`.
pub(crate) fn age(moment: Moment, now: Moment) -> String {
    let now_us = now.0.as_micros();
    let then_us = moment.0.as_micros();
    let text = short_duration(now_us.abs_diff(then_us) / 1_000);
    if then_us > now_us {
        format!("in {text}")
    } else {
        text
    }
}

/// A duration in its largest unit, and below ten of them also in the next: `250ms`, `12s`,
/// `3m 20s`, `5h 10m`, `12d`.
pub(crate) fn short_duration(ms: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

    if ms < 1_000 {
        return format!("{ms}ms");
    }

    let s = ms / 1_000;
    for (index, (unit, seconds)) in UNITS.into_iter().enumerate() {
        let whole = s / seconds;
        if whole == 0 {
            continue;
        }

        if let Some((below, below_seconds)) = UNITS.get(index + 1) {
            let more = s % seconds / below_seconds;
            if whole < 10 && more > 0 {
                return format!("{whole}{unit} {more}{below}");
            }
        }
        return format!("{whole}{unit}");
    }

    "0s".to_owned()
}

/// Text from elsewhere without the control characters that could steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// At most so many characters, with `…` where it was cut.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= chars {
        return text;
    }

    let start: String = text.chars().take(chars.saturating_sub(1)).collect();
    start + "…"
}

/// A document over several lines, or unchanged if it is not JSON.
pub(crate) fn pretty(json: &Json) -> String {
    let value = json.read::<serde_json::Value>();
    // JSON escapes control characters itself.
    value
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| clean(json.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_their_largest_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (12_900, "12s"),
            (80_000, "1m 20s"),
            (120_000, "2m"),
            (3_600_000 * 5 + 60_000 * 10, "5h 10m"),
            (3_600_000 * 11 + 60_000 * 10, "11h"),
            (86_400_000 * 3 + 3_600_000, "3d 1h"),
        ] {
            assert_eq!(short_duration(ms), text);
        }
    }

    #[test]
    fn text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\r\nc"), "a [31mb  c");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn progress_of_another_shape_shows_what_it_has() {
        let shown = |text: &str| {
            let document = Json::trusted(text.to_owned());
            progress_text(&ProgressSummary::of(Some(&document)))
        };

        assert_eq!(
            shown(r#"{"percent":42.4,"message":"step 1\u001b"}"#),
            "42% step 1"
        );
        assert_eq!(shown(r#"{"percent":1e9}"#), "100%");
        assert_eq!(shown("[1,2]"), "");
    }
}
