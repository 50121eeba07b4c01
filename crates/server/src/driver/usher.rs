//! The usher: one thread that accepts from sockets whose accept queue several drivers or processes share, and
//! shows each connection to the least loaded driver.
//!
//! Unix sockets cannot be shared by SO_REUSEPORT, and inherited ones are what they are. If every driver waited
//! for the same queue, each connection would wake them all; a readiness that only one waiter is told of
//! (EPOLLEXCLUSIVE) is only to be had from an epoll of one's own. It waits for these sockets, a bell, and
//! nothing else; it starts with the first socket and ends with the last.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use measure::Stamp;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use tokio::sync::watch;

use super::handoff::{AcceptedBy, Listened};
use super::inbox::Confirmation;
use super::intake::{Bound, HANDSHAKE_GRACE, Intake, Taken};
use super::shared::{Ear, Mood, Owner, Shared};
use crate::channel::EarKey;
use crate::config::meant::Config;
use crate::listen::{self, At};
use crate::log::Level;
use crate::sync::lock;

/// What the epoll calls the bell.
const BELL: u64 = u64::MAX;
/// Sockets looked at in one turn.
const EVENTS_LEN: usize = 16;
/// While there is no room, how often it is looked for.
const PAUSE: Duration = super::TICK;
/// Who has taken somebody in while more wait lets other processes go first for so long: they have been told as
/// well, and need a moment to wake up.
const COURTESY: Duration = Duration::from_micros(100);
/// After so many turns in a row a batch is twice as large.
const SINGLE_TURNS: u32 = 16;

/// What other threads have of the usher.
pub(crate) struct Usher {
    desk: Mutex<Desk>,
    /// Rung when there is something to look at.
    bell: OwnedFd,
    /// Sockets that are its own, or on their way to it.
    ears: AtomicUsize,
    is_broken: AtomicBool,
    /// Until when the drivers' connections are brief, in nanoseconds.
    brief_until: AtomicU64,
}

#[derive(Default)]
struct Desk {
    /// Sockets to hear (with what is in them) and to hear no longer, in order.
    calls: Vec<Call>,
    /// Names of all sockets that it will have once it has answered the calls.
    keys: Vec<EarKey>,
    thread: Thread,
}

impl Desk {
    fn place(&self, key: EarKey) -> Option<usize> {
        self.keys.iter().position(|known| is_same(*known, key))
    }
}

/// Which driver is named for a socket that all share says nothing.
fn is_same(one: EarKey, other: EarKey) -> bool {
    (one.address, one.index) == (other.address, other.index)
}

