//! What people wrote, before anybody understood it: the text of a TOML file, environment variables and
//! flags.
//!
//! Filled by whoever may read files and the environment (`cli`); holds texts only.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::options_table::known_flag;

/// Variables of platforms and other servers, with the settings that they are: they come right after the defaults.
pub const OTHERS_VARIABLES: [(&str, &str); 2] =
    [("PORT", "bind"), ("WEB_CONCURRENCY", "processes")];

/// What variables of OpenTelemetry begin with; they count where traces are on.
pub const OTEL_PREFIX: &str = "OTEL_";

/// Everything written, for [`super::load`]. As JSON it goes to other processes of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The configuration file, if there is one.
    pub toml: Option<TomlText>,
    /// Environment variables; those that begin neither with `MILEPOST_` nor with [`OTEL_PREFIX`], and are not
    /// among [`OTHERS_VARIABLES`], are ignored.
    pub environment: BTreeMap<String, String>,
    /// Flags in `GUNICORN_CMD_ARGS`.
    #[serde(default, deserialize_with = "known_flags")]
    pub gunicorn_flags: Vec<FlagText>,
    /// Flags and positional arguments, in the order given.
    #[serde(deserialize_with = "known_flags")]
    pub flags: Vec<FlagText>,
}

/// A configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TomlText {
    /// Its name as it was given, for messages.
    pub file: String,
    /// Its content.
    pub text: String,
}

/// One use of a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlagText {
    /// Key of the setting in the table, or a name that [`super::options_table::known_flag`] gives.
    pub key: &'static str,
    /// Its value; repeated flags come once each.
    pub text: String,
}

/// Flags of which another version may have written some that this one does not know: these are left out.
fn known_flags<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<FlagText>, D::Error> {
    #[derive(Deserialize)]
    struct WrittenFlag {
        key: String,
        text: String,
    }
    let written = Vec::<WrittenFlag>::deserialize(from)?.into_iter();
    let known = written.filter_map(|WrittenFlag { key, text }| {
        // An upgrade hands over the flags of the version before, which may have had one more.
        let key = known_flag(&key)?;
        Some(FlagText { key, text })
    });
    Ok(known.collect())
}
