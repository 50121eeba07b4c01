//! When the generator itself stood still, and what that spoils.
//!
//! Pure. A request that was under way during a stall is worth nothing when the stall is more than a small part
//! of its time: what the server did meanwhile was not looked at. A stall of 20 ms says nothing against a latency
//! of seconds.

use telemetry::{Nanos, Stamp};

/// A stall may be one part of so many of a time that still counts.
const PARTS: u64 = 20;
/// So many stalls are remembered; what is older than all of them is spoiled.
const LEN: usize = 64;

/// The latest stalls.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// Where each ended and how long it was, as a ring of at most [`LEN`].
    latest: Vec<(Stamp, Nanos)>,
    len: usize,
}

impl Stalls {
    /// The generator stood still for `length`, until `end`.
    pub(crate) fn add(&mut self, length: Nanos, end: Stamp) {
        match self.latest.get_mut(self.len % LEN) {
            Some(oldest) => *oldest = (end, length),
            None => self.latest.push((end, length)),
        }
        self.len += 1;
    }

    /// Whether what lasted from `from` to `to` is spoiled.
    #[inline]
    pub(crate) fn spoil(&self, from: Stamp, to: Stamp) -> bool {
        match self.len {
            0 => false,
            len if self.latest[(len - 1) % LEN].0 <= from => false,
            _ => self.spoil_some(from, to),
        }
    }

    #[cold]
    fn spoil_some(&self, from: Stamp, to: Stamp) -> bool {
        let known = &self.latest;
        let is_forgotten = self.len > LEN && known.iter().all(|(end, _)| *end > from);
        let within = known.iter().filter(|(end, _)| *end > from);
        let stood: u64 = within.map(|(_, length)| length.0).sum();
        is_forgotten || stood.saturating_mul(PARTS) > to.since(from).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spoil_what_they_are_a_large_part_of() {
        let mut stalls = Stalls::default();
        assert!(!stalls.spoil(Stamp(0), Stamp(9)));
        stalls.add(Nanos(10), Stamp(100));
        for (from, to, expect) in [
            (95, 105, true),
            (99, 298, true),
            (99, 300, false),
            (100, 101, false),
        ] {
            assert_eq!(
                stalls.spoil(Stamp(from), Stamp(to)),
                expect,
                "{from} to {to}"
            );
        }
        stalls.add(Nanos(10), Stamp(200));
        assert!(stalls.spoil(Stamp(99), Stamp(300)), "both together");
    }

    #[test]
    fn spoil_what_is_older_than_they_remember() {
        let mut stalls = Stalls::default();
        for end in 1..=LEN as u64 + 1 {
            stalls.add(Nanos(1), Stamp(end * 1_000));
        }
        assert!(stalls.spoil(Stamp(1), Stamp(10_000_000)));
        assert!(!stalls.spoil(Stamp(2_000), Stamp(10_000_000)));
    }
}
