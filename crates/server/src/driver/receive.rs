//! Receiving: heads, from the socket or from what a pipelining client sent ahead; and the time between
//! two requests.

use std::rc::Rc;

use measure::{Ending, Nanos, Stamp};
use wire::{HeadIndex, HeadStep, HeadView};

use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use super::sending::Outflow;
use super::{Mood, Scratch};
use crate::stats::{Doing, Timeout};

/// Requests of one client that are answered in one turn before the other connections get theirs.
const REQUESTS_A_TURN: usize = 32;
/// While draining, how long a connection that was accepted and has sent nothing is given.
const FIRST_BYTE_GRACE: Nanos = Nanos(1_000_000_000);
/// After so long without a request the kernel is asked whether the client has taken the last reply.
const IDLE_LOOK: Nanos = Nanos(1_000_000_000);

impl Connection {
    /// Receives until there is something to do that is not done on the spot.
    pub(super) async fn receive_head(&mut self) -> Step {
        if !self.buffer.is_empty()
            && let Some(step) = self.use_buffer(measure::now())
        {
            return step;
        }
        self.wait_for_head();
        // The mood may have changed while the last exchange was under way.
        if self.driver.mood.get() >= Mood::Draining
            && let Some(step) = self.no_bytes(Woken::Draining)
        {
            return step;
        }
        loop {
            let step = match self.read().await {
                Ok(bytes) => self.receive_bytes(bytes),
                Err(woken) => self.no_bytes(woken),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Uses `bytes` bytes in the scratch buffer; sets the deadline for what is missing, unless it has one: more
    /// of the same head does not renew it, nor does an empty line before a head.
    fn receive_bytes(&mut self, bytes: usize) -> Option<Step> {
        let before = self.progress();
        let step = self.use_input(bytes, measure::now());
        if step.is_none() && self.progress() != before {
            self.wait_for_head();
        }
        step
    }

    /// Sets the deadline for the next head: from its first byte if there is one, else the idle time. The
    /// first head's runs from the accept on.
    fn wait_for_head(&mut self) {
        self.stalled = None;
        let driver = Rc::clone(&self.driver);
        let timeouts = &driver.config().timeouts;
        if !self.has_begun() {
            if self.received > 0 {
                let since = std::mem::take(&mut self.idle_since);
                let since = if since == Stamp::ZERO {
                    measure::now()
                } else {
                    since
                };
                // After a while, a look whether the client has taken the last reply.
                let deadline = timeouts.idle.min(IDLE_LOOK);
                self.now_idle(since, since.plus(deadline));
            }
        } else {
            self.driver.stats().partial.add();
            // What came with the last request may have waited for its reply.
            let since = if self.received > 0 {
                measure::now()
            } else {
                self.arrived
            };
            self.now_doing(Doing::Reading, since.plus(timeouts.head));
        }
    }

    /// Heads received, and whether another one has begun.
    fn progress(&self) -> (u64, bool) {
        (self.received, self.has_begun())
    }

    /// Whether bytes of a head are there. An empty line before it is not its beginning (RFC 9112 section
    /// 2.2).
    fn has_begun(&self) -> bool {
        self.buffer
            .iter()
            .any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// What to do when no bytes came. `None`: wait on.
    fn no_bytes(&mut self, woken: Woken) -> Option<Step> {
        if !self.has_begun() {
            return self.no_first_byte(woken);
        }
        let ending = match woken {
            Woken::Draining | Woken::Crowded => return None,
            Woken::Deadline => {
                self.driver.stats().timed_out(Timeout::Head);
                let line = std::mem::take(&mut self.buffer);
                return Some(self.refuse_line(&line, Refused::HEAD_TIMEOUT));
            }
            Woken::Cut => Ending::Drained,
            Woken::End | Woken::Failed => Ending::PeerGone,
        };
        let line = std::mem::take(&mut self.buffer);
        self.end_unanswered(self.new_id(None), None, &line, ending);
        Some(Step::Close)
    }

    fn no_first_byte(&mut self, woken: Woken) -> Option<Step> {
        match woken {
            Woken::Draining | Woken::Deadline | Woken::Crowded => {}
            Woken::Cut | Woken::End => return Some(Step::Close),
            Woken::Failed => {
                self.driver.stats().errors.add();
                return Some(Step::Close);
            }
        }
        // What came at the last moment is served.
        let before = self.progress();
        let step = self.read_now().and_then(|bytes| self.receive_bytes(bytes));
        if step.is_some() || self.progress() != before {
            return step;
        }
        match woken {
            Woken::Draining if self.received > 0 => Some(Step::Close),
            // A connection that never sent anything gets a moment.
            Woken::Draining => {
                self.deadline_in(Doing::Idle, FIRST_BYTE_GRACE);
                None
            }
            _ => self.idle_look(woken, measure::now()),
        }
    }

    /// A look at a connection on which nothing comes: whether its time is up, and whether its client still
    /// takes the last reply. `None`: wait on.
    fn idle_look(&mut self, woken: Woken, now: Stamp) -> Option<Step> {
        let stats = self.driver.stats();
        if woken == Woken::Crowded {
            stats.timed_out(Timeout::Crowded);
            return Some(Step::Close);
        }
        if self.received == 0 {
            stats.timed_out(Timeout::Head);
            return Some(Step::Close);
        }
        let (is_idle, since) = self.driver.table.borrow_mut().idle_since(self.seat);
        let timeout = self.driver.config().timeouts.idle;
        if is_idle && since.plus(timeout) <= now {
            stats.timed_out(Timeout::Idle);
            return Some(Step::Close);
        }
        let mut stalled = self.stalled.take().unwrap_or_else(|| {
            // What the client took before this first look is not known: it has half of the time to show.
            let patience = Nanos(self.driver.config().timeouts.send.0 / 2);
            let latest = Stamp(now.0.saturating_sub(patience.0));
            Box::new(Outflow::new(self, None, since.max(latest)))
        });
        match stalled.look(self.door(), now) {
            Ok(_) if stalled.is_out() && is_idle => self.now_idle(since, since.plus(timeout)),
            Ok(_) if stalled.is_out() => self.now_idle(now, now.plus(timeout)),
            Ok(next) => {
                self.now_doing(Doing::Sending, next);
                self.stalled = Some(stalled);
            }
            Err(stop) => {
                self.count_stop(stop);
                self.abandon();
                return Some(Step::Close);
            }
        }
        None
    }

    fn now_idle(&self, since: Stamp, deadline: Stamp) {
        self.driver
            .table
            .borrow_mut()
            .set_idle(self.seat, since, deadline);
    }

    /// Uses `bytes` bytes in the scratch buffer; keeps what is left over.
    fn use_input(&mut self, bytes: usize, now: Stamp) -> Option<Step> {
        let driver = Rc::clone(&self.driver);
        driver.flush_due(now);
        let mut scratch = driver.scratch.borrow_mut();
        let Scratch { input, head } = &mut *scratch;
        let input = &input[..bytes];
        if !self.buffer.is_empty() {
            self.buffer.extend_from_slice(input);
            drop(scratch);
            return self.use_buffer(now);
        }
        if self.received > 0 {
            self.arrived = now;
        }
        let (used, step) = self.advance(input, head, now);
        self.buffer.extend_from_slice(&input[used..]);
        step
    }

    /// Uses what is in the connection's own buffer.
    fn use_buffer(&mut self, now: Stamp) -> Option<Step> {
        if self.buffer.is_empty() {
            return None;
        }
        let driver = Rc::clone(&self.driver);
        let mut scratch = driver.scratch.borrow_mut();
        let mut input = std::mem::take(&mut self.buffer);
        let (used, step) = self.advance(&input, &mut scratch.head, now);
        if used < input.len() {
            input.drain(..used);
            self.buffer = input;
        }
        step
    }

    /// Takes complete heads from `input` and does what is done on the spot; gives the bytes used and what
    /// is to be done next, if anything but waiting for more.
    fn advance(&mut self, input: &[u8], head: &mut HeadIndex, now: Stamp) -> (usize, Option<Step>) {
        let mut used = 0;
        for _ in 0..REQUESTS_A_TURN {
            let rest = &input[used..];
            if rest.is_empty() {
                return (used, None);
            }
            match head.parse(rest, &mut self.searched, &self.driver.shared.config.limits) {
                Ok(HeadStep::Complete) => {}
                Ok(HeadStep::Partial) => return (used, None),
                Err(refusal) => {
                    let step = self.refuse_line(rest, refusal.into());
                    return (input.len(), Some(step));
                }
            }
            self.searched = 0;
            self.received += 1;
            self.driver.stats().received.add();
            used += head.bytes;
            let view = HeadView {
                bytes: &rest[..head.bytes],
                index: head,
            };
            let step = self.begin(view, now);
            self.arrived = now;
            if step.is_some() {
                return (used, step);
            }
        }
        (used, Some(Step::Pause))
    }
}
