//! The channel between the supervisor and each serving process: messages with descriptors, in order.
//!
//! A pair of connected unix sockets that keep the boundaries of messages (SOCK_SEQPACKET); a message is JSON,
//! and the descriptors that it speaks of travel with it (SCM_RIGHTS). Either side learns of the other's end
//! by the end of the channel. Starts nothing and decides nothing.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use telemetry::counters::Exposition;

use crate::acme::ManagedCertificate;
use crate::stats::Segment;
use config::typed::PoolConfig;

/// Bytes of one message. What may be longer (a configuration, a traceback) travels as a file.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Descriptors of one message; the kernel takes at most 253 (SCM_MAX_FD).
pub const FDS_LEN_MAX: usize = 128;

/// Time from the end of a `Drain`'s timeout, or from a `Cut`, until the supervisor kills a process that has not ended.
pub const KILL_GRACE: Duration = Duration::from_secs(5);

/// What the supervisor tells a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SupervisorCommand {
    /// Who it is; the first message. With two descriptors: the file that says what to serve (`Payload` as
    /// JSON, read from its start), and the file of all counters; where TLS is spoken a third: the file of
    /// certificates and keys.
    Begin(Identity),
    /// Accept from these sockets as well; with one descriptor for each, in order.
    StartAccepting(Vec<ListenerInfo>),
    /// Accept from these no longer: others do.
    StopAccepting(Vec<ListenerId>),
    /// Let connections end after their next reply, and then end. Sockets are left open for others, but for
    /// those that close now: of these, what waits is taken in first.
    Drain {
        /// Addresses whose sockets close now; the process stops accepting after a last round.
        closing: Vec<u16>,
        /// Idle connections wait for their next request, so that no client's request crosses their end;
        /// otherwise they are closed now.
        is_patient: bool,
        /// Time until what is left is cut.
        timeout_ms: u64,
    },
    /// End at once; what is under way is cut.
    Cut,
    /// Accept new connections with these certificates, and use these keys of session tickets; with one descriptor: the
    /// file that holds them (`Credentials` as JSON).
    TakeCredentials,
    /// Open the log files anew.
    Reopen,
    /// Every driver is to note this number in its counters.
    Heartbeat(u64),
    /// A pool is to have another size from now on.
    Reshape {
        /// Its name.
        pool: String,
        /// Fewest threads.
        threads_min: usize,
        /// Most threads.
        threads_max: usize,
        /// What the answer, `ProcessEvent::Confirmed`, is to name; 0: nobody waits for one.
        number: u64,
    },
    /// Answer these challenges of certificate authorities, and no others, from now on; with one descriptor: the file of
    /// all of them (`Challenges` as JSON).
    TakeChallenges,
    /// Show on the status page how certificates stand; with one descriptor: the file of them (`Vec<CertificateStatus>` as
    /// JSON).
    TakeCertificates,
    /// Say, with `ProcessEvent::Confirmed` and this number, when whoever accepts has come to all that was told before.
    Confirm(u64),
    /// Say, with `ProcessEvent::Stack` and this number, where the request with this id is.
    Stack {
        /// What the answer is to name.
        number: u64,
        /// As the table of running requests has it.
        id: String,
    },
    /// To the admin process: the answer to this query; with one descriptor: the file that holds it.
    AdminAnswer(AdminQuery),
    /// To a template: fork a process, which goes on with the channel that comes along as descriptor.
    Fork,
}

