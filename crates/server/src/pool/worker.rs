//! A worker: a thread of a pool. It gives exchanges to a backend with a writer for their responses, and ends them.
//!
//! A worker is held for exactly the run of an exchange: nothing here waits for a client or touches a disk. A
//! panic in the backend costs one exchange, one in the server's own code the process.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use files::Reply;
use logging::{Level, Log, OnFull};
use nix::time::ClockId;
use telemetry::counters::{BegunRequest, RunningPlace};
use telemetry::{Ending, Nanos, Stamp};

use super::{Job, Pool};
use crate::exchange::stream::Finished;
use crate::exchange::{Exchange, ExchangeName, Recorder};
use crate::fault::Fault;
use crate::fork;
use crate::queue::{DequeueReason, Dequeued, Parker};
use crate::response::{ResponseEnd, ResponseWriter, Rest};
use crate::sync::{invariant, violated};
use crate::watchdog::{Thread, WorkerSlot};

/// What a child exits with that a backend did not keep.
pub(super) const CHILD_CAME_BACK: i32 = 70;
/// Why an exchange was refused that was in the queue.
const WAITED_TOO_LONG: &str = "waited too long for a thread";
/// Writers that are kept for the next exchanges.
const WRITERS_LEN_MAX: usize = 64;
/// Why a response is cut whose application has failed.
const FAILED: &str = "the application failed while its response was being sent";

/// A run for less than this counts as computed, all of it: to read the clock takes a hundredth of that.
const SHORT_RUN: Nanos = Nanos::from_us(50);
/// So many short runs follow each other until the clock is read again.
const UNREAD_LEN_MAX: u8 = 16;
/// The clock of what the calling thread uses of a processor.
const OWN_CLOCK: ClockId = ClockId::CLOCK_THREAD_CPUTIME_ID;
const HAS_CLOCK: &str = "a thread can always read its own clock";
pub(super) const HAS_STREAM: &str = "a worker answers through a stream";

/// What answers exchanges of a pool and ends them, for one thread: each worker has one, and the controller one for
/// each pool.
pub(super) struct Responder {
    pub(super) pool: Arc<Pool>,
    /// Those of no exchange: one between two exchanges of a thread, more of an event loop.
    writers: Vec<ResponseWriter>,
    /// That of the last request, for the next. No more are kept: rows are few, and others may need them.
    place: Option<RunningPlace>,
    recorder: Recorder,
}

/// A thread of a pool: it gives exchanges to a backend and ends them.
pub struct Worker {
    responder: Responder,
    /// Its number in the process, which no other thread of a pool ever has.
    number: NonZeroU32,
    parker: Arc<Parker>,
    /// Whether the backend has an exchange.
    is_running: bool,
    /// How long the last exchange had the thread, until the queue is told.
    ran: Option<Nanos>,
    /// What the thread uses of a processor, since the exchange before; `None`: not since any of them.
    meter: Option<Meter>,
    pub(super) is_told_to_go: bool,
    /// Where the watchdog sees what this thread runs.
    pub(super) slot: Option<Arc<WorkerSlot>>,
}

/// How much processor time one thread has used since it began an exchange, by the kernel's clock of that thread,
/// which stands still while the thread waits. The thread reads it at the end of an exchange; others may look
/// while it runs, which tells computing from hanging. Short runs are not read: what they have waited, less than 0.8 ms
/// in all, is missing in the run that is read after them, and what the thread did between them is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// What the kernel calls the thread.
    thread: i32,
    /// What its clock read then, as far as it was read.
    began: Nanos,
    /// Short runs since the clock was read.
    unread: u8,
}

/// Where the error output of an application goes: to the error log.
#[derive(Clone)]
pub struct ErrorOutput {
    log: Arc<Log>,
}

impl ErrorOutput {
    pub(super) fn of(pool: &Pool) -> Self {
        let log = Arc::clone(&pool.shared.log);
        Self { log }
    }

    /// Logs a text about the application itself.
    pub fn log(&self, level: Level, text: &str) {
        self.log.error_from_pool(level, text);
    }

    /// Logs a text that the application has written, for `of` if it is known. Blank texts are left out.
    pub fn write(&self, of: Option<&ExchangeName>, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let text = match of {
            Some(name) => format!("{name}: {text}"),
            None => format!("application: {text}"),
        };
        self.log.error_from_pool(Level::Error, &text);
    }
}

