//! How many requests in flight a server can make use of, where nobody says it.
//!
//! Takes what was completed in how long while every slot was in use, gives the limit to try. It must not know latency
//! or other servers.
//!
//! Two limits are compared, many and few, that take turns of a moment each. Only time in which all slots are in use
//! counts: what a server completes while requests are missing is what came, not what it can do. The rates of
//! neighbouring turns differ by what the limit does and not by the time of day, so few pairs are enough:
//!
//! ```text
//!   Up: L or 2 L? ── many complete more ──▶ 2 L, Up
//!     └─ they do not ─▶ Down: L or L/2? ── few complete as much ──▶ L/2, Down
//!                         └─ they do not ─▶ Trim: L or 3/4 L? ── the fewer that do as much ──▶ Rest ──▶ Up
//! ```
//!
//! Too few slots cost throughput and too many only make the queue wait at the server instead of here, so the way up
//! is tried first and the way down needs evidence.
//!
//! A server that answers within a fraction of a millisecond needs no search: it may have as many requests as it
//! completes in a millisecond, and those wait there for about that long. With fewer, both sides would sleep and be woken
//! for every few requests.

use telemetry::{Nanos, Stamp};

/// Where the search begins.
pub(super) const FIRST: u32 = 8;
/// Twice the slots are worth it where throughput rises by this part.
const GAIN_MIN: f64 = 0.15;
/// Fewer slots are enough where throughput falls by no more than this.
const LOSS_MAX: f64 = 0.1;
/// A turn lasts this long, and until so many have completed,
const TURN_MIN: Nanos = Nanos::from_ms(10);
const TURN_COMPLETED: u32 = 50;
/// but no longer than this.
const TURN_MAX: Nanos = Nanos::from_secs(4);
/// Completions at the beginning of a turn that belong to the limit before it, as many as there are slots and so many
/// at least.
const SETTLE_MIN: u32 = 4;
/// Pairs of turns until a comparison is decided: at least for few and for many, and at most. What is undecided then
/// stays as it is.
const PAIRS_MIN_FEW: u32 = 4;
const PAIRS_MIN_MANY: u32 = 2;
const PAIRS_MAX: u32 = 60;
/// A comparison is decided when its mean is so many standard errors away from the threshold. It is looked at after each
/// pair, and few that are too few cost more than many that are too many.
const ERRORS_FEW: f64 = 3.0;
const ERRORS_MANY: f64 = 2.0;
/// The variance of a pair is not taken for less than that of two turns of exponential times.
const PAIR_VARIANCE_MIN: f64 = 2.0 / TURN_COMPLETED as f64;
/// A wait at a server that needs no search: the requests that it completes in this time may all be there,
const SHORT_WAIT: Nanos = Nanos::from_ms(1);
/// if they are so many times those that were found.
const QUICK_FACTOR: u32 = 2;
/// Completions are counted over this time at least.
const THROUGHPUT_SPAN: Nanos = Nanos::from_ms(10);
/// How long a limit that was found is kept, at first and at most.
const HOLD_MIN: Nanos = Nanos::from_secs(10);
const HOLD_MAX: Nanos = Nanos::from_secs(300);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arm {
    Few,
    Many,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heading {
    Up,
    Down,
    Trim,
}

/// Two limits in turns.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Comparison {
    few: u32,
    many: u32,
    /// The logarithm of many's rate over few's from which on many are worth it.
    threshold: f64,
    /// What it is when nothing is found out.
    otherwise: Arm,
    arm: Arm,
    /// Completions that are still passed over.
    settling: u32,
    time: Nanos,
    completed: u32,
    /// The rate of the turn before, where this is the second of a pair.
    before: Option<f64>,
    /// Over the pairs: how many, the mean of the logarithm of many's rate over few's, and the sum of the squared
    /// deviations (Welford).
    pairs: u32,
    mean: f64,
    deviations: f64,
}

impl Comparison {
    fn new(few: u32, many: u32, threshold: f64, otherwise: Arm) -> Comparison {
        Comparison {
            few,
            many,
            threshold,
            otherwise,
            arm: Arm::Few,
            settling: few.max(SETTLE_MIN),
            time: Nanos::ZERO,
            completed: 0,
            before: None,
            pairs: 0,
            mean: 0.0,
            deviations: 0.0,
        }
    }

    fn limit(&self) -> u32 {
        match self.arm {
            Arm::Few => self.few,
            Arm::Many => self.many,
        }
    }

