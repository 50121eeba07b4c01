//! Why an upstream's bytes are no response: one fault per rule, each with its text for the log.
//!
//! Takes nothing, gives [`UpstreamFault`]. The client gets 502 for each of them, where its response has not begun.

use std::fmt;

use super::connection_options::TooManyOptions;
use crate::refusal::Cause;

macro_rules! upstream_faults {
    ($($name:ident $text:literal,)*) => {
        /// The rule that an upstream has broken. Its connection cannot be used further.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum UpstreamFault {
            $(#[doc = $text] $name,)*
        }

        impl UpstreamFault {
            /// Every fault, in the order of this table.
            pub const ALL: &'static [UpstreamFault] = &[$(UpstreamFault::$name,)*];

            /// Text for the log: lower case, without a full stop.
            pub fn text(self) -> &'static str {
                match self { $(UpstreamFault::$name => $text,)* }
            }
        }
    };
}

upstream_faults! {
    // The status line.
    NotHttp "upstream: response does not begin with HTTP/1.0 or HTTP/1.1",
    VersionMajor "upstream: response in a major version of HTTP other than 1",
    StatusForm "upstream: status is not a number of three digits from 100",
    ReasonByte "upstream: invalid character in the reason phrase",
    SwitchUnasked "upstream: 101 without a request to change the protocol",
    SwitchForm "upstream: 101 without the name of one protocol in Upgrade",

    // The head as lines.
    BareLf "upstream: line feed without carriage return in the head",
    BareCr "upstream: carriage return without line feed in the head",
    HeadTooLarge "upstream: head over its bound",
    FieldTooLarge "upstream: field line over its bound",
    TooManyFields "upstream: more field lines than the bound",
    FieldFold "upstream: folded field line",
    FieldColon "upstream: field line without a colon",
    FieldName "upstream: invalid field name",
    FieldValueByte "upstream: invalid character in a field value",
    ConnectionFields "upstream: Connection names more than 16 fields",

    // Framing.
    LengthInvalid "upstream: Content-Length is not a plain decimal number of at most 64 bits",
    LengthDiffers "upstream: Content-Length fields that differ",
    LengthWithCoding "upstream: Content-Length together with Transfer-Encoding",
    CodingInOldVersion "upstream: Transfer-Encoding in HTTP/1.0",
    CodingForm "upstream: malformed Transfer-Encoding",
    CodingUnknown "upstream: transfer codings other than one chunked",

    // The body.
    ChunkSize "upstream: chunk size is not 1 to 16 hexadecimal digits",
    ChunkLineTooLong "upstream: size line of a chunk over its bound",
    ChunkExtensionForm "upstream: malformed extension, or anything else, after a chunk size",
    ChunkEnd "upstream: chunk data not followed by its line end",
    ChunkOverflow "upstream: chunks of more than 64 bits together",
    TrailerTooLarge "upstream: trailer section over its bound",
    TrailerByte "upstream: malformed trailer field",

    // The end of the connection.
    HeadCut "upstream: connection closed within the head",
    BodyCut "upstream: connection closed within the body",
}

impl From<Cause> for UpstreamFault {
    /// The rules that requests and responses share; all others concern requests alone.
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::BareLf => Self::BareLf,
            Cause::BareCr => Self::BareCr,
            Cause::HeadTooLarge => Self::HeadTooLarge,
            Cause::FieldTooLarge => Self::FieldTooLarge,
            Cause::TooManyFields => Self::TooManyFields,
            Cause::FieldFold => Self::FieldFold,
            Cause::FieldColon => Self::FieldColon,
            Cause::FieldValueByte => Self::FieldValueByte,
            Cause::CodingForm => Self::CodingForm,
            Cause::CodingNotFinal | Cause::CodingRepeated | Cause::CodingUnknown => {
                Self::CodingUnknown
            }
            Cause::ChunkSize => Self::ChunkSize,
            Cause::ChunkLineTooLong => Self::ChunkLineTooLong,
            Cause::ChunkExtensionForm => Self::ChunkExtensionForm,
            Cause::ChunkEnd => Self::ChunkEnd,
            Cause::BodyTooLarge => Self::ChunkOverflow,
            Cause::TrailerTooLarge => Self::TrailerTooLarge,
            Cause::TrailerByte => Self::TrailerByte,
            _ => Self::FieldName,
        }
    }
}

impl From<TooManyOptions> for UpstreamFault {
    fn from(_: TooManyOptions) -> Self {
        Self::ConnectionFields
    }
}

impl fmt::Display for UpstreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for UpstreamFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_a_text_of_its_own() {
        let mut texts: Vec<_> = UpstreamFault::ALL
            .iter()
            .map(|fault| fault.text())
            .collect();
        assert!(
            texts
                .iter()
                .all(|text| text.starts_with("upstream: ") && !text.ends_with('.'))
        );
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), UpstreamFault::ALL.len());
    }
}
