//! The floor of a proxy: what the kernel alone costs. One thread, one level-triggered epoll, connections kept on both
//! sides; each `recv` is followed by one `send` to the other side. Of a message only its end is looked for: the end of its
//! head, and of a response the `Content-Length`.
//!
//! Takes `milepost-relay PORT UPSTREAM_PORT`; listens on 127.0.0.1 until it is killed. It is right only for requests
//! without a body that arrive in one piece, and for responses that fit into the socket of their client.
//! Must not grow: whatever is added here raises the floor that proxies are held against.

use std::io::Result;
use std::os::raw::c_int;
use std::process::exit;

use milepost_floor::{
    EVENTS_MAX, accept, close, connect, epoll, listen, receive, send_all, wait, watch,
};

const PIECE_BYTES: usize = 64 * 1024;
const LENGTH: &[u8] = b"\r\nContent-Length: ";

/// A connection, by its descriptor.
#[derive(Clone, Copy)]
enum End {
    Free,
    /// A client, and the upstream that has its request.
    Client(Option<c_int>),
    /// A connection to the upstream that waits for its next request.
    Idle,
    /// A connection to the upstream, its client, and what is left of the response once its head has come.
    Busy(c_int, Option<usize>),
}

struct Relay {
    epoll: c_int,
    upstream_port: u16,
    ends: Vec<End>,
    idle: Vec<c_int>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let ports: Vec<u16> = arguments[1..]
        .iter()
        .flat_map(|port| port.parse())
        .collect();
    let [port, upstream_port] = ports[..] else {
        fail("usage: milepost-relay PORT UPSTREAM_PORT");
    };
    if let Err(cause) = serve(port, upstream_port) {
        fail(&cause.to_string());
    }
}

fn fail(what: &str) -> ! {
    eprintln!("milepost-relay: {what}");
    exit(2)
}

fn serve(port: u16, upstream_port: u16) -> Result<()> {
    let listener = listen(port)?;
    let epoll = epoll()?;
    watch(epoll, listener)?;
    let mut relay = Relay {
        epoll,
        upstream_port,
        ends: Vec::new(),
        idle: Vec::new(),
    };
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        for event in wait(epoll, &mut events) {
            let fd = event.u64 as c_int;
            if fd != listener {
                relay.pass(fd, &mut piece)?;
            } else if let Some(client) = accept(epoll, listener)? {
                relay.set(client, End::Client(None));
            }
        }
    }
}

impl Relay {
    /// Passes on what can be read at `fd`.
    fn pass(&mut self, fd: c_int, piece: &mut [u8]) -> Result<()> {
        let end = self.ends[fd as usize];
        // Its event came before the one that closed it.
        if matches!(end, End::Free) {
            return Ok(());
        }
        let bytes = usize::try_from(receive(fd, piece)).unwrap_or(0);
        let piece = &piece[..bytes];
        match end {
            End::Client(None) if piece.ends_with(b"\r\n\r\n") => self.ask(fd, piece)?,
            End::Busy(client, left) if bytes > 0 => self.answer(fd, client, left, piece),
            _ => self.end(fd),
        }
        Ok(())
    }

    fn ask(&mut self, client: c_int, request: &[u8]) -> Result<()> {
        let upstream = match self.idle.pop() {
            Some(upstream) => upstream,
            None => connect(self.epoll, self.upstream_port)?,
        };
        self.set(upstream, End::Busy(client, None));
        self.set(client, End::Client(Some(upstream)));
        if !send_all(upstream, request) {
            self.end(upstream);
        }
        Ok(())
    }

    fn answer(&mut self, upstream: c_int, client: c_int, left: Option<usize>, piece: &[u8]) {
        let Some(whole) = left.or_else(|| response_bytes(piece)) else {
            return self.end(upstream);
        };
        let left = whole.saturating_sub(piece.len());
        if !send_all(client, piece) {
            return self.end(upstream);
        }
        self.set(upstream, End::Busy(client, Some(left)));
        if left == 0 {
            self.set(upstream, End::Idle);
            self.set(client, End::Client(None));
            self.idle.push(upstream);
        }
    }

    /// Closes a connection, and the one on the other side that has to do with it.
    fn end(&mut self, fd: c_int) {
        let other = match self.ends[fd as usize] {
            End::Client(other) => other,
            End::Busy(client, _) => Some(client),
            End::Idle => {
                self.idle.retain(|idle| *idle != fd);
                None
            }
            End::Free => None,
        };
        for fd in [Some(fd), other].into_iter().flatten() {
            self.set(fd, End::Free);
            close(fd);
        }
    }

    fn set(&mut self, fd: c_int, end: End) {
        let place = fd as usize;
        if place >= self.ends.len() {
            self.ends.resize(place + 1, End::Free);
        }
        self.ends[place] = end;
    }
}

/// The bytes of the whole response, by its head; `None`: its head is not whole, or has no length.
fn response_bytes(piece: &[u8]) -> Option<usize> {
    let find = |word: &[u8]| piece.windows(word.len()).position(|found| found == word);
    let head_bytes = find(b"\r\n\r\n")? + 4;
    let mut digits = piece[find(LENGTH)? + LENGTH.len()..].split(|byte| *byte == b'\r');
    let length: usize = std::str::from_utf8(digits.next()?).ok()?.parse().ok()?;
    Some(head_bytes + length)
}
