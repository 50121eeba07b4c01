//! `milepost stop|reload|reopen|upgrade|scale|status`: commands to a running server.
//!
//! Finds the server, asks its supervisor on the control socket, and ends with how it ended. 0: done. 1: the answer is no, or no server is there. 2: it could not be found out.

mod finding;
pub(crate) mod history;
mod signal;
mod status;
mod talking;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use present::harmless;
use supervisor::Overrides;
use supervisor::control::messages::{self, CommandKind, Outcome, Request};

use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO};
use finding::Found;
pub(crate) use status::{age, process_name, worker};

/// One verb.
pub(crate) struct Verb {
    name: &'static str,
    about: &'static str,
    /// What exit codes 0 and 1 mean.
    outcome: &'static str,
    /// # Errors
    /// What is wrong with the flags.
    request: fn(&ArgMatches) -> Result<Request, Failure>,
}

/// Why nothing came of it, with the exit code.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    code: i32,
    messages: Vec<Message>,
}

const REOPEN: &str = "reopen";
const STATUS: &str = "status";
/// How the flags of [`server_args`] name a server.
pub(crate) const WHICH: &str = "\
The server is the one of --control, --pid, --pid-file or the configuration (--config or
MILEPOST_CONFIG); when nothing is named, the one that this user runs.";

static VERBS: [Verb; 6] = [
    Verb {
        name: "stop",
        about: "Tell a running server to finish its requests and end (SIGTERM)",
        outcome: "\
Returns when the server has ended: open requests have `drain_timeout` to do so.
Exit code 0: the server has ended. 1: no server runs. 2: the server could not be reached.",
        request: |_| Ok(Request::Stop),
    },
    Verb {
        name: "reload",
        about: "Reload configuration and code of a running server (SIGHUP)",
        outcome: "\
Processes with the new configuration and code start beside the old ones, and take over when
they are ready; no connection is lost. If they cannot start, the old ones continue to serve, and
the command shows the reason.
Exit code 0: the new processes serve. 1: they do not, or no server runs. 2: the server could not
be reached.",
        request: |_| Ok(Request::Reload),
    },
    Verb {
        name: REOPEN,
        about: "Reopen the log files of a running server (SIGUSR1)",
        outcome: "\
A server without a control socket gets the signal instead.
Exit code 0: the server has the command. 1: no server runs. 2: the server could not be reached.",
        request: |_| Ok(Request::Reopen),
    },
    Verb {
        name: "upgrade",
        about: "Replace a running server by the installed version, without closing connections (SIGUSR2)",
        outcome: "\
As `milepost reload`, and the supervisor runs the new program as well; it keeps its process id.
Exit code 0: the new program serves. 1: it does not, and the old one continues, or no server
runs. 2: the server could not be reached.",
        request: |_| Ok(Request::Upgrade),
    },
    Verb {
        name: "scale",
        about: "Change how many processes, drivers or pool threads a running server has",
        outcome: "\
The change lasts until the next reload. No connection is lost. Another number of drivers needs new
processes, in which pools keep the sizes that they have.
Exit code 0: the server has the new numbers. 1: it has not, or no server runs. 2: the server could
not be reached.",
        request: scale,
    },
    Verb {
        name: STATUS,
        about: "Show processes, drivers and connections of a running server",
        outcome: "\
A process is named by its generation and place, a driver and a pool by a name behind that.

Processes:
  RESIDENT   memory, including what processes share
  PSS        memory; what n processes share counts as 1/n in each
Drivers:
  WAITING    connections waiting to be accepted / maximum
  BALANCED   connections given to a driver that had fewer
  STALLED    connections accepted for a driver that was late
  FAILED     requests refused for breaking the protocol or a limit, and those whose client left
Pools:
  THREADS    threads now, and minimum:maximum
  WAITING    requests waiting for a thread
  STATE      calm, saturated or overloaded
  REFUSED    requests refused because too many waited
  EXPIRED    requests refused because they waited too long
Event loops:
  INSIDE     requests in ASGI applications
  SOCKETS    open WebSocket connections / maximum
  LAG        longest recent wait of something ready for the loop
  BUSY       share of the time in which the loop had a processor
  SLOW       steps that blocked the loop for longer than slow_step
  HELD       times that the loop was too busy to take requests from the queue
  ANYIO      threads for functions that are not async / maximum, + calls that wait
  EXECUTOR   threads of the loop's default executor / maximum, + calls that wait
Requests that have run for longer than a second:
  RUNS FOR   time since a thread or the event loop began the request
  ID         for --stack; its first characters suffice

The stack of a request in a pool is that of its thread; in an event loop, that of what the request
awaits, or of what blocks the loop.
Exit code 0: shown. 1: no server runs, or the request has no stack: it has ended, or its process
does not answer. 2: the server could not be reached.",
        request: status,
    },
];

