//! What a log says first: at most two sentences.
//!
//! Takes counts and distributions, gives sentences without their ends. Each may be absent: no verdict is better than a
//! wrong one. Pure: reads no line and no clock.

use present::{counted, duration, percent, share, thousands};

use crate::event_loops::EventLoops;
use crate::spread::secs;
use crate::tally::{Group, Tally};
use crate::upstreams::SlowServer;
use crate::waiting::{RouteWaiting, WAIT_MIN, WaitRunner, Waiting};

/// Sentences of a verdict: more would be a report.
const SENTENCES_LEN_MAX: usize = 2;
/// Fewer requests of a kind are an accident.
const LEN_MIN: u64 = 3;
/// Fewer requests do not tell which page takes the time.
const REQUESTS_LEN_MIN: u64 = 20;
/// What less than this share of the requests met is left to the tables.
const SHARE_MIN: f64 = 0.01;
/// More than this share of the waits must have a cause.
const UNEXPLAINED_MAX: f64 = 0.25;
/// From this share on nothing else is worth a word.
const WHOLE: f64 = 0.95;
/// A page that is never slower is no slow page.
const SLOW_SECS: f64 = 0.1;

/// The sentences, the most important first.
pub(crate) fn verdict(tally: &Tally, waiting: &Waiting) -> Vec<String> {
    let pages = tally.pages().named;
    let all = tally.all();
    let blocking = blocking(&tally.event_loops(), all.len);
    let is_on_loop = waiting.runner() == WaitRunner::EventLoop;
    // What a step has blocked is said already.
    let held = held(waiting, all.len).filter(|_| blocking.is_none() || !is_on_loop);
    let mut sentences: Vec<String> = blocking.into_iter().chain(held).collect();
    sentences.extend(tally.slow_upstream().map(slow_upstream));
    sentences.extend(failing(&pages, all));
    // The page that holds the threads is named already.
    if sentences.is_empty() {
        sentences.extend(slow(&pages, all));
        sentences.extend(calm(all));
        sentences.extend(unknown(all));
    }
    sentences.truncate(SENTENCES_LEN_MAX);
    sentences
}

/// Which page blocks the event loop: `GET /report blocks the event loop for 1.2 s in one step, and 37 requests waited up to
/// 1.1 s for it`, and what helps.
fn blocking(event_loops: &EventLoops, requests_len: u64) -> Option<String> {
    let page = event_loops
        .pages
        .iter()
        .max_by_key(|page| page.blocked_ns)?;
    let is_rare = (page.blocked_len as f64) < SHARE_MIN * requests_len as f64;
    if page.blocked_len < LEN_MIN || is_rare {
        return None;
    }
    Some(format!(
        "{} blocks the event loop for {} in one step, and {} waited up to {} for it. Run that step in a thread: \
         `await asyncio.to_thread(...)`, or, in FastAPI and Starlette, `def` instead of `async def`",
        page.name,
        duration(secs(page.long_mean())),
        counted(page.blocked_len, "request"),
        duration(secs(page.blocked_max))
    ))
}

/// Which requests waited, and for which: `27 requests of GET /orders/* waited up to 412 ms for threads that GET /report
/// held`.
fn held(waiting: &Waiting, requests_len: u64) -> Option<String> {
    let all_ns = waiting.waited_ns as f64;
    let is_rare = (waiting.waited_len as f64) < SHARE_MIN * requests_len as f64;
    let is_doubtful = waiting.late_len > 0
        || waiting.unnamed_len > waiting.waited_len
        || waiting.unexplained_ns > UNEXPLAINED_MAX * all_ns;
    if waiting.waited_len < LEN_MIN || is_rare || is_doubtful {
        return None;
    }
    let most = |of: fn(&RouteWaiting) -> u64| waiting.routes.iter().max_by_key(|route| of(route));
    let holder = most(|route| route.caused_ns as u64)?;
    let longest = |of: &[&RouteWaiting]| {
        let waits = of.iter().map(|route| route.waited_max);
        duration(secs(waits.max().unwrap_or_default()))
    };
    let everything: Vec<&RouteWaiting> = waiting.routes.iter().collect();
    let who = counted(waiting.waited_len, "request");
    if holder.caused_ns < all_ns / 2.0 {
        let longest = longest(&everything);
        return Some(match waiting.runner() {
            WaitRunner::EventLoop => format!(
                "{who} waited up to {longest} for the event loop, and no page alone held it"
            ),
            _ => format!(
                "{who} waited up to {longest} for a thread, and no page alone held the threads"
            ),
        });
    }
    // All shares of the two are known, but not what one had from the other: at least this much.
    let is_victim = |route: &&RouteWaiting| {
        let own_ns = route.waited_ns as f64;
        let of_holder_ns = own_ns + holder.caused_ns - all_ns;
        own_ns >= all_ns / 2.0 && of_holder_ns >= own_ns / 2.0
    };
    let victim = most(|route| route.waited_ns).filter(is_victim);
    let (who, longest) = match victim {
        None => (who, longest(&everything)),
        Some(victim) => (
            format!(
                "{} of {}",
                counted(victim.waited_len, "request"),
                victim.name
            ),
            longest(&[victim]),
        ),
    };
    let others = match victim.is_some_and(|victim| victim.name == holder.name) {
        true => "other requests of ",
        false => "",
    };
    let part = match holder.caused_ns / all_ns {
        part if part >= WHOLE => String::new(),
        part => format!(" ({} of the waiting)", share(part)),
    };
    let holder = &holder.name;
    Some(match waiting.runner() {
        WaitRunner::EventLoop => format!(
            "{who} waited up to {longest} for the event loop, in which {others}{holder} ran{part}"
        ),
        _ => format!("{who} waited up to {longest} for threads that {others}{holder} held{part}"),
    })
}

