//! Which numbers were asked for, and what became of each: one file for each stream, one line
//! `NUMBER ENDED MICROSECONDS` for each of its requests, where ENDED is `replied`, `cut` or `spoiled`
//! and the time is that of its end by the wall clock, since 1970. Must not look at any socket.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A whole 200 with the body that was to be.
    Replied,
    /// No whole 200 came: the request may have been served or not.
    Cut,
    /// A whole 200 with bytes of something else.
    Spoiled,
}

/// The streams of one thread, the last one still under way.
pub(crate) struct Ledger {
    streams: Vec<Stream>,
}

struct Stream {
    number: u32,
    requests: Vec<(Ended, u64)>,
}

impl Ledger {
    /// Begins with this stream.
    pub(crate) fn new(stream: u32) -> Self {
        Self {
            streams: vec![Stream {
                number: stream,
                requests: Vec::new(),
            }],
        }
    }

    /// The id of the next request, `STREAM.NUMBER`.
    pub(crate) fn next(&mut self) -> String {
        let stream = self.last();
        format!("{}.{}", stream.number, stream.requests.len())
    }

    /// Notes that the next request has ended now.
    pub(crate) fn note(&mut self, ended: Ended) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        self.last().requests.push((ended, micros));
    }

    /// Goes on with another stream, whose number is greater by `step`.
    pub(crate) fn begin_stream(&mut self, step: u32) {
        let number = self.last().number + step;
        self.streams.push(Stream {
            number,
            requests: Vec::new(),
        });
    }

    /// Writes a file for each stream that has requests.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        for stream in &self.streams {
            if stream.requests.is_empty() {
                continue;
            }
            let mut text = String::with_capacity(stream.requests.len() * 32);
            for (number, (ended, micros)) in stream.requests.iter().enumerate() {
                let word = match ended {
                    Ended::Replied => "replied",
                    Ended::Cut => "cut",
                    Ended::Spoiled => "spoiled",
                };
                let _ = writeln!(text, "{number} {word} {micros}");
            }
            fs::write(folder.join(stream.number.to_string()), text)?;
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Stream {
        self.streams.last_mut().expect("there is always one")
    }
}
