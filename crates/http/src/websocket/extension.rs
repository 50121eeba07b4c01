//! permessage-deflate negotiated: offers, the server's choice, the client's check of it (RFC 7692 section 7).
//!
//! Takes values of `Sec-WebSocket-Extensions`, gives a [`DeflateAgreement`] and the values that are sent. It must not
//! know any other extension: the server declines them, and the client has offered none.

use crate::fields::is_token;

/// Window of our compressor where nothing smaller was asked for: 4 KB. zlib needs four times as much memory for a window:
/// one of 15 bits takes 115 KB more.
pub const WINDOW_BITS_DEFAULT: u8 = 12;
/// Smallest window that zlib can compress with; the RFC allows 8.
const WINDOW_BITS_MIN: u8 = 9;
const WINDOW_BITS_MAX: u8 = 15;

const NAME: &[u8] = b"permessage-deflate";
const SERVER_NO_CONTEXT: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT: &str = "client_no_context_takeover";
const SERVER_WINDOW: &str = "server_max_window_bits";
const CLIENT_WINDOW: &str = "client_max_window_bits";

/// What becomes of a compressor's window, and of the decompressor's at the other end, between two messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeflateContext {
    /// It is kept: later messages refer to earlier ones, and memory is held.
    #[default]
    Kept,
    /// It is dropped with its memory: "no context takeover".
    Dropped,
}

impl DeflateContext {
    /// Dropped where either end asks for that.
    fn and(self, other: DeflateContext) -> DeflateContext {
        match (self, other) {
            (DeflateContext::Kept, DeflateContext::Kept) => DeflateContext::Kept,
            _ => DeflateContext::Dropped,
        }
    }

    /// Whether it was kept until now.
    fn drop_once(&mut self) -> bool {
        std::mem::replace(self, DeflateContext::Dropped) == DeflateContext::Kept
    }
}

/// How one end compresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflateSide {
    /// Logarithm of the largest distance back: 8 to 15 of a peer, 9 to 15 of our own.
    pub window_bits: u8,
    /// Whether messages refer to earlier ones.
    pub context: DeflateContext,
}

/// What both ends have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflateAgreement {
    /// How the server compresses.
    pub server: DeflateSide,
    /// How the client compresses.
    pub client: DeflateSide,
}

/// What one end wants, which the other end may limit further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeflateOptions {
    /// Window of the own compressor, 9 to 15.
    pub window_bits: u8,
    /// What becomes of the server's context.
    pub server_context: DeflateContext,
    /// What becomes of the client's context.
    pub client_context: DeflateContext,
}

impl Default for DeflateOptions {
    fn default() -> Self {
        DeflateOptions {
            window_bits: WINDOW_BITS_DEFAULT,
            server_context: DeflateContext::Kept,
            client_context: DeflateContext::Kept,
        }
    }
}

/// A field that does not have the grammar of RFC 6455 section 9.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MalformedExtensions;

/// One element of a list of extensions.
pub(super) struct Extension<'a> {
    name: &'a [u8],
    /// Names, and values without their quotes.
    params: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// The parameters of one permessage-deflate, each of them valid and named once.
#[derive(Default)]
struct DeflateParams {
    server_context: DeflateContext,
    client_context: DeflateContext,
    server_window: Option<u8>,
    client_window: Option<Option<u8>>,
}

