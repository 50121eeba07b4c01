//! What is allowed: the edges between modules and crates, and the exceptions, each with its reason.
//!
//! A table for `tidy` and for people; a new line here is a decision about the design and belongs into
//! ARCHITECTURE.md as well.

/// Modules of the server that everybody may use, and that use only each other.
pub(super) const VOCABULARY: [&str; 3] = ["exchange", "fault", "config"];

/// Modules that connect the others: start-up, driver threads and their protocols, pool threads, upstreams, the process.
pub(super) const CONNECTORS: [&str; 6] =
    ["lib", "server", "driver", "protocol", "pool", "upstream"];

/// Further edges between modules: from, to, why.
pub(super) const EDGES: &[(&str, &str, &str)] = &[
    (
        "transport",
        "fork",
        "a close must reach the client although a forked child has the socket",
    ),
    (
        "handler",
        "response",
        "the seam hands a backend its response writer",
    ),
    (
        "exchange",
        "response",
        "a stream holds what of its response is pending",
    ),
    (
        "exchange",
        "websocket",
        "a pending response may be the acceptance of a WebSocket connection",
    ),
    (
        "exchange",
        "tunnel",
        "a pending response may be the beginning of a tunnel",
    ),
    (
        "tunnel",
        "response",
        "the client's protocol may write the head in front of a tunnel",
    ),
    (
        "tunnel",
        "upstream",
        "a tunnel has the connection to its upstream",
    ),
    (
        "websocket",
        "response",
        "frames wait as parts of a response, in its memory",
    ),
    (
        "websocket",
        "transport",
        "an event loop offers a message to the socket once",
    ),
    ("websocket", "loop_inbox", "an event loop hears of messages"),
    ("websocket", "sync", "one way to lock"),
    (
        "websocket",
        "fork",
        "a forked child has copies of the places that connections take",
    ),
    (
        "exchange",
        "blocking_pool",
        "the file of a body is closed where its disk may be waited for",
    ),
    (
        "exchange",
        "sync",
        "primitives that loom can take the place of, and invariants",
    ),
    (
        "response",
        "transport",
        "a worker offers its response to the socket once",
    ),
    ("response", "sync", "one way to lock, and invariants"),
    (
        "response",
        "load_report",
        "a response to a trusted proxy tells the load",
    ),
    ("load_report", "sync", "one way to lock"),
    ("response", "blocking_pool", "the threads that write it"),
    (
        "response",
        "spool",
        "the folder that it moves to counts all of its writes",
    ),
    (
        "transport",
        "response",
        "parts of a response are what a transport sends",
    ),
    ("transport", "sys", "what no crate wraps of a socket"),
    (
        "transport",
        "sync",
        "one way to lock, in the memory of tests",
    ),
    (
        "sys",
        "transport",
        "watching a socket needs `unsafe`, which has one place",
    ),
    ("service", "rules", "rules come before routes"),
    (
        "service",
        "https_redirect",
        "redirects to HTTPS come before rules",
    ),
    (
        "service",
        "pool_rules",
        "a pool and a class belong to a request",
    ),
    (
        "service",
        "slow",
        "routes whose usual run is long have a pool",
    ),
    (
        "service",
        "challenges",
        "challenges of certificate authorities come before rules",
    ),
    ("challenges", "sync", "one way to lock"),
    (
        "service",
        "refusal",
        "what nothing is configured for is refused",
    ),
    (
        "spool",
        "blocking_pool",
        "the threads that write request bodies",
    ),
    (
        "blocking_pool",
        "queue",
        "tasks wait in the queue that loom has checked",
    ),
    ("handler", "pool", "the seam gives a worker to a backend"),
    (
        "handler",
        "watchdog",
        "a handler finds a thread by the number that the kernel gives it",
    ),
    (
        "watchdog",
        "pool",
        "a scan reads the processor time of an exchange",
    ),
    (
        "exchange",
        "loop_inbox",
        "an event loop hears what happens to an exchange that is inside",
    ),
    ("loop_inbox", "sync", "one way to lock"),
    (
        "loop_inbox",
        "loop_wakeup",
        "a sleeping loop is woken once, as loom has checked",
    ),
    (
        "loop_inbox",
        "loop_load",
        "what is put into the inbox waits for the loop",
    ),
    ("loop_load", "sync", "one way to lock"),
    (
        "loop_wakeup",
        "sync",
        "primitives that loom can take the place of",
    ),
    (
        "exchange",
        "client_limit",
        "a request has a place among those of its client",
    ),
    (
        "pool_rules",
        "request_test",
        "one way to tell requests by host, header, method and client",
    ),
    (
        "service",
        "normal_path",
        "routes are matched with the normal path",
    ),
    (
        "service",
        "request_test",
        "routes tell requests as rules of pools do",
    ),
    (
        "request_test",
        "networks",
        "one way to tell a network's clients",
    ),
    ("guards", "refusal", "a guard refuses requests"),
    ("guards", "users", "a route may ask for a user"),
    (
        "guards",
        "blocking_pool",
        "a password takes a tenth of a second to check",
    ),
    ("users", "sync", "one way to lock"),
    (
        "response",
        "field_template",
        "headers that a route sets say something of the request",
    ),
    (
        "proxies",
        "networks",
        "which peers are trusted is a set of addresses",
    ),
    (
        "queue",
        "sync",
        "primitives that loom can take the place of",
    ),
    (
        "run_guard",
        "sync",
        "primitives that loom can take the place of",
    ),
    (
        "watchdog",
        "run_guard",
        "a worker ends its exchange or is given up, as loom has checked",
    ),
    ("watchdog", "sync", "one way to lock, and invariants"),
    ("client_limit", "sync", "one way to lock, and invariants"),
    ("bandwidth", "sync", "one way to lock, and invariants"),
    ("slow", "sync", "one way to lock"),
    ("traces", "sync", "one way to lock"),
    (
        "exchange",
        "traces",
        "a recorder gives records to the queue of spans",
    ),
    (
        "bandwidth",
        "service",
        "limits of routes go by the routes' indices",
    ),
];

