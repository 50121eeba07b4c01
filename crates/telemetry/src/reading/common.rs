//! The common log format, and what servers write behind it.
//!
//! ```text
//! PEER IDENT USER [TIME] "REQUEST" STATUS BYTES ["REFERER" "AGENT"] [rest]
//! rest: key=value ...                           ours
//!       [TOTAL] "START ACCEPT QUEUE FILTER RUN"   NaviServer
//!       anything                                 left alone: nginx's and httpd's own additions
//! ```
//! A number behind the agent is somebody's request time in a unit that nobody wrote down, so it counts
//! only in front of NaviServer's partial times.

use super::cursor::{number, quoted, request, seconds, status, until, word};
use super::date::DateReader;
use super::fields::put;
use super::{
    KnownLoop, KnownQueued, KnownSpans, KnownUpstream, KnownWebSocket, Line, LineForm, known,
};
use crate::{Field, Nanos};

pub(super) fn line<'a>(bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
    let (mut line, rest) = head(bytes, date)?;
    rest_of(&mut line, rest, date)?;
    Some(line)
}

/// The common log format; the rest begins with the space behind it.
#[inline]
pub(super) fn head<'a>(bytes: &'a [u8], date: &mut DateReader) -> Option<(Line<'a>, &'a [u8])> {
    let mut line = Line::default();
    // At the bracket: a user may have spaces, and no peer or user of ours has a bracket.
    let (head, rest) = until(b'[', bytes)?;
    let (moment, rest) = date.bracketed(rest)?;
    line.wall_ns = Some(moment.wall_ns);
    line.utc_offset_secs = moment.utc_offset_secs;
    who(&mut line, head)?;
    let (first_line, rest) = quoted(rest.strip_prefix(b" \"")?)?;
    [line.method, line.target, line.version, line.request_line] = request(first_line);
    let (code, rest) = word(b' ', rest.strip_prefix(b" ")?);
    line.status = status(code)?;
    // The space before the rest stays with it.
    let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    let (size, rest) = rest.split_at(end);
    line.body_bytes = match size {
        // httpd's %b for nothing.
        b"-" => Some(0),
        _ => Some(number(size)?),
    };
    Some((line, rest))
}

/// `PEER IDENT USER `, or with the virtual host before it.
#[inline]
fn who<'a>(line: &mut Line<'a>, head: &'a [u8]) -> Option<()> {
    let (peer, rest) = until(b' ', head.strip_suffix(b" ")?)?;
    let (ident, user) = until(b' ', rest)?;
    if let Some(user) = user.strip_prefix(b"- ")
        && is_host_with_port(peer)
    {
        line.host = peer;
        line.client = ident;
        line.user = known(user);
    } else {
        line.client = known(peer);
        line.user = known(user);
    }
    Some(())
}

/// How httpd's `vhost_combined` begins.
fn is_host_with_port(text: &[u8]) -> bool {
    // The last part of an IPv6 address may be a number too, so it counts only where there is one word too many.
    memchr::memrchr(b':', text).is_some_and(|at| number(&text[at + 1..]).is_some())
}

#[inline]
fn rest_of<'a>(line: &mut Line<'a>, mut rest: &'a [u8], date: &mut DateReader) -> Option<()> {
    // NaviServer without referer and agent has its times right here, in quotes as well: only five numbers are those.
    if let [b' ', b'"', more @ ..] = rest {
        let (referer, more) = quoted(more)?;
        if let [b' ', b'"', more @ ..] = more
            && partial(referer).is_none()
        {
            let (agent, more) = quoted(more)?;
            line.form = LineForm::Combined;
            line.referer = known(referer);
            line.user_agent = known(agent);
            rest = more;
        }
    }
    match rest {
        [] => Some(()),
        [b' ', b'a'..=b'z', ..] => pairs(line, rest, date),
        [b' ', b'"' | b'0'..=b'9' | b'-', ..] => {
            naviserver(line, rest);
            Some(())
        }
        _ => Some(()),
    }
}

