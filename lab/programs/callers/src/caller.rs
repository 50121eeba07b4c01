//! One client: it connects, asks, judges the reply, and asks again or connects anew. Nothing is tried twice:
//! what does not get its whole right reply is lost, and of one class.
//!
//! ```text
//!          ┌────────────── due ──────────────┐ (kept connection, still open)
//! Free ──due──► Connecting ──writable──► Waiting ──whole, kept──► Free
//!   ▲               │ fault                │ fault    │ whole, closes
//!   └───────────────┴──────────────────────┴──────── Ending ◄┘
//! ```
//!
//! A request on a kept connection that the server has ended meanwhile, without a word before, is lost, and of
//! a class of its own: a client that looks before it asks would have connected anew, one that does not would
//! not know whether it may try again (RFC 9112 section 9.3.1). Takes times, gives what happened; must not wait.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::plan::{Group, Kind, Plan};
use crate::reply::{Judged, Whole, judge};
use crate::results::{Class, Fault, Results};

/// After a lost request a client pauses so long: a closed port would be asked without end.
const SORE: Duration = Duration::from_millis(10);
const SCRATCH_BYTES: usize = 16 * 1024;

/// What a client is doing.
enum State {
    /// Nothing; with its kept connection.
    Free(Option<Link>),
    Connecting(Link, Times),
    Waiting(Link, Times),
    /// The whole reply is there; the server ends the connection.
    Ending(Link, Instant),
}

struct Link {
    socket: Socket,
    received: Vec<u8>,
    /// Requests so far.
    asked: u32,
    /// The process that answered last.
    pid: u32,
}

/// When a request was due, and when its connection was begun, or it was sent on a kept one.
#[derive(Clone, Copy)]
struct Times {
    due: Instant,
    since: Instant,
}

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Something is awaited.
    Wait,
    /// The client is free, and rests until then.
    FreeFrom(Instant),
}

/// What reading has come to.
enum Came {
    NoMore,
    End,
    Reset,
}

/// What clients need of each other's world.
pub struct World<'a> {
    pub plan: &'a Plan,
    pub results: &'a mut Results,
    pub now: Instant,
    /// The time on the monotonic clock of an instant, in seconds.
    pub clock_s: &'a dyn Fn(Instant) -> f64,
    /// A new connection of the client with this number, under way.
    pub connect: &'a mut dyn FnMut() -> io::Result<Socket>,
    /// A share, 0 to 2, of a pause.
    pub chance: f64,
}

pub struct Caller {
    group: Group,
    state: State,
}

impl Caller {
    pub fn new(group: Group) -> Caller {
        Caller {
            group,
            state: State::Free(None),
        }
    }

    pub fn is_free(&self) -> bool {
        matches!(self.state, State::Free(_))
    }

    pub fn kind(&self) -> Kind {
        self.group.kind
    }

    /// Asks; only a free one can.
    pub fn ask(&mut self, due: Instant, world: &mut World<'_>) -> Next {
        let State::Free(kept) = std::mem::replace(&mut self.state, State::Free(None)) else {
            unreachable!("the loop asks free clients only");
        };
        let times = Times {
            due,
            since: world.now,
        };
        if let Some(link) = kept {
            if is_open(&link.socket) {
                return self.send(link, times, world);
            }
            return self.lose(Class::Stale, times, link.pid, world);
        }
        match (world.connect)() {
            Ok(socket) => {
                world.results.of(self.group.kind).connections += 1;
                let link = Link {
                    socket,
                    received: Vec::new(),
                    asked: 0,
                    pid: 0,
                };
                self.state = State::Connecting(link, times);
                Next::Wait
            }
            Err(cause) => self.lose(connect_class(&cause), times, 0, world),
        }
    }

    /// Something has happened on its connection.
    pub fn step(&mut self, world: &mut World<'_>) -> Next {
        match std::mem::replace(&mut self.state, State::Free(None)) {
            // Whatever it is, its next request will meet it.
            free @ State::Free(_) => {
                self.state = free;
                Next::Wait
            }
            State::Connecting(link, times) => match link.socket.take_error() {
                Ok(None) => self.send(link, times, world),
                Ok(Some(cause)) | Err(cause) => self.lose(connect_class(&cause), times, 0, world),
            },
            State::Waiting(link, times) => self.receive(link, times, world),
            State::Ending(mut link, since) => match read(&mut link) {
                Came::NoMore if link.received.is_empty() => {
                    self.state = State::Ending(link, since);
                    Next::Wait
                }
                Came::End if link.received.is_empty() => self.rest(None, world),
                _ => self.end_badly(world),
            },
        }
    }

