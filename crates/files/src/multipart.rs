//! A 206 of several parts: `multipart/byteranges`, RFC 9110 section 14.6.
//!
//! Takes a page without a content coding and at least two extents; gives parts of the page between small
//! heads of their own. No content is copied.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use http::{FieldLines, SharedFields};
use os::invariant;

use crate::reply::{Part, Reply, ReplyBody};

use super::cached_file::CachedFile;
use super::ranges::Extent;

/// The reply that carries `extents` of `page`.
pub(super) fn reply(page: &CachedFile, extents: &[Extent]) -> Reply {
    invariant!(extents.len() > 1, "a multipart of {} parts", extents.len());
    let boundary = boundary();
    let mut parts = Vec::with_capacity(2 * extents.len() + 1);
    for extent in extents {
        parts.push(Part::Memory(part_head(page, *extent, &boundary)));
        parts.push(page.content.part(extent.first, extent.bytes()));
    }
    parts.push(Part::Memory(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    // The heads of the parts count: the length is announced for all of it.
    let body = ReplyBody::Many(parts);
    Reply {
        status: 206,
        fields: fields(page, body.bytes(), &boundary),
        body,
    }
}

/// 128 bits from the hasher's random seed, so that no author of a file can make it hold its own boundary.
fn boundary() -> String {
    let seed = RandomState::new();
    format!("{:016x}{:016x}", seed.hash_one(0), seed.hash_one(1))
}

/// Delimiter, fields and empty line in front of a part, RFC 2046 section 5.1.
fn part_head(page: &CachedFile, extent: Extent, boundary: &str) -> Bytes {
    let mut fields = FieldLines::with_capacity(128);
    fields.push_parts(b"Content-Type", &page.kind.parts());
    let range = extent.within(page.content.bytes());
    fields.push(b"Content-Range", range.as_bytes());
    let parts: [&[u8]; 5] = [
        b"\r\n--",
        boundary.as_bytes(),
        b"\r\n",
        fields.as_bytes(),
        b"\r\n",
    ];
    Bytes::from(parts.concat())
}

fn fields(page: &CachedFile, body_bytes: u64, boundary: &str) -> SharedFields {
    let mut fields = FieldLines::with_capacity(256);
    fields.push_parts(
        b"Content-Type",
        &[b"multipart/byteranges; boundary=", boundary.as_bytes()],
    );
    fields.push_decimal(b"Content-Length", body_bytes);
    fields.push(b"Accept-Ranges", b"bytes");
    // No `Content-Range` here: RFC 9110 section 15.3.7.2 forbids it beside a multipart.
    fields.append(&page.lasting_fields);
    fields.freeze()
}
