//! Certificates as the command line sees them: read and checked, and in a line each. The only place that reads the
//! variables of their passwords.

use std::time::SystemTime;

use config::CertificateFault;
use config::failure::Failure;
use config::typed::{Tls, TlsFile, TlsIdentity};
use supervisor::control::status::CertificateStatus;
use tls::{Credentials, IdentityFault, TicketKeys};

/// What is wrong with the files that the configuration names.
pub(crate) fn faults(tls: &Tls) -> Vec<CertificateFault> {
    let credentials = Credentials::read(tls, &variable).err();
    let mut faults = credentials.unwrap_or_default();
    // The server makes these files before it reads them.
    let is_made = |one: &TlsIdentity| one.is_automatic && !one.cert.exists();
    faults.retain(|fault| !tls.identities.get(fault.identity).is_some_and(is_made));
    faults.extend(ticket_keys(tls).err());
    let fault = |IdentityFault { identity, fault }: IdentityFault| CertificateFault {
        identity,
        setting: fault.setting,
        cause: fault.to_string(),
        hint: fault.hint,
    };
    faults.into_iter().map(fault).collect()
}

/// Reads the files that the configuration names.
///
/// # Errors
/// All that is wrong with them.
pub(crate) fn read(tls: &Tls) -> Result<Credentials, Vec<Failure>> {
    let failure = |one: IdentityFault| {
        let setting = match one.fault.setting {
            TlsFile::TicketKeys => "tls_ticket_keys",
            _ => "certificates",
        };
        let failure = Failure::new(format!("{setting}: {}", one.fault));
        match one.fault.hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    };
    let credentials = Credentials::read(tls, &variable);
    let keys = ticket_keys(tls).map_err(|fault| vec![fault]);
    match (credentials, keys) {
        (Ok(credentials), Ok(keys)) => Ok(credentials.with_ticket_keys(keys)),
        (credentials, keys) => {
            let faults = credentials.err().into_iter().chain(keys.err()).flatten();
            Err(faults.map(failure).collect())
        }
    }
}

/// A line for each.
pub(crate) fn lines(credentials: &Credentials) -> Vec<CertificateStatus> {
    let identities = credentials.identities.iter();
    identities.map(CertificateStatus::from).collect()
}

/// What is worth saying of their ends.
pub(crate) fn warnings(credentials: &Credentials) -> Vec<String> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.unwrap_or_default().as_secs();
    let identities = credentials.identities.iter();
    identities.filter_map(|one| one.warning(now)).collect()
}

fn ticket_keys(tls: &Tls) -> Result<TicketKeys, IdentityFault> {
    let read = tls.ticket_keys.as_deref().map(TicketKeys::read);
    let keys = read
        .transpose()
        .map_err(|fault| IdentityFault { identity: 0, fault })?;
    Ok(keys.unwrap_or_default())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
