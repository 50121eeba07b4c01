//! Buffers that are merged by delivery.

use super::*;
use config::typed::LogOverflow;

fn buffers() -> Arc<RecordBuffers> {
    Arc::new(RecordBuffers::new(Budget::new(1 << 20, LogOverflow::Drop)))
}

fn write(records: &RecordWriter, delivered: u64) {
    let mut record = Record::default();
    record.phases.sent = Stamp(delivered);
    records.write(&record);
}

fn gathered(batch: &mut MergedBatch, buffers: &RecordBuffers, now: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    batch.gather(buffers, Stamp(now));
    let used = batch.each(|record| {
        seen.push(record.phases.sent.0);
        true
    });
    buffers.budget.account(used, 0);
    seen
}

#[test]
fn merges_pages_by_delivery_and_leaves_what_is_younger() {
    let buffers = buffers();
    let (one, other) = (
        buffers.record_writer(OnFull::Wait),
        buffers.record_writer(OnFull::Wait),
    );
    for delivered in [1, 4, 9] {
        write(&one, delivered);
    }
    for delivered in [2, 3, 8] {
        write(&other, delivered);
    }
    let mut batch = MergedBatch::default();
    assert_eq!(gathered(&mut batch, &buffers, 8), [1, 2, 3, 4, 8]);
    assert!(!batch.is_empty());
    write(&one, 12);
    write(&other, 10);
    write(&buffers.record_writer(OnFull::Wait), 11);
    assert_eq!(gathered(&mut batch, &buffers, 20), [9, 10, 11, 12]);
    assert!(batch.is_empty());
    assert_eq!(buffers.budget.waiting_bytes(), 0);
}

#[test]
fn calls_before_a_small_room_is_full() {
    let buffers = Arc::new(RecordBuffers::new(Budget::new(64 << 10, LogOverflow::Drop)));
    let writers = [
        buffers.record_writer(OnFull::Wait),
        buffers.record_writer(OnFull::Wait),
    ];
    let hour = std::time::Duration::from_secs(3600);
    write(&writers[0], 1);
    for delivered in 2.. {
        write(&writers[delivered as usize % 2], delivered);
        if buffers.budget.waiting_bytes() >= 32 << 10 {
            break;
        }
    }
    assert_eq!(buffers.notifier.wait(hour, hour), Urgency::Urgent);
    assert_eq!(buffers.budget.take_dropped(), 0);
}

#[test]
fn stops_when_it_is_told_and_goes_on_later() {
    let buffers = buffers();
    let records = buffers.record_writer(OnFull::Wait);
    for delivered in 1..=3 {
        write(&records, delivered);
    }
    let mut batch = MergedBatch::default();
    batch.gather(&buffers, Stamp(9));
    let mut seen = Vec::new();
    batch.each(|record| {
        seen.push(record.phases.sent.0);
        false
    });
    assert_eq!(seen, [1]);
    assert_eq!(gathered(&mut batch, &buffers, 9), [2, 3]);
}
