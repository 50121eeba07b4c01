//! The start-up block: what is listening where, what is served, with how many drivers and threads.
//!
//! Takes the configuration and what became of it, gives text; prints nothing. Programs that start the
//! server read its `listening on URL` lines, one for each address.

use std::ops::RangeInclusive;

use config::typed::{
    AccessLog, AdminBind, App, Config, ControlConfig, ErrorLog, ErrorLogForm, Level, Levels,
    LogForm, LogTarget, Logs, PoolConfig, PoolRuns, Route, RouteTarget, StaticMount,
    UpstreamServer,
};
use supervisor::control::status::{AddressStatus, CertificateStatus};

use crate::command::VERSION;

/// What the block is about.
pub(crate) struct Facts<'f> {
    pub config: &'f Config,
    pub listening: &'f [AddressStatus],
    pub certificates: &'f [CertificateStatus],
    pub python: Option<String>,
    pub event_loops: &'f [Option<String>],
    pub pid: u32,
    pub notes: &'f [String],
}

/// The block, with its line ends.
pub(crate) fn text(facts: &Facts<'_>) -> String {
    let mut lines = Vec::new();
    let name = format!("milepost {VERSION}");
    for (index, listening) in facts.listening.iter().enumerate() {
        let lead = if index == 0 { name.as_str() } else { "" };
        lines.push(format!(
            "{lead:width$} listening on {}",
            listening.url,
            width = name.len()
        ));
    }
    lines.extend(certificates(facts.certificates));
    lines.extend(served(
        facts.config,
        facts.python.as_deref(),
        facts.event_loops,
    ));
    lines.push(row("process", &processes(facts)));
    lines.extend(admin(facts.config));
    lines.extend(logs(&facts.config.logs));
    lines.extend(backlog(facts));
    lines.extend(facts.notes.iter().map(|note| row("note", note)));
    lines.join("\n") + "\n"
}

/// What `check` says about a good configuration.
pub(crate) fn summary(
    config: &Config,
    certificates_read: &[CertificateStatus],
    python: Option<&str>,
    event_loops: &[Option<String>],
    notes: &[String],
) -> String {
    let mut lines = vec!["configuration is good".to_owned()];
    lines.extend(certificates(certificates_read));
    lines.extend(served(config, python, event_loops));
    lines.extend(logs(&config.logs));
    lines.extend(notes.iter().map(|note| row("note", note)));
    lines.join("\n") + "\n"
}

/// `module:attribute` as one would write it.
pub(crate) fn app_name(app: &App) -> String {
    let call = if app.factory { "()" } else { "" };
    match app.attribute.as_str() {
        "" => app.name(),
        _ => format!("{}{call}", app.name()),
    }
}

/// `shop.example, *.shop.example, by Let's Encrypt, until 2026-12-04 12:00 UTC`
fn certificates(all: &[CertificateStatus]) -> Vec<String> {
    all.iter().map(|one| row("tls", &one.to_string())).collect()
}

fn row(label: &str, text: &str) -> String {
    format!("  {label:<8} {text}")
}

fn served(config: &Config, python: Option<&str>, event_loops: &[Option<String>]) -> Vec<String> {
    let mut rows = Vec::new();
    for (index, app) in config.apps.iter().enumerate() {
        // One line is enough to say which Python it is.
        let python = python.filter(|_| index == 0);
        let mut facts = vec![interface(config, index, event_loops)];
        facts.extend(python.map(str::to_owned));
        let text = format!(
            "{}{}, {}",
            app_name(app),
            place(config, index),
            facts.join(", ")
        );
        rows.push(row("app", &text));
    }
    let mut named = Vec::new();
    for pool in config.pools.iter().filter(|_| !config.apps.is_empty()) {
        let Some(app) = pool.runs.app() else {
            continue;
        };
        if !named.contains(&app) {
            // Its threads stand with its application.
            named.push(app);
            continue;
        }
        // The pools of an event loop are queues in front of it.
        rows.push(match event_loop(app, event_loops) {
            Some(_) => row("pool", &pool.name),
            None => row("pool", &format!("{} on {}", pool.name, threads_of(pool))),
        });
    }
    for upstream in &config.upstreams {
        let place = names_of_routes(config, |pool| pool.runs == config.pools[upstream.pool].runs);
        let servers = listed_servers(&upstream.servers);
        rows.push(row(
            "upstream",
            &format!("{}{place}, {servers}", upstream.name),
        ));
    }
    for mount in &config.statics {
        let url = if mount.url.is_empty() {
            "/"
        } else {
            &mount.url
        };
        rows.push(row("files", &format!("{url} from {}", mount.dir.display())));
    }
    let mounts: Vec<&StaticMount> = config.mounts().collect();
    for route in &config.routes {
        if let RouteTarget::Files(mount) = route.target {
            let dir = mounts[mount].dir.display();
            rows.push(row("files", &format!("{} from {dir}", route.name())));
        }
    }
    rows
}

