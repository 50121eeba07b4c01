//! `milepost convert`: a configuration file of gunicorn becomes a milepost.toml.
//!
//! Takes the variables of the Python file from the host, writes TOML, and lists what has no counterpart with the
//! reason. Which setting stands for which is `config`'s table.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use clap::{Arg, ArgMatches, Command, ValueHint};
use config::options_table::known_flag;
use config::{Conversion, FlagText, Sources, TomlText};
use serde_json::Value;

use crate::environment::CertificateFiles;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO, environment};

/// What gunicorn reads of its file; other names are the file's own variables.
const GUNICORN_NAMES: &str = "\
    wsgi_app bind backlog workers worker_class threads worker_connections max_requests max_requests_jitter timeout \
    graceful_timeout keepalive limit_request_line limit_request_fields limit_request_field_size reload \
    reload_engine reload_extra_files spew check_config print_config preload_app sendfile reuse_port chdir daemon \
    raw_env pidfile worker_tmp_dir user group umask initgroups tmp_upload_dir secure_scheme_headers \
    forwarded_allow_ips accesslog disable_redirect_access_to_syslog access_log_format errorlog loglevel \
    capture_output logger_class logconfig logconfig_dict logconfig_json syslog_addr syslog syslog_prefix \
    syslog_facility enable_stdio_inheritance statsd_host dogstatsd_tags statsd_prefix proc_name default_proc_name \
    pythonpath paste on_starting on_reload when_ready pre_fork post_fork post_worker_init worker_int worker_abort \
    pre_exec pre_request post_request child_exit worker_exit nworkers_changed on_exit ssl_context proxy_protocol \
    proxy_allow_ips keyfile certfile ssl_version cert_reqs ca_certs suppress_ragged_eofs do_handshake_on_connect \
    ciphers raw_paste_global_conf permit_obsolete_folding strip_header_spaces permit_unconventional_http_method \
    permit_unconventional_http_version casefold_http_method forwarder_headers header_map \
    tolerate_dangerous_framing";

const OUTPUT: &str = "milepost.toml";

pub(crate) fn command() -> Command {
    let file = Arg::new("file")
        .value_name("FILE")
        .required(true)
        .value_hint(ValueHint::FilePath)
        .help("gunicorn's configuration file, as gunicorn.conf.py");
    let output = Arg::new("output")
        .long("output")
        .short('o')
        .value_name("FILE")
        .default_value(OUTPUT)
        .value_hint(ValueHint::FilePath)
        .help("File to write, `-` for standard output; an existing file stays");
    Command::new("convert")
        .about("Write a milepost.toml from a gunicorn.conf.py")
        .arg(file)
        .arg(output)
        .after_help(
            "The file is run, as gunicorn runs it.\n\
             Exit code 0: everything has a counterpart. 1: the file is written, and something has\n\
             none; the list says why. 2: nothing is written.",
        )
}

/// 0: everything has a counterpart. 1: it is written, without what is listed. 2: it is not written.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let (file, output) = (text("file"), text("output"));
    match convert(file, output, host) {
        Ok(listed) if listed.is_empty() => DONE,
        Ok(listed) => {
            message::say_all(&listed);
            NO
        }
        Err(message) => {
            message.say();
            COULD_NOT
        }
    }
}

/// Writes the file and gives what has no counterpart, or is not good on this machine.
fn convert(file: &str, output: &str, host: Option<&dyn AppHost>) -> Result<Vec<Message>, Message> {
    let Some(host) = host else {
        let hint = "install the wheel (`pip install milepost`)";
        return Err(
            Message::new(&format!("`{file}`"), "this binary has no Python").with_hint(hint),
        );
    };
    // Python would say the same in a traceback.
    if let Err(error) = std::fs::File::open(file) {
        return Err(Message::new(
            &format!("`{file}`"),
            environment::cause(&error),
        ));
    }
    let variables = host.variables(Path::new(file)).map_err(Message::from)?;
    let conversion = config::convert(&flags(&variables));
    let text = page(file, &conversion);
    write(output, &text)?;
    let mut listed: Vec<Message> = conversion
        .refused
        .iter()
        .map(|(name, why)| Message::new(&format!("`{name}` has no counterpart"), why))
        .collect();
    listed.extend(faults(output, text)?);
    Ok(listed)
}

