//! Do automatic certificates hold together? Names, the agreement to the terms, the storage folder, the ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::{Check, cause};
use crate::builder::{Draft, Placed};
use crate::fault::Origin;
use crate::typed::{AcmeConfig, Bind, Config, HttpsRedirect, Tls, is_local_name};

/// Names of one configuration: one process gets all certificates, one after the other.
const DOMAINS_LEN_MAX: usize = 100;
/// Addresses of a public site, where none is given.
const PUBLIC_PORTS: [u16; 2] = [80, 443];
/// The address of a site that only this machine reaches, where none is given: it takes no rights.
const LOCAL_PORT: u16 = 8443;

impl Check<'_> {
    pub(super) fn acme(&mut self, draft: &Draft) -> Option<AcmeConfig> {
        let names = self.domains(draft);
        let wanted = &draft.acme;
        if draft.domains.is_empty() {
            for key in [
                "acme_email",
                "acme_terms",
                "acme_directory",
                "acme_staging",
                "acme_ca",
                "acme_challenges",
                "acme_storage",
            ] {
                if draft.is_written(key) {
                    self.vain(key, "no domain is set");
                }
            }
            return None;
        }
        let config = AcmeConfig {
            directory: wanted.directory.clone(),
            staging: wanted.staging.url(&wanted.directory),
            email: wanted.email.clone(),
            roots: wanted.roots.as_deref().map(|file| self.absolute(file)),
            challenges: wanted.challenges.clone(),
            storage: self.storage(draft),
            names,
        };
        if config.public_names().next().is_some() {
            self.agreement(draft, &config);
            self.roots(draft);
        }
        Some(config)
    }

    fn domains(&mut self, draft: &Draft) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for Placed { value, origin } in &draft.domains {
            if names.contains(value) {
                let text = format!("`{value}` is already in the list");
                self.statement(origin, text, "each name has one certificate");
                continue;
            }
            names.push(value.clone());
        }
        if names.len() > DOMAINS_LEN_MAX {
            let text = format!("{} names for certificates", names.len());
            let hint =
                format!("at most {DOMAINS_LEN_MAX}: run further names as a server of their own");
            self.statement(&draft.origin("domain"), text, hint);
        }
        names
    }

    /// An account at an authority is a contract: nobody else can enter into it.
    fn agreement(&mut self, draft: &Draft, config: &AcmeConfig) {
        if draft.acme.agrees_to_terms {
            return;
        }
        let names: Vec<&str> = config.public_names().collect();
        let text = format!(
            "a certificate for {} needs your agreement to the terms of service of {}",
            crate::parse::quoted(names),
            host(&config.directory)
        );
        let hint = "read them, and then set `acme_terms = true` (`--acme-terms`); those of Let's Encrypt are at \
                    https://letsencrypt.org/repository/";
        self.statement(&draft.first_origin(&["acme_terms", "domain"]), text, hint);
    }

    fn roots(&mut self, draft: &Draft) {
        if self.machine.certificates.is_some()
            && let Some(file) = &draft.acme.roots
            && let Err(error) = (self.machine.file)(file)
        {
            let text = format!(
                "file `{}` cannot be read: {}",
                file.display(),
                cause(&error)
            );
            let hint = self.right_hint(&error, "read it");
            self.statement(&draft.origin("acme_ca"), text, hint);
        }
    }

    /// The folder, which may be missing; then the one above it must take it.
    fn storage(&mut self, draft: &Draft) -> PathBuf {
        let user = &draft.config.processes.user;
        let origin = draft.first_origin(&["acme_storage", "domain"]);
        let named = draft.acme.storage.clone();
        let Some(folder) = named.or_else(|| (self.machine.storage_dir)(user)) else {
            let text = "no folder for certificates: neither STATE_DIRECTORY, XDG_DATA_HOME nor HOME is set";
            self.statement(&origin, text, "name one with `acme_storage`");
            return PathBuf::new();
        };
        let folder = self.absolute(&folder);
        if self.machine.certificates.is_some() {
            self.storage_rights(draft, &folder, &origin);
        }
        folder
    }

    /// Whether the server can write there.
    fn storage_rights(&mut self, draft: &Draft, folder: &Path, origin: &Origin) {
        let user = &draft.config.processes.user;
        // A missing folder is made before rights are given up, and given to the user then.
        let (probed, user, group) = match (self.machine.folder)(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (self.there(folder), "", "")
            }
            _ => (
                folder.to_owned(),
                user.as_str(),
                draft.config.processes.group.as_str(),
            ),
        };
        if let Err(error) = (self.machine.spooled_file)(&probed, user, group) {
            let text = format!(
                "folder `{}`, for certificates and keys, cannot be written: {}",
                folder.display(),
                cause(&error)
            );
            let who = match user {
                "" => "the user that runs milepost".to_owned(),
                user => format!("user `{user}`"),
            };
            let hint = format!(
                "{who} needs the right to write in `{}`; or name another folder with `acme_storage`",
                probed.display()
            );
            self.statement(origin, text, hint);
        }
    }

    /// The nearest folder above that is there.
    fn there(&self, folder: &Path) -> PathBuf {
        let mut above = folder.ancestors().skip(1);
        let is_there = |path: &&Path| match (self.machine.folder)(path) {
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
            Ok(_) => true,
        };
        above.find(is_there).unwrap_or(Path::new("/")).to_owned()
    }

    /// The addresses of a site with certificates of its own, where none is given.
    pub(super) fn site_binds(&self, draft: &Draft, tls: &mut Tls) -> Option<Vec<Bind>> {
        let has_default = !draft.is_written("bind") && !draft.domains.is_empty();
        let is_public = draft.domains.iter().any(|name| !is_local_name(&name.value));
        let any = match self.machine.has_ipv6 {
            // One socket for both: the kernel gives it the clients of IPv4 too.
            true => IpAddr::from([0_u16; 8]),
            false => IpAddr::from([0_u8; 4]),
        };
        if !has_default {
            return None;
        }
        let tcp = |ip: IpAddr, port: u16| Bind::Tcp(vec![SocketAddr::new(ip, port)]);
        let (plain, speaks_tls) = match is_public {
            true => (Some(tcp(any, PUBLIC_PORTS[0])), tcp(any, PUBLIC_PORTS[1])),
            false => (None, tcp(IpAddr::V4(Ipv4Addr::LOCALHOST), LOCAL_PORT)),
        };
        tls.binds.push(speaks_tls.clone());
        Some(plain.into_iter().chain([speaks_tls]).collect())
    }

    /// A site with certificates of its own sends its clients to HTTPS, unless the configuration says otherwise.
    pub(super) fn site_redirect(&self, draft: &Draft, config: &mut Config) {
        let is_plain =
            |bind: &Bind| matches!(bind, Bind::Tcp(_)) && !config.tls.binds.contains(bind);
        if config.acme.is_some()
            && !draft.is_written("https_redirect")
            && config.tls.port().is_some()
            && config.binds.iter().any(is_plain)
        {
            config.https_redirect = HttpsRedirect::On;
        }
    }

    /// Low ports take a right, which is said before anything is bound. Only for sites with certificates of their own:
    /// for others, the fault of the bind itself says enough.
    pub(super) fn low_ports(&mut self, draft: &Draft, binds: &[Bind]) {
        if draft.domains.is_empty() {
            return;
        }
        let addresses = binds.iter().filter_map(|bind| match bind {
            Bind::Tcp(addresses) => Some(addresses),
            Bind::Unix(_) | Bind::Inherited(_) => None,
        });
        let ports = addresses.flatten().map(SocketAddr::port);
        let mut refused: Vec<u16> = ports
            .filter(|port| !(self.machine.may_bind)(*port))
            .collect();
        refused.sort_unstable();
        refused.dedup();
        if refused.is_empty() {
            return;
        }
        let ports: Vec<String> = refused.iter().map(u16::to_string).collect();
        let (noun, ports) = match ports.len() {
            1 => ("port", ports.join("")),
            _ => ("ports", ports.join(" and ")),
        };
        let text = format!("this user may not listen on {noun} {ports}");
        let hint = "one of: start as root with `--user NAME`, which gives up root once the ports are bound; \
                    AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit; sockets of systemd \
                    (`--bind systemd`); other ports (`--bind`)";
        let origin = match draft.is_written("bind") {
            true => draft.origin("bind"),
            false => draft.first_origin(&["domain"]),
        };
        self.statement(&origin, text, hint);
    }
}

fn host(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.split('/').next().unwrap_or(rest)
}
