//! The requests that a running server holds, as the lines of a log that they would be.
//!
//! Takes a copy of the server's history, gives lines in the order of the requests' ends. In the place of a target a line
//! has the folded path, and in the place of an id nothing: these are not kept.

use telemetry::history::{HeldHistory, HeldRun, NamedRequest};
use telemetry::{Ending, KnownLoop, KnownQueued, KnownSpans, Line, LineForm, Nanos};

/// What a request is called whose path is not kept.
const OTHERS: &[u8] = b"(others)";

/// Hands out all lines until `take` says that it wants no more.
pub(crate) fn lines(held: &HeldHistory, take: &mut dyn FnMut(&Line<'_>) -> bool) {
    let zone = jiff::tz::TimeZone::system();
    let now = zone.to_offset(jiff::Timestamp::now());
    let (mut process, mut worker) = (String::new(), String::new());
    for named in held.requests() {
        process.clear();
        worker.clear();
        process.push_str(&named.process.to_string());
        if named.request.worker > 0 {
            worker = format!("{process}.{}", named.request.worker);
        }
        let mut line = line(&named, process.as_bytes(), worker.as_bytes());
        line.utc_offset_secs = now.seconds();
        if !take(&line) {
            return;
        }
    }
}

fn line<'a>(named: &NamedRequest<'a>, process: &'a [u8], worker: &'a [u8]) -> Line<'a> {
    let request = &named.request;
    let space = memchr::memchr(b' ', named.path);
    let (method, target) = match space {
        Some(at) => (&named.path[..at], &named.path[at + 1..]),
        None if named.path.is_empty() => (&b""[..], OTHERS),
        None => (named.path, &b""[..]),
    };
    let spans = [request.receive, request.queue, request.run, request.send];
    let total = spans
        .iter()
        .fold(0_u64, |sum, span| sum.saturating_add(span.0));
    let spans = KnownSpans {
        receive: Some(request.receive),
        queue: Some(request.queue),
        run: Some(request.run),
        send: Some(request.send),
        total: Some(Nanos(total)),
        ..KnownSpans::default()
    };
    let line = Line {
        form: LineForm::History,
        wall_ns: Some(named.wall_us.saturating_mul(1_000)),
        method,
        target,
        status: (request.status > 0).then_some(request.status),
        sent_bytes: Some(request.sent_bytes),
        spans,
        route: named.route.as_bytes(),
        pool: named.pool.as_bytes(),
        process,
        worker: Some(worker),
        end: match request.ending {
            Ending::Lost => b"",
            ending => ending.text().as_bytes(),
        },
        event_loop: KnownLoop {
            is_event_stream: request.is_long_lived,
            ..KnownLoop::default()
        },
        ..Line::default()
    };
    with_runner(line, named)
}

/// With what only a thread's run, or only an event loop's, has.
fn with_runner<'a>(line: Line<'a>, named: &NamedRequest<'_>) -> Line<'a> {
    let from_queue = Some(named.request.from_queue);
    match named.request.by {
        HeldRun::Thread { threads: 0, .. } => line,
        HeldRun::Thread {
            cpu,
            waiting,
            threads,
            idle,
        } => Line {
            spans: KnownSpans {
                cpu: (cpu.0 > 0).then_some(cpu),
                ..line.spans
            },
            queued: KnownQueued {
                before: None,
                waiting: Some(waiting),
                threads: Some(threads),
                idle: Some(idle),
                from_queue,
            },
            ..line
        },
        HeldRun::EventLoop {
            steps,
            busy,
            longest,
        } => Line {
            event_loop: KnownLoop {
                steps: Some(steps),
                busy: Some(busy),
                longest: Some(longest),
                ..line.event_loop
            },
            ..line
        },
    }
}
