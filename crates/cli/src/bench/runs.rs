//! Runs against one target: once, several times, or at one rate after another; and what becomes of them.
//!
//! Takes options, gives an exit code. 0: done. 1: an assertion does not hold, or a search has found no rate.
//! 2: it could not be done, or not a single request was answered.

use std::cell::OnceCell;
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use loadgen::engine::{self, Fault};
use loadgen::outcome::{Outcome, Remark, Weight};
use loadgen::output::{self, Tone};
use loadgen::plan::{Address, Load, Plan, Protocol};
use loadgen::statistics::{Assertion, Moments, Search, SearchEnd, Try};
use present::thousands;

use super::flags::{BenchOptions, Runs, has_stdout};
use super::live::{Stop, Watcher};
use super::replay::Disk;
use crate::environment::cause;
use crate::message::{self, Message};
use crate::progress::ProgressScreen;
use crate::{COULD_NOT, DONE, NO, control};

/// Does what is wished, as far as nothing is wrong with it. `faults`: what is known to be wrong.
pub(super) fn run(mut options: BenchOptions, mut faults: Vec<Message>) -> i32 {
    if let Some(socket) = &options.admin_socket {
        match control::processes(socket) {
            Ok(pids) => {
                for pid in pids {
                    options.load.put("server_pid", &pid.to_string());
                }
            }
            Err(messages) => faults.extend(messages),
        }
    }
    let pattern = options.pattern.clone();
    // All faults at once: those of the flags, of the control socket, of the load and of the signals.
    let plan = options.load.plan(&Disk { pattern });
    let plan = plan.map_err(|found| faults.extend(found.iter().map(message)));
    let stop = Stop::listen();
    if let Err(error) = &stop {
        faults.push(Message::new("signals", cause(error)));
    }
    let (Ok(plan), Ok(stop), true) = (plan, stop, faults.is_empty()) else {
        message::say_all(&faults);
        return COULD_NOT;
    };
    let mut bench = Bench {
        options: &options,
        stop,
        outcomes: Vec::new(),
        unwritten: OnceCell::new(),
    };
    let address = plan.target.address.clone();
    let made = match &options.runs {
        Runs::Repeated { len, assertions } => bench.repeated(&plan, *len, assertions),
        Runs::Search {
            condition,
            first,
            most,
        } => bench.search(plan, condition, Search::new(*first, *most)),
    };
    bench.finish(made, &address)
}

/// Runs that are made.
struct Bench<'w> {
    options: &'w BenchOptions,
    stop: Stop,
    outcomes: Vec<Outcome>,
    /// Why a table is not on standard output: said at the end, because the runs go on and have other outputs.
    unwritten: OnceCell<Message>,
}

