//! Cuts batches by size. A statement with many large documents could exceed the server's limit (16
//! MiB by default in MariaDB), and each retry would fail again.

/// About the most bytes of documents in one statement.
const BYTES: usize = 4 * 1024 * 1024;

/// Cuts `items` into runs of at most about 4 MiB, each of at least one item.
pub(crate) fn split_by_bytes<T>(items: &[T], bytes_of: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut cuts = Vec::new();
    let mut from = 0;
    let mut bytes = 0;

    for (index, item) in items.iter().enumerate() {
        let size = bytes_of(item);
        if index > from && bytes + size > BYTES {
            cuts.push(&items[from..index]);
            (from, bytes) = (index, 0);
        }
        bytes += size;
    }

    if from < items.len() {
        cuts.push(&items[from..]);
    }

    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_one_batch_and_none_is_too_large() {
        let sizes = [1, BYTES, 5, BYTES - 5, 1, BYTES * 3, 1];
        let cut: Vec<&[usize]> = split_by_bytes(&sizes, |size| *size);
        assert_eq!(cut.concat(), sizes);
        assert_eq!(
            cut.iter().map(|chunk| chunk.len()).collect::<Vec<_>>(),
            [1, 1, 2, 1, 1, 1]
        );
        assert!(split_by_bytes(&[] as &[usize], |size| *size).is_empty());
    }
}
