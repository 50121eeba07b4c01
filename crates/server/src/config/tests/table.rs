//! The table of settings: every name, every default, and that every value gets to its field.

use super::others::OTHERS;
use super::*;

#[test]
fn has_each_name_once() {
    let mut names = BTreeSet::new();
    let mut letters = BTreeSet::new();
    for setting in SETTINGS {
        for name in std::iter::once(&setting.key).chain(setting.aliases) {
            assert!(names.insert(*name), "{name} twice");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
        }
        assert!(
            setting.short.is_none_or(|letter| letters.insert(letter)),
            "{}",
            setting.key
        );
    }
}

#[test]
fn says_something_short_about_each() {
    for setting in SETTINGS {
        assert!(
            !setting.help.is_empty() && setting.help.len() <= 80,
            "{}",
            setting.key
        );
        assert!(!setting.help.ends_with('.'), "{}", setting.key);
        assert!(
            setting.doc.is_empty() || setting.doc.ends_with('.'),
            "{}",
            setting.key
        );
        assert!(!setting.expected().is_empty());
    }
    assert_eq!(
        setting("app").map(|app| app.form()),
        Some(FlagForm::Argument)
    );
}

#[test]
fn has_the_defaults_that_are_meant() {
    let config = good("", &[], &[]).config;
    let meant = Config::default();
    assert_eq!(
        format!("{:?}", config.pools[0]),
        format!("{:?}", meant.pools[0])
    );
    assert_eq!(
        format!("{:?}", config.limits),
        format!("{:?}", meant.limits)
    );
    assert_eq!(
        format!("{:?}", config.timeouts),
        format!("{:?}", meant.timeouts)
    );
    assert_eq!(format!("{:?}", config.spool), format!("{:?}", meant.spool));
    assert_eq!(
        format!("{:?}", config.delivery),
        format!("{:?}", meant.delivery)
    );
    assert_eq!(
        format!("{:?}", config.file_cache),
        format!("{:?}", meant.file_cache)
    );
    assert_eq!(
        format!("{:?}", config.headers),
        format!("{:?}", meant.headers)
    );
    assert_eq!(
        format!("{:?}", config.file_serving),
        format!("{:?}", meant.file_serving)
    );
    assert_eq!(
        format!("{:?}", config.compression),
        format!("{:?}", meant.compression)
    );
    assert_eq!(format!("{:?}", config.rates), format!("{:?}", meant.rates));
    assert_eq!(format!("{:?}", config.rules), format!("{:?}", meant.rules));
    assert_eq!(config.error_pages, meant.error_pages);
    let listen = super::super::meant::Listen {
        drivers: 2,
        ..meant.listen
    };
    assert_eq!(format!("{:?}", config.listen), format!("{listen:?}"));
    assert_eq!(
        format!("{:?}", config.processes),
        format!("{:?}", meant.processes)
    );
    let logs = good("", &[], &[("access_log", "-")]).config.logs;
    let stdout = super::super::meant::AccessLog::new(LogTarget::Stdout);
    assert_eq!(logs.access, [stdout]);
    assert_eq!(config.logs, meant.logs);
    assert_eq!(config.request_ids, meant.request_ids);
    assert_eq!(config.pools.len(), meant.pools.len());
    assert_eq!(config.pool_rules, meant.pool_rules);
    assert_eq!(config.slow_pool, meant.slow_pool);
    assert_eq!(config.slow_request, meant.slow_request);
    assert_eq!(config.request_start_from, meant.request_start_from);
    assert_eq!(config.pid_file, meant.pid_file);
    assert_eq!(config.trace_requests, meant.trace_requests);
    assert_eq!(config.status_path, None);
    assert_eq!(
        config.binds,
        [Bind::Tcp(vec![([127, 0, 0, 1], 8000).into()])]
    );
}

#[test]
fn reaches_every_field_that_is_meant() {
    let keys: Vec<&str> = OTHERS.iter().map(|(key, _)| *key).collect();
    assert_eq!(
        keys,
        SETTINGS
            .iter()
            .map(|setting| setting.key)
            .collect::<Vec<_>>()
    );
    let others: Vec<_> = OTHERS
        .iter()
        .filter(|(key, _)| *key != "preload")
        .copied()
        .collect();
    let (before, mut after) = (
        good("", &[], &[("access_log", "-")]).config,
        good("", &[], &others).config,
    );
    // It excludes `reload`.
    let preloading = good("", &[], &[("preload", "true")]).config;
    after.processes.preload = preloading.processes.preload;
    // The first pool's name is no setting.
    let nameless = |pool: &Pool| format!("{pool:?}").replace("name: \"default\",", "");
    let fields = |config: &Config| {
        let text = format!(
            "{:?}, pool_rules: {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, slow_request: {:?}, slow_pool: {:?}, from: {:?}, pid_file: {:?}",
            nameless(&config.pools[0]),
            config.pool_rules.len(),
            config.processes,
            config.limits,
            config.timeouts,
            config.spool,
            config.delivery,
            config.file_cache,
            config.logs,
            config.headers,
            config.listen,
            config.file_serving,
            config.compression,
            config.rates,
            config.rules,
            config.error_pages,
            config.request_ids,
            config.slow_request,
            config.slow_pool,
            config.request_start_from,
            config.pid_file,
        );
        // A structure within another is reached when its own fields are.
        let parts = text.split([',', '}']).map(|part| {
            part.rsplit('{')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        let fields: Vec<String> = parts.filter(|part| part.contains(": ")).collect();
        fields
    };
    let (before, after) = (fields(&before), fields(&after));
    assert!(after.len() > 60, "{after:?}");
    for field in after {
        assert!(!before.contains(&field), "not reached: {field}");
    }
}

#[test]
fn puts_values_where_they_belong() {
    let config = good("", &[], &OTHERS[..24]).config;
    let app = config.app.expect("an application");
    assert_eq!(
        (app.module.as_str(), app.attribute.as_str()),
        ("shop.wsgi", "make.app")
    );
    assert_eq!(
        (app.app_dir.as_path(), app.root_path.as_str()),
        (Path::new("/srv/src"), "/shop")
    );
    assert!(app.factory);
    assert!(config.trace_requests);
    let mount = &config.statics[0];
    assert_eq!(
        (mount.url.as_str(), mount.dir.as_path()),
        ("/files", Path::new("pub"))
    );
    assert_eq!(mount.index, "home.html");
    assert_eq!(
        good("", &[], &[("driver_cpus", "auto")])
            .config
            .listen
            .driver_cpus,
        [0, 1, 2, 3]
    );
    assert_eq!(
        good("", &[], &[("defer_accept", "1500ms")])
            .config
            .listen
            .defer_accept_secs,
        2
    );
    let log = good(
        "",
        &[],
        &[("access_log", "a.log"), ("access_log_format", "common")],
    )
    .config
    .logs
    .access;
    let [log] = &log[..] else {
        panic!("{log:?}");
    };
    assert_eq!(
        (&log.target, &log.form),
        (&LogTarget::File("a.log".into()), &LogForm::Common)
    );
}
