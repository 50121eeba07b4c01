//! What is served, and the configuration file that is written.
//!
//! Takes an application or a configuration, gives the words for `milepost serve`; takes the recommended settings, gives
//! the text of a file with them. Other settings and comments stay.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, value};

use super::server::WorkFolder;
use crate::environment::cause;
use crate::message::Message;

/// The usual name of the file that is written.
const OUTPUT: &str = "milepost.toml";

/// Settings of addresses, certificates, users and logs, which the tuned server must not have: it is nobody's server.
const OF_THE_PUBLIC: [&str; 30] = [
    "config",
    "app",
    "bind",
    "processes",
    "workers",
    "threads",
    "user",
    "group",
    "umask",
    "admin_bind",
    "admin_token_file",
    "control",
    "pid_file",
    "pid",
    "domain",
    "tls_cert",
    "tls_key",
    "tls_key_password_file",
    "tls_client_ca",
    "tls_client_auth",
    "tls_crl",
    "tls_ocsp",
    "tls_ticket_keys",
    "https_redirect",
    "hsts",
    "access_log",
    "access_log_format",
    "error_log",
    "reload",
    "certificate",
];

/// Whether a setting is one that the tuned server does not take over.
pub(super) fn is_of_the_public(key: &str) -> bool {
    OF_THE_PUBLIC.contains(&key) || key.starts_with("acme_") || key.starts_with("tls_")
}

/// What is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServedApp {
    /// An application.
    App(String),
    /// A configuration, and the copy of it that the tuned server reads.
    Config { file: PathBuf, copy: PathBuf },
}

impl ServedApp {
    /// An application, or the file of a configuration.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or no copy can be made.
    pub(super) fn of(text: &str, folder: &WorkFolder) -> Result<ServedApp, Message> {
        if !text.ends_with(".toml") {
            return Ok(ServedApp::App(text.to_owned()));
        }
        let what = format!("`{text}`");
        let fault = |cause: String| Message::new(&what, cause);
        let written = fs::read_to_string(text).map_err(|error| fault(cause(&error)))?;
        let copied = private(&written).map_err(fault)?;
        let copy = folder.file("copy.toml");
        fs::write(&copy, copied).map_err(|error| fault(cause(&error)))?;
        Ok(ServedApp::Config {
            file: PathBuf::from(text),
            copy,
        })
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        match self {
            ServedApp::App(name) => format!("`{name}`"),
            ServedApp::Config { file, .. } => format!("`{}`", file.display()),
        }
    }

    /// For `milepost serve`.
    pub(super) fn words(&self) -> Vec<OsString> {
        match self {
            ServedApp::App(name) => vec![name.into()],
            ServedApp::Config { copy, .. } => vec!["--config".into(), copy.into()],
        }
    }

    /// A text of the server with the name of the file that the user knows.
    pub(super) fn with_own_names(&self, text: &str) -> String {
        match self {
            ServedApp::App(_) => text.to_owned(),
            ServedApp::Config { file, copy } => {
                let [file, copy] = [file, copy].map(|path| path.display().to_string());
                text.replace(&copy, &file)
            }
        }
    }

    /// The file that is written, unless another one is named.
    pub(super) fn output(&self) -> PathBuf {
        match self {
            ServedApp::App(_) => PathBuf::from(OUTPUT),
            ServedApp::Config { file, .. } => file.clone(),
        }
    }
}

/// A configuration without what makes it a public server.
fn private(text: &str) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    let keys: Vec<String> = document.iter().map(|(key, _)| key.to_owned()).collect();
    for key in keys {
        // The application stays: it is not named in another place.
        if is_of_the_public(&key) && key != "app" {
            document.remove(&key);
        }
    }
    Ok(document.to_string())
}

/// What is recommended, as settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TunedSettings {
    pub(super) processes: usize,
    /// `None`: an event loop has no number of them.
    pub(super) threads: Option<usize>,
    /// Of an event loop: `MIN:MAX`.
    pub(super) concurrency: Option<&'static str>,
}

impl TunedSettings {
    /// The lines of a file.
    pub(super) fn lines(&self) -> String {
        let mut text = format!("processes = {}\n", self.processes);
        if let Some(threads) = self.threads {
            text.push_str(&format!("threads = {threads}\n"));
        }
        if let Some(concurrency) = self.concurrency {
            text.push_str(&format!("asgi_concurrency = \"{concurrency}\"\n"));
        }
        text
    }

