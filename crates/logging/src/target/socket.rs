//! A log that goes to the syslog daemon of this machine: the connection, and what happens while there is none.
//!
//! Each line is a message. A line that the daemon does not take stays with the caller. The socket does not
//! block; a daemon that is stuck costs a call `SEND_WAIT` once.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::syslog::{self, SyslogFormat};
use config::typed::Level;

/// Pause between tries to reach a daemon that is gone.
const RECONNECT_NS: u64 = 1_000_000_000;
/// How long a message waits for a full socket, and how often within one call.
const SEND_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
const WAITS_MAX: u32 = 32;
/// Bytes that the kernel holds for the daemon; it grants no more than `net.core.wmem_max`.
const SEND_BYTES: usize = 8 << 20;
/// Every daemon takes this much, RFC 5424 section 6.1, and every kernel.
const MESSAGE_BYTES_MIN: usize = 480;

#[derive(Debug)]
pub(crate) struct SyslogSocket {
    path: PathBuf,
    syslog: SyslogFormat,
    link: SyslogLink,
    /// A message's memory.
    message: Vec<u8>,
}

#[derive(Debug)]
enum SyslogLink {
    Datagrams(OwnedFd),
    /// A message is taken when its last byte is; `unsent` has it until then.
    Stream {
        fd: OwnedFd,
        unsent: UnsentMessage,
    },
    Gone {
        since_ns: u64,
        fault: Errno,
    },
}

#[derive(Debug, Default)]
struct UnsentMessage {
    message: Vec<u8>,
    text_at: usize,
    sent: usize,
}

/// What became of a message.
enum SendResult {
    Sent,
    /// The daemon's socket is full now.
    Full,
}

impl SyslogSocket {
    /// Connects to the daemon that listens at `path`.
    pub(super) fn connect(
        path: &Path,
        facility: u8,
        name: &'static str,
    ) -> io::Result<SyslogSocket> {
        let link = connect(path).map_err(|fault| {
            let text = config::failure::plain(&fault.into());
            io::Error::new(
                io::Error::from(fault).kind(),
                format!("{}: {text}", path.display()),
            )
        })?;
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        Ok(SyslogSocket {
            path: path.to_owned(),
            syslog: SyslogFormat::new(facility, &host, std::process::id(), name),
            link,
            message: Vec::new(),
        })
    }

