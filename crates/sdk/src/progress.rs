//! Progress as handlers report it.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// How far a task has come. A number is a percentage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// A short message to show.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// Anything else that the type wants to show, as JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<serde_json::Value>,
}

impl Progress {
    /// This many percent, from 0 to 100.
    pub fn percent(percent: f64) -> Self {
        Self {
            percent: percent.clamp(0.0, 100.0),
            message: None,
            details: None,
        }
    }

    /// This many items done, of all.
    pub fn of(done: usize, all: usize) -> Self {
        match all {
            0 => Self::percent(100.0),
            _ => Self::percent(done as f64 * 100.0 / all as f64),
        }
    }

    /// Adds a message to show.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds a value of the type's own. [`TypeSettings::progress`](crate::TypeSettings::progress)
    /// publishes its schema.
    #[must_use]
    pub fn details(mut self, details: &impl Serialize) -> Self {
        self.details = serde_json::to_value(details).ok();
        self
    }

    /// The details as the Rust type that they were made of. `None` if there are none.
    pub fn read_details<D: DeserializeOwned>(&self) -> Result<Option<D>, serde_json::Error> {
        self.details.as_ref().map(D::deserialize).transpose()
    }

    /// Progress as it is stored. Another program may have reported it in a form of its own, which
    /// becomes the details.
    pub(crate) fn read(stored: serde_json::Value) -> Self {
        if let Some(percent) = stored.as_f64() {
            return Self::percent(percent);
        }

        let is_field = |name: &String| matches!(name.as_str(), "percent" | "message" | "details");
        let has_our_fields = stored
            .as_object()
            .is_some_and(|fields| fields.keys().all(is_field));
        if has_our_fields && let Ok(progress) = Self::deserialize(&stored) {
            return progress;
        }

        let percent = stored.get("percent").and_then(serde_json::Value::as_f64);
        Self {
            details: Some(stored),
            ..Self::percent(percent.unwrap_or(0.0))
        }
    }
}

/// The schema of progress with details of this type.
pub(crate) fn schema_with<D: JsonSchema>() -> Schema {
    #[derive(JsonSchema)]
    #[schemars(rename = "Progress")]
    #[expect(dead_code, reason = "only its schema is used")]
    struct With<D> {
        /// From 0 to 100.
        percent: f64,
        /// A short message to show.
        message: Option<String>,
        /// Anything else that the type shows.
        details: Option<D>,
    }

    schema_for!(With<D>)
}

impl From<u8> for Progress {
    fn from(percent: u8) -> Self {
        Self::percent(f64::from(percent))
    }
}

impl From<i32> for Progress {
    fn from(percent: i32) -> Self {
        Self::percent(f64::from(percent))
    }
}

impl From<f64> for Progress {
    fn from(percent: f64) -> Self {
        Self::percent(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Pages {
        read: u32,
    }

    #[test]
    fn details_are_read_back_as_their_type() {
        let reported = Progress::of(1, 2)
            .message("reading")
            .details(&Pages { read: 7 });
        let read = Progress::read(serde_json::to_value(&reported).unwrap());
        assert_eq!(read, reported);
        assert_eq!(
            read.read_details::<Pages>().unwrap(),
            Some(Pages { read: 7 })
        );

        assert!(read.read_details::<String>().is_err());
        assert_eq!(
            Progress::percent(1.0).read_details::<Pages>().unwrap(),
            None
        );
    }

    #[test]
    fn progress_of_another_form_is_shown_as_details() {
        assert_eq!(
            Progress::read(serde_json::json!(40)),
            Progress::percent(40.0)
        );
        assert_eq!(
            Progress::read(serde_json::json!("half")).details,
            Some(serde_json::json!("half"))
        );
        let foreign = serde_json::json!({ "percent": 40, "phase": "second" });

        assert_eq!(
            Progress::read(foreign.clone()),
            Progress {
                details: Some(foreign),
                ..Progress::percent(40.0)
            }
        );
    }

    #[test]
    fn the_schema_of_progress_has_its_fields_and_its_details() {
        let schema = schema_with::<Pages>().to_value();
        assert_eq!(schema["required"], serde_json::json!(["percent"]));
        assert_eq!(
            schema["$defs"]["Pages"]["properties"]["read"]["type"],
            "integer"
        );
        let plain = schema_for!(Progress).to_value();
        let own = &schema["properties"];

        for field in ["percent", "message"] {
            assert_eq!(
                plain["properties"][field]["type"], own[field]["type"],
                "{field}"
            );
        }

        assert_eq!(
            plain["properties"].as_object().unwrap().len(),
            own.as_object().unwrap().len()
        );
    }
}
