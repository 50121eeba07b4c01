//! A pool's queue: whether it takes one more exchange, who runs next, who has waited too long, how long waits
//! were and how long runs were of late.
//!
//! Takes entries and the present, the pool's bounds and how fast it drains; gives entries back and decisions. The
//! pool that owns a queue holds the lock. A full queue refuses at once: a client that is told when to come back
//! costs less than one that waits for a timeout. It must not know what waits, read a clock or wake anybody.

use std::collections::VecDeque;

use telemetry::{Nanos, Stamp};

use crate::{PoolSettings, PoolState, Pressure};

/// A longer promise than this says nothing about a queue, and the client might as well leave.
const RETRY_AFTER_SECS_MAX: f64 = 60.0;

/// Run times that are remembered: enough for a median, few enough to sort ten times a second.
pub(crate) const RUNS_LEN: usize = 63;

/// The bounds of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShape {
    /// Threads that are always there; at least 1.
    pub threads_min: usize,
    /// Threads that there may be at most; at least `threads_min`.
    pub threads_max: usize,
    /// Exchanges that may wait for a thread. With 0 nothing is ever admitted to the queue.
    pub queue_len_max: usize,
}

/// What is in the queue when an exchange wants to enter it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// Exchanges that wait.
    pub len: usize,
    /// Of these, those of its class and of better ones: the others do not go before it.
    pub ahead: usize,
}

/// What happens to an exchange that wants to enter the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It joins the end of the queue.
    Enqueue,
    /// It is answered with 503 (RFC 9110 section 15.6.4).
    Refuse {
        /// The value of Retry-After (RFC 9110 section 10.2.3): 1 to 60.
        retry_after_secs: u32,
    },
}

/// Decides on one exchange of `class` while `waiting` others are in the queue.
///
/// Without pressure the queue's places decide, the last of which are for questions about health. Under
/// pressure those are refused at once that would wait in vain, because what goes before them does not drain in
/// time at the rate of late: in half the timeout while saturated, in a quarter of the other one while overloaded. As many
/// as the pool may have threads may always wait: a rate that was measured while all threads hung says
/// nothing about what comes, and they are refused in time if it does. Questions about health are refused
/// only by a full queue.
///
/// Retry-After is the time in which what waits now will have been taken: `waiting / drain rate`. A
/// pool of which nothing is known says 1, one that stands still says 60.
pub fn admit(
    waiting: Waiting,
    class: Class,
    settings: &PoolSettings,
    state: &PoolState,
) -> Admission {
    let has_place = waiting.len < places_len(class, settings);
    if has_place && waiting.ahead < drainable_len(class, settings, state) {
        return Admission::Enqueue;
    }
    Admission::Refuse {
        retry_after_secs: retry_after_secs(waiting.len, state),
    }
}

/// Places in the queue that a class may take; the reserve is never all of them.
fn places_len(class: Class, settings: &PoolSettings) -> usize {
    let places = settings.shape.queue_len_max;
    match class {
        Class::Health => places,
        Class::High | Class::Normal | Class::Low => {
            places - settings.reserve_len.min(places.saturating_sub(1))
        }
    }
}

/// How many may go before somebody who is to be served in time.
fn drainable_len(class: Class, settings: &PoolSettings, state: &PoolState) -> usize {
    let timeout = match state.pressure {
        Pressure::Calm => return usize::MAX,
        Pressure::Saturated => Nanos(settings.queue_timeout.0 / 2),
        // The newest go first: those behind which as many have come as drain in this time seldom get their turn.
        Pressure::Overloaded => Nanos(state.overload_timeout.min(settings.queue_timeout).0 / 4),
    };
    let Some(per_second) = state.completed_per_second else {
        return usize::MAX;
    };
    let drained = (per_second * timeout.as_secs_f64()) as usize;
    let len = drained.max(settings.shape.threads_max);
    match (class, state.pressure) {
        (Class::Health, _) => usize::MAX,
        // Never none: whoever is refused keeps the overload going, and the pool would stand idle in it.
        (Class::Low, Pressure::Overloaded) => len.div_ceil(2),
        _ => len,
    }
}

