//! Pages: their fields, tags and content.

use std::fs;
use std::time::{Duration, SystemTime};

use super::super::media_type;
use super::*;

fn plain() -> Label<'static> {
    Label {
        kind: media_type::of_path(b"a.txt"),
        cache_control: None,
        vary: None,
    }
}

fn page_of(text: &str, modified_unix_secs: u64, nanos: u32, retention: Retention) -> CachedFile {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    fs::write(&path, text).unwrap();
    let file = File::options().write(true).read(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(modified_unix_secs, nanos))
        .unwrap();
    let metadata = FileMetadata::of(&file.metadata().unwrap());
    let unread = UnreadFile {
        coding: None,
        file,
        metadata,
    };
    CachedFile::load(unread, retention, &plain()).unwrap()
}

#[test]
fn renders_the_lines_of_a_whole_reply() {
    let page = page_of("hello", 784_111_777, 5, Retention::Memory);
    let lines = "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\nAccept-Ranges: bytes\r\n\
                 ETag: \"ae1b981bc490a05-5\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert_eq!(String::from_utf8_lossy(page.fields.as_bytes()), lines);
    let from = lines.find("ETag").unwrap();
    assert_eq!(
        String::from_utf8_lossy(page.lasting_fields.as_bytes()),
        &lines[from..]
    );
}

#[test]
fn a_nanosecond_or_a_byte_makes_another_tag() {
    let tag = |text, nanos| {
        page_of(text, 784_111_777, nanos, Retention::Memory)
            .validators
            .etag
    };
    assert_eq!(tag("hello", 5), tag("jello", 5));
    assert_ne!(tag("hello", 5), tag("hello", 6));
    assert_ne!(tag("hello", 5), tag("hello!", 5));
}

#[test]
fn does_not_believe_the_date_of_a_reproducible_package() {
    for secs in [0, 1, 315_532_800] {
        let page = page_of("hello", secs, 0, Retention::Memory);
        assert!(page.validators.modified_unix_secs > 1_600_000_000, "{secs}");
    }
}

#[test]
fn says_of_no_file_that_it_was_modified_in_the_future() {
    let future = now_unix_secs() + 86_400;
    let page = page_of("hello", future, 0, Retention::Memory);
    assert!(page.validators.modified_unix_secs <= now_unix_secs());
    // The tag is still that of the version.
    let tag = page_of("hello", future + 1, 0, Retention::Memory);
    assert_ne!(page.validators.etag, tag.validators.etag);
}

#[test]
fn keeps_the_descriptor_of_a_file_that_stays_open() {
    let page = page_of("12345678", 784_111_777, 5, Retention::Open);
    let ReplyBody::One(Part::File {
        bytes: 8,
        edition: Some(edition),
        ..
    }) = page.content.whole()
    else {
        panic!("{:?}", page.content);
    };
    assert_eq!((edition.bytes, edition.modified_nanos), (8, 5));
    assert_eq!(edition.modified_unix_secs, 784_111_777);
    assert_eq!(
        page.memory_bytes() - page.fields.as_bytes().len(),
        page.validators.etag.len()
    );
}

#[test]
fn announces_what_was_read_of_a_file_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    fs::write(&path, "hello").unwrap();
    let file = File::open(&path).unwrap();
    let metadata = FileMetadata::of(&file.metadata().unwrap());
    fs::write(&path, "he").unwrap();
    let unread = UnreadFile {
        coding: None,
        file,
        metadata,
    };
    let page = CachedFile::load(unread, Retention::Memory, &plain()).unwrap();
    assert_eq!(page.content.bytes(), 2);
    assert_eq!(page.fields.get(b"Content-Length"), Some(&b"2"[..]));
    assert!(page.validators.etag.ends_with("-2\""));
}
