//! One request in 32 bytes.
//!
//! ```text
//! word 0: arrival in µs, 48 │ route, 16
//! word 1: receive, 16 │ queue, 16 │ run, 16 │ send, 16               (0.05 %)
//! word 2: processor time, or time in steps, 16 │ worker, 16 │ bytes sent, 16 │ status, 10 │ ending, 3 │ flags, 3
//! word 3: check, 20 │ folded path, 12 │ pool, 8 │ waiting, threads, idle; or the longest step and steps, 24
//! ```

use super::float::{packed, unpacked};
use crate::{Ending, Nanos};

/// Words of a request.
pub const RECORD_WORDS: usize = 4;
const _: () = assert!(RECORD_WORDS * size_of::<u64>() <= 32);

/// The pool of a request that went to none.
const NO_POOL_CODE: u64 = 255;
const CHECK_BITS: u32 = 20;
const CHECK_MASK: u64 = (1 << CHECK_BITS) - 1;
const ARRIVED_MASK: u64 = (1 << 48) - 1;

/// What is kept of a request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldRequest {
    /// When it arrived, in microseconds of its process's clock.
    pub arrived_us: u64,
    /// Index of its route.
    pub route: u16,
    /// Number of its folded path; 0: it has none.
    pub path: u16,
    /// Index of its pool.
    pub pool: Option<u16>,
    /// Number of the worker that ran it, modulo 65,535; 0: none did.
    pub worker: u16,
    /// Its status; 0: no reply was begun.
    pub status: u16,
    /// How it ended.
    pub ending: Ending,
    /// From its arrival to the queue.
    pub receive: Nanos,
    /// In the queue.
    pub queue: Nanos,
    /// Its run.
    pub run: Nanos,
    /// From its run to its end.
    pub send: Nanos,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// It had to wait for a thread.
    pub from_queue: bool,
    /// It lasted as long as its ends liked: a WebSocket connection or an event stream.
    pub is_long_lived: bool,
    /// What ran it.
    pub by: HeldRun,
}

/// What ran a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldRun {
    /// A thread, or nothing.
    Thread {
        /// Processor time.
        cpu: Nanos,
        /// Requests that waited in the queue already.
        waiting: u32,
        /// Threads that the pool had; 0: it came to no queue.
        threads: u32,
        /// Threads of them that had nothing to do.
        idle: u32,
    },
    /// An event loop.
    EventLoop {
        /// Steps of its task.
        steps: u32,
        /// How long they took together.
        busy: Nanos,
        /// The longest of them.
        longest: Nanos,
    },
}

impl Default for HeldRun {
    fn default() -> HeldRun {
        HeldRun::Thread {
            cpu: Nanos::ZERO,
            waiting: 0,
            threads: 0,
            idle: 0,
        }
    }
}

impl HeldRequest {
    /// When it ended, in microseconds of its process's clock.
    pub fn ended_us(&self) -> u64 {
        let span = [self.receive, self.queue, self.run, self.send];
        let span = span
            .iter()
            .fold(0_u64, |sum, one| sum.saturating_add(one.0));
        self.arrived_us.saturating_add(span / 1_000)
    }

    /// Its words in the block with this number.
    pub fn packed(&self, block: u64) -> [u64; RECORD_WORDS] {
        let short = |value: u64| packed::<10>(value);
        // Saturates: 16 bits of a fraction of 4 hold all numbers below 2^18.
        let tiny = |value: u32| packed::<4>(u64::from(value)).min(255);
        let (time, facts, is_loop) = match self.by {
            HeldRun::Thread {
                cpu,
                waiting,
                threads,
                idle,
            } => {
                let facts = tiny(waiting) | tiny(threads) << 8 | tiny(idle) << 16;
                (cpu, facts, false)
            }
            HeldRun::EventLoop {
                steps,
                busy,
                longest,
            } => (busy, short(longest.0) | tiny(steps) << 16, true),
        };
        let flags = u64::from(self.from_queue)
            | u64::from(is_loop) << 1
            | u64::from(self.is_long_lived) << 2;
        let status = u64::from(self.status.min(1_023));
        let pool = self
            .pool
            .map_or(NO_POOL_CODE, |pool| u64::from(pool).min(NO_POOL_CODE - 1));
        let mut words = [
            (self.arrived_us & ARRIVED_MASK) | u64::from(self.route) << 48,
            short(self.receive.0)
                | short(self.queue.0) << 16
                | short(self.run.0) << 32
                | short(self.send.0) << 48,
            short(time.0)
                | u64::from(self.worker) << 16
                | short(self.sent_bytes) << 32
                | (status | (self.ending as u64) << 10 | flags << 13) << 48,
            u64::from(self.path & 0xfff) << 20 | pool << 32 | facts << 40,
        ];
        words[3] |= check(words, block);
        words
    }

