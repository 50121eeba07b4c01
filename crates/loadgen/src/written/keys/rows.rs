//! The rows of the table of keys, by topic.

use super::*;

keys! {
    url: One = "What is asked: `http://host:port/path`, `https://...` or `http+unix://%2Fpath%2Fto%2Fsocket/path`" {
        group: Group::Target, form: Form::Argument, placeholder: "URL",
        doc: "Of a name's addresses all have to be allowed, and the first IPv4 address is used, or else the first one. Spaces and letters beyond ASCII are percent-encoded by whoever writes it. A fragment is left out.",
        example: "http://127.0.0.1:8000/",
    }
    unix: One = "Connect to this unix socket; the URL gives host and path" {
        group: Group::Target, placeholder: "PATH", example: "/run/shop.sock",
    }
    cacert: One = "PEM file of the authorities that the server's certificate is checked with" {
        group: Group::Target, placeholder: "FILE", example: "ca.pem",
        doc: "An https target needs it, or `--insecure`; the system's own is often /etc/ssl/certs/ca-certificates.crt.",
    }
    insecure: One = "Do not check the server's certificate" {
        group: Group::Target, form: Form::Switch,
    }
    no_resumption: One = "Make every TLS handshake a full one" {
        group: Group::Target, form: Form::Switch,
        doc: "Otherwise connections after a thread's first one resume its session, as browsers do; how many did is in the result.",
    }
    server_name: One = "Name that TLS asks for and checks, if it is not the URL's host" {
        group: Group::Target, placeholder: "NAME", example: "shop.example",
    }
    i_own_this_target: One = "Allow a target that is neither loopback nor a private or test address" {
        group: Group::Target, form: Form::Switch,
        doc: "Without it these are allowed: unix sockets, loopback, 10/8, 172.16/12, 192.168/16, 169.254/16, 100.64/10, 192.0.2/24, 198.51.100/24, 203.0.113/24, 198.18/15, fe80::/10, fc00::/7, 2001:db8::/32.",
    }
    duration: One = "Counted time" {
        group: Group::Load, short: Some('d'), placeholder: "TIME", default: "10s",
        doc: "The default is used when neither it nor `--requests` is given: for a rate or a number of connections that changes until that has ended, for a recording or a burst until all is sent.",
        example: "60s",
    }
    requests: One = "Counted requests, failed ones included" {
        group: Group::Load, short: Some('n'), placeholder: "N",
        doc: "With a duration as well the run ends with what is reached first.", example: "100000",
    }
    rate: One = "Requests a second, whether replies come or not: `2000`, steps `500:10s,1000:10s`, a ramp `100..2000:30s`" {
        group: Group::Load, short: Some('r'), placeholder: "RATE",
        doc: "An open load: latency counts from the time at which a request was to be sent, so that a server that stands still is not forgiven what it kept waiting. Without it the load is closed: each connection sends when it has its reply. After the last step its rate stays; time counts from the beginning of the warm-up.",
        example: "100..2000:30s",
    }
    arrivals: One = "How the requests of a rate are spaced: constant or poisson" {
        group: Group::Load, placeholder: "HOW", default: "constant",
        choices: &["constant", "poisson"],
        doc: "Poisson: as independent clients come, with exponential gaps.",
    }
    seed: One = "Number that poisson gaps come from: the same gives the same gaps" {
        group: Group::Load, placeholder: "N", default: "1",
    }
    burst: One = "All at once: every connection sends when all are open, and then nothing more" {
        group: Group::Load, form: Form::Switch,
    }
    replay: One = "Send the requests of this access log at its own pace" {
        group: Group::Load, placeholder: "FILE", example: "access.log.1.gz",
        doc: "Any log that `milepost report` reads, plain or compressed. Where the log has whole seconds only, the requests of a second are spread over it.",
    }
    replay_speed: One = "So many times as fast as it was recorded" {
        group: Group::Load, placeholder: "FACTOR", default: "1", example: "2.5",
    }
    replay_methods: One = "Which recorded requests are sent: safe (GET, HEAD, OPTIONS; others are refused) or all" {
        group: Group::Load, placeholder: "WHICH", default: "safe",
        choices: &["safe", "all"],
        doc: "A log has no bodies: with `all` those with other methods get the one of `--body`, `--body-file` or `--body-size`, or an empty one.",
    }
    warm_up: One = "Time at the beginning that does not count" {
        group: Group::Load, placeholder: "TIME", example: "2s",
    }
    begin: One = "When it begins to count: now, warm-up (after `--warm-up`) or open (all connections are open and answered once)" {
        group: Group::Load, placeholder: "WHEN", choices: &["now", "warm-up", "open"],
        doc: "The default is `warm-up` when one is given, `now` otherwise.",
    }
    connections: One = "Connections at once; also steps and ramps: `10..250:30s`" {
        group: Group::Connections, short: Some('c'), placeholder: "N", default: "50",
        doc: "A rate uses as many of them as it needs; what is due while all are busy waits, which is in its latency, and the result says so. When a number that changes has come down, the connections beyond it rest.",
        example: "64",
    }
    pipeline: One = "Requests in flight on each connection" {
        group: Group::Connections, placeholder: "N", default: "1",
    }
    #[serde(alias = "per_connection")]
    requests_per_connection: One = "Close each connection after so many requests and open another one" {
        group: Group::Connections, alias: "per_connection", placeholder: "N",
        doc: "1: short-lived connections. Without it connections are kept.", example: "1",
    }
    close: One = "Who ends a connection after its last request: rst, fin or server" {
        group: Group::Connections, placeholder: "HOW", default: "fin",
        choices: &["rst", "fin", "server"],
        doc: "`fin`: this side, properly; each leaves a port in TIME_WAIT. `rst`: this side, by a reset, which leaves none and is not part of the measurement. `server`: the last request says `Connection: close`.",
    }
    connect_rate: One = "Connections opened a second while the run begins" {
        group: Group::Connections, placeholder: "N", example: "5000",
        doc: "Without it as quickly as may be, which fills accept queues: those that find no room come back after 1, 3 and 7 s.",
    }
    timeout: One = "Time to wait for a connection, and for a reply" {
        group: Group::Connections, placeholder: "TIME", default: "30s",
    }
    source: One = "Local addresses to connect from, in turn: `127.0.0.2-127.0.0.9,127.0.1.1`" {
        group: Group::Connections, placeholder: "ADDRESSES",
        doc: "On loopback they are chosen when one address has too few ports.",
        example: "127.0.0.2-127.0.0.9",
    }
    method: One = "Method of the requests" {
        group: Group::Requests, short: Some('X'), placeholder: "NAME", default: "GET",
        doc: "With a body the default is POST.", example: "PUT",
    }
    #[serde(alias = "headers")]
    header: Many = "A header of every request: `Name: value`" {
        group: Group::Requests, alias: "headers", short: Some('H'), form: Form::Repeated, placeholder: "HEADER",
        example: "Accept: application/json",
    }
    body: One = "Body of the requests" {
        group: Group::Requests, placeholder: "TEXT",
    }
    body_file: One = "File with the body" {
        group: Group::Requests, placeholder: "FILE", example: "order.json",
    }
    body_size: One = "A made body of so many bytes" {
        group: Group::Requests, placeholder: "SIZE", example: "64K",
    }
    requests_file: One = "TOML file with kinds of requests and their weights" {
        group: Group::Requests, placeholder: "FILE", example: "mix.toml",
        doc: "Each is a table `[[request]]` with a `target`, and with `weight`, `method`, `headers`, `body` and what its reply has to be, where that matters.",
    }
    expect_status: One = "Statuses that are right: `200,304`, `2xx`, `200-204`" {
        group: Group::Replies, placeholder: "LIST", default: "200-399",
    }
    expect_length: One = "Bytes that every body has to have" {
        group: Group::Replies, placeholder: "SIZE", example: "1024",
    }
    expect_body: One = "What every body has to be: same (as the first one of its kind of request) or sha256:HEX" {
        group: Group::Replies, placeholder: "WHAT", example: "same",
    }
    company: Many = "Clients that misbehave beside the measured ones: `100:never-reads`" {
        group: Group::Company, form: Form::Repeated, placeholder: "N:WHAT",
        doc: "What they do: `never-reads`, `reads-at=1K` (bytes a second), `trickles=1s` (sends a byte each), `idle` (sends nothing), `half-closes`, `resets=100ms` (after its request). `:receive-buffer=4K` behind it makes their receive buffers small. Each one that the server ends is opened again.",
        example: "50:reads-at=1K:receive-buffer=4K",
    }
    threads: One = "Threads of the generator, each with its own share of the connections" {
        group: Group::Machine, short: Some('t'), placeholder: "N", default: "1",
        doc: "More are used when one table of descriptors is too small for the connections.",
    }
    cpus: One = "Processors that the threads may use: `0,2-3`" {
        group: Group::Machine, placeholder: "LIST", example: "1",
    }
    engine: One = "How sockets are used: epoll or io_uring" {
        group: Group::Machine, placeholder: "NAME", default: "epoll",
        choices: &["epoll", "io_uring"],
        doc: "io_uring takes less processor time where the kernel allows it, and speaks no TLS.",
    }
    timestamps: One = "When a reply counts as arrived: read (by the generator) or kernel (taken in by this machine)" {
        group: Group::Machine, placeholder: "WHEN", default: "read",
        choices: &["read", "kernel"],
        doc: "With `kernel` no latency holds what the reply waited for a busy generator; that is shown by itself, as `unread`. Of TCP without TLS, with `--engine epoll`.",
    }
    spin: One = "Before a due request spin so long instead of sleeping" {
        group: Group::Machine, placeholder: "TIME", default: "0",
        doc: "Requests of a rate then leave within a microsecond of their time, at the price of processor time.",
        example: "60us",
    }
    server_pid: Many = "Process of the server, to be watched with its children" {
        group: Group::Machine, form: Form::Repeated, placeholder: "PID",
        doc: "The result then has the server's processor time for a request, its memory and its context switches.",
        example: "4711",
    }
}