/// What a process tells the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ProcessEvent {
    /// The application is imported and the drivers run; sockets may come. A template: it can fork.
    Ready {
        /// "CPython 3.11.7 (GIL)", where there is one.
        python: Option<String>,
        /// For each application the event loop that runs it, where it is ASGI.
        event_loops: Vec<Option<String>>,
        /// Files of the application's modules, for a supervisor that watches code.
        modules: Vec<PathBuf>,
    },
    /// It could not start; it ends. With one descriptor: the file with the fault (`StartFailure` as JSON).
    Failed,
    /// It has drained; it ends.
    Drained {
        /// Exchanges that were cut.
        cut: u64,
        /// Pool threads that were still in the application.
        stuck_threads: usize,
    },
    /// It is to be replaced: too few of its pool threads come back.
    Worn {
        /// `with 3 threads that did not come back`
        reason: String,
    },
    /// The order of this number, which is not 0, has been followed.
    Confirmed {
        /// The order's.
        number: u64,
    },
    /// Where a request is. With one descriptor: the file that says it (`StackReport` as JSON).
    Stack {
        /// The order's.
        number: u64,
    },
    /// A template: it has forked this process. With one descriptor: its pidfd.
    Forked {
        /// Its process id.
        pid: u32,
    },
    /// A template: it could not.
    NotForked {
        /// Why.
        cause: String,
    },
    /// The ACME client: how a name stands now.
    Certificate(ManagedCertificate),
    /// The ACME client: which challenges are to be answered from now on. With one descriptor: the file of all of them
    /// (`Challenges` as JSON).
    Challenges,
    /// The admin process: a client of it wants to know this.
    AdminQuery(AdminQuery),
    /// The admin process: a client of it was dropped, because it took nothing of an answer for too long.
    AdminClientDropped,
    /// A template: a process that it forked has ended.
    ChildEnded {
        /// Its process id.
        pid: u32,
        /// As `waitpid` gives it.
        wait_status: i32,
    },
}

impl SupervisorCommand {
    /// That a pool is to have the size that it has here; the answer names `number`, 0 wants none.
    pub fn reshape(pool: &PoolConfig, number: u64) -> SupervisorCommand {
        SupervisorCommand::Reshape {
            pool: pool.name.clone(),
            threads_min: pool.threads_min,
            threads_max: pool.threads_max,
            number,
        }
    }
}

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// What it is to be.
    pub role: Role,
    /// Number of the generation.
    pub generation: u64,
    /// Its place among the processes of the generation, from 0.
    pub slot: usize,
    /// Its part of the file of all counters; none for a template.
    pub segment: Option<Segment>,
    /// The number of the names of its routes and pools in the history, whose file is handed over behind that of the
    /// counters; none: it keeps no history.
    #[serde(default)]
    pub history: Option<u32>,
    /// It is the first new process of a reload, which calls `hooks.on_reload`.
    #[serde(default)]
    pub reloads: bool,
}

/// What a process is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// To serve.
    Serving,
    /// To import the application and fork those that serve.
    Template,
    /// To obtain and renew automatic certificates.
    AcmeClient,
    /// To answer what is asked about the server over HTTP.
    Admin,
}

/// What may be asked about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AdminQuery {
    /// All metrics, in this format.
    Metrics(Exposition),
    /// How things are: `supervisor::Status` as JSON.
    Status,
    /// What there is to do, as JSON.
    Load,
    /// What the page shows: [`crate::LiveSample`] as JSON.
    Live,
    /// Whether requests are served, as JSON: `true` or `false`.
    Ready,
    /// The file of the history, for reading.
    History,
}

/// Which socket: (address, index), and which driver of the process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListenerId {
    /// Number of the address, the same for the supervisor's whole life.
    pub address: u16,
    /// Number of the socket among those of the address.
    pub index: u16,
    /// The driver; any may be told for a socket that the kernel cannot share.
    pub driver: u16,
}

/// A socket to accept from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerInfo {
    /// Which one it is.
    pub key: ListenerId,
    /// What it listens on.
    pub at: ListenAddr,
    /// Other drivers or processes wait on the same socket.
    pub is_shared: bool,
    /// Other processes do, and whoever has taken somebody in lets them go first.
    #[serde(default)]
    pub takes_turns: bool,
    /// Connections begin with a TLS handshake.
    #[serde(default)]
    pub is_tls: bool,
    /// The service manager has it as well, and goes on with it when the server has ended.
    #[serde(default)]
    pub is_inherited: bool,
}

