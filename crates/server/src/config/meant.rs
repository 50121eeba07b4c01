//! The configuration as it is meant: typed values with their defaults, ready for use.
//!
//! Taken from `written` (what people wrote, from flags, environment and TOML) and read by every room;
//! holds no text form, no file positions and no I/O.

use std::net::SocketAddr;
use std::path::PathBuf;

use measure::Nanos;

/// The whole configuration of one serving process.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Addresses to listen on, in the order given. Never empty after checking.
    pub binds: Vec<Bind>,
    /// Serving processes. Only 1 for now.
    pub processes: usize,
    /// Driver threads and how they accept.
    pub listen: Listen,
    /// The Python application, if one is served.
    pub app: Option<App>,
    /// Folders of files, the longest URL prefix first after checking.
    pub statics: Vec<StaticMount>,
    /// Pool of threads that run the application.
    pub pool: Pool,
    /// Bounds of what a client may send.
    pub limits: wire::Limits,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// Request bodies beyond memory.
    pub spool: Spool,
    /// Replies that their client does not take at once.
    pub delivery: Delivery,
    /// Small files kept in memory, for each driver.
    pub file_cache: FileCache,
    /// Access log.
    pub access_log: Option<AccessLog>,
    /// Reply headers that the server adds.
    pub headers: Headers,
    /// Path that answers with the server's counters as JSON; nothing by default.
    pub status_path: Option<String>,
}

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// `host:port` or `[v6]:port`; a name may stand for several addresses.
    Tcp(Vec<SocketAddr>),
    /// `unix:path`
    Unix(PathBuf),
}

/// Driver threads and how they accept.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Driver threads per process.
    pub drivers: usize,
    /// Processors that drivers are pinned to, by turns; empty: not pinned.
    pub driver_cpus: Vec<usize>,
    /// Connections accepted in one turn before those already there are served.
    pub accept_batch: usize,
    /// Length of the kernel's accept queue asked for.
    pub backlog: u32,
    /// Seconds that the kernel keeps a connection that has sent nothing; 0 is off.
    pub defer_accept_secs: u32,
    /// TCP_NODELAY on accepted connections.
    pub nodelay: bool,
    /// Open connections per process; at the bound accepting rests.
    pub connections_max: usize,
}

/// A Python application: `module:attribute`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// Dotted module name.
    pub module: String,
    /// Attribute path within the module; `app` parts separated by dots.
    pub attribute: String,
    /// Call the attribute once to get the application (`module:create()` or `--factory`).
    pub factory: bool,
    /// Folder put first on `sys.path`.
    pub app_dir: PathBuf,
    /// SCRIPT_NAME: the URL prefix that the application is mounted under, without a trailing slash.
    pub root_path: String,
}

/// `--static /url=dir`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticMount {
    /// URL prefix with a leading slash and without a trailing one; empty for the root.
    pub url: String,
    /// Folder.
    pub dir: PathBuf,
    /// File served for a folder's URL.
    pub index: String,
}

/// Pool of threads that run the application.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Fewest threads.
    pub threads_min: usize,
    /// Most threads. The pool has this size for now.
    pub threads_max: usize,
    /// Requests that may wait for a thread; one more is refused with 503.
    pub queue_len_max: usize,
}

/// Deadlines; none is renewed by a trickle of bytes unless it says so.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// A head must be complete this long after its first byte (after the accept for the first one).
    pub head: Nanos,
    /// Longest silence within a body.
    pub body: Nanos,
    /// An idle keep-alive connection lasts this long.
    pub idle: Nanos,
    /// Longest time without progress of a reply.
    pub send: Nanos,
    /// How long the rest of a refused body is read and thrown away so that the client sees the refusal.
    pub linger: Nanos,
    /// From the first signal to the end.
    pub drain: Nanos,
}

/// Request bodies beyond memory.
#[derive(Clone, Debug)]
pub struct Spool {
    /// Largest body kept in memory; larger ones go to an unnamed file.
    pub readahead_bytes: usize,
    /// Threads that write those files.
    pub spoolers: usize,
    /// Folder of the unnamed files.
    pub dir: PathBuf,
}

/// Replies that their client does not take at once.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Bytes of one reply that wait in memory; the rest goes to an unnamed file.
    pub reply_buffer_bytes: usize,
    /// Bytes of one reply that wait in its unnamed file; past it the application waits.
    pub reply_spool_bytes_max: u64,
}

/// Small files kept in memory, for each driver.
#[derive(Clone, Debug)]
pub struct FileCache {
    /// Bytes in all.
    pub bytes_max: usize,
    /// Largest file kept.
    pub entry_bytes_max: usize,
    /// A cached file is looked at again (stat) when its last look is older than this.
    pub revalidate: Nanos,
}

/// Access log.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// Where the lines go.
    pub target: LogTarget,
    /// Form of a line.
    pub form: LogForm,
    /// Bytes of finished records that may wait for the log thread, per process.
    pub buffer_bytes_max: usize,
    /// Longest time that a record waits for its write.
    pub flush: Nanos,
}

/// Where access lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output (`-`).
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

/// Form of an access line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// Combined followed by the phases.
    Phases,
    /// Combined.
    Combined,
    /// Common.
    Common,
    /// One JSON object a line.
    Json,
}

/// Reply headers that the server adds.
#[derive(Clone, Debug)]
pub struct Headers {
    /// `Server`; empty: none.
    pub server: String,
    /// `Server-Timing` with the phases that have passed.
    pub server_timing: bool,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            drivers: 1,
            driver_cpus: Vec::new(),
            accept_batch: 32,
            backlog: 4096,
            defer_accept_secs: 0,
            nodelay: true,
            connections_max: 10_000,
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            threads_min: 4,
            threads_max: 4,
            queue_len_max: 1024,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Nanos::from_secs(30),
            body: Nanos::from_secs(30),
            idle: Nanos::from_secs(60),
            send: Nanos::from_secs(30),
            linger: Nanos::from_secs(2),
            drain: Nanos::from_secs(30),
        }
    }
}

impl Default for Spool {
    fn default() -> Self {
        Self {
            readahead_bytes: 64 << 10,
            spoolers: 1,
            dir: std::env::temp_dir(),
        }
    }
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            reply_buffer_bytes: 256 << 10,
            reply_spool_bytes_max: 1 << 30,
        }
    }
}

impl Default for FileCache {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
            entry_bytes_max: 64 << 10,
            revalidate: Nanos::from_secs(1),
        }
    }
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            target: LogTarget::Stdout,
            form: LogForm::Phases,
            buffer_bytes_max: 64 << 20,
            flush: Nanos::from_ms(250),
        }
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            server: "milepost".to_owned(),
            server_timing: false,
        }
    }
}
