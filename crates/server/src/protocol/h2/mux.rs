//! What the tasks of a connection share: its streams, their turns to send, the places at pools, the responses that are
//! on their way to the kernel.
//!
//! The connection's task grants turns and calls the `h2` crate; the streams' tasks give it heads and data. Nothing here
//! waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use http::RequestHead;
use queueing::Pace;
use telemetry::{Ending, Nanos, Stamp};
use tokio::sync::Semaphore;

use super::odd_work::OddWork;
use super::pipe::PipeEnd;
use super::priority::{Priority, TurnQueue};
use super::stream_table::{StreamSlot, StreamTable, Turn};
use crate::exchange::{Exchange, ExchangeRecord, Permit};
use crate::protocol::{Connection, Stop, Woken};

/// Bytes of a turn: one frame, so that an urgent response is never behind more of another one.
pub(super) const TURN_BYTES: usize = 16 << 10;
/// Turns that a stream has at once while no other wants to send.
const TURNS_ALONE: usize = 4;
/// Exchanges of one connection that wait for a worker at once: a connection is one client, however many streams it has.
const POOL_PLACES: usize = 16;
/// A connection's window before anything is sent (RFC 9113 section 6.9.2).
const WINDOW_BYTES: i64 = 65_535;
/// Windows of streams and of the connection that uploads have, from step to step: the connection's stays well above
/// the streams', or one stalled upload would stop all.
pub(super) const UPLOAD_WINDOWS: [(u32, u32); 3] = [
    (64 << 10, 1 << 20),
    (256 << 10, 2 << 20),
    (1 << 20, 4 << 20),
];
/// Bytes of one body, in windows, after which its connection has the next step.
const WINDOWS_A_STEP: u64 = 4;

/// Shared by the tasks of a connection.
pub(super) struct StreamMux {
    pub(super) connection: Connection,
    pub(super) pipe: PipeEnd,
    pub(super) streams: RefCell<StreamTable>,
    turns: RefCell<TurnQueue>,
    /// Granted to streams and not seen in the output yet.
    pledged: Cell<usize>,
    /// Bytes of DATA that the client takes on this connection, beside those that are written.
    window: Cell<i64>,
    /// Bytes of DATA that the crate was given and has neither written nor dropped.
    given: Cell<usize>,
    /// The time that the client may leave streams waiting for that window.
    window_pace: Cell<Pace>,
    /// Which of the windows for uploads holds, and which is wanted.
    pub(super) upload_step: Cell<usize>,
    pub(super) wanted_upload_step: Cell<usize>,
    /// Why no frame moves any more.
    over: Cell<Option<Woken>>,
    /// A stream has given the crate something since it was called.
    moved: Cell<bool>,
    /// The crate has more to write than the output had room for.
    held_up: Cell<bool>,
    pub(super) endings: RefCell<VecDeque<StreamEnding>>,
    /// Bytes of the output that the kernel has, as far as it is known.
    delivered: Cell<u64>,
    pub(super) pool_places: Arc<Semaphore>,
    pub(super) odd_work: RefCell<OddWork>,
    /// Heads are written here before they are judged.
    block: Cell<Vec<u8>>,
    /// Streams served so far.
    pub(super) served: Cell<u64>,
}

/// An exchange whose response the crate has whole, until the kernel has.
pub(super) struct StreamEnding {
    pub(super) record: ExchangeRecord,
    pub(super) head: EndedHead,
    /// Up to which byte of the output it goes; `None` while the crate may have some of it.
    pub(super) until: Option<u64>,
    /// Held to the end.
    pub(super) _permit: Option<Permit>,
}

/// The head of an exchange that has ended, for the log.
pub(super) enum EndedHead {
    Head(Box<RequestHead>),
    Exchange(Box<Exchange>),
}

