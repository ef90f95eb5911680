//! A transaction on any of the three databases, with the few operations that the application needs.

use longhaul::{Handle, Longhaul, Submission, Task};
use sqlx::{
    MySql, Postgres, Row as _, Sqlite, mysql::MySqlRow, postgres::PgRow, sqlite::SqliteRow,
};

use super::{LibraryError, statement::Statement};

/// An open transaction. A drop without [`Self::commit`] rolls it back.
pub(crate) enum Transaction {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
    MySql(sqlx::Transaction<'static, MySql>),
}

/// A parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Param<'p> {
    Int(i64),
    Text(Option<&'p str>),
}

impl<'p> From<&'p str> for Param<'p> {
    fn from(text: &'p str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'p> From<Option<&'p str>> for Param<'p> {
    fn from(text: Option<&'p str>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Param<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// A row of a result. Columns are read by name.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
    MySql(MySqlRow),
}

impl Row {
    pub(super) fn text(&self, column: &str) -> Result<String, LibraryError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
            Self::MySql(row) => row.try_get(column)?,
        })
    }

    pub(super) fn optional_text(&self, column: &str) -> Result<Option<String>, LibraryError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
            Self::MySql(row) => row.try_get(column)?,
        })
    }

    pub(super) fn int(&self, column: &str) -> Result<i64, LibraryError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
            Self::MySql(row) => row.try_get(column)?,
        })
    }
}

/// A statement with its parameters, for one database.
macro_rules! query {
    ($sql:expr, $params:expr) => {
        $params.iter().fold(
            sqlx::query(sqlx::SqlSafeStr::into_sql_str($sql)),
            |query, param| match *param {
                Param::Int(value) => query.bind(value),
                Param::Text(value) => query.bind(value.map(str::to_owned)),
            },
        )
    };
}

impl Transaction {
    /// Runs a statement. Returns how many rows it changed.
    pub(super) async fn execute(
        &mut self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<u64, LibraryError> {
        let marks = statement.question_marks;
        let numbered = statement.numbered.as_str();

        Ok(match self {
            Self::Sqlite(open) => {
                let done = query!(marks, params).execute(&mut **open).await?;
                done.rows_affected()
            }
            Self::Postgres(open) => {
                let done = query!(numbered, params).execute(&mut **open).await?;
                done.rows_affected()
            }
            Self::MySql(open) => {
                let done = query!(marks, params).execute(&mut **open).await?;
                done.rows_affected()
            }
        })
    }

    /// Runs a query. Returns its rows.
    pub(super) async fn fetch(
        &mut self,
        statement: &'static Statement,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, LibraryError> {
        let marks = statement.question_marks;
        let numbered = statement.numbered.as_str();

        Ok(match self {
            Self::Sqlite(open) => {
                let rows = query!(marks, params).fetch_all(&mut **open).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(open) => {
                let rows = query!(numbered, params).fetch_all(&mut **open).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
            Self::MySql(open) => {
                let rows = query!(marks, params).fetch_all(&mut **open).await?;
                rows.into_iter().map(Row::MySql).collect()
            }
        })
    }

    /// Submits a task in this transaction. The task exists if and only if the rows do.
    pub(crate) async fn submit<T: Task>(
        &mut self,
        longhaul: &Longhaul,
        task: Submission<T>,
    ) -> Result<Handle<T>, LibraryError> {
        Ok(match self {
            Self::Sqlite(open) => longhaul.submit_in(open, task).await?,
            Self::Postgres(open) => longhaul.submit_in(open, task).await?,
            Self::MySql(open) => longhaul.submit_in(open, task).await?,
        })
    }

    pub(crate) async fn commit(self) -> Result<(), LibraryError> {
        match self {
            Self::Sqlite(open) => open.commit().await?,
            Self::Postgres(open) => open.commit().await?,
            Self::MySql(open) => open.commit().await?,
        }
        Ok(())
    }

    pub(crate) async fn roll_back(self) -> Result<(), LibraryError> {
        match self {
            Self::Sqlite(open) => open.rollback().await?,
            Self::Postgres(open) => open.rollback().await?,
            Self::MySql(open) => open.rollback().await?,
        }
        Ok(())
    }
}
