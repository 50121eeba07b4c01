//! The figures of a run by the names that people use for them: `rps`, `p99`, `connect-p50`, `failures`.
//!
//! Takes an outcome, gives a number or the reason why there is none. The same names are asserted, searched
//! for and compared.

use std::fmt;

use serde::Serialize;

use super::unit::Unit;
use crate::distribution::{BEYOND_LEN, Summary, has_enough_beyond};
use crate::engine::Fault;
use crate::outcome::{Outcome, ServerUse, Times};

/// A figure of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Metric {
    /// `rps`, `failures`, `rss` and the other names of the table of figures that are no times.
    Plain(&'static str),
    /// `p99`, `mean`, `connect-p99`, `first-byte-max`: how long something took. By the prefix of the table of times,
    /// which is empty for the latency.
    Time(&'static str, Figure),
}

/// Which figure of a distribution.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Figure {
    /// The average.
    Mean,
    /// The standard deviation, with n − 1.
    Stdev,
    /// The shortest.
    Min,
    /// The longest.
    Max,
    /// `p99.9`: so many percent, more than 0 and less than 100.
    Quantile(f64),
}

/// In which direction things become better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// A figure that is no time: its name, its unit, in which direction it becomes better, and how a run has it.
type PlainFigure = (
    &'static str,
    Unit,
    Better,
    fn(&Outcome) -> Result<f64, String>,
);

const PLAIN: [PlainFigure; 9] = [
    // Requests with the right reply in a second, and bytes of replies.
    ("rps", Unit::PerSecond, Better::Higher, |run| {
        by_time(run, run.per_second())
    }),
    ("read", Unit::BytesPerSecond, Better::Higher, |run| {
        by_time(run, run.counts.read_bytes as f64 / run.seconds)
    }),
    // Requests without the right reply, of all that ended; and those never sent, of all that were due.
    ("failures", Unit::Share, Better::Lower, |run| {
        share(run.counts.failures.sum(), run.counts.ended())
    }),
    ("unsent", Unit::Share, Better::Lower, |run| {
        share(run.counts.unsent, run.counts.ended() + run.counts.unsent)
    }),
    // The generator's processor time for a request, and its memory at the end.
    ("cpu", Unit::Time, Better::Lower, |run| {
        share(1, run.counts.ended())?;
        Ok(run.generator.cpu_us_per_request)
    }),
    ("generator-rss", Unit::Bytes, Better::Lower, |run| {
        Ok(run.generator.resident_bytes as f64)
    }),
    // The server's, and its context switches for a request.
    ("server-cpu", Unit::Time, Better::Lower, |run| {
        Ok(server(run)?.cpu_us_per_request)
    }),
    ("rss", Unit::Bytes, Better::Lower, |run| {
        Ok(server(run)?.resident_bytes as f64)
    }),
    ("switches", Unit::Count, Better::Lower, |run| {
        Ok(server(run)?.switches_per_request)
    }),
];
/// A time by its prefix: its summary, or why a run has none.
type TimeOf = fn(&Times) -> Result<&Summary, &'static str>;

/// The one without a prefix is the last one: every name begins with it.
const TIMES: [(&str, TimeOf); 7] = [
    ("connect-", |times| Ok(&times.connect)),
    ("first-byte-", |times| Ok(&times.first_byte)),
    ("last-byte-", |times| Ok(&times.last_byte)),
    ("cycle-", |times| Ok(&times.cycle)),
    // How long after its time a request was sent.
    ("late-", |times| {
        let why = "requests of a closed load are never late: only an open one has a clock";
        times.late.as_ref().ok_or(why)
    }),
    // How long a reply that had arrived waited to be read.
    ("unread-", |times| {
        let why = "only `--timestamps kernel` tells how long replies lay unread";
        times.unread.as_ref().ok_or(why)
    }),
    ("", |times| Ok(&times.latency)),
];
const FIGURES: [(&str, Figure); 4] = [
    ("mean", Figure::Mean),
    ("stdev", Figure::Stdev),
    ("min", Figure::Min),
    ("max", Figure::Max),
];
const PERCENTS: [&str; 7] = ["p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99"];

impl Metric {
    /// The median.
    pub const P50: Metric = Metric::Time("", Figure::Quantile(50.0));
    /// 99 %.
    pub const P99: Metric = Metric::Time("", Figure::Quantile(99.0));

    /// The figures that are compared by default.
    pub fn usual() -> Vec<Metric> {
        let names = "rps,mean,stdev,p50,p90,p99,p99.9,max,connect-p99,first-byte-p50,failures,cpu,server-cpu,rss";
        Metric::parse_list(names).expect("these are names of the tables")
    }

