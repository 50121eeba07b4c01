//! A page: one file as it is served, with everything that can be said of it rendered beforehand.
//!
//! Takes an open file and its facts, gives fields and content. Small files are read here, once; of
//! larger ones only the descriptor is kept. It must not know paths, requests or the cache.
//!
//! The entity tag is made of the modification time in nanoseconds and the length. It leaves the inode and
//! the change time out, because the same file then has the same tag on every machine that it is copied to,
//! and a download can be resumed from any of them. It is strong as long as a change of content changes one
//! of the two. Nanoseconds see to that for files that are written (since Linux 6.13 even for two writes
//! within one tick of the kernel's clock, because our look at the file marks it; before, within 10 ms).
//! They do not for files whose time was set on purpose: reproducible packages put the same ancient date on
//! every build, and a changed page of equal length is usual there. So a date before 1990 is not believed,
//! and the change time, which nobody can set, takes its place.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use wire::{FieldLines, SharedFields};

use crate::config::meant::Coding;
use crate::reply::{Edition, Part, ReplyBody};

use super::facts::{Facts, Moment};
use super::kind::ContentType;

/// What becomes of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Read, and kept for the next requests.
    Memory,
    /// Read for the requests at hand alone.
    Passing,
    /// Not read: the descriptor is kept, and spans of it are sent.
    Open,
}

/// One file as it is served.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Of the look that came before the read: a change after it shows in the next look.
    pub(super) facts: Facts,
    /// Media type.
    pub(super) kind: ContentType,
    /// Content coding of the bytes.
    pub(super) coding: Option<Coding>,
    /// What a condition is compared with.
    pub(super) validators: Validators,
    /// What is sent.
    pub(super) content: Content,
    fields: SharedFields,
    lasting_fields: SharedFields,
}

/// What is said of a page beyond what its file says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'a> {
    /// Media type.
    pub(super) kind: ContentType,
    /// Content coding.
    pub(super) coding: Option<Coding>,
    /// Value of `Cache-Control`.
    pub(super) cache_control: Option<&'a str>,
    /// Value of `Vary`.
    pub(super) vary: Option<&'static str>,
}

/// Validators of the current content: RFC 9110 section 8.8.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    /// Strong entity tag with its quotes.
    pub(super) etag: String,
    /// Seconds since 1970.
    pub(super) modified_unix_secs: u64,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The whole of a smaller file.
    Memory(Bytes),
    /// A file that is sent from its descriptor.
    Open {
        /// Open for reading.
        file: Arc<File>,
        /// What it was when it was looked at.
        edition: Edition,
    },
}

impl Page {
    /// Makes a page of `file`, which is read unless it is to stay open.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(
        file: File,
        facts: Facts,
        stay: Stay,
        label: &Label<'_>,
    ) -> io::Result<Page> {
        let content = match stay {
            Stay::Memory | Stay::Passing => Content::Memory(read(file, facts.bytes)?),
            Stay::Open => Content::Open {
                file: Arc::new(file),
                edition: facts.edition(),
            },
        };
        let version = facts.version();
        let validators = Validators {
            etag: etag(version, content.bytes(), label.coding),
            modified_unix_secs: u64::try_from(version.unix_secs).unwrap_or(0),
        };
        let (fields, lasting_fields) = render(label, content.bytes(), &validators);
        Ok(Page {
            facts,
            kind: label.kind,
            coding: label.coding,
            validators,
            content,
            fields,
            lasting_fields,
        })
    }

    /// Fields of a reply with the whole content.
    pub(super) fn fields(&self) -> SharedFields {
        self.fields.clone()
    }

    /// The fields among them that a 304 and a 206 repeat: validators, `Cache-Control`, `Vary`.
    pub(super) fn lasting_fields(&self) -> &SharedFields {
        &self.lasting_fields
    }

    /// Bytes that it keeps in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let content_bytes = match &self.content {
            Content::Memory(data) => data.len(),
            Content::Open { .. } => 0,
        };
        content_bytes + self.fields.as_bytes().len() + self.validators.etag.len()
    }
}

impl Label<'_> {
    /// The same of a page with a coding.
    pub(super) fn with(&self, coding: Coding) -> Self {
        Label {
            coding: Some(coding),
            ..*self
        }
    }
}

impl Content {
    /// Length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Content::Memory(data) => data.len() as u64,
            Content::Open { edition, .. } => edition.bytes,
        }
    }

    /// The whole as a body.
    pub(super) fn whole(&self) -> ReplyBody {
        match self {
            Content::Memory(data) if data.is_empty() => ReplyBody::Empty,
            Content::Memory(data) => ReplyBody::One(Part::Memory(data.clone())),
            Content::Open { edition, .. } => ReplyBody::One(self.part(0, edition.bytes)),
        }
    }

    /// `bytes` bytes from `offset`, which must lie within the content.
    pub(super) fn part(&self, offset: u64, bytes: u64) -> Part {
        match self {
            Content::Memory(data) => {
                Part::Memory(data.slice(offset as usize..(offset + bytes) as usize))
            }
            Content::Open { file, edition } => Part::File {
                file: Arc::clone(file),
                offset,
                bytes,
                edition: Some(*edition),
            },
        }
    }
}

