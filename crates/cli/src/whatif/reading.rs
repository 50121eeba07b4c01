//! Logs as recordings.
//!
//! Takes inputs, gives requests with their times, by numbers of routes, pools and processes. Says
//! what was left out; decides nothing about it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use present::thousands;
use report::{CUT_OFF, Handling, Input};
use telemetry::{KnownSpans, Line, LineForm, Nanos, Pattern};
use whatif::recorded::{Found, REQUESTS_LEN_MAX, Recorder, Recording, Seen};
use whatif::{Lifetime, LoopSteps};

use super::routes::{PoolRule, Routes};
use crate::message::Message;

/// A longer time without a request is reported, because the rate alone does not show it.
const SILENCE: Nanos = Nanos::from_secs(3_600);

/// The hint for a log without times.
const NO_TIMES_HINT: &str = "log them as the server does by default (`--access-log-format phases`) or as `json`; \
     `--format nginx:request_time` and its like read what other servers append; `--run 20ms` makes them up";

/// Whether requests without times count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untimed {
    /// Their arrivals are all that is wanted.
    Taken,
    /// Nothing can be said about them.
    Left,
}

/// Which times of a request that went to another server are its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOf {
    /// Those that this server saw: until the last byte of the response.
    Here,
    /// Those that the other server told.
    Upstream,
}

/// What was read.
#[derive(Debug)]
pub(super) struct ReadLog {
    pub(super) recording: Recording,
    pub(super) routes: Routes,
    /// Lines.
    pub(super) lines_len: u64,
    /// Lines that were not understood.
    pub(super) misread_len: u64,
    /// The first of them: `NAME:LINE`.
    pub(super) misread_first: Option<String>,
    /// Compressed logs that end before their end.
    pub(super) cut_off: Vec<String>,
    pub(super) left_out: Unsimulated,
    /// What the durations of a named format are.
    note: Option<&'static str>,
}

/// Requests of a log that are not simulated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsimulated {
    /// No thread had to do with them.
    elsewhere_len: u64,
    /// They have no times.
    untimed_len: u64,
    /// Whole times alone: taken for run times.
    totals_len: u64,
    /// They went to another server,
    pub(super) proxied_len: u64,
    /// of which these servers did not tell how long they ran.
    untold_len: u64,
    /// What the others took to the other server and back, together.
    way: Nanos,
}

/// Reads all inputs.
///
/// # Errors
/// One cannot be read to its end, or there are too many requests.
pub(super) fn read(
    inputs: &[Input],
    pattern: Option<&Pattern>,
    routes: Routes,
    untimed: Untimed,
    run_of: RunOf,
) -> Result<ReadLog, Message> {
    let mut reader = LogReader {
        recorder: Recorder::default(),
        routes,
        processes: BTreeMap::new(),
        last_process: 0,
        untimed,
        run_of,
        takes_totals: !pattern.is_some_and(Pattern::knows_runs),
        left_out: Unsimulated::default(),
        is_full: false,
    };
    let (mut lines_len, mut misread_len, mut misread_first) = (0, 0, None);
    let mut cut_off = Vec::new();
    for input in inputs {
        // Each input is a log of its own, in whose order its lines were written.
        reader.recorder.begin();
        let passed = report::lines(input, pattern.cloned(), &mut |line| reader.take(line))
            .map_err(|fault| Message::new(&format!("`{}`", fault.name), &fault.cause))?;
        if reader.is_full {
            let text = format!(
                "there are more than {} requests",
                thousands(REQUESTS_LEN_MAX as u64)
            );
            return Err(Message::new(&format!("`{}`", input.name()), text)
                .with_hint("ask about a part of it: `head`, `zcat | sed`"));
        }
        cut_off.extend(passed.is_cut_off.then(|| input.name()));
        lines_len += passed.lines_len;
        misread_len += passed.others_len;
        // Of all inputs the first one: a user mends one line, and runs the command again.
        let first = passed
            .first_other
            .map(|line| format!("{}:{line}", input.name()));
        misread_first = misread_first.or(first);
    }
    Ok(ReadLog {
        recording: reader.recorder.finish(),
        routes: reader.routes,
        lines_len,
        misread_len,
        misread_first,
        cut_off,
        left_out: reader.left_out,
        note: pattern.and_then(Pattern::note),
    })
}

struct LogReader {
    recorder: Recorder,
    routes: Routes,
    /// Their names, numbered as they came.
    processes: BTreeMap<Vec<u8>, u16>,
    last_process: u16,
    untimed: Untimed,
    run_of: RunOf,
    /// Whether a time that is the whole stands for the run.
    takes_totals: bool,
    left_out: Unsimulated,
    is_full: bool,
}

