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

use globset::{Candidate, GlobBuilder, GlobMatcher};
use http::HeadView;
use queueing::Class;

use crate::exchange::Ends;
use crate::request_test::{ClientAddress, RequestTest};
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
    test: RequestTest,
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

/// One request, and what is found out about it only when a rule asks.
struct Asked<'a> {
    view: HeadView<'a>,
    path: &'a [u8],
    ends: &'a Ends,
    candidate: OnceCell<Candidate<'a>>,
    client: ClientAddress,
}

/// How narrow a rule is; the greater, the narrower.
type Narrowness = ((bool, usize, usize), (usize, u8, u32, bool));

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
            client: ClientAddress::default(),
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
        let (host, header) = (rule.host.as_deref(), rule.header.as_ref());
        Self {
            path: PathTest::new(rule.path.as_deref()),
            test: RequestTest::new(&rule.methods, host, header, &rule.from),
            pool: u16::try_from(rule.pool).expect("the number of pools is checked"),
            class: rule.class,
        }
    }

    fn narrowness(&self) -> Narrowness {
        (self.path.narrowness(), self.test.narrowness())
    }

    fn fits(&self, asked: &Asked<'_>) -> bool {
        self.path.fits(asked) && self.test.fits(asked.view, asked.ends, &asked.client)
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

impl<'a> Asked<'a> {
    fn candidate(&self) -> &Candidate<'a> {
        self.candidate
            .get_or_init(|| Candidate::from_bytes(self.path))
    }
}

#[cfg(test)]
mod tests;
