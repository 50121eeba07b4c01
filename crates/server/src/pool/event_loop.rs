//! The pools of the applications that run on an event loop: one loop takes exchanges from all of them, and never waits.
//!
//! The loop has as many exchanges inside as its bound allows; more wait in the queues. What happens to exchanges inside
//! (`LoopEvent`) comes through one inbox. Both wake a sleeping loop by one eventfd, which is written only while the loop
//! sleeps, and once. Touches no disk: reads of files are tasks of a blocking pool, whose answers are events.
//!
//! ```text
//!  driver ── push ──► Queue ──┐ take            ┌── RequestTask (an exchange with its writer)
//!  driver, stream ──► LoopInbox ──► LoopWorker ─┤
//!  blocking pool ───────┘   eventfd             └── finish, leave
//! ```

mod websockets;

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use config::failure::Failure;
use config::typed::{Concurrency, Config};
use files::Reply;
use logging::Level;
use queueing::Class;
use telemetry::counters::EventLoopStats;
use telemetry::{Ending, Nanos, Stamp};

use super::worker::{HAS_STREAM, Responder};
use super::{Assignment, ErrorOutput, Pool};
use crate::blocking_pool::BlockingPool;
use crate::exchange::stream::StreamObserver;
use crate::exchange::{BodyFile, Exchange};
use crate::fault::Fault;
use crate::fork;
use crate::handler::Handler;
use crate::loop_inbox::{LoopEvent, LoopInbox};
use crate::loop_load::LoopAwaited;
use crate::queue::{DequeueReason, Parker, Polled};
use crate::sync::invariant;
use crate::websocket::WebSocketPermit;
pub use websockets::WebSocketAssignment;

/// A loop for which what is ready waits longer does not keep up.
const LAG_MAX: Nanos = Nanos(20_000_000);
/// How long that holds: a look that comes by chance behind a long callback finds no wait.
const BEHIND_FOR: Nanos = Nanos(100_000_000);
/// Bytes of a body that are read from its file at once.
const PIECE_BYTES: u64 = 64 << 10;

/// The loop's end of all pools of the process.
pub struct LoopWorker {
    pools: Vec<LoopPool>,
    /// The pool to be asked next, so that none starves.
    next: usize,
    /// Exchanges whose tasks have not ended.
    inside: usize,
    /// Those of them that are open event streams.
    event_streams: usize,
    bounds: Concurrency,
    /// What is ready has waited for the loop for too long, at one of its last looks, or the thread of the loop has
    /// nearly no time left.
    is_behind: bool,
    behind_until: Stamp,
    /// WebSocket connections that were accepted and whose tasks have not ended.
    websockets: usize,
    /// Keys that were given.
    keys: u64,
    number: NonZeroU32,
    inbox: Arc<LoopInbox>,
    blocking: BlockingPool,
    /// When tasks of a route are cancelled after their client has gone, by the route's index, where the route says so.
    disconnect_cancels: Vec<Option<Option<Nanos>>>,
    /// `None` once the loop has ended.
    on_exit: Option<Box<dyn FnOnce() + Send>>,
    on_failure: Box<dyn Fn() + Send>,
}

struct LoopPool {
    responder: Responder,
    parker: Arc<Parker>,
    /// How long the last exchange has run, until the queue knows.
    ran: Option<Nanos>,
}

/// An exchange inside the loop.
pub struct LoopAssignment {
    /// Its name in events.
    pub key: u64,
    /// The exchange, and its writer.
    pub assignment: Assignment,
    /// Index of its pool.
    pool: usize,
    /// Of a WebSocket handshake that may go on.
    permit: Option<WebSocketPermit>,
}

/// What there is for a loop to begin.
pub enum LoopTake {
    /// An exchange.
    Begin(LoopAssignment),
    /// Nothing: as many are inside as may be.
    Full,
    /// Nothing until the loop keeps up.
    Behind,
    /// Nothing until a log that is to lose no line has room.
    LogFull,
    /// Nothing now.
    Nothing,
    /// Nothing, and there will be no more.
    Closed,
}

/// A loop that has not begun to run.
pub struct RunnableLoop {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) worker: LoopWorker,
}

impl RunnableLoop {
    /// Runs it on the calling thread until its pools are closed and empty. `serve` starts the server, once the
    /// application is ready; `give_up` ends the process where it will not be, and blocks this thread.
    ///
    /// # Errors
    /// The application could not be started; then nothing has served.
    pub fn run(
        self,
        serve: &mut dyn FnMut() -> io::Result<()>,
        give_up: &(dyn Fn(&Failure) + Sync),
    ) -> Result<(), Failure> {
        let event_loop = self.handler.event_loop();
        let event_loop = event_loop.expect("a loop is made for a handler that has one");
        event_loop.run(self.worker, serve, give_up)
    }
}