/// The value of Retry-After while so many wait: 1 to 60.
pub fn retry_after_secs(waiting: usize, state: &PoolState) -> u32 {
    let Some(per_second) = state.completed_per_second else {
        return 1;
    };
    // 0 / 0 is not a number, and `clamp` would keep it: an empty queue is a second away.
    let secs = waiting.max(1) as f64 / per_second;
    secs.ceil().clamp(1.0, RETRY_AFTER_SECS_MAX) as u32
}

/// How much an exchange matters. A better class always goes first, and a worse one is given up first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Class {
    /// Questions whether the server is well: they have places and threads of their own.
    Health,
    /// Before all others.
    High,
    /// What nothing is said about.
    #[default]
    Normal,
    /// After all others, given up first.
    Low,
}

impl Class {
    /// All, the best first.
    pub const ALL: [Class; 4] = [Class::Health, Class::High, Class::Normal, Class::Low];
}

/// One that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<T> {
    /// What waits.
    pub item: T,
    /// How much it matters.
    pub class: Class,
    /// When it came.
    pub queued: Stamp,
    /// How long it had waited before it came here, as a proxy in front says; counts into its wait.
    pub before: Nanos,
}

impl<T> Entry<T> {
    /// How long it has waited at `now`, in all.
    pub fn wait(&self, now: Stamp) -> Nanos {
        Nanos(now.since(self.queued).0.saturating_add(self.before.0))
    }

    /// When its wait began; before the clock did, where a proxy says so.
    fn began(&self) -> i128 {
        i128::from(self.queued.0) - i128::from(self.before.0)
    }
}

/// The queue of one pool.
///
/// Each class is kept in the order in which waits began, so that the oldest, the newest and those that have
/// waited too long are found at the ends. Every operation takes constant time, except that one that had
/// waited elsewhere before is moved ahead of those that it is older than. Memory is taken when the queue is
/// longer than ever before, and kept.
#[derive(Clone, Debug)]
pub struct Line<T> {
    settings: PoolSettings,
    state: PoolState,
    waiting: [VecDeque<Entry<T>>; 4],
    /// Those that were in the way of [`Line::take`] and had waited too long.
    given_up: VecDeque<Entry<T>>,
    len: usize,
    /// Entries that joined since the beginning.
    joined: u64,
    seen: WaitsSeen,
    runs: Runs,
    /// Waits that began before this moment say nothing about the present size.
    resized: Stamp,
}

/// What was seen of waits since they were looked at last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitsSeen {
    /// Exchanges that left the queue for a thread and whose wait began after the last change of size.
    pub taken: usize,
    /// Of these, those that had waited longer than the target.
    pub over_target: usize,
    /// Of these, those that had waited longer than half the target.
    pub over_half: usize,
    /// The least wait that the one that came first had whenever one left the queue for a thread; `None`
    /// when none did. Where the oldest goes first that is the least wait of all. Questions about health,
    /// which go ahead of all others, do not count.
    pub wait_min: Option<Nanos>,
    /// Exchanges that have waited longer than the target and are still in the queue, their wait having
    /// begun after the last change of size.
    pub waiting_over_target: usize,
    /// The median of the last run times; `None` when nothing ran yet.
    pub run_median: Option<Nanos>,
}

impl<T> Line<T> {
    /// An empty queue.
    pub fn new(settings: &PoolSettings) -> Line<T> {
        Line {
            settings: *settings,
            state: PoolState::default(),
            waiting: [const { VecDeque::new() }; 4],
            given_up: VecDeque::new(),
            len: 0,
            joined: 0,
            seen: WaitsSeen::default(),
            runs: Runs::new(),
            resized: Stamp::ZERO,
        }
    }

    /// From now on other bounds hold; nobody who waits is given up for it.
    pub fn reshape(&mut self, settings: &PoolSettings) {
        self.settings = *settings;
    }

    /// What the controller has found out, which decides about order and patience.
    pub fn set_state(&mut self, state: PoolState) {
        self.state = state;
    }

