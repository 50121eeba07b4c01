//! Names of request headers as keys of environ, and the last value of each as a ready `str`.
//!
//! Takes a field name as it was sent and gives the place where its key lies. Must not intern what a client
//! sent: where interned strings are immortal, each name would stay until the process ends. One table for each
//! pool thread: nothing here is shared, so that free-threaded interpreters have nothing to contend for.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::raw;

/// Names learned from clients, for each thread, beside those known from the beginning.
const LEARNED_LEN_MAX: usize = 256;
/// Longest name that is learned.
const LEARNED_BYTES_MAX: usize = 64;
/// Longest value that is kept for the next request.
const KEPT_BYTES_MAX: usize = 512;
/// Places in the table: at most 3/4 are ever taken, a power of two.
const PLACES_LEN: usize = 512;
/// Places looked at before a name counts as unknown; a client that picks colliding names gains nothing.
const PROBES_LEN: usize = 8;

/// What a header becomes in environ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// `HTTP_...`; repeated values are joined by a comma (RFC 9110 section 5.3).
    Plain,
    /// `HTTP_COOKIE`; repeated values are joined by a semicolon (RFC 9113 section 8.2.3).
    Cookie,
    /// Not shown under its own name.
    Hidden,
}

/// A header name that is known.
pub(crate) struct Name<'py> {
    /// In lower case.
    text: Box<[u8]>,
    /// As a client wrote it last: most write it as the one before did, and comparing is then one step.
    spelling: Box<[u8]>,
    /// Key in environ; interned when the name is a common one.
    pub(crate) key: Bound<'py, PyString>,
    /// How it is shown.
    pub(crate) usage: Use,
    /// The exchange that had it last, by its number on this thread.
    pub(crate) seen: u64,
    last: Option<Bound<'py, PyString>>,
}

impl<'py> Name<'py> {
    /// The value as `str`: the very object of an earlier request when the bytes are the same.
    pub(crate) fn value(&mut self, py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
        if let Some(last) = &self.last
            && raw::latin1_bytes(last) == Some(bytes)
        {
            return last.clone();
        }
        let value = raw::latin1(py, bytes);
        if bytes.len() <= KEPT_BYTES_MAX {
            self.last = Some(value.clone());
        }
        value
    }
}

/// The table.
pub(crate) struct Names<'py> {
    py: Python<'py>,
    places: Box<[u16]>,
    names: Vec<Name<'py>>,
}

/// Marks an empty place.
const NOBODY: u16 = u16::MAX;

impl<'py> Names<'py> {
    /// Knows the names that are common.
    pub(crate) fn new(py: Python<'py>) -> Self {
        let mut names = Self {
            py,
            places: vec![NOBODY; PLACES_LEN].into(),
            names: Vec::new(),
        };
        for text in COMMON {
            let key = common_key(py, text.as_bytes());
            names.learn(text.as_bytes(), key);
        }
        names
    }

    /// The name, learned when there is room; `None` when it has to be made by [`key`] each time.
    pub(crate) fn find(&mut self, text: &[u8]) -> Option<&mut Name<'py>> {
        let index = match self.index(text) {
            Some(index) => {
                let name = &mut self.names[index];
                if *name.spelling != *text {
                    name.spelling.copy_from_slice(text);
                }
                return Some(name);
            }
            None if self.names.len() < COMMON.len() + LEARNED_LEN_MAX
                && text.len() <= LEARNED_BYTES_MAX =>
            {
                self.learn(text, key(self.py, text))?
            }
            None => return None,
        };
        Some(&mut self.names[index])
    }

    fn index(&self, text: &[u8]) -> Option<usize> {
        for place in probes(text) {
            let index = usize::from(self.places[place]);
            let known = self.names.get(index)?;
            if *known.spelling == *text || known.text.eq_ignore_ascii_case(text) {
                return Some(index);
            }
        }
        None
    }

    /// `None` when all places that the name may take are taken.
    fn learn(&mut self, text: &[u8], key: Bound<'py, PyString>) -> Option<usize> {
        let place = probes(text).find(|&place| self.places[place] == NOBODY)?;
        let index = self.names.len();
        self.places[place] = index as u16;
        let text: Box<[u8]> = text.to_ascii_lowercase().into();
        let usage = usage(&text);
        self.names.push(Name {
            spelling: text.clone(),
            text,
            key,
            usage,
            seen: 0,
            last: None,
        });
        Some(index)
    }
}

/// The key of a header in environ: `HTTP_ACCEPT`, and `CONTENT_TYPE` and `CONTENT_LENGTH` as they are.
pub(crate) fn key<'py>(py: Python<'py>, text: &[u8]) -> Bound<'py, PyString> {
    raw::latin1(py, &key_bytes(text))
}

/// The same, interned: comparing it with a constant of the application is then one step.
pub(crate) fn common_key<'py>(py: Python<'py>, text: &[u8]) -> Bound<'py, PyString> {
    PyString::intern(py, &String::from_utf8_lossy(&key_bytes(text)))
}

fn key_bytes(text: &[u8]) -> Vec<u8> {
    let upper = text.iter().map(|byte| {
        if *byte == b'-' {
            b'_'
        } else {
            byte.to_ascii_uppercase()
        }
    });
    let bare =
        text.eq_ignore_ascii_case(b"content-type") || text.eq_ignore_ascii_case(b"content-length");
    let prefix: &[u8] = if bare { b"" } else { b"HTTP_" };
    prefix.iter().copied().chain(upper).collect()
}