    /// A configuration with them; everything else is as it was.
    fn merged(&self, text: &str) -> Result<String, String> {
        let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
        // Both names would be there for one setting.
        document.remove("workers");
        let mut set = |key: &str, new: Item| match document.get_mut(key) {
            Some(Item::Value(old)) => {
                // The comment behind a value is kept.
                let decor = old.decor().clone();
                if let Item::Value(mut new) = new {
                    *new.decor_mut() = decor;
                    *old = new;
                }
            }
            _ => {
                document.insert(key, new);
            }
        };
        set("processes", value(self.processes as i64));
        if let Some(threads) = self.threads {
            set("threads", value(threads as i64));
        }
        if let Some(concurrency) = self.concurrency {
            set("asgi_concurrency", value(concurrency));
        }
        Ok(document.to_string())
    }
}

/// Writes the settings; gives what was done in a sentence.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn write(
    settings: &TunedSettings,
    app: &ServedApp,
    path: &Path,
    is_forced: bool,
) -> Result<String, Message> {
    let what = format!("`{}`", path.display());
    let fault = |cause: String| Message::new(&what, cause);
    let is_there = fs::symlink_metadata(path).is_ok();
    if is_there && !is_forced {
        return Ok(format!(
            "{what} is there and stays as it is; `--force` sets these lines in it and keeps the rest:\n{}",
            settings.lines()
        ));
    }
    let text = match (is_there, app) {
        (true, _) => {
            let before = fs::read_to_string(path).map_err(|error| fault(cause(&error)))?;
            settings.merged(&before).map_err(fault)?
        }
        (false, ServedApp::App(name)) => {
            let app = value(name.as_str());
            format!("app = {app}\n{}", settings.lines())
        }
        (false, ServedApp::Config { file, .. }) => {
            let before = fs::read_to_string(file).map_err(|error| fault(cause(&error)))?;
            settings.merged(&before).map_err(fault)?
        }
    };
    fs::write(path, text)
        .map_err(|error| fault(format!("cannot be written: {}", cause(&error))))?;
    let path = path.display();
    Ok(format!(
        "wrote {what}: `milepost serve --config {path}` has these settings\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADED: TunedSettings = TunedSettings {
        processes: 2,
        threads: Some(12),
        concurrency: None,
    };

    #[test]
    fn keeps_other_settings_and_comments() {
        let before = "\
# Ours.
app = \"shop:app\"
threads = \"4:8\"  # as measured
[static]
\"/static\" = \"static\"
";
        let expect = "\
# Ours.
app = \"shop:app\"
threads = 12  # as measured
processes = 2
[static]
\"/static\" = \"static\"
";
        assert_eq!(THREADED.merged(before).expect("TOML"), expect);
        let other = THREADED.merged("workers = 4\n").expect("TOML");
        assert_eq!(other, "processes = 2\nthreads = 12\n");
        assert!(THREADED.merged("threads = = 3").is_err());
    }

    #[test]
    fn an_event_loop_has_no_threads() {
        let event_loop = TunedSettings {
            processes: 2,
            threads: None,
            concurrency: Some("100:1000"),
        };
        let expect = "processes = 2\nasgi_concurrency = \"100:1000\"\n";
        assert_eq!(event_loop.lines(), expect);
        assert_eq!(event_loop.merged("").expect("TOML"), expect);
    }

    #[test]
    fn writes_over_no_file_without_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("milepost.toml");
        let app = ServedApp::App("shop:app".to_owned());
        let write = |is_forced| write(&THREADED, &app, &path, is_forced).expect("no fault");
        assert!(write(false).starts_with("wrote"));
        let read = || fs::read_to_string(&path).expect("a file");
        let expect = "app = \"shop:app\"\nprocesses = 2\nthreads = 12\n";
        assert_eq!(read(), expect);
        fs::write(&path, "app = \"other:app\"\n").expect("written");
        assert!(write(false).contains("stays as it is"));
        assert_eq!(read(), "app = \"other:app\"\n");
        write(true);
        assert_eq!(read(), "app = \"other:app\"\nprocesses = 2\nthreads = 12\n");
    }

    #[test]
    fn the_tuned_server_is_not_the_public_one() {
        let text = "\
app = \"shop:app\"
bind = [\":443\"]
user = \"www\"
tls_cert = \"a.pem\"
acme_email = \"a@b\"
queue_timeout = \"3s\"
[static]
\"/s\" = \"s\"
";
        let expect = "app = \"shop:app\"\nqueue_timeout = \"3s\"\n[static]\n\"/s\" = \"s\"\n";
        assert_eq!(private(text).expect("TOML"), expect);
    }
}
