//! Faults: how much of a reply each call sends, as a test wants it. Only compiled with the feature `faults`.
//!
//! Takes a plan for the connection of one client; the two calls through which every byte of a reply leaves
//! ask it before they go to the kernel. What a plan decides depends on its seed and the number of the call
//! alone, so a run can be repeated.
//!
//! A socket that only pretends to be full would never tell that it has room again: its watchers wait for an
//! edge, and nothing has changed. So each pretence ends with the kernel telling them anew.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::SockRef;

#[cfg(not(debug_assertions))]
compile_error!("the feature `faults` is for tests: it has no place in an optimised build");

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The kernel decides.
    Whole,
    /// At most so many bytes (not 0) are taken.
    Bytes(usize),
    /// Nothing is taken: the socket seems to be full.
    Full,
    /// The connection is reset, for both ends.
    Reset,
    /// All is taken, and a byte more is said to be: what no kernel does, and an invariant excludes.
    Beyond,
}

/// How the calls of a plan differ from what the kernel would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    /// Not at all.
    Plain,
    /// The first call takes at most so many bytes (not 0).
    First(usize),
    /// A single byte a call, for so many calls.
    Bytewise(u64),
    /// For so many calls a mixture of everything but resets; its proportions go by the seed.
    Mixed(u64),
    /// The first call claims more than it was offered.
    Beyond,
}

/// The fates of all calls for one connection.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    temper: Temper,
    reset_at: u64,
}

/// Calls after which a mixture takes larger bites, so that a large reply ends some day.
const SMALL_BITES: u64 = 300;

impl Plan {
    /// A plan without a reset.
    pub fn new(temper: Temper, seed: u64) -> Self {
        Self {
            seed,
            temper,
            reset_at: u64::MAX,
        }
    }

    /// The same with a reset in place of call `step`; the first is 0.
    pub fn reset_at(self, step: u64) -> Self {
        Self {
            reset_at: step,
            ..self
        }
    }

    /// The fate of call `step`.
    pub fn fate(&self, step: u64) -> Fate {
        match self.temper {
            _ if step == self.reset_at => Fate::Reset,
            Temper::First(bytes) if step == 0 => Fate::Bytes(bytes),
            Temper::Beyond if step == 0 => Fate::Beyond,
            Temper::Bytewise(calls) if step < calls => Fate::Bytes(1),
            Temper::Mixed(calls) if step < calls => self.mixed(step),
            Temper::Plain
            | Temper::First(_)
            | Temper::Bytewise(_)
            | Temper::Mixed(_)
            | Temper::Beyond => Fate::Whole,
        }
    }

    fn mixed(&self, step: u64) -> Fate {
        // Of sixteen calls, how many seem to find a full socket, and how many are cut short.
        let (full, cut) = match self.seed % 4 {
            0 => (1, 2),
            1 => (8, 1),
            2 => (2, 13),
            _ => (5, 5),
        };
        let dice = scramble(self.seed.wrapping_add(scramble(step)));
        let (kind, size) = (dice % 16, dice >> 8);
        if kind < full {
            return Fate::Full;
        }
        if kind >= full + cut {
            return Fate::Whole;
        }
        let most = match size % 4 {
            0 if step < SMALL_BITES => 1,
            1 if step < SMALL_BITES => 40,
            2 if step < SMALL_BITES => 2_000,
            _ => 100_000,
        };
        let bytes = 1 + (size >> 8) % most;
        Fate::Bytes(usize::try_from(bytes).expect("at most 100,000"))
    }
}

/// The finalizer of SplitMix64: neighbouring numbers become unrelated ones.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct Course {
    plan: Plan,
    /// Calls so far.
    steps: u64,
}

type Courses = HashMap<SocketAddr, Course>;

static COURSES: LazyLock<Mutex<Courses>> = LazyLock::new(Mutex::default);

fn courses() -> MutexGuard<'static, Courses> {
    COURSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan that is in force until this is dropped.
pub struct Planned {
    client: SocketAddr,
}

/// Puts a plan in force for the connection from `client`, the client's own address; its calls are counted
/// from 0. Do it before anything is sent to the client.
pub fn plan(client: SocketAddr, plan: Plan) -> Planned {
    courses().insert(client, Course { plan, steps: 0 });
    Planned { client }
}

