//! The known word that a mistyped one was probably meant to be.

/// The nearest of the known ones, and how many letters it is away.
pub(super) fn nearest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<(&'a str, usize)> {
    known
        .into_iter()
        .map(|other| (other, distance(word, other)))
        .min_by_key(|(_, away)| *away)
}

/// Letters to insert, remove or replace, or pairs to swap, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
    for a in 0..=one.len() {
        for b in 0..=other.len() {
            table[a][b] = if a == 0 || b == 0 {
                a + b
            } else {
                let differ = usize::from(one[a - 1] != other[b - 1]);
                let mut least = (table[a - 1][b] + 1)
                    .min(table[a][b - 1] + 1)
                    .min(table[a - 1][b - 1] + differ);
                if a > 1 && b > 1 && one[a - 1] == other[b - 2] && one[a - 2] == other[b - 1] {
                    least = least.min(table[a - 2][b - 2] + 1);
                }
                least
            };
        }
    }
    table[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let known = ["worker.slots", "worker.name", "http.listen"];
        assert_eq!(nearest("worker.slot", known), Some(("worker.slots", 1)));
        assert_eq!(nearest("http.lisetn", known), Some(("http.listen", 1)));
        assert_eq!(nearest("worker.slots", known), Some(("worker.slots", 0)));
        assert_eq!(nearest("x", []), None);
    }
}