impl LogReader {
    /// `None`: the line has no time of day, so that it is no request here.
    fn take(&mut self, line: &Line<'_>) -> Option<ControlFlow<()>> {
        let began_unix_ns = line.wall_ns?;
        let mut handling = Handling::of(line);
        let mut spans = line.spans;
        if handling == Handling::Untimed && self.takes_totals && is_foreign(line) {
            (handling, spans.run) = (Handling::Ran, spans.total);
            self.left_out.totals_len += 1;
        }
        if self.run_of == RunOf::Upstream && line.is_proxied() {
            self.left_out.proxied_len += 1;
            match line.upstream.run {
                Some(run) => {
                    let there = run
                        .0
                        .saturating_add(line.upstream.queue.unwrap_or_default().0);
                    let way = spans.run.unwrap_or_default().0.saturating_sub(there);
                    self.left_out.way.0 = self.left_out.way.0.saturating_add(way);
                    spans.run = Some(run);
                }
                None => self.left_out.untold_len += 1,
            }
        }
        match (handling, self.untimed) {
            (Handling::Elsewhere, _) => {
                self.left_out.elsewhere_len += 1;
                return Some(ControlFlow::Continue(()));
            }
            (Handling::Untimed, Untimed::Left) => {
                self.left_out.untimed_len += 1;
                return Some(ControlFlow::Continue(()));
            }
            _ => {}
        }
        let numbers = self.routes.numbers(line);
        if line.form == LineForm::History {
            self.recorder.has_rounded();
        }
        // The times of a request that was refused are those of its refusal.
        let spans = match handling {
            Handling::Ran => spans,
            _ => KnownSpans::default(),
        };
        let seen = Seen {
            began_unix_ns,
            receive: line.spans.receive.unwrap_or_default(),
            queue: spans.queue,
            run: spans.run,
            cpu: spans.cpu,
            gil: spans.gil,
            steps: steps(line).filter(|_| handling == Handling::Ran),
            rest: line.spans.send.unwrap_or_default(),
            route: numbers.route,
            pool: numbers.pool,
            process: self.process(line.process),
            found: found(line),
        };
        self.is_full = self.recorder.push(&seen).is_err();
        Some(match self.is_full {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    fn process(&mut self, name: &[u8]) -> u16 {
        // The default format names no process where no worker ran the request: it was one of those of the lines around.
        if !name.is_empty() {
            self.last_process = self.processes.get(name).copied().unwrap_or_else(|| {
                let next = u16::try_from(self.processes.len()).unwrap_or(u16::MAX);
                self.processes.insert(name.to_vec(), next);
                next
            });
        }
        self.last_process
    }
}

/// Whether the line is of a form whose whole time is all that there is.
fn is_foreign(line: &Line<'_>) -> bool {
    let is_foreign = matches!(line.form, LineForm::Template | LineForm::ProxyJson);
    is_foreign && line.spans.total.is_some()
}

/// What it took of an event loop, if one ran it.
fn steps(line: &Line<'_>) -> Option<LoopSteps> {
    let own = &line.event_loop;
    Some(LoopSteps {
        len: own.steps?,
        busy: own.busy?,
        longest: own.longest?,
        lifetime: match (line.is_websocket(), own.is_event_stream) {
            (true, _) => Lifetime::WebSocket,
            (false, true) => Lifetime::EventStream,
            (false, false) => Lifetime::Response,
        },
        begin: None,
        wake: None,
    })
}

/// Of an event loop nothing: what it writes there says nothing of threads.
fn found(line: &Line<'_>) -> Option<Found> {
    if line.is_of_loop() {
        return None;
    }
    Some(Found {
        threads: line.queued.threads?,
        from_queue: line.queued.from_queue?,
    })
}

impl Unsimulated {
    /// The mean time that requests took to another server and back: everything there but the wait and the run, as the
    /// servers told them; `None`: none did.
    pub(super) fn round_trip(&self) -> Option<Nanos> {
        let told_len = self.proxied_len - self.untold_len;
        self.way.0.checked_div(told_len).map(Nanos)
    }
}

impl ReadLog {
    /// Why nothing can be predicted from it.
    pub(super) fn fault(&self, name: &str, untimed: Untimed) -> Option<Message> {
        let what = format!("`{name}`");
        if !self.recording.is_empty() {
            let len = self.recording.len() as u64;
            // With `--run` all get a time, those that were refused as well.
            let has_run = self.recording.refused() < len || untimed == Untimed::Taken;
            return (!has_run).then(|| {
                let text = format!("none of its {} requests has run", thousands(len));
                Message::new(&what, text).with_hint(
                    "all were refused; an earlier log has run times, or `--run 20ms` makes them up",
                )
            });
        }
        if self.left_out.untimed_len > 0 {
            let text = "there are no run times in it";
            return Some(Message::new(&what, text).with_hint(NO_TIMES_HINT));
        }
        if self.left_out.elsewhere_len > 0 {
            let hint = "files and the server's own pages need no thread of a pool";
            return Some(Message::new(&what, "no request in it went to a thread").with_hint(hint));
        }
        let hint = "`milepost report` says what is in it; `--format` reads templates";
        Some(Message::new(&what, "there is no request in it").with_hint(hint))
    }

    /// Why `rules` cannot be simulated: the log has a pool of that name.
    pub(super) fn clash(&self, rules: &[PoolRule]) -> Option<Message> {
        let pools = self.routes.pools();
        let is_there = |rule: &&PoolRule| pools.iter().any(|(name, _)| *name == rule.name);
        let rule = rules.iter().find(is_there)?;
        let text = format!("the log has a pool `{}` already", rule.name);
        let hint = "choose another name; `--threads` sets the threads of the log's busiest pool";
        Some(Message::new("`--pools`", text).with_hint(hint))
    }

    /// What was left out.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for name in &self.cut_off {
            doubts.push(format!("`{name}`: {CUT_OFF}"));
        }
        if let Some(first) = &self.misread_first {
            doubts.push(format!(
                "{} of {} lines were not understood; the first: {first}",
                thousands(self.misread_len),
                thousands(self.lines_len)
            ));
        }
        if self.left_out.untimed_len > 0 {
            doubts.push(format!(
                "{} requests have no run times and were left out",
                thousands(self.left_out.untimed_len)
            ));
        }
        if self.left_out.untold_len > 0 {
            doubts.push(format!(
                "the servers of {} of {} requests did not tell their run times: the whole time at the server counts",
                thousands(self.left_out.untold_len),
                thousands(self.left_out.proxied_len)
            ));
        }
        let silence = self.recording.silence();
        if silence > SILENCE {
            let hours = (silence.as_secs_f64() / 3_600.0).round() as u64;
            doubts.push(format!(
                "no request arrived for {} h, which lowers all rates: a clock was changed, or a part of the log is missing",
                thousands(hours)
            ));
        }
        for name in self.routes.idle_rules() {
            doubts.push(format!("pool `{name}`: no request has one of its paths"));
        }
        for path in self.routes.idle_paths() {
            doubts.push(format!(
                "`--to-thread`: no request has a path like `{path}`"
            ));
        }
        if self.left_out.totals_len > 0 {
            doubts.push(
                "the log has whole times alone: they stand for run times, so that all predictions are upper bounds"
                    .to_owned(),
            );
        }
        if self.recording.is_by_second() {
            doubts.push(
                "the log has times in whole seconds, so arrivals within a second are a guess; \
                 lines with `at=`, the server's default, have microseconds"
                    .to_owned(),
            );
        }
        doubts.extend(self.note.map(present::sentence));
        doubts
    }

    /// How long the recording lasted, at least a nanosecond.
    pub(super) fn lasted(&self) -> Nanos {
        self.recording.lasted().max(Nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// What is read of a log with a request at each of these times.
    fn read_of(times: &[&str], rest: &str, untimed: Untimed) -> ReadLog {
        let mut text = String::new();
        for time in times {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{{\"time\":\"{time}+00:00\",\"method\":\"GET\",\"target\":\"/\",\
                 \"pool\":\"default\",{rest}}}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, text).unwrap();
        read(
            &[Input::File(path)],
            None,
            Routes::default(),
            untimed,
            RunOf::Here,
        )
        .unwrap()
    }

    const RAN: &str =
        "\"status\":200,\"receive\":0.1,\"queue\":0.2,\"run\":0.3,\"end\":\"complete\"";

    #[test]
    fn says_nothing_of_a_log_in_which_nothing_has_run() {
        let refused = "\"status\":503,\"receive\":0.1,\"queue\":0.0,\"run\":0.0,\"end\":\"refused\",\"cause\":\"queue is full\"";
        let times = ["2026-11-21T12:00:01.000005", "2026-11-21T12:00:02.000005"];
        let read = read_of(&times, refused, Untimed::Left);
        assert_eq!((read.recording.len(), read.recording.refused()), (2, 2));
        let fault = read.fault("log", Untimed::Left).map(|fault| fault.text());
        let fault = fault.unwrap_or_default();
        assert!(
            fault.starts_with("milepost: `log`: none of its 2 requests has run\nhint: "),
            "{fault}"
        );
        assert_eq!(read.fault("log", Untimed::Taken), None, "`--run` has times");
        let read = read_of(&times, RAN, Untimed::Left);
        assert_eq!(read.fault("log", Untimed::Left), None);
    }

    #[test]
    fn says_that_a_clock_was_set() {
        let noon = "2026-11-21T12:00:01.000005";
        for (other, expect) in [
            ("2026-11-21T12:59:00.000005", None),
            (
                "2026-11-21T15:00:01.000005",
                Some("no request arrived for 3 h"),
            ),
            (
                "1970-01-01T00:00:01.000005",
                Some("no request arrived for 498,684 h"),
            ),
        ] {
            let read = read_of(&[noon, other, noon], RAN, Untimed::Left);
            let doubts = read.doubts();
            match expect {
                None => assert_eq!(doubts, Vec::<String>::new(), "{other}"),
                Some(expect) => assert!(doubts[0].starts_with(expect), "{doubts:?}"),
            }
        }
    }
}
