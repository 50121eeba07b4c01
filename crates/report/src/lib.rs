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
mod compared;
mod event_loops;
mod filter;
mod follow;
mod groups;
mod held;
mod lines;
mod piped;
mod recorded;
mod show;
mod slowest;
mod source;
mod spread;
mod tally;
mod timeline;
mod upstreams;
mod verdict;
mod waiting;

pub use at_queue::{AtQueue, Count};
pub use event_loops::{EventLoops, LoopPage, OpenKind, OpenPath};
pub use filter::{Filter, When, duration, statuses};
pub use follow::Follow;
pub use groups::{By, GROUPS_LEN_MAX};
pub use recorded::{CUT_OFF, Handling, Passed, lines, path};
pub use show::{
    compared_json, compared_page, compared_table, interval_line, json, live, page, table,
};
pub use slowest::Slow;
pub use source::Input;
pub use spread::Spread;
pub use tally::{Group, Grouped, KeepTimeline, Misread, PHASES, Plan, Tally};
pub use upstreams::UpstreamServer;
pub use waiting::{Holder, Missing, Request, RouteWaiting, WAIT_MIN, Wait, WaitRunner, Waiting};

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use lines::{Lines, Piece};

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
        // The bytes of an input begin at 0 each time; progress is of all of them.
        let before_bytes = progress.read_bytes;
        tally.begin(&input.name(), 0);
        if let Input::Held(history) = input {
            tally.hold(history.span());
            held::lines(history, &mut |line| {
                tally.count_line(line);
                true
            });
            continue;
        }
        let passed = pass(input, &mut |read_bytes, piece| {
            match piece {
                Some(piece) => tally.line(piece),
                None => {
                    progress.read_bytes = before_bytes + read_bytes;
                    progress.lines_len = tally.lines_len();
                    watch(&progress);
                }
            }
            ControlFlow::Continue(())
        });
        match passed {
            Ok(true) => tally.cut_off(),
            Ok(false) => {}
            Err(fault) => faults.push(fault),
        }
    }
    (tally, faults)
}

/// Gives all lines of an input to `take`, with the bytes read of it until then; `None` after each block of them. Ends
/// when `take` breaks off behind a block. Tells whether the last line has no end.
fn pass(
    input: &Input,
    take: &mut dyn FnMut(u64, Option<Piece<'_>>) -> ControlFlow<()>,
) -> Result<bool, Fault> {
    let fault = |error: std::io::Error| Fault {
        name: input.name(),
        cause: source::cause(&error),
    };
    let mut source = input.open().map_err(fault)?;
    let mut lines = Lines::default();
    loop {
        let read_bytes = source.read_bytes.load(Ordering::Relaxed);
        let turn = lines.turn(&mut source.reader, &mut |piece| {
            // Within a block nothing can be broken off: the lines of the block are in memory, and are few.
            let _ = take(read_bytes, Some(piece));
        });
        let block_bytes = turn.map_err(fault)?;
        let flow = take(source.read_bytes.load(Ordering::Relaxed), None);
        match (block_bytes, flow) {
            (0, _) => return Ok(lines.has_unended()),
            (_, ControlFlow::Break(())) => return Ok(false),
            (_, ControlFlow::Continue(())) => {}
        }
    }
}