/// An exchange that a backend is to answer, and what it answers through.
pub struct Assignment {
    /// The exchange.
    pub exchange: Box<Exchange>,
    /// The way to answer it.
    pub writer: ResponseWriter,
    /// Its place among the requests that run, once it does.
    pub place: Option<RunningPlace>,
}

impl Assignment {
    /// The application wants the body: its client is told that it may send it.
    pub fn invite(&mut self) {
        let keep_alive = self.exchange.head().index.keep_alive;
        self.writer.send_continue(keep_alive);
    }
}

impl Worker {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        let number = pool.workers.enter();
        let slot = pool.shared.watchdog.as_ref().map(|watchdog| {
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or("mp-pool");
            // By both names: access logs have the first, and tools of the system show the other.
            let name = format!("worker {} ({thread})", worker_name(number));
            watchdog.enter(pool.index, Thread::current(), &name)
        });
        Self {
            responder: Responder::new(Arc::clone(pool)),
            number,
            parker: Arc::default(),
            is_running: false,
            ran: None,
            meter: None,
            is_told_to_go: false,
            slot,
        }
    }

    /// Whether this thread is given up: it is to end.
    fn is_given_up(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.is_given_up())
    }

    /// Whether runs that take long are looked at.
    pub fn is_watched(&self) -> bool {
        self.slot.is_some()
    }

    /// What the worker is called in the log, in JSON and in environ: `PROCESS.NUMBER`.
    pub fn name(&self) -> String {
        worker_name(self.number)
    }

    /// Index of its pool.
    pub fn pool_index(&self) -> u16 {
        self.pool().index
    }

    /// The header that names a request's id, in lower case, where one is configured: the application is to see
    /// the id in it, whatever the client sent.
    pub fn request_id_header(&self) -> Option<&str> {
        self.pool().shared.config.request_ids.header.as_deref()
    }

    /// Where the application's error output goes.
    pub fn error_output(&self) -> ErrorOutput {
        ErrorOutput::of(self.pool())
    }

    /// How much of a processor the exchange that was given last has used until now; to be kept where an
    /// application may ask.
    pub fn meter(&self) -> Option<Meter> {
        self.meter
    }

    fn pool(&self) -> &Pool {
        &self.responder.pool
    }

    /// The next waiting exchange, if there is one and nothing else is to be waited for. Never waits. End it
    /// by `finish` before taking another.
    pub fn next_now(&mut self) -> Option<Assignment> {
        loop {
            let log = &self.pool().shared.log;
            if (log.keeps_all && log.is_awaited()) || self.is_given_up() {
                return None;
            }
            let queue = &self.responder.pool.queue;
            let taken = queue.take_now(&mut self.ran, telemetry::now)?;
            if let Some(assignment) = self.begin(taken) {
                return Some(assignment);
            }
        }
    }

    /// The next waiting exchange; waits for one, and first for room in a log that is to lose nothing.
    /// `None`: this thread is to end.
    pub fn next_wait(&mut self) -> Option<Assignment> {
        let log = &self.pool().shared.log;
        if log.keeps_all {
            log.wait_if_awaited();
        }
        // A worker that was given up has been replaced by the end of its run: it must not take an item from the other.
        while !self.is_given_up() {
            let queue = &self.responder.pool.queue;
            let taken = queue.take(&self.parker, &mut self.ran, telemetry::now);
            self.is_told_to_go = taken.is_none();
            if let Some(assignment) = self.begin(taken?) {
                return Some(assignment);
            }
        }
        None
    }

    /// `None` when the drain deadline passed while the exchange waited, and its client was told that it did
    /// not run, or when it has waited too long and is refused here.
    fn begin(&mut self, taken: Dequeued<Job>) -> Option<Assignment> {
        if taken.reason == DequeueReason::Expired {
            self.responder.refuse(taken.item, taken.now);
            // Refusals may be many, and the exchange that runs next is not to bear them.
            self.meter = None;
            return None;
        }
        let worker = Some(self.number);
        let mut assignment = self.responder.begin(taken.item, taken.now, worker)?;
        let meter = *self.meter.get_or_insert_with(Meter::start);
        if let Some(slot) = &self.slot {
            // After `begin` of the responder, which may find the exchange revoked: the watchdog sees only what
            // really runs.
            let stream = assignment.writer.stream().expect(HAS_STREAM);
            slot.begin(&assignment.exchange, stream, meter);
        }
        self.responder.count_begun(&mut assignment);
        self.is_running = true;
        Some(assignment)
    }

    /// Runs one exchange: `answer` writes its response. Its fault, or its panic, becomes a 500 when nothing has
    /// been sent yet and a cut connection otherwise.
    pub fn run<F>(&mut self, mut assignment: Assignment, answer: F)
    where
        F: FnOnce(&mut Exchange, &mut ResponseWriter) -> Result<(), Fault>,
    {
        let answered = catch_unwind(AssertUnwindSafe(|| {
            answer(&mut assignment.exchange, &mut assignment.writer)
        }));
        let result = answered.unwrap_or_else(|panic| Err(Fault::Bug(panic_text(panic.as_ref()))));
        self.finish(assignment, result);
    }

    /// Adds to the error log about an exchange whose response is good nevertheless, such as a body that was longer
    /// than its `Content-Length`.
    pub fn note(&self, exchange: &Exchange, text: &str) {
        self.responder.log(Level::Warning, exchange, text);
    }

    /// Ends the exchange that this worker gave last, as `run` does.
    pub fn finish(&mut self, mut assignment: Assignment, result: Result<(), Fault>) {
        if fork::is_child() {
            // A backend that has forked keeps its child; what comes here all the same must not answer.
            fork::leave(CHILD_CAME_BACK);
        }
        if let Some(slot) = &self.slot {
            // First: what follows is the server's own, which the watchdog must not interrupt.
            slot.end();
        }
        let has_one = std::mem::take(&mut self.is_running);
        invariant!(has_one, "a worker ends an exchange that it does not have");
        // What follows is the server's own: a panic leaves a stream without an owner.
        let guard = OwnCode;
        let ended = self.responder.conclude(&mut assignment, result);
        if let Some(meter) = &mut self.meter {
            let phases = &mut assignment.exchange.record.phases;
            let ran = phases.replied.since(phases.started);
            phases.cpu = match ran.0.saturating_sub(phases.gil.0) {
                // Its driver has ended it.
                0 => meter.lap(),
                ran_ns => meter.lap_after(Nanos(ran_ns)),
            };
        }
        self.count(&assignment.exchange);
        self.responder.end(assignment, ended);
        // No panic: the guard's drop would end the process.
        std::mem::forget(guard);
    }

    fn count(&mut self, exchange: &Exchange) {
        let phases = &exchange.record.phases;
        let left = phases.replied.max(phases.sent);
        self.ran = Some(left.since(phases.started));
        let pool = self.pool();
        pool.report_to_placement(exchange, phases.replied.since(phases.started));
    }
}

