//! The rhythm of an open loop: request k starts at k / RATE, whether or not the replies before it have
//! come. Takes what asks, gives what was seen; must know nothing of connections.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::REPLY_TIMEOUT;
use crate::results::{Ending, Seen};

/// The threads are started and connected before the first request is due.
pub const START_DELAY: Duration = Duration::from_millis(100);
/// After the last request was due: who has not had his turn by then will not get it.
const STAY: Duration = Duration::from_secs(2);

/// How many requests a second, how many in all, shared by how many connections.
#[derive(Clone, Copy)]
pub struct Rhythm {
    pub rate: u32,
    pub requests: u32,
    pub lasts: Duration,
    pub connections: u32,
    /// The number of paths that are asked for by turns.
    pub paths: usize,
}

impl Rhythm {
    /// `rate` requests a second for so many seconds.
    pub fn new(rate: u32, seconds: u32, connections: u32, paths: usize) -> Self {
        Self {
            rate,
            requests: rate.saturating_mul(seconds),
            lasts: Duration::from_secs(seconds.into()),
            connections,
            paths,
        }
    }

    /// The requests `first`, `first + CONNECTIONS`, and so on. `ask` gets the place of a path and says
    /// whether a whole reply came.
    pub fn keep(
        &self,
        first: u32,
        start: Instant,
        mut ask: impl FnMut(usize) -> bool,
    ) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut free = start;
        for number in (first..self.requests).step_by(self.connections as usize) {
            let intended = start + Duration::from_secs(1) * number / self.rate;
            thread::sleep(intended.saturating_duration_since(Instant::now()));
            let began = Instant::now();
            let path = number as usize % self.paths;
            let ending = if began > start + self.lasts + STAY {
                Ending::Unsent
            } else if ask(path) {
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
}

/// The kernel rounds sleeps up by 50 us otherwise; threads inherit it.
pub fn sleep_exactly() {
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
}
