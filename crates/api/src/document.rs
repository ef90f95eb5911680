//! User documents inside responses. The server writes them byte for byte; the client keeps their
//! meaning, not their spelling.

use longhaul_domain::Json;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(crate) fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Json, D::Error> {
    Value::deserialize(reader).map(|value| Json::trusted(value.to_string()))
}

pub(crate) fn read_optional<'de, D: Deserializer<'de>>(
    reader: D,
) -> Result<Option<Json>, D::Error> {
    let value = Option::<Value>::deserialize(reader)?;
    Ok(value.map(|value| Json::trusted(value.to_string())))
}
