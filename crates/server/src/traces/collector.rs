//! The collector of spans: one request of OTLP over HTTP/1.1 on a connection of its own, in bounded time and with a
//! bounded answer.
//!
//! Blocks its thread. Nothing of an answer but numbers goes further: a collector writes into no log.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::failure::StartFault;
use config::typed::{ServerAddress, TraceExport, UpstreamServer, UpstreamTls};
use http::{Asked, ReplyHead, ReplyHeadStep};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Longest wait that a collector may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Where messages are sent.
pub(super) struct Collector {
    server: UpstreamServer,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Request line and fields, without the length of the body.
    head: Vec<u8>,
    /// Its URL, for people.
    pub(super) url: String,
}

/// What became of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ExportOutcome {
    /// The collector has it, but for so many spans, which it refuses.
    Taken { rejected: u64 },
    /// It may be sent again, at the earliest after this time, if the collector said one.
    Again {
        cause: String,
        after: Option<Duration>,
    },
    /// The collector does not want it.
    Refused { cause: String },
}

/// A stream on which nothing takes longer than until its deadline.
struct BoundedStream<S> {
    stream: S,
    deadline: Instant,
}

trait Socket: Read + Write {
    fn set_timeout(&self, left: Duration) -> io::Result<()>;
}

impl Collector {
    /// # Errors
    /// The authorities of its certificate cannot be read, or its name can have no certificate.
    pub(super) fn open(export: &TraceExport) -> Result<Self, StartFault> {
        let address = &export.server.address;
        let fault = |cause: String| StartFault::new("traces", cause);
        let tls = match (export.server.has_tls, address) {
            (true, ServerAddress::Tcp { host, .. }) => {
                let settings = UpstreamTls {
                    ca: export.ca.clone(),
                    ..UpstreamTls::default()
                };
                let config = ::tls::client_config(&settings, "http/1.1");
                let config = config.map_err(|error| fault(error.to_string()))?;
                let name = ServerName::try_from(host.clone());
                let name =
                    name.map_err(|_| fault(format!("a certificate cannot be for `{address}`")))?;
                Some((config, name))
            }
            _ => None,
        };
        let host = match address {
            ServerAddress::Unix(_) => "localhost".to_owned(),
            tcp @ ServerAddress::Tcp { .. } => tcp.to_string(),
        };
        let scheme = if export.server.has_tls {
            "https"
        } else {
            "http"
        };
        let url = match address {
            ServerAddress::Unix(_) => address.to_string(),
            ServerAddress::Tcp { .. } => format!("{scheme}://{address}{}", export.path),
        };
        Ok(Self {
            server: export.server.clone(),
            tls,
            head: head(export, &host),
            url,
        })
    }

    /// Sends a message and hears what the collector says, in `time` at most.
    pub(super) fn send(&self, message: &[u8], time: Duration) -> ExportOutcome {
        let deadline = Instant::now() + time;
        let answered = match &self.server.address {
            ServerAddress::Unix(path) => connect_unix(path)
                .and_then(|stream| self.ask(BoundedStream { stream, deadline }, message)),
            ServerAddress::Tcp { host, port } => {
                connect(host, *port, deadline).and_then(|stream| {
                    let stream = BoundedStream { stream, deadline };
                    match &self.tls {
                        None => self.ask(stream, message),
                        Some((config, name)) => {
                            let session = ClientConnection::new(Arc::clone(config), name.clone());
                            let session = session.map_err(io::Error::other)?;
                            self.ask(StreamOwned::new(session, stream), message)
                        }
                    }
                })
            }
        };
        match answered {
            Ok(sent) => sent,
            Err(error) => ExportOutcome::Again {
                cause: cause(&error),
                after: None,
            },
        }
    }

    fn ask(&self, mut stream: impl Read + Write, message: &[u8]) -> io::Result<ExportOutcome> {
        let mut request = self.head.clone();
        let length = message.len();
        write!(request, "Content-Length: {length}\r\n\r\n")?;
        request.extend_from_slice(message);
        stream.write_all(&request)?;
        stream.flush()?;
        let mut answer = Vec::new();
        let head = loop {
            if let Some(head) = whole_head(&answer)? {
                break head;
            }
            if more(&mut stream, &mut answer)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        // What it says of single spans is worth a look, and no reason to fail.
        if head.status == 200 {
            while serde_json::from_slice::<serde_json::Value>(&answer[head.bytes..]).is_err() {
                if !matches!(more(&mut stream, &mut answer), Ok(1..)) {
                    break;
                }
            }
        }
        let (head_text, body) = answer.split_at(head.bytes);
        Ok(outcome(head.status, head_text, body))
    }
}

/// Does not wait: a collector whose queue of connections is full is asked again later.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| match error {
        Errno::AGAIN => io::Error::other("its queue of connections is full"),
        error => error.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A request's line and its fields, without the length of its body. Which values can be headers is checked with the settings.
fn head(export: &TraceExport, host: &str) -> Vec<u8> {
    let mut fields = http::FieldLines::new();
    fields.push(b"Host", host.as_bytes());
    let agent = concat!("milepost/", env!("CARGO_PKG_VERSION"));
    fields.push(b"User-Agent", agent.as_bytes());
    fields.push(b"Content-Type", b"application/json");
    fields.push(b"Connection", b"close");
    for (name, value) in &export.headers {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    let mut head = format!("POST {} HTTP/1.1\r\n", export.path).into_bytes();
    head.extend_from_slice(fields.as_bytes());
    head
}

fn whole_head(answer: &[u8]) -> io::Result<Option<ReplyHead>> {
    match ReplyHead::parse(answer, Asked::Other) {
        Ok(ReplyHeadStep::Complete(head)) => Ok(Some(head)),
        Ok(ReplyHeadStep::Partial) if answer.len() < ANSWER_BYTES_MAX => Ok(None),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer is no HTTP",
        )),
    }
}