fn usage(text: &[u8]) -> Use {
    match text {
        b"cookie" => Use::Cookie,
        // The body is complete and its length known: what environ says is the body, not its transfer.
        b"transfer-encoding" | b"content-length" => Use::Hidden,
        // As HTTP_PROXY it would steer programs that environ is handed to (CVE-2016-5385).
        b"proxy" => Use::Hidden,
        // `X_A` and `X-A` would become one key, so that a client could forge what a proxy sets (CVE-2015-0219).
        text if text.contains(&b'_') => Use::Hidden,
        _ => Use::Plain,
    }
}

fn probes(text: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let start = hash(text) as usize;
    (0..PROBES_LEN).map(move |step| (start + step) % PLACES_LEN)
}

/// Of all letters in eights, without regard to their case.
fn hash(text: &[u8]) -> u64 {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(ODD);
    let (words, rest) = text.as_chunks::<8>();
    let sum = words.iter().fold(text.len() as u64, |sum, word| {
        mix(sum, u64::from_le_bytes(*word) | FOLD)
    });
    let last = rest
        .iter()
        .fold(0, |word, byte| (word << 8) | u64::from(byte | 0x20));
    mix(sum, last) >> 48
}

/// Names that browsers, proxies and tools are known to send.
#[rustfmt::skip]
const COMMON: [&str; 104] = [
    "host", "user-agent", "accept", "accept-encoding", "accept-language", "accept-charset", "connection", "cookie",
    "content-type", "content-length", "content-encoding", "content-language", "content-location",
    "content-disposition", "content-md5", "content-range", "transfer-encoding", "te", "trailer", "upgrade",
    "upgrade-insecure-requests", "keep-alive", "expect", "date", "via", "warning", "pragma", "cache-control",
    "authorization", "proxy", "proxy-authorization", "proxy-connection", "www-authenticate", "if-match",
    "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range", "referer", "origin", "from",
    "max-forwards", "dnt", "sec-gpc", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-user", "sec-fetch-dest",
    "sec-ch-ua", "sec-ch-ua-mobile", "sec-ch-ua-platform", "sec-ch-ua-arch", "sec-ch-ua-model",
    "sec-ch-prefers-color-scheme", "sec-purpose", "purpose", "priority", "save-data", "device-memory", "downlink",
    "ect", "rtt", "early-data", "access-control-request-method", "access-control-request-headers",
    "access-control-request-private-network", "forwarded", "x-forwarded-for", "x-forwarded-host",
    "x-forwarded-proto", "x-forwarded-port", "x-forwarded-server", "x-forwarded-prefix", "x-forwarded-ssl",
    "x-forwarded-scheme", "x-real-ip", "x-client-ip", "x-scheme", "x-request-id", "x-correlation-id",
    "x-request-start", "x-queue-start", "x-requested-with", "x-csrf-token", "x-csrftoken", "x-xsrf-token",
    "x-api-key", "x-http-method-override", "x-original-url", "x-amzn-trace-id", "x-amz-cf-id", "x-cloud-trace-context",
    "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "traceparent", "tracestate", "baggage", "cf-connecting-ip",
    "cf-ray", "cf-ipcountry", "cf-visitor", "true-client-ip",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with<R>(body: impl FnOnce(&mut Names<'_>) -> R) -> R {
        Python::initialize();
        Python::attach(|py| body(&mut Names::new(py)))
    }

    #[test]
    fn every_common_name_has_a_place() {
        with(|names| {
            assert_eq!(names.names.len(), COMMON.len());
            for text in COMMON {
                assert!(
                    names.index(text.to_ascii_uppercase().as_bytes()).is_some(),
                    "{text}"
                );
            }
        });
    }

    #[test]
    fn names_become_keys_whatever_their_case() {
        let check = |text: &str, expect: &str, usage: Use| {
            with(|names| {
                let name = names.find(text.as_bytes()).unwrap();
                assert_eq!((name.key.to_string().as_str(), name.usage), (expect, usage));
            });
        };
        check("Host", "HTTP_HOST", Use::Plain);
        check("HOST", "HTTP_HOST", Use::Plain);
        check("coOkie", "HTTP_COOKIE", Use::Cookie);
        check("Content-Type", "CONTENT_TYPE", Use::Plain);
        check("Content-Length", "CONTENT_LENGTH", Use::Hidden);
        check("Transfer-Encoding", "HTTP_TRANSFER_ENCODING", Use::Hidden);
        check("Proxy", "HTTP_PROXY", Use::Hidden);
        check("X-Own-Name", "HTTP_X_OWN_NAME", Use::Plain);
        check("X_Forwarded-For", "HTTP_X_FORWARDED_FOR", Use::Hidden);
        check("!odd", "HTTP_!ODD", Use::Plain);
    }

    #[test]
    fn learns_a_bounded_number_of_names() {
        with(|names| {
            for number in 0..10_000 {
                names.find(format!("x-{number}").as_bytes());
            }
            assert!(names.names.len() <= COMMON.len() + LEARNED_LEN_MAX);
            assert!(names.names.len() > COMMON.len() + LEARNED_LEN_MAX / 2);
            assert!(names.find(b"x-forwarded-for").is_some());
            assert!(names.find(&[b'x'; 65]).is_none());
        });
    }

    #[test]
    fn the_same_value_is_the_same_object() {
        with(|names| {
            let py = names.py;
            let name = names.find(b"accept").unwrap();
            let first = name.value(py, b"text/html");
            assert!(first.is(name.value(py, b"text/html")));
            assert_eq!(name.value(py, b"text/plain"), "text/plain");
            assert_eq!(first, "text/html");
            assert!(
                !name
                    .value(py, &[b'x'; 513])
                    .is(name.value(py, &[b'x'; 513]))
            );
        });
    }
}
