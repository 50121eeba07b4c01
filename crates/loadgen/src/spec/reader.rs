//! The texts of a load on their way to values: texts by key, and all faults that were found.
//!
//! Takes a [`LoadSpec`], gives values, or what stands for one where a fault was noted. Decides nothing about
//! what a value has to be.

use super::values::ExpectedText;
use super::{Files, FlagForm, LoadSpec, keys};
use crate::engine::Fault;

/// The texts of a load, and its faults.
pub(super) struct SpecReader<'w> {
    pub(super) spec: &'w LoadSpec,
    /// Where a key stands in a file, as `mix.toml:12: `; `None`: the texts are those of flags.
    pub(super) place: Option<&'w dyn Fn(&str) -> String>,
    pub(super) faults: Vec<Fault>,
}

impl<'w> SpecReader<'w> {
    pub(super) fn of(spec: &'w LoadSpec) -> SpecReader<'w> {
        SpecReader {
            spec,
            place: None,
            faults: Vec::new(),
        }
    }

    /// What messages call a key: a flag, or a key of a file behind its place.
    pub(super) fn said(&self, name: &str) -> String {
        let key = keys().iter().find(|key| key.name == name);
        match (self.place, key) {
            (None, key) => key.expect("the table has every flag that is read").said(),
            // Files have a list where the command line repeats a flag, under the flag's other name.
            (Some(_), Some(key)) if key.form == FlagForm::Repeated => key.alias.to_owned(),
            (Some(_), _) => name.to_owned(),
        }
    }

    fn place(&self, name: &str) -> String {
        self.place.map(|of| of(name)).unwrap_or_default()
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

    /// A whole number within bounds, likewise.
    pub(super) fn count(&mut self, name: &str, min: u64, max: u64) -> Option<u64> {
        self.value(name, |text| super::values::count(text, min, max))
    }

    /// One of some names, likewise.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, known: &[(&str, T)]) -> Option<T> {
        self.value(name, |text| super::values::choice(text, known))
    }

    /// The value of one of a key's texts.
    pub(super) fn element<T>(
        &mut self,
        name: &str,
        text: &str,
        understand: impl Fn(&str) -> Result<T, ExpectedText>,
    ) -> Option<T> {
        let understood = understand(text).map_err(|expected| {
            let (place, said) = (self.place(name), self.said(name));
            Fault::new(format!(
                "{place}`{said}`: expected {expected}, found `{text}`"
            ))
        });
        self.noted(understood)
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
                let (said, other) = (self.said(name), self.said(other));
                let text = format!("`{said}`: means nothing without `{other}`");
                self.fault(text, remedy);
            }
        }
    }

    /// Keys of which one at most is given.
    pub(super) fn one_of(&mut self, names: &[&str], remedy: &str) {
        let given = names.iter().filter(|name| self.is_given(name));
        let given: Vec<String> = given.map(|name| format!("`{}`", self.said(name))).collect();
        if given.len() > 1 {
            let (place, given) = (self.place(names[0]), given.join(" and "));
            self.fault(format!("{place}{given}: exclude each other"), remedy);
        }
    }

    /// A file that a key names; `None`: it cannot be read, which is noted.
    pub(super) fn file(&mut self, name: &str, path: &str, files: &dyn Files) -> Option<Vec<u8>> {
        let read = files.read(path.as_ref()).map_err(|error| {
            let (place, said, cause) = (self.place(name), self.said(name), cause(&error));
            let text = format!("{place}`{said}`: `{path}` cannot be read: {cause}");
            Fault::with_hint(text, "it has to be a file that this user may read")
        });
        self.noted(read)
    }
}

/// The system's words.
fn cause(error: &std::io::Error) -> String {
    // Rust adds "(os error 2)".
    let text = error.to_string().to_lowercase();
    let cause = text.split(" (os error").next();
    cause.unwrap_or_default().to_owned()
}
