//! The fields of a line, in one table: the order is that of the documentation and of [`Field::all`].

/// Which lines say a field by its name, beside those of a template that names it.
#[derive(Clone, Copy)]
enum NamedIn {
    /// No other.
    Template,
    /// Those of JSON.
    Json,
    /// Those of JSON, and those with `key=value` behind the common log format. Any name counts there that stands here, and
    /// other programs write such pairs too.
    Line,
}

/// What the value of a field looks like, where that says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `[10/Oct/2000:13:55:36 +0000]`
    Bracketed,
    /// `2000-10-10T13:55:36.000123+00:00`
    Iso,
    /// Digits, or `-`.
    Number,
    /// Digits and a point, or `-`.
    Seconds,
}

macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $field:ident, $name:literal, $named:ident, $shape:expr;)+) => {
        /// A field of a line. Where there is nothing to show, a line has `-`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Field {
            $($(#[doc = $doc])+ $field,)+
        }

        impl Field {
            const ALL: &[(Field, &[u8], Option<Shape>)] = &[$((Field::$field, $name, $shape),)+];

            /// The field of a `key=value` behind the common log format.
            #[inline]
            pub(crate) fn behind(key: &[u8]) -> Option<Field> {
                match key {
                    $($name if matches!(NamedIn::$named, NamedIn::Line) => Some(Field::$field),)+
                    _ => None,
                }
            }

            /// The field of a key of a JSON line.
            #[inline]
            pub(crate) fn in_json(key: &[u8]) -> Option<Field> {
                match key {
                    $($name if !matches!(NamedIn::$named, NamedIn::Template) => Some(Field::$field),)+
                    b"time" => Some(Field::TimeIso),
                    _ => None,
                }
            }
        }
    };
}

