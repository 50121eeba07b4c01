//! Requests as a log has recorded them: when each began, its method and its target.
//!
//! Takes an input of any form and packing, hands out one request after another in the order of the log.
//! For a load generator that replays them.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use telemetry::{Line, Pattern, Reader};

use crate::lines::{Lines, Piece};
use crate::source;
use crate::{Fault, Input};

/// One request of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded<'a> {
    /// When it began, nanoseconds since 1970 UTC. Ours and NaviServer's lines say that; those of others,
    /// when it was answered, and of them nothing better is known.
    pub began_unix_ns: u64,
    /// The method.
    pub method: Cow<'a, [u8]>,
    /// The target, without the log's escapes.
    pub target: Cow<'a, [u8]>,
}

/// What was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Lines.
    pub lines_len: u64,
    /// Lines that are no requests: not understood, without a time, or of a request that was none.
    pub others_len: u64,
    /// The number of the first of these, from 1.
    pub first_other: Option<u64>,
    /// The compressed data ends before its end.
    pub is_cut_off: bool,
}

/// Hands out the requests of a log until its end, or until `take` breaks off. `pattern` is tried before the
/// forms that can be told apart. A last line without an end is left out and counts as another one.
///
/// # Errors
/// The input cannot be read to its end; what came before was handed out.
pub fn requests(
    input: &Input,
    pattern: Option<Pattern>,
    take: &mut dyn FnMut(&Recorded<'_>) -> ControlFlow<()>,
) -> Result<Passed, Fault> {
    let passed = walk(input, pattern, &mut |line| {
        recorded(line).map(|request| take(&request))
    })?;
    match passed.is_cut_off {
        true => Err(fault(input, &ErrorKind::UnexpectedEof.into())),
        false => Ok(passed),
    }
}

/// Hands out the lines of a log until its end, or until `take` breaks off; where it gives `None`, the line
/// counts as another one. Compressed data that is cut off is a log that is still being written, and no fault here.
pub(crate) fn walk(
    input: &Input,
    pattern: Option<Pattern>,
    take: &mut dyn FnMut(&Line<'_>) -> Option<ControlFlow<()>>,
) -> Result<Passed, Fault> {
    let mut source = input.open().map_err(|error| fault(input, &error))?;
    let mut reader = Reader::new(pattern);
    let mut lines = Lines::default();
    let mut passed = Passed::default();
    let mut flow = ControlFlow::Continue(());
    loop {
        let turn = lines.turn(&mut source.reader, &mut |piece| {
            if flow.is_break() {
                return;
            }
            passed.lines_len += 1;
            let line = match piece {
                Piece::Line(bytes) => reader.line(bytes),
                Piece::TooLong => None,
            };
            match line.and_then(|line| take(&line)) {
                Some(next) => flow = next,
                None => passed.other(),
            }
        });
        match turn {
            Ok(0) => break,
            Ok(_) if flow.is_break() => return Ok(passed),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                passed.is_cut_off = true;
                break;
            }
            Err(error) => return Err(fault(input, &error)),
        }
    }
    if lines.has_unended() {
        passed.lines_len += 1;
        passed.other();
    }
    Ok(passed)
}

fn fault(input: &Input, error: &io::Error) -> Fault {
    Fault {
        name: input.name(),
        cause: source::cause(error),
    }
}

impl Passed {
    fn other(&mut self) {
        self.others_len += 1;
        self.first_other.get_or_insert(self.lines_len);
    }
}

fn recorded<'a>(line: &Line<'a>) -> Option<Recorded<'a>> {
    let is_known = !line.method.is_empty() && !line.target.is_empty();
    is_known.then_some(())?;
    Some(Recorded {
        began_unix_ns: line.wall_ns?,
        method: line.plain(line.method),
        target: line.plain(line.target),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const COMMON: &str = "127.0.0.1 - - [21/Nov/2026:12:00:01 +0000] \"GET /a?b HTTP/1.1\" 200 5\n";
    const COMBINED: &str =
        "127.0.0.1 - - [21/Nov/2026:13:00:02 +0100] \"HEAD /c HTTP/1.1\" 200 5 \"-\" \"x\"\n";
    const NONE: &str = "127.0.0.1 - - [21/Nov/2026:12:00:03 +0000] \"\\x16\\x03\" 400 5\n";
    /// 2026-11-21T12:00:00Z
    const NOON_S: u64 = 1_795_262_400;

    fn read(bytes: &[u8], most: usize) -> (Vec<(u64, String)>, Result<Passed, Fault>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, bytes).unwrap();
        let mut found = Vec::new();
        let passed = requests(&Input::File(path), None, &mut |one| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let name = format!("{} {}", text(&one.method), text(&one.target));
            found.push((one.began_unix_ns, name));
            match found.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        (found, passed)
    }

    fn at(second: u64, name: &str) -> (u64, String) {
        ((NOON_S + second) * 1_000_000_000, name.to_owned())
    }

    #[test]
    fn hands_out_requests_and_counts_the_rest() {
        let text = format!("{COMMON}nonsense\n{COMBINED}{NONE}{COMMON}cut off");
        let (found, passed) = read(text.as_bytes(), usize::MAX);
        assert_eq!(
            found,
            [at(1, "GET /a?b"), at(2, "HEAD /c"), at(1, "GET /a?b")]
        );
        let expect = Passed {
            lines_len: 6,
            others_len: 3,
            first_other: Some(2),
            is_cut_off: false,
        };
        assert_eq!(passed, Ok(expect));
    }

    #[test]
    fn reads_what_is_compressed_and_says_where_it_is_cut_off() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(COMMON.repeat(1_000).as_bytes()).unwrap();
        let whole = encoder.finish().unwrap();
        assert_eq!(read(&whole, usize::MAX).0.len(), 1_000);
        let fault = read(&whole[..whole.len() - 9], usize::MAX).1.unwrap_err();
        assert!(fault.cause.contains("cut off"), "{}", fault.cause);
    }

    #[test]
    fn breaks_off_when_it_is_told_to() {
        let (found, passed) = read(COMMON.repeat(10).as_bytes(), 3);
        assert_eq!((found.len(), passed.unwrap().lines_len), (3, 3));
    }

    #[test]
    fn takes_the_escapes_out_of_targets() {
        let text = COMMON.replace("/a?b", "/a\\x22");
        assert_eq!(read(text.as_bytes(), 1).0, [at(1, "GET /a\"")]);
    }
}
