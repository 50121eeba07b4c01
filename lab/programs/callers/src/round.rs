//! The loop: which caller acts next, by readiness, by time, and by the rate that is to be kept. One thread. Takes a
//! plan, gives the results; the standard input may end it early, and each line there is answered by the
//! counts so far.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use socket2::{Domain, Socket, Type};

use crate::caller::{Caller, Next, World};
use crate::plan::{Group, Kind, Plan};
use crate::results::{Results, WithFaults};

/// How often late replies are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const EVENTS_LEN: usize = 256;
/// Sources of 127.0.0.0/8 that connections come from by turns: no run uses up the ports of one, nor those
/// that a run before has left waiting.
const SOURCES: u32 = 200 * 250 * 250;
const STDIN: u64 = u64::MAX;

/// Clients, and everything that they share.
pub struct Round<'a> {
    plan: &'a Plan,
    epoll: std::os::fd::OwnedFd,
    callers: Vec<Caller>,
    /// How often a client has connected: events of its connections before are not about it any more.
    turns: Vec<u32>,
    queues: [Queue; 2],
    results: Results,
    began: Instant,
    began_clock_s: f64,
    connections: u32,
    dice: u64,
    is_over: bool,
}

/// Free clients of one kind.
struct Queue {
    group: Group,
    /// Who may ask when, where each asks when it may.
    resting: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Who is free, where a rate is kept.
    free: VecDeque<usize>,
    /// Requests of the rate that have been given to a client.
    given: u32,
}

impl Queue {
    fn put(&mut self, index: usize, from: Instant) {
        match self.group.rate {
            0 => self.resting.push(Reverse((from, index))),
            _ => self.free.push_back(index),
        }
    }

    /// Callers that may act, and since when.
    fn next(&mut self, began: Instant, until: Instant, now: Instant) -> Option<(usize, Instant)> {
        if self.group.rate == 0 {
            // Due when it is sent: a closed loop has no rate that it could miss.
            let turn = self.resting.peek_mut().filter(|turn| turn.0.0 <= now)?;
            return Some((PeekMut::pop(turn).0.1, now));
        }
        let due = self.due(began);
        if due > now || due >= until {
            return None;
        }
        let index = self.free.pop_front()?;
        self.given += 1;
        Some((index, due))
    }

    fn due(&self, began: Instant) -> Instant {
        began + Duration::from_secs(1).mul_f64(f64::from(self.given) / f64::from(self.group.rate))
    }

    /// When the next caller may act, unless an event comes before.
    fn wakes(&self, began: Instant) -> Option<Instant> {
        match self.group.rate {
            0 => self.resting.peek().map(|Reverse((from, _))| *from),
            _ if self.free.is_empty() => None,
            _ => Some(self.due(began)),
        }
    }

    /// Requests that were due by then, and found no free caller.
    fn unsent(&self, began: Instant, until: Instant) -> u64 {
        let due = (until - began).as_secs_f64() * f64::from(self.group.rate);
        (due as u64).saturating_sub(self.given.into())
    }
}

/// Runs the plan to its end.
///
/// # Errors
/// The kernel refuses what no run can do without.
pub fn run(plan: &Plan) -> io::Result<String> {
    let mut round = Round::new(plan)?;
    say("ready")?;
    round.serve()?;
    let ended = Instant::now();
    for place in 0..round.queues.len() {
        let unsent = round.queues[place].unsent(round.began, ended.min(round.began + plan.lasts));
        let kind = round.queues[place].group.kind;
        round.results.of(kind).unsent = unsent;
    }
    round.finish()?;
    Ok(round
        .results
        .line((ended - round.began).as_secs_f64(), WithFaults::Yes))
}

impl<'a> Round<'a> {
    fn new(plan: &'a Plan) -> io::Result<Round<'a>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // A file, or nothing, cannot be waited for: then the run has its whole time.
        let _ = epoll::add(
            &epoll,
            io::stdin().as_fd(),
            EventData::new_u64(STDIN),
            EventFlags::IN,
        );
        let clock = clock_gettime(ClockId::Monotonic);
        let (began, began_clock_s) = (
            Instant::now(),
            clock.tv_sec as f64 + clock.tv_nsec as f64 * 1e-9,
        );
        let mut round = Round {
            plan,
            epoll,
            callers: Vec::new(),
            turns: Vec::new(),
            queues: plan.groups.map(|group| Queue {
                group,
                resting: BinaryHeap::new(),
                free: VecDeque::new(),
                given: 0,
            }),
            results: Results::default(),
            began,
            began_clock_s,
            connections: clock.tv_nsec as u32 % SOURCES,
            dice: clock.tv_nsec as u64 | 1,
            is_over: false,
        };
        for group in plan.groups {
            for _ in 0..group.clients {
                let index = round.callers.len();
                round.callers.push(Caller::new(group));
                round.turns.push(0);
                round.queue(group.kind).put(index, began);
            }
        }
        Ok(round)
    }

