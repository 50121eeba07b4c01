//! Everything that is kept of the lines.
//!
//! Takes lines as bytes, gives counts and distributions. Its size is bounded by constants: groups, steps of
//! time and the slowest have a greatest number, all else is one of each.

use telemetry::history::HeldSpan;
use telemetry::{KnownQueued, KnownSpans, Line, LineForm, Nanos, Pattern, Reader};

use crate::at_queue::AtQueue;
use crate::event_loops::{EventLoops, LoopCollector};
use crate::filter::Filter;
use crate::groups::{By, Groups};
use crate::lines::Piece;
use crate::slowest::{Slow, Slowest};
use crate::spread::Spread;
use crate::timeline::Timeline;
use crate::upstreams::{SlowServer, UpstreamCollector, UpstreamServer};
use crate::waiting::{Collector, Waiting};

/// Names of the phases, in the order of [`Group::phases`].
pub const PHASES: [&str; 5] = ["receive", "queue", "run", "send", "total"];
/// Words for an ending that are counted apart.
const ENDINGS_LEN_MAX: usize = 20;

/// What to read and what to keep of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A template that lines may have.
    pub pattern: Option<Pattern>,
    /// Which lines count.
    pub filter: Filter,
    /// What they are grouped by.
    pub by: Option<By>,
    /// How many of the slowest requests are kept.
    pub slowest_len: usize,
    /// Whether it is kept what happened when.
    pub timeline: KeepTimeline,
}

/// Whether a timeline is kept: 12 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepTimeline {
    /// For the page.
    Yes,
    /// For all other output.
    No,
}

/// Counts and distributions of some requests.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Requests.
    pub len: u64,
    /// Those of them that ran on an event loop.
    pub loop_len: u64,
    /// Bytes of their bodies, of those whose lines say so.
    pub body_bytes: u64,
    /// How many lines say so.
    pub body_len: u64,
    /// By class of status: 2 is 2xx, 0 is "no reply".
    pub classes: [u64; 10],
    /// Those of which the log says that they did not end well.
    pub incomplete_len: u64,
    /// As in [`PHASES`].
    pub phases: [Spread; PHASES.len()],
    /// The part of the run that was processor time, where lines say so.
    pub cpu: Spread,
    /// What they found at their pool's queue.
    pub at_queue: AtQueue,
}

/// Requests by what they have in common.
#[derive(Debug)]
pub struct Grouped<'t> {
    /// What that is.
    pub by: By,
    /// The groups: statuses and hours in their order, paths by their time, all else by the number of requests.
    pub named: Vec<(String, &'t Group)>,
    /// What came when there were [`crate::GROUPS_LEN_MAX`] already.
    pub others: Option<&'t Group>,
}

/// A line that was not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// The input's name.
    pub name: String,
    /// The line's number in it, from 1.
    pub line: u64,
}

/// All that is kept.
#[derive(Debug)]
pub struct Tally {
    reader: Reader,
    filter: Filter,
    by: Option<By>,
    has_format: bool,
    note: Option<&'static str>,
    /// Of a running server's requests: of how long they are.
    held: Option<HeldSpan>,
    name: String,
    /// Lines of the input that is being read.
    line: u64,
    lines_len: u64,
    misread_len: u64,
    misread_first: Option<Misread>,
    cut_off: Vec<String>,
    forms: [u64; FORMS.len()],
    all: Group,
    statuses: Box<[u64]>,
    endings: Vec<(Vec<u8>, u64)>,
    ends_known_len: u64,
    /// Nanoseconds since 1970 of the first and the last arrival.
    time_ns: Option<(u64, u64)>,
    utc_offset_secs: i32,
    pages: Groups,
    /// `None` also where they would be the pages.
    groups: Option<Groups>,
    slowest: Slowest,
    waiting: Collector,
    event_loops: LoopCollector,
    upstreams: UpstreamCollector,
    timeline: Option<Timeline>,
}

