//! Keys of the settings that are tables with many keys, for reference pages and help texts.
//!
//! Takes nothing, gives texts. What a key takes is written where its table is read, in `parse`.

/// A key of such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey {
    /// As it is written.
    pub name: &'static str,
    /// As it would be written; empty where there is none, or no value.
    pub default: &'static str,
    /// What it is, without a full stop.
    pub meaning: &'static str,
}

/// `key "default" "meaning"`
macro_rules! table_keys {
    ($($name:ident $default:literal $meaning:literal)*) => {
        &[$(TableKey { name: stringify!($name), default: $default, meaning: $meaning }),*]
    };
}

/// Of `[[route]]`.
pub(super) const ROUTE: &[TableKey] = table_keys! {
    app "" "application, as MODULE:ATTRIBUTE; a route has one of `app`, `upstream` and `dir`"
    upstream "" "name of an `[[upstream]]`"
    dir "" "folder of files; the `static_*` settings hold for it too"
    fallback "" "file in `dir` for paths without a file"
    path "/" "beginning of the path: `/ws` stands for `/ws` and everything below it"
    host "" "host name; `*.example.org` matches all subdomains"
    methods "" "methods, as `[\"GET\", \"HEAD\"]`"
    header "" "name of a header, or `name: value`"
    from "" "addresses or networks of clients, as `[\"10.0.0.0/8\"]`"
    root_path "" "as the setting `root_path`, for this application"
    interface "auto" "as the setting `interface`, for this application"
    pool "" "`[[pool]]` that runs the application; without it, the application has a pool of its own"
    disconnect_cancel "" "as the setting `disconnect_cancel`, for this ASGI application"
    strip "false" "remove the path of the route from the path that the upstream gets"
    request_timeout "" "as `request_timeout` of the upstream, for this route"
    stream_requests "" "as `stream_requests` of the upstream, for this route"
    request_headers "" "changes of the headers that the upstream gets: `{ set = { \"X-Client\" = \"{client}\" }, remove = [\"X-Debug\"] }`"
    response_headers "" "changes of the headers of responses, in the same form"
    body_max "" "maximum size of a request body, in place of `body_bytes_max`"
    basic_auth "" "file of users with bcrypt hashes (`htpasswd -B`), who alone may pass"
    forward_auth "" "server that decides whether a request may pass: `{ upstream = \"login\", path = \"/check\", copy = [\"X-User\"] }`"
    rate_limit "" "rate of one client above which requests get 429: `{ rate = \"10/s\", burst = 20 }`. `by = \"header:X-Api-Key\"` tells clients apart by a header instead of `prefix_v4` (32) or `prefix_v6` (64) bits of the address"
};

/// Of `[[upstream]]`.
pub(super) const UPSTREAM: &[TableKey] = table_keys! {
    name "" "name, which routes name; required"
    servers "" "URLs of the servers; required without `[[upstream.server]]`"
    server "" "server with values of its own, as `[[upstream.server]]` with `url`, `slots`, `weight` and `backup`"
    balance "queue" "rule that picks a server: `queue` (the least loaded one with a free slot; requests wait while there is none), `least-connections`, `two-choices`, `peak-ewma`, `prequal`, `round-robin`, `random`, `first`, `hash` or `sticky`"
    hash_by "" "what `hash` goes by: `client`, `path`, `header:NAME` or `cookie:NAME`"
    sticky_cookie "milepost-server" "cookie that `sticky` goes by"
    slots "" "maximum number of requests in flight at each server; without it, the server's load report counts, or the number is learnt; a server that answers within a fraction of a millisecond gets as many as it answers in a millisecond"
    slots_max "256" "maximum number of slots that is learnt"
    trust_reports "true" "use the load reports of the servers"
    queue_len_max "" "as the setting `queue_len_max`, for this upstream"
    queue_timeout "" "as the setting `queue_timeout`, for this upstream"
    request_timeout "" "as the setting `request_timeout`, for this upstream"
    connect_timeout "5s" "maximum time to open a connection"
    response_timeout "60s" "maximum time until the first byte of a response, and between two reads"
    idle_timeout "50s" "maximum time that an idle connection stays open"
    idle_max "64" "maximum number of idle connections"
    resolve_every "10s" "time after which names are resolved again"
    retries "2" "maximum number of further tries of a request"
    retry_budget "10%" "maximum number of further tries, as a share of the requests"
    retry_status "" "statuses of responses after which a request is tried again, as `[502, 503]`"
    eject_after "5" "failures in a row after which a server gets no requests, or off"
    eject_time "30s" "time for which such a server gets no requests"
    slow_start "30s" "time afterwards in which it gets more and more requests"
    check "" "path to ask each server for, to find out whether it works"
    check_interval "2s" "time between two checks"
    check_rise "2" "successful checks in a row after which a server works"
    check_fall "3" "failed checks in a row after which a server does not work"
    check_timeout "2s" "maximum time of a check"
    stream_requests "false" "pass on a body of more than 64 KB, or without a length, while it arrives; the request holds its slot meanwhile. Otherwise a request waits for a slot once its body is there. gRPC is always passed on so"
    tunnels_max "10000" "maximum number of open connections of a process that have changed their protocol, such as WebSocket; they hold no slot"
    tunnel_idle "1h" "maximum time of such a connection without a byte"
    protocol "http1" "`http1`, or `http2` for servers that are asked by HTTP/2, such as gRPC: with `https` by ALPN, otherwise by prior knowledge"
    send_proxy "false" "send a PROXY protocol header; with `http1` only"
    proxy_status "false" "say in a Proxy-Status header (RFC 9209) why the proxy answers 502, 503 or 504"
    tls_ca "" "authorities that certify the servers, a file in PEM; without it, those of the system"
    tls_name "" "name in the certificate of the servers; without it, that of the URL"
    tls_verify "true" "verify the certificates of the servers"
    tls_cert "" "certificate that the servers get, a file in PEM"
    tls_key "" "key of `tls_cert`; without it, in the same file"
};

#[cfg(test)]
mod tests {
    use serde::de::{DeserializeOwned, IntoDeserializer as _};
    use toml_edit::{InlineTable, Value};

    use super::*;
    use crate::parse::routes::RouteTable;
    use crate::parse::upstreams::UpstreamTable;

    /// The keys that a table can have, as the fault of another key names them.
    fn keys_of<T: DeserializeOwned + std::fmt::Debug>() -> Vec<String> {
        let table = InlineTable::from_iter([("no_key", 1)]);
        let error = T::deserialize(Value::InlineTable(table).into_deserializer()).unwrap_err();
        let text = error.to_string();
        let (_, expected) = text.split_once("expected one of ").unwrap();
        let names = expected.trim_end().split(", ");
        let mut names: Vec<String> = names
            .map(|name| name.trim_matches('`').to_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn every_key_of_a_table_is_described() {
        let check = |described: &[TableKey], mut known: Vec<String>| {
            let mut names: Vec<&str> = described.iter().map(|key| key.name).collect();
            names.sort_unstable();
            assert_eq!(
                names,
                known.iter_mut().map(|name| &**name).collect::<Vec<_>>()
            );
            for key in described {
                assert!(
                    !key.meaning.ends_with('.') && !key.meaning.contains('|'),
                    "{}",
                    key.name
                );
            }
        };
        check(ROUTE, keys_of::<RouteTable>());
        check(UPSTREAM, keys_of::<UpstreamTable>());
    }
}
