//! Real sockets in temporary folders, with daemons that are slow, stuck, gone and back again.

use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use tempfile::TempDir;

use super::*;

const NOON: u64 = 1_795_262_859_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    (dir, path)
}

fn connected(path: &Path) -> (UnixDatagram, SyslogSocket) {
    let daemon = UnixDatagram::bind(path).unwrap();
    (daemon, SyslogSocket::connect(path, 16, "access").unwrap())
}

fn accepted(path: &Path) -> (UnixListener, SyslogSocket, UnixStream) {
    let listener = UnixListener::bind(path).unwrap();
    let socket = SyslogSocket::connect(path, 16, "access").unwrap();
    let (daemon, _) = listener.accept().unwrap();
    (listener, socket, daemon)
}

fn offer(socket: &mut SyslogSocket, text: &str, wall_ns: u64) -> io::Result<usize> {
    socket.write(Level::Info, &[IoSlice::new(text.as_bytes())], wall_ns)
}

fn receive(daemon: &UnixDatagram) -> String {
    let mut message = vec![0; 16 << 10];
    let bytes = daemon.recv(&mut message).unwrap();
    String::from_utf8(message[..bytes].to_vec()).unwrap()
}

/// Leaves the socket the least room that the kernel gives: 4608 bytes with its overhead, and no more than
/// half of that in one piece of a stream.
fn narrow(socket: &SyslogSocket) {
    let (SyslogLink::Datagrams(fd) | SyslogLink::Stream { fd, .. }) = &socket.link else {
        panic!("no connection");
    };
    rustix::net::sockopt::set_socket_send_buffer_size(fd, 1).unwrap();
}

/// The text of a syslog message.
fn text_of(message: &str) -> &str {
    message.split_once(" access - ").unwrap().1
}

fn lines(count: usize) -> String {
    (0..count)
        .map(|number| format!("line {number}\n"))
        .collect()
}

#[test]
fn sends_each_line_as_a_message() {
    let (_dir, path) = place();
    let (daemon, mut socket) = connected(&path);
    let slices = [b"one\ntwo\n" as &[u8], b"", b"three\nrest"].map(IoSlice::new);
    let taken = socket.write(Level::Info, &slices, NOON).unwrap();
    assert_eq!(taken, "one\ntwo\nthree\n".len());
    for expect in ["one", "two", "three"] {
        let message = receive(&daemon);
        assert!(message.starts_with("<134>1 2026-11-21T12:07:39.000000Z "));
        assert_eq!(text_of(&message), expect);
    }
    daemon.set_nonblocking(true).unwrap();
    assert!(daemon.recv(&mut [0; 9]).is_err());
}

#[test]
fn cuts_what_no_daemon_takes() {
    let (_dir, path) = place();
    let (daemon, mut socket) = connected(&path);
    let text = "x".repeat(100_000) + "\n";
    assert_eq!(offer(&mut socket, &text, NOON).unwrap(), text.len());
    let message = receive(&daemon);
    let room = syslog::BYTES_MAX - 5..=syslog::BYTES_MAX;
    assert!(room.contains(&message.len()), "{}", message.len());
    assert!(message.ends_with(" more bytes]"));
}

#[test]
fn cuts_further_what_the_kernel_does_not_take() {
    let (_dir, path) = place();
    let (daemon, mut socket) = connected(&path);
    narrow(&socket);
    let text = "x".repeat(100_000) + "\n";
    assert_eq!(offer(&mut socket, &text, NOON).unwrap(), text.len());
    let message = receive(&daemon);
    assert!(message.len() <= 4608, "{}", message.len());
    assert!(message.ends_with(" more bytes]"));
}

#[test]
fn keeps_lines_that_a_daemon_has_no_room_for() {
    let (_dir, path) = place();
    let (daemon, mut socket) = connected(&path);
    let text = lines(500);
    let (mut taken, mut received) = (0, 0);
    while received < 500 {
        let rest = &text[taken..];
        let bytes = offer(&mut socket, rest, NOON).unwrap();
        assert!(rest[..bytes].is_empty() || rest[..bytes].ends_with('\n'));
        taken += bytes;
        daemon.set_nonblocking(true).unwrap();
        let mut message = [0; 200];
        while let Ok(bytes) = daemon.recv(&mut message) {
            let message = std::str::from_utf8(&message[..bytes]).unwrap();
            assert_eq!(text_of(message), format!("line {received}"));
            received += 1;
        }
    }
    assert_eq!(taken, text.len());
}

#[test]
fn finds_a_restarted_daemon_at_once() {
    let (_dir, path) = place();
    let (daemon, mut socket) = connected(&path);
    offer(&mut socket, "one\n", NOON).unwrap();
    assert_eq!(text_of(&receive(&daemon)), "one");
    drop(daemon);
    std::fs::remove_file(&path).unwrap();
    let daemon = UnixDatagram::bind(&path).unwrap();
    assert_eq!(offer(&mut socket, "two\n", NOON).unwrap(), 4);
    assert_eq!(text_of(&receive(&daemon)), "two");
}

