//! The formats of other servers by name: `nginx:request_time`, `gunicorn:L`, `uwsgi`, `caddy`.
//!
//! Takes a name, gives a form and a sentence about its durations. nginx, gunicorn and Apache write the common or
//! combined format and then what their operator appended: the named values stand at the end of the line, in this
//! order, each in quotes or not, with `name=` before it or not.

use super::common;
use super::cursor::quoted;
use super::date::DateReader;
use super::foreign::{ForeignField, Unit};
use super::json::{self, ProxyKey};
use super::{Line, LineForm, known};
use crate::Field;

/// The names, for help.
pub(super) const NAMES: &str = "nginx:request_time, nginx:upstream_response_time or both with a comma, gunicorn:L, \
    gunicorn:M, gunicorn:D, apache:D, apache:T, uwsgi, uwsgi:micros, caddy, traefik";

/// A server, its variables, and what its durations are.
type Server = (
    &'static str,
    &'static [(&'static str, ForeignField)],
    &'static str,
);

const SERVERS: [Server; 3] = [
    (
        "nginx",
        &[
            ("request_time", ForeignField::of(Field::Total)),
            ("upstream_response_time", ForeignField::of(Field::Run)),
            ("upstream_header_time", ForeignField::SKIPPED),
            ("upstream_connect_time", ForeignField::SKIPPED),
            ("upstream_addr", ForeignField::SKIPPED),
            ("upstream_status", ForeignField::SKIPPED),
            ("http_x_forwarded_for", ForeignField::SKIPPED),
            ("request_length", ForeignField::of(Field::RequestBytes)),
            ("request_id", ForeignField::of(Field::Id)),
            ("host", ForeignField::of(Field::Host)),
            ("msec", ForeignField::new(Field::At, Unit::End)),
        ],
        "`run` is nginx's upstream_response_time and `total` its request_time: both contain the wait for a thread of the \
         server behind nginx, and request_time the client's network",
    ),
    (
        "gunicorn",
        &[
            ("L", ForeignField::of(Field::Run)),
            ("M", ForeignField::new(Field::Run, Unit::Millis)),
            ("D", ForeignField::new(Field::Run, Unit::Micros)),
        ],
        "gunicorn's time begins when a worker takes the request: the wait before that is in no log",
    ),
    (
        "apache",
        &[
            ("D", ForeignField::new(Field::Total, Unit::Micros)),
            ("T", ForeignField::of(Field::Total)),
            ("{us}T", ForeignField::new(Field::Total, Unit::Micros)),
            ("{ms}T", ForeignField::new(Field::Total, Unit::Millis)),
            ("I", ForeignField::of(Field::RequestBytes)),
            ("O", ForeignField::of(Field::Sent)),
        ],
        "Apache's time is the whole request: it contains the wait for a thread of mod_wsgi, and the client's network",
    ),
];

const UWSGI: [(&str, &str); 2] = [
    (
        "uwsgi",
        "[pid: {-}|app: {-}|req: {-}] {peer} ({user}) {{{-}}} [{time:ctime}] {method} {target} => generated {bytes} \
         bytes in {run:ms} msecs ({protocol} {status}) {-}",
    ),
    (
        "uwsgi:micros",
        "[pid: {-}|app: {-}|req: {-}] {peer} ({user}) {{{-}}} [{time:ctime}] {method} {target} => generated {bytes} \
         bytes in {run:us} micros ({protocol} {status}) {-}",
    ),
];
const UWSGI_NOTE: &str =
    "uWSGI's time begins when a process takes the request: the wait before that is in no log";

const CADDY: [ProxyKey; 10] = [
    ("", "ts", ForeignField::new(Field::At, Unit::End)),
    ("", "duration", ForeignField::of(Field::Total)),
    ("", "status", ForeignField::of(Field::Status)),
    ("", "size", ForeignField::of(Field::Bytes)),
    ("", "user_id", ForeignField::of(Field::User)),
    ("request", "remote_ip", ForeignField::of(Field::Peer)),
    ("request", "method", ForeignField::of(Field::Method)),
    ("request", "uri", ForeignField::of(Field::Target)),
    ("request", "host", ForeignField::of(Field::Host)),
    ("request", "proto", ForeignField::of(Field::Protocol)),
];