/// Which upstream server is slower than the others: `10.0.0.3:80 took 120 ms to the first byte (median), all other
/// upstream servers up to 11 ms; most of it was its own queue`.
fn slow_upstream(slow: SlowServer<'_>) -> String {
    let SlowServer { server, next_secs } = slow;
    let own_secs = server.ttfb.quantile_secs(0.5);
    let is_queue = server.queue.quantile_secs(0.5) > own_secs / 2.0;
    let is_run = server.run.quantile_secs(0.5) > own_secs / 2.0;
    let part = match (is_queue, is_run) {
        (true, _) => "; most of it was its own queue",
        (false, true) => "; most of it was its own run",
        (false, false) => "",
    };
    format!(
        "{} took {} to the first byte (median of {}), all other upstream servers up to {}{part}",
        server.name,
        duration(own_secs),
        counted(server.len, "request"),
        duration(next_secs)
    )
}

/// Which page fails: `GET /broken answered 41 of 50 requests with 5xx`.
fn failing(pages: &[(String, &Group)], all: &Group) -> Option<String> {
    let failed_len = all.classes[5];
    if failed_len < LEN_MIN || (failed_len as f64) < SHARE_MIN * all.len as f64 {
        return None;
    }
    let worst = pages.iter().max_by_key(|(_, page)| page.classes[5])?;
    let (name, page) = (&worst.0, worst.1);
    if 2 * page.classes[5] < failed_len || pages.len() == 1 {
        let part = percent(failed_len, all.len);
        return Some(format!("{part} of all requests were answered with 5xx"));
    }
    let (failed_len, len) = (thousands(page.classes[5]), thousands(page.len));
    Some(format!(
        "{name} answered {failed_len} of {len} requests with 5xx"
    ))
}

/// Which page takes the time: `GET /search took 71.0 % of all run time: 31 requests, median 412 ms`.
fn slow(pages: &[(String, &Group)], all: &Group) -> Option<String> {
    // What runs on threads, where the log says so.
    let (phase, what) = match all.phases[2].is_empty() {
        true => (4, "time"),
        false => (2, "run time"),
    };
    let sum = |group: &Group| group.phases[phase].sum_secs();
    let by_time =
        |one: &&(String, &Group), other: &&(String, &Group)| sum(one.1).total_cmp(&sum(other.1));
    let (name, page) = pages.iter().max_by(by_time)?;
    let spread = &page.phases[phase];
    let is_known = all.len >= REQUESTS_LEN_MIN && page.len >= LEN_MIN && pages.len() > 1;
    if !is_known || sum(page) < sum(all) / 2.0 || spread.quantile_secs(0.95) < SLOW_SECS {
        return None;
    }
    let part = share(sum(page) / sum(all));
    let (len, median) = (
        counted(page.len, "request"),
        duration(spread.quantile_secs(0.5)),
    );
    Some(format!(
        "{name} took {part} of all {what}: {len}, median {median}"
    ))
}

/// That nothing waited.
fn calm(all: &Group) -> Option<String> {
    let queue = &all.phases[1];
    let is_calm = !queue.is_empty() && queue.max_secs() <= secs(WAIT_MIN);
    is_calm.then(|| {
        format!(
            "no request waited longer than {} for {}",
            duration(secs(WAIT_MIN)),
            all.runner()
        )
    })
}