impl Bench<'_> {
    /// Whether all assertions hold for all runs.
    fn repeated(
        &mut self,
        plan: &Plan,
        len: usize,
        assertions: &[Assertion],
    ) -> Result<bool, Fault> {
        let mut holds = true;
        for at in 0..len {
            let name = match len {
                1 => String::new(),
                _ => format!("run {} of {len}", at + 1),
            };
            let outcome = self.one(plan, name.clone())?;
            for assertion in assertions {
                // All are said, even when one has failed already: a run is too dear to be repeated for the second.
                holds &= said(&name, &outcome, assertion);
            }
            self.outcomes.push(outcome);
            if self.stop.is_asked_for() {
                break;
            }
        }
        if let Some(summary) = summary(&self.outcomes).filter(|_| !self.options.is_quiet) {
            self.show(&summary);
        }
        Ok(holds)
    }

    /// Whether there is a rate at which the condition holds.
    fn search(
        &mut self,
        mut plan: Plan,
        condition: &Assertion,
        mut search: Search,
    ) -> Result<bool, Fault> {
        let knee = loop {
            let rate = match search.next() {
                ControlFlow::Break(knee) => break knee,
                ControlFlow::Continue(rate) => rate,
            };
            plan.load = at_rate(&plan.load, rate);
            let outcome = self.one(&plan, format!("{rate:.0}/s"))?;
            let tried = Try::of(rate, &outcome, condition);
            self.outcomes.push(outcome);
            // What was cut short has not shown that the rate holds.
            if self.stop.is_asked_for() {
                break search.knee(SearchEnd::BrokenOff);
            }
            search.said(tried);
        };
        self.show(&knee.text());
        Ok(knee.best.is_some())
    }

    /// One run, shown.
    fn one(&self, plan: &Plan, name: String) -> Result<Outcome, Fault> {
        let heading = match name.as_str() {
            "" => String::new(),
            name => format!("{name}\n"),
        };
        let mut outcome = watched(plan, name, &self.stop, self.options.is_quiet)?;
        outcome.asked.label.clone_from(&self.options.label);
        outcome.asked.url.clone_from(&plan.target.url);
        if self.stop.is_asked_for() {
            outcome.remarks.push(interrupted(&outcome));
        }
        if !self.options.is_quiet {
            self.show(&(heading + &output::table(&outcome, self.tone())));
        }
        Ok(outcome)
    }

    /// To standard output, unless that is a program's.
    fn show(&self, text: &str) {
        if has_stdout(&self.options.outputs) {
            message::talk(text);
        } else if let Err(message) = message::result(text) {
            // The first one says it for all.
            let _ = self.unwritten.set(message);
        }
    }

    fn tone(&self) -> Tone {
        let is_terminal = match has_stdout(&self.options.outputs) {
            true => io::stderr().is_terminal(),
            false => io::stdout().is_terminal(),
        };
        // https://no-color.org
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty());
        match is_terminal && !is_refused && !self.options.is_plain {
            true => Tone::Colour,
            false => Tone::Plain,
        }
    }

    /// Writes what was measured, and says how it ended.
    fn finish(&self, made: Result<bool, Fault>, address: &Address) -> i32 {
        let mut messages: Vec<Message> = self.unwritten.get().cloned().into_iter().collect();
        // Whatever came after it: what was measured is worth its files.
        if !self.outcomes.is_empty() {
            let title = match self.options.label.as_str() {
                "" => &self.outcomes[0].asked.url,
                label => label,
            };
            for output in &self.options.outputs {
                let text = (output.form)(&self.outcomes, title);
                messages.extend(output.place.write(&text).err());
            }
        }
        let is_written = messages.is_empty();
        let code = match made {
            Err(fault) => {
                messages.push(message(&fault));
                COULD_NOT
            }
            // Whatever the runs say: nobody will read it.
            Ok(_) if !is_written => COULD_NOT,
            Ok(holds) => match unanswered(&self.outcomes, address) {
                Some(message) => {
                    messages.push(message);
                    COULD_NOT
                }
                None if holds => DONE,
                None => NO,
            },
        };
        message::say_all(&messages);
        code
    }
}

/// Makes a run that says how it goes, unless nobody wants to know.
pub(crate) fn watched(
    plan: &Plan,
    name: String,
    stop: &Stop,
    is_quiet: bool,
) -> Result<Outcome, Fault> {
    let screen = match is_quiet {
        true => ProgressScreen::Nowhere,
        false => ProgressScreen::of_talk(),
    };
    let mut watcher = Watcher::new(plan, name, stop, screen);
    let made = engine::run(plan, &mut watcher);
    watcher.screen.clear();
    made
}

fn interrupted(outcome: &Outcome) -> Remark {
    // A stored result outlives the terminal on which Ctrl-C was pressed.
    let seconds = outcome.seconds;
    let text = format!("the run was ended by a signal after {seconds:.1} s of counted time");
    Remark::new(Weight::Note, "interrupted", text)
}

/// As it is printed.
pub(crate) fn message(fault: &Fault) -> Message {
    Message::from_text(&fault.text).with_hint_maybe(fault.hint.clone())
}

