//! How a server is, as people read it: facts, then a line for each process, driver and pool.
//!
//! Takes a status, gives text that fits into 80 columns as long as the names in it do.

mod columns;

use report::thousands;
use supervisor::control::Status;
use supervisor::control::status::{
    AddressStatus, DriverStatus, LastFault, PoolStatus, ProcessStatus, Totals,
};

use columns::{Column, columns};

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
        generations(status),
        processes(&status.processes),
        drivers(&status.processes),
        pools(&status.processes),
    ];
    let tables = tables.into_iter().filter(|table| !table.is_empty());
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
        for (index, line) in wrapped(&value).into_iter().enumerate() {
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
    fact("totals", totals(&status.totals));
    if let Some(steering) = &status.steering {
        fact("steering", steering.clone());
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

fn totals(totals: &Totals) -> String {
    let mut parts = vec![
        plural(totals.received, "request", "requests"),
        plural(totals.accepted, "connection", "connections"),
        plural(totals.errors, "error", "errors"),
    ];
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

fn generations(status: &Status) -> String {
    let rows = status.generations.iter().map(|one| {
        vec![
            one.generation.to_string(),
            one.state.name().to_owned(),
            age(one.age_s),
            one.processes.to_string(),
            one.drivers.to_string(),
        ]
    });
    let heads = [
        Column::Left("GENERATION"),
        Column::Left("STATE"),
        Column::Right("AGE"),
        Column::Right("PROCESSES"),
        Column::Right("DRIVERS EACH"),
    ];
    columns(&heads, rows.collect())
}

fn processes(processes: &[ProcessStatus]) -> String {
    let rows = processes.iter().map(|process| {
        vec![
            name(process),
            process.state.name().to_owned(),
            process.pid.map_or_else(none, |pid| pid.to_string()),
            age(process.age_s),
            count(process.requests),
            process.resident_bytes.map_or_else(none, size),
            process.proportional_bytes.map_or_else(none, size),
            count(process.restarts),
        ]
    });
    let heads = [
        Column::Left("PROCESS"),
        Column::Left("STATE"),
        Column::Right("PID"),
        Column::Right("AGE"),
        Column::Right("REQUESTS"),
        Column::Right("RESIDENT"),
        Column::Right("PSS"),
        Column::Right("RESTARTS"),
    ];
    columns(&heads, rows.collect())
}

fn drivers(processes: &[ProcessStatus]) -> String {
    let row = |process: &ProcessStatus, driver: &DriverStatus| {
        vec![
            format!("{}.{}", name(process), driver.driver),
            count(driver.accepted),
            count(driver.received),
            count(driver.open),
            queue(driver),
            count(driver.balanced_out),
            count(driver.stall_takeovers),
            count(driver.errors),
        ]
    };
    let rows = processes
        .iter()
        .flat_map(|process| process.drivers.iter().map(move |one| row(process, one)));
    let heads = [
        Column::Left("DRIVER"),
        Column::Right("ACCEPTED"),
        Column::Right("REQUESTS"),
        Column::Right("OPEN"),
        Column::Right("WAITING"),
        Column::Right("BALANCED"),
        Column::Right("STALLED"),
        Column::Right("ERRORS"),
    ];
    columns(&heads, rows.collect())
}

fn pools(processes: &[ProcessStatus]) -> String {
    let row = |process: &ProcessStatus, pool: &PoolStatus| {
        vec![
            format!("{}.{}", name(process), pool.name),
            threads(pool),
            count(pool.running),
            count(pool.idle),
            count(pool.waiting),
            pool.pressure.clone(),
            count(pool.completed),
            count(pool.refused + pool.shed),
            count(pool.expired),
        ]
    };
    let rows = processes
        .iter()
        .flat_map(|process| process.pools.iter().map(move |one| row(process, one)));
    let heads = [
        Column::Left("POOL"),
        Column::Right("THREADS"),
        Column::Right("RUN"),
        Column::Right("IDLE"),
        Column::Right("WAITING"),
        Column::Left("STATE"),
        Column::Right("DONE"),
        Column::Right("REFUSED"),
        Column::Right("EXPIRED"),
    ];
    columns(&heads, rows.collect())
}

/// `7.0`: generation and slot.
fn name(process: &ProcessStatus) -> String {
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
fn age(secs: u64) -> String {
    let (days, hours, minutes) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60);
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{minutes}m {}s", secs % 60),
        3_600..86_400 => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// Lines at most so wide that they fit behind a fact's name, as far as words let them.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("it begins with one line");
        let width = line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if width <= WIDTH - NAME_WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests;
