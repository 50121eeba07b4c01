//! Upstreams: what the keys of `[[upstream]]` and `[[upstream.server]]`, and the flag `--proxy`, mean.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use telemetry::Nanos;

use super::bind::UNIX_PATH_BYTES_MAX;
use super::pools::{pool_name, queue_len_of, run_time};
use super::value::{self, Unit};
use super::{Hint, did_you_mean, hinted, is_token, is_url_path, one_of, or_off};
use crate::builder::{KeyedTable, Placed};
use crate::fault::{ConfigFault, Origin};
use crate::options_table::{DAY, HOUR, MS};
use crate::tables::{Contradiction, SettingTable, Structure, keys, read, taken};
use crate::typed::{HashKey, ServerAddress, UpstreamProtocol, UpstreamServer};

/// What `--proxy` takes.
pub(crate) const PROXY: &str = "PATH=URL or URL (as `/api=http://127.0.0.1:9000`)";
pub(crate) const UPSTREAM_TABLE: &str = "[[upstream]]\nname = \"api\"\nservers = [\"http://127.0.0.1:9001\", \"http://127.0.0.1:9002\"]";
const URL: &str = "a server's URL (as `http://127.0.0.1:9000`, `unix:/run/app.sock`)";
const HASH_KEYS: &str = "`client`, `path`, `header:NAME` or `cookie:NAME`";
const SPAN: &str = "a duration from 1ms to 1h (as `5s`)";
const LONG_SPAN: &str = "a duration from 1ms to 24h (as `60s`)";
const FILE: &str = "a file in PEM";
const SWITCH: &str = "`true` or `false`";

keys! {
    name: one(pool_name) -> String, "an upstream's name (as `api`)";
    servers: many(server_url) -> Vec<UpstreamServer>, URL;
    url: one(server_url) -> UpstreamServer, URL;
    switch: one(|text| value::switch(text).ok_or(None)) -> bool, SWITCH;
    balance: one(balance_of) -> BalanceName, BALANCES;
    hash_by: one(hash_key) -> HashKey, HASH_KEYS;
    cookie: one(cookie_name) -> String, "a cookie's name (as `server`)";
    slots: one(|text| count(text, 1..=100_000)) -> u32, "a count from 1 to 100000";
    weight: one(weight_of) -> u32, "a count from 1 to 256";
    idle_max: one(|text| count(text, 0..=4096)) -> u32, "a count from 0 to 4096";
    tunnels_max: one(|text| count(text, 0..=1_000_000)) -> u32, "a count from 0 to 1000000";
    queue_len: one(queue_len_of) -> usize, "a count from 1 to 1000000";
    timeout: one(|text| span(text, MS..=HOUR)) -> Nanos, SPAN;
    long_timeout: one(|text| span(text, MS..=DAY)) -> Nanos, LONG_SPAN;
    run_time_maybe: one(run_time) -> Option<Nanos>, "a duration from 1ms to 24h (as `60s`), or `off`";
    ramp: one(|text| span(text, 0..=HOUR)) -> Nanos, "a duration up to 1h (as `30s`)";
    retries: one(|text| count(text, 0..=10)) -> u32, "a count from 0 to 10";
    budget: one(|text| value::percent(text).ok_or(None)) -> f64, "a share in percent (as `10%`)";
    retry_status: many(failed_status) -> Vec<u16>, "statuses from 400 to 599 (as `[502, 503]`)";
    eject_after: one(eject_after_of) -> Option<u32>, "a count from 1 to 1000, or `off`";
    check: one(check_path) -> String, "a path (as `/health`)";
    streak: one(|text| count(text, 1..=100)) -> u32, "a count from 1 to 100";
    protocol: one(protocol_of) -> UpstreamProtocol, "one of `http1`, `http2`";
    pem_file: one(super::tls::file) -> PathBuf, FILE;
    server_name: one(certificate_name) -> String, "a server's name (as `shop.example`)";
}

/// A rule of balancing, without what it goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BalanceName {
    #[default]
    Queue,
    LeastConnections,
    TwoChoices,
    PeakEwma,
    Prequal,
    RoundRobin,
    Random,
    First,
    Hash,
    Sticky,
}

