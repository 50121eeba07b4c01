//! The flags of `milepost whatif` and what they mean.
//!
//! Takes clap's matches, gives a wish or all faults at once. Opens nothing.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use measure::{Nanos, Pattern, Template};
use report::{Input, duration};
use whatif::asking::{ErrorMax, Objective, Reserve, Steering, Threads};
use whatif::recorded::Scale;
use whatif::{Laws, Service};

use super::law::{self, Asked};
use super::objective;
use super::routes::PoolRule;
use crate::inputs::inputs;
use crate::message::Message;

const ABOUT: &str = "Say what waits would have been with other threads, pools, processes or rates";

const LONG_ABOUT: &str = "\
Say what waits would have been with other threads, pools, processes or rates: simulates the requests
of access logs, their arrivals and run times, with the server's own queue and controller.

Reads logs with run times: milepost's phases, json and naviserver forms, NaviServer's with partial
times, and templates that have the fields. First it repeats what the log measured, and it says
nothing else if it cannot. Without LOG, or for `-`, it reads standard input.";

const EXAMPLES: &str = "\
Examples:
  milepost whatif access.log
  milepost whatif access.log --threads 2,4,8,2:16 --rate x1,x1.5,x2
  milepost whatif access.log --objective 'p99 queue < 20ms' --rate x2
  milepost whatif access.log --threads 8 --pools 'slow=2 /reports/*'
  milepost whatif access.log --threads 2,4,8 --html whatif.html
  milepost whatif --law 'poisson rate=200 run=lognormal:20ms,4' --threads 4,5,6,8
  milepost whatif access.log --law 'fitted for=1h'

Durations take us, ms, s, m, h, d.
Exit: 0 done, 1 no number of threads holds the objectives, 2 something could not be read or the
simulation does not repeat the log.";

/// Where nothing is named and nothing is piped.
const MISSING: &str = "`milepost whatif access.log`; `-` reads standard input, `--law` needs none";
/// Most values of one list.
const LIST_LEN_MAX: usize = 64;
const THREADS_MAX: usize = 4_096;
const PROCESSES_MAX: usize = 256;
/// As the server has it.
const QUEUE_LEN_MAX: usize = 1_000_000;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) source: Source,
    pub(super) run: Option<Service>,
    /// Laws are fitted to the logs and take their place.
    pub(super) fitted: Option<FittedWish>,
    pub(super) threads: Vec<Threads>,
    pub(super) processes: Vec<usize>,
    pub(super) rates: Vec<f64>,
    pub(super) controls: Vec<Steering>,
    pub(super) scale: Scale,
    pub(super) pools: Vec<PoolRule>,
    pub(super) objectives: Vec<Objective>,
    pub(super) threads_now: Option<Threads>,
    pub(super) queue_target: Nanos,
    pub(super) queue_timeout: Nanos,
    pub(super) overload_timeout: Nanos,
    pub(super) queue_len_max: usize,
    pub(super) reserve: Reserve,
    pub(super) error_max: ErrorMax,
    pub(super) is_forced: bool,
    pub(super) seed: u64,
    pub(super) is_json: bool,
    pub(super) page: Option<PathBuf>,
}

/// How laws are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FittedWish {
    /// How long requests come; `None`: as long as the log.
    pub(super) lasts: Option<Nanos>,
}

/// Where requests come from.
#[derive(Debug)]
pub(super) enum Source {
    /// Logs, and the form of lines that have one of their own.
    Logs(Vec<Input>, Option<Pattern>),
    /// A law.
    Law(Laws),
}