    /// So many completed in `time` with all slots in use. Which of the two is right, once that is known.
    fn observe(&mut self, time: Nanos, completed: u32) -> Option<Arm> {
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(completed);
            return None;
        }
        self.time = Nanos(self.time.0 + time.0);
        self.completed += completed;
        let is_enough = self.time >= TURN_MIN && self.completed >= TURN_COMPLETED;
        if !is_enough && self.time < TURN_MAX {
            return None;
        }
        let rate = f64::from(self.completed) / self.time.as_secs_f64();
        let verdict = match self.before.take() {
            None => {
                self.before = Some(rate);
                None
            }
            Some(before) => {
                let (few, many) = match self.arm {
                    Arm::Few => (rate, before),
                    Arm::Many => (before, rate),
                };
                self.fold((many / few).ln());
                self.verdict()
            }
        };
        // Few, many, many, few: what drifts evenly favours neither.
        if self.before.is_some() {
            self.arm = match self.arm {
                Arm::Few => Arm::Many,
                Arm::Many => Arm::Few,
            };
            self.settling = self.limit().max(SETTLE_MIN);
        }
        (self.time, self.completed) = (Nanos::ZERO, 0);
        verdict
    }

    fn fold(&mut self, sample: f64) {
        self.pairs += 1;
        let off = sample - self.mean;
        self.mean += off / f64::from(self.pairs);
        self.deviations += off * (sample - self.mean);
    }

    fn verdict(&self) -> Option<Arm> {
        let over = self.mean - self.threshold;
        let pairs = f64::from(self.pairs);
        let variance = (self.deviations / (pairs - 1.0).max(1.0)).max(PAIR_VARIANCE_MIN);
        let error = (variance / pairs).sqrt();
        if self.pairs >= PAIRS_MIN_MANY && over > ERRORS_MANY * error {
            return Some(Arm::Many);
        }
        if self.pairs >= PAIRS_MIN_FEW && over < -ERRORS_FEW * error {
            return Some(Arm::Few);
        }
        (self.pairs >= PAIRS_MAX).then_some(self.otherwise)
    }
}

/// Whether a server may be tried with fewer slots than it is known to use: one of a group at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lowering {
    Allowed,
    /// Another server is tried.
    NotNow,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Compare(Heading, Comparison),
    /// A comparison with fewer that waits until no other server is tried.
    Pending(Heading, Comparison),
    /// A limit was found; it is kept until then.
    Rest {
        until: Stamp,
    },
}

/// The span since all slots were last known to be in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FullSpan {
    since: Stamp,
    completed: u32,
}

/// How many requests a server completes in `SHORT_WAIT`, however many are in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Throughput {
    since: Stamp,
    completed: u32,
    /// Completions in `SHORT_WAIT`, by the span before.
    in_short_wait: u32,
}

impl Throughput {
    const NONE: Throughput = Throughput {
        since: Stamp::ZERO,
        completed: 0,
        in_short_wait: 0,
    };

    fn observe(&mut self, now: Stamp) {
        self.completed = self.completed.saturating_add(1);
        let span = now.since(self.since);
        if span >= THROUGHPUT_SPAN {
            let in_short_wait = u64::from(self.completed) * SHORT_WAIT.0 / span.0;
            *self = Throughput {
                since: now,
                completed: 0,
                in_short_wait: u32::try_from(in_short_wait).unwrap_or(u32::MAX),
            };
        }
    }
}

/// The search for the slots of one server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct SlotSearch {
    found: u32,
    max: u32,
    throughput: Throughput,
    stage: Stage,
    hold: Nanos,
    span: Option<FullSpan>,
    /// Nobody waited when a slot was last taken: the time until the next one is taken may be nobody's demand.
    is_slack: bool,
}

impl SlotSearch {
    /// A search between 1 and `max`.
    pub(super) fn new(max: u32) -> SlotSearch {
        let max = max.max(1);
        let found = FIRST.min(max);
        SlotSearch {
            found,
            max,
            throughput: Throughput::NONE,
            stage: SlotSearch::up(found, max),
            hold: HOLD_MIN,
            span: None,
            is_slack: true,
        }
    }

    /// The limit at present.
    pub(super) fn limit(&self) -> u32 {
        if self.is_quick() {
            return self.throughput.in_short_wait.min(self.max);
        }
        match self.stage {
            Stage::Compare(_, comparison) => comparison.limit(),
            Stage::Pending(..) | Stage::Rest { .. } => self.found,
        }
    }

    /// Whether the server answers so fast that no search is needed.
    fn is_quick(&self) -> bool {
        self.throughput.in_short_wait >= self.found.saturating_mul(QUICK_FACTOR)
    }

    /// The best limit so far.
    #[cfg(test)]
    pub(super) fn found(&self) -> u32 {
        self.found
    }

