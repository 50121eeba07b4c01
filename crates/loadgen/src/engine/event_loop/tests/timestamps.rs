//! The loop with the kernel's timestamps.

use super::*;
use crate::plan::Timestamps;

#[test]
fn keeps_what_lay_unread_out_of_the_latency_and_shows_it() {
    let (address, _) = server(|_, _| Does::Reply(OK.to_vec()));
    let mut plan = plan(address);
    plan.machine.timestamps = Timestamps::Kernel;
    plan.length.requests = Some(2_000);
    // The kernel begins to note times a moment after it was asked to, which may be after the run.
    let mut tallies = (0..100).map(|_| drive_all(&plan).tally);
    let tally = tallies.find(|tally| !tally.unread.is_empty());
    let tally = tally.expect("the kernel notes times");
    let counts = tally.counts();
    assert_eq!((counts.answered, counts.failures.sum()), (2_000, 0));
    let unread = tally.unread.len();
    assert!(unread > 0 && unread + counts.disturbed <= 2_000, "{unread}");
    let sums = [&tally.unread, &tally.last_byte, &tally.cycle]
        .map(|times| times.moments().mean() * times.len() as f64);
    let [unread, last_byte, cycle] = sums;
    assert!(last_byte + unread <= cycle * 1.001, "{sums:?}");
}
