//! Certificates as the command line sees them: read and checked, and in a line each. The only place that reads the
//! variables of their passwords.

use std::time::SystemTime;

use config::CertificateFault;
use config::typed::{Tls, TlsFile};
use supervisor::certificate_status;
use supervisor::control::status::CertificateStatus;
use tls::{CredentialFiles, Credentials, IdentityFault};

use crate::acme_client;

/// What is wrong with the files that the configuration names.
pub(crate) fn faults(tls: &Tls) -> Vec<CertificateFault> {
    let mut faults = read(tls).faults;
    // The server makes and mends these files before it reads them.
    let is_made = |fault: &IdentityFault| {
        let one = tls.identities.get(fault.identity);
        one.is_some_and(|one| one.is_automatic && acme_client::is_made(one))
    };
    faults.retain(|one| one.fault.setting == TlsFile::TicketKeys || !is_made(one));
    let fault = |IdentityFault { identity, fault }: IdentityFault| CertificateFault {
        identity,
        setting: fault.setting,
        cause: fault.to_string(),
        hint: fault.hint,
    };
    faults.into_iter().map(fault).collect()
}

/// Reads the files that the configuration names.
pub(crate) fn read(tls: &Tls) -> CredentialFiles {
    CredentialFiles::read(tls, &|name| std::env::var(name).ok())
}

/// A line for each.
pub(crate) fn lines(credentials: &Credentials) -> Vec<CertificateStatus> {
    let identities = credentials.identities.iter();
    identities.map(certificate_status).collect()
}

/// What is worth saying of their ends.
pub(crate) fn warnings(credentials: &Credentials) -> Vec<String> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.unwrap_or_default().as_secs();
    let identities = credentials.identities.iter();
    identities.filter_map(|one| one.warning(now)).collect()
}
