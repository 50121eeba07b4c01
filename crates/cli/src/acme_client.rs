//! The process that obtains and renews automatic certificates, until its supervisor ends it or is gone.
//!
//! Takes the configuration, gives it to `acme` as a plan, and passes on how the names stand. Serves nothing.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use acme::challenges::ChallengeTable;
use acme::storage::Storage;
use acme::{Authority, ChallengeKind, Directory, NameState, Plan, Report};
use config::failure::{Failure, plain};
use config::typed::{AcmeChallenge, AcmeConfig, Config, TlsIdentity};
use ipc::{Challenges, Channel, ManagedCertificate, ProcessEvent, payload};

use crate::DONE;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::process::{self, Begun};

/// Makes the storage folder, and what each name is served with until it has its first certificate, for the user that the
/// server becomes. Gives a line for each file there that could not be used.
///
/// # Errors
/// The folder cannot be used.
pub(crate) fn prepare(config: &Config) -> Result<Vec<String>, Message> {
    let Some(acme) = &config.acme else {
        return Ok(Vec::new());
    };
    let (user, group) = (&config.processes.user, &config.processes.group);
    let plan = plan(acme);
    let made = supervisor::in_state_dir(&acme.storage, user, group, || {
        acme::ensure_certificates(&plan)
    });
    made.map_err(|fault| {
        let message = Message::from(Failure::from(&fault));
        message.within("certificates")
    })
}

/// Whether `prepare` makes or mends the file of this certificate.
pub(crate) fn is_made(one: &TlsIdentity) -> bool {
    let mut names = one.names.iter();
    names.any(|name| !acme::is_kept(&one.cert, name))
}

/// Does what its order says, to the end.
pub(crate) fn run(begun: Begun, host: Option<&dyn AppHost>) -> i32 {
    process::run_helper(begun, host, "certificates", |begun| obtain(&begun))
}

fn obtain(begun: &Begun) -> i32 {
    let Some(acme) = &begun.config.acme else {
        let failure = Failure::new("certificates: no `domain` is set");
        return process::fail(&begun.channel, &failure);
    };
    let mut said = BTreeMap::new();
    let mut report = |report: Report| match report {
        Report::Line(line) => message::talk(&format!("milepost: certificates: {line}\n")),
        Report::States(states) => tell(&begun.channel, states, &mut said),
        Report::Challenges(table) => tell_challenges(&begun.channel, table),
    };
    let stop = begun.channel.as_fd().try_clone_to_owned();
    match stop.and_then(|stop| acme::run(&plan(acme), stop, &mut report)) {
        Ok(()) => DONE,
        Err(error) => {
            let failure = Failure::new(format!("certificates: {}", plain(&error)));
            process::fail(&begun.channel, &failure)
        }
    }
}

/// Says what has changed.
fn tell(channel: &Channel, states: Vec<NameState>, said: &mut BTreeMap<String, NameState>) {
    for state in states {
        if said.get(&state.name) == Some(&state) {
            continue;
        }
        // Without a supervisor nobody wants to know; the end of the channel ends this process.
        let _ = channel.send(&ProcessEvent::Certificate(shown(&state)), &[]);
        said.insert(state.name.clone(), state);
    }
}

/// Every process of this machine is to answer them.
fn tell_challenges(channel: &Channel, table: ChallengeTable) {
    let ChallengeTable { http, tls } = table;
    let file = payload::to_file(&Challenges { http, tls });
    let told = file.and_then(|file| channel.send(&ProcessEvent::Challenges, &[file.as_fd()]));
    if let Err(error) = told {
        message::talk(&format!("milepost: certificates: {}\n", plain(&error)));
    }
}

fn shown(state: &NameState) -> ManagedCertificate {
    let NameState {
        name,
        authority,
        issuer,
        not_after_unix_s,
        next_try_unix_s,
        failures,
        last_error,
    } = state.clone();
    ManagedCertificate {
        name,
        authority,
        issuer,
        not_after_unix_s,
        next_try_unix_s,
        failures,
        last_error,
    }
}

/// The file of a name's certificate and key.
pub(crate) fn certificate_file(acme: &AcmeConfig, name: &str) -> PathBuf {
    let directory = Directory::new(&acme.directory);
    let directory = (!acme::is_local(name)).then_some(&directory);
    Storage::new(&acme.storage).certificate(directory, name)
}

/// The same in the words of `acme`.
pub(crate) fn plan(acme: &AcmeConfig) -> Plan {
    let kind = |challenge: &AcmeChallenge| match challenge {
        AcmeChallenge::Http01 => ChallengeKind::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeKind::TlsAlpn01,
    };
    Plan {
        names: acme.names.clone(),
        authority: Authority {
            directory: Directory::new(&acme.directory),
            staging: acme.staging.as_deref().map(Directory::new),
            email: acme.email.clone(),
            roots: acme.roots.clone(),
            challenges: acme.challenges.iter().map(kind).collect(),
        },
        storage: acme.storage.clone(),
    }
}

/// Whether the file of an authority's roots can be used; that it can be read is known already.
pub(crate) fn roots_fault(acme: &AcmeConfig) -> Option<Message> {
    let fault = |file: &Path| acme::check_roots(file).err();
    let error = acme.roots.as_deref().and_then(fault)?;
    let message = Message::from_text(plain(&error));
    Some(message.with_hint("PEM: one or more blocks `-----BEGIN CERTIFICATE-----`"))
}
