//! Globs over URL paths: which paths a rule of the configuration means.
//!
//! Takes a glob's text once and paths as bytes; gives whether they match. Pure; a match allocates nothing
//! for globs of ordinary length, and its time is linear in the path's bytes.
//!
//! `?` is one byte and `*` any number of bytes, neither a slash; `**` between slashes is any number of
//! segments, at the end everything beneath; `{a,b}` is one of both (empty ones do not count), `[a-f]` one
//! byte of these, `[!a]` one of all others; `\` takes the next letter as it is. A test compares all of
//! this with the crate globset (`literal_separator`).

use std::fmt;

/// One glob; it begins with a slash, as all paths do.
///
/// It is a machine that is in several states at once:
///
/// ```text
///  0 ── byte of a set ──► 1 ── Fork ──► several later states ──► … ──► states.len(), the end
///                         ▲ Repeat: byte of a set ┘
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    states: Vec<GlobState>,
    /// For each byte the states that take it; a bit for each state and one for the end, in whole words.
    takes: Vec<u64>,
    /// Those that are `Repeat`.
    repeats: Vec<u64>,
    /// Those that reach others without a byte.
    free: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq)]
enum GlobState {
    /// One byte of the set leads to the next state.
    Byte(ByteSet),
    /// Bytes of the set stay here; the next state is reached without one.
    Repeat(ByteSet),
    /// These states, all later ones, are reached without a byte.
    Fork(Vec<usize>),
}

/// A bit for each byte.
type ByteSet = [u64; 4];

const ALL: ByteSet = [u64::MAX; 4];
const SLASH: ByteSet = set_of(b'/');
const ALL_BUT_SLASH: ByteSet = [!SLASH[0], u64::MAX, u64::MAX, u64::MAX];
/// Room for 511 states and the end.
const WORDS_ON_STACK: usize = 8;

