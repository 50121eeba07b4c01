//! The task of an HTTP/2 connection: its turns, and the deadlines of all that waits.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream};
use h2::Reason;
use h2::server::{Builder, Connection as Codec};
use http::FIELD_OVERHEAD_BYTES;
use telemetry::{Nanos, ResetBy, Stamp};

use super::PREFACE;
use super::departure::{Departure, Leaving};
use super::mux::{StreamMux, UPLOAD_WINDOWS};
use super::odd_work::{self, Verdict};
use super::pipe::{CodecPipe, FrameEvent, FrameNote, pipe};
use super::resets::UnbegunStreams;
use super::scan;
use super::stream::{StreamFuture, StreamTask};
use crate::driver::ServingState;
use crate::pool::Pool;
use crate::protocol::send::SendMonitor;
use crate::protocol::{Connection, Woken};
use config::typed::Config;
use telemetry::counters::{Doing, Timeout};

/// Frames of one client that are taken in one turn.
const FRAMES_A_TURN: usize = 256;
/// Requests of one client that are begun in one turn.
const STREAMS_A_TURN: usize = 64;
/// Times that the crate and the streams are called in one turn: a response of some pieces leaves in one.
const ROUNDS_A_TURN: usize = 8;
/// How much later a client is read that makes odd work.
const SLOW_PAUSE: Nanos = Nanos(100_000_000);
/// How often work is looked at whose client is gone.
const ABANDONED_LOOK: Nanos = Nanos(250_000_000);
/// Streams that a client has reset before they were begun.
const UNBEGUN_RESETS_MAX: usize = 20;
/// Bytes of one stream that the crate may hold.
const STREAM_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// GOAWAY with the last stream 0 and PROTOCOL_ERROR.
const GOAWAY_PROTOCOL_ERROR: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Serves a connection whose first bytes have come, and are those of HTTP/2.
pub(in crate::protocol) async fn serve(connection: Connection, first: Vec<u8>) {
    let (crate_end, own_end) = pipe();
    own_end.put(&first);
    let mux = Rc::new(StreamMux::new(connection, own_end));
    let mut preface = first;
    if let Err(departure) = receive_preface(&mux, &mut preface).await {
        return departure.take(&mux.connection).await;
    }
    mux.connection.driver.stats().http2_connections.add();
    let Some(codec) = handshake(&mux, crate_end) else {
        // The crate refuses a preface only.
        return;
    };
    let mut http2 = Http2::new(Rc::clone(&mux), codec);
    let departure = poll_fn(|context| http2.turn(context)).await;
    drop(http2);
    departure.take(&mux.connection).await;
}

/// The task of a connection.
pub(super) struct Http2 {
    pub(super) mux: Rc<StreamMux>,
    pub(super) codec: Codec<CodecPipe, Bytes>,
    tasks: FuturesUnordered<StreamFuture>,
    /// Highest number of a stream that was begun.
    pub(super) last_stream: u32,
    pub(super) unbegun: UnbegunStreams,
    /// Small pieces of bodies that are not accounted for: what a stream takes is known once its task has run.
    small_data: Vec<FrameNote>,
    /// The error that ends the connection.
    pub(super) failed: Option<Reason>,
    /// The client has sent its settings, and acknowledged ours.
    has_settings: bool,
    is_acknowledged: bool,
    /// The last header block goes on in another frame.
    is_within_block: bool,
    /// Since when a header block, or another frame but DATA, is not complete.
    block_since: Option<Stamp>,
    /// The client sends no more.
    input_ended: bool,
    /// The crate is done with the connection.
    pub(super) closed: bool,
    /// Until when the client is not read.
    slow_until: Stamp,
    monitor: Option<Box<SendMonitor>>,
    pub(super) leaving: Leaving,
    /// Since when nothing is served.
    idle_since: Stamp,
    /// There is more to do at once, behind the other connections.
    pub(super) has_more: bool,
}

