//! The head of a request to an upstream, written from the parsed head of the client's request.
//!
//! Takes the client's head, what a route changes in it, what is known of the client, and how the body is framed;
//! appends one head of HTTP/1.1. First falls what ends at the client's connection, then comes what this server says
//! itself, so that `Connection: X-Forwarded-For` takes only the client's own field away. It must not decide which
//! peers are trusted, nor allocate anything but room in its output.

use std::fmt;

use super::connection_options::{ConnectionOptions, TooManyOptions};
use super::upgrade::WantedUpgrade;
use crate::fields::{Marks, is_dashed_name, is_field_name, is_field_value, is_host};
use crate::head::{BodyFraming, HeadView, Method, check_target_bytes};
use crate::reply_head::elements;
use crate::response::{InvalidField, LINE_END, push_line, write_chunked, write_content_length};

/// Room for what is written beside the client's own fields.
const OWN_BYTES: usize = 384;

/// A unix socket in the place of an address.
const UNIX: &[u8] = b"unix:";

/// All that the head of a request to an upstream is made of.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamRequest<'a> {
    /// The client's head; complete.
    pub head: HeadView<'a>,
    /// A method in the place of the head's.
    pub method: Option<&'a [u8]>,
    /// A target in the place of the head's, in origin form. `None`: that of the head, an absolute one reduced to its
    /// path and query.
    pub rewritten: Option<&'a [u8]>,
    /// What Host says.
    pub host: HostField<'a>,
    /// How the body is framed, whatever the client's framing was. `Length(0)` is said, `None` is not.
    pub framing: BodyFraming,
    /// What is said of the client.
    pub forwarding: ForwardingFields<'a>,
    /// Fields that are set: those of the same name in the client's head fall, and so does a forwarding field of ours.
    pub set: &'a [(&'a [u8], &'a [u8])],
    /// Names of fields of the client that fall.
    pub removed: &'a [&'a [u8]],
    /// The protocol that the client wants to change to, where the upstream is to be asked for that.
    pub upgrade: Option<&'a WantedUpgrade>,
}

/// What Host says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostField<'a> {
    /// The authority that the client has asked for; `otherwise` where it named none, which HTTP/1.0 allows.
    Client {
        /// Host and port of the upstream.
        otherwise: &'a [u8],
    },
    /// Host and port of the upstream.
    Upstream(&'a [u8]),
}

/// What an upstream is told of the client in `X-Forwarded-*`; what is empty is not said. `Forwarded` (RFC 7239) and
/// `X-Real-IP` of the client's head always fall: of two fields that say the same, a client could forge the one that
/// this server does not write.
#[derive(Clone, Copy, Debug)]
pub struct ForwardingFields<'a> {
    /// What `X-Forwarded-For` begins with.
    pub chain: ForwardingChain,
    /// Address of the client without port.
    pub client: &'a [u8],
    /// Address of the connection's other end without port: the client's, or that of a trusted proxy; `unix:` is no
    /// address and not said.
    pub peer: &'a [u8],
    /// `http` or `https`, as the client sees it.
    pub scheme: &'a [u8],
    /// The host that the client has asked for, with a port where it named one.
    pub host: &'a [u8],
    /// The path below which the client sees what the upstream serves.
    pub prefix: &'a [u8],
}

/// What `X-Forwarded-For` begins with; the peer's address ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardingChain {
    /// The client's address, where it is not the peer's. Whatever the head has falls.
    Replaced,
    /// The entries of the head, which a trusted proxy has written; the client's address where it has none.
    Appended,
}

/// Why no request can be made of these parts. A field is a fault of the configuration or of the server; a client causes the
/// others: the first two toward HTTP/2, where targets and hosts are narrower than a client may send them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestFault {
    /// The target is not in origin form, or is too long.
    Target,
    /// No valid host is known.
    Host,
    /// A field that is set cannot be one, or frames the message.
    Field(InvalidField),
    /// The client's Connection names more than 16 fields.
    ConnectionFields,
}