impl LoopWorker {
    /// The worker of these pools; `on_exit` is called at its end, and `on_failure` before where the loop has failed.
    pub(crate) fn new<'p>(
        pools: impl Iterator<Item = &'p Arc<Pool>>,
        bounds: Concurrency,
        blocking: BlockingPool,
        on_exit: Box<dyn FnOnce() + Send>,
        on_failure: Box<dyn Fn() + Send>,
    ) -> io::Result<Self> {
        let inbox = Arc::new(LoopInbox::new()?);
        let mut own = Vec::new();
        for pool in pools {
            let signal = Arc::clone(&inbox);
            let parker = Arc::new(Parker::signalling(move || signal.wake()));
            pool.enter_loop(Arc::clone(&inbox), bounds.max);
            own.push(LoopPool {
                responder: Responder::new(Arc::clone(pool)),
                parker,
                ran: None,
            });
        }
        let first = own.first().expect("each application has a pool");
        let number = first.responder.pool.workers.next_number();
        let shared = &first.responder.pool.shared;
        let stats = shared.stats.event_loop;
        stats.inside_max.set(bounds.max as u64);
        let websockets_max = shared.config.asgi.websocket.open_max.unwrap_or(0);
        stats.websockets_max.set(websockets_max as u64);
        let disconnect_cancels = disconnect_cancels(&shared.config);
        Ok(Self {
            pools: own,
            next: 0,
            inside: 0,
            event_streams: 0,
            bounds,
            is_behind: false,
            behind_until: Stamp::ZERO,
            websockets: 0,
            keys: 0,
            number,
            inbox,
            blocking,
            disconnect_cancels,
            on_exit: Some(on_exit),
            on_failure,
        })
    }

    /// Readable once there is something to do after `sleep`.
    pub fn wakeup(&self) -> BorrowedFd<'_> {
        self.inbox.wakeup()
    }

    /// Empties the descriptor that has become readable.
    pub fn clear_wakeup(&self) {
        self.inbox.clear_wakeup();
    }

    /// The loop begins to look: what comes from now on is seen, or keeps it from sleeping.
    pub fn begin_look(&mut self) {
        let now = telemetry::now();
        if self.inbox.begin_look(now) > LAG_MAX {
            self.behind_until = now.plus(BEHIND_FOR);
        }
        let was_behind = self.is_behind;
        self.is_behind = now < self.behind_until || self.inbox.load.is_saturated();
        if self.is_behind != was_behind {
            self.set_free();
        }
    }

    /// The loop is to look again, behind what is ready now.
    pub fn await_look(&self) {
        self.inbox.load.await_look();
    }

    /// The loop is to look again after such a time.
    pub fn await_look_in(&self, delay: Nanos) {
        let awaited = self.inbox.load.awaited();
        awaited.begin_at(telemetry::now().plus(delay));
    }

    /// The loop runs on the calling thread.
    pub fn set_thread(&self) {
        self.inbox.load.set_thread();
    }

    /// Tells from any thread since when something waits for the loop.
    pub fn awaited(&self) -> LoopAwaited {
        self.inbox.load.awaited()
    }

    /// The counters of the loop.
    pub fn stats(&self) -> &'static EventLoopStats {
        self.pools[0].responder.pool.shared.stats.event_loop
    }

    /// Whether the loop may sleep after a look: its descriptor becomes readable when something comes. False: something
    /// has come since the look began.
    pub fn sleep(&self) -> bool {
        self.inbox.sleep()
    }

    /// Adds the events that have come to `events`.
    pub fn take_events(&mut self, events: &mut Vec<LoopEvent>) {
        self.inbox.take(events);
    }

    /// The next waiting exchange. End it by `finish`, and its task by `leave`.
    pub fn take(&mut self) -> LoopTake {
        if let Some(held) = self.held() {
            return held;
        }
        if self.waits_for_log() {
            return LoopTake::LogFull;
        }
        // As many are inside as may be: only questions about health may begin.
        let only = (self.inside >= self.allowed()).then_some(Class::Health);
        let mut is_closed = true;
        for _ in 0..self.pools.len() {
            let pool = self.next;
            self.next = (self.next + 1) % self.pools.len();
            match self.take_from(pool, only) {
                Some(LoopTake::Closed) => {}
                Some(taken) => return taken,
                None => is_closed = false,
            }
        }
        match is_closed {
            true => LoopTake::Closed,
            false => LoopTake::Nothing,
        }
    }

    /// Why no exchange may begin, if that is so. Questions about health always may.
    fn held(&self) -> Option<LoopTake> {
        let waits =
            |len: fn(&Pool) -> usize| self.pools.iter().any(|own| len(&own.responder.pool) > 0);
        if self.inside < self.allowed() || waits(Pool::health_len) {
            return None;
        }
        if self.inside >= self.bounds.max {
            return Some(LoopTake::Full);
        }
        // Without one that waits, the queues are to say when there is.
        waits(Pool::waiting_len).then(|| {
            self.stats().held_back.add_from_any();
            LoopTake::Behind
        })
    }

    /// How many may be inside now.
    fn allowed(&self) -> usize {
        match self.is_behind {
            // Event streams never make room: without this, many of them would hold all other requests back.
            true => self.bounds.max.min(self.bounds.min + self.event_streams),
            false => self.bounds.max,
        }
    }

    /// The response of an exchange that is inside has become an event stream.
    pub fn begin_event_stream(&mut self) {
        self.event_streams += 1;
        self.set_free();
    }

    /// Its task has ended.
    pub fn end_event_stream(&mut self) {
        invariant!(self.event_streams > 0, "an event stream ends that is none");
        self.event_streams -= 1;
    }

    /// Whether exchanges wait for a log that is to lose no line. The lines of those inside are kept beyond its bound.
    fn waits_for_log(&self) -> bool {
        let has_waiting = |own: &LoopPool| own.responder.pool.waiting_len() > 0;
        let log = &self.pools[0].responder.pool.shared.log;
        log.keeps_all && log.is_awaited() && self.pools.iter().any(has_waiting)
    }

    /// `None`: this pool has nothing now.
    fn take_from(&mut self, index: usize, only: Option<Class>) -> Option<LoopTake> {
        loop {
            let LoopPool {
                responder,
                parker,
                ran,
            } = &mut self.pools[index];
            let polled = responder.pool.queue.poll(parker, only, ran, telemetry::now);
            let taken = match polled {
                Polled::Taken(taken) => taken,
                Polled::Nothing => return None,
                Polled::Closed => return Some(LoopTake::Closed),
            };
            if taken.reason == DequeueReason::Expired {
                responder.refuse(taken.item, taken.now);
                continue;
            }
            let begun = responder.begin(taken.item, taken.now, Some(self.number));
            if let Some(assignment) = begun {
                return Some(LoopTake::Begin(self.enter(assignment, index)));
            }
        }
    }

    fn enter(&mut self, mut assignment: Assignment, pool: usize) -> LoopAssignment {
        self.keys += 1;
        let key = self.keys;
        let stream = assignment.writer.stream().expect(HAS_STREAM);
        let observer = StreamObserver::Loop(Arc::clone(&self.inbox), key);
        stream.observe(observer.clone());
        if let Some(body) = &assignment.exchange.streamed {
            body.observe(observer);
        }
        if stream.ownership.is_revoked() {
            // Its driver may have been too early to find the observer.
            self.inbox.send(LoopEvent::ClientGone(key));
        }
        self.pools[pool].responder.count_begun(&mut assignment);
        self.inside += 1;
        self.set_free();
        LoopAssignment {
            key,
            assignment,
            pool,
            permit: None,
        }
    }

    fn set_free(&self) {
        let free = self.allowed().saturating_sub(self.inside);
        let stats = self.stats();
        stats.inside.set(self.inside as u64);
        for pool in &self.pools {
            pool.responder.pool.queue.set_free(free);
        }
    }

    /// The application has handed over all of a response, or has failed: as `Worker::finish`.
    pub fn finish(&mut self, ended: LoopAssignment, result: Result<(), Fault>) {
        if fork::is_child() {
            fork::leave(super::worker::CHILD_CAME_BACK);
        }
        let LoopAssignment {
            mut assignment,
            pool,
            ..
        } = ended;
        unobserve(&mut assignment);
        let LoopPool { responder, ran, .. } = &mut self.pools[pool];
        let ended = responder.conclude(&mut assignment, result);
        *ran = Some(responder.pool.count_run(&assignment.exchange));
        responder.end(assignment, ended);
    }

    /// Answers with an error of the server's own, of which the log says why.
    pub fn refuse(&mut self, refused: LoopAssignment, status: u16, why: &str) {
        let responder = &self.pools[refused.pool].responder;
        responder.log(Level::Error, &refused.assignment.exchange, why);
        if refused.assignment.writer.head_is_sent() {
            return self.finish(
                refused,
                Err(Fault::Peer("a file could not be sent".to_owned())),
            );
        }
        self.answer(refused, Reply::refusal(status, None));
    }

    /// Answers with a response of the server's own.
    pub fn answer(&mut self, answered: LoopAssignment, reply: Reply) {
        self.answer_for(answered, reply, None);
    }

    /// Answers likewise; with a cause the request was refused for it.
    fn answer_for(
        &mut self,
        mut answered: LoopAssignment,
        reply: Reply,
        cause: Option<&'static str>,
    ) {
        let responder = &mut self.pools[answered.pool].responder;
        let assignment = &mut answered.assignment;
        unobserve(assignment);
        let ended = responder.respond(assignment, reply);
        let record = &mut assignment.exchange.record;
        if let Some(cause) = cause.filter(|_| record.ending == Ending::Complete) {
            record.end_as(Ending::Refused, cause);
        }
        responder.pool.count_ended(&assignment.exchange);
        responder.end(answered.assignment, ended);
    }

    /// The application has not finished its response, because its client is gone, or as `ending` says.
    pub fn abandon(&mut self, left: LoopAssignment, ending: Ending) {
        let LoopAssignment {
            mut assignment,
            pool,
            ..
        } = left;
        unobserve(&mut assignment);
        let responder = &mut self.pools[pool].responder;
        let ended = responder.abandon(&mut assignment, ending);
        responder.pool.count_ended(&assignment.exchange);
        responder.end(assignment, ended);
    }

    /// The task of an exchange has ended: another may begin.
    pub fn leave(&mut self) {
        invariant!(self.inside > 0, "a task leaves an empty loop");
        self.inside -= 1;
        self.set_free();
    }

    /// How long the process still has; `None` while nothing ends it.
    pub fn time_left(&self) -> Option<Nanos> {
        let end = self.inbox.end()?;
        Some(end.since(telemetry::now()))
    }

    /// The loop cannot run any more: the process ends, with what is inside.
    pub fn fail(&self) {
        (self.on_failure)();
    }

    /// The loop has ended, whatever still refers to this.
    pub fn end(&mut self) {
        if let Some(on_exit) = self.on_exit.take() {
            for pool in &self.pools {
                pool.responder.pool.leave_loop();
            }
            on_exit();
        }
    }

    /// Whether each task has ended.
    pub fn is_empty(&self) -> bool {
        self.inside == 0 && self.websockets == 0
    }

    /// Index of the application that is to answer an exchange.
    pub fn app_of(&self, assignment: &LoopAssignment) -> usize {
        let app = self.pools[assignment.pool].responder.pool.app();
        app.expect("an event loop runs applications")
    }

    /// When the task of an exchange is cancelled after its client has gone; `None`: never.
    pub fn disconnect_cancel(&self, assignment: &LoopAssignment) -> Option<Nanos> {
        let route = usize::from(assignment.assignment.exchange.record.route);
        let own = self.disconnect_cancels.get(route).copied().flatten();
        let pool = &self.pools[assignment.pool].responder.pool;
        own.unwrap_or(pool.config().disconnect_cancel)
    }

    /// Adds to the error log about an exchange.
    pub fn log(&self, assignment: &LoopAssignment, level: Level, text: &str) {
        let responder = &self.pools[assignment.pool].responder;
        responder.log(level, &assignment.assignment.exchange, text);
    }

    /// Where the error output of the application goes.
    pub fn error_output(&self) -> ErrorOutput {
        ErrorOutput::of(&self.pools[0].responder.pool)
    }

    /// The header that names a request's id, in lower case, where one is configured.
    pub fn request_id_header(&self) -> Option<&str> {
        let config = &self.pools[0].responder.pool.shared.config;
        config.request_ids.header.as_deref()
    }

    /// The time after which a request is logged that still runs, where one is configured.
    pub fn slow_request(&self) -> Option<Nanos> {
        self.pools[0].responder.pool.shared.config.slow_request
    }

    /// What loads files for the exchanges of this loop.
    pub fn loader(&self) -> FileLoader {
        FileLoader {
            inbox: Arc::clone(&self.inbox),
            blocking: self.blocking.clone(),
        }
    }
}

