//! A load as it is written in flags, and how it becomes a plan.
//!
//! Takes texts by key ([`LoadSpec`]; the table is [`keys`]), gives a checked [`Plan`] or all faults at once.
//! Reads files through [`Files`] only and resolves names; must not connect, listen or print.
//!
//! ```text
//! flags ─► LoadSpec ─► reading ─┬► target (url)           ─┐
//!                              ├► load (rates, length)    ├─► Plan::fault ─► Plan
//!                              └► requests (mix, replay) ─┘
//! ```

mod bad_clients;
mod keys;
mod load;
mod mix;
mod reader;
mod recording;
mod requests;
mod target;
mod url;
mod values;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

pub use keys::{FlagForm, FlagGroup, Key, LoadSpec, keys};
pub use recording::Recording;

use crate::engine::{Fault, Http2Request};
use crate::plan::{Machine, Plan, Protocol, Request, Scheme, Tables, Timestamps};
use reader::SpecReader;
use requests::Requests;

/// Where files come from that a load names, and what names of hosts mean.
pub trait Files {
    /// All bytes of a file.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The requests of an access log.
    ///
    /// # Errors
    /// It cannot be read, or holds none.
    fn recording(&self, path: &Path) -> Result<Recording, Fault>;

    /// The addresses of a host.
    ///
    /// # Errors
    /// The system's.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

impl LoadSpec {
    /// What it means. A name is resolved once, here.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn plan(&self, files: &dyn Files) -> Result<Plan, Vec<Fault>> {
        let mut reading = SpecReader::of(self);
        // In the order of the help; none ends at a fault, so that all of them are said at once.
        let target = target::target(&mut reading, files);
        let sources = target::sources(&mut reading, target.as_ref());
        let Requests {
            kinds: requests,
            arrivals: recorded,
            upgrade,
        } = requests::requests(&mut reading, target.as_ref(), files);
        let connections = load::connections(&mut reading, sources);
        let load = load::load(&mut reading, recorded);
        let length = load::length(&mut reading, &load, &connections);
        let expect = requests::expect(&mut reading);
        let bad_clients = bad_clients::bad_clients(&mut reading);
        let machine = machine(&mut reading);
        if let (Some(target), Some(requests), None, Protocol::Http2) =
            (&target, &requests, &upgrade, connections.protocol)
        {
            let has_tls = matches!(target.scheme, Scheme::Https(_));
            let made = |kind: &Request| Http2Request::of(&kind.bytes, has_tls).err();
            // The first one alone: a recording may have many, all for the same reason.
            if let Some(text) = requests.iter().find_map(made) {
                let hint = "leave `--http2` out, or change the request";
                reading.fault(format!("request: {text}"), hint);
            }
        }
        let (Some(target), Some(requests), true) = (target, requests, reading.faults.is_empty())
        else {
            return Err(reading.faults);
        };
        let plan = Plan {
            target,
            requests,
            load,
            connections,
            length,
            expect,
            upgrade,
            bad_clients,
            machine,
        };
        match plan.fault() {
            Some(text) => Err(vec![Fault::new(format!("load: {text}"))]),
            None => Ok(plan),
        }
    }
}

fn machine(reading: &mut SpecReader<'_>) -> Machine {
    let pid = |text: &str| match values::count(text, 1, i32::MAX as u64) {
        Ok(pid) => Ok(pid as u32),
        Err(_) => Err("a process id".to_owned()),
    };
    let pids = reading.texts("server_pid").iter();
    let pids = pids
        .filter_map(|text| reading.element("server_pid", text, pid))
        .collect();
    let spin = reading.value("spin", values::time);
    reading.needs(
        &["spin"],
        "rate",
        "requests of a rate are due at a time, others are not",
    );
    let known = [("read", Timestamps::Read), ("kernel", Timestamps::Kernel)];
    let timestamps = reading.choice("timestamps", &known);
    Machine {
        threads: reading.count("threads", 1, 1_024).unwrap_or(1) as usize,
        tables: Tables::Shared,
        cpus: reading.value("cpus", values::cpus).unwrap_or_default(),
        timestamps: timestamps.unwrap_or_default(),
        spin: spin.unwrap_or_default(),
        server_pids: pids,
    }
}

#[cfg(test)]
mod tests;
