//! Outputs: the forms that a sweep's results are written in, and where to.
//!
//! Takes flags, then findings; writes files and standard output.

use std::fs;
use std::path::PathBuf;

use clap::ArgMatches;
use loadgen::experiment::{Findings, SweepTable};

use super::{Curve, Hands, Wish, texts};
use crate::benching::flags::obstacle;
use crate::message::{self, Message};

/// A form that results are written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Json,
    Svg,
    Html,
}

/// A file or standard output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Stdout,
    File(PathBuf),
}

/// Where the results are to go, as the flags say.
pub(super) fn outputs(matches: &ArgMatches, faults: &mut Vec<Message>) -> Vec<(Form, Place)> {
    let mut outputs = Vec::new();
    for (name, form) in [
        ("json", Form::Json),
        ("svg", Form::Svg),
        ("html", Form::Html),
    ] {
        for text in texts(matches, name) {
            let place = match text.as_str() {
                "-" => Place::Stdout,
                path => Place::File(path.into()),
            };
            if outputs.iter().any(|(_, other)| *other == place) && place != Place::Stdout {
                let cause = format!("`{text}` is written to already");
                faults.push(Message::new(&format!("`--{name}`"), cause));
            }
            if let Place::File(path) = &place
                && let Some(cause) = obstacle(path)
            {
                let cause = format!("`{text}` cannot be written: {cause}");
                faults.push(Message::new(&format!("`--{name}`"), cause));
            }
            outputs.push((form, place));
        }
    }
    let to_stdout = outputs.iter().filter(|(_, place)| *place == Place::Stdout);
    if to_stdout.count() > 1 {
        let message = Message::new("`-`", "standard output takes one form of the results");
        faults.push(message.with_hint("give files for the others"));
    }
    outputs
}

/// Writes all that was asked for.
pub(super) fn show(
    wish: &Wish,
    findings: &Findings,
    hands: &Hands<'_>,
) -> Result<(), Vec<Message>> {
    let servers = wish.experiment.servers.iter();
    let names: Vec<&str> = servers.map(|server| server.name.as_str()).collect();
    let table = SweepTable::new(&wish.swept, &names, findings);
    let lines = table.lines();
    let title = format!("Requests a second by {}", wish.swept.column());
    let curve = Curve {
        title: &title,
        x_label: wish.swept.column(),
        lines: &lines,
    };
    let mut faults = Vec::new();
    for (form, place) in &wish.outputs {
        let text = match form {
            Form::Json => json(findings),
            Form::Svg => (hands.svg)(&curve),
            Form::Html => page(&title, &(hands.svg)(&curve), &table.text()),
        };
        match place {
            Place::Stdout => faults.extend(message::result(&text).err()),
            Place::File(path) => {
                if let Err(error) = fs::write(path, text) {
                    faults.push(Message::new(&format!("`{}`", path.display()), error));
                }
            }
        }
    }
    let has_stdout = wish
        .outputs
        .iter()
        .any(|(_, place)| *place == Place::Stdout);
    if !wish.is_quiet && !has_stdout {
        let text = format!("{}\n{}", table.text(), (hands.letters)(&curve));
        faults.extend(message::result(&text).err());
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults)
    }
}

fn json(findings: &Findings) -> String {
    let text = serde_json::to_string(findings);
    text.expect("findings have no keys but texts and no numbers but finite ones") + "\n"
}

/// A page of its own.
pub(super) fn page(title: &str, svg: &str, table: &str) -> String {
    let table = table.replace('&', "&amp;").replace('<', "&lt;");
    let style = ":root{color-scheme:light dark}body{font:16px system-ui;margin:2rem auto;max-width:72rem;padding:0 1rem}\
                 svg{width:100%;height:auto}pre{overflow-x:auto}";
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{style}</style>\n<h1>{title}</h1>\n{svg}\n<pre>{table}</pre>\n</html>\n"
    )
}
