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
    Postgres(sqlx::postgres::PgRow),
    MySql(sqlx::mysql::MySqlRow),
}

impl SqlRow {
    pub(crate) fn int(&self, column: usize) -> Result<Option<i64>, Failure> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column)?,
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
            Self::Sqlite(_) | Self::MySql(_) => Ok(self.int(column)?.unwrap_or(0) != 0),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<Option<String>, Failure> {
        let value = match self {
            Self::Sqlite(row) => row.try_get(column)?,
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
            Self::Sqlite(row) => row.try_get_unchecked(column)?,
            Self::MySql(row) => row.try_get_unchecked(column)?,
        };
        bytes.map(|bytes| Uuid::from_slice(&bytes)).transpose().map_err(Failure::internal)
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
