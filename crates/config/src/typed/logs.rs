//! The logs as they are meant: which ones, where they go, what is in them, when they are renewed.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use telemetry::Nanos;

defaults! {
    /// All logs of one serving process.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Logs {
        /// Access logs; each has every exchange that passes its filter.
        pub access: Vec<AccessLog>,
        /// Error logs; each has every line of its levels.
        pub errors: Vec<ErrorLog> = vec![ErrorLog { target: LogTarget::Stderr, form: ErrorLogForm::Text, levels: Levels::From(Level::Info), }],
        /// Bytes of finished records and of their lines that may wait for a slow disk, per process.
        pub buffer_bytes_max: usize = 64 << 20,
        /// What happens beyond them.
        pub overflow: LogOverflow = LogOverflow::Drop,
        /// Longest time that a line waits for its write.
        pub flush: Nanos = Nanos(1_000_000_000),
        /// What of a client is written.
        pub privacy: LogPrivacy = LogPrivacy::default(),
        /// When files are renewed, and what becomes of the old ones.
        pub rotation: Rotation = Rotation::default(),
    }
}

/// One access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go.
    pub target: LogTarget,
    /// Form of a line.
    pub form: LogForm,
    /// Which exchanges are in it.
    pub filter: LogFilter,
}

/// Which exchanges are in a log: those that fit all parts; an empty part fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Names of routes, as the status page has them.
    pub routes: Vec<String>,
    /// Statuses.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// Only what took longer in all.
    pub slower_than: Nanos,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output (`-`).
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(PathBuf),
    /// The local syslog socket, as RFC 5424 with this facility (0 to 23).
    Syslog(u8),
}

/// Form of an access line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// Combined followed by the phases.
    Phases,
    /// Combined.
    Combined,
    /// Common.
    Common,
    /// One JSON object a line.
    Json,
    /// Combined followed by NaviServer's partial times.
    NaviServer,
    /// A text with `{field}`s.
    Template(String),
}

/// One error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLog {
    /// Where the lines go.
    pub target: LogTarget,
    /// Form of an entry.
    pub form: ErrorLogForm,
    /// Which ones.
    pub levels: Levels,
}

/// Form of an entry of an error log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorLogForm {
    /// Time, level and text, its further lines indented.
    #[default]
    Text,
    /// One JSON object a line, whatever the text.
    Json,
}

/// Severity of an error line, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is not as it should be, and the server goes on.
    Warning,
    /// Worth knowing.
    #[default]
    Info,
}

/// Some levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// This one and all that are worse.
    From(Level),
    /// This one.
    Only(Level),
}

/// What happens to lines that a slow disk leaves no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOverflow {
    /// They are dropped and counted.
    Drop,
    /// Whoever has one waits.
    Wait,
}

defaults! {
    /// What of a client is written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogPrivacy {
        /// Bits of an IPv4 address that are kept, the rest is 0.
        pub prefix_v4: u8 = 32,
        /// Bits of an IPv6 address that are kept.
        pub prefix_v6: u8 = 128,
        /// Whether the query of a target and of a referer is written.
        pub query: bool = true,
    }
}

/// When log files are renewed, and what becomes of the old ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// At this size.
    pub bytes: Option<u64>,
    /// At each multiple of this time since 1970 UTC.
    pub every: Option<Nanos>,
    /// Most old files kept of each log.
    pub keep_len: Option<usize>,
    /// Greatest age of an old file.
    pub keep_age: Option<Nanos>,
    /// Whether old files are compressed with gzip.
    pub compress: bool,
}

/// Where request ids come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestIds {
    /// A header that trusted proxies name the id in, in lower case; replies have it too. `None`: ids are
    /// made, and only logs and the application have them.
    pub header: Option<String>,
}

impl AccessLog {
    /// A log of all exchanges in the default form.
    pub fn new(target: LogTarget) -> Self {
        Self {
            target,
            form: LogForm::Phases,
            filter: LogFilter::default(),
        }
    }
}

impl Levels {
    /// Whether a line of `level` is among them.
    pub fn has(self, level: Level) -> bool {
        match self {
            Levels::From(least) => level <= least,
            Levels::Only(only) => level == only,
        }
    }
}