/// The event loop that runs an application.
fn event_loop(app: usize, event_loops: &[Option<String>]) -> Option<&str> {
    event_loops.get(app)?.as_deref()
}

/// `ASGI on an event loop (uvloop)`
fn interface(config: &Config, app: usize, event_loops: &[Option<String>]) -> String {
    if let Some(event_loop) = event_loop(app, event_loops) {
        return format!("ASGI on an event loop ({event_loop})");
    }
    let runs = PoolRuns::App(app);
    let pool = config.pools.iter().find(|pool| pool.runs == runs);
    let pool = pool.expect("each application has a pool");
    format!("WSGI on {}", threads_of(pool))
}

/// ` for /ws and /chat under /site`, as far as that is said.
fn place(config: &Config, app: usize) -> String {
    let mut text = names_of_routes(config, |pool| pool.runs == PoolRuns::App(app));
    let root_path = &config.apps[app].root_path;
    if !root_path.is_empty() {
        text.push_str(&format!(" under {root_path}"));
    }
    text
}

/// ` for /ws and /chat`; nothing for all requests.
fn names_of_routes(config: &Config, is_its: impl Fn(&PoolConfig) -> bool) -> String {
    let its_routes = config.routes.iter();
    let its_routes = its_routes.filter(|route| {
        let pool = route.pool();
        pool.is_some_and(|pool| is_its(&config.pools[pool]))
    });
    let names: Vec<String> = its_routes
        .filter(|route| !route.takes_all())
        .map(Route::name)
        .collect();
    match names.len() {
        0 => String::new(),
        1 | 2 => format!(" for {}", names.join(" and ")),
        _ => format!(" for {}", listed(&names)),
    }
}

/// The first servers of an upstream, and how many more there are.
fn listed_servers(servers: &[UpstreamServer]) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    listed(&servers)
}

