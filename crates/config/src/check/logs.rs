//! Do logs hold together? Routes that there are, one log for each file, folders, settings in vain.

use std::io;
use std::path::PathBuf;

use super::{Check, shares};
use crate::builder::{Draft, Placed};
use crate::fault::Origin;
use crate::parse::logs::AccessLogTable;
use crate::parse::traces::{TracesText, usual_collector};
use crate::typed::{
    AccessLog, Config, ErrorLog, LogFilter, LogForm, LogTarget, Logs, PeerSet, ServerAddress,
    TraceExport, Traces, UpstreamServer,
};

impl Check<'_> {
    /// The access logs; `routes` are the names that filters may have.
    pub(super) fn access_logs(&mut self, draft: &Draft, routes: &[String]) -> Vec<AccessLog> {
        let mut logs: Vec<AccessLog> = Vec::new();
        let auto = [Placed::new(Some(AccessLogTable::auto()), &Origin::Whole)];
        let written = match draft.is_written("access_log") {
            true => &draft.access_logs[..],
            false => &auto,
        };
        for (log, origin) in self.wished(written) {
            // Before any check: a log that is not written cannot be in the way of another one.
            if log.is_for_terminal && !self.machine.has_terminal {
                continue;
            }
            self.target(
                logs.iter().map(|log| &log.target),
                &log.to,
                origin,
                "access",
            );
            for name in log.route.iter().filter(|name| !routes.contains(name)) {
                let hint = shares::nearest_or_all(name, routes, "the routes are");
                self.statement(origin, format!("no route `{name}`"), hint);
            }
            let form = log.format.clone().or_else(|| draft.log_form.clone());
            logs.push(AccessLog {
                target: log.to.clone(),
                form: form.unwrap_or(LogForm::Phases),
                filter: LogFilter {
                    routes: log.route.clone(),
                    statuses: log.status.clone(),
                    slower_than: log.slower,
                },
            });
        }
        logs
    }

    /// The error logs.
    pub(super) fn error_logs(&mut self, draft: &Draft) -> Vec<ErrorLog> {
        let mut logs: Vec<ErrorLog> = Vec::new();
        for (log, origin) in self.wished(&draft.error_logs) {
            self.target(logs.iter().map(|log| &log.target), &log.to, origin, "error");
            logs.push(ErrorLog {
                target: log.to.clone(),
                form: log.format.unwrap_or(draft.error_log_form),
                levels: log.levels(draft.error_level),
            });
        }
        // It may be meant, so it is no fault; but then a server that fails says nothing at all.
        if logs.is_empty() {
            self.note("error_log is off: what goes wrong is told nowhere");
        }
        logs
    }

    /// What is wished of a list; `off` among others contradicts them.
    fn wished<'d, T>(&mut self, list: &'d [Placed<Option<T>>]) -> Vec<(&'d T, &'d Origin)> {
        for off in list
            .iter()
            .filter(|one| one.value.is_none() && list.len() > 1)
        {
            let hint = "leave it out, or leave out the others";
            self.statement(&off.origin, "`off` stands beside other logs", hint);
        }
        let wish = |one: &'d Placed<Option<T>>| Some((one.value.as_ref()?, &one.origin));
        list.iter().filter_map(wish).collect()
    }

    /// Streams and sockets once for each kind of log: files are looked at all together.
    fn target<'l>(
        &mut self,
        mut others: impl Iterator<Item = &'l LogTarget>,
        target: &LogTarget,
        origin: &Origin,
        kind: &str,
    ) {
        let said = match target {
            LogTarget::Stdout => "standard output",
            LogTarget::Stderr => "standard error",
            LogTarget::Syslog(_) => "syslog with this facility",
            LogTarget::File(_) => return,
        };
        if others.any(|other| other == target) {
            let text = format!("{said} is an {kind} log already");
            self.statement(origin, text, "each target takes one of them");
        }
    }

    /// Folders of all files that are written, and that no file has two writers.
    pub(super) fn log_files(&mut self, draft: &Draft) {
        let pid_file = draft.config.pid_file.iter();
        let pid_file = pid_file.map(|file| (file, draft.origin("pid_file"), "the pid file"));
        let mut files: Vec<(PathBuf, &str)> = Vec::new();
        for (file, origin, kind) in log_files(draft).chain(pid_file) {
            if let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
                self.folder(&origin, dir);
            }
            let path = self.absolute(file);
            let found = (self.machine.file)(&path).map_err(|error| error.kind());
            if found == Err(io::ErrorKind::IsADirectory) {
                let text = format!("`{}` is a folder", file.display());
                self.statement(&origin, text, "name a file in it");
            }
            // Two writers of a file would rotate it away from each other. Compared without links and `..`, because two
            // names may lead to one file.
            let folder = path.parent().map(self.machine.folder);
            let path = match (folder, path.file_name()) {
                (Some(Ok(folder)), Some(name)) => folder.join(name),
                _ => path,
            };
            if let Some((_, other)) = files.iter().find(|(other, _)| *other == path) {
                let text = format!("`{}` is {other} already", file.display());
                self.statement(&origin, text, "each file has one writer: name another");
            }
            files.push((path, kind));
        }
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
        // Each reason once: without a file the settings of old files are not blamed as well.
        let has_file = log_files(draft).next().is_some();
        for (key, _) in rotates.iter().filter(|(_, is_on)| *is_on && !has_file) {
            self.vain(key, "no log is a file");
        }
        let makes_old_files = rotates.iter().any(|(_, is_on)| *is_on);
        for (key, _) in keeps.iter().filter(|(_, is_on)| *is_on && !makes_old_files) {
            let why = "no old files are made (log_rotate_size and log_rotate_every are off)";
            self.vain(key, why);
        }
    }

    /// Where spans are sent, and which traces are recorded.
    pub(super) fn traces(&mut self, draft: &Draft, traces: &mut Traces) {
        let otel = &draft.otel;
        let url = match &draft.traces {
            TracesText::Off => {
                for key in ["traces_sample", "traces_parents"] {
                    if draft.is_written(key) {
                        self.vain(key, "traces are off");
                    }
                }
                return;
            }
            TracesText::Ids => None,
            TracesText::Otel => Some(otel.collector.clone().unwrap_or_else(usual_collector)),
            TracesText::Collector(url) => Some(url.clone()),
        };
        otel.notes.iter().for_each(|note| self.note(note));
        traces.has_ids = true;
        if !draft.is_written("traces_sample") {
            traces.share = otel.share.unwrap_or(traces.share);
        }
        let mut resource = otel.resource.clone();
        if !resource.iter().any(|(name, _)| name == "service.name") {
            resource.push(("service.name".to_owned(), "milepost".to_owned()));
        }
        traces.export = url.map(|url| TraceExport {
            server: UpstreamServer {
                address: match url.server.address {
                    ServerAddress::Unix(path) => ServerAddress::Unix(self.absolute(&path)),
                    tcp => tcp,
                },
                ..url.server
            },
            path: url.path,
            headers: otel.headers.clone(),
            resource,
            ca: otel.ca.as_deref().map(|file| self.absolute(file)),
        });
    }

    /// Half of what belongs together is worth a word too.
    pub(super) fn request_ids(&mut self, config: &Config) {
        let ids = &config.request_ids;
        let trusts_nobody = config.proxies.trusted == PeerSet::default();
        if ids.header.is_some() && trusts_nobody {
            self.note(
                "request_id_header is taken from nobody: trusted_proxies is off, and ids are made",
            );
        }
    }
}

/// Every log that is a file.
fn log_files(draft: &Draft) -> impl Iterator<Item = (&PathBuf, Origin, &'static str)> {
    let access = draft.access_logs.iter().filter_map(|log| {
        let target = &log.value.as_ref()?.to;
        Some((target, &log.origin, "an access log"))
    });
    let errors = draft.error_logs.iter().filter_map(|log| {
        let target = &log.value.as_ref()?.to;
        Some((target, &log.origin, "an error log"))
    });
    let all = access.chain(errors);
    all.filter_map(|(target, origin, kind)| match target {
        LogTarget::File(path) => Some((path, origin.clone(), kind)),
        _ => None,
    })
}
