//! The watch: which exchange each pool thread runs, since when, and what has been done about it.
//!
//! Pool threads write their own post at the begin and the end of an exchange; whoever looks (`Watch::tick`)
//! learns which exchanges have become slow, which are past their pool's `request_timeout`, and which threads
//! did not come back after that. Decides and remembers; logs, interrupts and starts nothing itself.

mod bell;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use measure::{Nanos, Phases, Stamp};
use wire::RequestHead;

use crate::config::meant::Config;
use crate::exchange::stream::StreamShared;
use crate::exchange::{self, Exchange, Id};
use crate::pool::Meter;
use crate::tenure::Tenure;

pub(crate) use bell::Bell;

/// A thread that has been interrupted is given up when it has not come back after this time.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(5);
/// How often an exchange is looked at that its driver has not answered yet.
const LOOK: Nanos = Nanos::from_ms(50);

/// All pool threads of the process.
pub(crate) struct Watch {
    slow: Option<Nanos>,
    /// By pool.
    timeouts: Vec<Option<Nanos>>,
    posts: Mutex<Vec<Watched>>,
    bell: Arc<Bell>,
}

/// One pool thread, as it tells the watch what it does.
pub(crate) struct Post {
    pool: u16,
    /// What the kernel calls the thread.
    thread: Thread,
    /// Its name.
    name: String,
    /// When the exchange that it runs was begun; 0 when there is none.
    began: AtomicU64,
    /// The exchange that it runs, and whether another thread is in its place.
    tenure: Tenure<What>,
    bell: Arc<Bell>,
}

/// What the kernel calls a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread(pub i32);

#[derive(Clone)]
struct What {
    began: Stamp,
    id: Id,
    head: Arc<RequestHead>,
    phases: Phases,
    stream: Arc<StreamShared>,
    meter: Meter,
}

impl Thread {
    /// The calling one.
    pub fn current() -> Thread {
        Thread(rustix::thread::gettid().as_raw_nonzero().get())
    }
}

/// A post, and what has been done about its exchanges.
struct Watched {
    post: Arc<Post>,
    /// When the exchange was begun that was told to be slow last.
    told: Stamp,
    /// When the exchange was begun that was stopped last.
    stopped: Stamp,
    /// When that was.
    stopped_at: Stamp,
}

/// What is to be done about an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Say that it is slow.
    Tell,
    /// Its client has its answer: stop it.
    Stop,
    /// It was stopped and is still there: do without its thread.
    GiveUp,
}

/// One exchange that something is to be done about.
pub(crate) struct Due {
    pub(crate) deed: Deed,
    pub(crate) post: Arc<Post>,
    /// When it was begun.
    pub(crate) began: Stamp,
    pub(crate) phases: Phases,
    /// What it has used of a processor.
    pub(crate) meter: Meter,
    id: Id,
    head: Arc<RequestHead>,
}

/// What a look has found.
pub(crate) struct Round {
    pub(crate) due: Vec<Due>,
    /// When to look again; NEVER when nothing runs: the bell rings then when something begins.
    pub(crate) next: Stamp,
}

impl Watch {
    /// `None` when the configuration gives nothing to watch for.
    pub(crate) fn new(config: &Config) -> Option<Arc<Self>> {
        let timeouts: Vec<_> = config.pools.iter().map(|one| one.request_timeout).collect();
        let is_any = config.slow_request.is_some() || timeouts.iter().any(Option::is_some);
        is_any.then(|| Arc::new(Self::with(config.slow_request, timeouts)))
    }

    fn with(slow: Option<Nanos>, timeouts: Vec<Option<Nanos>>) -> Self {
        Self {
            slow,
            timeouts,
            posts: Mutex::default(),
            bell: Arc::default(),
        }
    }

