//! The table of settings: one row for each, with its names, its default, its words and its meaning.
//!
//! From this table come the TOML keys, the flags, the environment variables, `--help`, the completions and
//! the reference page. A row's setter puts a value into the draft; it decides nothing else. Pure.

mod foreign;
mod kind;
mod rows;
mod set;

pub use foreign::{Spelling, foreign};
pub use rows::SETTINGS;

pub(super) use kind::{Entries, Kind, Shape};

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
    pub group: Group,
    /// What stands for the value in help texts.
    pub placeholder: &'static str,
    /// The default as one would write it; empty: none.
    pub default: &'static str,
    /// One line, without a full stop.
    pub help: &'static str,
    /// What one should know before changing it, in full sentences; may be empty.
    pub doc: &'static str,
    /// How its text is understood.
    pub(super) kind: Kind,
}

/// Topics of help texts, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What is served by Python.
    Application,
    /// Folders of files.
    Files,
    /// Redirects, fixed replies, rewrites, error pages.
    Rules,
    /// Addresses, drivers, accepting.
    Listening,
    /// Serving processes and their supervisor.
    Processes,
    /// Pool threads and their queue.
    Pool,
    /// Bounds of what clients may send.
    Limits,
    /// Deadlines.
    Timeouts,
    /// What one client, one route or one connection may take from the others.
    Sharing,
    /// Bodies and replies beyond memory.
    Bodies,
    /// Compression of the application's replies.
    Compression,
    /// Access logs, error logs, request ids.
    Log,
    /// Headers and pages that the server adds.
    Replies,
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
            self.placeholder.to_owned()
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
            Kind::Switch { .. } => FlagForm::Switch,
            Kind::List { .. } => FlagForm::Repeated,
            _ => FlagForm::Once,
        }
    }

    /// The values that it takes, when they can be counted off.
    pub fn choices(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Choice { names, .. } | Kind::Named { names, .. } => names,
            Kind::Switch { .. } => &["true", "false"],
            _ => &[],
        }
    }

    /// False for the one setting that names the file.
    pub fn in_toml(&self) -> bool {
        self.key != "config"
    }

    /// What a right value looks like, as a noun.
    pub fn expected(&self) -> String {
        self.kind.expected()
    }

    /// What a value looks like in TOML.
    pub fn toml_form(&self) -> &'static str {
        self.kind.toml_form()
    }

    pub(super) fn shape(&self) -> Shape {
        self.kind.shape()
    }
}

impl Group {
    /// All, in the order of help texts.
    pub const ALL: [Group; 13] = [
        Group::Application,
        Group::Files,
        Group::Rules,
        Group::Listening,
        Group::Processes,
        Group::Pool,
        Group::Limits,
        Group::Timeouts,
        Group::Sharing,
        Group::Bodies,
        Group::Compression,
        Group::Log,
        Group::Replies,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Application => "Application",
            Group::Files => "Files",
            Group::Rules => "Redirects and pages",
            Group::Listening => "Listening",
            Group::Processes => "Processes",
            Group::Pool => "Pool threads",
            Group::Limits => "Limits",
            Group::Timeouts => "Timeouts",
            Group::Sharing => "Fair shares",
            Group::Bodies => "Bodies beyond memory",
            Group::Compression => "Compression",
            Group::Log => "Logs",
            Group::Replies => "Replies",
        }
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
