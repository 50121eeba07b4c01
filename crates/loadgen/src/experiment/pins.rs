//! Who runs on which processor.
//!
//! Takes processors, gives the usual division of them and processes that are held to some. A child has the
//! processors of the thread that started it, so it is started by a thread of its own.

use std::io;
use std::process::{Child, Command};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Pins;
use crate::engine::Fault;

impl Pins {
    /// The last processor for the generator, all others for servers; with a single one nobody is held.
    pub fn usual() -> Pins {
        Pins::dividing(&available())
    }

    fn dividing(cpus: &[usize]) -> Pins {
        match cpus.split_last() {
            Some((last, others)) if !others.is_empty() => Pins {
                server: others.to_vec(),
                generator: vec![*last],
            },
            _ => Pins::default(),
        }
    }

    /// Why nobody can be held to these; `None`: all can.
    pub(super) fn fault(&self) -> Option<Fault> {
        let there = available();
        let mut named = self.server.iter().chain(&self.generator);
        let absent = named.find(|cpu| !there.contains(cpu))?;
        Some(Fault::with_hint(
            format!("processor {absent}: is none that may be used here"),
            format!("these may: {}", listed(&there)),
        ))
    }
}

/// Processors that this thread may use.
pub(super) fn available() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// As `0,1,5`.
pub(super) fn listed(cpus: &[usize]) -> String {
    let texts: Vec<String> = cpus.iter().map(usize::to_string).collect();
    texts.join(",")
}

/// Starts a process that has only these processors; empty: those of this thread.
pub(super) fn spawn_on(cpus: &[usize], command: &mut Command) -> io::Result<Child> {
    if cpus.is_empty() {
        return command.spawn();
    }
    let held = move || {
        let mut set = CpuSet::new();
        for cpu in cpus {
            set.set(*cpu);
        }
        sched_setaffinity(None, &set)?;
        command.spawn()
    };
    thread::scope(|scope| {
        let spawning = thread::Builder::new().spawn_scoped(scope, held)?;
        let spawned = spawning.join();
        spawned.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it has died")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_generator_the_last_processor() {
        for (cpus, server, generator) in [
            (&[0, 1][..], &[0][..], &[1][..]),
            (&[2, 3, 7], &[2, 3], &[7]),
            (&[0], &[], &[]),
            (&[], &[], &[]),
        ] {
            let pins = Pins::dividing(cpus);
            assert_eq!(pins.server, server, "{cpus:?}");
            assert_eq!(pins.generator, generator, "{cpus:?}");
        }
    }

    #[test]
    fn holds_a_child_and_not_itself() {
        let before = available();
        let last = *before.last().expect("a processor");
        let mut command = Command::new("sh");
        command.args(["-c", "grep Cpus_allowed_list /proc/self/status"]);
        command.stdout(std::process::Stdio::piped());
        let child = spawn_on(&[last], &mut command).expect("a child");
        let output = child.wait_with_output().expect("its end").stdout;
        let text = String::from_utf8(output).expect("text");
        assert_eq!(text.trim(), format!("Cpus_allowed_list:\t{last}"));
        assert_eq!(available(), before);
    }

    #[test]
    fn names_a_processor_that_is_not_there() {
        let pins = Pins {
            server: vec![0],
            generator: vec![1023],
        };
        let fault = pins.fault().expect("a fault");
        assert_eq!(fault.text, "processor 1023: is none that may be used here");
    }
}
