//! Access logs read back: where the time of the requests went, as a table, as JSON, as a page.
//!
//! Takes names of files and a plan, gives a [`Tally`] whose size does not depend on the number of lines,
//! and the texts made of it. Opens files and standard input, starts a thread for each compressed one.
//! It must not read arguments or print, and knows nothing of the server that wrote the lines.
//!
//! ```text
//! file, pipe ─► source (gzip, zstd) ─► lines ─► telemetry::Reader ─► filter ─► tally ─► show
//! ```

#![forbid(unsafe_code)]

mod at_queue;
mod filter;
mod follow;
mod groups;
mod lines;
mod piped;
mod recorded;
mod show;
mod slowest;
mod source;
mod spread;
mod tally;
mod timeline;
mod timings;
mod waiting;

pub use at_queue::{AtQueue, Count};
pub use filter::{Filter, When, duration, statuses};
pub use follow::Follow;
pub use groups::{By, GROUPS_LEN_MAX};
pub use recorded::{Passed, Recorded, requests};
pub use show::{interval_line, json, live, page, table};
pub use slowest::Slow;
pub use source::Input;
pub use spread::Spread;
pub use tally::{Group, Grouped, KeepTimeline, Misread, PHASES, Plan, Tally};
pub use timings::{Handling, Timing, timings};
pub use waiting::{Holder, Missing, Request, RouteWaiting, WAIT_MIN, Wait, Waiting, first_part};

use std::sync::atomic::Ordering;

use lines::Lines;

/// How far the reading is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read of all inputs, as they are stored.
    pub read_bytes: u64,
    /// Bytes that there are; `None` when an input does not know its size.
    pub total_bytes: Option<u64>,
    /// Lines read.
    pub lines_len: u64,
}

/// An input that could not be read to its end, or whose end is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The input's name.
    pub name: String,
    /// Why.
    pub cause: String,
}

/// Reads all inputs to their ends, one after another. `watch` is called about every 256 KB.
///
/// An input that cannot be read is a fault, and the others are read nevertheless; what was read of it
/// before counts.
pub fn read(
    inputs: &[Input],
    plan: &Plan,
    watch: &mut dyn FnMut(&Progress),
) -> (Tally, Vec<Fault>) {
    let mut tally = Tally::new(plan);
    let mut faults = Vec::new();
    let mut progress = Progress {
        total_bytes: inputs.iter().map(Input::size).sum(),
        ..Progress::default()
    };
    for input in inputs {
        let name = input.name();
        let mut fault = |cause: String| {
            let name = name.clone();
            faults.push(Fault { name, cause });
        };
        let mut source = match input.open() {
            Ok(source) => source,
            Err(error) => {
                fault(source::cause(&error));
                continue;
            }
        };
        let before_bytes = progress.read_bytes;
        let mut lines = Lines::default();
        tally.begin(&name, 0);
        loop {
            let turn = lines.turn(&mut source.reader, &mut |line| tally.line(line));
            progress.read_bytes = before_bytes + source.read_bytes.load(Ordering::Relaxed);
            progress.lines_len = tally.lines_len();
            watch(&progress);
            match turn {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    fault(source::cause(&error));
                    break;
                }
            }
        }
        if lines.has_unended() {
            tally.cut_off();
        }
    }
    (tally, faults)
}
