//! A listing as a page: readable on a phone, light and dark, without a script.
//!
//! Takes entries, gives HTML. Every text from outside goes through `text`.

use super::{At, Entries, EntryKind, ListingEntry, put};

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1d21;--dim:#666b75;--line:#e3e5ea;--hover:#f3f5f8;--link:#0b57d0;--bg:#fff}\
@media(prefers-color-scheme:dark){:root{--fg:#e4e6eb;--dim:#9aa0ab;--line:#30343c;--hover:#22262d;--link:#8ab4f8;--bg:#16181c}}\
*{box-sizing:border-box}\
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}\
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 3rem}\
h1{font-size:1.25rem;font-weight:600;margin:0 0 1rem;overflow-wrap:anywhere}\
h1 i{color:var(--dim);font-style:normal;font-weight:400;padding:0 .3em}\
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\
table{border-collapse:collapse;width:100%}\
th{text-align:left;font-size:.8rem;font-weight:500;color:var(--dim)}\
th,td{padding:.45rem .6rem;border-bottom:1px solid var(--line);vertical-align:baseline}\
tbody tr:hover{background:var(--hover)}\
td:first-child{overflow-wrap:anywhere;width:100%}\
.d{font-weight:600}\
.s,.m{white-space:nowrap;color:var(--dim);font-variant-numeric:tabular-nums}.s{text-align:right}\
p{color:var(--dim)}\
@media(max-width:36rem){thead{display:none}tr{display:block;border-bottom:1px solid var(--line);padding:.5rem 0}\
td{display:inline;border:0;padding:0 .6rem 0 0}td:first-child{display:block;font-size:1.05rem}td:empty{display:none}.s,.m{font-size:.85rem}}";

/// The page of the folder `at`.
pub(super) fn render(entries: &Entries, at: At<'_>) -> String {
    let mut out = String::with_capacity(4096 + 256 * entries.list.len());
    let title = text(at.text().as_bytes());
    put(
        &mut out,
        format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        ),
    );
    put_breadcrumb(&mut out, at);
    out.push_str(
        "<table>\n<thead><tr><th>Name</th><th class=\"s\">Size</th>\
         <th class=\"m\">Modified (UTC)</th></tr></thead>\n<tbody>\n",
    );
    if !at.path.is_empty() {
        out.push_str(
            "<tr><td class=\"d\"><a href=\"../\">../</a></td><td class=\"s\"></td>\
             <td class=\"m\"></td></tr>\n",
        );
    }
    for entry in &entries.list {
        put_row(&mut out, entry);
    }
    out.push_str("</tbody>\n</table>\n");
    put_foot(&mut out, entries);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// Each folder above is a link; the last name is where we are.
fn put_breadcrumb(out: &mut String, at: At<'_>) {
    let segments = at.path.split(|byte| *byte == b'/');
    let segments: Vec<_> = segments.filter(|segment| !segment.is_empty()).collect();
    let top = if at.url.is_empty() { "/" } else { at.url };
    let names = std::iter::once(top.as_bytes()).chain(segments.iter().copied());
    out.push_str("<nav aria-label=\"Breadcrumb\"><h1>");
    for (depth, name) in names.enumerate() {
        let name = text(name);
        if depth > 0 {
            out.push_str("<i>/</i>");
        }
        match segments.len() - depth {
            0 => put(out, format_args!("<bdi aria-current=\"page\">{name}</bdi>")),
            // Links climb by `../`, so that they are right under whatever URL the page was asked for.
            above => put(
                out,
                format_args!("<a href=\"{}\"><bdi>{name}</bdi></a>", "../".repeat(above)),
            ),
        }
    }
    out.push_str("</h1></nav>\n");
}

fn put_row(out: &mut String, entry: &ListingEntry) {
    let (href, name) = (entry.href(), text(&entry.name));
    let (class, slash, size) = match entry.kind {
        EntryKind::Folder => (" class=\"d\"", "/", String::new()),
        EntryKind::File { bytes } => ("", "", size(bytes)),
    };
    let date = entry.date();
    let (day, time) = (&date[..10], &date[11..16]);
    // A reference that begins with a dot could be read as a step; `./` makes every name a name.
    put(
        out,
        format_args!(
            "<tr><td{class}><a href=\"./{href}\"><bdi>{name}</bdi>{slash}</a></td>\
             <td class=\"s\">{size}</td>\
             <td class=\"m\"><time datetime=\"{date}\">{day} {time}</time></td></tr>\n"
        ),
    );
}

fn put_foot(out: &mut String, entries: &Entries) {
    let len = entries.list.len();
    if entries.is_cut {
        let text = format!("<p>Only {len} entries are shown: the folder has more.</p>\n");
        out.push_str(&text);
    } else if len == 0 {
        out.push_str("<p>This folder is empty.</p>\n");
    }
}

/// `1.5 KB`: powers of 1024, as sizes are written in the configuration.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10 / 1024;
    while tenths >= 10 * 1024 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let unit = UNITS[unit];
    match tenths {
        0..100 => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        _ => format!("{} {unit}", tenths / 10),
    }
}

/// `bytes` as HTML text or attribute value.
fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    // What is no UTF-8 and what is no visible character is shown as a sign for itself, so that a name cannot look
    // like another or leave its line.
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Their pictures are in the same order.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            '\x7f' => out.push('\u{2421}'),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, folder};
    use super::*;

    fn page(list: Vec<ListingEntry>, path: &[u8]) -> String {
        let is_cut = false;
        render(&Entries { list, is_cut }, At { url: "/s", path })
    }

    #[test]
    fn lists_with_size_and_date() {
        let page = page(vec![folder("sub"), file("a b.txt", 1536)], b"");
        for part in [
            "<title>/s/</title>",
            "<a href=\"./sub/\"><bdi>sub</bdi>/</a>",
            "<a href=\"./a%20b.txt\"><bdi>a b.txt</bdi></a></td><td class=\"s\">1.5 KB</td>",
            "<time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 08:49</time>",
            "<h1><bdi aria-current=\"page\">/s</bdi></h1>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("../"));
        assert!(!page.contains("<script"));
    }

    #[test]
    fn leads_back_up() {
        let page = page(Vec::new(), b"one/two");
        let crumbs = "<a href=\"../../\"><bdi>/s</bdi></a><i>/</i><a href=\"../\"><bdi>one</bdi></a>\
                      <i>/</i><bdi aria-current=\"page\">two</bdi>";
        assert!(page.contains(crumbs), "{page}");
        assert!(page.contains("<a href=\"../\">../</a>"));
        assert!(page.contains("This folder is empty."));
    }

    #[test]
    fn says_when_it_is_cut() {
        let entries = Entries {
            list: vec![file("a", 1)],
            is_cut: true,
        };
        let page = render(&entries, At { url: "", path: b"" });
        assert!(page.contains("Only 1 entries are shown"), "{page}");
        assert!(page.contains("<bdi aria-current=\"page\">/</bdi>"));
    }

    #[test]
    fn sizes_are_for_people() {
        for (bytes, expect) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KB"),
            (10 * 1024 - 1, "9.9 KB"),
            (10 * 1024, "10 KB"),
            (1024 * 1024 - 1, "1023 KB"),
            (1024 * 1024, "1.0 MB"),
            (3 << 30, "3.0 GB"),
            (u64::MAX, "15 EB"),
        ] {
            assert_eq!(size(bytes), expect);
        }
    }
}
