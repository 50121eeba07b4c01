//! Do processes hold together? How many of them and of their drivers, and what is set in vain.

use super::super::bind::UNIX_PATH_BYTES_MAX;
use super::super::builder::{Draft, Placed};
use super::super::fault::Origin;
use super::super::typed::{
    Config, ControlConfig, Development, PROCESSES_MAX, Recycling, Steering, too_many_drivers,
};
use super::Check;

const DRIVERS_AUTO_MAX: usize = 8;

impl Check<'_> {
    pub(super) fn processes_count(&self, draft: &Draft) -> usize {
        draft
            .processes
            .unwrap_or(self.machine.cores.clamp(1, PROCESSES_MAX))
    }

    /// Half of the processors for all drivers together: the other half is for what they drive.
    pub(super) fn drivers(&self, draft: &Draft, processes: usize) -> usize {
        let share = self.machine.cores / 2 / processes;
        draft.drivers.unwrap_or(share.clamp(1, DRIVERS_AUTO_MAX))
    }

    /// What is about processes alone, once their number, drivers and addresses are known.
    pub(super) fn processes(&mut self, draft: &Draft, config: &mut Config) {
        self.drivers_in_all(draft, config);
        self.supervisor_files(config, draft.origin("processes"));
        self.preload(draft, config);
        config.processes.development = self.development(draft);
        self.control(draft, config);
        self.vain_jitter(draft, config);
        if config.listen.steering == Steering::Cpu && config.listen.driver_cpus.is_empty() {
            let text = "reuseport_steering by cpu helps little as long as drivers move between processors: \
                        driver_cpus is off";
            self.notes.push(text.to_owned());
        }
    }

    fn drivers_in_all(&mut self, draft: &Draft, config: &Config) {
        let (processes, drivers) = (config.processes.count, config.listen.drivers);
        let Some((text, hint)) = too_many_drivers(processes, drivers) else {
            return;
        };
        // The one that was written is the one to blame.
        let origin = [draft.origin("drivers"), draft.origin("processes")]
            .into_iter()
            .find(|at| *at != Origin::Whole)
            .unwrap_or_default();
        self.statement(origin, text, &hint);
    }

    fn preload(&mut self, draft: &Draft, config: &mut Config) {
        if !config.processes.preload {
            return;
        }
        if draft.reload {
            self.statement(
                draft.origin("preload"),
                "preload and reload exclude each other",
                "preload saves memory in operation, reload is for development: leave one out",
            );
        }
        if draft.app.is_none() {
            config.processes.preload = false;
            let text = "preload has no effect: there is no application";
            self.notes.push(text.to_owned());
        }
    }

    fn development(&mut self, draft: &Draft) -> Option<Development> {
        let mut dirs = Vec::new();
        for Placed { value, origin } in &draft.reload_dirs {
            if let Err(error) = (self.machine.folder)(value) {
                self.no_folder(origin.clone(), value, &error);
            }
            let dir = self.machine.current_dir.join(value).components().collect();
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        if !draft.reload && !dirs.is_empty() {
            let text = "reload_dir has no effect: reload is off";
            self.notes.push(text.to_owned());
        }
        draft.reload.then_some(Development { dirs })
    }

    /// Commands come from any folder, so the name is a whole one.
    fn control(&mut self, draft: &Draft, config: &mut Config) {
        let ControlConfig::At(file) = &config.processes.control else {
            return;
        };
        let file = self.machine.current_dir.join(file);
        let bytes = file.as_os_str().len();
        if bytes > UNIX_PATH_BYTES_MAX {
            self.statement(
                draft.origin("control"),
                format!("`{}` has {bytes} bytes", file.display()),
                &format!("the kernel takes at most {UNIX_PATH_BYTES_MAX} bytes of path"),
            );
        }
        config.processes.control = ControlConfig::At(file);
    }

    fn vain_jitter(&mut self, draft: &Draft, config: &Config) {
        let Recycling {
            requests_max,
            age_max,
            resident_bytes_max,
            ..
        } = config.processes.recycling;
        let has_bound = requests_max.is_some() || age_max.is_some() || resident_bytes_max.is_some();
        if !has_bound && draft.origin("recycle_jitter") != Origin::Whole {
            let text = "recycle_jitter has no effect: no process_requests_max, process_age_max or \
                        process_resident_max is set";
            self.notes.push(text.to_owned());
        }
    }
}
