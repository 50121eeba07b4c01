//! The keys of a load: one row for each, with its name, its default and its words.
//!
//! From this table come the fields of [`Written`], the flags, `--help`, the completions and the reference
//! page. It understands no value; `slot` says how a text is put into a field.

use serde::Deserialize;

use super::slot::{self, Slot};

/// A key of a load: a flag, and a key of TOML.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As in TOML: `connect_rate`.
    pub name: &'static str,
    /// Another name that means the same; may be empty.
    pub alias: &'static str,
    /// One-letter flag.
    pub short: Option<char>,
    /// Topic that it is shown under.
    pub group: Group,
    /// How its flag takes a value.
    pub form: Form,
    /// What stands for the value in help texts.
    pub placeholder: &'static str,
    /// The default as one would write it; empty: none.
    pub default: &'static str,
    /// One line, without a full stop.
    pub help: &'static str,
    /// What one should know before using it, in full sentences; may be empty.
    pub doc: &'static str,
    /// A value as one would write it; may be empty.
    pub example: &'static str,
    /// The values that it takes, when they can be counted off.
    pub choices: &'static [&'static str],
}

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The command's argument.
    Argument,
    /// `--flag VALUE`; the last one counts.
    Once,
    /// `--flag VALUE`, any number of times; in TOML one value or a list.
    Repeated,
    /// `--flag`; in TOML `true` or `false`.
    Switch,
}

/// Topics of help texts, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Where the requests go.
    Target,
    /// What makes a request leave, and how long.
    Load,
    /// Connections and how they are used.
    Connections,
    /// What is asked for.
    Requests,
    /// What a reply has to be.
    Replies,
    /// Clients that misbehave beside the measured ones.
    Company,
    /// The generator's own side, and watching the server's.
    Machine,
    /// Runs and what becomes of them.
    Results,
}

impl Group {
    /// All of them, in the order of help texts.
    pub const ALL: [Group; 8] = [
        Group::Target,
        Group::Load,
        Group::Connections,
        Group::Requests,
        Group::Replies,
        Group::Company,
        Group::Machine,
        Group::Results,
    ];

    /// As a heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Target => "Target",
            Group::Load => "Load",
            Group::Connections => "Connections",
            Group::Requests => "Requests",
            Group::Replies => "Replies",
            Group::Company => "Company",
            Group::Machine => "Machine",
            Group::Results => "Results",
        }
    }
}

impl Key {
    /// What the rows leave out.
    pub const PLAIN: Key = Key {
        name: "",
        alias: "",
        short: None,
        group: Group::Results,
        form: Form::Once,
        placeholder: "",
        default: "",
        help: "",
        doc: "",
        example: "",
        choices: &[],
    };

    /// `--connect-rate`; for the argument its placeholder: what a message calls it.
    pub fn said(&self) -> String {
        match self.form {
            Form::Argument => self.placeholder.to_owned(),
            _ => format!("--{}", self.long()),
        }
    }

    /// `connect-rate`
    pub fn long(&self) -> String {
        self.name.replace('_', "-")
    }
}

/// All keys of a load.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// Fields and rows of one list, so that neither can lack what the other has.
macro_rules! keys {
    ($($(#[$serde:meta])* $name:ident: $slot:ident = $help:literal { $($field:ident: $value:expr),+ $(,)? })+) => {
        /// A load as it is written: every key an `Option` of texts, nothing understood yet. In TOML numbers
        /// and booleans are taken as texts too; unknown keys are refused.
        #[derive(Clone, Default, Debug, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Written {
            $(
                #[doc = $help]
                #[serde(deserialize_with = "slot::read")]
                $(#[$serde])*
                pub $name: slot::$slot,
            )+
        }

        pub(super) const KEYS: &[Key] = &[
            $(Key { name: stringify!($name), help: $help, $($field: $value,)+ ..Key::PLAIN },)+
        ];

        impl Written {
            /// What is said here, and what is said only in `base`.
            pub fn over(self, base: &Written) -> Written {
                Written {
                    $($name: self.$name.or_else(|| base.$name.clone()),)+
                }
            }

            /// Puts a text under a key; a list grows by it. `false`: there is no such key.
            pub fn put(&mut self, name: &str, text: &str) -> bool {
                match name {
                    $(stringify!($name) => self.$name.put(text),)+
                    _ => return false,
                }
                true
            }

            /// The texts under a key, in their order; none for a key that is not given.
            pub fn texts(&self, name: &str) -> &[String] {
                match name {
                    $(stringify!($name) => self.$name.texts(),)+
                    _ => &[],
                }
            }
        }
    };
}

mod rows;

use rows::KEYS;
pub use rows::Written;
