//! The watchdog's thread: performs the actions that a scan of the watchdog finds due.
//!
//! Takes `Watchdog::scan`; writes stacks into the error log, interrupts workers, replaces workers that do not return,
//! and asks the supervisor for another process when too few are left. Sleeps until something can be due; while
//! nothing runs, until a worker begins something. No thread waits for this one.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use logging::Level;
use telemetry::{Nanos, Stamp};

use crate::driver::Shared;
use crate::handler::{Handler, Stack};
use crate::watchdog::{Action, Due, PATIENCE, Thread, Watchdog};
use ipc::{Channel, ProcessEvent};

/// How long a stack is waited for.
const STACK_WAIT_MAX: Duration = Duration::from_secs(1);

/// Enforces the time limits of requests: logs, interrupts, replaces threads.
pub(super) struct TimeoutEnforcer {
    watchdog: Arc<Watchdog>,
    /// Not kept alive: the thread ends with it.
    shared: Weak<Shared>,
    /// By the index of the application.
    handlers: Vec<Arc<dyn Handler>>,
    /// To the supervisor, if there is one.
    channel: Option<Arc<Channel>>,
    /// The supervisor has been asked for another process.
    has_asked: bool,
}

impl TimeoutEnforcer {
    pub(super) fn new(
        watchdog: &Arc<Watchdog>,
        shared: &Arc<Shared>,
        handlers: Vec<Arc<dyn Handler>>,
        channel: Option<Arc<Channel>>,
    ) -> Self {
        Self {
            watchdog: Arc::clone(watchdog),
            shared: Arc::downgrade(shared),
            handlers,
            channel,
            has_asked: false,
        }
    }

    /// Starts the thread, which ends when the result is dropped.
    pub(super) fn start(self) -> io::Result<RunningEnforcer> {
        let is_over = Arc::new(AtomicBool::new(false));
        let run = {
            let is_over = Arc::clone(&is_over);
            move || self.run(&is_over)
        };
        let thread = thread::Builder::new()
            .name("mp-watchdog".to_owned())
            .spawn(run)?;
        let thread = thread.thread().clone();
        Ok(RunningEnforcer { is_over, thread })
    }

    fn run(mut self, is_over: &AtomicBool) {
        let watchdog = Arc::clone(&self.watchdog);
        watchdog.wakeup().set_sleeper();
        while !is_over.load(Ordering::Acquire) {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let scan = watchdog.scan(telemetry::now());
            scan.due.iter().for_each(|due| self.act(due, &shared));
            drop(shared);
            let mut next = scan.next;
            if next == Stamp::NEVER {
                while watchdog.wakeup().is_armed() && !is_over.load(Ordering::Acquire) {
                    thread::park();
                }
                // No sooner, however short the run: one wake-up and one scan in that time.
                next = watchdog.due_after(telemetry::now());
            }
            sleep_until(next, is_over);
        }
    }

    fn act(&mut self, due: &Due, shared: &Shared) {
        match due.action {
            Action::Report => self.report(due, shared, Level::Warning, "slow"),
            Action::Stop => {
                let what = "the application took longer than request_timeout";
                self.report(due, shared, Level::Error, what);
                let handler = self.handler(due, shared);
                if !handler.interrupt(due.slot.thread(), due.began) {
                    let text = format!("{}: its thread could not be interrupted yet", due.name());
                    shared.log.error(Level::Error, &text);
                }
            }
            Action::GiveUp => self.replace(due, shared),
        }
    }

    /// What the worker runs.
    fn handler(&self, due: &Due, shared: &Shared) -> &dyn Handler {
        let pool = &shared.pools[usize::from(due.slot.pool())];
        let app = pool
            .app()
            .expect("only workers have slots, and they run applications");
        &*self.handlers[app]
    }

    /// Logs the stack of the worker and the phases of its exchange.
    fn report(&self, due: &Due, shared: &Shared, level: Level, what: &str) {
        let thread = due.slot.thread();
        let stack = self.handler(due, shared).stack(thread, STACK_WAIT_MAX);
        let place = match &stack {
            _ if !due.slot.runs(due.began) => "it has ended meanwhile".to_owned(),
            Stack::Frames(frames) => {
                format!("Stack (most recent call last):\n{}", frames.trim_end())
            }
            Stack::Held => format!(
                "no stack: somebody held the interpreter for longer than a second; its thread {}",
                native(thread)
            ),
            Stack::Unknown => format!("no stack; its thread {}", native(thread)),
        };
        let text = format!("{}: {what}: {}; {place}", due.name(), facts(due));
        shared.log.error(level, &text);
    }

