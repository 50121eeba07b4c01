//! Rules of pools: which pool runs a request, and how much it matters.
//!
//! Made once of the configuration's rules, shared by all drivers; takes a head, the path that the router
//! saw and both ends, gives a pool's index and a class. Pure.
//!
//! Of the rules that fit, the narrowest counts. What is compared, in this order: a path without
//! wildcards before one with; the longer text before the first wildcard; more text behind it (so
//! `/api/*/export` comes before `/api/**`); a whole host before all beneath one, and a longer one before a
//! shorter; a header with a value before one without; the longer prefix of its widest network; methods
//! before none. Of two that are equally narrow, the one written first counts.
//!
//! Paths are compared as they were sent, or as a rewrite made them: which thread runs a request is no
//! matter of access, so an odd spelling of a path may well be another path.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use globset::{Candidate, GlobBuilder, GlobMatcher};
use http::HeadView;
use queueing::Class;

use crate::exchange::Ends;
use crate::networks::Networks;
use config::typed::{Config, PoolRule, PoolRuns};

/// What globs are made of; a path without them stands for itself.
const WILDCARDS: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// The rules of one process.
#[derive(Debug)]
pub(crate) struct PoolSelector {
    /// The narrowest first.
    rules: Vec<Rule>,
    /// Rules of paths without wildcards, which come before all others, by their path.
    literal: HashMap<Vec<u8>, Vec<usize>>,
    /// Where the others begin.
    others_from: usize,
    /// By pool: what answers its requests.
    runs: Vec<PoolRuns>,
}

/// One rule: all that it names must fit.
#[derive(Debug)]
struct Rule {
    path: PathTest,
    host: Option<HostTest>,
    header: Option<(String, Option<Vec<u8>>)>,
    networks: Networks,
    methods: Vec<Vec<u8>>,
    pool: u16,
    class: Class,
}

#[derive(Debug)]
enum PathTest {
    Any,
    /// `/reports`
    Literal(Vec<u8>),
    /// `/reports/**`, without its stars.
    Beginning(Vec<u8>),
    /// Any other glob, and the text that stands before its first wildcard.
    Glob(Vec<u8>, Box<GlobMatcher>),
    /// What no path fits: a glob that is none, which checks refuse.
    Nothing,
}

/// A condition on the host of a request.
#[derive(Debug)]
pub(crate) enum HostTest {
    /// `shop.example`
    Whole(Vec<u8>),
    /// `*.shop.example`, with its dot and without its star.
    Beneath(Vec<u8>),
}

/// One request, and what is found out about it only when a rule asks.
struct Asked<'a> {
    view: HeadView<'a>,
    path: &'a [u8],
    ends: &'a Ends,
    candidate: OnceCell<Candidate<'a>>,
    client: OnceCell<Option<IpAddr>>,
}

/// How narrow a rule is; the greater, the narrower.
type Narrowness = (bool, usize, usize, usize, u8, u32, bool);

impl PoolSelector {
    /// Takes checked rules; one that a check would have refused fits nothing. `None`: there are none.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let mut rules: Vec<Rule> = config.pool_rules.iter().map(Rule::new).collect();
        // Stable: of those that are equally narrow, the first stays the first.
        rules.sort_by_cached_key(|rule| Reverse(rule.narrowness()));
        let mut literal: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        let mut others_from = 0;
        for (index, rule) in rules.iter().enumerate() {
            if let PathTest::Literal(path) = &rule.path {
                literal.entry(path.clone()).or_default().push(index);
                others_from = index + 1;
            }
        }
        (!rules.is_empty()).then_some(Self {
            rules,
            literal,
            others_from,
            runs: config.pools.iter().map(|pool| pool.runs).collect(),
        })
    }

    /// The pool (an index into `Config::pools`) and the class of a request that `own` runs where no rule fits; `path` is
    /// the one that the router saw. Only rules whose pools run the same application, or are
    /// the queue of the same upstream, count. Rules of whole paths cost one
    /// look into a table.
    pub(crate) fn find(
        &self,
        own: u16,
        view: HeadView<'_>,
        path: &[u8],
        ends: &Ends,
    ) -> (u16, Class) {
        let runs = self.runs[usize::from(own)];
        let asked = Asked {
            view,
            path,
            ends,
            candidate: OnceCell::new(),
            client: OnceCell::new(),
        };
        let literal = self.literal.get(path).into_iter().flatten();
        let literal = literal.map(|index| &self.rules[*index]);
        let others = self.rules[self.others_from..].iter();
        let mut rules = literal.chain(others);
        match rules.find(|rule| self.runs[usize::from(rule.pool)] == runs && rule.fits(&asked)) {
            Some(rule) => (rule.pool, rule.class),
            None => (own, Class::Normal),
        }
    }
}

impl Rule {
    fn new(rule: &PoolRule) -> Self {
        let header = rule.header.as_ref();
        let methods = rule.methods.iter();
        Self {
            path: PathTest::new(rule.path.as_deref()),
            host: rule.host.as_deref().map(HostTest::new),
            header: header.map(|(name, value)| {
                let value = value.as_ref().map(|value| value.clone().into_bytes());
                (name.clone(), value)
            }),
            networks: Networks::new(&rule.from),
            methods: methods.map(|method| method.clone().into_bytes()).collect(),
            pool: u16::try_from(rule.pool).expect("the number of pools is checked"),
            class: rule.class,
        }
    }