/// Reads what is there, as far as the bound; gives how much.
fn more(stream: &mut impl Read, answer: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 4096];
    let room = (ANSWER_BYTES_MAX - answer.len()).min(piece.len());
    let read = stream.read(&mut piece[..room])?;
    answer.extend_from_slice(&piece[..read]);
    Ok(read)
}

/// OTLP specification, OTLP/HTTP response: which statuses may be tried again.
fn outcome(status: u16, head: &[u8], body: &[u8]) -> ExportOutcome {
    let cause = format!("it answers {status}");
    match status {
        200..300 => ExportOutcome::Taken {
            rejected: rejected(body),
        },
        429 | 502..=504 => ExportOutcome::Again {
            cause,
            after: retry_after(head),
        },
        _ => ExportOutcome::Refused { cause },
    }
}

/// Spans that a collector refuses of a message that it has taken (`partialSuccess`).
fn rejected(body: &[u8]) -> u64 {
    let answer: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let number = answer
        .as_ref()
        .and_then(|answer| answer.get("partialSuccess")?.get("rejectedSpans"));
    let number = number.and_then(|number| match number {
        // A 64-bit number is a text in protobuf's JSON.
        serde_json::Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    });
    number.unwrap_or_default()
}

/// Seconds only: a date would need the clocks of both to agree.
fn retry_after(head: &[u8]) -> Option<Duration> {
    let text = String::from_utf8_lossy(head);
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))?;
    let after = Duration::from_secs(value.trim().parse().ok()?);
    Some(after.min(RETRY_AFTER_MAX))
}

fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer in time".into(),
        io::ErrorKind::UnexpectedEof => "it closes the connection without an answer".into(),
        _ => config::failure::plain(error),
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

impl Socket for TcpStream {
    fn set_timeout(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Socket for UnixStream {
    fn set_timeout(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl<S: Socket> Read for BoundedStream<S> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        // Anew before each step: a collector that sends a byte now and then gains nothing.
        self.stream.set_timeout(left(self.deadline)?)?;
        self.stream.read(piece)
    }
}

impl<S: Socket> Write for BoundedStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_timeout(left(self.deadline)?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_say_whether_a_message_is_sent_again() {
        let again = |after: Option<u64>| ExportOutcome::Again {
            cause: String::new(),
            after: after.map(Duration::from_secs),
        };
        let refused = ExportOutcome::Refused {
            cause: String::new(),
        };
        let check = |status: u16, head: &str, expect: &ExportOutcome| {
            let found = match outcome(status, head.as_bytes(), b"") {
                ExportOutcome::Again { after, .. } => ExportOutcome::Again {
                    cause: String::new(),
                    after,
                },
                ExportOutcome::Refused { .. } => refused.clone(),
                taken @ ExportOutcome::Taken { .. } => taken,
            };
            assert_eq!(&found, expect, "{status} {head}");
        };
        for status in [200, 202] {
            check(status, "", &ExportOutcome::Taken { rejected: 0 });
        }
        for status in [429, 502, 503, 504] {
            check(status, "", &again(None));
        }
        check(
            503,
            "HTTP/1.1 503 x\r\nretry-After: 7\r\n\r\n",
            &again(Some(7)),
        );
        check(
            503,
            "HTTP/1.1 503 x\r\nRetry-After: 999\r\n\r\n",
            &again(Some(60)),
        );
        check(
            503,
            "HTTP/1.1 503 x\r\nRetry-After: soon\r\n\r\n",
            &again(None),
        );
        for status in [301, 400, 401, 404, 500] {
            check(status, "", &refused);
        }
    }

    #[test]
    fn spans_that_are_refused_are_counted() {
        let check = |body: &str, expect: u64| {
            assert_eq!(rejected(body.as_bytes()), expect, "{body}");
        };
        check(r#"{"partialSuccess":{"rejectedSpans":"3"}}"#, 3);
        check(r#"{"partialSuccess":{"rejectedSpans":3}}"#, 3);
        check(r#"{"partialSuccess":{}}"#, 0);
        check(r#"{"partialSuccess":{"rejectedSpans":-1}}"#, 0);
        check("nonsense", 0);
        check("", 0);
    }
}
