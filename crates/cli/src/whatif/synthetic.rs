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
/// Most steps of a rate, all repetitions together.
const STEPS_LEN_MAX: usize = 100_000;
/// Most run times of one law.
const ROUTES_LEN_MAX: usize = 1_000;

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
    let lasts = of("for").map(span).transpose()?;
    let rates = rates(of("rate").ok_or("`rate=` is missing")?, lasts)?;
    if rates.iter().map(Rate::sum).sum::<f64>() > REQUESTS_MAX {
        return Err(format!(
            "expected at most {REQUESTS_MAX:.0} requests in all"
        ));
    }
    Ok(Laws {
        rates,
        routes: routes(of("run").ok_or("`run=` is missing")?, of("cpu"))?,
        process: process(kind, of("len"), of("gap"))?,
    })
}

/// `200`, or steps that start over until the end: `200@10m,50@1h`.
fn rates(text: &str, lasts: Option<Nanos>) -> Result<Vec<Rate>, String> {
    if !text.contains('@') {
        let rate = number(text, RATE_MAX)?;
        return Ok(vec![Rate::steady(rate, lasts.unwrap_or(FOR))]);
    }
    let step = |text: &str| {
        let (rate, span_text) = expect(text.split_once('@'), "a step as 200@10m", text)?;
        let rate = match rate.parse() {
            Ok(0.0) => 0.0,
            _ => number(rate, RATE_MAX)?,
        };
        Ok(Rate::steady(rate, span(span_text)?))
    };
    let steps = text
        .split(',')
        .map(step)
        .collect::<Result<Vec<Rate>, String>>()?;
    let is_any = steps.iter().any(|step| step.per_second > 0.0);
    expect(is_any.then_some(()), "a rate above 0", text)?;
    match lasts {
        None => Ok(steps),
        Some(lasts) => repeated(&steps, lasts),
    }
}

/// One step after another, from the first again after the last, until the time is over.
fn repeated(steps: &[Rate], lasts: Nanos) -> Result<Vec<Rate>, String> {
    let mut rates = Vec::new();
    let mut left = lasts.0;
    for step in steps.iter().cycle() {
        if left == 0 {
            break;
        }
        if rates.len() == STEPS_LEN_MAX {
            return Err(format!("expected at most {STEPS_LEN_MAX} steps in all"));
        }
        let span = step.lasts.0.min(left);
        rates.push(Rate::steady(step.per_second, Nanos(span)));
        left -= span;
    }
    Ok(rates)
}