impl Glob {
    /// Reads a glob.
    ///
    /// # Errors
    /// Why it is malformed, for people: a bracket, a brace or a `\` without its other half, or a range
    /// that ends before it begins.
    pub fn new(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            chars: text.chars().collect(),
            ..Parser::default()
        };
        parser.parse()?;
        let states = parser.states;
        let words = states.len() / 64 + 1;
        let mut glob = Self {
            text: text.to_owned(),
            takes: vec![0; 256 * words],
            repeats: vec![0; words],
            free: vec![0; words],
            states,
        };
        for (index, state) in glob.states.iter().enumerate() {
            let set = match state {
                GlobState::Byte(set) => set,
                GlobState::Repeat(set) => {
                    insert(&mut glob.repeats, index);
                    insert(&mut glob.free, index);
                    set
                }
                GlobState::Fork(to) => {
                    assert!(to.iter().all(|to| *to > index), "a state leads back");
                    insert(&mut glob.free, index);
                    continue;
                }
            };
            for byte in (0..256).filter(|byte| has(set, *byte)) {
                insert(&mut glob.takes[byte * words..], index);
            }
        }
        Ok(glob)
    }

    /// The glob as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches the whole path, which need not be UTF-8.
    pub fn matches(&self, path: &[u8]) -> bool {
        // Most globs have fewer than 64 states, which stay in one register.
        match self.repeats.len() {
            1 => self.run(path, &mut [0]),
            words @ 2..=WORDS_ON_STACK => self.run(path, &mut [0; WORDS_ON_STACK][..words]),
            words => self.run(path, &mut vec![0; words]),
        }
    }

    /// The states of `now`, of which there is none yet, along the path. Inlined, so that each length of
    /// `now` has a loop of its own.
    #[inline(always)]
    fn run(&self, path: &[u8], now: &mut [u64]) -> bool {
        let words = now.len();
        insert(now, 0);
        self.spread(now);
        for byte in path {
            let takes = &self.takes[usize::from(*byte) * words..];
            let (mut carry, mut any) = (0, 0);
            for ((now, takes), repeats) in now.iter_mut().zip(takes).zip(&self.repeats) {
                let taken = *now & takes;
                let leaving = taken & !repeats;
                *now = (taken & repeats) | (leaving << 1) | carry;
                carry = leaving >> 63;
                any |= *now;
            }
            if any == 0 {
                return false;
            }
            self.spread(now);
        }
        has(now, self.states.len())
    }

    /// Adds what the states of `now` reach without a byte.
    #[inline(always)]
    fn spread(&self, now: &mut [u64]) {
        for word in 0..now.len() {
            let mut unseen = u64::MAX;
            // In rising order: states lead to later ones, so one pass finds all of them.
            while let rest @ 1.. = now[word] & self.free[word] & unseen {
                let bit = rest.trailing_zeros();
                unseen = u64::MAX << bit << 1;
                let index = word * 64 + bit as usize;
                match &self.states[index] {
                    GlobState::Fork(to) => to.iter().for_each(|to| insert(now, *to)),
                    _ => insert(now, index + 1),
                }
            }
        }
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

fn has(bits: &[u64], index: usize) -> bool {
    bits[index / 64] >> (index % 64) & 1 == 1
}

fn insert(bits: &mut [u64], index: usize) {
    bits[index / 64] |= 1 << (index % 64);
}

const fn set_of(byte: u8) -> ByteSet {
    let mut set = [0; 4];
    set[byte as usize / 64] = 1 << (byte % 64);
    set
}

/// Makes states of text. Its rules are globset's, in odd cases too, so that rules written for it keep
/// their meaning.
#[derive(Default)]
struct Parser {
    chars: Vec<char>,
    at: usize,
    states: Vec<GlobState>,
    /// Those that are open, the innermost last.
    braces: Vec<Brace>,
    /// First state of the last item of this alternative, if it has any.
    last_item: Option<usize>,
}

/// `{` to `}`
struct Brace {
    /// The state that leads to the alternatives.
    fork: usize,
    /// Where this alternative begins.
    from: usize,
    alternatives: Vec<usize>,
    /// States behind alternatives, which will lead behind the brace.
    ends: Vec<usize>,
}

impl Parser {
    fn parse(&mut self) -> Result<(), String> {
        while let Some(char) = self.bump() {
            let item = self.states.len();
            match char {
                '{' => {
                    self.states.push(GlobState::Fork(Vec::new()));
                    self.braces.push(Brace {
                        fork: item,
                        from: item + 1,
                        alternatives: Vec::new(),
                        ends: Vec::new(),
                    });
                    self.last_item = None;
                    continue;
                }
                ',' if !self.braces.is_empty() => {
                    self.end_alternative();
                    self.last_item = None;
                    continue;
                }
                '}' => {
                    self.last_item = Some(self.end_brace()?);
                    continue;
                }
                '*' if self.peek() == Some('*') => {
                    self.two_stars();
                    continue;
                }
                '*' => self.states.push(GlobState::Repeat(ALL_BUT_SLASH)),
                '?' => self.states.push(GlobState::Byte(ALL_BUT_SLASH)),
                '[' => {
                    let set = self.class()?;
                    self.states.push(GlobState::Byte(set));
                }
                '\\' => {
                    let char = self.bump().ok_or(r"dangling '\'")?;
                    self.literal(char);
                }
                char => self.literal(char),
            }
            self.last_item = Some(item);
        }
        match self.braces.is_empty() {
            true => Ok(()),
            false => {
                Err("unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)".into())
            }
        }
    }

    fn literal(&mut self, char: char) {
        let mut utf8 = [0; 4];
        let bytes = char.encode_utf8(&mut utf8).bytes();
        self.states
            .extend(bytes.map(|byte| GlobState::Byte(set_of(byte))));
    }

    /// `**`, whose first star was read. It has a meaning of its own between slashes only; elsewhere it is
    /// one star.
    fn two_stars(&mut self) {
        let before = self.at.checked_sub(2).map(|at| self.chars[at]);
        self.at += 1;
        let after = self.peek();
        let in_brace = !self.braces.is_empty();
        let begins = before == Some('/') || in_brace && matches!(before, Some(',' | '{'));
        let ends =
            matches!(after, None | Some('/')) || in_brace && matches!(after, Some(',' | '}'));
        let item = match self.last_item {
            None if matches!(after, None | Some('/')) => {
                self.last_item = Some(self.states.len());
                self.any_segments();
                self.at += 1;
                return;
            }
            Some(item) if begins && ends => item,
            _ => {
                self.last_item = Some(self.states.len());
                self.states.push(GlobState::Repeat(ALL_BUT_SLASH));
                return;
            }
        };
        let is_last = after != Some('/');
        self.at += usize::from(!is_last);
        // Stars at the beginning of an alternative stand for these as well: `{**/**/a}`.
        if let Some(GlobState::Fork(_)) = self.states.get(item) {
            return;
        }
        // In the place of the slash before it, or of all that `/**/` became.
        self.states.truncate(item);
        self.states.push(GlobState::Byte(SLASH));
        match is_last {
            true => self.states.push(GlobState::Repeat(ALL)),
            false => self.any_segments(),
        }
    }

    /// Nothing, or anything that ends with a slash.
    fn any_segments(&mut self) {
        let from = self.states.len();
        self.states.push(GlobState::Fork(vec![from + 1, from + 3]));
        self.states.push(GlobState::Repeat(ALL));
        self.states.push(GlobState::Byte(SLASH));
    }

    /// An empty alternative is none.
    fn end_alternative(&mut self) {
        let end = self.states.len();
        if let Some(brace) = self.braces.last_mut() {
            if brace.from < end {
                brace.alternatives.push(brace.from);
                brace.ends.push(end);
                self.states.push(GlobState::Fork(Vec::new()));
            }
            brace.from = self.states.len();
        }
    }

    /// Gives the state that leads to the alternatives.
    fn end_brace(&mut self) -> Result<usize, String> {
        self.end_alternative();
        let brace = self
            .braces
            .pop()
            .ok_or("unopened alternate group; missing '{' (maybe escape '}' with '[}]'?)")?;
        match brace.alternatives.is_empty() {
            true => self.states.truncate(brace.fork),
            false => self.states[brace.fork] = GlobState::Fork(brace.alternatives),
        }
        let behind = self.states.len();
        for end in brace.ends {
            self.states[end] = GlobState::Fork(vec![behind]);
        }
        Ok(brace.fork)
    }

    /// `[a-f]` or `[!a]`, whose bracket was read.
    fn class(&mut self) -> Result<ByteSet, String> {
        let is_negated = matches!(self.peek(), Some('!' | '^'));
        self.at += usize::from(is_negated);
        let mut ranges: Vec<(char, char)> = Vec::new();
        let mut in_range = false;
        loop {
            let char = self.bump().ok_or("unclosed character class; missing ']'")?;
            match (char, ranges.last_mut()) {
                (']', Some(_)) => break,
                ('-', Some(_)) if !in_range => in_range = true,
                (end, Some((start, _))) if in_range && end < *start => {
                    return Err(format!("invalid range; '{start}' > '{end}'"));
                }
                (end, Some((_, old))) if in_range => {
                    *old = end;
                    in_range = false;
                }
                (char, _) => ranges.push((char, char)),
            }
        }
        if in_range {
            ranges.push(('-', '-'));
        }
        let mut set = [0; 4];
        for (start, end) in ranges {
            let (start, end) = (start.to_string(), end.to_string());
            for byte in start.bytes().chain(end.bytes()) {
                insert(&mut set, usize::from(byte));
            }
            // A class is of bytes, so a letter beyond ASCII counts by each of its own.
            if start != end {
                let between = start.as_bytes()[start.len() - 1]..=end.as_bytes()[0];
                between.for_each(|byte| insert(&mut set, usize::from(byte)));
            }
        }
        Ok(match is_negated {
            true => set.map(|word| !word),
            false => set,
        })
    }

    fn bump(&mut self) -> Option<char> {
        let char = self.peek();
        self.at += 1;
        char
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use globset::GlobBuilder;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn check(glob: &str, path: &str, expect: bool) {
        let glob = Glob::new(glob).unwrap();
        assert_eq!(glob.matches(path.as_bytes()), expect, "{glob:?} {path}");
    }

    #[test]
    fn matches_whole_paths() {
        for (glob, path, expect) in [
            ("/reports/**", "/reports/", true),
            ("/reports/**", "/reports/a/b", true),
            ("/reports/**", "/reports", false),
            ("/**/*.css", "/a.css", true),
            ("/**/*.css", "/a/b/c.css", true),
            ("/**/*.css", "/a.css/b", false),
            ("/a/**/b", "/a/b", true),
            ("/a/**/b", "/a/x/y/b", true),
            ("/a/**/b", "/ab", false),
            ("/a**b", "/axb", true),
            ("/a**b", "/a/b", false),
            ("/?", "//", false),
            ("/[!a-c]", "/d", true),
            ("/[!a-c]", "/b", false),
            ("/{a,{b,c}d}e", "/cde", true),
            ("/{a,}", "/", false),
            (r"/\*", "/*", true),
            (r"/\*", "/a", false),
            ("/ä?", "/äb", true),
        ] {
            check(glob, path, expect);
        }
        assert!(Glob::new("/*").unwrap().matches(b"/\xff"));
    }

    #[test]
    fn takes_globs_of_many_names() {
        let names: Vec<_> = (1000..2000).map(|name| name.to_string()).collect();
        let glob = format!("/{{{}}}.css", names.join(","));
        check(&glob, "/1999.css", true);
        check(&glob, "/2000.css", false);
    }

    fn of(letters: &'static [char]) -> impl Strategy<Value = String> {
        vec(select(letters), 0..12).prop_map(|rest| format!("/{}", String::from_iter(rest)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn agrees_with_globset(
            text in of(&['/', '/', 'a', 'b', '.', '*', '*', '?', '{', '}', ',', '[', ']', '!', '-', '\\', 'ä']),
            paths in vec(of(&['/', 'a', 'b', '.', ',', 'ä']), 16),
        ) {
            let theirs = GlobBuilder::new(&text).literal_separator(true).build();
            match (Glob::new(&text), theirs) {
                (Err(cause), Err(fault)) => prop_assert_eq!(cause, fault.kind().to_string()),
                (ours, theirs) => {
                    let (ours, theirs) = (ours.unwrap(), theirs.unwrap().compile_matcher());
                    for path in paths {
                        let expect = theirs.is_match(&path);
                        prop_assert_eq!(ours.matches(path.as_bytes()), expect, "{} {}", text, path);
                    }
                }
            }
        }
    }
}
