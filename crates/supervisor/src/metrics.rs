//! What is measured, as text for scrapers: the counters of all processes that there ever were, and how they are now.

use super::control::status::{AddressStatus, CertificateStatus, State};
use telemetry::counters::{EventLoopFigures, Exposition, MetricKind, MetricWriter, StatsSnapshot};

/// What the supervisor knows of the server, beside what is counted.
#[derive(Default)]
pub(super) struct ServerFacts {
    pub(super) version: String,
    pub(super) python: Option<String>,
    pub(super) started_unix_s: u64,
    /// Number of the newest configuration.
    pub(super) generation: u64,
    pub(super) processes: Vec<ProcessLine>,
    pub(super) crashes: u64,
    pub(super) recycled: u64,
    pub(super) addresses: Vec<AddressStatus>,
    pub(super) certificates: Vec<CertificateStatus>,
}

/// A process that serves, or its empty place.
pub(super) struct ProcessLine {
    pub(super) slot: usize,
    pub(super) generation: u64,
    pub(super) state: State,
    pub(super) resident_bytes: Option<u64>,
}

/// All metrics.
pub(super) fn text(facts: &ServerFacts, counted: &StatsSnapshot, form: Exposition) -> String {
    let mut writer = MetricWriter::new(form);
    counted.expose(&mut writer);
    expose_processes(facts, &mut writer);
    expose_addresses(facts, &mut writer);
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
    text(&ServerFacts::default(), &counted, Exposition::OpenMetrics)
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
        writer.sample(&[("state", &state.to_string())], count.count());
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
        "milepost_memory_resident_bytes",
        MetricKind::Gauge,
        "Resident memory of each serving process",
    );
    for process in &facts.processes {
        if let Some(bytes) = process.resident_bytes {
            let slot = process.slot.to_string();
            let generation = process.generation.to_string();
            writer.sample(&[("slot", &slot), ("generation", &generation)], bytes);
        }
    }
    writer.family(
        "milepost_start_time_seconds",
        MetricKind::Gauge,
        "Start of the server, in seconds since 1970",
    );
    writer.sample(&[], facts.started_unix_s);
    writer.family("milepost_build", MetricKind::Info, "Versions");
    let python = facts.python.as_deref().unwrap_or_default();
    writer.sample(&[("version", &facts.version), ("python", python)], 1);
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
        "End of a certificate, in seconds since 1970",
    );
    for certificate in &facts.certificates {
        let names = certificate.names.join(",");
        writer.sample(&[("names", &names)], certificate.ends_unix_s);
    }
}
