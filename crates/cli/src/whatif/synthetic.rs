//! Synthetic requests as text: `poisson rate=200 run=lognormal:20ms,4 for=60s`.
//!
//! Takes text, gives laws of arrivals and run times, or what the text should have been.

use std::collections::BTreeMap;

use telemetry::Nanos;
use whatif::{ArrivalProcess, Laws, Rate, Route, Service};

use super::flags::span;
use crate::inputs::expect;

/// The length of the simulation without `for=`.
const FOR: Nanos = Nanos::from_secs(600);
const RATE_MAX: f64 = 1e6;
/// More would take hours.
const REQUESTS_MAX: f64 = 1e9;
/// The simulated controller runs ten times a second until the last request has ended.
const RUN_MAX: Nanos = Nanos::from_secs(1_000 * 3_600);

const KEYS: [&str; 6] = ["rate", "run", "cpu", "for", "len", "gap"];

/// The requests that a text describes.
pub(super) fn laws(text: &str) -> Result<Laws, String> {
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or("");
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for word in words {
        let pair = word.split_once('=');
        let (key, value) = expect(pair, "KEY=VALUE", word)?;
        let known = KEYS.contains(&key).then_some(key);
        let key = expect(
            known,
            "rate=, run=, cpu=, for=, len= or gap=",
            &format!("{key}="),
        )?;
        values.insert(key, value);
    }
    let of = |key: &str| values.get(key).copied();
    let lasts = of("for").map(span).transpose()?.unwrap_or(FOR);
    let per_second = number(of("rate").ok_or("`rate=` is missing")?, RATE_MAX)?;
    let rate = Rate::steady(per_second, lasts);
    // They are simulated one by one, and a slip of a zero in `for=` would take hours.
    if rate.sum() > REQUESTS_MAX {
        return Err(format!(
            "expected at most {REQUESTS_MAX:.0} requests in all"
        ));
    }
    let service = service(of("run").ok_or("`run=` is missing")?)?;
    let computing = of("cpu").map(share).transpose()?.unwrap_or_default();
    Ok(Laws {
        rates: vec![rate],
        routes: vec![Route {
            computing,
            ..Route::only(service)
        }],
        process: process(kind, of("len"), of("gap"))?,
    })
}

/// `80%`
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
    let percent = percent.filter(|percent: &f64| (0.0..=100.0).contains(percent));
    expect(
        percent.map(|percent| percent / 100.0),
        "a share as 80%",
        text,
    )
}

fn process(kind: &str, len: Option<&str>, gap: Option<&str>) -> Result<ArrivalProcess, String> {
    match kind {
        "bursts" => Ok(ArrivalProcess::Bursts {
            len_mean: len.map_or(Ok(10.0), burst)?,
            gap: gap.map_or(Ok(Nanos::from_ms(1)), span)?,
        }),
        "even" | "poisson" if len.is_some() || gap.is_some() => {
            Err("`len=` and `gap=` belong to bursts".to_owned())
        }
        "even" => Ok(ArrivalProcess::Even),
        "poisson" => Ok(ArrivalProcess::Poisson),
        _ => expect(None, "poisson, even or bursts first", kind),
    }
}

fn burst(text: &str) -> Result<f64, String> {
    let mean = number(text, 1e4).ok().filter(|mean| *mean >= 1.0);
    expect(mean, "`len=` from 1 to 10000", text)
}

/// The distribution of run times that a text describes.
pub(super) fn service(text: &str) -> Result<Service, String> {
    let (kind, numbers) = text.split_once(':').unwrap_or(("constant", text));
    let numbers: Vec<&str> = numbers.split(',').map(str::trim).collect();
    // Where no unit stands behind the number, the whole text may have been meant as something else.
    let is_plain = !text.contains(':') && span(text).is_err();
    let found = match (kind, &numbers[..]) {
        ("constant", [run]) if !is_plain => Some(Service::Constant(run_time(run)?)),
        ("exp", [mean]) => Some(Service::Exponential {
            mean: run_time(mean)?,
        }),
        ("lognormal", [mean, cs2]) => Some(Service::LogNormal {
            mean: run_time(mean)?,
            cs2: number(cs2, 1e4)?,
        }),
        _ => None,
    };
    expect(found, "20ms, exp:20ms or lognormal:20ms,4", text)
}

fn run_time(text: &str) -> Result<Nanos, String> {
    let found = span(text)?;
    expect(
        (found <= RUN_MAX).then_some(found),
        "a run time up to 1000h",
        text,
    )
}

fn number(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && *number <= most);
    expect(number, &format!("a number above 0 up to {most:.0}"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_laws() {
        let found = laws("poisson rate=200 run=lognormal:20ms,4 for=60s").unwrap();
        let expect = Laws {
            rates: vec![Rate::steady(200.0, Nanos::from_secs(60))],
            process: ArrivalProcess::Poisson,
            routes: vec![Route::only(Service::LogNormal {
                mean: Nanos::from_ms(20),
                cs2: 4.0,
            })],
        };
        assert_eq!(found, expect);
        let bursts = laws("bursts rate=9 run=5ms len=15 gap=2ms").unwrap();
        let expect = ArrivalProcess::Bursts {
            len_mean: 15.0,
            gap: Nanos::from_ms(2),
        };
        assert_eq!(bursts.process, expect);
        assert_eq!(bursts.rates[0].lasts, FOR);
        let computing = |text| laws(text).unwrap().routes[0].computing;
        assert_eq!(computing("even rate=1 run=5ms"), 0.0);
        assert_eq!(computing("even rate=1 run=5ms cpu=80%"), 0.8);
    }

    #[test]
    fn understands_run_times() {
        let ms = Nanos::from_ms;
        let check = |text, expect| assert_eq!(service(text), Ok(expect), "{text}");
        check("20ms", Service::Constant(ms(20)));
        check("constant:1s", Service::Constant(ms(1_000)));
        check("exp:3ms", Service::Exponential { mean: ms(3) });
        let law = Service::LogNormal {
            mean: ms(1),
            cs2: 1.5,
        };
        check("lognormal:1ms,1.5", law);
    }

    #[test]
    fn says_what_is_wrong() {
        let check = |text, expect: &str| {
            let cause = laws(text).unwrap_err();
            assert!(cause.contains(expect), "{text}: {cause}");
        };
        check("", "`rate=` is missing");
        check("poisson rate=1", "`run=` is missing");
        check("poisson rate=-1 run=1ms", "above 0");
        check("poisson rate=nan run=1ms", "above 0");
        check("often rate=1 run=1ms", "expected poisson, even or bursts");
        check("even rate=1 run=1ms len=3", "belong to bursts");
        check("even rate=1 run=2ms:3", "expected 20ms");
        check("even rate=1 run=uniform:2ms,3ms", "expected 20ms");
        check("even rate=1 speed=2", "found `speed=`");
        check("even rate=1@1s run=1ms", "above 0");
        check("even rate=1 run=2*1ms", "expected 20ms");
        check("even rate=1 run=1ms cpu=2", "expected a share as 80%");
        check("even rate=1 run=1ms cpu=101%", "expected a share as 80%");
        check("even rate=1 run=1ms cpu=1%+1%", "expected a share as 80%");
        check("even rate=1000000 run=1ms for=1d", "at most");
        check("bursts rate=1 run=1ms len=0.5", "from 1 to 10000");
        check("even rate=1 run=1001h", "up to 1000h");
        check("even rate=1 run=lognormal:1001h,2", "up to 1000h");
    }
}
