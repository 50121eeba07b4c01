//! What an exchange found when it came to its pool's queue.
//!
//! Takes the counts as the pool saw them under its lock, so they belong to one moment. It must not count
//! anything itself.

use crate::Nanos;

/// How things stood at a pool when an exchange came to its queue.
///
/// A pool that takes exchanges has at least one thread: `threads` of 0 says that this one came to none, and
/// then only `before` means anything ([`Queued::is_known`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Queued {
    /// How long it had waited before it reached this server, as a proxy in front says; zero when nobody
    /// says so. No part of any phase.
    pub before: Nanos,
    /// Exchanges that waited in the queue already.
    pub waiting: u32,
    /// Threads that the pool had.
    pub threads: u32,
    /// Threads of them that had nothing to do.
    pub idle: u32,
    /// No thread was free for it: it waited in the queue until one was.
    pub from_queue: bool,
}

impl Queued {
    /// Whether it came to a pool's queue at all.
    pub const fn is_known(&self) -> bool {
        self.threads > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pool_with_threads_tells_anything() {
        let before = Queued {
            before: Nanos(5),
            ..Queued::default()
        };
        assert!(!before.is_known());
        assert!(
            Queued {
                threads: 1,
                ..before
            }
            .is_known()
        );
    }
}
