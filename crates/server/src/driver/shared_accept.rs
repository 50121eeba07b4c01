//! The shared acceptor: one thread that accepts from sockets whose accept queue several drivers or processes
//! share, and gives each connection to the least loaded driver.
//!
//! Unix sockets cannot be shared by SO_REUSEPORT, and inherited ones are what they are. If every driver waited
//! for the same queue, each connection would wake them all; a readiness that only one waiter is told of
//! (EPOLLEXCLUSIVE) is only to be had from an epoll of one's own. The thread waits for these sockets, a bell, and
//! nothing else; it starts with the first socket and ends with the process's serving.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use logging::Level;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use super::acceptor::{AcceptOutcome, Acceptor, HANDSHAKE_GRACE};
use super::handoff::{AcceptedConnection, Bound};
use super::mailbox::{Command, Mailbox};
use super::shared::{ServingState, Shared};
use crate::sync::invariant;
use ipc::{ListenerId, ListenerInfo};

/// What the epoll calls the bell.
const BELL: u64 = u64::MAX;
/// Sockets looked at in one turn.
const EVENTS_LEN: usize = 16;
/// How long the thread sleeps after a batch while more connections wait: other processes have been told of them
/// as well, and need a moment to wake up.
const COURTESY: Duration = Duration::from_micros(100);
/// After so many turns in a row a batch is twice as large.
const SINGLE_TURNS: u32 = 16;

/// What other threads have of it.
pub(crate) struct SharedAcceptor {
    mailbox: Mailbox,
    /// Rung when there is something to look at.
    bell: OwnedFd,
    /// Set when the thread has ended, and gives no driver a connection any more: whether it did so in order.
    pub(super) ended: OnceLock<bool>,
}

/// Gives a socket to the thread that is to accept from it: the shared acceptor if it is shared, else the driver
/// of its key. In a process that accepts no more it is dropped.
///
/// # Errors
/// The thread of the shared acceptor could not be started.
pub(crate) fn start_accepting(
    shared: &Arc<Shared>,
    order: ListenerInfo,
    socket: OwnedFd,
) -> io::Result<()> {
    if order.is_shared {
        let start = || SharedAcceptor::start(shared);
        match shared.shared_acceptor.get_or_init(start) {
            Ok(acceptor) => acceptor.send(Command::StartAccepting(order, socket)),
            Err(error) => return Err(io::Error::new(error.kind(), error.to_string())),
        }
    } else if let Some(mailbox) = shared.mailboxes.get(usize::from(order.key.driver)) {
        mailbox.send(Command::StartAccepting(order, socket));
    }
    Ok(())
}

