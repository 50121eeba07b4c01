//! The flags of `milepost whatif` and what they mean.
//!
//! Takes clap's matches, gives options or all faults at once. Opens nothing.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgMatches, Command};
use report::{Input, duration};
use telemetry::{Nanos, Pattern};
use whatif::prediction::{ControlMode, ErrorMax, Objective, Reserve, Threads};
use whatif::{Concurrency, Laws, Service};

use super::fleet::FleetOptions;
use super::routes::PoolRule;
use super::{objective, synthetic};
use crate::control::history;
use crate::inputs::{expect, inputs, pattern, value, with_flags};
use crate::message::Message;

const ABOUT: &str = "Predict queue times with other numbers of threads, pools, processes or rates";

const LONG_ABOUT: &str = "\
Say how many threads a server needs, from its access log. The simulation takes the arrivals and
run times of the log, and runs them through the server's own queue and controller. Without further
flags the command proposes a number of threads, and a pool for a page that holds the threads of
others; for ASGI applications, what to do about pages that block the event loop, and a number of
processes.

The logs must contain run times: milepost's default, json and naviserver formats, NaviServer's
format with partial times, and what `--format` reads. The simulation first repeats the log itself.
If the simulated queue times differ from the measured ones, the command refuses to predict
anything else. Without LOG, or for `-`, the command reads standard input. With --live it needs no
log: a running server holds its last requests of at most 24 hours.";

const EXAMPLES: &str = "\
Examples:
  milepost whatif access.log
  milepost whatif access.log --why
  milepost whatif access.log --threads 2,4,8,2:16 --rate x1,x1.5,x2
  milepost whatif access.log --objective 'p99 queue < 20ms' --rate x2
  milepost whatif access.log --threads 8 --pools 'slow=2 /reports/*'
  milepost whatif --live 1h
  milepost whatif asgi.log --processes 1,2,4 --concurrency 50,100:1000 --to-thread /report
  milepost whatif access.log --threads 2,4,8 --html whatif.html
  milepost whatif --synthetic 'poisson rate=200 run=lognormal:20ms,4' --threads 4,5,6,8
  milepost whatif proxy.log --servers 4 --slots 4 --balance queue,least-connections

Durations take us, ms, s, m, h, d.
Exit: 0 done, 1 no number of threads meets the objectives, 2 an input could not be read or the
simulation does not repeat the log.";

/// The flags, as [`with_flags`] reads them.
const FLAGS: &str = "\
# Variants
threads LIST Threads of each process: 2,5,10; 2:20 is a pool that the controller sizes
processes LIST Numbers of processes: 1,2,4
concurrency LIST Requests inside the event loop of each process, as asgi_concurrency: 50,100:1000
to-thread PATH+ Path whose steps on the event loop run in threads instead: '/report*'; repeatable
pools POOL+ Separate pool for some paths: 'slow=1:2 /reports/*'; repeatable
rate LIST Factors of the log's request rate: x1.5,x2; the time between requests becomes shorter
controller LIST Automatic pool size and overload control: on,off [default: on]
objective TEXT+ Find the fewest threads for: 'p99 queue < 20ms', 'p95 total < 1s', 'refused < 0.1%'; repeatable
# The server
threads-now THREADS Threads of each process while the log was written [default: from the log, else the most requests running at once]
concurrency-now MIN:MAX asgi_concurrency while the log was written [default: 100:1000, or what repeats the log]
queue-target DURATION Queue time of 95 of 100 requests above which a pool grows [default: 5ms]
queue-timeout DURATION Maximum queue time before a request is refused [default: 30s]
overload-timeout DURATION Maximum queue time while a pool is overloaded [default: auto, 1s or three median run times]
queue-len-max N Maximum number of requests in the queue [default: 1024]
queue-reserve THREADS[:PLACES] Threads and queue places of the busiest pool reserved for health checks; the simulation leaves them empty [default: 0]
# Several servers behind a proxy
servers LIST Numbers of servers behind a proxy: 2,4,8; simulates them instead of one server
slots N Requests that each server runs at once [default: the threads of the log]
balance LIST Rules that pick a server, as the setting `balance`; `central` is one queue that knows all [default: each]
limits LIST What a proxy knows of the slots: reported, learnt, none [default: reported,none]
proxies LIST Numbers of proxies that do not see each other: 1,4 [default: 1]
slow-server FACTOR One of the servers takes so many times as long: 10x
round-trip DURATION Time of a request's way to a server and back [default: the mean of the log; 200us if the log does not say]
report-delay DURATION How much later than its response a load report counts [default: 0]
# Requests
live DURATION Instead of a log, take the last requests that a running server holds: 15m, 1h
synthetic SPEC Simulate synthetic requests instead of a log: 'poisson rate=200 run=lognormal:20ms,4 for=60s'
run DISTRIBUTION Run times for logs without them: 20ms, exp:20ms, lognormal:20ms,4
format TEXT Template of the lines, as in access_log_format ('{time} {run:ms}'), or a name: NAMES; it comes before all other formats
# Output
error-max ERROR Maximum error of the repeated p50, p95 and p99: a share, a time, or the larger of both [default: 20%,2ms]
why - Show how the answer was found, and all columns
force - Predict even if the simulation does not repeat the log
seed NUMBER Seed of the random numbers [default: 1]
json - Print JSON
html FILE Also write an HTML page with charts, which opens without a network
";