/// What a socket listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenAddr {
    /// An address and port.
    Tcp(std::net::SocketAddr),
    /// A path.
    Unix(PathBuf),
}

/// One end.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A message with its descriptors.
#[derive(Debug)]
pub struct ReceivedMessage<M> {
    /// The message.
    pub message: M,
    /// In the order in which they were sent.
    pub fds: Vec<OwnedFd>,
}

impl Channel {
    /// Two ends; neither is inherited by programs that are started.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel(one), Channel(other)))
    }

    /// Its descriptor, to be handed over.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a message; waits for room.
    pub fn send<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::NOSIGNAL)
    }

    /// Sends a message if there is room for it; `WouldBlock` if not.
    pub fn send_now<M: Serialize>(&self, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with<M: Serialize>(
        &self,
        message: &M,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        // The other side reads into a buffer of this length: what is longer would arrive cut.
        if text.len() > MESSAGE_BYTES_MAX || fds.len() > FDS_LEN_MAX {
            return Err(io::Error::other("a message is too long for the channel"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_LEN_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        loop {
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, flags) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// The next message; waits for one. `None`: the other side has ended.
    pub fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<ReceivedMessage<M>>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC)
    }

    /// The next message if there is one; `WouldBlock` if not.
    pub fn receive_now<M: DeserializeOwned>(&self) -> io::Result<Option<ReceivedMessage<M>>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    fn receive_with<M: DeserializeOwned>(
        &self,
        flags: RecvFlags,
    ) -> io::Result<Option<ReceivedMessage<M>>> {
        let mut text = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_LEN_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let bytes = loop {
            let mut slices = [IoSliceMut::new(&mut text)];
            match rustix::net::recvmsg(&self.0, &mut slices, &mut control, flags) {
                Err(Errno::INTR) => {}
                // The other side ended with something of ours unread.
                Err(Errno::CONNRESET) => return Ok(None),
                received => break received?.bytes,
            }
        };
        // Owned from here on: descriptors of a message that cannot be understood are closed.
        let fds = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        // No message is empty: JSON has two bytes at least. So this is the end of the channel.
        if bytes == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&text[..bytes])?;
        Ok(Some(ReceivedMessage { message, fds }))
    }
}

/// An end that was handed over; an error if it is no such socket.
impl TryFrom<OwnedFd> for Channel {
    type Error = io::Error;

    fn try_from(fd: OwnedFd) -> io::Result<Channel> {
        if rustix::net::sockopt::socket_type(&fd)? != SocketType::SEQPACKET {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Channel(fd))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_messages_and_descriptors_in_order() {
        let (one, other) = Channel::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        one.send(&SupervisorCommand::Heartbeat(7), &[]).unwrap();
        one.send(&SupervisorCommand::Fork, &[file.as_fd(), file.as_fd()])
            .unwrap();
        let first: ReceivedMessage<SupervisorCommand> = other.receive().unwrap().unwrap();
        assert_eq!(first.message, SupervisorCommand::Heartbeat(7));
        assert!(first.fds.is_empty());
        let second: ReceivedMessage<SupervisorCommand> = other.receive().unwrap().unwrap();
        assert_eq!(second.message, SupervisorCommand::Fork);
        assert_eq!(second.fds.len(), 2);
    }

    #[test]
    fn says_that_nothing_has_come_and_that_the_other_side_has_ended() {
        let (one, other) = Channel::pair().unwrap();
        let nothing = other.receive_now::<SupervisorCommand>().unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(one);
        assert!(other.receive_now::<SupervisorCommand>().unwrap().is_none());
    }

    #[test]
    fn refuses_what_is_too_long() {
        let (one, _other) = Channel::pair().unwrap();
        let cause = "x".repeat(MESSAGE_BYTES_MAX);
        assert!(one.send(&ProcessEvent::NotForked { cause }, &[]).is_err());
    }
}
