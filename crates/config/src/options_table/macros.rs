//! How a row of the table is written: what users read of it as a comment, then its names, and last its kind and
//! the place of its value.
//!
//! ```text
//! /// Help: one line, without a full stop
//! /// What one should know before changing it, in full sentences, on as many lines as it takes.
//! key in Group { short: Some('k'), default: "1s" } = duration(MS, DAY) => place.in_the.draft;
//! ```
//!
//! Expands to constants alone; `rows` is its only user.

/// A row without anything.
pub(super) const BLANK: super::Setting = super::Setting {
    key: "",
    short: None,
    aliases: &[],
    group: super::SettingGroup::Application,
    placeholder: "",
    default: "",
    is_daily: false,
    help: "",
    doc: "",
    table_keys: &[],
    kind: super::SettingKind::Switch { set: |_, _| {} },
};

/// The text of a comment without the space that its first line begins with.
pub(super) const fn comment(text: &'static str) -> &'static str {
    match text.is_empty() {
        true => text,
        false => text.split_at(1).1,
    }
}

macro_rules! settings {
    ($(
        #[doc = $help:literal]
        $(#[doc = $doc:literal])*
        $key:ident in $group:ident { $($field:ident: $value:expr),* }
            = $kind:ident $arguments:tt $(=> $($place:ident).+)?;
    )*) => {
        /// All settings, in the order of help texts.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($key),
            group: SettingGroup::$group,
            help: comment($help),
            doc: comment(concat!($($doc),*)),
            kind: kind!($kind $arguments $($($place).+)?),
            ..Setting { $($field: $value,)* ..BLANK }
        }),*];
    };
}

/// A kind whose value goes to a place in the draft.
macro_rules! kind {
    // `as _`: a row's bounds fit its field.
    (count($min:expr, $max:expr) $($place:ident).+) => {
        kind!(@number Unit::Count, $min, $max, |draft, number| draft$(.$place)+ = number as _)
    };
    (size($min:expr, $max:expr) $($place:ident).+) => {
        kind!(@number Unit::Size, $min, $max, |draft, number| draft$(.$place)+ = number as _)
    };
    (per_second($max:expr) $($place:ident).+) => {
        kind!(@number Unit::Rate, 0, $max, |draft, number| draft$(.$place)+ = number)
    };
    (duration($min:expr, $max:expr) $($place:ident).+) => {
        kind!(@number Unit::Duration, $min, $max, |draft, number| draft$(.$place)+ = Nanos(number))
    };
    // A duration that the kernel wants in seconds.
    (seconds($min:expr, $max:expr) $($place:ident).+) => {
        kind!(@number Unit::Duration, $min, $max, |draft, number| {
            draft$(.$place)+ = number.div_ceil(SECOND) as _;
        })
    };
    (@number $unit:expr, $min:expr, $max:expr, $set:expr) => {
        SettingKind::Number { unit: $unit, min: $min, max: $max, set: $set }
    };
    (switch() $($place:ident).+) => {
        SettingKind::Switch { set: |draft, yes| draft$(.$place)+ = yes }
    };
    (choice($names:expr, $values:expr) $($place:ident).+) => {
        SettingKind::Choice {
            names: &$names,
            set: |draft, index| {
                // At compile time: each name has its value.
                const { assert!($names.len() == $values.len()) };
                draft$(.$place)+ = $values[index];
            },
        }
    };
    (text($expected:expr, $parse:expr) $($place:ident).+) => {
        kind!(@text $expected, TextForm::Plain, $parse, $($place).+)
    };
    (range($expected:expr, $parse:expr) $($place:ident).+) => {
        kind!(@text $expected, TextForm::Range, $parse, $($place).+)
    };
    (joined($expected:expr, $parse:expr) $($place:ident).+) => {
        kind!(@text $expected, TextForm::Joined, $parse, $($place).+)
    };
    (named($names:expr, $expected:expr, $parse:expr) $($place:ident).+) => {
        kind!(@text $expected, TextForm::Named(&$names), $parse, $($place).+)
    };
    (@text $expected:expr, $form:expr, $parse:expr, $($place:ident).+) => {
        SettingKind::Text {
            expected: $expected,
            form: $form,
            set: |draft, text| {
                draft$(.$place)+ = $parse(text)?;
                Ok(())
            },
        }
    };
    // The command reads it before there is a configuration.
    (unread($expected:expr)) => {
        SettingKind::Text { expected: $expected, form: TextForm::Plain, set: |_, _| Ok(()) }
    };
    (list($expected:expr, $toml:expr, $parse:expr) $($place:ident).+) => {
        SettingKind::List {
            expected: $expected,
            toml: $toml,
            clear: |draft| draft$(.$place)+.clear(),
            add: |draft, text| {
                let value = $parse(&text.text)?;
                draft$(.$place)+.push(Placed::new(value, &text.origin));
                Ok(())
            },
        }
    };
    (tables($example:expr, $table:ty) $($place:ident).+) => {
        SettingKind::Tables {
            example: $example,
            clear: |draft| draft$(.$place)+.clear(),
            add: |draft, table, faults| {
                let read = tables::read::<$table>(table, faults);
                draft$(.$place)+.extend(read.map(|value| Placed::new(value, &table.origin)));
            },
        }
    };
    // Tables whose keys keep their places, for faults that only show later.
    (keyed_tables($example:expr, $table:ty) $($place:ident).+) => {
        SettingKind::Tables {
            example: $example,
            clear: |draft| draft$(.$place)+.clear(),
            add: |draft, table, faults| {
                let read = tables::read::<$table>(table, faults);
                draft$(.$place)+.extend(read.map(|value| KeyedTable::new(value, table)));
            },
        }
    };
    // The same for tables with tables in them, by a function of their own.
    (read_tables($example:expr, $read:expr) $($place:ident).+) => {
        SettingKind::Tables {
            example: $example,
            clear: |draft| draft$(.$place)+.clear(),
            add: |draft, table, faults| draft$(.$place)+.extend($read(table, faults)),
        }
    };
    // Targets as texts or as tables; `None` for `off`.
    (logs($expected:expr, $example:expr, $table:ty) $($place:ident).+) => {
        kind!(list(
            $expected,
            ListForm::Tables {
                example: $example,
                add: |draft, table, faults| {
                    let read = tables::read::<$table>(table, faults);
                    draft$(.$place)+.extend(read.map(|log| Placed::new(Some(log), &table.origin)));
                },
            },
            <$table>::from_text
        ) $($place).+)
    };
}

pub(super) use {kind, settings};
