//! Statements over many rows, for databases without arrays: one statement for each of six sizes.
//!
//! Six sizes keep the number of prepared statements small. Any batch is a few chunks.

use crate::catalog::{Dialect, Sql};

/// Rows in one statement, largest first.
const SIZES: [usize; 6] = [256, 64, 16, 4, 2, 1];

/// One statement in each size.
#[derive(Debug)]
pub(crate) struct Chunked {
    by_size: Vec<(usize, Sql)>,
}

impl Chunked {
    /// Repeats the text between each `{row}` and `{/row}` in `file`.
    pub(crate) fn new(dialect: &Dialect, name: &'static str, file: &str) -> Self {
        let statement = |size: &usize| (*size, dialect.sql(name, &repeated(file, *size)));
        Self {
            by_size: SIZES.iter().map(statement).collect(),
        }
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

    /// Cuts `rows` into chunks, each with its statement. Pads a chunk that is more than half full
    /// with its last row. For statements that accept a repeated row.
    pub(crate) fn filled<T: Clone>(&'static self, mut rows: &[T]) -> Vec<(&'static Sql, Vec<T>)> {
        let mut chunks = Vec::new();
        for (size, sql) in &self.by_size {
            while rows.len() * 2 > *size {
                let (chunk, rest) = rows.split_at(rows.len().min(*size));
                let mut chunk = chunk.to_vec();
                chunk.resize(*size, chunk[chunk.len() - 1].clone());
                chunks.push((sql, chunk));
                rows = rest;
            }
        }

        chunks
    }

    /// All sizes, for the test that prepares every statement.
    pub(crate) fn statements(&'static self) -> impl Iterator<Item = &'static Sql> {
        self.by_size.iter().map(|(_, sql)| sql)
    }
}

fn repeated(file: &str, size: usize) -> String {
    let mut text = String::with_capacity(file.len() * size);
    let mut rest = file;
    while let Some((head, (row, tail))) = rest
        .split_once("{row}")
        .and_then(|(head, rest)| Some((head, rest.split_once("{/row}")?)))
    {
        text.push_str(head);
        text.push_str(&vec![row; size].join(", "));
        rest = tail;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SQLITE_DIALECT;
    use std::sync::LazyLock;

    static INSERT: LazyLock<Chunked> =
        LazyLock::new(|| Chunked::new(&SQLITE_DIALECT, "t", "INSERT VALUES {row}(?, ?){/row} END"));

    #[test]
    fn every_row_is_in_exactly_one_chunk() {
        let rows: Vec<usize> = (0..1_000).collect();
        let chunks = INSERT.chunks(&rows);
        let seen: Vec<usize> = chunks
            .iter()
            .flat_map(|(_, chunk)| chunk.to_vec())
            .collect();

        assert_eq!(seen, rows);
        assert_eq!(chunks.len(), 3 + 3 + 2 + 2);
        assert_eq!(
            chunks[8].0.text,
            "INSERT VALUES (?, ?), (?, ?), (?, ?), (?, ?) END"
        );
    }

    #[test]
    fn a_chunk_that_is_more_than_half_full_is_filled_with_its_last_row() {
        let sizes = |count: usize| -> Vec<usize> {
            let rows: Vec<usize> = (0..count).collect();
            let chunks = INSERT.filled(&rows);
            let mut seen: Vec<usize> = chunks.iter().flat_map(|(_, chunk)| chunk.clone()).collect();
            seen.dedup();
            assert_eq!(seen, rows);
            chunks.iter().map(|(_, chunk)| chunk.len()).collect()
        };

        assert_eq!(sizes(500), [256, 256]);
        assert_eq!(sizes(65), [64, 1]);
        assert_eq!(sizes(3), [4]);
        assert!(sizes(0).is_empty());
    }

    #[test]
    fn every_mark_is_repeated() {
        assert_eq!(
            repeated("IN ({row}?{/row}) OR ({row}?{/row})", 2),
            "IN (?, ?) OR (?, ?)"
        );
    }
}