/// What routes say of `disconnect_cancel`, by their index; empty where none says anything.
fn disconnect_cancels(config: &Config) -> Vec<Option<Option<Nanos>>> {
    let mut by_route = Vec::new();
    for (index, route) in config.numbered_routes() {
        let own = route.settings.disconnect_cancel;
        let index = usize::from(index);
        if own.is_some() {
            by_route.resize(by_route.len().max(index + 1), None);
            by_route[index] = own;
        }
    }
    by_route
}

/// Before the stream may be another exchange's. No more of the body is taken.
fn unobserve(assignment: &mut Assignment) {
    assignment.writer.stream().expect(HAS_STREAM).unobserve();
    if let Some(body) = assignment.exchange.streamed.take() {
        body.leave();
        assignment.exchange.record.request_bytes += body.received_bytes();
    }
}

impl Drop for LoopWorker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads and opens files on threads that may wait for a disk; the answers are events.
#[derive(Clone)]
pub struct FileLoader {
    inbox: Arc<LoopInbox>,
    blocking: BlockingPool,
}

impl FileLoader {
    /// Reads the next bytes of a body of `bytes` bytes, from `offset` on.
    pub fn read_body(&self, key: u64, file: &Arc<BodyFile>, offset: u64, bytes: u64) {
        let (inbox, file) = (Arc::clone(&self.inbox), Arc::clone(file));
        let wanted = bytes.saturating_sub(offset).min(PIECE_BYTES);
        self.blocking.submit(move || {
            let mut data = vec![0; usize::try_from(wanted).expect("a small piece")];
            let read = file.read_exact_at(&mut data, offset).map(|()| data);
            // Before the answer: the loop may drop the last reference otherwise, which closes the file.
            drop(file);
            inbox.send(LoopEvent::Body(key, read));
        });
    }