/// What the log does not say.
fn unknown(all: &Group) -> Option<String> {
    let is_unknown = all.phases[1].is_empty() && !all.total().is_empty();
    is_unknown.then(|| {
        "the log does not say how long requests waited for a thread: the times contain it or leave it out".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loops::LoopPage;
    use crate::upstreams::UpstreamServer;
    use telemetry::{KnownSpans, Line, Nanos};

    /// A route: its name, milliseconds that it caused, requests that waited, how long together and at most.
    fn route(name: &str, caused_ms: u64, len: u64, waited_ms: u64, max_ms: u64) -> RouteWaiting {
        RouteWaiting {
            name: name.to_owned(),
            caused_ns: caused_ms as f64 * 1e6,
            waited_len: len,
            waited_ns: waited_ms * 1_000_000,
            waited_max: Nanos::from_ms(max_ms),
            ..RouteWaiting::default()
        }
    }

    fn waiting(routes: &[RouteWaiting]) -> Waiting {
        Waiting {
            waited_len: routes.iter().map(|route| route.waited_len).sum(),
            waited_ns: routes.iter().map(|route| route.waited_ns).sum(),
            routes: routes.to_vec(),
            ..Waiting::default()
        }
    }

    #[test]
    fn names_the_page_that_holds_the_threads() {
        let check = |routes: &[RouteWaiting], expect: &str| {
            assert_eq!(held(&waiting(routes), 100).unwrap(), expect);
        };
        let orders = |caused, len, ms| route("GET /orders/*", caused, len, ms, 412);
        check(
            &[route("GET /report", 1_000, 0, 0, 0), orders(0, 27, 1_000)],
            "27 requests of GET /orders/* waited up to 412 ms for threads that GET /report held",
        );
        check(
            &[route("GET /report", 700, 0, 0, 0), orders(300, 27, 1_000)],
            "27 requests of GET /orders/* waited up to 412 ms for threads that GET /report held (70.0 % of the waiting)",
        );
        check(
            &[route("GET /report", 1_000, 3, 1_000, 250)],
            "3 requests of GET /report waited up to 250 ms for threads that other requests of GET /report held",
        );
        // None of them waited for most of it, or their share from the holder is not known.
        check(
            &[
                route("GET /report", 1_000, 10, 400, 90),
                route("GET /a", 0, 10, 300, 80),
                orders(0, 7, 300),
            ],
            "27 requests waited up to 412 ms for threads that GET /report held",
        );
        check(
            &[
                route("GET /report", 501, 1, 1, 1),
                route("GET /b", 499, 1, 1, 1),
                orders(0, 27, 998),
            ],
            "27 requests of GET /orders/* waited up to 412 ms for threads that GET /report held (50.1 % of the waiting)",
        );
        check(
            &[
                route("GET /a", 400, 9, 400, 90),
                route("GET /b", 300, 9, 300, 80),
                orders(300, 9, 300),
            ],
            "27 requests waited up to 412 ms for a thread, and no page alone held the threads",
        );
    }

    #[test]
    fn names_the_server_that_is_slower_than_the_others() {
        let server = |[ttfb_ms, queue_ms, run_ms]: [u64; 3]| {
            let mut server = UpstreamServer {
                name: "10.0.0.3:80".to_owned(),
                len: 40,
                ..UpstreamServer::default()
            };
            for (spread, ms) in [
                (&mut server.ttfb, ttfb_ms),
                (&mut server.queue, queue_ms),
                (&mut server.run, run_ms),
            ] {
                spread.add(Nanos::from_ms(ms));
            }
            server
        };
        let head = "10.0.0.3:80 took 120 ms to the first byte (median of 40 requests), all other \
                    upstream servers up to 11 ms";
        for (times, part) in [
            ([120, 100, 10], "; most of it was its own queue"),
            ([120, 10, 100], "; most of it was its own run"),
            ([120, 50, 50], ""),
        ] {
            let slow = SlowServer {
                server: &server(times),
                next_secs: 0.011,
            };
            assert_eq!(slow_upstream(slow), format!("{head}{part}"));
        }
    }

    #[test]
    fn names_the_page_that_blocks_the_event_loop() {
        let page = |name: &str, long_ms: u64, blocked_len, max_ms| LoopPage {
            name: name.to_owned(),
            long_len: 2,
            long_ns: 2 * u128::from(Nanos::from_ms(long_ms).0),
            blocked_len,
            blocked_ns: u128::from(blocked_len) * u128::from(Nanos::from_ms(max_ms).0),
            blocked_max: Nanos::from_ms(max_ms),
            ..LoopPage::default()
        };
        let check = |blocked_len, len, expect: Option<&str>| {
            let found = EventLoops {
                pages: vec![
                    page("GET /a", 900, 1, 100),
                    page("GET /report", 1_200, blocked_len, 800),
                ],
                ..EventLoops::default()
            };
            assert_eq!(blocking(&found, len).as_deref(), expect);
        };
        let expect = "GET /report blocks the event loop for 1.2 s in one step, and 37 requests waited up to 800 ms for \
                      it. Run that step in a thread: `await asyncio.to_thread(...)`, or, in FastAPI and Starlette, `def` \
                      instead of `async def`";
        check(37, 3_700, Some(expect));
        check(37, 3_701, None);
        check(2, 10, None);
    }

    #[test]
    fn speaks_of_the_event_loop_where_requests_waited_for_it() {
        let of_loop = |routes: &[RouteWaiting]| {
            let waiting = waiting(routes);
            Waiting {
                loop_len: waiting.waited_len,
                ..waiting
            }
        };
        let orders = route("GET /orders/*", 0, 27, 1_000, 412);
        assert_eq!(
            held(
                &of_loop(&[route("GET /report", 1_000, 0, 0, 0), orders.clone()]),
                100
            )
            .unwrap(),
            "27 requests of GET /orders/* waited up to 412 ms for the event loop, in which GET /report ran"
        );
        let several = [
            route("GET /a", 400, 9, 400, 90),
            route("GET /b", 300, 9, 300, 80),
            route("GET /c", 300, 9, 300, 80),
        ];
        assert_eq!(
            held(&of_loop(&several), 100).unwrap(),
            "27 requests waited up to 90 ms for the event loop, and no page alone held it"
        );
    }

    #[test]
    fn says_nothing_of_waits_that_are_few_or_doubtful() {
        let clear = waiting(&[route("GET /report", 1_000, 5, 1_000, 9)]);
        assert!(held(&clear, 500).is_some());
        assert_eq!(held(&clear, 501), None);
        let check = |change: &dyn Fn(&mut Waiting)| {
            let mut waiting = clear.clone();
            change(&mut waiting);
            assert_eq!(held(&waiting, 100), None, "{waiting:?}");
        };
        check(&|waiting| waiting.waited_len = 2);
        check(&|waiting| waiting.late_len = 1);
        check(&|waiting| waiting.unnamed_len = 6);
        check(&|waiting| waiting.unexplained_ns = 0.26e9);
        check(&|waiting| *waiting = Waiting::default());
    }

    /// Requests, of them with 5xx, and how long each ran, in milliseconds.
    fn group(len: u64, failed_len: u64, run_ms: u64) -> Group {
        let mut group = Group::default();
        for number in 0..len {
            group.add(&Line {
                status: Some(if number < failed_len { 500 } else { 200 }),
                spans: KnownSpans {
                    run: Some(Nanos::from_ms(run_ms)),
                    total: Some(Nanos::from_ms(run_ms)),
                    ..KnownSpans::default()
                },
                ..Line::default()
            });
        }
        group
    }

    type Sentence = fn(&[(String, &Group)], &Group) -> Option<String>;

    /// What `say` makes of two pages, `GET /a` and `GET /b`, each as [`group`] takes it.
    fn of_two(say: Sentence, one: (u64, u64, u64), other: (u64, u64, u64)) -> Option<String> {
        let groups = [one, other].map(|(len, failed_len, run_ms)| group(len, failed_len, run_ms));
        let mut all = Group::default();
        for (len, failed_len, run_ms) in [one, other] {
            all.merge(&group(len, failed_len, run_ms));
        }
        let names = ["GET /a", "GET /b"].map(str::to_owned);
        let pages: Vec<(String, &Group)> = names.into_iter().zip(&groups).collect();
        say(&pages, &all)
    }

    #[test]
    fn names_the_page_that_fails() {
        let check = |one, other, expect: Option<&str>| {
            assert_eq!(of_two(failing, one, other).as_deref(), expect);
        };
        check(
            (50, 41, 1),
            (900, 1, 1),
            Some("GET /a answered 41 of 50 requests with 5xx"),
        );
        check((50, 2, 1), (10, 0, 1), None);
        check((50, 3, 1), (300, 0, 1), None);
    }

    #[test]
    fn names_the_page_that_takes_the_time() {
        let check = |one, other, expect: Option<&str>| {
            assert_eq!(of_two(slow, one, other).as_deref(), expect);
        };
        let expect = "GET /a took 90.9 % of all run time: 20 requests, median 500 ms";
        check((20, 0, 500), (100, 0, 10), Some(expect));
        check((20, 0, 50), (100, 0, 1), None);
        check((2, 0, 5_000), (100, 0, 10), None);
        check((10, 0, 500), (9, 0, 10), None);
    }
}