/// Files that may be long.
pub(super) const LONG_FILES: [(&str, &str); 1] = [(
    "crates/config/src/options_table/rows.rs",
    "the uniform table of all settings",
)];

/// Words that no identifier has any more, and what stands in their place.
pub(super) const WITHDRAWN: &[(&str, &str)] = &[
    ("usher", "shared acceptor"),
    ("ear", "listener"),
    ("ears", "listeners"),
    ("clerk", "worker"),
    ("seat", "worker, or slot"),
    ("steward", "controller"),
    ("desk", "head writer, or mailbox"),
    ("press", "compressor"),
    ("knocker", "gil probe"),
    ("onlooker", "stack sampler"),
    ("lookout", "watchdog thread"),
    ("watchman", "lifecycle"),
    ("tenure", "run guard"),
    ("errand", "task"),
    ("mood", "state"),
    ("house", "server"),
    ("turnstile", "write ownership"),
    ("sheaf", "merged batch"),
    ("misuse", "usage error"),
    ("surroundings", "environment"),
    ("glimpse", "cache probe"),
    ("newcomer", "accepted connection"),
    ("corridor", "main loop"),
];

/// Threads that are not called after a module, and why.
pub(super) const THREADS: [(&str, &str); 4] = [
    (
        "open",
        "a blocking pool, called after what it waits for: files to be opened",
    ),
    (
        "write",
        "a blocking pool, called after what it waits for: files to be sent",
    ),
    ("signals", "it reads the iterator of a library"),
    (
        "stack",
        "it takes the Python stacks of the threads in `thread_registry`",
    ),
];

