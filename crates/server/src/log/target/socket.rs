//! A log that goes to a daemon on this machine: the connection, and what happens while there is none.
//!
//! Each line is a message. What the daemon does not take is not taken here either, so that the caller
//! keeps it; the socket does not block, and a daemon that is stuck costs a call `PATIENCE` once.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use super::syslog::{self, Syslog};
use super::{Voice, journal};
use crate::config::meant::Level;

/// Pause between tries to reach a daemon that is gone.
const RECONNECT_NS: u64 = 1_000_000_000;
/// How long a message waits for room, and how often within one call.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
const WAITS_MAX: u32 = 32;
/// Bytes that the kernel holds for the daemon, as sd_journal_send asks for; it grants what `wmem_max` says.
const SEND_BYTES: usize = 8 << 20;
/// Every daemon takes this much, RFC 5424 section 6.1, and every kernel.
const MESSAGE_BYTES_MIN: usize = 480;
/// How lines of an error that belong to the line before them begin.
const CONTINUED: &[u8] = b"    ";

#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    form: Form,
    link: Link,
    /// A message's memory.
    message: Vec<u8>,
}

#[derive(Debug)]
enum Form {
    Syslog(Syslog),
    Journal(Voice),
}

#[derive(Debug)]
enum Link {
    Datagrams(OwnedFd),
    /// A message is taken when its last byte is; `unsent` has it until then.
    Stream {
        fd: OwnedFd,
        unsent: Unsent,
    },
    Gone {
        since_ns: u64,
        fault: Errno,
    },
}

#[derive(Debug, Default)]
struct Unsent {
    message: Vec<u8>,
    text_at: usize,
    sent: usize,
}

/// What became of a message.
enum Fate {
    Sent,
    /// The daemon has no room for it now.
    Full,
}

impl Socket {
    pub(super) fn syslog(path: &Path, facility: u8, voice: Voice) -> io::Result<Socket> {
        let name = rustix::system::uname();
        let host = name.nodename().to_string_lossy();
        let syslog = Syslog::new(facility, &host, std::process::id(), voice);
        Self::open(path, Form::Syslog(syslog))
    }

    pub(super) fn journal(path: &Path, voice: Voice) -> io::Result<Socket> {
        Self::open(path, Form::Journal(voice))
    }

