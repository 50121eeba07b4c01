//! The table of settings: one row for each, with its names, its default, its words and its meaning.
//!
//! From this table come the TOML keys, the flags, the environment variables, help texts, the man page, the
//! completions and the reference page. A row names the function that understands its text, and the place of its
//! value; it decides nothing else. Pure.

mod kind;
mod macros;
mod migration_hints;
mod rows;
mod table_keys;

pub use migration_hints::{ForeignValue, Spelling, foreign_flags, known_flag, migration_hint};
pub(crate) use migration_hints::{Replacement, Target, flag_of, replacement};
pub(crate) use rows::COMPRESS_TYPES;
pub use rows::SETTINGS;
pub use table_keys::TableKey;

pub(super) use kind::{ListForm, SettingKind, TextForm};

/// Bounds of settings: durations in nanoseconds, sizes in bytes.
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
pub(crate) const HOUR: u64 = 3_600 * SECOND;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 366 * DAY;
pub(crate) const K: u64 = 1 << 10;
pub(crate) const M: u64 = 1 << 20;
pub(crate) const G: u64 = 1 << 30;
/// A shorter wait than this is the hand-over itself.
pub(crate) const WAIT_LEAST: u64 = MS / 10;
/// What people mean by a bound of 0.
pub(crate) const NO_BOUND: &str = "for no bound";

/// What every environment variable of ours begins with.
pub const ENVIRONMENT_PREFIX: &str = "MILEPOST_";

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// Key in TOML; flag and environment variable are made of it.
    pub key: &'static str,
    /// One-letter flag.
    pub short: Option<char>,
    /// Other keys that mean the same, for habits brought from elsewhere.
    pub aliases: &'static [&'static str],
    /// Topic that it is shown under.
    pub group: SettingGroup,
    /// What stands for the value in help texts; empty: what its kind says.
    placeholder: &'static str,
    /// The default as one would write it; empty: none.
    pub default: &'static str,
    /// One of the few that `-h` shows.
    pub is_daily: bool,
    /// One line, without a full stop.
    pub help: &'static str,
    /// What one should know before changing it, in full sentences; may be empty.
    pub doc: &'static str,
    /// Keys of a table that has many; empty where `doc` says it.
    pub table_keys: &'static [TableKey],
    /// How its text is understood.
    pub(super) kind: SettingKind,
}

macro_rules! groups {
    ($($(#[$about:meta])* $group:ident $topic:literal $title:literal)*) => {
        /// Topics of help texts, in their order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SettingGroup {
            $($(#[$about])* $group),*
        }

        impl SettingGroup {
            /// All, in the order of help texts.
            pub const ALL: &[SettingGroup] = &[$(SettingGroup::$group),*];

            /// Its name for `milepost help TOPIC`.
            pub fn topic(self) -> &'static str {
                match self { $(SettingGroup::$group => $topic),* }
            }

            /// Its heading.
            pub fn title(self) -> &'static str {
                match self { $(SettingGroup::$group => $title),* }
            }
        }
    };
}

groups! {
    /// The Python application.
    Application "application" "Application"
    /// Interface of the application, and its event loop.
    Asgi "asgi" "ASGI"
    /// Folders of files.
    Files "files" "Files"
    /// Servers elsewhere that requests are passed on to.
    Upstreams "upstreams" "Reverse proxy"
    /// Redirects, fixed responses, rewrites, error pages.
    Rules "redirects" "Redirects and error pages"
    /// Addresses, drivers, accepting.
    Listening "listening" "Listening"
    /// Automatic certificates.
    Certificates "certificates" "Automatic certificates"
    /// Certificates and handshakes.
    Tls "tls" "TLS"
    /// Proxies in front.
    Proxies "proxies" "Behind a proxy"
    /// Serving processes and their supervisor.
    Processes "processes" "Processes"
    /// Pool threads and their queue.
    Pool "pools" "Worker threads"
    /// Bounds of what clients may send.
    Limits "limits" "Limits"
    /// Deadlines.
    Timeouts "timeouts" "Timeouts"
    /// What one client, one route or one connection may take from the others.
    Sharing "bandwidth" "Bandwidth and connections per client"
    /// Bodies and replies beyond memory.
    Bodies "bodies" "Large bodies"
    /// Compression of the application's replies.
    Compression "compression" "Compression"
    /// Access logs, error logs, request ids.
    Log "logs" "Logs"
    /// Headers and pages that the server adds.
    Replies "headers" "Response headers and status page"
}

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagForm {
    /// `--flag VALUE`; the last one counts.
    Once,
    /// `--flag VALUE`, any number of times.
    Repeated,
    /// `--flag` or `--flag=false`.
    Switch,
    /// Without a flag: the command's argument.
    Argument,
}

impl Setting {
    /// `--accept-batch`
    pub fn flag(&self) -> String {
        flag(self.key)
    }

    /// The flag, or for the argument its placeholder: what a message calls it.
    pub fn flag_said(&self) -> String {
        if self.form() == FlagForm::Argument {
            self.placeholder().to_owned()
        } else {
            self.flag()
        }
    }

    /// `MILEPOST_ACCEPT_BATCH`
    pub fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// The other keys as flags.
    pub fn alias_flags(&self) -> impl Iterator<Item = String> {
        self.aliases.iter().map(|alias| flag(alias))
    }

    /// How its flag takes a value.
    pub fn form(&self) -> FlagForm {
        match self.kind {
            _ if self.key == "app" => FlagForm::Argument,
            SettingKind::Switch { .. } => FlagForm::Switch,
            SettingKind::List { .. } => FlagForm::Repeated,
            _ => FlagForm::Once,
        }
    }

    /// The values that it takes, when they can be counted off.
    pub fn choices(&self) -> &'static [&'static str] {
        match self.kind {
            SettingKind::Choice { names, .. }
            | SettingKind::Text {
                form: TextForm::Named(names),
                ..
            } => names,
            SettingKind::Switch { .. } => &["true", "false"],
            _ => &[],
        }
    }

    /// False for the one setting that names the file.
    pub fn in_toml(&self) -> bool {
        self.key != "config"
    }

    /// False for those that are tables: a flag or a variable holds one value, or a list of them.
    pub fn in_flags(&self) -> bool {
        !matches!(self.kind, SettingKind::Tables { .. })
    }

    /// A table of it, as TOML, where it has tables.
    pub fn example(&self) -> Option<&'static str> {
        self.kind.table().map(|(example, _)| example)
    }

    /// What to write in the place of a flag or a variable that it does not have.
    pub fn table_hint(&self) -> Option<String> {
        let example = self.example()?;
        Some(format!(
            "it stands in the configuration file (`--config`), as a table:\n{example}"
        ))
    }
}

impl SettingGroup {
    /// Its settings, in the order of the table.
    pub fn settings(self) -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(move |setting| setting.group == self)
    }
}

/// The setting with this key or alias.
pub fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.key == key || setting.aliases.contains(&key))
}

fn flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}
