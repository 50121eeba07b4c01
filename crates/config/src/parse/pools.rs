//! Setters of pools: their sizes and queues, the requests that each takes, where slow ones go.
//!
//! Each takes one text or table and puts its meaning into the draft, or gives a hint. Pure.

use globset::GlobBuilder;
use queueing::Class;
use serde::Deserialize;
use telemetry::Nanos;

use super::super::super::builder::{Draft, Placed, RuleEntry};
use super::super::super::nearest;
use super::super::super::tables::{Contradiction, SettingTable, Structure, keys};
use super::super::super::typed::PoolRule;
use super::super::super::value;
use super::request_ids::client_network;
use super::{Hint, Set, is_token, is_url_path};

keys! {
    name: one(pool_name) -> String, "a pool's name (as `reports`)";
    threads: one(threads_of) -> (usize, usize), "MIN:MAX or one number, from 1 to 4096";
    queue_len: one(queue_len_of) -> usize, "a count from 1 to 1000000";
    target: one(|text| span(text, TARGET_MIN)) -> Nanos, "a duration from 100us to 1h (as `5ms`)";
    timeout: one(|text| span(text, SPAN_MIN)) -> Nanos, "a duration from 1ms to 1h (as `10s`)";
    reserve: one(reserve_of) -> (usize, usize), RESERVE;
    span_maybe: one(span_or_off) -> Option<Nanos>, "a duration from 1ms to 24h (as `60s`), or `off`";
    path: one(path_of) -> String, "a path or a glob (as `/reports/**`)";
    methods: many(method_of) -> Vec<String>, "methods (as `[\"GET\", \"HEAD\"]`)";
    host: one(host_of) -> String, "a host's name (as `shop.example`, or `*.example.com`)";
    header: one(header_of) -> (String, Option<String>), "a header's name, or `NAME: VALUE`";
    networks: many(network_of) -> Vec<(std::net::IpAddr, u8)>, "addresses or networks (as `[\"10.0.0.0/8\"]`)";
    class: one(class_of) -> Class, "one of `health`, `high`, `normal`, `low`";
}

/// `[[pool]]`: what it does not name is as the setting of that name says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolTable {
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Fewest and most.
    #[serde(default, deserialize_with = "threads")]
    pub threads: Option<(usize, usize)>,
    #[serde(default, deserialize_with = "queue_len")]
    pub queue_len_max: Option<usize>,
    #[serde(default, deserialize_with = "target")]
    pub queue_target: Option<Nanos>,
    #[serde(default, deserialize_with = "timeout")]
    pub queue_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "timeout")]
    pub overload_timeout: Option<Nanos>,
    /// Threads and places.
    #[serde(default, deserialize_with = "reserve")]
    pub health_reserve: Option<(usize, usize)>,
    /// `Some(None)`: none, whatever the setting says.
    #[serde(default, deserialize_with = "span_maybe")]
    pub request_timeout: Option<Option<Nanos>>,
}

/// `[[pool_rule]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct PoolRuleTable {
    #[serde(deserialize_with = "name")]
    pool: String,
    #[serde(default, deserialize_with = "path")]
    path: Option<String>,
    #[serde(default, deserialize_with = "methods")]
    method: Vec<String>,
    #[serde(default, deserialize_with = "host")]
    host: Option<String>,
    #[serde(default, deserialize_with = "header")]
    header: Option<(String, Option<String>)>,
    #[serde(default, deserialize_with = "networks")]
    from: Vec<(std::net::IpAddr, u8)>,
    #[serde(default, deserialize_with = "class")]
    class: Option<Class>,
}

impl Structure for PoolTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        draft.pools.push(Placed::new(self, &table.origin));
        Ok(())
    }
}

