//! The last requests of a running server: finds it, gets the file that it keeps them in, and reads a copy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use clap::{Arg, ArgMatches};
use ipc::history::wall_us;
use supervisor::control::messages::{Outcome, Request};
use telemetry::history::{HISTORY_BYTES, HeldHistory, HistoryFault};

use super::finding::{self, Found};
use super::{signal, talking};
use crate::environment::cause;
use crate::message::Message;

/// Copies that are made at most: the names change for a moment when a process starts.
const COPIES_MAX: usize = 100;
const WHAT: &str = "`--live`";

/// Flags that name the server.
pub(crate) fn args() -> impl Iterator<Item = Arg> {
    let args = finding::args().into_iter();
    args.map(|arg| arg.help_heading("Running server"))
}

/// The first of these flags that is there.
pub(crate) fn named(matches: &ArgMatches) -> Option<String> {
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
            let is_older = failure.message.contains("unknown variant `history`");
            return Err(vec![match is_older {
                true => Message::new(WHAT, "the running server keeps no history of requests")
                    .with_hint("a server of this version does: `milepost upgrade`"),
                false => Message::from(failure),
            }]);
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
    for _ in 0..COPIES_MAX {
        let bytes = copy(file).map_err(|error| Message::new(WHAT, cause(&error)))?;
        let now_us = wall_us();
        let from_us = now_us.saturating_sub(secs.saturating_mul(1_000_000));
        match HeldHistory::read(bytes, from_us, now_us) {
            Ok(held) => return Ok(held),
            Err(HistoryFault::Changing) => {}
            Err(HistoryFault::OtherVersion) => {
                let cause = "another version of milepost has made the server's history";
                let hint = "`milepost upgrade` has the server go on as this version";
                return Err(Message::new(WHAT, cause).with_hint(hint));
            }
            Err(HistoryFault::Unknown) => {
                let cause = "what the server has sent is no history";
                return Err(Message::new(WHAT, cause));
            }
        }
    }
    Err(Message::new(WHAT, "the server's history does not come to rest").with_hint("try it again"))
}

/// All of it: at most as much as a history of this version has, and one byte that says that there is more.
fn copy(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HISTORY_BYTES + 1];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}
