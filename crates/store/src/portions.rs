//! Batches cut by their bytes: a statement that carries many large documents would exceed what a server takes at
//! once (MariaDB's default is 16 MiB), and would be refused again each time it is repeated.

/// Bytes of documents in one statement.
const BYTES: usize = 4 * 1024 * 1024;

/// Cuts `items` into runs of at most about 4 MiB, each of at least one item.
pub(crate) fn portions<T>(items: &[T], bytes_of: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut cuts = Vec::new();
    let (mut from, mut bytes) = (0, 0);
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
    fn every_item_is_in_one_portion_and_none_is_too_large() {
        let sizes = [1, BYTES, 5, BYTES - 5, 1, BYTES * 3, 1];
        let cut: Vec<&[usize]> = portions(&sizes, |size| *size);
        assert_eq!(cut.concat(), sizes);
        assert_eq!(
            cut.iter().map(|portion| portion.len()).collect::<Vec<_>>(),
            [1, 1, 2, 1, 1, 1]
        );
        assert!(portions(&[] as &[usize], |size| *size).is_empty());
    }
}
