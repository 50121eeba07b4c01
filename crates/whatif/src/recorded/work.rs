//! Which requests ran at which time.
//!
//! Takes requests, walks through their begins and ends in the order of time. Keeps those that run, and a place
//! for each request while it lasts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Kept;

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A thread takes it.
    Begins,
    /// Its thread is done.
    Ends,
}

/// One event, and how many are at work after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkStep {
    pub(super) now: u64,
    pub(super) event: Event,
    pub(super) index: usize,
    pub(super) running: usize,
}

/// Walks through all that ran of those that `is_of` says. At the same moment ends come first.
pub(super) fn walk(kept: &[Kept], is_of: impl Fn(&Kept) -> bool, see: &mut dyn FnMut(WorkStep)) {
    let ran = kept
        .iter()
        .enumerate()
        .filter(|(_, one)| one.has_run() && is_of(one));
    let mut begins: Vec<(u64, usize)> = ran.map(|(index, one)| (one.began(), index)).collect();
    begins.sort_unstable();
    // Ends are put in order as requests begin: the heap holds those at work, which are few, not all of the log.
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut begins = begins.into_iter().peekable();
    loop {
        let end = ends.peek().map(|Reverse(end)| *end);
        let (event, now, index) = match (begins.peek().copied(), end) {
            (None, None) => break,
            (Some((now, index)), None) => (Event::Begins, now, index),
            (Some((now, index)), Some((end, _))) if now < end => (Event::Begins, now, index),
            (_, Some((now, index))) => (Event::Ends, now, index),
        };
        match event {
            Event::Begins => {
                begins.next();
                ends.push(Reverse((kept[index].ended(), index)));
            }
            Event::Ends => {
                ends.pop();
            }
        }
        see(WorkStep {
            now,
            event,
            index,
            running: ends.len(),
        });
    }
}

/// The greatest number at work at once.
///
/// Stamps are taken beside the work and rounded, so two requests of one thread may seem to overlap by a
/// little: what lasts less than 50 µs in all is not counted.
pub(super) fn running_max(kept: &[Kept], is_of: impl Fn(&Kept) -> bool) -> usize {
    const LEAST_NS: u64 = 50_000;
    let mut lasted: Vec<u64> = Vec::new();
    let (mut before, mut running) = (0, 0);
    walk(kept, is_of, &mut |step| {
        if lasted.len() <= running {
            lasted.resize(running + 1, 0);
        }
        lasted[running] += step.now - before;
        (before, running) = (step.now, step.running);
    });
    let has_lasted = |at: &u64| *at >= LEAST_NS;
    let most = lasted.iter().rposition(has_lasted);
    // Of very short requests there may be none that lasted.
    most.filter(|most| *most > 0)
        .unwrap_or_else(|| lasted.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{recording, seen};
    use super::*;

    #[test]
    fn ends_come_before_begins_at_the_same_moment() {
        let found = recording(&[seen(0, 0, 10), seen(5, 5, 10)]);
        let mut steps = Vec::new();
        walk(&found.kept, |_| true, &mut |step| {
            steps.push((step.now / 1_000, step.event, step.index, step.running));
        });
        let expect = [
            (0, Event::Begins, 0, 1),
            (10, Event::Ends, 0, 0),
            (10, Event::Begins, 1, 1),
            (20, Event::Ends, 1, 0),
        ];
        assert_eq!(steps, expect);
    }

    #[test]
    fn two_stamps_that_cross_are_not_two_threads() {
        let crossing = recording(&[seen(0, 0, 10_000), seen(9_990, 0, 10_000)]);
        assert_eq!(running_max(&crossing.kept, |_| true), 1);
        let both = recording(&[seen(0, 0, 10_000), seen(9_000, 0, 10_000)]);
        assert_eq!(running_max(&both.kept, |_| true), 2);
        let short = recording(&[seen(0, 0, 10), seen(5, 0, 10)]);
        assert_eq!(running_max(&short.kept, |_| true), 2);
    }
}
