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
use std::path::Path;

use toml_edit::{Document, Item, TableLike, Value};

use super::Files;
use super::reader::cause;
use super::requests::{self, BODY_BYTES_MAX, CommonParts, LENGTH_BYTES_MAX, expect_body};
use super::values::{self, ExpectedText};
use crate::engine::Fault;
use crate::plan::{Expect, ExpectBody, Request};

/// Most kinds of requests in a file.
const KINDS_LEN_MAX: usize = 100_000;
const WEIGHT_MAX: u64 = 1_000_000;

/// What a table may have.
const KEYS: [&str; 10] = [
    "method",
    "target",
    "weight",
    "headers",
    "body",
    "body_file",
    "body_size",
    "expect_status",
    "expect_length",
    "expect_body",
];

/// The kinds of a file.
pub(super) fn kinds(
    name: &str,
    bytes: Vec<u8>,
    common: &CommonParts<'_>,
    files: &dyn Files,
) -> Result<Vec<Request>, Vec<Fault>> {
    let alone = |text: String| vec![Fault::new(text)];
    let text = String::from_utf8(bytes)
        .map_err(|_| alone(format!("{name}: not TOML: the text is not UTF-8")))?;
    let mut file = MixFile {
        name,
        text: &text,
        common,
        files,
        faults: Vec::new(),
    };
    let document = match Document::parse(text.as_str()) {
        Ok(document) => document,
        Err(error) => {
            let message = error.message().replace('\n', ", ");
            file.fault(error.span(), format!("not TOML: {message}"));
            return Err(file.faults);
        }
    };
    let kinds = file.kinds(document.as_table());
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
    common: &'f CommonParts<'f>,
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
        self.refuse_others(table, &KEYS, |_| "unknown key".to_owned());
        let body = self.body(table);
        let default = if body.is_some() { "POST" } else { "GET" };
        let method = self.value(table, "method", |text| Ok(text.to_owned()));
        let target = self.value(table, "target", |text| Ok(text.to_owned()));
        let weight = self.value(table, "weight", |text| values::count(text, 0, WEIGHT_MAX));
        let common = CommonParts {
            host: self.common.host,
            fields: self.fields(table),
        };
        let expect = self.expect(table);
        let Some(target) = target else {
            if !table.contains_key("target") {
                self.fault(span, "`target`: is missing");
            }
            return None;
        };
        let method = method.as_deref().unwrap_or(default);
        let weight = weight.unwrap_or(1) as u32;
        match requests::one(method, &target, &common, body.as_deref(), weight) {
            Ok(request) => (self.faults.len() == before).then_some(Request { expect, ..request }),
            Err(fault) => {
                self.note(span, fault);
                None
            }
        }
    }

    /// Those of the table, and those of all requests that it does not name itself.
    fn fields(&mut self, table: &dyn TableLike) -> Vec<(String, String)> {
        let wrong = "`headers`: expected a list as `[\"Accept: text/html\"]`";
        let mut own = Vec::new();
        match table.get("headers").map(|item| (item, item.as_array())) {
            Some((_, Some(list))) => {
                for value in list {
                    match value.as_str().map(requests::field) {
                        Some(Ok(field)) => own.push(field),
                        _ => self.fault(value.span(), wrong),
                    }
                }
            }
            Some((item, None)) => self.fault(item.span(), wrong),
            None => {}
        }
        let is_own = |name: &str| own.iter().any(|(own, _)| name.eq_ignore_ascii_case(own));
        let shared = self.common.fields.iter();
        let shared: Vec<_> = shared.filter(|(name, _)| !is_own(name)).cloned().collect();
        shared.into_iter().chain(own).collect()
    }

    fn body(&mut self, table: &dyn TableLike) -> Option<Vec<u8>> {
        let given = ["body", "body_file", "body_size"];
        let given = given.into_iter().filter(|key| table.contains_key(key));
        if let Some(second) = given.clone().nth(1) {
            let span = table.get(second).and_then(Item::span);
            self.fault(span, format!("`{second}`: the request has a body already"));
        }
        match given.into_iter().next()? {
            "body" => self.value(table, "body", |text| Ok(text.as_bytes().to_vec())),
            "body_size" => {
                let size = |text: &str| values::bytes(text, BODY_BYTES_MAX);
                let size = self.value(table, "body_size", size);
                size.map(requests::made_body)
            }
            _ => {
                let path = self.value(table, "body_file", |text| Ok(text.to_owned()))?;
                let read = self.files.read(Path::new(&path));
                read.map_err(|error| {
                    let text = format!("`body_file`: `{path}` cannot be read: {}", cause(&error));
                    self.fault(table.get("body_file").and_then(Item::span), text);
                })
                .ok()
            }
        }
    }

    /// `None`: as for all requests.
    fn expect(&mut self, table: &dyn TableLike) -> Option<Expect> {
        let statuses = self.value(table, "expect_status", values::statuses);
        let length = |text: &str| values::bytes(text, LENGTH_BYTES_MAX);
        let body_bytes = self.value(table, "expect_length", length);
        let body = self.value(table, "expect_body", expect_body);
        let is_own = statuses.is_some() || body_bytes.is_some() || body.is_some();
        is_own.then(|| Expect {
            statuses: statuses.unwrap_or_default(),
            body_bytes,
            body: body.unwrap_or(ExpectBody::Any),
        })
    }

    fn value<T>(
        &mut self,
        table: &dyn TableLike,
        key: &str,
        understand: impl Fn(&str) -> Result<T, ExpectedText>,
    ) -> Option<T> {
        let item = table.get(key)?;
        let found = match item.as_value() {
            Some(Value::String(text)) => text.value().clone(),
            Some(Value::Integer(number)) => number.value().to_string(),
            _ => {
                self.fault(item.span(), format!("`{key}`: expected a text or a number"));
                return None;
            }
        };
        match understand(&found) {
            Ok(value) => Some(value),
            Err(expected) => {
                let text = format!("`{key}`: expected {expected}, found `{found}`");
                self.fault(item.span(), text);
                None
            }
        }
    }

    fn fault(&mut self, span: Option<Range<usize>>, text: impl Into<String>) {
        self.note(span, Fault::new(text));
    }

    /// Notes a fault with its line.
    fn note(&mut self, span: Option<Range<usize>>, fault: Fault) {
        let place = match span {
            Some(span) => {
                let before = self.text.get(..span.start).unwrap_or(self.text);
                let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
                format!("{}:{line}", self.name)
            }
            None => self.name.to_owned(),
        };
        self.faults.push(Fault {
            text: format!("{place}: {}", fault.text),
            ..fault
        });
    }
}

#[cfg(test)]
mod tests;
