//! Classes of bytes and hosts.

use super::*;

#[test]
fn classes_agree_with_the_grammar_for_every_byte() {
    for b in 0..=255u8 {
        let token = b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        assert_eq!(is_token(b), token, "{b:#x}");
        let value = b == 9 || (0x20..=0x7e).contains(&b) || b >= 0x80;
        assert_eq!(is_value(b), value, "{b:#x}");
        assert_eq!(is_field_value(&[b'a', b, b'a']), value, "{b:#x}");
        assert_eq!(is_field_name(&[b'a', b, b'a']), token, "{b:#x}");
        let host = b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b);
        assert_eq!(is_host_name(b), host, "{b:#x}");
    }
}

#[test]
fn trims_spaces_and_tabs_only() {
    for (value, expect) in [
        (&b" \t a b\t"[..], &b"a b"[..]),
        (b"", b""),
        (b" \t", b""),
        (b"\x0ba", b"\x0ba"),
    ] {
        assert_eq!(trim(value), expect);
    }
}

#[test]
fn accepts_hosts_and_refuses_what_only_looks_like_one() {
    let words = "
        a a.example a.example:8080 a: 127.0.0.1:80 [::1] [::1]:443 a_b xn--bcher-kva.example a%2db
        [::ffff:1.2.3.4] a:65535 a:00080 [::1]: a. a.example.:80 [v1.a:b] [VfF.~!$&'()*+,;=-._:]:443
    ";
    for host in words.split_whitespace() {
        assert!(is_host(host.as_bytes()), "{host}");
    }
    let words = "
        :80 a/b a@b u:p@b a:b a:80:80 [::1 [::1]x [] [::1%25eth0] a:65536 a:99999999999999999999 a%2
        a%zz a#b a?b a< [a] a] . .:80 .. .a a..b a.. [v1.] [v.a] [v1a] [vg.a] [1.a] [v1.a/b]
        [v1.a%20] [v1.a]b a:-1 a:+1
    ";
    for host in words
        .split_whitespace()
        .chain(["", "a b", "a\\b", "\u{e9}", "a\"", "a\t"])
    {
        assert!(!is_host(host.as_bytes()), "{host}");
    }
}
