//! The slowest requests, and what each waited for.
//!
//! Takes lines, keeps the slowest few. Text is copied only for those that enter the list, and cut.

use telemetry::{KnownQueued, KnownSpans, Line, LineForm, Nanos};

use crate::tally::at_queue_of;

/// Bytes kept of each text.
const TEXT_BYTES_MAX: usize = 512;

/// One slow request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// How long it took.
    pub total: Nanos,
    /// Its phases.
    pub spans: KnownSpans,
    /// What it found at its pool's queue.
    pub queued: KnownQueued,
    /// How long its steps held an event loop, if one ran it.
    pub busy: Option<Nanos>,
    /// When it arrived.
    pub wall_ns: Option<u64>,
    /// The offset that its time was written at.
    pub utc_offset_secs: i32,
    /// Its status.
    pub status: Option<u16>,
    /// The client.
    pub client: Vec<u8>,
    /// The method.
    pub method: Vec<u8>,
    /// The target, or the first line of what was no request.
    pub target: Vec<u8>,
    /// The route.
    pub route: Vec<u8>,
    /// The pool.
    pub pool: Vec<u8>,
    /// The upstream server that it was sent to last; empty where it was sent to none.
    pub upstream: Vec<u8>,
    /// How long it waited in the upstream's own queue.
    pub upstream_queue: Option<Nanos>,
    /// Its id.
    pub id: Vec<u8>,
    /// How it ended.
    pub end: Vec<u8>,
    /// The log names pools, and this request went through none.
    pub is_inline: bool,
}

impl Slow {
    fn of(line: &Line<'_>, total: Nanos) -> Slow {
        let text = |field| {
            let mut text = line.plain(field).into_owned();
            text.truncate(TEXT_BYTES_MAX);
            text
        };
        let target = if line.target.is_empty() {
            line.request_line
        } else {
            line.target
        };
        Slow {
            total,
            spans: line.spans,
            queued: at_queue_of(line),
            busy: line.event_loop.busy,
            wall_ns: line.wall_ns,
            utc_offset_secs: line.utc_offset_secs,
            status: line.status,
            client: text(line.client),
            method: text(line.method),
            target: text(target),
            route: text(line.route),
            pool: text(line.pool),
            upstream: text(line.upstream.server),
            upstream_queue: line.upstream.queue,
            id: text(line.id),
            end: text(line.end),
            // Lines that have an id name the pool too, where there was one.
            is_inline: matches!(
                line.form,
                LineForm::Phases | LineForm::Json | LineForm::History
            ) && !line.id.is_empty()
                && line.pool.is_empty(),
        }
    }

    /// The largest phase, in words, and how long it was; `None` when no phase is known.
    pub fn waited_for(&self) -> Option<(&'static str, Nanos)> {
        let spans = &self.spans;
        let is_proxied = !self.upstream.is_empty();
        let runner = match (self.is_inline, is_proxied) {
            (true, _) => "the server",
            (false, true) => "the upstream",
            (false, false) => "the application",
        };
        let queue = match (self.busy, is_proxied) {
            (Some(_), _) => "the event loop",
            (None, true) => "a free slot of an upstream",
            (None, false) => "a free thread",
        };
        let phases = [
            ("the client, to send its request", spans.receive),
            (queue, spans.queue),
            (runner, spans.run),
            ("the client, to take the reply", spans.send),
        ];
        let known = phases
            .iter()
            .filter_map(|(words, span)| Some((*words, (*span)?)));
        // Of equal ones the first.
        let (words, span) = known.rev().max_by_key(|(_, span)| *span)?;
        let is_most = |part: &Nanos| Some(span) == spans.run && part.0 > span.0 / 2;
        if let Some(gil) = spans.gil.filter(is_most) {
            return Some(("the interpreter", gil));
        }
        if let Some(queue) = self.upstream_queue.filter(is_most) {
            return Some(("the upstream, in its own queue", queue));
        }
        if let Some(busy) = self.busy.filter(is_most) {
            return Some(("the application, in steps on the event loop", busy));
        }
        match spans.cpu.filter(is_most) {
            Some(cpu) if !self.is_inline => Some(("the application, to compute", cpu)),
            _ => Some((words, span)),
        }
    }
}