/// Without an input.
const MISSING: &str =
    "`milepost whatif access.log`; `-` reads standard input, `--synthetic` needs no log";
/// Most values of one list.
const LIST_LEN_MAX: usize = 64;
const THREADS_MAX: usize = 4_096;
const PROCESSES_MAX: usize = 256;
const CONCURRENCY_MAX: usize = 1_000_000;
/// As the server has it.
const QUEUE_LEN_MAX: usize = 1_000_000;

/// The options.
#[derive(Debug)]
pub(super) struct WhatifOptions {
    pub(super) source: Source,
    pub(super) run: Option<Service>,
    pub(super) threads: Vec<Threads>,
    pub(super) processes: Vec<usize>,
    pub(super) concurrencies: Vec<Concurrency>,
    /// Paths whose steps run in threads.
    pub(super) to_threads: Vec<String>,
    pub(super) rates: Vec<f64>,
    pub(super) controls: Vec<ControlMode>,
    pub(super) pools: Vec<PoolRule>,
    /// Several servers instead of one.
    pub(super) fleet: Option<FleetOptions>,
    pub(super) objectives: Vec<Objective>,
    pub(super) threads_now: Option<Threads>,
    pub(super) concurrency_now: Option<Concurrency>,
    pub(super) queue_target: Nanos,
    pub(super) queue_timeout: Nanos,
    /// `None`: by the runs, as the server has it.
    pub(super) overload_timeout: Option<Nanos>,
    pub(super) queue_len_max: usize,
    pub(super) reserve: Reserve,
    pub(super) error_max: ErrorMax,
    pub(super) is_forced: bool,
    pub(super) output: Detail,
    pub(super) seed: u64,
    pub(super) is_json: bool,
    pub(super) page: Option<PathBuf>,
}

/// How much is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// The answer.
    Answer,
    /// Also how it was found.
    All,
}

impl WhatifOptions {
    /// Whether nothing in particular is asked for, so that proposals are wanted.
    pub(super) fn is_open(&self) -> bool {
        self.threads.is_empty()
            && self.processes.is_empty()
            && self.concurrencies.is_empty()
            && self.to_threads.is_empty()
            && self.rates.is_empty()
            && self.controls.is_empty()
            && self.pools.is_empty()
            && self.objectives.is_empty()
            && self.run.is_none()
    }
}

/// The source of the requests.
#[derive(Debug)]
pub(super) enum Source {
    /// Logs, and the template of their lines if there is one.
    Logs(Vec<Input>, Option<Pattern>),
    /// A description.
    Synthetic(Laws),
}

/// The subcommand.
pub(crate) fn command() -> Command {
    with_flags("whatif", FLAGS)
        .args(history::args())
        .mut_arg("live", |arg| {
            arg.conflicts_with_all(["log", "format", "synthetic"])
        })
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
}