fields! {
    /// The client's address without port, or `unix:`; masked when the style says so.
    Client, b"client", Json, None;
    /// The address of the connection's other end, as `Client`: where a trusted proxy names the client, the proxy's.
    Peer, b"peer", Json, None;
    /// The authenticated user.
    User, b"user", Json, None;
    /// Arrival as the common log format has it, with brackets.
    Time, b"time", Template, Some(Shape::Bracketed);
    /// Arrival as RFC 3339, with microseconds.
    TimeIso, b"time_iso", Template, Some(Shape::Iso);
    /// Arrival in seconds since 1970 UTC, with microseconds.
    At, b"at", Template, Some(Shape::Seconds);
    /// Method, target and version; the raw first line of a head that could not be parsed.
    Request, b"request", Template, None;
    /// The method.
    Method, b"method", Json, None;
    /// The target as it was received.
    Target, b"target", Json, None;
    /// The target before its first `?`.
    Path, b"path", Template, None;
    /// The target behind its first `?`.
    Query, b"query", Template, None;
    /// The version, for example `HTTP/1.1`.
    Protocol, b"protocol", Json, None;
    /// The status code.
    Status, b"status", Json, Some(Shape::Number);
    /// Bytes of the reply's body that the kernel took.
    Bytes, b"bytes", Json, Some(Shape::Number);
    /// All bytes that the kernel took, heads and framing included.
    Sent, b"sent", Json, Some(Shape::Number);
    /// Bytes of the request, head included.
    RequestBytes, b"request_bytes", Json, Some(Shape::Number);
    /// The Host header.
    Host, b"host", Json, None;
    /// The Referer header.
    Referer, b"referer", Json, None;
    /// The User-Agent header.
    Agent, b"agent", Json, None;
    /// The name of the route.
    Route, b"route", Line, None;
    /// The name of the pool; nothing for an inline reply.
    Pool, b"pool", Line, None;
    /// The number of the driver.
    Driver, b"driver", Json, Some(Shape::Number);
    /// The name of the process.
    Process, b"process", Json, None;
    /// The worker that ran it: process and number.
    Worker, b"worker", Line, None;
    /// The request id.
    Id, b"id", Line, None;
    /// The id of the trace.
    TraceId, b"trace_id", Line, None;
    /// The id of its span in the trace.
    SpanId, b"span_id", Line, None;
    /// Seconds from arrived to queued.
    Receive, b"receive", Line, Some(Shape::Seconds);
    /// Seconds from queued to started.
    Queue, b"queue", Line, Some(Shape::Seconds);
    /// Seconds from started to replied.
    Run, b"run", Line, Some(Shape::Seconds);
    /// Seconds from replied to sent.
    Send, b"send", Line, Some(Shape::Seconds);
    /// Seconds from arrived to sent.
    Total, b"total", Line, Some(Shape::Seconds);
    /// Seconds of `Run` that were a wait for the interpreter.
    Gil, b"gil", Line, Some(Shape::Seconds);
    /// Seconds of `Run` that were processor time.
    Cpu, b"cpu", Line, Some(Shape::Seconds);
    /// Seconds that it had waited before it came here, as a proxy in front says.
    Before, b"before", Line, Some(Shape::Seconds);
    /// How many waited in the pool's queue when it came there.
    Waiting, b"waiting", Line, Some(Shape::Number);
    /// How many threads the pool had then.
    Threads, b"threads", Line, Some(Shape::Number);
    /// How many of them were idle.
    Idle, b"idle", Line, Some(Shape::Number);
    /// Whether it had to wait for a thread: `yes` or `no`.
    Queued, b"queued", Line, None;
    /// The number of its stream, where its connection has many.
    Stream, b"stream", Template, Some(Shape::Number);
    /// Which end reset its stream: `client` or `server`.
    ResetBy, b"reset_by", Template, None;
    /// For which reason, by its number.
    ResetCode, b"reset_code", Template, Some(Shape::Number);
    /// Seconds of `Send` that the client kept the stream's own window shut.
    BlockedStream, b"blocked_stream", Template, Some(Shape::Seconds);
    /// Seconds of `Send` that the stream waited for its connection.
    BlockedConnection, b"blocked_connection", Template, Some(Shape::Seconds);
    /// Messages of the client of a WebSocket connection.
    MessagesIn, b"messages_in", Line, Some(Shape::Number);
    /// Messages of the application of a WebSocket connection.
    MessagesOut, b"messages_out", Line, Some(Shape::Number);
    /// The code that a WebSocket connection has ended with.
    CloseCode, b"close_code", Line, Some(Shape::Number);
    /// Seconds of `Queue` in which the event loop had it.
    Loop, b"loop", Line, Some(Shape::Seconds);
    /// Steps that its task took on the event loop.
    Steps, b"steps", Line, Some(Shape::Number);
    /// Seconds that these steps took.
    Busy, b"busy", Line, Some(Shape::Seconds);
    /// Seconds that the longest of them took.
    Longest, b"longest", Line, Some(Shape::Seconds);
    /// The id of the request that has blocked the event loop while it waited.
    BlockedBy, b"blocked_by", Line, None;
    /// Whether its response is an event stream, which has no end of its own: `yes`.
    EventStream, b"event_stream", Line, None;
    /// The server that has answered it in the place of this one.
    Upstream, b"upstream", Line, None;
    /// How often it was sent to an upstream.
    Attempts, b"attempts", Line, Some(Shape::Number);
    /// Whether a connection to the upstream was there: `yes` or `no`.
    Reused, b"reused", Line, None;
    /// Seconds until the connection to the upstream was there.
    Connect, b"connect", Line, Some(Shape::Seconds);
    /// Seconds until the first byte of the upstream's response.
    Ttfb, b"ttfb", Line, Some(Shape::Seconds);
    /// Seconds that it waited in the upstream's own queue.
    UpstreamQueue, b"upstream_queue", Line, Some(Shape::Seconds);
    /// Seconds that it ran in the upstream.
    UpstreamRun, b"upstream_run", Line, Some(Shape::Seconds);
    /// How it ended, in one word.
    End, b"end", Line, None;
    /// Why it was refused or cut.
    Cause, b"cause", Line, None;
    /// The version of TLS, as `1.3`.
    Tls, b"tls", Template, None;
    /// The cipher of TLS.
    Cipher, b"cipher", Template, None;
    /// Whether an earlier TLS session was resumed: `yes` or `no`.
    Resumed, b"resumed", Template, None;
    /// The name that the client asked for in the TLS handshake.
    ServerName, b"server_name", Template, None;
    /// The protocol that the TLS handshake has agreed on.
    Alpn, b"alpn", Template, None;
    /// Seconds from the accept to the end of the TLS handshake; the first request of a connection has them alone.
    Handshake, b"handshake", Template, None;
}

impl Field {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Field> {
        Field::ALL.iter().map(|(field, _, _)| *field)
    }

    /// Its name, as it stands between braces.
    pub const fn name(self) -> &'static str {
        match std::str::from_utf8(Field::ALL[self as usize].1) {
            Ok(name) => name,
            Err(_) => panic!("names are ASCII"),
        }
    }

    pub(crate) fn named(name: &str) -> Option<Field> {
        Field::all().find(|field| field.name() == name)
    }

    #[inline]
    pub(crate) const fn shape(self) -> Option<Shape> {
        Field::ALL[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_found_by_its_name_alone() {
        for (index, field) in Field::all().enumerate() {
            assert_eq!(Field::named(field.name()), Some(field));
            assert_eq!(
                field as usize,
                index,
                "{}: twice or out of order",
                field.name()
            );
        }
        assert_eq!(Field::named("Peer"), None);
        assert_eq!(Field::named(""), None);
    }
}