/// Waits for the rest of the preface.
async fn receive_preface(mux: &StreamMux, received: &mut Vec<u8>) -> Result<(), Departure> {
    let connection = &mux.connection;
    while received.len() < PREFACE.len() {
        match connection.read().await {
            Ok((scratch, bytes)) => {
                mux.pipe.put(&scratch.input[..bytes]);
                received.extend_from_slice(&scratch.input[..bytes]);
                connection.driver.put_scratch(scratch);
            }
            Err(Woken::Draining | Woken::Crowded) => {}
            Err(Woken::Deadline) => {
                connection.driver.stats().timed_out(Timeout::Head);
                return Err(Departure::Close);
            }
            Err(_) => return Err(Departure::Close),
        }
    }
    if !received.starts_with(PREFACE) {
        connection.driver.stats().errors.add();
        // RFC 9113 section 3.4: a connection error, of which a client that speaks HTTP/2 hears so.
        let _ = connection
            .transport
            .send(&[IoSlice::new(GOAWAY_PROTOCOL_ERROR)]);
        return Err(Departure::Linger);
    }
    received.clear();
    mux.pipe.feed_preface(PREFACE.len());
    Ok(())
}

/// The crate's side of a connection whose preface is there.
fn handshake(mux: &StreamMux, pipe: CodecPipe) -> Option<Codec<CodecPipe, Bytes>> {
    let config = mux.connection.driver.config();
    let (stream_window, connection_window) = UPLOAD_WINDOWS[0];
    let mut builder = Builder::new();
    let takes_websockets = |pool: &Arc<Pool>| pool.takes_websockets();
    if mux
        .connection
        .driver
        .shared
        .pools
        .iter()
        .any(takes_websockets)
    {
        // RFC 8441 section 3: WebSocket for those that ask.
        builder.enable_connect_protocol();
    }
    let mut handshake = builder
        .max_concurrent_streams(config.http2.streams_max)
        .initial_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .max_header_list_size(header_list_bytes_max(config))
        .max_send_buffer_size(STREAM_OUTPUT_BYTES_MAX)
        .max_pending_accept_reset_streams(UNBEGUN_RESETS_MAX)
        .handshake(pipe);
    let context = &mut Context::from_waker(Waker::noop());
    match Future::poll(Pin::new(&mut handshake), context) {
        Poll::Ready(codec) => codec.ok(),
        Poll::Pending => None,
    }
}

