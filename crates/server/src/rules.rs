//! Rules: redirects, fixed replies and rewrites, by path.
//!
//! Takes the head of a request, gives a reply, another target, or nothing. Pure; made once, shared by all
//! drivers. Routes come behind it: it knows neither folders nor the application.
//!
//! A path is compared decoded, case-sensitively, in every reading that somebody behind this server may
//! give it (`reading`): as the application sees it, with slashes merged, with dot segments resolved. The
//! first rule that any reading matches counts. So a path that is closed by a fixed reply is closed however
//! it is spelt, at the price that an odd spelling of an open one may be answered as well.
//!
//! Redirects come first, then fixed replies, then rewrites. What a rewrite makes is looked up among the
//! fixed replies once more: else `/app/*` to `/*` would open `/app/closed`. It is neither redirected nor
//! rewritten again.

mod aim;
mod reading;

use std::collections::HashMap;

use bytes::Bytes;
use wire::{FieldLines, HeadView, SharedFields};

use self::aim::Aim;
use self::reading::{Reading, Readings, Rest};
use crate::config::meant::{self, FixedReply, PathPattern};
use crate::response::{Part, Reply, ReplyBody, status_text, text_fields};

/// The rules of one process.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    redirects: Table<Redirect>,
    replies: Table<Fixed>,
    rewrites: Table<Aim>,
}

/// What the rules say of a request.
#[derive(Debug)]
pub(crate) enum Ruled {
    /// Nothing: it goes on as it is.
    Nothing,
    /// It is answered with this.
    Reply(Reply),
    /// It is answered with this, a refusal (400 to 599) that has no text of its own: an error page may take
    /// the place of its body.
    Bare(Reply),
    /// It goes on as a request for this target in origin form: a path and perhaps a query, visible ASCII.
    Rewritten(Vec<u8>),
}

/// The rules of one kind.
#[derive(Debug)]
struct Table<T> {
    /// What each rule does, in the order of the configuration.
    actions: Vec<T>,
    /// The first rule for each exact path.
    exact: HashMap<Vec<u8>, usize>,
    /// Beginnings with their rules, in the order of the rules.
    beginnings: Vec<(Vec<u8>, usize)>,
}

#[derive(Debug)]
struct Redirect {
    status: u16,
    to: Aim,
}

/// A fixed reply, rendered.
#[derive(Debug)]
struct Fixed {
    status: u16,
    fields: SharedFields,
    body: Bytes,
    is_bare: bool,
}

impl Rules {
    /// Takes checked rules; what a check would have refused does no harm here.
    pub(crate) fn new(rules: &meant::Rules) -> Rules {
        let mut made = Rules::default();
        for redirect in &rules.redirects {
            let to = Aim::of_redirect(&redirect.to, has_rest(&redirect.from));
            let status = redirect.status;
            made.redirects.push(&redirect.from, Redirect { status, to });
        }
        for reply in &rules.replies {
            made.replies.push(&reply.from, Fixed::new(reply));
        }
        for rewrite in &rules.rewrites {
            let to = Aim::of_rewrite(&rewrite.to, has_rest(&rewrite.from));
            made.rewrites.push(&rewrite.from, to);
        }
        made
    }

    /// Whether there is no rule at all: then nothing is ever found.
    pub(crate) fn is_empty(&self) -> bool {
        self.redirects.is_empty() && self.replies.is_empty() && self.rewrites.is_empty()
    }

    /// What the rules say of the request with this head. An absolute target counts by its path;
    /// `OPTIONS *` has none. A path that is written plainly and matches nothing costs no allocation.
    pub(crate) fn look(&self, head: HeadView<'_>) -> Ruled {
        let path = head.path();
        if self.is_empty() || !path.starts_with(b"/") {
            return Ruled::Nothing;
        }
        let readings = Readings::of(path);
        let readings = readings.as_slice();
        if let Some((redirect, rest)) = self.redirects.find(readings) {
            return Ruled::Reply(redirect.reply(head, rest));
        }
        if let Some((fixed, _)) = self.replies.find(readings) {
            return fixed.ruled(head);
        }
        let Some((to, rest)) = self.rewrites.find(readings) else {
            return Ruled::Nothing;
        };
        let mut target = Vec::with_capacity(head.target().len() + 32);
        to.write(&mut target, rest, head.query());
        let end = memchr::memchr(b'?', &target).unwrap_or(target.len());
        match self.replies.find(Readings::of(&target[..end]).as_slice()) {
            Some((fixed, _)) => fixed.ruled(head),
            None => Ruled::Rewritten(target),
        }
    }
}

