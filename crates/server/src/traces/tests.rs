//! The queue: its bound, and what is sent of it. What a collector gets is tested in tests/test_traces.py.

use config::typed::Config;
use ipc::stats::Shape;

use super::*;

fn queue(slow: Option<Nanos>) -> SpanQueue {
    let stats = Stats::new(&Shape::of(&Config::default()));
    let stats = stats.expect("there is memory for counters");
    SpanQueue {
        waiting: Mutex::default(),
        changed: Condvar::new(),
        slow,
        stats: Arc::new(stats),
    }
}

#[test]
fn a_full_queue_drops_and_counts() {
    let queue = queue(None);
    let target = vec![b'a'; 60_000];
    let record = Record {
        target: &target,
        ..Record::default()
    };
    for _ in 0..30 {
        queue.put(&record);
    }
    let kept = lock(&queue.waiting).len;
    let dropped = queue.stats.drivers[0].traces_dropped.count();
    assert_eq!(kept + dropped, 30);
    assert!((10..30).contains(&kept), "{kept}");
    // One record more than the bound at most.
    assert!(lock(&queue.waiting).bytes.len() < QUEUE_BYTES_MAX + 61_000);
    let taken = queue.take().expect("half of the queue is enough");
    assert_eq!(taken.len, kept);
    lock(&queue.waiting).last = Some(Instant::now());
    assert!(queue.take().is_none());
}

#[test]
fn failed_and_slow_requests_are_sent_without_being_sampled() {
    let check = |slow: Option<u64>, is_sampled: bool, status: u16, total: u64, expect: bool| {
        let wants = queue(slow.map(Nanos)).wants(is_sampled, status, Nanos(total));
        assert_eq!(wants, expect, "{slow:?} {is_sampled} {status} {total}");
    };
    check(None, false, 200, 9, false);
    check(None, true, 200, 9, true);
    check(None, false, 499, 9, false);
    check(None, false, 500, 9, true);
    check(Some(10), false, 200, 9, false);
    check(Some(10), false, 200, 10, true);
}
