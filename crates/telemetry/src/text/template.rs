//! A line's form of the operator's own: text with `{field}`s.
//!
//! Takes the text of a setting, gives its parts in order or says what is wrong with it; it must not
//! know what a field shows.

use std::fmt;

use super::escape::bare_bytes;
use super::field::Field;
use crate::nearest;

/// A parsed template.
///
/// `{field}` is a field, `{{` and `}}` are braces, everything else stands for itself; the newline at
/// the end of a line is not written in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    parts: Vec<Part>,
    /// The bytes that are escaped in a bare field: what is escaped in all forms, and what separates the
    /// fields of this one.
    bare: Box<[bool; 256]>,
}

/// A piece of a template: text, or a field `F`. Two texts never follow each other, and no text is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part<F = Field> {
    /// Text as it stands in every line.
    Text(String),
    /// A field, and where it stands.
    Field(F, Place),
}

/// Where a field stands, which decides what is escaped in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Between a pair of double quotes: it may have spaces.
    Quoted,
    /// Anywhere else: no space, quote or bracket comes from it, nor the punctuation that follows a
    /// bare field of the template. Only `time` has its own.
    Bare,
}

/// What is wrong with the text of a template. Places count characters from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TemplateFault {
    /// There is nothing in it, or only spaces.
    Empty,
    /// A control character.
    Control {
        /// Where it is.
        at: usize,
        /// Which one.
        found: char,
    },
    /// A `{` without its `}`.
    Unclosed {
        /// Where the `{` is.
        at: usize,
    },
    /// A `}` without its `{`.
    Unopened {
        /// Where the `}` is.
        at: usize,
    },
    /// A name between braces that no field has.
    UnknownField {
        /// Where its `{` is.
        at: usize,
        /// The name.
        name: String,
        /// The field that was probably meant.
        nearest: Option<&'static str>,
    },
}

impl Template {
    /// Reads the text of a template.
    ///
    /// # Errors
    /// The first fault in it.
    pub fn parse(text: &str) -> Result<Template, TemplateFault> {
        let parts = parts(text, Field::named)?;
        let bare = Box::new(bare_in(&parts));
        Ok(Template { parts, bare })
    }

    /// The names that may stand between braces.
    pub fn field_names() -> impl Iterator<Item = &'static str> {
        Field::all().map(Field::name)
    }

    /// Its parts, in the order of a line.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether each byte is escaped in a bare field, as `\xHH`.
    pub(super) fn bare(&self) -> &[bool; 256] {
        &self.bare
    }
}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateFault::Empty => f.write_str("the template is empty"),
            TemplateFault::Control { at, found } => write!(
                f,
                "character {at} of the template is a control character, `{}`",
                found.escape_default()
            ),
            TemplateFault::Unclosed { at } => write!(
                f,
                "the `{{` at character {at} of the template has no `}}`; a brace itself is `{{{{`"
            ),
            TemplateFault::Unopened { at } => write!(
                f,
                "the `}}` at character {at} of the template has no `{{`; a brace itself is `}}}}`"
            ),
            TemplateFault::UnknownField { at, name, nearest } => {
                write!(
                    f,
                    "there is no field `{name}` (character {at} of the template)"
                )?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
                    None => {
                        f.write_str("; there are")?;
                        Template::field_names().try_for_each(|name| write!(f, " {name}"))
                    }
                }
            }
        }
    }
}

impl std::error::Error for TemplateFault {}

/// Text and fields in order, each field by what `named` makes of its name.
pub(crate) fn parts<F>(
    text: &str,
    named: fn(&str) -> Option<F>,
) -> Result<Vec<Part<F>>, TemplateFault> {
    if text.trim().is_empty() {
        return Err(TemplateFault::Empty);
    }
    // A newline would make two lines of one exchange, whose reader would take them for two.
    if let Some((index, found)) = text.chars().enumerate().find(|(_, c)| c.is_control()) {
        let at = index + 1;
        return Err(TemplateFault::Control { at, found });
    }
    let mut parts = split(text, named)?;
    place(&mut parts);
    Ok(parts)
}

/// Every field as if it were bare.
fn split<F>(text: &str, named: fn(&str) -> Option<F>) -> Result<Vec<Part<F>>, TemplateFault> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(index) = rest.find(['{', '}']) {
        let (before, braced) = rest.split_at(index);
        literal.push_str(before);
        // Counted in characters, from 1: this is what an editor shows.
        let at = text[..text.len() - braced.len()].chars().count() + 1;
        if let Some(after) = braced.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = braced.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else if let Some(inner) = braced.strip_prefix('{') {
            let (field, after) = field(inner, at, named)?;
            flush(&mut literal, &mut parts);
            parts.push(Part::Field(field, Place::Bare));
            rest = after;
        } else {
            return Err(TemplateFault::Unopened { at });
        }
    }
    literal.push_str(rest);
    flush(&mut literal, &mut parts);
    Ok(parts)
}

/// The field whose name begins `inner`, and what follows its brace.
fn field<F>(
    inner: &str,
    at: usize,
    named: fn(&str) -> Option<F>,
) -> Result<(F, &str), TemplateFault> {
    let unclosed = TemplateFault::Unclosed { at };
    // An opening brace ends the name too: of `{peer {status}` the first field is unclosed.
    let end = inner.find(['{', '}']).ok_or(unclosed.clone())?;
    let (name, after) = inner.split_at(end);
    let after = after.strip_prefix('}').ok_or(unclosed)?;
    let field = named(name).ok_or_else(|| TemplateFault::UnknownField {
        at,
        name: name.to_owned(),
        nearest: nearest(name, Template::field_names()),
    })?;
    Ok((field, after))
}