impl<T> Table<T> {
    fn push(&mut self, from: &PathPattern, action: T) {
        let rank = self.actions.len();
        self.actions.push(action);
        match from {
            PathPattern::Exactly(path) => {
                let path = reading::decoded(path.as_bytes());
                self.exact.entry(path).or_insert(rank);
            }
            PathPattern::Beginning(text) => {
                self.beginnings
                    .push((reading::decoded(text.as_bytes()), rank));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The first rule that any reading matches, with the rest of the first reading that does.
    fn find<'r>(&self, readings: &'r [Reading<'_>]) -> Option<(&T, Rest<'r>)> {
        if self.is_empty() {
            return None;
        }
        let found = readings.iter().filter_map(|reading| {
            let (rank, rest_from) = self.rank(&reading.bytes)?;
            Some((rank, reading.rest(rest_from)))
        });
        let (rank, rest) = found.min_by_key(|(rank, _)| *rank)?;
        Some((&self.actions[rank], rest))
    }

    /// The first rule for `path`, and where in it the rest begins.
    fn rank(&self, path: &[u8]) -> Option<(usize, usize)> {
        let exact = self.exact.get(path).map(|rank| (*rank, path.len()));
        let beginning = self
            .beginnings
            .iter()
            .find(|(text, _)| path.starts_with(text))
            .map(|(text, rank)| (*rank, text.len()));
        exact.into_iter().chain(beginning).min()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            actions: Vec::new(),
            exact: HashMap::new(),
            beginnings: Vec::new(),
        }
    }
}

impl Redirect {
    fn reply(&self, head: HeadView<'_>, rest: Rest<'_>) -> Reply {
        let text = status_text(self.status);
        let mut fields = text_fields(text.len());
        let mut target = Vec::with_capacity(head.target().len() + 64);
        self.to.write(&mut target, rest, head.query());
        // It is visible ASCII; were it not, no part of it may become another field.
        if fields.try_push(b"Location", &target).is_err() {
            return Reply::refusal(500, None);
        }
        Reply {
            status: self.status,
            fields: fields.freeze(),
            body: body(head, text.into()),
        }
    }
}

impl Fixed {
    fn new(reply: &FixedReply) -> Fixed {
        let status = reply.status;
        let is_bare = reply.text.is_empty() && status >= 400;
        let (mut fields, text) = match status {
            // RFC 9110 section 8.6: no Content-Length in a 204, and in a 304 only that of the 200.
            204 | 304 => (FieldLines::new(), String::new()),
            // RFC 9110 section 15.3.6: a 205 has no content.
            205 => {
                let mut fields = FieldLines::new();
                fields.push_decimal(b"Content-Length", 0);
                (fields, String::new())
            }
            _ if is_bare => {
                let text = status_text(status);
                (text_fields(text.len()), text)
            }
            _ => (text_fields(reply.text.len()), reply.text.clone()),
        };
        // RFC 9110 section 10.2.1: a 405 names the methods that are allowed, here none.
        if status == 405 {
            fields.push(b"Allow", b"");
        }
        Fixed {
            status,
            fields: fields.freeze(),
            body: text.into(),
            is_bare,
        }
    }

    fn ruled(&self, head: HeadView<'_>) -> Ruled {
        let reply = Reply {
            status: self.status,
            fields: self.fields.clone(),
            body: body(head, self.body.clone()),
        };
        match self.is_bare {
            true => Ruled::Bare(reply),
            false => Ruled::Reply(reply),
        }
    }
}

fn has_rest(from: &PathPattern) -> bool {
    matches!(from, PathPattern::Beginning(_))
}

fn body(head: HeadView<'_>, text: Bytes) -> ReplyBody {
    if head.is_head() || text.is_empty() {
        return ReplyBody::Empty;
    }
    ReplyBody::One(Part::Memory(text))
}

#[cfg(test)]
mod tests;
