//! Names of old log files: `access.log.20261121T120739Z`, with `.1`, `.2` … for further files of the same second,
//! `.gz` when compressed, `.gz.part` during compression.
//!
//! Pure. A file whose name has not exactly this form is not ours.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Length of `20261121T120739Z`.
const STAMP_BYTES: usize = 16;
/// Digits of the number after the stamp.
const DIGITS_MAX: usize = 9;

/// One old file of a log: the second of its rotation, and its number within that second. The older file is the
/// lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ArchiveId {
    /// Seconds since 1970 UTC.
    pub(super) secs: u64,
    /// 0 is not in the name.
    pub(super) number: u64,
}

/// The state of an old file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArchiveForm {
    /// As it was written.
    Plain,
    /// Compressed.
    Gzip,
    /// Being compressed, or left behind by a process that was killed.
    Part,
}

const FORMS: [ArchiveForm; 3] = [ArchiveForm::Plain, ArchiveForm::Gzip, ArchiveForm::Part];

/// The name of an old file of the log called `log`.
pub(super) fn write(log: &OsStr, id: ArchiveId, form: ArchiveForm) -> OsString {
    let [year, month, day, hour, minute, second] = telemetry::civil_from_unix(id.secs);
    let mut name = log.to_os_string();
    name.push(format!(
        ".{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"
    ));
    if id.number > 0 {
        name.push(format!(".{}", id.number));
    }
    name.push(suffix(form));
    name
}

/// Reads the name of an old file of the log called `log`; `None` for every other name.
pub(super) fn read(log: &OsStr, name: &OsStr) -> Option<(ArchiveId, ArchiveForm)> {
    let rest = name.as_bytes().strip_prefix(log.as_bytes())?;
    let rest = rest.strip_prefix(b".")?;
    let (stamp, rest) = rest.split_at_checked(STAMP_BYTES)?;
    let secs = read_stamp(stamp)?;
    FORMS.into_iter().find_map(|form| {
        let number = rest.strip_suffix(suffix(form).as_bytes())?;
        let number = read_number(number)?;
        Some((ArchiveId { secs, number }, form))
    })
}

fn suffix(form: ArchiveForm) -> &'static str {
    match form {
        ArchiveForm::Plain => "",
        ArchiveForm::Gzip => ".gz",
        ArchiveForm::Part => ".gz.part",
    }
}

fn read_stamp(stamp: &[u8]) -> Option<u64> {
    let (date, clock) = (stamp.get(..8)?, stamp.get(9..15)?);
    (stamp.len() == STAMP_BYTES && stamp[8] == b'T' && stamp[15] == b'Z').then_some(())?;
    telemetry::unix_from_civil([
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

    fn check(log: &str, name: &str, expect: Option<(u64, u64, ArchiveForm)>) {
        let read = read(OsStr::new(log), OsStr::new(name));
        let read = read.map(|(id, form)| (id.secs, id.number, form));
        assert_eq!(read, expect, "{log} {name}");
    }

    const SECS: u64 = 1_795_262_859;

    #[test]
    fn reads_its_own_names() {
        for (name, number, form) in [
            ("a.log.20261121T120739Z", 0, ArchiveForm::Plain),
            ("a.log.20261121T120739Z.1", 1, ArchiveForm::Plain),
            ("a.log.20261121T120739Z.12", 12, ArchiveForm::Plain),
            ("a.log.20261121T120739Z.gz", 0, ArchiveForm::Gzip),
            ("a.log.20261121T120739Z.3.gz", 3, ArchiveForm::Gzip),
            ("a.log.20261121T120739Z.gz.part", 0, ArchiveForm::Part),
            ("a.log.20261121T120739Z.3.gz.part", 3, ArchiveForm::Part),
        ] {
            check("a.log", name, Some((SECS, number, form)));
            let id = ArchiveId { secs: SECS, number };
            assert_eq!(write(OsStr::new("a.log"), id, form), name);
        }
    }

    #[test]
    fn reads_no_other_name() {
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
            "a.log.20261121T120739Z.zst",
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
        let id = |secs, number| ArchiveId { secs, number };
        assert!(id(1, 9) < id(2, 0));
        assert!(id(2, 2) < id(2, 10));
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(
            log in "[a-z.0-9TZ]{1,20}", secs in 0..253_402_300_799u64, number in 0..999_999_999u64, form in 0..FORMS.len()
        ) {
            let id = ArchiveId { secs, number };
            let name = write(OsStr::new(&log), id, FORMS[form]);
            prop_assert_eq!(read(OsStr::new(&log), &name), Some((id, FORMS[form])));
        }

        #[test]
        fn writes_what_it_reads(rest in "(\\.[0-9]{8}T[0-9]{6}Z)?(\\.[0-9]{1,4})?(\\.gz)?(\\.part)?") {
            let name = format!("a.log{rest}");
            if let Some((id, form)) = read(OsStr::new("a.log"), OsStr::new(&name)) {
                prop_assert_eq!(write(OsStr::new("a.log"), id, form), OsString::from(name));
            }
        }

        #[test]
        fn no_name_belongs_to_two_logs(
            one in "[a-b.0-9]{1,12}", other in "[a-b.0-9]{1,12}", secs in 0..253_402_300_799u64, number in 0..50u64, form in 0..FORMS.len()
        ) {
            prop_assume!(one != other);
            let name = write(OsStr::new(&one), ArchiveId { secs, number }, FORMS[form]);
            prop_assert_eq!(read(OsStr::new(&other), &name), None);
        }
    }
}