const TRAEFIK: [ProxyKey; 11] = [
    ("", "StartUTC", ForeignField::of(Field::TimeIso)),
    ("", "Duration", ForeignField::new(Field::Total, Unit::Nanos)),
    (
        "",
        "OriginDuration",
        ForeignField::new(Field::Run, Unit::Nanos),
    ),
    ("", "DownstreamStatus", ForeignField::of(Field::Status)),
    ("", "DownstreamContentSize", ForeignField::of(Field::Bytes)),
    ("", "ClientHost", ForeignField::of(Field::Peer)),
    ("", "RequestMethod", ForeignField::of(Field::Method)),
    ("", "RequestPath", ForeignField::of(Field::Target)),
    ("", "RequestHost", ForeignField::of(Field::Host)),
    ("", "RequestProtocol", ForeignField::of(Field::Protocol)),
    ("", "RouterName", ForeignField::of(Field::Route)),
];
const PROXY_NOTE: &str = "the proxy's times contain the wait for a thread of the server behind it";

/// Values behind the common log format that are looked at.
const VALUES_LEN_MAX: usize = 8;

/// A named format that is no template.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// The common or combined format, and these values at the end of the line.
    Appended(Vec<ForeignField>),
    /// JSON.
    Json(&'static [ProxyKey]),
}

/// The template of a named format that has one, and what its durations are.
pub(super) fn template(name: &str) -> Option<(&'static str, &'static str)> {
    let found = UWSGI.iter().find(|(known, _)| *known == name);
    found.map(|(_, template)| (*template, UWSGI_NOTE))
}

/// A line of Caddy or Traefik, whose keys tell them from all others.
pub(super) fn proxy_line<'a>(bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
    let caddy = json::proxy(bytes, &CADDY, date);
    caddy.or_else(|| json::proxy(bytes, &TRAEFIK, date))
}

impl Named {
    /// The format of a name, and what its durations are.
    pub(super) fn parse(text: &str) -> Result<(Named, &'static str), String> {
        match text {
            "caddy" => return Ok((Named::Json(&CADDY), PROXY_NOTE)),
            "traefik" => return Ok((Named::Json(&TRAEFIK), PROXY_NOTE)),
            _ => {}
        }
        let unknown =
            || format!("expected a template with `{{field}}`s or one of {NAMES}, found `{text}`");
        let (name, list) = text.split_once(':').ok_or_else(unknown)?;
        let server = SERVERS.iter().find(|(known, ..)| *known == name);
        let (_, variables, note) = server.ok_or_else(unknown)?;
        let mut slots = Vec::new();
        for wanted in list.split(',') {
            // As it stands in that server's configuration.
            let wanted = wanted.trim().trim_start_matches(['$', '%']);
            let found = variables.iter().find(|(known, _)| *known == wanted);
            let (_, slot) = found.ok_or_else(|| {
                let names: Vec<&str> = variables.iter().map(|(known, _)| *known).collect();
                format!(
                    "expected of {name} any of {}, found `{wanted}`",
                    names.join(", ")
                )
            })?;
            slots.push(*slot);
        }
        if slots.len() > VALUES_LEN_MAX {
            return Err(format!(
                "expected up to {VALUES_LEN_MAX} values, found {}",
                slots.len()
            ));
        }
        Ok((Named::Appended(slots), note))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = ForeignField> {
        let (slots, keys): (&[ForeignField], &[ProxyKey]) = match self {
            Named::Appended(slots) => (slots, &[]),
            Named::Json(keys) => (&[], keys),
        };
        slots
            .iter()
            .copied()
            .chain(keys.iter().map(|(_, _, slot)| *slot))
    }

    pub(super) fn line<'a>(&self, bytes: &'a [u8], date: &mut DateReader) -> Option<Line<'a>> {
        match self {
            Named::Appended(slots) => appended(slots, bytes, date),
            Named::Json(keys) => json::proxy(bytes, keys, date),
        }
    }
}

fn appended<'a>(
    slots: &[ForeignField],
    bytes: &'a [u8],
    date: &mut DateReader,
) -> Option<Line<'a>> {
    let (mut line, rest) = common::head(bytes, date)?;
    line.form = LineForm::Template;
    // The last values alone count: what an operator has before them is his own.
    let mut last = [&b""[..]; VALUES_LEN_MAX];
    let mut len = 0;
    let mut rest = rest.trim_ascii_start();
    while !rest.is_empty() {
        let value;
        (value, rest) = appended_value(rest)?;
        match len {
            0 if value.is_quoted => line.referer = known(value.text),
            1 if value.is_quoted && !line.referer.is_empty() => line.user_agent = known(value.text),
            _ => {}
        }
        last.rotate_left(1);
        last[VALUES_LEN_MAX - 1] = value.text;
        len += 1;
    }
    if len < slots.len() {
        return None;
    }
    for (slot, value) in slots.iter().zip(&last[VALUES_LEN_MAX - slots.len()..]) {
        slot.put(&mut line, value, date)?;
    }
    // The time that is known stands for the whole.
    line.spans.total = line.spans.total.or(line.spans.run);
    if slots.iter().any(|slot| slot.unit == Unit::End) {
        let total = line.spans.total.unwrap_or_default();
        line.wall_ns = line.wall_ns.map(|end| end.saturating_sub(total.0));
    }
    Some(line)
}

