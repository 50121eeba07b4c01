//! `--follow`: the view of logs that grow, once a second.
//!
//! On a terminal the screen is drawn anew; elsewhere a line a second is appended, or a JSON object. Ends by
//! SIGINT or SIGTERM, when its output is closed, or when all inputs were pipes and have ended.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use report::{Follow, Tally};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::flags::Options;
use super::{finish, say_fault};
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE};

/// Between two views.
const STEP: Duration = Duration::from_secs(1);
/// Between two looks at files that did not grow.
const REST: Duration = Duration::from_millis(100);

pub(super) fn run(options: &Options) -> i32 {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            Message::new("signals", error).say();
            return COULD_NOT;
        }
    }
    let mut follow = Follow::open(&options.inputs, &options.plan);
    let screen = Screen::of(options);
    let mut has_faults = false;
    let mut drawn = Instant::now();
    loop {
        let has_more = follow.turn(Instant::now());
        for fault in follow.take_faults() {
            has_faults = true;
            say_fault(&fault);
        }
        // Looked at before drawing: the last view contains everything that was read.
        let has_ended = follow.has_ended() || stop.load(Ordering::Relaxed);
        let since = drawn.elapsed();
        if since >= STEP || has_ended {
            let (total, interval) = follow.view();
            drawn = Instant::now();
            // Whoever read the output has gone: that is an end, not a fault.
            if screen.draw(total, interval.as_ref(), since).is_err() {
                return DONE;
            }
        }
        if has_ended {
            break;
        }
        // Only after a look that found nothing: a log that grows quickly is read without a pause.
        if !has_more {
            thread::sleep(REST);
        }
    }
    let code = match screen {
        Screen::Json => DONE,
        Screen::Terminal | Screen::Lines => finish(options, follow.view().0),
    };
    if has_faults { COULD_NOT } else { code }
}

#[derive(Clone, Copy)]
enum Screen {
    Terminal,
    Lines,
    Json,
}

impl Screen {
    fn of(options: &Options) -> Screen {
        match (options.is_json, io::stdout().is_terminal()) {
            (true, _) => Screen::Json,
            (false, true) => Screen::Terminal,
            (false, false) => Screen::Lines,
        }
    }

    fn draw(self, total: &Tally, interval: Option<&Tally>, since: Duration) -> io::Result<()> {
        let secs = since.as_secs_f64();
        match self {
            Screen::Terminal => {
                let interval = interval.map(|interval| (interval, secs));
                message::try_data(&fitted(&report::live(total, interval)))
            }
            Screen::Lines => match interval {
                Some(interval) => {
                    let now_ns = SystemTime::now()
                        .duration_since(UNIX_EPOCH)
                        .map_or(0, |span| span.as_nanos() as u64);
                    message::try_data(&report::interval_line(interval, secs, now_ns))
                }
                None => Ok(()),
            },
            Screen::Json => interval.map_or(Ok(()), |interval| {
                message::try_data(&report::json(interval))
            }),
        }
    }
}

/// What the terminal has room for, drawn over what was there: nothing flickers, and nothing scrolls.
fn fitted(text: &str) -> String {
    let (rows, columns) = match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 1 && size.ws_col > 1 => (size.ws_row, size.ws_col),
        _ => (24, 80),
    };
    let mut out = String::from("\x1b[H");
    // One row less than there are: a line's end in the last one would scroll the terminal.
    for line in text.lines().take(usize::from(rows) - 1) {
        out.extend(line.chars().take(usize::from(columns)));
        out.push_str("\x1b[K\r\n");
    }
    out.push_str("\x1b[J");
    out
}
