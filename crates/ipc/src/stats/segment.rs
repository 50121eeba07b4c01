//! What one process's counters look like as bytes: a header that says for what they were made, then the
//! counters of drivers, pools and routes, the requests that run, the counters of the servers of upstreams, of logs
//! and of the spool folder, and how long the requests of routes took, in this order.
//!
//! The header names everything, so that a segment is understood without the configuration it belongs to,
//! and a later version knows that it does not understand it.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use config::typed::Config;
use os::invariant;
use serde::{Deserialize, Serialize};

use telemetry::counters::{
    DriverStats, EventLoopStats, LOG_NAMES, LogStats, PoolStats, RouteDurations, RouteStats,
    RunningTable, SpoolStats, UpstreamStats,
};

/// Segments begin and end here: the largest page of the machines that are served.
pub(super) const ALIGN_BYTES: u64 = 64 << 10;

/// What a segment begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"milepost");
/// To be raised with every change of what a number means. A change of the sizes is seen without it.
const VERSION: u64 = 9;
/// Numbers before the shape.
const NUMBERS_LEN: usize = 12;
const NUMBERS_BYTES: usize = NUMBERS_LEN * size_of::<u64>();
/// Longest description of a shape; some ten thousand routes.
const SHAPE_BYTES_MAX: u64 = 1 << 20;
/// Where parts begin: cache lines are fetched in pairs.
const PART_ALIGN_BYTES: u64 = 128;

/// Where the counters of one process are in the file of all counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The process's row among the slots of upstream servers; `None`: all rows are in use.
    pub row: Option<usize>,
}

/// What a process counts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Its drivers.
    pub drivers: usize,
    /// Names of its routes, in the order of their numbers.
    pub routes: Vec<String>,
    /// Names of its pools.
    pub pools: Vec<String>,
    /// The servers of its upstreams, in the order of their numbers.
    #[serde(default)]
    pub servers: Vec<CountedServer>,
}

/// A server of an upstream group, as it is called where it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedServer {
    /// Name of the group.
    pub upstream: String,
    /// Its address, as the configuration has it.
    pub address: String,
}

/// Where the parts of a segment are, in bytes from its start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) drivers: usize,
    pub(super) pools: usize,
    pub(super) event_loop: usize,
    pub(super) routes: usize,
    pub(super) running: usize,
    pub(super) servers: usize,
    pub(super) logs: usize,
    pub(super) spool: usize,
    pub(super) durations: usize,
    /// Of the whole segment.
    pub(super) bytes: u64,
}

impl Shape {
    /// Of a process with this configuration. Pools are there where there are applications or upstreams.
    pub fn of(config: &Config) -> Shape {
        let pools = config.pools.iter().filter(|_| config.has_pools());
        let servers = config.upstreams.iter().flat_map(|upstream| {
            let servers = upstream.servers.iter();
            servers.map(|server| CountedServer {
                upstream: upstream.name.clone(),
                address: server.address.to_string(),
            })
        });
        Shape {
            drivers: config.listen.drivers,
            routes: config.route_names(),
            pools: pools.map(|pool| pool.name.clone()).collect(),
            servers: servers.collect(),
        }
    }
}

impl Segment {
    /// The first byte behind it; `None` where there can be none.
    pub(super) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }

    /// It may be one: not empty, between bounds of segments, and within what a file can hold.
    pub(super) fn is_possible(&self) -> bool {
        let end = self.end().and_then(|end| i64::try_from(end).ok());
        self.bytes > 0
            && self.offset.is_multiple_of(ALIGN_BYTES)
            && self.bytes.is_multiple_of(ALIGN_BYTES)
            && end.is_some()
    }
}

impl Layout {
    /// # Errors
    /// `InvalidInput`: no memory is large enough, or the names are too long.
    pub(super) fn of(shape: &Shape) -> io::Result<Layout> {
        let written = serde_json::to_vec(shape)?.len() as u64;
        if written > SHAPE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the names of routes and pools are too long for the counters",
            ));
        }
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        Layout::behind(NUMBERS_BYTES as u64 + written, shape).ok_or_else(too_large)
    }

    fn behind(header_bytes: u64, shape: &Shape) -> Option<Layout> {
        // Parts begin on cache lines of their own: threads that count in two of them do not slow each other.
        let drivers = header_bytes.checked_next_multiple_of(PART_ALIGN_BYTES)?;
        let pools = after::<DriverStats>(drivers, shape.drivers)?;
        let event_loop = after::<PoolStats>(pools, shape.pools.len())?;
        let routes = after::<EventLoopStats>(event_loop, 1)?;
        let running = after::<RouteStats>(routes, shape.routes.len())?;
        let servers = after::<RunningTable>(running, 1)?;
        let logs = after::<UpstreamStats>(servers, shape.servers.len())?;
        let spool = after::<LogStats>(logs, LOG_NAMES.len())?;
        // Last, because they are by far the largest, and most of their memory is never touched.
        let durations = after::<SpoolStats>(spool, 1)?;
        let end = after::<RouteDurations>(durations, shape.routes.len())?;
        // Of parts that overlap, each would count into the other.
        invariant!(
            header_bytes <= drivers
                && drivers <= pools
                && pools <= event_loop
                && event_loop <= routes
                && routes <= running
                && running <= servers
                && servers <= logs
                && logs <= spool
                && spool <= durations
                && durations <= end,
            "the parts of a segment overlap"
        );
        Some(Layout {
            drivers: usize::try_from(drivers).ok()?,
            pools: usize::try_from(pools).ok()?,
            event_loop: usize::try_from(event_loop).ok()?,
            routes: usize::try_from(routes).ok()?,
            running: usize::try_from(running).ok()?,
            servers: usize::try_from(servers).ok()?,
            logs: usize::try_from(logs).ok()?,
            spool: usize::try_from(spool).ok()?,
            durations: usize::try_from(durations).ok()?,
            bytes: end.checked_next_multiple_of(ALIGN_BYTES)?,
        })
    }
}

