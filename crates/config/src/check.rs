//! Does it hold together, and does it fit this machine? The last step from written to meant.
//!
//! Takes the draft and the machine's facts as values, gives the configuration with notes, or what is
//! wrong with it. Asks the machine only through the functions in `Machine`.

mod descriptors;
mod logs;
mod pages;
mod pools;
mod processes;
mod rules;
mod shares;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Loaded;
use super::bind::BindName;
use super::builder::{Cpus, Draft, Placed};
use super::fault::{ConfigFault, Origin};
use super::typed::{App, Bind, StaticMount};

pub use descriptors::open_files_needed;

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
    /// Addresses of a host's name.
    pub resolve: &'m dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    /// Whether a folder is one and can be read.
    pub folder: &'m dyn Fn(&Path) -> io::Result<()>,
    /// Whether files can be made in a folder by the user and the group, each empty for none, that the server
    /// becomes.
    pub spooled_file: &'m dyn Fn(&Path, &str, &str) -> io::Result<()>,
    /// Bytes of a file that is one and can be read.
    pub file: &'m dyn Fn(&Path) -> io::Result<u64>,
}

/// Brings the parts together.
pub(super) fn finish(draft: &Draft, machine: &Machine<'_>) -> (Loaded, Vec<ConfigFault>) {
    let mut check = Check {
        machine,
        faults: Vec::new(),
        notes: Vec::new(),
    };
    check.limits(draft);
    let mut config = draft.config.clone();
    config.app = check.app(draft);
    config.statics = check.statics(draft);
    check.fallbacks(draft, &mut config.statics);
    config.file_serving.cache_control = check.cache_rules(draft);
    config.error_pages = check.error_pages(draft);
    config.rules = check.rules(draft);
    config.rates.routes = check.rate_routes(draft);
    check.shares(draft);
    check.pools(draft, &mut config);
    config.binds = check.binds(draft);
    config.processes.count = check.processes_count(draft);
    config.listen.drivers = check.drivers(draft, config.processes.count);
    config.listen.driver_cpus = check.cpus(draft);
    check.processes(draft, &mut config);
    config.logs.access = check.access_logs(draft, &config.route_names());
    config.logs.errors = check.error_logs(draft);
    check.log_files(draft);
    check.rotation(draft, &config.logs);
    check.request_ids(&config);
    check.spool_dir(draft);
    check.connections(&mut config);
    (
        Loaded {
            config,
            notes: check.notes,
        },
        check.faults,
    )
}

/// Nothing to serve. Asked only when everything was understood: what was not may be the application.
pub(super) fn nothing_to_serve(draft: &Draft) -> Option<ConfigFault> {
    let hint = "name an application (`milepost serve module:app`) or a folder (`--static /=DIR`)";
    let is_nothing = draft.app.is_none() && draft.statics.is_empty();
    is_nothing.then(|| ConfigFault::statement(Origin::Whole, "nothing to serve").with_hint(hint))
}

struct Check<'c> {
    machine: &'c Machine<'c>,
    faults: Vec<ConfigFault>,
    notes: Vec<String>,
}

