//! The life of an open server, on its main thread: it waits for signals, commands and the ends of threads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use telemetry::Nanos;

use super::{Ended, Event, Idle, LAST_MOMENT, say};
use crate::driver::{ServingState, Shared};
use ipc::{Channel, KILL_GRACE, ProcessEvent};

/// Time that a hurried end of the log takes, and the rest of the process.
const LOG_END_TIME: Duration = Duration::from_secs(2);

/// The main thread's loop: it waits for signals, commands and the ends of threads.
pub(super) struct Lifecycle {
    pub(super) inbox: mpsc::Receiver<Event>,
    pub(super) shared: Arc<Shared>,
    /// Where there is one, until it has been asked for another process in this one's place.
    pub(super) supervisor: Option<Arc<Channel>>,
    pub(super) drivers: usize,
    pub(super) cut: u64,
    pub(super) exit_code: i32,
    /// When what is left is cut; set by the first signal.
    pub(super) deadline: Option<Instant>,
    /// When connections that are still idle are closed; somewhat before what is left is cut.
    pub(super) idle_deadline: Option<Instant>,
    /// When the supervisor kills this process.
    pub(super) kill_deadline: Option<Instant>,
}

impl Lifecycle {
    /// Until all drivers have ended.
    pub(super) fn serve(&mut self) {
        let drain = Duration::from_nanos(self.shared.config.timeouts.drain.0);
        while self.drivers > 0 {
            match self.next() {
                Some(Event::Resign) if self.asks_to_be_replaced() => {}
                Some(Event::Resign) if self.deadline.is_none() => {
                    self.drain(Idle::Closed, drain);
                }
                Some(Event::Resign | Event::Cut) => self.cut_now(1),
                Some(Event::Drain(drain)) => {
                    // Those that were named first are closing already.
                    let _ = self.shared.closing.set(drain.closing);
                    self.drain(drain.idle, drain.timeout);
                }
                Some(Event::Reopen) => self.shared.log.reopen(),
                Some(Event::DriverEnded(Ok(cut))) => {
                    self.drivers -= 1;
                    self.cut += cut;
                }
                Some(Event::DriverEnded(Err(error))) => {
                    self.drivers -= 1;
                    say(&format!("a driver failed: {error}"));
                    self.cut_now(2);
                }
                Some(Event::PoolThreadEnded) => {}
                Some(Event::LoopFailed) => self.cut_now(2),
                None if self.idle_deadline.take().is_some() => self.advance(ServingState::Draining),
                None if *self.shared.state.borrow() == ServingState::Aborting => return,
                None => self.cut_now(self.exit_code),
            }
        }
    }

    /// Who ends a process of a supervisor means that one: it serves until another does in its place, which the
    /// supervisor sees to. Who ends all at once, as `dumb-init` and systemd's `KillMode=control-group` do, may have
    /// been overtaken by the supervisor: that is no second signal. Only the first is a request.
    fn asks_to_be_replaced(&mut self) -> bool {
        let Some(supervisor) = self.supervisor.take() else {
            return false;
        };
        let reason = "after SIGTERM".to_owned();
        self.deadline.is_some()
            || supervisor
                .send_now(&ProcessEvent::Worn { reason }, &[])
                .is_ok()
    }

    /// Begins to drain, or does so sooner than it was told before.
    fn drain(&mut self, idle: Idle, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let deadline = self
            .deadline
            .map_or(deadline, |before| before.min(deadline));
        self.deadline = Some(deadline);
        self.kill_by(deadline + KILL_GRACE);
        self.tell_loop(self.time_left());
        // Who replaces a process has it wait for requests that are under way; the end of all does not.
        let is_replaced = idle == Idle::Awaited;
        self.shared
            .is_replaced
            .store(is_replaced, Ordering::Relaxed);
        self.shared.pools.iter().for_each(|pool| pool.drain());
        match idle {
            Idle::Closed => {
                self.idle_deadline = None;
                self.advance(ServingState::Draining);
            }
            Idle::Awaited => {
                if *self.shared.state.borrow() < ServingState::Draining {
                    let last = deadline.checked_sub(LAST_MOMENT.min(timeout / 2));
                    self.idle_deadline = last.or(Some(deadline));
                }
                self.advance(ServingState::Closing);
            }
        }
    }

