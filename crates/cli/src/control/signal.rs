//! What can be done for a server that is known by its process id only: `reopen`, by a signal.
//!
//! Sends one signal to a process that was looked at before, and does not wait for what comes of it.

use ipc::pidfile::{self, Process};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::Failure;
use crate::environment;
use crate::message::Message;

/// Whether a number can be that of a process.
pub(super) fn is_pid(pid: u32) -> bool {
    as_pid(pid).is_some()
}

/// Tells a process to open its log files anew. One that does not wait for the signal would be ended by it.
///
/// # Errors
/// It is no server, or cannot be told.
pub(super) fn reopen(pid: u32) -> Result<(), Failure> {
    check_server(pid)?;
    let what = what(pid);
    // The default action of the signal ends a process; a server handles it only once it has started.
    if !pidfile::handles(pid, Signal::USR1.as_raw()) {
        let message = Message::new(&what, "it does not wait for SIGUSR1, which would end it");
        let hint = "it is about to start or to end: its files are opened anew with the next start";
        return Err(Failure::could_not(message.with_hint(hint)));
    }
    let sent = as_pid(pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| kill_process(pid, Signal::USR1));
    sent.map_err(|error| match error {
        Errno::SRCH => not_running(pid),
        error => {
            let cause = format!("it cannot be told: {}", environment::cause(&error.into()));
            let message = Message::new(&what, cause);
            Failure::could_not(message.with_hint("run this as the user that the server runs as"))
        }
    })
}

/// Why a process has no control socket that could be found.
pub(super) fn no_socket(pid: u32) -> Failure {
    if let Err(failure) = check_server(pid) {
        return failure;
    }
    let message = Message::new(&what(pid), "its control socket was not found");
    let hint = "`--control FILE` names it; without one, signals do: SIGTERM stops, SIGHUP reloads, SIGUSR2 upgrades";
    Failure::could_not(message.with_hint(hint))
}

fn check_server(pid: u32) -> Result<(), Failure> {
    match pidfile::process(pid) {
        Process::Server => Ok(()),
        Process::Nobody => Err(not_running(pid)),
        Process::Stranger(name) => {
            let cause = format!("it is `{name}`, not a `milepost serve`");
            Err(Failure::no(Message::new(&what(pid), cause)))
        }
    }
}

fn not_running(pid: u32) -> Failure {
    Failure::no(Message::new(&what(pid), "it does not run"))
}

fn what(pid: u32) -> String {
    format!("process {pid}")
}

fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}
