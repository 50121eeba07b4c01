//! A message of the syslog protocol, RFC 5424, for the local daemon. Pure.
//!
//! ```text
//! <134>1 2026-11-21T12:07:39.123456Z www milepost 4711 access - 192.0.2.7 - - [21/Nov/2026…
//! ```
//! Daemons accept it on their sockets where they are configured so: rsyslog's imuxsock with
//! `UseSpecialParser="off"` (its issue 4749), syslog-ng's `unix-dgram` with `flags(syslog-protocol)`. Others,
//! journald's /dev/log among them (journald-syslog.c reads priority, an RFC 3164 date and a tag), lose
//! nothing: what follows the priority is the text for them.

use std::io::Write;

use config::typed::Level;

/// Where the local daemon listens.
pub(super) const SOCKET: &str = "/dev/log";
/// Bytes of a message: more than a receiver must (480) and should (2048) take, RFC 5424 section 6.1, and
/// the most that rsyslog takes by default (`$MaxMessageSize`, 8k).
pub(super) const BYTES_MAX: usize = 8192;

const NANOS: u64 = 1_000_000_000;
/// RFC 5424 section 6: what has no value.
const NIL: &str = "-";
/// RFC 5424 section 6.4: the text is UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// Length of a host's name, RFC 5424 section 6.
const HOST_BYTES_MAX: usize = 255;

/// What is the same in all messages of one log.
#[derive(Debug)]
pub(super) struct SyslogFormat {
    facility: u8,
    host: String,
    pid: u32,
    name: &'static str,
}

impl SyslogFormat {
    /// `facility` is 0 to 23; `host` is cut down to what a header may have.
    pub(super) fn new(facility: u8, host: &str, pid: u32, name: &'static str) -> Self {
        // RFC 5424 section 6: HOSTNAME is 1 to 255 characters of PRINTUSASCII.
        let printable = host.chars().filter(char::is_ascii_graphic);
        let host: String = printable.take(HOST_BYTES_MAX).collect();
        Self {
            facility: facility.min(23),
            host: if host.is_empty() { NIL.into() } else { host },
            pid,
            name,
        }
    }

    /// Writes a message of at most `bytes_max` to `out`; gives where its text begins. A text that does not
    /// fit is cut between characters and says how much is missing.
    pub(super) fn write(
        &self,
        level: Level,
        wall_ns: u64,
        text: &[u8],
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let [year, month, day, hour, minute, second] = telemetry::civil_from_unix(wall_ns / NANOS);
        let micros = wall_ns % NANOS / 1_000;
        // RFC 5424 section 6.2.1: priority is facility times 8 plus severity.
        let priority = u32::from(self.facility) * 8 + u32::from(severity(level));
        let (host, pid, id) = (&self.host, self.pid, self.name);
        // RFC 5424 section 6.2.3: at most six digits of a second, `T` and `Z` in upper case.
        write!(
            out,
            "<{priority}>1 {year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z \
             {host} milepost {pid} {id} {NIL} "
        )
        .expect("a vector takes all");
        let text_at = out.len();
        // RFC 5424 section 6.4: UTF-8 has a byte order mark before it, and nothing else begins with one.
        if !text.is_ascii() && std::str::from_utf8(text).is_ok() {
            out.extend_from_slice(BOM);
        }
        let left = bytes_max.saturating_sub(out.len());
        write_cut(text, left, out);
        text_at
    }
}

/// Severities of RFC 5424 section 6.2.1, which the journal has too.
pub(crate) fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
    }
}

/// Writes a text, or of one that is longer than `bytes_max` what fits, and how much is missing.
fn write_cut(text: &[u8], bytes_max: usize, out: &mut Vec<u8>) {
    if text.len() <= bytes_max {
        out.extend_from_slice(text);
        return;
    }
    let mark = |missing: usize| format!(" [{missing} more bytes]");
    // The number that is written is not larger than this one.
    let kept = bytes_max.saturating_sub(mark(text.len()).len());
    let kept = char_start(text, kept);
    out.extend_from_slice(&text[..kept]);
    out.extend_from_slice(mark(text.len() - kept).as_bytes());
}

/// The last start of a character that is not after `at`; `at` itself where there is no UTF-8.
fn char_start(text: &[u8], at: usize) -> usize {
    let is_start = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    (at.saturating_sub(3)..=at)
        .rev()
        .find(is_start)
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOON: u64 = 1_795_262_859_123_456_789;

    fn message(syslog: &SyslogFormat, level: Level, text: &[u8], bytes_max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let text_at = syslog.write(level, NOON, text, bytes_max, &mut out);
        assert!(out[..text_at].ends_with(b" - "));
        out
    }

    fn check(facility: u8, level: Level, name: &'static str, text: &str, expect: &str) {
        let syslog = SyslogFormat::new(facility, "www", 4711, name);
        let out = message(&syslog, level, text.as_bytes(), BYTES_MAX);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn writes_header_and_text() {
        check(
            16,
            Level::Info,
            "access",
            "GET / 200",
            "<134>1 2026-11-21T12:07:39.123456Z www milepost 4711 access - GET / 200",
        );
        check(
            3,
            Level::Error,
            "error",
            "it broke",
            "<27>1 2026-11-21T12:07:39.123456Z www milepost 4711 error - it broke",
        );
        check(
            23,
            Level::Warning,
            "error",
            "",
            "<188>1 2026-11-21T12:07:39.123456Z www milepost 4711 error - ",
        );
    }

    #[test]
    fn marks_utf8_and_only_that() {
        check(
            0,
            Level::Info,
            "access",
            "Grüße",
            "<6>1 2026-11-21T12:07:39.123456Z www milepost 4711 access - \u{feff}Grüße",
        );
        let syslog = SyslogFormat::new(0, "www", 1, "access");
        let out = message(&syslog, Level::Info, b"\xff\xfe", BYTES_MAX);
        assert!(out.ends_with(b" - \xff\xfe"));
    }

    #[test]
    fn host_is_printable_or_nil() {
        for (host, expect) in [
            ("a b\n", "ab"),
            ("", "-"),
            ("\u{e9}", "-"),
            (&"h".repeat(300), &"h".repeat(255)),
        ] {
            assert_eq!(SyslogFormat::new(0, host, 1, "access").host, expect);
        }
    }

    #[test]
    fn cuts_between_characters_and_says_how_much_is_missing() {
        let syslog = SyslogFormat::new(16, "www", 4711, "access");
        let text = "ä".repeat(100);
        for bytes_max in 120..260 {
            let out = message(&syslog, Level::Info, text.as_bytes(), bytes_max);
            let out = String::from_utf8(out).unwrap();
            assert!(out.len() <= bytes_max, "{} > {bytes_max}", out.len());
            let kept = out.matches('ä').count() * 2;
            let expect = format!(" [{} more bytes]", 200 - kept);
            assert!(out.ends_with(&expect), "{out}");
        }
    }

    proptest! {
        #[test]
        fn is_never_longer_than_it_may_and_keeps_what_fits(
            text in proptest::collection::vec(any::<u8>(), 0..400), bytes_max in 150..500usize
        ) {
            let syslog = SyslogFormat::new(16, "www", 4711, "access");
            let out = message(&syslog, Level::Info, &text, bytes_max);
            prop_assert!(out.len() <= bytes_max);
            if text.len() + 80 < bytes_max {
                prop_assert!(out.ends_with(&text));
            }
        }
    }
}
