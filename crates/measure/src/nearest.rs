//! Did you mean …? The nearest of some names by edit distance.
//!
//! Takes a word and the known names, gives the one that the writer probably meant, or nothing. It is in
//! this crate because the faults of templates need it, and whoever else does sees this crate.

/// The known name that is nearest to `word`, when it is near enough to be a slip of the fingers: at most
/// a third of its letters wrong, missing, extra or swapped.
///
/// ```
/// let known = ["bind", "threads", "drivers"];
/// assert_eq!(measure::nearest("thraeds", known), Some("threads"));
/// assert_eq!(measure::nearest("colour", known), None);
/// ```
pub fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let distance_max = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| {
            (
                distance(&word, &name.to_ascii_lowercase().replace('-', "_")),
                name,
            )
        })
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1 each.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, expect: usize) {
        assert_eq!(distance(a, b), expect, "{a} {b}");
        assert_eq!(distance(b, a), expect, "{b} {a}");
    }

    #[test]
    fn counts_edits_and_swaps_as_one() {
        check("", "", 0);
        check("", "abc", 3);
        check("bind", "bind", 0);
        check("bind", "bnid", 1);
        check("bind", "binds", 1);
        check("bind", "bend", 1);
        check("threads", "treads", 1);
        check("accept", "except", 2);
    }

    #[test]
    fn finds_slips_and_leaves_strangers_alone() {
        let known = ["accept_batch", "backlog", "bind", "static"];
        assert_eq!(nearest("accept-bacth", known), Some("accept_batch"));
        assert_eq!(nearest("ACCEPT_BATCH", known), Some("accept_batch"));
        assert_eq!(nearest("blind", known), Some("bind"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
