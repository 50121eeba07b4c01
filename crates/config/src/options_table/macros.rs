//! How a row of the table is written: its name, its words, and last what becomes of its value.
//!
//! Functions for constants alone; `rows` is their only user. Pure.

use telemetry::Nanos;

use super::super::builder::Draft;
use super::super::reading::SettingText;
use super::kind::{ListForm, Setter, SettingKind, TableSetter};
use super::{Setting, SettingGroup};

/// A row without a default. Its kind comes last: it says what stands for the value, unless the row has.
pub(super) const fn row(key: &'static str, group: SettingGroup) -> Setting {
    Setting {
        key,
        short: None,
        aliases: &[],
        group,
        placeholder: "",
        default: "",
        is_daily: false,
        help: "",
        doc: "",
        kind: SettingKind::Switch { set: |_, _| {} },
    }
}

impl Setting {
    pub(super) const fn daily(self) -> Self {
        Self {
            is_daily: true,
            ..self
        }
    }

    pub(super) const fn short(self, letter: char) -> Self {
        Self {
            short: Some(letter),
            ..self
        }
    }

    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub(super) const fn placeholder(self, placeholder: &'static str) -> Self {
        Self {
            placeholder,
            ..self
        }
    }

    pub(super) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    pub(super) const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    const fn of(self, kind: SettingKind, placeholder: &'static str) -> Self {
        let placeholder = match self.placeholder.is_empty() {
            true => placeholder,
            false => self.placeholder,
        };
        Self {
            kind,
            placeholder,
            ..self
        }
    }

    pub(super) const fn count(self, min: u64, max: u64, set: fn(&mut Draft, u64)) -> Self {
        self.of(SettingKind::Count { min, max, set }, "N")
    }

    pub(super) const fn size(self, min: u64, max: u64, set: fn(&mut Draft, u64)) -> Self {
        self.of(SettingKind::Size { min, max, set }, "SIZE")
    }

    pub(super) const fn per_second(self, max: u64, set: fn(&mut Draft, u64)) -> Self {
        self.of(SettingKind::PerSecond { max, set }, "RATE")
    }

    pub(super) const fn duration(self, min: Nanos, max: Nanos, set: fn(&mut Draft, Nanos)) -> Self {
        self.of(SettingKind::Duration { min, max, set }, "DURATION")
    }

    pub(super) const fn range(self, max: u64, set: fn(&mut Draft, u64, u64)) -> Self {
        self.of(SettingKind::Range { max, set }, "MIN:MAX")
    }

    pub(super) const fn switch(self, set: fn(&mut Draft, bool)) -> Self {
        self.of(SettingKind::Switch { set }, "BOOL")
    }

    pub(super) const fn choice(
        self,
        names: &'static [&'static str],
        set: fn(&mut Draft, usize),
    ) -> Self {
        self.of(SettingKind::Choice { names, set }, "HOW")
    }

    pub(super) const fn named(
        self,
        names: &'static [&'static str],
        expected: &'static str,
        set: Setter<str>,
    ) -> Self {
        let kind = SettingKind::Named {
            names,
            expected,
            set,
        };
        self.of(kind, "NAME")
    }

    pub(super) const fn text(self, expected: &'static str, set: Setter<str>) -> Self {
        self.of(SettingKind::Text { expected, set }, "TEXT")
    }

    pub(super) const fn joined(self, expected: &'static str, set: Setter<str>) -> Self {
        self.of(SettingKind::Joined { expected, set }, "LIST")
    }

    pub(super) const fn list(
        self,
        expected: &'static str,
        toml: ListForm,
        clear: fn(&mut Draft),
        add: Setter<SettingText>,
    ) -> Self {
        let kind = SettingKind::List {
            expected,
            clear,
            add,
            toml,
        };
        self.of(kind, "TEXT")
    }

    pub(super) const fn tables(
        self,
        example: &'static str,
        clear: fn(&mut Draft),
        add: TableSetter,
    ) -> Self {
        let kind = SettingKind::Tables {
            example,
            clear,
            add,
        };
        self.of(kind, "TABLES")
    }
}