    fn narrowness(&self) -> Narrowness {
        let (is_literal, before, behind) = self.path.narrowness();
        let host = self.host.as_ref().map_or(0, HostTest::narrowness);
        let header = match &self.header {
            None => 0,
            Some((_, None)) => 1,
            Some((_, Some(_))) => 2,
        };
        let network = match self.networks.is_empty() {
            true => 0,
            false => 1 + self.networks.bits_min(),
        };
        let has_methods = !self.methods.is_empty();
        (
            is_literal,
            before,
            behind,
            host,
            header,
            network,
            has_methods,
        )
    }

    fn fits(&self, asked: &Asked<'_>) -> bool {
        let view = asked.view;
        // What costs least comes first.
        (self.methods.is_empty() || self.methods.iter().any(|method| method == view.method()))
            && self.path.fits(asked)
            && self
                .host
                .as_ref()
                .is_none_or(|host| host.fits(view, asked.ends))
            && self.header.as_ref().is_none_or(|(name, value)| {
                let named = |field: &[u8]| field.eq_ignore_ascii_case(name.as_bytes());
                view.headers().any(|(field, found)| {
                    named(field) && value.as_ref().is_none_or(|value| value == found)
                })
            })
            && (self.networks.is_empty() || asked.client().is_some_and(|ip| self.networks.has(ip)))
    }
}

impl PathTest {
    fn new(path: Option<&str>) -> Self {
        let Some(path) = path else {
            return PathTest::Any;
        };
        let Some(wildcard) = path.find(WILDCARDS) else {
            return PathTest::Literal(path.into());
        };
        let before = &path[..wildcard];
        if before.ends_with('/') && &path[wildcard..] == "**" {
            return PathTest::Beginning(before.into());
        }
        match GlobBuilder::new(path).literal_separator(true).build() {
            Ok(glob) => PathTest::Glob(before.into(), Box::new(glob.compile_matcher())),
            Err(_) => PathTest::Nothing,
        }
    }

    /// Whether it is one path alone, and the lengths of its text before the first wildcard and behind.
    fn narrowness(&self) -> (bool, usize, usize) {
        match self {
            PathTest::Any | PathTest::Nothing => (false, 0, 0),
            PathTest::Literal(path) => (true, path.len(), 0),
            PathTest::Beginning(before) => (false, before.len(), 0),
            PathTest::Glob(before, glob) => {
                let behind = glob.glob().glob()[before.len()..].trim_matches('*');
                (false, before.len(), 1 + behind.len())
            }
        }
    }

    fn fits(&self, asked: &Asked<'_>) -> bool {
        match self {
            PathTest::Any => true,
            PathTest::Literal(path) => path == asked.path,
            PathTest::Beginning(before) => asked.path.starts_with(before),
            PathTest::Glob(before, glob) => {
                asked.path.starts_with(before) && glob.is_match_candidate(asked.candidate())
            }
            PathTest::Nothing => false,
        }
    }
}

impl HostTest {
    pub(crate) fn new(host: &str) -> Self {
        match host.strip_prefix('*') {
            Some(beneath) => HostTest::Beneath(beneath.into()),
            None => HostTest::Whole(host.into()),
        }
    }

    /// No host has more than 255 bytes (RFC 1035 section 2.3.4).
    fn narrowness(&self) -> usize {
        match self {
            HostTest::Whole(host) => 256 + host.len(),
            HostTest::Beneath(dotted) => dotted.len(),
        }
    }

    pub(crate) fn fits(&self, view: HeadView<'_>, ends: &Ends) -> bool {
        let forwarded = ends.host.as_ref().map(|host| host.as_bytes());
        let host = host_of(forwarded.or(view.authority()).unwrap_or_default());
        match self {
            HostTest::Whole(whole) => host.eq_ignore_ascii_case(whole),
            HostTest::Beneath(dotted) => {
                let from = host.len().checked_sub(dotted.len());
                from.is_some_and(|from| from > 0 && host[from..].eq_ignore_ascii_case(dotted))
            }
        }
    }
}

impl<'a> Asked<'a> {
    fn candidate(&self) -> &Candidate<'a> {
        self.candidate
            .get_or_init(|| Candidate::from_bytes(self.path))
    }

    /// A client on a unix socket has no address.
    fn client(&self) -> Option<IpAddr> {
        *self
            .client
            .get_or_init(|| self.ends.client_host.parse().ok())
    }
}

/// An authority without its port and without the dot that ends a whole name. An IPv6 address keeps its
/// brackets.
fn host_of(authority: &[u8]) -> &[u8] {
    let host_bytes = match authority.first() {
        Some(b'[') => memchr::memchr(b']', authority).map(|end| end + 1),
        _ => memchr::memchr(b':', authority),
    };
    let host = &authority[..host_bytes.unwrap_or(authority.len())];
    host.strip_suffix(b".").unwrap_or(host)
}

#[cfg(test)]
mod tests;
