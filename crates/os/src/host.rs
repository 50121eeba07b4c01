//! What the kernel tells in text of the machine: control groups, processor time, pressure.
//!
//! Takes texts of `/proc` and `/sys`, and the folder that stands for the root. Judges nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of this process's control group (version 2) and of those above it, the own one first. Empty where there
/// is none.
pub fn control_groups(root: &Path) -> Vec<PathBuf> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let top = root.join("sys/fs/cgroup");
    let own = top.join(path);
    let groups = own.ancestors().take_while(|group| group.starts_with(&top));
    groups.map(PathBuf::from).collect()
}

/// The number behind a name at the beginning of a line, as in `cpu.stat`.
pub fn named_number(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// Of `/proc/stat`: time that the hypervisor gave to others, and all time, of all processors, in ticks (proc_stat(5)).
pub fn stolen_ticks(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
    // Behind these: time of guests, which is in that of users already.
    let numbers: Vec<u64> = numbers.take(8).collect::<Result<_, _>>().ok()?;
    let all = numbers
        .iter()
        .fold(0, |sum: u64, number| sum.saturating_add(*number));
    Some((*numbers.get(7)?, all))
}

/// Of a file of `/proc/pressure`, a value of the line about some waiting tasks: `avg10`, `avg60`, `avg300`, `total`.
pub fn some_pressure(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let mut words = line.split_ascii_whitespace();
    let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    value.parse().ok()
}

/// Of the same file, the time in which tasks waited: `some` of them, or all that could have run (`full`); microseconds.
pub fn pressure_total_us(text: &str, line: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|all| all.strip_prefix(line)?.strip_prefix(' '))?;
    let mut words = line.split_ascii_whitespace();
    words
        .find_map(|word| word.strip_prefix("total="))?
        .parse()
        .ok()
}

/// Of `/proc/net/netstat`, whose sections are pairs of lines: `TcpExt: NAME NAME`, `TcpExt: 1 2`.
pub fn table_number(text: &str, section: &str, name: &str) -> Option<u64> {
    let of_section = |line: &&str| {
        let rest = line.strip_prefix(section);
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    let mut lines = text.lines().filter(of_section);
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_kernel() {
        assert_eq!(named_number("a 1\nab 2\n", "ab"), Some(2));
        assert_eq!(named_number("abc 2\n", "ab"), None);
        assert_eq!(named_number("ab x\n", "ab"), None);
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n";
        assert_eq!(stolen_ticks(stat), Some((8, 36)));
        assert_eq!(stolen_ticks("cpu  1 2 3\n"), None);
        let pressure = "some avg10=1.50 avg60=0.25 avg300=0.00 total=77\nfull avg10=9.00 total=1\n";
        assert_eq!(some_pressure(pressure, "avg10"), Some(1.5));
        assert_eq!(some_pressure(pressure, "total"), Some(77.0));
        assert_eq!(some_pressure("full avg10=9.00\n", "avg10"), None);
        assert_eq!(pressure_total_us(pressure, "some"), Some(77));
        assert_eq!(pressure_total_us(pressure, "full"), Some(1));
        assert_eq!(pressure_total_us("some avg10=1.50\n", "some"), None);
    }

    #[test]
    fn counters_of_the_network() {
        let text = "TcpExtra: A B\nTcpExtra: 7 8\nTcpExt: A B C\nTcpExt: 1 2 x\n";
        assert_eq!(table_number(text, "TcpExt", "B"), Some(2));
        assert_eq!(table_number(text, "TcpExt", "C"), None);
        assert_eq!(table_number(text, "TcpExt", "D"), None);
        assert_eq!(table_number("TcpExt: A\n", "TcpExt", "A"), None);
    }
}
