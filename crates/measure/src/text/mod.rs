//! Records as lines of the access log.
//!
//! Takes a decoded record, appends one line that ends in a newline. Runs on the log thread, so it
//! costs no request anything, but a slow one would fill the channel: no allocation, no formatting
//! machinery, the text of a second is made once. It must not know where the line goes.

mod date;
pub(crate) mod digits;
mod escape;
mod json;

use date::DateText;
use digits::{push_seconds, push_u64};
pub use escape::json as json_text;
use escape::{push_bare, push_quoted};

use crate::phases::WholeMicros;
use crate::{Ending, Record};

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// The combined format followed by the phases in seconds, and how it ended if not well.
    #[default]
    CombinedPhases,
    /// The combined format of httpd and nginx.
    Combined,
    /// The common log format of NCSA httpd.
    Common,
    /// One JSON object a line.
    Json,
}

/// Writes records as lines of one form.
#[derive(Debug)]
pub struct Writer {
    form: Form,
    date: DateText,
    /// Ready for JSON: escaped, without the quotes.
    routes: Vec<Vec<u8>>,
}

impl Writer {
    /// A writer of lines whose times are shown at `utc_offset_secs` east of Greenwich (whole minutes
    /// count). `route_names` are by index; a record whose index has no name gets an empty one.
    pub fn new(form: Form, utc_offset_secs: i32, route_names: Vec<String>) -> Writer {
        let date = match form {
            Form::Json => DateText::rfc3339(utc_offset_secs),
            Form::CombinedPhases | Form::Combined | Form::Common => DateText::clf(utc_offset_secs),
        };
        let routes = route_names
            .into_iter()
            .map(|name| escape::json(name.as_bytes()))
            .collect();
        Writer { form, date, routes }
    }

    /// Appends the line of `record`, newline included.
    ///
    /// No byte of the record can end the line or a quoted field: in the text forms `"`, `\`, control
    /// characters, DEL and everything from 0x80 become `\xHH`, and in unquoted fields also the
    /// space and brackets; JSON has its own escapes and is always valid UTF-8.
    pub fn write(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        match self.form {
            Form::CombinedPhases => {
                self.combined(record, out);
                phases(record, out);
                ending(record, out);
            }
            Form::Combined => self.combined(record, out),
            Form::Common => self.common(record, out),
            Form::Json => {
                let route = self
                    .routes
                    .get(usize::from(record.route))
                    .map_or(&b""[..], |name| name);
                json::object(record, &mut self.date, route, out);
            }
        }
        out.push(b'\n');
    }

    fn combined(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        self.common(record, out);
        out.extend_from_slice(b" \"");
        push_quoted(out, or_dash(record.referer));
        out.extend_from_slice(b"\" \"");
        push_quoted(out, or_dash(record.user_agent));
        out.push(b'"');
    }

    fn common(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        push_bare(out, or_dash(record.peer));
        out.extend_from_slice(b" - ");
        push_bare(out, or_dash(record.user));
        out.push(b' ');
        out.extend_from_slice(self.date.clf_at(record.wall_arrived_ns));
        out.extend_from_slice(b" \"");
        request_line(record, out);
        out.extend_from_slice(b"\" ");
        match record.status {
            0 => out.push(b'-'),
            status => push_u64(out, u64::from(status)),
        }
        out.push(b' ');
        push_u64(out, record.body_bytes);
    }
}

fn request_line(record: &Record<'_>, out: &mut Vec<u8>) {
    if record.method.is_empty() {
        return push_quoted(out, or_dash(record.request_line));
    }
    push_quoted(out, record.method);
    out.push(b' ');
    push_quoted(out, or_dash(record.target));
    if !record.version.is_empty() {
        out.push(b' ');
        push_quoted(out, record.version);
    }
}

