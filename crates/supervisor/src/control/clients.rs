//! Those who are connected to the control socket: their requests in, how these ended out.
//!
//! ```text
//! Reading ─ a line, at most 4 KB within 5 s ─► Waiting ─ told how it ended ─► Leaving ─ has read it, 5 s ─► gone
//!    └────── refused: too long, too late, not understood ─────────────────────────▲
//! ```
//! One request a connection. Nothing here ever waits: `now` is an argument, sockets are non-blocking. A client
//! that goes away takes nothing with it: its request goes on.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use config::failure::Failure;
use os::invariant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::handed;

use super::messages::{CommandKind, Outcome, REQUEST_BYTES_MAX, Request};

/// Open connections.
pub(super) const CLIENTS_LEN_MAX: usize = 16;
/// For a request to be complete, and for the last answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client, for as long as the supervisor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(u64);

/// All of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ControlClients {
    all: Vec<ControlClient>,
    next: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct ControlClient {
    id: ClientId,
    #[serde(with = "handed::fd")]
    socket: OwnedFd,
    state: ClientState,
    unsent: Vec<u8>,
    /// Goes with the first byte of what is unsent. After an upgrade the client gets the answer without it.
    #[serde(skip)]
    file: Option<OwnedFd>,
}

#[derive(Debug, Serialize, Deserialize)]
enum ClientState {
    Reading {
        read: Vec<u8>,
        #[serde(with = "handed::moment")]
        until: Instant,
    },
    Waiting,
    Leaving {
        #[serde(with = "handed::moment")]
        until: Instant,
    },
    Gone,
}

impl ControlClients {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes in a client whose socket does not block.
    pub(super) fn add(&mut self, socket: OwnedFd, now: Instant) {
        invariant!(
            self.all.len() < CLIENTS_LEN_MAX,
            "{} clients command at once",
            self.all.len() + 1
        );
        let id = ClientId(self.next);
        self.next += 1;
        self.all.push(ControlClient {
            id,
            socket,
            state: ClientState::Reading {
                read: Vec::new(),
                until: now + PATIENCE,
            },
            unsent: Vec::new(),
            file: None,
        });
    }

    /// Sockets and what to wait for.
    pub(super) fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.all
            .iter()
            .map(|client| (client.socket.as_fd(), client.interest()))
    }

    /// When somebody's patience ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.iter().filter_map(ControlClient::deadline).min()
    }

    /// Reads what has come, sends what can leave, and lets those go who are done or too late.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<(ClientId, Request)> {
        let requests = self.all.iter_mut().filter_map(|client| {
            let request = client.turn(now)?;
            Some((client.id, request))
        });
        let requests = requests.collect();
        self.note_exit();
        requests
    }

    /// Tells a client how its request ended.
    pub(super) fn done(
        &mut self,
        id: ClientId,
        outcome: &Outcome,
        file: Option<OwnedFd>,
        now: Instant,
    ) {
        // A client that is gone is not there any more, and its outcome is nobody's loss.
        let is_meant = |client: &&mut ControlClient| {
            client.id == id && matches!(client.state, ClientState::Waiting)
        };
        if let Some(client) = self.all.iter_mut().find(is_meant) {
            client.file = file;
            client.end(outcome, now);
        }
        self.note_exit();
    }

    fn note_exit(&mut self) {
        self.all
            .retain(|client| !matches!(client.state, ClientState::Gone));
    }
}

