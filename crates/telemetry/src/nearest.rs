//! Did you mean …? The nearest of some names by edit distance.
//!
//! Takes a word and the known names, gives the one that the writer probably meant, or nothing. In this crate, because
//! the faults of templates need it, and all other crates with names that people write see this one.

/// The known name that is nearest to `word`, when it is near enough to be a slip of the fingers: at most
/// a third of its letters wrong, missing, extra or swapped.
///
/// ```
/// let known = ["bind", "threads", "drivers"];
/// assert_eq!(telemetry::nearest("thraeds", known), Some("threads"));
/// assert_eq!(telemetry::nearest("colour", known), None);
/// ```
pub fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let spelt = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let word = spelt(word);
    let distance_max = (word.chars().count() / 3).max(1);
    // Optimal string alignment: a swap of neighbours counts as one edit, which is how fingers slip.
    let near = |name: &'n str| (strsim::osa_distance(&word, &spelt(name)), name);
    let nearest = known
        .into_iter()
        .map(near)
        .min_by_key(|(distance, _)| *distance);
    nearest
        .filter(|(distance, _)| *distance <= distance_max)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

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