impl Drop for Worker {
    /// A backend that ends in the middle of an exchange runs it no longer. It gets no response: its client
    /// hears of it at the drain deadline at the latest.
    fn drop(&mut self) {
        let pool = self.pool();
        pool.workers.leave(self.number);
        if self.is_running {
            pool.counters.running.take_from_any();
        }
        if let (Some(watchdog), Some(slot)) = (&pool.shared.watchdog, &self.slot) {
            watchdog.leave(slot);
        }
    }
}

impl Responder {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        let stats = Arc::clone(&pool.shared.stats);
        let traces = pool.shared.traces.clone();
        let recorder = Recorder::new(&pool.shared.log, stats, traces, OnFull::WaitLater);
        Self {
            writers: Vec::new(),
            place: None,
            pool,
            recorder,
        }
    }

    /// Begins to answer an exchange that has left the queue at `now`, by the worker with this number if its
    /// application is to run. `None` when the drain deadline has ended it.
    pub(super) fn begin(
        &mut self,
        job: Job,
        now: Stamp,
        worker: Option<NonZeroU32>,
    ) -> Option<Assignment> {
        let mut exchange = job.exchange;
        let class = &self.pool.classes[exchange.record.class as usize];
        let before = class.fetch_sub(1, Ordering::Relaxed);
        invariant!(before > 0, "an exchange leaves a class that has none");
        let stream = job.to.stream.as_ref().expect(HAS_STREAM);
        // A look only, and no step: a driver that revokes later finds that the first step of this worker fails.
        if stream.ownership.is_revoked() {
            return None;
        }
        // One that has waited in front of the server may have come after the controller looked at the clock.
        let started = now.max(exchange.record.phases.queued);
        stream.set_started_at(started, worker);
        exchange.record.phases.started = started;
        exchange.record.phases.worker = worker;
        let shared = &self.pool.shared;
        let mut writer = self.writers.pop().unwrap_or_else(|| {
            let draining = &self.pool.draining;
            ResponseWriter::new(&shared.config, &shared.memory, &shared.load, draining)
        });
        writer.begin_exchange(&exchange.record, exchange.head(), job.to);
        Some(Assignment {
            exchange,
            writer,
            place: None,
        })
    }

    /// The exchange runs from now on, and can be seen to.
    pub(super) fn count_begun(&mut self, assignment: &mut Assignment) {
        self.pool.counters.running.add_from_any();
        let table = self.pool.shared.stats.running;
        let mut place = self.place.take().unwrap_or_else(|| table.place());
        let (record, head) = (&assignment.exchange.record, assignment.exchange.head());
        place.begin(&BegunRequest {
            method: head.method(),
            path: head.path(),
            id: &assignment.exchange.request_id(),
            queued: record.phases.queued,
            started: record.phases.started,
            pool: self.pool.index,
            route: record.route,
            worker: record.phases.worker.map_or(0, NonZeroU32::get),
        });
        assignment.place = Some(place);
    }

    /// The exchange is not among those that run any more.
    pub(super) fn leave_place(&mut self, assignment: &mut Assignment) {
        if let Some(mut place) = assignment.place.take() {
            place.end();
            self.place = Some(place);
        }
    }

    /// Writes a response of the server's own, and its end.
    pub(super) fn respond(&self, assignment: &mut Assignment, reply: Reply) -> ResponseEnd {
        let pages = &self.pool.shared.pages;
        let reply = pages.replace_body(reply);
        assignment.writer.respond(reply, telemetry::now());
        assignment.writer.finish(&mut assignment.exchange.record)
    }

    /// Ends what was written of a response; a client that has got nothing of it is told of no status.
    pub(super) fn abandon(&self, assignment: &mut Assignment, ending: Ending) -> ResponseEnd {
        let has_head = assignment.writer.head_is_sent();
        let record = &mut assignment.exchange.record;
        let ended = assignment.writer.cut(record, "");
        record.end_as(ending, "");
        if !has_head {
            record.status = 0;
        }
        ended
    }

    /// Refuses an exchange that has waited too long, unless the drain deadline has ended it.
    pub(super) fn refuse(&mut self, job: Job, now: Stamp) {
        let Some(mut assignment) = self.begin(job, now, None) else {
            return;
        };
        self.pool.counters.expired.add_from_any();
        let waiting = self.pool.queue.len();
        let retry_after_secs = queueing::retry_after_secs(waiting, &self.pool.load.load());
        let ended = self.respond(&mut assignment, Reply::refusal(503, Some(retry_after_secs)));
        let record = &mut assignment.exchange.record;
        if record.ending == Ending::Complete {
            record.end_as(Ending::Refused, WAITED_TOO_LONG);
        }
        self.end(assignment, ended);
    }

    /// Writes the end of a response, or what stands for one that its application did not give. Its exchange counts as
    /// completed before it leaves: the next request of its client would else look like one too many.
    pub(super) fn conclude(
        &mut self,
        assignment: &mut Assignment,
        result: Result<(), Fault>,
    ) -> ResponseEnd {
        self.pool.count_left();
        self.leave_place(assignment);
        let fault = match result {
            Ok(()) if assignment.writer.is_silent() => {
                Some(Fault::Bug("the application gave no response".to_owned()))
            }
            result => result.err(),
        };
        let Assignment {
            exchange, writer, ..
        } = &mut *assignment;
        let ended = match &fault {
            None => writer.finish(&mut exchange.record),
            Some(_) if writer.head_is_sent() => writer.cut(&mut exchange.record, FAILED),
            Some(fault) => {
                let reply = Reply::refusal(fault.status(), None);
                self.respond(assignment, reply)
            }
        };
        self.report(&assignment.exchange, fault.as_ref(), &ended);
        ended
    }

    fn report(&self, exchange: &Exchange, fault: Option<&Fault>, ended: &ResponseEnd) {
        if ended.waited > Nanos::ZERO {
            self.pool.counters.stream_waits.add_from_any();
            let secs = ended.waited.as_secs_f64();
            let text = format!(
                "the worker waited {secs:.3} s for the client: more than reply_spool_bytes_max of the stream was \
                 unsent"
            );
            self.log(Level::Warning, exchange, &text);
        }
        match fault {
            Some(Fault::Peer(_) | Fault::Overdue) => {}
            Some(fault) => self.log(Level::Error, exchange, &fault.to_string()),
            None if exchange.record.ending == Ending::Cut => {
                self.log(Level::Error, exchange, exchange.record.cause);
            }
            None => {}
        }
    }

    pub(super) fn log(&self, level: Level, exchange: &Exchange, text: &str) {
        let text = format!("{}: {text}", exchange.name());
        self.pool.shared.log.error_from_pool(level, &text);
    }

    /// Keeps a writer for another exchange.
    pub(super) fn keep(&mut self, writer: ResponseWriter) {
        if self.writers.len() < WRITERS_LEN_MAX {
            self.writers.push(writer);
        }
    }

    /// Gives the stream back to its driver, or the rest of the response with it, and ends the exchange.
    pub(super) fn end(&mut self, mut assignment: Assignment, ended: ResponseEnd) {
        self.leave_place(&mut assignment);
        let Assignment {
            mut exchange,
            writer,
            ..
        } = assignment;
        let stream = ended.stream.expect(HAS_STREAM);
        self.keep(writer);
        let after = ended.after;
        if let Rest::Queued = ended.rest {
            // What is given back unused is dropped behind the lock: it may hold the file of a body.
            let revoked = stream.finish(Finished { exchange, after });
            // Woken only when the exchange is there to be found; the driver that has revoked it is done with it.
            if revoked.is_none() {
                stream.ownership.wake();
            }
            return;
        }
        stream.set_progress_at(exchange.record.phases.sent);
        // Before the record is closed: the side that makes this step writes the one record of the exchange.
        if stream.ownership.end().is_err() {
            // A deadline passed: the driver has ended this exchange.
            return;
        }
        let (record, head) = (&exchange.record, exchange.head());
        self.recorder.close(record, head, &exchange.ends);
        // Before the next exchange of the connection may begin, which would find its own client's place taken.
        exchange.permit = None;
        // Behind the record, because the next exchange of the connection may begin at once, and its record must
        // come after this one.
        stream.ownership.release(after);
    }
}

