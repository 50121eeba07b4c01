//! The command line, built from the table of settings: commands, flags, help texts, completions.
//!
//! Takes the table and gives clap's command, and the flags that were used as texts. Understands no value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use clap_complete::Shell;
use config::FlagText;
use config::options_table::{
    FlagForm, ForeignValue, SETTINGS, Setting, SettingGroup, foreign_flags,
};

use crate::message::Message;
use crate::{
    bench, control, convert, doctor, help, init, report, top, trust, tune, usage_errors, whatif,
};

/// The package's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Help texts are wrapped at the terminal's width, and never wider than this.
const WIDTH_MAX: usize = 100;

const ABOUT: &str = "Application server that measures where each request spends its time";

const EXAMPLES: &str = "\
`milepost shop:app` is short for `milepost serve shop:app`.

Examples:
  milepost serve shop:app
  milepost serve shop:app --bind :8000 --threads 8 --static /static=./static --access-log -
  milepost serve --static /=./public
  milepost check --config milepost.toml
  milepost reload --config milepost.toml
  milepost status
  milepost top
  milepost report access.log
  milepost whatif access.log --threads 2,4,8
  milepost bench http://127.0.0.1:8000/";

const PRECEDENCE: &str = "\
Every flag is also a key of the configuration file (`accept_batch = 32`) and an environment
variable (`MILEPOST_ACCEPT_BATCH=32`). Flags override the environment, which overrides the file.
The flags of gunicorn, uvicorn and uWSGI that have a counterpart are accepted. PORT and
WEB_CONCURRENCY come right after the defaults, GUNICORN_CMD_ARGS after the file.
Sizes take K, M, G (powers of 1024); durations take ms, s, m, h, d, and are seconds without.";

/// What the command is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To parse arguments: values stay texts, so that all faults can be said at once.
    Run,
    /// To write completions, which want to know the possible values.
    Completions,
}

/// The whole command line.
pub(crate) fn command(purpose: Purpose) -> Command {
    let shell = Arg::new("shell")
        .value_name("SHELL")
        .required(true)
        .value_parser(clap::value_parser!(Shell))
        .help("bash, zsh, fish, elvish or powershell");
    let page = Arg::new("page")
        .value_name("PAGE")
        .default_value("settings")
        .value_parser(PossibleValuesParser::new([
            "settings", "bench", "man", "keywords", "metrics",
        ]))
        .hide_possible_values(true)
        .hide_default_value(true)
        .help("settings, bench, or man for the manual page of serve [default: settings]");
    Command::new("milepost")
        // Not argv[0]: under `python -m milepost` that is a file's name.
        .bin_name("milepost")
        .version(VERSION)
        .about(ABOUT)
        .after_help(EXAMPLES)
        .max_term_width(WIDTH_MAX)
        .disable_help_subcommand(true)
        .subcommand(
            with_settings(Command::new("serve"), purpose)
                .alias("run")
                .about("Serve a Python application, folders of files, or both"),
        )
        .subcommand(
            with_settings(Command::new("check"), purpose)
                .about("Check the configuration and the application's import without listening"),
        )
        .subcommand(doctor::command())
        .subcommand(convert::command())
        .subcommand(init::command())
        .subcommand(trust::command())
        .subcommands(control::commands())
        .subcommand(top::command())
        .subcommand(report::command())
        .subcommand(whatif::command())
        .subcommand(bench::command(purpose))
        .subcommand(tune::command())
        .subcommand(
            Command::new("completions")
                .about("Print the completions of a shell")
                .arg(shell),
        )
        .subcommand(
            Command::new("reference")
                .about("Print the reference of all settings, or of bench, in Markdown")
                .arg(page),
        )
        .subcommand(help::command())
        .subcommand(Command::new("version").about("Print the version"))
}

/// Completions of one shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(
        shell,
        &mut command(Purpose::Completions),
        "milepost",
        &mut text,
    );
    String::from_utf8_lossy(&text).into_owned()
}

/// "milepost 0.1.0", and which Python where there is one.
pub(crate) fn version_line(python: Option<String>) -> String {
    match python {
        Some(python) => format!("milepost {VERSION}, {python}"),
        None => format!("milepost {VERSION}"),
    }
}

/// The settings that were given as flags or arguments, and flags of other servers.
pub(crate) fn flags(matches: &ArgMatches) -> Vec<FlagText> {
    let texts = |key: &'static str| {
        // Commands to a running server have only some of them.
        let values = matches.try_get_many::<String>(key);
        let values = values.ok().flatten().into_iter().flatten();
        values.map(move |text| FlagText {
            key,
            text: text.clone(),
        })
    };
    let own = SETTINGS.iter().map(|setting| setting.key);
    let foreign = foreign_flags().into_keys();
    own.chain(foreign).flat_map(texts).collect()
}