/// A value as it stands behind the common log format.
struct AppendedValue<'a> {
    text: &'a [u8],
    is_quoted: bool,
}

/// The first value, and what follows it: `"text"`, `word`, `name=word`, `name="text"`; `0.003, 0.010` is one.
fn appended_value(text: &[u8]) -> Option<(AppendedValue<'_>, &[u8])> {
    let end = text
        .iter()
        .position(|byte| matches!(byte, b' ' | b'"' | b'='));
    let named = match end {
        Some(at) if text[at] == b'=' && at > 0 => &text[at + 1..],
        _ => text,
    };
    if let Some(inner) = named.strip_prefix(b"\"") {
        let (text, rest) = quoted(inner)?;
        let is_quoted = true;
        return Some((AppendedValue { text, is_quoted }, rest.trim_ascii_start()));
    }
    let mut end = 0;
    loop {
        let rest = &named[end..];
        end += rest
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or(rest.len());
        // nginx lists the times of several upstreams.
        match &named[end..] {
            [b' ', ..] if named[..end].ends_with(b",") => end += 1,
            [b' ', b':', b' ', ..] => end += 3,
            _ => break,
        }
    }
    let (text, rest) = named.split_at(end);
    let is_quoted = false;
    Some((AppendedValue { text, is_quoted }, rest.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nanos, Pattern, Reader};

    const HEAD: &str =
        r#"192.0.2.7 - bob [10/Oct/2000:13:55:36 +0000] "GET /x?a=1 HTTP/1.1" 200 2326"#;
    /// 2000-10-10T13:55:36Z
    const AT_NS: u64 = 971_186_136_000_000_000;

    /// Total and run in microseconds of a line in which `+` stands for the common log format.
    fn read(format: &str, line: &str) -> Option<(Option<u64>, Option<u64>)> {
        let text = line.replacen('+', HEAD, 1);
        let mut reader = Reader::new(Some(Pattern::parse(format).expect(format)));
        let line = reader.line(text.as_bytes())?;
        assert_eq!(
            (line.target, line.status),
            (&b"/x?a=1"[..], Some(200)),
            "{text}"
        );
        assert_eq!(
            line.wall_ns.map(|ns| ns / 1_000_000_000),
            Some(AT_NS / 1_000_000_000)
        );
        let us = |span: Option<Nanos>| span.map(|span| span.0 / 1_000);
        matches!(line.form, LineForm::Template | LineForm::ProxyJson)
            .then(|| (us(line.spans.total), us(line.spans.run)))
    }

    #[test]
    fn reads_what_others_append() {
        let both = "nginx:request_time,upstream_response_time";
        for (format, line, total, run) in [
            (
                "nginx:request_time",
                r#"+ "-" "agent" 0.123"#,
                Some(123_000),
                None,
            ),
            (
                "nginx:$request_time",
                r#"+ "-" "agent" "203.0.113.9, 10.0.0.1" rt=0.123"#,
                Some(123_000),
                None,
            ),
            (
                both,
                r#"+ "-" "agent" 0.123 0.120"#,
                Some(123_000),
                Some(120_000),
            ),
            (
                both,
                r#"+ "-" "a" rt="0.123" urt="0.003, 0.010 : 0.100""#,
                Some(123_000),
                Some(113_000),
            ),
            (
                both,
                r#"+ "-" "a" 0.123 0.003, 0.010 : 0.100"#,
                Some(123_000),
                Some(113_000),
            ),
            (both, r#"+ "-" "agent" 0.000 -"#, Some(0), None),
            (
                "nginx:upstream_response_time",
                r#"+ "-" "agent" 0.120"#,
                Some(120_000),
                Some(120_000),
            ),
            (
                "gunicorn:L",
                r#"+ "-" "curl/8" 0.012345"#,
                Some(12_345),
                Some(12_345),
            ),
            (
                "gunicorn:M",
                r#"+ "-" "curl/8" 12"#,
                Some(12_000),
                Some(12_000),
            ),
            (
                "gunicorn:%D",
                r#"+ "-" "curl/8" 12345"#,
                Some(12_345),
                Some(12_345),
            ),
            ("apache:D", "+ 12345", Some(12_345), None),
            ("apache:%{ms}T", r#"+ "-" "agent" 12"#, Some(12_000), None),
        ] {
            assert_eq!(read(format, line), Some((total, run)), "{format}: {line}");
        }
        for (format, line) in [
            ("nginx:request_time", "+"),
            ("nginx:request_time", r#"+ "-" "agent""#),
            ("gunicorn:D", r#"+ "-" "agent" 0.5"#),
        ] {
            assert_eq!(read(format, line), None, "{format}: {line}");
        }
    }

    #[test]
    fn reads_the_default_line_of_uwsgi() {
        let line = |time: &str| {
            format!(
                "[pid: 4711|app: 0|req: 17/33] 192.0.2.7 () {{28 vars in 320 bytes}} [Tue Oct 10 13:55:36 2000] \
                 GET /x?a=1 => generated 12 bytes in {time} (HTTP/1.1 200) 1 headers in 44 bytes (1 switches on core 0)"
            )
        };
        assert_eq!(read("uwsgi", &line("3 msecs")), Some((None, Some(3_000))));
        assert_eq!(
            read("uwsgi:micros", &line("3123 micros")),
            Some((None, Some(3_123)))
        );
        assert_eq!(read("uwsgi", &line("3123 micros")), None);
    }

    #[test]
    fn reads_json_of_caddy_and_traefik() {
        // The shapes are those of their documentation.
        let caddy = r#"{"level":"info","ts":971186136.5,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.7","remote_port":"5","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/x?a=1","headers":{"User-Agent":["curl/7.82.0"]},"tls":{"resumed":false,"version":772}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;
        let traefik = r#"{"ClientAddr":"192.0.2.7:5","ClientHost":"192.0.2.7","ClientUsername":"-","DownstreamContentSize":12,"DownstreamStatus":200,"Duration":1234567,"OriginDuration":1200000,"OriginStatus":200,"Overhead":34567,"RequestHost":"shop.example","RequestMethod":"GET","RequestPath":"/x?a=1","RequestProtocol":"HTTP/1.1","RouterName":"shop@docker","StartUTC":"2000-10-10T13:55:36.000123456Z","level":"info","msg":"","time":"2000-10-10T13:55:36Z"}"#;
        let expect = Some((Some(929), None));
        assert_eq!(read("caddy", caddy), expect);
        assert_eq!(read("traefik", traefik), Some((Some(1_234), Some(1_200))));
        // Without a name, too.
        let mut reader = Reader::default();
        let line = reader.line(caddy.as_bytes()).unwrap();
        assert_eq!(line.wall_ns, Some(AT_NS + 500_000_000 - 929_675));
        assert_eq!(
            (line.peer, line.method, line.form),
            (&b"192.0.2.7"[..], &b"GET"[..], LineForm::ProxyJson)
        );
        let line = reader.line(traefik.as_bytes()).unwrap();
        assert_eq!(
            (line.wall_ns, line.route),
            (Some(AT_NS + 123_456), &b"shop@docker"[..])
        );
        for other in [
            r#"{"ts":1.5,"level":"info"}"#,
            r#"{"ts":1.5,"duration":"1s"}"#,
            "{",
        ] {
            assert_eq!(reader.line(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn templates_have_units_and_brackets_of_their_own() {
        let form = r#"{peer} - {user} [{time}] "{request}" {status} {bytes} "{referer}" "{agent}" {total:us}"#;
        assert_eq!(
            read(form, r#"+ "-" "agent" 12345"#),
            Some((Some(12_345), None))
        );
        let form = r#"{peer} {-} {user} {time} "{request}" {status} {bytes} {-} {total}"#;
        assert_eq!(read(form, "+ whatever 0.5"), Some((Some(500_000), None)));
    }

    #[test]
    fn says_which_names_there_are() {
        for (text, expect) in [
            ("ngnix:request_time", "or one of nginx:request_time, "),
            ("combined", "expected a template with `{field}`s or one of"),
            (
                "nginx:rt",
                "expected of nginx any of request_time, upstream_response_time,",
            ),
            ("{peer} {total:h}", "there is no field `total:h`"),
            ("{peer}{status}", "nothing between `{peer}` and `{status}`"),
        ] {
            let fault = Pattern::parse(text).unwrap_err().to_string();
            assert!(fault.contains(expect), "{text}: {fault}");
        }
    }
}
