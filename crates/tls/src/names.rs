//! Which certificate a client gets that asks for a name: the exact name, then a pattern with one label in place of `*`,
//! then none. Pure.

use std::collections::HashMap;

/// Values by names of servers and by patterns.
#[derive(Clone, Debug)]
pub(crate) struct NameTable<T> {
    exact: HashMap<String, T>,
    /// Without their `*.`.
    patterns: HashMap<String, T>,
}

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            patterns: HashMap::new(),
        }
    }
}

impl<T> NameTable<T> {
    /// The value of a name or pattern, in lower case; made where there is none.
    pub(crate) fn entry(&mut self, name: &str, make: impl FnOnce() -> T) -> &mut T {
        let (names, name) = match name.strip_prefix("*.") {
            Some(rest) => (&mut self.patterns, rest),
            None => (&mut self.exact, name),
        };
        names.entry(name.to_owned()).or_insert_with(make)
    }

    /// The value for a name that a client asks for.
    pub(crate) fn find(&self, name: &str) -> Option<&T> {
        // The root's dot is no part of a name here (RFC 6066 section 3).
        let name = name.strip_suffix('.').unwrap_or(name);
        let lower;
        let name = match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => {
                lower = name.to_ascii_lowercase();
                lower.as_str()
            }
            false => name,
        };
        self.exact.get(name).or_else(|| {
            let (label, rest) = name.split_once('.')?;
            // A pattern has a label in place of its star.
            let found = self.patterns.get(rest);
            found.filter(|_| !label.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &NameTable<u32>, name: &str, expect: Option<u32>) {
        assert_eq!(table.find(name).copied(), expect, "{name}");
    }

    #[test]
    fn finds_exact_names_before_patterns_of_one_label() {
        let mut table = NameTable::default();
        let names = [
            "shop.example",
            "*.shop.example",
            "api.shop.example",
            "*.eu.shop.example",
        ];
        for (number, name) in (1..).zip(names) {
            *table.entry(name, || 0) = number;
        }
        check(&table, "shop.example", Some(1));
        check(&table, "SHOP.Example", Some(1));
        check(&table, "shop.example.", Some(1));
        check(&table, "www.shop.example", Some(2));
        check(&table, "api.shop.example", Some(3));
        check(&table, "a.eu.shop.example", Some(4));
        check(&table, "eu.shop.example", Some(2));
        for unknown in [
            "a.b.shop.example",
            ".shop.example",
            "example",
            "",
            ".",
            "shop.example.org",
        ] {
            check(&table, unknown, None);
        }
    }
}