    /// Replaces a worker that did not return, unless so many did not that it would not help.
    fn replace(&mut self, due: &Due, shared: &Shared) {
        let Some(pool) = shared.pools.get(usize::from(due.slot.pool())) else {
            return;
        };
        let given_up = self.watchdog.given_up(due.slot.pool());
        let is_bearable = given_up <= pool.threads_max();
        // A worker that has ended meanwhile has reported its loss itself.
        if is_bearable && due.slot.claim_loss() {
            pool.report_lost_thread();
        }
        let text = format!(
            "{}: {} did not come back within {} s of its interruption and is given up; {}",
            due.name(),
            due.slot.name(),
            PATIENCE.0 / 1_000_000_000,
            match is_bearable {
                true => "another thread takes its place",
                false => "too many did not for another to take its place",
            }
        );
        shared.log.error(Level::Error, &text);
        if given_up * 2 > pool.threads_max() {
            self.ask_for_another_process(shared, given_up);
        }
    }

    fn ask_for_another_process(&mut self, shared: &Shared, given_up: usize) {
        let Some(channel) = self.channel.as_ref().filter(|_| !self.has_asked) else {
            return;
        };
        let reason = format!("with {given_up} threads that did not come back");
        // A full channel has room when the next thread is given up.
        self.has_asked = channel
            .send_now(&ProcessEvent::Worn { reason }, &[])
            .is_ok();
        if self.has_asked {
            let text = format!(
                "more than half of a pool's threads ({given_up}) did not come back: another process is asked for"
            );
            shared.log.error(Level::Error, &text);
        }
    }
}

/// The running thread; it ends when this is dropped.
pub(super) struct RunningEnforcer {
    is_over: Arc<AtomicBool>,
    thread: thread::Thread,
}

impl Drop for RunningEnforcer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn sleep_until(next: Stamp, is_over: &AtomicBool) {
    loop {
        let left = next.since(telemetry::now());
        if left == Nanos::ZERO || is_over.load(Ordering::Acquire) {
            return;
        }
        thread::park_timeout(Duration::from_nanos(left.0));
    }
}

/// `running for 1.204 s (receive 0.001 s, queue 0.020 s, cpu 0.004 s) on worker 4711.3 (mp-default-2)`: of the time
/// that it has run, the last span is what its thread has computed.
fn facts(due: &Due) -> String {
    let phases = &due.phases;
    let spans = [
        ("receive", Some(phases.queued.since(phases.arrived))),
        ("queue", Some(phases.started.since(phases.queued))),
        ("cpu", due.meter.used()),
    ];
    let known = spans
        .iter()
        .filter_map(|(name, span)| Some((name, (*span)?)));
    let spans: Vec<_> = known
        .map(|(name, span)| format!("{name} {:.3} s", span.as_secs_f64()))
        .collect();
    let age = age(due.began).as_secs_f64();
    let on = due.slot.name();
    format!("running for {age:.3} s ({}) on {on}", spans.join(", "))
}

fn age(began: Stamp) -> Nanos {
    telemetry::now().since(began)
}

/// What the kernel says of a thread: `4711 is S (sleeping) in futex_wait_queue`.
pub(super) fn native(thread: Thread) -> String {
    let folder = format!("/proc/self/task/{}", thread.0);
    let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    let state = state.map_or("gone", str::trim);
    // "0" where it runs, and where the kernel does not say.
    let place = fs::read_to_string(format!("{folder}/wchan")).unwrap_or_default();
    match place.trim() {
        "" | "0" => format!("{} is {state}", thread.0),
        place => format!("{} is {state} in {place}", thread.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_the_kernel_says_of_a_thread() {
        let own = Thread::current();
        assert!(native(own).contains("is R (running)"), "{}", native(own));
        assert!(native(Thread(i32::MAX)).contains("is gone"));
    }
}
