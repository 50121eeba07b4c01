//! Reading `/proc`: small files into one buffer that is used again.
//!
//! Takes paths, gives their text; what is not there or not ours to read is `None`. Pure helpers take texts apart.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::Read;

use rustix::fs::RawDir;

/// Longest text that is read of a file, enough for `/proc/net/netstat`, and for `/proc/stat` of 1,000 processors.
const BYTES_MAX: usize = 64 * 1024;

/// What is needed to read many small files without allocating for each.
#[derive(Debug)]
pub(super) struct ProcReader {
    path: String,
    bytes: Box<[u8]>,
}

impl ProcReader {
    /// With room for one file.
    pub(super) fn new() -> ProcReader {
        ProcReader {
            path: String::with_capacity(64),
            bytes: vec![0; BYTES_MAX].into_boxed_slice(),
        }
    }

    /// The text of a file, at most its first 64 KB; `None`: it cannot be read, or is no text.
    pub(super) fn text(&mut self, path: fmt::Arguments<'_>) -> Option<&str> {
        self.path.clear();
        self.path.write_fmt(path).ok()?;
        let mut file = File::open(&self.path).ok()?;
        let mut len = 0;
        // A file of many lines comes in several reads.
        while len < self.bytes.len() {
            match file.read(&mut self.bytes[len..]).ok()? {
                0 => break,
                more => len += more,
            }
        }
        std::str::from_utf8(&self.bytes[..len]).ok()
    }
}

/// Calls `found` with each entry of a folder whose name is a number, as ids of processes and threads are.
pub(super) fn each_id(path: &str, mut found: impl FnMut(u32)) {
    let Ok(folder) = File::open(path) else {
        return;
    };
    let mut room = [std::mem::MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(folder, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        if let Some(id) = entry
            .file_name()
            .to_str()
            .ok()
            .and_then(|name| name.parse().ok())
        {
            found(id);
        }
    }
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

/// The number after a key at the beginning of a line: `Threads: 5`.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| numbers(line.strip_prefix(key)?.strip_prefix(':')?).next())
}

/// Resident memory of a process in bytes, from its `statm`.
pub(super) fn resident_of(statm: &str) -> Option<u64> {
    Some(numbers(statm).nth(1)? * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_number_of_a_key_and_of_no_other_that_begins_alike() {
        let text = "Threads:\t7\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let cases = [
            ("voluntary_ctxt_switches", Some(12)),
            ("nonvoluntary_ctxt_switches", Some(3)),
            ("voluntary", None),
            ("State", None),
        ];
        for (key, expect) in cases {
            assert_eq!(keyed(text, key), expect, "{key}");
        }
    }

    #[test]
    fn lists_this_process_among_all() {
        let mut is_there = false;
        each_id("/proc", |id| is_there |= id == std::process::id());
        assert!(is_there);
    }

    #[test]
    fn reads_a_file_that_is_there_and_none_that_is_not() {
        let mut reading = ProcReader::new();
        let own = reading.text(format_args!("/proc/{}/statm", std::process::id()));
        assert!(own.and_then(resident_of).expect("a number") > 100_000);
        assert_eq!(reading.text(format_args!("/proc/{}/statm", u32::MAX)), None);
    }
}