    /// Pool thread: takes its post, until `leave`.
    pub(crate) fn enter(&self, pool: u16, thread: Thread, name: &str) -> Arc<Post> {
        let post = Arc::new(Post {
            pool,
            thread,
            name: name.to_owned(),
            began: AtomicU64::new(0),
            tenure: Tenure::new(),
            bell: Arc::clone(&self.bell),
        });
        self.posts().push(Watched {
            post: Arc::clone(&post),
            told: Stamp::ZERO,
            stopped: Stamp::ZERO,
            stopped_at: Stamp::ZERO,
        });
        post
    }

    /// Pool thread: leaves its post.
    pub(crate) fn leave(&self, post: &Arc<Post>) {
        self.posts()
            .retain(|watched| !Arc::ptr_eq(&watched.post, post));
    }

    /// Threads of a pool that were given up and have not ended.
    pub(crate) fn given_up(&self, pool: u16) -> usize {
        let posts = self.posts();
        let of_pool = posts.iter().filter(|watched| watched.post.pool == pool);
        of_pool.filter(|watched| watched.post.is_given_up()).count()
    }

    /// Threads of all pools that were given up and have not ended.
    pub(crate) fn given_up_len(&self) -> usize {
        let posts = self.posts();
        posts
            .iter()
            .filter(|watched| watched.post.is_given_up())
            .count()
    }

    /// Wakes the one thread that ticks.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// When something can be due of what is begun at `now` or later.
    pub(crate) fn due_after(&self, now: Stamp) -> Stamp {
        let limits = self.timeouts.iter().copied().chain([self.slow]);
        now.plus(limits.flatten().min().unwrap_or(Nanos(u64::MAX)))
    }

    /// What is to be done now. Allocates only when there is something.
    pub(crate) fn tick(&self, now: Stamp) -> Round {
        let mut posts = self.posts();
        if self.is_idle(&posts) {
            return Round {
                due: Vec::new(),
                next: Stamp::NEVER,
            };
        }
        let mut round = Round {
            due: Vec::new(),
            next: self.due_after(now),
        };
        for watched in posts.iter_mut() {
            let timeout = self.timeouts.get(usize::from(watched.post.pool));
            watched.look(now, self.slow, timeout.copied().flatten(), &mut round);
        }
        round
    }

    /// Whether nothing runs; the bell is armed then.
    fn is_idle(&self, posts: &[Watched]) -> bool {
        let runs = |watched: &Watched| watched.post.began() != Stamp::ZERO;
        if posts.iter().any(runs) {
            return false;
        }
        self.bell.arm();
        let is_idle = !posts.iter().any(runs);
        if !is_idle {
            self.bell.disarm();
        }
        is_idle
    }

    fn posts(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn look(&mut self, now: Stamp, slow: Option<Nanos>, timeout: Option<Nanos>, round: &mut Round) {
        let began = self.post.began();
        if began == Stamp::ZERO {
            return;
        }
        let age = now.since(began);
        if let Some(slow) = slow
            && self.told != began
        {
            if age < slow {
                round.look_at(began.plus(slow));
            } else if let Some(what) = self.post.what(began) {
                self.told = began;
                round.add(Deed::Tell, &self.post, &what);
            }
        }
        if let Some(timeout) = timeout
            && self.stopped != began
        {
            let what = (age >= timeout).then(|| self.post.what(began)).flatten();
            match what.filter(|what| what.stream.is_overdue()) {
                Some(what) => {
                    (self.stopped, self.stopped_at) = (began, now);
                    round.add(Deed::Stop, &self.post, &what);
                }
                None => round.look_at(began.plus(timeout).max(now.plus(LOOK))),
            }
        }
        if self.stopped == began && !self.post.is_given_up() {
            let last = self.stopped_at.plus(PATIENCE);
            if now < last {
                round.look_at(last);
            } else if let Some(what) = self.post.give_up(began) {
                round.add(Deed::GiveUp, &self.post, &what);
            }
        }
    }
}

impl Round {
    fn look_at(&mut self, at: Stamp) {
        self.next = self.next.min(at);
    }