    fn queue(&mut self, kind: Kind) -> &mut Queue {
        match kind {
            Kind::Short => &mut self.queues[0],
            Kind::Keep => &mut self.queues[1],
        }
    }

    /// Until the time is over, or the standard input.
    fn serve(&mut self) -> io::Result<()> {
        let until = self.began + self.plan.lasts;
        let mut looked = self.began;
        while !self.is_over && Instant::now() < until {
            let wakes = self
                .queues
                .iter()
                .filter_map(|queue| queue.wakes(self.began))
                .min();
            self.wait(wakes.unwrap_or(until).min(looked + LOOK_EVERY))?;
            looked = self.look(looked);
            for place in 0..self.queues.len() {
                while let Some((index, due)) =
                    self.queues[place].next(self.began, until, Instant::now())
                {
                    self.act(index, |caller, world| caller.ask(due, world));
                }
            }
        }
        Ok(())
    }

    /// Callers under way come to their ends; none asks anew.
    fn finish(&mut self) -> io::Result<()> {
        let mut looked = Instant::now();
        while self.callers.iter().any(|caller| !caller.is_free()) {
            self.wait(looked + LOOK_EVERY)?;
            looked = self.look(looked);
        }
        Ok(())
    }

    fn wait(&mut self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut events = Vec::with_capacity(EVENTS_LEN);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        for event in events {
            let data = event.data.u64();
            if data == STDIN {
                self.listen()?;
                continue;
            }
            let (index, turn) = (data as u32 as usize, (data >> 32) as u32);
            if self.turns[index] == turn {
                self.act(index, Caller::step);
            }
        }
        Ok(())
    }

    fn look(&mut self, looked: Instant) -> Instant {
        let now = Instant::now();
        if now < looked + LOOK_EVERY {
            return looked;
        }
        for index in 0..self.callers.len() {
            if !self.callers[index].is_free() {
                self.act(index, Caller::look);
            }
        }
        now
    }

