//! A listing: the files and folders of a folder that has no index file, as a page for people or as JSON.
//!
//! Takes entries, gives a finished reply. `RootDir::list` reads the entries; nothing here
//! touches a file. Names are whatever a file system holds: each form escapes them for itself.

mod html;
mod json;

use std::fmt::Write;

use bytes::Bytes;
use http::FieldLines;
use jiff::Timestamp;

use crate::reply::{Part, Reply, ReplyBody};

/// Entries of one listing: about 3 MB of HTML.
pub(super) const ENTRIES_LEN_MAX: usize = 10_000;

/// Never from a cache without asking: a folder has no validators. RFC 9110 section 12.5.5: `Vary`. What a
/// file is called must not become a script in a browser, even if it got past the escaping.
const COMMON_FIELDS: [(&str, &str); 4] = [
    ("Cache-Control", "no-cache"),
    ("Vary", "Accept"),
    ("X-Content-Type-Options", "nosniff"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    ),
];

/// What a client wants a listing in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ListingForm {
    /// A page.
    Html,
    /// An object.
    Json,
}

/// One file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListingEntry {
    /// As the file system holds it: never empty, and without a slash.
    pub(super) name: Vec<u8>,
    pub(super) kind: EntryKind,
    /// Seconds since 1970.
    pub(super) modified_unix_secs: u64,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Folder,
    File { bytes: u64 },
}

/// The entries of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) list: Vec<ListingEntry>,
    /// There are more than are listed.
    pub(super) is_cut: bool,
}

/// Where a listed folder is.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    /// URL prefix of the mount.
    url: &'a str,
    /// Decoded, without slashes at its ends; empty for the mount's own folder.
    path: &'a [u8],
}

/// Renders the entries of the folder at `path` of the mount at `url`, as a reply to a GET.
pub(super) fn render(mut entries: Entries, url: &str, path: &[u8], form: ListingForm) -> Reply {
    // The key is made once for each entry: names are copied for it.
    entries.list.sort_by_cached_key(ListingEntry::order);
    let at = At { url, path };
    let (kind, body) = match form {
        ListingForm::Html => ("text/html; charset=utf-8", html::render(&entries, at)),
        ListingForm::Json => ("application/json", json::render(&entries, at)),
    };
    let mut fields = FieldLines::with_capacity(320);
    fields.push(b"Content-Type", kind.as_bytes());
    fields.push_decimal(b"Content-Length", body.len() as u64);
    for (name, value) in COMMON_FIELDS {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    Reply {
        status: 200,
        fields: fields.freeze(),
        body: ReplyBody::One(Part::Memory(Bytes::from(body))),
    }
}

impl ListingEntry {
    /// Folders first, then by name as people sort.
    fn order(&self) -> (u8, Vec<u8>, Vec<u8>) {
        let kind = u8::from(self.kind != EntryKind::Folder);
        (kind, self.name.to_ascii_lowercase(), self.name.clone())
    }

    /// The name as a relative reference.
    fn href(&self) -> String {
        let mut href = String::with_capacity(self.name.len() + 1);
        // Everything but unreserved characters is encoded (RFC 3986 section 2.3), the colon too: `javascript:` at the
        // beginning would be a scheme.
        for byte in &self.name {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    href.push(char::from(*byte));
                }
                _ => put(&mut href, format_args!("%{byte:02X}")),
            }
        }
        if self.kind == EntryKind::Folder {
            href.push('/');
        }
        href
    }

    /// `2026-11-21T07:18:06Z`; a time beyond the year 9999 is its last.
    fn date(&self) -> String {
        let secs = i64::try_from(self.modified_unix_secs).unwrap_or(i64::MAX);
        let at = Timestamp::from_second(secs).unwrap_or(Timestamp::MAX);
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

impl At<'_> {
    /// The path of its URL, as people read it.
    fn text(self) -> String {
        let path = String::from_utf8_lossy(self.path);
        match self.path {
            b"" => format!("{}/", self.url),
            _ => format!("{}/{path}/", self.url),
        }
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn file(name: impl AsRef<[u8]>, bytes: u64) -> ListingEntry {
        ListingEntry {
            name: name.as_ref().to_vec(),
            kind: EntryKind::File { bytes },
            modified_unix_secs: 784_111_777,
        }
    }

    pub(super) fn folder(name: impl AsRef<[u8]>) -> ListingEntry {
        ListingEntry {
            kind: EntryKind::Folder,
            ..file(name, 0)
        }
    }

    #[test]
    fn folders_come_first_and_names_as_people_sort() {
        let mut list = [
            file("b", 1),
            folder("z"),
            file("A", 1),
            file("a", 1),
            folder("Y"),
        ];
        list.sort_by_cached_key(ListingEntry::order);
        let names: Vec<_> = list.iter().map(|entry| entry.href()).collect();
        assert_eq!(names, ["Y/", "z/", "A", "a", "b"]);
    }

    #[test]
    fn dates_are_in_utc() {
        assert_eq!(file("a", 1).date(), "1994-11-06T08:49:37Z");
    }
}
