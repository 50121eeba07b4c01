//! Do redirects, replies and rewrites hold together? Rules that are never reached, redirects in a circle.

use super::Check;
use crate::builder::{Draft, Placed};
use crate::typed::{PathPattern, RedirectConfig, RulesConfig};

/// Stands for any rest of a path when redirects are followed.
const SOME_REST: &[u8] = b"some-rest";

impl Check<'_> {
    /// The rules, each list in its order.
    pub(super) fn rules(&mut self, draft: &Draft) -> RulesConfig {
        self.never_reached(draft);
        self.circles(&draft.redirects);
        RulesConfig {
            redirects: Placed::values(&draft.redirects),
            replies: Placed::values(&draft.replies),
            rewrites: Placed::values(&draft.rewrites),
        }
    }

    /// A rule whose paths an earlier one takes: probably the wrong order, surely not what was wished.
    fn never_reached(&mut self, draft: &Draft) {
        // What a redirect leaves out may be a later rule's.
        let takes_all = |one: &RedirectConfig| one.except.is_empty();
        let mut earlier = self.among(&[], &draft.redirects, |one| &one.from, takes_all);
        // What a rewrite makes is looked up among the replies without the redirects before.
        let replies = match draft.rewrites.is_empty() {
            true => self.among(&earlier, &draft.replies, |one| &one.from, |_| true),
            false => self.among(&[], &draft.replies, |one| &one.from, |_| true),
        };
        earlier.extend(replies);
        self.among(&earlier, &draft.rewrites, |one| &one.from, |_| true);
    }

    /// Looks for such rules in one list behind others; gives the list's patterns.
    fn among<'d, T>(
        &mut self,
        others: &[&'d PathPattern],
        list: &'d [Placed<T>],
        from: fn(&T) -> &PathPattern,
        takes_all: fn(&T) -> bool,
    ) -> Vec<&'d PathPattern> {
        let mut own: Vec<&PathPattern> = Vec::new();
        for rule in list {
            let pattern = from(&rule.value);
            // The first match counts, so only what stands before it can take everything from it.
            if let Some(taker) = others.iter().chain(&own).find(|one| covers(one, pattern)) {
                let (pattern, taker) = (said(pattern), said(taker));
                let (text, hint) = if pattern == taker {
                    (format!("`{pattern}` has a rule already"), "leave one out")
                } else {
                    let text = format!("`{pattern}` is never reached: `{taker}` stands before it");
                    let hint = "the first match counts, redirects before replies before rewrites";
                    (text, hint)
                };
                self.statement(&rule.origin, text, hint);
            }
            // A rule with exceptions leaves some requests to the next one, so it hides none.
            if takes_all(&rule.value) {
                own.push(pattern);
            }
        }
        own
    }

    /// Redirects that lead back to themselves: no browser follows them to an end.
    fn circles(&mut self, redirects: &[Placed<RedirectConfig>]) {
        for Placed { value, origin } in redirects {
            // Followed as a browser would, with a rest that no rule names: what depends on the rest is no circle.
            let mut path = leads_to(value, SOME_REST);
            // More steps than there are rules use one of them twice.
            let steps = redirects.iter().take_while(|_| {
                let next = redirects
                    .iter()
                    .find_map(|one| Some(leads_to(&one.value, &redirected(&one.value, &path)?)));
                let goes_on = next.is_some();
                path = next.unwrap_or_default();
                goes_on
            });
            if steps.count() == redirects.len() {
                let text = format!("the redirect of `{}` never ends", said(&value.from));
                let hint = "what it leads to is redirected again, round in a circle";
                self.statement(origin, text, hint);
            }
        }
    }
}

/// Whether every path of `inner` is one of `outer`.
fn covers(outer: &PathPattern, inner: &PathPattern) -> bool {
    match (outer, inner) {
        (PathPattern::Exactly(outer), PathPattern::Exactly(inner)) => {
            decoded(outer) == decoded(inner)
        }
        (PathPattern::Exactly(_), PathPattern::Beginning(_)) => false,
        (
            PathPattern::Beginning(outer),
            PathPattern::Exactly(inner) | PathPattern::Beginning(inner),
            // Compared decoded, as paths of requests are: `/%61` and `/a` are one path.
        ) => decoded(inner).starts_with(&decoded(outer)),
    }
}

/// What a decoded path has behind a pattern; nothing when it is none of its paths.
fn rest(pattern: &PathPattern, path: &[u8]) -> Option<Vec<u8>> {
    let rest = match pattern {
        PathPattern::Exactly(whole) => (path == decoded(whole)).then_some(&[][..]),
        PathPattern::Beginning(beginning) => path.strip_prefix(&*decoded(beginning)),
    };
    rest.map(<[u8]>::to_vec)
}

/// What a decoded path has behind the pattern of a redirect; nothing when it is not redirected.
fn redirected(redirect: &RedirectConfig, path: &[u8]) -> Option<Vec<u8>> {
    let mut except = redirect.except.iter();
    match except.any(|one| rest(one, path).is_some()) {
        true => None,
        false => rest(&redirect.from, path),
    }
}

/// The path that a redirect sends to, decoded; for another site its whole URL, which no pattern matches.
fn leads_to(redirect: &RedirectConfig, rest: &[u8]) -> Vec<u8> {
    let to = &redirect.to;
    let path = &to[..to.find(['?', '#']).unwrap_or(to.len())];
    match path.split_once('*') {
        Some((before, after)) => [&decoded(before), rest, &decoded(after)].concat(),
        None => decoded(path),
    }
}

/// Paths are compared decoded, here as for requests: `/a%2Fb` is `/a/b`.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match http::target::decode(text.as_bytes(), &mut bytes) {
        true => bytes,
        false => text.into(),
    }
}

fn said(pattern: &PathPattern) -> String {
    match pattern {
        PathPattern::Exactly(path) => path.clone(),
        PathPattern::Beginning(beginning) => format!("{beginning}*"),
    }
}
