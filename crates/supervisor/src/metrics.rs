//! What is measured, as text for scrapers: the counters of all processes that there ever were, and how they are now.

use std::collections::BTreeMap;

use super::control::status::{AddressStatus, CertificateStatus, HostStatus, State};
use super::host_counters;
use config::typed::Config;
use serde::{Deserialize, Serialize};
use telemetry::counters::{
    EventLoopFigures, Exposition, MetricKind, MetricWriter, StatsSnapshot, StatsSum,
};

/// What the supervisor knows of the server, beside what is counted.
#[derive(Default)]
pub(super) struct ServerFacts {
    pub(super) version: String,
    pub(super) python: Option<String>,
    pub(super) started_unix_s: u64,
    /// Number of the newest configuration.
    pub(super) generation: u64,
    /// What autoscalers get to know.
    pub(super) utilization: f64,
    pub(super) processes: Vec<ProcessLine>,
    pub(super) crashes: u64,
    pub(super) recycled: u64,
    pub(super) admin_dropped: u64,
    pub(super) addresses: Vec<AddressStatus>,
    pub(super) certificates: Vec<CertificateStatus>,
    pub(super) host: HostStatus,
}

/// Routes that have a label of their own: each is in many series, of which a scraper keeps all that it has ever seen.
const LABELS_LEN_MAX: usize = 64;

/// The routes that have a label of their own. A route that has one keeps it, so that a counter never falls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RouteLabels {
    names: Vec<String>,
    /// Number of the newest configuration whose routes are known.
    generation: u64,
}

impl RouteLabels {
    /// Gives the routes of a configuration their labels, the first ones first, as far as there are any left.
    pub(super) fn know(&mut self, generation: u64, config: &Config) {
        if generation <= self.generation {
            return;
        }
        self.generation = generation;
        for name in config.route_names() {
            if self.names.len() >= LABELS_LEN_MAX {
                return;
            }
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }

    /// The sum of nothing, in which these routes have a place each.
    pub(super) fn sum(&self) -> StatsSum {
        StatsSum::of_routes(self.names.iter().map(String::as_str))
    }
}

/// A process that serves, or its empty place.
pub(super) struct ProcessLine {
    pub(super) slot: usize,
    pub(super) generation: u64,
    pub(super) state: State,
    pub(super) resident_bytes: Option<u64>,
}

/// All metrics.
pub(super) fn text(facts: &ServerFacts, counted: &StatsSnapshot, form: Exposition) -> Vec<u8> {
    // A driver that wakes on this processor does not wait for the whole of a scrape.
    let mut writer = MetricWriter::new(form).pausing(std::thread::yield_now);
    counted.expose(&mut writer);
    expose_processes(facts, &mut writer);
    expose_addresses(facts, &mut writer);
    host_counters::expose(&facts.host, &mut writer);
    writer.finish()
}

/// All families of metrics that there are, as of a server that has nothing to count.
pub fn families() -> String {
    let counted = StatsSnapshot {
        event_loop: EventLoopFigures {
            inside_max: 1,
            ..EventLoopFigures::default()
        },
        ..StatsSnapshot::default()
    };
    let text = text(&ServerFacts::default(), &counted, Exposition::OpenMetrics);
    String::from_utf8_lossy(&text).into_owned()
}

fn expose_processes(facts: &ServerFacts, writer: &mut MetricWriter) {
    writer.family(
        "milepost_processes",
        MetricKind::Gauge,
        "Serving processes by their state",
    );
    for state in [
        State::Starting,
        State::Ready,
        State::Draining,
        State::Stuck,
        State::Waiting,
    ] {
        let count = facts.processes.iter().filter(|one| one.state == state);
        writer.sample(&[("state", &state.to_string())], count.count() as u64);
    }
    writer.family(
        "milepost_process_restarts",
        MetricKind::Counter,
        "Processes that were replaced: they ended by themselves, or were recycled in good health",
    );
    writer.sample(&[("reason", "crash")], facts.crashes);
    writer.sample(&[("reason", "recycling")], facts.recycled);
    writer.family(
        "milepost_generation",
        MetricKind::Gauge,
        "Number of the newest configuration; each reload makes another one",
    );
    writer.sample(&[], facts.generation);
    writer.family(
        "milepost_utilization_ratio",
        MetricKind::Gauge,
        "Requests that would run at once if none waited, for each that can run at once, in the mean of 8 s; for autoscalers",
    );
    writer.sample(&[], facts.utilization);
    expose_memory(facts, writer);
    writer.family(
        "milepost_admin_clients_dropped",
        MetricKind::Counter,
        "Clients of admin_bind that were dropped because they took nothing of an answer for 10 seconds",
    );
    writer.sample(&[], facts.admin_dropped);
    writer.family(
        "milepost_start_time_seconds",
        MetricKind::Gauge,
        "Start of the server, in seconds since 1970",
    );
    writer.sample(&[], facts.started_unix_s);
    writer.family("milepost_build", MetricKind::Info, "Versions");
    let python = facts.python.as_deref().unwrap_or_default();
    writer.sample(&[("version", &facts.version), ("python", python)], 1_u64);
}

fn expose_memory(facts: &ServerFacts, writer: &mut MetricWriter) {
    writer.family(
        "milepost_memory_resident_bytes",
        MetricKind::Gauge,
        "Resident memory of the serving processes in each slot",
    );
    // A worn process and its successor have the same labels, of which OpenMetrics has one sample.
    let mut resident: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for process in &facts.processes {
        if let Some(bytes) = process.resident_bytes {
            let place = (process.slot, process.generation);
            *resident.entry(place).or_default() += bytes;
        }
    }
    for ((slot, generation), bytes) in resident {
        let (slot, generation) = (slot.to_string(), generation.to_string());
        writer.sample(&[("slot", &slot), ("generation", &generation)], bytes);
    }
}

fn expose_addresses(facts: &ServerFacts, writer: &mut MetricWriter) {
    writer.family(
        "milepost_accept_queue",
        MetricKind::Gauge,
        "Connections that wait to be accepted",
    );
    for address in &facts.addresses {
        if let Some(waiting) = address.accept_queue {
            writer.sample(&[("address", &address.url)], waiting);
        }
    }
    writer.family(
        "milepost_certificate_expiry_seconds",
        MetricKind::Gauge,
        "End of a certificate, in seconds since 1970; the earliest where several have the same names",
    );
    // A server with a key of each kind has two certificates with the same names.
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for certificate in &facts.certificates {
        let end = ends.entry(certificate.names.join(",")).or_insert(u64::MAX);
        *end = certificate.ends_unix_s.min(*end);
    }
    for (names, end) in ends {
        writer.sample(&[("names", &names)], end);
    }
}

#[cfg(test)]
mod tests {
    use config::typed::StaticMount;
    use ipc::stats::{Shape, Stats};
    use telemetry::counters::{KnownMethod, OTHER_ROUTES, RequestLabels};
    use telemetry::{Ending, Spans};

