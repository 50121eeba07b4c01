//! Reading `/proc`: texts of small files, and the numbers in them.
//!
//! What is not there or not ours to read is `None`.

use std::fs;

/// Ids below a folder of `/proc`: entries whose names are numbers, as those of processes and threads are.
pub(super) fn ids(path: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The first number of a file below `/proc/sys`; `None`: this kernel has no such setting.
pub(super) fn setting(name: &str) -> Option<u64> {
    numbers(&fs::read_to_string(format!("/proc/sys/{name}")).ok()?).next()
}

/// The numbers of a text, other words left out.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
}

/// The number after a key with its colon at the beginning of a line: `Threads: 5`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| numbers(line.strip_prefix(key)?).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_number_of_a_key_and_of_no_other_that_begins_alike() {
        let text = "Threads:\t7\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let cases = [
            ("voluntary_ctxt_switches:", Some(12)),
            ("nonvoluntary_ctxt_switches:", Some(3)),
            ("voluntary:", None),
            ("State:", None),
        ];
        for (key, expect) in cases {
            assert_eq!(keyed(text, key), expect, "{key}");
        }
    }

    #[test]
    fn lists_this_process_among_all() {
        assert!(ids("/proc").any(|id| id == std::process::id()));
        assert_eq!(ids("/proc/none").count(), 0);
    }
}
