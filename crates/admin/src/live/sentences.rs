//! What the last minute says, in a few sentences: where the time went, and what helps.
//!
//! Takes a sample and the activity of the minute before it. Each sentence may be absent: no sentence is better than a wrong
//! one. Pure. `milepost report` says more of a log, which names each request; here only sums are known.

use ipc::LiveSample;
use present::{counted, duration, percent, share};
use telemetry::Nanos;

use super::window::Activity;

/// More would be a report.
const SENTENCES_LEN_MAX: usize = 4;
/// Fewer requests of a kind are an accident.
const LEN_MIN: u64 = 3;
/// Fewer requests do not tell where the time goes.
const REQUESTS_LEN_MIN: u64 = 20;
/// A smaller share of the time is worth no sentence.
const SHARE_MIN: f64 = 0.1;
/// A smaller share of the requests is worth none.
const FAILED_SHARE_MIN: f64 = 0.01;
/// Shorter waits are nobody's trouble.
const WAIT_SECS_MIN: f64 = 0.001;
/// A route that is never slower is no slow route.
const SLOW_SECS: f64 = 0.1;
/// An event loop that is late by less than this does its work.
const LAG_SECS_MIN: f64 = 0.05;
/// A fault that is older is no news.
const FAULT_AGE_MAX_S: u64 = 300;