impl StreamMux {
    pub(super) fn new(connection: Connection, pipe: PipeEnd) -> Self {
        let timeouts = &connection.driver.config().timeouts;
        let now = telemetry::now();
        let mut window_pace = Pace::new(now, timeouts.send, timeouts.send_rate_min);
        window_pace.hold(now);
        Self {
            connection,
            pipe,
            streams: RefCell::default(),
            turns: RefCell::default(),
            pledged: Cell::default(),
            window: Cell::new(WINDOW_BYTES),
            given: Cell::default(),
            window_pace: Cell::new(window_pace),
            upload_step: Cell::default(),
            wanted_upload_step: Cell::default(),
            over: Cell::default(),
            moved: Cell::default(),
            held_up: Cell::default(),
            endings: RefCell::default(),
            delivered: Cell::new(0),
            pool_places: Arc::new(Semaphore::new(POOL_PLACES)),
            odd_work: RefCell::new(OddWork::new()),
            block: Cell::default(),
            served: Cell::default(),
        }
    }

    pub(super) fn take_block(&self) -> Vec<u8> {
        self.block.take()
    }

    pub(super) fn put_block(&self, block: Vec<u8>) {
        self.block.set(block);
    }

    /// A request has come.
    pub(super) fn open(&self, number: u32, priority: Priority) -> Rc<StreamSlot> {
        self.served.set(self.served.get() + 1);
        self.streams.borrow_mut().open(number, priority)
    }

    /// It is not answered on the spot.
    pub(super) fn enter(&self, slot: Rc<StreamSlot>) {
        self.streams.borrow_mut().enter(slot);
    }

    pub(super) fn leave(&self, number: u32) {
        self.turns.borrow_mut().leave(number);
        self.streams.borrow_mut().leave(number);
    }

    /// Whether the crate has been given something since it was called.
    pub(super) fn is_moved(&self) -> bool {
        self.moved.get()
    }

    /// The crate is called: it takes all that it has been given.
    pub(super) fn begin_call(&self) {
        self.moved.set(false);
    }

    pub(super) fn has_moved(&self) {
        self.moved.set(true);
    }

    /// No frame moves any more; every stream hears of it.
    pub(super) fn end(&self, why: Woken) {
        // The first reason stays, unless the driver ends at once.
        if why == Woken::Cut || self.over.get().is_none() {
            self.over.set(Some(why));
        }
        self.streams.borrow().wake_all();
    }

    pub(super) fn over(&self) -> Option<Woken> {
        self.over.get()
    }

    /// Bytes that streams may give the crate by the client's window of the connection.
    pub(super) fn window(&self) -> i64 {
        self.window.get() - self.given.get() as i64
    }

    /// The client has opened its window of the connection.
    pub(super) fn open_window(&self, bytes: u32) {
        self.window.set(self.window.get() + i64::from(bytes));
    }

    /// A stream may send as much, without a wait, where no other has asked and there is room.
    pub(super) fn turn_at_once(&self, bytes: usize) -> Option<usize> {
        let most = bytes.min(TURN_BYTES * TURNS_ALONE);
        let pledged = self.pledged.get() + most;
        let has_room = self.pipe.output_room() >= pledged;
        let is_alone = self.turns.borrow().len() == 0 && self.window() > 0;
        (is_alone && has_room).then(|| {
            self.pledged.set(pledged);
            most
        })
    }

    /// A stream has something to send.
    pub(super) fn ask_for_turn(&self, slot: &StreamSlot) {
        slot.turn.set(Turn::Waiting);
        self.turns
            .borrow_mut()
            .enter(slot.number, slot.priority.get());
    }

    /// It has nothing to send any more.
    pub(super) fn forgo_turn(&self, slot: &StreamSlot) {
        slot.turn.set(Turn::Idle);
        self.turns.borrow_mut().leave(slot.number);
    }

    /// Grants turns, in the order of the queue, as far as the output has room and the client takes more.
    pub(super) fn grant_turns(&self, now: Stamp) {
        let mut turns = self.turns.borrow_mut();
        let mut pace = self.window_pace.get();
        // Streams that wait although there is room wait for the client's window.
        let room = self.pipe.output_room().saturating_sub(self.pledged.get());
        let window = usize::try_from(self.window()).unwrap_or(0);
        match turns.len() {
            1.. if window == 0 => pace.resume(now),
            _ => pace.hold(now),
        }
        self.window_pace.set(pace);
        let mut left = room.min(window);
        let step = match turns.len() {
            1 => TURN_BYTES * TURNS_ALONE,
            _ => TURN_BYTES,
        };
        while left > 0 {
            let Some(next) = turns.next() else { break };
            let streams = self.streams.borrow();
            let Some(slot) = streams.get(next) else {
                continue;
            };
            let granted = step.min(left);
            slot.turn.set(Turn::Granted(granted));
            slot.wake();
            self.pledged.set(self.pledged.get() + granted);
            left -= granted;
        }
    }