/// Says what an assertion says of a run.
fn said(name: &str, outcome: &Outcome, assertion: &Assertion) -> bool {
    let verdict = assertion.holds(outcome);
    let of_run = match name {
        "" => String::new(),
        name => format!("{name}: "),
    };
    for line in verdict.text().lines() {
        Message::from_text(format!("{of_run}{line}")).say();
    }
    // What the generator measured of itself is not the server's to answer for.
    if !outcome.is_valid() {
        let cause = "the run is invalid, so that nothing holds for it";
        let message = Message::new(&format!("{of_run}assert"), cause);
        message.with_hint("its table says why").say();
    }
    verdict.is_held() && outcome.is_valid()
}

/// The same load at another rate.
fn at_rate(load: &Load, rate: f64) -> Load {
    let arrivals = match load {
        Load::Open { arrivals, .. } => *arrivals,
        Load::Closed | Load::Recorded { .. } | Load::Burst => loadgen::plan::Arrivals::Constant,
    };
    Load::Open {
        arrivals,
        rate: loadgen::plan::Profile::constant(rate),
    }
}

/// Of several runs in one line.
fn summary(outcomes: &[Outcome]) -> Option<String> {
    if outcomes.len() < 2 {
        return None;
    }
    let mut rates = Moments::default();
    outcomes
        .iter()
        .for_each(|run| rates.record(run.per_second()));
    let said = |rate: f64| thousands(rate.round() as u64);
    let (least, most, mean) = (said(rates.min()), said(rates.max()), said(rates.mean()));
    let len = outcomes.len();
    Some(format!(
        "{len} runs: {least} to {most} requests a second, {mean} on average\n"
    ))
}

/// What to look at where no connection could be made, and where what came over one was no reply.
fn hints(last: &Outcome, address: &Address) -> [&'static str; 2] {
    let is_tls = last.asked.url.starts_with("https:");
    let is_http2 = last.asked.protocol == Protocol::Http2;
    let listener = match address {
        Address::Ip(_) if is_tls => {
            "does a server listen there (`ss -ltn`), with TLS, and a certificate for this name? \
             `curl -v` says what is wrong"
        }
        _ if is_http2 => {
            "does a server listen there, and does it speak HTTP/2 without TLS? Without `--http2` the \
             load is HTTP/1.1"
        }
        Address::Unix(_) => "does a server listen there? `ss -lx` shows who does",
        Address::Ip(_) => "does a server listen there? `ss -ltn` shows who does",
    };
    let speaker = match is_http2 {
        true => "`resets` and `GOAWAY` in the result have the server's codes",
        false => "does it speak HTTP, and with TLS where the URL says https?",
    };
    [listener, speaker]
}

