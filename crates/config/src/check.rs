//! Does it hold together, and does it fit this machine? The last step from written to meant.
//!
//! Takes the draft and the machine's facts as values, gives the configuration with notes, or what is
//! wrong with it. Asks the machine only through the functions in `Machine`.

mod acme;
mod descriptors;
mod logs;
mod pages;
mod pools;
mod processes;
mod routes;
mod rules;
mod shares;
mod tls;
mod upstreams;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Loaded;
use super::builder::{Cpus, Draft, Placed};
use super::failure::StartFault;
use super::fault::{ConfigFault, Origin};
use super::parse::bind::{BindName, BindText, UnixName};
use super::typed::{AcmeConfig, Bind, Hook, StaticMount, Tls, UnixSocket};

pub use descriptors::open_files_needed;
pub use tls::CertificateFault;

/// What a configuration must fit.
pub struct Machine<'m> {
    /// Processors that may be used, by quota.
    pub cores: usize,
    /// Numbers of the processors that the process may run on.
    pub cpus: Vec<usize>,
    /// Files that the process may have open at most (the hard limit).
    pub open_files_max: u64,
    /// Folder that relative paths start from, after `chdir`.
    pub current_dir: PathBuf,
    /// Whether standard output is a terminal.
    pub has_terminal: bool,
    /// Addresses of a host's name.
    pub resolve: &'m dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    /// Whether a folder is one and can be read; its path without links.
    pub folder: &'m dyn Fn(&Path) -> io::Result<PathBuf>,
    /// Whether files can be made in a folder by the user and the group, each empty for none, that the server
    /// becomes.
    pub spooled_file: &'m dyn Fn(&Path, &str, &str) -> io::Result<()>,
    /// Whether there are this user and this group, each by name or number, and empty for none.
    pub account: &'m dyn Fn(&str, &str) -> Result<(), StartFault>,
    /// Bytes of a file that is one and can be read.
    pub file: &'m dyn Fn(&Path) -> io::Result<u64>,
    /// Whether this process may listen on a port.
    pub may_bind: &'m dyn Fn(u16) -> bool,
    /// The usual folder for certificates, for a server that becomes this user (empty: none); `None` where the
    /// environment names none.
    pub storage_dir: &'m dyn Fn(&str) -> Option<PathBuf>,
    /// The file of an automatic certificate and its key, by name.
    pub certificate_file: &'m dyn Fn(&AcmeConfig, &str) -> PathBuf,
    /// Sockets of IPv6 can be made.
    pub has_ipv6: bool,
    /// Whether certificates, keys and what belongs to them can be used; all that is wrong with their files. `None`:
    /// neither they nor their storage are looked at, which may not answer.
    pub certificates: Option<CertificateCheck<'m>>,
}

/// All that is wrong with the files of certificates.
pub type CertificateCheck<'m> = &'m dyn Fn(&Tls) -> Vec<CertificateFault>;

/// What has been brought together, and what is wrong with it.
pub(super) struct Checked {
    pub loaded: Loaded,
    pub faults: Vec<ConfigFault>,
    pub certificate_faults: Vec<ConfigFault>,
}