/// The options that the flags say.
///
/// # Errors
/// All faults of the flags.
pub(super) fn options(matches: &ArgMatches) -> Result<WhatifOptions, Vec<Message>> {
    let mut flags = Flags {
        matches,
        faults: Vec::new(),
    };
    let live_secs = history::seconds(matches, &mut flags.faults);
    let mut options = WhatifOptions {
        source: flags.source(),
        run: flags.value("run", synthetic::service),
        threads: flags.list("threads", threads),
        processes: flags.list("processes", |text| whole(text, 1..=PROCESSES_MAX)),
        concurrencies: flags.list("concurrency", concurrency),
        to_threads: flags.all("to-thread", path_glob),
        rates: flags.list("rate", rate),
        controls: flags.list("controller", control),
        pools: flags.all("pools", PoolRule::parse),
        fleet: flags.fleet(),
        objectives: flags.all("objective", objective::parse),
        threads_now: flags.value("threads-now", threads),
        concurrency_now: flags.value("concurrency-now", concurrency),
        queue_target: flags.or("queue-target", Nanos::from_ms(5), span),
        queue_timeout: flags.or("queue-timeout", Nanos::from_secs(30), span),
        overload_timeout: flags.or("overload-timeout", None, span_or_auto),
        queue_len_max: flags.or("queue-len-max", 1_024, |text| {
            whole(text, 1..=QUEUE_LEN_MAX)
        }),
        reserve: flags.value("queue-reserve", reserve).unwrap_or_default(),
        error_max: flags.value("error-max", error_max).unwrap_or_default(),
        is_forced: matches.get_flag("force"),
        output: match matches.get_flag("why") {
            true => Detail::All,
            false => Detail::Answer,
        },
        seed: flags.or("seed", 1, seed),
        is_json: matches.get_flag("json"),
        page: matches.get_one::<String>("html").map(PathBuf::from),
    };
    flags.check(&options);
    if !flags.faults.is_empty() {
        return Err(flags.faults);
    }
    if let Some(secs) = live_secs {
        let held = Arc::new(history::held(matches, secs)?);
        options.source = Source::Logs(vec![Input::Held(held)], None);
    }
    Ok(options)
}

/// The flags of a command line, and what is wrong with them.
pub(super) struct Flags<'m> {
    matches: &'m ArgMatches,
    faults: Vec<Message>,
}