/// The first ones, and how many more there are.
fn listed(names: &[String]) -> String {
    const LISTED_LEN: usize = 4;
    let shown = names[..names.len().min(LISTED_LEN)].join(", ");
    match names.len().saturating_sub(LISTED_LEN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `4 threads`, `2 to 8 threads`
fn threads_of(pool: &PoolConfig) -> String {
    match pool.threads_min == pool.threads_max {
        true => counted(pool.threads_max, "thread"),
        false => format!("{} to {} threads", pool.threads_min, pool.threads_max),
    }
}

/// `1 process × 4 threads, reload: milepost reload --pid 2387`
fn processes(facts: &Facts<'_>) -> String {
    let processes = match facts.config.processes.count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    let threads = match facts.config.apps.first() {
        Some(_) if event_loop(0, facts.event_loops).is_none() => {
            format!(" × {}", threads_of(&facts.config.pools[0]))
        }
        _ => String::new(),
    };
    let reload = match facts.config.processes.control {
        // The command needs the control socket; the signal always works.
        ControlConfig::Off => format!("kill -HUP {}", facts.pid),
        _ => format!("milepost reload --pid {}", facts.pid),
    };
    format!("{processes}{threads}, reload: {reload}")
}

/// Where metrics are.
fn admin(config: &Config) -> Option<String> {
    let text = match config.admin.bind.as_ref()? {
        AdminBind::Tcp(address) => format!("http://{address}/metrics"),
        AdminBind::Unix(file) => format!("unix:{}", file.display()),
    };
    Some(row("admin", &text))
}

/// What the kernel makes of the backlog, where that is less than was meant.
fn backlog(facts: &Facts<'_>) -> Option<String> {
    // The least of all sockets: that one is full first.
    let backlogs = facts.listening.iter().map(|one| one.backlog);
    let effective = backlogs.filter(|backlog| *backlog > 0).min()?;
    let wanted = facts.config.listen.backlog;
    let text = format!("backlog {effective} (net.core.somaxconn) instead of {wanted}");
    (effective < wanted).then(|| row("note", &text))
}

/// A row for each log; errors on standard error, all of them, are what everybody expects.
fn logs(logs: &Logs) -> Vec<String> {
    let mut rows: Vec<String> = logs
        .access
        .iter()
        .map(|log| row("log", &access(log)))
        .collect();
    // Said, because a log that is missing is noticed only when it is needed.
    if rows.is_empty() {
        rows.push(row("log", "off"));
    }
    if logs.errors.is_empty() {
        rows.push(row("errors", "off"));
    } else if logs.errors != Logs::default().errors {
        rows.extend(logs.errors.iter().map(|log| row("errors", &errors(log))));
    }
    rows
}

/// `slow.log (json, slower 1s)`
fn access(log: &AccessLog) -> String {
    let filter = &log.filter;
    let mut facts = vec![form(&log.form).to_owned()];
    if !filter.routes.is_empty() {
        facts.push(format!("route {}", filter.routes.join(" ")));
    }
    if !filter.statuses.is_empty() {
        let statuses: Vec<String> = filter.statuses.iter().map(status).collect();
        facts.push(format!("status {}", statuses.join(" ")));
    }
    if filter.slower_than.0 > 0 {
        facts.push(format!("slower {}s", filter.slower_than.as_secs_f64()));
    }
    format!("{} ({})", target(&log.target), facts.join(", "))
}

/// `error.log (json, warning and worse)`
fn errors(log: &ErrorLog) -> String {
    let levels = match log.levels {
        Levels::From(Level::Info) => None,
        Levels::From(least) => Some(format!("{} and worse", level(least))),
        Levels::Only(only) => Some(format!("{} only", level(only))),
    };
    let form = match log.form {
        ErrorLogForm::Text => None,
        ErrorLogForm::Json => Some("json".to_owned()),
    };
    let facts: Vec<String> = form.into_iter().chain(levels).collect();
    match facts.is_empty() {
        true => target(&log.target),
        false => format!("{} ({})", target(&log.target), facts.join(", ")),
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
    }
}

fn status(statuses: &RangeInclusive<u16>) -> String {
    match (*statuses.start(), *statuses.end()) {
        (0, 0) => "none".to_owned(),
        (first, last) if first == last => first.to_string(),
        (first, last) if first % 100 == 0 && last == first + 99 => format!("{}xx", first / 100),
        (first, last) => format!("{first}-{last}"),
    }
}

fn target(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "-".to_owned(),
        LogTarget::Stderr => "stderr".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
        LogTarget::Syslog(facility) => format!("syslog, facility {facility}"),
    }
}

fn form(form: &LogForm) -> &'static str {
    match form {
        LogForm::Phases => "phases",
        LogForm::Combined => "combined",
        LogForm::Common => "common",
        LogForm::Json => "json",
        LogForm::NaviServer => "naviserver",
        LogForm::Template(_) => "template",
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::typed::{Listen, LogFilter, ServerAddress, Upstream};

    fn route(host: Option<&str>, path: &str, pool: usize) -> Route {
        Route {
            host: host.map(str::to_owned),
            path: path.to_owned(),
            target: RouteTarget::Pool(pool),
            ..Route::default()
        }
    }

    fn config() -> Config {
        let app = App {
            module: "bookshop".into(),
            attribute: "app".into(),
            ..App::default()
        };
        let mount = |url: &str, dir: &str| StaticMount {
            url: url.into(),
            dir: dir.into(),
            index: "index.html".into(),
            fallback: None,
        };
        Config {
            apps: vec![app],
            routes: vec![route(None, "", 0)],
            statics: vec![mount("/static", "./static"), mount("", "pub")],
            logs: Logs {
                access: vec![AccessLog::new(LogTarget::Stdout)],
                ..Logs::default()
            },
            ..Config::default()
        }
    }

    fn listening(url: &str, backlog: u32) -> AddressStatus {
        AddressStatus {
            url: url.into(),
            backlog,
            ..AddressStatus::default()
        }
    }

    #[test]
    fn names_every_address_on_its_own_line() {
        let config = config();
        let facts = Facts {
            config: &config,
            listening: &[
                listening("http://127.0.0.1:8000", 4096),
                listening("unix:/run/x.sock", 4096),
            ],
            certificates: &[CertificateStatus {
                names: vec!["shop.example".into(), "*.shop.example".into()],
                issuer: "Test CA".into(),
                ends: "2026-12-04 12:00 UTC".into(),
                ..CertificateStatus::default()
            }],
            python: Some("CPython 3.11.7 (GIL)".into()),
            event_loops: &[],
            pid: 42,
            notes: &[],
        };
        let expect = format!(
            "milepost {VERSION} listening on http://127.0.0.1:8000\n\
             {:width$} listening on unix:/run/x.sock\n  \
               tls      shop.example, *.shop.example, by Test CA, until 2026-12-04 12:00 UTC\n  \
               app      bookshop:app, WSGI on 4 threads, CPython 3.11.7 (GIL)\n  \
               files    /static from ./static\n  \
               files    / from pub\n  \
               process  1 process × 4 threads, reload: milepost reload --pid 42\n  \
               log      - (phases)\n",
            "",
            width = 9 + VERSION.len(),
        );
        assert_eq!(text(&facts), expect);
    }

    #[test]
    fn names_every_pool_with_its_bounds() {
        let pool = |name: &str, threads_min, threads_max| PoolConfig {
            name: name.into(),
            threads_min,
            threads_max,
            ..PoolConfig::default()
        };
        let config = Config {
            pools: vec![
                pool("default", 2, 8),
                pool("reports", 1, 1),
                pool("batch", 3, 3),
                pool("slow", 1, 4),
            ],
            ..config()
        };
        let found = served(&config, None, &[]);
        let expect = [
            "  app      bookshop:app, WSGI on 2 to 8 threads",
            "  pool     reports on 1 thread",
            "  pool     batch on 3 threads",
            "  pool     slow on 1 to 4 threads",
            "  files    /static from ./static",
            "  files    / from pub",
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn names_the_event_loop_of_an_asgi_application() {
        let found = served(
            &config(),
            Some("CPython 3.11.7 (GIL)"),
            &[Some("uvloop".to_owned())],
        );
        let expect =
            "  app      bookshop:app, ASGI on an event loop (uvloop), CPython 3.11.7 (GIL)";
        assert_eq!(found[0], expect);
    }

    #[test]
    fn names_every_application_with_its_routes() {
        let mut config = config();
        config.apps.push(App {
            module: "chat".to_owned(),
            root_path: "/chat".to_owned(),
            ..config.apps[0].clone()
        });
        config.routes.insert(0, route(None, "/ws", 1));
        config
            .routes
            .insert(0, route(Some("api.example.org"), "", 1));
        config.pools = ["default", "chat", "slow"]
            .map(|name| PoolConfig {
                name: name.to_owned(),
                runs: PoolRuns::App(usize::from(name == "chat")),
                ..PoolConfig::default()
            })
            .into();
        let event_loops = [None, Some("asyncio".to_owned())];
        let found = served(&config, Some("CPython 3.11.7 (GIL)"), &event_loops);
        let expect = [
            "  app      bookshop:app, WSGI on 4 threads, CPython 3.11.7 (GIL)",
            "  app      chat:app for api.example.org/ and /ws under /chat, ASGI on an event loop (asyncio)",
            "  pool     slow on 4 threads",
        ];
        assert_eq!(found[..3], expect);
    }

    #[test]
    fn names_upstreams_with_their_first_servers() {
        let server = |port| {
            let host = "::1".to_owned();
            UpstreamServer::at(ServerAddress::Tcp { host, port }, port == 443)
        };
        let upstream = |name: &str, pool, ports: &[u16]| Upstream {
            name: name.to_owned(),
            pool,
            servers: ports.iter().copied().map(server).collect(),
            ..Upstream::default()
        };
        let pools = [
            PoolRuns::App(0),
            PoolRuns::Upstream(0),
            PoolRuns::Upstream(1),
        ];
        let config = Config {
            upstreams: vec![
                upstream("api", 1, &[443]),
                upstream("all", 2, &[1, 2, 3, 4, 5, 6]),
            ],
            routes: vec![route(None, "/api", 1), route(None, "", 2)],
            pools: pools
                .map(|runs| PoolConfig {
                    runs,
                    ..PoolConfig::default()
                })
                .into(),
            ..Config::default()
        };
        let expect = [
            "  upstream api for /api, https://[::1]:443",
            "  upstream all, http://[::1]:1, http://[::1]:2, http://[::1]:3, http://[::1]:4 and 2 more",
        ];
        assert_eq!(served(&config, None, &[]), expect);
    }

    #[test]
    fn says_what_the_kernel_and_the_limits_cut() {
        let listen = Listen {
            drivers: 2,
            ..Listen::default()
        };
        let config = Config {
            listen,
            ..Config::default()
        };
        let facts = Facts {
            config: &config,
            listening: &[
                listening("http://[::1]:1", 4096),
                listening("http://[::1]:2", 128),
            ],
            certificates: &[],
            python: None,
            event_loops: &[],
            pid: 42,
            notes: &["connections_max is 128".into()],
        };
        let text = text(&facts);
        assert!(text.contains("  process  1 process, reload: milepost reload --pid 42\n"));
        assert!(
            text.ends_with(
                "  log      off\n  \
                   note     backlog 128 (net.core.somaxconn) instead of 4096\n  \
                   note     connections_max is 128\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn names_every_log_with_what_is_in_it() {
        let file = |name: &str| LogTarget::File(name.into());
        let filter = LogFilter {
            routes: vec!["app".into(), "/static".into()],
            statuses: vec![500..=599, 404..=404, 400..=401, 0..=0],
            slower_than: Logs::default().flush,
        };
        let slow = AccessLog {
            form: LogForm::Template("{peer}".into()),
            filter,
            ..AccessLog::new(file("slow.log"))
        };
        let error = |target, levels| ErrorLog {
            target,
            form: ErrorLogForm::Text,
            levels,
        };
        let mut all = Logs {
            access: vec![AccessLog::new(LogTarget::Stdout), slow],
            errors: vec![
                error(LogTarget::Stderr, Levels::From(Level::Info)),
                error(LogTarget::Syslog(16), Levels::From(Level::Warning)),
                error(file("e.log"), Levels::Only(Level::Error)),
            ],
            ..Logs::default()
        };
        let expect = [
            "  log      - (phases)",
            "  log      slow.log (template, route app /static, status 5xx 404 400-401 none, slower 1s)",
            "  errors   stderr",
            "  errors   syslog, facility 16 (warning and worse)",
            "  errors   e.log (error only)",
        ];
        assert_eq!(logs(&all), expect);
        all.access.clear();
        all.errors.clear();
        assert_eq!(logs(&all), ["  log      off", "  errors   off"]);
    }

    #[test]
    fn names_applications_as_they_are_written() {
        let app = config().apps.remove(0);
        assert_eq!(app_name(&app), "bookshop:app");
        assert_eq!(
            app_name(&App {
                factory: true,
                ..app.clone()
            }),
            "bookshop:app()"
        );
        assert_eq!(
            app_name(&App {
                attribute: String::new(),
                ..app
            }),
            "bookshop"
        );
    }
}