/// Brings the parts together.
pub(super) fn finish(draft: &Draft, machine: &Machine<'_>) -> Checked {
    let mut check = Check {
        machine,
        faults: Vec::new(),
        certificate_faults: Vec::new(),
        notes: draft.notes.clone(),
    };
    check.variables_of_others(draft);
    // In the order in which users read of faults, and each step after those whose results it takes: routes are
    // known once folders are mounted, drivers once processes are counted, descriptors last of all.
    check.limits(draft);
    let mut config = draft.config.clone();
    check.own_paths(draft);
    config.apps = check.apps(draft);
    config.hooks = check.hooks(draft);
    config.statics = check.statics(draft);
    check.fallbacks(draft, &mut config.statics);
    config.file_serving.cache_control = check.cache_rules(draft);
    config.error_pages = check.error_pages(draft);
    config.rules = check.rules(draft);
    config.rates.routes = check.rate_routes(draft);
    check.shares(draft);
    check.pools(draft, &mut config);
    config.acme = check.acme(draft);
    config.tls.identities = check.identities(draft, config.acme.as_ref());
    config.tls.ticket_keys = draft
        .config
        .tls
        .ticket_keys
        .as_deref()
        .map(|file| check.absolute(file));
    config.binds = check.binds(draft, &mut config.tls);
    check.low_ports(draft, &config.binds);
    check.site_redirect(draft, &mut config);
    check.tls(draft, &config);
    config.processes.count = check.processes_count(draft);
    config.listen.drivers = check.drivers(draft, config.processes.count);
    config.listen.driver_cpus = check.cpus(draft);
    check.processes(draft, &mut config);
    config.logs.access = check.access_logs(draft, &config.route_names());
    config.logs.errors = check.error_logs(draft);
    check.log_files(draft);
    check.rotation(draft, &config.logs);
    check.request_ids(&config);
    check.traces(draft, &mut config.traces);
    check.spool_dir(draft);
    check.connections(&mut config);
    let Check {
        faults,
        certificate_faults,
        notes,
        ..
    } = check;
    assert_eq!(
        config.pools[0].name, "default",
        "the pool of all other requests comes first"
    );
    Checked {
        loaded: Loaded { config, notes },
        faults,
        certificate_faults,
    }
}

/// Nothing to serve. Asked only when everything was understood: what was not may be the application.
pub(super) fn nothing_to_serve(draft: &Draft) -> Option<ConfigFault> {
    let hint = "name an application (`milepost serve module:app`), a folder (`--static /=DIR`), \
                a server to pass requests on to (`--proxy URL`), or redirects and responses in the configuration file";
    let has_rules = !draft.redirects.is_empty() || !draft.replies.is_empty();
    let is_nothing =
        draft.app.is_none() && draft.routes.is_empty() && draft.statics.is_empty() && !has_rules;
    is_nothing.then(|| ConfigFault::statement(Origin::Whole, "nothing to serve").with_hint(hint))
}

struct Check<'c> {
    machine: &'c Machine<'c>,
    faults: Vec<ConfigFault>,
    certificate_faults: Vec<ConfigFault>,
    notes: Vec<String>,
}

