//! Generates the second half of `docs/api.md` from the route table, the OpenAPI document and the
//! error types. It is only a test: `make generate` writes the file, every other run compares it.

use std::fmt::Write as _;

use longhaul_domain::{Invalid, Status, StoreError, TokenFault, lifecycle};
use serde_json::Value;

use crate::{
    identity::{IdentityMode, Scope},
    openapi,
    problem::ApiError,
    route::Policy,
    router::routes,
};

/// Everything below this line is generated.
const MARK: &str =
    "<!-- Below this line: written by `make generate` from crates/server. Do not edit. -->\n";

fn reference() -> String {
    let document = serde_json::to_value(openapi::document(&IdentityMode::Tokens)).unwrap();
    let mut text = "\n## Routes\n".to_owned();
    for route in routes() {
        let verb = route.verb.as_str();
        let path = route.path;
        let operation = &document["paths"][path][verb.to_lowercase()];
        let who = match route.policy {
            Policy::Public => "No authentication.".to_owned(),
            Policy::Needs(scope) => format!("Scope `{}`.", scope.as_str()),
        };
        let _ = write!(
            text,
            "\n### `{verb} {path}`\n\n{}. {who}\n",
            one_line(&operation["summary"])
        );

        text += &parameters(&operation["parameters"]);
        if let Some(schema) = content(&operation["requestBody"]) {
            let needed = if operation["requestBody"]["required"] == true {
                ""
            } else {
                " Optional."
            };
            let _ = write!(text, "\nBody: {}.{needed}\n", type_of(schema));
        }

        text += &answers(&operation["responses"]);
    }

    text + &codes() + &schemas(&document["components"]["schemas"])
}

fn parameters(parameters: &Value) -> String {
    let listed = parameters
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["in"] != "path");

    let row = |one: &Value| {
        format!(
            "| `{}` | {} | {} |\n",
            one_line(&one["name"]),
            one_line(&one["in"]),
            one_line(&one["description"])
        )
    };

    let rows: String = listed.map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("\n| parameter | in | description |\n| --- | --- | --- |\n{rows}")
    }
}

/// One line per successful response, and one line for the statuses of problems.
fn answers(responses: &Value) -> String {
    let mut text = "\n".to_owned();
    let mut problems = Vec::new();
    for (status, answer) in responses.as_object().into_iter().flatten() {
        if answer["content"].get("application/problem+json").is_some() {
            problems.push(format!("`{status}`"));
            continue;
        }

        let body = content(answer).map_or(String::new(), |schema| {
            let json = answer["content"].get("application/json").is_some();
            let media = answer["content"]
                .as_object()
                .and_then(|map| map.keys().next())
                .cloned()
                .unwrap_or_default();

            format!(
                " ({})",
                if json {
                    type_of(schema)
                } else {
                    format!("`{media}`")
                }
            )
        });

        let _ = writeln!(
            text,
            "- `{status}`: {}{body}",
            one_line(&answer["description"]).trim_end_matches('.')
        );
    }

    if !problems.is_empty() {
        let _ = writeln!(text, "- problems: {}", problems.join(", "));
    }

    text
}

fn content(holder: &Value) -> Option<&Value> {
    holder["content"]
        .as_object()?
        .values()
        .next()?
        .get("schema")
}

/// The type of a schema.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next())
    {
        return format!("[{name}](#{})", name.to_lowercase());
    }

    let alternatives = ["oneOf", "anyOf"]
        .iter()
        .find_map(|key| schema[key].as_array());
    if let Some(alternatives) = alternatives {
        return alternatives
            .iter()
            .map(type_of)
            .collect::<Vec<_>>()
            .join(" or ");
    }

    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| format!("`{}`", one_line(value)))
            .collect::<Vec<_>>()
            .join(", ");
    }

    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return "any JSON".to_owned();
        }
    };

    let names = types
        .into_iter()
        .map(|name| match (name, schema["format"].as_str()) {
            ("array", _) => format!("list of {}", type_of(&schema["items"])),
            ("object", _) if schema["properties"]["items"].is_object() => {
                format!(
                    "page of {}",
                    type_of(&schema["properties"]["items"]["items"])
                )
            }
            ("object", _) if schema["additionalProperties"].is_object() => {
                format!("object of {}", type_of(&schema["additionalProperties"]))
            }
            ("string", Some(format)) => format!("string ({format})"),
            (name, _) => name.to_owned(),
        });
    names.collect::<Vec<_>>().join(" or ") + &limits(schema)
}

fn limits(schema: &Value) -> String {
    let known = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minItems", "at least"),
        ("maxItems", "at most"),
    ];

    let limit = |(key, text): &(&str, &str)| {
        let bound = schema.get(key)?;
        Some(format!(", {text} {bound}"))
    };
    known.iter().filter_map(limit).collect()
}

fn schemas(schemas: &Value) -> String {
    let mut text = "\n## Types\n\nA field in **bold** is always present in a response and \
         required in a request.\n"
        .to_owned();
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        let _ = write!(text, "\n### {name}\n");
        if !one_line(&schema["description"]).is_empty() {
            let _ = write!(text, "\n{}\n", one_line(&schema["description"]));
        }

        let bases = schema["allOf"]
            .as_array()
            .map_or(vec![schema], |bases| bases.iter().collect());
        for base in bases.iter().filter(|base| base["$ref"].is_string()) {
            let _ = write!(text, "\nThe fields of {}, and:\n", type_of(base));
        }

        let rows: String = bases.iter().map(|base| fields(base)).collect();
        if rows.is_empty() {
            let _ = write!(text, "\n{}\n", type_of(schema));
        } else {
            let _ = write!(
                text,
                "\n| field | type | description |\n| --- | --- | --- |\n{rows}"
            );
        }
    }

    text
}

