//! The loop with the kernel's timestamps.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;

use telemetry::now;

use super::super::drive;
use super::{OK, plan, request};
use crate::engine::worker::{RunShared, Worker};
use crate::plan::{Address, Timestamps};

#[test]
fn keeps_what_lay_unread_out_of_the_latency_and_shows_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut kept = Vec::new();
                while let Ok(Some(_)) = request(&mut stream, &mut kept) {
                    if stream.write_all(OK).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let mut plan = plan(Address::Ip(address));
    plan.machine.timestamps = Timestamps::Kernel;
    plan.length.requests = Some(2_000);
    assert_eq!(plan.fault(), None);
    // The kernel begins to note times a moment after it was asked to, which may be after the run.
    let mut tallies = (0..100).map(|_| {
        let shared = RunShared::new(&plan, now());
        let (seconds, _receiver) = channel();
        let worker = Worker::of(&plan, &shared, 0, seconds);
        drive(&worker).expect("a run").tally
    });
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