/// The subcommand.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .help(help)
            .action(ArgAction::Set)
            // `-3` is a wrong number, not an unknown flag.
            .allow_negative_numbers(true)
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .help(help)
            .action(ArgAction::SetTrue)
    };
    Command::new("whatif")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .arg(
            Arg::new("log")
                .value_name("LOG")
                .help("Files, `-` for standard input")
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .num_args(0..),
        )
        .next_help_heading("What is asked")
        .arg(flag(
            "threads",
            "LIST",
            "Threads of each process: 2,5,10, and 2:20 for a pool that the controller sizes",
        ))
        .arg(flag("processes", "LIST", "Processes: 1,2,4"))
        .arg(
            flag(
                "pools",
                "POOL",
                "A pool of its own for some paths: 'slow=1:2 /reports/*'; repeatable",
            )
            .action(ArgAction::Append),
        )
        .arg(flag("rate", "LIST", "Times as many requests: x1.5,x2"))
        .arg(flag(
            "scale",
            "HOW",
            "How there are more of them: gaps shrink (the hardest case), or whole sessions of clients are drawn [default: gaps]",
        ))
        .arg(flag(
            "control",
            "LIST",
            "Whether the controller sizes pools and refuses what would wait in vain: on,off [default: on]",
        ))
        .arg(
            flag(
                "objective",
                "TEXT",
                "Find the fewest threads: 'p99 queue < 20ms', 'p95 total < 1s', 'refused < 0.1%'; repeatable",
            )
            .action(ArgAction::Append),
        )
        .next_help_heading("What is known")
        .arg(flag(
            "threads-now",
            "THREADS",
            "Threads of each process when the log was written [default: as the log says, else the most that ran at once]",
        ))
        .arg(flag(
            "queue-target",
            "DURATION",
            "How long 95 of 100 may wait before a pool grows [default: 5ms]",
        ))
        .arg(flag(
            "queue-timeout",
            "DURATION",
            "Longest wait for a thread [default: 30s]",
        ))
        .arg(flag(
            "overload-timeout",
            "DURATION",
            "The same while a pool is overloaded [default: 10s]",
        ))
        .arg(flag(
            "queue-len-max",
            "N",
            "Requests that may wait for a thread; one more is refused [default: 1024]",
        ))
        .arg(flag(
            "queue-reserve",
            "THREADS[:PLACES]",
            "Threads of the busiest pool, and places in its queue, that only health checks have; they are not simulated [default: 0]",
        ))
        .arg(flag(
            "law",
            "LAW",
            "Requests by a law in place of a log: 'poisson rate=200 run=lognormal:20ms,4 for=60s'; by the one that fits the log: fitted, 'fitted for=1h'",
        ))
        .arg(flag(
            "run",
            "LAW",
            "Run times by a law, for logs without them: 20ms, exp:20ms, lognormal:20ms,4",
        ))
        .arg(flag(
            "format",
            "TEXT",
            "A template, as in access_log_format; other lines are read as always",
        ))
        .next_help_heading("What is said")
        .arg(flag(
            "error-max",
            "ERROR",
            "Largest error of the repeated p50, p95 and p99: a share, a time, or both, the larger counts [default: 20%,2ms]",
        ))
        .arg(switch("force", "Answer even if the log could not be repeated"))
        .arg(flag("seed", "NUMBER", "Of all that is left to chance [default: 1]"))
        .arg(switch("json", "Print JSON"))
        .arg(
            flag(
                "html",
                "FILE",
                "Also write a page with pictures that opens without a network",
            )
            .value_hint(ValueHint::FilePath),
        )
}

/// Understands the flags.
///
/// # Errors
/// All that is wrong with them.
pub(super) fn wish(matches: &ArgMatches) -> Result<Wish, Vec<Message>> {
    let mut given = Given {
        matches,
        faults: Vec::new(),
    };
    let asked = given.value("law", law::asked);
    let wish = Wish {
        fitted: match &asked {
            Some(Asked::Fitted(fitted)) => Some(*fitted),
            _ => None,
        },
        source: given.source(asked),
        run: given.value("run", law::service),
        threads: given.list("threads", threads),
        processes: given.list("processes", |text| whole(text, 1..=PROCESSES_MAX)),
        rates: given.list("rate", rate),
        controls: given.list("control", control),
        scale: given.value("scale", scale).unwrap_or_default(),
        pools: given.all("pools", PoolRule::parse),
        objectives: given.all("objective", objective::parse),
        threads_now: given.value("threads-now", threads),
        queue_target: given
            .value("queue-target", span)
            .unwrap_or(Nanos::from_ms(5)),
        queue_timeout: given
            .value("queue-timeout", span)
            .unwrap_or(Nanos::from_secs(30)),
        overload_timeout: given
            .value("overload-timeout", span)
            .unwrap_or(Nanos::from_secs(10)),
        queue_len_max: given
            .value("queue-len-max", |text| whole(text, 1..=QUEUE_LEN_MAX))
            .unwrap_or(1_024),
        reserve: given.value("queue-reserve", reserve).unwrap_or_default(),
        error_max: given.value("error-max", error_max).unwrap_or_default(),
        is_forced: matches.get_flag("force"),
        seed: given.value("seed", seed).unwrap_or(1),
        is_json: matches.get_flag("json"),
        page: matches.get_one::<String>("html").map(PathBuf::from),
    };
    given.check(&wish);
    match given.faults.is_empty() {
        true => Ok(wish),
        false => Err(given.faults),
    }
}

struct Given<'m> {
    matches: &'m ArgMatches,
    faults: Vec<Message>,
}

