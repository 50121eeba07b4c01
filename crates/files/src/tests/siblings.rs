//! Compressed siblings: which of them are read and kept. Which one a client gets is tested in
//! tests/test_static_complete.py.

use super::*;

#[test]
fn only_the_chosen_one_is_read_where_nothing_is_kept() {
    let mut fixture = Fixture::configured(|config| config.file_serving.writer_bytes_min = 1 << 20);
    fixture.write("a.css", "p".repeat(5000));
    fixture.write("a.css.gz", "g".repeat(2000));
    fixture.write("a.css.br", "b");
    for (coding, bytes) in [
        ("identity", 5000),
        ("gzip", 2000),
        ("br", 1),
        ("zstd", 5000),
    ] {
        let fields = format!("Accept-Encoding: {coding}\r\n");
        let mut got = None;
        let looks = fixture.looks(|fixture| got = Some(fixture.ask("GET", "/s/a.css", &fields)));
        let got = got.unwrap();
        assert_eq!((looks, got.body.len()), (1, bytes), "{coding}");
        assert_eq!(got.line("Vary"), Some("Accept-Encoding"));
    }
}

#[test]
fn large_and_small_siblings_go_together() {
    let mut fixture = Fixture::new();
    fixture.write("a.css", "p".repeat(5000));
    fixture.write("a.css.gz", "g".repeat(2000));
    fixture.write("a.css.br", "b");
    for _ in 0..2 {
        for (coding, bytes, is_open) in [
            ("identity", 5000, true),
            ("gzip", 2000, true),
            ("br", 1, false),
        ] {
            let fields = format!("Accept-Encoding: {coding}\r\n");
            let reply = fixture.reply("GET", "/s/a.css", &fields);
            assert_eq!(
                (reply.body.bytes(), is_file(&reply.body)),
                (bytes, is_open),
                "{coding}"
            );
        }
    }
    assert_eq!(
        fixture.looks(|fixture| drop(fixture.reply("GET", "/s/a.css", ""))),
        0
    );
}