impl Structure for PoolRuleTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        let rule = PoolRule {
            methods: self.method,
            path: self.path,
            host: self.host,
            header: self.header,
            from: self.from,
            class: self.class.unwrap_or_default(),
            ..PoolRule::default()
        };
        let all = PoolRule {
            class: rule.class,
            ..PoolRule::default()
        };
        if rule == all {
            return Err(Contradiction {
                key: "pool",
                cause: "the rule names no requests".to_owned(),
                hint: Some(
                    "add `path = \"/slow/**\"`, or `method`, `host`, `header` or `from`".to_owned(),
                ),
            });
        }
        let value = RuleEntry {
            pool: self.pool,
            rule,
        };
        draft.pool_rules.push(Placed::new(value, &table.origin));
        Ok(())
    }
}

/// What a reserve for health checks is.
pub(in super::super) const RESERVE: &str = "THREADS or THREADS:PLACES (as `1`, `1:8`)";

const CLASSES: [(&str, Class); 4] = [
    ("health", Class::Health),
    ("high", Class::High),
    ("normal", Class::Normal),
    ("low", Class::Low),
];
const THREADS_MAX: u64 = 4096;
const QUEUE_LEN_MAX: u64 = 1_000_000;
const NAME_BYTES_MAX: usize = 32;
const SPAN_MIN: Nanos = Nanos(1_000_000);
const TARGET_MIN: Nanos = Nanos(100_000);
const HOUR: Nanos = Nanos(3_600_000_000_000);
const DAY: Nanos = Nanos(24 * 3_600_000_000_000);

pub(in super::super) fn health_reserve(draft: &mut Draft, text: &str) -> Set {
    let (threads, places) = reserve_of(text)?;
    draft.config.pools[0].reserve_threads = threads;
    draft.config.pools[0].reserve_len = places;
    Ok(())
}

pub(in super::super) fn request_timeout(draft: &mut Draft, text: &str) -> Set {
    draft.config.pools[0].request_timeout = span_or_off(text)?;
    Ok(())
}

pub(in super::super) fn slow_request(draft: &mut Draft, text: &str) -> Set {
    draft.config.slow_request = span_or_off(text)?;
    Ok(())
}

pub(in super::super) fn slow_pool(draft: &mut Draft, text: &str) -> Set {
    draft.slow_pool = match text {
        "off" => String::new(),
        name => pool_name(name)?,
    };
    Ok(())
}

/// It stands in logs, in counters and in commands.
fn pool_name(text: &str) -> Result<String, Hint> {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let has_letter = text.starts_with(|first: char| first.is_ascii_alphabetic());
    match has_letter && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_good) {
        true => Ok(text.to_owned()),
        false => Err(Some(format!(
            "a name begins with a letter and has at most {NAME_BYTES_MAX} letters, digits and `-_.`"
        ))),
    }
}

fn threads_of(text: &str) -> Result<(usize, usize), Hint> {
    let fitting = |count: &u64| (1..=THREADS_MAX).contains(count);
    match value::range(text) {
        Some((min, max)) if min > max => Err(Some(format!(
            "the smaller number comes first: `{max}:{min}`"
        ))),
        Some((min, max)) if fitting(&min) && fitting(&max) => Ok((min as usize, max as usize)),
        _ => Err(None),
    }
}

fn queue_len_of(text: &str) -> Result<usize, Hint> {
    let count = value::count(text).filter(|count| (1..=QUEUE_LEN_MAX).contains(count));
    count.map(|count| count as usize).ok_or(None)
}

/// Threads and places; one number stands for both.
fn reserve_of(text: &str) -> Result<(usize, usize), Hint> {
    match value::range(text) {
        Some((threads @ ..=THREADS_MAX, places @ ..=QUEUE_LEN_MAX)) => {
            Ok((threads as usize, places as usize))
        }
        _ if text == "off" => Err(Some("write `0` for none".to_owned())),
        _ => Err(None),
    }
}

fn span(text: &str, min: Nanos) -> Result<Nanos, Hint> {
    let span = value::duration(text).filter(|span| (min..=HOUR).contains(span));
    span.ok_or(None)
}