    /// Advances the serving state; no state ever goes back.
    fn advance(&self, state: ServingState) {
        self.shared.state.send_if_modified(|now| {
            let is_later = state > *now;
            *now = state.max(*now);
            is_later
        });
    }

    /// Until all pool threads have ended; those in application code get what is left of the drain time, but for
    /// those that were given up.
    pub(super) fn close_pools(&mut self) {
        self.shared.pools.iter().for_each(|pool| pool.close());
        while self.shared.pool_threads() > 0 {
            match self.next() {
                Some(Event::Resign) if self.asks_to_be_replaced() => {}
                Some(Event::Resign | Event::Cut) => self.cut_now(1),
                Some(Event::LoopFailed) => self.cut_now(2),
                Some(Event::Reopen) => self.shared.log.reopen(),
                // Threads are counted before they say that they have ended.
                Some(Event::PoolThreadEnded | Event::DriverEnded(_) | Event::Drain(_)) => {}
                // What is left on an event loop gets a last moment, in which its tasks are cancelled.
                None if *self.shared.state.borrow() != ServingState::Aborting
                    && self.has_event_loop() =>
                {
                    self.cut_now(self.exit_code);
                }
                None => return,
            }
        }
    }

    fn has_event_loop(&self) -> bool {
        self.shared.pools.iter().any(|pool| pool.has_event_loop())
    }

    /// The next event; `None` at the deadline.
    fn next(&self) -> Option<Event> {
        let Some(deadline) = self.idle_deadline.or(self.deadline) else {
            return self.inbox.recv().ok();
        };
        let left = deadline.saturating_duration_since(Instant::now());
        self.inbox.recv_timeout(left).ok()
    }

    /// Whether a signal has come since the last event that was looked at.
    pub(super) fn heard_signal(&mut self) -> bool {
        while let Ok(event) = self.inbox.try_recv() {
            match event {
                Event::Resign if self.asks_to_be_replaced() => {}
                Event::Resign | Event::Cut => return true,
                _ => {}
            }
        }
        false
    }

    fn kill_by(&mut self, deadline: Instant) {
        let before = self.kill_deadline.unwrap_or(deadline);
        self.kill_deadline = Some(before.min(deadline));
    }

    /// Whether the log has to say now what it has lost, before the supervisor kills this process.
    pub(super) fn must_end_log(&self) -> bool {
        let last = self
            .kill_deadline
            .and_then(|end| end.checked_sub(LOG_END_TIME));
        last.is_some_and(|last| Instant::now() >= last)
    }

    fn time_left(&self) -> Duration {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.unwrap_or(Duration::ZERO)
    }

    /// What is left gets a last moment, which nothing prolongs; the worst reason is the exit code.
    fn cut_now(&mut self, exit_code: i32) {
        self.exit_code = self.exit_code.max(exit_code);
        self.idle_deadline = None;
        self.kill_by(Instant::now() + KILL_GRACE);
        if self.shared.state.send_replace(ServingState::Aborting) != ServingState::Aborting {
            self.deadline = Some(Instant::now() + LAST_MOMENT);
            // Enough is left to say what did not end.
            self.tell_loop(LAST_MOMENT / 2);
            self.shared.pools.iter().for_each(|pool| pool.cancel_all());
        }
    }

    /// Tells the event loop how long it has.
    fn tell_loop(&self, left: Duration) {
        let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let end = telemetry::now().plus(Nanos(left));
        let pools = self.shared.pools.iter();
        pools.for_each(|pool| pool.end_loop_by(end));
    }

    pub(super) fn ended(&self) -> Ended {
        let given_up = self.shared.watchdog.as_ref();
        let given_up_len = given_up.map_or(0, |watchdog| watchdog.given_up_len());
        Ended {
            time_left: self.time_left(),
            cut: self.cut,
            exchanges: self.shared.stats.exchanges(),
            // Those that were given up are not among those of the pools.
            stuck_threads: self.shared.pool_threads() + given_up_len,
            exit_code: self.exit_code,
        }
    }
}
