//! A toy of the tests: many streams at once on one connection, each with a window of its own. It exists to show
//! that nothing above `protocol` knows HTTP/1 or sockets; only compiled with the feature `faults`.
//!
//! ```text
//! frame:        stream (u16), kind (u8), bytes of the payload (u32), payload; numbers are big-endian
//! from clients: HEAD (the text of an HTTP/1 head), DATA, END, WINDOW (u32: so many bytes more), RESET
//! from here:    HEAD (status as u16, field lines), DATA (within the stream's window, at first 0), END, RESET
//! ```
//!
//! A task receives frames and gives them to the streams' tasks (`stream`), which send theirs one at a time: a
//! stream has the turn for one frame. A client that ends its side is gone.

mod stream;

mod offloaded;
mod send;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use telemetry::Stamp;
use tokio::sync::{Notify, Semaphore};

use super::{Connection, Stop, Woken};
use crate::driver::handoff::Opened;
use crate::driver::{Driver, Scratch, ServingState};
use crate::transport::Transport;
use ipc::stats::Doing;

use stream::Stream;

/// Streams that a client may have open at once.
const STREAMS_MAX: usize = 100;
/// Bytes of a frame before its payload.
const HEADER_BYTES: usize = 7;
/// Largest payload of a client's frame.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// What a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// HTTP/1: one stream at a time.
    Http1,
    /// The toy of the tests: many streams at once.
    Interleaved,
}

/// Serves a connection, by tasks of their own on this thread.
pub(super) fn serve(driver: Rc<Driver>, transport: Transport, opened: Opened) {
    tokio::task::spawn_local(Interleaved::open(driver, transport, opened).serve());
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FrameKind {
    Head = 1,
    Data = 2,
    End = 3,
    Window = 4,
    Reset = 5,
}

/// A frame of the client's.
struct MuxFrame<'a> {
    stream: u16,
    kind: FrameKind,
    payload: &'a [u8],
}

/// The client breaks the protocol: its connection is reset.
struct Broken;

/// The task of a connection.
struct Interleaved {
    mux: Rc<Mux>,
    input: Vec<u8>,
    /// Number of the last stream that was begun.
    last: u16,
}

/// What the tasks of a connection share.
struct Mux {
    connection: Connection,
    /// Whose frame is being sent.
    turn: Semaphore,
    streams: RefCell<HashMap<u16, Rc<Inbox>>>,
    /// Notified when a stream has left.
    left: Notify,
    /// Why no frame moves any more.
    over: Cell<Option<Woken>>,
}

/// What has come for a stream.
#[derive(Default)]
struct Inbox {
    body: RefCell<Vec<u8>>,
    is_complete: Cell<bool>,
    is_reset: Cell<bool>,
    /// Bytes that the client takes.
    window: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Interleaved {
    fn open(driver: Rc<Driver>, transport: Transport, opened: Opened) -> Self {
        let mux = Mux {
            connection: Connection::open(driver, transport, opened, None),
            turn: Semaphore::new(1),
            streams: RefCell::default(),
            left: Notify::new(),
            over: Cell::new(None),
        };
        Self {
            mux: Rc::new(mux),
            input: Vec::new(),
            last: 0,
        }
    }

    async fn serve(mut self) {
        self.mux.connection.enter_task().await;
        let why = self.receive().await;
        self.mux.end(why);
        // Workers may still be at it; the end of the driver is to be heard until they are done.
        while !self.mux.is_empty() {
            let taken = |_: &mut Context<'_>| match self.mux.connection.take_fired() {
                Some(Woken::Cut) => Poll::Ready(()),
                _ => Poll::Pending,
            };
            if let Some(()) = self.mux.unless_left(taken).await {
                self.mux.end(Woken::Cut);
                self.mux.left.notified().await;
            }
        }
    }

    /// Receives frames until none are to come any more; gives why.
    async fn receive(&mut self) -> Woken {
        let mux = Rc::clone(&self.mux);
        loop {
            let is_draining = mux.connection.driver.state.get() >= ServingState::Draining;
            if is_draining && mux.is_empty() {
                return Woken::Draining;
            }
            let mut read = pin!(mux.connection.read());
            let read = mux.unless_left(|context| read.as_mut().poll(context)).await;
            match read {
                None | Some(Err(Woken::Draining)) => {}
                Some(Err(Woken::Deadline | Woken::Crowded)) if !mux.is_empty() => {}
                Some(Err(woken)) => return woken,
                Some(Ok((scratch, bytes))) => {
                    if let Err(Broken) = self.use_input(scratch, bytes) {
                        mux.connection.transport.reset_on_close();
                        return Woken::Failed;
                    }
                }
            }
        }
    }

