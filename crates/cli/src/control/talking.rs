//! One request to a supervisor: connect, ask, give how it ended.

use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, socket_with,
};
use supervisor::control::messages::{Outcome, Request};
use supervisor::control::place::Entry;

use super::Failure;
use crate::environment::cause;
use crate::message::Message;

/// For answers that need no process to start or end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one line: a server with a thousand processes has much to tell.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// Bytes that are received at first.
const FIRST_BYTES: usize = 8 << 10;

/// Asks, and waits for the end.
///
/// # Errors
/// Nobody is there, or nothing that can be understood came back.
pub(super) fn ask(socket: &Path, request: &Request) -> Result<Outcome, Failure> {
    ask_for(socket, request).map(|(outcome, _)| outcome)
}

/// As [`ask`]; with the file that the server has handed over, if it has.
///
/// # Errors
/// As [`ask`].
pub(super) fn ask_for(
    socket: &Path,
    request: &Request,
) -> Result<(Outcome, Option<OwnedFd>), Failure> {
    match exchange(socket, request)? {
        (Some(line), file) => match Outcome::read(&line) {
            Some(outcome) => Ok((outcome, file)),
            None => {
                let what = named(socket);
                Err(Failure::could_not(Message::new(
                    &what,
                    "what answers there is no milepost",
                )))
            }
        },
        // The kernel closes it with the process.
        (None, _) if *request == Request::Stop => Ok((Outcome::Done(None), None)),
        (None, _) => Err(ended(socket, request)),
    }
}

/// Asks, and gives the answer as it came.
///
/// # Errors
/// Nobody is there, or nothing came back.
pub(super) fn ask_line(socket: &Path, request: &Request) -> Result<Vec<u8>, Failure> {
    (exchange(socket, request)?.0).ok_or_else(|| ended(socket, request))
}

/// A line, and a file that came with it; no line: the other side ended
/// before it had answered.
type Answer = (Option<Vec<u8>>, Option<OwnedFd>);

fn exchange(socket: &Path, request: &Request) -> Result<Answer, Failure> {
    let what = named(socket);
    let stream = open(socket).map_err(|error| unreachable_failure(&what, &error))?;
    let patience = match request {
        Request::Status | Request::Reopen | Request::History | Request::Stack { .. } => {
            Some(PATIENCE)
        }
        _ => None,
    };
    let talk = stream
        .set_read_timeout(patience)
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .and_then(|()| send(&stream, request))
        .and_then(|()| answer(&stream));
    talk.map_err(|error| broken(&what, &error))
}

fn named(socket: &Path) -> String {
    format!("control socket `{}`", socket.display())
}

fn ended(socket: &Path, request: &Request) -> Failure {
    let cause = format!("the server ended before `{}` was done", request.verb());
    Failure::could_not(Message::new(&named(socket), cause))
}

/// Whether somebody listens where an entry says so.
pub(super) fn lives(entry: &Entry) -> bool {
    // Only a socket that nobody listens on, or none at all, says no.
    match open(&entry.control) {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        ),
    }
}

/// A connection that blocks, made without blocking: where a supervisor has been stopped, nobody accepts.
fn open(socket: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&made, &address)?;
    let stream = UnixStream::from(made);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn send(mut stream: &UnixStream, request: &Request) -> io::Result<()> {
    match stream.write_all(request.line().as_bytes()) {
        // Refused before it has asked: the refusal is there to be read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent,
    }
}

/// The answer's line and the descriptor that came with it. No line: the other side has ended.
fn answer(stream: &UnixStream) -> io::Result<(Option<Vec<u8>>, Option<OwnedFd>)> {
    let mut first = vec![0; FIRST_BYTES];
    let (bytes, file) = match receive_with(stream, &mut first) {
        Err(Errno::CONNRESET) => (0, None),
        received => received?,
    };
    let begin = io::Cursor::new(&first[..bytes]);
    rest(begin.chain(stream)).map(|line| (line, file))
}

/// What has come first. A descriptor comes with the first byte.
fn receive_with(
    stream: &UnixStream,
    into: &mut [u8],
) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let bytes = loop {
        let mut slices = [IoSliceMut::new(into)];
        match recvmsg(stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((bytes, fds.flatten().next()))
}

fn rest(stream: impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut stream = BufReader::new(stream).take(LINE_BYTES_MAX);
    match stream.read_until(b'\n', &mut line) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(Some(line).filter(|line| line.ends_with(b"\n"))),
    }
}

fn unreachable_failure(what: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let message = Message::new(what, "it is not there");
            Failure::no(message.with_hint("the server that makes it (`control`) does not run"))
        }
        io::ErrorKind::ConnectionRefused => {
            // Its server has died without removing it.
            let message = Message::new(what, "nobody listens there");
            Failure::no(message.with_hint("the server that made it (`control`) does not run"))
        }
        io::ErrorKind::PermissionDenied => {
            let message = Message::new(what, cause(error));
            let hint = "run this as root or as the user that the server was started as";
            Failure::could_not(message.with_hint(hint))
        }
        io::ErrorKind::WouldBlock => broken(what, error),
        _ => Failure::could_not(Message::new(what, cause(error))),
    }
}

fn broken(what: &str, error: &io::Error) -> Failure {
    let message = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Message::new(what, "the supervisor does not answer")
                .with_hint("it may have been stopped (SIGSTOP) or be waiting for a disk")
        }
        _ => Message::new(what, cause(error)),
    };
    Failure::could_not(message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    /// Answers one request with a text, as it is.
    fn answered(text: &'static str) -> Result<Outcome, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(text.as_bytes()).unwrap();
            line
        });
        let outcome = ask(&path, &Request::Reload);
        assert_eq!(server.join().unwrap(), Request::Reload.line());
        outcome
    }

    #[track_caller]
    fn check_failure(failure: &Failure, code: i32, expect: &str) {
        assert_eq!(failure.code, code);
        let text = failure.messages[0].text();
        assert!(text.contains(expect), "{text}");
    }

    #[test]
    fn gives_how_it_ended() {
        let outcome = answered("{\"done\":true,\"message\":\"c\"}\n");
        assert_eq!(outcome.unwrap(), Outcome::Done(Some("c".to_owned())));
    }

    #[test]
    fn does_not_take_silence_or_noise_for_an_answer() {
        for text in ["", "{\"done\":true}"] {
            let failure = answered(text).unwrap_err();
            check_failure(&failure, crate::COULD_NOT, "ended before `reload` was done");
        }
        let failure = answered("HTTP/1.1 400 Bad Request\r\n").unwrap_err();
        check_failure(&failure, crate::COULD_NOT, "is no milepost");
    }

    #[test]
    fn says_that_nobody_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let ask = |path: &Path| ask(path, &Request::Status).unwrap_err();
        check_failure(&ask(&path), crate::NO, "it is not there");
        drop(UnixListener::bind(&path).unwrap());
        check_failure(&ask(&path), crate::NO, "nobody listens there");
        let long = PathBuf::from(format!("/{}", "x".repeat(200)));
        check_failure(&ask(&long), crate::COULD_NOT, "name too long");
    }

    #[test]
    fn does_not_wait_where_nobody_accepts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let failure = ask(&path, &Request::Status).unwrap_err();
        check_failure(&failure, crate::COULD_NOT, "does not answer");
        let entry = Entry {
            pid: 1,
            control: path,
            config_file: None,
        };
        assert!(lives(&entry));
    }
}