impl Tally {
    /// Nothing yet.
    pub fn new(plan: &Plan) -> Tally {
        Tally {
            reader: Reader::new(plan.pattern.clone()),
            filter: plan.filter.clone(),
            name: String::new(),
            line: 0,
            lines_len: 0,
            misread_len: 0,
            misread_first: None,
            cut_off: Vec::new(),
            forms: [0; FORMS.len()],
            all: Group::default(),
            statuses: vec![0; 1_000].into(),
            endings: Vec::new(),
            ends_known_len: 0,
            time_ns: None,
            utc_offset_secs: 0,
            pages: Groups::new(By::Path),
            groups: plan.by.filter(|by| *by != By::Path).map(Groups::new),
            by: plan.by,
            has_format: plan.pattern.is_some(),
            held: None,
            note: plan.pattern.as_ref().and_then(Pattern::note),
            slowest: Slowest::new(plan.slowest_len),
            waiting: Collector::new(plan.slowest_len),
            event_loops: LoopCollector::default(),
            upstreams: UpstreamCollector::default(),
            timeline: (plan.timeline == KeepTimeline::Yes).then(Timeline::default),
        }
    }

    /// Lines read, understood or not, counted or filtered out; empty ones are none.
    pub fn lines_len(&self) -> u64 {
        self.lines_len
    }

    /// Lines that were not understood, and the first of them.
    pub fn misread(&self) -> (u64, Option<&Misread>) {
        (self.misread_len, self.misread_first.as_ref())
    }

    /// Inputs whose last line has no end; it was left out, because nothing says what is missing.
    pub fn cut_off_inputs(&self) -> &[String] {
        &self.cut_off
    }

    /// How many lines had which form.
    pub fn forms(&self) -> impl Iterator<Item = (LineForm, u64)> {
        FORMS
            .into_iter()
            .zip(self.forms)
            .filter(|(_, len)| *len > 0)
    }

    /// All requests that count.
    pub fn all(&self) -> &Group {
        &self.all
    }

