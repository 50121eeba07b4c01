//! The format of lines: access lines by their settings, and error lines.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use telemetry::{Form, Names, Style, Template, Writer};

use super::target::severity;
use config::typed::{Level, LogForm, LogPrivacy};

/// The writer of access lines of `form`.
///
/// # Errors
/// When a template cannot be parsed.
pub(super) fn of_access(form: &LogForm, privacy: &LogPrivacy, names: &Names) -> io::Result<Writer> {
    let form = match form {
        LogForm::Phases => Form::CombinedPhases,
        LogForm::Combined => Form::Combined,
        LogForm::Common => Form::Common,
        LogForm::Json => Form::Json,
        LogForm::NaviServer => Form::NaviServer,
        LogForm::Template(text) => {
            let parsed = Template::parse(text);
            let template = parsed
                .map_err(|fault| io::Error::new(io::ErrorKind::InvalidInput, fault.to_string()))?;
            Form::Template(template)
        }
    };
    let style = Style {
        prefix_v4: privacy.prefix_v4,
        prefix_v6: privacy.prefix_v6,
        query: privacy.query,
        ..Style::default()
    };
    Ok(Writer::new(form, style, names.clone()))
}

/// What an error line looks like, which depends on its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorForm {
    /// Time, level and text; the further lines of the text are indented.
    Text,
    /// The text alone: syslog has time and level of its own.
    Syslog,
    /// A priority that the journal takes off (sd-daemon(3)), and the text in one line: the journal makes an entry
    /// of each line that it reads, so a traceback would become a dozen entries.
    Journal,
}

/// Writes an error line.
pub(super) fn error(out: &mut Vec<u8>, level: Level, at: SystemTime, text: &str, form: ErrorForm) {
    match form {
        ErrorForm::Text => {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            let wall_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
            telemetry::push_time(wall_ns, out);
            out.push(b' ');
            out.extend_from_slice(name(level).as_bytes());
            out.extend_from_slice(b": ");
        }
        ErrorForm::Syslog => {}
        ErrorForm::Journal => out.extend_from_slice(&[b'<', b'0' + severity(level), b'>']),
    }
    let between: &[u8] = match form {
        ErrorForm::Text | ErrorForm::Syslog => b"\n    ",
        ErrorForm::Journal => b"\\n",
    };
    for (index, line) in text.trim_end().split('\n').enumerate() {
        if index > 0 {
            out.extend_from_slice(between);
        }
        for c in line.chars() {
            match c {
                '\t' => out.push(b'\t'),
                c if c.is_control() => out.extend(c.escape_default().to_string().bytes()),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
    out.push(b'\n');
}

/// Writes an error line as one JSON object, whatever lines its text has: `time`, `level`, `id` and `trace_id` where the
/// text names those of its exchange (`[id ... trace ...]`), and `message`.
pub(super) fn error_json(out: &mut Vec<u8>, level: Level, at_ns: u64, text: &str, form: ErrorForm) {
    #[derive(serde::Serialize)]
    struct ErrorEvent<'t> {
        time: &'t str,
        level: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'t str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        trace_id: Option<&'t str>,
        message: &'t str,
    }
    if form == ErrorForm::Journal {
        out.extend_from_slice(&[b'<', b'0' + severity(level), b'>']);
    }
    let mut time = Vec::new();
    telemetry::push_time(at_ns, &mut time);
    let ids = ids(text);
    let event = ErrorEvent {
        time: &String::from_utf8_lossy(&time),
        level: name(level),
        id: ids.map(|(id, _)| id),
        trace_id: ids.and_then(|(_, trace)| trace),
        message: text.trim_end(),
    };
    let written = serde_json::to_writer(&mut *out, &event);
    assert!(
        written.is_ok(),
        "texts are always JSON, and memory takes it"
    );
    out.push(b'\n');
}

/// The id of the exchange that a text is about, and that of its trace. What stands in later lines is the application's.
fn ids(text: &str) -> Option<(&str, Option<&str>)> {
    let (_, after) = text.lines().next()?.split_once("[id ")?;
    let (ids, _) = after.split_once(']')?;
    // No id has a space.
    Some(match ids.split_once(" trace ") {
        Some((id, trace)) => (id, Some(trace)),
        None => (ids, None),
    })
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_further_lines_and_shows_control_characters() {
        let at = UNIX_EPOCH + Duration::from_millis(971_186_136_123);
        let mut out = Vec::new();
        error(
            &mut out,
            Level::Error,
            at,
            "one\ntwo\x1b[31m\r\n",
            ErrorForm::Text,
        );
        error(&mut out, Level::Info, at, "three", ErrorForm::Syslog);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "2000-10-10T13:55:36.123000+00:00 error: one\n    two\\u{1b}[31m\nthree\n"
        );
    }

    #[test]
    fn an_event_of_json_is_one_line_with_the_id_of_its_exchange() {
        let mut out = Vec::new();
        let text = "GET /a [id 0a1b trace c2]: application: Traceback:\n  \"x\" [id 2]\n";
        let at_ns = 971_186_136_123_000_000;
        error_json(&mut out, Level::Error, at_ns, text, ErrorForm::Text);
        error_json(
            &mut out,
            Level::Info,
            at_ns,
            "up\n[id 3]",
            ErrorForm::Journal,
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"{"time":"2000-10-10T13:55:36.123000+00:00","level":"error","id":"0a1b","trace_id":"c2","#,
                r#""message":"GET /a [id 0a1b trace c2]: application: Traceback:\n  \"x\" [id 2]"}"#,
                "\n<6>",
                r#"{"time":"2000-10-10T13:55:36.123000+00:00","level":"info","message":"up\n[id 3]"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn the_journal_gets_one_line_for_a_traceback() {
        let text =
            "application: Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 1\n";
        let mut out = Vec::new();
        error(&mut out, Level::Error, UNIX_EPOCH, text, ErrorForm::Journal);
        error(&mut out, Level::Info, UNIX_EPOCH, "up", ErrorForm::Journal);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "<3>application: Traceback (most recent call last):\\n  File \"a.py\"\\nKeyError: 1\n<6>up\n"
        );
    }
}
