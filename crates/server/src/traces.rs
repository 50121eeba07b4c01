//! Spans on their way to a collector: a bounded queue of records, and the thread that sends them.
//!
//! Takes the records of exchanges whose traces are recorded, and of those that failed or were slow. Nothing here slows
//! a request: a record that finds the queue full is counted and dropped. Must not know what a record is made from.

mod collector;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::failure::StartFault;
use config::typed::Config;
use ipc::stats::Stats;
use logging::{Level, Log};
use telemetry::{Names, Nanos, Record, SpanWriter, Stamp, Style};

use crate::sync::lock;
use collector::{Collector, ExportOutcome};

/// Bytes of records that may wait, some three thousand.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// Spans of one message; a request has at most seven: a message has no more than 512.
const SPANS_MAX: usize = 505;
/// How long records wait for others before they are sent.
const GATHERING: Duration = Duration::from_secs(1);
/// The whole of one request to the collector.
const SEND_TIME: Duration = Duration::from_secs(10);
/// How often a message is sent before it is lost, and the wait between the first two tries, which doubles.
const TRIES_MAX: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// What is left at the end of the process has this time.
const LAST_TIME: Duration = Duration::from_secs(2);

/// Records that wait for the thread.
pub(crate) struct SpanQueue {
    waiting: Mutex<WaitingRecords>,
    changed: Condvar,
    slow: Option<Nanos>,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct WaitingRecords {
    bytes: Vec<u8>,
    len: u64,
    /// The process ends: what is there is sent until then.
    last: Option<Instant>,
}

/// The thread that sends spans.
pub(crate) struct SpanThread {
    queue: Arc<SpanQueue>,
    thread: JoinHandle<()>,
}

/// What the thread has.
struct SpanExporter {
    queue: Arc<SpanQueue>,
    collector: Collector,
    writer: SpanWriter,
    log: Arc<Log>,
    /// Messages that were made from what was taken from the queue.
    messages: VecDeque<Message>,
    /// Requests that were lost since the collector last took something; it is said once that it does not.
    failing: Option<u64>,
}

/// A message to the collector.
struct Message {
    text: Vec<u8>,
    /// Requests in it.
    len: u64,
}

/// Starts the thread, where the configuration names a collector.
///
/// # Errors
/// What the connection needs cannot be read, or there is no further thread.
pub(crate) fn start(
    config: &Config,
    names: Names,
    log: &Arc<Log>,
    stats: &Arc<Stats>,
) -> Result<Option<SpanThread>, StartFault> {
    let Some(export) = &config.traces.export else {
        return Ok(None);
    };
    let queue = Arc::new(SpanQueue {
        waiting: Mutex::default(),
        changed: Condvar::new(),
        slow: config.slow_request,
        stats: Arc::clone(stats),
    });
    let privacy = &config.logs.privacy;
    let style = Style {
        prefix_v4: privacy.prefix_v4,
        prefix_v6: privacy.prefix_v6,
        query: privacy.query,
        ..Style::default()
    };
    let version = env!("CARGO_PKG_VERSION");
    let exporter = SpanExporter {
        queue: Arc::clone(&queue),
        collector: Collector::open(export)?,
        writer: SpanWriter::new(style, names, &export.resource, version),
        log: Arc::clone(log),
        messages: VecDeque::new(),
        failing: None,
    };
    let thread = thread::Builder::new().name("mp-traces".to_owned());
    let fault = |error: io::Error| StartFault::of_io("cannot start a thread", &error);
    let thread = thread.spawn(|| exporter.run()).map_err(fault)?;
    Ok(Some(SpanThread { queue, thread }))
}

impl SpanQueue {
    /// Whether the spans of an exchange are sent: its trace is recorded, or it has failed or was slow.
    pub(crate) fn wants(&self, is_sampled: bool, status: u16, total: Nanos) -> bool {
        is_sampled || status >= 500 || self.slow.is_some_and(|slow| total >= slow)
    }

