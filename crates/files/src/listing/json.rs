//! A listing as JSON, for programs.
//!
//! Takes entries, gives one object. Names that are no UTF-8 are shown as far as they are; `href` is exact.

use std::borrow::Cow;

use serde::Serialize;

use super::{At, Entries, EntryKind, ListingExtent};

#[derive(Serialize)]
struct Object<'a> {
    path: String,
    is_cut: bool,
    entries: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: Cow<'a, str>,
    href: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    modified: String,
}

/// The object of the folder `at`:
/// `{"path":…,"is_cut":…,"entries":[{"name":…,"href":…,"type":"file","bytes":…,"modified":…}]}`.
pub(super) fn render(entries: &Entries, at: At<'_>) -> String {
    let rows = entries.list.iter().map(|entry| {
        let (kind, bytes) = match entry.kind {
            EntryKind::Folder => ("folder", None),
            EntryKind::File { bytes } => ("file", Some(bytes)),
        };
        Row {
            name: String::from_utf8_lossy(&entry.name),
            href: entry.href(),
            kind,
            bytes,
            modified: entry.date(),
        }
    });
    let object = Object {
        path: at.text(),
        is_cut: entries.extent == ListingExtent::Cut,
        entries: rows.collect(),
    };
    let mut text = serde_json::to_string(&object).expect("names and numbers are always JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, folder};
    use super::*;

    #[test]
    fn is_one_object() {
        let entries = Entries {
            list: vec![folder("s\"ub"), file(b"a\n\xff\\", 1536)],
            extent: ListingExtent::Whole,
        };
        let at = At {
            url: "/s",
            path: b"one",
        };
        let expect = "{\"path\":\"/s/one/\",\"is_cut\":false,\"entries\":[\
            {\"name\":\"s\\\"ub\",\"href\":\"s%22ub/\",\"type\":\"folder\",\"modified\":\"1994-11-06T08:49:37Z\"},\
            {\"name\":\"a\\n\u{fffd}\\\\\",\"href\":\"a%0A%FF%5C\",\"type\":\"file\",\"bytes\":1536,\
            \"modified\":\"1994-11-06T08:49:37Z\"}]}\n";
        assert_eq!(render(&entries, at), expect);
    }

    #[test]
    fn an_empty_folder_is_an_empty_list() {
        let entries = Entries {
            list: Vec::new(),
            extent: ListingExtent::Cut,
        };
        let text = render(&entries, At { url: "", path: b"" });
        assert_eq!(text, "{\"path\":\"/\",\"is_cut\":true,\"entries\":[]}\n");
    }
}