/// `exp:20ms`, or several by their weights: `0.9*exp:5ms+0.1*300ms`. What of them is computing, in percent, for all
/// or for each: `80%`, `95%+2%`.
fn routes(text: &str, cpu: Option<&str>) -> Result<Vec<Route>, String> {
    let route = |text: &str| {
        let (weight, law) = match text.split_once('*') {
            Some((weight, law)) => (number(weight, 1e9)?, law),
            None => (1.0, text),
        };
        Ok(Route {
            weight,
            ..Route::only(service(law)?)
        })
    };
    let parts: Vec<&str> = text.split('+').collect();
    if parts.len() > ROUTES_LEN_MAX {
        return Err(format!("expected up to {ROUTES_LEN_MAX} run times"));
    }
    let mut routes: Vec<Route> = parts
        .into_iter()
        .map(route)
        .collect::<Result<_, String>>()?;
    let shares: Vec<f64> = match cpu {
        Some(cpu) => cpu.split('+').map(share).collect::<Result<_, String>>()?,
        None => vec![0.0],
    };
    if shares.len() != 1 && shares.len() != routes.len() {
        return Err("expected one share in `cpu=`, or as many as run times".to_owned());
    }
    for (route, share) in routes.iter_mut().zip(shares.iter().cycle()) {
        route.computing = *share;
    }
    Ok(routes)
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
        ("uniform", [least, most]) => {
            let (least, most) = (run_time(least)?, run_time(most)?);
            (least <= most).then_some(Service::Uniform { least, most })
        }
        ("pareto", [least, most, tail]) => {
            let (least, most, tail) = (run_time(least)?, run_time(most)?, number(tail, 100.0)?);
            (least < most).then_some(Service::Pareto { least, most, tail })
        }
        _ => None,
    };
    let laws = "20ms, exp:20ms, uniform:5ms,35ms, lognormal:20ms,4 or pareto:5ms,10s,1.2";
    expect(found, laws, text)
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
    }

    #[test]
    fn understands_run_times() {
        let ms = Nanos::from_ms;
        let check = |text, expect| assert_eq!(service(text), Ok(expect), "{text}");
        check("20ms", Service::Constant(ms(20)));
        check("constant:1s", Service::Constant(ms(1_000)));
        check("exp:3ms", Service::Exponential { mean: ms(3) });
        check(
            "uniform:1ms,2ms",
            Service::Uniform {
                least: ms(1),
                most: ms(2),
            },
        );
        check(
            "pareto:1ms,1s,1.5",
            Service::Pareto {
                least: ms(1),
                most: ms(1_000),
                tail: 1.5,
            },
        );
    }

    #[test]
    fn rates_go_in_steps_that_start_over() {
        let rates = |text: &str| -> Vec<(f64, u64)> {
            let found = laws(text).unwrap().rates.into_iter();
            found
                .map(|rate| (rate.per_second, rate.lasts.0 / 1_000_000_000))
                .collect()
        };
        let steps = "poisson run=1ms rate=20@10s,0@5s";
        assert_eq!(rates(steps), [(20.0, 10), (0.0, 5)]);
        assert_eq!(rates(&format!("{steps} for=12s")), [(20.0, 10), (0.0, 2)]);
        let longer = [(20.0, 10), (0.0, 5), (20.0, 10), (0.0, 5), (20.0, 2)];
        assert_eq!(rates(&format!("{steps} for=32s")), longer);
    }

    #[test]
    fn run_times_can_be_of_several_laws() {
        let found = laws("even rate=1 run=0.75*exp:5ms+0.25*300ms").unwrap();
        let found: Vec<(f64, u64)> = found
            .routes
            .iter()
            .map(|route| (route.weight, route.service.mean().0 / 1_000_000))
            .collect();
        assert_eq!(found, [(0.75, 5), (0.25, 300)]);
    }

    #[test]
    fn computing_is_a_share_of_all_run_times_or_of_each() {
        let shares = |text: &str| -> Vec<f64> {
            let found = laws(&format!("even rate=1 {text}")).unwrap();
            found.routes.iter().map(|route| route.computing).collect()
        };
        assert_eq!(shares("run=5ms"), [0.0]);
        assert_eq!(shares("run=5ms cpu=80%"), [0.8]);
        assert_eq!(shares("run=1*5ms+2*1ms cpu=50%"), [0.5, 0.5]);
        assert_eq!(shares("run=1*5ms+2*1ms cpu=50%+0%"), [0.5, 0.0]);
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
        check("even rate=1 run=uniform:3ms,2ms", "expected 20ms");
        check("even rate=1 speed=2", "found `speed=`");
        check("even rate=1@1s,2 run=1ms", "expected a step as 200@10m");
        check("even rate=0@1s run=1ms", "above 0");
        check("even rate=1@1us,2@1us run=1ms for=1h", "steps in all");
        check("even rate=1 run=x*1ms", "above 0");
        check("even rate=1 run=1ms cpu=2", "expected a share as 80%");
        check("even rate=1 run=1ms cpu=101%", "expected a share as 80%");
        check("even rate=1 run=1ms cpu=1%+1%", "as many as run times");
        check("even rate=1 run=1ms+", "expected 20ms");
        check("even rate=1000000 run=1ms for=1d", "at most");
        check("bursts rate=1 run=1ms len=0.5", "from 1 to 10000");
        check("even rate=1 run=1001h", "up to 1000h");
        check("even rate=1 run=pareto:1ms,1000000h,1.2", "up to 1000h");
    }
}
