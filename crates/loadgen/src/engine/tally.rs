//! What one thread counts: distributions, counters, the current second.
//!
//! Takes what happened with its stamps, keeps what falls into the window. No other thread touches it; after
//! the run the tallies of all threads are merged.
//!
//! Closed loads count what *ends* within the window. Open loads count what was *due* within it, whenever it
//! ends: what is still under way at the end of the window would be the slowest of all.

use std::collections::BTreeMap;

use h2::Reason;
use telemetry::{Nanos, Stamp};

use super::response::Ended;
use super::stalls::Stalls;
use crate::distribution::Distribution;
use crate::outcome::{Counts, Failure, Second};

/// The counted time. `begin` may become known only during the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Window {
    pub(crate) begin: Stamp,
    pub(crate) end: Stamp,
}

impl Window {
    #[inline]
    pub(crate) fn holds(self, at: Stamp) -> bool {
        self.begin <= at && at < self.end
    }
}

/// The stamps of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flight {
    /// Which of the plan's kinds.
    pub(crate) kind: u32,
    /// When the turn began: the end of the request before in this place, or the beginning of the connection.
    pub(crate) began: Stamp,
    /// When it was due; [`Stamp::ZERO`] in closed loads.
    pub(crate) due: Stamp,
    /// When its first byte was given to the kernel.
    pub(crate) sent: Stamp,
    /// When the first byte of its reply was read; [`Stamp::ZERO`]: not yet.
    pub(crate) first_byte: Stamp,
    /// When its last byte had arrived, by the kernel's stamps; [`Stamp::ZERO`]: when it was read.
    pub(crate) arrived: Stamp,
}

/// Statuses have three digits.
const STATUSES_LEN: usize = 1_000;

/// What one thread counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) window: Window,
    /// Open loads count by due times.
    by_due: bool,
    /// What they spoil is in no distribution.
    stalls: Stalls,
    pub(crate) counts: Counts,
    /// By status.
    statuses: Vec<u64>,
    pub(crate) latency: Distribution,
    pub(crate) connect: Distribution,
    pub(crate) first_byte: Distribution,
    pub(crate) last_byte: Distribution,
    pub(crate) cycle: Distribution,
    pub(crate) late: Distribution,
    pub(crate) unread: Distribution,
    /// Right replies that came within the window, whenever they were due.
    within: u64,
    /// Requests that ended in the window, in any way.
    pub(crate) ended: u64,
    /// Requests that ended at any time.
    pub(crate) all_ended: u64,
    /// When the last counted one ended.
    pub(crate) last_end: Stamp,
    second: SecondShare,
}

/// What a thread has counted in a second; [`Sum`] makes one of those of all threads.
#[derive(Debug, Default)]
pub(crate) struct SecondShare {
    /// Whole seconds since the run began; of the second that is going on not known yet.
    pub(crate) at: u64,
    answered: u64,
    failed: u64,
    read_bytes: u64,
    latency: Distribution,
}

impl Tally {
    /// An empty one; `by_due` for open loads.
    pub(crate) fn new(window: Window, by_due: bool) -> Tally {
        Tally {
            window,
            by_due,
            statuses: vec![0; STATUSES_LEN],
            ..Tally::default()
        }
    }

    /// A reply was read to its end at `now`.
    #[inline]
    pub(crate) fn ended(&mut self, flight: &Flight, reply: Ended, now: Stamp) {
        // What is no reply has no status.
        if reply.status > 0 && self.counted(flight, now) {
            self.statuses[usize::from(reply.status).min(STATUSES_LEN - 1)] += 1;
        }
        match reply.wrong {
            None => self.answered(flight, now),
            Some(wrong) => self.failed(flight, wrong, now),
        }
    }