/// `[[upstream]]`; what it does not name has its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamTable {
    #[serde(deserialize_with = "name")]
    pub name: String,
    #[serde(default, deserialize_with = "servers")]
    pub servers: Vec<UpstreamServer>,
    /// Read apart: each of its tables has places of its own.
    #[serde(default, deserialize_with = "taken")]
    pub server: Vec<Placed<ServerTable>>,
    #[serde(default, deserialize_with = "protocol")]
    pub protocol: UpstreamProtocol,
    #[serde(default, deserialize_with = "balance")]
    pub balance: BalanceName,
    #[serde(default, deserialize_with = "hash_by")]
    pub hash_by: Option<HashKey>,
    #[serde(default, deserialize_with = "cookie")]
    pub sticky_cookie: Option<String>,
    #[serde(default, deserialize_with = "slots")]
    pub slots: Option<u32>,
    #[serde(default, deserialize_with = "slots")]
    pub slots_max: Option<u32>,
    #[serde(default, deserialize_with = "timeout")]
    pub connect_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "long_timeout")]
    pub response_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "timeout")]
    pub idle_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "idle_max")]
    pub idle_max: Option<u32>,
    #[serde(default, deserialize_with = "switch")]
    pub stream_requests: bool,
    #[serde(default, deserialize_with = "long_timeout")]
    pub tunnel_idle: Option<Nanos>,
    #[serde(default, deserialize_with = "tunnels_max")]
    pub tunnels_max: Option<u32>,
    #[serde(default, deserialize_with = "queue_len")]
    pub queue_len_max: Option<usize>,
    #[serde(default, deserialize_with = "timeout")]
    pub queue_timeout: Option<Nanos>,
    /// `Some(None)`: none, whatever the setting says.
    #[serde(default, deserialize_with = "run_time_maybe")]
    pub request_timeout: Option<Option<Nanos>>,
    #[serde(default, deserialize_with = "retries")]
    pub retries: Option<u32>,
    #[serde(default, deserialize_with = "budget")]
    pub retry_budget: Option<f64>,
    #[serde(default, deserialize_with = "retry_status")]
    pub retry_status: Vec<u16>,
    #[serde(default, deserialize_with = "ramp")]
    pub slow_start: Option<Nanos>,
    /// `Some(None)`: never.
    #[serde(default, deserialize_with = "eject_after")]
    pub eject_after: Option<Option<u32>>,
    #[serde(default, deserialize_with = "timeout")]
    pub eject_time: Option<Nanos>,
    #[serde(default, deserialize_with = "check")]
    pub check: Option<String>,
    #[serde(default, deserialize_with = "timeout")]
    pub check_interval: Option<Nanos>,
    #[serde(default, deserialize_with = "streak")]
    pub check_rise: Option<u32>,
    #[serde(default, deserialize_with = "streak")]
    pub check_fall: Option<u32>,
    #[serde(default, deserialize_with = "timeout")]
    pub check_timeout: Option<Nanos>,
    #[serde(default, deserialize_with = "timeout")]
    pub resolve_every: Option<Nanos>,
    #[serde(default, deserialize_with = "switch")]
    pub send_proxy: bool,
    #[serde(default, deserialize_with = "pem_file")]
    pub tls_ca: Option<PathBuf>,
    #[serde(default, deserialize_with = "server_name")]
    pub tls_name: Option<String>,
    #[serde(default, deserialize_with = "switch")]
    pub tls_verify: Option<bool>,
    #[serde(default, deserialize_with = "pem_file")]
    pub tls_cert: Option<PathBuf>,
    #[serde(default, deserialize_with = "pem_file")]
    pub tls_key: Option<PathBuf>,
    #[serde(default, deserialize_with = "switch")]
    pub trust_reports: Option<bool>,
    #[serde(default, deserialize_with = "switch")]
    pub proxy_status: bool,
}

/// `[[upstream.server]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTable {
    #[serde(deserialize_with = "url")]
    pub url: UpstreamServer,
    #[serde(default, deserialize_with = "slots")]
    pub slots: Option<u32>,
    #[serde(default, deserialize_with = "weight")]
    pub weight: Option<u32>,
    #[serde(default, deserialize_with = "switch")]
    pub backup: bool,
}

/// `--proxy`: an upstream and its route in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyEntry {
    /// Without a trailing slash; empty for the root.
    pub path: String,
    pub servers: Vec<UpstreamServer>,
}

impl Structure for ServerTable {}

