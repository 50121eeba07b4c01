//! The media type of a file, from its name alone.
//!
//! Takes a path, gives the value of `Content-Type`. The table is mime_guess's, with the few entries below
//! put right. Never looks into a file: what a folder's owner named `.txt` stays text.

/// A media type and whether it is sent with `charset=utf-8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentType {
    essence: &'static str,
    charset: Charset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charset {
    Utf8,
    /// Not text, or a format that carries its own declaration.
    Unsaid,
}

/// Where mime_guess is behind the registry, or means another format than a web server does: RFC 9239
/// (scripts), source maps, MPEG transport streams and HLS lists, RFC 8878 and brotli.
const CORRECTIONS: [(&str, &str); 8] = [
    ("mjs", "text/javascript"),
    ("cjs", "text/javascript"),
    ("map", "application/json"),
    ("ts", "video/mp2t"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("otf", "font/otf"),
    ("m4a", "audio/mp4"),
    ("zst", "application/zstd"),
];

/// The media type of the file at `path`; `application/octet-stream` when its extension says nothing.
pub fn of_path(path: &[u8]) -> ContentType {
    let essence = extension(path)
        .and_then(known)
        .unwrap_or("application/octet-stream");
    ContentType {
        essence,
        charset: charset_of(essence),
    }
}

impl ContentType {
    /// The value of `Content-Type`, in two parts.
    pub fn parts(self) -> [&'static [u8]; 2] {
        let charset = match self.charset {
            Charset::Utf8 => &b"; charset=utf-8"[..],
            Charset::Unsaid => b"",
        };
        [self.essence.as_bytes(), charset]
    }
}

/// What follows the last dot of the last name; `None` without one and for a name that begins with it.
pub(super) fn extension(path: &[u8]) -> Option<&str> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = memchr::memrchr(b'.', name)?;
    // A name that only consists of an extension has none.
    if dot == 0 {
        None
    } else {
        std::str::from_utf8(&name[dot + 1..]).ok()
    }
}

fn known(extension: &str) -> Option<&'static str> {
    let corrected = CORRECTIONS
        .iter()
        .find(|(wrong, _)| wrong.eq_ignore_ascii_case(extension));
    match corrected {
        Some((_, essence)) => Some(essence),
        None => mime_guess::from_ext(extension).first_raw(),
    }
}

/// Without a charset browsers guess one for text. XML declares its own, and RFC 7303 section 3 lets the
/// parameter override it, so XML gets none; JSON is always UTF-8 (RFC 8259 section 8.1).
fn charset_of(essence: &str) -> Charset {
    match essence {
        "text/xml" => Charset::Unsaid,
        "application/javascript" => Charset::Utf8,
        _ if essence.starts_with("text/") => Charset::Utf8,
        _ => Charset::Unsaid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &str) {
        let value = of_path(path.as_bytes()).parts().concat();
        assert_eq!(String::from_utf8(value).unwrap(), expect, "{path}");
    }

    #[test]
    fn names_what_the_web_is_made_of() {
        check("a.html", "text/html; charset=utf-8");
        check("A.HTM", "text/html; charset=utf-8");
        check("css/a.css", "text/css; charset=utf-8");
        check("a.js", "text/javascript; charset=utf-8");
        check("a.MJS", "text/javascript; charset=utf-8");
        check("a.txt", "text/plain; charset=utf-8");
        check("a.json", "application/json");
        check("a.js.map", "application/json");
        check("a.svg", "image/svg+xml");
        check("a.xml", "text/xml");
        check("a.png", "image/png");
        check("a.webp", "image/webp");
        check("a.avif", "image/avif");
        check("a.woff2", "font/woff2");
        check("a.wasm", "application/wasm");
        check("a.pdf", "application/pdf");
        check("a.mp4", "video/mp4");
        check("a.ts", "video/mp2t");
        check("a.webmanifest", "application/manifest+json");
        check("a.tar.gz", "application/gzip");
    }

    #[test]
    fn says_nothing_of_what_it_does_not_know() {
        for path in [
            "a",
            "a.",
            "a.nosuchtype",
            "html",
            ".html",
            "a.html/b",
            "a.\u{fc}",
        ] {
            check(path, "application/octet-stream");
        }
        assert_eq!(of_path(b"a.\xff"), of_path(b"a"));
    }
}