    /// Reads the next bytes of a span of a file, which has `bytes` more from `offset` on. A file that ends before is an
    /// error.
    pub fn read_span(&self, key: u64, file: &Arc<File>, offset: u64, bytes: u64) {
        let (inbox, file) = (Arc::clone(&self.inbox), Arc::clone(file));
        let wanted = bytes.min(PIECE_BYTES);
        self.blocking.submit(move || {
            let mut data = vec![0; usize::try_from(wanted).expect("a small piece")];
            let read = file.read_exact_at(&mut data, offset).map(|()| data);
            // As above.
            drop(file);
            inbox.send(LoopEvent::Span(key, read));
        });
    }

    /// Opens a file to be sent.
    pub fn open(&self, key: u64, path: PathBuf) {
        let inbox = Arc::clone(&self.inbox);
        self.blocking.submit(move || {
            let opened = File::open(&path).and_then(|file| {
                let about = file.metadata()?;
                match about.is_file() {
                    true => Ok((file, about.len())),
                    false => Err(io::Error::other("it is no regular file")),
                }
            });
            inbox.send(LoopEvent::Opened(key, opened));
        });
    }
}

impl Pool {
    fn enter_loop(&self, inbox: Arc<LoopInbox>, inside_max: usize) {
        self.counters.threads_started.add_from_any();
        self.queue.grow(1, telemetry::now());
        self.queue.thread_started();
        self.queue.set_free(inside_max);
        let known = self.inbox.set(inbox);
        invariant!(known.is_ok(), "a pool has two event loops");
    }