    #[inline]
    fn answered(&mut self, flight: &Flight, now: Stamp) {
        let from = self.from(flight);
        let has_arrived = flight.arrived != Stamp::ZERO;
        let arrived = if has_arrived { flight.arrived } else { now };
        // A request that was under way while the generator stood still would lie about the server by as much.
        let is_disturbed = self.stalls.spoil(from, arrived);
        if !is_disturbed {
            self.second.latency.record(arrived.since(from));
        }
        self.second.answered += 1;
        self.all_ended += 1;
        self.within += u64::from(self.window.holds(now));
        if !self.counted(flight, now) {
            return;
        }
        self.ended += 1;
        self.last_end = now;
        self.counts.answered += 1;
        if is_disturbed {
            self.counts.disturbed += 1;
            return;
        }
        // From when it was due and not from when it left: a server that stops would otherwise be asked less while it
        // stops, and the requests that it kept from leaving would be missing (coordinated omission).
        if self.by_due {
            self.latency.record(arrived.since(flight.due));
        }
        if has_arrived {
            self.unread.record(now.since(arrived));
        }
        self.last_byte.record(arrived.since(flight.sent));
        self.first_byte.record(flight.first_byte.since(flight.sent));
        // With the time of reading and not of arrival: turns follow each other without a gap.
        self.cycle.record(now.since(flight.began));
    }

    /// A request that was due at `due` was begun at `now` on a connection that had been free since `free`.
    #[inline]
    pub(crate) fn begun(&mut self, due: Stamp, free: Stamp, now: Stamp) {
        // Only what is later than both is the generator's own lateness: a server that keeps all connections busy is in
        // the latency.
        if self.window.holds(due) && !self.stalls.spoil(due, now) {
            self.late.record(now.since(due.max(free)));
        }
    }

    /// A request has failed at `now`; it is in no distribution but the one of turns.
    pub(crate) fn failed(&mut self, flight: &Flight, failure: Failure, now: Stamp) {
        self.second.failed += 1;
        self.all_ended += 1;
        if !self.counted(flight, now) {
            return;
        }
        self.ended += 1;
        self.last_end = now;
        self.counts.failures.count(failure);
        if self.stalls.spoil(self.from(flight), now) {
            self.counts.disturbed += 1;
        } else {
            self.cycle.record(now.since(flight.began));
        }
    }

    /// A request is under way at `now`, the end of the run.
    pub(crate) fn under_way(&mut self, flight: &Flight, now: Stamp) {
        if flight.sent != Stamp::ZERO {
            self.counts.unfinished += 1;
            let us = now.since(self.from(flight)).0 as f64 / 1e3;
            self.counts.unfinished_longest_us = self.counts.unfinished_longest_us.max(us);
        } else if self.by_due && self.window.holds(flight.due) {
            // What was begun and not sent is not under way, and in an open load it was due all the same.
            self.counts.unsent += 1;
        }
    }

    /// A connection was established at `now`.
    #[inline]
    pub(crate) fn connected(&mut self, began: Stamp, now: Stamp) {
        if self.window.holds(now) {
            self.counts.connections += 1;
            if !self.stalls.spoil(began, now) {
                self.connect.record(now.since(began));
            }
        }
    }

    /// Bytes were read at `now`.
    #[inline]
    pub(crate) fn read(&mut self, bytes: usize, now: Stamp) {
        self.second.read_bytes += bytes as u64;
        if self.window.holds(now) {
            self.counts.read_bytes += bytes as u64;
        }
    }

    /// Bytes were sent at `now`.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize, now: Stamp) {
        if self.window.holds(now) {
            self.counts.sent_bytes += bytes as u64;
        }
    }

    /// The server has reset a stream at `now`.
    pub(crate) fn reset(&mut self, code: Reason, now: Stamp) {
        if self.window.holds(now) {
            *self.counts.resets.entry(format!("{code:?}")).or_default() += 1;
        }
    }

    /// The server has ended a connection by GOAWAY at `now`.
    pub(crate) fn went_away(&mut self, code: Reason, now: Stamp) {
        if self.window.holds(now) {
            *self.counts.goaways.entry(format!("{code:?}")).or_default() += 1;
        }
    }

    /// The generator has stood still for `length`, up to `now`.
    pub(crate) fn stood_still(&mut self, length: Nanos, now: Stamp) {
        self.stalls.add(length, now);
    }

    /// Ends the current second, the `at`-th of the run.
    pub(crate) fn end_second(&mut self, at: u64) -> SecondShare {
        SecondShare {
            at,
            ..std::mem::take(&mut self.second)
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: &Tally) {
        assert_eq!(
            self.by_due, other.by_due,
            "all threads of a run count alike"
        );
        for (mine, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.connect, &other.connect),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.last_byte, &other.last_byte),
            (&mut self.cycle, &other.cycle),
            (&mut self.late, &other.late),
            (&mut self.unread, &other.unread),
        ] {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.statuses.iter_mut().zip(other.statuses.iter()) {
            *mine += theirs;
        }
        self.within += other.within;
        self.ended += other.ended;
        self.all_ended += other.all_ended;
        self.last_end = self.last_end.max(other.last_end);
        add(&mut self.counts, &other.counts);
    }

    /// The counts, statuses included.
    pub(crate) fn counts(&self) -> Counts {
        assert_eq!(
            self.ended,
            self.counts.ended(),
            "each request that ended was answered or failed, once"
        );
        let statuses = (0..).zip(self.statuses.iter().copied());
        Counts {
            statuses: statuses.filter(|(_, count)| *count > 0).collect(),
            answered_within: self.by_due.then_some(self.within),
            ..self.counts.clone()
        }
    }

    /// Where a request's latency begins.
    #[inline]
    fn from(&self, flight: &Flight) -> Stamp {
        if self.by_due {
            flight.due
        } else {
            // One that was never sent has waited since its turn began.
            flight.sent.max(flight.began)
        }
    }

    #[inline]
    fn counted(&self, flight: &Flight, now: Stamp) -> bool {
        self.window
            .holds(if self.by_due { flight.due } else { now })
    }
}