/// The variables that gunicorn reads, as flags.
fn flags(variables: &str) -> Vec<FlagText> {
    let all: BTreeMap<String, Value> = serde_json::from_str(variables).unwrap_or_default();
    let mut flags = Vec::new();
    for name in GUNICORN_NAMES.split_whitespace() {
        let (Some(value), Some(key)) = (all.get(name), known_flag(name)) else {
            continue;
        };
        let texts = match value {
            Value::String(text) => vec![text.clone()],
            Value::Array(texts) => texts
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            // A hook, or an object that only Python knows.
            _ => vec![String::new()],
        };
        flags.extend(texts.into_iter().map(|text| FlagText {
            key,
            text: of_python(name, text),
        }));
    }
    flags
}

/// gunicorn's mask is a number, and ours is written in octal.
fn of_python(name: &str, text: String) -> String {
    match (name, text.parse::<u32>()) {
        ("umask", Ok(mask)) => format!("{mask:03o}"),
        _ => text,
    }
}

fn page(file: &str, conversion: &Conversion) -> String {
    let mut page = format!("# Written by `milepost convert {file}`.\n");
    for (name, why) in &conversion.refused {
        page.push_str(&format!("# `{name}` has no counterpart: {why}.\n"));
    }
    for note in &conversion.notes {
        page.push_str(&format!("# {note}.\n"));
    }
    page.push('\n');
    for line in &conversion.lines {
        page.push_str(line);
        page.push('\n');
    }
    page
}

/// A file of that name may have cost somebody work: it stays.
fn write(output: &str, text: &str) -> Result<(), Message> {
    if output == "-" {
        return message::result(text);
    }
    // In one step with the creation, so that no file can appear between the look and the write.
    let opened = OpenOptions::new().write(true).create_new(true).open(output);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let message = Message::new(&format!("`{output}`"), environment::cause(&error));
        message.with_hint("`--output` names another file, `-` standard output")
    })?;
    message::talk(&format!(
        "milepost: `{output}` is written: `milepost check --config {output} APP` looks at it\n"
    ));
    Ok(())
}

/// What is wrong with the result on this machine.
fn faults(file: &str, text: String) -> Result<Vec<Message>, Message> {
    let toml = TomlText {
        file: file.to_owned(),
        text,
    };
    let sources = Sources {
        toml: Some(toml),
        // It stands on the command line, mostly.
        flags: vec![FlagText {
            key: "app",
            text: "app".to_owned(),
        }],
        ..Sources::default()
    };
    let understood = environment::understood(&sources, CertificateFiles::HandedOver)?;
    Ok(understood.faults.iter().map(Message::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_every_name_of_gunicorn() {
        for name in GUNICORN_NAMES.split_whitespace() {
            assert!(known_flag(name).is_some(), "{name}");
        }
    }

    #[test]
    fn writes_toml_of_variables() {
        let variables = r#"{"workers": "3", "host": "h", "bind": ["0.0.0.0:80", "unix:a.sock"], "umask": "7",
            "post_fork": true, "timeout": "120", "preload_app": "true", "raw_env": ["A=1"], "daemon": "false"}"#;
        let conversion = config::convert(&flags(variables));
        let expect = [
            "env = \"A=1\"",
            "bind = [\"0.0.0.0:80\", \"unix:a.sock\"]",
            "processes = 3",
            "umask = \"007\"",
            "preload = true",
            "request_timeout = 120",
        ];
        assert_eq!(conversion.lines, expect);
        let names: Vec<&str> = conversion
            .refused
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["post_fork"]);
    }
}
