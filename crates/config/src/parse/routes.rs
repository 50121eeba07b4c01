//! Routes to applications, upstreams and folders: which one, which requests are for it, and what becomes of them.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;
use telemetry::Nanos;

use super::pools::{header_of, host_of, method_of, network_of, pool_name, run_time};
use super::value::{self, Unit};
use super::{Hint, app, one_of, url_of};
use crate::builder::{AppName, KeyedTable};
use crate::fault::ConfigFault;
use crate::parse::headers::{self, ForwardAuthTable};
use crate::parse::rates::RateLimitTable;
use crate::tables::{Contradiction, SettingTable, Structure, keys, read, taken};
use crate::typed::{FieldChanges, Interface, RateLimit};

keys! {
    app_name: one(app_of) -> AppName, "an application (as `chat:app`)";
    path: one(url_of) -> String, "the beginning of a URL path (as `/ws`)";
    host: one(host_of) -> String, "a host's name (as `shop.example`, or `*.example.com`)";
    methods: many(method_of) -> Vec<String>, "methods (as `[\"GET\", \"HEAD\"]`)";
    header: one(header_of) -> (String, Option<String>), "a header's name, or `NAME: VALUE`";
    networks: many(network_of) -> Vec<(IpAddr, u8)>, "addresses or networks (as `[\"10.0.0.0/8\"]`)";
    pool: one(pool_name) -> String, "a pool's name (as `chat`)";
    upstream: one(pool_name) -> String, "an upstream's name (as `api`)";
    interface: one(interface_of) -> Interface, "one of `auto`, `asgi`, `asgi2`, `wsgi`";
    switch: one(|text| value::switch(text).ok_or(None)) -> bool, "`true` or `false`";
    switch_maybe: one(|text| value::switch(text).ok_or(None).map(Some)) -> Option<bool>, "`true` or `false`";
    size: one(|text| Unit::Size.number(text)) -> u64, "a size (as `64K`, `10M`, `1GiB`)";
    run_time_maybe: one(run_time) -> Option<Nanos>, "a duration from 1ms to 24h (as `60s`), or `off`";
    dir: one(super::folder) -> PathBuf, "a folder (as `./public`)";
    fallback: one(super::files::beneath) -> String, "a file beneath the folder (as `index.html`)";
    file: one(super::file) -> PathBuf, "a file of users, as `htpasswd -B` makes it";
}

/// `[[route]]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTable {
    #[serde(default, deserialize_with = "app_name")]
    pub app: Option<AppName>,
    #[serde(default, deserialize_with = "upstream")]
    pub upstream: Option<String>,
    #[serde(default, deserialize_with = "dir")]
    pub dir: Option<PathBuf>,
    /// Beneath `dir`.
    #[serde(default, deserialize_with = "fallback")]
    pub fallback: Option<String>,
    /// Without a slash at its end; empty for all paths.
    #[serde(default, deserialize_with = "path")]
    pub path: String,
    #[serde(default, deserialize_with = "host")]
    pub host: Option<String>,
    #[serde(default, deserialize_with = "methods")]
    pub methods: Vec<String>,
    #[serde(default, deserialize_with = "header")]
    pub header: Option<(String, Option<String>)>,
    #[serde(default, deserialize_with = "networks")]
    pub from: Vec<(IpAddr, u8)>,
    #[serde(default, deserialize_with = "interface")]
    pub interface: Interface,
    #[serde(default, deserialize_with = "path")]
    pub root_path: String,
    #[serde(default, deserialize_with = "pool")]
    pub pool: Option<String>,
    #[serde(default, deserialize_with = "switch")]
    pub strip: bool,
    #[serde(default, deserialize_with = "size")]
    pub body_max: Option<u64>,
    /// `Some(None)`: none, whatever the pool has.
    #[serde(default, deserialize_with = "run_time_maybe")]
    pub request_timeout: Option<Option<Nanos>>,
    /// `Some(None)`: never, whatever the pool has.
    #[serde(default, deserialize_with = "run_time_maybe")]
    pub disconnect_cancel: Option<Option<Nanos>>,
    /// In the place of the upstream's.
    #[serde(default, deserialize_with = "switch_maybe")]
    pub stream_requests: Option<bool>,
    #[serde(default, deserialize_with = "file")]
    pub basic_auth: Option<PathBuf>,
    /// Read apart, as the following ones: their keys have places of their own.
    #[serde(default, deserialize_with = "taken")]
    pub request_headers: FieldChanges,
    #[serde(default, deserialize_with = "taken")]
    pub response_headers: FieldChanges,
    #[serde(default, deserialize_with = "taken")]
    pub forward_auth: Option<KeyedTable<ForwardAuthTable>>,
    #[serde(default, deserialize_with = "taken")]
    pub rate_limit: Option<RateLimit>,
}

