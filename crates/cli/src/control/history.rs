//! The last requests of a running server: finds it, gets the file that it keeps them in, and reads a copy.

use std::fs::File;

use clap::{Arg, ArgMatches};
use ipc::history::CopyFault;
use report::duration;
use supervisor::control::messages::{Outcome, Request};
use telemetry::history::{HeldHistory, HistoryFault};

use super::finding::{self, Found};
use super::{signal, talking};
use crate::environment::cause;
use crate::inputs::{expect, value};
use crate::message::Message;

const WHAT: &str = "`--live`";

/// Flags that name the server.
pub(crate) fn args() -> impl Iterator<Item = Arg> {
    let args = finding::args().into_iter();
    args.map(|arg| arg.help_heading("Running server"))
}

/// The seconds of `--live`. Without it, flags that name a server are faults.
pub(crate) fn seconds(matches: &ArgMatches, faults: &mut Vec<Message>) -> Option<u64> {
    let understand = |text: &str| {
        let secs = duration(text).map(|span| span.0.div_ceil(1_000_000_000));
        let secs = secs.filter(|secs| *secs > 0);
        expect(secs, "a duration as 15m or 1h", text)
    };
    let secs = value(matches, "live", faults, understand);
    if let Some(flag) = named(matches).filter(|_| !matches.contains_id("live")) {
        faults.push(Message::new(
            &flag,
            "names a running server, which only `--live` asks",
        ));
    }
    secs
}

/// The first of these flags that is there.
fn named(matches: &ArgMatches) -> Option<String> {
    let args = finding::args().into_iter();
    let mut ids = args.map(|arg| arg.get_id().as_str().to_owned());
    let is_there =
        |id: &String| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    let id = ids.find(is_there)?;
    Some(format!("`--{}`", id.replace('_', "-")))
}

/// The requests of the last so many seconds that the server of these flags still holds.
///
/// # Errors
/// There is no such server, or it gives no history that this version can read.
pub(crate) fn held(matches: &ArgMatches, secs: u64) -> Result<HeldHistory, Vec<Message>> {
    let socket = match finding::find(matches).map_err(|failure| failure.messages)? {
        Found::Socket(socket) | Found::OnlyOne(socket, _) => socket,
        Found::Process(pid) => return Err(signal::no_socket(pid).messages),
    };
    let answer = talking::ask_for(&socket, &Request::History);
    let file = match answer.map_err(|failure| failure.messages)? {
        (Outcome::Refused(_, failure), _) => {
            return Err(vec![Message::from(failure)]);
        }
        (_, Some(file)) => File::from(file),
        (_, None) => {
            let cause = "the running server has sent no history";
            return Err(vec![Message::new(WHAT, cause).with_hint("try it again")]);
        }
    };
    read(&file, secs).map_err(|message| vec![message])
}

fn read(file: &File, secs: u64) -> Result<HeldHistory, Message> {
    ipc::history::requests(file, secs).map_err(|fault| match fault {
        CopyFault::Read(error) => Message::new(WHAT, cause(&error)),
        CopyFault::History(HistoryFault::Changing) => {
            Message::new(WHAT, "the server's history does not come to rest")
                .with_hint("try it again")
        }
        CopyFault::History(HistoryFault::OtherVersion) => {
            let cause = "another version of milepost has made the server's history";
            let hint = "`milepost upgrade` has the server go on as this version";
            Message::new(WHAT, cause).with_hint(hint)
        }
        CopyFault::History(HistoryFault::Unknown) => {
            Message::new(WHAT, "what the server has sent is no history")
        }
    })
}
