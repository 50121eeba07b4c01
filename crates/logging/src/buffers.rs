//! Buffers of finished records, on their way from the threads that end exchanges to the thread of the access logs.
//!
//! Each producing thread has a `RecordWriter` and a buffer of its own. It appends under a lock that only the log's
//! thread ever contends for, which swaps a full buffer for an empty one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use telemetry::{Record, Stamp};

use super::budget::{Budget, OnFull};
use super::notify::{Notifier, Urgency};
use os::{invariant, lock};

/// Bytes in a buffer that are urgent.
const BUFFER_BYTES_URGENT: usize = 256 << 10;
/// Memory that an empty buffer keeps.
const BUFFER_BYTES_KEPT_MAX: usize = 4 * BUFFER_BYTES_URGENT;

/// All buffers, the budget that they share, and the notifier of the thread that empties them.
#[derive(Debug)]
pub(super) struct RecordBuffers {
    list: Mutex<Vec<Arc<RecordBuffer>>>,
    pub(super) budget: Budget,
    pub(super) notifier: Notifier,
    /// A record has notified the log's thread since it last emptied the buffers; further ones need not.
    pub(super) is_notified: AtomicBool,
    /// At the end of the process: nothing is tried again, and unwritten lines are lost.
    pub(super) is_hurried: AtomicBool,
}

#[derive(Debug, Default)]
struct RecordBuffer {
    records: Mutex<Vec<u8>>,
}

/// One producing thread's end of the access logs.
pub struct RecordWriter {
    buffer: Arc<RecordBuffer>,
    buffers: Arc<RecordBuffers>,
    on_full: OnFull,
}

impl RecordBuffers {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            list: Mutex::default(),
            budget,
            notifier: Notifier::default(),
            is_notified: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
        }
    }

    /// A writer for the calling thread.
    pub(super) fn record_writer(self: &Arc<Self>, on_full: OnFull) -> RecordWriter {
        let buffer = Arc::new(RecordBuffer::default());
        lock(&self.list).push(Arc::clone(&buffer));
        RecordWriter {
            buffer,
            buffers: Arc::clone(self),
            on_full,
        }
    }
}

impl RecordWriter {
    /// Appends a record, unless the log's memory is used up.
    pub fn write(&self, record: &Record<'_>) {
        let buffers = &self.buffers;
        if !buffers.budget.admits(self.on_full) {
            return;
        }
        let (added, waiting, is_half_full) = {
            let mut records = lock(&self.buffer.records);
            let before = records.len();
            record.encode(&mut records);
            let added = records.len() - before;
            // Within the lock: the log's thread could otherwise count the record off before it is counted.
            let is_half_full = buffers.budget.add_record(added);
            (added, records.len(), is_half_full)
        };
        let is_long = waiting >= BUFFER_BYTES_URGENT && waiting - added < BUFFER_BYTES_URGENT;
        if is_long || is_half_full {
            buffers.notifier.notify(Urgency::Urgent);
        } else if !buffers.is_notified.load(Ordering::Relaxed)
            && !buffers.is_notified.swap(true, Ordering::AcqRel)
        {
            buffers.notifier.notify(Urgency::Waiting);
        }
    }
}

/// Records taken out of all buffers, in the order in which they are written.
///
/// The next exchange of a connection is delivered after the record of the last one was written to its buffer. So
/// every record that was delivered before the buffers are emptied is in them, and the order of delivery is right for
/// each connection. Younger records wait for the next batch.
#[derive(Debug, Default)]
pub(super) struct MergedBatch {
    drained: Vec<DrainedBuffer>,
    /// When the next record of each buffer that has one was delivered, and which buffer that is.
    next: BinaryHeap<Reverse<(Stamp, usize)>>,
    until: Stamp,
}

#[derive(Debug)]
struct DrainedBuffer {
    buffer: Arc<RecordBuffer>,
    records: Vec<u8>,
    /// Bytes of `records` that have been given out.
    used: usize,
}

impl MergedBatch {
    /// Adds the records that are in the buffers at `now` to those that are left.
    pub(super) fn gather(&mut self, buffers: &RecordBuffers, now: Stamp) {
        // Buffers are added and never removed, so those that are not known yet are behind the others.
        for buffer in lock(&buffers.list).iter().skip(self.drained.len()) {
            self.drained.push(DrainedBuffer {
                buffer: Arc::clone(buffer),
                records: Vec::new(),
                used: 0,
            });
        }
        // Built anew: the records that are left come before those that are gathered now, in each buffer.
        self.next.clear();
        self.until = now;
        for (index, drained) in self.drained.iter_mut().enumerate() {
            drained.refill();
            self.next
                .extend(drained.delivered().map(|at| Reverse((at, index))));
        }
    }

    /// Gives the record that was delivered first to `look`, then the next one, as long as `look` returns true. Gives
    /// the bytes of these records.
    pub(super) fn each(&mut self, mut look: impl FnMut(Record<'_>) -> bool) -> usize {
        let mut used = 0;
        while let Some(&Reverse((at, index))) = self.next.peek() {
            if at > self.until {
                break;
            }
            self.next.pop();
            let drained = &mut self.drained[index];
            let decoded = Record::decode(&drained.records[drained.used..]);
            let (record, bytes) =
                decoded.expect("a `RecordWriter` appends whole records under the lock");
            let continues = look(record);
            drained.used += bytes;
            invariant!(
                drained.used <= drained.records.len(),
                "a record ends behind its buffer"
            );
            used += bytes;
            self.next
                .extend(drained.delivered().map(|at| Reverse((at, index))));
            if !continues {
                break;
            }
        }
        used
    }

    /// Whether no record is left, not even a younger one.
    pub(super) fn is_empty(&self) -> bool {
        self.drained
            .iter()
            .all(|drained| drained.used == drained.records.len())
    }
}

impl DrainedBuffer {
    /// Appends the records of the buffer to those that are left.
    fn refill(&mut self) {
        self.records.drain(..self.used);
        self.used = 0;
        if self.records.is_empty() && self.records.capacity() > BUFFER_BYTES_KEPT_MAX {
            // The memory that one stall of the disk needed is not kept.
            self.records = Vec::new();
        }
        let mut records = lock(&self.buffer.records);
        if self.records.is_empty() {
            std::mem::swap(&mut *records, &mut self.records);
        } else {
            self.records.append(&mut records);
        }
    }

    /// When its next record was delivered.
    fn delivered(&self) -> Option<Stamp> {
        let (delivered, _) = Record::peek(&self.records[self.used..])?;
        Some(delivered)
    }
}

#[cfg(test)]
mod tests;