fn fields(schema: &Value) -> String {
    let mut rows = String::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"]
            .as_array()
            .is_some_and(|list| list.contains(&Value::from(name.as_str())));
        let shown = if required {
            format!("**`{name}`**")
        } else {
            format!("`{name}`")
        };
        let _ = writeln!(
            rows,
            "| {shown} | {} | {} |",
            type_of(field),
            one_line(&field["description"])
        );
    }

    rows
}

/// A text without line breaks.
fn one_line(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

fn codes() -> String {
    let mut text =
        "\n## Codes of problems\n\n| code | status | example |\n| --- | --- | --- |\n".to_owned();
    let mut problems: Vec<_> = one_of_each().into_iter().map(ApiError::problem).collect();
    problems.sort_by(|one, other| (one.status, &one.code).cmp(&(other.status, &other.code)));
    problems.dedup_by(|one, other| one.code == other.code);

    for problem in problems {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            problem.code, problem.status, problem.detail
        );
    }

    text
}

/// An example of each error that has a code of its own.
fn one_of_each() -> Vec<ApiError> {
    use lifecycle::Refusal;

    let refused = |refusal| ApiError::Store(StoreError::Refused(refusal));
    let status = Status::Completed;
    let wrong_state = Refusal::WrongState {
        command: lifecycle::Command::Retry,
        status,
    };

    vec![
        ApiError::Store(StoreError::NotFound),
        ApiError::Store(StoreError::IdempotencyMismatch),
        ApiError::Store(StoreError::NodeLost),
        ApiError::Store(StoreError::Unavailable(String::new())),
        ApiError::Store(StoreError::SchemaTooNew { found: 2, known: 1 }),
        ApiError::Store(StoreError::Internal(String::new())),
        refused(wrong_state),
        refused(Refusal::StaleLease { status, attempt: 2 }),
        refused(Refusal::AlreadyApplied { status }),
        refused(Refusal::NotDue),
        refused(Refusal::NotWaitingForTime { status }),
        refused(Refusal::NothingToRedo),
        refused(Refusal::TooManyChildren),
        ApiError::NotJson {
            problem: "expected `,` or `}`".to_owned(),
            line: 1,
            column: 9,
        },
        ApiError::TooLarge,
        ApiError::SlowBody,
        ApiError::TooManyBodies,
        ApiError::BrokenBody,
        ApiError::NotJsonType,
        ApiError::Encoded,
        ApiError::from(Invalid::new("priority", "is 12", "1 to 9")),
        ApiError::BadFilter {
            field: "size".to_owned(),
            problem: "is 1000".to_owned(),
            allowed: "1 to 200".to_owned(),
        },
        ApiError::BadCursor,
        ApiError::Unidentified,
        ApiError::NoHost,
        ApiError::NoToken,
        ApiError::BadToken(TokenFault::Shape),
        ApiError::BadToken(TokenFault::Checksum),
        ApiError::UnknownToken,
        ApiError::ExpiredToken,
        ApiError::RevokedToken,
        ApiError::TooManyStreams { limit: 200 },
        ApiError::TooManyConnections,
        ApiError::NotTheGateway,
        ApiError::UnknownHost,
        ApiError::Forbidden(Scope::Operate),
        ApiError::CrossSite,
        ApiError::NotLocal,
        ApiError::NotWebSocket,
        ApiError::BadSignature,
        ApiError::NoArtifact,
        ApiError::NoQueue,
        ApiError::NoRoute,
        ApiError::NoMethod,
        ApiError::Draining,
        ApiError::Unwritable,
        ApiError::NotTextType,
        ApiError::Missing("novel"),
        ApiError::Conflict("the novel is being imported".to_owned()),
    ]
}

#[test]
fn every_code_has_its_example() {
    let sources = [
        include_str!("problem.rs"),
        include_str!("../../domain/src/error.rs"),
        include_str!("../../domain/src/lifecycle/mod.rs"),
    ];
    let table = codes();
    let mut found = 0;
    for source in sources {
        let function = source
            .split("fn code(&self)")
            .nth(1)
            .and_then(|rest| rest.split("\n    }\n").next());
        let arms = function
            .expect("a function named code")
            .split("=> \"")
            .skip(1);
        for code in arms.filter_map(|rest| rest.split('"').next()) {
            assert!(
                table.contains(&format!("| `{code}` |")),
                "one_of_each has no example of {code}"
            );
            found += 1;
        }
    }

    assert!(found > 40, "only {found} codes were found in the sources");
}

#[test]
fn the_reference_of_the_api_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let (opening, written) = found
        .split_once(MARK)
        .expect("docs/api.md has the line above the generated half");

    if std::env::vars_os().any(|(name, _)| name == "LONGHAUL_GENERATE") {
        std::fs::write(&path, format!("{opening}{MARK}{}", reference())).unwrap();
    } else {
        assert!(
            written == reference(),
            "docs/api.md is outdated: run make generate"
        );
    }
}
