//! `milepost serve`: the supervisor, or one of the processes that it has started.
//!
//! Every fault before the run is one clear message and exit code 2, with nothing left behind.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use config::failure::Failure;
use config::failure::StartFault;
use config::typed::{App, Config, PoolConfig, PoolRuns};
use config::{Loaded, Sources};
use ipc::HANDOVER;
use ipc::payload::Payload;
use server::handler::Handler;
use supervisor::{
    self, Fresh, Handed, Overrides, PreparedCredentials, Program, Serving, Succession,
    SupervisorEnvironment,
};

use crate::banner::{self, Facts};
use crate::command::VERSION;
use crate::environment::CertificateFiles;
use crate::host::{AppFacts, AppHost};
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, acme_client, certificates, environment, init, process};

/// gunicorn's configuration file in the working folder.
const GUNICORN_FILE: &str = "gunicorn.conf.py";

/// Serves until it is told to stop.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    let Some(number) = std::env::var_os(HANDOVER) else {
        return or_say(supervise(matches, host, None));
    };
    match supervisor::receive(&number) {
        Ok(Handed::Process(channel)) => process::run(channel, host),
        Ok(Handed::Probe(payload)) => probe(&payload),
        Ok(Handed::Succession(state)) => or_say(supervise(matches, host, Some(*state))),
        Err(error) => {
            let cause = format!("names nothing that was handed over: {error}");
            let hint = "it is set by milepost itself for the processes that it starts";
            Message::new(&format!("`{HANDOVER}`"), cause)
                .with_hint(hint)
                .say();
            COULD_NOT
        }
    }
}

/// The same for a program that calls it.
///
/// # Errors
/// What is wrong with the settings; then nothing was started.
pub(crate) fn from_program(
    matches: &ArgMatches,
    host: Option<&dyn AppHost>,
) -> Result<i32, Vec<Failure>> {
    supervise(matches, host, None)
        .map_err(|messages| messages.into_iter().map(Failure::from).collect())
}

/// What is wrong with the settings.
pub(crate) fn faults(matches: &ArgMatches) -> Vec<Failure> {
    let messages = first(matches).err().unwrap_or_default();
    messages.into_iter().map(Failure::from).collect()
}

fn or_say(ended: Result<i32, Vec<Message>>) -> i32 {
    ended.unwrap_or_else(|messages| {
        message::say_all(&messages);
        COULD_NOT
    })
}

/// Whether this program could succeed one with this configuration.
fn probe(payload: &Payload) -> i32 {
    match understand(payload) {
        Ok(_) => DONE,
        Err(failures) => {
            let text: String = failures.iter().map(Failure::text).collect();
            message::talk(&text);
            COULD_NOT
        }
    }
}

/// Loads all applications; without a host, says how to get one.
///
/// # Errors
/// What is wrong with the first that cannot be served.
pub(crate) fn load_apps(
    config: &Config,
    host: Option<&dyn AppHost>,
) -> Result<Vec<Arc<dyn Handler>>, Message> {
    let Some(first) = config.apps.first() else {
        return Ok(Vec::new());
    };
    let Some(host) = host else {
        let cause = "this binary has no Python";
        let hint = "install the wheel (`pip install milepost`), or serve files with `--static`";
        return Err(Message::new(&format!("`{}`", banner::app_name(first)), cause).with_hint(hint));
    };
    let facts: Vec<AppFacts> = (0..config.apps.len())
        .map(|app| facts(app, config))
        .collect();
    let hinted = |failure| Message::from(hinted(failure, &config.apps));
    host.load(&config.apps, &facts).map_err(hinted)
}

/// With the module that was probably meant, where the folder holds a project of Django or a package like one.
fn hinted(failure: Failure, apps: &[App]) -> Failure {
    let is_its = |app: &&App| failure.message.starts_with(&format!("`{}`: ", app.name()));
    // A module that raised is the one that was meant, and a name close to the one that was given is better known.
    let is_known = failure.detail.is_some()
        || failure
            .hint
            .as_ref()
            .is_some_and(|hint| hint.starts_with("did you mean"));
    let meant = apps.iter().find(is_its).filter(|_| !is_known);
    match meant.and_then(|app| init::meant(&app.module, &app.app_dir)) {
        Some(name) => failure.with_hint(format!("did you mean `{name}`?")),
        None => failure,
    }
}

fn facts(app: usize, config: &Config) -> AppFacts {
    let is_its = |pool: &&PoolConfig| pool.runs == PoolRuns::App(app);
    let its_pools = config.pools.iter().filter(is_its);
    AppFacts {
        multithread: its_pools.map(|pool| pool.threads_max).sum::<usize>() > 1,
        multiprocess: config.processes.count > 1,
        asgi: config.asgi,
    }
}

/// # Errors
/// What is wrong with the settings or with the folder.
fn supervise(
    matches: &ArgMatches,
    host: Option<&dyn AppHost>,
    state: Option<Succession>,
) -> Result<i32, Vec<Message>> {
    let started = environment::current_dir().map_err(|fault| vec![fault])?;
    let reread = |overrides: &Overrides| read_again(matches, &started, overrides);
    let understand = |payload: &Payload| understand(payload);
    let around = SupervisorEnvironment {
        program: program(host, &started),
        config_file: environment::config_file(matches).map(|file| started.join(file)),
        runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        reread: &reread,
        understand: &understand,
        certificate_files: supervisor::CertificateFiles {
            read: certificates::read,
            prepare: prepared,
        },
        placeholder_issuer: acme::PLACEHOLDER_NAME,
        serving: &tell_serving,
        version: VERSION,
    };
    let ended = match state {
        Some(state) => supervisor::succeed(state, around),
        None => {
            // Only a first start reads the settings here: a supervisor that succeeds another one has been given them.
            let fresh = first(matches)?;
            let lines = acme_client::prepare(&fresh.loaded.config);
            for line in lines.map_err(|message| vec![message])? {
                message::talk(&format!("milepost: certificates: {line}\n"));
            }
            environment::raise_open_files(supervisor_files(&fresh.loaded.config));
            supervisor::run(fresh, around)
        }
    };
    Ok(ended.unwrap_or_else(|fault| {
        start_fault(&fault).say();
        COULD_NOT
    }))
}

