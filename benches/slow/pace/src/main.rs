//! A client of constant rate (an open loop): request k starts at k / RATE, whether or not the
//! replies before it have come, and its latency counts from there. One thread a connection, each
//! with every CONNECTIONS-th request: a late reply delays the next request of its connection, and
//! that delay counts. What this program itself is late counts too, and is told beside it.
//!
//! Takes `pace PORT RATE SECONDS CONNECTIONS PATH...`: the paths by turns, one for each request.
//! Prints one line of JSON when all is over. Must know nothing of the server but HTTP/1.1 with a
//! Content-Length.

#![forbid(unsafe_code)]

use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use milepost_pace::client::Client;
use milepost_pace::rhythm::{Rhythm, START_DELAY, sleep_exactly};
use milepost_pace::told::{Seen, line};

struct Plan {
    port: u16,
    rhythm: Rhythm,
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
    let (rate, seconds, connections) = (number(rate), number(seconds), number(connections));
    let plan = Arc::new(Plan {
        port: u16::try_from(number(port)).unwrap_or_else(|_| fail("PORT is not below 65536")),
        rhythm: Rhythm::new(rate, seconds, connections, paths.len()),
        paths: paths.to_vec(),
    });
    println!("{}", line(&plan.paths, &run(&plan)));
}

fn run(plan: &Arc<Plan>) -> Vec<Seen> {
    sleep_exactly();
    let start = Instant::now() + START_DELAY;
    let threads: Vec<_> = (0..plan.rhythm.connections)
        .map(|first| {
            let plan = Arc::clone(plan);
            thread::spawn(move || {
                let mut client = Client::new(plan.port);
                let rhythm = plan.rhythm;
                rhythm.keep(first, start, |path| client.ask(&plan.paths[path]))
            })
        })
        .collect();
    let joined = threads.into_iter().map(|one| one.join());
    joined
        .flat_map(|seen| seen.expect("a panic aborts"))
        .collect()
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
