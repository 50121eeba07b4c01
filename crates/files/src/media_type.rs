//! The media type of a file, from its name alone.
//!
//! Takes a path, gives the value of `Content-Type`. The table is mime_guess's, with the few entries below
//! put right. Never looks into a file: what a folder's owner named `.txt` stays text.

/// A media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentType(&'static str);

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
    let essence = extension(path).and_then(known);
    ContentType(essence.unwrap_or("application/octet-stream"))
}

impl ContentType {
    /// The value of `Content-Type`, in two parts.
    ///
    /// Without a charset browsers guess one for text. XML declares its own, and RFC 7303 section 3 lets the parameter
    /// override it, so XML gets none; JSON is always UTF-8 (RFC 8259 section 8.1).
    pub fn parts(self) -> [&'static [u8]; 2] {
        let ContentType(essence) = self;
        let is_declared = essence.starts_with("text/") && essence != "text/xml";
        let charset: &[u8] = match is_declared || essence == "application/javascript" {
            true => b"; charset=utf-8",
            false => b"",
        };
        [essence.as_bytes(), charset]
    }
}

/// What follows the last dot of the last name; `None` without one and for a name that begins with it.
pub(super) fn extension(path: &[u8]) -> Option<&str> {
    // A dot in a folder's name says nothing of the file.
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
