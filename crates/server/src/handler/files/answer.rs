//! From a page and a head to the reply: which of 200, 206, 304, 412 and 416 it is, and its fields and body.
//!
//! Takes values, gives a value; touches neither files nor cache.

use wire::{FieldLines, HeadView, Marks, Method};

use crate::reply::{Reply, ReplyBody};

use super::conditional::{self, Verdict};
use super::multipart;
use super::page::Page;
use super::plain::Plain;
use super::ranges::{self, Extent, Selection};

/// The reply to a GET or HEAD of `page`.
#[inline]
pub(super) fn give(page: &Page, head: HeadView<'_>) -> Reply {
    if head
        .index
        .marks
        .intersects(Marks::CONDITIONAL.with(Marks::RANGE))
    {
        return give_as_asked(page, head);
    }
    whole(page, head)
}

fn give_as_asked(page: &Page, head: HeadView<'_>) -> Reply {
    match conditional::judge(head, &page.validators) {
        Verdict::Failed => Plain::PreconditionFailed.reply(head),
        Verdict::NotModified => Reply {
            status: 304,
            fields: page.lasting_fields().clone(),
            body: ReplyBody::Empty,
        },
        Verdict::Proceed => match selection(page, head) {
            Selection::Whole => whole(page, head),
            Selection::Unsatisfiable => unsatisfiable(page),
            Selection::Parts(extents) => match (extents.as_slice(), page.coding) {
                ([extent], _) => one_part(page, *extent),
                (_, None) => multipart::reply(page, &extents),
                // `Content-Encoding` beside a multipart type would be that of the multipart. RFC 9110
                // section 14.2 lets us ignore the field.
                (_, Some(_)) => whole(page, head),
            },
        },
    }
}

/// RFC 9110 section 14.2: `Range` is defined for GET alone. Two `Range` lines are no valid field.
fn selection(page: &Page, head: HeadView<'_>) -> Selection {
    if head.index.method != Method::Get || !head.index.marks.contains(Marks::RANGE) {
        return Selection::Whole;
    }
    match conditional::single(head, "range") {
        Some(value) if conditional::allows_range(head, &page.validators) => {
            ranges::select(value, page.content.bytes())
        }
        _ => Selection::Whole,
    }
}

#[inline]
fn whole(page: &Page, head: HeadView<'_>) -> Reply {
    let body = if head.index.method == Method::Head {
        ReplyBody::Empty
    } else {
        page.content.whole()
    };
    Reply {
        status: 200,
        fields: page.fields(),
        body,
    }
}

/// RFC 9110 section 15.3.7.1.
fn one_part(page: &Page, extent: Extent) -> Reply {
    let mut fields = FieldLines::with_capacity(256);
    fields.push_parts(b"Content-Type", &page.kind.parts());
    fields.push_decimal(b"Content-Length", extent.bytes());
    let range = extent.within(page.content.bytes());
    fields.push(b"Content-Range", range.as_bytes());
    fields.push(b"Accept-Ranges", b"bytes");
    if let Some(coding) = page.coding {
        fields.push(b"Content-Encoding", coding.name().as_bytes());
    }
    fields.append(page.lasting_fields());
    let body = ReplyBody::One(page.content.part(extent.first, extent.bytes()));
    Reply {
        status: 206,
        fields: fields.freeze(),
        body,
    }
}

/// RFC 9110 section 15.5.17: the length is told, so that the client can ask again.
fn unsatisfiable(page: &Page) -> Reply {
    let mut fields = FieldLines::with_capacity(128);
    fields.push_decimal(b"Content-Length", 0);
    let range = format!("bytes */{}", page.content.bytes());
    fields.push(b"Content-Range", range.as_bytes());
    fields.push(b"Accept-Ranges", b"bytes");
    Reply {
        status: 416,
        fields: fields.freeze(),
        body: ReplyBody::Empty,
    }
}