/// Bytes of a header list beyond which the crate refuses by itself, without a record: more than the judge lets pass.
fn header_list_bytes_max(config: &Config) -> u32 {
    let limits = &config.limits;
    let overhead_bytes = FIELD_OVERHEAD_BYTES * (limits.headers_len_max + 8);
    let bytes = limits.head_bytes_max.saturating_add(overhead_bytes);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Http2 {
    fn new(mux: Rc<StreamMux>, codec: Codec<CodecPipe, Bytes>) -> Self {
        let now = telemetry::now();
        Self {
            mux,
            codec,
            tasks: FuturesUnordered::new(),
            last_stream: 0,
            unbegun: UnbegunStreams::default(),
            small_data: Vec::new(),
            failed: None,
            has_settings: false,
            is_acknowledged: false,
            is_within_block: false,
            block_since: None,
            input_ended: false,
            closed: false,
            slow_until: Stamp::ZERO,
            monitor: None,
            leaving: Leaving::No,
            idle_since: now,
            has_more: false,
        }
    }

    /// One turn of the connection.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Departure> {
        let now = telemetry::now();
        self.mux.connection.driver.flush_due(now);
        self.has_more = false;
        if let Some(woken) = self.mux.connection.take_fired() {
            self.heed(woken, now);
        }
        if self.mux.over().is_none() {
            self.read(context, now);
            self.call_all(context, now);
            self.send(context, telemetry::now());
        }
        if let Some(departure) = self.departure(context) {
            return Poll::Ready(departure);
        }
        self.wait_for_more(context, telemetry::now());
        Poll::Pending
    }

    /// Reads once, if there is nothing left of the last read and the client takes what it is sent.
    fn read(&mut self, context: &mut Context<'_>, now: Stamp) {
        if !self.reads(now) {
            return;
        }
        let driver = &self.mux.connection.driver;
        let mut scratch = driver.take_scratch();
        match self
            .mux
            .connection
            .transport
            .poll_read(context, &mut scratch.input)
        {
            Poll::Ready(Ok(0)) => {
                self.input_ended = true;
                self.mux.pipe.end_input();
            }
            Poll::Ready(Ok(bytes)) => self.mux.pipe.put(&scratch.input[..bytes]),
            Poll::Ready(Err(_)) => self.mux.end(Woken::Failed),
            Poll::Pending => {}
        }
        driver.put_scratch(scratch);
    }

    fn reads(&self, now: Stamp) -> bool {
        let is_wanted = !(self.input_ended || self.closed) && self.slow_until <= now;
        is_wanted && !self.mux.pipe.has_unfed() && self.mux.pipe.output_room() > 0
    }

    /// Has the crate take frames, begins requests, and polls the streams, until nothing more happens or the turn is
    /// over.
    fn call_all(&mut self, context: &mut Context<'_>, now: Stamp) {
        let mut frames_left = FRAMES_A_TURN;
        let mut streams_left = STREAMS_A_TURN;
        for _ in 0..ROUNDS_A_TURN {
            if self.slow_until <= now {
                frames_left -= self.mux.pipe.feed(frames_left);
            }
            self.take_events(now);
            self.call_codec(now, &mut streams_left);
            self.take_events(now);
            self.mux.grant_turns(now);
            self.poll_tasks(context);
            self.settle_small_data();
            let more = self.mux.pipe.has_unfed() && frames_left > 0 && self.slow_until <= now;
            if !(self.mux.is_moved() || more) || self.closed || self.mux.over().is_some() {
                break;
            }
        }
        if self.mux.is_moved() {
            // What the streams gave last. A request that it begins is polled in the next turn.
            let left_before = streams_left;
            self.call_codec(now, &mut streams_left);
            self.has_more |= streams_left < left_before;
            self.take_events(now);
        }
        // A frame that comes byte by byte keeps its first deadline; the pace of a body is its stream's.
        let is_partial = self
            .mux
            .pipe
            .partial_frame()
            .is_some_and(|kind| kind != scan::DATA);
        self.block_since = match is_partial || self.is_within_block {
            true => self.block_since.or(Some(now)),
            false => None,
        };
        self.has_more |= streams_left == 0;
        self.has_more |= self.mux.pipe.has_unfed() && self.slow_until <= now;
    }

    fn poll_tasks(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = Pin::new(&mut self.tasks).poll_next(context) {}
    }

    /// Calls the crate until it has taken all frames and written all that it has; begins the requests that it gives,
    /// as long as there is a place for them.
    fn call_codec(&mut self, now: Stamp, streams_left: &mut usize) {
        // Nothing of the crate wakes this task: it is called whenever there is something for it.
        let context = &mut Context::from_waker(Waker::noop());
        let streams_max = self.mux.connection.driver.config().http2.streams_max as usize;
        while !self.closed {
            self.mux.begin_call();
            // A reset stream keeps its place until its work has ended, and the crate counts what waits here.
            if *streams_left == 0 || self.mux.streams.borrow().len() >= streams_max {
                if let Poll::Ready(ended) = self.codec.poll_closed(context) {
                    self.note_end(ended.err());
                }
                break;
            }
            match self.codec.poll_accept(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    *streams_left -= 1;
                    self.last_stream = respond.stream_id().as_u32();
                    self.unbegun.take(self.last_stream);
                    self.mux.connection.driver.stats().http2_streams.add();
                    let rest = StreamTask::begin(&self.mux, request, respond, now);
                    self.tasks.extend(rest);
                }
                Poll::Ready(Some(Err(error))) => self.note_end(Some(error)),
                Poll::Ready(None) => self.note_end(None),
            }
        }
        self.mux.settle_turns();
        self.mux.end_call();
        self.grow_windows();
    }

    /// The crate is done with the connection.
    fn note_end(&mut self, error: Option<h2::Error>) {
        self.closed = true;
        // What the client calls an error is its own end.
        let own = error.filter(|error| !error.is_remote());
        self.failed = self.failed.or(own.and_then(|error| error.reason()));
    }

    /// Gives uploads the next step of windows.
    fn grow_windows(&mut self) {
        let (step, wanted) = (
            self.mux.upload_step.get(),
            self.mux.wanted_upload_step.get(),
        );
        if wanted > step && !self.closed {
            let (stream_window, connection_window) = UPLOAD_WINDOWS[wanted];
            // Refused while the client has not acknowledged the last change: asked again later.
            if self.codec.set_initial_window_size(stream_window).is_ok() {
                self.codec.set_target_window_size(connection_window);
                self.mux.upload_step.set(wanted);
                self.mux.has_moved();
            }
        }
    }

    /// Takes note of the frames that have passed.
    fn take_events(&mut self, now: Stamp) {
        while let Some(event) = self.mux.pipe.next_event() {
            match event {
                FrameEvent::Received(note) => self.received(&note),
                FrameEvent::Written(note) => self.written(&note),
            }
        }
        let verdict = {
            let mut odd_work = self.mux.odd_work.borrow_mut();
            odd_work.refill(now);
            odd_work.verdict()
        };
        match verdict {
            Verdict::Fine => {}
            Verdict::Slow if self.slow_until <= now => self.slow_until = now.plus(SLOW_PAUSE),
            Verdict::Slow => {}
            Verdict::Leave => self.end_for_odd_work(),
        }
    }

    fn received(&mut self, note: &FrameNote) {
        if !std::mem::replace(&mut self.has_settings, true) && note.kind != scan::SETTINGS {
            // RFC 9113 section 3.4.
            self.end_by_error(Reason::PROTOCOL_ERROR);
        }
        match odd_work::is_small_data(note) {
            true => self.small_data.push(*note),
            false => self.mux.odd_work.borrow_mut().received(note),
        }
        match note.kind {
            scan::SETTINGS if note.flags & scan::ACK != 0 => self.is_acknowledged = true,
            scan::HEADERS | scan::CONTINUATION => {
                self.is_within_block = note.flags & scan::END_HEADERS == 0;
                if note.kind == scan::HEADERS {
                    self.unbegun.note_head(note.stream, self.is_acknowledged);
                }
            }
            scan::WINDOW_UPDATE if note.stream == 0 => {
                self.mux
                    .open_window(note.number.unwrap_or(0) & (u32::MAX >> 1));
            }
            scan::PRIORITY_UPDATE => {
                if let (Some(stream), Some(priority)) = (note.number, note.priority) {
                    self.mux.streams.borrow_mut().set_priority(stream, priority);
                }
            }
            scan::RST_STREAM => self.reset(note, ResetBy::Client),
            _ => {}
        }
    }

    /// Accounts for small pieces of bodies, unless they are messages, which are work however small they are.
    fn settle_small_data(&mut self) {
        let streams = self.mux.streams.borrow();
        let is_message = |stream| {
            let slot = streams.get(stream);
            slot.is_some_and(|slot| slot.takes_messages.get())
        };
        for note in std::mem::take(&mut self.small_data) {
            if !is_message(note.stream) {
                self.mux.odd_work.borrow_mut().received(&note);
            }
        }
    }

    /// Sends what there is, in one call; waits for room where the transport is full.
    fn send(&mut self, context: &mut Context<'_>, now: Stamp) {
        let connection = &self.mux.connection;
        while self.has_unsent_output() {
            let sent = self
                .mux
                .pipe
                .send(|bytes| connection.transport.send(&[IoSlice::new(bytes)]));
            match sent {
                // Under TLS the last ciphertext of an earlier call has left.
                Ok(0) if !self.has_unsent_output() => break,
                Ok(0) => {
                    connection.transport.is_full();
                    if connection.transport.poll_writable(context).is_pending() {
                        self.monitor
                            .get_or_insert_with(|| Box::new(SendMonitor::new(connection, now)));
                        break;
                    }
                }
                Ok(bytes) => {
                    if let Some(monitor) = &mut self.monitor {
                        monitor.sent += bytes as u64;
                    }
                }
                Err(_) => {
                    self.mux.end(Woken::Failed);
                    return;
                }
            }
        }
        if !self.has_unsent_output() {
            self.monitor = None;
            // There is room again for what was held back: frames of the crate, whose waker wakes nothing, and turns.
            let has_turns = self.mux.has_waiting_turns() && self.mux.window() > 0;
            self.has_more |= self.mux.is_held_up() || has_turns;
        }
        self.mux.finish_endings(None, now);
    }

    /// Whether bytes wait for the client's socket: frames, or under TLS their ciphertext.
    fn has_unsent_output(&self) -> bool {
        self.mux.pipe.has_output() || self.mux.connection.transport.has_unsent()
    }

    /// Registers for what comes next, and says until when it is waited for.
    fn wait_for_more(&mut self, context: &mut Context<'_>, now: Stamp) {
        let connection = &self.mux.connection;
        if self.mux.over().is_none() && self.reads(now) {
            // Ready: more has come since the read.
            self.has_more |= connection.transport.poll_readable(context).is_ready();
        }
        let places_before = self.mux.streams.borrow().len();
        self.mux.streams.borrow_mut().look_at_abandoned();
        // Requests may wait in the crate for a place.
        self.has_more |= self.mux.streams.borrow().len() < places_before;
        if self.has_more {
            context.waker().wake_by_ref();
        }
        let is_idle = self.is_idle();
        if !is_idle {
            self.idle_since = Stamp::ZERO;
        } else if self.idle_since == Stamp::ZERO {
            self.idle_since = now;
            self.mux.pipe.rest();
        }
        let deadline = self.deadline(now);
        let connection = &self.mux.connection;
        match is_idle && self.mux.served.get() > 0 {
            true => connection.now_idle(self.idle_since, deadline),
            false if self.has_unsent_output() => connection.now_doing(Doing::Sending, deadline),
            false if is_idle => connection.now_doing(Doing::Reading, deadline),
            false => connection.now_doing(Doing::Away, deadline),
        }
    }

    /// Whether nothing is served or received.
    pub(super) fn is_idle(&self) -> bool {
        let is_quiet = self.tasks.is_empty() && self.mux.endings.borrow().is_empty();
        is_quiet && self.block_since.is_none() && !self.has_unsent_output()
    }

    fn deadline(&mut self, now: Stamp) -> Stamp {
        let driver = &self.mux.connection.driver;
        let timeouts = &driver.config().timeouts;
        let mut streams = self.mux.streams.borrow_mut();
        let mut deadline = streams.deadline().min(self.mux.window_deadline());
        if streams.look_at_abandoned() {
            deadline = deadline.min(now.plus(ABANDONED_LOOK));
        }
        if let Some(monitor) = &mut self.monitor {
            // A stop is found when the deadline has passed.
            let next = monitor.check(&self.mux.connection.transport, now);
            deadline = deadline.min(next.unwrap_or(now));
        }
        if let Some(since) = self.block_since {
            deadline = deadline.min(since.plus(timeouts.head));
        }
        if self.slow_until > now {
            deadline = deadline.min(self.slow_until);
        }
        deadline = deadline.min(match self.leaving {
            Leaving::No => self.mux.connection.retires,
            Leaving::Since(since) => Leaving::ends(since, now),
            Leaving::Now => Stamp::NEVER,
        });
        if self.is_waiting_for_client() {
            deadline = deadline.min(self.mux.connection.opened.ready_since().plus(timeouts.head));
        }
        match self.idle_since {
            Stamp::ZERO => deadline,
            since => deadline.min(since.plus(timeouts.idle)),
        }
    }

    /// Whether settings, their acknowledgement, or the first request are to come still.
    fn is_waiting_for_client(&self) -> bool {
        !self.is_acknowledged || self.mux.served.get() == 0
    }

    /// Does what a wake-up of the driver asks for.
    fn heed(&mut self, woken: Woken, now: Stamp) {
        match woken {
            Woken::Cut => self.mux.end(Woken::Cut),
            Woken::Draining => self.leave(now),
            Woken::Crowded if self.is_idle() => {
                self.mux
                    .connection
                    .driver
                    .stats()
                    .timed_out(Timeout::Crowded);
                self.leave_now();
            }
            Woken::Crowded => {}
            Woken::Deadline => self.look_at_deadlines(now),
            Woken::End | Woken::Failed => self.mux.end(woken),
        }
    }

    fn look_at_deadlines(&mut self, now: Stamp) {
        let mux = Rc::clone(&self.mux);
        let driver = &mux.connection.driver;
        let timeouts = &driver.config().timeouts;
        mux.streams.borrow().wake_due(now);
        // It ends as soon as its streams have ended.
        if mux.over().is_some() {
            return;
        }
        let stalled = self.monitor.as_mut().and_then(|monitor| {
            let checked = monitor.check(&mux.connection.transport, now);
            checked.err()
        });
        if stalled.is_some() || mux.window_deadline() <= now {
            driver.stats().timed_out(Timeout::Send);
            mux.connection.transport.reset_on_close();
            return mux.end(Woken::Deadline);
        }
        let is_late = |since: Stamp| since.plus(timeouts.head) <= now;
        let head_is_late = self.block_since.is_some_and(is_late);
        let client_is_late =
            self.is_waiting_for_client() && is_late(mux.connection.opened.ready_since());
        if head_is_late || (client_is_late && self.is_idle()) {
            driver.stats().timed_out(Timeout::Head);
            self.end_by_error(match self.is_acknowledged {
                true => Reason::NO_ERROR,
                false => Reason::SETTINGS_TIMEOUT,
            });
        }
        let idle_since = self.idle_since;
        if self.is_idle() && idle_since != Stamp::ZERO && idle_since.plus(timeouts.idle) <= now {
            driver.stats().timed_out(Timeout::Idle);
            self.leave(now);
        }
        if mux.connection.retires <= now {
            self.leave(now);
        }
        self.look_at_leaving(now);
    }

    /// What becomes of the connection, if it has come to its end.
    fn departure(&mut self, context: &mut Context<'_>) -> Option<Departure> {
        let driver = &self.mux.connection.driver;
        if self.closed && self.mux.over().is_none() {
            if self.has_unsent_output() {
                return None;
            }
            // Streams that are left are those that the crate has given up.
            self.mux.end(Woken::End);
        } else if driver.state.get() >= ServingState::Closing {
            // Each response would be the last of an HTTP/1 connection too. Not only when the driver wakes it: that may
            // have been before the connection spoke HTTP/2.
            if self.leaving == Leaving::No {
                // Those of WebSocket connections have something to do now.
                self.mux.streams.borrow().wake_all();
            }
            self.leave(telemetry::now());
        }
        let why = self.mux.over()?;
        self.poll_tasks(context);
        if !self.tasks.is_empty() {
            return None;
        }
        self.mux.finish_endings(Some(why.stop()), telemetry::now());
        self.end_unbegun(why);
        Some(match why {
            Woken::End => Departure::Linger,
            _ => Departure::Close,
        })
    }
}
