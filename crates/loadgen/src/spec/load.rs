//! What makes requests leave, over which connections, and how long.
//!
//! Takes texts, gives [`Load`], [`Connections`] and [`Length`]; notes what does not go together.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use telemetry::Nanos;

use super::reader::SpecReader;
use super::values;
use crate::plan::{
    Arrival, Arrivals, Begin, Closing, Connections, Length, Load, Profile, Protocol,
};

/// Most requests of a run, and of a connection.
const REQUESTS_MAX: u64 = 1_000_000_000_000;

/// How long a run takes that nothing else ends.
const DURATION: Nanos = Nanos::from_secs(10);

/// Connections and how they are used.
pub(super) fn connections(reading: &mut SpecReader<'_>, sources: Vec<IpAddr>) -> Connections {
    // The machine bounds them further, by its ports and descriptors.
    let len = reading.count("connections", 1, 4_000_000);
    let protocol = protocol(reading);
    let in_flight = reading.count(
        match protocol {
            Protocol::Http1 | Protocol::WebSocket => "pipeline",
            Protocol::Http2 => "streams",
        },
        1,
        1_024,
    );
    let requests_each = reading.count("requests_per_connection", 1, REQUESTS_MAX);
    let timeout = reading.value("timeout", values::some_time);
    let known = [
        ("rst", Closing::Rst),
        ("fin", Closing::Fin),
        ("server", Closing::Server),
    ];
    let closing = reading.choice("close", &known);
    // A kept connection has no last request that could ask the server to end it.
    if closing == Some(Closing::Server) {
        reading.needs(
            &["close"],
            "requests_per_connection",
            "the server ends a connection after its last request: `--requests-per-connection 1`",
        );
    }
    Connections {
        protocol,
        len: len.unwrap_or(50) as usize,
        in_flight: in_flight.unwrap_or(1) as usize,
        requests_each: requests_each.and_then(NonZeroU64::new),
        closing: closing.unwrap_or(Closing::Fin),
        opened_per_s: reading.value("connect_rate", |text| {
            values::positive(text, values::RATE_MAX)
        }),
        sources,
        timeout: timeout.unwrap_or(Nanos::from_secs(30)),
    }
}

/// What is spoken, and what HTTP/2 does not have.
fn protocol(reading: &mut SpecReader<'_>) -> Protocol {
    let remedy = "each is a protocol of its own: keep one of them";
    reading.one_of(&["http2", "websocket"], remedy);
    if !reading.is_given("http2") {
        let remedy = "`--http2 --streams 32`; requests of HTTP/1.1 in flight are `--pipeline`";
        reading.needs(&["streams"], "http2", remedy);
        return match reading.is_given("websocket") {
            true => websocket(reading),
            false => Protocol::Http1,
        };
    }
    if reading.is_given("pipeline") {
        let hint = "`--streams` is the number of requests in flight on each connection";
        reading.fault("`--pipeline`: HTTP/2 does not pipeline requests", hint);
    }
    if reading.text("close") == Some("server") {
        let text =
            "`--close server`: a request of HTTP/2 cannot ask the server to end the connection";
        reading.fault(text, "`--close fin` or `--close rst`");
    }
    if reading.is_given("bad_clients") {
        let text = "`--bad-clients`: the misbehaving clients speak HTTP/1.1 only";
        let hint = "leave `--http2` out, or have a second `milepost bench` run them";
        reading.fault(text, hint);
    }
    Protocol::Http2
}

/// What WebSocket does not have.
fn websocket(reading: &mut SpecReader<'_>) -> Protocol {
    let messages = "the requests of `--websocket` are messages";
    for name in [
        "method",
        "requests_file",
        "replay",
        "expect_status",
        "bad_clients",
    ] {
        reading.one_of(&[name, "websocket"], messages);
    }
    if reading.text("close") == Some("server") {
        let text = "`--close server`: a message cannot ask the server to end the connection";
        reading.fault(text, "`--close fin` or `--close rst`");
    }
    Protocol::WebSocket
}

