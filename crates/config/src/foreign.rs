//! Flags of gunicorn, uvicorn and uWSGI: what they mean here, and the command line without those that mean nothing.
//!
//! Takes flags as they were used, ours among them, and gives flags of ours alone, with faults for those that are
//! refused and notes for those that have no effect or another meaning. What each of them is stands in
//! `migration_hints.txt`. Pure.

use std::collections::BTreeMap;

use crate::builder::Draft;
use crate::fault::{ConfigFault, Origin};
use crate::options_table::{
    FlagForm, Replacement, SETTINGS, Target, flag_of, replacement, setting,
};
use crate::sources::FlagText;

/// A variable with flags, which gunicorn reads too.
pub const GUNICORN_FLAGS: &str = "GUNICORN_CMD_ARGS";

/// Where flags were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagSource {
    CommandLine,
    /// In [`GUNICORN_FLAGS`].
    Variable,
    /// In a file of another server.
    File,
}

/// What a configuration of another server comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Lines of TOML, in the order of the table of settings.
    pub lines: Vec<String>,
    /// Names without a counterpart, with the reason.
    pub refused: Vec<(String, String)>,
    /// What is different or has no effect.
    pub notes: Vec<String>,
}

/// The same settings as a milepost.toml has them.
pub fn convert(flags: &[FlagText]) -> Conversion {
    let made = translate(flags, FlagSource::File);
    // In the order of the table of settings, so that one command line always makes the same file.
    let lines = SETTINGS.iter().filter_map(|setting| {
        let used = made.flags.iter().filter(|flag| flag.key == setting.key);
        let texts: Vec<&str> = used.map(|flag| flag.text.as_str()).collect();
        let is_used = !texts.is_empty();
        is_used.then(|| format!("{} = {}", setting.key, setting.toml_value(&texts)))
    });
    let refused = made
        .faults
        .iter()
        .map(|fault| (fault.origin.name(), fault.cause.clone()));
    Conversion {
        lines: lines.collect(),
        refused: refused.collect(),
        notes: made.notes,
    }
}

/// A flag of ours with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedFlag {
    pub key: &'static str,
    pub text: String,
    pub origin: Origin,
    /// It stands in the corrected command line only.
    is_proposed: bool,
}

/// What the flags of one source come to.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    pub flags: Vec<PlacedFlag>,
    pub faults: Vec<ConfigFault>,
    pub notes: Vec<String>,
}

/// Flags that are parts of a setting, with their texts, and the notes in the making.
struct Translator {
    source: FlagSource,
    /// uWSGI's `--protocol=http`: its sockets speak what ours do.
    speaks_http: bool,
    made: Translation,
    parts: BTreeMap<&'static str, (String, Origin)>,
    /// Names by the reason for which they have no effect, in the order of their use.
    needless: Vec<(&'static str, Vec<String>)>,
}

/// What these flags mean.
pub(crate) fn translate(flags: &[FlagText], source: FlagSource) -> Translation {
    let mut translator = Translator {
        source,
        speaks_http: flags
            .iter()
            .any(|flag| flag.key == "protocol" && flag.text == "http"),
        made: Translation::default(),
        parts: BTreeMap::new(),
        needless: Vec::new(),
    };
    for flag in flags {
        translator.take(flag);
    }
    // These are made of several flags, so they wait until all are known.
    translator.log_format();
    translator.mount();
    translator.app();
    translator.bind();
    translator.jitter();
    if flags.iter().any(is_uvicorn) {
        translator.leave_out_threads();
    }
    translator.finish()
}

impl Translator {
    fn take(&mut self, flag: &FlagText) {
        let own = setting(flag.key);
        let name = match self.source {
            FlagSource::File => flag.key.to_owned(),
            _ => own.map_or_else(|| flag_of(flag.key), |setting| setting.flag_said()),
        };
        let origin = self.origin(&name);
        match replacement(flag.key, &flag.text) {
            None => self.add(flag.key, &flag.text, origin),
            // A switch of another server that was written as off.
            Some(_) if own.is_none() && flag.text == "false" => {}
            Some(Replacement::Taken(target)) => {
                if !target.note.is_empty() {
                    let (text, key, note) = (&flag.text, target.key, target.note);
                    let note = format!("`{name} {text}` is `{key}`: {note}");
                    self.made.notes.push(note);
                }
                self.add(target.key, &target.text(&flag.text), origin);
            }
            Some(Replacement::Needless(why)) => self.leave_out(why, name),
            Some(Replacement::Nothing(why)) => self.refuse(&name, why),
            Some(Replacement::Renamed(key)) => {
                let now = setting(key).filter(|setting| setting.in_flags());
                let said = now.map_or_else(|| key.to_owned(), |setting| setting.flag());
                self.refuse(&name, &format!("its name is `{said}` now"));
                if now.is_some() {
                    self.propose(Target::same(key), &flag.text, origin);
                }
            }
            Some(Replacement::Instead(target)) if self.speaks_http && target.key == "bind" => {
                self.add(target.key, &target.text(&flag.text), origin);
            }
            Some(Replacement::Instead(target)) => {
                let (note, key) = (target.note, target.key);
                match self.source {
                    FlagSource::File => {
                        let text = target.text(&flag.text);
                        self.refuse(&name, &format!("{note}: perhaps `{key} = {text}`"));
                    }
                    FlagSource::CommandLine | FlagSource::Variable => self.refuse(&name, note),
                }
                self.propose(target, &flag.text, origin);
            }
        }
    }

