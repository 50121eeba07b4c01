//! Which running server is meant: by what was named, or the only one that there is.
//!
//! Takes flags and what configuration they name, gives a control socket, or a process where only that is
//! known. Reads files, connects to see who lives; sends nothing.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, ValueHint};
use config::typed::ControlConfig;
use ipc::pidfile;
use supervisor::control::place::{self, Entry, Who};

use super::{Failure, signal, talking};
use crate::environment;
use crate::message::Message;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A supervisor's socket.
    Socket(PathBuf),
    /// The socket of the only server of this user, which nothing named; and what to call the server.
    OnlyOne(PathBuf, String),
    /// A process without a socket that could be found.
    Process(u32),
}

/// Flags that name a server. Those that settings have too have the settings' names.
pub(super) fn args() -> [Arg; 4] {
    let file = |name: &'static str, long: &'static str, help: &'static str| {
        Arg::new(name)
            .long(long)
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .help(help)
    };
    let pid = Arg::new("pid")
        .long("pid")
        .value_name("PID")
        .help("Process id of the server");
    [
        file("control", "control", "Control socket of the server")
            .conflicts_with_all(["config", "pid_file", "pid"]),
        file("config", "config", "Configuration file of the server")
            .short('c')
            .conflicts_with("pid"),
        file(
            "pid_file",
            "pid-file",
            "File that holds the process id of the server",
        )
        .conflicts_with("pid"),
        pid,
    ]
}

/// The server that is meant.
///
/// # Errors
/// Nobody is there, or it is not said who is meant.
pub(super) fn find(matches: &ArgMatches) -> Result<Found, Failure> {
    if let Some(socket) = matches.get_one::<String>("control") {
        return Ok(Found::Socket(PathBuf::from(socket)));
    }
    let who = environment::who();
    let entries = || place::entries(&who.folders_to_search(), who.uid);
    if let Some(text) = matches.get_one::<String>("pid") {
        let pid = text.parse().ok().filter(|pid| signal::is_pid(*pid));
        return match pid {
            Some(pid) => Ok(of_process(pid, &who, entries())),
            None => {
                let cause = format!("expected the process id of a server, found `{text}`");
                Err(Failure::could_not(Message::new("`--pid`", cause)))
            }
        };
    }
    if let Some(file) = matches.get_one::<String>("pid_file") {
        let pid = in_file(Path::new(file))?;
        return Ok(of_process(pid, &who, entries()));
    }
    // Before anything changes the folder that its name starts from.
    let config_file = environment::config_file(matches).map(|file| place::settled(&file));
    match configured(matches, config_file.as_deref())? {
        Named::Socket(socket) => Ok(Found::Socket(socket)),
        Named::Config { file, pid_file } => of_config(&file, pid_file, &who, entries()),
        Named::PidFile(file) => Ok(of_process(in_file(&file)?, &who, entries())),
        Named::Nothing => {
            let living: Vec<Entry> = entries().into_iter().filter(talking::lives).collect();
            the_only_one(&living, arguments).map(|found| match (found, living.as_slice()) {
                (Found::Socket(socket), [one]) => {
                    let listed = listed(one, &arguments(one.pid));
                    Found::OnlyOne(socket, format!("process {}", listed.trim()))
                }
                (found, _) => found,
            })
        }
    }
}

/// What a configuration says about where to find its server.
enum Named {
    Socket(PathBuf),
    Config {
        file: PathBuf,
        /// Or why none is known.
        pid_file: Result<Option<PathBuf>, Vec<Message>>,
    },
    PidFile(PathBuf),
    Nothing,
}

fn configured(matches: &ArgMatches, config_file: Option<&Path>) -> Result<Named, Failure> {
    let sources = match (environment::sources(matches), config_file) {
        (Ok(sources), _) => sources,
        (Err(message), None) => return Err(Failure::could_not(message)),
        // Its server may run all the same.
        (Err(message), Some(file)) => {
            return Ok(Named::Config {
                file: file.to_owned(),
                pid_file: Err(vec![message]),
            });
        }
    };
    if let Ok(ControlConfig::At(socket)) = config::control(&sources) {
        return Ok(Named::Socket(place::settled(&socket)));
    }
    let pid_file =
        config::pid_file(&sources).map_err(|faults| faults.iter().map(Message::from).collect());
    match (config_file, pid_file) {
        (Some(file), pid_file) => Ok(Named::Config {
            file: file.to_owned(),
            pid_file,
        }),
        (None, Ok(Some(file))) => Ok(Named::PidFile(file)),
        (None, Ok(None)) => Ok(Named::Nothing),
        (None, Err(messages)) => Err(faulty(messages)),
    }
}

fn faulty(messages: Vec<Message>) -> Failure {
    Failure {
        code: crate::COULD_NOT,
        messages,
    }
}

/// By the entry that it has in its user's folder.
fn of_process(pid: u32, who: &Who, entries: Vec<Entry>) -> Found {
    let is_meant = |entry: &Entry| entry.pid == pid && talking::lives(entry);
    let others = owner(pid).filter(|uid| *uid != who.uid).map(|uid| Who {
        uid,
        runtime_dir: None,
    });
    // Root may command everybody's, wherever they have theirs.
    let others = others
        .map(|who| place::entries(&who.folders_to_search(), who.uid))
        .unwrap_or_default();
    match entries.into_iter().chain(others).find(is_meant) {
        Some(entry) => Found::Socket(entry.control),
        None => Found::Process(pid),
    }
}

fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let facts = std::fs::metadata(format!("/proc/{pid}")).ok()?;
    Some(facts.uid())
}

fn of_config(
    file: &Path,
    pid_file: Result<Option<PathBuf>, Vec<Message>>,
    who: &Who,
    entries: Vec<Entry>,
) -> Result<Found, Failure> {
    let is_meant = |entry: &&Entry| entry.config_file.as_deref() == Some(file);
    let living: Vec<Entry> = entries
        .iter()
        .filter(is_meant)
        .filter(|entry| talking::lives(entry))
        .cloned()
        .collect();
    match (living.as_slice(), pid_file) {
        ([_, ..], _) => the_only_one(&living, arguments),
        // What is wrong with a configuration does not matter while its server can be found.
        ([], Err(messages)) => Err(faulty(messages)),
        ([], Ok(Some(pid_file))) => Ok(of_process(in_file(&pid_file)?, who, entries)),
        ([], Ok(None)) => {
            let what = format!("`{}`", file.display());
            let message = Message::new(&what, "no server of this user runs with it");
            let hint = "`milepost status` without `--config` looks for any; `--control FILE` and `--pid PID` name one of another user";
            Err(Failure::no(message.with_hint(hint)))
        }
    }
}

/// `arguments` are those that a process was started with.
fn the_only_one(living: &[Entry], arguments: fn(u32) -> String) -> Result<Found, Failure> {
    match living {
        [one] => Ok(Found::Socket(one.control.clone())),
        [] => {
            let message = Message::from_text("no server of this user was found");
            let hint = "`--control FILE`, `--pid-file FILE` or `--pid PID` names one";
            Err(Failure::no(message.with_hint(hint)))
        }
        several => {
            let text = format!("{} servers are running: choose one", several.len());
            let lines = several.iter().map(|one| listed(one, &arguments(one.pid)));
            let listed: String = lines.collect();
            let message = Message::from_text(text).with_detail(listed);
            Err(Failure::could_not(
                message.with_hint("`--pid PID` names one"),
            ))
        }
    }
}

/// What a server was started with: its application and its address, unless its configuration file says them.
fn arguments(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let words: Vec<_> = words.skip_while(|word| word != "serve").skip(1).collect();
    words.join(" ").trim_end().to_owned()
}

fn listed(entry: &Entry, arguments: &str) -> String {
    let about = match &entry.config_file {
        Some(file) => file.display(),
        None => entry.control.display(),
    };
    let with = match arguments.is_empty() {
        true => String::new(),
        false => format!(" ({arguments})"),
    };
    format!("{:>10}  {about}{with}\n", entry.pid)
}

fn in_file(file: &Path) -> Result<u32, Failure> {
    let what = format!("pid file `{}`", file.display());
    match pidfile::read(file) {
        Ok(Some(pid)) => Ok(pid),
        Ok(None) => Err(Failure::no(Message::new(&what, "it is empty"))),
        Err(error) => {
            let message = Message::new(&what, environment::cause(&error));
            Err(match error.kind() {
                io::ErrorKind::NotFound => {
                    let hint = "the server that writes it (`pid_file`) does not run";
                    Failure::no(message.with_hint(hint))
                }
                _ => Failure::could_not(message),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, name: &str, config: Option<&str>) -> Entry {
        Entry {
            pid,
            control: PathBuf::from(format!("/run/milepost/{name}.sock")),
            config_file: config.map(PathBuf::from),
        }
    }

    #[test]
    fn takes_the_only_server_and_asks_which_of_several() {
        let typed = |pid| match pid {
            7 => "shop:app --bind :8000".to_owned(),
            _ => String::new(),
        };
        let one = entry(7, "pid-7", None);
        let found = the_only_one(std::slice::from_ref(&one), typed).unwrap();
        assert_eq!(found, Found::Socket(one.control.clone()));
        let none = the_only_one(&[], typed).unwrap_err();
        assert_eq!(none.code, crate::NO);
        let other = entry(12, "shop-0", Some("/etc/shop.toml"));
        let several = the_only_one(&[one, other], typed).unwrap_err();
        assert_eq!(several.code, crate::COULD_NOT);
        let expect = "         7  /run/milepost/pid-7.sock (shop:app --bind :8000)\n        12  /etc/shop.toml\n\
                      milepost: 2 servers are running: choose one\nhint: `--pid PID` names one\n";
        assert_eq!(several.messages[0].text(), expect);
    }

    #[test]
    fn finds_nobody_by_the_entry_of_a_server_that_was_killed() {
        let who = Who {
            runtime_dir: None,
            ..environment::who()
        };
        let own = std::process::id();
        let dead = entry(own, "nobody-listens-here", Some("/etc/shop.toml"));
        assert_eq!(
            of_process(own, &who, vec![dead.clone()]),
            Found::Process(own)
        );
        let failure = of_config(Path::new("/etc/shop.toml"), Ok(None), &who, vec![dead]);
        let failure = failure.unwrap_err();
        assert_eq!(failure.code, crate::NO);
        let text = failure.messages[0].text();
        assert!(text.contains("`/etc/shop.toml`: no server of this user runs"));
    }
}