    fn use_input(&mut self, scratch: Box<Scratch>, bytes: usize) -> Result<(), Broken> {
        let now = telemetry::now();
        let driver = &self.mux.connection.driver;
        driver.flush_due(now);
        self.input.extend_from_slice(&scratch.input[..bytes]);
        driver.put_scratch(scratch);
        let mut input = std::mem::take(&mut self.input);
        let mut used = 0;
        while let Some(frame) = MuxFrame::first(&input[used..])? {
            used += HEADER_BYTES + frame.payload.len();
            self.take(&frame, now)?;
        }
        input.drain(..used);
        self.input = input;
        Ok(())
    }

    fn take(&mut self, frame: &MuxFrame<'_>, now: Stamp) -> Result<(), Broken> {
        let MuxFrame {
            stream: number,
            kind,
            payload,
        } = *frame;
        let mut streams = self.mux.streams.borrow_mut();
        if kind != FrameKind::Head {
            return match streams.get(&number) {
                Some(inbox) => inbox.put(kind, payload),
                // It may have ended here before the client knew.
                None if number <= self.last => Ok(()),
                None => Err(Broken),
            };
        }
        if number <= self.last || streams.len() == STREAMS_MAX {
            return Err(Broken);
        }
        self.last = number;
        let inbox = Rc::<Inbox>::default();
        streams.insert(number, Rc::clone(&inbox));
        drop(streams);
        self.mux.connection.now_doing(Doing::Away, Stamp::NEVER);
        let stream = Stream::new(Rc::clone(&self.mux), number, inbox);
        drop(tokio::task::spawn_local(
            stream.serve(payload.to_vec(), now),
        ));
        Ok(())
    }
}

impl Mux {
    fn is_empty(&self) -> bool {
        self.streams.borrow().is_empty()
    }

    /// What `poll` gives; `None` when a stream has left before.
    async fn unless_left<T>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        let mut left = pin!(self.left.notified());
        poll_fn(|context| match poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => left.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// No frame moves any more.
    fn end(&self, why: Woken) {
        self.over.set(Some(why));
        self.turn.close();
        self.streams
            .borrow()
            .values()
            .for_each(|inbox| inbox.wake());
    }

    /// Why nothing can be sent.
    fn stop(&self) -> Stop {
        self.over.get().unwrap_or(Woken::Failed).stop()
    }

    /// A stream has ended.
    fn leave(&self, number: u16) {
        self.streams.borrow_mut().remove(&number);
        if self.is_empty() && self.over.get().is_none() {
            let now = telemetry::now();
            let driver = &self.connection.driver;
            let deadline = now.plus(driver.config().timeouts.idle);
            let mut table = driver.table.borrow_mut();
            table.set_idle(self.connection.slot, now, deadline);
        }
        self.left.notify_one();
    }
}

impl Inbox {
    fn put(&self, kind: FrameKind, payload: &[u8]) -> Result<(), Broken> {
        match kind {
            // The client of what was under way is gone.
            _ if self.is_reset.get() => return Ok(()),
            FrameKind::Data if self.is_complete.get() => return Err(Broken),
            FrameKind::Data => self.body.borrow_mut().extend_from_slice(payload),
            FrameKind::Window => {
                let more = payload.try_into().map_err(|_| Broken)?;
                let more = u64::from(u32::from_be_bytes(more));
                self.window.set(self.window.get().saturating_add(more));
            }
            FrameKind::Reset => self.is_reset.set(true),
            FrameKind::End => self.is_complete.set(true),
            FrameKind::Head => return Err(Broken),
        }
        self.wake();
        Ok(())
    }

    /// What has come of the body, and whether it is complete; `None` while there is nothing new.
    fn take_body(&self) -> Option<(Vec<u8>, bool)> {
        let body = self.body.take();
        let is_complete = self.is_complete.get();
        (is_complete || !body.is_empty()).then_some((body, is_complete))
    }

    fn watch(&self, context: &Context<'_>) {
        *self.waker.borrow_mut() = Some(context.waker().clone());
    }

    fn wake(&self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl<'a> MuxFrame<'a> {
    /// The first frame of `input`, if all of it is there.
    fn first(input: &'a [u8]) -> Result<Option<Self>, Broken> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [stream @ .., kind, a, b, c, d] = *header;
        let kind = match kind {
            1 => FrameKind::Head,
            2 => FrameKind::Data,
            3 => FrameKind::End,
            4 => FrameKind::Window,
            5 => FrameKind::Reset,
            _ => return Err(Broken),
        };
        let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(Broken);
        }
        let stream = u16::from_be_bytes(stream);
        Ok(rest.get(..bytes).map(|payload| MuxFrame {
            stream,
            kind,
            payload,
        }))
    }
}
