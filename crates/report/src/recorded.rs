//! The lines of a log, one after another, for those who need each of them: a simulation, a load generator.
//!
//! Takes an input of any form and packing, hands out what its lines say in the order of the log, and what became of
//! a request for a pool of threads. Nothing is guessed here but which requests were refused, where a form has no place
//! for that.

use std::borrow::Cow;
use std::ops::ControlFlow;

use telemetry::{Line, LineForm, Nanos, Pattern, Reader};

use crate::lines::Piece;
use crate::{Fault, Input, held, pass};

/// What was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Lines.
    pub lines_len: u64,
    /// Lines that are no requests: not understood, or refused by the caller.
    pub others_len: u64,
    /// The number of the first of these, from 1.
    pub first_other: Option<u64>,
    /// The compressed data ends before its end.
    pub is_cut_off: bool,
}

/// What a cut-off log is, for messages.
pub const CUT_OFF: &str = "the compressed data is cut off; what came before it was read";

/// Hands out the lines of a log until its end, or until `take` breaks off; where it gives `None`, the line
/// counts as another one, and so does a last line without an end. `pattern` is tried before the forms that can be told
/// apart. Compressed data that is cut off is a log that is still being written, and no fault here.
///
/// # Errors
/// The input cannot be read to its end for another reason; what came before was handed out.
pub fn lines(
    input: &Input,
    pattern: Option<Pattern>,
    take: &mut dyn FnMut(&Line<'_>) -> Option<ControlFlow<()>>,
) -> Result<Passed, Fault> {
    let mut reader = Reader::new(pattern);
    let mut passed = Passed::default();
    let mut flow = ControlFlow::Continue(());
    if let Input::Held(history) = input {
        held::lines(history, &mut |line| {
            passed.lines_len += 1;
            match take(line) {
                Some(next) => next.is_continue(),
                None => {
                    passed.other();
                    true
                }
            }
        });
        return Ok(passed);
    }
    let result = pass(input, &mut |_, piece| {
        // A block of lines is on its way already when the caller breaks off.
        if let (Some(piece), ControlFlow::Continue(())) = (piece, flow) {
            passed.lines_len += 1;
            let line = match piece {
                Piece::Line(bytes) => reader.line(bytes),
                Piece::TooLong => None,
            };
            match line.and_then(|line| take(&line)) {
                Some(next) => flow = next,
                None => passed.other(),
            }
        }
        flow
    });
    match result {
        Ok(has_unended) => {
            passed.lines_len += u64::from(has_unended);
            if has_unended {
                passed.other();
            }
        }
        Err(fault) if fault.cause == CUT_OFF => passed.is_cut_off = true,
        Err(fault) => return Err(fault),
    }
    assert!(
        passed.others_len <= passed.lines_len,
        "a line is counted before it is judged"
    );
    Ok(passed)
}

impl Passed {
    fn other(&mut self) {
        self.others_len += 1;
        self.first_other.get_or_insert(self.lines_len);
    }
}

/// What became of a request, for a pool of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// A thread ran it, to its end or not.
    Ran,
    /// It wanted a thread and was refused.
    Refused,
    /// No thread had to do with it: it was answered, or cut, before.
    Elsewhere,
    /// The form does not say how long anything took.
    Untimed,
}

/// A 503 that ran so shortly was no application's.
const REFUSAL_RUN_MAX: Nanos = Nanos::from_ms(1);

impl Handling {
    /// Of the request of a line.
    pub fn of(line: &Line<'_>) -> Handling {
        let ran_shortly = || line.spans.run.is_some_and(|run| run < REFUSAL_RUN_MAX);
        // Ours name the pool of everything that went to one.
        let is_ours = matches!(
            line.form,
            LineForm::Phases | LineForm::Json | LineForm::History
        );
        match (line.end, line.status) {
            (b"refused", Some(503)) => Handling::Refused,
            (_, Some(503)) if line.form == LineForm::NaviServer && ran_shortly() => {
                Handling::Refused
            }
            (b"refused", _) => Handling::Elsewhere,
            _ if line.spans.run.is_none() => Handling::Untimed,
            _ if is_ours && line.pool.is_empty() => Handling::Elsewhere,
            _ => Handling::Ran,
        }
    }
}