impl Flags<'_> {
    fn source(&mut self) -> Source {
        let has_spec = self.has("synthetic");
        if let Some(laws) = self.value("synthetic", synthetic::laws) {
            // A law and a log would both say when requests arrive.
            if self.has("log") {
                self.fault(
                    "--synthetic",
                    "takes the place of a log, and a log is named",
                );
            }
            return Source::Synthetic(laws);
        }
        if self.has("live") {
            // It is asked once all flags are right.
            return Source::Logs(Vec::new(), None);
        }
        let missing = (!has_spec).then_some(MISSING);
        let inputs = inputs(self.matches, missing, &mut self.faults);
        let pattern = self.value("format", pattern);
        Source::Logs(inputs, pattern)
    }

    /// Finds faults of flags in combination.
    fn check(&mut self, options: &WhatifOptions) {
        let names: Vec<&str> = options
            .pools
            .iter()
            .map(|pool| pool.name.as_str())
            .collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                self.fault("--pools", &format!("two pools are named `{name}`"));
            }
        }
        if let Some(fleet) = &options.fleet {
            return fleet.check(self, options);
        }
        let is_synthetic = matches!(options.source, Source::Synthetic(_));
        let is_counted = !options.threads.is_empty() || !options.objectives.is_empty();
        // `--run` makes the run times; how many ran at once is in none of them then.
        if options.run.is_some() && !is_counted && options.threads_now.is_none() {
            self.fault(
                "--threads",
                "is missing: a log without run times does not tell the number of threads",
            );
        }
        let faults = [
            (
                options.run.is_some(),
                "--run",
                "belongs to logs; `--synthetic` has `run=`",
            ),
            (
                !options.pools.is_empty(),
                "--pools",
                "synthetic requests have no paths",
            ),
            (
                !options.concurrencies.is_empty(),
                "--concurrency",
                "synthetic requests run on threads",
            ),
            (
                !options.to_threads.is_empty(),
                "--to-thread",
                "synthetic requests run on threads",
            ),
            (
                !is_counted,
                "--threads",
                "is missing: synthetic requests do not tell the number of threads",
            ),
        ];
        for (is_wrong, flag, cause) in faults {
            if is_synthetic && is_wrong {
                self.fault(flag, cause);
            }
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.matches.contains_id(name)
    }

    pub(super) fn fault(&mut self, flag: &str, cause: &str) {
        self.faults.push(Message::new(&format!("`{flag}`"), cause));
    }

    pub(super) fn value<T>(
        &mut self,
        name: &str,
        understand: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        value(self.matches, name, &mut self.faults, understand)
    }

    pub(super) fn or<T>(
        &mut self,
        name: &str,
        default: T,
        understand: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        self.value(name, understand).unwrap_or(default)
    }

    pub(super) fn list<T>(
        &mut self,
        name: &str,
        understand: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let all = self.value(name, |text| {
            let parts: Vec<&str> = text.split(',').map(str::trim).collect();
            // The values of all lists multiply to the number of simulations.
            if parts.len() > LIST_LEN_MAX {
                return Err(format!(
                    "expected up to {LIST_LEN_MAX} values, found {}",
                    parts.len()
                ));
            }
            parts.into_iter().map(&understand).collect()
        });
        all.unwrap_or_default()
    }

    fn all<T>(&mut self, name: &str, understand: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let texts = self.matches.get_many::<String>(name).into_iter().flatten();
        let mut all = Vec::new();
        for text in texts {
            match understand(text) {
                Ok(one) => all.push(one),
                Err(cause) => self.fault(&format!("--{name}"), &cause),
            }
        }
        all
    }
}

pub(super) fn whole(text: &str, bounds: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    let expected = format!("a number from {} to {}", bounds.start(), bounds.end());
    expect(number, &expected, text)
}

/// `4`, or `2:20`.
pub(super) fn threads(text: &str) -> Result<Threads, String> {
    let one = |text: &str| whole(text, 1..=THREADS_MAX);
    let Some((min, max)) = text.split_once(':') else {
        return one(text).map(Threads::fixed);
    };
    let (min, max) = (one(min)?, one(max)?);
    let threads = (min <= max).then_some(Threads { min, max });
    expect(threads, "the smaller number first", text)
}

/// `100:1000`, or `8` for both.
fn concurrency(text: &str) -> Result<Concurrency, String> {
    let (min, max) = text.split_once(':').unwrap_or((text, text));
    let one = |text: &str| whole(text, 1..=CONCURRENCY_MAX);
    let (min, max) = (one(min)?, one(max)?);
    let found = (min <= max).then_some(Concurrency { min, max });
    expect(found, "the smaller number first", text)
}

fn path_glob(text: &str) -> Result<String, String> {
    let found = text.starts_with(['/', '*']).then(|| text.to_owned());
    expect(found, "a path as /report or /reports/*", text)
}