    fn add(&mut self, deed: Deed, post: &Arc<Post>, what: &What) {
        self.due.push(Due {
            deed,
            post: Arc::clone(post),
            began: what.began,
            phases: what.phases,
            meter: what.meter,
            id: what.id,
            head: Arc::clone(&what.head),
        });
    }
}

impl Due {
    /// Method, target and id, for people.
    pub(crate) fn name(&self) -> String {
        exchange::name(self.id, self.head.view())
    }
}

impl Post {
    /// Pool thread: begins an exchange. Two reference counts, an uncontended lock, a store and a load.
    pub(crate) fn begin(&self, exchange: &Exchange, stream: &Arc<StreamShared>, meter: Meter) {
        let began = exchange.record.phases.started;
        let what = What {
            began,
            id: exchange.record.id,
            head: Arc::clone(&exchange.head),
            phases: exchange.record.phases,
            stream: Arc::clone(stream),
            meter,
        };
        self.tenure.begin(what);
        self.began.store(began.0, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Pool thread: the exchange is over. Its stream may be closed now, which whoever looks must not put off.
    pub(crate) fn end(&self) {
        self.began.store(0, Ordering::Release);
        self.tenure.end();
    }

    /// Pool that its thread belongs to.
    pub(crate) fn pool(&self) -> u16 {
        self.pool
    }

    /// Its thread.
    pub(crate) fn thread(&self) -> Thread {
        self.thread
    }

    /// Its thread's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its thread still runs the exchange that was begun then.
    pub(crate) fn runs(&self, began: Stamp) -> bool {
        self.began() == began
    }

    /// Whether its thread is given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.tenure.is_given_up()
    }

    /// Of a thread that is given up: whether whoever asks is the one to count it out.
    pub(crate) fn count_out(&self) -> bool {
        self.tenure.count_out()
    }

    fn began(&self) -> Stamp {
        Stamp(self.began.load(Ordering::SeqCst))
    }

    fn what(&self, began: Stamp) -> Option<What> {
        self.tenure.what(|what| what.began == began)
    }

    /// Gives the thread up if it still runs that exchange.
    fn give_up(&self, began: Stamp) -> Option<What> {
        self.tenure.give_up(|what| what.began == began)
    }
}

#[cfg(test)]
mod tests {
    use wire::{HeadIndex, HeadStep, HeadView, Limits};

    use super::*;
    use crate::exchange::{Body, Ends, ExchangeRecord, Id};

    const SLOW: Nanos = Nanos::from_secs(1);
    const TIMEOUT: Nanos = Nanos::from_secs(3);

    fn at(ms: u64) -> Stamp {
        Stamp::ZERO.plus(Nanos::from_ms(10_000 + ms))
    }

    fn stream() -> Arc<StreamShared> {
        Arc::new(StreamShared::new())
    }

    fn exchange(started: Stamp) -> Exchange {
        let head = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut index = HeadIndex::new();
        let step = index.parse(head, &mut 0, &Limits::default());
        assert!(matches!(step, Ok(HeadStep::Complete)));
        let view = HeadView {
            bytes: head,
            index: &index,
        };
        let mut record = ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO);
        record.phases.started = started;
        Exchange {
            head: Arc::new(RequestHead::take(view)),
            rewritten: None,
            body: Body::Empty,
            ends: Arc::new(Ends {
                peer_host: "".into(),
                peer_port: "".into(),
                local_host: "".into(),
                local_port: "".into(),
                scheme: "http",
                listener: 0,
            }),
            record,
        }
    }

    fn watch(slow: Option<Nanos>, timeout: Option<Nanos>) -> (Watch, Arc<Post>) {
        let watch = Watch::with(slow, vec![timeout]);
        let post = watch.enter(0, Thread(7), "mp-pool-0");
        (watch, post)
    }