    fn origin(&self, name: &str) -> Origin {
        match self.source {
            FlagSource::CommandLine | FlagSource::File => Origin::Flag(name.to_owned()),
            FlagSource::Variable => Origin::Environment(GUNICORN_FLAGS.to_owned()),
        }
    }

    fn add(&mut self, key: &'static str, text: &str, origin: Origin) {
        if key.contains('.') {
            self.parts.insert(key, (text.to_owned(), origin));
        } else {
            self.push(key, text, origin);
        }
    }

    fn push(&mut self, key: &'static str, text: impl Into<String>, origin: Origin) {
        self.made.flags.push(PlacedFlag {
            key,
            text: text.into(),
            origin,
            is_proposed: false,
        });
    }

    fn propose(&mut self, target: Target, text: &str, origin: Origin) {
        self.made.flags.push(PlacedFlag {
            key: target.key,
            text: target.text(text),
            origin,
            is_proposed: true,
        });
    }

    fn refuse(&mut self, name: &str, why: &str) {
        let (origin, why) = match self.source {
            FlagSource::CommandLine | FlagSource::File => {
                (Origin::Flag(name.to_owned()), why.to_owned())
            }
            FlagSource::Variable => (self.origin(name), format!("`{name}`: {why}")),
        };
        self.made.faults.push(ConfigFault::statement(origin, why));
    }

    fn leave_out(&mut self, why: &'static str, name: String) {
        match self.needless.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => self.needless.push((why, vec![name])),
        }
    }

    /// `--mount /shop=shop:app` is an application with a prefix.
    fn mount(&mut self) {
        let Some((mount, origin)) = self.parts.remove("app.mount") else {
            return;
        };
        match mount.split_once('=') {
            Some((prefix, app)) if prefix.starts_with('/') => {
                self.push("root_path", prefix, origin.clone());
                // Not pushed yet: a `--callable` may still name the object in it.
                self.parts.insert("app.module", (app.to_owned(), origin));
            }
            _ => self.push("root_path", mount, origin),
        }
    }

    /// `--wsgi-file shop/wsgi.py --callable app` is `shop.wsgi:app`.
    fn app(&mut self) {
        let callable = self.parts.remove("app.callable");
        let file = self.parts.remove("app.file").map(|(file, origin)| {
            let name = file.trim_start_matches("./");
            let name = name.strip_suffix(".py").unwrap_or(name);
            (name.replace('/', "."), origin)
        });
        let module = self.parts.remove("app.module").or(file);
        match (module, callable) {
            // An object that the module names already is the one that is meant.
            (Some((module, origin)), Some((callable, _))) if !module.contains(':') => {
                self.push("app", format!("{module}:{callable}"), origin);
            }
            (Some((module, origin)), _) => self.push("app", module, origin),
            (None, Some((callable, _))) => {
                self.refuse(
                    "--callable",
                    &format!("no module is named: `module:{callable}`"),
                );
            }
            (None, None) => {}
        }
    }