impl ControlClient {
    fn interest(&self) -> PollFlags {
        let read = match self.state {
            ClientState::Reading { .. } => PollFlags::IN,
            // The end of a client is always reported. Its readable end is not asked for: one that has said all
            // and closed its side would wake the supervisor for ever.
            _ => PollFlags::empty(),
        };
        let write = if self.unsent.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        read | write
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            ClientState::Reading { until, .. } | ClientState::Leaving { until } => Some(until),
            ClientState::Waiting | ClientState::Gone => None,
        }
    }

    fn turn(&mut self, now: Instant) -> Option<Request> {
        // A client that waits sends nothing more: only the end of its connection is looked for.
        if matches!(self.state, ClientState::Waiting) && has_hung_up(self.socket.as_fd()) {
            self.state = ClientState::Gone;
            return None;
        }
        let request = self.read(now);
        self.flush();
        if let ClientState::Leaving { until } = self.state
            && now >= until
        {
            self.state = ClientState::Gone;
        }
        request
    }

    /// The request, once it is complete; a refusal is told at once.
    fn read(&mut self, now: Instant) -> Option<Request> {
        let ClientState::Reading { read, until } = &mut self.state else {
            return None;
        };
        let until = *until;
        let line = match receive(self.socket.as_fd(), read) {
            ReadProgress::Line(line) => Request::read(&line),
            ReadProgress::TooMuch(failure) => Err(failure),
            // After the look: a line that came in the last moment counts.
            ReadProgress::Part if now >= until => {
                let text = format!(
                    "no request came within {} seconds of the connection",
                    PATIENCE.as_secs()
                );
                Err(Failure::new(text))
            }
            ReadProgress::Part => return None,
            ReadProgress::Nothing => {
                self.state = ClientState::Gone;
                return None;
            }
        };
        match line {
            Ok(request) => {
                self.state = ClientState::Waiting;
                Some(request)
            }
            Err(failure) => {
                self.end(&Outcome::Refused(CommandKind::CouldNot, failure), now);
                None
            }
        }
    }

    fn end(&mut self, outcome: &Outcome, now: Instant) {
        self.state = ClientState::Leaving {
            until: now + PATIENCE,
        };
        self.unsent = outcome.line().into_bytes();
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match send_with(&self.socket, &self.unsent, self.file.as_ref()) {
                // A long status does not fit into the socket at once; the rest goes when the loop says so.
                Ok(bytes) => {
                    self.file = None;
                    drop(self.unsent.drain(..bytes));
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return,
                Err(_) => {
                    self.state = ClientState::Gone;
                    return;
                }
            }
        }
        // All of the outcome is with the kernel, which keeps it for the client after the close.
        if matches!(self.state, ClientState::Leaving { .. }) {
            self.state = ClientState::Gone;
        }
    }
}

/// Sends what the socket takes, and a descriptor with the first byte of it.
fn send_with(socket: &OwnedFd, bytes: &[u8], file: Option<&OwnedFd>) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = file.map(AsFd::as_fd);
    if fds.is_some() {
        control.push(SendAncillaryMessage::ScmRights(fds.as_slice()));
    }
    let slices = [IoSlice::new(bytes)];
    sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL)
}

/// Refuses a client that is not taken in.
pub(super) fn turn_away(socket: &OwnedFd, failure: Failure) {
    let line = Outcome::Refused(CommandKind::CouldNot, failure).line();
    // What a fresh socket does not take is nobody's loss.
    let _ = send(socket, line.as_bytes(), SendFlags::NOSIGNAL);
}

/// What a client has sent so far.
enum ReadProgress {
    Line(Vec<u8>),
    /// More may come.
    Part,
    /// It has closed without a word, or is gone.
    Nothing,
    TooMuch(Failure),
}

fn receive(socket: BorrowedFd<'_>, read: &mut Vec<u8>) -> ReadProgress {
    let mut room = [0; REQUEST_BYTES_MAX];
    loop {
        let has_ended = match recv(socket, &mut room[..], RecvFlags::empty()) {
            Ok((_, bytes)) => {
                read.extend_from_slice(&room[..bytes]);
                bytes == 0
            }
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => return ReadProgress::Part,
            Err(_) => return ReadProgress::Nothing,
        };
        // The length is checked after each piece: a client without a newline must not fill the memory.
        let end = memchr::memchr(b'\n', read).unwrap_or(read.len());
        if end >= REQUEST_BYTES_MAX {
            let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
            return ReadProgress::TooMuch(Failure::new(text));
        }
        if read.len() > end + 1 {
            let text = "one request a connection, in one line";
            return ReadProgress::TooMuch(Failure::new(text));
        }
        // `printf reload | socat` sends no newline; the end of its side does as well.
        if end < read.len() || (has_ended && !read.is_empty()) {
            read.truncate(end);
            return ReadProgress::Line(std::mem::take(read));
        }
        if has_ended {
            return ReadProgress::Nothing;
        }
    }
}

/// Whether the other side has closed altogether.
fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let polled = poll(&mut asked, Some(&Timespec::default()));
    let ends = PollFlags::HUP | PollFlags::ERR;
    polled.is_ok() && asked[0].revents().intersects(ends)
}
