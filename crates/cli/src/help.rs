//! `milepost help TOPIC`: a setting, or the settings of one topic, with all that is known about them.
//!
//! Takes the table of settings and gives text.

use clap::{Arg, ArgMatches, Command};
use config::nearest;
use config::options_table::{FlagForm, SETTINGS, Setting, SettingGroup, TableKey, setting};

use crate::command::{self, Purpose};
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE};

const WIDTH: usize = 96;
const INDENT: &str = "    ";

pub(crate) fn command() -> Command {
    Command::new("help")
        .about("Explain a setting, the settings of one topic, or a command")
        .arg(
            Arg::new("topic")
                .value_name("TOPIC")
                .help("A topic of settings, a setting, or a command")
                .allow_hyphen_values(true),
        )
        .after_help(format!("Topics:\n{}", topics()))
}

/// All topics, two spaces before each line.
pub(crate) fn topics() -> String {
    let name = |group: &SettingGroup| match group.topic() {
        "proxies" => "proxies (behind a proxy)",
        "upstreams" => "upstreams (reverse proxy)",
        topic => topic,
    };
    let names: Vec<&str> = SettingGroup::ALL.iter().map(name).collect();
    wrapped(&names.join(", "), "  ")
}

pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let Some(word) = matches.get_one::<String>("topic") else {
        return shown(&command::command(Purpose::Run).render_help().to_string());
    };
    // A flag may be named as the command line has it.
    let word = word.strip_prefix("--").unwrap_or(word);
    if let Some(group) = SettingGroup::ALL.iter().find(|group| group.topic() == word) {
        return shown(&topic(*group));
    }
    let mut all = command::command(Purpose::Run);
    // Their usage names the whole command only then.
    all.build();
    if let Some(found) = all.find_subcommand_mut(word) {
        return shown(&found.render_long_help().to_string());
    }
    if let Some(found) = setting(&word.replace('-', "_")) {
        return shown(&entry(found));
    }
    let commands = all.get_subcommands().map(Command::get_name);
    let known = commands
        .chain(SettingGroup::ALL.iter().map(|group| group.topic()))
        .chain(SETTINGS.iter().map(|setting| setting.key));
    let hint = match nearest(word, known) {
        Some(near) => format!("did you mean `milepost help {near}`?"),
        None => format!("the topics are\n{}", topics()),
    };
    Message::new(&format!("`{word}`"), "unknown topic")
        .with_hint(hint)
        .say();
    COULD_NOT
}

fn shown(text: &str) -> i32 {
    message::page(text);
    DONE
}

/// All settings of a topic.
fn topic(group: SettingGroup) -> String {
    let entries: Vec<String> = group.settings().map(entry).collect();
    format!("{}\n\n{}", group.title(), entries.join("\n"))
}

fn entry(setting: &Setting) -> String {
    let (flag, value) = (setting.flag_said(), setting.placeholder());
    let used = match setting.form() {
        FlagForm::Argument => flag,
        // As the next word the value would be the application.
        FlagForm::Switch => format!("{flag}[={value}]"),
        FlagForm::Once | FlagForm::Repeated => format!("{flag} {value}"),
    };
    let mut text = match setting.in_flags() {
        true => format!("{used}  ({})\n", setting.environment()),
        // What has several parts has no flag that could be shown.
        false => format!("[[{}]]  (in the configuration file)\n", setting.key),
    };
    text.push_str(&wrapped(&format!("{}.", setting.help), INDENT));
    if !setting.doc.is_empty() {
        text.push_str(&wrapped(setting.doc, INDENT));
    }
    text.push_str(&table_keys(setting));
    if !setting.default.is_empty() {
        text.push_str(&wrapped(&format!("Default: {}", setting.default), INDENT));
    }
    if let Some(example) = setting.example() {
        text.push_str(&format!("{INDENT}Example:\n"));
        for line in example.lines() {
            text.push_str(&format!("{INDENT}  {line}\n"));
        }
    }
    text
}

/// The keys of a table, each on lines of its own, with their meanings side by side.
fn table_keys(setting: &Setting) -> String {
    let keys = setting.table_keys.iter();
    let wide = keys.clone().map(|key| key.name.len()).max().unwrap_or(0);
    let indent = " ".repeat(INDENT.len() + 2 + wide + 2);
    let line = |key: &TableKey| {
        let default = match key.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        let meaning = wrapped(&format!("{}{default}", key.meaning), &indent);
        format!("{INDENT}  {:<wide$}  {}", key.name, meaning.trim_start())
    };
    let lines: String = keys.map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("{INDENT}Keys:\n{lines}"),
    }
}

/// Lines of at most [`WIDTH`] columns, each behind `indent` and with its end.
fn wrapped(text: &str, indent: &str) -> String {
    present::broken(text, WIDTH - indent.len())
        .iter()
        .map(|line| format!("{indent}{line}\n"))
        .collect()
}
