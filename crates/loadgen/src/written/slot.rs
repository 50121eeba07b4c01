//! Fields that hold texts: one, or a list of them.
//!
//! Takes texts and what TOML has in their place, gives texts. Understands none.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, SeqAccess, Visitor};

/// The last text counts.
pub(super) type One = Option<String>;
/// Each text counts.
pub(super) type Many = Option<Vec<String>>;

/// A field of `Written`.
pub(super) trait Slot: Default {
    /// Whether TOML may have a list in its place.
    const IS_LIST: bool;

    /// Takes a text.
    fn put(&mut self, text: &str);

    /// All texts.
    fn texts(&self) -> &[String];
}

impl Slot for One {
    const IS_LIST: bool = false;

    fn put(&mut self, text: &str) {
        *self = Some(text.to_owned());
    }

    fn texts(&self) -> &[String] {
        self.as_slice()
    }
}

impl Slot for Many {
    const IS_LIST: bool = true;

    fn put(&mut self, text: &str) {
        self.get_or_insert_default().push(text.to_owned());
    }

    fn texts(&self) -> &[String] {
        self.as_deref().unwrap_or_default()
    }
}

/// What a file has under a key.
pub(super) fn read<'de, S: Slot, D: Deserializer<'de>>(source: D) -> Result<S, D::Error> {
    source.deserialize_any(Texts::<S>(PhantomData))
}

struct Texts<S>(PhantomData<S>);

impl<S: Slot> Texts<S> {
    fn only<E>(text: &str) -> Result<S, E> {
        let mut slot = S::default();
        slot.put(text);
        Ok(slot)
    }
}

impl<'de, S: Slot> Visitor<'de> for Texts<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if S::IS_LIST {
            "a text, a number, or a list of them"
        } else {
            "a text, a number or a boolean"
        })
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<S, E> {
        Texts::only(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<S, E> {
        Texts::only(&value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<S, E> {
        Texts::only(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<S, E> {
        Texts::only(&value.to_string())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<S, E> {
        Texts::only(&value.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<S, A::Error> {
        if !S::IS_LIST {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self));
        }
        let mut slot = S::default();
        while let Some(Element(text)) = list.next_element()? {
            slot.put(&text);
        }
        Ok(slot)
    }
}

/// One text of a list.
struct Element(String);

impl<'de> serde::Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Element, D::Error> {
        let text: One = read(source)?;
        Ok(Element(text.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use crate::written::Written;

    fn written(toml: &str) -> Result<Written, String> {
        toml_edit::de::from_str(toml).map_err(|error| error.to_string())
    }

    #[test]
    fn takes_numbers_booleans_and_lists_as_texts() {
        let toml =
            "connections = 64\nrate = 0.5\nburst = true\nheader = 'A: b'\nserver_pid = [1, '2']\n";
        let found = written(toml).unwrap();
        for (name, expect) in [
            ("connections", &["64"][..]),
            ("rate", &["0.5"]),
            ("burst", &["true"]),
            ("header", &["A: b"]),
            ("server_pid", &["1", "2"]),
            ("threads", &[]),
        ] {
            assert_eq!(found.texts(name), expect, "{name}");
        }
    }

    #[test]
    fn refuses_what_is_no_text_and_what_is_no_key() {
        for (toml, expect) in [
            (
                "connections = [1, 2]",
                "expected a text, a number or a boolean",
            ),
            (
                "header = { a = 1 }",
                "expected a text, a number, or a list of them",
            ),
            ("connectoins = 1", "unknown field `connectoins`"),
        ] {
            let said = written(toml).unwrap_err();
            assert!(said.contains(expect), "{toml}: {said}");
        }
    }

    #[test]
    fn knows_another_name_of_a_key() {
        let found = written("per_connection = 3\nheaders = ['A: b']").unwrap();
        assert_eq!(found.requests_per_connection.as_deref(), Some("3"));
        assert_eq!(found.texts("header"), ["A: b"]);
    }

    #[test]
    fn keeps_what_is_said_later_and_fills_in_the_rest() {
        let base = written("connections = 1\nrate = 5\nheader = ['A: b']").unwrap();
        let over = written("connections = 2\nheader = ['C: d']")
            .unwrap()
            .over(&base);
        assert_eq!(over.texts("connections"), ["2"]);
        assert_eq!(over.texts("rate"), ["5"]);
        assert_eq!(over.texts("header"), ["C: d"]);
    }

    #[test]
    fn puts_texts_under_every_key_and_no_other() {
        for key in crate::written::keys() {
            let mut load = Written::default();
            assert!(
                load.put(key.name, "a") && load.put(key.name, "b"),
                "{}",
                key.name
            );
            let is_list = key.form == crate::written::Form::Repeated;
            let expect: &[&str] = if is_list { &["a", "b"] } else { &["b"] };
            assert_eq!(load.texts(key.name), expect, "{}", key.name);
        }
        assert!(!Written::default().put("quux", "a"));
    }
}
