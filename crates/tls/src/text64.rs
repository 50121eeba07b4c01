//! Bytes as text in base64, in the state that processes are handed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The bytes of a text; `None`: it is no base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Public bytes.
pub(crate) mod public {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        STANDARD.encode(bytes).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        decode(&text).ok_or_else(|| serde::de::Error::custom("not base64"))
    }
}

/// Lists of public bytes.
pub(crate) mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::*;

    pub(crate) fn serialize<S: Serializer>(all: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        let texts: Vec<String> = all.iter().map(|bytes| STANDARD.encode(bytes)).collect();
        texts.serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let all: Option<Vec<_>> = texts.iter().map(|text| decode(text)).collect();
        all.ok_or_else(|| serde::de::Error::custom("not base64"))
    }
}

/// Secrets: what is made on the way is wiped.
pub(crate) mod secret {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use zeroize::Zeroizing;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Zeroizing<Vec<u8>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        Zeroizing::new(STANDARD.encode(bytes.as_slice())).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Zeroizing<Vec<u8>>, D::Error> {
        let text = Zeroizing::new(String::deserialize(from)?);
        let bytes = decode(&text).map(Zeroizing::new);
        bytes.ok_or_else(|| serde::de::Error::custom("not base64"))
    }
}