impl DeflateOptions {
    /// The server's choice: accepts the first of `offers` that is a valid offer of permessage-deflate; `None` where there is none.
    ///
    /// Declined are offers with parameters that are unknown, repeated or out of range (RFC 7692 section 7.1), and those
    /// that limit the server to a window of 256 bytes, which zlib cannot do.
    pub(super) fn choose(&self, offers: &[Extension<'_>]) -> Option<DeflateAgreement> {
        let mut params = offers.iter().filter_map(DeflateParams::of);
        params.find_map(|params| self.accept(&params))
    }

    fn accept(&self, params: &DeflateParams) -> Option<DeflateAgreement> {
        let window_bits = params.server_window.unwrap_or(WINDOW_BITS_MAX);
        let server = DeflateSide {
            window_bits: window_bits.min(self.window_bits),
            context: self.server_context.and(params.server_context),
        };
        let client = DeflateSide {
            // A limit would save us nothing: zlib's decompressor has a window of 32 KB in any case.
            window_bits: params.client_window.flatten().unwrap_or(WINDOW_BITS_MAX),
            context: self.client_context.and(params.client_context),
        };
        (server.window_bits >= WINDOW_BITS_MIN).then_some(DeflateAgreement { server, client })
    }

    /// The value of the client's field. The server may limit the client's window.
    pub(super) fn offer(&self) -> String {
        let mut value = String::from("permessage-deflate");
        push_contexts(&mut value, self.server_context, self.client_context);
        value + "; " + CLIENT_WINDOW
    }

    /// What a server's answer to this offer agrees on, RFC 7692 section 7.1; `None` where it is no valid answer, or one
    /// that limits the client to a window of 256 bytes.
    pub(super) fn check(&self, answer: &Extension<'_>) -> Option<DeflateAgreement> {
        let params = DeflateParams::of(answer)?;
        // Section 7.1.1.1: a server that accepts the offer drops its context.
        if self.server_context == DeflateContext::Dropped
            && params.server_context == DeflateContext::Kept
        {
            return None;
        }
        // Section 7.1.2.2: in an answer it has a value.
        let client_window = match params.client_window {
            Some(window_bits) => window_bits?,
            None => WINDOW_BITS_MAX,
        };
        let server = DeflateSide {
            window_bits: params.server_window.unwrap_or(WINDOW_BITS_MAX),
            context: params.server_context,
        };
        let client = DeflateSide {
            window_bits: client_window.min(self.window_bits),
            context: self.client_context.and(params.client_context),
        };
        (client.window_bits >= WINDOW_BITS_MIN).then_some(DeflateAgreement { server, client })
    }
}

impl DeflateAgreement {
    /// The value of the server's field.
    pub(super) fn value(&self) -> String {
        let mut value = String::from("permessage-deflate");
        push_contexts(&mut value, self.server.context, self.client.context);
        if self.server.window_bits < WINDOW_BITS_MAX {
            value += &format!("; {SERVER_WINDOW}={}", self.server.window_bits);
        }
        value
    }
}

fn push_contexts(value: &mut String, server: DeflateContext, client: DeflateContext) {
    for (context, name) in [(server, SERVER_NO_CONTEXT), (client, CLIENT_NO_CONTEXT)] {
        if context == DeflateContext::Dropped {
            *value += "; ";
            *value += name;
        }
    }
}

impl DeflateParams {
    /// `None` where it is another extension, or a parameter is unknown, repeated or out of range.
    fn of(extension: &Extension<'_>) -> Option<DeflateParams> {
        if extension.name != NAME {
            return None;
        }
        let mut params = DeflateParams::default();
        for &(name, value) in &extension.params {
            let is_new = match (str::from_utf8(name).ok()?, value) {
                (SERVER_NO_CONTEXT, None) => params.server_context.drop_once(),
                (CLIENT_NO_CONTEXT, None) => params.client_context.drop_once(),
                (SERVER_WINDOW, Some(bits)) => {
                    params.server_window.replace(window_bits(bits)?).is_none()
                }
                (CLIENT_WINDOW, None) => params.client_window.replace(None).is_none(),
                (CLIENT_WINDOW, Some(bits)) => {
                    let bits = Some(window_bits(bits)?);
                    params.client_window.replace(bits).is_none()
                }
                _ => false,
            };
            if !is_new {
                return None;
            }
        }
        Some(params)
    }
}

/// A decimal number from 8 to 15 without leading zeros, RFC 7692 section 7.1.2.
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// The extensions of all fields, in their order.
///
/// # Errors
/// When a value is no list of extensions, RFC 6455 section 9.1. Empty elements are skipped, as in every list of HTTP.
pub(super) fn extensions<'a>(
    values: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Extension<'a>>, MalformedExtensions> {
    let mut extensions = Vec::new();
    for value in values {
        let mut rest = ExtensionReader(value);
        loop {
            rest.skip_blanks();
            if rest.skip(b',') {
                continue;
            }
            if rest.0.is_empty() {
                break;
            }
            extensions.push(rest.extension()?);
            if !rest.0.is_empty() && !rest.skip(b',') {
                return Err(MalformedExtensions);
            }
        }
    }
    Ok(extensions)
}

/// What has not been read of a field's value.
struct ExtensionReader<'a>(&'a [u8]);

impl<'a> ExtensionReader<'a> {
    /// `extension-token *( ";" extension-param )`.
    fn extension(&mut self) -> Result<Extension<'a>, MalformedExtensions> {
        let name = self.token()?;
        let mut params = Vec::new();
        loop {
            self.skip_blanks();
            if !self.skip(b';') {
                return Ok(Extension { name, params });
            }
            self.skip_blanks();
            let name = self.token()?;
            self.skip_blanks();
            let value = match self.skip(b'=') {
                true => Some(self.value()?),
                false => None,
            };
            params.push((name, value));
        }
    }

    /// A token, or one in quotes. An escaped byte in quotes is kept as written: no parameter that we know needs one.
    fn value(&mut self) -> Result<&'a [u8], MalformedExtensions> {
        self.skip_blanks();
        if !self.skip(b'"') {
            return self.token();
        }
        let quoted = self.0;
        while let [byte, rest @ ..] = self.0 {
            self.0 = match (byte, rest) {
                (b'"', rest) => {
                    let bytes = quoted.len() - rest.len() - 1;
                    self.0 = rest;
                    return Ok(&quoted[..bytes]);
                }
                (b'\\', [_, rest @ ..]) => rest,
                (_, rest) => rest,
            };
        }
        Err(MalformedExtensions)
    }

    fn token(&mut self) -> Result<&'a [u8], MalformedExtensions> {
        let end = self.0.iter().position(|&byte| !is_token(byte));
        let (token, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        match token {
            [] => Err(MalformedExtensions),
            token => Ok(token),
        }
    }

    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    /// Whether `byte` was next, and is behind now.
    fn skip(&mut self, byte: u8) -> bool {
        match self.0.strip_prefix(&[byte]) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