    /// `--host` and `--port` are one address, and `--chmod-socket` is an option of one.
    fn bind(&mut self) {
        let (host, port) = (
            self.parts.remove("bind.host"),
            self.parts.remove("bind.port"),
        );
        if let Some((_, origin)) = host.as_ref().or(port.as_ref()) {
            let (origin, is_bound) = (origin.clone(), self.texts("bind").next().is_some());
            let host = host.map_or_else(|| "127.0.0.1".to_owned(), |(host, _)| host);
            let port = port.map_or_else(|| "8000".to_owned(), |(port, _)| port);
            // An IPv6 address needs brackets before a port.
            let address = match host.contains(':') && !host.starts_with('[') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            };
            match is_bound {
                true => self.refuse(&origin.name(), "`--bind` names the address already"),
                false => self.push("bind", address, origin),
            }
        }
        let Some((mode, origin)) = self.parts.remove("bind.mode") else {
            return;
        };
        if !self.texts("bind").any(|text| text.starts_with("unix:")) {
            let why = "no flag names a unix socket; in a file it is `unix:PATH mode=0660`";
            return self.leave_out(why, origin.name());
        }
        let is_unix = |flag: &&mut PlacedFlag| flag.key == "bind" && flag.text.starts_with("unix:");
        for flag in self.made.flags.iter_mut().filter(is_unix) {
            flag.text.push_str(&format!(" mode={mode}"));
        }
    }

    /// gunicorn's `%(h)s` is `{peer}`.
    fn log_format(&mut self) {
        let Some((format, origin)) = self.parts.remove("log.format") else {
            return;
        };
        match template(&format) {
            Ok(template) => self.push("access_log_format", template, origin),
            Err(atom) => {
                let why = format!(
                    "there is no field for `{atom}`; the fields are `{{peer}}`, `{{status}}`, `{{total}}` and so on"
                );
                self.refuse(&origin.name(), &why);
            }
        }
    }

    /// gunicorn's jitter is a number of requests.
    fn jitter(&mut self) {
        let Some((requests, origin)) = self.parts.remove("jitter.requests") else {
            return;
        };
        let most: Option<u64> = self
            .texts("process_requests_max")
            .find_map(|text| text.parse().ok());
        let share = requests
            .parse::<u64>()
            .ok()
            .zip(most)
            .and_then(|(jitter, most)| {
                // Rounded up: without any jitter all processes would be replaced at once.
                Some(jitter.checked_mul(100)?.div_ceil(most.max(1)).min(100))
            });
        match share {
            Some(percent) => self.push("recycle_jitter", format!("{percent}%"), origin),
            None => {
                let why = "without `--max-requests` there is nothing to add it to";
                self.leave_out(why, origin.name());
            }
        }
    }

    /// gunicorn's uvicorn workers ignore `--threads`, and an event loop here has none.
    fn leave_out_threads(&mut self) {
        let (threads, others) = std::mem::take(&mut self.made.flags)
            .into_iter()
            .partition(|flag| flag.key == "threads" && !flag.is_proposed);
        self.made.flags = others;
        let threads: Vec<PlacedFlag> = threads;
        if let Some(flag) = threads.first() {
            let why = "an ASGI application runs on one event loop in each process";
            self.leave_out(why, flag.origin.name());
        }
    }

    fn texts(&self, key: &'static str) -> impl Iterator<Item = &str> {
        let flags = self.made.flags.iter().filter(move |flag| flag.key == key);
        flags.map(|flag| flag.text.as_str())
    }

    fn finish(mut self) -> Translation {
        for (why, names) in &self.needless {
            let verb = if names.len() == 1 { "has" } else { "have" };
            let names = crate::parse::quoted(names);
            self.made
                .notes
                .push(format!("{names} {verb} no effect: {why}"));
        }
        let line = self.corrected();
        let mut made = self.made;
        if self.source != FlagSource::File
            // Under the last fault alone: the line holds the answer to all of them.
            && let Some(last) = made.faults.pop()
        {
            made.faults.push(last.with_hint(line));
        }
        // What only the corrected line has was a guess at what the user meant, and is never served by.
        made.flags.retain(|flag| !flag.is_proposed);
        made
    }

    /// All flags that mean something here, ready to be copied.
    fn corrected(&self) -> String {
        let app = self.texts("app").last().map(quoted_word);
        let mut words: Vec<String> = app.into_iter().collect();
        for setting in SETTINGS
            .iter()
            .filter(|setting| setting.key != "app" && setting.in_flags())
        {
            // A wrong value has a message of its own, and does not stand in a line that works.
            for text in self
                .texts(setting.key)
                .filter(|text| Draft::understands(setting, text))
            {
                words.push(match (setting.form(), text) {
                    (FlagForm::Switch, "true") => setting.flag(),
                    (FlagForm::Switch, text) => format!("{}={}", setting.flag(), quoted_word(text)),
                    _ => format!("{} {}", setting.flag(), quoted_word(text)),
                });
            }
        }
        let words = words.join(" ");
        match self.source {
            _ if words.is_empty() => "leave it out".to_owned(),
            FlagSource::CommandLine | FlagSource::File => {
                format!("the line that works:\n  milepost serve {words}")
            }
            FlagSource::Variable => {
                format!(
                    "the value that works:\n  {GUNICORN_FLAGS}={}",
                    quoted_word(&words)
                )
            }
        }
    }
}