impl Check<'_> {
    fn statement(&mut self, origin: &Origin, text: impl Into<String>, hint: impl Into<String>) {
        let fault = ConfigFault::statement(origin.clone(), text);
        self.faults.push(fault.with_hint(hint));
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Notes a setting that was written in vain.
    fn vain(&mut self, key: &str, why: &str) {
        self.note(format!("{key} has no effect: {why}"));
    }

    /// Nobody looks for them among the settings.
    fn variables_of_others(&mut self, draft: &Draft) {
        for (name, keys) in draft.decided_by_others() {
            self.note(format!("{name} sets {}", keys.join(", ")));
        }
    }

    fn limits(&mut self, draft: &Draft) {
        let (limits, cache) = (&draft.config.limits, &draft.config.file_cache);
        let head = ("head_bytes_max", limits.head_bytes_max);
        // A cache of no bytes is off: it bounds nothing.
        let cache_bytes = match cache.bytes_max {
            0 => usize::MAX,
            bytes => bytes,
        };
        let pairs = [
            ("target_bytes_max", limits.target_bytes_max, head),
            ("header_bytes_max", limits.header_bytes_max, head),
            (
                "file_cache_entry_bytes_max",
                cache.entry_bytes_max,
                ("file_cache_bytes_max", cache_bytes),
            ),
        ];
        for (part, bytes, (whole, bytes_max)) in pairs {
            if bytes > bytes_max {
                let origin = draft.first_origin(&[part, whole]);
                let text =
                    format!("{part} ({bytes} bytes) is larger than {whole} ({bytes_max} bytes)");
                self.statement(&origin, text, "raise the second or lower the first");
            }
        }
    }

    /// Each path of the server's own has one answer.
    fn own_paths(&mut self, draft: &Draft) {
        let config = &draft.config;
        let paths = [
            ("status_path", &config.status_path),
            ("health_path", &config.health_path),
            ("ready_path", &config.ready_path),
            ("load_path", &config.load_path),
        ];
        for (index, (key, path)) in paths.iter().enumerate() {
            // Only the ones before it, so that each pair is named once.
            let mut others = paths[..index].iter();
            if path.is_some()
                && let Some((other, _)) = others.find(|(_, other)| other == path)
            {
                let text = format!("{key} is the path of {other}");
                self.statement(&draft.origin(key), text, "give each its own path");
            }
        }
    }

    fn hooks(&mut self, draft: &Draft) -> Vec<Hook> {
        if !draft.hooks.is_empty() && !draft.has_app() {
            self.vain("hooks", "there is no application");
        }
        Placed::values(&draft.hooks)
    }

    fn statics(&mut self, draft: &Draft) -> Vec<StaticMount> {
        let mut mounts: Vec<StaticMount> = Vec::new();
        for Placed { value, origin } in &draft.statics {
            self.folder(origin, &value.dir);
            if mounts.iter().any(|mount| mount.url == value.url) {
                let text = format!("`{}` is mounted twice", shares::said(&value.url));
                self.statement(origin, text, "give each folder its own URL");
            }
            if value.url.is_empty() && draft.app.is_some() {
                let text = "a folder at `/` would leave no request to the application";
                let hint = "mount it under a URL of its own, as `/static=DIR`";
                self.statement(origin, text, hint);
            }
            mounts.push(StaticMount {
                url: value.url.clone(),
                dir: value.dir.clone(),
                index: draft.static_index.clone(),
                fallback: None,
            });
        }
        // The longest prefix counts, and whoever looks for one takes the first that fits.
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.url.len()));
        mounts
    }

    /// A folder must be one that can be read.
    fn folder(&mut self, origin: &Origin, dir: &Path) {
        if let Err(error) = (self.machine.folder)(dir) {
            let text = format!(
                "folder `{}` cannot be read: {}",
                dir.display(),
                cause(&error)
            );
            let hint = match error.kind() {
                io::ErrorKind::NotADirectory => "name the folder, not a file in it".to_owned(),
                _ => self.right_hint(&error, "read and to enter it"),
            };
            self.statement(origin, text, hint);
        }
    }

    /// A file can only be made in a folder that there is. Whether the server may do so is not asked: after a start as root,
    /// a reload asks as another user.
    fn folder_of(&mut self, origin: &Origin, file: &Path) {
        let Some(dir) = file.parent() else {
            return;
        };
        let found = (self.machine.folder)(dir).map_err(|error| error.kind());
        if let Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) = found {
            self.folder(origin, dir);
        }
    }

    /// What to do about something that is not there or cannot be used.
    fn right_hint(&self, error: &io::Error, rights: &str) -> String {
        match error.kind() {
            io::ErrorKind::NotFound => {
                let dir = self.machine.current_dir.display();
                format!("relative paths start at `{dir}`")
            }
            _ => format!("the user that runs milepost needs the right to {rights}"),
        }
    }

    /// The whole name, the same for `./a` and `a`: components leave out every `.`.
    fn absolute(&self, path: &Path) -> PathBuf {
        self.machine.current_dir.join(path).components().collect()
    }

    fn binds(&mut self, draft: &Draft, tls: &mut Tls) -> Vec<Bind> {
        if let Some(binds) = self.site_binds(draft, tls) {
            return binds;
        }
        let mut binds: Vec<Bind> = Vec::new();
        for Placed { value, origin } in &draft.binds {
            let BindText { name, text, .. } = value;
            let bind = match name {
                BindName::Unix(name) => Bind::Unix(unix_socket(name, draft.config.processes.umask)),
                BindName::Inherited(name) => Bind::Inherited(name.clone()),
                BindName::Ip(ip, port) => Bind::Tcp(vec![SocketAddr::new(*ip, *port)]),
                BindName::Host(host, port) => match self.resolved(host, *port) {
                    Ok(addresses) => Bind::Tcp(addresses),
                    Err(why) => {
                        let text = format!("host `{host}` cannot be resolved: {why}");
                        self.statement(origin, text, "an address in digits needs no resolver");
                        continue;
                    }
                },
            };
            // Two sockets of one address would each get a share of the connections, by the kernel's hash.
            if binds.iter().any(|earlier| overlap(earlier, &bind)) {
                let hint = "each address is listened on once; drivers share it";
                self.statement(origin, format!("`{text}` is already in the list"), hint);
            }
            self.bind_tls(value, origin, &bind, &binds, tls);
            binds.push(bind);
        }
        // An empty list in TOML; an unreadable address is a fault already.
        if draft.binds.is_empty() && !draft.is_written("bind") {
            let text = "no address to listen on";
            self.statement(&Origin::Whole, text, "`--bind 127.0.0.1:8000`");
        }
        binds
    }

    /// The addresses of a host, each once.
    fn resolved(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        // A resolver gives an address once for each kind of socket.
        let found = (self.machine.resolve)(host, port).map_err(|error| cause(&error))?;
        let mut addresses = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        match addresses.is_empty() {
            true => Err("it has no address".to_owned()),
            false => Ok(addresses),
        }
    }

    fn cpus(&mut self, draft: &Draft) -> Vec<usize> {
        let here = &self.machine.cpus;
        match &draft.cpus {
            Cpus::Unpinned => Vec::new(),
            Cpus::All => here.clone(),
            Cpus::These(cpus) => {
                // A container or `taskset` may allow fewer processors than there are, and binding to others fails.
                if let Some(cpu) = cpus.iter().find(|cpu| !here.contains(cpu)) {
                    let here: Vec<String> = here.iter().map(usize::to_string).collect();
                    let hint = format!("this process may run on {}", here.join(", "));
                    let origin = draft.origin("driver_cpus");
                    self.statement(&origin, format!("no processor {cpu} here"), hint);
                }
                cpus.clone()
            }
        }
    }

    fn spool_dir(&mut self, draft: &Draft) {
        // Files need no bodies.
        if !draft.has_app() && draft.routes.is_empty() {
            return;
        }
        let (dir, origin) = (&draft.config.spool.dir, draft.origin("spool_dir"));
        let faults_len = self.faults.len();
        self.folder(&origin, dir);
        // What cannot be entered takes no files either: one fault is enough.
        if self.faults.len() > faults_len {
            return;
        }
        let processes = &draft.config.processes;
        let (user, group) = (processes.user.as_str(), processes.group.as_str());
        if let Err(error) = (self.machine.spooled_file)(dir, user, group) {
            let (dir, cause) = (dir.display(), cause(&error));
            let text = format!("folder `{dir}`, for large bodies, takes no files: {cause}");
            let other = "name another one with `spool_dir`";
            let right = format!("needs the right to write there and to enter it; or {other}");
            let hint = match (error.kind(), user) {
                (io::ErrorKind::PermissionDenied, "") => {
                    format!("the user that runs milepost {right}")
                }
                (io::ErrorKind::PermissionDenied, user) => format!("user `{user}` {right}"),
                _ => other.to_owned(),
            };
            self.statement(&origin, text, hint);
        }
    }
}

/// The system's words without Rust's "(os error 2)".
fn cause(error: &io::Error) -> String {
    crate::failure::plain(error).to_lowercase()
}

/// Whoever may connect to it, as with gunicorn: its mask is 0 unless it is set.
fn unix_socket(name: &UnixName, umask: Option<u32>) -> UnixSocket {
    UnixSocket {
        path: name.path.clone(),
        mode: name.mode.unwrap_or(0o777 & !umask.unwrap_or(0)),
        group: name.group.clone(),
    }
}

/// Port 0 is a new port each time.
fn overlap(a: &Bind, b: &Bind) -> bool {
    match (a, b) {
        (Bind::Tcp(a), Bind::Tcp(b)) => a
            .iter()
            .any(|address| address.port() != 0 && b.contains(address)),
        (Bind::Unix(a), Bind::Unix(b)) => a.path == b.path,
        // Without a name all inherited sockets are meant, so that any other is among them.
        (Bind::Inherited(a), Bind::Inherited(b)) => a.is_none() || b.is_none() || a == b,
        _ => false,
    }
}