    fn begin(post: &Post, exchange: &Exchange, stream: &Arc<StreamShared>) {
        post.begin(exchange, stream, Meter::start());
    }

    fn deeds(watch: &Watch, ms: u64) -> Vec<Deed> {
        let due = watch.tick(at(ms)).due;
        due.into_iter().map(|due| due.deed).collect()
    }

    #[test]
    fn a_slow_exchange_is_told_once_and_the_next_one_again() {
        let (watch, post) = watch(Some(SLOW), None);
        for begun in [0, 5_000] {
            begin(&post, &exchange(at(begun)), &stream());
            assert_eq!(deeds(&watch, begun + 999), []);
            let due = watch.tick(at(begun + 1_000)).due;
            assert_eq!(due.len(), 1);
            assert_eq!(due[0].name(), "GET /a [id 0000000000000000]");
            assert!(due[0].post.runs(at(begun)));
            assert_eq!(deeds(&watch, begun + 4_000), []);
            post.end();
            assert!(!due[0].post.runs(at(begun)));
        }
        assert_eq!(deeds(&watch, 9_000), []);
    }

    #[test]
    fn nothing_is_stopped_before_its_client_has_its_answer() {
        let (watch, post) = watch(None, Some(TIMEOUT));
        let stream = stream();
        begin(&post, &exchange(at(0)), &stream);
        assert_eq!(deeds(&watch, 3_100), []);
        stream.set_overdue();
        assert_eq!(deeds(&watch, 3_150), [Deed::Stop]);
        assert_eq!(deeds(&watch, 8_149), []);
        assert_eq!(watch.given_up_len(), 0);
        assert_eq!(deeds(&watch, 8_150), [Deed::GiveUp]);
        assert_eq!(deeds(&watch, 90_000), []);
        assert_eq!((watch.given_up(0), watch.given_up(1)), (1, 0));
        assert!(post.is_given_up());
        watch.leave(&post);
        assert_eq!(watch.given_up_len(), 0);
    }

    #[test]
    fn a_thread_that_comes_back_is_not_given_up() {
        let (watch, post) = watch(None, Some(TIMEOUT));
        let stream = stream();
        stream.set_overdue();
        begin(&post, &exchange(at(0)), &stream);
        assert_eq!(deeds(&watch, 3_000), [Deed::Stop]);
        post.end();
        begin(&post, &exchange(at(7_000)), &self::stream());
        assert_eq!(deeds(&watch, 9_000), []);
        assert!(!post.is_given_up());
    }

    #[test]
    fn looks_again_when_something_can_be_due() {
        let (watch, post) = watch(Some(SLOW), Some(TIMEOUT));
        assert_eq!(watch.due_after(at(0)), at(1_000));
        begin(&post, &exchange(at(0)), &stream());
        assert_eq!(watch.tick(at(500)).next, at(1_000));
        assert_eq!(watch.tick(at(1_000)).next, at(2_000));
        assert_eq!(watch.tick(at(2_500)).next, at(3_000));
        // Its driver has not answered yet.
        assert_eq!(watch.tick(at(3_000)).next, at(3_000).plus(LOOK));
    }

    #[test]
    fn sleeps_while_nothing_runs_and_is_woken_once() {
        let (watch, post) = watch(Some(SLOW), None);
        assert_eq!(watch.tick(at(0)).next, Stamp::NEVER);
        assert!(watch.bell().is_armed());
        begin(&post, &exchange(at(5_000)), &stream());
        assert!(!watch.bell().is_armed());
        assert_eq!(watch.tick(at(5_500)).next, at(6_000));
        post.end();
        // Others begin and end between looks: nobody is woken for that.
        begin(&post, &exchange(at(5_600)), &stream());
        post.end();
        assert!(!watch.bell().is_armed());
        assert_eq!(watch.tick(at(6_000)).next, Stamp::NEVER);
        assert!(watch.bell().is_armed());
    }
}
