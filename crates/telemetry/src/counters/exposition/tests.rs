//! What scrapers read.

use std::collections::HashSet;

use super::*;
use crate::counters::{
    KnownMethod, PoolSnapshot, RequestLabels, RouteCounters, RouteDurations, RouteStats,
    StatsSnapshot, StatsSum,
};
use crate::{Ending, Spans};

fn counted() -> StatsSnapshot {
    let (stats, durations) = (RouteStats::default(), Box::<RouteDurations>::default());
    let route = RouteCounters {
        stats: &stats,
        durations: &durations,
    };
    for ms in [3, 40, 40_000] {
        let spans = Spans {
            run: Nanos::from_ms(ms),
            total: Nanos::from_ms(ms),
            ..Spans::default()
        };
        let labels = RequestLabels {
            method: KnownMethod::Get,
            is_https: true,
            status: 200,
        };
        route.record(&spans, labels, Ending::Complete, 100);
    }
    let mut sum = StatsSum::new();
    sum.add_route(0, "a\"b\\\n", route);
    let mut snapshot = StatsSnapshot {
        pools: vec![PoolSnapshot::default()],
        ..sum.finish()
    };
    snapshot.pools[0].name = "default".to_owned();
    snapshot.pools[0].figures.shed = 7;
    snapshot.pools[0].figures.gil_share_permille_more = 251;
    snapshot
}

/// The trace of a request that took 40 s, and so is above all bounds, and of one that took 40 ms.
fn traced() -> StatsSnapshot {
    let (stats, durations) = (RouteStats::default(), Box::<RouteDurations>::default());
    let route = RouteCounters {
        stats: &stats,
        durations: &durations,
    };
    for (ms, span) in [(3, 0), (40, 7), (40_000, 8)] {
        let spans = Spans {
            total: Nanos::from_ms(ms),
            ..Spans::default()
        };
        let labels = RequestLabels {
            method: KnownMethod::Get,
            is_https: false,
            status: 200,
        };
        route.record(&spans, labels, Ending::Complete, 100);
        if span > 0 {
            let sampler = crate::Sampler::new(1.0, true);
            let trace = crate::TraceContext::new(None, || [1, 0xab], span, &sampler);
            let exemplar = Exemplar::new(&trace, spans.total, 1_700_000_000_005);
            route.record_exemplar(labels, exemplar);
        }
    }
    let mut sum = StatsSum::new();
    sum.add_route(0, "app", route);
    // Of another process, which has ended: the newer ones are kept, and those that are read back.
    let json = serde_json::to_value(sum.finish()).unwrap();
    let mut sum = StatsSum::new();
    sum.add(&serde_json::from_value(json).unwrap());
    sum.finish()
}

#[test]
fn traces_stand_at_their_buckets_in_openmetrics_alone() {
    let text = |form| {
        let mut writer = MetricWriter::new(form);
        traced().expose(&mut writer);
        String::from_utf8(writer.finish()).unwrap()
    };
    let open = text(Exposition::OpenMetrics);
    let with: Vec<_> = open
        .lines()
        .filter_map(|line| line.split_once(" # {"))
        .collect();
    let (trace, at) = (
        "trace_id=\"000000000000000100000000000000ab\"",
        "1700000000.005",
    );
    let exemplar =
        |span: u64, value: &str| format!("{trace},span_id=\"{span:016x}\"}} {value} {at}");
    let found: Vec<_> = with
        .iter()
        .map(|(bucket, exemplar)| (bucket.split("le=").nth(1).unwrap(), (*exemplar).to_owned()))
        .collect();
    let expect = [
        ("\"0.05\"} 2", exemplar(7, "0.04")),
        ("\"+Inf\"} 3", exemplar(8, "40")),
    ];
    assert_eq!(found, expect);
    assert!(!text(Exposition::Prometheus).contains("trace_id"));
}

