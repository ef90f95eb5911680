//! Validates task parameters against the JSON Schema of their type, compiled once.

use std::collections::BTreeMap;
use std::fmt;

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use longhaul_api::FieldProblem;
use longhaul_domain::Json;
use longhaul_engine::Catalog;

use crate::{api::ServerError, problem::ApiError};

/// Invalid fields that one response names.
const NAMED_FIELDS: usize = 10;

pub(crate) struct Schemas(BTreeMap<String, Validator>);

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Schemas {
    pub(crate) fn compile(catalog: &Catalog) -> Result<Self, ServerError> {
        let compiled = catalog.types().map(|kind| {
            let validator = jsonschema::validator_for(&kind.params_schema).map_err(|error| {
                ServerError::Schema {
                    task_type: kind.name.clone(),
                    problem: error.to_string(),
                }
            })?;
            Ok((kind.name.clone(), validator))
        });
        Ok(Self(compiled.collect::<Result<_, ServerError>>()?))
    }

    /// Refuses invalid parameters. A type without a schema accepts any.
    pub(crate) fn check(&self, task_type: &str, parameters: &Json) -> Result<(), ApiError> {
        let Some(validator) = self.0.get(task_type) else {
            return Ok(());
        };

        let refuse = |error: serde_json::Error| {
            ApiError::invalid_field("parameters", error.to_string(), "one JSON document")
        };
        let value: serde_json::Value = parameters.read().map_err(refuse)?;
        let errors = validator.iter_errors(&value).take(NAMED_FIELDS);
        let fields: Vec<FieldProblem> = errors.map(|error| problem_of(&error)).collect();
        if fields.is_empty() {
            return Ok(());
        }

        let allowed = Some(format!("what GET /api/types says of {task_type}"));
        Err(ApiError::InvalidFields { fields, allowed })
    }
}

fn problem_of(error: &ValidationError<'_>) -> FieldProblem {
    let mut field = format!("parameters{}", dotted(error.instance_path().as_str()));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only these name a member in their message alone"
    )]
    let member = match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str(),
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            unexpected.first().map(String::as_str)
        }
        ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            unexpected.first().map(String::as_str)
        }
        _ => None,
    };
    if let Some(member) = member {
        field = format!("{field}.{member}");
    }

    // The value is masked: it may be long or secret.
    FieldProblem {
        field,
        problem: format!("does not fit: {}", error.masked_with("it")),
    }
}

/// The JSON pointer `/pages/0/text` as `.pages[0].text`.
fn dotted(pointer: &str) -> String {
    let mut text = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            text = format!("{text}[{part}]");
        } else {
            text = format!("{text}.{part}");
        }
    }

    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(parameters: &str) -> Vec<String> {
        let schema = serde_json::json!({
            "type": "object",
            "required": ["ms"],
            "additionalProperties": false,
            "properties": {
                "ms": { "type": "integer", "minimum": 0 },
                "pages": { "type": "array", "items": { "type": "object", "required": ["text"] } }
            }
        });

        let validator = jsonschema::validator_for(&schema).unwrap();
        let schemas = Schemas(BTreeMap::from([("t".to_owned(), validator)]));
        match schemas.check("t", &Json::parse("parameters", parameters).unwrap()) {
            Ok(()) => vec![],
            Err(ApiError::InvalidFields { fields, .. }) => {
                fields.into_iter().map(|one| one.field).collect()
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_invalid_field_is_named() {
        assert!(refused("{\"ms\":5}").is_empty());
        assert_eq!(refused("{}"), ["parameters.ms"]);
        assert_eq!(refused("{\"ms\":\"5\"}"), ["parameters.ms"]);
        assert_eq!(refused("{\"ms\":-1}"), ["parameters.ms"]);
        assert_eq!(refused("{\"ms\":1,\"sec\":1}"), ["parameters.sec"]);
        assert_eq!(
            refused("{\"ms\":1,\"pages\":[{\"text\":1},{}]}"),
            ["parameters.pages[1].text"]
        );

        assert_eq!(refused("null"), ["parameters"]);
    }
}