#[test]
fn looks_for_a_daemon_that_is_gone_once_a_second() {
    let (_dir, path) = place();
    let (daemon, mut socket) = connected(&path);
    drop(daemon);
    let fault = offer(&mut socket, "one\n", NOON).unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::ConnectionRefused);
    std::fs::remove_file(&path).unwrap();
    let daemon = UnixDatagram::bind(&path).unwrap();
    let fault = offer(&mut socket, "one\n", NOON + SECOND - 1).unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(offer(&mut socket, "one\n", NOON + SECOND).unwrap(), 4);
    assert_eq!(text_of(&receive(&daemon)), "one");

    drop(daemon);
    std::fs::remove_file(&path).unwrap();
    let fault = offer(&mut socket, "two\n", NOON + 2 * SECOND).unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::NotFound);
    let daemon = UnixDatagram::bind(&path).unwrap();
    assert_eq!(
        offer(&mut socket, "two\n", NOON).unwrap(),
        4,
        "clock set back"
    );
    assert_eq!(text_of(&receive(&daemon)), "two");
}

#[test]
fn names_the_socket_that_is_missing_at_the_start() {
    let (_dir, path) = place();
    let fault = SyslogSocket::connect(&path, 16, "access").unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::NotFound);
    let name = path.display().to_string();
    assert!(fault.to_string().starts_with(&name), "{fault}");
}

#[test]
fn speaks_to_a_stream_with_a_zero_after_each_message() {
    let (_dir, path) = place();
    let (_listener, mut socket, mut daemon) = accepted(&path);
    assert_eq!(offer(&mut socket, "one\ntwo\n", NOON).unwrap(), 8);
    drop(socket);
    let mut all = String::new();
    daemon.read_to_string(&mut all).unwrap();
    let texts: Vec<&str> = all.split_terminator('\0').map(text_of).collect();
    assert_eq!(texts, ["one", "two"]);
}

#[test]
fn finishes_on_a_stream_what_it_began() {
    let (_dir, path) = place();
    let (_listener, mut socket, mut daemon) = accepted(&path);
    daemon.set_nonblocking(true).unwrap();
    narrow(&socket);
    let line = |number: usize| format!("{number} {}\n", "x".repeat(5_000));
    let text: String = (0..40).map(line).collect();
    let (mut taken, mut all, mut wall_ns, mut stuck) = (0, Vec::new(), NOON, 0);
    while taken < text.len() {
        // Times differ, and with them the heads of a message that is given again.
        wall_ns += SECOND;
        let bytes = offer(&mut socket, &text[taken..], wall_ns).unwrap();
        let SyslogLink::Stream { unsent, .. } = &socket.link else {
            panic!("no stream");
        };
        stuck += usize::from(!unsent.message.is_empty());
        taken += bytes;
        let mut piece = vec![0; 7_000];
        if let Ok(bytes) = daemon.read(&mut piece) {
            all.extend_from_slice(&piece[..bytes]);
        }
    }
    assert!(stuck > 0, "no message went in part");
    drop(socket);
    daemon.set_nonblocking(false).unwrap();
    daemon.read_to_end(&mut all).unwrap();
    let all = String::from_utf8(all).unwrap();
    let texts: String = all
        .split_terminator('\0')
        .map(|message| text_of(message).to_owned() + "\n")
        .collect();
    assert!(texts == text, "lines are missing or torn");
}

#[test]
fn sends_a_message_again_whose_stream_broke() {
    let (_dir, path) = place();
    let (listener, mut socket, daemon) = accepted(&path);
    narrow(&socket);
    let text: String = (0..20)
        .map(|number| format!("{number} {}\n", "x".repeat(5_000)))
        .collect();
    let taken = offer(&mut socket, &text, NOON).unwrap();
    assert!(taken < text.len());
    drop(daemon);
    let next = text[taken..].split('\n').next().unwrap();
    let taken_now = offer(&mut socket, &format!("{next}\n"), NOON).unwrap();
    assert_eq!(taken_now, next.len() + 1);
    let (mut daemon, _): (UnixStream, _) = listener.accept().unwrap();
    drop(socket);
    let mut all = String::new();
    daemon.read_to_string(&mut all).unwrap();
    let texts: Vec<&str> = all.split_terminator('\0').map(text_of).collect();
    assert_eq!(texts, [next]);
}

#[test]
fn is_not_inherited_and_does_not_block() {
    let (_dir, path) = place();
    let (_daemon, socket) = connected(&path);
    let SyslogLink::Datagrams(fd) = &socket.link else {
        panic!("no datagrams");
    };
    let flags = rustix::io::fcntl_getfd(fd).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let flags = rustix::fs::fcntl_getfl(fd).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
}
