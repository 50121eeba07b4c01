//! Do redirects, replies and rewrites hold together? Rules that are never reached, redirects in a circle.

use super::super::draft::{Draft, Placed};
use super::super::meant::{PathPattern, Redirect, Rules};
use super::Check;

/// Stands for any rest of a path when redirects are followed.
const SOME_REST: &str = "some-rest";

impl Check<'_> {
    /// The rules, each list in its order.
    pub(super) fn rules(&mut self, draft: &Draft) -> Rules {
        self.never_reached(draft);
        self.circles(&draft.redirects);
        Rules {
            redirects: values(&draft.redirects),
            replies: values(&draft.replies),
            rewrites: values(&draft.rewrites),
        }
    }

    /// A rule whose paths an earlier one takes: probably the wrong order, surely not what was wished.
    fn never_reached(&mut self, draft: &Draft) {
        let redirects = draft
            .redirects
            .iter()
            .map(|one| (&one.value.from, one.origin.clone()));
        let replies = draft
            .replies
            .iter()
            .map(|one| (&one.value.from, one.origin.clone()));
        let rewrites = draft
            .rewrites
            .iter()
            .map(|one| (&one.value.from, one.origin.clone()));
        let mut earlier: Vec<&PathPattern> = Vec::new();
        for (from, origin) in redirects.chain(replies).chain(rewrites) {
            if let Some(taker) = earlier.iter().find(|one| covers(one, from)) {
                let (from, taker) = (said(from), said(taker));
                let (text, hint) = if from == taker {
                    (format!("`{from}` has a rule already"), "leave one out")
                } else {
                    let text = format!("`{from}` is never reached: `{taker}` stands before it");
                    (
                        text,
                        "the first match counts, redirects before replies before rewrites",
                    )
                };
                self.statement(origin, text, hint);
            }
            earlier.push(from);
        }
    }

    /// Redirects that lead back to themselves: no browser follows them to an end.
    fn circles(&mut self, redirects: &[Placed<Redirect>]) {
        for Placed { value, origin, .. } in redirects {
            let mut path = leads_to(value, SOME_REST);
            // More steps than there are rules use one of them twice.
            let steps = redirects.iter().take_while(|_| {
                let next = redirects
                    .iter()
                    .find_map(|one| Some(leads_to(&one.value, rest(&one.value.from, &path)?)));
                let goes_on = next.is_some();
                path = next.unwrap_or_default();
                goes_on
            });
            if steps.count() == redirects.len() {
                let text = format!("the redirect of `{}` never ends", said(&value.from));
                self.statement(
                    origin.clone(),
                    text,
                    "what it leads to is redirected again, round in a circle",
                );
            }
        }
    }
}

fn values<T: Clone>(placed: &[Placed<T>]) -> Vec<T> {
    placed.iter().map(|one| one.value.clone()).collect()
}

/// Whether every path of `inner` is one of `outer`.
fn covers(outer: &PathPattern, inner: &PathPattern) -> bool {
    match (outer, inner) {
        (PathPattern::Exactly(outer), PathPattern::Exactly(inner)) => outer == inner,
        (PathPattern::Exactly(_), PathPattern::Beginning(_)) => false,
        (
            PathPattern::Beginning(outer),
            PathPattern::Exactly(inner) | PathPattern::Beginning(inner),
        ) => inner.starts_with(outer.as_str()),
    }
}

/// What a path has behind a pattern; nothing when it is none of its paths.
fn rest<'p>(pattern: &PathPattern, path: &'p str) -> Option<&'p str> {
    match pattern {
        PathPattern::Exactly(whole) => (path == whole).then_some(""),
        PathPattern::Beginning(beginning) => path.strip_prefix(beginning.as_str()),
    }
}

/// The path that a redirect sends to; for another site its whole URL, which no pattern matches.
fn leads_to(redirect: &Redirect, rest: &str) -> String {
    let to = redirect.to.replacen('*', rest, 1);
    let end = to.find(['?', '#']).unwrap_or(to.len());
    to[..end].to_owned()
}

fn said(pattern: &PathPattern) -> String {
    match pattern {
        PathPattern::Exactly(path) => path.clone(),
        PathPattern::Beginning(beginning) => format!("{beginning}*"),
    }
}
