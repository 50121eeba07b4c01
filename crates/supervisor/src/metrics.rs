//! What is measured, as text for scrapers: the counters of all processes that there ever were, and how they are now.

use super::control::status::{State, Status};
use telemetry::counters::{EventLoopFigures, Exposition, MetricKind, MetricWriter, StatsSnapshot};

/// All metrics.
pub(super) fn text(status: &Status, counted: &StatsSnapshot, form: Exposition) -> String {
    let mut writer = MetricWriter::new(form);
    counted.expose(&mut writer);
    expose_processes(status, &mut writer);
    expose_addresses(status, &mut writer);
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
    text(&Status::default(), &counted, Exposition::OpenMetrics)
}

fn expose_processes(status: &Status, writer: &mut MetricWriter) {
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
        let count = status.processes.iter().filter(|one| one.state == state);
        writer.sample(&[("state", &state.to_string())], count.count());
    }
    let totals = &status.totals;
    writer.family(
        "milepost_process_restarts",
        MetricKind::Counter,
        "Processes that were replaced: they ended by themselves, or were recycled in good health",
    );
    writer.sample(&[("reason", "crash")], totals.crashes);
    writer.sample(&[("reason", "recycling")], totals.recycled);
    writer.family(
        "milepost_generation",
        MetricKind::Gauge,
        "Number of the newest configuration; each reload makes another one",
    );
    let newest = status.generations.iter().map(|one| one.generation).max();
    writer.sample(&[], newest.unwrap_or(0));
    writer.family(
        "milepost_memory_resident_bytes",
        MetricKind::Gauge,
        "Resident memory of each serving process",
    );
    for process in &status.processes {
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
    writer.sample(&[], status.started_unix_s);
    writer.family("milepost_build", MetricKind::Info, "Versions");
    let python = status.python.as_deref().unwrap_or_default();
    writer.sample(&[("version", &status.version), ("python", python)], 1);
}

fn expose_addresses(status: &Status, writer: &mut MetricWriter) {
    writer.family(
        "milepost_accept_queue",
        MetricKind::Gauge,
        "Connections that wait to be accepted",
    );
    for address in &status.addresses {
        if let Some(waiting) = address.accept_queue {
            writer.sample(&[("address", &address.url)], waiting);
        }
    }
    writer.family(
        "milepost_certificate_expiry_seconds",
        MetricKind::Gauge,
        "End of a certificate, in seconds since 1970",
    );
    for certificate in &status.certificates {
        let names = certificate.names.join(",");
        writer.sample(&[("names", &names)], certificate.ends_unix_s);
    }
}