    fn open(path: &Path, form: Form) -> io::Result<Socket> {
        let link = connect(path, &form).map_err(|fault| {
            let text = crate::fault::plain(&fault.into());
            io::Error::new(
                io::Error::from(fault).kind(),
                format!("{}: {text}", path.display()),
            )
        })?;
        Ok(Socket {
            path: path.to_owned(),
            form,
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
        let texts = Texts {
            lines,
            at: 0,
            joined: matches!(self.form, Form::Journal(Voice::Errors)),
        };
        for (text, bytes) in texts {
            match self.send(level, wall_ns, without_newline(&text), &mut waits) {
                Ok(Fate::Sent) => taken += bytes,
                Ok(Fate::Full) => break,
                // The next call says why.
                Err(_) if taken > 0 => break,
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(taken)
    }

    fn reconnect_in_time(&mut self, wall_ns: u64) -> io::Result<()> {
        let Link::Gone { since_ns, fault } = self.link else {
            return Ok(());
        };
        // A clock that was set back must not make the pause longer.
        if wall_ns >= since_ns && wall_ns - since_ns < RECONNECT_NS {
            return Err(fault.into());
        }
        Ok(self.reconnect(wall_ns)?)
    }

    fn reconnect(&mut self, wall_ns: u64) -> Result<(), Errno> {
        self.link = connect(&self.path, &self.form).unwrap_or_else(|fault| Link::Gone {
            since_ns: wall_ns,
            fault,
        });
        match self.link {
            Link::Gone { fault, .. } => Err(fault),
            Link::Datagrams(_) | Link::Stream { .. } => Ok(()),
        }
    }

    fn send(
        &mut self,
        level: Level,
        wall_ns: u64,
        text: &[u8],
        waits: &mut u32,
    ) -> Result<Fate, Errno> {
        let mut bytes_max = match &self.form {
            Form::Syslog(_) => syslog::BYTES_MAX,
            Form::Journal(_) => usize::MAX,
        };
        let mut is_fresh = false;
        loop {
            self.message.clear();
            let text_at = match &self.form {
                Form::Syslog(syslog) => {
                    syslog.write(level, wall_ns, text, bytes_max, &mut self.message)
                }
                Form::Journal(voice) => {
                    journal::write(level, *voice, text, bytes_max, &mut self.message);
                    0
                }
            };
            match self.offer(text_at) {
                Ok(()) => return Ok(Fate::Sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if *waits > 0 => {
                    *waits -= 1;
                    if !self.gets_room() {
                        // It is stuck: the rest of the call does not wait either.
                        *waits = 0;
                        return Ok(Fate::Full);
                    }
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(Fate::Full),
                // A line that could never be sent would keep all others from it.
                Err(Errno::MSGSIZE) if bytes_max > MESSAGE_BYTES_MIN => {
                    bytes_max = bytes_max.min(self.message.len()) / 2;
                }
                // A daemon that was started anew listens on a new socket of the same name.
                Err(_) if !is_fresh => {
                    self.reconnect(wall_ns)?;
                    is_fresh = true;
                }
                Err(fault) => {
                    let since_ns = wall_ns;
                    self.link = Link::Gone { since_ns, fault };
                    return Err(fault);
                }
            }
        }
    }

    /// Offers the message once.
    fn offer(&mut self, text_at: usize) -> Result<(), Errno> {
        match &mut self.link {
            Link::Gone { fault, .. } => Err(*fault),
            Link::Datagrams(fd) => match (send(fd, &self.message), &self.form) {
                // As sd_journal_send does.
                (Err(Errno::MSGSIZE | Errno::NOBUFS), Form::Journal(_)) => {
                    send_sealed(fd, &self.message)
                }
                (sent, _) => sent.map(drop),
            },
            Link::Stream { fd, unsent } => unsent.offer(fd, &self.message, text_at),
        }
    }

    /// Waits for room; false: there was none.
    fn gets_room(&self) -> bool {
        let (Link::Datagrams(fd) | Link::Stream { fd, .. }) = &self.link else {
            return true;
        };
        let mut polled = [PollFd::new(fd, PollFlags::OUT)];
        matches!(
            rustix::event::poll(&mut polled, Some(&PATIENCE)),
            Ok(1..) | Err(_)
        )
    }
}

impl Unsent {
    /// Sends a message and its end. One that went in part is finished first; when it is this very text,
    /// given again, that was it.
    fn offer(&mut self, fd: &OwnedFd, message: &[u8], text_at: usize) -> Result<(), Errno> {
        if !self.message.is_empty() {
            let ends = self.message.len() - 1;
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

fn connect(path: &Path, form: &Form) -> Result<Link, Errno> {
    let datagrams = match connect_as(SocketType::DGRAM, path) {
        // syslog-ng may listen on a stream (`unix-stream`), and glibc's syslog(3) goes there then.
        Err(Errno::PROTOTYPE) if matches!(form, Form::Syslog(_)) => {
            let fd = connect_as(SocketType::STREAM, path)?;
            let unsent = Unsent::default();
            return Ok(Link::Stream { fd, unsent });
        }
        connected => connected?,
    };
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&datagrams, SEND_BYTES);
    Ok(Link::Datagrams(datagrams))
}

fn connect_as(kind: SocketType, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

fn send(fd: &OwnedFd, message: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(fd, message, SendFlags::NOSIGNAL)
}

/// For an entry that no datagram holds: an empty one, with a descriptor of the memory that does.
fn send_sealed(fd: &OwnedFd, entry: &[u8]) -> Result<(), Errno> {
    // Where a sandbox forbids such memory, the entry has to become shorter.
    let memory = journal::sealed(entry).map_err(|_| Errno::MSGSIZE)?;
    let fds = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(fd, &[], &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn without_newline(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

/// The texts of messages in slices of lines, each with its bytes and those of its newline.
struct Texts<'a> {
    lines: &'a [IoSlice<'a>],
    /// What was given of the first slice.
    at: usize,
    /// Whether lines that begin with `CONTINUED` belong to the line before them.
    joined: bool,
}

impl<'a> Iterator for Texts<'a> {
    type Item = (Cow<'a, [u8]>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let mut text = self.line()?;
        while self.joined && self.starts_with(CONTINUED) {
            let Some(line) = self.line() else { break };
            text.to_mut().extend_from_slice(&line);
        }
        let bytes = text.len();
        Some((text, bytes))
    }
}

impl<'a> Texts<'a> {
    /// The next line with its newline; none when it has no end.
    fn line(&mut self) -> Option<Cow<'a, [u8]>> {
        let mut text = Cow::Borrowed(&[][..]);
        let (mut lines, mut at) = (self.lines, self.at);
        while let Some((first, others)) = lines.split_first() {
            let rest = &first[at..];
            let newline = memchr::memchr(b'\n', rest);
            let part: &'a [u8] = &rest[..newline.map_or(rest.len(), |at| at + 1)];
            if text.is_empty() {
                text = Cow::Borrowed(part);
            } else {
                text.to_mut().extend_from_slice(part);
            }
            if newline.is_some() {
                (self.lines, self.at) = (lines, at + part.len());
                return Some(text);
            }
            (lines, at) = (others, 0);
        }
        None
    }

    fn starts_with(&self, start: &[u8]) -> bool {
        let bytes = self.lines.iter().flat_map(|slice| slice.iter());
        bytes.skip(self.at).take(start.len()).eq(start)
    }
}

#[cfg(test)]
mod tests;
