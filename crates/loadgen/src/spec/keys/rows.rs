//! The rows of the table of keys, by topic.

use super::FlagForm::{Argument, Repeated, Switch};
use super::Key;

/// All keys, in the order of help texts within a topic.
pub(super) const KEYS: &[Key] = crate::key_table! {
    Target {
        "url" "Target: `http://host:port/path` or `https://...`" {
            form: Argument, placeholder: "URL", example: "http://127.0.0.1:8000/",
            doc: "Every address of a host name has to be allowed; the first IPv4 address is used, or else the first one. Spaces and letters beyond ASCII have to be percent-encoded. A fragment is left out."
        }
        "unix" "Connect to this unix socket; the URL gives host and path" {
            placeholder: "PATH", example: "/run/shop.sock"
        }
        "cacert" "PEM file of the certificate authorities that are trusted" {
            placeholder: "FILE", example: "ca.pem",
            doc: "An https target needs it or `--insecure`; the system's own file is often /etc/ssl/certs/ca-certificates.crt."
        }
        "insecure" "Do not check the server's certificate" { form: Switch }
        "no_resumption" "Make every TLS handshake a full one" {
            form: Switch,
            doc: "Otherwise the connections after a thread's first one resume its session, as browsers do; the result has their number."
        }
        "server_name" "Host name for TLS, if it is not the URL's host" { placeholder: "NAME", example: "shop.example" }
        "i_own_this_target" "Allow a target outside loopback, private and test networks" {
            form: Switch,
            doc: "Without it these are allowed: unix sockets, loopback, 10/8, 172.16/12, 192.168/16, 169.254/16, 100.64/10, 192.0.2/24, 198.51.100/24, 203.0.113/24, 198.18/15, fe80::/10, fc00::/7, 2001:db8::/32."
        }
    }
    Load {
        "duration" "How long to measure" {
            short: Some('d'), placeholder: "TIME", default: "10s", example: "60s",
            doc: "Without it and without `--requests` the run takes 10 s. A rate or a number of connections that changes over time runs to the end of its last step, a recording or a burst until everything is sent."
        }
        "requests" "How many requests to measure, failed ones included" {
            short: Some('n'), placeholder: "N", example: "100000",
            doc: "With `--duration` as well, the run ends at the first of the two bounds."
        }
        "rate" "Requests a second, sent on time whether replies come or not: `2000`, steps `500:10s,1000:10s`, a ramp `100..2000:30s`" {
            short: Some('r'), placeholder: "RATE", example: "100..2000:30s",
            doc: "This is an open load: latency counts from the time at which a request was due, so that the time of a stall counts for every request that was due in it. Without a rate the load is closed: each connection sends its next request after its reply. The rate of the last step stays; steps begin with the warm-up."
        }
        "arrivals" "Spacing of the requests of a rate: constant or poisson" {
            placeholder: "HOW", default: "constant", choices: &["constant", "poisson"],
            doc: "`poisson` has the exponential gaps of independent clients."
        }
        "seed" "Seed of the poisson gaps: equal seeds give equal gaps" { placeholder: "N", default: "1" }
        "burst" "Send one burst: every connection sends when all are open, and nothing after that" { form: Switch }
        "replay" "Replay the requests of an access log at its own pace" {
            placeholder: "FILE", example: "access.log.1.gz",
            doc: "The log may have any form that `milepost report` reads, plain or compressed. If it has whole seconds only, the requests of a second are spread over it."
        }
        "replay_speed" "Speed of the replay against the recording" {
            placeholder: "FACTOR", default: "1", example: "2.5"
        }
        "replay_methods" "Recorded requests to send: safe (GET, HEAD, OPTIONS; others are refused) or all" {
            placeholder: "WHICH", default: "safe", choices: &["safe", "all"],
            doc: "A log has no bodies: with `all`, requests with other methods get the body of `--body`, `--body-file` or `--body-size`, or an empty one."
        }
        "warm_up" "Time to run before measuring begins" { placeholder: "TIME", example: "2s" }
        "begin" "When measuring begins: now, warm-up (after `--warm-up`) or open (every connection has had a reply)" {
            placeholder: "WHEN", choices: &["now", "warm-up", "open"],
            doc: "The default is `warm-up` with `--warm-up`, otherwise `now`."
        }
    }
    Connections {
        "connections" "Concurrent connections" {
            short: Some('c'), placeholder: "N", default: "50", example: "64",
            doc: "A rate uses as many of them as it needs. A request that is due while all are busy waits; its latency includes the wait, and the result says so."
        }
        "pipeline" "Requests in flight on each connection of HTTP/1.1" { placeholder: "N", default: "1" }
        "http2" "Speak HTTP/2: with TLS by ALPN, without TLS by prior knowledge" {
            form: Switch,
            doc: "A connection counts as established when the server's settings have come. A server that does not choose HTTP/2 ends the run with a message. `--pipeline`, `--close server` and `--bad-clients` are of HTTP/1.1."
        }
        "streams" "Concurrent streams on each connection of HTTP/2" {
            short: Some('m'), alias: "max_concurrent_streams", placeholder: "N", default: "1", example: "32",
            doc: "Each stream carries one request, so that `--connections` times `--streams` requests are in flight at most. No more streams are opened than the server's settings allow. A request that is due while every stream is busy waits for one; its latency includes the wait."
        }
        "websocket" "Speak WebSocket: each request is a message, and its reply the next message" {
            form: Switch,
            doc: "A connection counts as established when the server has answered its handshake, which has the fields of `--header`. The message is the body: `--body` is sent as text, others as binary; without one it has 64 bytes. `--pipeline` is the number of messages in flight. Pings of the server are answered. Messages are not compressed."
        }
        "requests_per_connection" "Requests on a connection before it is closed and another one opened" {
            alias: "per_connection", placeholder: "N", example: "1",
            doc: "`1` gives short-lived connections. Without it connections are kept open."
        }
        "close" "How a connection ends after its last request: rst, fin or server" {
            placeholder: "HOW", default: "fin", choices: &["rst", "fin", "server"],
            doc: "`fin`: the generator closes it, and a port stays in TIME_WAIT. `rst`: the generator resets it, which leaves no port and is not measured. `server`: the last request has `Connection: close`."
        }
        "connect_rate" "Connections opened a second at the beginning of the run" {
            placeholder: "N", example: "5000",
            doc: "Without it they are opened as fast as possible, which fills accept queues: a connection that a full queue drops is tried again after 1, 3 and 7 s."
        }
        "timeout" "Maximum time to wait for a connection, and for a reply" { placeholder: "TIME", default: "30s" }
        "source" "Local addresses to connect from, in turn: `127.0.0.2-127.0.0.9,127.0.1.1`" {
            placeholder: "ADDRESSES", example: "127.0.0.2-127.0.0.9",
            doc: "On loopback, further addresses are chosen when one has too few ports."
        }
    }
    Requests {
        "method" "Method of the requests" {
            short: Some('X'), placeholder: "NAME", default: "GET", example: "PUT",
            doc: "The default with a body is POST."
        }
        "header" "Header field of every request: `Name: value`" {
            form: Repeated, short: Some('H'), alias: "headers", placeholder: "HEADER", example: "Accept: application/json"
        }
        "body" "Body of the requests" { placeholder: "TEXT" }
        "body_file" "File with the body" { placeholder: "FILE", example: "order.json" }
        "body_size" "Size of a generated body" { placeholder: "SIZE", example: "64K" }
        "requests_file" "TOML file with a mix of requests and their weights" {
            placeholder: "FILE", example: "mix.toml",
            doc: "Each kind of request is a table `[[request]]` with a `target`; `weight`, `method`, `headers`, `body` and the expectations of its reply are optional."
        }
    }
    Replies {
        "expect_status" "Expected statuses: `200,304`, `2xx`, `200-204`" { placeholder: "LIST", default: "200-399" }
        "expect_length" "Expected length of every body" { placeholder: "SIZE", example: "1024" }
        "expect_body" "Expected body: same (as the first one of its kind of request) or sha256:HEX" {
            placeholder: "WHAT", example: "same"
        }
    }
    BadClients {
        "bad_clients" "Misbehaving clients beside the measured ones: `100:never-reads`" {
            form: Repeated, placeholder: "N:WHAT", example: "50:reads-at=1K:receive-buffer=4K",
            doc: "The behaviours are `never-reads`, `reads-at=1K` (bytes a second), `trickles=1s` (time between two bytes of a request), `idle` (sends nothing), `half-closes` and `resets=100ms` (after its request). `:receive-buffer=4K` sets the receive buffers. A connection that the server ends is opened again."
        }
    }
    Machine {
        "threads" "Threads of the generator; the connections are divided among them" {
            short: Some('t'), placeholder: "N", default: "1",
            doc: "More threads are used if one table of descriptors is too small for the connections."
        }
        "cpus" "Processors that the threads may use: `0,2-3`" { placeholder: "LIST", example: "1" }
        "timestamps" "Time of arrival of a reply: read (by the generator) or kernel (received by this machine)" {
            placeholder: "WHEN", default: "read", choices: &["read", "kernel"],
            doc: "With `kernel`, the time that a reply waits for a busy generator is not part of its latency and has a row of its own, `unread`. Needs TCP without TLS."
        }
        "spin" "Time to spin instead of sleeping before a request is due" {
            placeholder: "TIME", default: "0", example: "60us",
            doc: "Requests of a rate then leave within a microsecond of their time, and cost more processor time."
        }
        "server_pid" "Server process to watch, with its children" {
            form: Repeated, placeholder: "PID", example: "4711",
            doc: "The result then has the server's processor time per request, its memory and its context switches."
        }
    }
};