/// The sentences, the most important first; `health`: those about what the server depends on.
pub(super) fn sentences(
    sample: &LiveSample,
    minute: &Activity,
    health: Vec<String>,
) -> Vec<String> {
    // The first sample has nothing to be compared with.
    if minute.span.is_zero() {
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(fault(sample));
    found.extend(processes(sample));
    found.extend(crashes(minute));
    found.extend(health);
    found.extend(refusals(minute));
    found.extend(failures(minute));
    found.extend(waiting(sample, minute));
    found.extend(event_loop(sample, minute));
    found.extend(interpreter(minute));
    found.extend(slow_route(minute));
    found.extend(sending(minute));
    if found.is_empty() {
        found.push(calm(minute));
    }
    found.truncate(SENTENCES_LEN_MAX);
    found
}

fn fault(sample: &LiveSample) -> Option<String> {
    let fault = sample.last_fault.as_ref()?;
    (fault.age_s <= FAULT_AGE_MAX_S).then(|| {
        let age = duration(fault.age_s as f64);
        format!("{age} ago: {}.", fault.message.trim_end_matches('.'))
    })
}

fn processes(sample: &LiveSample) -> Option<String> {
    let count = |state: &str| {
        let processes = sample.processes.iter();
        processes.filter(|process| process.state == state).count() as u64
    };
    let (stuck, waiting) = (count("stuck"), count("waiting"));
    if stuck > 0 {
        let who = match stuck {
            1 => "1 process does".to_owned(),
            len => format!("{len} processes do"),
        };
        return Some(format!(
            "{who} not answer: code outside of Python may hold the interpreter."
        ));
    }
    (waiting > 0).then(|| {
        let who = match waiting {
            1 => "1 process has".to_owned(),
            len => format!("{len} processes have"),
        };
        format!("{who} ended and will be started again.")
    })
}

fn crashes(minute: &Activity) -> Option<String> {
    let who = match minute.crashes {
        0 => return None,
        1 => "1 process".to_owned(),
        len => format!("{len} processes"),
    };
    Some(format!(
        "{who} ended unexpectedly in the last minute: the error log says how."
    ))
}

/// `Pool default refused 12 requests: 10 because its queue was full, 2 because they had waited too long.`
fn refusals(minute: &Activity) -> Option<String> {
    let pools = minute.pools.iter();
    let (name, most) = pools.max_by_key(|(_, pool)| pool.all())?;
    if most.all() == 0 {
        return None;
    }
    let causes = [
        (most.refused, "because its queue was full"),
        (most.shed, "because it was overloaded"),
        (most.expired, "because they had waited too long"),
    ];
    let causes = causes.iter().filter(|(len, _)| *len > 0);
    let causes: Vec<String> = causes.map(|(len, why)| format!("{len} {why}")).collect();
    let (all, causes) = (counted(most.all(), "request"), causes.join(", "));
    Some(format!("Pool `{name}` refused {all}: {causes}."))
}

/// `Route app answered 41 of 50 requests with 5xx.`
fn failures(minute: &Activity) -> Option<String> {
    let (len, failed) = minute.routes.values().fold((0, 0), |(len, failed), route| {
        (len + route.total.len, failed + route.failed)
    });
    if failed < LEN_MIN || (failed as f64) < FAILED_SHARE_MIN * len as f64 {
        return None;
    }
    let routes = minute.routes.iter();
    let (name, worst) = routes.max_by_key(|(name, route)| (route.failed, *name))?;
    if 2 * worst.failed < failed {
        return Some(format!(
            "{} of all requests were answered with 5xx.",
            percent(failed, len)
        ));
    }
    Some(format!(
        "Route `{name}` answered {} of {} with 5xx.",
        worst.failed,
        counted(worst.total.len, "request")
    ))
}

/// `Requests spent 38 % of their time waiting for a thread. All threads of pool default are at work.`
fn waiting(sample: &LiveSample, minute: &Activity) -> Option<String> {
    let part = part_of_total(minute, minute.phases.queue.sum_ns)?;
    if part < SHARE_MIN || minute.phases.queue.mean_secs() < WAIT_SECS_MIN {
        return None;
    }
    let part = share(part);
    let pools = sample.pools.iter().map(|pool| (&pool.name, &pool.figures));
    let fullest = pools
        .filter(|(_, pool)| pool.waiting > 0)
        .max_by_key(|(_, pool)| pool.waiting);
    let now = match fullest {
        // Without the numbers of this moment: the sentence is shown for longer than they hold.
        Some((name, pool)) if pool.threads > 0 && pool.idle == 0 => {
            format!(" All threads of pool `{name}` are at work.")
        }
        _ => String::new(),
    };
    let loops = if sample.event_loop.is_there() {
        " or an event loop"
    } else {
        ""
    };
    Some(format!(
        "Requests spent {part} of their time waiting for a thread{loops}.{now}"
    ))
}

fn event_loop(sample: &LiveSample, minute: &Activity) -> Option<String> {
    let lag_secs = Nanos(sample.event_loop.lag_ns).as_secs_f64();
    let steps = match minute.slow_steps {
        0 => String::new(),
        len => format!(" {} blocked it.", counted(len, "long step")),
    };
    (lag_secs >= LAG_SECS_MIN || minute.slow_steps >= LEN_MIN).then(|| {
        format!(
            "An event loop is late by up to {}.{steps} Run long steps in a thread: `await asyncio.to_thread(...)`, or, in \
             FastAPI and Starlette, `def` instead of `async def`.",
            duration(lag_secs)
        )
    })
}

fn interpreter(minute: &Activity) -> Option<String> {
    let run = &minute.phases.run;
    if run.sum_ns == 0 || minute.phases.gil.mean_secs() < WAIT_SECS_MIN {
        return None;
    }
    let part = minute.phases.gil.sum_ns as f64 / run.sum_ns as f64;
    (part >= SHARE_MIN).then(|| {
        format!(
            "Running requests spent {} of their run waiting for the interpreter lock (GIL): more processes help, more \
             threads do not.",
            share(part)
        )
    })
}

/// `Route reports took 71 % of the time of all requests: 31 requests, half of them up to 412 ms.`
fn slow_route(minute: &Activity) -> Option<String> {
    let all = &minute.phases.total;
    let routes = minute.routes.iter();
    let (name, most) = routes.max_by_key(|(name, route)| (route.total.sum_ns, *name))?;
    let is_known = all.len >= REQUESTS_LEN_MIN && most.total.len >= LEN_MIN;
    if !is_known || minute.routes.len() < 2 || most.total.sum_ns < all.sum_ns / 2 {
        return None;
    }
    let [median, slow] = most.total.quantiles_secs([0.5, 0.95]);
    (slow >= SLOW_SECS).then(|| {
        format!(
            "Route `{name}` took {} of the time of all requests: {}, half of them up to {}.",
            share(most.total.sum_ns as f64 / all.sum_ns as f64),
            counted(most.total.len, "request"),
            duration(median)
        )
    })
}

fn sending(minute: &Activity) -> Option<String> {
    let part = part_of_total(minute, minute.phases.send.sum_ns)?;
    let [slow] = minute.phases.send.quantiles_secs([0.95]);
    (part >= 0.5 && slow >= SLOW_SECS).then(|| {
        format!(
            "Requests spent {} of their time sending responses: clients receive slowly, or the responses are streams.",
            share(part)
        )
    })
}

fn calm(minute: &Activity) -> String {
    let total = &minute.phases.total;
    let span = match minute.span.as_secs() {
        60.. => "minute".to_owned(),
        secs => duration(secs.max(1) as f64),
    };
    if total.len == 0 {
        return format!("No request ended in the last {span}.");
    }
    if total.len < REQUESTS_LEN_MIN {
        let len = counted(total.len, "request");
        return format!("Only {len} in the last {span}: too few to judge.");
    }
    let [median, high] = total.quantiles_secs([0.5, 0.99]);
    format!(
        "No trouble seen in the last {span}: half of the requests took up to {}, 99 % up to {}.",
        duration(median),
        duration(high)
    )
}

/// Which part of the time of all requests that was; `None` where there are too few.
fn part_of_total(minute: &Activity, part_ns: u64) -> Option<f64> {
    let total = &minute.phases.total;
    (total.len >= REQUESTS_LEN_MIN && total.sum_ns > 0)
        .then(|| part_ns as f64 / total.sum_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::super::spread::Spread;
    use super::super::window::{Refusals, RouteActivity};
    use super::*;
    use ipc::{LiveFault, LiveProcess};
    use std::time::Duration;
    use telemetry::Snapshot;
    use telemetry::counters::{PoolFigures, PoolSnapshot};

    fn spread(len: usize, each_ms: u64) -> Spread {
        let mut all = Snapshot::default();
        (0..len).for_each(|_| all.record(Nanos::from_ms(each_ms)));
        Spread::of(all.counts(), all.sum().0)
    }

    fn quiet() -> Activity {
        Activity {
            span: Duration::from_secs(60),
            ..Activity::default()
        }
    }

    /// 100 requests of 40 ms.
    fn minute() -> Activity {
        let mut minute = quiet();
        minute.phases.total = spread(100, 40);
        minute.phases.run = spread(100, 30);
        minute.routes.insert("app".into(), route(99, 40, 0));
        minute.routes.insert("other".into(), route(1, 40, 0));
        minute
    }

    fn route(len: usize, each_ms: u64, failed: u64) -> RouteActivity {
        RouteActivity {
            total: spread(len, each_ms),
            failed,
        }
    }

    fn said(sample: &LiveSample, minute: &Activity) -> Vec<String> {
        sentences(sample, minute, Vec::new())
    }

    fn check(sample: &LiveSample, minute: &Activity, expect: &[&str]) {
        assert_eq!(said(sample, minute), expect);
    }

    #[test]
    fn a_calm_minute_is_called_calm() {
        let none = LiveSample::default();
        check(&none, &Activity::default(), &[]);
        check(&none, &quiet(), &["No request ended in the last minute."]);
        let begun = Activity {
            span: Duration::from_millis(2_040),
            ..Activity::default()
        };
        check(&none, &begun, &["No request ended in the last 2 s."]);
        let mut few = quiet();
        few.phases.total = spread(2, 4_000);
        check(
            &none,
            &few,
            &["Only 2 requests in the last minute: too few to judge."],
        );
        let found = said(&none, &minute());
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("No trouble seen"), "{found:?}");
    }

    #[test]
    fn what_the_server_depends_on_comes_before_what_it_does() {
        let mut busy = minute();
        busy.phases.queue = spread(100, 20);
        let stall = "12 s ago the machine stood still for 1.5 s.".to_owned();
        let found = sentences(&LiveSample::default(), &busy, vec![stall.clone()]);
        assert_eq!((found.len(), &found[0]), (2, &stall));
        let calm = sentences(&LiveSample::default(), &minute(), vec![stall.clone()]);
        assert_eq!(calm, [stall]);
    }

    #[test]
    fn waits_for_a_thread_name_the_pool() {
        let mut busy = minute();
        busy.phases.queue = spread(100, 20);
        let part = "Requests spent 50.0 % of their time waiting for a thread.";
        check(&LiveSample::default(), &busy, &[part]);
        let pool = |name: &str, waiting, idle| PoolSnapshot {
            name: name.to_owned(),
            figures: PoolFigures {
                threads: 4,
                idle,
                waiting,
                ..PoolFigures::default()
            },
        };
        let sample = LiveSample {
            pools: vec![pool("slow", 12, 0), pool("default", 0, 2)],
            ..LiveSample::default()
        };
        let now = " All threads of pool `slow` are at work.";
        check(&sample, &busy, &[&(part.to_owned() + now)]);
        // Less than a tenth, or shorter than a millisecond, is no trouble.
        busy.phases.queue = spread(100, 3);
        assert!(!said(&sample, &busy)[0].contains("waiting for a thread"));
    }

    #[test]
    fn refusals_and_failures_come_first() {
        let mut bad = minute();
        bad.phases.queue = spread(100, 20);
        let refusals = Refusals {
            refused: 10,
            expired: 2,
            ..Refusals::default()
        };
        bad.pools.insert("default".to_owned(), refusals);
        bad.routes.insert("app".into(), route(50, 40, 41));
        check(
            &LiveSample::default(),
            &bad,
            &[
                "Pool `default` refused 12 requests: 10 because its queue was full, 2 because they had waited too long.",
                "Route `app` answered 41 of 50 requests with 5xx.",
                "Requests spent 50.0 % of their time waiting for a thread.",
            ],
        );
    }

    #[test]
    fn one_route_that_takes_the_time_is_named() {
        let mut one = minute();
        one.phases.total = spread(100, 400);
        one.routes.insert("reports".into(), route(90, 400, 0));
        let found = said(&LiveSample::default(), &one);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with(
                "Route `reports` took 90.0 % of the time of all requests: 90 requests"
            ),
            "{found:?}"
        );
        // The only one there is takes all of it, always.
        one.routes.retain(|name, _| &**name == "reports");
        assert!(said(&LiveSample::default(), &one)[0].starts_with("No trouble"));
    }

    #[test]
    fn locks_loops_and_clients_are_told_apart() {
        let mut one = minute();
        one.phases.gil = spread(100, 15);
        assert!(
            said(&LiveSample::default(), &one)[0]
                .contains("50.0 % of their run waiting for the interpreter lock")
        );
        let mut sample = LiveSample::default();
        sample.event_loop.lag_ns = 120_000_000;
        assert!(said(&sample, &minute())[0].starts_with("An event loop is late by up to 120 ms."));
        let mut slow = minute();
        slow.phases.total = spread(100, 400);
        slow.phases.send = spread(100, 300);
        assert!(
            said(&LiveSample::default(), &slow)[0]
                .contains("75.0 % of their time sending responses")
        );
    }

    #[test]
    fn faults_and_processes_are_told_while_they_are_news() {
        let mut sample = LiveSample {
            last_fault: Some(LiveFault {
                message: "process 7 was killed by signal 9".to_owned(),
                age_s: 12,
            }),
            processes: ["ready", "stuck", "waiting"]
                .map(|state| LiveProcess {
                    state: state.to_owned(),
                    ..LiveProcess::default()
                })
                .to_vec(),
            ..LiveSample::default()
        };
        check(
            &sample,
            &minute(),
            &[
                "12 s ago: process 7 was killed by signal 9.",
                "1 process does not answer: code outside of Python may hold the interpreter.",
            ],
        );
        sample.processes.remove(1);
        let crashed = Activity {
            crashes: 2,
            ..minute()
        };
        assert!(
            said(&sample, &crashed).contains(
                &"2 processes ended unexpectedly in the last minute: the error log says how."
                    .to_owned()
            )
        );
        if let Some(fault) = &mut sample.last_fault {
            fault.age_s = FAULT_AGE_MAX_S + 1;
        }
        check(
            &sample,
            &minute(),
            &["1 process has ended and will be started again."],
        );
    }
}
