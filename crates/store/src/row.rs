//! What goes into a statement and what comes out of it, the same for all three databases.

use sqlx::{Row as _, TypeInfo as _, ValueRef as _};
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
    Sqlite(sqlx::sqlite::SqliteRow),
    /// A row that came in a JSON text. SQLite's driver allocates for every column and wakes the reader for every
    /// row; one text for all rows is several times faster. Ids are hexadecimal in it.
    Packed(Vec<serde_json::Value>),
    Postgres(sqlx::postgres::PgRow),
    MySql(sqlx::mysql::MySqlRow),
}

impl SqlRow {
    /// Unpacks the rows that came as one JSON text, or as nothing when there is none.
    pub(crate) fn unpack(row: Option<&sqlx::sqlite::SqliteRow>) -> Result<Vec<Self>, Failure> {
        let text: Option<&str> = row.map(|row| row.try_get_unchecked(0)).transpose()?.flatten();
        let rows: Vec<Vec<serde_json::Value>> = text.map(serde_json::from_str).transpose()?.unwrap_or_default();
        Ok(rows.into_iter().map(Self::Packed).collect())
    }

    pub(crate) fn int(&self, column: usize) -> Result<Option<i64>, Failure> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Packed(values) => values[column].as_i64(),
            Self::MySql(row) => row.try_get_unchecked(column)?,
            Self::Postgres(row) => {
                let raw = row.try_get_raw(column)?;
                match raw.type_info().name() {
                    "INT2" => row.try_get::<Option<i16>, _>(column)?.map(i64::from),
                    "INT4" => row.try_get::<Option<i32>, _>(column)?.map(i64::from),
                    _ => row.try_get(column)?,
                }
            }
        };
        Ok(value)
    }

    pub(crate) fn flag(&self, column: usize) -> Result<bool, Failure> {
        match self {
            Self::Postgres(row) => Ok(row.try_get(column)?),
            Self::Sqlite(_) | Self::Packed(_) | Self::MySql(_) => Ok(self.int(column)?.unwrap_or(0) != 0),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<Option<String>, Failure> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Packed(values) => values[column].as_str().map(str::to_owned),
            Self::Postgres(row) => row.try_get(column)?,
            Self::MySql(row) => {
                let bytes: Option<Vec<u8>> = row.try_get_unchecked(column)?;
                bytes.map(String::from_utf8).transpose().map_err(Failure::internal)?
            }
        };
        Ok(value)
    }

    pub(crate) fn id(&self, column: usize) -> Result<Option<Uuid>, Failure> {
        let bytes: Option<Vec<u8>> = match self {
            Self::Postgres(row) => return Ok(row.try_get(column)?),
            Self::Packed(values) => {
                let text = values[column].as_str().filter(|text| !text.is_empty());
                return text.map(Uuid::try_parse).transpose().map_err(Failure::internal);
            }
            Self::Sqlite(row) => row.try_get_unchecked(column)?,
            Self::MySql(row) => row.try_get_unchecked(column)?,
        };
        bytes.map(|bytes| Uuid::from_slice(&bytes)).transpose().map_err(Failure::internal)
    }

    /// A column as it is, to be handed to a later statement of the same database in a list.
    pub(crate) fn key(&self, column: usize) -> Result<serde_json::Value, Failure> {
        match self {
            Self::Packed(values) => Ok(values[column].clone()),
            Self::Sqlite(_) | Self::Postgres(_) | Self::MySql(_) => Ok(self.must_text(column)?.into()),
        }
    }

    /// Like [`Self::int`] for a column that is never null.
    pub(crate) fn must_int(&self, column: usize) -> Result<i64, Failure> {
        self.int(column)?.ok_or_else(|| null(column))
    }

    pub(crate) fn must_text(&self, column: usize) -> Result<String, Failure> {
        self.text(column)?.ok_or_else(|| null(column))
    }

    pub(crate) fn must_id(&self, column: usize) -> Result<Uuid, Failure> {
        self.id(column)?.ok_or_else(|| null(column))
    }
}

fn null(column: usize) -> Failure {
    Failure::internal(format!("column {column} is null"))
}