impl UpstreamRequest<'_> {
    /// Appends the head, its empty line included.
    ///
    /// # Errors
    /// What cannot be written; nothing has been appended then.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), RequestFault> {
        let start = out.len();
        out.reserve(self.head.index.bytes + OWN_BYTES);
        let written = self.try_write(out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn try_write(&self, out: &mut Vec<u8>) -> Result<(), RequestFault> {
        self.write_request_line(out)?;
        self.write_host(out)?;
        let reads_trailers = self.write_end_to_end(out)?;
        self.write_connection(out, reads_trailers)?;
        match self.framing {
            BodyFraming::None => {}
            BodyFraming::Length(length) => write_content_length(out, length),
            BodyFraming::Chunked => write_chunked(out),
        }
        self.write_forwarding(out);
        for (name, value) in self.set {
            check_set(name, value)?;
            push_line(out, name, &[value]);
        }
        out.extend_from_slice(LINE_END);
        Ok(())
    }

    /// RFC 9112 section 3; the method and the target are judged again as the parser has judged them.
    fn write_request_line(&self, out: &mut Vec<u8>) -> Result<(), RequestFault> {
        let method = self.method.unwrap_or(self.head.method());
        if !is_field_name(method) {
            return Err(RequestFault::Target);
        }
        out.extend_from_slice(method);
        out.push(b' ');
        let start = out.len();
        match self.rewritten {
            Some(target) => out.extend_from_slice(target),
            None => self.write_own_target(out),
        }
        let target = &out[start..];
        let is_origin = target.first() == Some(&b'/');
        let is_asterisk = target == b"*" && self.head.index.method == Method::Options;
        if !(is_origin || is_asterisk) || check_target_bytes(target).is_err() {
            return Err(RequestFault::Target);
        }
        out.extend_from_slice(b" HTTP/1.1");
        out.extend_from_slice(LINE_END);
        Ok(())
    }

    /// The head's target in origin form.
    fn write_own_target(&self, out: &mut Vec<u8>) {
        let index = self.head.index;
        let is_empty = index.scheme.is_some()
            && index.query.is_none()
            && index
                .authority
                .is_some_and(|host| index.path.start < host.start);
        // RFC 9112 section 3.2.4: what an absolute target without a path means in OPTIONS.
        if is_empty && index.method == Method::Options {
            return out.push(b'*');
        }
        out.extend_from_slice(self.head.path());
        if let Some(query) = self.head.query() {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }

    fn write_host(&self, out: &mut Vec<u8>) -> Result<(), RequestFault> {
        let host = match self.host {
            HostField::Client { otherwise } => self.head.authority().unwrap_or(otherwise),
            HostField::Upstream(host) => host,
        };
        if !is_host(host) {
            return Err(RequestFault::Host);
        }
        push_line(out, b"Host", &[host]);
        Ok(())
    }

    /// Writes the client's fields that are meant for the upstream; gives whether the client reads trailers.
    fn write_end_to_end(&self, out: &mut Vec<u8>) -> Result<bool, RequestFault> {
        let options = self.connection_options()?;
        let mut reads_trailers = false;
        for (name, value) in self.head.headers() {
            match field_use(name) {
                FieldUse::EndToEnd => {}
                FieldUse::Trailers => {
                    reads_trailers |=
                        elements(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
                    continue;
                }
                FieldUse::Dropped | FieldUse::Forwarding => continue,
            }
            if options.as_ref().is_some_and(|options| options.names(name)) || self.replaces(name) {
                continue;
            }
            if !is_field_value(value) {
                return Err(RequestFault::Field(InvalidField::Value));
            }
            push_line(out, name, &[value]);
        }
        Ok(reads_trailers)
    }

    /// `None` where Connection names no further field, which the parser has noticed: most heads are gone through once.
    fn connection_options(&self) -> Result<Option<ConnectionOptions<'_>>, RequestFault> {
        if !self.head.index.marks.contains(Marks::CONNECTION_FIELDS) {
            return Ok(None);
        }
        let mut options = ConnectionOptions::default();
        for (name, value) in self.head.headers() {
            if name.eq_ignore_ascii_case(b"connection") {
                options.note(value)?;
            }
        }
        Ok(Some(options))
    }

    /// Whether the client's field of this name falls because another is set, or because a route takes it away.
    fn replaces(&self, name: &[u8]) -> bool {
        self.sets(name)
            || self.upgrade.is_some_and(|upgrade| upgrade.replaces(name))
            || self
                .removed
                .iter()
                .any(|removed| removed.eq_ignore_ascii_case(name))
    }

    fn sets(&self, name: &[u8]) -> bool {
        self.set
            .iter()
            .any(|(set, _)| set.eq_ignore_ascii_case(name))
    }

    /// RFC 9110 sections 7.8 and 10.1.4: Upgrade and TE are named in Connection.
    fn write_connection(
        &self,
        out: &mut Vec<u8>,
        reads_trailers: bool,
    ) -> Result<(), RequestFault> {
        let options: &[u8] = match (self.upgrade.is_some(), reads_trailers) {
            (false, false) => return Ok(()),
            (false, true) => b"TE",
            (true, false) => b"Upgrade",
            (true, true) => b"Upgrade, TE",
        };
        push_line(out, b"Connection", &[options]);
        if let Some(upgrade) = self.upgrade {
            let protocol = upgrade.protocol();
            if protocol.is_empty() || !is_field_value(protocol) {
                return Err(RequestFault::Field(InvalidField::Value));
            }
            push_line(out, b"Upgrade", &[protocol]);
            if let Some(key) = upgrade.key() {
                push_line(out, b"Sec-WebSocket-Key", &[key]);
            }
        }
        if reads_trailers {
            push_line(out, b"TE", &[b"trailers"]);
        }
        Ok(())
    }

    fn write_forwarding(&self, out: &mut Vec<u8>) {
        let ForwardingFields {
            scheme,
            host,
            prefix,
            ..
        } = self.forwarding;
        if !self.sets(b"x-forwarded-for") {
            self.write_chain(out);
        }
        let fields: [(&[u8], &[u8]); 3] = [
            (b"X-Forwarded-Proto", scheme),
            (b"X-Forwarded-Host", host),
            (b"X-Forwarded-Prefix", prefix),
        ];
        for (name, value) in fields {
            if !value.is_empty() && is_field_value(value) && !self.sets(name) {
                push_line(out, name, &[value]);
            }
        }
    }

    /// One line, whatever the number of lines was: readers differ in whether they join them.
    fn write_chain(&self, out: &mut Vec<u8>) {
        let start = out.len();
        push_line(out, b"X-Forwarded-For", &[]);
        out.truncate(out.len() - LINE_END.len());
        let values_start = out.len();
        let mut push = |entry: &[u8]| {
            if entry.is_empty() || entry.starts_with(UNIX) || !is_field_value(entry) {
                return;
            }
            if out.len() > values_start {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(entry);
        };
        let ForwardingFields {
            chain,
            client,
            peer,
            ..
        } = self.forwarding;
        let mut is_said = false;
        if chain == ForwardingChain::Appended {
            for (name, value) in self.head.headers() {
                if name.eq_ignore_ascii_case(b"x-forwarded-for") && !value.is_empty() {
                    push(value);
                    is_said = true;
                }
            }
        }
        if !is_said && client != peer {
            push(client);
        }
        push(peer);
        match out.len() > values_start {
            true => out.extend_from_slice(LINE_END),
            false => out.truncate(start),
        }
    }
}

/// A request of the server itself without a body, behind which its connection ends. Both parts are checked: a path in
/// origin form, host and port.
pub fn own_request(path: &str, host: &str, agent: &str) -> Vec<u8> {
    let mut out = format!("GET {path} HTTP/1.1").into_bytes();
    out.extend_from_slice(LINE_END);
    push_line(&mut out, b"Host", &[host.as_bytes()]);
    push_line(&mut out, b"User-Agent", &[agent.as_bytes()]);
    push_line(&mut out, b"Connection", &[b"close"]);
    out.extend_from_slice(LINE_END);
    out
}

/// What becomes of a field of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FieldUse {
    /// It is passed on, unless Connection names it or a route says otherwise.
    EndToEnd,
    /// It ends here: it concerns the client's connection, or this server writes it.
    Dropped,
    /// TE, of which `trailers` is passed on.
    Trailers,
    /// It says something of the client, which this server says itself.
    Forwarding,
}

/// Names that matter are told apart by their length first.
fn field_use(name: &[u8]) -> FieldUse {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    let dropped = match name.len() {
        2 if is("te") => return FieldUse::Trailers,
        4 => is("host"),
        // As HTTP_PROXY it would steer programs that get the fields as their environment (CVE-2016-5385).
        5 => is("proxy"),
        // The server has answered the expectation: the body is here, or on its way.
        6 => is("expect"),
        // Trailers of requests end here.
        7 => is("upgrade") || is("trailer"),
        9 if is("forwarded") || is("x-real-ip") => return FieldUse::Forwarding,
        10 => is("connection") || is("keep-alive"),
        14 => is("content-length") || is("http2-settings"),
        16 if is("proxy-connection") => true,
        17 if is("transfer-encoding") => true,
        18 => is("proxy-authenticate"),
        19 => is("proxy-authorization"),
        _ => false,
    };
    match dropped || !is_dashed_name(name) {
        true => FieldUse::Dropped,
        false if is_x_forwarded(name) => FieldUse::Forwarding,
        false => FieldUse::EndToEnd,
    }
}

fn is_x_forwarded(name: &[u8]) -> bool {
    const START: &[u8] = b"x-forwarded-";
    matches!(name.first(), Some(b'x' | b'X'))
        && name
            .get(..START.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(START))
}

/// Whether a field of this name can be set: it may replace what is said of the client, never what frames the message or
/// what would end here if a client had sent it.
pub fn may_be_set(name: &[u8]) -> bool {
    match field_use(name) {
        FieldUse::EndToEnd | FieldUse::Forwarding => true,
        FieldUse::Dropped | FieldUse::Trailers => false,
    }
}

/// Whether a field of this name says who the client is, so that the client's own is not passed on.
pub fn is_forwarding(name: &[u8]) -> bool {
    matches!(field_use(name), FieldUse::Forwarding)
}

fn check_set(name: &[u8], value: &[u8]) -> Result<(), RequestFault> {
    if !may_be_set(name) {
        return Err(RequestFault::Field(InvalidField::Name));
    }
    match is_field_value(value) {
        true => Ok(()),
        false => Err(RequestFault::Field(InvalidField::Value)),
    }
}

impl From<TooManyOptions> for RequestFault {
    fn from(_: TooManyOptions) -> Self {
        Self::ConnectionFields
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "target is not in origin form, or is too long",
            Self::Host => "no valid host for the upstream",
            Self::Field(InvalidField::Name) => "field that is set has no valid name",
            Self::Field(InvalidField::Value) => "field that is set has no valid value",
            Self::ConnectionFields => "Connection names more than 16 fields",
        })
    }
}

impl std::error::Error for RequestFault {}

#[cfg(test)]
mod tests;
