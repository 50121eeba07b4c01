//! One file as it is served: its fields, its entity tag and its content, all rendered when it is loaded.
//!
//! Takes an open file and its metadata; takes a head, gives a reply: which of 200, 206, 304, 412 and 416 it is. Small
//! files are read here, once; of larger ones only the descriptor is kept. Knows neither the cache nor other variants.
//!
//! The entity tag is made of the modification time in nanoseconds and the length. It leaves the inode and
//! the change time out, because the same file then has the same tag on every machine that it is copied to,
//! and a download can be resumed from any of them. It is strong as long as a change of content changes one
//! of the two. Nanoseconds see to that for files that are written (since Linux 6.13 even for two writes
//! within one tick of the kernel's clock, because our look at the file marks it; before, within 10 ms).
//! They do not for files whose time was set on purpose: reproducible packages put the same ancient date on
//! every build, and a changed page of equal length is usual there. So a date before 1990 is not believed,
//! and the change time, which no program can set, takes its place.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{FieldLines, HeadView, Marks, Method, SharedFields};
use os::invariant;

use crate::reply::{Edition, Part, Reply, ReplyBody};
use config::typed::Coding;

use super::conditional::{self, ConditionResult};
use super::error_replies::refuse;
use super::media_type::ContentType;
use super::metadata::{FileMetadata, Moment};
use super::multipart;
use super::ranges::{self, Extent, Selection};

/// What becomes of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retention {
    /// Read, and kept for the next requests.
    Memory,
    /// Read for the requests at hand alone.
    Passing,
    /// Not read: the descriptor is kept, and spans of it are sent.
    Open,
}

/// One file as it is served.
#[derive(Clone, Debug)]
pub(super) struct CachedFile {
    /// Of the lookup that came before the read: a change after it shows in the next lookup.
    pub(super) metadata: FileMetadata,
    /// Media type.
    pub(super) kind: ContentType,
    /// Content coding of the bytes.
    pub(super) coding: Option<Coding>,
    /// What a condition is compared with.
    pub(super) validators: Validators,
    /// What is sent.
    pub(super) content: Content,
    /// Of a reply with the whole content.
    fields: SharedFields,
    /// Those among them that a 304 and a 206 repeat: validators, `Cache-Control`, `Vary`.
    pub(super) lasting_fields: SharedFields,
}

/// A file that was found and not yet read.
#[derive(Debug)]
pub(super) struct UnreadFile {
    /// Content coding of its bytes.
    pub(super) coding: Option<Coding>,
    /// Open for reading.
    pub(super) file: File,
    /// Of the same moment as the look at its path.
    pub(super) metadata: FileMetadata,
}

/// What is said of a page beyond what its file says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'a> {
    /// Media type.
    pub(super) kind: ContentType,
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

