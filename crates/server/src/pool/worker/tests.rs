//! Tests of the meter: what a thread has used of a processor.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Computes until the calling thread has used that much more.
fn compute(ms: u64) {
    let end = read_clock(OWN_CLOCK).unwrap().0 + Nanos::from_ms(ms).0;
    while read_clock(OWN_CLOCK).unwrap().0 < end {}
}

#[test]
fn counts_what_its_thread_computes_once() {
    let mut meter = Meter::start();
    compute(20);
    assert!(meter.lap() >= Nanos::from_ms(20));
    assert!(meter.used().unwrap() < Nanos::from_ms(20));
}

#[test]
fn short_runs_count_as_computed_and_long_ones_are_read() {
    let (short, long) = (Nanos::from_us(49), Nanos::from_ms(900));
    let mut meter = Meter::start();
    compute(20);
    assert_eq!(meter.lap_after(short), short);
    let read = meter.lap_after(long);
    assert!((Nanos::from_ms(19)..long).contains(&read), "{read}");
    // So many that have waited all their time are missing in the next long one, and no more.
    for _ in 0..1000 {
        assert!(meter.lap_after(short) <= short);
    }
    compute(20);
    let read = meter.lap_after(long);
    assert!((Nanos::from_ms(19)..long).contains(&read), "{read}");
}

#[test]
fn stands_still_while_its_thread_waits_whoever_looks() {
    let (go, gone) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let meter = Meter::start();
        compute(5);
        tell.send(meter).unwrap();
        gone.recv().unwrap_err();
    });
    let meter = told.recv().unwrap();
    // The other thread could have used as much.
    compute(100);
    let used = meter.used().unwrap();
    assert!(
        (Nanos::from_ms(5)..Nanos::from_ms(50)).contains(&used),
        "{used}"
    );
    drop(go);
    waiting.join().unwrap();
}

#[test]
fn knows_nothing_of_threads_of_others() {
    let meter = Meter {
        thread: i32::MAX >> 3,
        began: Nanos::ZERO,
        unread: 0,
    };
    assert_eq!(meter.used(), None);
}
