//! Line ends of HTTP are written in a few places.
//!
//! Takes all sources, gives a finding for every `\r\n` in a string of production code outside the places of
//! the table, and for every place that needs none. A field that is formatted with its own line end is one
//! unchecked value away from becoming two; `http::FieldLines` writes it.

use super::Finding;
use super::source::Source;
use super::table::LINE_END_PLACES;

/// As it is written in a source; put together here, so that this file does not break its own rule.
const LINE_END: &str = concat!("\\", "r", "\\", "n");
const TABLE: &str = "xtask/src/tidy/table.rs";

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut is_used = [false; LINE_END_PLACES.len()];
    for source in sources.iter().filter(|source| is_shipped(&source.path)) {
        for (at, _) in source.strings.match_indices(LINE_END) {
            let place = LINE_END_PLACES
                .iter()
                .position(|(place, _)| is_within(&source.path, place));
            match place {
                Some(place) => is_used[place] = true,
                None => findings.push(fault(source, at)),
            }
        }
    }
    // A checkout without the places has no use for the table.
    let is_there = |place: &str| sources.iter().any(|source| is_within(&source.path, place));
    for ((place, _), is_used) in LINE_END_PLACES.iter().zip(is_used) {
        if !is_used && is_there(place) {
            let text = format!("`{place}` may write line ends and writes none: take it out");
            findings.push(Finding::warning(TABLE, 1, "line-end", text));
        }
    }
}

/// Examples, benchmarks and fuzz targets may write HTTP as they please.
fn is_shipped(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/")
}

/// Whether `path` is the file `place`, or lies in the folder `place/`.
fn is_within(path: &str, place: &str) -> bool {
    path == place || (place.ends_with('/') && path.starts_with(place))
}

fn fault(source: &Source, at: usize) -> Finding {
    let text = format!(
        "a line end in a string: write fields through `http::FieldLines`, or name the place ({TABLE})"
    );
    Finding::fault(&source.path, source.line_of(at), "line-end", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expect: &[usize]) {
        let text = text.replace("CRLF", LINE_END);
        let mut findings = Vec::new();
        super::check(&[Source::new(path, &text)], &mut findings);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expect, "{text}");
    }

    #[test]
    fn finds_line_ends_in_strings() {
        check("crates/a/src/b.rs", "const A: &str = \"b: cCRLF\";", &[1]);
        check(
            "crates/a/src/b.rs",
            "\nfn a() {\n    b(b\"CRLF\", \"\nCRLF\")\n}",
            &[3, 4],
        );
        check(
            "crates/a/src/b.rs",
            "#[cfg(test)]\nmod tests {}\nfn a() { format!(\"CRLF\") }",
            &[3],
        );
    }

    #[test]
    fn leaves_tests_comments_and_named_places_alone() {
        check("crates/a/src/b.rs", "// \"CRLF\"\nfn a() {}", &[]);
        check("crates/a/src/b.rs", "/// `CRLF`\nfn a() {}", &[]);
        check("crates/a/src/b.rs", "const A: &str = \"n\";", &[]);
        check(
            "crates/a/src/b.rs",
            "#[cfg(test)]\nmod tests { const A: &str = \"};CRLF\"; }",
            &[],
        );
        check("crates/a/src/tests.rs", "const A: &str = \"CRLF\";", &[]);
        check("crates/a/examples/b.rs", "const A: &str = \"CRLF\";", &[]);
        check("crates/a/tests/b.rs", "const A: &str = \"CRLF\";", &[]);
        let (place, _) = LINE_END_PLACES[0];
        check(place, "const A: &[u8] = b\"CRLF\";", &[]);
    }

    #[test]
    fn wants_no_place_in_the_table_that_needs_none() {
        let (place, _) = LINE_END_PLACES[0];
        check(place, "fn a() {}", &[1]);
    }
}
