//! The page: one file without anything of the server in it, and without a request to anybody but this server. Its script
//! reads the live view, and writes names of routes as text alone.

use std::fmt::Write as _;

use hyper::header::HeaderValue;

const BODY: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// Random bytes of a nonce.
const NONCE_BYTES: usize = 16;

/// The page for one reader.
pub(crate) struct Page {
    pub(crate) html: String,
    /// Content-Security-Policy: its own style and script, and this server, alone.
    pub(crate) policy: HeaderValue,
}

impl Page {
    /// `None`: the kernel has no random number.
    pub(crate) fn with_new_nonce() -> Option<Page> {
        let mut random = [0; NONCE_BYTES];
        let len = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).ok();
        // A short answer is never given for so few bytes.
        (len == Some(NONCE_BYTES)).then(|| Page::new(random))
    }

    fn new(random: [u8; NONCE_BYTES]) -> Page {
        let mut nonce = String::with_capacity(2 * NONCE_BYTES);
        for byte in random {
            let _ = write!(nonce, "{byte:02x}");
        }
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let look = present::Page::style();
        Page {
            // `icon`: without one the browser would ask for it.
            html: format!(
                "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
                 <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
                 <meta name=referrer content=no-referrer>\n<link rel=icon href=\"data:,\">\n\
                 <title>Milepost</title>\n<style nonce={nonce}>\n{look}{STYLE}</style>\n{BODY}\
                 <script nonce={nonce}>\n{SCRIPT}</script>\n"
            ),
            policy: HeaderValue::try_from(policy).expect("it has visible characters alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 120 << 10;

    #[test]
    fn is_small_and_loads_nothing() {
        let page = Page::new([7; NONCE_BYTES]);
        assert!(page.html.len() < BYTES_MAX, "{} bytes", page.html.len());
        for loaded in [
            "src=",
            "url(",
            "@import",
            "http:",
            "https:",
            "innerHTML",
            "eval(",
        ] {
            assert!(!page.html.contains(loaded), "{loaded}");
        }
        // Styles of single elements would need a weaker policy.
        assert!(!page.html.contains("style="));
    }

    #[test]
    fn the_policy_names_the_nonce_of_the_page() {
        let page = Page::new([0xa5; NONCE_BYTES]);
        let nonce = "a5".repeat(NONCE_BYTES);
        assert_eq!(page.html.matches(&format!("nonce={nonce}>")).count(), 2);
        assert_eq!(
            page.policy
                .to_str()
                .unwrap()
                .matches(&format!("'nonce-{nonce}'"))
                .count(),
            2
        );
        let [one, other] = [(); 2].map(|()| Page::with_new_nonce().unwrap().policy);
        assert_ne!(one, other);
    }
}
