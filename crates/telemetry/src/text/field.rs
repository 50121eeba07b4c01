//! The fields that a template can name.
//!
//! One table: the order here is that of the documentation and of [`Field::all`].

/// A field of a line. Where there is nothing to show, a line has `-`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The client's address without port, or `unix:`; masked when the style says so.
    Client,
    /// The address of the connection's other end, as `Client`: where a trusted proxy names the client, the proxy's.
    Peer,
    /// The authenticated user.
    User,
    /// Arrival as the common log format has it, with brackets.
    Time,
    /// Arrival as RFC 3339, with microseconds.
    TimeIso,
    /// Arrival in seconds since 1970 UTC, with microseconds.
    At,
    /// Method, target and version; the raw first line of a head that could not be parsed.
    Request,
    /// The method.
    Method,
    /// The target as it was received.
    Target,
    /// The target before its first `?`.
    Path,
    /// The target behind its first `?`.
    Query,
    /// The version, for example `HTTP/1.1`.
    Protocol,
    /// The status code.
    Status,
    /// Bytes of the reply's body that the kernel took.
    Bytes,
    /// All bytes that the kernel took, heads and framing included.
    Sent,
    /// Bytes of the request, head included.
    RequestBytes,
    /// The Host header.
    Host,
    /// The Referer header.
    Referer,
    /// The User-Agent header.
    Agent,
    /// The name of the route.
    Route,
    /// The name of the pool; nothing for an inline reply.
    Pool,
    /// The number of the driver.
    Driver,
    /// The name of the process.
    Process,
    /// The worker that ran it: process and number.
    Worker,
    /// The request id.
    Id,
    /// The id of the trace.
    TraceId,
    /// The id of its span in the trace.
    SpanId,
    /// Seconds from arrived to queued.
    Receive,
    /// Seconds from queued to started.
    Queue,
    /// Seconds from started to replied.
    Run,
    /// Seconds from replied to sent.
    Send,
    /// Seconds from arrived to sent.
    Total,
    /// Seconds of `Run` that were a wait for the interpreter.
    Gil,
    /// Seconds of `Run` that were processor time.
    Cpu,
    /// Seconds that it had waited before it came here, as a proxy in front says.
    Before,
    /// How many waited in the pool's queue when it came there.
    Waiting,
    /// How many threads the pool had then.
    Threads,
    /// How many of them were idle.
    Idle,
    /// Whether it had to wait for a thread: `yes` or `no`.
    Queued,
    /// The number of its stream, where its connection has many.
    Stream,
    /// Which end reset its stream: `client` or `server`.
    ResetBy,
    /// For which reason, by its number.
    ResetCode,
    /// Seconds of `Send` that the client kept the stream's own window shut.
    BlockedStream,
    /// Seconds of `Send` that the stream waited for its connection.
    BlockedConnection,
    /// Messages of the client of a WebSocket connection.
    MessagesIn,
    /// Messages of the application of a WebSocket connection.
    MessagesOut,
    /// The code that a WebSocket connection has ended with.
    CloseCode,
    /// Seconds of `Queue` in which the event loop had it.
    Loop,
    /// Steps that its task took on the event loop.
    Steps,
    /// Seconds that these steps took.
    Busy,
    /// Seconds that the longest of them took.
    Longest,
    /// The id of the request that has blocked the event loop while it waited.
    BlockedBy,
    /// Whether its response is an event stream, which has no end of its own: `yes`.
    EventStream,
    /// The server that has answered it in the place of this one.
    Upstream,
    /// How often it was sent to an upstream.
    Attempts,
    /// Whether a connection to the upstream was there: `yes` or `no`.
    Reused,
    /// Seconds until the connection to the upstream was there.
    Connect,
    /// Seconds until the first byte of the upstream's response.
    Ttfb,
    /// Seconds that it waited in the upstream's own queue.
    UpstreamQueue,
    /// Seconds that it ran in the upstream.
    UpstreamRun,
    /// How it ended, in one word.
    End,
    /// Why it was refused or cut.
    Cause,
    /// The version of TLS, as `1.3`.
    Tls,
    /// The cipher of TLS.
    Cipher,
    /// Whether an earlier TLS session was resumed: `yes` or `no`.
    Resumed,
    /// The name that the client asked for in the TLS handshake.
    ServerName,
    /// The protocol that the TLS handshake has agreed on.
    Alpn,
    /// Seconds from the accept to the end of the TLS handshake; the first request of a connection has them alone.
    Handshake,
}

/// All of them with their names, in the order of the fields.
const NAMED: [(Field, &str); 68] = [
    (Field::Client, "client"),
    (Field::Peer, "peer"),
    (Field::User, "user"),
    (Field::Time, "time"),
    (Field::TimeIso, "time_iso"),
    (Field::At, "at"),
    (Field::Request, "request"),
    (Field::Method, "method"),
    (Field::Target, "target"),
    (Field::Path, "path"),
    (Field::Query, "query"),
    (Field::Protocol, "protocol"),
    (Field::Status, "status"),
    (Field::Bytes, "bytes"),
    (Field::Sent, "sent"),
    (Field::RequestBytes, "request_bytes"),
    (Field::Host, "host"),
    (Field::Referer, "referer"),
    (Field::Agent, "agent"),
    (Field::Route, "route"),
    (Field::Pool, "pool"),
    (Field::Driver, "driver"),
    (Field::Process, "process"),
    (Field::Worker, "worker"),
    (Field::Id, "id"),
    (Field::TraceId, "trace_id"),
    (Field::SpanId, "span_id"),
    (Field::Receive, "receive"),
    (Field::Queue, "queue"),
    (Field::Run, "run"),
    (Field::Send, "send"),
    (Field::Total, "total"),
    (Field::Gil, "gil"),
    (Field::Cpu, "cpu"),
    (Field::Before, "before"),
    (Field::Waiting, "waiting"),
    (Field::Threads, "threads"),
    (Field::Idle, "idle"),
    (Field::Queued, "queued"),
    (Field::Stream, "stream"),
    (Field::ResetBy, "reset_by"),
    (Field::ResetCode, "reset_code"),
    (Field::BlockedStream, "blocked_stream"),
    (Field::BlockedConnection, "blocked_connection"),
    (Field::MessagesIn, "messages_in"),
    (Field::MessagesOut, "messages_out"),
    (Field::CloseCode, "close_code"),
    (Field::Loop, "loop"),
    (Field::Steps, "steps"),
    (Field::Busy, "busy"),
    (Field::Longest, "longest"),
    (Field::BlockedBy, "blocked_by"),
    (Field::EventStream, "event_stream"),
    (Field::Upstream, "upstream"),
    (Field::Attempts, "attempts"),
    (Field::Reused, "reused"),
    (Field::Connect, "connect"),
    (Field::Ttfb, "ttfb"),
    (Field::UpstreamQueue, "upstream_queue"),
    (Field::UpstreamRun, "upstream_run"),
    (Field::End, "end"),
    (Field::Cause, "cause"),
    (Field::Tls, "tls"),
    (Field::Cipher, "cipher"),
    (Field::Resumed, "resumed"),
    (Field::ServerName, "server_name"),
    (Field::Alpn, "alpn"),
    (Field::Handshake, "handshake"),
];

impl Field {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Field> {
        NAMED.into_iter().map(|(field, _)| field)
    }

    /// Its name, as it stands between braces.
    pub const fn name(self) -> &'static str {
        NAMED[self as usize].1
    }

    pub(crate) fn named(name: &str) -> Option<Field> {
        Field::all().find(|field| field.name() == name)
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
