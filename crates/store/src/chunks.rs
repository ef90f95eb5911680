//! Inserts of many rows where a database takes no arrays: one statement for each of a few sizes.
//!
//! Six sizes keep the number of prepared statements small; any batch is a handful of full chunks.

use crate::catalog::{Dialect, Sql};

/// Rows in one statement, largest first.
const SIZES: [usize; 6] = [256, 64, 16, 4, 2, 1];

/// The statements of one insert, by size.
#[derive(Debug)]
pub(crate) struct ChunkedInsert {
    by_size: Vec<(usize, Sql)>,
}

impl ChunkedInsert {
    /// Repeats what stands between `{row}` and `{/row}` in `file`.
    pub(crate) fn new(dialect: &Dialect, name: &'static str, file: &str) -> Self {
        let (head, rest) = file.split_once("{row}").unwrap_or((file, ""));
        let (row, tail) = rest.split_once("{/row}").unwrap_or((rest, ""));
        let statement = |size: &usize| {
            let text = [head, &vec![row; *size].join(", "), tail].concat();
            (*size, dialect.sql(name, &text))
        };
        Self { by_size: SIZES.iter().map(statement).collect() }
    }

    /// Cuts `rows` into full chunks, each with its statement.
    pub(crate) fn chunks<'a, T>(&'static self, mut rows: &'a [T]) -> Vec<(&'static Sql, &'a [T])> {
        let mut chunks = Vec::new();
        for (size, sql) in &self.by_size {
            while rows.len() >= *size {
                let (chunk, rest) = rows.split_at(*size);
                chunks.push((sql, chunk));
                rows = rest;
            }
        }
        chunks
    }

    /// The statement for one row.
    pub(crate) fn of_one_row(&'static self) -> &'static Sql {
        &self.by_size[SIZES.len() - 1].1
    }

    /// All texts, for the test that prepares every statement.
    pub(crate) fn statements(&'static self) -> impl Iterator<Item = &'static Sql> {
        self.by_size.iter().map(|(_, sql)| sql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SQLITE_DIALECT;
    use std::sync::LazyLock;

    static INSERT: LazyLock<ChunkedInsert> =
        LazyLock::new(|| ChunkedInsert::new(&SQLITE_DIALECT, "t", "INSERT VALUES {row}(?, ?){/row} END"));

    #[test]
    fn every_row_is_in_exactly_one_chunk() {
        let rows: Vec<usize> = (0..1_000).collect();
        let chunks = INSERT.chunks(&rows);
        let seen: Vec<usize> = chunks.iter().flat_map(|(_, chunk)| chunk.to_vec()).collect();
        assert_eq!(seen, rows);
        assert_eq!(chunks.len(), 3 + 3 + 2 + 2);
        assert_eq!(chunks[8].0.text, "INSERT VALUES (?, ?), (?, ?), (?, ?), (?, ?) END");
    }
}
