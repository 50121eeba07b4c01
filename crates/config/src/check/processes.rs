//! Do processes hold together? How many of them and of their drivers, and what is set in vain.

use std::net::SocketAddr;

use super::Check;
use crate::builder::{Draft, Placed};
use crate::fault::ConfigFault;
use crate::parse::bind::UNIX_PATH_BYTES_MAX;
use crate::typed::{
    AdminBind, Bind, Config, ControlConfig, Development, PROCESSES_MAX, Steering, too_many_drivers,
};

const DRIVERS_AUTO_MAX: usize = 8;

impl Check<'_> {
    pub(super) fn processes_count(&self, draft: &Draft) -> usize {
        draft
            .processes
            .unwrap_or(self.machine.cores.clamp(1, PROCESSES_MAX))
    }

    /// Half of the processors for all drivers together: the other half is for what they drive.
    pub(super) fn drivers(&self, draft: &Draft, processes: usize) -> usize {
        assert!(processes > 0, "drivers of no process");
        let share = self.machine.cores / 2 / processes;
        draft.drivers.unwrap_or(share.clamp(1, DRIVERS_AUTO_MAX))
    }

    /// What is about processes alone, once their number, drivers and addresses are known.
    pub(super) fn processes(&mut self, draft: &Draft, config: &mut Config) {
        self.drivers_in_all(draft, config);
        self.supervisor_files(config, &draft.origin("processes"));
        self.account(draft, config);
        self.preload(draft, config);
        config.processes.development = self.development(draft);
        self.control(draft, config);
        self.admin(draft, config);
        self.vain_statsd(draft, config);
        self.vain_jitter(draft, config);
        if config.listen.steering == Steering::Cpu && config.listen.driver_cpus.is_empty() {
            self.note(
                "reuseport_steering by cpu helps little as long as drivers move between processors: \
                 driver_cpus is off",
            );
        }
    }

    fn drivers_in_all(&mut self, draft: &Draft, config: &Config) {
        let (processes, drivers) = (config.processes.count, config.listen.drivers);
        if let Some((text, hint)) = too_many_drivers(processes, drivers) {
            let origin = draft.first_origin(&["drivers", "processes"]);
            self.statement(&origin, text, hint);
        }
    }

    fn account(&mut self, draft: &Draft, config: &Config) {
        let processes = &config.processes;
        if let Err(fault) = (self.machine.account)(&processes.user, &processes.group) {
            let said =
                ConfigFault::statement(draft.first_origin(&["user", "group"]), fault.to_string());
            self.faults.push(said.with_hint_maybe(fault.hint));
        }
    }

    fn preload(&mut self, draft: &Draft, config: &mut Config) {
        if !config.processes.preload {
            return;
        }
        // The template holds the modules that a reload is to import anew.
        if draft.reload {
            let text = "preload and reload exclude each other";
            let hint =
                "preload saves memory in operation, reload is for development: leave one out";
            self.statement(&draft.origin("preload"), text, hint);
        }
        if !draft.has_app() {
            config.processes.preload = false;
            self.vain("preload", "there is no application");
        }
    }

    fn development(&mut self, draft: &Draft) -> Option<Development> {
        let mut dirs = Vec::new();
        for entry in &draft.reload_dirs {
            self.folder(&entry.origin, &entry.value);
            let dir = self.absolute(&entry.value);
            // Two spellings of a folder would be watched twice, and each change reported twice.
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        let files: Vec<_> = Placed::values(&draft.reload_files);
        let files: Vec<_> = files.iter().map(|file| self.absolute(file)).collect();
        for (key, is_empty) in [
            ("reload_dir", dirs.is_empty()),
            ("reload_file", files.is_empty()),
        ] {
            if !draft.reload && !is_empty {
                self.vain(key, "reload is off");
            }
        }
        draft.reload.then_some(Development { dirs, files })
    }

    /// Commands come from any folder, so the name is a whole one.
    fn control(&mut self, draft: &Draft, config: &mut Config) {
        let ControlConfig::At(file) = &config.processes.control else {
            return;
        };
        // Commands ask the kernel by this name, whatever folder the server has changed to meanwhile.
        let file = self.machine.current_dir.join(file);
        let bytes = file.as_os_str().len();
        if bytes > UNIX_PATH_BYTES_MAX {
            let text = format!("`{}` has {bytes} bytes", file.display());
            let hint = format!("the kernel takes at most {UNIX_PATH_BYTES_MAX} bytes of path");
            self.statement(&draft.origin("control"), text, hint);
        }
        self.folder_of(&draft.origin("control"), &file);
        config.processes.control = ControlConfig::At(file);
    }

    fn vain_statsd(&mut self, draft: &Draft, config: &Config) {
        if config.statsd.address.is_none() && draft.is_written("statsd_prefix") {
            self.vain("statsd_prefix", "statsd is off");
        }
    }

    /// What is not for this machine alone asks for a token.
    fn admin(&mut self, draft: &Draft, config: &mut Config) {
        let (admin, binds) = (&mut config.admin, &config.binds);
        let origin = draft.origin("admin_bind");
        match &mut admin.bind {
            None if admin.token_file.is_some() => {
                self.vain("admin_token_file", "admin_bind is off");
            }
            None => {}
            Some(AdminBind::Unix(file)) => {
                *file = self.absolute(file);
                self.folder_of(&origin, file);
            }
            Some(AdminBind::Tcp(address))
                if admin.token_file.is_none() && !address.ip().is_loopback() =>
            {
                let text = format!("admin_bind: other hosts can reach `{address}`");
                let hint = "set `admin_token_file`, or listen on `127.0.0.1`";
                self.statement(&origin, text, hint);
            }
            Some(AdminBind::Tcp(_)) => {}
        }
        let is_taken = |one: &Bind| match (&admin.bind, one) {
            (Some(AdminBind::Tcp(address)), Bind::Tcp(others)) => {
                others.iter().any(|other| is_same_place(*address, *other))
            }
            (Some(AdminBind::Unix(file)), Bind::Unix(other)) => *file == self.absolute(&other.path),
            _ => false,
        };
        if binds.iter().any(is_taken) {
            let text = "clients of the application have this address (`bind`)";
            self.statement(&origin, text, "give each its own port or path");
        }
        let token_file = admin.token_file.take();
        admin.token_file = token_file.map(|file| {
            self.file(&draft.origin("admin_token_file"), &file);
            self.absolute(&file)
        });
    }

    fn vain_jitter(&mut self, draft: &Draft, config: &Config) {
        let bounds = &config.processes.recycling;
        let has_bound = bounds.requests_max.is_some()
            || bounds.age_max.is_some()
            || bounds.resident_bytes_max.is_some();
        if !has_bound && draft.is_written("recycle_jitter") {
            let why = "no process_requests_max, process_age_max or process_resident_max is set";
            self.vain("recycle_jitter", why);
        }
    }
}

/// Whether only one program can listen on both. Port 0 is a new port each time.
fn is_same_place(a: SocketAddr, b: SocketAddr) -> bool {
    let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
    let is_same_ip = a.ip() == b.ip() || (is_any && a.is_ipv4() == b.is_ipv4());
    a.port() != 0 && a.port() == b.port() && is_same_ip
}