    /// Requests by status, 0 for no reply.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        (0u16..)
            .zip(self.statuses.iter().copied())
            .filter(|(_, len)| *len > 0)
    }

    /// How requests ended that did not end well, the most frequent first; with it, of how many requests the
    /// log says how they ended.
    pub fn endings(&self) -> (Vec<(String, u64)>, u64) {
        let mut endings: Vec<_> = self
            .endings
            .iter()
            .map(|(end, len)| (String::from_utf8_lossy(end).into_owned(), *len))
            .collect();
        endings.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
        (endings, self.ends_known_len)
    }

    /// The first and the last arrival, in nanoseconds since 1970, and the offset of the first line.
    pub fn time(&self) -> Option<(u64, u64, i32)> {
        self.time_ns
            .map(|(first, last)| (first, last, self.utc_offset_secs))
    }

    /// Requests a second, over the seconds from the first to the last, both included.
    pub fn per_second(&self) -> Option<f64> {
        let (first, last) = self.time_ns?;
        let secs = last / 1_000_000_000 - first / 1_000_000_000 + 1;
        Some(self.all.len as f64 / secs as f64)
    }

    /// The groups, where any were wished.
    pub fn groups(&self) -> Option<Grouped<'_>> {
        self.by?;
        Some(grouped(self.groups.as_ref().unwrap_or(&self.pages)))
    }

    /// What the durations of the format are, where it was named.
    pub fn note(&self) -> Option<&'static str> {
        self.note
    }

    /// Of how long the requests are, where a running server has given them.
    pub fn held(&self) -> Option<HeldSpan> {
        self.held
    }

    /// Whether a format was given that no line has.
    pub fn has_unused_format(&self) -> bool {
        let named = [LineForm::Template, LineForm::ProxyJson];
        let is_used = named.iter().any(|form| self.forms[*form as usize] > 0);
        self.has_format && self.all.len > 0 && !is_used
    }

    /// Requests by method and folded path, those that took the most time together first.
    pub fn pages(&self) -> Grouped<'_> {
        grouped(&self.pages)
    }

    /// The slowest requests, the slowest first.
    pub fn slowest(&self) -> &[Slow] {
        self.slowest.kept()
    }

    /// For whose runs requests waited. Works it out of what is kept: call it once.
    pub fn waiting(&self) -> Waiting {
        self.waiting.waiting()
    }

    /// What event loops did, and the connections that stay open.
    pub fn event_loops(&self) -> EventLoops {
        self.event_loops.event_loops()
    }

    /// What upstream servers did, those with the most requests first.
    pub fn upstreams(&self) -> Vec<&UpstreamServer> {
        self.upstreams.servers()
    }

    pub(crate) fn slow_upstream(&self) -> Option<SlowServer<'_>> {
        self.upstreams.slow()
    }

    pub(crate) fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// The requests are those that a server holds.
    pub(crate) fn hold(&mut self, span: HeldSpan) {
        self.held = Some(span);
    }

    /// Lines come from here now; so many came from here before.
    pub(crate) fn begin(&mut self, name: &str, line: u64) {
        self.name.clear();
        self.name.push_str(name);
        self.line = line;
    }

    /// How many lines came from here.
    pub(crate) fn line_number(&self) -> u64 {
        self.line
    }

    /// The input ends within a line.
    pub(crate) fn cut_off(&mut self) {
        self.cut_off.push(self.name.clone());
    }

    #[inline]
    pub(crate) fn line(&mut self, piece: Piece<'_>) {
        self.line += 1;
        let Piece::Line(bytes) = piece else {
            return self.count_misread();
        };
        if bytes.is_empty() || bytes == b"\r" {
            return;
        }
        let Some(line) = self.reader.line(bytes) else {
            return self.count_misread();
        };
        // It borrows the bytes, not the reader.
        self.count_line(&line);
    }

    /// A line that was understood.
    #[inline]
    pub(crate) fn count_line(&mut self, line: &Line<'_>) {
        self.lines_len += 1;
        assert!(
            self.misread_len < self.lines_len,
            "this line was understood"
        );
        let counts = self.filter.passes(line);
        // A run that the report is not about may hold up one that it is about.
        self.waiting.take(line, counts);
        self.event_loops.take(line, counts);
        if counts && line.is_long_lived() {
            // How long a client keeps a connection says nothing of how long requests take.
            self.count_form_and_time(line);
        } else if counts {
            self.count(line);
        }
    }

    #[inline]
    fn count(&mut self, line: &Line<'_>) {
        self.all.add(line);
        self.count_form_and_time(line);
        // Lines of other servers may have any number there; place 0 is for those without a status.
        if let Some(count) = self.statuses.get_mut(usize::from(line.status.unwrap_or(0))) {
            *count += 1;
        }
        if !line.end.is_empty() {
            self.ends_known_len += 1;
            if is_incomplete(line) {
                self.count_ending(&line.plain(line.end));
            }
        }
        self.slowest.take(line);
        self.upstreams.take(line);
        self.pages.group_of(line).add(line);
        if let Some(groups) = &mut self.groups {
            groups.group_of(line).add(line);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.take(line);
        }
    }

    #[inline]
    fn count_form_and_time(&mut self, line: &Line<'_>) {
        self.forms[line.form as usize] += 1;
        if let Some(wall_ns) = line.wall_ns {
            self.stretch(wall_ns, line.utc_offset_secs);
        }
    }

    #[inline]
    fn stretch(&mut self, wall_ns: u64, utc_offset_secs: i32) {
        match &mut self.time_ns {
            Some((first, last)) => {
                *first = wall_ns.min(*first);
                *last = wall_ns.max(*last);
            }
            none => {
                *none = Some((wall_ns, wall_ns));
                self.utc_offset_secs = utc_offset_secs;
            }
        }
    }

    #[cold]
    fn count_misread(&mut self) {
        self.lines_len += 1;
        self.misread_len += 1;
        if self.misread_first.is_none() {
            self.misread_first = Some(Misread {
                name: self.name.clone(),
                line: self.line,
            });
        }
    }

    #[cold]
    fn count_ending(&mut self, end: &[u8]) {
        let end = &end[..end.len().min(64)];
        let is_full = self.endings.len() >= ENDINGS_LEN_MAX;
        match self.endings.iter_mut().find(|(known, _)| known == end) {
            Some((_, len)) => *len += 1,
            // A log of ours has seven words.
            None if is_full => {}
            None => self.endings.push((end.to_vec(), 1)),
        }
    }
}

