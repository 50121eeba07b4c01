//! The seam to Python, with a host that only counts: when applications are loaded, and with which facts.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cli::{AppFacts, AppHost, Failure, Forked};
use config::typed::{App, AsgiConfig, Hook};
use server::handler::Handler;

/// Refuses every application and remembers what it was asked.
#[derive(Default)]
struct Refusing {
    asked: Mutex<Vec<(String, AppFacts)>>,
}

impl AppHost for Refusing {
    fn describe(&self) -> String {
        "CPython 3.99".to_owned()
    }

    fn load(&self, apps: &[App], facts: &[AppFacts]) -> Result<Vec<Arc<dyn Handler>>, Failure> {
        let names = apps
            .iter()
            .map(|app| format!("{} {}", app.name(), app.factory));
        self.asked
            .lock()
            .expect("no test panics with it")
            .extend(names.zip(facts.iter().copied()));
        Err(Failure {
            message: format!("`{}`: no such module", apps[0].module),
            ..Failure::default()
        })
    }

    fn find_hook(&self, _: &App, _: &Hook) -> Result<(), Failure> {
        unreachable!("there is no hook")
    }

    fn call_hook(&self, _: &App, _: &Hook) -> Result<(), Failure> {
        unreachable!("there is no hook")
    }

    fn detached(&self, _: &mut (dyn FnMut() -> i32 + Send)) -> i32 {
        unreachable!("nothing was started")
    }

    fn command(&self) -> Vec<OsString> {
        vec!["milepost".into()]
    }

    fn variables(&self, _: &Path) -> Result<String, Failure> {
        unreachable!("no file was named")
    }

    fn modules(&self) -> Vec<PathBuf> {
        unreachable!("nothing was loaded")
    }

    fn freeze(&self) {
        unreachable!("nothing was loaded")
    }

    fn fork(&self) -> io::Result<Forked> {
        unreachable!("nothing was loaded")
    }
}

#[track_caller]
fn check(line: &str, code: i32, asked: &[(&str, bool)]) {
    let host = Refusing::default();
    let words = std::iter::once("milepost").chain(line.split_whitespace());
    assert_eq!(
        cli::run(words.map(Into::into).collect(), Some(&host)),
        code,
        "{line}"
    );
    let expect: Vec<_> = asked
        .iter()
        .map(|(name, multithread)| {
            (
                (*name).to_owned(),
                AppFacts {
                    multithread: *multithread,
                    multiprocess: false,
                    asgi: AsgiConfig {
                        has_threads: line.contains("--threads"),
                        ..AsgiConfig::default()
                    },
                },
            )
        })
        .collect();
    assert_eq!(
        *host.asked.lock().expect("no test panics with it"),
        expect,
        "{line}"
    );
}

#[test]
fn loads_the_application_once_the_configuration_is_good() {
    check("check shop:app", 1, &[("shop:app false", true)]);
    check(
        "check shop:make() --threads 1",
        1,
        &[("shop:make true", false)],
    );
    check("serve shop:app --threads 0", 2, &[]);
    check("serve --nonsense", 2, &[]);
}

#[test]
fn looks_at_the_application_even_when_the_rest_is_bad() {
    check("check shop:app --threads 0", 1, &[("shop:app false", true)]);
    check("check shop:", 1, &[]);
    check("version", 0, &[]);
}
