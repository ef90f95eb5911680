//! What the values of parameters look like, for the OpenAPI document: whoever makes requests from it makes good ones.

use longhaul_domain::{Status, bounds};
use utoipa::openapi::schema::{KnownFormat, Object, ObjectBuilder, SchemaFormat, Type};

/// Tasks of a page at most: with the largest documents in each, what an answer may still weigh.
pub(crate) const LARGEST_PAGE: usize = 200;

/// The alphabet that routing keys, labels and URLs share.
const LABEL: &str = "^[A-Za-z0-9_.:/-]+$";
const LABELS: &str = "^[A-Za-z0-9_.:/-]{1,100}(,[A-Za-z0-9_.:/-]{1,100})*$";
const WITHOUT_CONTROLS: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";

/// The parameter of this name, wherever it stands. A name that is not here is any text.
pub(crate) fn of_parameter(name: &str) -> Object {
    match name {
        "id" | "parentTaskId" => formatted(KnownFormat::Uuid).build(),
        "name" => text()
            .pattern(Some(LABEL))
            .min_length(Some(1))
            .max_length(Some(bounds::LABEL_BYTES))
            .build(),
        "status" => {
            let one = format!("({})", Status::ALL.map(Status::as_str).join("|"));
            text().pattern(Some(format!("^{one}(,{one})*$"))).build()
        }
        "taskType" | "queue" => text().pattern(Some(LABELS)).build(),
        "taskKey" | "userId" => text()
            .pattern(Some(WITHOUT_CONTROLS))
            .min_length(Some(1))
            .max_length(Some(bounds::NAME_BYTES))
            .build(),
        "createdAfter" | "createdBefore" | "dueAfter" | "dueBefore" | "from" | "to" => {
            formatted(KnownFormat::DateTime).build()
        }
        "sort" => text()
            .enum_values(Some(["-createdAt", "createdAt"]))
            .build(),
        "size" => {
            let number = ObjectBuilder::new().schema_type(Type::Integer);
            number
                .minimum(Some(1_usize))
                .maximum(Some(LARGEST_PAGE))
                .build()
        }
        _ => text().build(),
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn formatted(format: KnownFormat) -> ObjectBuilder {
    text().format(Some(SchemaFormat::KnownFormat(format)))
}
