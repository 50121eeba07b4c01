//! How a server is, as people read it: facts, then a line for each process, driver and pool.
//!
//! Takes a status, gives text that fits into 80 columns as long as the names in it do.

use present::{Table, broken, thousands};
use supervisor::control::Status;
use supervisor::control::status::{
    AddressStatus, DriverStatus, HostStatus, LastFault, PoolStatus, ProcessStatus, RunningRequest,
    Totals,
};
use telemetry::counters::{EventLoopFigures, HandshakeTotals};

/// What a terminal has at least.
const WIDTH: usize = 80;
/// Names of facts, and the room around them.
const NAME_WIDTH: usize = 12;

/// Everything, for programs.
pub(super) fn json(status: &Status) -> String {
    let text = serde_json::to_string_pretty(status);
    text.expect("numbers, texts and lists of them can be written") + "\n"
}

/// The most important, for people.
pub(super) fn table(status: &Status) -> String {
    let tables = [
        automatic_certificates(status),
        generations(status),
        processes(&status.processes),
        drivers(&status.processes),
        pools(&status.processes),
        event_loops(&status.processes),
        running(&status.running),
    ];
    let tables = tables.into_iter().filter(|table| !table.is_empty());
    let tables = tables.map(|table| table.to_text());
    let parts: Vec<String> = [facts(status)].into_iter().chain(tables).collect();
    parts.join("\n")
}

fn facts(status: &Status) -> String {
    let doing = match status.doing.as_str() {
        "" => String::new(),
        doing => format!(", {doing}"),
    };
    let mut text = format!(
        "milepost {}, process {}, up {}{doing}\n",
        status.version,
        status.pid,
        age(status.uptime_s)
    );
    let mut fact = |name: &str, value: String| {
        // The name stands before the first line alone, as it does before the first of several addresses.
        for (index, line) in broken(&value, WIDTH - NAME_WIDTH).into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            let width = NAME_WIDTH - 4;
            text.push_str(&format!("  {name:<width$}  {line}\n"));
        }
    };
    for (name, value) in [
        ("python", &status.python),
        ("config", &status.config_file),
        ("control", &status.control),
    ] {
        if let Some(value) = value {
            fact(name, value.clone());
        }
    }
    for (index, address) in status.addresses.iter().enumerate() {
        fact(if index == 0 { "listens" } else { "" }, listens(address));
    }
    for (index, certificate) in status.certificates.iter().enumerate() {
        let name = if index == 0 { "tls" } else { "" };
        fact(name, certificate.to_string());
        // Of an automatic one, the line `no cert` says it.
        if let Some(fault) = certificate
            .last_fault
            .as_ref()
            .filter(|_| !certificate.is_automatic)
        {
            fact("", format!("fault: {fault}"));
        }
    }
    if !status.certificates.is_empty() {
        fact("", handshakes(&status.handshakes));
    }
    fact(
        "totals",
        totals(&status.totals, server_errors(&status.counters)),
    );
    if let Some(text) = host(&status.host) {
        fact("host", text);
    }
    if let Some(steering) = &status.steering {
        fact("steering", steering.clone());
    }
    for state in &status.automatic_certificates {
        if let Some(error) = &state.last_error {
            fact("no cert", format!("{}: {error}", state.name));
        }
    }
    if let Some(fault) = &status.last_fault {
        for (index, value) in last_fault(fault).into_iter().enumerate() {
            fact(if index == 0 { "fault" } else { "" }, value);
        }
    }
    text
}

fn listens(address: &AddressStatus) -> String {
    let sockets = plural(address.sockets as u64, "socket", "sockets");
    let backlog = thousands(address.backlog.into());
    let waiting = match address.accept_queue {
        Some(waiting) => format!(", {} waiting", thousands(waiting)),
        None => String::new(),
    };
    format!("{} ({sockets}, backlog {backlog}{waiting})", address.url)
}

/// Responses with 5xx, of all routes; `None`: the supervisor does not count them.
fn server_errors(counters: &serde_json::Value) -> Option<u64> {
    let routes = counters["routes"].as_array()?.iter();
    Some(routes.filter_map(|route| route["5xx"].as_u64()).sum())
}