/// What makes a request leave. `recorded`: the arrivals of a recording.
pub(super) fn load(reading: &mut SpecReader<'_>, recorded: Option<Arc<[Arrival]>>) -> Load {
    let remedy = "requests leave by a clock, by a recording, or all at once: keep one of them";
    reading.one_of(&["rate", "replay", "burst"], remedy);
    let rate = reading.value("rate", |text| values::profile(text, values::RATE_MAX));
    let arrivals = arrivals(reading);
    match (rate, recorded) {
        (Some(rate), _) => Load::Open { arrivals, rate },
        (None, Some(arrivals)) => Load::Recorded { arrivals },
        (None, None) if reading.is_given("burst") => Load::Burst,
        (None, None) => Load::Closed,
    }
}

fn arrivals(reading: &mut SpecReader<'_>) -> Arrivals {
    reading.needs(
        &["arrivals"],
        "rate",
        "`--rate 2000` has requests leave by a clock",
    );
    let seed = reading.count("seed", 0, u64::MAX).unwrap_or(1);
    let poisson = Arrivals::Poisson { seed };
    let known = [("constant", Arrivals::Constant), ("poisson", poisson)];
    let arrivals = reading
        .choice("arrivals", &known)
        .unwrap_or(Arrivals::Constant);
    if reading.is_given("seed") && arrivals == Arrivals::Constant {
        let hint = "`--arrivals poisson` has gaps that come from a seed";
        reading.fault("`--seed`: constant arrivals have none", hint);
    }
    arrivals
}

/// When it begins to count, and when it ends.
pub(super) fn length(
    reading: &mut SpecReader<'_>,
    load: &Load,
    connections: &Connections,
) -> Length {
    let begin = begin(reading);
    let duration = reading.value("duration", values::some_time);
    let requests = reading.count("requests", 1, REQUESTS_MAX);
    if matches!(load, Load::Burst) && reading.is_given("requests") {
        let text = "`--requests`: a burst has as many as connections may have in flight";
        reading.fault(
            text,
            "more connections, or more requests in flight on each (`--pipeline`, `--streams`)",
        );
    }
    let length = Length {
        begin,
        duration,
        requests,
    };
    if reading.is_given("duration") || reading.is_given("requests") {
        return length;
    }
    let warm_up = match begin {
        Begin::After(span) => span,
        Begin::AtOnce | Begin::AllOpen => Nanos::ZERO,
    };
    let (duration, requests) = match load {
        Load::Open { rate, .. } => (Some(whole(reading, rate, warm_up)), None),
        Load::Closed => (Some(DURATION), None),
        Load::Recorded { arrivals } => {
            // By number and not by time: the last of them may be answered long after it was recorded.
            let counted = arrivals.iter().filter(|one| one.offset >= warm_up).count();
            if counted == 0 {
                let hint = "a shorter one, or none";
                reading.fault("`--warm-up`: the recording is over before", hint);
            }
            (None, Some(counted as u64))
        }
        Load::Burst => (None, Some((connections.len * connections.in_flight) as u64)),
    };
    Length {
        duration,
        requests,
        ..length
    }
}

/// How long a profile takes.
fn whole(reading: &mut SpecReader<'_>, profile: &Profile, warm_up: Nanos) -> Nanos {
    // All legs but what is warm-up; a number that never changes has no end of its own.
    let lasts = profile.lasts();
    if lasts == Nanos::ZERO {
        return DURATION;
    }
    if lasts <= warm_up {
        let hint = "a shorter one, or `--duration`";
        reading.fault("`--warm-up`: the last step is over before", hint);
    }
    Nanos(lasts.0.saturating_sub(warm_up.0))
}

fn begin(reading: &mut SpecReader<'_>) -> Begin {
    let warm_up = reading.value("warm_up", values::some_time);
    // `--warm-up` alone says when measuring begins, so that beside it `--begin` may only say the same.
    let after = Begin::After(warm_up.unwrap_or_default());
    let known = [
        ("now", Begin::AtOnce),
        ("warm-up", after),
        ("open", Begin::AllOpen),
    ];
    let begin = reading.choice("begin", &known);
    let is_after = begin.map(|begin| begin == after);
    match (is_after, reading.is_given("warm_up")) {
        (Some(true), false) => {
            let hint = "`--warm-up 2s`, for example";
            reading.fault("`--begin warm-up`: how long is not said", hint);
        }
        (Some(false), true) => {
            let begin = reading.text("begin").unwrap_or_default();
            let text = format!("`--begin {begin}` and `--warm-up`: exclude each other");
            reading.fault(text, "leave one of them out");
        }
        _ => {}
    }
    begin.unwrap_or_else(|| warm_up.map_or(Begin::AtOnce, Begin::After))
}
