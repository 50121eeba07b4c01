//! `milepost top`: a running server on the terminal, a picture each second.
//!
//! Finds the server as the other commands to a running server do, asks it for its status once a second, and shows what
//! happened between the answers. 0: it was quit. 1: no server runs there. 2: it could not be asked, or there is no
//! terminal. Changes nothing at the server.

mod draw;
mod health;
mod history;
mod overview;
mod poller;
mod sample;
mod stack;
mod view;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use clap::{ArgMatches, Command};
use crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::control;
use crate::environment::cause;
use crate::message::Message;
use crate::{COULD_NOT, DONE};
use draw::Palette;
use poller::Poller;
use view::{NextStep, View};

/// Keys, signals and answers are looked for this often.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// What a shell gives for a program that a signal ended.
const ENDED_BY_SIGNAL: i32 = 128;

const ABOUT: &str = "Watch a running server: requests, phases, pools and routes, each second";
const NOTES: &str = "\
Needs no setting of the server: it asks on the control socket, as `milepost status` does. Figures
are those of the last second; routes those of the last minute. A server that ends or is started
anew is waited for. `?` explains keys and columns. Without colours where NO_COLOR is set.
Exit code 0: it was quit. 1: no server runs there. 2: it could not be asked, or there is no
terminal; for programs there is `milepost status --json`.";

pub(crate) fn command() -> Command {
    Command::new("top")
        .about(ABOUT)
        .args_override_self(true)
        .after_help(format!("{}\n\n{NOTES}", control::WHICH))
        .args(control::server_args())
}

/// Shows it until it is quit.
pub(crate) fn run(matches: &ArgMatches) -> i32 {
    if let Err(cause) = has_terminal() {
        let message = Message::new("top", cause);
        message
            .with_hint("`milepost status --json` prints everything once, for programs")
            .say();
        return COULD_NOT;
    }
    // The first question before the terminal is taken: what is wrong stays there to be read.
    let poller = match poller::start(matches) {
        Ok(poller) => poller,
        Err(failure) => return failure.say(),
    };
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let known = signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize);
        if let Err(error) = known {
            Message::new("signals", cause(&error)).say();
            return COULD_NOT;
        }
    }
    let shown = in_terminal(|terminal| watch(terminal, &poller, &signal));
    match shown {
        Ok(code) => code,
        Err(error) => {
            Message::new("terminal", cause(&error)).say();
            COULD_NOT
        }
    }
}

/// # Errors
/// Why nothing can be shown, or no key be read.
fn has_terminal() -> Result<(), &'static str> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    match (io::stdout().is_terminal(), io::stdin().is_terminal()) {
        (false, _) => Err("standard output is no terminal"),
        (true, false) => Err("standard input is no terminal"),
        (true, true) if is_dumb => Err("the terminal cannot place a cursor (TERM=dumb)"),
        (true, true) => Ok(()),
    }
}

/// The terminal is as it was before when this returns, and before a panic says what it was.
fn in_terminal<T>(work: impl FnOnce(&mut DefaultTerminal) -> io::Result<T>) -> io::Result<T> {
    let mut terminal = ratatui::try_init().inspect_err(|_| {
        // The first of its steps may have been done.
        let _ = ratatui::try_restore();
    })?;
    let done = work(&mut terminal);
    match terminal.show_cursor() {
        Ok(()) => drop(terminal),
        // Dropping it would say so on standard error, and panic where that is the closed terminal too.
        Err(_) => std::mem::forget(terminal),
    }
    let restored = ratatui::try_restore();
    done.and_then(|done| restored.map(|()| done))
}

/// Until it is quit, or a signal comes. Gives the exit code.
fn watch(terminal: &mut DefaultTerminal, poller: &Poller, signal: &AtomicUsize) -> io::Result<i32> {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let palette = match is_plain {
        true => Palette::Plain,
        false => Palette::Coloured,
    };
    let mut view = View::new(telemetry::now());
    let mut has_changed = true;
    loop {
        let now = telemetry::now();
        // How long a server has been gone is counted on the screen.
        if has_changed || view.trouble(now).is_some() {
            terminal.draw(|frame| draw::draw(frame, &view, now, palette))?;
        }
        wait_for_terminal()?;
        match signal.load(Ordering::Relaxed) {
            0 => {}
            number => return Ok(ENDED_BY_SIGNAL + number as i32),
        }
        has_changed = event::poll(Duration::ZERO)?;
        if has_changed && let Event::Key(key) = event::read()? {
            match view.key(key) {
                NextStep::GoOn => {}
                NextStep::AskStack(id) => poller.ask_stack(id),
                NextStep::Quit => return Ok(DONE),
            }
        }
        loop {
            match poller.answers.try_recv() {
                Ok(answer) => view.take(answer, telemetry::now()),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other(
                        "the thread that asks the server has ended",
                    ));
                }
            }
            has_changed = true;
        }
    }
}

/// Until a key is pressed, a signal comes (as one does with each new size), or a tick is over.
///
/// crossterm could wait itself, but reads a terminal that was closed again and again, without an end.
///
/// # Errors
/// The terminal was closed.
fn wait_for_terminal() -> io::Result<()> {
    let stdin = io::stdin();
    let mut keys = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut keys, Some(&TICK)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match keys[0].revents().intersects(closed) {
        true => Err(io::Error::other("it was closed")),
        false => Ok(()),
    }
}