enum Call {
    Hear(Ear),
    Deafen(EarKey),
    Confirm(Confirmation),
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Thread {
    #[default]
    NotStarted,
    Running,
    Ended,
}

/// Gives a socket to whoever is to accept from it: the usher if it is shared, else the driver of its key. In
/// a process that accepts no more it is dropped.
///
/// # Errors
/// The usher's thread cannot be started.
pub(crate) fn hear(
    shared: &Arc<Shared>,
    moods: &watch::Receiver<Mood>,
    ear: Ear,
) -> io::Result<()> {
    if ear.is_shared {
        return shared.usher.hear(shared, moods, ear);
    }
    if let Some(inbox) = shared.inboxes.get(usize::from(ear.key.driver)) {
        // A driver that has ended hears nothing.
        let _ = inbox.send(super::Call::Hear(ear));
    }
    Ok(())
}

impl Usher {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            desk: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            ears: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
            brief_until: AtomicU64::new(0),
        })
    }

    fn hear(
        &self,
        shared: &Arc<Shared>,
        moods: &watch::Receiver<Mood>,
        ear: Ear,
    ) -> io::Result<()> {
        let is_first = {
            let mut desk = lock(&self.desk);
            if desk.thread == Thread::Ended || desk.place(ear.key).is_some() {
                return Ok(());
            }
            desk.keys.push(ear.key);
            desk.calls.push(Call::Hear(ear));
            self.ears.fetch_add(1, Ordering::AcqRel);
            std::mem::replace(&mut desk.thread, Thread::Running) == Thread::NotStarted
        };
        if is_first {
            start(shared, moods.clone()).inspect_err(|_| self.end())?;
        }
        self.remind();
        Ok(())
    }

    /// Accepts no longer from that socket; `false` if it never did.
    pub(super) fn deafen(&self, key: EarKey) -> bool {
        {
            let mut desk = lock(&self.desk);
            let Some(place) = desk.place(key) else {
                return false;
            };
            desk.keys.swap_remove(place);
            desk.calls.push(Call::Deafen(key));
        }
        self.remind();
        true
    }

    /// Ends `confirmation` when it has done what it was told before.
    pub(super) fn confirm(&self, confirmation: Confirmation) {
        {
            let mut desk = lock(&self.desk);
            if desk.thread != Thread::Running {
                return;
            }
            desk.calls.push(Call::Confirm(confirmation));
        }
        self.remind();
    }

    /// Sockets that it accepts from, or from which it still takes in what waits.
    pub(super) fn ears_len(&self) -> usize {
        self.ears.load(Ordering::Acquire)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// A driver's connections are brief until then, and longer if more of them end.
    pub(super) fn tell_brief_until(&self, until: Stamp) {
        if self.ears_len() > 0 {
            self.brief_until.store(until.0, Ordering::Relaxed);
        }
    }

    fn has_brief_ones(&self) -> bool {
        measure::now().0 < self.brief_until.load(Ordering::Relaxed)
    }

    /// Lets the usher look around: the mood may have changed.
    pub(super) fn remind(&self) {
        // The bell is full when it has been rung 2^64 - 2 times without being heard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn quiet(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// A socket was not to be had.
    fn forget(&self, key: EarKey) {
        let mut desk = lock(&self.desk);
        if let Some(place) = desk.place(key) {
            desk.keys.swap_remove(place);
        }
        self.ears.fetch_sub(1, Ordering::AcqRel);
    }

    /// Nothing is accepted any more.
    fn end(&self) {
        let unanswered = {
            let mut desk = lock(&self.desk);
            desk.thread = Thread::Ended;
            desk.keys.clear();
            std::mem::take(&mut desk.calls)
        };
        self.ears.store(0, Ordering::Release);
        // Confirmations are sent by it, which is not to hold the desk.
        drop(unanswered);
    }
}

fn start(shared: &Arc<Shared>, moods: watch::Receiver<Mood>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let accept = move || {
        let walk = || Round::new(&shared, moods).and_then(Round::walk);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk));
        if let Ok(Err(error)) = &ended {
            let text = format!("cannot wait for connections: {error}");
            shared.log.error(Level::Error, &text);
        }
        let is_orderly = matches!(ended, Ok(Ok(())));
        shared.usher.is_broken.store(!is_orderly, Ordering::Relaxed);
        shared.usher.end();
        shared.inboxes.iter().for_each(super::Inbox::remind);
    };
    std::thread::Builder::new()
        .name("mp-accept".to_owned())
        .spawn(accept)?;
    Ok(())
}

/// The thread's own things.
struct Round {
    shared: Arc<Shared>,
    moods: watch::Receiver<Mood>,
    epoll: OwnedFd,
    /// By the number that the epoll has for them.
    posts: Vec<Option<Post>>,
    /// Whether the sockets are watched: not while there is no room.
    watching: Watching,
    /// Which driver is the first of those that are equally loaded.
    turn: usize,
}

/// One socket.
struct Post {
    socket: OwnedFd,
    key: EarKey,
    listened: Arc<Listened>,
    intake: Intake,
    takes_turns: bool,
    /// Where turns are taken: turns in a row after which more waited.
    turns: Cell<u32>,
    owner: Owner,
}

impl Post {
    /// Connections taken in at once. A burst is shared one by one; where there is no end of them everybody has
    /// enough, and larger batches cost less.
    fn batch(&self, config: &Config, sharing: Sharing) -> usize {
        let most = config.listen.accept_batch;
        match sharing {
            Sharing::Counted => 1_usize
                .checked_shl(self.turns.get() / SINGLE_TURNS)
                .map_or(most, |batch| batch.min(most)),
            Sharing::Free => most,
        }
    }

    /// A batch has been taken in.
    fn give_way(&self, sharing: Sharing) {
        if sharing == Sharing::Counted && self.has_visitors() {
            self.turns.set(self.turns.get().saturating_add(1));
            std::thread::sleep(COURTESY);
        } else {
            self.turns.set(0);
        }
    }

