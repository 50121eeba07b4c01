//! The history of the server as the supervisor has it: it makes the file or takes it over, gives it to processes and to
//! those who ask for it, and once a second adds up the requests that have ended.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use config::failure::{Failure, plain};
use ipc::LiveHeat;
use ipc::history::{EndedRequest, EndedRequests, HistoryFile, wall_us};
use ipc::stats::Shape;
use telemetry::history::{HeldMark, HeldSecond, MarkKind, PoolGauges, SumAdder};

use super::control::{ClientId, Outcome};
use super::{Supervisor, say};

/// Requests are added up so often.
const EVERY: Duration = Duration::from_secs(1);
/// Paths that nobody asks for are forgotten so often.
const FORGET_EVERY_S: u64 = 3_600;

/// The file, and what is to be written in it.
pub(super) struct History {
    pub(super) file: HistoryFile,
    ended: EndedRequests,
    adder: SumAdder,
    /// The pools of the second that lasts: a list of names, its number, and what is known of each.
    pools: SecondPools,
    /// What pools had refused when the second began; after an upgrade, only from its end on.
    knows_refusals: bool,
    marks: Vec<HeldMark>,
    /// The latest seconds, for the page.
    heat: VecDeque<LiveHeat>,
    /// What happened before the second that lasts; none before the first.
    before: Option<Happened>,
    began: Instant,
    forget_at_s: u64,
}

#[derive(Default)]
struct SecondPools {
    number: u32,
    names: Vec<String>,
}

/// What leaves marks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Happened {
    generation: u64,
    crashes: u64,
    recycled: u64,
}

impl History {
    fn new(file: HistoryFile, first: MarkKind) -> History {
        let pools = file.newest().map(|newest| SecondPools {
            number: newest.number,
            names: newest.pools.clone(),
        });
        let mut history = History {
            ended: EndedRequests::new(&file),
            file,
            adder: SumAdder::default(),
            // The processes of the program before this one serve until others do.
            pools: pools.unwrap_or_default(),
            knows_refusals: first == MarkKind::Start,
            marks: Vec::new(),
            heat: VecDeque::new(),
            before: None,
            began: Instant::now(),
            forget_at_s: 0,
        };
        history.mark(first);
        history
    }

    /// When requests are added up next.
    pub(super) fn due(&self) -> Instant {
        self.began + EVERY
    }

    /// The latest seconds, the oldest first.
    pub(super) fn heat(&self) -> Vec<LiveHeat> {
        self.heat.iter().rev().cloned().collect()
    }

    fn mark(&mut self, kind: MarkKind) {
        let at_s = wall_us() / 1_000_000;
        self.marks.push(HeldMark { at_s, kind });
    }

    /// Leaves marks for what is not as it was.
    fn compare(&mut self, now: Happened) {
        let Some(before) = self.before.replace(now) else {
            return;
        };
        let happened = [
            (now.generation != before.generation, MarkKind::Reload),
            (now.crashes > before.crashes, MarkKind::Crash),
            (now.recycled > before.recycled, MarkKind::Recycling),
        ];
        for (_, kind) in happened.into_iter().filter(|(is_new, _)| *is_new) {
            self.mark(kind);
        }
    }

    /// Ends the second that lasts, with the pools as they are now.
    fn add(&mut self, gauges: &[PoolGauges], now: Instant) -> HeldSecond {
        let (adder, file, pools) = (&mut self.adder, &self.file, &self.pools);
        if !std::mem::replace(&mut self.knows_refusals, true) {
            adder.begin_pools(gauges);
        }
        self.ended.take(file, &mut |ended| {
            adder.add(&ended.request, pools.index(file, ended));
        });
        let span = now.saturating_duration_since(self.began);
        let span_ms = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        let at_s = wall_us() / 1_000_000;
        let minute = adder.minute();
        let is_over = adder.begins_minute(at_s);
        let second = adder.second(at_s, span_ms, pools.number, gauges);
        let number = file.seconds_len();
        file.write_sums(&second, &minute, is_over, &self.marks);
        self.heat.truncate(LiveHeat::LEN_MAX - 1);
        self.heat.push_front(LiveHeat {
            number,
            at_s,
            counts: second.heat,
        });
        if is_over {
            adder.forget_minute();
        }
        self.marks.clear();
        self.began = now;
        if at_s >= self.forget_at_s {
            self.forget_at_s = at_s + FORGET_EVERY_S;
            file.forget_paths(at_s * 1_000_000);
        }
        second
    }
}

