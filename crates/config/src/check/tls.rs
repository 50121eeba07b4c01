//! Checks of TLS: certificates with what belongs to them, which addresses speak it, and what HTTPS asks of others.

use super::{BindText, Check};
use crate::builder::{Draft, KeyedTable};
use crate::fault::{ConfigFault, Origin};
use crate::parse::tls::TlsTable;
use crate::tables::Structure;
use crate::typed::{
    AcmeConfig, Bind, ClientAuth, ClientDemand, Config, HttpsRedirect, KeyPassword, Tls, TlsFile,
    TlsIdentity,
};

/// The port of HTTP without TLS.
const HTTP_PORT: u16 = 80;

/// What is wrong with a file of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFault {
    /// Its place among the certificates of the configuration; of no matter for `TicketKeys`.
    pub identity: usize,
    /// Which of its settings names the file.
    pub setting: TlsFile,
    /// The file and what is wrong with it, without a full stop.
    pub cause: String,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
}

impl Check<'_> {
    /// The certificates, the default first. Whether the files can be used is asked when all of them are known.
    pub(super) fn identities(
        &mut self,
        draft: &Draft,
        acme: Option<&AcmeConfig>,
    ) -> Vec<TlsIdentity> {
        let default = &draft.tls_default;
        let contradiction = default.contradiction();
        if let Some(found) = &contradiction {
            let origin = draft.origin(&format!("tls_{}", found.key));
            self.statement(&origin, with_prefix(&found.cause), with_prefix(&found.hint));
        }
        if default.cert.is_none() {
            let written = DEFAULT_KEYS.iter().find(|key| draft.is_written(key));
            if let (Some(key), None) = (written, &contradiction) {
                let text = format!("there is a {}, and no certificate", said(key));
                let hint = "name the certificate as well: `tls_cert`";
                self.statement(&draft.origin(key), text, hint);
            }
        }
        let tables = draft.tls_tables.iter().map(|table| &table.value);
        let all = std::iter::once(default).chain(tables);
        let mut all: Vec<_> = all.filter_map(|table| self.identity(table)).collect();
        if let Some(acme) = acme {
            let automatic = |name: &String| self.automatic_identity(acme, name);
            all.extend(acme.names.iter().map(automatic));
        }
        all
    }

    /// What the files hold, and whether the settings of TLS have something to be about.
    pub(super) fn tls(&mut self, draft: &Draft, config: &Config) {
        let tls = &config.tls;
        let faults = self.machine.certificates.map(|faults| faults(tls));
        for fault in faults.into_iter().flatten() {
            let origin = place_of(draft, &fault);
            let said = ConfigFault::statement(origin, fault.cause);
            self.certificate_faults
                .push(said.with_hint_maybe(fault.hint));
        }
        if tls.identities.is_empty() {
            let keys = ["tls_versions", "tls_unknown_name", "tls_ticket_keys"];
            for key in keys.into_iter().filter(|key| draft.is_written(key)) {
                self.vain(key, "there is no certificate (`tls_cert`)");
            }
        } else if tls.binds.is_empty() {
            let hint = "write `tls=on` behind the address that is to have it";
            let origin = draft.first_origin(&["tls_cert", "tls", "domain"]);
            self.statement(&origin, "no address speaks TLS", hint);
        }
        self.https_redirect(draft, config);
    }

    /// With whole paths: the working folder of a later reload may be another one.
    fn identity(&self, table: &TlsTable) -> Option<TlsIdentity> {
        let cert = self.absolute(table.cert.as_ref()?);
        let key = table.key.as_ref().map(|key| self.absolute(key));
        let password = table.key_password_file.as_ref();
        let client_auth = table.client_ca.as_ref().map(|ca| ClientAuth {
            demand: table.client_auth.unwrap_or(ClientDemand::Require),
            ca: self.absolute(ca),
            crl: table.crl.as_ref().map(|crl| self.absolute(crl)),
        });
        Some(TlsIdentity {
            names: table.names.clone(),
            key: key.unwrap_or_else(|| cert.clone()),
            cert,
            key_password: password.map(|password| match password {
                KeyPassword::File(file) => KeyPassword::File(self.absolute(file)),
                variable @ KeyPassword::Variable(_) => variable.clone(),
            }),
            client_auth,
            ocsp: table.ocsp.as_ref().map(|ocsp| self.absolute(ocsp)),
            is_automatic: false,
        })
    }

    fn automatic_identity(&self, acme: &AcmeConfig, name: &str) -> TlsIdentity {
        let file = (self.machine.certificate_file)(acme, name);
        TlsIdentity {
            names: vec![name.to_owned()],
            cert: file.clone(),
            key: file,
            is_automatic: true,
            ..TlsIdentity::default()
        }
    }

    fn https_redirect(&mut self, draft: &Draft, config: &Config) {
        let origin = draft.origin("https_redirect");
        let is_plain = |bind: &&Bind| !config.tls.binds.contains(bind);
        match config.https_redirect {
            HttpsRedirect::Off => return,
            HttpsRedirect::On if config.tls.port().is_none() => {
                let text = "no TCP address speaks TLS";
                let hint = "name a certificate (`tls_cert`), or the port of HTTPS in place of `on`";
                self.statement(&origin, text, hint);
            }
            HttpsRedirect::On | HttpsRedirect::Port(_) => {}
        }
        let plain = config.binds.iter().filter(is_plain);
        if !plain.into_iter().any(|bind| !matches!(bind, Bind::Unix(_))) {
            self.vain("https_redirect", "no TCP address speaks plain HTTP");
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
        let has_certificate = !tls.identities.is_empty();
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

/// Settings of the default certificate, beside the certificate itself.
const DEFAULT_KEYS: [&str; 5] = [
    "tls_key",
    "tls_key_password_file",
    "tls_client_ca",
    "tls_crl",
    "tls_ocsp",
];

fn said(key: &str) -> &'static str {
    match key {
        "tls_key" => "key",
        "tls_key_password_file" => "password",
        "tls_client_ca" => "authority of clients",
        "tls_crl" => "list of revoked certificates",
        _ => "OCSP response",
    }
}

/// A sentence about keys of a table as one about settings.
fn with_prefix(text: &str) -> String {
    text.replace("`client_ca`", "`tls_client_ca`")
}

/// Where the setting stands that a fault is about.
fn place_of(draft: &Draft, fault: &CertificateFault) -> Origin {
    let keys: &[&str] = match fault.setting {
        TlsFile::TicketKeys => return draft.origin("tls_ticket_keys"),
        TlsFile::Cert => &["cert"],
        TlsFile::Key => &["key", "cert"],
        TlsFile::KeyPassword => &["key_password_file", "key", "cert"],
        TlsFile::ClientCa => &["client_ca"],
        TlsFile::Crl => &["crl"],
        TlsFile::Ocsp => &["ocsp"],
        TlsFile::Names => &["names", "cert"],
    };
    let has_default = draft.tls_default.cert.is_some();
    let table = fault.identity.checked_sub(usize::from(has_default));
    let table: Option<&KeyedTable<TlsTable>> = table.and_then(|index| draft.tls_tables.get(index));
    match table {
        Some(table) => table.origin(keys),
        None => {
            let settings: Vec<String> = keys.iter().map(|key| format!("tls_{key}")).collect();
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            draft.first_origin(&settings)
        }
    }
}
