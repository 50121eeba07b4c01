//! What measuring costs: nanoseconds for each step that an exchange pays for.
//!
//! `cargo run --release -p milepost-research --example telemetry`. Each figure is the best of nine
//! rounds, because on a shared machine everything else only adds.

use std::hint::black_box;

use telemetry::{
    Ending, Form, Histogram, LoopFacts, Names, Nanos, PhaseHistograms, Phases, Queued, Record,
    Stamp, StreamFacts, Style, Template, WebSocketFacts, Writer, now, timing,
};

const ROUNDS: u32 = 9;
const STEPS: u64 = 1_000_000;

fn main() {
    let record = ordinary();
    clocks();
    transport(&record);
    for (name, form) in [
        ("write common", Form::Common),
        ("write combined", Form::Combined),
        ("write combined+phases", Form::CombinedPhases),
        ("write json", Form::Json),
        ("write naviserver", Form::NaviServer),
        ("write template like combined+phases", template()),
    ] {
        text(name, form, Style::default(), &record);
    }
    let discreet = Style {
        prefix_v4: 24,
        prefix_v6: 48,
        query: false,
        ..Style::default()
    };
    text(
        "write combined+phases, masked",
        Form::CombinedPhases,
        discreet,
        &record,
    );
    let dirty = Record {
        target: b"/caf\xc3\xa9/\"quoted\"?q=1",
        ..record
    };
    text(
        "write combined+phases, dirty target",
        Form::CombinedPhases,
        Style::default(),
        &dirty,
    );
    distributions(&record.phases);
}

fn clocks() {
    report("clock now", |_| {
        black_box(now());
    });
    report("std Instant::now, to compare", |_| {
        black_box(std::time::Instant::now());
    });
}

fn transport(record: &Record<'_>) {
    let mut bytes = Vec::with_capacity(64 << 10);
    report("record encode", |_| {
        if bytes.len() > 60 << 10 {
            bytes.clear();
        }
        black_box(record).encode(&mut bytes);
    });
    bytes.clear();
    record.encode(&mut bytes);
    report("record decode", |_| {
        black_box(Record::decode(black_box(&bytes)));
    });
    println!("{:40} {:7} bytes", "record", bytes.len());
}

fn text(name: &str, form: Form, style: Style, record: &Record<'_>) {
    let mut writer = Writer::new(form, style, names());
    let mut out = Vec::with_capacity(64 << 10);
    let mut record = *record;
    report(name, |step| {
        if out.len() > 60 << 10 {
            out.clear();
        }
        // 50,000 lines a second.
        record.wall_arrived_ns = 1_760_000_000_000_000_000 + step * 20_000;
        writer.write(black_box(&record), &mut out);
    });
}

fn distributions(phases: &Phases) {
    let histogram = Histogram::new();
    report("histogram record, one value", |_| {
        histogram.record(black_box(Nanos(123_456)));
    });
    let values: Vec<u64> = (0..1_024u64)
        .map(|n| (n * 2_654_435_761) % 50_000_000)
        .collect();
    report("histogram record, spread values", |step| {
        histogram.record(Nanos(values[(step % 1_024) as usize]));
    });
    let all = PhaseHistograms::default();
    report("all phases: spans and six records", |_| {
        all.record(&black_box(phases).spans());
    });
    let mut out = Vec::with_capacity(128);
    report("server timing", |_| {
        out.clear();
        timing::server_timing(black_box(phases), &mut out);
    });
    report("snapshot and p99", |_| {
        black_box(histogram.snapshot().quantile(0.99));
    });
}

fn report(name: &str, mut step: impl FnMut(u64)) {
    let steps = if name.starts_with("snapshot") {
        STEPS / 100
    } else {
        STEPS
    };
    let mut best_ns = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = now();
        for number in 0..steps {
            step(number);
        }
        best_ns = best_ns.min(now().since(begun).0 as f64 / steps as f64);
    }
    println!("{name:40} {best_ns:7.1} ns");
}

fn names() -> Names {
    Names {
        routes: vec!["/".to_owned()],
        pools: vec!["default".to_owned()],
        upstreams: Vec::new(),
        process: 4711,
        id_seed: 0x1234_5678_9abc_def0,
    }
}

fn template() -> Form {
    let text = "{peer} - {user} {time} \"{request}\" {status} {bytes} \"{referer}\" \"{agent}\" \
                receive={receive} queue={queue} run={run} send={send} total={total} id={id} \
                route={route} pool={pool}";
    Form::Template(Template::parse(text).expect("all of these are fields"))
}

/// A page of a small shop, asked for by a browser.
fn ordinary() -> Record<'static> {
    Record {
        upstream: telemetry::UpstreamFacts::default(),
        auth: telemetry::AuthFacts::default(),
        client: b"192.0.2.7",
        id: 1_234_567,
        request_id: b"",
        trace: telemetry::TraceContext::default(),
        is_https: false,
        phases: Phases {
            arrived: Stamp(5_000_000_000),
            queued: Stamp(5_000_123_000),
            started: Stamp(5_000_133_500),
            replied: Stamp(5_004_133_900),
            sent: Stamp(5_004_154_000),
            gil: Nanos(12_000),
            cpu: Nanos(612_000),
            worker: std::num::NonZeroU32::new(3),
        },
        queued: Queued {
            threads: 8,
            idle: 7,
            ..Queued::default()
        },
        wall_arrived_ns: 0,
        peer: b"203.0.113.195",
        method: b"GET",
        target: b"/books/978-3-16-148410-0?page=2&sort=title",
        version: b"HTTP/1.1",
        request_line: b"",
        host: b"shop.example.org",
        referer: b"https://shop.example.org/books?page=1",
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        user: b"",
        tls: b"",
        websocket: WebSocketFacts::default(),
        event_loop: LoopFacts::default(),
        stream: StreamFacts::default(),
        status: 200,
        body_bytes: 10_326,
        sent_bytes: 10_611,
        request_bytes: 512,
        ending: Ending::Complete,
        route: 0,
        pool: 0,
        driver: 1,
        cause: b"",
    }
}
