//! What a client says of content codings: Accept-Encoding, RFC 9110 section 12.5.3.
//!
//! Takes a request head, gives weights and a choice among codings on offer. Keeps nothing and allocates
//! nothing: every question reads the field again, which is short. It must not know which codings exist.
//!
//! Members that are not well-formed are ignored, each by itself: a client that meant them did not get
//! across what it accepts, and plain bytes are always understood.

use std::ops::Range;

use crate::fields::{Marks, is_token, trim};
use crate::head::HeadView;

const ACCEPT_ENCODING: &[u8] = b"accept-encoding";
const IDENTITY: &str = "identity";
const ANY: &[u8] = b"*";

/// The weight of `q=1`, which is also that of a member without a weight.
const FULL: u16 = 1000;
/// The weight of an identity that nobody spoke of: acceptable, and wanted less than anything named.
const LEAST: u16 = 1;

/// The Accept-Encoding of one request, all of its field lines together.
#[derive(Clone, Debug)]
pub struct AcceptEncoding<'a> {
    head: HeadView<'a>,
    /// Field lines from the first to the last that are called so; empty without the field.
    lines: Range<usize>,
}

impl<'a> AcceptEncoding<'a> {
    /// Finds the field in a complete head.
    pub fn read(head: HeadView<'a>) -> Self {
        let mut lines = 0..0;
        if head.index.marks.contains(Marks::ACCEPT_ENCODING) {
            let names = head.headers().map(|(name, _)| name).enumerate();
            for (place, _) in names.filter(|(_, name)| is_field(name)) {
                if lines.is_empty() {
                    lines.start = place;
                }
                lines.end = place + 1;
            }
        }
        Self { head, lines }
    }

    /// Weight of a content coding in thousandths, 0 to 1000; 0: not acceptable.
    ///
    /// `coding` is a name in lower case. One that the field does not name has the weight of `*`, else 0.
    /// Without the field every coding would be acceptable, but whoever does not send it may not know any,
    /// so that all have 0 and `identity` has 1000. `identity` that is not named has 1 with the field, and 0
    /// when `*;q=0` excludes it. Of a coding named twice the first counts.
    pub fn weight(&self, coding: &str) -> u16 {
        if self.lines.is_empty() {
            return if coding == IDENTITY { FULL } else { 0 };
        }
        let (named, any) = self.said_of(coding);
        match (named, any) {
            (Some(weight), _) => weight,
            (None, Some(0)) => 0,
            (None, _) if coding == IDENTITY => LEAST,
            (None, any) => any.unwrap_or(0),
        }
    }

    /// Which of the codings on offer to use, as its place in `offered`; `None`: none of them.
    ///
    /// The greatest weight wins, and among equals the first. Plain bytes win over all of them only where
    /// the client names `identity` with a greater weight.
    pub fn choose<'c>(&self, offered: impl IntoIterator<Item = &'c str>) -> Option<usize> {
        let mut best = (None, 0);
        for (place, coding) in offered.into_iter().enumerate() {
            let weight = self.weight(coding);
            if weight > best.1 {
                best = (Some(place), weight);
            }
        }
        let (place, weight) = best;
        place.filter(|_| self.weight(IDENTITY) <= weight)
    }

    /// The weights of the first member called `coding` and of the first `*`.
    fn said_of(&self, coding: &str) -> (Option<u16>, Option<u16>) {
        let (mut named, mut any) = (None, None);
        for (name, weight) in self.members() {
            if is_called(name, coding.as_bytes()) {
                named = named.or(Some(weight));
            } else if name == ANY {
                any = any.or(Some(weight));
            }
        }
        (named, any)
    }

    /// Names and weights of all well-formed members, in order.
    fn members(&self) -> impl Iterator<Item = (&'a [u8], u16)> {
        let lines = self.head.headers().skip(self.lines.start);
        lines
            .take(self.lines.len())
            .filter(|(name, _)| is_field(name))
            .flat_map(|(_, value)| value.split(|&b| b == b','))
            .filter_map(member)
    }
}

fn is_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(ACCEPT_ENCODING)
}

/// RFC 9110 section 8.4.1: names are case-insensitive; section 8.4.1.3: `x-gzip` is `gzip`.
fn is_called(name: &[u8], coding: &[u8]) -> bool {
    let name = match name {
        [b'x' | b'X', b'-', old @ ..] if coding == b"gzip" => old,
        name => name,
    };
    name.eq_ignore_ascii_case(coding)
}