/// Descriptors of the supervisor: sockets, a channel and a pidfd for each process of two generations, and
/// some for commands and files.
fn supervisor_files(config: &Config) -> u64 {
    let processes = config.processes.count as u64;
    let drivers = config.listen.drivers as u64;
    assert!(processes > 0 && drivers > 0, "nobody serves");
    // A name may stand for several addresses, which are known only once it is resolved.
    let addresses = config.binds.len() as u64 * 4;
    processes * drivers * addresses + processes * 8 + 256
}

/// With the files of certificates, as they are before the server makes or mends any.
fn first(matches: &ArgMatches) -> Result<Fresh, Vec<Message>> {
    let sources = environment::sources(matches).map_err(|fault| vec![fault])?;
    fresh(&sources, CertificateFiles::Checked)
}

/// What sources that were just read say, in the folder that they name.
fn fresh(sources: &Sources, files: CertificateFiles) -> Result<Fresh, Vec<Message>> {
    let understood = environment::understood(sources, files);
    let mut understood = understood.map_err(|fault| vec![fault])?;
    let faults: Vec<Message> = match understood.faults.is_empty() {
        true => understood
            .certificate_faults
            .iter()
            .map(Message::from)
            .collect(),
        false => understood.all_faults().map(Message::from).collect(),
    };
    if !faults.is_empty() {
        return Err(faults);
    }
    // gunicorn reads it without being told to.
    if sources.toml.is_none() && Path::new(GUNICORN_FILE).is_file() {
        understood.loaded.notes.push(format!(
            "{GUNICORN_FILE} is not read: `milepost convert {GUNICORN_FILE}` writes a milepost.toml"
        ));
    }
    let payload = Payload {
        folder: environment::current_dir().map_err(|fault| vec![fault])?,
        sources: sources.clone(),
        failure: None,
    };
    Ok(Fresh {
        loaded: understood.loaded,
        payload,
    })
}

/// The certificates of a configuration that was read anew.
fn prepared(config: &Config) -> Result<PreparedCredentials, Vec<Failure>> {
    let notes = acme_client::prepare(config).map_err(|message| vec![Failure::from(message)])?;
    let read = certificates::read(&config.tls).whole();
    let credentials =
        read.map_err(|faults| faults.into_iter().map(Failure::from).collect::<Vec<_>>())?;
    Ok(PreparedCredentials { credentials, notes })
}

/// The same sources as at the start, in the folder of the start; when they are not good, the working
/// folder is what it was before.
fn read_again(
    matches: &ArgMatches,
    started: &Path,
    overrides: &Overrides,
) -> Result<Fresh, Vec<Failure>> {
    let before = environment::current_dir().ok();
    let read = || -> Result<Fresh, Vec<Message>> {
        std::env::set_current_dir(started).map_err(|error| {
            vec![Message::new(
                &format!("`{}`", started.display()),
                environment::cause(&error),
            )]
        })?;
        let mut sources = environment::sources(matches).map_err(|fault| vec![fault])?;
        let wanted = [
            ("processes", overrides.processes),
            ("drivers", overrides.drivers),
        ];
        for (key, count) in wanted {
            if let Some(count) = count {
                // What `milepost scale` has said counts above the flags of the start, as long as the server runs.
                sources.flags.retain(|flag| flag.key != key);
                let text = count.to_string();
                sources.flags.push(config::FlagText { key, text });
            }
        }
        fresh(&sources, CertificateFiles::HandedOver)
    };
    read().map_err(|messages| {
        if let Some(before) = before {
            // It was the working folder a moment ago.
            let _ = std::env::set_current_dir(before);
        }
        messages.into_iter().map(Failure::from).collect()
    })
}

fn understand(payload: &Payload) -> Result<Loaded, Vec<Failure>> {
    // Relative paths start there; where it is gone, they are whatever they are.
    let _ = std::env::set_current_dir(&payload.folder);
    let understood = environment::understood(&payload.sources, CertificateFiles::HandedOver)
        .map_err(|message| vec![Failure::from(message)])?;
    if understood.faults.is_empty() {
        return Ok(understood.loaded);
    }
    let messages = understood.faults.iter().map(Message::from);
    Err(messages.map(Failure::from).collect())
}

/// How this program was started: by Python, or by its own name.
fn program(host: Option<&dyn AppHost>, folder: &Path) -> Program {
    let command = match host {
        Some(host) => host.command(),
        None => {
            let own = std::env::current_exe().map(OsString::from);
            let mut arguments = std::env::args_os();
            let typed = arguments.next();
            own.ok().or(typed).into_iter().chain(arguments).collect()
        }
    };
    Program {
        command,
        folder: folder.to_owned(),
    }
}

fn tell_serving(serving: &Serving<'_>) {
    let facts = Facts {
        config: serving.config,
        listening: serving.listening,
        certificates: serving.certificates,
        python: serving.python.clone(),
        event_loops: &serving.event_loops,
        pid: std::process::id(),
        notes: serving.notes,
    };
    message::talk(&banner::text(&facts));
}

pub(crate) fn start_fault(fault: &StartFault) -> Message {
    Message::from(Failure::from(fault))
}