    fn has_visitors(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// How processes share who waits at a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// One by one.
    Counted,
    /// Each takes what there is: it is alone, or connections are gone before an uneven share of them matters.
    Free,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watching {
    Yes,
    No,
}

impl Round {
    fn new(shared: &Arc<Shared>, moods: watch::Receiver<Mood>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &shared.usher.bell, bell, epoll::EventFlags::IN)?;
        Ok(Self {
            shared: Arc::clone(shared),
            moods,
            epoll,
            posts: Vec::new(),
            watching: Watching::Yes,
            turn: 0,
        })
    }

    fn walk(mut self) -> io::Result<()> {
        loop {
            self.answer_calls();
            let mood = *self.moods.borrow();
            if mood > Mood::Serving {
                if mood < Mood::Cutting {
                    self.last_rounds();
                }
                return Ok(());
            }
            let has_room = self.shared.has_room();
            self.watch(if has_room {
                Watching::Yes
            } else {
                Watching::No
            })?;
            for number in self.wait()? {
                if self.turn(number)? == Some(Pause) {
                    self.watch(Watching::No)?;
                    self.wait()?;
                }
            }
        }
    }

    fn answer_calls(&mut self) {
        self.shared.usher.quiet();
        let calls = std::mem::take(&mut lock(&self.shared.usher.desk).calls);
        for call in calls {
            match call {
                Call::Hear(ear) => self.hear_or_tell(ear),
                Call::Deafen(key) => self.deafen(key),
                Call::Confirm(confirmation) => drop(confirmation),
            }
        }
    }

    /// A socket that cannot be waited for is not worth those that can.
    fn hear_or_tell(&mut self, ear: Ear) {
        let key = ear.key;
        if let Err(error) = self.hear(ear) {
            let text = format!("cannot accept from a socket: {error}");
            self.shared.log.error(Level::Error, &text);
            self.shared.usher.forget(key);
        }
    }

    fn hear(&mut self, ear: Ear) -> io::Result<()> {
        // One that was handed over may be as its maker left it.
        rustix::io::ioctl_fionbio(&ear.socket, true)?;
        let listened = Arc::new(Listened {
            at: ear.at,
            address: ear.key.address,
        });
        let post = Post {
            socket: ear.socket,
            key: ear.key,
            intake: Intake::new(&self.shared, Arc::clone(&listened), AcceptedBy::Usher, 0)?,
            listened,
            takes_turns: ear.takes_turns,
            turns: Cell::new(0),
            owner: ear.owner,
        };
        let free = self.posts.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.posts.push(None);
            self.posts.len() - 1
        });
        if self.watching == Watching::Yes {
            self.watch_post(number, &post)?;
        }
        self.posts[number] = Some(post);
        Ok(())
    }

    fn deafen(&mut self, key: EarKey) {
        let mut posts = self.posts.iter_mut();
        let found = posts.find_map(|post| post.take_if(|post| is_same(post.key, key)));
        if let Some(post) = found {
            if self.watching == Watching::Yes {
                // It is not there, or it is not any more.
                let _ = epoll::delete(&self.epoll, &post.socket);
            }
            if post.owner == Owner::Nobody {
                self.last_round(std::slice::from_ref(&post));
            }
            self.shared.usher.ears.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// With EPOLLEXCLUSIVE, of all processes that wait for a socket at least one is told of a connection, and
    /// not all. It cannot be changed, only taken away (epoll_ctl(2)).
    fn watch_post(&self, number: usize, post: &Post) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &post.socket, data, flags)?;
        Ok(())
    }

    fn watch(&mut self, watching: Watching) -> io::Result<()> {
        if std::mem::replace(&mut self.watching, watching) == watching {
            return Ok(());
        }
        for (number, post) in self.posts.iter().enumerate() {
            let Some(post) = post else { continue };
            match watching {
                Watching::Yes => self.watch_post(number, post)?,
                Watching::No => epoll::delete(&self.epoll, &post.socket)?,
            }
        }
        Ok(())
    }

    /// Waits until somebody knocks or the bell rings, or for a while when nobody is let in; gives the numbers
    /// of the sockets.
    fn wait(&self) -> io::Result<Vec<usize>> {
        let pause = Timespec::try_from(PAUSE).expect("a quarter of a second");
        let longest = (self.watching == Watching::No).then_some(&pause);
        let mut events = Vec::with_capacity(EVENTS_LEN);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), longest) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let numbers = events.iter().map(|event| event.data.u64());
        let numbers = numbers.filter(|number| *number != BELL);
        Ok(numbers
            .filter_map(|number| usize::try_from(number).ok())
            .collect())
    }

    /// Takes in one batch from a socket; then it is the others' turn.
    fn turn(&mut self, number: usize) -> io::Result<Option<Pause>> {
        let Some(Some(post)) = self.posts.get(number) else {
            return Ok(None);
        };
        let mut is_served = false;
        let sharing = match post.takes_turns && !self.shared.usher.has_brief_ones() {
            true => Sharing::Counted,
            false => Sharing::Free,
        };
        for _ in 0..post.batch(&self.shared.config, sharing) {
            match post.intake.take(&post.socket, Bound::Kept) {
                Taken::New(new) => {
                    is_served = true;
                    self.turn = self.turn.wrapping_add(1) % self.shared.inboxes.len();
                    // While the usher has a socket, no driver ends.
                    let _ = new.give_to_least(self.turn);
                }
                Taken::Refused | Taken::Gone => {}
                Taken::Nobody | Taken::Full => break,
                Taken::Rest => return Ok(Some(Pause)),
            }
        }
        if is_served && self.watching == Watching::Yes {
            self.go_last(number, post)?;
            post.give_way(sharing);
        }
        Ok(None)
    }

    /// Of the processes that wait for a socket the kernel tells the first that is not at work, and leaves it
    /// the first: connections that come one at a time would all be the same process's.
    fn go_last(&self, number: usize, post: &Post) -> io::Result<()> {
        epoll::delete(&self.epoll, &post.socket)?;
        self.watch_post(number, post)
    }

    fn last_rounds(&mut self) {
        let posts = std::mem::take(&mut self.posts).into_iter().flatten();
        let closes = |post: &Post| self.shared.closes(post.listened.address, post.owner);
        let posts: Vec<Post> = posts.filter(closes).collect();
        self.last_round(&posts);
    }

    /// As a driver's: what waits in sockets that close is taken in.
    fn last_round(&self, posts: &[Post]) {
        let mut has_handshakes = false;
        for post in posts {
            match &post.listened.at {
                At::Tcp(_) => {
                    // Without the filter a handshake that ends at the wrong moment is reset.
                    let _ = listen::turn_away(&post.socket);
                    has_handshakes = true;
                }
                // The file goes with whoever made it.
                At::Unix(path) if post.owner == Owner::Nobody => {
                    listen::remove_files(std::slice::from_ref(path));
                }
                At::Unix(_) => {}
            }
            self.take_all(post);
        }
        if has_handshakes {
            std::thread::sleep(HANDSHAKE_GRACE);
            posts.iter().for_each(|post| self.take_all(post));
        }
        // Whoever asks for a unix socket is refused as soon as its file is gone.
        let is_tcp = |post: &&Post| matches!(post.listened.at, At::Tcp(_));
        let tcp = posts.iter().filter(is_tcp);
        tcp.for_each(|post| listen::end(&post.socket));
    }

    fn take_all(&self, post: &Post) {
        let mut driver = self.turn;
        for _ in 0..self.shared.config.listen.backlog {
            match post.intake.take(&post.socket, Bound::Passed) {
                Taken::New(new) => {
                    driver = (driver + 1) % self.shared.inboxes.len();
                    // While the usher has a socket, no driver ends.
                    let _ = new.give_to_least(driver);
                }
                Taken::Refused | Taken::Gone => {}
                Taken::Nobody | Taken::Full | Taken::Rest => return,
            }
        }
    }
}

/// No descriptors, or no memory: nobody is let in for a while.
#[derive(PartialEq, Eq)]
struct Pause;

#[cfg(test)]
mod tests {
    use measure::Nanos;

    use super::*;

    #[test]
    fn connections_are_brief_as_long_as_drivers_say_so() {
        let usher = Usher::new().unwrap();
        let later = measure::now().plus(Nanos::from_secs(600));
        usher.tell_brief_until(later);
        assert!(!usher.has_brief_ones(), "it has no socket to share");
        usher.ears.store(1, Ordering::Relaxed);
        assert!(!usher.has_brief_ones(), "nobody has said so yet");
        usher.tell_brief_until(later);
        assert!(usher.has_brief_ones());
        usher.tell_brief_until(measure::now());
        assert!(!usher.has_brief_ones(), "none has ended for a while");
    }
}
