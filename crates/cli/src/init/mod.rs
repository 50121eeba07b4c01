//! `milepost init`: a configuration file and a systemd unit for the application in the working folder.
//!
//! Takes the folder's files, gives two new ones. Never changes a file that is there, and imports nothing.

mod detect;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use config::options_table::{FlagForm, SETTINGS, Setting};
use config::{FlagText, Sources};
use nix::unistd::{Uid, User};

use crate::environment::CertificateFiles::HandedOver;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO, environment};

use detect::Framework;
pub(crate) use detect::meant;

const CONFIG: &str = "milepost.toml";
const UNIT: &str = "milepost.service";

const HEAD: &str = "\
# The configuration of Milepost. Each key is also a flag (`milepost serve --help`) and an environment variable.
# `milepost check --config milepost.toml` finds mistakes; `milepost help TOPIC` explains the settings.
";

pub(crate) fn command() -> Command {
    Command::new("init")
        .about("Write a configuration file and a systemd unit for the application in this folder")
        .arg(Arg::new("app").value_name("APP").help(
            "Application, as MODULE:ATTRIBUTE [default: the application found in this folder]",
        ))
}

/// 0: both files are written. 1: one of them is there already, or no application was found. 2: could not write.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    let written = environment::current_dir()
        .map_err(|message| (COULD_NOT, message))
        .and_then(|folder| write(&folder, matches.get_one::<String>("app"), host));
    match written {
        Ok(text) => {
            message::data(&text);
            DONE
        }
        Err((code, message)) => {
            message.say();
            code
        }
    }
}

/// What was written, for people.
fn write(
    folder: &Path,
    app: Option<&String>,
    host: Option<&dyn AppHost>,
) -> Result<String, (i32, Message)> {
    for name in [CONFIG, UNIT] {
        // Both before either is written; a link that points nowhere counts as there, because writing would follow it.
        if fs::symlink_metadata(folder.join(name)).is_ok() {
            let message =
                Message::new(&format!("`{name}`"), "is there already; nothing is written");
            return Err((NO, message.with_hint("move it away, or edit it")));
        }
    }
    let found = match app {
        Some(app) => (checked(app)?, Framework::Other),
        None => detect::application(folder).ok_or_else(|| (NO, nothing_found(folder)))?,
    };
    let (app, framework) = found;
    let unit = unit(&app, folder, &program(host));
    new_file(&folder.join(CONFIG), &configuration(&app, framework))
        .and_then(|()| new_file(&folder.join(UNIT), &unit))
        .map_err(|message| (COULD_NOT, message))?;
    Ok(format!(
        "wrote {CONFIG} for `{app}`: milepost serve --config {CONFIG}\n\
         wrote {UNIT}: sudo cp {UNIT} /etc/systemd/system/ && sudo systemctl enable --now milepost\n"
    ))
}

/// The name of an application, if it is one.
fn checked(app: &str) -> Result<String, (i32, Message)> {
    let flag = FlagText {
        key: "app",
        text: app.to_owned(),
    };
    let sources = Sources {
        flags: vec![flag],
        ..Sources::default()
    };
    // By the same reading as `serve`, so that what is written here is accepted there.
    let understood =
        environment::understood(&sources, HandedOver).map_err(|message| (COULD_NOT, message))?;
    match understood.faults.first() {
        Some(fault) => Err((COULD_NOT, Message::from(fault))),
        None => Ok(app.to_owned()),
    }
}

fn nothing_found(folder: &Path) -> Message {
    let cause = "no application was found in manage.py, wsgi.py, app.py, main.py or a package";
    Message::new(&folder.display().to_string(), cause)
        .with_hint("name it: `milepost init MODULE:ATTRIBUTE`")
}

fn new_file(path: &Path, text: &str) -> Result<(), Message> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            let name = path.display().to_string();
            Message::new(
                &name,
                format!("cannot be written: {}", environment::cause(&error)),
            )
        })
}