/// The flags of a text, as `serve` has them, and the configuration file among them.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn flags_in(text: &str) -> Result<(Vec<FlagText>, Option<PathBuf>), Message> {
    let Some(words) = shlex::split(text) else {
        let message = Message::new("flags", "a quotation mark is not closed");
        return Err(message);
    };
    // Read as a whole command line, so that errors and their hints are those of the command line too.
    let words = ["milepost", "serve"]
        .into_iter()
        .map(str::to_owned)
        .chain(words);
    let matches = command(Purpose::Run)
        .try_get_matches_from(words)
        .map_err(|error| usage_errors::message(&error))?;
    let (_, matches) = matches.subcommand().expect("the command is `serve`");
    Ok((flags(matches), config_file(matches)))
}

/// The words with `serve` in front of an application or a flag that no command stands before: other servers have one
/// command only.
pub(crate) fn with_command(mut words: Vec<OsString>) -> Vec<OsString> {
    const ANSWERS: [&str; 4] = ["-h", "--help", "-V", "--version"];
    let first = words.get(1).and_then(|word| word.to_str());
    let is_short = first.is_some_and(|word| match word.strip_prefix('-') {
        Some(_) => !ANSWERS.contains(&word),
        // `shop:app` and `shop.wsgi` are applications, which no command's name looks like; a URL is for `bench`.
        None => word.contains([':', '.']) && !word.contains("://"),
    });
    if is_short {
        words.insert(1, "serve".into());
    }
    words
}

/// The configuration file that a flag names.
pub(crate) fn config_file(matches: &ArgMatches) -> Option<PathBuf> {
    matches.get_one::<String>("config").map(PathBuf::from)
}

fn with_settings(command: Command, purpose: Purpose) -> Command {
    // By topic, because clap shows topics in the order in which they are first met.
    let settings = SettingGroup::ALL.iter().flat_map(|group| group.settings());
    let args = settings
        .filter(|setting| setting.in_flags())
        .map(|setting| arg(setting, purpose));
    let foreign = match purpose {
        Purpose::Run => foreign_flags(),
        Purpose::Completions => BTreeMap::new(),
    };
    command
        .args(args)
        .args(foreign.into_iter().map(foreign_arg))
        .args_override_self(true)
        .after_help(format!(
            "These are the settings of daily use. `milepost serve --help` shows all of them, and\n\
             `milepost help TOPIC` those of one topic:\n{}",
            help::topics()
        ))
        .after_long_help(format!(
            "Settings of several parts, such as {}, stand in the\n\
             configuration file only: `milepost help redirects`, `milepost help pools`.\n\n{PRECEDENCE}",
            "[[redirect]] and [[pool]]"
        ))
}

fn arg(setting: &'static Setting, purpose: Purpose) -> Arg {
    assert!(
        setting.in_flags(),
        "`{}` is a table, not a flag",
        setting.key
    );
    let arg = Arg::new(setting.key)
        .value_name(setting.placeholder())
        .help(short_help(setting))
        .long_help(long_help(setting))
        .hide_short_help(!setting.is_daily)
        .value_hint(value_hint(setting));
    let arg = match setting.form() {
        FlagForm::Argument => return arg,
        FlagForm::Once => arg.action(ArgAction::Set),
        FlagForm::Repeated => arg.action(ArgAction::Append),
        // With `=` only: the word after a bare switch is the application.
        FlagForm::Switch => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
    };
    let arg = arg
        .help_heading(setting.group.title())
        .long(long(&setting.flag()))
        .aliases(setting.alias_flags().map(|flag| long(&flag)));
    let arg = match setting.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    match purpose {
        Purpose::Completions if !setting.choices().is_empty() => {
            arg.value_parser(PossibleValuesParser::new(setting.choices()))
        }
        _ => arg,
    }
}

