//! A handler for an application that cannot be loaded, for development: every request is answered with 500
//! and what is wrong, as a page that loads anew once the code has changed, or as text.
//!
//! Takes a fault and a traceback, gives the same reply for every path. A traceback is for those who write
//! the code: this handler has no place where strangers ask.

mod page;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

use files::names_html;
use http::{FieldLines, HeadView};

use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::pool::Worker;
use crate::response::{Amount, Declared, ResponseWriter};
use config::failure::Failure;

use super::Handler;

/// Name of the line by which a page learns that it still stands for what is wrong.
const MARK_NAME: &str = "Milepost-Failing";
/// Bytes of a traceback that are shown: its end says what happened.
const TRACEBACK_BYTES_MAX: usize = 256 << 10;

/// Answers every request with what is wrong.
#[derive(Debug)]
pub struct ErrorApp {
    text: Vec<u8>,
    page: Vec<u8>,
    /// The same page for who got it as the answer to something that is not to be repeated unasked.
    page_of_other: Vec<u8>,
    /// The same in every process that fails alike.
    mark: String,
    nonce: String,
}

impl ErrorApp {
    /// A handler for this fault. Only the last 256 KiB of the traceback are shown.
    pub fn new(wrong: &Failure) -> ErrorApp {
        let mut shown = wrong.clone();
        shown.detail = wrong.detail.as_deref().map(shortened);
        let mark = mark(wrong);
        // What stands in a page must not be able to name it.
        let nonce = format!("{:016x}", RandomState::new().hash_one(&mark));
        // Rendered once: the page is the same for all who ask.
        let page = |repeat| page::render(&shown, &mark, &nonce, repeat).into_bytes();
        ErrorApp {
            text: text(&shown).into_bytes(),
            page: page(page::Repeat::Unasked),
            page_of_other: page(page::Repeat::Asked),
            mark,
            nonce,
        }
    }

    fn answer(&self, exchange: &Exchange, writer: &mut ResponseWriter) {
        let head = exchange.head();
        let (kind, body) = match names_html(head) {
            true if is_repeatable(head) => ("html", &self.page),
            true => ("html", &self.page_of_other),
            false => ("plain", &self.text),
        };
        let mut lines = FieldLines::new();
        let kind: [&[u8]; 3] = [b"text/", kind.as_bytes(), b"; charset=utf-8"];
        lines.push_parts(b"Content-Type", &kind);
        lines.push(MARK_NAME.as_bytes(), self.mark.as_bytes());
        lines.push(b"Cache-Control", b"no-store");
        lines.push(b"Vary", b"Accept");
        lines.push(b"X-Content-Type-Options", b"nosniff");
        lines.push(b"Content-Security-Policy", self.policy().as_bytes());
        let declared = Declared {
            // The next request is to reach the application as it is by then.
            close: true,
            ..Declared::default()
        };
        let reason = http::reason(500).as_bytes();
        writer.begin(500, reason, &mut lines, declared);
        writer.write(&body.as_slice(), Amount::Whole);
    }

    /// Nothing runs but our script, whatever stands in a traceback.
    fn policy(&self) -> String {
        format!(
            "default-src 'none'; style-src 'nonce-{0}'; script-src 'nonce-{0}'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
            self.nonce
        )
    }
}

impl Handler for ErrorApp {
    fn is_loaded(&self) -> bool {
        false
    }

    fn work(&self, worker: &mut Worker) {
        while let Some(assignment) = worker.next_wait() {
            worker.run(assignment, |exchange, writer| {
                self.answer(exchange, writer);
                Ok::<(), Fault>(())
            });
        }
    }
}

/// RFC 9110 section 9.2.1: safe methods ask for nothing but an answer.
fn is_repeatable(head: HeadView<'_>) -> bool {
    [&b"GET"[..], b"HEAD"].contains(&head.method())
}

fn mark(wrong: &Failure) -> String {
    let mut hasher = DefaultHasher::new();
    (&wrong.message, &wrong.hint, &wrong.detail).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn text(wrong: &Failure) -> String {
    let mut text = format!("The application cannot be loaded.\n\n{}\n", wrong.message);
    if let Some(hint) = &wrong.hint {
        text.push_str(&format!("hint: {hint}\n"));
    }
    if let Some(detail) = &wrong.detail {
        text.push_str(&format!("\n{}\n", detail.trim_end()));
    }
    text
}

/// The end of a long traceback, from the beginning of a line.
fn shortened(traceback: &str) -> String {
    let Some(excess) = traceback.len().checked_sub(TRACEBACK_BYTES_MAX + 1) else {
        return traceback.to_owned();
    };
    let from = (excess..=traceback.len())
        .find(|at| traceback.is_char_boundary(*at))
        .expect("the end is a boundary");
    // From the beginning of a line, where there is one: half a line reads as another fault.
    let from = traceback[from..]
        .find('\n')
        .map_or(from, |at| from + at + 1);
    format!(
        "... {from} bytes before this are left out ...\n{}",
        &traceback[from..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(detail: &str) -> Failure {
        Failure {
            message: "`shop:app`: no".to_owned(),
            hint: Some("say yes".to_owned()),
            detail: Some(detail.to_owned()),
        }
    }

    #[test]
    fn says_as_text_what_is_wrong() {
        assert_eq!(
            text(&wrong("Traceback\nValueError: <b>\n")),
            "The application cannot be loaded.\n\n`shop:app`: no\nhint: say yes\n\nTraceback\nValueError: <b>\n"
        );
        let short = Failure {
            message: "m".to_owned(),
            ..Failure::default()
        };
        assert_eq!(text(&short), "The application cannot be loaded.\n\nm\n");
    }

    #[test]
    fn the_mark_is_that_of_the_fault() {
        let [one, same, other] = ["1", "1", "2"].map(|detail| ErrorApp::new(&wrong(detail)));
        assert_eq!(one.mark, same.mark);
        assert_ne!(one.mark, other.mark);
        assert_ne!(one.nonce, same.nonce);
        // Past what is shown as well.
        let long = "x\n".repeat(TRACEBACK_BYTES_MAX);
        let [one, other] = ["1", "2"].map(|start| mark(&wrong(&format!("{start}{long}"))));
        assert_ne!(one, other);
    }

    #[test]
    fn keeps_the_end_of_a_long_traceback() {
        assert_eq!(shortened("a\nb"), "a\nb");
        let whole = "x".repeat(TRACEBACK_BYTES_MAX);
        assert_eq!(shortened(&whole), whole);
        let long = format!(
            "first\nsecond\n{}\nlast",
            "\u{fc}".repeat(TRACEBACK_BYTES_MAX / 2 - 3)
        );
        let kept = shortened(&long);
        assert!(
            kept.starts_with("... 13 bytes before this are left out ...\n\u{fc}"),
            "{}",
            &kept[..60]
        );
        assert!(kept.ends_with("\u{fc}\nlast"));
        // One line without an end is cut within, between two letters.
        let line = "\u{20ac}".repeat(TRACEBACK_BYTES_MAX);
        assert!(shortened(&line).ends_with('\u{20ac}'));
    }
}