fn add(mine: &mut Counts, theirs: &Counts) {
    mine.failures.add(&theirs.failures);
    mine.answered += theirs.answered;
    mine.disturbed += theirs.disturbed;
    mine.unsent += theirs.unsent;
    mine.unfinished += theirs.unfinished;
    mine.unfinished_longest_us = mine.unfinished_longest_us.max(theirs.unfinished_longest_us);
    mine.connections += theirs.connections;
    mine.ended_idle += theirs.ended_idle;
    mine.left_open += theirs.left_open;
    mine.resumed += theirs.resumed;
    mine.resent += theirs.resent;
    mine.streams_max = mine.streams_max.into_iter().chain(theirs.streams_max).min();
    for (mine, theirs) in [
        (&mut mine.resets, &theirs.resets),
        (&mut mine.goaways, &theirs.goaways),
    ] {
        for (code, len) in theirs {
            *mine.entry(code.clone()).or_default() += len;
        }
    }
    mine.read_bytes += theirs.read_bytes;
    mine.sent_bytes += theirs.sent_bytes;
}

/// Seconds of all threads, as they come in.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Those that threads may still add to.
    pending: BTreeMap<u64, SecondShare>,
    /// The others, numbered from the beginning of the run.
    done: Vec<Second>,
}

impl Sum {
    /// Adds a thread's share.
    pub(crate) fn add(&mut self, share: &SecondShare) {
        let there = self.pending.entry(share.at).or_default();
        there.at = share.at;
        there.answered += share.answered;
        there.failed += share.failed;
        there.read_bytes += share.read_bytes;
        there.latency.merge(&share.latency);
    }

    /// Ends the seconds before the `until`-th and gives them, numbered from the `begin`-th on.
    pub(crate) fn ended(&mut self, until: u64, begin: u64) -> Vec<Second> {
        // Threads are at most half a second apart, and the caller waits that long: no share of these comes any more,
        // but for a thread that stood still, whose shares make a second one of the same number.
        let later = self.pending.split_off(&until);
        let ended = std::mem::replace(&mut self.pending, later);
        let known = self.done.len();
        self.done.extend(ended.values().map(second));
        numbered(&self.done[known..], begin)
    }

    /// All of them, numbered from the `begin`-th on.
    pub(crate) fn finish(mut self, begin: u64) -> Vec<Second> {
        self.ended(u64::MAX, begin);
        // What came after its second was reported.
        self.done.sort_by_key(|second| second.at_s);
        numbered(&self.done, begin)
    }
}

fn second(share: &SecondShare) -> Second {
    let us = |quantile| share.latency.quantile(quantile).0 as f64 / 1e3;
    Second {
        at_s: share.at as i64,
        answered: share.answered,
        failed: share.failed,
        read_bytes: share.read_bytes,
        p50_us: us(0.5),
        p99_us: us(0.99),
        max_us: share.latency.moments().max() / 1e3,
    }
}

fn numbered(seconds: &[Second], begin: u64) -> Vec<Second> {
    let number = |second: &Second| Second {
        at_s: second.at_s.saturating_sub_unsigned(begin),
        ..*second
    };
    seconds.iter().map(number).collect()
}

#[cfg(test)]
mod tests;