/// Where strings of production code may hold a line end of HTTP: a file, or a folder with its slash, and why.
pub(super) const LINE_END_PLACES: [(&str, &str); 10] = [
    (
        "crates/http/src/response.rs",
        "behind a field and a status line, at a head's end, around a chunk",
    ),
    ("crates/http/src/head.rs", "a parser looks for it"),
    (
        "crates/http/src/decoded.rs",
        "around the fields of a request that the judge of HTTP/1 reads next",
    ),
    (
        "crates/server/src/protocol/h2/mod.rs",
        "what clients of HTTP/2 begin with, RFC 9113 section 3.4",
    ),
    ("crates/http/src/proxy_protocol.rs", "a parser looks for it"),
    ("crates/http/src/scan.rs", "a parser looks for it"),
    (
        "crates/files/src/multipart.rs",
        "around the parts of a body, RFC 2046 section 5.1",
    ),
    (
        "crates/cli/src/report/live.rs",
        "on a raw terminal: no HTTP",
    ),
    (
        "crates/server/src/traces/collector.rs",
        "the client's role: a request to a collector of spans",
    ),
    (
        "crates/loadgen/src/",
        "the client's role: requests as users write them, and broken ones",
    ),
];

/// Crates without I/O, threads and clock.
pub(super) const PURE_CRATES: [&str; 4] = ["http", "telemetry", "queueing", "present"];

/// The one place that reads the monotonic clock.
pub(super) const CLOCK_FILES: [&str; 1] = ["crates/telemetry/src/time.rs"];

/// What one crate may depend on.
pub(super) struct CrateRule {
    /// Its folder, and the name that others use it by.
    pub(super) name: &'static str,
    /// Its package.
    pub(super) package: &'static str,
    /// Crates of ours that it may use, in tests too.
    pub(super) ours: &'static [&'static str],
    /// Crates of others, tests apart.
    pub(super) others: Others,
    /// What its boundary forbids.
    pub(super) forbids: &'static str,
}

