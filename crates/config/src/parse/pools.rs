//! Pools: their sizes and queues, the requests that each takes, where slow ones go.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use queueing::Class;
use serde::Deserialize;
use telemetry::Nanos;

use super::clients::client_network;
use super::files::is_glob;
use super::value::{self, Unit};
use super::{Hint, hinted, is_token, is_url_path, one_of, smaller_first, span_or_off};
use crate::options_table::{DAY, HOUR, MS, WAIT_LEAST};
use crate::tables::{Contradiction, Structure, keys};

keys! {
    name: one(pool_name) -> String, "a pool's name (as `reports`)";
    threads_maybe: one(threads) -> (usize, usize), THREADS;
    queue_len: one(queue_len_of) -> usize, "a count from 1 to 1000000";
    target: one(|text| span(text, WAIT_LEAST..=HOUR)) -> Nanos, "a duration from 100us to 1h (as `5ms`)";
    timeout: one(|text| span(text, MS..=HOUR)) -> Nanos, "a duration from 1ms to 1h (as `10s`)";
    overload_timeout_maybe: one(overload_timeout) -> Option<Nanos>, "a duration from 1ms to 1h (as `2s`), or `auto`";
    reserve_maybe: one(reserve) -> (usize, usize), RESERVE;
    run_time_maybe: one(run_time) -> Option<Nanos>, "a duration from 1ms to 24h (as `60s`), or `off`";
    path: one(path_of) -> String, "a path or a glob (as `/reports/**`)";
    methods: many(method_of) -> Vec<String>, "methods (as `[\"GET\", \"HEAD\"]`)";
    host: one(host_of) -> String, "a host's name (as `shop.example`, or `*.example.com`)";
    header: one(header_of) -> (String, Option<String>), "a header's name, or `NAME: VALUE`";
    networks: many(network_of) -> Vec<(IpAddr, u8)>, "addresses or networks (as `[\"10.0.0.0/8\"]`)";
    class: one(class_of) -> Class, "one of `health`, `high`, `normal`, `low`";
}

/// `[[pool]]`: what it does not name is as the setting of that name says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolTable {
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Fewest and most.
    #[serde(default, deserialize_with = "threads_maybe")]
    pub threads: Option<(usize, usize)>,
    #[serde(default, deserialize_with = "queue_len")]
    pub queue_len_max: Option<usize>,
    #[serde(default, deserialize_with = "target")]
    pub queue_target: Option<Nanos>,
    #[serde(default, deserialize_with = "timeout")]
    pub queue_timeout: Option<Nanos>,
    /// `Some(None)`: by the runs, whatever the setting says.
    #[serde(default, deserialize_with = "overload_timeout_maybe")]
    pub overload_timeout: Option<Option<Nanos>>,
    /// Threads and places.
    #[serde(default, deserialize_with = "reserve_maybe")]
    pub health_reserve: Option<(usize, usize)>,
    /// `Some(None)`: none, whatever the setting says.
    #[serde(default, deserialize_with = "run_time_maybe")]
    pub request_timeout: Option<Option<Nanos>>,
    /// `Some(None)`: not at all, whatever the setting says.
    #[serde(default, deserialize_with = "run_time_maybe")]
    pub disconnect_cancel: Option<Option<Nanos>>,
}

/// `[[pool_rule]]`: what it does not name fits all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolRuleTable {
    #[serde(deserialize_with = "name")]
    pub pool: String,
    #[serde(default, deserialize_with = "path")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "methods")]
    pub method: Vec<String>,
    #[serde(default, deserialize_with = "host")]
    pub host: Option<String>,
    #[serde(default, deserialize_with = "header")]
    pub header: Option<(String, Option<String>)>,
    #[serde(default, deserialize_with = "networks")]
    pub from: Vec<(IpAddr, u8)>,
    #[serde(default, deserialize_with = "class")]
    pub class: Option<Class>,
}

impl Structure for PoolTable {}

impl Structure for PoolRuleTable {
    fn contradiction(&self) -> Option<Contradiction> {
        let has_condition = self.path.is_some()
            || self.host.is_some()
            || self.header.is_some()
            || !self.method.is_empty()
            || !self.from.is_empty();
        (!has_condition).then(|| Contradiction {
            key: "pool",
            cause: "the rule names no requests".to_owned(),
            hint: "add `path = \"/slow/**\"`, or `method`, `host`, `header` or `from`".to_owned(),
        })
    }
}

/// What the number of threads is.
pub(crate) const THREADS: &str = "MIN:MAX or one number, from 1 to 4096";
/// What a reserve for health checks is.
pub(crate) const RESERVE: &str = "THREADS or THREADS:PLACES (as `1`, `1:8`)";

const THREADS_MAX: u64 = 4096;
const QUEUE_LEN_MAX: u64 = 1_000_000;
pub(crate) const NAME_BYTES_MAX: usize = 32;

/// The pool of slow routes; empty for none.
pub(crate) fn slow_pool(text: &str) -> Result<String, Hint> {
    match text {
        "off" => Ok(String::new()),
        name => pool_name(name),
    }
}

/// A time that a request may run for.
pub(crate) fn run_time(text: &str) -> Result<Option<Nanos>, Hint> {
    span_or_off(text, MS..=DAY, "for none")
}

/// The longest wait under overload; `None` for `auto`.
pub(crate) fn overload_timeout(text: &str) -> Result<Option<Nanos>, Hint> {
    match text {
        "auto" => Ok(None),
        text => span(text, MS..=HOUR).map(Some),
    }
}