impl Planned {
    /// Calls so far.
    pub fn steps(&self) -> u64 {
        courses().get(&self.client).map_or(0, |course| course.steps)
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        courses().remove(&self.client);
    }
}

/// Makes `call`, which offers at most as many bytes as it is told (and claims those beyond `offered`), as the plan for the socket's client wants
/// it; `full` is how it says that the socket took nothing. `offered`: bytes that it offers by itself.
pub(super) fn meet<T>(
    socket: BorrowedFd<'_>,
    offered: usize,
    full: T,
    call: impl FnOnce(usize) -> io::Result<T>,
) -> io::Result<T> {
    match next(socket) {
        Fate::Whole => call(offered),
        Fate::Beyond => call(offered + 1),
        Fate::Bytes(bytes) if bytes >= offered => call(offered),
        Fate::Bytes(bytes) => {
            let taken = call(bytes)?;
            tell_room(socket)?;
            Ok(taken)
        }
        Fate::Full => {
            tell_room(socket)?;
            Ok(full)
        }
        Fate::Reset => {
            rustix::net::connect_unspec(socket)?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
}

/// The first `most` bytes of `buffers`.
pub(super) fn first<'b>(buffers: &'b [IoSlice<'_>], mut most: usize) -> Vec<IoSlice<'b>> {
    let mut cut = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let bytes = buffer.len().min(most);
        most -= bytes;
        cut.push(IoSlice::new(&buffer[..bytes]));
    }
    cut
}

fn next(socket: BorrowedFd<'_>) -> Fate {
    let client = SockRef::from(&socket).peer_addr();
    let Some(client) = client.ok().and_then(|client| client.as_socket()) else {
        return Fate::Whole;
    };
    let mut courses = courses();
    let Some(course) = courses.get_mut(&client) else {
        return Fate::Whole;
    };
    course.steps += 1;
    course.plan.fate(course.steps - 1)
}

/// Has the kernel tell whoever watches the socket that there is room: now if there is, else as soon as there
/// will be.
fn tell_room(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Asking marks a socket that is really full as one that somebody waits for.
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    rustix::event::poll(&mut asked, Some(&Timespec::default()))?;
    // Linux calls the socket's watchers when this is set (tcp_setsockopt, TCP_NOTSENT_LOWAT: sk_write_space);
    // 0 is what it was: the system's default.
    SockRef::from(&socket).set_tcp_notsent_lowat(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fate_depends_on_seed_and_step_alone() {
        for seed in 0..20 {
            let plan = Plan::new(Temper::Mixed(1000), seed).reset_at(500);
            let fates: Vec<Fate> = (0..1000).map(|step| plan.fate(step)).collect();
            let again: Vec<Fate> = (0..1000).map(|step| plan.fate(step)).collect();
            assert_eq!(fates, again);
            assert_eq!(fates[500], Fate::Reset);
            assert!(!fates.contains(&Fate::Bytes(0)));
            for wanted in [Fate::Whole, Fate::Full, Fate::Bytes(1)] {
                assert!(fates.contains(&wanted), "{wanted:?} with seed {seed}");
            }
        }
    }

    #[test]
    fn a_socket_that_pretends_to_be_full_tells_that_it_has_room() {
        use rustix::event::epoll;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let planned = plan(
            client.local_addr().unwrap(),
            Plan::new(Temper::Bytewise(u64::MAX), 0),
        );
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watched = epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&poll, &server, epoll::EventData::new_u64(1), watched).unwrap();
        let edges = || {
            let mut events = Vec::with_capacity(4);
            let none = Timespec::default();
            epoll::wait(
                &poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&none),
            )
            .unwrap()
        };
        assert_eq!((edges(), edges()), (1, 0), "the first edge, and no second");
        for step in 1..5 {
            let sent = super::super::send(
                &server,
                &[IoSlice::new(b"abc")],
                rustix::net::SendFlags::empty(),
            )
            .unwrap();
            assert_eq!((sent, edges(), edges(), planned.steps()), (1, 1, 0, step));
        }
    }
}