    use super::*;

    fn config(urls: impl IntoIterator<Item = String>) -> Config {
        let mounts = urls.into_iter().map(|url| StaticMount {
            url,
            dir: "files".into(),
            index: "index.html".to_owned(),
            fallback: None,
        });
        Config {
            statics: mounts.collect(),
            ..Config::default()
        }
    }

    /// The metrics of a server in whose only process each route has had one request, or every so many of them.
    fn scraped(config: &Config, labels: &RouteLabels, step: usize) -> (String, u64) {
        let shape = Shape::of(config);
        let stats = Stats::new(&shape).unwrap();
        for index in (0..shape.routes.len()).step_by(step) {
            let route = stats.route(u16::try_from(index).unwrap());
            let labels = RequestLabels {
                method: KnownMethod::Get,
                is_https: false,
                status: 200,
            };
            route.record(&Spans::default(), labels, Ending::Complete, 1);
        }
        let mut sum = labels.sum();
        stats.add_to(&mut sum);
        let counted = sum.finish();
        let text = text(&ServerFacts::default(), &counted, Exposition::OpenMetrics);
        (String::from_utf8(text).unwrap(), counted.exchanges())
    }

    fn requests(text: &str, route: &str) -> Option<u64> {
        let start = format!("milepost_requests_total{{route=\"{route}\",code=\"2xx\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.map(|count| count.parse().unwrap())
    }

    #[test]
    fn ten_thousand_routes_give_a_text_of_bounded_length() {
        let config = config((0..10_000).map(|number| format!("/route{number}")));
        let mut labels = RouteLabels::default();
        labels.know(1, &config);
        // Memory is taken by distributions that something was recorded in.
        let (text, exchanges) = scraped(&config, &labels, 40);
        // Four routes are there always.
        assert_eq!(exchanges, 251);
        assert_eq!(requests(&text, "/route0"), Some(0));
        assert_eq!(requests(&text, "/route1"), Some(0));
        assert_eq!(requests(&text, "/route36"), Some(1));
        assert_eq!(requests(&text, "/route59"), Some(0));
        assert_eq!(requests(&text, "/route60"), None);
        let others = 251 - 2;
        assert_eq!(requests(&text, OTHER_ROUTES), Some(others));
        assert!(text.len() < 1 << 20, "{} bytes", text.len());
    }

    #[test]
    fn no_two_samples_have_the_same_labels() {
        let process = |generation, bytes| ProcessLine {
            slot: 0,
            generation,
            state: State::Ready,
            resident_bytes: Some(bytes),
        };
        let certificate = |ends_unix_s| CertificateStatus {
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            ends_unix_s,
            ..CertificateStatus::default()
        };
        let facts = ServerFacts {
            processes: vec![process(1, 5), process(2, 10), process(2, 20)],
            certificates: vec![certificate(300), certificate(200)],
            ..ServerFacts::default()
        };
        let text = text(&facts, &StatsSnapshot::default(), Exposition::OpenMetrics);
        let text = String::from_utf8(text).unwrap();
        for expect in [
            "milepost_memory_resident_bytes{slot=\"0\",generation=\"1\"} 5",
            "milepost_memory_resident_bytes{slot=\"0\",generation=\"2\"} 30",
            "milepost_certificate_expiry_seconds{names=\"a.example,b.example\"} 200",
        ] {
            assert!(text.lines().any(|line| line == expect), "{expect}:\n{text}");
        }
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let labels: Vec<&str> = samples
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .collect();
        let different: std::collections::BTreeSet<&&str> = labels.iter().collect();
        assert_eq!(different.len(), labels.len());
    }

    #[test]
    fn a_route_keeps_its_label() {
        let urls = |numbers: std::ops::Range<usize>| numbers.map(|number| format!("/{number}"));
        let mut labels = RouteLabels::default();
        labels.know(1, &config(urls(0..50)));
        // A new configuration has others before them, of which only some get a label.
        let newer = config(urls(100..200).chain(urls(0..50)));
        labels.know(2, &newer);
        let (text, _) = scraped(&newer, &labels, 1);
        let has_label = |number: &usize| requests(&text, &format!("/{number}")).is_some();
        let with_label: Vec<usize> = (0..200).filter(has_label).collect();
        let expect: Vec<usize> = (0..50).chain(100..110).collect();
        assert_eq!(with_label, expect);
        // What is known already is not looked at again.
        labels.know(1, &config(urls(300..310)));
        assert_eq!(labels.names.len(), LABELS_LEN_MAX);
    }
}