    /// The pool has another size since `now`; what was seen of waits before says nothing any more.
    pub fn resized(&mut self, now: Stamp) {
        self.resized = now;
        self.seen.taken = 0;
        self.seen.over_target = 0;
        self.seen.over_half = 0;
    }

    /// Joins the queue. Those that find an idle thread join it too and are taken at once: their waits count.
    pub fn push(&mut self, entry: Entry<T>) {
        let class = &mut self.waiting[entry.class as usize];
        match class.back() {
            // It waited elsewhere before and is older than those behind which it came.
            Some(back) if back.began() > entry.began() => {
                let at = class.partition_point(|other| other.began() <= entry.began());
                class.insert(at, entry);
            }
            _ => class.push_back(entry),
        }
        self.len += 1;
        self.joined += 1;
    }

    /// Who runs next on a thread that asks at `now`, while `running` other threads of `threads` are at work.
    /// It has not waited too long; whoever has stays for [`Line::take_expired`].
    ///
    /// `None` when nobody may: threads that are kept for questions about health stay idle for them. They
    /// are never all threads: with no more threads than the reserve, one serves everybody.
    pub fn take(&mut self, now: Stamp, running: usize, threads: usize) -> Option<Entry<T>> {
        let reserve = self.settings.reserve_threads.min(threads.saturating_sub(1));
        // Questions about health are the first class: with only the reserve left, no other is looked at.
        let has_only_reserve = running + reserve >= threads.max(1);
        let classes_len = if has_only_reserve {
            1
        } else {
            Class::ALL.len()
        };
        let entry =
            Class::ALL[..classes_len]
                .iter()
                .find_map(|class| match self.state.pressure {
                    Pressure::Calm | Pressure::Saturated => self.take_oldest(*class, now),
                    Pressure::Overloaded => self.take_newest(*class, now),
                })?;
        assert!(self.len > 0, "an exchange leaves a queue that has none");
        self.len -= 1;
        self.note(&entry, now);
        Some(entry)
    }

    /// Somebody who has waited too long and is to be refused; as often as there is one.
    pub fn take_expired(&mut self, now: Stamp) -> Option<Entry<T>> {
        let timeout = self.timeout();
        let entry = self.given_up.pop_front().or_else(|| {
            // The least important class first; within a class the front has waited longest.
            let mut classes = self.waiting.iter_mut().rev();
            classes.find_map(|class| {
                let is_over = class.front()?.wait(now) >= timeout;
                is_over.then(|| class.pop_front())?
            })
        })?;
        assert!(
            self.len > 0,
            "an exchange is refused out of a queue that has none"
        );
        self.len -= 1;
        Some(entry)
    }

    /// When the next one will have waited too long, perhaps in the past; [`Stamp::NEVER`] when nobody waits.
    pub fn next_expiry(&self) -> Stamp {
        if !self.given_up.is_empty() {
            return Stamp::ZERO;
        }
        let timeout = self.timeout();
        let fronts = self.waiting.iter().filter_map(VecDeque::front);
        let expiry = |entry: &Entry<T>| {
            // What a client has waited before it came here counts as waited: it will leave after the same time in
            // all.
            let left = Nanos(timeout.0.saturating_sub(entry.before.0));
            entry.queued.plus(left)
        };
        fronts.map(expiry).min().unwrap_or(Stamp::NEVER)
    }

    /// A thread ran something for so long.
    pub fn ran(&mut self, run: Nanos) {
        self.runs.add(run);
    }

    /// How many wait, those included that wait to be refused.
    pub fn len(&self) -> usize {
        self.len
    }

    /// What one of `class` that comes now finds.
    pub fn waiting(&self, class: Class) -> Waiting {
        let ahead = &self.waiting[..=class as usize];
        Waiting {
            len: self.len,
            ahead: ahead.iter().map(VecDeque::len).sum(),
        }
    }

