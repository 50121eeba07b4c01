//! A load as text: keys and their values, before anybody has understood them.
//!
//! The keys are those of the command's flags with `_`. Numbers and booleans of a file are taken as text, a list
//! gives a key several values. Whether a key is known is for others to say.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Keys and their values, each at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct LoadText {
    values: BTreeMap<String, Vec<String>>,
}

impl LoadText {
    /// Gives a key one value, instead of those it has.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.values.insert(key.to_owned(), vec![value.into()]);
    }

    /// Gives a key one more value.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        let values = self.values.entry(key.to_owned()).or_default();
        values.push(value.into());
    }

    /// The values of a key; empty: it has none.
    pub fn values(&self, key: &str) -> &[String] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }

    /// The last value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values(key).last().map(String::as_str)
    }

    /// All keys with their values, in the order of the keys.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[String])> {
        let entries = self.values.iter();
        entries.map(|(key, values)| (key.as_str(), values.as_slice()))
    }

    /// Its own values, and those of `base` for the keys that it has not.
    #[must_use]
    pub fn over(mut self, base: &LoadText) -> LoadText {
        for (key, values) in &base.values {
            let own = self.values.entry(key.clone());
            own.or_insert_with(|| values.clone());
        }
        self
    }

    /// With each value changed.
    #[must_use]
    pub fn mapped(&self, change: impl Fn(&str) -> String) -> LoadText {
        let changed = |values: &Vec<String>| values.iter().map(|value| change(value)).collect();
        let values = self.values.iter();
        LoadText {
            values: values
                .map(|(key, values)| (key.clone(), changed(values)))
                .collect(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    One(Scalar),
    Several(Vec<Scalar>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Boolean(bool),
    Whole(i64),
    Number(f64),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Scalar::Text(text) => text,
            Scalar::Boolean(value) => value.to_string(),
            Scalar::Whole(value) => value.to_string(),
            Scalar::Number(value) => value.to_string(),
        }
    }
}

impl<'de> Deserialize<'de> for LoadText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LoadText, D::Error> {
        let read = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let texts = |value| match value {
            Value::One(scalar) => vec![scalar.text()],
            Value::Several(scalars) => scalars.into_iter().map(Scalar::text).collect(),
        };
        let values = read.into_iter();
        Ok(LoadText {
            values: values.map(|(key, value)| (key, texts(value))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_numbers_and_booleans_as_text() {
        let text =
            r#"{"connections": 64, "rate": 0.5, "insecure": true, "header": ["A: b", "C: d"]}"#;
        let load: LoadText = serde_json::from_str(text).expect("a load");
        for (key, expect) in [("connections", "64"), ("rate", "0.5"), ("insecure", "true")] {
            assert_eq!(load.value(key), Some(expect), "{key}");
        }
        assert_eq!(load.values("header"), ["A: b", "C: d"]);
        assert_eq!(load.value("duration"), None);
        let stored = serde_json::to_string(&load).expect("text");
        assert_eq!(
            serde_json::from_str::<LoadText>(&stored).expect("a load"),
            load
        );
    }

    #[test]
    fn keeps_its_own_values_over_those_of_a_base() {
        let mut base = LoadText::default();
        base.set("connections", "1");
        base.set("duration", "2s");
        let mut own = LoadText::default();
        own.add("connections", "10");
        let load = own.over(&base);
        assert_eq!(load.value("connections"), Some("10"));
        assert_eq!(load.value("duration"), Some("2s"));
    }
}
