//! Certificates: from files to what connections are accepted with.
//!
//! Takes the configuration, reads the files of the chain and its key, gives both checked together.

use std::path::Path;
use std::sync::Arc;

use ::tls::{Alpn, ServerTls};

use config::failure::StartFault;
use config::typed::Tls;

/// Protocols that are offered, the preferred first.
const ALPN: [Alpn; 1] = [Alpn::Http1];

/// Reads the certificate and its key; `None` where none is configured.
pub(super) fn open(tls: &Tls) -> Result<Option<Arc<ServerTls>>, StartFault> {
    let (Some(certificate), Some(key)) = (&tls.certificate, tls.key_file()) else {
        return Ok(None);
    };
    let chain = read(certificate)?;
    let key = read(key)?;
    let server = ServerTls::from_pem(&chain, &key, &ALPN).map_err(|fault| {
        let what = format!("cannot use the certificate `{}`", certificate.display());
        StartFault::new(what, fault.to_string())
    })?;
    Ok(Some(Arc::new(server)))
}

fn read(file: &Path) -> Result<Vec<u8>, StartFault> {
    std::fs::read(file).map_err(|error| {
        let what = format!("cannot read `{}`", file.display());
        StartFault::of_io(what, &error)
    })
}
