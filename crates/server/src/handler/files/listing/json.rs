//! A listing as JSON, for programs.
//!
//! Takes entries, gives one object. Names that are no UTF-8 are shown as far as they are; `href` is exact.

use super::{At, Entries, EntryKind, Extent, put};

/// The object of the folder `at`:
/// `{"path":…,"is_cut":…,"entries":[{"name":…,"href":…,"type":"file","bytes":…,"modified":…}]}`.
pub(super) fn render(entries: &Entries, at: At<'_>) -> String {
    let mut out = String::with_capacity(256 + 128 * entries.list.len());
    let is_cut = entries.extent == Extent::Cut;
    out.push_str("{\"path\":");
    put_text(&mut out, at.text().as_bytes());
    put(&mut out, format_args!(",\"is_cut\":{is_cut},\"entries\":["));
    for (place, entry) in entries.list.iter().enumerate() {
        out.push_str(if place == 0 {
            "\n{\"name\":"
        } else {
            ",\n{\"name\":"
        });
        put_text(&mut out, &entry.name);
        put(&mut out, format_args!(",\"href\":\"{}\"", entry.href()));
        match entry.kind {
            EntryKind::Folder => out.push_str(",\"type\":\"folder\""),
            EntryKind::File { bytes } => {
                put(
                    &mut out,
                    format_args!(",\"type\":\"file\",\"bytes\":{bytes}"),
                );
            }
        }
        put(
            &mut out,
            format_args!(",\"modified\":\"{}\"}}", entry.date()),
        );
    }
    out.push_str("\n]}\n");
    out
}

/// A string: RFC 8259 section 7.
fn put_text(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, folder};
    use super::*;

    #[test]
    fn is_one_object() {
        let entries = Entries {
            list: vec![folder("s\"ub"), file(b"a\n\xff\\", 1536)],
            extent: Extent::Whole,
        };
        let at = At {
            url: "/s",
            path: b"one",
        };
        let expect = "{\"path\":\"/s/one/\",\"is_cut\":false,\"entries\":[\n\
            {\"name\":\"s\\\"ub\",\"href\":\"s%22ub/\",\"type\":\"folder\",\"modified\":\"1994-11-06T08:49:37Z\"},\n\
            {\"name\":\"a\\u000a\u{fffd}\\\\\",\"href\":\"a%0A%FF%5C\",\"type\":\"file\",\"bytes\":1536,\
            \"modified\":\"1994-11-06T08:49:37Z\"}\n]}\n";
        assert_eq!(render(&entries, at), expect);
    }

    #[test]
    fn an_empty_folder_is_an_empty_list() {
        let entries = Entries {
            list: Vec::new(),
            extent: Extent::Cut,
        };
        let text = render(&entries, At { url: "", path: b"" });
        assert_eq!(text, "{\"path\":\"/\",\"is_cut\":true,\"entries\":[\n]}\n");
    }
}
