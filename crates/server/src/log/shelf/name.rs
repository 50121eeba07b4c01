//! What old log files are called: `access.log.20261121T120739Z`, `.1`, `.2` … when that name was taken,
//! `.gz` or `.zst` when compressed, `.part` while they are being compressed.
//!
//! Pure. Only a name of exactly this form is an old file of ours; whatever else lies in the folder is
//! somebody else's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::config::meant::LogCompression;

/// Length of `20261121T120739Z`.
const STAMP_BYTES: usize = 16;
/// Digits of the number after the stamp.
const DIGITS_MAX: usize = 9;

/// Which old file of a log: the moment of its renaming, and its number within that second. The older one is
/// the lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::log) struct Age {
    /// Seconds since 1970 UTC.
    pub(in crate::log) secs: u64,
    /// 0 has no number in its name.
    pub(in crate::log) number: u64,
}

/// In what state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) enum Form {
    /// As it was written.
    Plain,
    /// Compressed.
    Packed(LogCompression),
    /// Being compressed, or left behind by a process that was killed.
    Part(LogCompression),
}

pub(in crate::log) const FORMS: [Form; 5] = [
    Form::Plain,
    Form::Packed(LogCompression::Gzip),
    Form::Packed(LogCompression::Zstd),
    Form::Part(LogCompression::Gzip),
    Form::Part(LogCompression::Zstd),
];

/// The name of an old file of the log called `log`.
pub(in crate::log) fn write(log: &OsStr, age: Age, form: Form) -> OsString {
    let [year, month, day, hour, minute, second] = wire::date::parts(age.secs);
    let mut name = log.to_os_string();
    name.push(format!(
        ".{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"
    ));
    if age.number > 0 {
        name.push(format!(".{}", age.number));
    }
    name.push(suffix(form));
    name
}

/// Reads the name of an old file of the log called `log`; `None` for every other name.
pub(in crate::log) fn read(log: &OsStr, name: &OsStr) -> Option<(Age, Form)> {
    let rest = name.as_bytes().strip_prefix(log.as_bytes())?;
    let rest = rest.strip_prefix(b".")?;
    let (stamp, rest) = rest.split_at_checked(STAMP_BYTES)?;
    let secs = read_stamp(stamp)?;
    FORMS.into_iter().find_map(|form| {
        let number = rest.strip_suffix(suffix(form).as_bytes())?;
        let number = read_number(number)?;
        Some((Age { secs, number }, form))
    })
}

fn suffix(form: Form) -> &'static str {
    match form {
        Form::Plain => "",
        Form::Packed(LogCompression::Gzip) => ".gz",
        Form::Packed(LogCompression::Zstd) => ".zst",
        Form::Part(LogCompression::Gzip) => ".gz.part",
        Form::Part(LogCompression::Zstd) => ".zst.part",
    }
}

fn read_stamp(stamp: &[u8]) -> Option<u64> {
    let (date, clock) = (stamp.get(..8)?, stamp.get(9..15)?);
    (stamp.len() == STAMP_BYTES && stamp[8] == b'T' && stamp[15] == b'Z').then_some(())?;
    wire::date::from_parts([
        digits(&date[..4])?,
        digits(&date[4..6])?,
        digits(&date[6..])?,
        digits(&clock[..2])?,
        digits(&clock[2..4])?,
        digits(&clock[4..])?,
    ])
}

/// Nothing, or a dot and a number from 1 on as we write it.
fn read_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    let number = text.strip_prefix(b".")?;
    let ours = number.len() <= DIGITS_MAX && !number.starts_with(b"0");
    ours.then(|| digits(number)).flatten()
}