impl SharedAcceptor {
    fn start(shared: &Arc<Shared>) -> io::Result<Arc<Self>> {
        let acceptor = Arc::new(Self {
            mailbox: Mailbox::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            ended: OnceLock::new(),
        });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &acceptor.bell, bell, epoll::EventFlags::IN)?;
        let thread = AcceptThread {
            shared: Arc::clone(shared),
            acceptor: Arc::clone(&acceptor),
            epoll,
            listeners: Vec::new(),
            first: 0,
        };
        std::thread::Builder::new()
            .name("mp-accept".to_owned())
            .spawn(move || thread.run())?;
        Ok(acceptor)
    }

    pub(super) fn send(&self, command: Command) {
        self.mailbox.send(command);
        self.wake();
    }

    /// Lets the thread look around: there may be room, or the state may have changed.
    pub(super) fn wake(&self) {
        // The bell is full when it has been rung 2^64 - 2 times without being heard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// The thread's own things.
struct AcceptThread {
    shared: Arc<Shared>,
    acceptor: Arc<SharedAcceptor>,
    /// Has the number of each listener's descriptor as its data.
    epoll: OwnedFd,
    listeners: Vec<Acceptor<OwnedFd>>,
    /// Which driver is the first of those that are equally loaded.
    first: usize,
}

impl Acceptor<OwnedFd> {
    /// Which driver is named for a socket that all share says nothing.
    fn is(&self, key: ListenerId) -> bool {
        let own = self.order.key;
        (own.address, own.index) == (key.address, key.index)
    }

    fn number(&self) -> u64 {
        self.socket.as_raw_fd().unsigned_abs().into()
    }

    /// Connections accepted at once where turns are taken. A burst is shared one by one; where there is no end of
    /// connections each process has enough, and larger batches cost less.
    fn batch(&self, most: usize) -> usize {
        let batch = 1_usize.checked_shl(self.turns / SINGLE_TURNS);
        batch.map_or(most, |batch| batch.min(most))
    }
}

impl AcceptThread {
    fn run(mut self) {
        let serve = std::panic::AssertUnwindSafe(|| self.serve());
        let ended = std::panic::catch_unwind(serve);
        if let Ok(Err(error)) = &ended {
            let text = format!("cannot wait for connections: {error}");
            self.shared.log.error(Level::Error, &text);
        }
        // Acknowledgements are sent by their drop, outside of the mailbox's lock.
        while !self.acceptor.mailbox.close_if_empty() {
            drop(self.acceptor.mailbox.take());
        }
        let _ = self.acceptor.ended.set(matches!(ended, Ok(Ok(()))));
        self.shared.mailboxes.iter().for_each(Mailbox::wake);
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut rests = false;
        loop {
            let state = *self.shared.state.borrow();
            if state > ServingState::Running {
                // Sockets that came before have their last round as well.
                self.perform_commands();
                let listeners = std::mem::take(&mut self.listeners);
                if state < ServingState::Aborting {
                    self.last_round(listeners);
                }
                return Ok(());
            }
            if std::mem::take(&mut rests) || !self.shared.has_room() {
                // Only threads that wait in an epoll are told of connections exclusively: the kernel tells those of
                // other processes meanwhile.
                is_ready(&self.acceptor.bell, super::TICK);
                self.perform_commands();
                continue;
            }
            for number in self.wait()? {
                if number == BELL {
                    self.perform_commands();
                } else if self.accept_from(number)? == AcceptOutcome::Rest {
                    rests = true;
                }
            }
        }
    }

    fn perform_commands(&mut self) {
        let _ = rustix::io::read(&self.acceptor.bell, &mut [0; 8]);
        for command in self.acceptor.mailbox.take().0 {
            match command {
                // A socket that cannot be waited for is not worth those that can.
                Command::StartAccepting(order, socket) => {
                    let started = self.start_accepting(order, socket);
                    self.shared.log_unless_started(started);
                }
                Command::StopAccepting(key) => self.stop_accepting(key),
                Command::Acknowledge(ack) => drop(ack),
                Command::Serve(_) => invariant!(false, "only drivers are given connections"),
            }
        }
    }

    fn start_accepting(&mut self, order: ListenerInfo, socket: OwnedFd) -> io::Result<()> {
        if self.listeners.iter().any(|known| known.is(order.key)) {
            return Ok(());
        }
        let listener = Acceptor::new(&self.shared, order, socket, None)?;
        watch(&self.epoll, &listener)?;
        self.listeners.push(listener);
        Ok(())
    }

    fn stop_accepting(&mut self, key: ListenerId) {
        let stopped = self.listeners.extract_if(.., |listener| listener.is(key));
        let stopped: Vec<_> = stopped.collect();
        for listener in &stopped {
            // The epoll would keep a socket that is closed here as long as other processes have it.
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
        self.last_round(stopped);
    }

    /// Waits until a connection comes or the bell rings; gives the numbers of the sockets.
    fn wait(&self) -> io::Result<Vec<u64>> {
        let mut events = Vec::with_capacity(EVENTS_LEN);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events.iter().map(|event| event.data.u64()).collect())
    }

    /// Accepts one batch from a socket; then it is the others' turn.
    fn accept_from(&mut self, number: u64) -> io::Result<AcceptOutcome> {
        let mut listeners = self.listeners.iter_mut();
        let Some(listener) = listeners.find(|listener| listener.number() == number) else {
            return Ok(AcceptOutcome::Empty);
        };
        let takes_turns = listener.order.takes_turns;
        let most = self.shared.config.listen.accept_batch;
        let batch = if takes_turns {
            listener.batch(most)
        } else {
            most
        };
        let mut is_served = false;
        let turn = listener.accept_batch(batch, Bound::Kept, |new| {
            is_served = true;
            give(new, &self.shared, &mut self.first);
        });
        if is_served && turn != AcceptOutcome::Rest {
            // Of the processes that wait for a socket the kernel tells the first that is not at work, and leaves
            // it the first: connections that come one at a time would all be the same process's.
            epoll::delete(&self.epoll, &listener.socket)?;
            watch(&self.epoll, listener)?;
            if takes_turns && is_ready(&listener.socket, Duration::ZERO) {
                listener.turns = listener.turns.saturating_add(1);
                std::thread::sleep(COURTESY);
            } else {
                listener.turns = 0;
            }
        }
        Ok(turn)
    }

    /// As a driver's: what waits in sockets that close is taken in.
    fn last_round(&mut self, mut listeners: Vec<Acceptor<OwnedFd>>) {
        listeners.retain(|listener| listener.closes());
        let mut give = |new| give(new, &self.shared, &mut self.first);
        let mut has_handshakes = false;
        for listener in &mut listeners {
            has_handshakes |= listener.turn_away();
            listener.accept_rest(&mut give);
        }
        if has_handshakes {
            std::thread::sleep(HANDSHAKE_GRACE);
            for listener in &mut listeners {
                listener.accept_rest(&mut give);
            }
        }
        listeners.iter().for_each(|listener| listener.end());
    }
}

/// Gives a connection to the next of the least loaded drivers. As long as this thread runs, no driver ends.
fn give(new: AcceptedConnection, shared: &Shared, first: &mut usize) {
    *first = (*first + 1) % shared.mailboxes.len();
    new.give_to_least(*first);
}

/// Whether there is something to be read, now or within `longest`.
fn is_ready(descriptor: &OwnedFd, longest: Duration) -> bool {
    let longest = Timespec::try_from(longest).expect("a quarter of a second at most");
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    poll(&mut watched, Some(&longest)).is_ok_and(|ready| ready > 0)
}

/// With EPOLLEXCLUSIVE, of all processes that wait for a socket at least one is told of a connection, and
/// not all. It cannot be changed, only taken away (epoll_ctl(2)).
fn watch(epoll: &OwnedFd, listener: &Acceptor<OwnedFd>) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
    let data = epoll::EventData::new_u64(listener.number());
    Ok(epoll::add(epoll, &listener.socket, data, flags)?)
}
