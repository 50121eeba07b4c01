//! Rules: redirects, fixed replies and rewrites, by path.
//!
//! Takes the head of a request, gives a reply, another target, or nothing. Pure; made once, shared by all
//! drivers. Routes come behind it: it knows neither folders nor the application.
//!
//! A path is compared decoded, case-sensitively, in every variant that a program behind this server may
//! give it (`path_variants`): as the application sees it, with slashes merged, with dot segments resolved. The
//! first rule that any variant matches counts. So a path that is closed by a fixed reply is closed however
//! it is spelt, at the price that an odd spelling of an open one may be answered as well.
//!
//! Redirects come first, then fixed replies, then rewrites. What a rewrite makes is looked up among the
//! fixed replies once more: else `/app/*` to `/*` would open `/app/closed`. It is neither redirected nor
//! rewritten again.

mod path_variants;
mod redirect_target;

use std::collections::HashMap;

use bytes::Bytes;
use files::{Part, Reply, ReplyBody, status_text, text_fields};
use http::{FieldLines, HeadView, SharedFields};

use self::path_variants::{PathRest, PathVariant, PathVariants};
use self::redirect_target::RedirectTarget;
use config::typed::{self, FixedReply, PathPattern};

/// The rules of one process.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    redirects: RuleTable<Redirect>,
    replies: RuleTable<Fixed>,
    rewrites: RuleTable<RedirectTarget>,
}

/// What the rules say of a request.
#[derive(Debug)]
pub(crate) enum RuleOutcome {
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
struct RuleTable<T> {
    /// What each rule does, in the order of the configuration.
    actions: Vec<T>,
    /// The first rule for each exact path.
    exact: HashMap<Vec<u8>, usize>,
    /// Beginnings with their rules, in the order of the rules.
    beginnings: Vec<(Vec<u8>, usize)>,
    /// Paths that a rule of beginnings leaves out: the rule, the path, and whether it is a beginning too.
    exceptions: Vec<(usize, Vec<u8>, bool)>,
}

#[derive(Debug)]
struct Redirect {
    status: u16,
    to: RedirectTarget,
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
    pub(crate) fn new(rules: &typed::RulesConfig) -> Rules {
        let mut made = Rules::default();
        for redirect in &rules.redirects {
            let to = RedirectTarget::of_redirect(&redirect.to, has_rest(&redirect.from));
            let status = redirect.status;
            made.redirects.push(&redirect.from, Redirect { status, to });
            made.redirects.leave_out(&redirect.except);
        }
        for reply in &rules.replies {
            made.replies.push(&reply.from, Fixed::new(reply));
        }
        for rewrite in &rules.rewrites {
            let to = RedirectTarget::of_rewrite(&rewrite.to, has_rest(&rewrite.from));
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
    pub(crate) fn apply(&self, head: HeadView<'_>) -> RuleOutcome {
        let path = head.path();
        if self.is_empty() || !path.starts_with(b"/") {
            return RuleOutcome::Nothing;
        }
        let variants = PathVariants::of(path);
        let variants = variants.as_slice();
        if let Some((redirect, rest)) = self.redirects.find(variants) {
            return RuleOutcome::Reply(redirect.reply(head, rest));
        }
        if let Some((fixed, _)) = self.replies.find(variants) {
            return fixed.ruled();
        }
        let Some((to, rest)) = self.rewrites.find(variants) else {
            return RuleOutcome::Nothing;
        };
        let mut target = Vec::with_capacity(head.target().len() + 32);
        to.write(&mut target, rest, head.query());
        let end = memchr::memchr(b'?', &target).unwrap_or(target.len());
        match self
            .replies
            .find(PathVariants::of(&target[..end]).as_slice())
        {
            Some((fixed, _)) => fixed.ruled(),
            None => RuleOutcome::Rewritten(target),
        }
    }
}

impl<T> RuleTable<T> {
    fn push(&mut self, from: &PathPattern, action: T) {
        let rank = self.actions.len();
        self.actions.push(action);
        match from {
            PathPattern::Exactly(path) => {
                let path = path_variants::decoded(path.as_bytes());
                self.exact.entry(path).or_insert(rank);
            }
            PathPattern::Beginning(text) => {
                self.beginnings
                    .push((path_variants::decoded(text.as_bytes()), rank));
            }
        }
    }

    /// The last rule leaves these paths out.
    fn leave_out(&mut self, except: &[PathPattern]) {
        let rank = self.actions.len() - 1;
        self.exceptions.extend(except.iter().map(|one| match one {
            PathPattern::Exactly(path) => (rank, path_variants::decoded(path.as_bytes()), false),
            PathPattern::Beginning(text) => (rank, path_variants::decoded(text.as_bytes()), true),
        }));
    }

    fn is_left_out(&self, rank: usize, path: &[u8]) -> bool {
        let mut exceptions = self.exceptions.iter();
        exceptions.any(|(of, text, is_beginning)| {
            *of == rank && (path == text || *is_beginning && path.starts_with(text))
        })
    }

    fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The first rule that any variant matches, with the rest of the first variant that does.
    fn find<'r>(&self, variants: &'r [PathVariant<'_>]) -> Option<(&T, PathRest<'r>)> {
        if self.is_empty() {
            return None;
        }
        let found = variants.iter().filter_map(|variant| {
            let (rank, rest_from) = self.rank(&variant.bytes)?;
            Some((rank, variant.rest(rest_from)))
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
            .find(|(text, rank)| path.starts_with(text) && !self.is_left_out(*rank, path))
            .map(|(text, rank)| (*rank, text.len()));
        exact.into_iter().chain(beginning).min()
    }
}

impl<T> Default for RuleTable<T> {
    fn default() -> Self {
        Self {
            actions: Vec::new(),
            exact: HashMap::new(),
            beginnings: Vec::new(),
            exceptions: Vec::new(),
        }
    }
}

impl Redirect {
    fn reply(&self, head: HeadView<'_>, rest: PathRest<'_>) -> Reply {
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
            body: ReplyBody::One(Part::Memory(text.into())),
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

    fn ruled(&self) -> RuleOutcome {
        let reply = Reply {
            status: self.status,
            fields: self.fields.clone(),
            body: ReplyBody::One(Part::Memory(self.body.clone())),
        };
        match self.is_bare {
            true => RuleOutcome::Bare(reply),
            false => RuleOutcome::Reply(reply),
        }
    }
}

fn has_rest(from: &PathPattern) -> bool {
    matches!(from, PathPattern::Beginning(_))
}

#[cfg(test)]
mod tests;
