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
use super::{KnownSpans, Line, LineForm, known};
use crate::Nanos;

pub(super) fn line<'a>(bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
    let mut line = Line::default();
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
    behind(&mut line, rest)?;
    Some(line)
}

/// `PEER IDENT USER `, or with the virtual host before it.
#[inline]
fn who<'a>(line: &mut Line<'a>, head: &'a [u8]) -> Option<()> {
    let (peer, rest) = until(b' ', head.strip_suffix(b" ")?)?;
    let (ident, user) = until(b' ', rest)?;
    // httpd's vhost_combined begins with `host:port`.
    if let Some((second, third)) = until(b' ', user)
        && !user.starts_with(b"\"")
        && memchr::memchr(b' ', third).is_none()
        && peer
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
            > 0
        && memchr::memchr(b':', peer).is_some()
        && second == b"-"
    {
        line.host = peer;
        line.peer = ident;
        line.user = known(third);
        return Some(());
    }
    line.peer = known(peer);
    line.user = known(user);
    Some(())
}

#[inline]
fn behind<'a>(line: &mut Line<'a>, mut rest: &'a [u8]) -> Option<()> {
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
        [b' ', b'a'..=b'z', ..] => pairs(line, rest),
        [b' ', b'"' | b'0'..=b'9' | b'-', ..] => {
            naviserver(line, rest);
            Some(())
        }
        _ => Some(()),
    }
}

/// ` key=value key="value"`: ours are taken, others are passed over.
#[inline]
fn pairs<'a>(line: &mut Line<'a>, mut rest: &'a [u8]) -> Option<()> {
    let mut spans = KnownSpans::default();
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
        match key {
            b"accept" => spans.accept = Some(seconds(value)?),
            b"queue" => spans.queue = Some(seconds(value)?),
            b"run" => spans.run = Some(seconds(value)?),
            b"deliver" => spans.deliver = Some(seconds(value)?),
            b"total" => spans.total = Some(seconds(value)?),
            b"gil" => spans.gil = Some(seconds(value)?),
            b"id" => line.id = known(value),
            b"route" => line.route = known(value),
            b"pool" => line.pool = known(value),
            b"end" => line.end = known(value),
            b"cause" => line.cause = value,
            _ => {}
        }
    }
    if spans.accept.is_some() && spans.total.is_some() {
        line.form = LineForm::Phases;
        line.spans = spans;
        if line.end.is_empty() {
            line.end = b"complete";
        }
    }
    Some(())
}

/// A word in small letters before `=`, and what follows.
#[inline]
fn key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // Keys are short: a loop beats a search that starts 16 bytes at a time.
    let end = text
        .iter()
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
    let [start, accept, queue, filter, run] = partial(times)?;
    line.form = LineForm::NaviServer;
    line.wall_ns = Some(start.0);
    line.spans = KnownSpans {
        accept: Some(accept),
        queue: Some(queue),
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
