//! Settings that have another name here, or none: those of other servers, and our own former ones.
//!
//! Takes a name as gunicorn, uWSGI, uvicorn or granian know it, gives the setting or a sentence. Names that
//! are simply accepted are aliases in the table of settings, not here. Pure.

use super::{ENVIRONMENT_PREFIX, flag, setting};

/// What is there in the place of such a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    /// A setting, and what is different about it; may be empty.
    Setting(&'static str, &'static str),
    /// No setting: why, and what to do.
    Nothing(&'static str),
    /// A setting that once had this name.
    Renamed(&'static str),
}

use Replacement::{Nothing, Renamed, Setting};

/// How the reader of a hint would write a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `--request-timeout`
    Flag,
    /// `request_timeout`
    Key,
    /// `MILEPOST_REQUEST_TIMEOUT`
    Variable,
}

/// The hint for such a name, a key or a flag of one letter with its dash; `None`: not known.
pub fn migration_hint(name: &str, spelling: Spelling) -> Option<String> {
    let (_, instead) = HINTS.iter().find(|(names, _)| names.contains(&name))?;
    Some(match *instead {
        Nothing(text) => text.to_owned(),
        Renamed(key) => match setting(key).filter(|setting| !setting.in_flags()) {
            Some(table) if spelling != Spelling::Key => {
                let hint = table.table_hint().unwrap_or_default();
                format!("its name is `{key}` now: {hint}")
            }
            _ => format!("its name is `{}` now", spelt(key, spelling)),
        },
        Setting(key, "") => format!("here it is `{}`", spelt(key, spelling)),
        Setting(key, note) => format!("here it is `{}`: {note}", spelt(key, spelling)),
    })
}

fn spelt(key: &str, spelling: Spelling) -> String {
    match spelling {
        Spelling::Flag => flag(key),
        Spelling::Key => key.to_owned(),
        Spelling::Variable => format!("{ENVIRONMENT_PREFIX}{}", key.to_ascii_uppercase()),
    }
}

/// Names on the left, what there is in their place on the right.
macro_rules! hints {
    ($($($name:literal)+ => $instead:expr;)*) => {
        const HINTS: &[(&[&str], Replacement)] = &[$((&[$($name),+], $instead)),*];
    };
}