fn totals(totals: &Totals, server_errors: Option<u64>) -> String {
    let mut parts = vec![
        plural(totals.received, "request", "requests"),
        plural(totals.accepted, "connection", "connections"),
        format!("{} refused or broken off", thousands(totals.errors)),
    ];
    parts.extend(server_errors.map(|len| format!("{} answered with 5xx", thousands(len))));
    // What should not be, and what most never have, is said when it is there.
    for (value, one, many) in [
        (totals.incomplete, "incomplete reply", "incomplete replies"),
        (totals.balanced_out, "balanced", "balanced"),
        (totals.stall_takeovers, "stall takeover", "stall takeovers"),
        (totals.crashes, "crash", "crashes"),
        (totals.recycled, "process recycled", "processes recycled"),
    ] {
        if value > 0 {
            parts.push(plural(value, one, many));
        }
    }
    parts.join(", ")
}

/// `1,234 full handshakes, 5,678 resumed, 3 failed, 0.21 ms of processor time each`
/// What of the machine and the control group may slow the server down; `None`: nothing does.
fn host(host: &HostStatus) -> Option<String> {
    /// A lower pressure is nothing.
    const PRESSURE_MIN: f64 = 1.0;
    let pressed = host.pressure.iter();
    let pressed = pressed.filter(|one| one.some_percent >= PRESSURE_MIN);
    let mut parts: Vec<String> = pressed
        .map(|one| format!("{} pressure {:.0} %", one.resource, one.some_percent))
        .collect();
    let throttled = host.throttling.as_ref().map_or(0, |one| one.throttled_us);
    if throttled > 0 {
        let secs = throttled as f64 / 1e6;
        parts.push(format!("throttled by its processor quota for {secs:.1} s"));
    }
    if let Some(memory) = &host.memory {
        let killed = memory.events.get("oom_kill").copied().unwrap_or(0);
        if killed > 0 {
            parts.push(format!(
                "{} killed for lack of memory",
                plural(killed, "process", "processes")
            ));
        }
        if let Some(max) = memory.bytes_max {
            parts.push(format!("memory {} of {}", size(memory.bytes), size(max)));
        }
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn handshakes(totals: &HandshakeTotals) -> String {
    let mut parts = vec![
        plural(totals.full, "full handshake", "full handshakes"),
        format!("{} resumed", thousands(totals.resumed)),
        format!("{} failed", thousands(totals.failed)),
    ];
    if totals.refused > 0 {
        parts.push(format!("{} refused", thousands(totals.refused)));
    }
    if totals.mean_cpu_seconds > 0.0 {
        let ms = totals.mean_cpu_seconds * 1_000.0;
        parts.push(format!("{ms:.2} ms of processor time each"));
    }
    parts.join(", ")
}

fn last_fault(fault: &LastFault) -> Vec<String> {
    let failure = &fault.failure;
    let when = format!("{} ({} ago)", failure.message, age(fault.age_s));
    let hint = failure.hint.as_ref().map(|hint| format!("hint: {hint}"));
    let detail = failure
        .detail
        .as_ref()
        .map(|_| "its traceback: `last_fault.detail` of `milepost status --json`".to_owned());
    [Some(when), hint, detail].into_iter().flatten().collect()
}

/// Widths at which names of the DNS and authorities are cut; `--json` has them whole.
const NAME_MAX: usize = 24;
const AUTHORITY_MAX: usize = 18;

/// Requests that run are shown that have run for longer, and at most so many.
const LONG_MS: u64 = 1_000;
const LONG_LEN_MAX: usize = 5;
/// Widths at which what is known of them is cut.
const REQUEST_MAX: usize = 26;
const POOL_MAX: usize = 8;
const ID_MAX: usize = 16;

/// Names and numbers are not cut.
const WHOLE: usize = usize::MAX;

fn generations(status: &Status) -> Table {
    let all = || status.generations.iter();
    let mut table = Table::default();
    table
        .text(
            "GENERATION",
            WHOLE,
            all().map(|one| one.generation.to_string()),
        )
        .text("STATE", WHOLE, all().map(|one| one.state.to_string()))
        .numbers("AGE", all().map(|one| age(one.age_s)))
        .numbers("PROCESSES", all().map(|one| one.processes.to_string()))
        .numbers("DRIVERS EACH", all().map(|one| one.drivers.to_string()));
    table
}

fn automatic_certificates(status: &Status) -> Table {
    let all = || status.automatic_certificates.iter();
    let left = |at: Option<u64>| at.map_or_else(none, |at| left(at, status.now_unix_s()));
    let mut table = Table::default();
    table
        .text("NAME", NAME_MAX, all().map(|one| one.name.clone()))
        .text(
            "FROM",
            AUTHORITY_MAX,
            all().map(|one| one.authority.clone()),
        )
        .numbers("VALID FOR", all().map(|one| left(one.not_after_unix_s)))
        .numbers("NEXT TRY IN", all().map(|one| left(one.next_try_unix_s)))
        .numbers("FAILURES", all().map(|one| count(one.failures.into())));
    table
}

/// From now to a moment; a moment that has passed is now.
fn left(at: u64, now: u64) -> String {
    age(at.saturating_sub(now))
}

fn processes(processes: &[ProcessStatus]) -> Table {
    let all = || processes.iter();
    let pid = |pid: Option<u32>| pid.map_or_else(none, |pid| pid.to_string());
    let memory = |bytes: Option<u64>| bytes.map_or_else(none, size);
    let mut table = Table::default();
    table
        .text("PROCESS", WHOLE, all().map(process_name))
        .text("STATE", WHOLE, all().map(|one| one.state.to_string()))
        .numbers("PID", all().map(|one| pid(one.pid)))
        .numbers("AGE", all().map(|one| age(one.age_s)))
        .numbers("REQUESTS", all().map(|one| count(one.requests)))
        .numbers("RESIDENT", all().map(|one| memory(one.resident_bytes)))
        .numbers("PSS", all().map(|one| memory(one.proportional_bytes)))
        .numbers("RESTARTS", all().map(|one| count(one.restarts)));
    table
}

fn drivers(processes: &[ProcessStatus]) -> Table {
    let all = || each(processes, |one| &one.drivers);
    let numbers = |of: fn(&DriverStatus) -> u64| all().map(move |(_, one)| count(of(one)));
    let mut table = Table::default();
    table
        .text(
            "DRIVER",
            WHOLE,
            all().map(|(name, one)| format!("{name}.{}", one.driver)),
        )
        .numbers("ACCEPTED", numbers(|one| one.accepted))
        .numbers("REQUESTS", numbers(|one| one.received))
        .numbers("OPEN", numbers(|one| one.open))
        .numbers("WAITING", all().map(|(_, one)| queue(one)))
        .numbers("BALANCED", numbers(|one| one.balanced_out))
        .numbers("STALLED", numbers(|one| one.stall_takeovers))
        .numbers("FAILED", numbers(|one| one.errors));
    table
}

fn pools(processes: &[ProcessStatus]) -> Table {
    let all = || each(processes, |one| &one.pools);
    let numbers = |of: fn(&PoolStatus) -> u64| all().map(move |(_, one)| count(of(one)));
    let mut table = Table::default();
    table
        .text(
            "POOL",
            WHOLE,
            all().map(|(name, one)| format!("{name}.{}", one.name)),
        )
        .numbers("THREADS", all().map(|(_, one)| threads(one)))
        .numbers("RUN", numbers(|one| one.running))
        .numbers("IDLE", numbers(|one| one.idle))
        .numbers("WAITING", numbers(|one| one.waiting))
        .text("STATE", WHOLE, all().map(|(_, one)| one.pressure.clone()))
        .numbers("DONE", numbers(|one| one.completed))
        .numbers("REFUSED", numbers(|one| one.refused + one.shed))
        .numbers("EXPIRED", numbers(|one| one.expired));
    table
}

fn event_loops(processes: &[ProcessStatus]) -> Table {
    let all = || {
        let event_loops = processes.iter();
        event_loops.filter_map(|one| Some((process_name(one), one.event_loop.as_ref()?)))
    };
    let mut table = Table::default();
    table
        .text("LOOP", WHOLE, all().map(|(name, _)| name))
        .numbers(
            "INSIDE",
            all().map(|(_, one)| of(one.inside, one.inside_max)),
        )
        .numbers("SOCKETS", all().map(|(_, one)| sockets(one)))
        .numbers("LAG", all().map(|(_, one)| milliseconds(one.lag_ns)))
        .numbers(
            "BUSY",
            all().map(|(_, one)| format!("{} %", one.busy_permille / 10)),
        )
        .numbers("SLOW", all().map(|(_, one)| count(one.slow_steps)))
        .numbers("HELD", all().map(|(_, one)| count(one.held_back)))
        .text(
            "ANYIO",
            WHOLE,
            all().map(|(_, one)| taken(one.anyio_running, one.anyio_max, one.anyio_waiting)),
        )
        .text(
            "EXECUTOR",
            WHOLE,
            all().map(|(_, one)| {
                taken(one.executor_threads, one.executor_max, one.executor_waiting)
            }),
        );
    table
}

/// The requests that have run for longest, if that is long.
fn running(requests: &[RunningRequest]) -> Table {
    let long = requests.iter().filter(|one| one.ran_ms > LONG_MS);
    let all = || long.clone().take(LONG_LEN_MAX);
    let mut table = Table::default();
    table
        .numbers("RUNS FOR", all().map(|one| age(one.ran_ms / 1_000)))
        .text(
            "REQUEST",
            REQUEST_MAX,
            all().map(|one| format!("{} {}", one.method, one.path)),
        )
        .text("POOL", POOL_MAX, all().map(|one| one.pool.clone()))
        .text("ID", ID_MAX, all().map(|one| one.id.clone()))
        .text("WORKER", WHOLE, all().map(worker));
    table
}

/// `4711.3`, as the log and applications call it; of a request at an upstream the process alone.
pub(crate) fn worker(request: &RunningRequest) -> String {
    match request.worker {
        Some(number) => format!("{}.{number}", request.pid),
        None => request.pid.to_string(),
    }
}

/// `31/10k`; `31` without a bound.
fn sockets(one: &EventLoopFigures) -> String {
    let open = count(one.websockets);
    match one.websockets_max {
        0 => open,
        max if max % 1000 == 0 => format!("{open}/{}k", thousands(max / 1000)),
        max => format!("{open}/{}", thousands(max)),
    }
}

/// `12/1,000`
fn of(count: u64, max: u64) -> String {
    format!("{}/{}", thousands(count), thousands(max))
}

/// `40/40 +17`, where 17 wait; of what is not used nothing.
fn taken(running: u64, max: u64, waiting: u64) -> String {
    match (max, waiting) {
        (0, _) => none(),
        (_, 0) => of(running, max),
        (_, waiting) => format!("{} +{}", of(running, max), thousands(waiting)),
    }
}

/// `0.3 ms`
fn milliseconds(ns: u64) -> String {
    format!(
        "{}.{} ms",
        thousands(ns / 1_000_000),
        ns % 1_000_000 / 100_000
    )
}

/// The parts of all processes, each with its process's name.
fn each<'s, T: 's>(
    processes: &'s [ProcessStatus],
    parts: fn(&ProcessStatus) -> &[T],
) -> impl Iterator<Item = (String, &'s T)> {
    processes.iter().flat_map(move |process| {
        let named = move |part| (process_name(process), part);
        parts(process).iter().map(named)
    })
}

/// `7.0`: generation and slot.
pub(crate) fn process_name(process: &ProcessStatus) -> String {
    format!("{}.{}", process.generation, process.slot)
}

/// `12/4096`: how many connections wait to be accepted, of how many that may.
fn queue(driver: &DriverStatus) -> String {
    match (driver.accept_queue, driver.accept_queue_max) {
        (Some(waiting), Some(max)) => format!("{waiting}/{max}"),
        (Some(waiting), None) => waiting.to_string(),
        (None, _) => none(),
    }
}

/// `2 of 1:8`: how many there are, and between which bounds; a size that is fixed and reached is one number.
fn threads(pool: &PoolStatus) -> String {
    let PoolStatus {
        threads,
        threads_min,
        threads_max,
        ..
    } = *pool;
    match threads_min == threads_max && threads == threads_max {
        true => threads.to_string(),
        false => format!("{threads} of {threads_min}:{threads_max}"),
    }
}

fn none() -> String {
    "-".to_owned()
}

fn plural(value: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        thousands(value),
        if value == 1 { one } else { many }
    )
}

/// In nine characters at most, for all that can be counted in a lifetime.
fn count(value: u64) -> String {
    const UNITS: [(u64, char); 4] = [
        (1_000_000_000_000_000, 'P'),
        (1_000_000_000_000, 'T'),
        (1_000_000_000, 'G'),
        (1_000_000, 'M'),
    ];
    let unit = UNITS.into_iter().find(|(unit, _)| value >= *unit);
    match unit.filter(|_| value >= 10_000_000) {
        // Cut, not rounded: a count that has not been reached is not shown.
        Some((unit, letter)) => format!(
            "{}.{:02} {letter}",
            value / unit,
            value % unit / (unit / 100)
        ),
        None => thousands(value),
    }
}

/// `84.1 MiB`
fn size(bytes: u64) -> String {
    let mut value = bytes as f64 / 1024.0;
    for unit in ["KiB", "MiB", "GiB"] {
        if value < 999.95 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// The two largest units.
pub(crate) fn age(secs: u64) -> String {
    let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{minutes}m {}s", secs % 60),
        3_600..86_400 => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests;