    fn act(&mut self, index: usize, act: impl FnOnce(&mut Caller, &mut World<'_>) -> Next) {
        let (began, began_clock_s, port) = (self.began, self.began_clock_s, self.plan.port);
        let (epoll, turn, connections) =
            (&self.epoll, &mut self.turns[index], &mut self.connections);
        let mut connect = || {
            *connections = (*connections + 1) % SOURCES;
            *turn = turn.wrapping_add(1);
            connected(
                epoll,
                port,
                *connections,
                index as u64 | u64::from(*turn) << 32,
            )
        };
        // xorshift64 (Marsaglia 2003).
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let mut world = World {
            plan: self.plan,
            results: &mut self.results,
            now: Instant::now(),
            clock_s: &|at: Instant| {
                began_clock_s + at.saturating_duration_since(began).as_secs_f64()
            },
            connect: &mut connect,
            chance: (self.dice >> 32) as f64 / f64::from(u32::MAX) * 2.0,
        };
        let next = act(&mut self.callers[index], &mut world);
        if let Next::FreeFrom(from) = next {
            let kind = self.callers[index].kind();
            self.queue(kind).put(index, from);
        }
    }

    fn listen(&mut self) -> io::Result<()> {
        let mut scratch = [0; 256];
        let bytes = rustix::io::read(io::stdin().as_fd(), &mut scratch)?;
        if bytes == 0 {
            self.is_over = true;
            epoll::delete(&self.epoll, io::stdin().as_fd())?;
        }
        for _ in scratch[..bytes].iter().filter(|byte| **byte == b'\n') {
            say(&self
                .results
                .line(self.began.elapsed().as_secs_f64(), WithFaults::No))?;
        }
        Ok(())
    }
}

/// A connection under way, from the source of this number.
fn connected(epoll: impl AsFd, port: u16, number: u32, data: u64) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), None)?;
    let [first, second, third] = [number / 62_500, number / 250 % 250, number % 250];
    let source = Ipv4Addr::new(127, 2 + first as u8, 1 + second as u8, 1 + third as u8);
    socket.bind(&SocketAddr::V4(SocketAddrV4::new(source, 0)).into())?;
    socket.set_tcp_nodelay(true)?;
    let server = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    match socket.connect(&server.into()) {
        Err(cause)
            if cause.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            return Err(cause);
        }
        _ => {}
    }
    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, &socket, EventData::new_u64(data), interest)?;
    Ok(socket)
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;

    const RIGHT: &str = "HTTP/1.1 200 OK\r\nX-Pid: 7\r\nContent-Length: 3\r\n\r\nxxx";

    /// What a server does with a connection, once it has read a request.
    type Behaviour = fn(&mut TcpStream);

    fn answer(stream: &mut TcpStream, text: &str) {
        stream.write_all(text.as_bytes()).unwrap();
    }

    fn await_request(stream: &mut TcpStream) -> usize {
        stream.read(&mut [0; 4096]).unwrap_or(0)
    }

    fn reset(stream: &mut TcpStream) {
        let socket = Socket::from(stream.try_clone().unwrap());
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// One request of one client against a server that does `behaviour`; the results must hold all of `expect`.
    fn check(words: &str, behaviour: Behaviour, expect: &[&str]) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Ends with the test's process, as does the listener, where a client comes no more.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if await_request(&mut stream) > 0 {
                    behaviour(&mut stream);
                }
            }
        });
        let words = format!("{port} / 1 bytes=3 {words}");
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        let results = run(&crate::plan::read(&words).unwrap()).unwrap();
        for part in expect {
            assert!(results.contains(part), "{part} is not in {results}");
        }
    }

    #[test]
    fn counts_every_loss_in_its_class() {
        let lost = "\"lost\": 1";
        let short = "short=1 short-rate=1 patience=1";
        check(
            short,
            |stream| answer(stream, RIGHT),
            &["\"answered\": 1, \"lost\": 0", "{\"7\": 1}"],
        );
        check(
            short,
            |stream| stream.shutdown(Shutdown::Both).unwrap(),
            &[lost, "\"closed\": 1"],
        );
        check(short, reset, &[lost, "\"reset\": 1"]);
        check(
            short,
            |stream| answer(stream, &RIGHT[..30]),
            &[lost, "\"short\": 1"],
        );
        check(
            short,
            |stream| answer(stream, "HTTP/1.1 503 No"),
            &[lost, "\"wrong\": 1"],
        );
        check(short, |stream| answer(stream, "y"), &[lost, "\"wrong\": 1"]);
        check(short, hang_until_closed, &[lost, "\"timeout\": 1"]);
        let lingering: Behaviour = |stream| {
            answer(stream, RIGHT);
            hang_until_closed(stream);
        };
        check(
            short,
            lingering,
            &["\"answered\": 1, \"lost\": 0", "\"ended_badly\": 1"],
        );
    }

    fn hang_until_closed(stream: &mut TcpStream) {
        while await_request(stream) > 0 {}
    }

    #[test]
    fn counts_a_closed_port() {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let words = [&port.to_string(), "/", "1", "keep=1", "keep-rate=1"].map(String::from);
        let results = run(&crate::plan::read(&words).unwrap()).unwrap();
        assert!(results.contains("\"connect_refused\": 1"), "{results}");
    }

    #[test]
    fn loses_what_is_due_on_a_connection_that_ended_without_a_word() {
        let keep = "keep=1 keep-rate=3 patience=1";
        let silent: Behaviour = |stream| answer(stream, RIGHT);
        let lost = [
            "\"answered\": 2, \"lost\": 1, \"connections\": 2",
            "\"stale\": 1",
            "\"pid\": 7",
        ];
        check(keep, silent, &lost);
        let close: Behaviour =
            |stream| answer(stream, &RIGHT.replace("X-Pid: 7", "Connection: close"));
        check(
            keep,
            close,
            &["\"answered\": 3, \"lost\": 0, \"connections\": 3"],
        );
        // It takes the second request, and ends.
        let crossing: Behaviour = |stream| {
            answer(stream, RIGHT);
            await_request(stream);
        };
        check(
            keep,
            crossing,
            &[
                "\"answered\": 2, \"lost\": 1",
                "\"closed\": 1",
                "\"pid\": 7",
            ],
        );
    }
}
