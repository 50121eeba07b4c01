//! A 206 of several parts: `multipart/byteranges`, RFC 9110 section 14.6.
//!
//! Takes a page without a content coding and at least two extents; gives parts of the page between small
//! heads of their own. No content is copied.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;

use bytes::Bytes;

use crate::reply::{Part, Reply, ReplyBody};

use super::page::Page;
use super::ranges::Extent;

/// The reply that carries `extents` of `page`.
pub(super) fn reply(page: &Page, extents: &[Extent]) -> Reply {
    let boundary = boundary();
    let mut parts = Vec::with_capacity(2 * extents.len() + 1);
    for extent in extents {
        parts.push(Part::Memory(part_head(page, *extent, &boundary)));
        parts.push(page.content.part(extent.first, extent.bytes()));
    }
    parts.push(Part::Memory(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    let body = ReplyBody::Many(parts);
    Reply {
        status: 206,
        lines: lines(page, body.bytes(), &boundary),
        body,
    }
}

/// 128 bits from the hasher's random seed, so that nobody can write a file that holds its own boundary.
fn boundary() -> String {
    let seed = RandomState::new();
    format!("{:016x}{:016x}", seed.hash_one(0), seed.hash_one(1))
}

fn part_head(page: &Page, extent: Extent, boundary: &str) -> Bytes {
    let mut head = Vec::with_capacity(160);
    write!(head, "\r\n--{boundary}\r\nContent-Type: ").expect("a vector takes every write");
    page.kind.write(&mut head);
    write!(
        head,
        "\r\nContent-Range: {}\r\n\r\n",
        extent.within(page.content.bytes())
    )
    .expect("a vector takes every write");
    Bytes::from(head)
}

fn lines(page: &Page, body_bytes: u64, boundary: &str) -> Bytes {
    let mut lines = Vec::with_capacity(256);
    write!(
        lines,
        "Content-Type: multipart/byteranges; boundary={boundary}\r\nContent-Length: {body_bytes}\r\n\
         Accept-Ranges: bytes\r\n"
    )
    .expect("a vector takes every write");
    lines.extend_from_slice(&page.lasting_lines());
    Bytes::from(lines)
}
