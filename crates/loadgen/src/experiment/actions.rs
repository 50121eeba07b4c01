//! What is done to a server while it is measured: at its times, on a thread of its own.
//!
//! Takes actions and a running server, gives how often each was done and what went wrong. An action that
//! takes long delays those that are due meanwhile; they are done late, not left out.

use std::str::FromStr as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::server::Server;
use super::{Action, Do};

/// A command has so much time.
const RUNNING_MAX: Duration = Duration::from_secs(60);
/// So many causes are told.
const NOTES_LEN: usize = 5;

/// What came of actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// That went well.
    pub(super) run: u64,
    /// That did not.
    pub(super) failed: u64,
    /// Why, the first of them.
    pub(super) notes: Vec<String>,
}

/// When an action is due next.
#[derive(Debug)]
struct Due<'a> {
    action: &'a Action,
    next: Duration,
    left: usize,
}

/// Does all that is due until `over` says so or its other end is gone.
pub(super) fn perform(server: &Server<'_>, over: &Receiver<()>) -> Done {
    let began = Instant::now();
    let mut dues: Vec<Due<'_>> = server.spec.actions.iter().map(Due::first).collect();
    let mut done = Done::default();
    loop {
        dues.retain(|due| due.left > 0);
        let Some(due) = dues.iter_mut().min_by_key(|due| due.next) else {
            return done;
        };
        let pause = due.next.saturating_sub(began.elapsed());
        if !matches!(over.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return done;
        }
        due.advance();
        let number = done.run + done.failed;
        done.count(act(&due.action.what, server, number, over));
    }
}

/// The signal with this name, `STOP` or `SIGSTOP`.
pub(super) fn signal(name: &str) -> Option<Signal> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    Signal::from_str(&format!("SIG{bare}")).ok()
}

fn act(what: &Do, server: &Server<'_>, number: u64, over: &Receiver<()>) -> Result<(), String> {
    match what {
        Do::Run(command) => {
            let is_over = || !matches!(over.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
            let log = format!("action-{number}.log");
            server.run(command, &log, RUNNING_MAX, &mut { is_over })?;
            Ok(())
        }
        Do::Signal { whom, signal: name } => {
            let process = server
                .named(whom)
                .ok_or_else(|| format!("there is no process `{whom}`"))?;
            let signal = signal(name).ok_or_else(|| format!("there is no signal `{name}`"))?;
            process
                .signal(signal)
                .map_err(|cause| format!("{signal} to `{whom}`: {cause}"))
        }
    }
}

impl<'a> Due<'a> {
    fn first(action: &'a Action) -> Due<'a> {
        Due {
            action,
            next: Duration::from_nanos(action.at.0),
            left: if action.every.is_some() {
                action.times
            } else {
                action.times.min(1)
            },
        }
    }

    fn advance(&mut self) {
        self.left -= 1;
        if let Some(every) = self.action.every {
            self.next += Duration::from_nanos(every.0);
        }
    }
}

impl Done {
    fn count(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => self.run += 1,
            Err(cause) => {
                self.failed += 1;
                if self.notes.len() < NOTES_LEN {
                    self.notes.push(format!("an action: {cause}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Pins, Programs, ServerSpec};
    use measure::Nanos;
    use std::sync::mpsc::channel;

    fn action(at_ms: u64, every_ms: Option<u64>, times: usize, what: Do) -> Action {
        Action {
            at: Nanos::from_ms(at_ms),
            every: every_ms.map(Nanos::from_ms),
            times,
            what,
        }
    }

    fn shell(script: &str) -> Do {
        Do::Run(["sh", "-c", script].map(str::to_owned).into())
    }

    fn spec(actions: Vec<Action>) -> ServerSpec {
        ServerSpec {
            name: "none".to_owned(),
            actions,
            ..ServerSpec::default()
        }
    }

    fn performed(spec: &ServerSpec) -> (Done, String) {
        let pins = Pins::default();
        let server = Server::in_folder(spec, &pins, &Programs::default()).expect("a folder");
        let (_keep, over) = channel();
        let done = perform(&server, &over);
        (
            done,
            std::fs::read_to_string(server.place.folder.join("done")).unwrap_or_default(),
        )
    }

    #[test]
    fn does_everything_in_the_order_of_time() {
        let say = |word: &str| shell(&format!("echo {word} >> {{folder}}/done"));
        let spec = spec(vec![
            action(40, Some(40), 2, say("b")),
            action(0, None, 9, say("a")),
            action(60, None, 1, say("c")),
            action(0, None, 0, say("never")),
        ]);
        let (done, text) = performed(&spec);
        assert_eq!((done.run, done.failed), (4, 0));
        assert_eq!(text, "a\nb\nc\nb\n");
    }

    #[test]
    fn counts_what_fails_and_goes_on() {
        let stop = |whom: &str, signal: &str| Do::Signal {
            whom: whom.to_owned(),
            signal: signal.to_owned(),
        };
        let spec = spec(vec![
            action(0, None, 1, stop("server", "STOP")),
            action(1, None, 1, shell("echo no; exit 1")),
            action(2, None, 1, shell("true")),
        ]);
        let (done, _) = performed(&spec);
        assert_eq!((done.run, done.failed), (1, 2));
        let expect = [
            "an action: there is no process `server`",
            "an action: `sh -c echo no; exit 1`: exit code 1\n  no",
        ];
        assert_eq!(done.notes, expect);
    }

    #[test]
    fn ends_at_once_when_the_run_does() {
        let spec = spec(vec![
            action(0, None, 1, shell("sleep 100")),
            action(1, Some(1), 1_000, shell("sleep 100")),
        ]);
        let pins = Pins::default();
        let server = Server::in_folder(&spec, &pins, &Programs::default()).expect("a folder");
        let (sender, over) = channel();
        drop(sender);
        assert_eq!(perform(&server, &over), Done::default());
    }

    #[test]
    fn knows_signals_by_both_names() {
        assert_eq!(signal("STOP"), Some(Signal::SIGSTOP));
        assert_eq!(signal("sigusr1"), Some(Signal::SIGUSR1));
        assert_eq!(signal("NO"), None);
    }
}