fn grouped(groups: &Groups) -> Grouped<'_> {
    Grouped {
        by: groups.by(),
        named: groups.sorted(),
        others: groups.others(),
    }
}

const FORMS: [LineForm; 8] = [
    LineForm::Common,
    LineForm::Combined,
    LineForm::Phases,
    LineForm::NaviServer,
    LineForm::Json,
    LineForm::Template,
    LineForm::ProxyJson,
    LineForm::History,
];

impl Group {
    #[inline]
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        self.len += 1;
        self.loop_len += u64::from(line.is_of_loop());
        self.body_bytes = self.body_bytes.wrapping_add(line.body_bytes.unwrap_or(0));
        self.body_len += u64::from(line.body_bytes.is_some());
        self.classes[status_class(line.status)] += 1;
        self.incomplete_len += u64::from(is_incomplete(line));
        for (spread, span) in self.phases.iter_mut().zip(phases_of(&line.spans)) {
            if let Some(span) = span {
                spread.add(span);
            }
        }
        if let Some(cpu) = line.spans.cpu {
            self.cpu.add(cpu);
        }
        self.at_queue.add(&at_queue_of(line));
    }

    /// Adds all that another group has.
    #[cfg(test)]
    pub(crate) fn merge(&mut self, other: &Group) {
        self.len += other.len;
        for (own, others) in self.classes.iter_mut().zip(&other.classes) {
            *own += others;
        }
        for (own, others) in self.phases.iter_mut().zip(&other.phases) {
            own.merge(others);
        }
    }

    /// What they wait for in the queue: `a thread`, or `the event loop`.
    pub(crate) fn runner(&self) -> &'static str {
        match self.loop_len > self.len / 2 {
            true => "the event loop",
            false => "a thread",
        }
    }

    /// The distribution of the total.
    pub fn total(&self) -> &Spread {
        &self.phases[4]
    }

    /// The phases by name, and behind them processor time where any line says how much it was.
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, &Spread)> {
        let phases = PHASES.into_iter().zip(&self.phases);
        phases.chain((!self.cpu.is_empty()).then_some(("cpu", &self.cpu)))
    }

    /// Whether any phase is known.
    pub fn has_phases(&self) -> bool {
        self.phases.iter().any(|spread| !spread.is_empty())
    }
}

/// What a line says of its pool's threads; of an event loop, which has none, how long it had waited before.
#[inline]
pub(crate) fn at_queue_of(line: &Line<'_>) -> KnownQueued {
    match line.is_of_loop() {
        true => KnownQueued {
            before: line.queued.before,
            ..KnownQueued::default()
        },
        false => line.queued,
    }
}

#[inline]
pub(crate) fn phases_of(spans: &KnownSpans) -> [Option<Nanos>; PHASES.len()] {
    [
        spans.receive,
        spans.queue,
        spans.run,
        spans.send,
        spans.total,
    ]
}

#[inline]
pub(crate) fn status_class(status: Option<u16>) -> usize {
    usize::from(status.unwrap_or(0) / 100).min(9)
}

#[inline]
fn is_incomplete(line: &Line<'_>) -> bool {
    !line.end.is_empty() && line.end != b"complete"
}