impl Structure for RouteTable {
    fn contradiction(&self) -> Option<Contradiction> {
        let found = |key, cause: &str, hint: &str| {
            let (cause, hint) = (cause.to_owned(), hint.to_owned());
            Some(Contradiction { key, cause, hint })
        };
        let targets = [
            ("app", self.app.is_some()),
            ("upstream", self.upstream.is_some()),
            ("dir", self.dir.is_some()),
        ];
        let mut named = targets.into_iter().filter(|(_, is_named)| *is_named);
        match (named.next(), named.next()) {
            (None, _) => {
                let hint = "name what answers: `app = \"chat:app\"`, `upstream = \"api\"` or `dir = \"public\"`";
                found("route", "a route to nothing", hint)
            }
            (Some((first, _)), Some((second, _))) => {
                let cause = format!("the route has `{first}` already");
                let hint =
                    "one of `app`, `upstream` and `dir`, and another `[[route]]` for the other";
                found(second, &cause, hint)
            }
            (Some(("dir", _)), None) => {
                let key = self.key_of_others()?;
                let hint = "leave it out: the route has a folder of files";
                found(key, "not a key of a route to files", hint)
            }
            (Some(_), None) if self.fallback.is_some() => {
                let hint = "leave it out: only a route with `dir` has files";
                found("fallback", "not a key of a route without files", hint)
            }
            (Some(("app", _)), None) => {
                if let Some((key, hint)) = self.key_of_upstreams() {
                    return found(key, "not a key of a route to an application", hint);
                }
                let is_useless =
                    self.interface == Interface::Wsgi && self.disconnect_cancel.is_some();
                let key = is_useless.then_some("disconnect_cancel")?;
                let hint =
                    "leave it out: a thread cannot be cancelled; `request_timeout` bounds its time";
                found(key, "not a key of a route to a WSGI application", hint)
            }
            (Some(_), None) if self.strip && self.path.is_empty() => {
                let hint = "name the beginning of the path: `path = \"/api\"`";
                found("strip", "there is nothing to remove", hint)
            }
            (Some(_), None) => {
                let key = self.key_of_applications()?;
                let hint = "leave it out: it is about applications, and the route has an upstream";
                found(key, "not a key of a route to an upstream", hint)
            }
        }
    }
}

impl RouteTable {
    /// A key that only routes to applications have.
    fn key_of_applications(&self) -> Option<&'static str> {
        let keys = [
            ("pool", self.pool.is_some()),
            ("interface", self.interface != Interface::Auto),
            ("root_path", !self.root_path.is_empty()),
            ("disconnect_cancel", self.disconnect_cancel.is_some()),
        ];
        let mut written = keys.into_iter().filter(|(_, is_written)| *is_written);
        written.next().map(|(key, _)| key)
    }

    /// A key that only routes to upstreams have, and what applications have in its place.
    fn key_of_upstreams(&self) -> Option<(&'static str, &'static str)> {
        let keys = [
            (
                "strip",
                self.strip,
                "for an application the prefix moves to SCRIPT_NAME: `root_path`",
            ),
            (
                "request_timeout",
                self.request_timeout.is_some(),
                "the `[[pool]]` of the application has one",
            ),
            (
                "stream_requests",
                self.stream_requests.is_some(),
                "ASGI applications get bodies while they arrive: `request_buffering`",
            ),
        ];
        let mut written = keys.into_iter().filter(|(_, is_written, _)| *is_written);
        written.next().map(|(key, _, hint)| (key, hint))
    }

    /// A key that routes to files do not have; tables are looked at where they are read.
    fn key_of_others(&self) -> Option<&'static str> {
        let keys = [
            ("strip", self.strip),
            ("body_max", self.body_max.is_some()),
            ("request_timeout", self.request_timeout.is_some()),
            ("stream_requests", self.stream_requests.is_some()),
        ];
        let mut written = keys.into_iter().filter(|(_, is_written)| *is_written);
        let own = written.next().map(|(key, _)| key);
        own.or_else(|| self.key_of_applications())
    }
}

/// A table with the tables in it, which have places of their own.
pub(crate) fn route(
    table: &SettingTable,
    faults: &mut Vec<ConfigFault>,
) -> Option<KeyedTable<RouteTable>> {
    let faults_len = faults.len();
    let mut own = table.clone();
    let [request_headers, response_headers, forward_auth, rate_limit] = [
        "request_headers",
        "response_headers",
        "forward_auth",
        "rate_limit",
    ]
    .map(|key| own.take_table(key, faults));
    let route = read::<RouteTable>(&own, faults);
    let refused = route.as_ref().and_then(|route| match route {
        RouteTable { app: Some(_), .. } => Some((
            "not a key of a route to an application",
            "applications see the headers of clients as they are",
        )),
        RouteTable { dir: Some(_), .. } => Some((
            "not a key of a route to files",
            "files need no headers of requests",
        )),
        _ => None,
    });
    if let Some((headers, (cause, hint))) = request_headers.as_ref().zip(refused) {
        let fault = ConfigFault::statement(headers.origin.clone(), cause);
        faults.push(fault.with_hint(hint));
    }
    let request_headers = request_headers.map(|table| headers::request_headers(&table, faults));
    let response_headers = response_headers.map(|table| headers::response_headers(&table, faults));
    let forward_auth = forward_auth.and_then(|table| {
        let read = read::<ForwardAuthTable>(&table, faults);
        read.map(|value| KeyedTable::new(value, &table))
    });
    let rate_limit = rate_limit.and_then(|table| read::<RateLimitTable>(&table, faults));
    let route = RouteTable {
        request_headers: request_headers.unwrap_or_default(),
        response_headers: response_headers.unwrap_or_default(),
        forward_auth,
        rate_limit: rate_limit.map(RateLimit::from),
        ..route?
    };
    (faults.len() == faults_len).then(|| KeyedTable::new(route, table))
}

fn app_of(text: &str) -> Result<AppName, Hint> {
    app(text)?.ok_or(None)
}

fn interface_of(text: &str) -> Result<Interface, Hint> {
    let interfaces = [
        ("auto", Interface::Auto),
        ("asgi", Interface::Asgi),
        ("asgi2", Interface::Asgi2),
        ("wsgi", Interface::Wsgi),
    ];
    one_of(text, interfaces)
}