fn flush<F>(literal: &mut String, parts: &mut Vec<Part<F>>) {
    if !literal.is_empty() {
        parts.push(Part::Text(std::mem::take(literal)));
    }
}

/// Finds the fields between quotes. A quote without a partner surrounds nothing.
fn place<F>(parts: &mut [Part<F>]) {
    let quotes = |part: &Part<F>| match part {
        Part::Text(text) => text.matches('"').count(),
        Part::Field(..) => 0,
    };
    let mut ahead: usize = parts.iter().map(quotes).sum();
    let mut is_open = false;
    for part in parts {
        let here = quotes(part);
        ahead -= here;
        is_open ^= here % 2 == 1;
        if let Part::Field(_, place) = part {
            // The last quote of an odd number has no partner: what follows it is bare.
            let is_paired = is_open && ahead > 0;
            *place = if is_paired {
                Place::Quoted
            } else {
                Place::Bare
            };
        }
    }
}

/// In a line like `{peer};{agent};{status}` a `;` of the agent would shift the status, so punctuation
/// that follows a bare field is escaped in all of them. Letters and digits are no separators: an escape
/// is made of them.
fn bare_in(parts: &[Part]) -> [bool; 256] {
    let mut bare = bare_bytes();
    for pair in parts.windows(2) {
        if let [Part::Field(_, Place::Bare), Part::Text(text)] = pair {
            let first = text.as_bytes()[0];
            bare[usize::from(first)] |= first.is_ascii_punctuation();
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quoted fields in angle brackets, bare ones in round ones.
    fn shown(text: &str) -> String {
        let shown = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(field, Place::Quoted) => format!("<{}>", field.name()),
            Part::Field(field, Place::Bare) => format!("({})", field.name()),
        };
        match Template::parse(text) {
            Ok(template) => template.parts().iter().map(shown).collect(),
            Err(fault) => fault.to_string(),
        }
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(shown(text), expect, "{text}");
    }

    #[test]
    fn finds_fields_and_braces() {
        check("{peer}", "(peer)");
        check("a {peer}{status} b", "a (peer)(status) b");
        check("no field", "no field");
        check("{{peer}}", "{peer}");
        check("{{{peer}}}", "{(peer)}");
        check("{peer}}}{{", "(peer)}{");
        check(
            "Zugriff für {peer} → {route}",
            "Zugriff für (peer) → (route)",
        );
    }

    #[test]
    fn knows_which_fields_are_between_quotes() {
        check(r#"{peer} "{request}" {id}"#, r#"(peer) "<request>" (id)"#);
        check(r#""{host} {path}""{agent}""#, r#""<host> <path>""<agent>""#);
        check(r#""" {peer} """#, r#""" (peer) """#);
        check(r#""a" "{peer}""#, r#""a" "<peer>""#);
        // The last quote has no partner.
        check(r#""{host}" "{agent}"#, r#""<host>" "(agent)"#);
        check(r#"{peer}" {agent}"#, r#"(peer)" (agent)"#);
        check(r#""{peer}"#, r#""(peer)"#);
    }

    #[test]
    fn names_the_unknown_field_and_the_nearest_one() {
        let cases = "
{peer} {agnet}
    there is no field `agnet` (character 8 of the template); did you mean `agent`?
ü{Status}
    there is no field `Status` (character 2 of the template); did you mean `status`?
{request-bytes}
    there is no field `request-bytes` (character 1 of the template); did you mean `request_bytes`?
";
        crate::tests::check_cases(cases, shown);
        let all = Template::field_names().collect::<Vec<_>>().join(" ");
        for name in ["remote_addr", ""] {
            let expect = format!(
                "there is no field `{name}` (character 1 of the template); there are {all}"
            );
            check(&format!("{{{name}}}"), &expect);
        }
    }

    #[test]
    fn tells_which_brace_is_alone() {
        let unclosed = |at| {
            format!(
                "the `{{` at character {at} of the template has no `}}`; a brace itself is `{{{{`"
            )
        };
        let unopened = |at| {
            format!(
                "the `}}` at character {at} of the template has no `{{`; a brace itself is `}}}}`"
            )
        };
        check("é {peer", &unclosed(3));
        check("{", &unclosed(1));
        check("{{{", &unclosed(3));
        check("{pe{er}}", &unclosed(1));
        check("{peer} }", &unopened(8));
        check("{{peer}", &unopened(7));
        check("{peer}}", &unopened(7));
    }

    #[test]
    fn refuses_what_is_no_line() {
        check("", "the template is empty");
        check("  ", "the template is empty");
        let control = |at, name: &str| {
            format!("character {at} of the template is a control character, `{name}`")
        };
        check("{peer}\n", &control(7, "\\n"));
        check("{peer}\t{id}", &control(7, "\\t"));
        check("a\0", &control(2, "\\u{0}"));
        check("\u{7f}", &control(1, "\\u{7f}"));
        check("\u{9b}31m", &control(1, "\\u{9b}"));
    }

    #[test]
    fn separators_are_those_behind_bare_fields() {
        let template = Template::parse(r#"{peer};a={id}x{run}"{agent},{host}"|{end}"#).unwrap();
        let usual = bare_bytes();
        let own: Vec<char> = (0..=255u8)
            .filter(|&byte| template.bare()[usize::from(byte)] && !usual[usize::from(byte)])
            .map(char::from)
            .collect();
        assert_eq!(own, [';']);
    }
}
