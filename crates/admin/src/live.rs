//! The live view: one sample of the server a second for all pages that are open, and none while there is no page.
//!
//! A page is a reader of server-sent events. A reader that takes nothing misses events, which cost no memory: its channel
//! holds three of them, and all readers share the text of each.
//!
//! ```text
//! supervisor ── sample, once a second ──► feed ── window ──► event ──► reader, reader, …
//! ```

mod event;
mod health;
mod sentences;
mod spread;
mod window;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use ipc::{AdminQuery, LiveSample};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::history::HistorySpan;
use crate::now_s;
use crate::supervisor_link::SupervisorLink;
use window::LiveWindow;

/// Pages at once.
const READERS_LEN_MAX: usize = 16;
/// Events that wait for a reader: the past, what was before it, and the first one.
const EVENTS_LEN_MAX: usize = 3;
const PERIOD: Duration = Duration::from_secs(1);

/// What all readers share.
pub(crate) struct LiveFeed {
    link: Rc<SupervisorLink>,
    readers: RefCell<Vec<mpsc::Sender<Bytes>>>,
    window: RefCell<LiveWindow>,
    /// The task that asks runs; it ends with the last reader.
    is_running: Cell<bool>,
}

/// The events of one reader, as the body of a response.
pub(crate) struct LiveEvents {
    events: mpsc::Receiver<Bytes>,
}

impl LiveFeed {
    pub(crate) fn new(link: Rc<SupervisorLink>) -> Rc<Self> {
        Rc::new(Self {
            link,
            readers: RefCell::default(),
            window: RefCell::default(),
            is_running: Cell::new(false),
        })
    }

    /// A reader from now on; `None`: there are too many.
    pub(crate) fn subscribe(self: &Rc<Self>) -> Option<LiveEvents> {
        let mut readers = self.readers.borrow_mut();
        readers.retain(|reader| !reader.is_closed());
        if readers.len() >= READERS_LEN_MAX {
            return None;
        }
        let (reader, events) = mpsc::channel(EVENTS_LEN_MAX);
        // There is room: it is new.
        let _ = reader.try_send(event::past(&self.window.borrow()));
        readers.push(reader);
        if !self.is_running.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).run());
        }
        Some(LiveEvents { events })
    }

    /// Asks once a second, until nobody reads.
    async fn run(self: Rc<Self>) {
        self.window.borrow_mut().pause();
        self.restore().await;
        let mut ticks = interval(PERIOD);
        // A supervisor that was slow gets no burst of questions.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut latest = Instant::now();
        loop {
            ticks.tick().await;
            self.readers
                .borrow_mut()
                .retain(|reader| !reader.is_closed());
            if self.readers.borrow().is_empty() {
                break;
            }
            let sample = self.ask().await;
            let span = latest.elapsed();
            let event = match sample {
                Some(sample) => {
                    latest = Instant::now();
                    if self.window.borrow().misses_seconds(&sample) {
                        self.restore().await;
                    }
                    self.next_event(&sample, span)
                }
                None => event::silent(),
            };
            for reader in self.readers.borrow().iter() {
                // One that is full, or gone, misses it.
                let _ = reader.try_send(event.clone());
            }
        }
        self.is_running.set(false);
    }

    /// Gives all readers what has happened while there were none.
    async fn restore(&self) {
        let Some(file) = self.link.history().await else {
            return;
        };
        let Ok(sums) = ipc::history::sums(&file) else {
            return;
        };
        let from_s = now_s().saturating_sub(HistorySpan::Quarter.secs());
        let mut window = self.window.borrow_mut();
        window.restore(
            &sums.seconds(from_s),
            sums.seconds_len(),
            &sums.marks(from_s),
        );
        for reader in self.readers.borrow().iter() {
            let _ = reader.try_send(event::past(&window));
        }
    }

    async fn ask(&self) -> Option<LiveSample> {
        let said = self.link.ask(AdminQuery::Live).await?;
        serde_json::from_slice(&said).ok()
    }

    fn next_event(&self, sample: &LiveSample, span: Duration) -> Bytes {
        let at_s = now_s();
        let mut window = self.window.borrow_mut();
        window.observe(sample, at_s, span);
        event::status(sample, &window, at_s)
    }
}

impl Body for LiveEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.events.poll_recv(context);
        event.map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
