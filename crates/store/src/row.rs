//! Parameters and rows of statements, the same for all three databases.

use rusqlite::types::Value;
use sqlx::Row as _;
#[cfg(feature = "postgres")]
use sqlx::ValueRef as _;
use uuid::Uuid;

use crate::sql_error::SqlError;

/// A value bound to a statement. Lists are one JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A row of any of the three databases.
pub(crate) enum SqlRow {
    /// From one of the store's connections.
    Sqlite(Vec<Value>),
    /// From a caller's own transaction on SQLite.
    Guest(sqlx::sqlite::SqliteRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
    #[cfg(feature = "mysql")]
    MySql(sqlx::mysql::MySqlRow),
}

/// The columns of a row, by position.
pub(crate) trait Columns {
    fn int(&self, column: usize) -> Result<Option<i64>, SqlError>;
    /// A borrowed text; [`Self::text`] is an owned one. SQLite may store it as bytes.
    fn str(&self, column: usize) -> Result<Option<&str>, SqlError>;
    fn id(&self, column: usize) -> Result<Option<Uuid>, SqlError>;

    fn text(&self, column: usize) -> Result<Option<String>, SqlError> {
        Ok(self.str(column)?.map(str::to_owned))
    }

    fn flag(&self, column: usize) -> Result<bool, SqlError> {
        Ok(self.int(column)?.unwrap_or(0) != 0)
    }

    /// Like [`Self::int`] for a column that is never null.
    fn must_int(&self, column: usize) -> Result<i64, SqlError> {
        self.int(column)?.ok_or_else(|| null(column))
    }

    fn must_text(&self, column: usize) -> Result<String, SqlError> {
        self.text(column)?.ok_or_else(|| null(column))
    }

    fn must_str(&self, column: usize) -> Result<&str, SqlError> {
        self.str(column)?.ok_or_else(|| null(column))
    }

    fn must_id(&self, column: usize) -> Result<Uuid, SqlError> {
        self.id(column)?.ok_or_else(|| null(column))
    }
}

/// The current row of a running SQLite statement.
impl Columns for rusqlite::Row<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
        Ok(self.get(column)?)
    }

    fn str(&self, column: usize) -> Result<Option<&str>, SqlError> {
        let bytes = self
            .get_ref(column)?
            .as_bytes_or_null()
            .map_err(|_| not_a(column, "text"))?;
        bytes
            .map(std::str::from_utf8)
            .transpose()
            .map_err(|_| not_a(column, "text"))
    }

    fn id(&self, column: usize) -> Result<Option<Uuid>, SqlError> {
        let bytes = self
            .get_ref(column)?
            .as_blob_or_null()
            .map_err(SqlError::internal)?;
        bytes
            .map(Uuid::from_slice)
            .transpose()
            .map_err(SqlError::internal)
    }
}

impl Columns for SqlRow {
    fn int(&self, column: usize) -> Result<Option<i64>, SqlError> {
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

    fn str(&self, column: usize) -> Result<Option<&str>, SqlError> {
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
                    .map_err(SqlError::internal)?
            }
        };

        Ok(value)
    }

    fn id(&self, column: usize) -> Result<Option<Uuid>, SqlError> {
        let bytes: Option<Vec<u8>> = match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => return Ok(row.try_get_unchecked(column)?),
            Self::Sqlite(values) => match &values[column] {
                Value::Blob(bytes) => {
                    return Uuid::from_slice(bytes)
                        .map(Some)
                        .map_err(SqlError::internal);
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
            .map_err(SqlError::internal)
    }

    fn flag(&self, column: usize) -> Result<bool, SqlError> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(row) = self {
            return Ok(row.try_get(column)?);
        }
        Ok(self.int(column)?.unwrap_or(0) != 0)
    }
}

/// An integer of any width. Prepared statements answer in binary, so the length gives the type,
/// which is faster than a type lookup.
#[cfg(feature = "postgres")]
fn postgres_int(row: &sqlx::postgres::PgRow, column: usize) -> Result<Option<i64>, SqlError> {
    let raw = row.try_get_raw(column)?;
    if raw.is_null() {
        return Ok(None);
    }

    let bytes = raw.as_bytes().map_err(SqlError::internal)?;
    let value = match *bytes {
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => return Err(not_a(column, "number")),
    };
    Ok(Some(value))
}

fn null(column: usize) -> SqlError {
    SqlError::internal(format!("column {column} is null"))
}

fn not_a(column: usize, kind: &str) -> SqlError {
    SqlError::internal(format!("column {column} is not a {kind}"))
}