/// ` key=value key="value"`: ours are taken, others are passed over.
#[inline]
fn pairs<'a>(line: &mut Line<'a>, mut rest: &'a [u8], date: &mut DateReader) -> Option<()> {
    let mut at = None;
    while let [b' ', more @ ..] = rest {
        let Some((key, more)) = key(more) else {
            break;
        };
        let value;
        if let [b'"', more @ ..] = more {
            (value, rest) = quoted(more)?;
        } else {
            let end = memchr::memchr(b' ', more).unwrap_or(more.len());
            (value, rest) = more.split_at(end);
        }
        if let Some(field) = Field::behind(key) {
            put(line, field, value, date)?;
        } else if key == b"at" {
            at = seconds(value);
        }
    }
    if line.spans.receive.is_some() && line.spans.total.is_some() {
        line.form = LineForm::Phases;
        // Written only where it is so.
        // A line of ours has the number of threads where it came to a queue, and the word only where it waited.
        let is_absent = line.queued.threads.is_some();
        let from_queue = &mut line.queued.from_queue;
        *from_queue = from_queue.or(is_absent.then_some(false));
        line.queued.leave_out_nothing();
        line.leave_out_strays();
        line.process = line.worker.map_or(b"", process_of);
        // The date of the line is this time without its fraction.
        line.wall_ns = match (line.wall_ns, at) {
            (Some(date_ns), Some(at)) if at.0 / SECOND_NS == date_ns / SECOND_NS => Some(at.0),
            (date_ns, _) => date_ns,
        };
        if line.end.is_empty() {
            line.end = b"complete";
        }
    } else {
        // Somebody else's words: what they say of times means nothing here.
        (line.spans, line.queued) = (KnownSpans::default(), KnownQueued::default());
        (line.event_loop, line.websocket) = (KnownLoop::default(), KnownWebSocket::default());
        line.upstream = KnownUpstream::default();
        line.worker = None;
    }
    Some(())
}

const SECOND_NS: u64 = 1_000_000_000;

/// The part of a worker's name that is its process.
fn process_of(worker: &[u8]) -> &[u8] {
    memchr::memrchr(b'.', worker).map_or(b"", |end| &worker[..end])
}

/// A word in small letters before `=`, and what follows.
#[inline]
fn key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // Keys are short: a loop beats a search that starts 16 bytes at a time.
    let end = text
        .iter()
        // No key of ours is longer, and a long word must not be searched to its end.
        .take(32)
        .position(|byte| !matches!(byte, b'a'..=b'z' | b'_'))?;
    match text[end..] {
        [b'=', ..] if end > 0 => Some((&text[..end], &text[end + 1..])),
        _ => None,
    }
}

/// ` [TOTAL] "START ACCEPT QUEUE FILTER RUN"`; leaves the line as it is when that is not what stands there.
fn naviserver(line: &mut Line<'_>, rest: &[u8]) -> Option<()> {
    let rest = &rest[1..];
    let (total, rest) = if rest.starts_with(b"\"") {
        (None, rest)
    } else {
        let (total, rest) = until(b' ', rest)?;
        (Some(signed_seconds(total)?), rest)
    };
    let (times, _) = quoted(rest.strip_prefix(b"\"")?)?;
    let [start, receive, queue, filter, run] = partial(times)?;
    line.form = LineForm::NaviServer;
    line.wall_ns = Some(start.0);
    line.spans = KnownSpans {
        receive: Some(receive),
        queue: Some(queue),
        // NaviServer's filters run in the thread of the request, so both are its run.
        run: Some(Nanos(filter.0.saturating_add(run.0))),
        total,
        ..KnownSpans::default()
    };
    line.complete_total();
    Some(())
}

/// Five times with a point each.
fn partial(text: &[u8]) -> Option<[Nanos; 5]> {
    if !matches!(text.first(), Some(b'0'..=b'9' | b'-')) {
        return None;
    }
    let mut times = [Nanos::ZERO; 5];
    let mut rest = text;
    for (index, time) in times.iter_mut().enumerate() {
        let (one, more) = if index == 4 {
            (rest, &b""[..])
        } else {
            until(b' ', rest)?
        };
        // With a point, because five whole numbers in quotes may be anything.
        memchr::memchr(b'.', one)?;
        *time = signed_seconds(one)?;
        rest = more;
    }
    Some(times)
}