impl Verb {
    /// The verb with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Verb> {
        VERBS.iter().find(|verb| verb.name == name)
    }

    fn command(&self) -> Command {
        let own: Vec<Arg> = match self.name {
            "scale" => vec![
                count("processes", messages::PROCESSES_MAX, "Serving processes"),
                count("drivers", messages::DRIVERS_MAX, "Driver threads of each"),
                Arg::new("pool")
                    .long("pool")
                    .value_name("NAME")
                    .value_hint(ValueHint::Other)
                    .help("The pool that --threads is about"),
                Arg::new("threads")
                    .long("threads")
                    .value_name("MIN:MAX")
                    .value_hint(ValueHint::Other)
                    .help("Threads of a pool in each process, without --pool of `default`"),
            ],
            STATUS => vec![
                Arg::new("json")
                    .long("json")
                    .action(ArgAction::SetTrue)
                    .help("Print everything as one JSON object"),
                Arg::new("stack")
                    .long("stack")
                    .value_name("ID")
                    .value_hint(ValueHint::Other)
                    .conflicts_with("json")
                    .help("Print where the running request with this id is: its Python stack"),
            ],
            _ => Vec::new(),
        };
        Command::new(self.name)
            .about(self.about)
            .args_override_self(true)
            .after_help(format!("{WHICH}\n\n{}", self.outcome))
            .args(own)
            .args(finding::args())
    }
}

impl Failure {
    /// The answer is no.
    fn no(message: Message) -> Self {
        Self {
            code: NO,
            messages: vec![message],
        }
    }

    /// There is no answer.
    pub(crate) fn could_not(message: Message) -> Self {
        Self {
            code: COULD_NOT,
            messages: vec![message],
        }
    }

    /// Says why, and gives the exit code.
    pub(crate) fn say(&self) -> i32 {
        message::say_all(&self.messages);
        self.code
    }

    /// Why, in one line without hints.
    pub(crate) fn text(&self) -> String {
        let causes = self.messages.iter().map(Message::cause);
        causes.collect::<Vec<_>>().join("; ")
    }
}

/// The verbs with their flags.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    VERBS.iter().map(Verb::command)
}

/// Flags that name a running server.
pub(crate) fn server_args() -> [Arg; 4] {
    finding::args()
}

/// The control socket of the server that the flags name.
///
/// # Errors
/// No server is there, or it has no control socket, or it is not said which one is meant.
pub(crate) fn socket(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    match finding::find(matches)? {
        Found::Socket(socket) | Found::OnlyOne(socket, _) => Ok(socket),
        Found::Process(pid) => Err(signal::no_socket(pid)),
    }
}

/// Asks a supervisor, and gives its answer as it came.
///
/// # Errors
/// Nobody is there, or no answer came.
pub(crate) fn ask_line(socket: &Path, request: &Request) -> Result<Vec<u8>, Failure> {
    talking::ask_line(socket, request)
}

/// The processes of a running server, its supervisor first.
///
/// # Errors
/// Nobody answers at this control socket.
pub(crate) fn processes(socket: &Path) -> Result<Vec<u32>, Vec<Message>> {
    match talking::ask(socket, &Request::Status) {
        Ok(Outcome::Status(status)) => {
            let serving = status.processes.iter().filter_map(|process| process.pid);
            Ok([status.pid].into_iter().chain(serving).collect())
        }
        Ok(Outcome::Refused(_, failure)) => Err(vec![Message::from(failure)]),
        Ok(Outcome::Done(_)) => {
            let what = format!("control socket `{}`", socket.display());
            Err(vec![Message::new(&what, "no processes were named")])
        }
        Err(failure) => Err(failure.messages),
    }
}

/// Does it.
pub(crate) fn run(verb: &Verb, matches: &ArgMatches) -> i32 {
    match ask(verb, matches) {
        Ok(outcome) => finish(verb, matches, outcome),
        Err(failure) => failure.say(),
    }
}

fn ask(verb: &Verb, matches: &ArgMatches) -> Result<Outcome, Failure> {
    let request = (verb.request)(matches)?;
    match finding::find(matches)? {
        Found::Socket(socket) => talking::ask(&socket, &request),
        Found::OnlyOne(socket, server) => {
            // It may be the server of somebody else on this machine. `reopen` is run from timers.
            if ![STATUS, REOPEN].contains(&verb.name) {
                Message::new(verb.name, server).say();
            }
            talking::ask(&socket, &request)
        }
        Found::Process(pid) if verb.name == REOPEN => {
            signal::reopen(pid).map(|()| Outcome::Done(None))
        }
        Found::Process(pid) => Err(signal::no_socket(pid)),
    }
}