/// `1`, or `1:8`; one number stands for both.
fn reserve(text: &str) -> Result<Reserve, String> {
    let (threads, places) = text.split_once(':').unwrap_or((text, text));
    Ok(Reserve {
        threads: whole(threads, 0..=THREADS_MAX)?,
        len: whole(places, 0..=QUEUE_LEN_MAX)?,
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_prefix('x').unwrap_or(text).parse::<f64>().ok();
    let number = number.filter(|number| (0.01..=100.0).contains(number));
    expect(number, "a factor from x0.01 to x100", text)
}

fn control(text: &str) -> Result<ControlMode, String> {
    let modes = [ControlMode::On, ControlMode::Off];
    let found = modes.into_iter().find(|mode| mode.text() == text);
    expect(found, "on or off", text)
}

pub(super) fn span(text: &str) -> Result<Nanos, String> {
    let span = duration(text).filter(|span| span.0 > 0);
    expect(span, "a duration as 20ms or 1s", text)
}

fn span_or_auto(text: &str) -> Result<Option<Nanos>, String> {
    match text {
        "auto" => Ok(None),
        text => span(text).map(Some),
    }
}

fn error_max(text: &str) -> Result<ErrorMax, String> {
    let mut error_max = ErrorMax {
        share: 0.0,
        span: Nanos::ZERO,
    };
    for part in text.split(',').map(str::trim) {
        match part.strip_suffix('%') {
            Some(_) => error_max.share = objective::share(part)?,
            None => {
                let found = span(part).ok();
                error_max.span = expect(found, "an error as 20%, 2ms or 20%,2ms", text)?;
            }
        }
    }
    Ok(error_max)
}

fn seed(text: &str) -> Result<u64, String> {
    expect(text.parse().ok(), "a whole number", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(line: &str) -> Result<WhatifOptions, String> {
        let words = std::iter::once("whatif").chain(line.split_whitespace());
        let matches = command().try_get_matches_from(words).expect(line);
        options(&matches).map_err(|faults| faults.iter().map(Message::text).collect())
    }

    #[test]
    fn understands_lists() {
        let options =
            understood("a.log --threads 2,4:8 --processes 1,3 --rate x1.5,2 --controller on,off")
                .unwrap();
        let texts: Vec<String> = options.threads.iter().map(Threads::to_string).collect();
        assert_eq!(texts, ["2", "4:8"]);
        assert_eq!(options.processes, [1, 3]);
        assert_eq!(options.rates, [1.5, 2.0]);
        assert_eq!(options.controls, [ControlMode::On, ControlMode::Off]);
    }

    #[test]
    fn patience_under_overload_is_that_of_the_server() {
        let overload = |line| understood(line).unwrap().overload_timeout;
        assert_eq!(overload("a.log"), None);
        assert_eq!(overload("a.log --overload-timeout auto"), None);
        assert_eq!(
            overload("a.log --overload-timeout 10ms"),
            Some(Nanos::from_ms(10))
        );
    }

    #[test]
    fn the_queue_is_that_of_the_server() {
        let check = |line, len_max, threads, len| {
            let options = understood(line).unwrap();
            let reserve = Reserve { threads, len };
            assert_eq!((options.queue_len_max, options.reserve), (len_max, reserve));
        };
        check("a.log", 1_024, 0, 0);
        check("a.log --queue-len-max 50 --queue-reserve 2", 50, 2, 2);
        check("a.log --queue-reserve 1:8", 1_024, 1, 8);
    }

    #[test]
    fn understands_errors() {
        let check = |text, share, ms| {
            let found = error_max(text).unwrap();
            assert_eq!(
                (found.share, found.span),
                (share, Nanos::from_ms(ms)),
                "{text}"
            );
        };
        check("30%", 0.3, 0);
        check("5ms", 0.0, 5);
        check("10%, 1ms", 0.1, 1);
        assert!(error_max("much").is_err());
    }

    #[test]
    fn says_what_is_wrong_with_each() {
        let check = |line: &str, expect: &str| {
            let found = understood(line).unwrap_err();
            assert!(found.contains(expect), "{line}: {found}");
        };
        check(
            "a --threads -3",
            "milepost: `--threads`: expected a number from 1 to 4096, found `-3`",
        );
        check("a --threads 0", "found `0`");
        check("a --threads 8:2", "the smaller number first");
        check("a --rate x0", "expected a factor");
        check("a --controller maybe", "expected on or off");
        check("a --objective fast", "expected an objective");
        check("a --synthetic even", "`rate=` is missing");
        check("--synthetic even_rate=3", "`--synthetic`");
        check("a --pools slow", "expected a pool");
        check("a --concurrency 9:2", "the smaller number first");
        check("a --concurrency-now 0", "a number from 1");
        check("a --to-thread report", "expected a path as");
        check("a --queue-target 0ms", "expected a duration");
        check("a --queue-len-max 0", "a number from 1 to 1000000");
        check("a --queue-reserve 1:x", "expected a number from 0");
        check("a --seed x --controller y", "expected on or off");
    }
}
