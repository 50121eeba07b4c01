//! Do logs hold together? Routes that there are, one log for each file, folders, settings in vain.

use std::path::{Path, PathBuf};

use super::super::builder::{AccessEntry, Draft, Placed, Wished};
use super::super::fault::Origin;
use super::super::nearest;
use super::super::typed::{AccessLog, Bind, Config, ErrorLog, LogForm, LogTarget, Logs};
use super::Check;

impl Check<'_> {
    /// The access logs; `routes` are the names that filters may have.
    pub(super) fn access_logs(&mut self, draft: &Draft, routes: &[String]) -> Vec<AccessLog> {
        let mut logs: Vec<AccessLog> = Vec::new();
        for (entry, origin) in self.wished(&draft.access_logs) {
            let AccessEntry {
                target,
                form,
                filter,
            } = entry;
            if logs.iter().any(|log| log.target == target) {
                self.twice(&origin, &target, "access");
            }
            for name in &filter.routes {
                if !routes.contains(name) {
                    let hint = route_hint(name, routes);
                    self.statement(origin.clone(), format!("no route `{name}`"), &hint);
                }
            }
            let form = form
                .or_else(|| draft.log_form.clone())
                .unwrap_or(LogForm::Phases);
            logs.push(AccessLog {
                target,
                form,
                filter,
            });
        }
        logs
    }

    /// The error logs.
    pub(super) fn error_logs(&mut self, draft: &Draft) -> Vec<ErrorLog> {
        let mut logs: Vec<ErrorLog> = Vec::new();
        for (log, origin) in self.wished(&draft.error_logs) {
            if logs.iter().any(|other| other.target == log.target) {
                self.twice(&origin, &log.target, "error");
            }
            logs.push(log);
        }
        if logs.is_empty() {
            let text = "error_log is off: what goes wrong is told nowhere";
            self.notes.push(text.to_owned());
        }
        logs
    }

    /// What is wished of a list; `off` among others contradicts them.
    fn wished<T: Clone>(&mut self, list: &[Placed<Wished<T>>]) -> Vec<(T, Origin)> {
        let mut all = Vec::new();
        for one in list {
            match &one.value {
                Wished::This(wish) => all.push((wish.clone(), one.origin.clone())),
                Wished::Off if list.len() > 1 => {
                    let hint = "leave it out, or leave out the others";
                    self.statement(one.origin.clone(), "`off` stands beside other logs", hint);
                }
                Wished::Off => {}
            }
        }
        all
    }

    /// Streams and sockets once for each kind of log: files are looked at all together.
    fn twice(&mut self, origin: &Origin, target: &LogTarget, kind: &str) {
        if matches!(target, LogTarget::File(_)) {
            return;
        }
        let text = format!("{} is an {kind} log already", said(target));
        self.statement(origin.clone(), text, "each target takes one of them");
    }

    /// Folders of all files that are written, and that no file has two writers.
    pub(super) fn log_files(&mut self, draft: &Draft) {
        let mut files: Vec<(PathBuf, &str)> = Vec::new();
        for (file, origin, kind) in written_files(draft) {
            self.folder_of(&origin, &file);
            let path = self.absolute(&file);
            if let Some((_, other)) = files.iter().find(|(other, _)| *other == path) {
                let text = format!("`{}` is {other} already", file.display());
                self.statement(origin, text, "each file has one writer: name another");
            }
            files.push((path, kind));
        }
    }

    fn folder_of(&mut self, origin: &Origin, file: &Path) {
        let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) else {
            return;
        };
        if let Err(error) = (self.machine.folder)(dir) {
            self.no_folder(origin.clone(), dir, &error);
        }
    }

    /// Whether two names are one, as far as the names tell: `./a` and `a` are.
    fn absolute(&self, file: &Path) -> PathBuf {
        let whole = self.machine.current_dir.join(file);
        // Components leave out every `.`.
        whole.components().collect()
    }

    /// What is set in vain is worth a word.
    pub(super) fn rotation(&mut self, draft: &Draft, logs: &Logs) {
        let rotation = &logs.rotation;
        let rotates = [
            ("log_rotate_size", rotation.bytes.is_some()),
            ("log_rotate_every", rotation.every.is_some()),
        ];
        let keeps = [
            ("log_keep", rotation.keep_len.is_some()),
            ("log_keep_age", rotation.keep_age.is_some()),
            ("log_compress", rotation.compress),
        ];
        let on = |list: &[(&'static str, bool)]| -> Vec<&'static str> {
            let on = list.iter().filter(|(_, is_on)| *is_on);
            on.map(|(key, _)| *key).collect()
        };
        let has_file = log_files(draft).next().is_some();
        if !has_file {
            for key in on(&rotates) {
                self.notes
                    .push(format!("{key} has no effect: no log is a file"));
            }
        }
        if on(&rotates).is_empty() {
            for key in on(&keeps) {
                self.notes.push(format!(
                    "{key} has no effect: no old files are made \
                     (log_rotate_size and log_rotate_every are off)"
                ));
            }
        }
    }

    /// Half of what belongs together is worth a word too.
    pub(super) fn request_ids(&mut self, config: &Config) {
        let ids = &config.request_ids;
        if ids.header.is_none() && !ids.trust.is_empty() {
            let text = "request_id_trust has no effect: request_id_header is off";
            self.notes.push(text.to_owned());
        }
        let is_unix = |bind: &Bind| matches!(bind, Bind::Unix(_));
        if ids.header.is_some() && ids.trust.is_empty() && !config.binds.iter().any(is_unix) {
            let text = "request_id_header is taken from nobody: request_id_trust is empty, and ids are made";
            self.notes.push(text.to_owned());
        }
    }
}

/// Every file that is written for good, where that was said, and what it is.
fn written_files(draft: &Draft) -> Vec<(PathBuf, Origin, &'static str)> {
    let pid_file = draft.config.pid_file.iter();
    log_files(draft)
        .map(|(file, origin, kind)| (file.to_owned(), origin.clone(), kind))
        .chain(pid_file.map(|file| (file.clone(), draft.origin("pid_file"), "the pid file")))
        .collect()
}

/// Every log that is a file.
fn log_files(draft: &Draft) -> impl Iterator<Item = (&Path, &Origin, &'static str)> {
    let access = draft.access_logs.iter().filter_map(|log| match &log.value {
        Wished::This(entry) => Some((&entry.target, &log.origin, "an access log")),
        Wished::Off => None,
    });
    let errors = draft.error_logs.iter().filter_map(|log| match &log.value {
        Wished::This(entry) => Some((&entry.target, &log.origin, "an error log")),
        Wished::Off => None,
    });
    access
        .chain(errors)
        .filter_map(|(target, origin, kind)| match target {
            LogTarget::File(path) => Some((path.as_path(), origin, kind)),
            _ => None,
        })
}

fn said(target: &LogTarget) -> &'static str {
    match target {
        LogTarget::Stdout => "standard output",
        LogTarget::Stderr => "standard error",
        LogTarget::Syslog(_) => "syslog with this facility",
        LogTarget::File(_) => "the file",
    }
}

/// What to write instead of a route that is not there.
fn route_hint(name: &str, routes: &[String]) -> String {
    let names = || routes.iter().map(String::as_str);
    // Everything short is near to the root.
    if let Some(near) = nearest(name, names().filter(|known| *known != "/")) {
        return format!("did you mean `{near}`?");
    }
    let all: Vec<String> = names().map(|name| format!("`{name}`")).collect();
    format!("the routes are {}", all.join(", "))
}
