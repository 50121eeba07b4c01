//! A client of constant rate (an open loop): request k starts at k / RATE, whether or not the
//! replies before it have come, and its latency counts from there. One thread a connection, each
//! with every CONNECTIONS-th request: a late reply delays the next request of its connection, and
//! that delay counts. What this program itself is late counts too, and is told beside it.
//!
//! Takes `pace PORT RATE SECONDS CONNECTIONS PATH...`: the paths by turns, one for each request.
//! Prints one line of JSON when all is over. Must know nothing of the server but HTTP/1.1 with a
//! Content-Length.

#![forbid(unsafe_code)]

mod client;
mod told;

use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, REPLY_TIMEOUT};
use crate::told::{Ending, Seen, line};

/// The threads are started and connected before the first request is due.
const START_DELAY: Duration = Duration::from_millis(100);
/// After the last request was due: who has not had his turn by then will not get it.
const STAY: Duration = Duration::from_secs(2);

struct Plan {
    port: u16,
    rate: u32,
    requests: u32,
    lasts: Duration,
    connections: u32,
    paths: Vec<String>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, rate, seconds, connections, paths @ ..] = arguments.as_slice() else {
        fail("usage: pace PORT RATE SECONDS CONNECTIONS PATH...");
    };
    if paths.is_empty() {
        fail("no path to ask for");
    }
    let (rate, seconds) = (number(rate), number(seconds));
    let plan = Arc::new(Plan {
        port: u16::try_from(number(port)).unwrap_or_else(|_| fail("PORT is not below 65536")),
        rate,
        requests: rate.saturating_mul(seconds),
        lasts: Duration::from_secs(seconds.into()),
        connections: number(connections),
        paths: paths.to_vec(),
    });
    println!("{}", line(&plan.paths, &run(&plan)));
}

fn run(plan: &Arc<Plan>) -> Vec<Seen> {
    // The kernel rounds sleeps up by 50 us otherwise; threads inherit it.
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
    let start = Instant::now() + START_DELAY;
    let threads: Vec<_> = (0..plan.connections)
        .map(|first| {
            let plan = Arc::clone(plan);
            thread::spawn(move || keep_pace(&plan, first, start))
        })
        .collect();
    let joined = threads.into_iter().map(|one| one.join());
    joined
        .flat_map(|seen| seen.expect("a panic aborts"))
        .collect()
}

/// The requests `first`, `first + CONNECTIONS`, and so on.
fn keep_pace(plan: &Plan, first: u32, start: Instant) -> Vec<Seen> {
    let mut client = Client::new(plan.port);
    let mut seen = Vec::new();
    let mut free = start;
    for number in (first..plan.requests).step_by(plan.connections as usize) {
        let intended = start + Duration::from_secs(1) * number / plan.rate;
        thread::sleep(intended.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        let path = number as usize % plan.paths.len();
        let ending = if began > start + plan.lasts + STAY {
            Ending::Unsent
        } else if client.ask(&plan.paths[path]) {
            Ending::Replied
        } else {
            Ending::Failed
        };
        let ended = Instant::now();
        // A refusal is quick: it must not pass for a quick reply.
        let least = if ending == Ending::Failed {
            REPLY_TIMEOUT
        } else {
            Duration::ZERO
        };
        seen.push(Seen {
            path,
            at: intended - start,
            latency: least.max(ended - intended),
            // Late by its own fault: the connection was free, and it was time.
            lag: began - intended.max(free),
            ending,
        });
        free = ended;
    }
    seen
}

fn number(text: &str) -> u32 {
    match text.parse() {
        Ok(number) if number > 0 => number,
        _ => fail(&format!("`{text}` is not a number above 0")),
    }
}

fn fail(what: &str) -> ! {
    eprintln!("pace: {what}");
    exit(2)
}