/// Why there is no answer at all; `None`: there is one.
pub(super) fn unanswered(outcomes: &[Outcome], address: &Address) -> Option<Message> {
    let is_answered = outcomes.iter().any(|outcome| outcome.counts.answered > 0);
    let last = outcomes.last().filter(|_| !is_answered)?;
    let failures = &last.counts.failures;
    let [listener, speaker] = hints(last, address);
    let causes = [
        (failures.connect, "no connection could be made", listener),
        (
            failures.timeout,
            "no reply was complete in time",
            "`--timeout` says how long is waited",
        ),
        (
            failures.reset,
            "connections ended before a byte of a reply",
            speaker,
        ),
        (
            failures.short,
            "replies ended before their end, or were no HTTP",
            speaker,
        ),
        (
            failures.status,
            "every reply had a status that was not expected",
            "`--expect-status` says which are right",
        ),
        (
            failures.body,
            "every reply had a body that was not expected",
            "`--expect-length` and `--expect-body` say what is right",
        ),
        (
            failures.local,
            "this side could not make a connection",
            "the table says what to do; `--source` wants addresses of this host",
        ),
    ];
    // The most frequent one: a server that is down refuses thousands of times, and one that starts late some.
    let (count, cause, hint) = causes
        .into_iter()
        .max_by_key(|(count, ..)| *count)
        .filter(|(count, ..)| *count > 0)
        .unwrap_or((
            0,
            "none ended in the counted time",
            "give it more time: `--duration`",
        ));
    let times = match count {
        0 => String::new(),
        count => format!(" ({} times)", thousands(count)),
    };
    let cause = format!("no request was answered as expected: {cause}{times}");
    Some(Message::new(&format!("`{}`", last.asked.url), cause).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadgen::outcome::{Asked, Counts, Failures};
    use loadgen::plan::{Arrivals, Profile};

    fn outcome(answered: u64, failures: Failures) -> Outcome {
        Outcome {
            asked: Asked {
                url: "http://h/".to_owned(),
                ..Asked::default()
            },
            seconds: 2.0,
            counts: Counts {
                answered,
                failures,
                ..Counts::default()
            },
            ..Outcome::default()
        }
    }

    #[test]
    fn tells_a_run_that_was_ended_early() {
        let remark = interrupted(&outcome(5, Failures::default()));
        assert_eq!(
            (remark.weight, remark.word.as_str()),
            (Weight::Note, "interrupted")
        );
        assert!(remark.text.contains("after 2.0 s"), "{}", remark.text);
    }

    fn failed(connect: u64, status: u64) -> Outcome {
        let failures = Failures {
            connect,
            status,
            ..Failures::default()
        };
        outcome(0, failures)
    }

    fn inet() -> Address {
        Address::Ip(([127, 0, 0, 1], 1).into())
    }

    #[test]
    fn says_why_nothing_was_answered() {
        let address = inet();
        for (runs, expect) in [
            (
                vec![failed(5, 1_000)],
                "every reply had a status that was not expected (1,000 times)",
            ),
            (vec![failed(7, 0)], "no connection could be made (7 times)"),
            (vec![failed(0, 0)], "none ended in the counted time"),
        ] {
            let said = unanswered(&runs, &address).unwrap().text();
            let expect = format!(
                "milepost: `http://h/`: no request was answered as expected: {expect}\nhint: "
            );
            assert!(said.starts_with(&expect), "{said}");
        }
        assert_eq!(
            unanswered(&[failed(7, 0), outcome(1, Failures::default())], &address),
            None
        );
        assert_eq!(unanswered(&[], &address), None);
    }

    #[test]
    fn hints_at_where_a_connection_could_have_come_from() {
        let mut run = failed(7, 0);
        let hint = |run: &Outcome, address| {
            let said = unanswered(std::slice::from_ref(run), &address).unwrap();
            said.text().lines().last().unwrap_or_default().to_owned()
        };
        assert!(hint(&run, Address::Unix("/run/shop.sock".into())).contains("`ss -lx`"));
        assert!(!hint(&run, inet()).contains("certificate"));
        run.asked.url = "https://h/".to_owned();
        assert!(hint(&run, inet()).contains("certificate"));
    }

    #[test]
    fn sums_several_runs_up() {
        let run = |answered| outcome(answered, Failures::default());
        assert_eq!(summary(&[run(10)]), None);
        assert_eq!(
            summary(&[run(2_000), run(4_000), run(6_000)]).as_deref(),
            Some("3 runs: 1,000 to 3,000 requests a second, 2,000 on average\n")
        );
    }

    #[test]
    fn keeps_how_requests_are_spaced_at_another_rate() {
        let poisson = Arrivals::Poisson { seed: 5 };
        let load = Load::Open {
            arrivals: poisson,
            rate: Profile::constant(1.0),
        };
        for (load, expect) in [(load, poisson), (Load::Closed, Arrivals::Constant)] {
            let Load::Open { arrivals, rate } = at_rate(&load, 7.0) else {
                panic!("no open load");
            };
            assert_eq!((arrivals, rate), (expect, Profile::constant(7.0)));
        }
    }
}
