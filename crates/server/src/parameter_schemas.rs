//! Schemas of path and query parameters in the OpenAPI document.

use longhaul_domain::{Status, bounds};
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};

/// The alphabet that routing keys, labels and URLs share.
const LABEL: &str = "^[A-Za-z0-9_.:/-]+$";
const LABELS: &str = "^[A-Za-z0-9_.:/-]{1,100}(,[A-Za-z0-9_.:/-]{1,100})*$";
const WITHOUT_CONTROLS: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";

pub(crate) fn text() -> Object {
    string().build()
}

pub(crate) fn uuid() -> Object {
    formatted(KnownFormat::Uuid)
}

pub(crate) fn date_time() -> Object {
    formatted(KnownFormat::DateTime)
}

/// One queue or task type.
pub(crate) fn label() -> Object {
    let label = string().pattern(Some(LABEL));
    label
        .min_length(Some(1))
        .max_length(Some(bounds::LABEL_BYTES))
        .build()
}

/// Queues or task types, separated by commas.
pub(crate) fn labels() -> Object {
    string().pattern(Some(LABELS)).build()
}

/// A text of the user's choice.
pub(crate) fn name() -> Object {
    let name = string().pattern(Some(WITHOUT_CONTROLS));
    name.min_length(Some(1))
        .max_length(Some(bounds::NAME_BYTES))
        .build()
}

/// Statuses, separated by commas.
pub(crate) fn statuses() -> Object {
    let one = format!("({})", Status::ALL.map(Status::as_str).join("|"));
    string().pattern(Some(format!("^{one}(,{one})*$"))).build()
}

pub(crate) fn one_of(values: [&'static str; 2]) -> Object {
    string().enum_values(Some(values)).build()
}

pub(crate) fn number_up_to(largest: usize) -> Object {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    number.minimum(Some(1_usize)).maximum(Some(largest)).build()
}

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn formatted(format: KnownFormat) -> Object {
    let format = SchemaFormat::KnownFormat(format);
    string().format(Some(format)).build()
}
