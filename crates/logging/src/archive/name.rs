//! Names of old log files: `access.log.20261121T120739Z`, with `.1`, `.2` … for further files of the same second,
//! `.gz` when compressed, `.gz.part` during compression.
//!
//! Pure. A file whose name has not exactly this form is not ours.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Digits of the number after the stamp.
const DIGITS_MAX: usize = 9;
/// Length of `20261121T120739Z`.
const STAMP_BYTES: usize = 16;

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
    name.push(form.suffix());
    name
}

/// Reads the name of an old file of the log called `log`; `None` for every other name.
pub(super) fn read(log: &OsStr, name: &OsStr) -> Option<(ArchiveId, ArchiveForm)> {
    let rest = name.as_bytes().strip_prefix(log.as_bytes())?;
    let rest = str::from_utf8(rest.strip_prefix(b".")?).ok()?;
    let (stamp, rest) = rest.split_at_checked(STAMP_BYTES)?;
    let at = DateTime::strptime("%Y%m%dT%H%M%SZ", stamp).ok()?;
    let at = at.to_zoned(TimeZone::UTC).ok()?;
    let secs = u64::try_from(at.timestamp().as_second()).ok()?;
    FORMS.into_iter().find_map(|form| {
        let number = match rest.strip_suffix(form.suffix())? {
            "" => 0,
            number if number.len() > 1 + DIGITS_MAX => return None,
            number => number.strip_prefix('.')?.parse().ok()?,
        };
        let id = ArchiveId { secs, number };
        // What would be written otherwise is not ours: a digit more, a leading zero, a thirteenth month.
        (write(log, id, form) == name).then_some((id, form))
    })
}

impl ArchiveForm {
    /// What is behind the name of the plain file.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            ArchiveForm::Plain => "",
            ArchiveForm::Gzip => ".gz",
            ArchiveForm::Part => ".gz.part",
        }
    }
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
        let words = "
            a.log a.log. a.log.1 a.log.1.gz a.log-20261121 a.log.20261121 a.log.20261121T120739
            a.log.20261121T120739z a.log.20261121t120739Z a.log.20261121T120739Z.
            a.log.20261121T120739Z.0 a.log.20261121T120739Z.01 a.log.20261121T120739Z.1.2
            a.log.20261121T120739Z.-1 a.log.20261121T120739Z.1234567890 a.log.20261121T120739Z.part
            a.log.20261121T120739Z.gz.1 a.log.20261121T120739Z.gz.gz a.log.20261121T120739Z.bz2
            a.log.20261121T120739Z.zst a.log.20261121T120739Z.gz~ a.log.20261321T120739Z
            a.log.20260229T120739Z a.log.20261121T240000Z a.log.20261121T126000Z
            a.log.20261121T120760Z a.log.19691231T235959Z a.log.+0261121T120739Z
            b.log.20261121T120739Z xa.log.20261121T120739Z a.lo.20261121T120739Z 20261121T120739Z
        ";
        for name in words
            .split_whitespace()
            .chain(["a.log.20261121T120739Z ", ""])
        {
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
        fn no_name_belongs_to_two_logs(
            one in "[a-b.0-9]{1,12}", other in "[a-b.0-9]{1,12}", secs in 0..253_402_300_799u64, number in 0..50u64, form in 0..FORMS.len()
        ) {
            prop_assume!(one != other);
            let name = write(OsStr::new(&one), ArchiveId { secs, number }, FORMS[form]);
            prop_assert_eq!(read(OsStr::new(&other), &name), None);
        }
    }
}