fn text(form: Exposition) -> String {
    let mut writer = MetricWriter::new(form);
    counted().expose(&mut writer);
    String::from_utf8(writer.finish()).unwrap()
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|one| one == line), "{line}\n{text}");
}

#[test]
fn durations_are_in_buckets_of_opentelemetry() {
    let text = text(Exposition::OpenMetrics);
    let labels = concat!(
        r#"{http_route="a\"b\\\n",http_request_method="GET",url_scheme="https","#,
        r#"http_response_status_code="200""#
    );
    let bucket = |bound: &str, count: u64| {
        let name = "http_server_request_duration_seconds_bucket";
        has(&text, &format!("{name}{labels},le=\"{bound}\"}} {count}"));
    };
    bucket("0.005", 1);
    bucket("0.05", 2);
    bucket("10", 2);
    bucket("+Inf", 3);
    has(
        &text,
        &format!("http_server_request_duration_seconds_sum{labels}}} 40.043"),
    );
}

#[test]
fn refusals_and_shares_have_labels_and_units() {
    let text = text(Exposition::OpenMetrics);
    has(
        &text,
        "milepost_pool_requests_refused_total{pool=\"default\",reason=\"overload\"} 7",
    );
    has(&text, "milepost_pool_gil_wait_ratio{pool=\"default\"} 0.25");
    has(&text, "# UNIT milepost_pool_gil_wait_ratio ratio");
    has(&text, "# HELP milepost_pool_threads Threads");
}

#[test]
fn each_format_has_its_form() {
    let open = text(Exposition::OpenMetrics);
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    has(&open, "# TYPE milepost_connections_accepted counter");
    has(&open, "milepost_connections_accepted_total 0");
    let old = text(Exposition::Prometheus);
    assert!(!old.contains("# EOF") && !old.contains("# UNIT"), "{old}");
    has(&old, "# TYPE milepost_connections_accepted_total counter");
    has(&old, "milepost_connections_accepted_total 0");
}

/// What both formats demand: a family begins once, and all its samples follow at once.
#[test]
fn families_stand_together() {
    for form in [Exposition::OpenMetrics, Exposition::Prometheus] {
        let text = text(form);
        let mut begun = HashSet::new();
        let mut family = "";
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().unwrap();
                assert!(begun.insert(family), "{family} begins twice");
                continue;
            }
            let name = line
                .strip_prefix("# TYPE ")
                .or(line.strip_prefix("# UNIT "));
            let name = name.unwrap_or(line).split([' ', '{']).next().unwrap();
            let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
            let is_of_family = suffixes
                .iter()
                .any(|suffix| name == format!("{family}{suffix}"));
            assert!(is_of_family, "{line} stands in {family}");
        }
    }
}

#[test]
fn scrapers_get_what_they_accept() {
    let check = |accept: &str, form| assert_eq!(Exposition::accepted_by(accept), form, "{accept}");
    check(
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
        Exposition::OpenMetrics,
    );
    let protobuf = "application/vnd.google.protobuf";
    let ours = format!("{protobuf};proto=io.prometheus.client.MetricFamily;encoding=delimited");
    let text = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
    // As Prometheus asks once native histograms are on, and as it does where text is to come first.
    check(
        &format!("{ours};q=0.6,{text},*/*;q=0.1"),
        Exposition::Protobuf,
    );
    check(
        &format!("{ours}, {text}").replace(';', "; "),
        Exposition::Protobuf,
    );
    check(&format!("{text},{ours};q=0.3"), Exposition::OpenMetrics);
    check(&format!("{ours};q=0"), Exposition::Prometheus);
    check(&format!("{ours};q=much"), Exposition::Prometheus);
    check(&ours.replace("delimited", "text"), Exposition::Prometheus);
    check(
        &ours.replace("MetricFamily", "Other"),
        Exposition::Prometheus,
    );
    check(protobuf, Exposition::Protobuf);
    check("*/*", Exposition::Prometheus);
    check("", Exposition::Prometheus);
}
