//! Setters of pools: their sizes and queues, the requests that each takes, where slow ones go.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use globset::GlobBuilder;
use measure::Nanos;
use stage::Class;

use super::super::super::draft::{Draft, Placed, PoolEntry, RuleEntry};
use super::super::super::meant::PoolRule;
use super::super::super::nearest;
use super::super::super::reading::Text;
use super::super::super::value;
use super::request_ids::client_network;
use super::{Set, is_token, is_url_path, named, options};

type Hint = Option<String>;

/// Options of a pool.
pub(in super::super) const POOL_KEYS: &[&str] = &[
    "threads",
    "queue_len_max",
    "queue_target",
    "queue_timeout",
    "overload_timeout",
    "reserve",
    "request_timeout",
];
/// Options of a rule.
pub(in super::super) const POOL_RULE_KEYS: &[&str] =
    &["path", "method", "host", "header", "from", "class"];
/// What a pool is.
pub(in super::super) const POOL: &str =
    "NAME [KEY=VALUE]... (as `reports`, or `reports threads=1:8 queue_timeout=10s`)";
/// What a rule is.
pub(in super::super) const POOL_RULE: &str =
    "POOL KEY=VALUE... (as `reports path=/reports/**`, or `default path=/health class=health`)";

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

pub(in super::super) fn queue_reserve(draft: &mut Draft, text: &str) -> Set {
    let (threads, places) = reserve(text)?;
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

pub(in super::super) fn add_pool(draft: &mut Draft, text: &Text) -> Set {
    let entry = options(&text.text, POOL_KEYS)?;
    if is_option(&entry.lead, POOL_KEYS) {
        return Err(Some(format!(
            "the pool's name comes first: `NAME {}`",
            text.text
        )));
    }
    let mut pool = PoolEntry {
        name: pool_name(&entry.lead)?,
        ..PoolEntry::default()
    };
    for (key, written) in &entry.options {
        let text = written.as_str();
        match key.as_str() {
            "threads" => pool.threads = Some(threads(text)?),
            "queue_len_max" => pool.queue_len_max = Some(queue_len(text)?),
            "queue_target" => pool.queue_target = Some(span(key, text, TARGET_MIN)?),
            "queue_timeout" => pool.queue_timeout = Some(span(key, text, SPAN_MIN)?),
            "overload_timeout" => pool.overload_timeout = Some(span(key, text, SPAN_MIN)?),
            "reserve" => pool.reserve = Some(reserve(text)?),
            _ => {
                let span = span_or_off(text).map_err(|hint| {
                    hint.or_else(|| Some(format!("`{key}` is a duration, as `60s`, or `off`")))
                })?;
                pool.request_timeout = Some(span);
            }
        }
    }
    draft.pools.push(Placed::new(pool, text));
    Ok(())
}

pub(in super::super) fn add_pool_rule(draft: &mut Draft, text: &Text) -> Set {
    let entry = options(&text.text, POOL_RULE_KEYS)?;
    if is_option(&entry.lead, POOL_RULE_KEYS) {
        return Err(Some(format!(
            "the pool comes first: `default {}`",
            text.text
        )));
    }
    let pool = pool_name(&entry.lead)?;
    let mut rule = PoolRule::default();
    for (key, written) in &entry.options {
        match key.as_str() {
            "path" => rule.path = Some(path(written)?),
            "method" => rule.methods = list(written, method)?,
            "host" => rule.host = Some(host(written)?),
            "header" => rule.header = Some(header(written)?),
            "from" => rule.from = list(written, network)?,
            _ => rule.class = class(written)?,
        }
    }
    let names_any = entry.options.iter().any(|(key, _)| key != "class");
    if !names_any {
        return Err(Some(format!(
            "which requests? `{pool} path=/slow/**`, or another of {}",
            named(&POOL_RULE_KEYS[1..5])
        )));
    }
    draft
        .pool_rules
        .push(Placed::new(RuleEntry { pool, rule }, text));
    Ok(())
}

/// What looks like an option in the first place follows a name that was left out.
fn is_option(lead: &str, keys: &[&str]) -> bool {
    lead.split_once('=')
        .is_some_and(|(key, _)| keys.contains(&key))
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

fn threads(text: &str) -> Result<(usize, usize), Hint> {
    let fitting = |count: &u64| (1..=THREADS_MAX).contains(count);
    match value::range(text) {
        Some((min, max)) if min > max => Err(Some(format!(
            "`threads`: the smaller number comes first: `{max}:{min}`"
        ))),
        Some((min, max)) if fitting(&min) && fitting(&max) => Ok((min as usize, max as usize)),
        _ => Err(Some(format!(
            "`threads` is MIN:MAX or one number, from 1 to {THREADS_MAX}"
        ))),
    }
}

fn queue_len(text: &str) -> Result<usize, Hint> {
    let count = value::count(text).filter(|count| (1..=QUEUE_LEN_MAX).contains(count));
    let hint = || {
        Some(format!(
            "`queue_len_max` is a count from 1 to {QUEUE_LEN_MAX}"
        ))
    };
    count.map(|count| count as usize).ok_or_else(hint)
}

/// Threads and places; one number stands for both.
fn reserve(text: &str) -> Result<(usize, usize), Hint> {
    match value::range(text) {
        Some((threads @ ..=THREADS_MAX, places @ ..=QUEUE_LEN_MAX)) => {
            Ok((threads as usize, places as usize))
        }
        _ if text == "off" => Err(Some("write `0` for none".to_owned())),
        _ => Err(Some(
            "a reserve is THREADS or THREADS:PLACES, as `1` or `1:8`".to_owned(),
        )),
    }
}

fn span(key: &str, text: &str, min: Nanos) -> Result<Nanos, Hint> {
    let span = value::duration(text).filter(|span| (min..=HOUR).contains(span));
    span.ok_or_else(|| {
        let min = value::duration_text(min);
        Some(format!("`{key}` is a duration from {min} to 1h, as `50ms`"))
    })
}

fn span_or_off(text: &str) -> Result<Option<Nanos>, Hint> {
    match (text, value::duration(text)) {
        ("off", _) => Ok(None),
        (_, Some(Nanos(0))) => Err(Some("write `off` for none".to_owned())),
        (_, Some(span)) if (SPAN_MIN..=DAY).contains(&span) => Ok(Some(span)),
        _ => Err(None),
    }
}

/// What stands between commas.
fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, Hint>) -> Result<Vec<T>, Hint> {
    text.split(',').map(|part| one(part.trim())).collect()
}

fn path(text: &str) -> Result<String, Hint> {
    if !text.starts_with('/') {
        let whole = match text {
            "" | "*" | "**" => "/**".to_owned(),
            text if text.starts_with('*') => format!("/**/{}", text.trim_start_matches("**/")),
            text if text.contains("://") => "/reports/**".to_owned(),
            text => format!("/{text}"),
        };
        return Err(Some(format!("a path begins with a slash: `path={whole}`")));
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
fn method(text: &str) -> Result<String, Hint> {
    if !is_token(text) {
        let hint = "`method` names methods, as `GET` or `GET,POST`";
        return Err(Some(hint.to_owned()));
    }
    let upper = text.to_ascii_uppercase();
    match text == upper {
        true => Ok(upper),
        false => Err(Some(format!("methods are in upper case: `{upper}`"))),
    }
}

fn host(text: &str) -> Result<String, Hint> {
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    if let Some((_, behind)) = lower.split_once("://") {
        let host = behind.split(['/', ':']).next().unwrap_or_default();
        return Err(Some(format!("the host alone: `host={host}`")));
    }
    if lower.starts_with('[') && lower.ends_with(']') {
        return Ok(lower);
    }
    if let Some((host, _)) = lower.split_once(':') {
        return Err(Some(format!("the host without a port: `host={host}`")));
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
        false => Err(Some("`host` is a name, as `shop.example`".to_owned())),
    }
}

fn header(text: &str) -> Result<(String, Option<String>), Hint> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text, None),
    };
    if !is_token(name) {
        let hint = "`header` is a name, or a name and a value, as `header=\"x-batch: yes\"`";
        return Err(Some(hint.to_owned()));
    }
    let name = name.to_ascii_lowercase();
    match (name.as_str(), value) {
        ("host", _) => Err(Some(
            "hosts have an option of their own: `host=`".to_owned(),
        )),
        (_, Some("")) => Err(Some(format!("for any value: `header={name}`"))),
        _ => Ok((name, value.map(str::to_owned))),
    }
}

fn network(text: &str) -> Result<(std::net::IpAddr, u8), Hint> {
    if text.starts_with("unix") {
        let hint = "clients on unix sockets have no address, and fit no `from`";
        return Err(Some(hint.to_owned()));
    }
    client_network(text).map_err(|hint| {
        let expected = "`from` names addresses or networks in digits, as `10.0.0.0/8,fd00::/8`";
        hint.or_else(|| Some(expected.to_owned()))
    })
}

fn class(text: &str) -> Result<Class, Hint> {
    let known = CLASSES.iter().find(|(name, _)| *name == text);
    if let Some((_, class)) = known {
        return Ok(*class);
    }
    let names = CLASSES.map(|(name, _)| name);
    Err(Some(match nearest(text, names) {
        Some(near) => format!("no class `{text}`: did you mean `{near}`?"),
        None => format!("no class `{text}`: there are {}", named(&names)),
    }))
}