    /// The figure of this name.
    ///
    /// # Errors
    /// When there is none, with the nearest one.
    pub fn parse(name: &str) -> Result<Metric, Fault> {
        let name = name.trim();
        if let Some((name, ..)) = PLAIN.iter().find(|(known, ..)| *known == name) {
            return Ok(Metric::Plain(name));
        }
        let (span, figure) = TIMES
            .iter()
            .find_map(|(prefix, _)| Some((*prefix, name.strip_prefix(prefix)?)))
            .unwrap_or(("", name));
        if let Some((_, figure)) = FIGURES.iter().find(|(known, _)| *known == figure) {
            return Ok(Metric::Time(span, *figure));
        }
        match figure.strip_prefix('p').and_then(percent) {
            Some(percent) if percent > 0.0 && percent < 100.0 => {
                Ok(Metric::Time(span, Figure::Quantile(percent)))
            }
            Some(_) => Err(Fault::with_hint(
                format!("`{name}`: a quantile lies between p0 and p100"),
                "the ends are `min` and `max`",
            )),
            None => Err(unknown(name)),
        }
    }

    /// The figures of names that stand with commas between them.
    ///
    /// # Errors
    /// As [`Metric::parse`], for the first unknown one.
    pub fn parse_list(names: &str) -> Result<Vec<Metric>, Fault> {
        names.split(',').map(Metric::parse).collect()
    }

    /// What it is a number of.
    pub fn unit(self) -> Unit {
        self.plain().map_or(Unit::Time, |(_, unit, ..)| *unit)
    }

    /// In which direction it becomes better.
    pub fn better(self) -> Better {
        self.plain()
            .map_or(Better::Lower, |(_, _, better, _)| *better)
    }

    fn plain(self) -> Option<&'static PlainFigure> {
        let Metric::Plain(name) = self else {
            return None;
        };
        const { &PLAIN }.iter().find(|(known, ..)| *known == name)
    }

    /// Its value in a run, in its unit; `None`: it cannot be said.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        self.said(outcome).ok()
    }

    /// Its value in a run, in its unit.
    ///
    /// # Errors
    /// Why it cannot be said: nothing was counted, the server was not watched, too few values.
    pub fn said(self, outcome: &Outcome) -> Result<f64, String> {
        if let Some((_, _, _, said)) = self.plain() {
            return said(outcome);
        }
        let (Metric::Plain(name) | Metric::Time(name, _)) = self;
        match (self, TIMES.iter().find(|(prefix, _)| *prefix == name)) {
            (Metric::Time(_, figure), Some((_, of))) => figure.said(of(&outcome.times)?),
            _ => Err(format!("`{name}` is no figure")),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (span, figure) = match self {
            Metric::Plain(name) => return f.write_str(name),
            Metric::Time(span, figure) => (span, figure),
        };
        f.write_str(span)?;
        match figure {
            Figure::Quantile(percent) => write!(f, "p{percent}"),
            _ => {
                let named = FIGURES.iter().find(|(_, known)| known == figure);
                f.write_str(named.map_or("", |(name, _)| name))
            }
        }
    }
}

impl Figure {
    fn said(self, all: &Summary) -> Result<f64, String> {
        if all.count == 0 {
            return Err("nothing was counted".into());
        }
        match self {
            Figure::Mean => Ok(all.mean_us),
            Figure::Stdev => Ok(all.stdev_us),
            Figure::Min => Ok(all.min_us),
            Figure::Max => Ok(all.max_us),
            Figure::Quantile(percent) => quantile(all, percent, 0),
        }
    }
}

/// The quantile when `missing` values more count as greater than all that were counted.
///
/// # Errors
/// When it lies among those, or is an accident of too few values.
pub(super) fn quantile(all: &Summary, percent: f64, missing: u64) -> Result<f64, String> {
    if all.count == 0 {
        return Err("nothing was counted".into());
    }
    let len = (all.count + missing) as f64;
    if !has_enough_beyond(percent.max(100.0 - percent), len) {
        let need = (BEYOND_LEN * 100.0 / percent.min(100.0 - percent)).ceil();
        return Err(format!(
            "too few values: fewer than ten of {len} lie beyond p{percent}, it takes {need}"
        ));
    }
    if missing == 0
        && let Some(us) = stored(all, percent)
    {
        return Ok(us);
    }
    let histogram = all
        .histogram()
        .ok_or("the file holds no histogram that can be read")?;
    let rank = telemetry::nearest_rank(percent / 100.0, all.count + missing).min(all.count);
    let share = telemetry::share_of_rank(rank as f64 / all.count as f64, all.count);
    let us = histogram.value_at_quantile(share) as f64 / 1e3;
    Ok(us.clamp(all.min_us, all.max_us.max(all.min_us)))
}

fn stored(all: &Summary, percent: f64) -> Option<f64> {
    let known = [
        (50.0, Some(all.p50_us)),
        (75.0, Some(all.p75_us)),
        (90.0, Some(all.p90_us)),
        (95.0, Some(all.p95_us)),
        (99.0, all.p99_us),
        (99.9, all.p99_9_us),
        (99.99, all.p99_99_us),
    ];
    known.iter().find(|(known, _)| *known == percent)?.1
}

fn by_time(outcome: &Outcome, value: f64) -> Result<f64, String> {
    let took_time = outcome.seconds > 0.0;
    took_time
        .then_some(value)
        .ok_or("the run took no time".into())
}

