//! Why a peer's bytes are not served: one cause per rule, each with its status and its private text.
//!
//! Takes nothing, gives [`Refusal`]. What the client gets to read is decided elsewhere; the text here
//! is for the error log only.

use std::fmt;

/// A request that will not be served. Every refusal of this crate closes the connection, because after
/// one the place where the next request starts is no longer certain (RFC 9112 section 9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Status of the reply, 400 to 599.
    pub status: u16,
    /// Which rule was broken; for the log, never for the client.
    pub cause: Cause,
}

impl From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Refusal {
            status: cause.status(),
            cause,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cause.text(), self.status)
    }
}

impl std::error::Error for Refusal {}

macro_rules! causes {
    ($($(#[$meta:meta])* $name:ident $status:literal $text:literal,)*) => {
        /// The rule that was broken, one variant per rule.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Cause {
            $(#[doc = concat!($text, " (", stringify!($status), ")")] $(#[$meta])* $name,)*
        }

        impl Cause {
            /// Every cause, in the order of this table.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];

            /// Status of the reply to a request with this fault.
            pub fn status(self) -> u16 {
                match self { $(Cause::$name => $status,)* }
            }

            /// Private text for the error log: lower case, without a full stop.
            pub fn text(self) -> &'static str {
                match self { $(Cause::$name => $text,)* }
            }
        }
    };
}

causes! {
    // The head as lines.
    BareLf 400 "line feed without carriage return in the head",
    BareCr 400 "carriage return without line feed in the head",
    HeadTooLarge 431 "head over its bound",
    FieldTooLarge 431 "field line over its bound",
    TooManyFields 431 "more field lines than the bound",

    // The request line.
    MethodByte 400 "request line does not start with a method and one space",
    MethodTooLong 501 "method longer than 32 bytes",
    TargetTooLong 414 "target over its bound",
    TargetByte 400 "target is empty or has a character that is not visible ASCII",
    TargetFragment 400 "target with a fragment",
    TargetForm 400 "target is neither a path nor an absolute http or https URI",
    PathByte 400 "path with a raw double quote, angle bracket or backslash",
    PathEscape 400 "path with a percent sign that two hexadecimal digits do not follow",
    TargetAsterisk 400 "target `*` with a method other than OPTIONS",
    VersionForm 400 "request line does not end with one space and HTTP/1.1",
    VersionMajor 505 "major version of HTTP other than 1",
    MethodConnect 501 "method CONNECT",

    // Field lines.
    FieldFold 400 "folded field line",
    FieldColon 400 "field line without a colon",
    FieldNameEmpty 400 "field without a name",
    FieldNameSpace 400 "whitespace between field name and colon",
    FieldNameByte 400 "invalid character in a field name",
    FieldValueByte 400 "invalid character in a field value",

    // Fields that HPACK has decoded.
    PseudoField 400 "pseudo-header field that is missing, repeated, unknown or behind others",
    ConnectionField 400 "field about an HTTP/1 connection in HTTP/2",
    HostDiffers 400 "Host differs from :authority",
    LengthWithoutBody 400 "Content-Length of a request that ended with its head",
    LengthDiffers 400 "body of another length than its Content-Length",
    DecodedForm 400 "fields that are not one head",

    // Host.
    HostMissing 400 "HTTP/1.1 without Host",
    HostRepeated 400 "more than one Host",
    HostInvalid 400 "invalid host or port in Host",
    AuthorityInvalid 400 "invalid host or port in the target",

    // Fields that have one value.
    ContentTypeRepeated 400 "more than one Content-Type",
    AuthorizationRepeated 400 "more than one Authorization",

    // Framing.
    LengthInvalid 400 "Content-Length is not a plain decimal number of at most 64 bits",
    LengthRepeated 400 "more than one Content-Length",
    LengthWithCoding 400 "Content-Length together with Transfer-Encoding",
    CodingInOldVersion 400 "Transfer-Encoding in HTTP/1.0",
    CodingForm 400 "malformed Transfer-Encoding",
    CodingNotFinal 400 "chunked is not the last transfer coding",
    CodingRepeated 400 "chunked more than once",
    CodingUnknown 501 "transfer coding other than chunked",
    ExpectUnknown 417 "expectation other than 100-continue",

    // The body.
    BodyTooLarge 413 "body larger than `body_bytes_max`",
    ChunkSize 400 "chunk size is not 1 to 16 hexadecimal digits",
    ChunkLineTooLong 400 "size line of a chunk over its bound",
    ChunkExtensionForm 400 "malformed extension, or anything else, after a chunk size",
    ChunkEnd 400 "chunk data not followed by its line end",
    TrailerTooLarge 431 "trailer section over its bound",
    TrailerByte 400 "malformed trailer field",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_the_clients_fault_or_something_we_do_not_do() {
        for &cause in Cause::ALL {
            let refusal = Refusal::from(cause);
            assert!([400, 413, 414, 417, 431, 501, 505].contains(&refusal.status));
            assert!(!cause.text().ends_with('.'), "{cause:?}");
        }
    }

    #[test]
    fn shows_text_and_status() {
        assert_eq!(
            Refusal::from(Cause::LengthRepeated).to_string(),
            "more than one Content-Length (400)"
        );
    }
}