fn phases(record: &Record<'_>, out: &mut Vec<u8>) {
    let us = WholeMicros::of(&record.phases.spans());
    out.extend_from_slice(b" accept=");
    push_seconds(out, us.accept);
    out.extend_from_slice(b" queue=");
    push_seconds(out, us.queue);
    out.extend_from_slice(b" run=");
    push_seconds(out, us.run);
    out.extend_from_slice(b" deliver=");
    push_seconds(out, us.deliver);
    out.extend_from_slice(b" total=");
    push_seconds(out, us.total);
}

fn ending(record: &Record<'_>, out: &mut Vec<u8>) {
    if record.ending != Ending::Complete {
        out.extend_from_slice(b" end=");
        out.extend_from_slice(record.ending.text().as_bytes());
    }
    if !record.cause.is_empty() {
        out.extend_from_slice(b" cause=\"");
        push_quoted(out, record.cause);
        out.push(b'"');
    }
}

fn or_dash(text: &[u8]) -> &[u8] {
    if text.is_empty() { b"-" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Phases, Stamp};
    use proptest::prelude::*;

    const SAMPLE: Record<'static> = Record {
        phases: Phases {
            arrived: Stamp(1_000_000_999),
            queued: Stamp(1_000_124_100),
            started: Stamp(1_000_134_050),
            replied: Stamp(1_004_134_998),
            delivered: Stamp(1_004_154_999),
            gil: crate::Nanos(1_500),
        },
        wall_arrived_ns: 971_186_136_000_123_000,
        peer: b"192.0.2.7",
        method: b"GET",
        target: b"/x",
        version: b"HTTP/1.1",
        request_line: b"",
        host: b"example.org",
        referer: b"http://a/",
        user_agent: b"agent",
        user: b"",
        status: 200,
        body_bytes: 2326,
        sent_bytes: 2500,
        request_bytes: 90,
        ending: Ending::Complete,
        route: 1,
        driver: 3,
        cause: b"",
    };

    fn line(form: Form, record: &Record<'_>) -> String {
        let mut out = Vec::new();
        let routes = vec!["/".into(), "/a\"pi".into()];
        Writer::new(form, 0, routes).write(record, &mut out);
        String::from_utf8(out).expect("every form is valid UTF-8")
    }

    fn check(form: Form, record: &Record<'_>, expect: &str) {
        assert_eq!(line(form, record), format!("{expect}\n"));
    }

    const DATED: &str = "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000]";

    #[test]
    fn writes_the_text_forms() {
        let common = format!("{DATED} \"GET /x HTTP/1.1\" 200 2326");
        let combined = format!("{common} \"http://a/\" \"agent\"");
        check(Form::Common, &SAMPLE, &common);
        check(Form::Combined, &SAMPLE, &combined);
        check(
            Form::CombinedPhases,
            &SAMPLE,
            &format!(
                "{combined} accept=0.000123 queue=0.000010 run=0.004000 deliver=0.000021 total=0.004154"
            ),
        );
    }

    #[test]
    fn says_how_it_ended_only_when_not_well() {
        let end = |ending, cause: &'static [u8]| {
            let text = line(
                Form::CombinedPhases,
                &Record {
                    ending,
                    cause,
                    ..SAMPLE
                },
            );
            text.split_once("total=0.004154").unwrap().1.to_owned()
        };
        assert_eq!(end(Ending::Complete, b""), "\n");
        assert_eq!(end(Ending::PeerGone, b""), " end=peer-gone\n");
        assert_eq!(
            end(Ending::Refused, b"two \"Hosts\""),
            " end=refused cause=\"two \\x22Hosts\\x22\"\n"
        );
    }

    #[test]
    fn marks_missing_fields_with_a_dash() {
        let bare = Record {
            wall_arrived_ns: SAMPLE.wall_arrived_ns,
            ..Record::default()
        };
        check(
            Form::Combined,
            &bare,
            "- - - [10/Oct/2000:13:55:36 +0000] \"-\" - 0 \"-\" \"-\"",
        );
    }

    #[test]
    fn shows_the_raw_line_of_an_unparsable_head() {
        let refused = Record {
            method: b"",
            request_line: b"\x16\x03\x01 \"",
            status: 400,
            ..SAMPLE
        };
        check(
            Form::Common,
            &refused,
            &format!("{DATED} \"\\x16\\x03\\x01 \\x22\" 400 2326"),
        );
        assert!(line(Form::Json, &refused).contains(r#""request_line":"\u0016\u0003\u0001 \"""#));
    }

    #[test]
    fn writes_json_with_fixed_keys() {
        check(
            Form::Json,
            &Record {
                user_agent: "caf\u{e9} \"1\"".as_bytes(),
                referer: b"\xff\n",
                ..SAMPLE
            },
            concat!(
                r#"{"time":"2000-10-10T13:55:36.000123+00:00","peer":"192.0.2.7","user":"","#,
                r#""method":"GET","target":"/x","protocol":"HTTP/1.1","status":200,"bytes":2326,"#,
                r#""sent":2500,"request_bytes":90,"host":"example.org","referer":"\u00ff\u000a","#,
                "\"agent\":\"caf\u{e9} \\\"1\\\"\",",
                r#""route":"/a\"pi","driver":3,"accept":0.000123,"queue":0.000010,"run":0.004000,"#,
                r#""deliver":0.000021,"total":0.004154,"gil":0.000001,"end":"complete"}"#,
            ),
        );
        let refused = Record {
            ending: Ending::Refused,
            cause: b"no",
            route: 9,
            ..SAMPLE
        };
        let text = line(Form::Json, &refused);
        assert!(text.contains(r#""route":"","#));
        assert!(
            text.ends_with("\"end\":\"refused\",\"cause\":\"no\"}\n"),
            "{text}"
        );
    }

    #[test]
    fn unquoted_fields_cannot_shift_the_others() {
        let forged = Record {
            user: b"bob [x] \"GET",
            ..SAMPLE
        };
        let text = line(Form::Common, &forged);
        assert!(
            text.starts_with("192.0.2.7 - bob\\x20\\x5bx\\x5d\\x20\\x22GET [10/"),
            "{text}"
        );
    }

    #[test]
    fn one_writer_follows_the_clock_back_and_forth() {
        let mut writer = Writer::new(Form::Common, 19_800, Vec::new());
        let mut out = Vec::new();
        for secs in [971_186_136u64, 971_186_137, 971_186_136] {
            writer.write(
                &Record {
                    wall_arrived_ns: secs * 1_000_000_000,
                    ..SAMPLE
                },
                &mut out,
            );
        }
        let text = String::from_utf8(out).unwrap();
        let times: Vec<_> = text.lines().map(|line| &line[14..42]).collect();
        assert_eq!(times[0], "[10/Oct/2000:19:25:36 +0530]");
        assert_eq!(times[1], "[10/Oct/2000:19:25:37 +0530]");
        assert_eq!(times[2], times[0]);
    }

    proptest! {
        #[test]
        fn no_request_can_forge_a_line(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 8),
        ) {
            let record = Record {
                peer: &texts[0], user: &texts[1], method: &texts[2], target: &texts[3],
                version: &texts[4], referer: &texts[5], user_agent: &texts[6], cause: &texts[7],
                host: &texts[0], request_line: &texts[1], ..SAMPLE
            };
            let text = line(Form::CombinedPhases, &record);
            prop_assert!(text[..text.len() - 1].bytes().all(|b| (0x20..0x7f).contains(&b)));
            let quotes = text.bytes().filter(|&b| b == b'"').count();
            prop_assert_eq!(quotes, if record.cause.is_empty() { 6 } else { 8 });
            prop_assert_eq!(text.find('[').map(|at| text[..at].matches(' ').count()), Some(3));
            let json = line(Form::Json, &record);
            prop_assert_eq!(json.chars().filter(|c| c.is_control()).count(), 1);
            let plain = json.replace("\\\\", "").replace("\\\"", "");
            prop_assert_eq!(plain.matches('"').count() % 2, 0);
        }
    }
}
