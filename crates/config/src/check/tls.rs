//! Checks of TLS: which addresses speak it, and whether there is a certificate for them.

use super::{BindText, Check};
use crate::builder::Draft;
use crate::fault::Origin;
use crate::typed::{Bind, Tls};

/// The port of HTTP without TLS.
const HTTP_PORT: u16 = 80;

impl Check<'_> {
    /// The files of the certificate and its key, as far as it can be said without reading them.
    pub(super) fn certificate(&mut self, draft: &Draft, tls: &Tls) {
        if tls.certificate.is_none() && tls.key.is_some() {
            let hint = "name the certificate as well: `tls_cert`";
            let origin = draft.origin("tls_key");
            self.statement(&origin, "there is a key, and no certificate", hint);
        }
    }

    /// Decides whether an address speaks TLS; `earlier`: those before it.
    pub(super) fn bind_tls(
        &mut self,
        text: &BindText,
        origin: &Origin,
        bind: &Bind,
        earlier: &[Bind],
        tls: &mut Tls,
    ) {
        let has_certificate = tls.certificate.is_some();
        let by_default = match bind {
            Bind::Tcp(addresses) => addresses.iter().all(|address| address.port() != HTTP_PORT),
            Bind::Unix(_) | Bind::Inherited(_) => false,
        };
        let speaks_tls = text.tls.unwrap_or(has_certificate && by_default);
        let text = &text.text;
        if speaks_tls && !has_certificate {
            let hint = "name a certificate: `tls_cert` and `tls_key`";
            self.statement(origin, format!("`{text}`: there is no certificate"), hint);
        }
        // Only port 0 is there twice: nothing would tell its two sockets apart.
        if earlier.contains(bind) && tls.binds.contains(bind) != speaks_tls {
            let hint = "write `tls=on` or `tls=off` behind each of them";
            let text = format!("`{text}` is in the list with TLS and without");
            self.statement(origin, text, hint);
        }
        if speaks_tls {
            tls.binds.push(bind.clone());
        }
    }
}
