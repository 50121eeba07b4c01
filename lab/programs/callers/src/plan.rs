//! What is asked of the callers, as words of the command line. Takes words, gives a plan or what is wrong
//! with them.

use std::time::Duration;

/// Everything that is asked for.
pub struct Plan {
    pub port: u16,
    pub path: String,
    pub lasts: Duration,
    /// Bytes of every right reply's body.
    pub body_bytes: usize,
    /// A reply that is later than this, counted from the connect or the request, is lost.
    pub patience: Duration,
    pub groups: [Group; 2],
}

/// Callers of one kind.
#[derive(Clone, Copy)]
pub struct Group {
    pub kind: Kind,
    pub clients: usize,
    /// Requests a second of all together, whether or not replies have come; 0: each asks when it may.
    pub rate: u32,
    /// Mean pause of a client after each reply, between nothing and twice as long.
    pub rest: Duration,
    /// Requests of one connection; 0: as many as the server takes.
    pub requests: u32,
}

/// How connections are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One request each, which says `Connection: close`.
    Short,
    /// Many requests.
    Keep,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Short => "short",
            Kind::Keep => "keep",
        }
    }
}

pub const USAGE: &str = "usage: callers PORT PATH SECONDS [short=CLIENTS] [keep=CLIENTS] [short-rate=N] \
[keep-rate=N] [rest=MS] [requests=N] [bytes=N] [patience=SECONDS]";

/// The plan.
///
/// # Errors
/// What is wrong with the words.
pub fn read(words: &[String]) -> Result<Plan, String> {
    let [port, path, seconds, options @ ..] = words else {
        return Err(USAGE.into());
    };
    let group = |kind| Group {
        kind,
        clients: 0,
        rate: 0,
        rest: Duration::ZERO,
        requests: 0,
    };
    let mut plan = Plan {
        port: number(port)?,
        path: path.clone(),
        lasts: Duration::from_secs(number(seconds)?),
        body_bytes: 1024,
        patience: Duration::from_secs(10),
        groups: [group(Kind::Short), group(Kind::Keep)],
    };
    for option in options {
        let (key, value) = option.split_once('=').ok_or(USAGE)?;
        set(&mut plan, key, value)?;
    }
    match plan.groups.iter().all(|group| group.clients == 0) {
        true => Err("there are no clients".into()),
        false => Ok(plan),
    }
}

fn set(plan: &mut Plan, key: &str, value: &str) -> Result<(), String> {
    let [short, keep] = &mut plan.groups;
    match key {
        "short" => short.clients = number(value)?,
        "keep" => keep.clients = number(value)?,
        "short-rate" => short.rate = number(value)?,
        "keep-rate" => keep.rate = number(value)?,
        "rest" => keep.rest = Duration::from_millis(number(value)?),
        "requests" => keep.requests = number(value)?,
        "bytes" => plan.body_bytes = number(value)?,
        "patience" => plan.patience = Duration::from_secs(number(value)?),
        _ => return Err(format!("`{key}` is unknown; {USAGE}")),
    }
    Ok(())
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is no such number"))
}
