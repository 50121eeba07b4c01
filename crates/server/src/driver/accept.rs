//! Accepting: at most `accept_batch` connections a turn, then those that are already there are served.
//!
//! At the bound of connections, or when the process has no descriptors left, the listener is left alone
//! (nothing polls it, nothing spins) until there is room again. Sockets come and go while the driver runs: one
//! that goes is left open for others, and what waits in it is theirs, unless it closes for good.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::handoff::{AcceptedBy, AcceptedConnection, Listened};
use super::intake::{Bound, HANDSHAKE_GRACE, Intake, Taken};
use super::shared::Owner;
use super::{Driver, Ear, Mood};
use crate::channel::EarKey;
use crate::config::meant::Steering;
use crate::listen::{self, At};
use crate::sys;

/// A socket that is accepted from, until this is put out.
#[derive(Clone)]
pub(super) struct Hearing(Rc<Cell<bool>>);

pub(super) struct Acceptor {
    driver: Rc<Driver>,
    listener: AsyncFd<OwnedFd>,
    listened: Arc<Listened>,
    intake: Intake,
    hearing: Hearing,
    /// The socket has no other ear than this.
    owner: Owner,
    /// The socket is another driver's, which has accepted nothing for a while.
    is_rescue: bool,
    /// The processor that the driver is pinned to, where connections are steered by processor.
    cpu: Option<usize>,
}

/// What a turn of accepting ended with.
enum Turn {
    /// The batch is full; there may be more.
    More,
    /// Nobody waits.
    Empty,
    /// No descriptors, or no memory: rest until the next tick.
    Rest,
}

impl Driver {
    /// Accepts from a socket as well. One that is heard already is heard once; one that comes when nobody is let in
    /// any more has its last round, if it closes.
    pub(super) fn hear(self: &Rc<Self>, ear: Ear) -> io::Result<()> {
        let key = ear.key;
        if self.ears.borrow().contains_key(&key) {
            return Ok(());
        }
        let hearing = Hearing(Rc::new(Cell::new(true)));
        let acceptor = Acceptor::new(Rc::clone(self), ear, hearing.clone())?;
        self.ears.borrow_mut().insert(key, hearing);
        self.acceptors.set(self.acceptors.get() + 1);
        tokio::task::spawn_local(acceptor.run());
        Ok(())
    }

    pub(super) fn deafen(&self, key: EarKey) {
        if let Some(Hearing(hears)) = self.ears.borrow_mut().remove(&key) {
            hears.set(false);
            self.room.notify_waiters();
        }
    }

    /// Whether a socket is another driver's than this one's.
    fn is_rescue(&self, ear: &Ear) -> bool {
        let home = self.shared.slot * self.shared.inboxes.len() + usize::from(self.index);
        !ear.is_shared && (ear.key.driver != self.index || usize::from(ear.key.index) != home)
    }

    fn steered_cpu(&self) -> Option<usize> {
        let listen = &self.config().listen;
        let cpus = &listen.driver_cpus;
        match listen.steering {
            Steering::Cpu => cpus
                .get(usize::from(self.index) % cpus.len().max(1))
                .copied(),
            Steering::Hash => None,
        }
    }
}

impl Acceptor {
    fn new(driver: Rc<Driver>, ear: Ear, hearing: Hearing) -> io::Result<Self> {
        let is_rescue = driver.is_rescue(&ear);
        // One that was handed over may be as its maker left it.
        rustix::io::ioctl_fionbio(&ear.socket, true)?;
        let listened = Arc::new(Listened {
            at: ear.at,
            address: ear.key.address,
        });
        let index = usize::from(driver.index);
        Ok(Self {
            listener: sys::watch_listener(ear.socket)?,
            intake: Intake::new(
                &driver.shared,
                Arc::clone(&listened),
                AcceptedBy::Driver,
                index,
            )?,
            listened,
            hearing,
            owner: ear.owner,
            is_rescue,
            cpu: driver.steered_cpu(),
            driver,
        })
    }

