//! A mix of requests: a TOML file of `[[request]]` tables, each with its weight.
//!
//! Takes the file's text, gives kinds of requests or all faults, each with its line.
//!
//! ```toml
//! [[request]]
//! target = "/"
//! weight = 9
//!
//! [[request]]
//! method = "POST"
//! target = "/orders"
//! headers = ["Content-Type: application/json"]
//! body_file = "order.json"
//! expect_status = 201
//! ```

use std::ops::Range;

use toml_edit::{Document, Item, TableLike, Value};

use super::reader::SpecReader;
use super::{Files, LoadSpec, requests};
use crate::engine::Fault;
use crate::plan::{Request, RequestParts};

/// Most kinds of requests in a file.
const KINDS_LEN_MAX: usize = 100_000;

/// What a table may have: a target and a weight, and else what flags have.
const KEYS: [&str; 9] = [
    "method",
    "target",
    "weight",
    "body",
    "body_file",
    "body_size",
    "expect_status",
    "expect_length",
    "expect_body",
];
/// And a list of what a flag has once.
const LIST: &str = "headers";

/// The kinds of a file. `common`: what all requests have.
pub(super) fn kinds(
    name: &str,
    bytes: &[u8],
    common: &RequestParts<'_>,
    files: &dyn Files,
) -> Result<Vec<Request>, Vec<Fault>> {
    let mut file = MixFile {
        name,
        text: &String::from_utf8_lossy(bytes),
        common,
        files,
        faults: Vec::new(),
    };
    let kinds = match Document::parse(file.text) {
        _ if std::str::from_utf8(bytes).is_err() => {
            file.fault(None, "not TOML: the text is not UTF-8");
            Vec::new()
        }
        Ok(document) => file.kinds(document.as_table()),
        Err(error) => {
            let message = error.message().replace('\n', ", ");
            file.fault(error.span(), format!("not TOML: {message}"));
            Vec::new()
        }
    };
    if file.faults.is_empty() {
        Ok(kinds)
    } else {
        Err(file.faults)
    }
}

/// A file while it is understood.
struct MixFile<'f> {
    name: &'f str,
    text: &'f str,
    common: &'f RequestParts<'f>,
    files: &'f dyn Files,
    faults: Vec<Fault>,
}

impl MixFile<'_> {
    fn kinds(&mut self, table: &toml_edit::Table) -> Vec<Request> {
        let only = |_: &str| "unknown; the file has `[[request]]` tables only".to_owned();
        self.refuse_others(table, &["request"], only);
        let (span, text) = match table.get("request") {
            Some(Item::ArrayOfTables(tables)) if tables.len() <= KINDS_LEN_MAX => {
                let each = tables.iter();
                let kinds: Vec<Request> = each
                    .filter_map(|table| self.kind(table, table.span()))
                    .collect();
                if self.faults.is_empty() && kinds.iter().all(|kind| kind.weight == 0) {
                    self.fault(None, "every weight is 0: nothing would be sent");
                }
                return kinds;
            }
            Some(Item::ArrayOfTables(_)) => {
                (None, format!("at most {KINDS_LEN_MAX} kinds of requests"))
            }
            Some(other) => (
                other.span(),
                "`request`: expected `[[request]]` tables".to_owned(),
            ),
            None => (None, "there is no `[[request]]` in it".to_owned()),
        };
        self.fault(span, text);
        Vec::new()
    }

    /// Notes keys that a table may not have; `said` says what is wrong with one.
    fn refuse_others(&mut self, table: &dyn TableLike, known: &[&str], said: fn(&str) -> String) {
        for (key, item) in table.iter().filter(|(key, _)| !known.contains(key)) {
            let key_span = table.key(key).and_then(toml_edit::Key::span);
            let fault = Fault {
                text: format!("`{key}`: {}", said(key)),
                hint: telemetry::nearest(key, known.iter().copied())
                    .map(|near| format!("did you mean `{near}`?")),
            };
            self.note(key_span.or_else(|| item.span()), fault);
        }
    }

    fn kind(&mut self, table: &dyn TableLike, span: Option<Range<usize>>) -> Option<Request> {
        let before = self.faults.len();
        let known = [&KEYS[..], &[LIST]].concat();
        self.refuse_others(table, &known, |_| "unknown key".to_owned());
        if !table.contains_key("target") {
            self.fault(span.clone(), "`target`: is missing");
        }
        let texts = self.texts(table);
        let (name, text) = (self.name, self.text);
        let place = |key: &str| {
            // What is not there under a flag's name is the list.
            let item = table.get(key).or_else(|| table.get(LIST));
            place(name, text, item.and_then(Item::span))
        };
        // From here on a table is read as flags are: the same values, faults and remedies.
        let mut reading = SpecReader {
            place: Some(&place),
            ..SpecReader::of(&texts)
        };
        let made = requests::table(&mut reading, self.common, self.files);
        self.faults.extend(reading.faults);
        let made = made.map_err(|fault| self.note(span, fault)).ok();
        made.filter(|_| self.faults.len() == before)
    }

    /// The values of a table as texts.
    fn texts(&mut self, table: &dyn TableLike) -> LoadSpec {
        let mut texts = LoadSpec::default();
        for key in KEYS {
            match table.get(key).map(|item| (item, item.as_value())) {
                Some((_, Some(Value::String(text)))) => texts.push(key, text.value()),
                Some((_, Some(Value::Integer(number)))) => {
                    texts.push(key, &number.value().to_string());
                }
                Some((item, _)) => {
                    self.fault(item.span(), format!("`{key}`: expected a text or a number"));
                }
                None => {}
            }
        }
        if let Some(item) = table.get(LIST) {
            let list = item.as_array().map(|list| list.iter().map(Value::as_str));
            match list.and_then(|list| list.collect::<Option<Vec<&str>>>()) {
                Some(list) => list.iter().for_each(|text| texts.push("header", text)),
                None => {
                    let wrong = "`headers`: expected a list as `[\"Accept: text/html\"]`";
                    self.fault(item.span(), wrong);
                }
            }
        }
        texts
    }

    fn fault(&mut self, span: Option<Range<usize>>, text: impl Into<String>) {
        self.note(span, Fault::new(text));
    }

    /// Notes a fault with its line.
    fn note(&mut self, span: Option<Range<usize>>, fault: Fault) {
        let place = place(self.name, self.text, span);
        self.faults.push(Fault {
            text: format!("{place}{}", fault.text),
            ..fault
        });
    }
}

/// `mix.toml:12: `
fn place(name: &str, text: &str, span: Option<Range<usize>>) -> String {
    let before = span.and_then(|span| text.get(..span.start));
    let line = before.map(|before| before.bytes().filter(|byte| *byte == b'\n').count() + 1);
    line.map_or(format!("{name}: "), |line| format!("{name}:{line}: "))
}

#[cfg(test)]
mod tests;