fn digits(text: &[u8]) -> Option<u64> {
    let valid = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    valid.then(|| {
        let value = |number, digit: &u8| number * 10 + u64::from(digit - b'0');
        text.iter().fold(0, value)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(log: &str, name: &str, expect: Option<(u64, u64, Form)>) {
        let read = read(OsStr::new(log), OsStr::new(name));
        let read = read.map(|(age, form)| (age.secs, age.number, form));
        assert_eq!(read, expect, "{log} {name}");
    }

    const SECS: u64 = 1_795_262_859;

    #[test]
    fn reads_its_own_names() {
        let gzip = LogCompression::Gzip;
        let zstd = LogCompression::Zstd;
        for (name, number, form) in [
            ("a.log.20261121T120739Z", 0, Form::Plain),
            ("a.log.20261121T120739Z.1", 1, Form::Plain),
            ("a.log.20261121T120739Z.12", 12, Form::Plain),
            ("a.log.20261121T120739Z.gz", 0, Form::Packed(gzip)),
            ("a.log.20261121T120739Z.3.zst", 3, Form::Packed(zstd)),
            ("a.log.20261121T120739Z.gz.part", 0, Form::Part(gzip)),
            ("a.log.20261121T120739Z.3.zst.part", 3, Form::Part(zstd)),
        ] {
            check("a.log", name, Some((SECS, number, form)));
            let age = Age { secs: SECS, number };
            assert_eq!(write(OsStr::new("a.log"), age, form), name);
        }
    }

    #[test]
    fn takes_nothing_else_for_an_old_file() {
        for name in [
            "a.log",
            "a.log.",
            "a.log.1",
            "a.log.1.gz",
            "a.log-20261121",
            "a.log.20261121",
            "a.log.20261121T120739",
            "a.log.20261121T120739z",
            "a.log.20261121t120739Z",
            "a.log.20261121T120739Z.",
            "a.log.20261121T120739Z.0",
            "a.log.20261121T120739Z.01",
            "a.log.20261121T120739Z.1.2",
            "a.log.20261121T120739Z.-1",
            "a.log.20261121T120739Z.1234567890",
            "a.log.20261121T120739Z.part",
            "a.log.20261121T120739Z.gz.1",
            "a.log.20261121T120739Z.gz.gz",
            "a.log.20261121T120739Z.bz2",
            "a.log.20261121T120739Z.gz~",
            "a.log.20261121T120739Z ",
            "a.log.20261321T120739Z",
            "a.log.20260229T120739Z",
            "a.log.20261121T240000Z",
            "a.log.20261121T126000Z",
            "a.log.20261121T120760Z",
            "a.log.19691231T235959Z",
            "a.log.+0261121T120739Z",
            "b.log.20261121T120739Z",
            "xa.log.20261121T120739Z",
            "a.lo.20261121T120739Z",
            "20261121T120739Z",
            "",
        ] {
            check("a.log", name, None);
        }
    }

    #[test]
    fn logs_whose_names_begin_alike_have_no_old_file_in_common() {
        check("a.log", "a.log.b.20261121T120739Z", None);
        check("a.log.b", "a.log.20261121T120739Z", None);
        check("a.log", "a.log.20261121T120739Z.20261121T120739Z", None);
        check("a", "a.log.20261121T120739Z", None);
    }

    #[test]
    fn orders_by_time_then_by_number() {
        let age = |secs, number| Age { secs, number };
        assert!(age(1, 9) < age(2, 0));
        assert!(age(2, 2) < age(2, 10));
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(
            log in "[a-z.0-9TZ]{1,20}", secs in 0..253_402_300_799u64, number in 0..999_999_999u64, form in 0..FORMS.len()
        ) {
            let age = Age { secs, number };
            let name = write(OsStr::new(&log), age, FORMS[form]);
            prop_assert_eq!(read(OsStr::new(&log), &name), Some((age, FORMS[form])));
        }

        #[test]
        fn what_it_reads_it_would_have_written(rest in "(\\.[0-9]{8}T[0-9]{6}Z)?(\\.[0-9]{1,4})?(\\.gz|\\.zst)?(\\.part)?") {
            let name = format!("a.log{rest}");
            if let Some((age, form)) = read(OsStr::new("a.log"), OsStr::new(&name)) {
                prop_assert_eq!(write(OsStr::new("a.log"), age, form), OsString::from(name));
            }
        }

        #[test]
        fn no_name_belongs_to_two_logs(
            one in "[a-b.0-9]{1,12}", other in "[a-b.0-9]{1,12}", secs in 0..253_402_300_799u64, number in 0..50u64, form in 0..FORMS.len()
        ) {
            prop_assume!(one != other);
            let name = write(OsStr::new(&one), Age { secs, number }, FORMS[form]);
            prop_assert_eq!(read(OsStr::new(&other), &name), None);
        }
    }
}