    /// Adds a record, unless too many wait.
    pub(crate) fn put(&self, record: &Record<'_>) {
        let mut waiting = lock(&self.waiting);
        let before = waiting.bytes.len();
        if before >= QUEUE_BYTES_MAX {
            drop(waiting);
            return self.dropped(1);
        }
        record.encode(&mut waiting.bytes);
        waiting.len += 1;
        let half = QUEUE_BYTES_MAX / 2;
        let is_awaited = before == 0 || (before < half && waiting.bytes.len() >= half);
        drop(waiting);
        // The thread is woken once for many records.
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Takes what waits, once it has waited for others; `None` at the end of the process.
    fn take(&self) -> Option<WaitingRecords> {
        let mut waiting = lock(&self.waiting);
        let mut until: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let is_due = until.is_some_and(|until| now >= until);
            let is_enough = is_due || waiting.bytes.len() >= QUEUE_BYTES_MAX / 2;
            match (waiting.bytes.is_empty(), waiting.last) {
                (true, Some(_)) => return None,
                (false, last) if is_enough || last.is_some() => {
                    let taken = std::mem::take(&mut *waiting);
                    waiting.last = last;
                    return Some(WaitingRecords { last, ..taken });
                }
                (true, None) => {
                    let woken = self.changed.wait(waiting);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner);
                }
                (false, _) => {
                    let until = *until.get_or_insert(now + GATHERING);
                    let left = until.saturating_duration_since(now);
                    let woken = self.changed.wait_timeout(waiting, left);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Waits before a message is sent again; shorter at the end of the process, whose last moment it gives.
    fn pause(&self, time: Duration) -> Option<Instant> {
        let waiting = lock(&self.waiting);
        let woken = self
            .changed
            .wait_timeout_while(waiting, time, |waiting| waiting.last.is_none());
        let (waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
        waiting.last
    }

    fn last(&self) -> Option<Instant> {
        lock(&self.waiting).last
    }

    fn dropped(&self, len: u64) {
        self.stats.drivers[0].traces_dropped.add_many_from_any(len);
    }
}

impl SpanThread {
    /// Where records are put.
    pub(crate) fn queue(&self) -> Arc<SpanQueue> {
        Arc::clone(&self.queue)
    }

    /// Sends what waits, for a moment, and ends the thread. One that hangs is left behind.
    pub(crate) fn end(self) {
        let last = Instant::now() + LAST_TIME;
        lock(&self.queue.waiting).last = Some(last);
        self.queue.changed.notify_one();
        while !self.thread.is_finished() && Instant::now() < last {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl SpanExporter {
    fn run(mut self) {
        while let Some(taken) = self.queue.take() {
            self.write(&taken.bytes);
            while let Some(message) = self.messages.pop_front() {
                self.send(&message);
            }
        }
    }

    /// Makes messages of records.
    fn write(&mut self, mut records: &[u8]) {
        let Stamp(now_ns) = telemetry::now();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = since_1970.map_or(0, |now| now.as_nanos() as u64);
        // What the wall clock is ahead of the monotonic one by.
        let offset = wall_ns.saturating_sub(now_ns);
        let mut spans = usize::MAX;
        while let Some((mut record, bytes)) = Record::decode(records) {
            records = &records[bytes..];
            record.wall_arrived_ns = record.phases.arrived.0 + offset;
            if spans >= SPANS_MAX {
                self.finish_last();
                let mut text = Vec::new();
                self.writer.begin(&mut text);
                self.messages.push_back(Message { text, len: 0 });
                spans = 0;
            }
            if let Some(message) = self.messages.back_mut() {
                spans += self.writer.write(&record, &mut message.text);
                message.len += 1;
            }
        }
        self.finish_last();
    }

    fn finish_last(&mut self) {
        if let Some(message) = self.messages.back_mut() {
            self.writer.finish(&mut message.text);
        }
    }

    /// Sends a message, again where that may help.
    fn send(&mut self, message: &Message) {
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let last = self.queue.last();
            let time = last.map_or(SEND_TIME, |last| {
                last.saturating_duration_since(Instant::now())
            });
            match self.collector.send(&message.text, time) {
                ExportOutcome::Taken { rejected } => return self.taken(message, rejected),
                ExportOutcome::Refused { cause } => return self.lost(message, &cause),
                ExportOutcome::Again { cause, after } => {
                    self.fails(&cause);
                    // At the end of the process there is no time for another try.
                    let is_last = attempt == TRIES_MAX || last.is_some();
                    if is_last || self.queue.pause(after.unwrap_or(wait)).is_some() {
                        return self.lost(message, &cause);
                    }
                    wait *= 2;
                }
            }
        }
    }

    fn taken(&mut self, message: &Message, rejected: u64) {
        let stats = &self.queue.stats.drivers[0];
        stats.traces_exported.add_many_from_any(message.len);
        // Each message of which spans are refused would be said to fail, and the next one to be taken again.
        if rejected > 0 {
            return self.fails(&format!("it refuses {rejected} spans of a message"));
        }
        if let Some(lost) = self.failing.take() {
            let url = &self.collector.url;
            let text =
                format!("traces: `{url}` takes spans again; those of {lost} requests are lost");
            self.log.error(Level::Info, &text);
        }
    }

    fn lost(&mut self, message: &Message, cause: &str) {
        self.fails(cause);
        self.queue.dropped(message.len);
        if let Some(lost) = &mut self.failing {
            *lost += message.len;
        }
    }

    /// The collector does not do what it should: said once, until it does again.
    fn fails(&mut self, cause: &str) {
        if self.failing.is_none() {
            self.failing = Some(0);
            let url = &self.collector.url;
            let text = format!("traces: `{url}` does not take spans: {cause}");
            self.log.error(Level::Warning, &text);
        }
    }
}

#[cfg(test)]
mod tests;