/// Crates of others that a crate may depend on.
#[derive(Clone, Copy)]
pub(super) enum Others {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

pub(super) const CRATES: [CrateRule; 20] = [
    CrateRule {
        name: "os",
        package: "milepost-os",
        ours: &[],
        others: Others::Only(&["libc", "memchr", "memmap2", "nix", "rustix"]),
        forbids: "os knows nothing of the server: calls of the system and invariants, and no crate of ours",
    },
    CrateRule {
        name: "http",
        package: "milepost-http",
        ours: &[],
        others: Others::Only(&[
            "base64",
            "bytes",
            "httparse",
            "httpdate",
            "memchr",
            "sha1_smol",
            "zlib-rs",
        ]),
        forbids: "http knows no I/O, no clock, no threads and no other crate of ours",
    },
    CrateRule {
        name: "telemetry",
        package: "milepost-telemetry",
        ours: &[],
        // rustix for the clock alone.
        others: Others::Only(&[
            "ipnet",
            "jiff",
            "memchr",
            "rustix",
            "serde",
            "serde_json",
            "strsim",
        ]),
        forbids: "telemetry knows no I/O, no threads and no other crate of ours",
    },
    CrateRule {
        name: "queueing",
        package: "milepost-queueing",
        ours: &["telemetry"],
        // Seeded generators that callers hand in; it has none of its own.
        others: Others::Only(&["fastrand"]),
        forbids: "queueing is arithmetic on what telemetry names",
    },
    CrateRule {
        name: "present",
        package: "milepost-present",
        ours: &["telemetry"],
        others: Others::Only(&[]),
        forbids: "present makes text of values: it knows the calendar and nothing of what the tools measure",
    },
    CrateRule {
        name: "config",
        package: "milepost-config",
        ours: &["http", "telemetry", "queueing"],
        others: Others::Only(&[
            "globset",
            "ipnet",
            "mime_guess",
            "serde",
            "shlex",
            "toml_edit",
        ]),
        forbids: "config understands texts that others have read: no sockets, no runtime, no Python",
    },
    CrateRule {
        name: "acme",
        package: "milepost-acme",
        ours: &["os"],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "clap"]),
        forbids: "acme has a plan and a storage folder: no configuration, no server, no client's bytes, no Python",
    },
    CrateRule {
        name: "admin",
        package: "milepost-admin",
        ours: &["os", "ipc", "telemetry", "config", "present"],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "clap"]),
        forbids: "admin has what the supervisor says: no server, no client's bytes, no Python",
    },
    CrateRule {
        name: "tls",
        package: "milepost-tls",
        ours: &["telemetry", "config"],
        others: Others::Only(&[
            "aws-lc-rs",
            "base64",
            "pkcs8",
            "ring",
            "rustls",
            "rustls-native-certs",
            "serde",
            "x509-parser",
            "zeroize",
        ]),
        forbids: "tls turns bytes into bytes and reads the files of certificates: no socket, no runtime, no Python",
    },
    CrateRule {
        name: "ipc",
        package: "milepost-ipc",
        ours: &["os", "telemetry", "config"],
        others: Others::Only(&[
            "libc",
            "rustix",
            "serde",
            "serde_json",
            "socket2",
            "zeroize",
        ]),
        forbids: "ipc is what the supervisor and its processes share: no runtime, no client's bytes, no Python",
    },
    CrateRule {
        name: "supervisor",
        package: "milepost-supervisor",
        ours: &["os", "telemetry", "config", "ipc", "tls"],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "clap", "tokio"]),
        forbids: "the supervisor waits in one `poll`, reads nothing of clients, and knows no Python",
    },
    CrateRule {
        name: "logging",
        package: "milepost-logging",
        ours: &["os", "telemetry", "config"],
        others: Others::Only(&[
            "flate2",
            "jiff",
            "libc",
            "memchr",
            "rustix",
            "serde",
            "serde_json",
        ]),
        forbids: "logging writes what it is given: no client's socket, no runtime, no Python",
    },
    CrateRule {
        name: "files",
        package: "milepost-files",
        ours: &["os", "http", "telemetry", "config"],
        others: Others::Only(&[
            "bytes",
            "globset",
            "indexmap",
            "jiff",
            "memchr",
            "mime_guess",
            "rustix",
            "serde",
            "serde_json",
        ]),
        forbids: "files gives replies as values: no protocol, no socket, no runtime, no Python",
    },
    CrateRule {
        name: "server",
        package: "milepost-server",
        ours: &[
            "os",
            "http",
            "telemetry",
            "queueing",
            "config",
            "ipc",
            "logging",
            "files",
            "tls",
        ],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "clap"]),
        forbids: "server knows no Python and reads no argv",
    },
    CrateRule {
        name: "report",
        package: "milepost-report",
        ours: &["telemetry", "present"],
        others: Others::Only(&["jiff", "memchr", "flate2", "serde_json", "zstd"]),
        forbids: "report reads logs, whoever wrote them: it knows telemetry's forms and nothing of the server",
    },
    CrateRule {
        name: "loom-tests",
        package: "milepost-loom-tests",
        // The queue's order is queueing's, and its stamps are telemetry's: arithmetic, which loom does not see.
        ours: &["telemetry", "queueing"],
        others: Others::Only(&["loom"]),
        forbids: "loom-tests compiles hand-over code against loom's primitives and arithmetic, nothing else",
    },
    CrateRule {
        name: "loadgen",
        package: "milepost-loadgen",
        ours: &["http", "telemetry", "present"],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "clap"]),
        forbids: "the load generator shares no code with what it measures but http and telemetry",
    },
    CrateRule {
        name: "whatif",
        package: "milepost-whatif",
        ours: &["telemetry", "queueing"],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "clap", "tokio"]),
        forbids: "the simulator runs queueing's code on a virtual clock, without the server",
    },
    CrateRule {
        name: "cli",
        package: "milepost",
        ours: &[
            "acme",
            "admin",
            "server",
            "supervisor",
            "tls",
            "ipc",
            "os",
            "http",
            "telemetry",
            "queueing",
            "config",
            "present",
            "report",
            "loadgen",
            "whatif",
        ],
        others: Others::AllBut(&["pyo3", "pyo3-ffi", "tokio", "socket2"]),
        forbids: "cli reads argv, prints and exits; it serves nothing itself and knows no Python",
    },
    CrateRule {
        name: "python",
        package: "milepost-python",
        ours: &["cli", "server", "config", "http", "telemetry", "ipc"],
        others: Others::AllBut(&["tokio", "socket2", "clap"]),
        forbids: "python hosts applications; sockets and argv belong to others",
    },
];
