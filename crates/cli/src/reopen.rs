//! `milepost reopen`: tells a serving process to open its log files anew, as after a rotation.
//!
//! Sends one signal to a process that was looked at before, and does not wait for what comes of it. Says
//! nothing when it is done: it is run from timers.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, ValueHint};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use server::pidfile::{self, Process};

use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO, surroundings};

const ABOUT: &str = "Tell a running server to open its log files anew (SIGUSR1)";

const AFTER_HELP: &str = "\
Without --pid and --pid-file the file is the `pid_file` of the configuration (--config or
MILEPOST_CONFIG), or MILEPOST_PID_FILE. Exit code 0: the server was told. 1: no server runs there.
2: it could not be told.";

/// The verb and its flags; those that settings have too have the settings' names.
pub(crate) fn command() -> Command {
    let pid = Arg::new("pid")
        .long("pid")
        .value_name("PID")
        .conflicts_with_all(["pid_file", "config"])
        .help("Its process id");
    let pid_file = Arg::new("pid_file")
        .long("pid-file")
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .help("File that holds its process id");
    let config = Arg::new("config")
        .long("config")
        .short('c')
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .help("Configuration file that names the pid file");
    Command::new("reopen")
        .about(ABOUT)
        .args([pid_file, pid, config])
        .after_help(AFTER_HELP)
}

/// 0: the signal was sent. 1: there is no server. 2: it could not be found out or sent.
pub(crate) fn run(matches: &ArgMatches) -> i32 {
    match named(matches).and_then(|pid| tell(pid).map_err(|refusal| vec![refusal])) {
        Ok(()) => DONE,
        Err(refusals) => {
            let messages: Vec<Message> = refusals.iter().map(|one| one.message.clone()).collect();
            message::say_all(&messages);
            refusals
                .iter()
                .map(|one| one.code)
                .max()
                .unwrap_or(COULD_NOT)
        }
    }
}

/// Why nobody was told.
struct Refusal {
    code: i32,
    message: Message,
}

impl Refusal {
    /// Nobody is there.
    fn nobody(what: &str, cause: impl std::fmt::Display) -> Self {
        Self {
            code: NO,
            message: Message::new(what, cause),
        }
    }

    /// Somebody may be there.
    fn could_not(message: Message) -> Self {
        Self {
            code: COULD_NOT,
            message,
        }
    }
}

/// The id that was given, or that of the file that was named.
fn named(matches: &ArgMatches) -> Result<u32, Vec<Refusal>> {
    if let Some(text) = matches.get_one::<String>("pid") {
        let pid = text.parse().ok().filter(|pid| as_pid(*pid).is_some());
        return pid.ok_or_else(|| {
            let cause = format!("expected a process id, found `{text}`");
            vec![Refusal::could_not(Message::new("`--pid`", cause))]
        });
    }
    let file = match matches.get_one::<String>("pid_file") {
        Some(file) => PathBuf::from(file),
        None => configured(matches)?,
    };
    in_file(&file).map_err(|refusal| vec![refusal])
}

fn configured(matches: &ArgMatches) -> Result<PathBuf, Vec<Refusal>> {
    let sources =
        surroundings::sources(matches).map_err(|message| vec![Refusal::could_not(message)])?;
    match server::config::pid_file(&sources) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => {
            let message = Message::new("reopen", "no server is named");
            let hint = "`--pid-file FILE`, `--pid PID`, or `--config FILE` with a `pid_file` in it";
            Err(vec![Refusal::could_not(message.with_hint(hint))])
        }
        Err(faults) => {
            let messages = faults.iter().map(Message::from);
            Err(messages.map(Refusal::could_not).collect())
        }
    }
}

fn in_file(file: &Path) -> Result<u32, Refusal> {
    let what = format!("pid file `{}`", file.display());
    match pidfile::read(file) {
        Ok(Some(pid)) => Ok(pid),
        Ok(None) => Err(Refusal::nobody(&what, "it is empty")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let refusal = Refusal::nobody(&what, surroundings::cause(&error));
            Err(Refusal {
                message: refusal
                    .message
                    .with_hint("the server that writes it (`pid_file`) does not run"),
                ..refusal
            })
        }
        Err(error) => {
            let cause = surroundings::cause(&error);
            Err(Refusal::could_not(Message::new(&what, cause)))
        }
    }
}

/// A process that does not wait for the signal would be ended by it.
fn tell(pid: u32) -> Result<(), Refusal> {
    let what = format!("process {pid}");
    match pidfile::process(pid) {
        Process::Server => {}
        Process::Nobody => return Err(Refusal::nobody(&what, "it does not run")),
        Process::Stranger(name) => {
            let cause = format!("it is `{name}`, not a `milepost serve`");
            return Err(Refusal::nobody(&what, cause));
        }
    }
    if !pidfile::handles(pid, Signal::USR1.as_raw()) {
        let message = Message::new(&what, "it does not wait for SIGUSR1, which would end it");
        let hint = "it is about to start or to end: its files are opened anew with the next start";
        return Err(Refusal::could_not(message.with_hint(hint)));
    }
    let sent = as_pid(pid)
        .ok_or(Errno::SRCH)
        .and_then(|pid| kill_process(pid, Signal::USR1));
    sent.map_err(|error| match error {
        Errno::SRCH => Refusal::nobody(&what, "it does not run"),
        error => {
            let cause = format!("it cannot be told: {}", surroundings::cause(&error.into()));
            let message = Message::new(&what, cause);
            Refusal::could_not(message.with_hint("run this as the user that the server runs as"))
        }
    })
}

fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}