/// Where the next part begins after `len` things.
fn after<T>(start: u64, len: usize) -> Option<u64> {
    let bytes = u64::try_from(len.checked_mul(size_of::<T>())?).ok()?;
    start
        .checked_add(bytes)?
        .checked_next_multiple_of(PART_ALIGN_BYTES)
}

/// The numbers that a segment of this version begins with, the last being the length of the shape.
fn numbers(shape_bytes: u64) -> [u64; NUMBERS_LEN] {
    let of = |bytes: usize| bytes as u64;
    [
        MAGIC,
        VERSION,
        // The sizes stand for the layout: another version that forgot to count `VERSION` up is still told apart.
        of(size_of::<DriverStats>()),
        of(size_of::<PoolStats>()),
        of(size_of::<EventLoopStats>()),
        of(size_of::<RouteStats>()),
        of(size_of::<RunningTable>()),
        of(size_of::<UpstreamStats>()),
        of(size_of::<LogStats>()),
        of(size_of::<SpoolStats>()),
        of(size_of::<RouteDurations>()),
        shape_bytes,
    ]
}

/// Makes a part of the file, all zeros until now, a segment.
pub(super) fn write_header(file: &File, segment: &Segment, shape: &Shape) -> io::Result<()> {
    let written = serde_json::to_vec(shape)?;
    let mut header: Vec<u8> = numbers(written.len() as u64)
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    header.extend_from_slice(&written);
    file.write_all_at(&header, segment.offset)
}

/// For what a segment was made, and where its parts are.
///
/// # Errors
/// `InvalidData`: it is none, or of a version that counts otherwise.
pub(super) fn read_header(file: BorrowedFd<'_>, segment: &Segment) -> io::Result<(Shape, Layout)> {
    if !segment.is_possible() {
        return Err(fault("it does not lie where one can"));
    }
    let file = File::from(file.try_clone_to_owned()?);
    let mut written = [0; NUMBERS_BYTES];
    read(&file, &mut written, segment.offset)?;
    let (words, _) = written.as_chunks::<{ size_of::<u64>() }>();
    let shape_bytes = u64::from_le_bytes(words[NUMBERS_LEN - 1]);
    // The sizes of the counters are among them, so that a change of a struct is seen without a new version.
    let expected = numbers(shape_bytes);
    let found = words.iter().map(|word| u64::from_le_bytes(*word));
    if u64::from_le_bytes(words[0]) != MAGIC {
        return Err(fault("there is none"));
    }
    if !found.eq(expected) {
        return Err(fault("another version has made it"));
    }
    if shape_bytes > SHAPE_BYTES_MAX {
        return Err(fault("its header is too long"));
    }
    let mut text =
        vec![0; usize::try_from(shape_bytes).map_err(|_| fault("its header is too long"))?];
    read(&file, &mut text, segment.offset + NUMBERS_BYTES as u64)?;
    let shape: Shape = serde_json::from_slice(&text).map_err(|_| fault("its header is damaged"))?;
    let layout = Layout::behind(NUMBERS_BYTES as u64 + shape_bytes, &shape);
    // Nothing is read by a layout that does not end where the segment does.
    let layout = layout.filter(|layout| layout.bytes == segment.bytes);
    let layout = layout.ok_or_else(|| fault("its length is not that of its parts"))?;
    Ok((shape, layout))
}

fn read(file: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(into, offset).map_err(explained)
}

/// What the kernel or the mapping says of a file, in words of segments.
pub(super) fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => fault("the file ends before it does"),
        io::ErrorKind::InvalidInput => fault("this is not the file of all counters"),
        _ => error,
    }
}

/// What is wrong with a segment.
pub(super) fn fault(cause: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a segment of the counters cannot be used: {cause}"),
    )
}