    /// Gives up what is too late.
    pub fn look(&mut self, world: &mut World<'_>) -> Next {
        let patience = world.plan.patience;
        let late = |since: &Instant| world.now.duration_since(*since) > patience;
        match &self.state {
            State::Connecting(_, times) if late(&times.since) => {
                let times = *times;
                self.lose(Class::ConnectTimeout, times, 0, world)
            }
            State::Waiting(link, times) if late(&times.since) => {
                let (times, pid) = (*times, link.pid);
                self.lose(Class::Timeout, times, pid, world)
            }
            State::Ending(_, since) if late(since) => self.end_badly(world),
            _ => Next::Wait,
        }
    }

    fn send(&mut self, mut link: Link, times: Times, world: &mut World<'_>) -> Next {
        let end = match self.group.kind {
            Kind::Short => "Connection: close\r\n",
            Kind::Keep => "",
        };
        let (path, port) = (&world.plan.path, world.plan.port);
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{end}\r\n");
        match link.socket.write(request.as_bytes()) {
            Ok(sent) if sent == request.len() => {
                link.asked += 1;
                self.state = State::Waiting(link, times);
                Next::Wait
            }
            // The handshake is under way still.
            Err(cause) if link.asked == 0 && is_early(&cause) => {
                self.state = State::Connecting(link, times);
                Next::Wait
            }
            _ => self.lose(Class::Reset, times, link.pid, world),
        }
    }

    fn receive(&mut self, mut link: Link, times: Times, world: &mut World<'_>) -> Next {
        let came = read(&mut link);
        match (judge(&link.received, world.plan.body_bytes), came) {
            (Judged::Whole(whole), came) => self.take(link, &whole, &came, times, world),
            (Judged::Wrong, _) => self.lose(Class::Wrong, times, link.pid, world),
            (Judged::Partial, Came::NoMore) => {
                self.state = State::Waiting(link, times);
                Next::Wait
            }
            (Judged::Partial, came) => {
                let class = match came {
                    _ if !link.received.is_empty() => Class::Short,
                    Came::Reset => Class::Reset,
                    _ => Class::Closed,
                };
                self.lose(class, times, link.pid, world)
            }
        }
    }

    fn take(
        &mut self,
        mut link: Link,
        whole: &Whole,
        came: &Came,
        times: Times,
        world: &mut World<'_>,
    ) -> Next {
        let counts = world.results.of(self.group.kind);
        counts.answered += 1;
        counts.latencies.add(world.now.duration_since(times.due));
        if whole.pid != 0 {
            *world.results.pids.entry(whole.pid).or_default() += 1;
            link.pid = whole.pid;
        }
        link.received.clear();
        let is_last = self.group.requests == link.asked;
        match came {
            Came::Reset => self.end_badly(world),
            Came::End if self.group.kind == Kind::Short || whole.closes => self.rest(None, world),
            Came::NoMore if self.group.kind == Kind::Short || whole.closes => {
                self.state = State::Ending(link, world.now);
                Next::Wait
            }
            Came::NoMore | Came::End => self.rest(Some(link).filter(|_| !is_last), world),
        }
    }

    fn rest(&mut self, kept: Option<Link>, world: &World<'_>) -> Next {
        self.state = State::Free(kept);
        Next::FreeFrom(world.now + self.group.rest.mul_f64(world.chance))
    }

    fn end_badly(&mut self, world: &mut World<'_>) -> Next {
        world.results.of(self.group.kind).ended_badly += 1;
        self.rest(None, world)
    }

    fn lose(&mut self, class: Class, times: Times, pid: u32, world: &mut World<'_>) -> Next {
        world.results.lose(Fault {
            kind: self.group.kind,
            class,
            began_s: (world.clock_s)(times.since),
            ended_s: (world.clock_s)(world.now),
            pid,
        });
        self.state = State::Free(None);
        Next::FreeFrom(world.now + SORE)
    }
}

/// Takes in all there is: the next edge tells of what comes later only.
fn read(link: &mut Link) -> Came {
    let mut scratch = [0; SCRATCH_BYTES];
    loop {
        match link.socket.read(&mut scratch) {
            Ok(0) => return Came::End,
            Ok(bytes) => link.received.extend_from_slice(&scratch[..bytes]),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Came::NoMore,
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Came::Reset,
        }
    }
}

/// Whether nothing has come on a connection that nothing was asked on.
fn is_open(socket: &Socket) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    matches!(socket.peek(&mut byte), Err(cause) if cause.kind() == ErrorKind::WouldBlock)
}

fn is_early(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

fn connect_class(cause: &io::Error) -> Class {
    match cause.kind() {
        ErrorKind::ConnectionRefused => Class::ConnectRefused,
        ErrorKind::ConnectionReset => Class::ConnectReset,
        ErrorKind::TimedOut => Class::ConnectTimeout,
        _ => Class::ConnectOther,
    }
}
