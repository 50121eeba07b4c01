//! `milepost trust`: the root of the local certificate authority in the system's trust store, or out of it.

use std::path::{Path, PathBuf};

use acme::storage::Storage;
use acme::{TrustChange, TrustFault, TrustStore};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use config::failure::plain;
use rustix::process::geteuid;

use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, environment};

/// Browsers that do not read the system's store, and what to do about them.
const BROWSERS: &str = "Firefox, and Chromium on Linux, have stores of their own: import the file there as an authority";

pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("trust")
        .about("Let this system trust the certificates that Milepost makes for localhost")
        .arg(flag(
            "print",
            "Print the root certificate (PEM), and change nothing",
        ))
        .arg(
            flag(
                "remove",
                "Take the root certificate out of the system's trust store",
            )
            .conflicts_with("print"),
        )
        .arg(
            Arg::new("acme-storage")
                .long("acme-storage")
                .value_name("DIR")
                .value_hint(ValueHint::DirPath)
                .help("Folder that holds the local authority [default: that of `milepost serve`]"),
        )
}

/// 0: done, or nothing was to be done. 2: could not.
pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let done = match matches.get_flag("remove") {
        true => store().and_then(|store| {
            let change = store.remove().map_err(|fault| say_why(&fault, None));
            Ok(text(&store, change?))
        }),
        false => folder(matches).and_then(|folder| install(&folder, matches.get_flag("print"))),
    };
    match done {
        Ok(text) => {
            message::data(&text);
            DONE
        }
        Err(message) => {
            message.within("trust").say();
            COULD_NOT
        }
    }
}

fn install(folder: &Path, prints: bool) -> Result<String, Message> {
    let root = acme::root(&Storage::new(folder)).map_err(|error| {
        let cause = format!("cannot hold a local authority: {}", plain(&error));
        Message::new(&format!("`{}`", folder.display()), cause)
            .with_hint("`--acme-storage` names another folder")
    })?;
    if prints {
        return Ok(root);
    }
    let store = store()?;
    let change = store
        .install(&root)
        .map_err(|fault| say_why(&fault, Some(folder)))?;
    Ok(text(&store, change))
}

fn folder(matches: &ArgMatches) -> Result<PathBuf, Message> {
    let named = matches.get_one::<String>("acme-storage").map(PathBuf::from);
    if named.is_none() && geteuid().is_root() && std::env::var_os("SUDO_USER").is_some() {
        // That of root would be made, and trusted, while the server of the user has another authority.
        let cause = "`sudo` hides whose authority is meant";
        return Err(Message::from_text(cause).with_hint(
            "name its folder: `sudo milepost trust --acme-storage ~/.local/share/milepost`, or /var/lib/milepost for a server that root starts",
        ));
    }
    named
        .or_else(|| environment::storage_dir(""))
        .ok_or_else(|| {
            Message::from_text("no folder: neither STATE_DIRECTORY, XDG_DATA_HOME nor HOME is set")
                .with_hint("name one with `--acme-storage`")
        })
}

fn store() -> Result<TrustStore, Message> {
    TrustStore::find(Path::new("/")).ok_or_else(|| {
        Message::from_text("this system's trust store was not found").with_hint(
            "`milepost trust --print` gives the root certificate, to be installed by hand",
        )
    })
}

/// What has happened, for people.
fn text(store: &TrustStore, change: TrustChange) -> String {
    let (name, file, command) = (acme::ROOT_NAME, store.file().display(), store.command());
    match change {
        TrustChange::Installed => {
            format!("`{name}` is trusted now: {file} is written, `{command}` has run\n{BROWSERS}\n")
        }
        TrustChange::Unchanged => format!("`{name}` is trusted already: {file}\n{BROWSERS}\n"),
        TrustChange::Removed => {
            format!("`{name}` is no longer trusted: {file} is removed, `{command}` has run\n")
        }
        TrustChange::Absent => format!("`{name}` was not trusted: there is no {file}\n"),
    }
}

/// Root has another folder of its own: as root, the folder must be named.
fn say_why(fault: &TrustFault, folder: Option<&Path>) -> Message {
    let message = Message::from_text(fault.to_string());
    if geteuid().is_root() {
        return message;
    }
    let command = match folder {
        Some(folder) => format!("sudo milepost trust --acme-storage {}", folder.display()),
        None => "sudo milepost trust --remove".to_owned(),
    };
    message.with_hint(format!(
        "only root may change the system's trust store: `{command}`"
    ))
}