impl Check<'_> {
    fn statement(&mut self, origin: Origin, text: impl Into<String>, hint: &str) {
        self.faults
            .push(ConfigFault::statement(origin, text).with_hint(hint));
    }

    fn limits(&mut self, draft: &Draft) {
        let (limits, cache) = (&draft.config.limits, &draft.config.file_cache);
        let pairs = [
            (
                "target_bytes_max",
                limits.target_bytes_max,
                "head_bytes_max",
                limits.head_bytes_max,
            ),
            (
                "header_bytes_max",
                limits.header_bytes_max,
                "head_bytes_max",
                limits.head_bytes_max,
            ),
            (
                "file_cache_entry_bytes_max",
                cache.entry_bytes_max,
                "file_cache_bytes_max",
                cache.bytes_max,
            ),
        ];
        for (part, part_bytes, whole, whole_bytes) in pairs {
            let cache_is_off = whole == "file_cache_bytes_max" && whole_bytes == 0;
            if part_bytes <= whole_bytes || cache_is_off {
                continue;
            }
            // The one that was written is the one to blame.
            let origin = [draft.origin(part), draft.origin(whole)]
                .into_iter()
                .find(|at| *at != Origin::Whole);
            let text =
                format!("{part} ({part_bytes} bytes) is larger than {whole} ({whole_bytes} bytes)");
            self.statement(
                origin.unwrap_or_default(),
                text,
                "raise the second or lower the first",
            );
        }
    }

    fn app(&mut self, draft: &Draft) -> Option<App> {
        let name = draft.app.as_ref()?;
        if let Err(error) = (self.machine.folder)(&draft.app_dir) {
            self.no_folder(draft.origin("app_dir"), &draft.app_dir, &error);
        }
        Some(App {
            module: name.module.clone(),
            attribute: name.attribute.clone(),
            factory: draft.factory || name.called,
            app_dir: self
                .machine
                .current_dir
                .join(&draft.app_dir)
                .components()
                .collect(),
            root_path: draft.root_path.clone(),
        })
    }

    fn statics(&mut self, draft: &Draft) -> Vec<StaticMount> {
        let mut mounts: Vec<StaticMount> = Vec::new();
        for Placed { value, origin } in &draft.statics {
            if let Err(error) = (self.machine.folder)(&value.dir) {
                self.no_folder(origin.clone(), &value.dir, &error);
            }
            let url_said = if value.url.is_empty() {
                "/"
            } else {
                &value.url
            };
            if mounts.iter().any(|mount| mount.url == value.url) {
                self.statement(
                    origin.clone(),
                    format!("`{url_said}` is mounted twice"),
                    "give each folder its own URL",
                );
            }
            if value.url.is_empty() && draft.app.is_some() {
                let text = "a folder at `/` would leave no request to the application";
                self.statement(
                    origin.clone(),
                    text,
                    "mount it under a URL of its own, as `/static=DIR`",
                );
            }
            let index = draft.static_index.clone();
            mounts.push(StaticMount {
                url: value.url.clone(),
                dir: value.dir.clone(),
                index,
                fallback: None,
            });
        }
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.url.len()));
        mounts
    }

    fn no_folder(&mut self, origin: Origin, dir: &Path, error: &io::Error) {
        let text = format!(
            "folder `{}` cannot be read: {}",
            dir.display(),
            cause(error)
        );
        let hint = match error.kind() {
            io::ErrorKind::NotFound => {
                format!(
                    "relative paths start at `{}`",
                    self.machine.current_dir.display()
                )
            }
            io::ErrorKind::NotADirectory => "name the folder, not a file in it".to_owned(),
            _ => "the user that runs milepost needs the right to read and to enter it".to_owned(),
        };
        self.statement(origin, text, &hint);
    }

    fn binds(&mut self, draft: &Draft) -> Vec<Bind> {
        let mut binds: Vec<Bind> = Vec::new();
        for Placed {
            value: (name, text),
            origin,
        } in &draft.binds
        {
            let bind = match name {
                BindName::Unix(path) => Bind::Unix(path.clone()),
                BindName::Inherited(name) => Bind::Inherited(name.clone()),
                BindName::Ip(ip, port) => Bind::Tcp(vec![SocketAddr::new(*ip, *port)]),
                BindName::Host(host, port) => match (self.machine.resolve)(host, *port) {
                    Ok(addresses) if !addresses.is_empty() => Bind::Tcp(deduplicated(addresses)),
                    Ok(_) => {
                        self.no_host(origin, host, "it has no address");
                        continue;
                    }
                    Err(error) => {
                        self.no_host(origin, host, &cause(&error));
                        continue;
                    }
                },
            };
            if binds.iter().any(|earlier| overlap(earlier, &bind)) {
                let hint = "each address is listened on once; drivers share it";
                self.statement(
                    origin.clone(),
                    format!("`{text}` is already in the list"),
                    hint,
                );
            }
            binds.push(bind);
        }
        // An empty list in TOML; an unreadable address is a fault already.
        if draft.binds.is_empty() && draft.origin("bind") == Origin::Whole {
            self.statement(
                draft.origin("bind"),
                "no address to listen on",
                "`--bind 127.0.0.1:8000`",
            );
        }
        binds
    }

    fn no_host(&mut self, origin: &Origin, host: &str, why: &str) {
        let text = format!("host `{host}` cannot be resolved: {why}");
        self.statement(
            origin.clone(),
            text,
            "an address in digits needs no resolver",
        );
    }

    fn cpus(&mut self, draft: &Draft) -> Vec<usize> {
        match &draft.cpus {
            Cpus::Unpinned => Vec::new(),
            Cpus::All => self.machine.cpus.clone(),
            Cpus::These(cpus) => {
                if let Some(cpu) = cpus.iter().find(|cpu| !self.machine.cpus.contains(cpu)) {
                    let here: Vec<String> =
                        self.machine.cpus.iter().map(usize::to_string).collect();
                    let hint = format!("this process may run on {}", here.join(", "));
                    self.statement(
                        draft.origin("driver_cpus"),
                        format!("no processor {cpu} here"),
                        &hint,
                    );
                }
                cpus.clone()
            }
        }
    }

    fn spool_dir(&mut self, draft: &Draft) {
        // Files need no bodies.
        if draft.app.is_none() {
            return;
        }
        let (dir, origin) = (&draft.config.spool.dir, draft.origin("spool_dir"));
        if let Err(error) = (self.machine.folder)(dir) {
            return self.no_folder(origin, dir, &error);
        }
        let processes = &draft.config.processes;
        let (user, group) = (processes.user.as_str(), processes.group.as_str());
        if let Err(error) = (self.machine.spooled_file)(dir, user, group) {
            let (dir, cause) = (dir.display(), cause(&error));
            let text = format!("folder `{dir}`, for large bodies, takes no files: {cause}");
            let hint = match (error.kind(), user) {
                (io::ErrorKind::PermissionDenied, "") => {
                    "the user that runs milepost needs the right to write there and to enter it; or \
                     name another one with `spool_dir`"
                        .to_owned()
                }
                (io::ErrorKind::PermissionDenied, user) => format!(
                    "user `{user}` needs the right to write there and to enter it; or name another one \
                     with `spool_dir`"
                ),
                _ => "name another one with `spool_dir`".to_owned(),
            };
            self.statement(origin, text, &hint);
        }
    }
}

/// The system's words without Rust's "(os error 2)".
fn cause(error: &io::Error) -> String {
    crate::failure::plain(error).to_lowercase()
}

fn deduplicated(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut seen = Vec::new();
    for address in addresses {
        if !seen.contains(&address) {
            seen.push(address);
        }
    }
    seen
}

/// Port 0 is a new port each time.
fn overlap(a: &Bind, b: &Bind) -> bool {
    match (a, b) {
        (Bind::Tcp(a), Bind::Tcp(b)) => a
            .iter()
            .any(|address| address.port() != 0 && b.contains(address)),
        (Bind::Unix(a), Bind::Unix(b)) => a == b,
        (Bind::Inherited(a), Bind::Inherited(b)) => a.is_none() || b.is_none() || a == b,
        _ => false,
    }
}
