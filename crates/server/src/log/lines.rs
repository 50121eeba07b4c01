//! What lines look like: the forms of access lines by their settings, and the error line.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::{Form, Names, Style, Template, Writer};

use crate::config::meant::{Level, LogForm, LogPrivacy};

/// The writer of access lines of `form`.
///
/// # Errors
/// When a template is none.
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

/// An error line; a daemon is told time and level apart.
pub(super) fn error(out: &mut Vec<u8>, level: Level, at: SystemTime, text: &str, daemon: bool) {
    if !daemon {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let wall_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        measure::push_time(wall_ns, out);
        out.push(b' ');
        out.extend_from_slice(name(level).as_bytes());
        out.extend_from_slice(b": ");
    }
    for (index, line) in text.trim_end().split('\n').enumerate() {
        if index > 0 {
            out.extend_from_slice(b"    ");
        }
        for c in line.chars() {
            match c {
                '\t' => out.push(b'\t'),
                c if c.is_control() => out.extend(c.escape_default().to_string().bytes()),
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        out.push(b'\n');
    }
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
        error(&mut out, Level::Error, at, "one\ntwo\x1b[31m\r\n", false);
        error(&mut out, Level::Info, at, "three", true);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "2000-10-10T13:55:36.123000+00:00 error: one\n    two\\u{1b}[31m\nthree\n"
        );
    }
}
