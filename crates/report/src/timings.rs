//! Requests as a log has recorded them, with their times: what a simulation needs of each.
//!
//! Takes an input of any form and packing, hands out one request after another in the order of the log.
//! Whether a time is known is said request by request; nothing is guessed here but who was refused, where a
//! form has no place for it.

use std::borrow::Cow;
use std::ops::ControlFlow;

use telemetry::{KnownQueued, KnownSpans, Line, LineForm, Nanos, Pattern};

use crate::recorded::walk;
use crate::{Fault, Input, Passed};

/// One request of a log, and how long each phase took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timing<'a> {
    /// When it began, nanoseconds since 1970 UTC; to the second only in forms that write no more.
    pub began_unix_ns: u64,
    /// The phases, as far as the line says so, and in them how much of the run was processor time.
    pub spans: KnownSpans,
    /// What it found at its pool's queue, likewise.
    pub queued: KnownQueued,
    /// The target without query and escapes; empty when the line has none.
    pub path: Cow<'a, [u8]>,
    /// The route's name; empty when the form has none.
    pub route: &'a [u8],
    /// The client's address.
    pub peer: &'a [u8],
    /// The pool's name; empty when the form has none.
    pub pool: &'a [u8],
    /// The process; empty when the form has none.
    pub process: &'a [u8],
    /// What became of it.
    pub handling: Handling,
    /// Its phases are there by names that are not read any more.
    pub has_former_names: bool,
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

/// Hands out the requests of a log with their times until its end, or until `take` breaks off. `pattern` is
/// tried before the forms that can be told apart. What has no time of day counts as another line, and so does
/// a last line without an end. Of compressed data that is cut off, as it is while it is being written, what came
/// before is handed out, and `Passed` says so.
///
/// # Errors
/// The input cannot be read to its end for another reason; what came before was handed out.
pub fn timings(
    input: &Input,
    pattern: Option<Pattern>,
    take: &mut dyn FnMut(&Timing<'_>) -> ControlFlow<()>,
) -> Result<Passed, Fault> {
    walk(input, pattern, &mut |line| {
        timing(line).map(|timing| take(&timing))
    })
}

fn timing<'a>(line: &Line<'a>) -> Option<Timing<'a>> {
    Some(Timing {
        began_unix_ns: line.wall_ns?,
        spans: line.spans,
        queued: line.queued,
        path: path(line.plain(line.target)),
        route: line.route,
        peer: line.peer,
        pool: line.pool,
        process: line.process,
        handling: handling(line),
        has_former_names: line.has_former_names,
    })
}

fn path(target: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
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

/// A 503 that ran so shortly was no application's.
const REFUSAL_RUN_MAX: Nanos = Nanos::from_ms(1);

fn handling(line: &Line<'_>) -> Handling {
    let ran_shortly = || line.spans.run.is_some_and(|run| run < REFUSAL_RUN_MAX);
    // Ours name the pool of everything that went to one.
    let is_ours = matches!(line.form, LineForm::Phases | LineForm::Json);
    match (line.end, line.status) {
        (b"refused", Some(503)) => Handling::Refused,
        (_, Some(503)) if line.form == LineForm::NaviServer && ran_shortly() => Handling::Refused,
        (b"refused", _) => Handling::Elsewhere,
        _ if line.spans.run.is_none() => Handling::Untimed,
        _ if is_ours && line.pool.is_empty() => Handling::Elsewhere,
        _ => Handling::Ran,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use telemetry::Template;

    const HEAD: &str =
        "192.0.2.7 - - [21/Nov/2026:12:00:01 +0000] \"GET /a/b?c=1 HTTP/1.1\" 200 5 \"-\" \"x\"";
    /// 2026-11-21T12:00:01Z
    const AT_NS: u64 = 1_795_262_401_000_000_000;

    /// Began, queue and run in microseconds, path, pool, handling.
    type ExpectedTiming = (u64, Option<u64>, Option<u64>, String, String, Handling);

    fn read(text: &str, pattern: Option<Pattern>) -> (Vec<ExpectedTiming>, Passed) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        std::fs::write(&file, text).unwrap();
        let mut rows = Vec::new();
        let owned = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let us = |span: Option<Nanos>| span.map(|span| span.0 / 1_000);
        let passed = timings(&Input::File(file), pattern, &mut |one| {
            rows.push((
                one.began_unix_ns,
                us(one.spans.queue),
                us(one.spans.run),
                owned(&one.path),
                owned(one.pool),
                one.handling,
            ));
            ControlFlow::Continue(())
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
        let (rows, _) = read(&format!("{HEAD}{rest}\n"), None);
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
        let handlings: Vec<Handling> = read(&text, None).0.into_iter().map(|row| row.5).collect();
        assert_eq!(handlings, [Handling::Refused, Handling::Elsewhere]);
    }

    #[test]
    fn takes_a_short_503_for_a_refusal_where_the_form_does_not_say() {
        let check = |status: &str, times: &str, expect| {
            let head = HEAD.replace(" 200 ", &format!(" {status} "));
            let (rows, _) = read(&format!("{head} \"1795262401.482193 {times}\"\n"), None);
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
        let (rows, passed) = read(&text, Some(Pattern::of(&template).unwrap()));
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