    async fn run(self) {
        while self.hears() {
            if !self.driver.shared.has_room() {
                self.driver.rests.set(true);
                self.rest().await;
                continue;
            }
            self.readable_or_told().await;
            if !self.hears() {
                break;
            }
            let batch = self.driver.config().listen.accept_batch;
            let turn = self.turn(batch, Bound::Kept);
            self.driver.flush_due(measure::now());
            match turn {
                // Whoever is ready by now is served before the next batch.
                Turn::More => tokio::task::yield_now().await,
                Turn::Empty => {}
                Turn::Rest => self.rest().await,
            }
        }
        if self.driver.mood.get() < Mood::Cutting
            && self.driver.shared.closes(self.listened.address, self.owner)
        {
            self.last_round().await;
        }
        let driver = Rc::clone(&self.driver);
        drop(self);
        driver.acceptors.set(driver.acceptors.get() - 1);
        driver.changed.notify_one();
    }

    /// Whether this ear is still to be used.
    fn hears(&self) -> bool {
        self.driver.serving() && self.hearing.0.get()
    }

    /// Until there may be room. Who looked in the moment in which it came back is not told, so time passing is
    /// a sign as well.
    async fn rest(&self) {
        let _ = tokio::time::timeout(super::TICK, self.driver.room.notified()).await;
    }

    /// Takes in what waits in the accept queue before the socket closes: closing it would reset them. From
    /// here on new clients are not answered (they ask again within a second), so that handshakes that are
    /// under way can end and be taken in as well. The supervisor has the socket to its own end: from the end of
    /// this round on, who asks is refused all the same.
    async fn last_round(&self) {
        let backlog = self.driver.config().listen.backlog as usize;
        match &self.listened.at {
            At::Tcp(_) => {
                // Without the filter a handshake that ends at the wrong moment is reset.
                let _ = listen::turn_away(&self.listener);
                self.turn(backlog, Bound::Passed);
                tokio::time::sleep(HANDSHAKE_GRACE).await;
            }
            // The file goes with whoever made it.
            At::Unix(path) if self.owner == Owner::Nobody => {
                listen::remove_files(std::slice::from_ref(path));
            }
            At::Unix(_) => {}
        }
        self.turn(backlog, Bound::Passed);
        if let At::Tcp(_) = &self.listened.at {
            listen::end(&self.listener);
        }
    }

    async fn readable_or_told(&self) {
        let mut told = std::pin::pin!(self.driver.room.notified());
        poll_fn(|context| {
            let readable = self.listener.poll_read_ready(context).is_ready();
            let told = told.as_mut().poll(context).is_ready();
            if readable || told {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn turn(&self, batch: usize, bound: Bound) -> Turn {
        for _ in 0..batch {
            match self.intake.take(&self.listener, bound) {
                Taken::New(new) => {
                    self.count(&new);
                    self.driver.place(new);
                }
                Taken::Refused => self.driver.stats().accepted.add(),
                Taken::Gone => {}
                Taken::Full => return Turn::More,
                Taken::Nobody => {
                    self.clear_ready();
                    return Turn::Empty;
                }
                Taken::Rest => return Turn::Rest,
            }
        }
        Turn::More
    }

    fn count(&self, new: &AcceptedConnection) {
        let stats = self.driver.stats();
        stats.accepted.add();
        if self.is_rescue {
            stats.rescued.add();
        }
        if let Some(cpu) = self.cpu
            && SockRef::from(&new.socket).cpu_affinity().ok() == Some(cpu)
        {
            stats.local_cpu.add();
        }
    }

    /// Only a nonblocking accept that found nothing may clear the readiness: the kernel reports an edge.
    fn clear_ready(&self) {
        let _ = self.listener.try_io(Interest::READABLE, |_| {
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
    }
}
