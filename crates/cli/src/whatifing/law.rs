//! Laws as texts, there and back: `poisson rate=200 run=lognormal:20ms,4 for=60s`.
//!
//! Takes text, gives laws, and the text of laws, to four digits. What comes back of a text is what it says.

use measure::Nanos;
use whatif::{Coming, Laws, Rate, Route, Service};

use super::flags::{FittedWish, span};

/// How long requests come when nobody says so.
const FOR: Nanos = Nanos::from_secs(600);
const RATE_MAX: f64 = 1e6;
/// More would take hours.
const REQUESTS_MAX: f64 = 1e9;
/// Pools are looked at ten times a second until the last request has ended.
const RUN_MAX: Nanos = Nanos::from_secs(1_000 * 3_600);
/// Most steps of a rate, all repetitions together.
const STEPS_LEN_MAX: usize = 100_000;
/// Most run times of one law.
const ROUTES_LEN_MAX: usize = 1_000;

/// What requests are asked for in place of those of a log.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    /// By a law.
    Made(Laws),
    /// By the one that fits a log.
    Fitted(FittedWish),
}

/// Understands a law, or `fitted` and `fitted for=1h`.
pub(super) fn asked(text: &str) -> Result<Asked, String> {
    let mut words = text.split_whitespace();
    if words.next() != Some("fitted") {
        return laws(text).map(Asked::Made);
    }
    let rest: Vec<&str> = words.collect();
    let lasts = match rest.as_slice() {
        [] => None,
        [word] if word.starts_with("for=") => Some(span(&word["for=".len()..])?),
        _ => {
            let found = rest.join(" ");
            return Err(format!(
                "expected `fitted` or `fitted for=1h`, found `{found}` in it"
            ));
        }
    };
    Ok(Asked::Fitted(FittedWish { lasts }))
}

/// Understands a law of requests.
pub(super) fn laws(text: &str) -> Result<Laws, String> {
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or("");
    let [
        mut per_second,
        mut run,
        mut cpu,
        mut lasts,
        mut len,
        mut gap,
    ] = [None; 6];
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("expected KEY=VALUE, found `{word}`"))?;
        let place = match key {
            "rate" => &mut per_second,
            "run" => &mut run,
            "cpu" => &mut cpu,
            "for" => &mut lasts,
            "len" => &mut len,
            "gap" => &mut gap,
            _ => {
                return Err(format!(
                    "expected rate=, run=, cpu=, for=, len= or gap=, found `{key}=`"
                ));
            }
        };
        *place = Some(value);
    }
    let lasts = lasts.map(span).transpose()?;
    let rates = rates(per_second.ok_or("`rate=` is missing")?, lasts)?;
    let requests: f64 = rates
        .iter()
        .map(|rate| rate.from_per_second * rate.lasts.as_secs_f64())
        .sum();
    if requests > REQUESTS_MAX {
        return Err(format!(
            "expected at most {REQUESTS_MAX:.0} requests in all"
        ));
    }
    Ok(Laws {
        rates,
        routes: routes(run.ok_or("`run=` is missing")?, cpu)?,
        coming: coming(kind, len, gap)?,
    })
}

