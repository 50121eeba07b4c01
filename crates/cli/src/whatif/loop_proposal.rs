//! What to do about an event loop: threads for the steps that block it, more processes, or other numbers of requests inside.
//!
//! Takes what is known of the present, simulates some variants, gives a [`LoopProposal`] and its sentences. Each part may be
//! absent: no advice is better than a wrong one.

use ::whatif::Concurrency;
use present::{counted, duration};
use whatif::prediction::{Answer, ControlMode, Requests, Times, Variant, answers};

use super::log_facts::{HeavyRoute, Present, move_to_threads};
use super::proposal::{Percentile, SAME_MS, SAME_REFUSED, SAME_TIMES, WAIT_MIN_MS};

/// Times today's processes, and times the requests inside, that are tried.
const TRIED: [usize; 2] = [2, 4];
/// Below this longest step the route that has most of them blocks nobody.
const BLOCKS_MIN_MS: f64 = 20.0;

/// What is proposed.
#[derive(Debug)]
pub(super) struct LoopProposal {
    /// What is looked at; `None`: too few requests.
    percentile: Option<Percentile>,
    requests: u64,
    /// The route that blocks the loop, and what comes out with its steps in threads.
    pub(super) blocker: Option<(HeavyRoute, Box<Answer>)>,
    pub(super) processes: Option<Box<Answer>>,
    pub(super) concurrency: Option<Box<Answer>>,
}

/// Simulates what may be proposed, and gives it with all rows for the table.
pub(super) fn proposal(present: &Present) -> Option<(LoopProposal, Vec<Answer>)> {
    let log = present.log.as_ref().filter(|log| log.has_runs)?;
    let of_loop = log.event_loop.as_ref()?;
    let percentile = Percentile::of_len(log.requests - log.refused);
    let value = percentile.unwrap_or(Percentile::P95).value();
    let now = Variant {
        // As the server is that will run it, whoever wrote the log.
        control: ControlMode::On,
        ..present.variant.clone()
    };
    let mut variants = vec![now.clone()];
    variants.extend(TRIED.map(|times| Variant {
        processes: times * now.processes,
        ..now.clone()
    }));
    // Where there was always room inside, more of it changes nothing.
    let was_full = of_loop.inside_max >= now.concurrency.max;
    if was_full {
        variants.extend(TRIED.map(|times| Variant {
            concurrency: times_as_many(now.concurrency, times),
            ..now.clone()
        }));
    }
    let basis = &present.basis;
    let mut rows = answers(basis, &basis.requests, &variants);
    let better = |from: usize| {
        let tried = rows.get(from..from + TRIED.len()).unwrap_or_default();
        tried.iter().fold(None, |best: Option<&Answer>, row| {
            let is_better = improves(best.unwrap_or(&rows[0]), row, value);
            if is_better { Some(row) } else { best }
        })
    };
    let boxed = |answer: Option<&Answer>| answer.cloned().map(Box::new);
    let processes = boxed(better(1));
    let concurrency = boxed(better(1 + TRIED.len()));
    let blocker = of_loop.blocker.clone();
    let blocker = blocker.filter(|blocker| blocker.mean_ms >= BLOCKS_MIN_MS);
    let blocker = blocker.and_then(|blocker| {
        let answer = in_threads(present, &now, &blocker)?;
        rows.push(answer.clone());
        improves(&rows[0], &answer, value).then(|| (blocker, Box::new(answer)))
    });
    let proposal = LoopProposal {
        percentile,
        requests: log.requests,
        blocker,
        processes,
        concurrency,
    };
    Some((proposal, rows))
}

fn times_as_many(now: Concurrency, times: usize) -> Concurrency {
    Concurrency {
        min: times * now.min,
        max: times * now.max,
    }
}

/// What comes out when threads do what the steps of a route did.
fn in_threads(present: &Present, now: &Variant, blocker: &HeavyRoute) -> Option<Answer> {
    let Requests::Recorded(workload) = &present.basis.requests else {
        return None;
    };
    let mut moved = workload.clone();
    move_to_threads(&mut moved, &|route| route == blocker.number);
    let requests = Requests::Recorded(moved);
    let found = answers(&present.basis, &requests, std::slice::from_ref(now));
    let mut answer = found.into_iter().next()?;
    let size = format!("{}, {} in threads", answer.size(), blocker.path);
    answer.concurrency = Some(size);
    Some(answer)
}

/// Whether requests wait clearly shorter, or fewer are refused.
fn improves(now: &Answer, other: &Answer, value: fn(&Times) -> f64) -> bool {
    let (now_ms, other_ms) = (value(&now.queue), value(&other.queue));
    let is_shorter = now_ms >= WAIT_MIN_MS && SAME_TIMES * other_ms + SAME_MS < now_ms;
    is_shorter || other.refused_share() + SAME_REFUSED < now.refused_share()
}

impl LoopProposal {
    /// What each of these would bring.
    pub(super) fn sentences(&self) -> Vec<String> {
        let Some(percentile) = self.percentile else {
            return vec![format!(
                "{} are too few to say what anything else would do. The table is a rough estimate.",
                counted(self.requests, "request")
            )];
        };
        let mut sentences = Vec::new();
        if let Some((blocker, answer)) = &self.blocker {
            sentences.push(format!(
                "{} blocks the loop for {} in one step. With its steps in threads: {}.",
                blocker.path,
                duration(blocker.mean_ms / 1e3),
                percentile.waits(&answer.queue)
            ));
            sentences.push(
                "Run that step in a thread: `await asyncio.to_thread(...)`, or, in FastAPI and Starlette, `def` \
                 instead of `async def`."
                    .to_owned(),
            );
        }
        if let Some(answer) = &self.processes {
            let what = format!("{} processes", answer.processes);
            sentences.push(format!("With {what}: {}.", percentile.waits(&answer.queue)));
            sentences.push(format!("Try: `--processes {}`", answer.processes));
        }
        if let Some(answer) = &self.concurrency {
            let waits = percentile.waits(&answer.queue);
            let size = answer.size();
            sentences.push(format!("With {size} requests inside: {waits}."));
            sentences.push(format!("Try: `--asgi-concurrency {size}`"));
        }
        if sentences.is_empty() {
            sentences.push("More processes, or more requests inside: no gain.".to_owned());
        }
        sentences
    }
}