    /// Whether streams wait for their turn.
    pub(super) fn has_waiting_turns(&self) -> bool {
        self.turns.borrow().len() > 0
    }

    /// The crate was called: what was granted is in the output now, or was not used. DATA counts when it is written:
    /// what the crate has not written of a stream that is reset, it drops.
    pub(super) fn settle_turns(&self) {
        self.pledged.set(0);
        let written = self.pipe.take_data_bytes();
        self.window.set(self.window.get() - written as i64);
        self.given.set(self.given.get().saturating_sub(written));
    }

    /// When a client that leaves streams waiting for its window is given up.
    pub(super) fn window_deadline(&self) -> Stamp {
        self.window_pace.get().deadline()
    }

    /// A stream has given the crate data.
    pub(super) fn sent_data(&self, bytes: usize, now: Stamp) {
        self.given.set(self.given.get() + bytes);
        let mut pace = self.window_pace.get();
        pace.advance(bytes as u64, now);
        self.window_pace.set(pace);
        self.odd_work.borrow_mut().sent_data(bytes as u64);
        self.has_moved();
    }

    /// So much of one body has come: an upload that goes on gets larger windows.
    pub(super) fn note_upload(&self, bytes: u64) {
        let step = self.upload_step.get();
        let (window, _) = UPLOAD_WINDOWS[step];
        if step + 1 < UPLOAD_WINDOWS.len() && bytes >= WINDOWS_A_STEP * u64::from(window) {
            self.wanted_upload_step.set(step + 1);
        }
        self.has_moved();
    }

    /// The crate has written all that it had, or as much as the output had room for.
    pub(super) fn end_call(&self) {
        self.held_up.set(self.pipe.take_blocked());
        if !self.held_up.get() {
            self.given.set(0);
            self.place_endings();
        }
    }

    pub(super) fn is_held_up(&self) -> bool {
        self.held_up.get()
    }

    /// The crate has all of a response: its exchange ends when the kernel has it too.
    pub(super) fn end_when_sent(&self, ending: StreamEnding) {
        self.endings.borrow_mut().push_back(ending);
        // All of it may be in the output already, and the crate not be called again.
        if !(self.moved.get() || self.held_up.get()) {
            self.place_endings();
        }
        self.has_moved();
    }

    /// Responses that ended until now are in the output.
    fn place_endings(&self) {
        let (written, _) = self.pipe.positions();
        let mut endings = self.endings.borrow_mut();
        // From the back: those in front have their place.
        for ending in endings.iter_mut().rev() {
            if ending.until.is_some() {
                break;
            }
            ending.until = Some(written);
        }
    }

    /// Ends the exchanges whose responses the kernel has; with a reason, all others too.
    pub(super) fn finish_endings(&self, failed: Option<Stop>, now: Stamp) {
        // What TLS has taken is not out as long as ciphertext waits.
        if !self.connection.transport.has_unsent() {
            self.delivered.set(self.pipe.positions().1);
        }
        let sent = self.delivered.get();
        loop {
            let mut endings = self.endings.borrow_mut();
            let Some(first) = endings.front() else { return };
            let is_out = first.until.is_some_and(|until| until <= sent);
            if !is_out && failed.is_none() {
                return;
            }
            let ending = endings.pop_front().expect("there is a first one");
            drop(endings);
            let mut record = ending.record;
            record.phases.sent = now;
            match failed {
                Some(stop) if !is_out && record.ending == Ending::Complete => {
                    record.end_as(stop.ending, stop.cause);
                }
                _ if record.ending == Ending::Complete => self.odd_work.borrow_mut().completed(),
                _ => {}
            }
            let head = match &ending.head {
                EndedHead::Head(head) => head.view(),
                EndedHead::Exchange(exchange) => exchange.head(),
            };
            self.connection.end(&record, head);
        }
    }
}

/// How long a response was blocked, and by what.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct BlockedTimes {
    /// By the window of its own stream.
    pub(super) stream: Nanos,
    /// By the connection: its window, its socket, or the turns of other streams.
    pub(super) connection: Nanos,
}