impl Structure for UpstreamTable {
    fn contradiction(&self) -> Option<Contradiction> {
        let found = |key, cause: &str, hint: &str| {
            let (cause, hint) = (cause.to_owned(), hint.to_owned());
            Some(Contradiction { key, cause, hint })
        };
        let checks = [
            ("check_interval", self.check_interval.is_some()),
            ("check_rise", self.check_rise.is_some()),
            ("check_fall", self.check_fall.is_some()),
            ("check_timeout", self.check_timeout.is_some()),
        ];
        let of_checks = checks.into_iter().find(|(_, is_written)| *is_written);
        match (self.balance, &self.hash_by, &self.sticky_cookie) {
            (BalanceName::Hash, None, _) => {
                let hint = "name what a server is chosen by: `hash_by = \"client\"`";
                return found("balance", "`hash` goes by nothing", hint);
            }
            (BalanceName::Hash, Some(_), _) | (_, None, _) => {}
            (_, Some(_), _) => {
                return found(
                    "hash_by",
                    "the rule is not `hash`",
                    "write `balance = \"hash\"`",
                );
            }
        }
        if self.sticky_cookie.is_some() && self.balance != BalanceName::Sticky {
            let hint = "write `balance = \"sticky\"`";
            return found("sticky_cookie", "the rule is not `sticky`", hint);
        }
        if let (Some((key, _)), None) = (of_checks, &self.check) {
            return found(
                key,
                "there is no `check`",
                "name a path: `check = \"/health\"`",
            );
        }
        if self.send_proxy && self.protocol == UpstreamProtocol::Http2 {
            let cause = "one connection of HTTP/2 has the requests of many clients";
            return found(
                "send_proxy",
                cause,
                "leave it out, or write `protocol = \"http1\"`",
            );
        }
        if self.tls_key.is_some() && self.tls_cert.is_none() {
            let hint = "name the certificate as well: `tls_cert`";
            return found("tls_key", "there is no `tls_cert`", hint);
        }
        if self.tls_ca.is_some() && self.tls_verify == Some(false) {
            let hint = "leave out `tls_verify`, or `tls_ca`";
            return found("tls_ca", "no certificate is checked by it", hint);
        }
        None
    }
}

/// A table with those of its servers, which have places of their own.
pub(crate) fn upstream(
    table: &SettingTable,
    faults: &mut Vec<ConfigFault>,
) -> Option<KeyedTable<UpstreamTable>> {
    let faults_len = faults.len();
    let mut own = table.clone();
    let of_servers = own.take_tables("server", faults);
    let mut servers = Vec::new();
    for one in &of_servers {
        let server = read::<ServerTable>(one, faults);
        servers.extend(server.map(|server| Placed::new(server, &one.origin)));
    }
    let mut upstream = read::<UpstreamTable>(&own, faults)?;
    let (cause, hint) = match (upstream.servers.is_empty(), of_servers.is_empty()) {
        // What is wrong with one of them has been said.
        _ if faults.len() > faults_len => return None,
        (true, true) => (
            "an upstream without servers",
            "name them: `servers = [\"http://127.0.0.1:9001\"]`",
        ),
        (false, false) => (
            "there are `servers` and `[[upstream.server]]`",
            "write all of them as `[[upstream.server]]`, with `url`",
        ),
        (false, true) | (true, false) => {
            upstream.server = servers;
            return Some(KeyedTable::new(upstream, table));
        }
    };
    faults.push(ConfigFault::statement(table.origin.clone(), cause).with_hint(hint));
    None
}

/// `/api=URL,URL`, or URLs alone for all paths.
pub(crate) fn proxy(text: &str) -> Result<ProxyEntry, Hint> {
    let (path, urls) = match text.split_once('=') {
        Some((path, urls)) if is_url_path(path) => (path, urls),
        Some((path, urls)) if !path.contains(':') => {
            return hinted(format!("the path begins with a slash: `/{path}={urls}`"));
        }
        _ if is_url_path(text) && !text.ends_with(".sock") => {
            return hinted(format!("write `{text}=URL`"));
        }
        _ => ("", text),
    };
    let servers = urls.split(',').map(|url| server_url(url.trim()));
    Ok(ProxyEntry {
        path: path.trim_end_matches('/').to_owned(),
        servers: servers.collect::<Result<_, _>>()?,
    })
}

impl ProxyEntry {
    /// What its upstream is called, as far as no other one has the name: `proxy-api` for `/api`.
    pub(crate) fn name(&self) -> String {
        let words = self
            .path
            .split(|letter: char| !letter.is_ascii_alphanumeric());
        let words = words.filter(|word| !word.is_empty());
        let words: Vec<&str> = std::iter::once("proxy").chain(words).collect();
        words.join("-")
    }
}