/// A flag of another server: accepted or refused together with all others, where the configuration is understood.
fn foreign_arg((name, value): (&'static str, ForeignValue)) -> Arg {
    let arg = Arg::new(name).hide(true);
    let arg = match name.strip_prefix('-') {
        Some(letter) => arg.short(letter.chars().next()),
        None => arg.long(name.replace('_', "-")),
    };
    match value {
        // uWSGI's may be repeated.
        ForeignValue::Always => arg.action(ArgAction::Append),
        ForeignValue::Optional | ForeignValue::Never => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
    }
}

fn long(flag: &str) -> String {
    flag.trim_start_matches('-').to_owned()
}

fn short_help(setting: &Setting) -> String {
    match setting.default {
        // A switch that is off is what everybody expects.
        "" | "false" => setting.help.to_owned(),
        default => format!("{} [default: {default}]", setting.help),
    }
}

fn long_help(setting: &Setting) -> String {
    let mut text = format!("{}.", setting.help);
    if !setting.doc.is_empty() {
        text = format!("{text} {}", setting.doc);
    }
    let mut facts = Vec::new();
    if !setting.default.is_empty() {
        facts.push(format!("[default: {}]", setting.default));
    }
    facts.push(format!("[env: {}]", setting.environment()));
    let aliases: Vec<String> = setting.alias_flags().collect();
    if !aliases.is_empty() {
        facts.push(format!("[also: {}]", aliases.join(", ")));
    }
    format!("{text}\n{}", facts.join(" "))
}

fn value_hint(setting: &Setting) -> ValueHint {
    match setting.placeholder() {
        "DIR" => ValueHint::DirPath,
        "FILE" | "TARGET" => ValueHint::FilePath,
        _ => ValueHint::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_of(line: &str) -> Vec<(&'static str, String)> {
        let words = std::iter::once("milepost").chain(line.split_whitespace());
        let matches = command(Purpose::Run)
            .try_get_matches_from(words)
            .expect(line);
        let (_, matches) = matches.subcommand().expect("a subcommand");
        flags(matches)
            .into_iter()
            .map(|flag| (flag.key, flag.text))
            .collect()
    }

    #[track_caller]
    fn check(line: &str, expect: &[(&'static str, &str)]) {
        let expect: Vec<_> = expect
            .iter()
            .map(|(key, text)| (*key, (*text).to_owned()))
            .collect();
        assert_eq!(flags_of(line), expect, "{line}");
    }

    #[test]
    fn is_sound_for_both_purposes() {
        command(Purpose::Run).debug_assert();
        command(Purpose::Completions).debug_assert();
    }

    #[test]
    fn no_line_of_a_help_text_is_broken_again() {
        let all = command(Purpose::Run);
        for command in all.get_subcommands().chain([&all]) {
            let texts = [
                command.get_long_about(),
                command.get_after_help(),
                command.get_after_long_help(),
            ];
            for text in texts.into_iter().flatten().map(ToString::to_string) {
                let long = text.lines().find(|line| line.chars().count() > WIDTH_MAX);
                assert_eq!(long, None, "{}", command.get_name());
            }
        }
    }

    #[test]
    fn gives_flags_as_texts_under_their_keys() {
        check("serve a:b", &[("app", "a:b")]);
        check(
            "serve -b :1 -b :2 a:b",
            &[("app", "a:b"), ("bind", ":1"), ("bind", ":2")],
        );
        check("serve --workers 2", &[("processes", "2")]);
        check("serve -w 2", &[("processes", "2")]);
        check("serve --access-log -", &[("access_log", "-")]);
        check("serve --max-connections=5", &[("connections_max", "5")]);
        check("serve --backlog 1 --backlog 2", &[("backlog", "2")]);
        check("check -c m.toml", &[("config", "m.toml")]);
    }

    #[test]
    fn does_not_take_the_application_for_a_switch_s_value() {
        check(
            "serve --factory shop:create",
            &[("app", "shop:create"), ("factory", "true")],
        );
        check("serve --nodelay=false", &[("nodelay", "false")]);
        check(
            "serve --nodelay --server-timing a:b",
            &[
                ("app", "a:b"),
                ("nodelay", "true"),
                ("server_timing", "true"),
            ],
        );
    }

    #[test]
    fn takes_flags_of_other_servers() {
        check(
            "serve --timeout 30 -k gthread --daemon a:b",
            &[
                ("app", "a:b"),
                ("-k", "gthread"),
                ("daemon", "true"),
                ("timeout", "30"),
            ],
        );
        check("serve --chmod-socket=664", &[("chmod_socket", "664")]);
        check("run a:b", &[("app", "a:b")]);
    }

    #[test]
    fn serves_without_the_word() {
        let check = |line: &str, expect: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            assert_eq!(with_command(words).join(" ".as_ref()), expect, "{line}");
        };
        check("milepost shop:app", "milepost serve shop:app");
        check("milepost shop.wsgi", "milepost serve shop.wsgi");
        check("milepost -w 4 a:b", "milepost serve -w 4 a:b");
        for line in [
            "milepost",
            "milepost -h",
            "milepost status -h",
            "milepost http://a/",
            "milepost srve a:b",
        ] {
            check(line, line);
        }
    }

    #[test]
    fn completes_for_every_shell() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let text = completions(shell);
            assert!(
                text.contains("accept-batch") && text.contains("completions"),
                "{shell}"
            );
        }
        assert!(completions(Shell::Bash).contains("phases combined common json naviserver"));
    }
}