fn share(part: u64, whole: u64) -> Result<f64, String> {
    let share = (whole > 0).then(|| part as f64 / whole as f64);
    share.ok_or("no request has ended".into())
}

fn server(outcome: &Outcome) -> Result<&ServerUse, String> {
    let watched = outcome.server.as_ref();
    watched.ok_or("the server was not watched: name its process".into())
}

fn percent(digits: &str) -> Option<f64> {
    let fits = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !digits.bytes().all(fits) {
        return None;
    }
    digits.parse().ok()
}

fn unknown(name: &str) -> Fault {
    let figures = FIGURES.iter().map(|(name, _)| *name).chain(PERCENTS);
    let timed = TIMES.iter().flat_map(|(prefix, _)| {
        let named = move |figure| format!("{prefix}{figure}");
        figures.clone().map(named)
    });
    let plain = PLAIN.iter().map(|(name, ..)| (*name).to_owned());
    let names: Vec<String> = plain.chain(timed).collect();
    let hint = match telemetry::nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            "known are rps, mean, stdev, min, max, p50 to p99.99, failures, unsent, read, cpu, \
                 generator-rss, server-cpu, rss, switches, and times with connect-, first-byte-, \
                 last-byte-, cycle-, late- or unread- before them"
                .to_owned()
        }
    };
    Fault::with_hint(format!("`{name}`: unknown figure"), hint)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outcome::Failures;
    use crate::tests::{outcome, summary};

    #[test]
    fn has_the_same_name_coming_and_going() {
        let names = "rps read mean stdev p50 p99.9 p99.99 p97.5 min max connect-p99 first-byte-p50 last-byte-max \
                     cycle-mean late-p99 unread-p50 failures unsent cpu generator-rss server-cpu rss switches";
        for name in names.split(' ') {
            assert_eq!(Metric::parse(name).expect(name).to_string(), name);
        }
        let list = Metric::parse_list("rps, p50,p99").expect("three known names");
        assert_eq!(list, [Metric::Plain("rps"), Metric::P50, Metric::P99]);
    }

    #[test]
    fn refuses_unknown_names_with_the_nearest() {
        for (name, hint) in [
            ("rsp", "did you mean `rps`?"),
            ("failure", "did you mean `failures`?"),
            ("stddev", "did you mean `stdev`?"),
            ("conect-p99", "did you mean `connect-p99`?"),
            ("first_byte-p50", "did you mean `first-byte-p50`?"),
            ("server_cpu", "did you mean `server-cpu`?"),
        ] {
            let fault = Metric::parse(name).expect_err(name);
            assert_eq!(fault.hint.as_deref(), Some(hint), "{name}");
        }
        let far = Metric::parse("happiness").expect_err("no such figure");
        assert!(far.hint.is_some_and(|hint| hint.starts_with("known are")));
        for name in ["p100", "p0", "connect-p250"] {
            let fault = Metric::parse(name).expect_err(name);
            assert!(fault.text.contains("between p0 and p100"), "{name}");
        }
        for name in ["", "p", "pinf", "pnan", "p-1", "connect-", "p1.2.3"] {
            assert!(Metric::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn says_why_it_cannot_be_said() {
        let mut run = outcome(&[1_000_000; 500], 10);
        for (name, part) in [
            ("p99", "fewer than ten of 500 lie beyond p99, it takes 1000"),
            ("late-p50", "only an open one has a clock"),
            ("server-cpu", "was not watched"),
            ("connect-mean", "nothing was counted"),
        ] {
            let metric = Metric::parse(name).expect(name);
            let why = metric.said(&run).expect_err(name);
            assert!(why.contains(part), "{name}: {why}");
        }
        run.counts.answered = 0;
        assert!(Metric::Plain("failures").said(&run).is_err());
        run.seconds = 0.0;
        assert!(Metric::Plain("rps").said(&run).is_err());
    }

    #[test]
    fn counts_failures_of_all_that_ended() {
        let mut run = outcome(&[1_000; 75], 10);
        run.counts.failures = Failures {
            timeout: 20,
            local: 5,
            ..Failures::default()
        };
        assert_eq!(Metric::Plain("failures").of(&run), Some(0.25));
        assert_eq!(Metric::Plain("rps").of(&run), Some(7.5));
    }

    proptest! {
        #[test]
        fn finds_any_quantile_as_sorting_does(
            values in prop::collection::vec(1_000u64..10_000_000_000, 1_000..3_000),
            percent in prop::sample::select(vec![25.0, 50.0, 75.0, 90.0, 97.5, 99.0]),
        ) {
            let all = summary(&values);
            let found = quantile(&all, percent, 0).expect("enough values");
            let mut sorted = values;
            sorted.sort_unstable();
            let rank = telemetry::nearest_rank(percent / 100.0, sorted.len() as u64);
            let exact = sorted[rank as usize - 1] as f64 / 1e3;
            prop_assert!((found / exact - 1.0).abs() < 0.001, "{found} {exact}");
        }
    }
}
