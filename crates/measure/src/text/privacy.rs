//! What of a client is not written: bits of its address, queries.
//!
//! Takes a record, gives one that may be shown; the forms know nothing of it. It must not allocate for
//! a line: what is not a part of the record is kept in two buffers that are used again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Style;
use super::digits::push_u64;
use crate::Record;

const BITS_V4: u8 = 32;
const BITS_V6: u8 = 128;

/// Hides what a style does not show.
#[derive(Debug)]
pub(super) struct Privacy {
    style: Style,
    peer: Vec<u8>,
    request_line: Vec<u8>,
}

impl Privacy {
    /// `None` when everything is shown.
    pub(super) fn new(style: Style) -> Option<Privacy> {
        let hides = style.prefix_v4 < BITS_V4 || style.prefix_v6 < BITS_V6 || !style.query;
        hides.then(|| Privacy {
            style,
            peer: Vec::new(),
            request_line: Vec::new(),
        })
    }

    /// The record without what is hidden.
    pub(super) fn show<'r>(&'r mut self, record: &Record<'r>) -> Record<'r> {
        let mut shown = *record;
        if let Some(masked) = masked(record.peer, &self.style) {
            self.peer.clear();
            push_address(&mut self.peer, masked);
            shown.peer = &self.peer;
        }
        if !self.style.query {
            shown.target = before_query(record.target);
            shown.referer = before_query(record.referer);
            self.request_line.clear();
            push_without_query(&mut self.request_line, record.request_line);
            shown.request_line = &self.request_line;
        }
        shown
    }
}

/// The address with the bits beyond its prefix cleared; `None` when it stays as it is: it is no address
/// (`unix:`), or the whole of it is shown. An IPv4 address that is written as IPv6 counts as IPv4.
fn masked(peer: &[u8], style: &Style) -> Option<IpAddr> {
    let address = std::str::from_utf8(peer).ok()?.parse().ok()?;
    match address {
        IpAddr::V4(v4) => {
            let masked = masked_v4(v4, style.prefix_v4);
            (style.prefix_v4 < BITS_V4).then_some(IpAddr::V4(masked))
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => {
                let masked = masked_v4(v4, style.prefix_v4).to_ipv6_mapped();
                (style.prefix_v4 < BITS_V4).then_some(IpAddr::V6(masked))
            }
            None => {
                let kept = ones_128(style.prefix_v6);
                let masked = Ipv6Addr::from_bits(v6.to_bits() & kept);
                (style.prefix_v6 < BITS_V6).then_some(IpAddr::V6(masked))
            }
        },
    }
}

fn masked_v4(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let hidden = u32::from(BITS_V4.saturating_sub(prefix));
    Ipv4Addr::from_bits(address.to_bits() & u32::MAX.checked_shl(hidden).unwrap_or(0))
}

/// A number whose first `prefix` bits are 1.
fn ones_128(prefix: u8) -> u128 {
    let hidden = u32::from(BITS_V6.saturating_sub(prefix));
    u128::MAX.checked_shl(hidden).unwrap_or(0)
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => push_v4(out, v4),
        IpAddr::V6(v6) => push_v6(out, v6),
    }
}

fn push_v4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let [first, rest @ ..] = address.octets();
    push_u64(out, u64::from(first));
    for octet in rest {
        out.push(b'.');
        push_u64(out, u64::from(octet));
    }
}

/// As RFC 5952 section 4 has it: no leading zeros, the longest run of two or more zero groups as `::`,
/// the first of two equally long ones, lower case; section 5 for addresses that carry one of IPv4.
fn push_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    if let Some(v4) = address.to_ipv4_mapped() {
        out.extend_from_slice(b"::ffff:");
        return push_v4(out, v4);
    }
    let groups = address.segments();
    let (from, len) = longest_zeros(&groups);
    if len < 2 {
        return push_groups(out, &groups);
    }
    push_groups(out, &groups[..from]);
    out.extend_from_slice(b"::");
    push_groups(out, &groups[from + len..]);
}

fn push_groups(out: &mut Vec<u8>, groups: &[u16]) {
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        let digits = (u16::BITS - group.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            out.push(b"0123456789abcdef"[usize::from(group >> (4 * digit) & 15)]);
        }
    }
}

/// Where the longest run of zeros begins, and how long it is.
fn longest_zeros(groups: &[u16; 8]) -> (usize, usize) {
    let (mut longest, mut run) = ((0, 0), 0);
    for (index, &group) in groups.iter().enumerate() {
        run = if group == 0 { run + 1 } else { 0 };
        if run > longest.1 {
            longest = (index + 1 - run, run);
        }
    }
    longest
}

/// Everything before the first `?`. One in a fragment counts too: what follows it may be as private.
fn before_query(text: &[u8]) -> &[u8] {
    match text.iter().position(|&byte| byte == b'?') {
        Some(at) => &text[..at],
        None => text,
    }
}

/// Appends a raw first line without what lies between its first `?` and its version.
///
/// Not only to the next space: a space in the query is one of the things that a head is refused for.
fn push_without_query(out: &mut Vec<u8>, line: &[u8]) {
    const VERSION: &[u8] = b" HTTP/";
    let kept = before_query(line);
    out.extend_from_slice(kept);
    let query = &line[kept.len()..];
    if let Some(at) = query
        .windows(VERSION.len())
        .rposition(|part| part == VERSION)
    {
        let version = &query[at..];
        let end = version.iter().skip(1).position(|&byte| byte == b' ');
        out.extend_from_slice(&version[..end.map_or(version.len(), |end| end + 1)]);
    }
}
