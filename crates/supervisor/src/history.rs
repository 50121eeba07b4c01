//! The history of the server as the supervisor has it: it makes the file or takes it over, and gives it to processes and to
//! those who ask for it. It reads no request.

use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

use config::failure::{Failure, plain};
use ipc::history::HistoryFile;
use ipc::stats::Shape;

use super::control::{ClientId, Outcome};
use super::{Supervisor, say};

/// The history that the program before this one has left, or a new one. The server serves without any.
pub(super) fn opened(left: Option<RawFd>) -> Option<HistoryFile> {
    let adopted = left.map(|number| os::adopt_fd(number).and_then(HistoryFile::adopt));
    let made = match adopted {
        Some(Ok(history)) => Ok(history),
        Some(Err(error)) => {
            let cause = plain(&error);
            say(&format!(
                "the history of requests begins anew: the old one cannot be used: {cause}"
            ));
            HistoryFile::new()
        }
        None => HistoryFile::new(),
    };
    made.map_err(|error| no_history(&error)).ok()
}

impl Supervisor<'_> {
    /// The number of a process's names in the history.
    pub(super) fn history_names(&mut self, shape: &Shape) -> Option<u32> {
        let number = self.history.as_mut()?.number_of(shape);
        number.map_err(|error| no_history(&error)).ok()
    }

    /// Gives a client the file of the last requests, for reading.
    pub(super) fn hand_out_history(&mut self, client: ClientId) {
        let file = match &self.history {
            Some(history) => history.read_only(),
            None => Err(io::Error::other("there was no memory for it")),
        };
        match (file, &mut self.control) {
            (Ok(file), Some(control)) => {
                control.done_with(client, &Outcome::Done(None), file, Instant::now());
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                let text = format!("the server has no history of requests: {}", plain(&error));
                self.refuse(Some(client), Failure::new(text));
            }
        }
    }
}

fn no_history(error: &io::Error) {
    say(&format!("no history of requests: {}", plain(error)));
}