hints! {
    "readahead" => Renamed("body_memory_max");
    "steering" => Renamed("reuseport_steering");
    "driver_stall" => Renamed("accept_stall_timeout");
    "reply" => Renamed("respond");
    "queue_reserve" => Renamed("health_reserve");
    "timeout" "-t" "harakiri"
        => Setting("request_timeout", "the client gets 504 and the process goes on; off by default");
    "worker_class" "-k" "gevent" "asyncio" "ugreen" "runtime_mode" "loop"
        => Nothing("there is one kind of worker, with `threads`: leave it out");
    "interface" "lifespan" "ws" "plugin" "plugins"
        => Nothing("applications are WSGI, and nothing has to be chosen: leave it out");
    "worker_connections" "limit_concurrency" => Setting("connections_max", "of each process");
    "max_requests_jitter" "max_requests_delta" "limit_max_requests_jitter"
        => Setting("recycle_jitter", "a share, as `10%`");
    "limit_max_requests" => Setting("process_requests_max", "");
    "max_worker_lifetime" => Setting("process_age_max", "");
    "reload_on_rss" "evil_reload_on_rss" "workers_max_rss"
        => Setting("process_resident_max", "with a unit, as `500M`");
    "blocking_threads" => Setting("threads", "");
    "cheaper" "cheaper_initial" "cheaper_step" => Setting("threads", "a pool grows and shrinks within MIN:MAX");
    "certfile" "keyfile" "ca_certs" "cert_reqs" "ciphers" "ssl_version" "ssl_certfile" "ssl_keyfile"
    "ssl_certificate" "ssl_ca_certs" "https" "https_socket" "http2"
        => Nothing("there is no TLS and no HTTP/2: put a proxy that has them in front, as nginx");
    "daemon" "-D" "daemonize" "daemonize2"
        => Nothing("it stays in the foreground: run it under systemd, in a container, or with `&`");
    "umask" "-m" "env" "-e" => Nothing("leave it to the shell, or to systemd (`UMask=`, `Environment=`)");
    "name" "-n" "proc_name" "procname" "process_name" => Nothing("processes keep their name: leave it out");
    "forwarded_allow_ips" "secure_scheme_headers" "forwarder_headers" "proxy_headers"
        => Nothing("no forwarded header is believed, and all reach the application: let the framework believe \
            them, as werkzeug's `ProxyFix`");
    "proxy_protocol" "proxy_allow_ips" "proxy_allow_from" "http_enable_proxy_protocol"
        => Nothing("the PROXY protocol is not understood: let the proxy speak HTTP, with X-Forwarded-For");
    "statsd_host" "statsd_prefix" "dogstatsd_tags" "stats" "stats_server"
        => Setting("status_path", "counters as JSON, to be fetched; `milepost status` shows them too");
    "http" "socket" "-s" "http_socket" "uwsgi_socket" "listen" => Setting("bind", "HTTP is spoken there");
    "host" "port" "uds" => Setting("bind", "as `HOST:PORT` or `unix:PATH`");
    "fd" => Setting("bind", "`systemd` takes sockets that were handed over");
    "module" "wsgi_file" "file" "callable" "wsgi"
        => Nothing("the application is an argument of its own: `milepost serve module:app`");
    "mount" "manage_script_name" "url_prefix" => Setting("root_path", "the URL prefix alone, as `/shop`");
    "pythonpath" "python_path" "pp" => Setting("app_dir", "");
    "home" "-H" "venv" "virtualenv" "pyhome"
        => Nothing("the environment is the one that milepost is installed in: `VENV/bin/milepost serve ...`");
    "master" "-M" "enable_threads" "single_interpreter" "need_app" "die_on_term" "vacuum" "lazy" "lazy_apps"
    "thunder_lock" "reuse_port" "sendfile" "initgroups"
        => Nothing("it is always so: leave it out");
    "worker_tmp_dir" "no_control_socket" "spew" "no_sendfile" "reload_engine"
        => Nothing("there is nothing of that kind to set: leave it out");
    "capture_output" "enable_stdio_inheritance"
        => Nothing("what the application prints goes where the server's own output goes: leave it out");
    "buffer_size" => Setting("head_bytes_max", "");
    "post_buffering" => Setting("body_memory_max", "");
    "limit_post" => Setting("body_bytes_max", "");
    "http_keepalive" "so_keepalive" "http1_keep_alive" => Setting("idle_timeout", "");
    "worker_reload_mercy" "reload_mercy" "timeout_graceful_shutdown" "workers_graceful_timeout"
        => Setting("drain_timeout", "");
    "static_map" "static_path_mount" "static_path_route" "check_static" => Setting("static", "as `/URL=DIR`");
    "log_file" "logto" "logto2" "errorlog" => Setting("error_log", "");
    "log_level"
        => Setting("error_log",
            "the level stands in a table: `[[error_log]]`, `to = \"stderr\"`, `level = \"warning\"`");
    "log_syslog" "log_syslog_to" "log_syslog_prefix" "log_syslog_facility" "logger"
        => Setting("error_log", "a target may be `syslog`, that of an access log too");
    "accesslog" "req_logger" => Setting("access_log", "");
    "disable_logging" => Nothing("there is no access log unless one is set: leave it out");
    "access_logformat" "access_log_fmt" "log_format" "logformat"
        => Setting("access_log_format",
            "`phases`, `combined`, `common`, `json`, or a text as `{peer} {status} {total}`");
    "log_config" "log_config_json" "logconfig" "logger_class"
        => Nothing("logs are set with `access_log` and `error_log`, not by Python's logging");
    "-p" => Nothing("of gunicorn it is `--pid-file`, of uWSGI `--processes`");
    "pidfile" "pidfile2" "safe_pidfile" => Setting("pid_file", "");
    "uid" "-u" => Setting("user", "");
    "gid" "-g" => Setting("group", "");
    "py_autoreload" "python_autoreload" "touch_reload"
        => Setting("reload", "for development; otherwise `milepost reload`");
    "reload_extra_file" "reload_include" "reload_paths" => Setting("reload_dir", "the folder that it is in");
    "ini" "json" "yaml" "xml"
        => Nothing("a configuration file is TOML: `milepost serve --config milepost.toml`");
    "check_config" "print_config"
        => Nothing("`milepost check` looks at the configuration and shows what it comes to");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::SETTINGS;
    use super::*;

    #[test]
    fn names_settings_that_there_are_in_place_of_those_that_are_not() {
        let shorts: Vec<String> = SETTINGS
            .iter()
            .filter_map(|setting| Some(format!("-{}", setting.short?)))
            .collect();
        let mut seen = BTreeSet::new();
        for (names, instead) in HINTS {
            for name in *names {
                assert!(seen.insert(*name), "`{name}` is there twice");
                let is_ours = setting(name).is_some() || shorts.contains(&(*name).to_owned());
                assert!(!is_ours, "`{name}` is ours");
            }
            if let Setting(key, _) | Renamed(key) = instead {
                let known = setting(key).map(|setting| setting.key);
                assert_eq!(known, Some(*key));
            }
        }
    }

    #[test]
    fn spells_a_setting_as_its_reader_would() {
        let check = |name, spelling, expect: Option<&str>| {
            assert_eq!(migration_hint(name, spelling).as_deref(), expect);
        };
        check("pidfile", Spelling::Flag, Some("here it is `--pid-file`"));
        check("pidfile", Spelling::Key, Some("here it is `pid_file`"));
        let variable = Some("here it is `MILEPOST_PID_FILE`");
        check("pidfile", Spelling::Variable, variable);
        let both = Some("of gunicorn it is `--pid-file`, of uWSGI `--processes`");
        check("-p", Spelling::Flag, both);
        check("backlog", Spelling::Key, None);
        let renamed = Some("its name is `--body-memory-max` now");
        check("readahead", Spelling::Flag, renamed);
        check("reply", Spelling::Key, Some("its name is `respond` now"));
    }
}
