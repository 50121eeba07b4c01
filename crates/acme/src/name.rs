//! Names that certificates are for: which of them are local, and what they are called as files. Pure.

/// The prefix of a wildcard name.
const WILDCARD: &str = "*.";

/// `localhost` and everything below it, which no public authority certifies and no resolver sends elsewhere
/// (RFC 6761 section 6.3).
pub fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// A folder's name for a name of the DNS; a `*` would be a pattern to shells.
pub(crate) fn folder_of_name(name: &str) -> String {
    match name.strip_prefix(WILDCARD) {
        Some(rest) => format!("wildcard_.{}", safe(rest)),
        None => safe(name),
    }
}

/// A folder's name for the URL of a directory: two URLs never share a folder, or accounts and locks of two
/// authorities would mix.
pub(crate) fn folder_of_url(url: &str) -> String {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    safe(rest)
}

/// Characters that mean something to a file system or a shell become `=` and their number.
fn safe(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        match byte {
            // A folder must not begin with a dot: `.` and `..` are others.
            b'.' if name.is_empty() => name.push_str("=2E"),
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' => name.push(char::from(byte)),
            b'/' => name.push('_'),
            _ => name.push_str(&format!("={byte:02X}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_local_names_from_public_ones() {
        for name in ["localhost", "shop.localhost", "*.localhost"] {
            assert!(is_local(name), "{name}");
        }
        for name in ["shop.example", "localhost.example", "notlocalhost"] {
            assert!(!is_local(name), "{name}");
        }
    }

    #[test]
    fn no_name_leaves_its_folder() {
        let check = |name: &str, expect: &str| assert_eq!(folder_of_name(name), expect);
        check("shop.example", "shop.example");
        check("*.localhost", "wildcard_.localhost");
        check("..", "=2E.");
        check("a/../b", "a_.._b");
        check("", "");
    }

    #[test]
    fn two_directories_have_two_folders() {
        let urls = [
            "https://ca.example/dir",
            "https://ca.example_dir",
            "https://ca.example:443/dir",
            "https://ca.example/Dir",
            "https://ca.example=2Fdir",
        ];
        let mut folders: Vec<String> = urls.iter().map(|url| folder_of_url(url)).collect();
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), urls.len(), "{folders:?}");
    }
}