fn span_or_off(text: &str) -> Result<Option<Nanos>, Hint> {
    match (text, value::duration(text)) {
        ("off", _) => Ok(None),
        (_, Some(Nanos(0))) => Err(Some("write `off` for none".to_owned())),
        (_, Some(span)) if (SPAN_MIN..=DAY).contains(&span) => Ok(Some(span)),
        _ => Err(None),
    }
}

fn path_of(text: &str) -> Result<String, Hint> {
    if !text.starts_with('/') {
        let whole = match text {
            "" | "*" | "**" => "/**".to_owned(),
            text if text.starts_with('*') => format!("/**/{}", text.trim_start_matches("**/")),
            text if text.contains("://") => "/reports/**".to_owned(),
            text => format!("/{text}"),
        };
        return Err(Some(format!("a path begins with a slash: `{whole}`")));
    }
    // A `?` alone stands for one letter.
    if text
        .split_once('?')
        .is_some_and(|(_, query)| query.contains('='))
        || text.contains('#')
    {
        return Err(Some("only the path counts: leave out the query".to_owned()));
    }
    if !is_url_path(&text.replace('?', "x")) {
        return Err(Some(
            "paths are compared as sent: write spaces and letters beyond ASCII as escapes (`%20`)"
                .to_owned(),
        ));
    }
    match GlobBuilder::new(text).literal_separator(true).build() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(Some(format!("`{text}` is not a glob: {}", error.kind()))),
    }
}

/// Methods are case-sensitive (RFC 9110 section 9.1), and all that are in use are in upper case.
fn method_of(text: &str) -> Result<String, Hint> {
    if !is_token(text) {
        return Err(None);
    }
    let upper = text.to_ascii_uppercase();
    match text == upper {
        true => Ok(upper),
        false => Err(Some(format!("methods are in upper case: `{upper}`"))),
    }
}

fn host_of(text: &str) -> Result<String, Hint> {
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    if let Some((_, behind)) = lower.split_once("://") {
        let host = behind.split(['/', ':']).next().unwrap_or_default();
        return Err(Some(format!("the host alone: `{host}`")));
    }
    if lower.starts_with('[') && lower.ends_with(']') {
        return Ok(lower);
    }
    if let Some((host, _)) = lower.split_once(':') {
        return Err(Some(format!("the host without a port: `{host}`")));
    }
    let name = lower.strip_prefix("*.").unwrap_or(&lower);
    if name.contains('*') {
        return Err(Some(
            "`*.` at the beginning stands for all beneath a host, as `*.example.com`".to_owned(),
        ));
    }
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    match !name.is_empty() && name.bytes().all(is_good) {
        true => Ok(lower),
        false => Err(None),
    }
}

fn header_of(text: &str) -> Result<(String, Option<String>), Hint> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text, None),
    };
    if !is_token(name) {
        return Err(None);
    }
    let name = name.to_ascii_lowercase();
    match (name.as_str(), value) {
        ("host", _) => Err(Some("hosts have a key of their own: `host`".to_owned())),
        (_, Some("")) => Err(Some(format!("for any value: `{name}`"))),
        _ => Ok((name, value.map(str::to_owned))),
    }
}

fn network_of(text: &str) -> Result<(std::net::IpAddr, u8), Hint> {
    if text.starts_with("unix") {
        let hint = "clients on unix sockets have no address, and fit no `from`";
        return Err(Some(hint.to_owned()));
    }
    client_network(text)
}

fn class_of(text: &str) -> Result<Class, Hint> {
    let known = CLASSES.iter().find(|(name, _)| *name == text);
    if let Some((_, class)) = known {
        return Ok(*class);
    }
    let near = nearest(text, CLASSES.map(|(name, _)| name));
    Err(near.map(|near| format!("did you mean `{near}`?")))
}