/// gunicorn's workers for ASGI applications.
fn is_uvicorn(flag: &FlagText) -> bool {
    let is_class = ["worker_class", "-k"].contains(&flag.key);
    is_class && (flag.text == "asgi" || flag.text.contains("uvicorn"))
}

/// gunicorn's atoms and the fields in their place. Milliseconds and microseconds have none: our times are seconds.
const ATOMS: [(&str, &str); 20] = [
    ("h", "{peer}"),
    ("l", "-"),
    ("u", "{user}"),
    ("t", "{time}"),
    ("r", "{request}"),
    ("m", "{method}"),
    ("U", "{path}"),
    ("q", "{query}"),
    ("H", "{protocol}"),
    ("s", "{status}"),
    ("st", "{status}"),
    ("b", "{bytes}"),
    ("B", "{bytes}"),
    ("f", "{referer}"),
    ("a", "{agent}"),
    ("L", "{total}"),
    ("p", "{process}"),
    ("{referer}i", "{referer}"),
    ("{user-agent}i", "{agent}"),
    ("{host}i", "{host}"),
];

/// The template for one of gunicorn's formats.
///
/// # Errors
/// An atom without a field.
fn template(format: &str) -> Result<String, String> {
    let mut parts = format.split("%(");
    let braces = |text: &str| {
        text.replace('{', "{{")
            .replace('}', "}}")
            .replace("%%", "%")
    };
    let mut template = braces(parts.next().unwrap_or_default());
    for part in parts {
        // An atom is `%(NAME)s`: the letter behind the parenthesis says nothing.
        let (atom, rest) = part.split_once(')').unwrap_or((part, ""));
        let lower = atom.to_ascii_lowercase();
        let known = ATOMS
            .iter()
            .find(|(name, _)| *name == atom || *name == lower && atom.starts_with('{'));
        let Some((_, field)) = known else {
            return Err(format!("%({atom})s"));
        };
        template.push_str(field);
        template.push_str(&braces(rest.get(1..).unwrap_or_default()));
    }
    Ok(template)
}