/// `200`, or steps that start over until the end: `200@10m,50@1h`.
fn rates(text: &str, lasts: Option<Nanos>) -> Result<Vec<Rate>, String> {
    if !text.contains('@') {
        let rate = number(text, RATE_MAX)?;
        return Ok(vec![Rate::steady(rate, lasts.unwrap_or(FOR))]);
    }
    let step = |text: &str| {
        let (rate, span_text) = text
            .split_once('@')
            .ok_or_else(|| format!("expected a step as 200@10m, found `{text}`"))?;
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
    if steps.iter().all(|step| step.from_per_second == 0.0) {
        return Err(format!("expected a rate above 0, found `{text}`"));
    }
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
        rates.push(Rate::steady(step.from_per_second, Nanos(span)));
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
    let found = percent.map(|percent| percent / 100.0);
    found.ok_or_else(|| format!("expected a share as 80%, found `{text}`"))
}

fn coming(kind: &str, len: Option<&str>, gap: Option<&str>) -> Result<Coming, String> {
    match kind {
        "bursts" => Ok(Coming::Bursts {
            len_mean: len.map_or(Ok(10.0), burst)?,
            gap: gap.map_or(Ok(Nanos::from_ms(1)), span)?,
        }),
        "even" | "poisson" if len.is_some() || gap.is_some() => {
            Err("`len=` and `gap=` belong to bursts".to_owned())
        }
        "even" => Ok(Coming::Even),
        "poisson" => Ok(Coming::Poisson),
        _ => Err(format!(
            "expected poisson, even or bursts first, found `{kind}`"
        )),
    }
}

fn burst(text: &str) -> Result<f64, String> {
    let mean = number(text, 1e4).ok().filter(|mean| *mean >= 1.0);
    mean.ok_or_else(|| format!("expected `len=` from 1 to 10000, found `{text}`"))
}

/// Understands a law of run times.
pub(super) fn service(text: &str) -> Result<Service, String> {
    let wrong = || {
        format!(
            "expected 20ms, exp:20ms, uniform:5ms,35ms, lognormal:20ms,4 or pareto:5ms,10s,1.2, found `{text}`"
        )
    };
    let Some((kind, numbers)) = text.split_once(':') else {
        return match span(text) {
            Ok(_) => run_time(text).map(Service::Constant),
            Err(_) => Err(wrong()),
        };
    };
    let numbers: Vec<&str> = numbers.split(',').map(str::trim).collect();
    match (kind, &numbers[..]) {
        ("constant", [run]) => Ok(Service::Constant(run_time(run)?)),
        ("exp", [mean]) => Ok(Service::Exponential {
            mean: run_time(mean)?,
        }),
        ("lognormal", [mean, cs2]) => Ok(Service::LogNormal {
            mean: run_time(mean)?,
            cs2: number(cs2, 1e4)?,
        }),
        ("uniform", [least, most]) => {
            let (least, most) = (run_time(least)?, run_time(most)?);
            (least <= most)
                .then_some(Service::Uniform { least, most })
                .ok_or_else(wrong)
        }
        ("pareto", [least, most, tail]) => {
            let (least, most, tail) = (run_time(least)?, run_time(most)?, number(tail, 100.0)?);
            (least < most)
                .then_some(Service::Pareto { least, most, tail })
                .ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn run_time(text: &str) -> Result<Nanos, String> {
    let found = span(text)?;
    (found <= RUN_MAX)
        .then_some(found)
        .ok_or_else(|| format!("expected a run time up to 1000h, found `{text}`"))
}

/// The text of laws that [`laws`] understands; `lasts`: they go on for so long, from the first rate again after
/// the last.
pub(super) fn text(laws: &Laws, lasts: Option<Nanos>) -> String {
    let kind = match laws.coming {
        Coming::Even => "even",
        Coming::Poisson => "poisson",
        Coming::Bursts { .. } => "bursts",
    };
    let rate = |rate: &Rate| match laws.rates.len() {
        1 => digits(rate.from_per_second),
        _ => format!("{}@{}", digits(rate.from_per_second), span_text(rate.lasts)),
    };
    let rates: Vec<String> = laws.rates.iter().map(rate).collect();
    let mut out = format!("{kind} rate={}", rates.join(","));
    if let Coming::Bursts { len_mean, gap } = laws.coming {
        out += &format!(" len={} gap={}", digits(len_mean), span_text(gap));
    }
    let weights: f64 = laws.routes.iter().map(|route| route.weight).sum();
    let route = |route: &Route| match laws.routes.len() {
        1 => service_text(&route.service),
        _ => format!(
            "{}*{}",
            digits(route.weight / weights),
            service_text(&route.service)
        ),
    };
    let routes: Vec<String> = laws.routes.iter().map(route).collect();
    out += &format!(" run={}", routes.join("+"));
    if laws.routes.iter().any(|route| route.computing > 0.0) {
        let percent = |route: &Route| format!("{}%", digits(100.0 * route.computing));
        let percents: Vec<String> = laws.routes.iter().map(percent).collect();
        out += &format!(" cpu={}", percents.join("+"));
    }
    match (lasts, laws.rates.as_slice()) {
        (Some(lasts), _) => out += &format!(" for={}", span_text(lasts)),
        (None, [only]) => out += &format!(" for={}", span_text(only.lasts)),
        (None, _) => {}
    }
    out
}

/// The text of a law of run times that [`service`] understands.
pub(super) fn service_text(service: &Service) -> String {
    match *service {
        Service::Constant(run) => span_text(run),
        Service::Exponential { mean } => format!("exp:{}", span_text(mean)),
        Service::Uniform { least, most } => {
            format!("uniform:{},{}", span_text(least), span_text(most))
        }
        Service::LogNormal { mean, cs2 } => {
            format!("lognormal:{},{}", span_text(mean), digits(cs2))
        }
        Service::Pareto { least, most, tail } => format!(
            "pareto:{},{},{}",
            span_text(least),
            span_text(most),
            digits(tail)
        ),
    }
}

/// A time to four digits; at least a nanosecond.
fn span_text(span: Nanos) -> String {
    let ns = span.0.max(1) as f64;
    let (unit_ns, unit) = match span.0 {
        ..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        1_000_000_000..10_000_000_000_000 => (1e9, "s"),
        _ => (3_600e9, "h"),
    };
    format!("{}{unit}", digits(ns / unit_ns))
}

/// A number to four digits.
fn digits(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let before = number.abs().log10().floor() as i32;
    let places = usize::try_from(3 - before).unwrap_or(0).min(18);
    let text = format!("{number:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn number(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && *number <= most);
    number.ok_or_else(|| format!("expected a number above 0 up to {most:.0}, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_laws() {
        let found = laws("poisson rate=200 run=lognormal:20ms,4 for=60s").unwrap();
        let expect = Laws {
            rates: vec![Rate::steady(200.0, Nanos::from_secs(60))],
            coming: Coming::Poisson,
            routes: vec![Route::only(Service::LogNormal {
                mean: Nanos::from_ms(20),
                cs2: 4.0,
            })],
        };
        assert_eq!(found, expect);
        let bursts = laws("bursts rate=9 run=5ms len=15 gap=2ms").unwrap();
        let expect = Coming::Bursts {
            len_mean: 15.0,
            gap: Nanos::from_ms(2),
        };
        assert_eq!(bursts.coming, expect);
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
                .map(|rate| (rate.from_per_second, rate.lasts.0 / 1_000_000_000))
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
    fn fitted_is_no_law_but_a_wish() {
        let fitted = |lasts| Ok(Asked::Fitted(FittedWish { lasts }));
        assert_eq!(asked("fitted"), fitted(None));
        let hour = Some(Nanos::from_secs(3_600));
        assert_eq!(asked("fitted for=1h"), fitted(hour));
        assert!(asked("fitted rate=3").unwrap_err().contains("for=1h"));
        assert!(asked("fitted for=never").unwrap_err().contains("duration"));
        assert!(matches!(asked("even rate=1 run=1ms"), Ok(Asked::Made(_))));
    }

    #[test]
    fn what_is_written_is_understood_as_the_same() {
        for expect in [
            "poisson rate=200 run=lognormal:20ms,4 for=60s",
            "even rate=0.01234 run=0.5us for=24h",
            "bursts rate=12.5@30s,0@5s,99.99@2000s len=3.25 gap=700us run=exp:1.5s",
            "bursts rate=12.5@30s,0@5s len=3.25 gap=700us run=exp:1.5s for=3h",
            "poisson rate=7 run=0.9*uniform:1ms,2ms+0.1*pareto:5ms,10s,1.2 for=1s",
            "poisson rate=7 run=0.9*1ms+0.1*2ms cpu=12.5%+0% for=1s",
            "even rate=7 run=1ms cpu=100% for=1s",
        ] {
            let found = laws(expect).unwrap();
            // Steps that start over are written once more for each time.
            let lasts = expect
                .contains("for=3h")
                .then_some(Nanos::from_secs(10_800));
            let once = laws(expect.trim_end_matches(" for=3h")).unwrap();
            assert_eq!(text(&once, lasts), expect);
            let again = laws(&text(&found, None)).unwrap();
            assert_eq!(text(&again, None), text(&found, None));
        }
    }

    #[test]
    fn numbers_are_written_to_four_digits() {
        let check = |number, expect: &str| assert_eq!(digits(number), expect);
        check(0.0, "0");
        check(123_456.0, "123456");
        check(1_234.56, "1235");
        check(1_200.0, "1200");
        check(1.0, "1");
        check(0.000_012_349, "0.00001235");
        assert_eq!(span_text(Nanos(0)), "0.001us");
        assert_eq!(span_text(Nanos(999_960)), "1000us");
        assert_eq!(span_text(Nanos::from_secs(86_400)), "24h");
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