/// NaviServer's clock can be set back in the middle of a request: less than nothing is nothing.
fn signed_seconds(text: &[u8]) -> Option<Nanos> {
    match text.strip_prefix(b"-") {
        Some(text) => seconds(text).map(|_| Nanos::ZERO),
        None => seconds(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_cases;

    fn read(text: &str) -> Option<Line<'_>> {
        line(text.as_bytes(), &mut DateReader::default())
    }

    const DATED: &str =
        r#"192.0.2.7 - bob [10/Oct/2000:13:55:36 +0000] "GET /x HTTP/1.1" 200 2326"#;

    /// Form and total of a line that goes on with what stands behind the `+`.
    fn said(behind: &str) -> String {
        let text = behind.replacen('+', DATED, 1);
        let line = read(&text).expect(&text);
        assert_eq!((line.client, line.user), (&b"192.0.2.7"[..], &b"bob"[..]));
        assert_eq!((line.method, line.target), (&b"GET"[..], &b"/x"[..]));
        assert_eq!((line.status, line.body_bytes), (Some(200), Some(2_326)));
        let total = line
            .spans
            .total
            .map_or("-".to_owned(), |total| total.0.to_string());
        format!("{:?} {total}", line.form)
    }

    #[test]
    fn tells_the_forms_apart() {
        let cases = r#"
+
    Common -
+ "http://a/" "agent"
    Combined -
+ "http://a/" "agent" receive=0.000001 total=0.000009
    Phases 9000
+ "http://a/" "agent" receive=0.1 total=0.2 later=x "and" more
    Phases 200000000
"#;
        check_cases(cases, said);
    }

    #[test]
    fn the_arrival_to_the_microsecond_is_the_date_made_finer() {
        let check = |more: &str, expect_ns: u64, process: &str| {
            let text = format!(r#"{DATED} "-" "-" receive=0.1 total=0.2{more}"#);
            let line = read(&text).expect(&text);
            assert_eq!(line.wall_ns, Some(expect_ns), "{text}");
            assert_eq!(line.process, process.as_bytes(), "{text}");
        };
        let date_ns = 971_186_136_000_000_000;
        check("", date_ns, "");
        check(" worker=- at=971186136.000123", date_ns + 123_000, "");
        check(
            " worker=4711.3 at=971186136.999999",
            date_ns + 999_999_000,
            "4711",
        );
        // Another program's word, or a moment that is not the line's.
        check(" at=home", date_ns, "");
        check(" at=971186137.000123", date_ns, "");
    }

    #[test]
    fn reads_partial_times_with_and_without_the_total() {
        // With and without the total, referer and agent; and one whose clock was set back.
        let cases = r#"
+ "" "agent" "971186136.000123 0.000110 0.000005 0.000001 0.245030"
    NaviServer 245146000
+ "" "agent" 0.245200 "971186136.000123 0.000110 0.000005 0.000001 0.245030"
    NaviServer 245200000
+ "" "agent" "971186136.000123 0.000110 0.000005 0.000001 0.245030" "X-Header" ""
    NaviServer 245146000
+ "971186136.000123 0.000110 0.000005 0.000001 0.245030"
    NaviServer 245146000
+ "971186136.000123 0.000110 0.000005 0.000001 0.245030" "X-Header"
    NaviServer 245146000
+ "" "agent" "1.0 -0.000001 0.5 0.0 -1.000000"
    NaviServer 500000000
"#;
        check_cases(cases, said);
        let times = r#" "" "agent" "971186136.000123 0.000110 0.000005 0.000001 0.245030""#;
        let text = format!("{DATED}{times}");
        let line = read(&text).unwrap();
        assert_eq!(line.wall_ns, Some(971_186_136_000_123_000));
        assert_eq!(line.spans.run, Some(Nanos(245_031_000)));
        assert_eq!(line.spans.send, None);
        assert_eq!(line.referer, b"");
    }

    #[test]
    fn does_not_guess_the_additions_of_others() {
        for behind in [
            " 0.123",
            " 4711",
            r#" "203.0.113.9""#,
            r#" "1.2.3.4, 5.6.7.8" rt=0.123 uct="0.001""#,
            r#" "1 2 3 4 5""#,
            " - 0.1 .",
        ] {
            let found = said(&format!(r#"+ "-" "agent"{behind}"#));
            assert_eq!(found, "Combined -", "{behind}");
        }
    }

    #[test]
    fn reads_what_others_write() {
        // httpd: nothing sent, quotes escaped by a backslash; the virtual host in front. NaviServer: thread name,
        // user with spaces, seconds as time, only the path. nginx: a request that was none, no status of HTTP.
        let cases = r#"
2001:db8::1 - - [10/Oct/2000:13:55:36 -0700] "GET /\"x\" HTTP/1.0" 304 - "-" "a \"quoted\" \\"
    2001:db8::1||/\"x\"|Some(304)
shop.example:443 192.0.2.7 - bob [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5
    192.0.2.7|bob|/|Some(200)
::1 -conn:main:0:1- "John Doe" [971186136] "/index.html" 200 5 "" ""
    ::1|"John Doe"|/index.html|Some(200)
192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01" 400 157 "-" "-"
    192.0.2.7|||Some(400)
- - - [10/Oct/2000:13:55:36 +0000] "-" - 0
    |||None
"#;
        check_cases(cases, |text| {
            let line = read(text).expect(text);
            let [peer, user, target] =
                [line.client, line.user, line.target].map(|part| String::from_utf8_lossy(part));
            format!("{peer}|{user}|{target}|{:?}", line.status)
        });
    }

    #[test]
    fn refuses_what_is_no_line() {
        for text in [
            "",
            "[",
            "hello world",
            "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000]",
            r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1""#,
            r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1 200 5"#,
            r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 20 5"#,
            r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 many"#,
            r#"192.0.2.7 - - [10/Foo/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 5"#,
            r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "agent"#,
            r#"192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 5 "-" "a" receive=0.1 total=x"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