/// `codings [ weight ]`, where `weight = OWS ";" OWS "q=" qvalue` (RFC 9110 section 12.4.2).
fn member(text: &[u8]) -> Option<(&[u8], u16)> {
    let mut halves = text.splitn(2, |&b| b == b';');
    let name = trim(halves.next()?);
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return None;
    }
    let weight = match halves.next().map(trim) {
        None => FULL,
        Some([b'q' | b'Q', b'=', value @ ..]) => quality(value)?,
        Some(_) => return None,
    };
    Some((name, weight))
}

/// A `qvalue` in thousandths: 0 to 1 with at most three decimals (RFC 9110 section 12.4.2); `None` for anything
/// else.
pub fn quality(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |place: usize| u16::from(decimals.get(place).map_or(0, |b| b - b'0'));
    let sum = u16::from(whole - b'0') * FULL + digit(0) * 100 + digit(1) * 10 + digit(2);
    (sum <= FULL).then_some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{HeadIndex, HeadStep, Limits};

    const OFFERED: [&str; 3] = ["br", "zstd", "gzip"];

    /// Asks about a request with these field lines.
    fn ask<T>(lines: &[&str], question: impl Fn(&AcceptEncoding<'_>) -> T) -> T {
        let mut text = String::from("GET / HTTP/1.1\r\nHost: a\r\n");
        for line in lines {
            text += &format!("Accept-Encoding: {line}\r\nX-Between: br, gzip\r\n");
        }
        text += "\r\n";
        let mut index = HeadIndex::new();
        let step = index.parse(text.as_bytes(), &mut 0, &Limits::default());
        assert_eq!(step, Ok(HeadStep::Complete), "{text}");
        question(&AcceptEncoding::read(HeadView {
            bytes: text.as_bytes(),
            index: &index,
        }))
    }

    #[test]
    fn weighs_codings_by_name_by_star_and_by_the_rule_of_identity() {
        let check = |lines: &[&str], coding: &str, expect: u16| {
            let weight = ask(lines, |accept| accept.weight(coding));
            assert_eq!(weight, expect, "{coding} in {lines:?}");
        };
        check(&[], "gzip", 0);
        check(&[], "identity", 1000);
        check(&[""], "gzip", 0);
        check(&[""], "identity", 1);
        check(&["gzip"], "gzip", 1000);
        check(&["GZip;Q=0.5"], "gzip", 500);
        check(&["x-gzip"], "gzip", 1000);
        check(&["x-br"], "br", 0);
        check(&["gzip"], "br", 0);
        check(&["gzip"], "identity", 1);
        check(&["*"], "br", 1000);
        check(&["*"], "identity", 1);
        check(&["gzip;q=0.3, *;q=0.5"], "br", 500);
        check(&["*;q=0.5, gzip;q=0.3"], "gzip", 300);
        check(&["gzip, *;q=0"], "br", 0);
        check(&["gzip, *;q=0"], "identity", 0);
        check(&["identity, *;q=0"], "identity", 1000);
        check(&["identity;q=0"], "identity", 0);
        check(&["gzip;q=0"], "gzip", 0);
        check(&["gzip;q=0.25", "br;q=0.125"], "br", 125);
        check(&["gzip;q=0.25", "br;q=0.125", "zstd"], "zstd", 1000);
        check(&["gzip;q=0, gzip"], "gzip", 0);
    }

    #[test]
    fn reads_weights_exactly_and_ignores_members_that_are_malformed() {
        let check = |member: &str, expect: Option<u16>| {
            // Beside the malformed one the others are still heard.
            let lines = [&*format!("br, {member} ,zstd")];
            let weights = ask(&lines, |accept| OFFERED.map(|coding| accept.weight(coding)));
            assert_eq!(weights, [1000, 1000, expect.unwrap_or(0)], "{member}");
        };
        check("gzip", Some(1000));
        check("gzip \t; q=1", Some(1000));
        check("gzip;q=1.000", Some(1000));
        check("gzip;q=1.", Some(1000));
        check("gzip;q=0", Some(0));
        check("gzip;q=0.", Some(0));
        check("gzip;q=0.000", Some(0));
        check("gzip;q=0.001", Some(1));
        check("gzip;q=0.9", Some(900));
        check("gzip;q=0.99", Some(990));
        check("gzip;q=0.999", Some(999));
        let malformed = "gzip; gzip;q gzip;q= gzip;q=2 gzip;q=1.001 gzip;q=1.1 gzip;q=0.1234 gzip;q=.5 \
            gzip;q=-0 gzip;q=0,5 gzip;q=0x1 gzip;q=\"1\" gzip;level=9 gzip;q=1;level=9 \u{e9}gzip gzip=1";
        let spaced = ["", "gzip;q =0.5", "gzip;q= 0.5", "gzip br"];
        for malformed in malformed.split_whitespace().chain(spaced) {
            check(malformed, None);
        }
    }

    #[test]
    fn chooses_the_greatest_weight_and_the_first_among_equals() {
        let check = |line: &str, expect: Option<&str>| {
            let chosen = ask(&[line], |accept| accept.choose(OFFERED));
            assert_eq!(chosen.map(|place| OFFERED[place]), expect, "{line}");
        };
        check("gzip, deflate, br, zstd", Some("br"));
        check("gzip, deflate", Some("gzip"));
        check("gzip;q=1.0, zstd;q=1.0, br;q=0.9", Some("zstd"));
        check("*", Some("br"));
        check("br;q=0, *", Some("zstd"));
        check("deflate", None);
        check("", None);
        check("gzip;q=0.5, identity", None);
        check("gzip, identity", Some("gzip"));
        check("gzip;q=0.5, identity;q=0.5", Some("gzip"));
        check("gzip;q=0.4, identity;q=0.5", None);
        check("*;q=0.5, identity;q=0.7", None);
        check("gzip;q=0.001", Some("gzip"));
        check("identity;q=0", None);
        check("*;q=0", None);
        assert_eq!(ask(&[], |accept| accept.choose(OFFERED)), None);
        let nothing_offered = ask(&["*"], |accept| accept.choose([]));
        assert_eq!(nothing_offered, None);
    }

    /// A member and what it means; `None` for one that is malformed.
    fn members() -> impl Strategy<Value = (String, Option<(String, u16)>)> {
        let name = prop_oneof![
            Just("br"),
            Just("zstd"),
            Just("gzip"),
            Just("GZIP"),
            Just("identity"),
            Just("*"),
            Just("deflate"),
        ];
        let space = prop_oneof![Just(""), Just(" "), Just("\t ")];
        let weighted =
            (name, space, proptest::option::of(0..=FULL)).prop_map(|(name, space, weight)| {
                let text = match weight {
                    None => format!("{space}{name}{space}"),
                    Some(w) => format!("{name}{space};{space}q={}.{:03}", w / FULL, w % FULL),
                };
                let meaning = (name.to_ascii_lowercase(), weight.unwrap_or(FULL));
                (text, Some(meaning))
            });
        let malformed = "[a-z*]{0,4}[ ;=.]q?=?[2-9.][0-9.]{3,7}|[;= ]{0,5}";
        prop_oneof![
            4 => weighted,
            1 => malformed.prop_map(|text| (text, None)),
        ]
    }

    proptest! {
        #[test]
        fn means_the_same_however_members_are_spread_over_lines(
            members in proptest::collection::vec((members(), any::<bool>()), 0..8),
        ) {
            let mut lines = vec![String::new()];
            let mut said = Vec::new();
            for ((text, meaning), new_line) in members {
                match new_line {
                    true => lines.push(text),
                    false => *lines.last_mut().expect("begun with one") += &format!(",{text}"),
                }
                said.extend(meaning);
            }
            let weight_of = |name: &str| said.iter().find(|s| s.0 == name).map(|s| s.1);
            let expect = |coding: &str| match (weight_of(coding), weight_of("*")) {
                (Some(weight), _) => weight,
                (None, Some(0)) => 0,
                (None, _) if coding == "identity" => 1,
                (None, any) => any.unwrap_or(0),
            };
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            for coding in ["br", "zstd", "gzip", "identity"] {
                prop_assert_eq!(ask(&lines, |accept| accept.weight(coding)), expect(coding));
            }
            match ask(&lines, |accept| accept.choose(OFFERED)) {
                Some(place) => {
                    let weight = expect(OFFERED[place]);
                    prop_assert!(weight > 0 && weight >= expect("identity"));
                    prop_assert!(OFFERED[..place].iter().all(|c| expect(c) < weight));
                    prop_assert!(OFFERED[place..].iter().all(|c| expect(c) <= weight));
                }
                None => {
                    let identity = expect("identity");
                    prop_assert!(OFFERED.iter().all(|c| expect(c) == 0 || expect(c) < identity));
                }
            }
        }

        #[test]
        fn takes_any_value_that_a_head_may_hold(value in "[ -~\t]{0,60}") {
            let weights = ask(&[value.trim()], |accept| OFFERED.map(|c| accept.weight(c)));
            prop_assert!(weights.iter().all(|&weight| weight <= FULL));
        }
    }
}