    fn leave_loop(&self) {
        self.counters.threads_ended.add_from_any();
        self.queue.thread_lost();
    }

    /// Whether an event loop runs its exchanges.
    pub(crate) fn has_event_loop(&self) -> bool {
        self.inbox.get().is_some()
    }

    /// Whether something has come for its event loop, where it has one, since this was asked last.
    pub(crate) fn has_called_loop(&self) -> bool {
        self.inbox.get().is_some_and(|inbox| inbox.take_called())
    }

    /// Tells its event loop, where it has one, when the process is to have ended.
    pub(crate) fn end_loop_by(&self, end: Stamp) {
        if let Some(inbox) = self.inbox.get() {
            inbox.end_by(end);
        }
    }

    /// Has its event loop, where it has one, end all that is inside.
    pub(crate) fn cancel_all(&self) {
        if let Some(inbox) = self.inbox.get() {
            inbox.send(LoopEvent::CancelAll);
        }
    }

    fn count_ended(&self, exchange: &Exchange) {
        self.count_left();
        self.count_run(exchange);
    }

    /// Gives how long it has run.
    fn count_run(&self, exchange: &Exchange) -> Nanos {
        let phases = &exchange.record.phases;
        let run = phases.replied.since(phases.started);
        self.report_to_placement(exchange, run);
        run
    }
}