    /// Sends whole lines; gives the bytes of those that were sent.
    pub(super) fn write(
        &mut self,
        level: Level,
        lines: &[IoSlice<'_>],
        wall_ns: u64,
    ) -> io::Result<usize> {
        self.reconnect_in_time(wall_ns)?;
        let mut waits = WAITS_MAX;
        let mut taken = 0;
        // A slice begins and ends with a line: batches hold whole lines, and what was taken of the first one were whole
        // lines too.
        let lines = (lines.iter()).flat_map(|slice| slice.split_inclusive(|byte| *byte == b'\n'));
        for line in lines {
            let Some(text) = line.strip_suffix(b"\n") else {
                break;
            };
            match self.send(level, wall_ns, text, &mut waits) {
                Ok(SendResult::Sent) => taken += line.len(),
                Ok(SendResult::Full) => break,
                // The next call says why.
                Err(_) if taken > 0 => break,
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(taken)
    }

    fn reconnect_in_time(&mut self, wall_ns: u64) -> io::Result<()> {
        let SyslogLink::Gone { since_ns, fault } = self.link else {
            return Ok(());
        };
        // A clock that was set back must not make the pause longer.
        if wall_ns >= since_ns && wall_ns - since_ns < RECONNECT_NS {
            return Err(fault.into());
        }
        Ok(self.reconnect(wall_ns)?)
    }

    fn reconnect(&mut self, wall_ns: u64) -> Result<(), Errno> {
        self.link = connect(&self.path).unwrap_or_else(|fault| SyslogLink::Gone {
            since_ns: wall_ns,
            fault,
        });
        match self.link {
            SyslogLink::Gone { fault, .. } => Err(fault),
            SyslogLink::Datagrams(_) | SyslogLink::Stream { .. } => Ok(()),
        }
    }

    fn send(
        &mut self,
        level: Level,
        wall_ns: u64,
        text: &[u8],
        waits: &mut u32,
    ) -> Result<SendResult, Errno> {
        let mut bytes_max = syslog::BYTES_MAX;
        let mut is_fresh = false;
        loop {
            self.message.clear();
            let message = &mut self.message;
            let text_at = (self.syslog).write(level, wall_ns, text, bytes_max, message);
            match self.offer(text_at) {
                Ok(()) => return Ok(SendResult::Sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if *waits > 0 => {
                    *waits -= 1;
                    if !self.takes_more() {
                        // It is stuck: the rest of the call does not wait either.
                        *waits = 0;
                        return Ok(SendResult::Full);
                    }
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(SendResult::Full),
                // A line that could never be sent would keep all others from it.
                Err(Errno::MSGSIZE) if bytes_max > MESSAGE_BYTES_MIN => {
                    bytes_max = bytes_max.min(self.message.len()) / 2;
                }
                // A restarted daemon listens on a new socket of the same name.
                Err(_) if !is_fresh => {
                    self.reconnect(wall_ns)?;
                    is_fresh = true;
                }
                Err(fault) => {
                    let since_ns = wall_ns;
                    self.link = SyslogLink::Gone { since_ns, fault };
                    return Err(fault);
                }
            }
        }
    }

    /// Offers the message once.
    fn offer(&mut self, text_at: usize) -> Result<(), Errno> {
        match &mut self.link {
            SyslogLink::Gone { fault, .. } => Err(*fault),
            SyslogLink::Datagrams(fd) => send(fd, &self.message).map(drop),
            SyslogLink::Stream { fd, unsent } => unsent.offer(fd, &self.message, text_at),
        }
    }

    /// Waits until the socket takes more; false: it did not.
    fn takes_more(&self) -> bool {
        let (SyslogLink::Datagrams(fd) | SyslogLink::Stream { fd, .. }) = &self.link else {
            return true;
        };
        let mut polled = [PollFd::new(fd, PollFlags::OUT)];
        matches!(
            rustix::event::poll(&mut polled, Some(&SEND_WAIT)),
            Ok(1..) | Err(_)
        )
    }
}

impl UnsentMessage {
    /// Sends a message and its end. One that went in part is finished first; when it is this very text,
    /// given again, that was it.
    fn offer(&mut self, fd: &OwnedFd, message: &[u8], text_at: usize) -> Result<(), Errno> {
        if !self.message.is_empty() {
            let ends = self.message.len() - 1;
            // One that went in part is finished first; when it is this very text, given again, that was it. Only the
            // texts are compared: the time in the head is that of the try.
            let is_this = self.message[self.text_at..ends] == message[text_at..];
            self.finish(fd)?;
            if is_this {
                return Ok(());
            }
        }
        self.message.extend_from_slice(message);
        // What glibc's syslog(3) ends a message with on a stream, and what daemons therefore split at
        // (RFC 6587 section 3.4.2: the usual trailers are LF and NUL).
        self.message.push(0);
        self.text_at = text_at;
        match self.finish(fd) {
            Err(Errno::AGAIN | Errno::NOBUFS) if self.sent == 0 => {
                self.message.clear();
                Err(Errno::AGAIN)
            }
            other => other,
        }
    }

    fn finish(&mut self, fd: &OwnedFd) -> Result<(), Errno> {
        while self.sent < self.message.len() {
            match send(fd, &self.message[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::INTR) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.message.clear();
        self.sent = 0;
        Ok(())
    }
}

fn connect(path: &Path) -> Result<SyslogLink, Errno> {
    let datagrams = match connect_as(SocketType::DGRAM, path) {
        // syslog-ng may listen on a stream (`unix-stream`), and glibc's syslog(3) goes there then.
        Err(Errno::PROTOTYPE) => {
            let fd = connect_as(SocketType::STREAM, path)?;
            let unsent = UnsentMessage::default();
            return Ok(SyslogLink::Stream { fd, unsent });
        }
        connected => connected?,
    };
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&datagrams, SEND_BYTES);
    Ok(SyslogLink::Datagrams(datagrams))
}

fn connect_as(kind: SocketType, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // Not blocking: a daemon whose queue is full must not hold up the log.
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

fn send(fd: &OwnedFd, message: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(fd, message, SendFlags::NOSIGNAL)
}

#[cfg(test)]
mod tests;