    /// How many joined since the queue was made.
    pub fn joined(&self) -> u64 {
        self.joined
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How long the one that came first has waited; zero when nobody waits.
    pub fn oldest_wait(&self, now: Stamp) -> Nanos {
        oldest_wait(&self.waiting, now)
    }

    /// What was seen since the last look at `now`, and begins anew.
    pub fn look(&mut self, now: Stamp) -> WaitsSeen {
        let mut seen = std::mem::take(&mut self.seen);
        seen.run_median = self.runs.median();
        let (target, resized) = (self.settings.queue_target, i128::from(self.resized.0));
        for class in &self.waiting {
            let over = class.partition_point(|entry| entry.wait(now) > target);
            // Those that came before the last change of size have waited for the old size: counted, they would ask
            // for growth twice.
            let stale = class.partition_point(|entry| entry.began() < resized);
            seen.waiting_over_target += over.saturating_sub(stale);
        }
        seen
    }

    /// Those that are in the way and have waited too long step aside.
    fn take_oldest(&mut self, class: Class, now: Stamp) -> Option<Entry<T>> {
        let timeout = self.timeout();
        let class = &mut self.waiting[class as usize];
        loop {
            let entry = class.pop_front()?;
            if entry.wait(now) < timeout {
                return Some(entry);
            }
            // Refused by `take_expired`: a worker that asks for work does not write refusals.
            self.given_up.push_back(entry);
        }
    }

    /// More requests arrive than are completed: not all are served in time, whatever the order. Oldest first, all
    /// of them would wait for as long as is allowed; newest first, those that are served hardly wait. Where the
    /// newest has waited too long, all of its class have.
    fn take_newest(&mut self, class: Class, now: Stamp) -> Option<Entry<T>> {
        let timeout = self.timeout();
        let class = &mut self.waiting[class as usize];
        let is_in_time = class.back()?.wait(now) < timeout;
        is_in_time.then(|| class.pop_back())?
    }

    fn note(&mut self, entry: &Entry<T>, now: Stamp) {
        let wait = entry.wait(now);
        let target = self.settings.queue_target;
        if entry.began() >= i128::from(self.resized.0) {
            self.seen.taken += 1;
            self.seen.over_target += usize::from(wait > target);
            self.seen.over_half += usize::from(wait.0 > target.0 / 2);
        }
        // Questions about health overtake all others.
        if entry.class != Class::Health {
            // Under pressure the newest goes first: its own wait is short, and says nothing of the queue that it left
            // behind.
            let oldest = oldest_wait(&self.waiting[1..], now).max(wait);
            let least = self.seen.wait_min.map_or(oldest, |least| least.min(oldest));
            self.seen.wait_min = Some(least);
        }
    }

    fn timeout(&self) -> Nanos {
        match self.state.pressure {
            Pressure::Calm | Pressure::Saturated => self.settings.queue_timeout,
            // The bound of all waits holds under overload too.
            Pressure::Overloaded => (self.state.overload_timeout).min(self.settings.queue_timeout),
        }
    }
}

fn oldest_wait<T>(classes: &[VecDeque<Entry<T>>], now: Stamp) -> Nanos {
    let fronts = classes.iter().filter_map(VecDeque::front);
    fronts
        .map(|entry| entry.wait(now))
        .max()
        .unwrap_or(Nanos::ZERO)
}

/// The last run times of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    kept: [Nanos; RUNS_LEN],
    len: usize,
    next: usize,
}

impl Runs {
    pub(crate) const fn new() -> Runs {
        Runs {
            kept: [Nanos::ZERO; RUNS_LEN],
            len: 0,
            next: 0,
        }
    }

    pub(crate) fn add(&mut self, run: Nanos) {
        self.kept[self.next] = run;
        self.next = (self.next + 1) % RUNS_LEN;
        self.len = (self.len + 1).min(RUNS_LEN);
    }

    /// The median of what is remembered (of an even number the upper one); `None` when nothing is.
    pub(crate) fn median(&self) -> Option<Nanos> {
        let mut sorted = self.kept;
        let sorted = &mut sorted[..self.len];
        if sorted.is_empty() {
            return None;
        }
        let (_, median, _) = sorted.select_nth_unstable(self.len / 2);
        Some(*median)
    }
}

#[cfg(test)]
mod tests;