/// The settings of daily use, with their defaults, behind `#`.
fn configuration(app: &str, framework: Framework) -> String {
    let mut text = format!("{HEAD}\napp = \"{app}\"\n\n");
    let daily = |setting: &&Setting| {
        let is_written = ["app", "config", "bind", "static", "access_log"].contains(&setting.key);
        setting.is_daily && !is_written
    };
    text.push_str("# Addresses: HOST:PORT, :PORT, unix:PATH or systemd\n");
    text.push_str("bind = [\"127.0.0.1:8000\"]\n");
    // Its default writes to a terminal alone, which a service has not.
    text.push_str(
        "\n# The access log: standard output, under systemd the journal; a file, or off\n",
    );
    text.push_str("access_log = [\"-\"]\n");
    for setting in SETTINGS.iter().filter(daily) {
        text.push_str(&format!(
            "\n# {}\n# {} = {}\n",
            setting.help,
            setting.key,
            example(setting)
        ));
    }
    text.push_str("\n# Folders of files, by URL. Tables stand at the end of the file.\n");
    if framework == Framework::Django {
        text.push_str("# STATIC_URL and STATIC_ROOT, after `python manage.py collectstatic`:\n");
    }
    text.push_str("# [static]\n# \"/static\" = \"static\"\n");
    text.push_str(
        "\n# Functions to call when something happens to a process: `milepost help processes`\n",
    );
    text.push_str("# [hooks]\n# post_fork = \"MODULE:FUNCTION\"\n");
    text
}

/// The default of a setting, or what stands for a value, as TOML.
fn example(setting: &Setting) -> String {
    let value = match setting.default {
        "" => setting.placeholder(),
        default => default,
    };
    let is_bare = ["true", "false"].contains(&value) || value.bytes().all(|b| b.is_ascii_digit());
    match (is_bare, setting.form()) {
        (true, _) => value.to_owned(),
        (false, FlagForm::Repeated) => format!("[\"{value}\"]"),
        (false, _) => format!("\"{value}\""),
    }
}

/// What starts this command from any folder, as a unit has it.
fn program(host: Option<&dyn AppHost>) -> String {
    match host.and_then(|host| host.command().into_iter().next()) {
        Some(python) => format!("{} -m milepost", word(&python)),
        None => {
            let own =
                std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/milepost"));
            word(own.as_os_str())
        }
    }
}

fn unit(app: &str, folder: &Path, program: &str) -> String {
    let config = folder.join(CONFIG);
    let replacements = [
        ("{app}", app.replace('%', "%%")),
        ("{program}", program.to_owned()),
        ("{config}", word(config.as_os_str())),
        // A whole line: no quotes.
        ("{folder}", folder.display().to_string().replace('%', "%%")),
        ("{user}", user(folder)),
    ];
    let template = include_str!("milepost.service").to_owned();
    replacements
        .iter()
        .fold(template, |text, (name, value)| text.replace(name, value))
}

/// The owner of the folder, who may write into it; a folder of root's is read by a user that systemd makes up.
fn user(folder: &Path) -> String {
    let owner = fs::metadata(folder).map_or(0, |facts| facts.uid());
    if owner == 0 {
        return "# The folder is root's. A user of your choice: `User=NAME`\nDynamicUser=yes"
            .to_owned();
    }
    let named = User::from_uid(Uid::from_raw(owner)).ok().flatten();
    format!(
        "User={}",
        named.map_or_else(|| owner.to_string(), |user| user.name)
    )
}

/// A word of a command line of systemd, which has quotes, escapes, variables and specifiers of its own.
fn word(text: &OsStr) -> String {
    let text = text.to_string_lossy().replace('%', "%%").replace('$', "$$");
    match text.contains([' ', '\t', '"', '\'', '\\', ';']) {
        true => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_words_that_systemd_reads_as_they_are() {
        let check = |text: &str, expect: &str| assert_eq!(word(OsStr::new(text)), expect);
        check("/srv/shop/bin/python", "/srv/shop/bin/python");
        check("/srv/my shop", "\"/srv/my shop\"");
        check("/srv/100%$", "/srv/100%%$$");
        check("/srv/a\"b", "\"/srv/a\\\"b\"");
    }

    #[test]
    fn a_service_has_an_access_log() {
        let text = configuration("shop:app", Framework::Other);
        let lines = text.lines().filter(|line| line.contains("access_log"));
        assert_eq!(lines.collect::<Vec<_>>(), ["access_log = [\"-\"]"]);
    }

    #[test]
    fn the_configuration_is_one_with_and_without_its_comments() {
        let text = configuration("shop:app", Framework::Django);
        // What is to be commented out are the lines of the form `# key = value` and `# [table]`.
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        for text in [text, all] {
            let toml = config::TomlText {
                file: CONFIG.to_owned(),
                text,
            };
            let sources = Sources {
                toml: Some(toml),
                ..Sources::default()
            };
            let understood = environment::understood(&sources, HandedOver).unwrap();
            // Placeholders are no values: what counts is that every key is known.
            let unknown = |fault: &&config::ConfigFault| {
                fault.cause.contains("unknown") || fault.cause.contains("TOML")
            };
            assert_eq!(understood.faults.iter().find(unknown), None);
        }
    }
}