/// It stands in logs, in counters and in commands.
pub(crate) fn pool_name(text: &str) -> Result<String, Hint> {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let has_letter = text.starts_with(|first: char| first.is_ascii_alphabetic());
    match has_letter && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_good) {
        true => Ok(text.to_owned()),
        false => hinted(format!(
            "a name begins with a letter and has at most {NAME_BYTES_MAX} letters, digits and `-_.`"
        )),
    }
}

/// Fewest and most threads of a pool.
pub(crate) fn threads(text: &str) -> Result<(usize, usize), Hint> {
    let is_good = |count: u64| (1..=THREADS_MAX).contains(&count);
    let Some((min, max)) = value::range(text) else {
        // Ranges have a colon, for ports and processors they have a dash elsewhere.
        let (min, max) = text.split_once('-').ok_or(None)?;
        return hinted(format!("write `{min}:{max}`"));
    };
    if min > max {
        return Err(smaller_first(min, max, ':'));
    }
    match is_good(min) && is_good(max) {
        true => Ok((min as usize, max as usize)),
        false => Err(None),
    }
}

pub(crate) fn queue_len_of(text: &str) -> Result<usize, Hint> {
    let count = value::count(text).filter(|count| (1..=QUEUE_LEN_MAX).contains(count));
    count.map(|count| count as usize).ok_or(None)
}

/// Threads and places; one number stands for both.
pub(crate) fn reserve(text: &str) -> Result<(usize, usize), Hint> {
    match value::range(text) {
        Some((threads @ ..=THREADS_MAX, places @ ..=QUEUE_LEN_MAX)) => {
            Ok((threads as usize, places as usize))
        }
        _ if text == "off" => hinted("write `0` for none"),
        _ => Err(None),
    }
}

fn span(text: &str, bounds: RangeInclusive<u64>) -> Result<Nanos, Hint> {
    let span = Unit::Duration.number(text)?;
    bounds.contains(&span).then_some(Nanos(span)).ok_or(None)
}

fn path_of(text: &str) -> Result<String, Hint> {
    if !text.starts_with('/') {
        let whole = match text {
            "" | "*" | "**" => "/**".to_owned(),
            text if text.starts_with('*') => format!("/**/{}", text.trim_start_matches("**/")),
            text if text.contains("://") => "/reports/**".to_owned(),
            text => format!("/{text}"),
        };
        return hinted(format!("a path begins with a slash: `{whole}`"));
    }
    // A `?` alone stands for one letter.
    // A `?` in a glob is one letter, so only what looks like a query is taken for one.
    let has_query = text
        .split_once('?')
        .is_some_and(|(_, rest)| rest.contains('='));
    if has_query || text.contains('#') {
        return hinted("only the path counts: leave out the query");
    }
    if !is_url_path(&text.replace('?', "x")) {
        return hinted(
            "paths are compared as sent: write spaces and letters beyond ASCII as escapes (`%20`)",
        );
    }
    is_glob(text, text)?;
    Ok(text.to_owned())
}

/// Methods are case-sensitive (RFC 9110 section 9.1), and all that are in use are in upper case.
pub(crate) fn method_of(text: &str) -> Result<String, Hint> {
    if !is_token(text) {
        return Err(None);
    }
    let upper = text.to_ascii_uppercase();
    match text == upper {
        true => Ok(upper),
        false => hinted(format!("methods are in upper case: `{upper}`")),
    }
}

pub(crate) fn host_of(text: &str) -> Result<String, Hint> {
    // `example.com.` is the same host (RFC 1034 section 3.1), and no client has to write the dot.
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    if let Some((_, behind)) = lower.split_once("://") {
        let host = behind.split(['/', ':']).next().unwrap_or_default();
        return hinted(format!("the host alone: `{host}`"));
    }
    // Before the port is looked for: an IPv6 address has colons of its own.
    if lower.starts_with('[') && lower.ends_with(']') {
        return Ok(lower);
    }
    if let Some((host, _)) = lower.split_once(':') {
        return hinted(format!("the host without a port: `{host}`"));
    }
    let name = lower.strip_prefix("*.").unwrap_or(&lower);
    if name.contains('*') {
        return hinted("`*.` at the beginning stands for all beneath a host, as `*.example.com`");
    }
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    match !name.is_empty() && name.bytes().all(is_good) {
        true => Ok(lower),
        false => Err(None),
    }
}

pub(crate) fn header_of(text: &str) -> Result<(String, Option<String>), Hint> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text, None),
    };
    if !is_token(name) {
        return Err(None);
    }
    // Names of fields have no case (RFC 9110 section 5.1); values are compared as they are.
    let name = name.to_ascii_lowercase();
    match (name.as_str(), value) {
        ("host", _) => hinted("hosts have a key of their own: `host`"),
        (_, Some("")) => hinted(format!("for any value: `{name}`")),
        _ => Ok((name, value.map(str::to_owned))),
    }
}

pub(crate) fn network_of(text: &str) -> Result<(IpAddr, u8), Hint> {
    if text.starts_with("unix") {
        return hinted("clients on unix sockets have no address, and fit no `from`");
    }
    client_network(text)
}

fn class_of(text: &str) -> Result<Class, Hint> {
    let classes = [
        ("health", Class::Health),
        ("high", Class::High),
        ("normal", Class::Normal),
        ("low", Class::Low),
    ];
    one_of(text, classes)
}
