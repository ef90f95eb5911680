//! Moments, progress and texts of others as people read them.

use longhaul_api::{Moment, TaskSummary, client::Json};
use serde::Deserialize;

/// The part of a progress document that everybody can show.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Shown {
    #[serde(default)]
    pub(crate) percent: Option<f64>,
    #[serde(default)]
    pub(crate) message: Option<String>,
}

impl Shown {
    /// What a document says; nothing, if it is of another shape.
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
pub(crate) fn percent(shown: &Shown) -> String {
    shown
        .percent
        .map(|percent| format!("{:.0}%", percent.clamp(0.0, 100.0)))
        .unwrap_or_default()
}

/// `42% step 21 of 50`, or as much of it as there is.
pub(crate) fn progress_text(shown: &Shown) -> String {
    let message = shown.message.as_deref().map(clean).unwrap_or_default();
    format!("{} {}", percent(shown), message).trim().to_owned()
}

/// `2 of 5`. One that people or rate limits had tried more often is past its number: `7`.
pub(crate) fn attempt_of(task: &TaskSummary) -> String {
    let (attempt, most) = (task.attempt, task.max_attempts);
    if attempt > most {
        attempt.to_string()
    } else {
        format!("{attempt} of {most}")
    }
}

/// How long before `now` it was: `3s`, `5m`, `2d`. What lies ahead is `in 5m`.
pub(crate) fn age(moment: Moment, now: Moment) -> String {
    let (now_us, then_us) = (now.0.as_micros(), moment.0.as_micros());
    let text = short_duration(now_us.abs_diff(then_us) / 1_000);
    if then_us > now_us {
        format!("in {text}")
    } else {
        text
    }
}

/// The largest unit that fits and the one below it, if that says more: `250ms`, `12s`, `3m 20s`, `5h 10m`, `12d`.
pub(crate) fn short_duration(ms: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let s = ms / 1_000;
    for (place, (unit, seconds)) in UNITS.into_iter().enumerate() {
        let (whole, rest) = (s / seconds, s % seconds);
        let below = UNITS
            .get(place + 1)
            .map(|(unit, seconds)| (rest / seconds, *unit));
        match below {
            _ if whole == 0 => {}
            Some((more, below)) if whole < 10 && more > 0 => {
                return format!("{whole}{unit} {more}{below}");
            }
            _ => return format!("{whole}{unit}"),
        }
    }
    "0s".to_owned()
}

/// Text of others without what could steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// At most so many characters, with a mark where it was cut.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    let text = clean(text);
    if text.chars().count() <= chars {
        return text;
    }
    let kept: String = text.chars().take(chars.saturating_sub(1)).collect();
    kept + "…"
}

/// A document over several lines, or as it came.
pub(crate) fn pretty(json: &Json) -> String {
    let value = json.read::<serde_json::Value>();
    // JSON escapes every control character itself.
    value
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| clean(json.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_by_their_largest_units() {
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
    fn texts_of_others_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\r\nc"), "a [31mb  c");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn progress_of_any_shape_is_shown_as_far_as_it_is_known() {
        let shown = |text: &str| progress_text(&Shown::of(Some(&Json::trusted(text.to_owned()))));
        assert_eq!(
            shown(r#"{"percent":42.4,"message":"step 1\u001b"}"#),
            "42% step 1"
        );
        assert_eq!(shown(r#"{"percent":1e9}"#), "100%");
        assert_eq!(shown("[1,2]"), "");
    }
}