/// As a shell reads it.
fn quoted_word(text: &str) -> String {
    // A word of a command line has no zero byte.
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options_table::known_flag;

    /// Flags, what they come to, and what is said.
    #[track_caller]
    fn check(used: &[(&str, &str)], expect: &[&str]) {
        let flag = |(name, text): &(&str, &str)| FlagText {
            key: known_flag(name).expect("a known flag"),
            text: (*text).to_owned(),
        };
        let used: Vec<FlagText> = used.iter().map(flag).collect();
        let made = translate(&used, FlagSource::CommandLine);
        let flags = made
            .flags
            .iter()
            .map(|flag| format!("{} {}", flag.key, flag.text));
        let faults = made.faults.iter().map(|fault| {
            let hint = fault
                .hint
                .as_deref()
                .map(|hint| format!(" > {}", hint.replace('\n', "")));
            format!("{fault}{}", hint.unwrap_or_default())
        });
        let notes = made.notes.iter().map(|note| format!("note {note}"));
        let found: Vec<String> = flags.chain(faults).chain(notes).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn takes_what_means_the_same() {
        check(
            &[
                ("app", "a:b"),
                ("timeout", "30"),
                ("worker_class", "sync"),
                ("worker_tmp_dir", "/dev/shm"),
            ],
            &[
                "app a:b",
                "request_timeout 30",
                "note `--timeout 30` is `request_timeout`: the client gets 504 after this time, and the process continues",
                "note `--worker-class` has no effect: Milepost has one kind of worker, with threads",
                "note `--worker-tmp-dir` has no effect: Milepost has nothing of the kind",
            ],
        );
    }

    #[test]
    fn leaves_out_threads_of_an_asgi_application() {
        let class = "uvicorn.workers.UvicornWorker";
        for name in ["worker_class", "-k"] {
            let flag = if name == "-k" { "-k" } else { "--worker-class" };
            check(
                &[
                    ("app", "a:b"),
                    (name, class),
                    ("threads", "4"),
                    ("workers", "2"),
                ],
                &[
                    "app a:b",
                    "processes 2",
                    &format!(
                        "note `{flag}` has no effect: Milepost finds out by itself whether the application is ASGI"
                    ),
                    "note `--threads` has no effect: an ASGI application runs on one event loop in each process",
                ],
            );
        }
        check(
            &[("-k", "gthread"), ("threads", "4")],
            &[
                "threads 4",
                "note `-k` has no effect: Milepost has one kind of worker, with threads",
            ],
        );
    }

    #[test]
    fn writes_a_log_format_of_gunicorn_as_a_template() {
        let check = |format: &str, expect: Result<&str, &str>| {
            let found = template(format);
            let found = found.as_ref().map_err(String::as_str).map(String::as_str);
            assert_eq!(found, expect);
        };
        let common = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %(L)s"#;
        let expect =
            r#"{peer} - {user} {time} "{request}" {status} {bytes} "{referer}" "{agent}" {total}"#;
        check(common, Ok(expect));
        check(r#"{"host": "%({Host}i)s"}"#, Ok(r#"{{"host": "{host}"}}"#));
        check("%(s)s %(D)s", Err("%(D)s"));
        check("%(s", Ok("{status}"));
    }

    #[test]
    fn joins_the_parts_of_a_setting() {
        check(
            &[
                ("host", "0.0.0.0"),
                ("port", "80"),
                ("wsgi_file", "./shop/wsgi.py"),
                ("callable", "site"),
            ],
            &["app shop.wsgi:site", "bind 0.0.0.0:80"],
        );
        check(&[("host", "::1")], &["bind [::1]:8000"]);
        check(
            &[("uds", "a.sock"), ("chmod_socket", "664")],
            &["bind unix:a.sock mode=664"],
        );
        check(
            &[("bind", ":80"), ("chmod_socket", "664")],
            &[
                "bind :80",
                "note `--chmod-socket` has no effect: no flag names a unix socket; in a file it is `unix:PATH mode=0660`",
            ],
        );
        check(
            &[
                ("process_requests_max", "1000"),
                ("max_requests_jitter", "50"),
            ],
            &["process_requests_max 1000", "recycle_jitter 5%"],
        );
    }

    #[test]
    fn refuses_the_rest_at_once_with_the_line_that_works() {
        check(
            &[
                ("app", "a:b()"),
                ("socket", "x.sock"),
                ("-D", "true"),
                ("reload", "true"),
            ],
            &[
                "app a:b()",
                "reload true",
                "`--socket`: Milepost speaks HTTP, not uwsgi: write `proxy_pass` in nginx in the place of `uwsgi_pass`",
                "`-D`: the server stays in the foreground: run it under systemd, in a container, or with `&` \
                 > the line that works:  milepost serve 'a:b()' --bind unix:x.sock --reload",
            ],
        );
        // What is wrong by itself has its own message.
        check(
            &[("threads", "many"), ("bind", ":80"), ("socket", "x y.sock")],
            &[
                "threads many",
                "bind :80",
                "`--socket`: Milepost speaks HTTP, not uwsgi: write `proxy_pass` in nginx in the place of `uwsgi_pass` \
                 > the line that works:  milepost serve --bind :80",
            ],
        );
        check(&[("daemon", "false")], &[]);
        check(
            &[("daemon", "true")],
            &[
                "`--daemon`: the server stays in the foreground: run it under systemd, in a container, or with `&` \
                 > leave it out",
            ],
        );
    }
}