/// Whether it is known of any of them what it found at a queue.
pub(crate) fn know_queues(slowest: &[Slow]) -> bool {
    slowest
        .iter()
        .any(|slow| slow.queued.threads.is_some() || slow.queued.waiting.is_some())
}

/// The slowest until now, the slowest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowest {
    kept: Vec<Slow>,
    len_max: usize,
    /// What a further one must exceed.
    bar: Nanos,
}

impl Slowest {
    pub(crate) fn new(len_max: usize) -> Slowest {
        Slowest {
            kept: Vec::new(),
            len_max,
            bar: if len_max == 0 {
                Nanos(u64::MAX)
            } else {
                Nanos::ZERO
            },
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, line: &Line<'_>) {
        if let Some(total) = line.spans.total
            && total > self.bar
        {
            self.insert(Slow::of(line, total));
        }
    }

    pub(crate) fn kept(&self) -> &[Slow] {
        &self.kept
    }

    #[cold]
    fn insert(&mut self, slow: Slow) {
        // After its equals: those that came first stay first.
        let at = self.kept.partition_point(|kept| kept.total >= slow.total);
        assert!(self.kept.len() <= self.len_max, "only so many are kept");
        self.kept.insert(at, slow);
        self.kept.truncate(self.len_max);
        if let (true, Some(last)) = (self.kept.len() == self.len_max, self.kept.last()) {
            self.bar = last.total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(receive: u64, queue: u64, run: u64, send: u64) -> KnownSpans {
        let known = |ns| Some(Nanos(ns));
        KnownSpans {
            receive: known(receive),
            queue: known(queue),
            run: known(run),
            send: known(send),
            total: known(receive + queue + run + send),
            gil: None,
            cpu: None,
        }
    }

    fn slow(spans: KnownSpans) -> Slow {
        let line = Line {
            spans,
            ..Line::default()
        };
        Slow::of(&line, spans.total.unwrap())
    }

    #[test]
    fn keeps_the_slowest_in_order() {
        let mut slowest = Slowest::new(3);
        for total in [5, 1, 9, 9, 2, 7, 0] {
            slowest.take(&Line {
                spans: spans(0, 0, total, 0),
                ..Line::default()
            });
        }
        let totals: Vec<_> = slowest.kept().iter().map(|slow| slow.total.0).collect();
        assert_eq!(totals, [9, 9, 7]);
        let mut none = Slowest::new(0);
        none.take(&Line {
            spans: spans(0, 0, 5, 0),
            ..Line::default()
        });
        assert!(none.kept().is_empty());
    }

    #[test]
    fn names_what_was_waited_for() {
        let check = |spans, expect| assert_eq!(slow(spans).waited_for(), Some(expect));
        check(
            spans(9, 1, 1, 1),
            ("the client, to send its request", Nanos(9)),
        );
        check(spans(1, 9, 1, 1), ("a free thread", Nanos(9)));
        check(spans(1, 1, 9, 1), ("the application", Nanos(9)));
        check(
            spans(1, 1, 1, 9),
            ("the client, to take the reply", Nanos(9)),
        );
        let gil = KnownSpans {
            gil: Some(Nanos(6)),
            ..spans(1, 1, 9, 1)
        };
        check(gil, ("the interpreter", Nanos(6)));
        let computed = |cpu| KnownSpans {
            cpu: Some(Nanos(cpu)),
            ..spans(1, 1, 9, 1)
        };
        check(computed(5), ("the application, to compute", Nanos(5)));
        check(computed(4), ("the application", Nanos(9)));
        let line = Line {
            form: LineForm::Phases,
            id: b"1",
            spans: spans(1, 1, 9, 1),
            ..Line::default()
        };
        assert_eq!(
            Slow::of(&line, Nanos(12)).waited_for(),
            Some(("the server", Nanos(9)))
        );
        let total_alone = KnownSpans {
            total: Some(Nanos(4)),
            ..KnownSpans::default()
        };
        assert_eq!(slow(total_alone).waited_for(), None);
    }

    #[test]
    fn cuts_what_is_long() {
        let target = vec![b'x'; 10_000];
        let line = Line {
            target: &target,
            spans: spans(0, 0, 1, 0),
            ..Line::default()
        };
        assert_eq!(Slow::of(&line, Nanos(1)).target.len(), TEXT_BYTES_MAX);
    }
}
