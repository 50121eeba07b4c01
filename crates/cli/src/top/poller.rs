//! The thread that asks a server how it is, once a second, and for a stack when one is wanted.
//!
//! Takes the flags that name a server, gives answers. Where there is none, it looks anew for the server each time:
//! another start may have another control socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use supervisor::control::messages::Request;

use super::sample::Sample;
use super::stack;
use super::view::Answer;
use crate::control::{self, Failure};
use crate::environment::cause;
use crate::message::Message;

/// From one question to the next.
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(10);
/// Questions are asked so rarely that reading the answers takes at most this part of a processor: a server with
/// thousands of routes has long answers.
const SHARE_OF_TIME: u32 = 100;
/// Answers that wait to be shown. More are not made.
const ANSWERS_MAX: usize = 2;

/// What the thread gives, and what it takes.
pub(super) struct Poller {
    pub(super) answers: Receiver<Answer>,
    /// Ids of requests whose stacks are wanted.
    stacks: Sender<String>,
}

impl Poller {
    /// Has the stack of the request with this id asked for.
    pub(super) fn ask_stack(&self, id: String) {
        // A thread that has ended is found by its answers.
        let _ = self.stacks.send(id);
    }
}

/// Asks once, and then each second until nobody takes the answers.
///
/// # Errors
/// There is no server, or it does not answer.
pub(super) fn start(matches: &ArgMatches) -> Result<Poller, Failure> {
    let socket = control::socket(matches)?;
    let line = control::ask_line(&socket, &Request::Status)?;
    let what = format!("control socket `{}`", socket.display());
    let sample =
        Sample::read(&line).map_err(|cause| Failure::could_not(Message::new(&what, cause)))?;
    let (answers, taken) = mpsc::sync_channel(ANSWERS_MAX);
    answers
        .send(Answer::Sample(sample))
        .expect("the channel is empty and its other end is here");
    let matches = matches.clone();
    let thread = thread::Builder::new().name("mp-poller".to_owned());
    let (stacks, wanted) = mpsc::channel();
    let started = thread.spawn(move || poll(socket, &matches, &answers, &wanted));
    match started {
        Ok(_) => Ok(Poller {
            answers: taken,
            stacks,
        }),
        Err(error) => Err(could_not_start(&error)),
    }
}

fn could_not_start(error: &io::Error) -> Failure {
    Failure::could_not(Message::new(
        "top",
        format!("no thread could be started: {}", cause(error)),
    ))
}

fn poll(
    mut socket: PathBuf,
    matches: &ArgMatches,
    answers: &SyncSender<Answer>,
    stacks: &Receiver<String>,
) {
    let mut period = PERIOD;
    let mut due = Instant::now() + period;
    loop {
        match stacks.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(id) => {
                let text = ask_stack(&socket, &id);
                if answers.send(Answer::Stack(id, text)).is_err() {
                    return;
                }
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let (answer, reading) = ask(&socket);
        period = (reading * SHARE_OF_TIME).clamp(PERIOD, PERIOD_MAX);
        if let Answer::Fault(_) = answer
            && let Ok(found) = control::socket(matches)
        {
            socket = found;
        }
        if answers.send(answer).is_err() {
            return;
        }
        due = Instant::now() + period;
    }
}

/// The stack of a request, or why there is none, in words.
fn ask_stack(socket: &Path, id: &str) -> String {
    let request = Request::Stack {
        request: id.to_owned(),
    };
    match control::ask_line(socket, &request) {
        Ok(line) => stack::text_of(&line),
        Err(failure) => failure.text(),
    }
}

/// Asks once; says how long it took to read the answer.
fn ask(socket: &Path) -> (Answer, Duration) {
    match control::ask_line(socket, &Request::Status) {
        Ok(line) => {
            let began = telemetry::now();
            let answer = match Sample::read(&line) {
                Ok(sample) => Answer::Sample(sample),
                Err(cause) => Answer::Fault(cause),
            };
            (
                answer,
                Duration::from_nanos(telemetry::now().since(began).0),
            )
        }
        Err(failure) => (Answer::Fault(failure.text()), Duration::ZERO),
    }
}