impl CachedFile {
    /// Makes a page of a file, which is read unless it is to stay open.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(
        unread: UnreadFile,
        retention: Retention,
        label: &Label<'_>,
    ) -> io::Result<CachedFile> {
        let UnreadFile {
            coding,
            file,
            metadata,
        } = unread;
        let content = match retention {
            Retention::Memory | Retention::Passing => Content::Memory(read(file, metadata.bytes)?),
            Retention::Open => Content::Open {
                file: Arc::new(file),
                edition: metadata.edition(),
            },
        };
        // From the look before the read: where the file has changed in between, the next lookup sees other metadata and
        // gives another tag.
        let version = metadata.version();
        let modified_unix_secs = u64::try_from(version.unix_secs).unwrap_or(0);
        let validators = Validators {
            etag: etag(version, content.bytes(), coding),
            // RFC 9110 section 8.8.2.1: a time in the future is replaced, so that none is later than `Date`.
            modified_unix_secs: modified_unix_secs.min(now_unix_secs()),
        };
        // Finished once: each reply shares them.
        let (fields, lasting_fields) = render(label, coding, content.bytes(), &validators);
        Ok(CachedFile {
            metadata,
            kind: label.kind,
            coding,
            validators,
            content,
            fields,
            lasting_fields,
        })
    }

    /// The reply to a GET or HEAD.
    #[inline]
    pub(super) fn reply(&self, head: HeadView<'_>) -> Reply {
        let asked = Marks::CONDITIONAL.with(Marks::RANGE);
        // The parser has marked such fields: a plain GET looks for none of them.
        if head.index.marks.intersects(asked) {
            return self.reply_as_asked(head);
        }
        self.whole(head)
    }

    /// Which of 200, 206, 304, 412 and 416 it is.
    fn reply_as_asked(&self, head: HeadView<'_>) -> Reply {
        match conditional::judge(head, &self.validators) {
            ConditionResult::Failed => refuse(head, 412),
            ConditionResult::NotModified => Reply {
                status: 304,
                fields: self.lasting_fields.clone(),
                body: ReplyBody::Empty,
            },
            ConditionResult::Proceed => match self.selection(head) {
                Selection::Whole => self.whole(head),
                Selection::Unsatisfiable => self.unsatisfiable(),
                Selection::Parts(extents) => match (extents.as_slice(), self.coding) {
                    ([extent], _) => self.one_part(*extent),
                    (_, None) => multipart::reply(self, &extents),
                    // `Content-Encoding` beside a multipart type would be that of the multipart. RFC 9110
                    // section 14.2 lets us ignore the field.
                    (_, Some(_)) => self.whole(head),
                },
            },
        }
    }

    /// RFC 9110 section 14.2: `Range` is defined for GET alone.
    fn selection(&self, head: HeadView<'_>) -> Selection {
        if head.index.method != Method::Get || !head.index.marks.contains(Marks::RANGE) {
            return Selection::Whole;
        }
        // Two `Range` lines are no valid field.
        match conditional::single(head, "range") {
            Some(value) if conditional::allows_range(head, &self.validators) => {
                ranges::select(value, self.content.bytes())
            }
            _ => Selection::Whole,
        }
    }

    #[inline]
    fn whole(&self, head: HeadView<'_>) -> Reply {
        Reply {
            status: 200,
            fields: self.fields.clone(),
            body: match head.index.method {
                Method::Head => ReplyBody::Empty,
                _ => self.content.whole(),
            },
        }
    }

    /// RFC 9110 section 15.3.7.1.
    fn one_part(&self, extent: Extent) -> Reply {
        let mut fields = FieldLines::with_capacity(256);
        fields.push_parts(b"Content-Type", &self.kind.parts());
        fields.push_decimal(b"Content-Length", extent.bytes());
        let range = extent.within(self.content.bytes());
        fields.push(b"Content-Range", range.as_bytes());
        fields.push(b"Accept-Ranges", b"bytes");
        if let Some(coding) = self.coding {
            fields.push(b"Content-Encoding", coding.name().as_bytes());
        }
        fields.append(&self.lasting_fields);
        let body = ReplyBody::One(self.content.part(extent.first, extent.bytes()));
        Reply {
            status: 206,
            fields: fields.freeze(),
            body,
        }
    }

    /// RFC 9110 section 15.5.17: the length is told, so that the client can ask again.
    fn unsatisfiable(&self) -> Reply {
        let mut fields = FieldLines::with_capacity(128);
        fields.push_decimal(b"Content-Length", 0);
        let range = format!("bytes */{}", self.content.bytes());
        fields.push(b"Content-Range", range.as_bytes());
        fields.push(b"Accept-Ranges", b"bytes");
        Reply {
            status: 416,
            fields: fields.freeze(),
            body: ReplyBody::Empty,
        }
    }

    /// Bytes that it keeps in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.content.memory_bytes() + self.fields.as_bytes().len() + self.validators.etag.len()
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

    /// Bytes of it in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Content::Memory(data) => data.len(),
            Content::Open { .. } => 0,
        }
    }

    /// The whole as a body.
    fn whole(&self) -> ReplyBody {
        match self {
            Content::Memory(data) if data.is_empty() => ReplyBody::Empty,
            Content::Memory(data) => ReplyBody::One(Part::Memory(data.clone())),
            Content::Open { edition, .. } => ReplyBody::One(self.part(0, edition.bytes)),
        }
    }

    /// `bytes` bytes from `offset`, which must lie within the content.
    pub(super) fn part(&self, offset: u64, bytes: u64) -> Part {
        let content_bytes = self.bytes();
        invariant!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= content_bytes),
            "{bytes} bytes from {offset} are to be sent of a content of {content_bytes}"
        );
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

/// Reads at most `bytes` bytes.
fn read(file: File, bytes: u64) -> io::Result<Bytes> {
    let mut data = Vec::with_capacity(bytes as usize);
    // A file that was cut short since it was looked at gives what is left, and its length is announced accordingly;
    // the next lookup finds other metadata.
    file.take(bytes).read_to_end(&mut data)?;
    Ok(Bytes::from(data))
}

fn now_unix_secs() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs()
}

/// Entity tag of a version of a file, with its quotes.
fn etag(version: Moment, bytes: u64, coding: Option<Coding>) -> String {
    let nanos = i128::from(version.unix_secs) * 1_000_000_000 + i128::from(version.nanos);
    match coding {
        // Each coding has its own tag, even where a sibling has its file's time and length by chance: RFC 9110
        // section 8.8.3.3.
        Some(coding) => format!("\"{nanos:x}-{bytes:x}-{}\"", coding.name()),
        None => format!("\"{nanos:x}-{bytes:x}\""),
    }
}

/// The fields of a whole reply, and those among them that a 304 repeats. RFC 9110 section 15.4.5.
fn render(
    label: &Label<'_>,
    coding: Option<Coding>,
    bytes: u64,
    validators: &Validators,
) -> (SharedFields, SharedFields) {
    let mut fields = FieldLines::with_capacity(256);
    fields.push_parts(b"Content-Type", &label.kind.parts());
    fields.push_decimal(b"Content-Length", bytes);
    fields.push(b"Accept-Ranges", b"bytes");
    if let Some(coding) = coding {
        fields.push(b"Content-Encoding", coding.name().as_bytes());
    }
    // A 304 and a 206 repeat what stands behind this point: RFC 9110 sections 15.4.5 and 15.3.7.
    let passing_len = fields.iter().count();
    fields.push(b"ETag", validators.etag.as_bytes());
    fields.push(
        b"Last-Modified",
        &http::date::format(validators.modified_unix_secs),
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
mod tests;
