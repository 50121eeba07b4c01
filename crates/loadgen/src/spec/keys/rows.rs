//! The rows of the table of keys, by topic.

use super::{FlagForm, FlagGroup, Key};

/// All keys, in the order of help texts within a topic.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "url",
        help: "Target: `http://host:port/path`, `https://...` or `http+unix://%2Fpath%2Fto%2Fsocket/path`",
        group: FlagGroup::Target,
        form: FlagForm::Argument,
        placeholder: "URL",
        doc: "Every address of a host name has to be allowed; the first IPv4 address is used, or else the first one. Spaces and letters beyond ASCII have to be percent-encoded. A fragment is left out.",
        example: "http://127.0.0.1:8000/",
        ..Key::PLAIN
    },
    Key {
        name: "unix",
        help: "Connect to this unix socket; the URL gives host and path",
        group: FlagGroup::Target,
        placeholder: "PATH",
        example: "/run/shop.sock",
        ..Key::PLAIN
    },
    Key {
        name: "cacert",
        help: "PEM file of the certificate authorities that are trusted",
        group: FlagGroup::Target,
        placeholder: "FILE",
        example: "ca.pem",
        doc: "An https target needs it or `--insecure`; the system's own file is often /etc/ssl/certs/ca-certificates.crt.",
        ..Key::PLAIN
    },
    Key {
        name: "insecure",
        help: "Do not check the server's certificate",
        group: FlagGroup::Target,
        form: FlagForm::Switch,
        ..Key::PLAIN
    },
    Key {
        name: "no_resumption",
        help: "Make every TLS handshake a full one",
        group: FlagGroup::Target,
        form: FlagForm::Switch,
        doc: "Otherwise the connections after a thread's first one resume its session, as browsers do; the result has their number.",
        ..Key::PLAIN
    },
    Key {
        name: "server_name",
        help: "Host name for TLS, if it is not the URL's host",
        group: FlagGroup::Target,
        placeholder: "NAME",
        example: "shop.example",
        ..Key::PLAIN
    },
    Key {
        name: "i_own_this_target",
        help: "Allow a target outside loopback, private and test networks",
        group: FlagGroup::Target,
        form: FlagForm::Switch,
        doc: "Without it these are allowed: unix sockets, loopback, 10/8, 172.16/12, 192.168/16, 169.254/16, 100.64/10, 192.0.2/24, 198.51.100/24, 203.0.113/24, 198.18/15, fe80::/10, fc00::/7, 2001:db8::/32.",
        ..Key::PLAIN
    },
    Key {
        name: "duration",
        help: "How long to measure",
        group: FlagGroup::Load,
        short: Some('d'),
        placeholder: "TIME",
        default: "10s",
        doc: "Without it and without `--requests` the run takes 10 s. A rate or a number of connections that changes over time runs to the end of its last step, a recording or a burst until everything is sent.",
        example: "60s",
        ..Key::PLAIN
    },
    Key {
        name: "requests",
        help: "How many requests to measure, failed ones included",
        group: FlagGroup::Load,
        short: Some('n'),
        placeholder: "N",
        doc: "With `--duration` as well, the run ends at the first of the two bounds.",
        example: "100000",
        ..Key::PLAIN
    },
    Key {
        name: "rate",
        help: "Requests a second, sent on time whether replies come or not: `2000`, steps `500:10s,1000:10s`, a ramp `100..2000:30s`",
        group: FlagGroup::Load,
        short: Some('r'),
        placeholder: "RATE",
        doc: "This is an open load: latency counts from the time at which a request was due, so that the time of a stall counts for every request that was due in it. Without a rate the load is closed: each connection sends its next request after its reply. The rate of the last step stays; steps begin with the warm-up.",
        example: "100..2000:30s",
        ..Key::PLAIN
    },
    Key {
        name: "arrivals",
        help: "Spacing of the requests of a rate: constant or poisson",
        group: FlagGroup::Load,
        placeholder: "HOW",
        default: "constant",
        choices: &["constant", "poisson"],
        doc: "`poisson` has the exponential gaps of independent clients.",
        ..Key::PLAIN
    },
    Key {
        name: "seed",
        help: "Seed of the poisson gaps: equal seeds give equal gaps",
        group: FlagGroup::Load,
        placeholder: "N",
        default: "1",
        ..Key::PLAIN
    },
    Key {
        name: "burst",
        help: "Send one burst: every connection sends when all are open, and nothing after that",
        group: FlagGroup::Load,
        form: FlagForm::Switch,
        ..Key::PLAIN
    },
    Key {
        name: "replay",
        help: "Replay the requests of an access log at its own pace",
        group: FlagGroup::Load,
        placeholder: "FILE",
        example: "access.log.1.gz",
        doc: "The log may have any form that `milepost report` reads, plain or compressed. If it has whole seconds only, the requests of a second are spread over it.",
        ..Key::PLAIN
    },
    Key {
        name: "replay_speed",
        help: "Speed of the replay against the recording",
        group: FlagGroup::Load,
        placeholder: "FACTOR",
        default: "1",
        example: "2.5",
        ..Key::PLAIN
    },
    Key {
        name: "replay_methods",
        help: "Recorded requests to send: safe (GET, HEAD, OPTIONS; others are refused) or all",
        group: FlagGroup::Load,
        placeholder: "WHICH",
        default: "safe",
        choices: &["safe", "all"],
        doc: "A log has no bodies: with `all`, requests with other methods get the body of `--body`, `--body-file` or `--body-size`, or an empty one.",
        ..Key::PLAIN
    },
    Key {
        name: "warm_up",
        help: "Time to run before measuring begins",
        group: FlagGroup::Load,
        placeholder: "TIME",
        example: "2s",
        ..Key::PLAIN
    },
    Key {
        name: "begin",
        help: "When measuring begins: now, warm-up (after `--warm-up`) or open (every connection has had a reply)",
        group: FlagGroup::Load,
        placeholder: "WHEN",
        choices: &["now", "warm-up", "open"],
        doc: "The default is `warm-up` with `--warm-up`, otherwise `now`.",
        ..Key::PLAIN
    },
    Key {
        name: "connections",
        help: "Concurrent connections; also steps and ramps: `10..250:30s`",
        group: FlagGroup::Connections,
        short: Some('c'),
        placeholder: "N",
        default: "50",
        doc: "A rate uses as many of them as it needs. A request that is due while all are busy waits; its latency includes the wait, and the result says so. Connections beyond a falling number stay open and unused.",
        example: "64",
        ..Key::PLAIN
    },
    Key {
        name: "pipeline",
        help: "Requests in flight on each connection",
        group: FlagGroup::Connections,
        placeholder: "N",
        default: "1",
        ..Key::PLAIN
    },
    Key {
        name: "requests_per_connection",
        help: "Requests on a connection before it is closed and another one opened",
        group: FlagGroup::Connections,
        alias: "per_connection",
        placeholder: "N",
        doc: "`1` gives short-lived connections. Without it connections are kept open.",
        example: "1",
        ..Key::PLAIN
    },
    Key {
        name: "close",
        help: "How a connection ends after its last request: rst, fin or server",
        group: FlagGroup::Connections,
        placeholder: "HOW",
        default: "fin",
        choices: &["rst", "fin", "server"],
        doc: "`fin`: the generator closes it, and a port stays in TIME_WAIT. `rst`: the generator resets it, which leaves no port and is not measured. `server`: the last request has `Connection: close`.",
        ..Key::PLAIN
    },
    Key {
        name: "connect_rate",
        help: "Connections opened a second at the beginning of the run",
        group: FlagGroup::Connections,
        placeholder: "N",
        example: "5000",
        doc: "Without it they are opened as fast as possible, which fills accept queues: a connection that finds no room is tried again after 1, 3 and 7 s.",
        ..Key::PLAIN
    },
    Key {
        name: "timeout",
        help: "Maximum time to wait for a connection, and for a reply",
        group: FlagGroup::Connections,
        placeholder: "TIME",
        default: "30s",
        ..Key::PLAIN
    },
    Key {
        name: "source",
        help: "Local addresses to connect from, in turn: `127.0.0.2-127.0.0.9,127.0.1.1`",
        group: FlagGroup::Connections,
        placeholder: "ADDRESSES",
        doc: "On loopback, further addresses are chosen when one has too few ports.",
        example: "127.0.0.2-127.0.0.9",
        ..Key::PLAIN
    },
    Key {
        name: "method",
        help: "Method of the requests",
        group: FlagGroup::Requests,
        short: Some('X'),
        placeholder: "NAME",
        default: "GET",
        doc: "The default with a body is POST.",
        example: "PUT",
        ..Key::PLAIN
    },
    Key {
        name: "header",
        help: "Header field of every request: `Name: value`",
        group: FlagGroup::Requests,
        alias: "headers",
        short: Some('H'),
        form: FlagForm::Repeated,
        placeholder: "HEADER",
        example: "Accept: application/json",
        ..Key::PLAIN
    },
    Key {
        name: "body",
        help: "Body of the requests",
        group: FlagGroup::Requests,
        placeholder: "TEXT",
        ..Key::PLAIN
    },
    Key {
        name: "body_file",
        help: "File with the body",
        group: FlagGroup::Requests,
        placeholder: "FILE",
        example: "order.json",
        ..Key::PLAIN
    },
    Key {
        name: "body_size",
        help: "Size of a generated body",
        group: FlagGroup::Requests,
        placeholder: "SIZE",
        example: "64K",
        ..Key::PLAIN
    },
    Key {
        name: "requests_file",
        help: "TOML file with a mix of requests and their weights",
        group: FlagGroup::Requests,
        placeholder: "FILE",
        example: "mix.toml",
        doc: "Each kind of request is a table `[[request]]` with a `target`; `weight`, `method`, `headers`, `body` and the expectations of its reply are optional.",
        ..Key::PLAIN
    },
    Key {
        name: "expect_status",
        help: "Expected statuses: `200,304`, `2xx`, `200-204`",
        group: FlagGroup::Replies,
        placeholder: "LIST",
        default: "200-399",
        ..Key::PLAIN
    },
    Key {
        name: "expect_length",
        help: "Expected length of every body",
        group: FlagGroup::Replies,
        placeholder: "SIZE",
        example: "1024",
        ..Key::PLAIN
    },
    Key {
        name: "expect_body",
        help: "Expected body: same (as the first one of its kind of request) or sha256:HEX",
        group: FlagGroup::Replies,
        placeholder: "WHAT",
        example: "same",
        ..Key::PLAIN
    },
    Key {
        name: "bad_clients",
        help: "Misbehaving clients beside the measured ones: `100:never-reads`",
        group: FlagGroup::BadClients,
        form: FlagForm::Repeated,
        placeholder: "N:WHAT",
        doc: "The behaviours are `never-reads`, `reads-at=1K` (bytes a second), `trickles=1s` (time between two bytes of a request), `idle` (sends nothing), `half-closes` and `resets=100ms` (after its request). `:receive-buffer=4K` sets the receive buffers. A connection that the server ends is opened again.",
        example: "50:reads-at=1K:receive-buffer=4K",
        ..Key::PLAIN
    },
    Key {
        name: "threads",
        help: "Threads of the generator; the connections are divided among them",
        group: FlagGroup::Machine,
        short: Some('t'),
        placeholder: "N",
        default: "1",
        doc: "More threads are used if one table of descriptors is too small for the connections.",
        ..Key::PLAIN
    },
    Key {
        name: "cpus",
        help: "Processors that the threads may use: `0,2-3`",
        group: FlagGroup::Machine,
        placeholder: "LIST",
        example: "1",
        ..Key::PLAIN
    },
    Key {
        name: "timestamps",
        help: "Time of arrival of a reply: read (by the generator) or kernel (received by this machine)",
        group: FlagGroup::Machine,
        placeholder: "WHEN",
        default: "read",
        choices: &["read", "kernel"],
        doc: "With `kernel`, the time that a reply waits for a busy generator is not part of its latency and has a row of its own, `unread`. Needs TCP without TLS.",
        ..Key::PLAIN
    },
    Key {
        name: "spin",
        help: "Time to spin instead of sleeping before a request is due",
        group: FlagGroup::Machine,
        placeholder: "TIME",
        default: "0",
        doc: "Requests of a rate then leave within a microsecond of their time, and cost more processor time.",
        example: "60us",
        ..Key::PLAIN
    },
    Key {
        name: "server_pid",
        help: "Server process to watch, with its children",
        group: FlagGroup::Machine,
        form: FlagForm::Repeated,
        placeholder: "PID",
        doc: "The result then has the server's processor time per request, its memory and its context switches.",
        example: "4711",
        ..Key::PLAIN
    },
];