/// The target of a line without query and escapes; empty when it has none.
pub fn path<'a>(line: &Line<'a>) -> Cow<'a, [u8]> {
    let target = line.plain(line.target);
    let Some(end) = memchr::memchr(b'?', &target) else {
        return target;
    };
    match target {
        Cow::Borrowed(target) => Cow::Borrowed(&target[..end]),
        Cow::Owned(mut target) => {
            target.truncate(end);
            Cow::Owned(target)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use telemetry::Template;

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
        let passed = lines(&Input::File(path), None, &mut |line| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let name = format!("{} {}", text(line.method), text(&line.plain(line.target)));
            (!line.method.is_empty()).then_some(())?;
            found.push((line.wall_ns?, name));
            Some(match found.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
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
        let passed = read(&whole[..whole.len() - 9], usize::MAX).1.unwrap();
        assert!(passed.is_cut_off && passed.lines_len > 0, "{passed:?}");
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

    const HEAD: &str =
        "192.0.2.7 - - [21/Nov/2026:12:00:01 +0000] \"GET /a/b?c=1 HTTP/1.1\" 200 5 \"-\" \"x\"";
    /// 2026-11-21T12:00:01Z
    const AT_NS: u64 = 1_795_262_401_000_000_000;

    /// Began, queue and run in microseconds, path, pool, handling.
    type ExpectedTiming = (u64, Option<u64>, Option<u64>, String, String, Handling);

    fn timings(text: &str, pattern: Option<Pattern>) -> (Vec<ExpectedTiming>, Passed) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        std::fs::write(&file, text).unwrap();
        let mut rows = Vec::new();
        let owned = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let us = |span: Option<Nanos>| span.map(|span| span.0 / 1_000);
        let passed = lines(&Input::File(file), pattern, &mut |line| {
            rows.push((
                line.wall_ns?,
                us(line.spans.queue),
                us(line.spans.run),
                owned(&path(line)),
                owned(line.pool),
                Handling::of(line),
            ));
            Some(ControlFlow::Continue(()))
        });
        (rows, passed.unwrap())
    }

    #[track_caller]
    fn check(
        rest: &str,
        began_ns: u64,
        times: (Option<u64>, Option<u64>),
        pool: &str,
        handling: Handling,
    ) {
        let (rows, _) = timings(&format!("{HEAD}{rest}\n"), None);
        let expect = (
            began_ns,
            times.0,
            times.1,
            "/a/b".to_owned(),
            pool.to_owned(),
            handling,
        );
        assert_eq!(rows, [expect], "{rest}");
    }

    #[test]
    fn gives_the_times_of_every_form_that_has_them() {
        check("", AT_NS, (None, None), "", Handling::Untimed);
        let ours = " receive=0.000069 queue=0.000034 run=0.004072 send=0.000044 total=0.004219 id=a route=app";
        let times = (Some(34), Some(4_072));
        check(
            &format!("{ours} pool=default"),
            AT_NS,
            times,
            "default",
            Handling::Ran,
        );
        check(ours, AT_NS, times, "", Handling::Elsewhere);
        check(
            " \"1795262401.482193 0.000069 0.000034 0.000001 0.004071\"",
            AT_NS + 482_193_000,
            times,
            "",
            Handling::Ran,
        );
    }

    #[test]
    fn tells_a_full_pool_from_a_bad_request() {
        let ours = " receive=0.000069 queue=0.000000 run=0.000000 send=0.000044 total=0.000113 id=a route=app";
        let text = format!(
            "{}{ours} pool=default end=refused cause=\"queue is full\"\n{HEAD}{ours} end=refused\n",
            HEAD.replace(" 200 ", " 503 ")
        );
        let handlings: Vec<Handling> = timings(&text, None)
            .0
            .into_iter()
            .map(|row| row.5)
            .collect();
        assert_eq!(handlings, [Handling::Refused, Handling::Elsewhere]);
    }

    #[test]
    fn takes_a_short_503_for_a_refusal_where_the_form_does_not_say() {
        let check = |status: &str, times: &str, expect| {
            let head = HEAD.replace(" 200 ", &format!(" {status} "));
            let (rows, _) = timings(&format!("{head} \"1795262401.482193 {times}\"\n"), None);
            assert_eq!(rows[0].5, expect, "{status} {times}");
        };
        check(
            "503",
            "0.000069 10.000089 0.000000 0.000124",
            Handling::Refused,
        );
        check("503", "0.000069 0.000089 0.000000 0.001000", Handling::Ran);
        check("200", "0.000069 0.000089 0.000000 0.000124", Handling::Ran);
    }

    #[test]
    fn reads_json_and_templates() {
        let json = "{\"time\":\"2026-11-21T12:00:01.000005+00:00\",\"target\":\"/q?x\",\"status\":200,\"pool\":\"p\",\"receive\":0.1,\"queue\":0.2,\"run\":0.3}\n";
        let template = Template::parse("{time_iso} {queue} {run}").unwrap();
        let text = format!("{json}2026-11-21T12:00:01+00:00 0.2 0.3\nnonsense\n");
        let (rows, passed) = timings(&text, Some(Pattern::of(&template).unwrap()));
        let times = (Some(200_000), Some(300_000));
        let row = |began, path: &str, pool: &str| {
            (
                began,
                times.0,
                times.1,
                path.to_owned(),
                pool.to_owned(),
                Handling::Ran,
            )
        };
        assert_eq!(rows, [row(AT_NS + 5_000, "/q", "p"), row(AT_NS, "", "")]);
        assert_eq!((passed.lines_len, passed.others_len), (3, 1));
    }
}
