//! The keys of a load: one row for each, with its name, its default and its words.
//!
//! From this table come the keys of [`LoadSpec`], the flags, `--help`, the completions and the reference page. It
//! understands no value.

mod rows;

use std::collections::BTreeMap;

use rows::KEYS;

/// A key of a load, which is a flag.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// `connect_rate`
    pub name: &'static str,
    /// Another name that means the same; may be empty.
    pub alias: &'static str,
    /// One-letter flag.
    pub short: Option<char>,
    /// Topic that it is shown under.
    pub group: FlagGroup,
    /// How its flag takes a value.
    pub form: FlagForm,
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

/// A table of [`Key`]s: topics with their rows. A row is a name, its help and the fields that are not as in
/// [`Key::PLAIN`].
#[macro_export]
macro_rules! key_table {
    ($($group:ident { $($name:literal $help:literal { $($field:ident: $value:expr),* })* })*) => {
        &[$($($crate::spec::Key {
            name: $name,
            help: $help,
            group: $crate::spec::FlagGroup::$group,
            $($field: $value,)*
            ..$crate::spec::Key::PLAIN
        }),*),*]
    };
}

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagForm {
    /// The command's argument.
    Argument,
    /// `--flag VALUE`; the last one counts.
    Once,
    /// `--flag VALUE`, any number of times.
    Repeated,
    /// `--flag`
    Switch,
}

macro_rules! flag_groups {
    ($($(#[$about:meta])* $group:ident $title:literal)*) => {
        /// Topics of help texts, in their order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FlagGroup { $($(#[$about])* $group),* }

        impl FlagGroup {
            /// All of them, in the order of help texts.
            pub const ALL: &[FlagGroup] = &[$(FlagGroup::$group),*];

            /// As a heading.
            pub fn title(self) -> &'static str {
                match self { $(FlagGroup::$group => $title),* }
            }
        }
    };
}

flag_groups! {
    /// Where the requests go.
    Target "Target"
    /// What makes a request leave, and how long.
    Load "Load"
    /// Connections and how they are used.
    Connections "Connections"
    /// What is asked for.
    Requests "Requests"
    /// What a reply has to be.
    Replies "Replies"
    /// Clients that misbehave beside the measured ones.
    BadClients "Misbehaving clients"
    /// The generator's own side, and watching the server's.
    Machine "Machine"
    /// Runs and what becomes of them.
    Results "Results"
}

impl Key {
    /// What the rows leave out.
    pub const PLAIN: Key = Key {
        name: "",
        alias: "",
        short: None,
        group: FlagGroup::Results,
        form: FlagForm::Once,
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
            FlagForm::Argument => self.placeholder.to_owned(),
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

/// A load as it is written: texts by key, nothing understood yet.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// At least one for each key.
    texts: BTreeMap<&'static str, Vec<String>>,
}

impl LoadSpec {
    /// Puts a text under a key: one more for a repeated key, else instead of the one before. `false`: there is no
    /// such key.
    pub fn put(&mut self, name: &str, text: &str) -> bool {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return false;
        };
        // The last one counts, as on any command line: a script's flags can be overridden behind them.
        if key.form != FlagForm::Repeated {
            self.texts.remove(key.name);
        }
        self.push(key.name, text);
        true
    }

    /// Puts a text under a name, beside those that are there.
    pub(super) fn push(&mut self, name: &'static str, text: &str) {
        let texts = self.texts.entry(name).or_default();
        texts.push(text.to_owned());
    }

    /// The texts under a key, in their order; none for a key that is not given.
    pub fn texts(&self, name: &str) -> &[String] {
        self.texts.get(name).map_or(&[], Vec::as_slice)
    }

    /// The text under a key, of several the last one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts(name).last().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_texts_under_every_key_and_no_other() {
        for key in keys() {
            let mut load = LoadSpec::default();
            assert!(
                load.put(key.name, "a") && load.put(key.name, "b"),
                "{}",
                key.name
            );
            let is_list = key.form == FlagForm::Repeated;
            let expect: &[&str] = if is_list { &["a", "b"] } else { &["b"] };
            assert_eq!(load.texts(key.name), expect, "{}", key.name);
        }
        assert!(!LoadSpec::default().put("quux", "a"));
    }
}
