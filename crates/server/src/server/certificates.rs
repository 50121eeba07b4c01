//! Certificates: from what the supervisor hands over, or from files, to what connections are accepted with.
//!
//! Takes credentials that were read and checked together; reads files itself only where no supervisor has read them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ::tls::{Alpn, Credentials, CurrentTls};

use config::failure::StartFault;
use config::typed::Config;
use ipc::payload;

/// What connections are accepted with first; `None` where there is no certificate. `handed`: the supervisor's file.
pub(super) fn open(
    config: &Config,
    handed: Option<&OwnedFd>,
) -> Result<Option<Arc<CurrentTls>>, StartFault> {
    const WHAT: &str = "cannot use the certificates";
    let tls = &config.tls;
    if tls.identities.is_empty() {
        return Ok(None);
    }
    let credentials = match handed {
        Some(file) => payload::from_file::<Credentials>(file.as_fd())
            .map_err(|error| StartFault::of_io(WHAT, &error))?,
        None => Credentials::read(tls, &|_| None).map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(|one| one.fault.to_string()).collect();
            StartFault::new(WHAT, faults.join("; "))
        })?,
    };
    let current = CurrentTls::new(tls, &credentials, alpn(config));
    let current = current.map_err(|fault| StartFault::new(WHAT, fault.to_string()))?;
    Ok(Some(Arc::new(current)))
}

/// New connections are accepted with what a file of the supervisor holds.
///
/// # Errors
/// It cannot be used; everything stays as it was.
pub(super) fn replace(current: &CurrentTls, config: &Config, file: &OwnedFd) -> io::Result<()> {
    let credentials = payload::from_file::<Credentials>(file.as_fd())?;
    let replaced = current.replace(&config.tls, &credentials, alpn(config));
    replaced.map_err(io::Error::other)
}

/// Protocols that are offered, the preferred first.
fn alpn(config: &Config) -> &'static [Alpn] {
    match config.http2.is_on {
        true => &[Alpn::H2, Alpn::Http1],
        false => &[Alpn::Http1],
    }
}