impl Given<'_> {
    fn source(&mut self, asked: Option<Asked>) -> Source {
        let is_misread = asked.is_none() && self.matches.contains_id("law");
        if let Some(Asked::Made(laws)) = asked {
            if self.matches.get_many::<PathBuf>("log").is_some() {
                self.fault("--law", "stands in place of a log, and there is one");
            }
            return Source::Law(laws);
        }
        let missing = (!is_misread).then_some(MISSING);
        let inputs = inputs(self.matches, missing, &mut self.faults);
        let pattern = self.value("format", |text| {
            let template = Template::parse(text).map_err(|fault| fault.to_string())?;
            Pattern::of(&template).map_err(|fault| fault.to_string())
        });
        Source::Logs(inputs, pattern)
    }

    /// What single flags cannot know.
    fn check(&mut self, wish: &Wish) {
        let names: Vec<&str> = wish.pools.iter().map(|pool| pool.name.as_str()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                self.fault("--pools", &format!("`{name}` is there twice"));
            }
        }
        let is_law = matches!(wish.source, Source::Law(_));
        if is_law && wish.run.is_some() {
            self.fault("--run", "a law of requests has its own: `run=`");
        }
        let is_counted = !wish.threads.is_empty() || !wish.objectives.is_empty();
        if wish.run.is_some() && !is_counted && wish.threads_now.is_none() {
            self.fault(
                "--threads",
                "is missing: without run times nobody knows how many there were",
            );
        }
        if is_law && !wish.pools.is_empty() {
            self.fault("--pools", "requests by a law have no paths");
        }
        let is_made = is_law || wish.fitted.is_some();
        if is_made && wish.scale == Scale::Sessions {
            self.fault("--scale", "requests by a law have no sessions");
        }
        if is_law && !is_counted {
            self.fault(
                "--threads",
                "is missing: a law does not say how many there are",
            );
        }
    }

    fn fault(&mut self, flag: &str, cause: &str) {
        self.faults.push(Message::new(&format!("`{flag}`"), cause));
    }

    fn value<T>(
        &mut self,
        name: &str,
        understand: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.matches.get_one::<String>(name)?;
        understand(text)
            .map_err(|cause| self.fault(&format!("--{name}"), &cause))
            .ok()
    }

    fn list<T>(&mut self, name: &str, understand: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let all = self.value(name, |text| {
            let parts: Vec<&str> = text.split(',').map(str::trim).collect();
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

fn whole(text: &str, bounds: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    let expected = format!(
        "expected a number from {} to {}",
        bounds.start(),
        bounds.end()
    );
    number.ok_or_else(|| format!("{expected}, found `{text}`"))
}

/// `4`, or `2:20`.
pub(super) fn threads(text: &str) -> Result<Threads, String> {
    let one = |text: &str| whole(text, 1..=THREADS_MAX);
    let Some((min, max)) = text.split_once(':') else {
        return one(text).map(Threads::fixed);
    };
    let (min, max) = (one(min)?, one(max)?);
    match min <= max {
        true => Ok(Threads { min, max }),
        false => Err(format!("expected the smaller number first, found `{text}`")),
    }
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
    number.ok_or_else(|| format!("expected a factor from x0.01 to x100, found `{text}`"))
}

fn control(text: &str) -> Result<Steering, String> {
    match text {
        "on" => Ok(Steering::On),
        "off" => Ok(Steering::Off),
        _ => Err(format!("expected on or off, found `{text}`")),
    }
}

fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "gaps" => Ok(Scale::Gaps),
        "sessions" => Ok(Scale::Sessions),
        _ => Err(format!("expected gaps or sessions, found `{text}`")),
    }
}

pub(super) fn span(text: &str) -> Result<Nanos, String> {
    let span = duration(text).filter(|span| span.0 > 0);
    span.ok_or_else(|| format!("expected a duration as 20ms or 1s, found `{text}`"))
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
                error_max.span = span(part).map_err(|_| {
                    format!("expected an error as 20%, 2ms or 20%,2ms, found `{text}`")
                })?;
            }
        }
    }
    Ok(error_max)
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a whole number, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(line: &str) -> Result<Wish, String> {
        let words = std::iter::once("whatif").chain(line.split_whitespace());
        let matches = command().try_get_matches_from(words).expect(line);
        wish(&matches).map_err(|faults| faults.iter().map(Message::text).collect())
    }

    #[test]
    fn understands_lists() {
        let wish =
            understood("a.log --threads 2,4:8 --processes 1,3 --rate x1.5,2 --control on,off")
                .unwrap();
        let texts: Vec<String> = wish.threads.iter().map(Threads::to_string).collect();
        assert_eq!(texts, ["2", "4:8"]);
        assert_eq!(wish.processes, [1, 3]);
        assert_eq!(wish.rates, [1.5, 2.0]);
        assert_eq!(wish.controls, [Steering::On, Steering::Off]);
    }

    #[test]
    fn patience_under_overload_is_that_of_the_server() {
        let overload = |line| understood(line).unwrap().overload_timeout;
        assert_eq!(overload("a.log"), Nanos::from_secs(10));
        assert_eq!(
            overload("a.log --overload-timeout 10ms"),
            Nanos::from_ms(10)
        );
    }

    #[test]
    fn the_queue_is_that_of_the_server() {
        let check = |line, len_max, threads, len| {
            let wish = understood(line).unwrap();
            let reserve = Reserve { threads, len };
            assert_eq!((wish.queue_len_max, wish.reserve), (len_max, reserve));
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
        check("a --control maybe", "expected on or off");
        check("a --objective fast", "expected an objective");
        check("a --law even", "`rate=` is missing");
        check("--law even_rate=3", "`--law`");
        check("a --law fitted --scale sessions", "have no sessions");
        check("a --pools slow", "expected a pool");
        check("a --queue-target 0ms", "expected a duration");
        check("a --queue-len-max 0", "a number from 1 to 1000000");
        check("a --queue-reserve 1:x", "expected a number from 0");
        check("a --seed x --scale y", "expected gaps or sessions");
    }
}