fn finish(verb: &Verb, matches: &ArgMatches, outcome: Outcome) -> i32 {
    match outcome {
        // A stack, which is what was asked for.
        Outcome::Done(Some(text)) if verb.name == STATUS => {
            // The path is a client's, and source lines may hold anything.
            let lines = text.lines().map(|line| harmless(line, usize::MAX) + "\n");
            message::data(&lines.collect::<String>());
            DONE
        }
        Outcome::Done(text) => {
            // `reopen` is run from timers: it has nothing to say when it is done.
            if let Some(text) = text.filter(|_| verb.name != REOPEN) {
                Message::from_text(&text).say();
            }
            DONE
        }
        Outcome::Status(status) => {
            // Of the verbs, `status` alone has the flag.
            let is_json = matches!(matches.try_get_one("json"), Ok(Some(true)));
            let text = if is_json { status::json } else { status::table };
            message::data(&text(&status));
            DONE
        }
        Outcome::Refused(kind, failure) => {
            Message::from(failure).say();
            match kind {
                CommandKind::No => NO,
                CommandKind::CouldNot => COULD_NOT,
            }
        }
    }
}

fn status(matches: &ArgMatches) -> Result<Request, Failure> {
    match matches.get_one::<String>("stack") {
        None => Ok(Request::Status),
        Some(id) if id.is_empty() => {
            let message = Message::new("`--stack`", "expected the id of a request, found none");
            let hint = "`milepost status` lists requests that run for long";
            Err(Failure::could_not(message.with_hint(hint)))
        }
        Some(id) => Ok(Request::Stack {
            request: id.clone(),
        }),
    }
}

/// What `scale` can be told.
const HOW_MANY: &str =
    "`--processes N`, `--drivers N`, or both; or `--pool NAME --threads MIN:MAX`";

fn count(name: &'static str, max: usize, help: &str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("N")
        .value_hint(ValueHint::Other)
        .help(format!("{help}, from 1 to {max}"))
}

fn scale(matches: &ArgMatches) -> Result<Request, Failure> {
    if let Some(threads) = matches.get_one::<String>("threads") {
        return reshape(matches, threads);
    }
    if let Some(pool) = matches.get_one::<String>("pool") {
        let message = Message::new("`--pool`", "no number of threads is given");
        let hint = format!("`--pool {pool} --threads MIN:MAX`");
        return Err(Failure::could_not(message.with_hint(hint)));
    }
    let mut messages = Vec::new();
    let mut number = |name: &str, max: usize| {
        let text = matches.get_one::<String>(name)?;
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=max).contains(number));
        if number.is_none() {
            let cause = format!("expected a count from 1 to {max}, found `{text}`");
            messages.push(Message::new(&format!("`--{name}`"), cause));
        }
        number
    };
    let processes = number("processes", messages::PROCESSES_MAX);
    let drivers = number("drivers", messages::DRIVERS_MAX);
    // Only without another fault: a number that could not be read is not missing.
    if processes.is_none() && drivers.is_none() && messages.is_empty() {
        let message = Message::new("scale", "no number is given");
        messages.push(message.with_hint(HOW_MANY));
    }
    if messages.is_empty() {
        Ok(Request::Scale(Overrides { processes, drivers }))
    } else {
        Err(Failure {
            code: COULD_NOT,
            messages,
        })
    }
}

/// Threads of one pool; processes and drivers are another request.
fn reshape(matches: &ArgMatches, threads: &str) -> Result<Request, Failure> {
    let failure = |message: Message| Err(Failure::could_not(message));
    if let Some(other) = ["processes", "drivers"]
        .into_iter()
        .find(|name| matches.contains_id(name))
    {
        let cause = format!("cannot stand beside `--{other}`");
        let message = Message::new("`--threads`", cause);
        return failure(message.with_hint("one after the other"));
    }
    let number = |text: &str| text.parse().ok();
    let (min, max) = threads.split_once(':').unwrap_or((threads, threads));
    let bounds = number(min).zip(number(max));
    let is_good =
        |(min, max): &(usize, usize)| *min >= 1 && *max <= messages::THREADS_MAX && min <= max;
    let Some((threads_min, threads_max)) = bounds.filter(is_good) else {
        let most = messages::THREADS_MAX;
        let cause = format!("expected MIN:MAX or one number, from 1 to {most}, found `{threads}`");
        let message = Message::new("`--threads`", cause);
        return failure(match bounds {
            Some((min, max)) if min > max => {
                message.with_hint(format!("the smaller number comes first: `{max}:{min}`"))
            }
            _ => message,
        });
    };
    let pool = matches.get_one::<String>("pool");
    Ok(Request::Reshape {
        pool: pool.map_or("default", String::as_str).to_owned(),
        threads_min,
        threads_max,
    })
}
