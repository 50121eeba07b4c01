//! The table of settings: every name, every default, and that every value gets to its field.

use super::super::typed::Route;
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
    // What the machine decides: addresses, drivers, the application.
    let meant = Config {
        binds: vec![Bind::Tcp(vec![([127, 0, 0, 1], 8000).into()])],
        apps: config.apps.clone(),
        routes: config.routes.clone(),
        listen: super::super::typed::Listen {
            drivers: 2,
            ..meant.listen
        },
        ..meant
    };
    assert_eq!(format!("{config:#?}"), format!("{meant:#?}"));
    let logs = good("", &[], &[("access_log", "-")]).config.logs;
    let stdout = super::super::typed::AccessLog::new(LogTarget::Stdout);
    assert_eq!(logs.access, [stdout]);
}

/// The configuration of all other values but one.
fn with_others(without: &str) -> Config {
    let others = OTHERS.iter().filter(|(key, _)| *key != without);
    let (tables, flags): (Vec<_>, Vec<_>) = others
        .copied()
        .partition(|(_, text)| text.starts_with("[["));
    let tables: Vec<&str> = tables.into_iter().map(|(_, text)| text).collect();
    good(&tables.join("\n"), &[], &flags).config
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
    let (before, mut after) = (
        good("", &[], &[("access_log", "-")]).config,
        with_others("preload"),
    );
    // It excludes `reload`.
    let preloading = good("", &[], &[("preload", "true")]).config;
    after.processes.preload = preloading.processes.preload;
    // The last route is that of the application which all configurations have; the first one says all that a route can,
    // but for the key of applications, which it excludes.
    let first_of_others = |routes: &[Route]| {
        let (_, others) = routes.split_last().expect("the route of the application");
        let of_application = others.iter().find_map(|one| one.settings.disconnect_cancel);
        let mut first: Vec<Route> = others.iter().take(1).cloned().collect();
        for route in &mut first {
            route.settings.disconnect_cancel = of_application;
        }
        first
    };
    let fields = |config: &Config| {
        let config = Config {
            pools: vec![config.pools[0].clone()],
            apps: vec![config.apps[0].clone()],
            routes: first_of_others(&config.routes),
            ..config.clone()
        };
        let text = format!("{config:?}").replace("name: \"default\", runs: App(0),", "");
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
    let config = with_others("preload");
    let app = &config.apps[0];
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