    /// The request of these words; `None`: there is none, or not all of it.
    pub fn unpacked(words: [u64; RECORD_WORDS], block: u64) -> Option<HeldRequest> {
        let [arrival, spans, facts, rest] = words;
        let unchecked = [arrival, spans, facts, rest & !CHECK_MASK];
        if rest & CHECK_MASK != check(unchecked, block) {
            return None;
        }
        let long = |word: u64, at: u32| unpacked::<10>(word >> at & 0xffff);
        let tiny = |at: u32| unpacked::<4>(rest >> at & 0xff) as u32;
        let tail = facts >> 48;
        let by = match tail >> 14 & 1 == 1 {
            false => HeldRun::Thread {
                cpu: Nanos(long(facts, 0)),
                waiting: tiny(40),
                threads: tiny(48),
                idle: tiny(56),
            },
            true => HeldRun::EventLoop {
                steps: tiny(56),
                busy: Nanos(long(facts, 0)),
                longest: Nanos(long(rest, 40)),
            },
        };
        let pool = rest >> 32 & 0xff;
        Some(HeldRequest {
            arrived_us: arrival & ARRIVED_MASK,
            route: (arrival >> 48) as u16,
            path: (rest >> 20 & 0xfff) as u16,
            pool: (pool != NO_POOL_CODE).then_some(pool as u16),
            worker: (facts >> 16 & 0xffff) as u16,
            status: (tail & 0x3ff) as u16,
            ending: Ending::ALL[(tail >> 10 & 7) as usize],
            receive: Nanos(long(spans, 0)),
            queue: Nanos(long(spans, 16)),
            run: Nanos(long(spans, 32)),
            send: Nanos(long(spans, 48)),
            sent_bytes: long(facts, 32),
            from_queue: tail >> 13 & 1 == 1,
            is_long_lived: tail >> 15 & 1 == 1,
            by,
        })
    }
}

/// Never 0, so that memory that nobody has written holds no request.
fn check(words: [u64; RECORD_WORDS], block: u64) -> u64 {
    // A multiplication carries each bit upwards, and the rotation brings the upper ones down again.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = words.iter().fold(block.wrapping_add(1), |mixed, word| {
        (mixed ^ word).wrapping_mul(FACTOR).rotate_left(29)
    });
    (mixed.wrapping_mul(FACTOR) >> (64 - CHECK_BITS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full() -> HeldRequest {
        HeldRequest {
            arrived_us: 77_000_123,
            route: 300,
            path: 2_048,
            pool: Some(3),
            worker: 65_535,
            status: 503,
            ending: Ending::Shutdown,
            receive: Nanos(1_000),
            queue: Nanos(2_047),
            run: Nanos(1 << 40),
            send: Nanos(0),
            sent_bytes: 512,
            from_queue: true,
            is_long_lived: false,
            by: HeldRun::Thread {
                cpu: Nanos(1 << 20),
                waiting: 30,
                threads: 8,
                idle: 2,
            },
        }
    }

    #[test]
    fn comes_back_as_it_was() {
        let by_loop = HeldRequest {
            pool: None,
            ending: Ending::Complete,
            from_queue: false,
            is_long_lived: true,
            by: HeldRun::EventLoop {
                steps: 9,
                busy: Nanos(1 << 21),
                longest: Nanos(1 << 19),
            },
            ..full()
        };
        for request in [full(), by_loop, HeldRequest::default()] {
            let words = request.packed(7);
            assert_eq!(HeldRequest::unpacked(words, 7), Some(request));
        }
    }

    #[test]
    fn memory_that_nobody_has_written_is_no_request() {
        for block in 0..10_000 {
            assert_eq!(HeldRequest::unpacked([0; RECORD_WORDS], block), None);
        }
    }

    proptest! {
        #[test]
        fn a_request_of_which_a_part_is_another_ones_is_none(block in 0u64..1 << 40, mask in 1u8..15, us: u32) {
            let ours = full().packed(block);
            let other = HeldRequest { arrived_us: u64::from(us), run: Nanos(9), status: 200, ..full() };
            let other = HeldRequest { path: 4, ..other }.packed(block + 1);
            let mixed = std::array::from_fn(|at| match mask >> at & 1 {
                1 => other[at],
                _ => ours[at],
            });
            prop_assert_eq!(HeldRequest::unpacked(mixed, block), None);
        }
    }
}