impl Meter {
    /// Of the calling thread, from now on.
    pub fn start() -> Meter {
        Meter {
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            began: read_clock(OWN_CLOCK).expect(HAS_CLOCK),
            unread: 0,
        }
    }

    /// Its own thread: how much it has used; from here on it counts anew. One system call, no other clock is
    /// read.
    pub fn lap(&mut self) -> Nanos {
        let now = read_clock(OWN_CLOCK).expect(HAS_CLOCK);
        let began = std::mem::replace(&mut self.began, now);
        self.unread = 0;
        Nanos(now.0.saturating_sub(began.0))
    }

    /// The same of an exchange whose application had the thread for `ran`, without the system call where that was short.
    pub fn lap_after(&mut self, ran: Nanos) -> Nanos {
        if ran >= SHORT_RUN || self.unread == UNREAD_LEN_MAX {
            return self.lap().min(ran);
        }
        self.unread += 1;
        self.began = Nanos(self.began.0 + ran.0);
        ran
    }

    /// Processor time of its thread until now, for any caller; `None` when the thread is gone.
    pub fn used(&self) -> Option<Nanos> {
        // The kernel numbers the clock of a thread of this process by the thread's id with all bits turned over, and
        // below it the kind, CPUCLOCK_SCHED (2) of a thread (4).
        let clock = ClockId::from_raw((!self.thread << 3) | 6);
        let now = read_clock(clock)?;
        Some(Nanos(now.0.saturating_sub(self.began.0)))
    }
}

fn read_clock(clock: ClockId) -> Option<Nanos> {
    let now = clock.now().ok()?;
    let secs = u64::try_from(now.tv_sec()).ok()?;
    let rest_ns = u64::try_from(now.tv_nsec()).ok()?;
    Some(Nanos(Nanos::from_secs(secs).0.saturating_add(rest_ns)))
}

/// The server's own code runs, between a backend and the next exchange: a panic here costs the process.
struct OwnCode;

/// `PROCESS.NUMBER`.
fn worker_name(number: NonZeroU32) -> String {
    format!("{}.{number}", std::process::id())
}

impl Drop for OwnCode {
    fn drop(&mut self) {
        violated(format_args!("a worker panicked at the end of an exchange"));
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}

#[cfg(test)]
mod tests;
