//! The texts of a load on their way to values: texts by key, and all faults that were found.
//!
//! Takes a [`LoadSpec`], gives values, or what stands for one where a fault was noted. Decides nothing about
//! what a value has to be.

use super::values::ExpectedText;
use super::{Files, LoadSpec, keys};
use crate::engine::Fault;

/// The texts of a load, and its faults.
pub(super) struct SpecReader<'w> {
    spec: &'w LoadSpec,
    pub(super) faults: Vec<Fault>,
}

impl<'w> SpecReader<'w> {
    pub(super) fn of(spec: &'w LoadSpec) -> SpecReader<'w> {
        SpecReader {
            spec,
            faults: Vec::new(),
        }
    }

    /// What messages call a key.
    pub(super) fn said(name: &str) -> String {
        let key = keys().iter().find(|key| key.name == name);
        key.expect("the table has every key that is read").said()
    }

    /// The text of a key that has one.
    pub(super) fn text(&self, name: &str) -> Option<&'w str> {
        self.spec.text(name)
    }

    /// The texts of a key that has several.
    pub(super) fn texts(&self, name: &str) -> &'w [String] {
        self.spec.texts(name)
    }

    /// Whether a key is given, and so whether a switch is on.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// The value of a key; `None`: it is not given, or wrong, which is noted.
    pub(super) fn value<T>(
        &mut self,
        name: &str,
        understand: impl Fn(&str) -> Result<T, ExpectedText>,
    ) -> Option<T> {
        let text = self.text(name)?;
        self.element(name, text, understand)
    }

    /// The value of one of a key's texts.
    pub(super) fn element<T>(
        &mut self,
        name: &str,
        text: &str,
        understand: impl Fn(&str) -> Result<T, ExpectedText>,
    ) -> Option<T> {
        let understood = understand(text).map_err(|expected| {
            let said = SpecReader::said(name);
            Fault::new(format!("`{said}`: expected {expected}, found `{text}`"))
        });
        self.noted(understood)
    }

    /// A key's text is not what it has to be.
    pub(super) fn wrong(&mut self, name: &str, expected: &str) {
        let text = self.text(name).unwrap_or_default();
        let _: Option<()> = self.element(name, text, |_| Err(expected.to_owned()));
    }

    /// Notes a fault with its remedy.
    pub(super) fn fault(&mut self, text: impl Into<String>, hint: impl Into<String>) {
        self.faults.push(Fault::with_hint(text, hint));
    }

    /// What was made; `None`: it is faulty, which is noted.
    pub(super) fn noted<T>(&mut self, made: Result<T, Fault>) -> Option<T> {
        made.map_err(|fault| self.faults.push(fault)).ok()
    }

    /// Keys that mean nothing without another one.
    pub(super) fn needs(&mut self, names: &[&str], other: &str, remedy: &str) {
        if self.is_given(other) {
            return;
        }
        for name in names {
            if self.is_given(name) {
                let (said, other) = (SpecReader::said(name), SpecReader::said(other));
                let text = format!("`{said}`: means nothing without `{other}`");
                self.fault(text, remedy);
            }
        }
    }

    /// Keys of which one at most is given.
    pub(super) fn one_of(&mut self, names: &[&str], remedy: &str) {
        let given = names.iter().filter(|name| self.is_given(name));
        let given: Vec<String> = given
            .map(|name| format!("`{}`", SpecReader::said(name)))
            .collect();
        if given.len() > 1 {
            let text = format!("{}: exclude each other", given.join(" and "));
            self.fault(text, remedy);
        }
    }

    /// A file that a key names; `None`: it cannot be read, which is noted.
    pub(super) fn file(&mut self, name: &str, path: &str, files: &dyn Files) -> Option<Vec<u8>> {
        let read = files.read(path.as_ref()).map_err(|error| {
            let said = SpecReader::said(name);
            let text = format!("`{said}`: `{path}` cannot be read: {}", cause(&error));
            Fault::with_hint(text, "it has to be a file that this user may read")
        });
        self.noted(read)
    }
}

/// The system's words without Rust's "(os error 2)".
pub(super) fn cause(error: &std::io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
