//! What goes into a statement and what comes out of it, the same for all three databases.

use rusqlite::types::Value;
use sqlx::Row as _;
#[cfg(feature = "postgres")]
use sqlx::ValueRef as _;
use uuid::Uuid;

use crate::failure::Failure;

/// A value bound to a statement. Lists travel as one JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Param<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Id(Option<Uuid>),
}

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<usize> for Param<'_> {
    fn from(value: usize) -> Self {
        Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<&'a String> for Param<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Uuid> for Param<'_> {
    fn from(value: Uuid) -> Self {
        Self::Id(Some(value))
    }
}

/// A row of any of the three.
pub(crate) enum SqlRow {
    /// Of a connection of the store's own.
    Sqlite(Vec<Value>),
    /// Of a caller's own transaction on SQLite.
    Guest(sqlx::sqlite::SqliteRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
    #[cfg(feature = "mysql")]
    MySql(sqlx::mysql::MySqlRow),
}

/// The columns of a row, by their places.
pub(crate) trait Columns {
    fn int(&self, column: usize) -> Result<Option<i64>, Failure>;
    /// What is only looked at; what is kept is a [`Self::text`]. SQLite may have it as bytes.
    fn str(&self, column: usize) -> Result<Option<&str>, Failure>;
    fn id(&self, column: usize) -> Result<Option<Uuid>, Failure>;

    fn text(&self, column: usize) -> Result<Option<String>, Failure> {
        Ok(self.str(column)?.map(str::to_owned))
    }

    fn flag(&self, column: usize) -> Result<bool, Failure> {
        Ok(self.int(column)?.unwrap_or(0) != 0)
    }

    /// Like [`Self::int`] for a column that is never null.
    fn must_int(&self, column: usize) -> Result<i64, Failure> {
        self.int(column)?.ok_or_else(|| null(column))
    }

    fn must_text(&self, column: usize) -> Result<String, Failure> {
        self.text(column)?.ok_or_else(|| null(column))
    }

    fn must_str(&self, column: usize) -> Result<&str, Failure> {
        self.str(column)?.ok_or_else(|| null(column))
    }

    fn must_id(&self, column: usize) -> Result<Uuid, Failure> {
        self.id(column)?.ok_or_else(|| null(column))
    }
}

/// A row of SQLite that is read while its statement stands on it.
impl Columns for rusqlite::Row<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, Failure> {
        Ok(self.get(column)?)
    }

    fn str(&self, column: usize) -> Result<Option<&str>, Failure> {
        let bytes = self
            .get_ref(column)?
            .as_bytes_or_null()
            .map_err(|_| not_a(column, "text"))?;
        bytes
            .map(std::str::from_utf8)
            .transpose()
            .map_err(|_| not_a(column, "text"))
    }

    fn id(&self, column: usize) -> Result<Option<Uuid>, Failure> {
        let bytes = self
            .get_ref(column)?
            .as_blob_or_null()
            .map_err(Failure::internal)?;
        bytes
            .map(Uuid::from_slice)
            .transpose()
            .map_err(Failure::internal)
    }
}

impl Columns for SqlRow {
    fn int(&self, column: usize) -> Result<Option<i64>, Failure> {
        let value = match self {
            Self::Sqlite(values) => match &values[column] {
                Value::Integer(value) => Some(*value),
                Value::Null => None,
                Value::Real(_) | Value::Text(_) | Value::Blob(_) => {
                    return Err(not_a(column, "number"));
                }
            },
            Self::Guest(row) => row.try_get(column)?,
            #[cfg(feature = "mysql")]
            Self::MySql(row) => row.try_get_unchecked(column)?,
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => postgres_int(row, column)?,
        };
        Ok(value)
    }

    fn str(&self, column: usize) -> Result<Option<&str>, Failure> {
        let value = match self {
            Self::Sqlite(values) => match &values[column] {
                Value::Text(text) => Some(text.as_str()),
                Value::Blob(bytes) => {
                    Some(std::str::from_utf8(bytes).map_err(|_| not_a(column, "text"))?)
                }
                Value::Null => None,
                Value::Integer(_) | Value::Real(_) => return Err(not_a(column, "text")),
            },
            Self::Guest(row) => row.try_get(column)?,
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => row.try_get_unchecked(column)?,
            #[cfg(feature = "mysql")]
            Self::MySql(row) => {
                let bytes: Option<&[u8]> = row.try_get_unchecked(column)?;
                bytes
                    .map(std::str::from_utf8)
                    .transpose()
                    .map_err(Failure::internal)?
            }
        };
        Ok(value)
    }

    fn id(&self, column: usize) -> Result<Option<Uuid>, Failure> {
        let bytes: Option<Vec<u8>> = match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => return Ok(row.try_get_unchecked(column)?),
            Self::Sqlite(values) => match &values[column] {
                Value::Blob(bytes) => {
                    return Uuid::from_slice(bytes).map(Some).map_err(Failure::internal);
                }
                Value::Null => None,
                Value::Integer(_) | Value::Real(_) | Value::Text(_) => {
                    return Err(not_a(column, "id"));
                }
            },
            Self::Guest(row) => row.try_get_unchecked(column)?,
            #[cfg(feature = "mysql")]
            Self::MySql(row) => row.try_get_unchecked(column)?,
        };
        bytes
            .map(|bytes| Uuid::from_slice(&bytes))
            .transpose()
            .map_err(Failure::internal)
    }

    fn flag(&self, column: usize) -> Result<bool, Failure> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(row) = self {
            return Ok(row.try_get(column)?);
        }
        Ok(self.int(column)?.unwrap_or(0) != 0)
    }
}

/// An integer of whatever width. It is asked for so often that the type is told by the length: what a prepared statement
/// answers is binary.
#[cfg(feature = "postgres")]
fn postgres_int(row: &sqlx::postgres::PgRow, column: usize) -> Result<Option<i64>, Failure> {
    let raw = row.try_get_raw(column)?;
    if raw.is_null() {
        return Ok(None);
    }
    let bytes = raw.as_bytes().map_err(Failure::internal)?;
    let value = match *bytes {
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => return Err(not_a(column, "number")),
    };
    Ok(Some(value))
}

fn null(column: usize) -> Failure {
    Failure::internal(format!("column {column} is null"))
}

fn not_a(column: usize, kind: &str) -> Failure {
    Failure::internal(format!("column {column} is not a {kind}"))
}