/// A server, as a URL without a path.
pub(crate) fn server_url(text: &str) -> Result<UpstreamServer, Hint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix_server(path);
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let is_plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace());
        return match is_plain {
            true if value::count(text.trim_start_matches(':')).is_some() => {
                let port = text.trim_start_matches(':');
                hinted(format!("a URL has a host: `http://127.0.0.1:{port}`"))
            }
            true if text.starts_with('/') => hinted(format!("a unix socket is `unix:{text}`")),
            true => hinted(format!("a URL begins with its scheme: `http://{text}`")),
            false => Err(None),
        };
    };
    let has_tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "h2c" | "h2" | "grpc" => {
            return hinted(format!("write `http://{rest}` and `protocol = \"http2\"`"));
        }
        "grpcs" => return hinted(format!("write `https://{rest}` and `protocol = \"http2\"`")),
        "ws" => {
            return hinted(format!(
                "WebSocket needs no scheme of its own: `http://{rest}`"
            ));
        }
        "wss" => {
            return hinted(format!(
                "WebSocket needs no scheme of its own: `https://{rest}`"
            ));
        }
        "unix" => return hinted(format!("write `unix:{rest}`")),
        _ => return hinted("the schemes are `http` and `https`, and `unix:` with a path"),
    };
    if let Some(path) = rest.strip_prefix("unix:") {
        return hinted(format!("write `unix:{path}`"));
    }
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    // A slash alone is no path of the user's: `http://a` and `http://a/` are the same (RFC 3986 section 6.2.3).
    if !matches!(path, "" | "/") {
        return hinted(format!(
            "a server has no path: `{scheme}://{authority}`; a `[[route]]` has a `path`"
        ));
    }
    if let Some((_, host)) = authority.rsplit_once('@') {
        return hinted(format!(
            "no user and no password, which would stand in logs: `{scheme}://{host}`"
        ));
    }
    let (host, port) = host_and_port(authority)?;
    let port = port.unwrap_or(if has_tls { 443 } else { 80 });
    Ok(UpstreamServer::at(
        ServerAddress::Tcp { host, port },
        has_tls,
    ))
}

/// The host without brackets, and the port where there is one.
fn host_and_port(authority: &str) -> Result<(String, Option<u16>), Hint> {
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an address in brackets are no port's.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = match port {
        None => None,
        Some(port) => {
            let number = port.parse().ok().filter(|port: &u16| *port > 0);
            let hint = || Some("ports are numbers from 1 to 65535".to_owned());
            // `+80` is a number to Rust.
            let is_plain = port.bytes().all(|b| b.is_ascii_digit());
            Some(number.filter(|_| is_plain).ok_or_else(hint)?)
        }
    };
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|text| text.parse().ok());
        let address: Ipv6Addr = address.ok_or(None)?;
        return Ok((address.to_string(), port));
    }
    if host.contains(':') {
        return hinted("IPv6 addresses stand in brackets, as `http://[::1]:9000`");
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host.is_empty() {
        return hinted("name a host, as `http://127.0.0.1:9000`");
    }
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    // Digits and dots alone are an address, and it must be a whole one.
    let is_number = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_whole = !is_number || host.parse::<Ipv4Addr>().is_ok();
    // RFC 1035 section 2.3.4.
    match host.bytes().all(is_good) && is_whole && host.len() <= 253 {
        true => Ok((host, port)),
        false => Err(None),
    }
}

fn unix_server(path: &str) -> Result<UpstreamServer, Hint> {
    // nginx writes the URI behind the socket and a colon.
    if let Some((socket, _)) = path.split_once(":/") {
        return hinted(format!(
            "a server has no path: `unix:{socket}`; a `[[route]]` has a `path`"
        ));
    }
    let path = match path.strip_prefix("//") {
        Some(rest) => format!("/{}", rest.trim_start_matches('/')),
        None => path.to_owned(),
    };
    match path.len() {
        0 => hinted("name the socket: `unix:/run/app.sock`"),
        1..=UNIX_PATH_BYTES_MAX if !path.ends_with('/') && !path.contains('\0') => {
            let address = ServerAddress::Unix(PathBuf::from(path));
            Ok(UpstreamServer::at(address, false))
        }
        1..=UNIX_PATH_BYTES_MAX => Err(None),
        _ => hinted(format!(
            "the kernel takes at most {UNIX_PATH_BYTES_MAX} bytes of path"
        )),
    }
}

const BALANCES: &str = "one of `queue`, `least-connections`, `two-choices`, `peak-ewma`, `prequal`, `round-robin`, \
     `random`, `first`, `hash`, `sticky`";