/// Reads at most `bytes` bytes. A file that was cut short since it was looked at gives what is left, and
/// its length is announced accordingly; the next look finds other facts.
fn read(file: File, bytes: u64) -> io::Result<Bytes> {
    let mut data = Vec::with_capacity(bytes as usize);
    file.take(bytes).read_to_end(&mut data)?;
    Ok(Bytes::from(data))
}

/// Each coding has its own tag, even where a sibling has its file's time and length by chance: RFC 9110
/// section 8.8.3.3.
fn etag(version: Moment, bytes: u64, coding: Option<Coding>) -> String {
    let nanos = i128::from(version.unix_secs) * 1_000_000_000 + i128::from(version.nanos);
    match coding {
        Some(coding) => format!("\"{nanos:x}-{bytes:x}-{}\"", coding.name()),
        None => format!("\"{nanos:x}-{bytes:x}\""),
    }
}

/// The fields of a whole reply, and those among them that a 304 repeats. RFC 9110 section 15.4.5.
fn render(label: &Label<'_>, bytes: u64, validators: &Validators) -> (SharedFields, SharedFields) {
    let mut fields = FieldLines::with_capacity(256);
    fields.push_parts(b"Content-Type", &label.kind.parts());
    fields.push_decimal(b"Content-Length", bytes);
    fields.push(b"Accept-Ranges", b"bytes");
    if let Some(coding) = label.coding {
        fields.push(b"Content-Encoding", coding.name().as_bytes());
    }
    let passing_len = fields.iter().count();
    fields.push(b"ETag", validators.etag.as_bytes());
    fields.push(
        b"Last-Modified",
        &wire::date::format(validators.modified_unix_secs),
    );
    if let Some(value) = label.cache_control {
        fields.push(b"Cache-Control", value.as_bytes());
    }
    if let Some(names) = label.vary {
        fields.push(b"Vary", names.as_bytes());
    }
    let fields = fields.freeze();
    let lasting_fields = fields.skip(passing_len);
    (fields, lasting_fields)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::super::kind;
    use super::*;

    fn plain() -> Label<'static> {
        Label {
            kind: kind::of_path(b"a.txt"),
            coding: None,
            cache_control: None,
            vary: None,
        }
    }

    fn page_of(text: &str, modified_unix_secs: u64, nanos: u32, stay: Stay) -> Page {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        fs::write(&path, text).unwrap();
        let file = File::options().write(true).read(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(modified_unix_secs, nanos))
            .unwrap();
        let facts = Facts::of(&file.metadata().unwrap());
        Page::load(file, facts, stay, &plain()).unwrap()
    }

    #[test]
    fn renders_the_lines_of_a_whole_reply() {
        let page = page_of("hello", 784_111_777, 5, Stay::Memory);
        let lines = "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\nAccept-Ranges: bytes\r\n\
                     ETag: \"ae1b981bc490a05-5\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert_eq!(String::from_utf8_lossy(page.fields().as_bytes()), lines);
        let from = lines.find("ETag").unwrap();
        assert_eq!(
            String::from_utf8_lossy(page.lasting_fields().as_bytes()),
            &lines[from..]
        );
    }

    #[test]
    fn a_nanosecond_or_a_byte_makes_another_tag() {
        let tag = |text, nanos| {
            page_of(text, 784_111_777, nanos, Stay::Memory)
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
            let page = page_of("hello", secs, 0, Stay::Memory);
            assert!(page.validators.modified_unix_secs > 1_600_000_000, "{secs}");
        }
    }

    #[test]
    fn keeps_the_descriptor_of_a_file_that_stays_open() {
        let page = page_of("12345678", 784_111_777, 5, Stay::Open);
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
            page.memory_bytes() - page.fields().as_bytes().len(),
            page.validators.etag.len()
        );
    }

    #[test]
    fn announces_what_was_read_of_a_file_cut_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        fs::write(&path, "hello").unwrap();
        let file = File::open(&path).unwrap();
        let facts = Facts::of(&file.metadata().unwrap());
        fs::write(&path, "he").unwrap();
        let page = Page::load(file, facts, Stay::Memory, &plain()).unwrap();
        assert_eq!(page.content.bytes(), 2);
        assert_eq!(page.fields().get(b"Content-Length"), Some(&b"2"[..]));
        assert!(page.validators.etag.ends_with("-2\""));
    }
}
