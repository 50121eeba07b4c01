//! Records as lines of the access log.
//!
//! Takes a decoded record, appends one line that ends in a newline. Runs on the log thread, so it
//! costs no request anything, but a slow one would fill the channel: no allocation, no formatting
//! machinery, the text of a second is made once. It must not know where the line goes.

mod combined;
mod date;
pub(crate) mod digits;
mod escape;
mod field;
mod filled;
mod json;
mod names;
mod otlp;
mod privacy;
mod template;

pub use escape::json as json_text;
pub use field::Field;
pub(crate) use field::Shape;
pub use names::Names;
pub use otlp::SpanWriter;
pub(crate) use template::parts;
pub use template::{Part, Place, Template, TemplateFault};

use crate::Record;
use date::DateText;
use filled::Dates;
use names::Known;
use privacy::Privacy;

/// How a line looks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// The combined format followed by the phases in seconds, the id, the route, and what was not as it
    /// always is.
    #[default]
    CombinedPhases,
    /// The combined format of httpd and nginx.
    Combined,
    /// The common log format of NCSA httpd.
    Common,
    /// One JSON object a line.
    Json,
    /// The combined format followed by NaviServer's partial times.
    NaviServer,
    /// A text with fields.
    Template(Template),
}

/// How lines show what they show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Seconds east of Greenwich that times are shown at; whole minutes count.
    pub utc_offset_secs: i32,
    /// Bits of an IPv4 address that are shown, the rest is 0; 32 and more show all.
    pub prefix_v4: u8,
    /// Bits of an IPv6 address that are shown; 128 and more show all. One that carries an IPv4 address
    /// (`::ffff:192.0.2.1`) goes by `prefix_v4`.
    pub prefix_v6: u8,
    /// Whether the queries of targets and referers are shown.
    pub query: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            utc_offset_secs: 0,
            prefix_v4: 32,
            prefix_v6: 128,
            query: true,
        }
    }
}

/// Appends a time, nanoseconds since 1970 UTC, in the form of RFC 3339:
/// `2000-10-10T13:55:36.000123+00:00`.
pub fn push_time(wall_ns: u64, out: &mut Vec<u8>) {
    DateText::rfc3339(0).push_rfc3339(wall_ns, out);
}

/// Writes records as lines of one form.
#[derive(Debug)]
pub struct Writer {
    privacy: Option<Privacy>,
    lines: Lines,
}

/// The part of a writer that knows nothing of privacy.
#[derive(Debug)]
struct Lines {
    form: Form,
    dates: Dates,
    names: Known,
}

impl Writer {
    /// A writer of lines of one form. A record whose number has no name in `names` gets an empty one.
    pub fn new(form: Form, style: Style, names: Names) -> Writer {
        // Escaped once, here: names are in every line, and never change.
        let names = match form {
            Form::Json => Known::of(names, escape::json),
            Form::Template(_) => Known::of(names, <[u8]>::to_vec),
            _ => Known::of(names, escape::bare),
        };
        let dates = Dates {
            clf: DateText::clf(style.utc_offset_secs),
            iso: DateText::rfc3339(style.utc_offset_secs),
        };
        let privacy = Privacy::new(style);
        let lines = Lines { form, dates, names };
        Writer { privacy, lines }
    }

    /// Appends the line of `record`, newline included.
    ///
    /// No byte of the record can end the line or a field: in the text forms `"`, `\`, control
    /// characters, DEL and everything from 0x80 become `\xHH`, and in unquoted fields also the
    /// space and brackets; JSON has its own escapes and is always valid UTF-8.
    pub fn write(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        match &mut self.privacy {
            None => self.lines.write(record, out),
            Some(privacy) => self.lines.write(&privacy.show(record), out),
        }
        out.push(b'\n');
    }
}

impl Lines {
    fn write(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        let Lines { form, dates, names } = self;
        match form {
            Form::CombinedPhases => {
                combined::combined(record, &mut dates.clf, out);
                combined::phases(record, names, out);
            }
            Form::Combined => combined::combined(record, &mut dates.clf, out),
            Form::Common => combined::common(record, &mut dates.clf, out),
            Form::Json => json::object(record, &mut dates.iso, names, out),
            Form::NaviServer => {
                combined::combined(record, &mut dates.clf, out);
                combined::partial_times(record, out);
            }
            Form::Template(template) => filled::line(record, template, names, dates, out),
        }
    }
}

#[cfg(test)]
mod tests;