    /// A slot was taken; with it `in_flight` are, and `waiting` requests find none.
    pub(super) fn taken(&mut self, now: Stamp, in_flight: u32, waiting: u32) {
        let is_slack = self.is_slack;
        self.is_slack = waiting == 0;
        if self.is_quick() || in_flight < self.limit() {
            return;
        }
        // The moment between an end and the next request belongs to what the limit costs, unless nobody wanted it.
        if self.span.is_none() || is_slack || self.is_slack {
            let completed = 0;
            self.span = Some(FullSpan {
                since: now,
                completed,
            });
        }
    }

    /// Whether it is being tried with fewer slots.
    pub(super) fn is_lowered(&self) -> bool {
        !self.is_quick() && matches!(self.stage, Stage::Compare(Heading::Down | Heading::Trim, _))
    }

    /// A request was completed; with it `in_flight` were there.
    pub(super) fn completed(&mut self, now: Stamp, in_flight: u32, lowering: Lowering) {
        let was_quick = self.is_quick();
        self.throughput.observe(now);
        if self.is_quick() {
            // The comparison that was under way begins afresh once the server is slower again.
            if !was_quick {
                self.disturbed();
            }
            return;
        }
        match (self.stage, lowering) {
            (Stage::Rest { until }, _) if now >= until => {
                self.stage = SlotSearch::up(self.found, self.max);
                self.span = None;
            }
            (Stage::Pending(heading, comparison), Lowering::Allowed) => {
                self.stage = Stage::Compare(heading, comparison);
                self.span = None;
            }
            (Stage::Rest { .. } | Stage::Pending(..) | Stage::Compare(..), _) => {}
        }
        let limit = self.limit();
        let Some(span) = &mut self.span else { return };
        span.completed += 1;
        if in_flight < limit {
            return;
        }
        let (time, completed) = (now.since(span.since), span.completed);
        *span = FullSpan {
            since: now,
            completed: 0,
        };
        let Stage::Compare(heading, comparison) = &mut self.stage else {
            return;
        };
        let heading = *heading;
        if let Some(arm) = comparison.observe(time, completed) {
            let (few, many) = (comparison.few, comparison.many);
            self.decide(now, heading, arm, few, many);
        }
        // What was in flight under another limit is not this one's.
        if self.limit() != limit {
            self.span = None;
        }
    }

    /// Something else disturbed the server: what is being measured is of no use.
    pub(super) fn disturbed(&mut self) {
        self.span = None;
        if let Stage::Compare(_, comparison) = &mut self.stage {
            let Comparison {
                few,
                many,
                threshold,
                otherwise,
                ..
            } = *comparison;
            *comparison = Comparison::new(few, many, threshold, otherwise);
        }
    }

    fn decide(&mut self, now: Stamp, heading: Heading, arm: Arm, few: u32, many: u32) {
        self.found = match arm {
            Arm::Few => few,
            Arm::Many => many,
        };
        let next = match (heading, arm) {
            (Heading::Up, Arm::Many) => Some(SlotSearch::up(many, self.max)),
            (Heading::Up, Arm::Few) | (Heading::Down, Arm::Few) => SlotSearch::down(few),
            (Heading::Down, Arm::Many) => SlotSearch::trim(many),
            (Heading::Trim, _) => None,
        };
        self.stage = next.unwrap_or_else(|| self.rest(now));
    }

    fn up(found: u32, max: u32) -> Stage {
        let many = found.saturating_mul(2).min(max);
        if many > found {
            let growth = f64::from(many) / f64::from(found) - 1.0;
            let threshold = (GAIN_MIN * growth).ln_1p();
            return Stage::Compare(
                Heading::Up,
                Comparison::new(found, many, threshold, Arm::Few),
            );
        }
        SlotSearch::down(found).unwrap_or(Stage::Rest {
            until: Stamp::NEVER,
        })
    }

    fn down(found: u32) -> Option<Stage> {
        SlotSearch::fewer(Heading::Down, found / 2, found)
    }

    fn trim(found: u32) -> Option<Stage> {
        let few = found - found / 4;
        // Half was too few, and there is nothing between.
        (few < found)
            .then(|| SlotSearch::fewer(Heading::Trim, few, found))
            .flatten()
    }

    fn fewer(heading: Heading, few: u32, found: u32) -> Option<Stage> {
        let threshold = -(-LOSS_MAX).ln_1p();
        let comparison = || Comparison::new(few, found, threshold, Arm::Many);
        (few > 0).then(|| Stage::Pending(heading, comparison()))
    }

    fn rest(&mut self, now: Stamp) -> Stage {
        let until = now.plus(self.hold);
        // Each rest is longer than the one before: a search disturbs what has been found good.
        self.hold = Nanos(self.hold.0 * 2).min(HOLD_MAX);
        Stage::Rest { until }
    }
}