fn balance_of(text: &str) -> Result<BalanceName, Hint> {
    // Rules of nginx, HAProxy, Caddy and Envoy under their names there.
    let here = match text {
        "least_conn" | "leastconn" | "least_request" => "`least-connections`",
        "roundrobin" | "round_robin" | "rr" | "static-rr" => "`round-robin`",
        "random two" | "p2c" | "random(2)" | "random_choose" => "`two-choices`",
        "least_time" | "ewma" => "`peak-ewma`",
        "ip_hash" | "source" | "client_ip_hash" => "`hash`, with `hash_by = \"client\"`",
        "uri" | "uri_hash" => "`hash`, with `hash_by = \"path\"`",
        "cookie" => "`sticky`",
        _ => "",
    };
    if !here.is_empty() {
        return hinted(format!("here it is {here}"));
    }
    let names = [
        ("queue", BalanceName::Queue),
        ("least-connections", BalanceName::LeastConnections),
        ("two-choices", BalanceName::TwoChoices),
        ("peak-ewma", BalanceName::PeakEwma),
        ("prequal", BalanceName::Prequal),
        ("round-robin", BalanceName::RoundRobin),
        ("random", BalanceName::Random),
        ("first", BalanceName::First),
        ("hash", BalanceName::Hash),
        ("sticky", BalanceName::Sticky),
    ];
    one_of(text, names)
}

fn hash_key(text: &str) -> Result<HashKey, Hint> {
    match text.split_once(':') {
        None if text == "client" => Ok(HashKey::Client),
        None if text == "path" => Ok(HashKey::Path),
        Some(("header", name)) if is_token(name) => Ok(HashKey::Header(name.to_ascii_lowercase())),
        Some(("cookie", name)) if is_token(name) => Ok(HashKey::Cookie(name.to_owned())),
        None if matches!(text, "header" | "cookie") => hinted(format!("name it: `{text}:NAME`")),
        None => Err(did_you_mean(text, ["client", "path"])),
        Some(_) => Err(None),
    }
}

fn cookie_name(text: &str) -> Result<String, Hint> {
    is_token(text).then(|| text.to_owned()).ok_or(None)
}

fn weight_of(text: &str) -> Result<u32, Hint> {
    match value::count(text) {
        Some(0) => hinted("a server without requests: leave it out, or write `backup = true`"),
        _ => count(text, 1..=256),
    }
}

fn count(text: &str, bounds: RangeInclusive<u64>) -> Result<u32, Hint> {
    let number = value::count(text).filter(|number| bounds.contains(number));
    number.map(|number| number as u32).ok_or(None)
}

fn span(text: &str, bounds: RangeInclusive<u64>) -> Result<Nanos, Hint> {
    let span = Unit::Duration.number(text)?;
    bounds.contains(&span).then_some(Nanos(span)).ok_or(None)
}

fn failed_status(text: &str) -> Result<u16, Hint> {
    let status = value::status(text).filter(|status| (400..=599).contains(status));
    status.ok_or(None)
}

fn eject_after_of(text: &str) -> Result<Option<u32>, Hint> {
    let count = or_off(text, Unit::Count, 1..=1000, "for never")?;
    Ok(count.map(|count| count as u32))
}

/// A path, perhaps with a query.
pub(crate) fn check_path(text: &str) -> Result<String, Hint> {
    if text.contains("://") {
        return hinted("the path alone, as `/health`: every server is asked");
    }
    match text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        true => Ok(text.to_owned()),
        false if !text.starts_with('/') => hinted(format!("it begins with a slash: `/{text}`")),
        false => Err(None),
    }
}

fn protocol_of(text: &str) -> Result<UpstreamProtocol, Hint> {
    match text.to_ascii_lowercase().as_str() {
        "h2" | "h2c" | "grpc" | "2" | "http/2" => hinted("write `http2`"),
        "1.1" | "http/1.1" | "h1" => hinted("write `http1`"),
        _ => one_of(
            text,
            [
                ("http1", UpstreamProtocol::Http1),
                ("http2", UpstreamProtocol::Http2),
            ],
        ),
    }
}

fn certificate_name(text: &str) -> Result<String, Hint> {
    match text.contains('*') {
        true => hinted("a name of one server: a certificate for `*.shop.example` is good for it"),
        false => super::tls::server_name(text),
    }
}

/// Where the short form of an upstream was written, and the table that it stands for.
pub(crate) fn table_of(
    name: String,
    servers: Vec<UpstreamServer>,
    origin: &Origin,
) -> KeyedTable<UpstreamTable> {
    let table = UpstreamTable {
        name,
        servers,
        ..UpstreamTable::default()
    };
    KeyedTable::whole(table, origin)
}