impl SecondPools {
    /// Where the pool of a request is, whose process may have had other pools.
    fn index(&self, file: &HistoryFile, ended: &EndedRequest) -> Option<usize> {
        let index = usize::from(ended.request.pool?);
        if ended.names == self.number {
            return Some(index);
        }
        let name = file.pools(ended.names).get(index)?;
        self.names.iter().position(|own| own == name)
    }
}

/// The history that the program before this one has left, or a new one. The server serves without any.
pub(super) fn opened(left: Option<RawFd>) -> Option<History> {
    let adopted = left.map(|number| os::adopt_fd(number).and_then(HistoryFile::adopt));
    let made = match adopted {
        Some(Ok(file)) => Ok((file, MarkKind::Upgrade)),
        Some(Err(error)) => {
            let cause = plain(&error);
            say(&format!(
                "the history of requests begins anew: the old one cannot be used: {cause}"
            ));
            HistoryFile::new().map(|file| (file, MarkKind::Upgrade))
        }
        None => HistoryFile::new().map(|file| (file, MarkKind::Start)),
    };
    let made = made.map(|(file, first)| History::new(file, first));
    made.map_err(|error| no_history(&error)).ok()
}

impl Supervisor<'_> {
    /// The number of a process's names in the history.
    pub(super) fn history_names(&mut self, shape: &Shape) -> Option<u32> {
        let history = self.history.as_mut()?;
        let number = history
            .file
            .number_of(shape)
            .map_err(|error| no_history(&error));
        let number = number.ok()?;
        if history.pools.number != number {
            // The second until now is of the pools that there were.
            self.end_second(Instant::now());
            let names = shape.pools.clone();
            let gauges = self.pool_gauges(&names);
            let history = self.history.as_mut()?;
            history.pools = SecondPools { number, names };
            history.adder.begin_pools(&gauges);
        }
        Some(number)
    }

    /// Adds up what has ended, if it is time.
    pub(super) fn look_after_history(&mut self, now: Instant) {
        if self.history.as_ref().is_some_and(|one| one.due() <= now) {
            self.end_second(now);
        }
    }

    /// Adds up what has ended until now.
    pub(super) fn end_second(&mut self, now: Instant) {
        let happened = self.plan.serving().map(|generation| Happened {
            generation,
            crashes: self.lifetime.crashes,
            recycled: self.lifetime.recycled,
        });
        let Some(history) = &self.history else {
            return;
        };
        let gauges = self.pool_gauges(&history.pools.names);
        if let Some(history) = &mut self.history {
            if let Some(happened) = happened {
                history.compare(happened);
            }
            let second = history.add(&gauges, now);
            let names = history.pools.names.clone();
            self.tell_statsd(&second, &names);
        }
    }

    /// How these pools are in all processes.
    fn pool_gauges(&self, names: &[String]) -> Vec<PoolGauges> {
        let mut all = vec![PoolGauges::default(); names.len()];
        let index = |name: &str| names.iter().position(|own| own == name);
        for pool in &self.lifetime.gone.pools {
            if let Some(index) = index(&pool.name) {
                let figures = &pool.figures;
                all[index].refused += figures.refused + figures.shed + figures.expired;
            }
        }
        for counters in self.processes.iter().filter_map(|one| one.counters()) {
            for (number, pool) in (0..).zip(counters.pools) {
                let Some(index) = index(counters.pool_name(number)) else {
                    continue;
                };
                let (figures, sum) = (pool.numbers(), &mut all[index]);
                sum.running += figures.running;
                sum.waiting += figures.waiting;
                sum.threads += figures.threads;
                sum.refused += figures.refused + figures.shed + figures.expired;
            }
        }
        all
    }

    /// Gives a client the file of the last requests, for reading.
    pub(super) fn hand_out_history(&mut self, client: ClientId) {
        match (self.history_to_read(), &mut self.control) {
            (Ok(file), Some(control)) => {
                control.done_with(client, &Outcome::Done(None), file, Instant::now());
            }
            (Ok(_), None) => {}
            (Err(error), _) => {
                let text = format!("the server has no history of requests: {}", plain(&error));
                self.refuse(Some(client), Failure::new(text));
            }
        }
    }

    /// The file, for reading.
    pub(super) fn history_to_read(&self) -> io::Result<OwnedFd> {
        match &self.history {
            Some(history) => history.file.read_only(),
            None => Err(io::Error::other("there was no memory for it")),
        }
    }
}

fn no_history(error: &io::Error) {
    say(&format!("no history of requests: {}", plain(error)));
}
