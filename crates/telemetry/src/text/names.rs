//! Names behind the numbers of a record, made ready for one form.

use super::digits::push_u64;
use crate::{Record, made_id};

/// Names behind a record's numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    /// Names of the routes, by their index.
    pub routes: Vec<String>,
    /// Names of the pools, by their index.
    pub pools: Vec<String>,
    /// Names of the upstream servers, by their index.
    pub upstreams: Vec<String>,
    /// The process, by its pid: a slot is no name, because during a reload two generations have the same slots.
    pub process: u32,
    /// What the ids of this process are mixed with: see [`made_id`].
    pub id_seed: u64,
}

/// The names as they stand in lines of one form. What has no name is empty.
#[derive(Debug)]
pub(super) struct Known {
    routes: Vec<Vec<u8>>,
    pools: Vec<Vec<u8>>,
    upstreams: Vec<Vec<u8>>,
    pub(super) process: u32,
    id_seed: u64,
}

impl Known {
    /// Each name goes through `escape` once, here.
    pub(super) fn of(names: Names, escape: fn(&[u8]) -> Vec<u8>) -> Known {
        // A name may be anything that a configuration holds.
        let all = |names: Vec<String>| names.iter().map(|name| escape(name.as_bytes())).collect();
        Known {
            routes: all(names.routes),
            pools: all(names.pools),
            upstreams: all(names.upstreams),
            process: names.process,
            id_seed: names.id_seed,
        }
    }

    pub(super) fn route(&self, record: &Record<'_>) -> &[u8] {
        by_index(&self.routes, record.route)
    }

    pub(super) fn pool(&self, record: &Record<'_>) -> &[u8] {
        by_index(&self.pools, record.pool)
    }

    /// The server that the record's exchange was sent to last.
    pub(super) fn upstream(&self, record: &Record<'_>) -> &[u8] {
        self.server(record.upstream.server)
    }

    /// The name of an upstream server.
    pub(super) fn server(&self, index: u16) -> &[u8] {
        by_index(&self.upstreams, index)
    }

    /// Appends the worker that ran the record: `PROCESS.NUMBER`, `-` for none.
    pub(super) fn push_worker(&self, record: &Record<'_>, out: &mut Vec<u8>) {
        let Some(worker) = record.phases.worker else {
            return out.push(b'-');
        };
        push_u64(out, u64::from(self.process));
        out.push(b'.');
        push_u64(out, u64::from(worker.get()));
    }

    /// The id that the exchange with this number has, unless a client gave it another one.
    pub(super) fn made(&self, number: u64) -> [u8; 16] {
        made_id(self.id_seed, number)
    }

    /// The record's id, not escaped; `made` has room for one that is made here.
    pub(super) fn id<'r>(&self, record: &Record<'r>, made: &'r mut [u8; 16]) -> &'r [u8] {
        // An id of the client, where it is trusted: a proxy in front has the same in its own log.
        if record.request_id.is_empty() {
            *made = made_id(self.id_seed, record.id);
            made
        } else {
            record.request_id
        }
    }
}

fn by_index(names: &[Vec<u8>], index: u16) -> &[u8] {
    names.get(usize::from(index)).map_or(b"", |name| name)
}
