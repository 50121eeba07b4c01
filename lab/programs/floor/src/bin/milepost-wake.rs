//! The floor of a hand-over: how long one sleeping thread needs to be awake after another has called it, and
//! nothing else. What a server needs from a request's arrival to its begin on a thread cannot be less.
//!
//! Takes `wake PER_SECOND SECONDS`, prints `p50_us`, `p99_us` and `max_us` as JSON.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments
        .iter()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let &[per_second @ 1..=1_000, seconds @ 1..=3_600] = numbers.as_slice() else {
        eprintln!("usage: wake PER_SECOND SECONDS");
        exit(2);
    };
    let mut waits = waits(per_second, per_second * seconds);
    waits.sort_unstable();
    // The nearest rank, as everywhere.
    let at = |share: f64| waits[(waits.len() as f64 * share).ceil() as usize - 1] as f64 / 1e3;
    println!(
        "{{\"p50_us\":{:.1},\"p99_us\":{:.1},\"max_us\":{:.1}}}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Nanoseconds from each call to its answer.
fn waits(per_second: u64, calls: u64) -> Vec<u64> {
    let begin = Instant::now();
    let called = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let called = Arc::clone(&called);
        thread::spawn(move || {
            let mut waits = Vec::with_capacity(calls as usize);
            while (waits.len() as u64) < calls {
                let at = called.swap(0, Ordering::AcqRel);
                if at == 0 {
                    thread::park();
                    continue;
                }
                waits.push(begin.elapsed().as_nanos() as u64 - at);
            }
            waits
        })
    };
    let gap = Duration::from_nanos(1_000_000_000 / per_second);
    for _ in 0..calls {
        thread::sleep(gap);
        called.store(begin.elapsed().as_nanos() as u64, Ordering::Release);
        sleeper.thread().unpark();
    }
    sleeper.join().expect("it does not panic")
}
