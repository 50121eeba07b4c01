//! Requests that have a number each, `PATH?n=STREAM.NUMBER`: a stream is one keep-alive connection,
//! each of whose requests follows the reply to the one before it. A connection that is lost is
//! followed by another one with another stream; without a listener the program ends.
//!
//! Takes `numbered PORT CONNECTIONS SECONDS RATE FOLDER FIRST PATH...`. RATE is that of an open loop,
//! or `max`: as fast as the replies come, until SECONDS are over or stdin ends. Streams are numbered
//! from FIRST, paths are asked for by turns. Writes one file for each stream into FOLDER, `ledger`
//! says how, and prints one line of JSON. Must know nothing of any log.

#![forbid(unsafe_code)]

mod client;
mod ledger;
mod results;
mod rhythm;

use std::io::{Read, stdin};
use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::ledger::{Ended, Ledger};
use crate::results::{Ending, Seen, line};
use crate::rhythm::{Rhythm, START_DELAY, sleep_exactly};

const USAGE: &str = "usage: numbered PORT CONNECTIONS SECONDS RATE FOLDER FIRST PATH...";
/// All bodies that are asked for consist of it.
const BODY_BYTE: u8 = b'x';

struct Plan {
    port: u16,
    pace: Pace,
    connections: u32,
    folder: PathBuf,
    first: u32,
    paths: Vec<String>,
    over: AtomicBool,
}

enum Pace {
    Open(Rhythm),
    Closed(Duration),
}

/// One connection after the other, and what became of their requests.
struct Numbered {
    plan: Arc<Plan>,
    client: Client,
    ledger: Ledger,
}

fn main() {
    let plan = Arc::new(read_arguments());
    let seen = run(&plan).unwrap_or_else(|cause| fail(&format!("cannot write: {cause}")));
    println!("{}", line(&plan.paths, &seen));
}

fn read_arguments() -> Plan {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, connections, seconds, rate, folder, first, paths @ ..] = arguments.as_slice() else {
        fail(USAGE);
    };
    if paths.is_empty() {
        fail(USAGE);
    }
    let (connections, seconds) = (number(connections), number(seconds));
    Plan {
        port: u16::try_from(number(port)).unwrap_or_else(|_| fail("PORT is not below 65536")),
        pace: match rate.as_str() {
            "max" => Pace::Closed(Duration::from_secs(seconds.into())),
            rate => Pace::Open(Rhythm::new(number(rate), seconds, connections, paths.len())),
        },
        connections,
        folder: PathBuf::from(folder),
        first: number(first),
        paths: paths.to_vec(),
        over: AtomicBool::new(false),
    }
}

fn run(plan: &Arc<Plan>) -> std::io::Result<Vec<Seen>> {
    sleep_exactly();
    let start = Instant::now() + START_DELAY;
    let threads: Vec<_> = (0..plan.connections)
        .map(|place| {
            let plan = Arc::clone(plan);
            thread::spawn(move || Numbered::new(plan, place).run(place, start))
        })
        .collect();
    let over = Arc::clone(plan);
    thread::spawn(move || {
        let _ = stdin().read_to_end(&mut Vec::new());
        over.over.store(true, Ordering::Relaxed);
    });
    let mut seen = Vec::new();
    for thread in threads {
        seen.append(&mut thread.join().expect("a panic aborts")?);
    }
    Ok(seen)
}

impl Numbered {
    fn new(plan: Arc<Plan>, place: u32) -> Self {
        let client = Client::new(plan.port);
        let ledger = Ledger::new(plan.first + place);
        Self {
            plan,
            client,
            ledger,
        }
    }

    fn run(mut self, place: u32, start: Instant) -> std::io::Result<Vec<Seen>> {
        let plan = Arc::clone(&self.plan);
        let seen = match plan.pace {
            Pace::Open(rhythm) => rhythm.keep(place, start, |path| self.ask(path)),
            Pace::Closed(lasts) => self.hurry(start, lasts),
        };
        self.ledger.write(&plan.folder)?;
        Ok(seen)
    }

    /// One request after the other, for as long as the load lasts and the server listens.
    fn hurry(&mut self, start: Instant, lasts: Duration) -> Vec<Seen> {
        thread::sleep(start.saturating_duration_since(Instant::now()));
        let mut seen = Vec::new();
        for number in 0.. {
            let began = Instant::now();
            let is_over = began > start + lasts || self.plan.over.load(Ordering::Relaxed);
            if is_over || !self.client.is_connected() {
                break;
            }
            let path = number % self.plan.paths.len();
            let replied = self.ask(path);
            seen.push(Seen {
                path,
                at: began - start,
                latency: began.elapsed(),
                lag: Duration::ZERO,
                ending: if replied {
                    Ending::Replied
                } else {
                    Ending::Failed
                },
            });
        }
        seen
    }

    /// The next request of the stream; after a fault the next one has another stream.
    fn ask(&mut self, path: usize) -> bool {
        let id = self.ledger.next();
        let url = format!("{}?n={id}", self.plan.paths[path]);
        let replied = self.client.ask(&url);
        let ended = match replied {
            true if self.client.body().iter().all(|byte| *byte == BODY_BYTE) => Ended::Replied,
            true => Ended::Spoiled,
            false => Ended::Cut,
        };
        self.ledger.note(ended);
        if !replied {
            self.ledger.begin_stream(self.plan.connections);
            self.client = Client::new(self.plan.port);
        }
        ended == Ended::Replied
    }
}

fn number(text: &str) -> u32 {
    match text.parse() {
        Ok(number) if number > 0 => number,
        _ => fail(&format!("`{text}` is not a number above 0")),
    }
}

fn fail(what: &str) -> ! {
    eprintln!("numbered: {what}");
    exit(2)
}
