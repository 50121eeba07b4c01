//! What people wrote, before anybody understood it: the text of a TOML file, environment variables and
//! flags.
//!
//! Filled by whoever may read files and the environment (`cli`); holds texts only.

use std::collections::BTreeMap;

/// Variables of platforms and other servers, with the settings that they are: they come right after the defaults.
pub const OTHERS_VARIABLES: [(&str, &str); 2] =
    [("PORT", "bind"), ("WEB_CONCURRENCY", "processes")];

/// Everything written, for [`super::load`].
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file, if there is one.
    pub toml: Option<TomlText>,
    /// Environment variables; those that neither begin with `MILEPOST_` nor are among [`OTHERS_VARIABLES`] are
    /// ignored.
    pub environment: BTreeMap<String, String>,
    /// Flags in `GUNICORN_CMD_ARGS`.
    pub gunicorn_flags: Vec<FlagText>,
    /// Flags and positional arguments, in the order given.
    pub flags: Vec<FlagText>,
}

/// A configuration file.
#[derive(Clone, Debug)]
pub struct TomlText {
    /// Its name as it was given, for messages.
    pub file: String,
    /// Its content.
    pub text: String,
}

/// One use of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagText {
    /// Key of the setting in the table, or a name that [`super::options_table::known_flag`] gives.
    pub key: &'static str,
    /// Its value; repeated flags come once each.
    pub text: String,
}
