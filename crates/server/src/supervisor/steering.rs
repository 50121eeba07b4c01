//! Which socket of an address gets a new connection, told to the kernel; and whether telling it by processor
//! helps on this machine.
//!
//! Takes numbers of sockets, gives classic BPF programs (`SO_ATTACH_REUSEPORT_CBPF`); takes what is known of
//! network interfaces and counters, gives a verdict in words. Owns no socket.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::meant::Steering;
use crate::sys;

/// With fewer connections, shares say nothing.
const ACCEPTED_MIN: u64 = 1000;
/// A share of connections on their own processor, in percent, from which on steering does what it should.
const LOCAL_PERCENT_MIN: u64 = 80;
/// `ARPHRD_LOOPBACK`, linux/if_arp.h.
const LOOPBACK_TYPE: &str = "772";

/// How a socket is chosen, among the first so many of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) by: Choice,
    /// At least 1.
    pub(crate) among: u16,
}

/// What is taken modulo the number of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Choice {
    /// A random number: as even as the kernel's hash.
    Random,
    /// The processor that the connection comes in on.
    Cpu,
}

impl From<Steering> for Choice {
    fn from(steering: Steering) -> Choice {
        match steering {
            Steering::Hash => Choice::Random,
            Steering::Cpu => Choice::Cpu,
        }
    }
}

impl Program {
    /// The program that an address needs which has `held` sockets and wants connections on the first
    /// `wanted`; none when the kernel's hash does it.
    pub(crate) fn wanted(by: Choice, wanted: usize, held: usize) -> Option<Program> {
        let is_needed = match by {
            Choice::Cpu => held > 1,
            Choice::Random => held > wanted,
        };
        if !is_needed {
            return None;
        }
        let among = u16::try_from(wanted).ok().filter(|among| *among > 0)?;
        Some(Program { by, among })
    }

    /// Makes it choose among the sockets that share the address of this one.
    pub(crate) fn attach(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_reuseport_program(socket, &self.steps())
    }

    fn steps(self) -> [libc::sock_filter; 3] {
        let source = match self.by {
            Choice::Random => libc::SKF_AD_RANDOM,
            Choice::Cpu => libc::SKF_AD_CPU,
        };
        // Beyond the packet, from this negative offset on, are the kernel's own numbers.
        let load = (libc::SKF_AD_OFF + source).cast_unsigned();
        let step = |code: u32, k: u32| libc::sock_filter {
            code: u16::try_from(code).expect("BPF codes are 16 bits"),
            jt: 0,
            jf: 0,
            k,
        };
        [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, load),
            step(
                libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K,
                self.among.into(),
            ),
            step(libc::BPF_RET | BPF_RETURN_A, 0),
        ]
    }
}

/// `BPF_A` of linux/filter.h: what is returned is the accumulator.
const BPF_RETURN_A: u32 = 0x10;

/// Leaves the choice to the kernel's hash again.
pub(crate) fn detach(socket: BorrowedFd<'_>) -> io::Result<()> {
    sys::remove_reuseport_program(socket)
}

/// A network interface that is up, loopback apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Receive queues, each with an interrupt of its own.
    pub(crate) queues: usize,
    /// Processors that the kernel spreads received packets over by software (RPS); 0: it does not.
    pub(crate) software_processors: usize,
}

impl Interface {
    /// Processors that connections can come in on.
    fn processors(&self) -> usize {
        self.queues.max(self.software_processors)
    }
}

/// What a verdict rests on.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) steering: Steering,
    pub(crate) processors: usize,
    pub(crate) interfaces: &'a [Interface],
    /// Every address is one of the loopback interface, or none is one of TCP.
    pub(crate) is_loopback_only: bool,
    /// The processor that each socket's driver is pinned to, by the socket's index.
    pub(crate) pins: &'a [Option<usize>],
    /// Connections accepted while steering by processor was on.
    pub(crate) accepted: u64,
    /// Those of them that came in on their driver's processor.
    pub(crate) local_cpu: u64,
}

/// Whether steering by processor helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was measured, and it does.
    Helps { local_percent: u64 },
    /// Everything that it needs is there; it was not measured.
    MayHelp,
    /// It was measured, and it does not.
    Misses { local_percent: u64 },
    /// It cannot, for this reason.
    Useless(Reason),
}

/// Why steering by processor cannot help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    OneDriver,
    OneProcessor,
    Loopback,
    NotPinned {
        socket: usize,
    },
    PinnedElsewhere {
        socket: usize,
        cpu: usize,
        home: usize,
    },
    FewProcessors {
        receiving: usize,
        sockets: usize,
    },
}

/// Says whether steering by processor helps here.
pub(crate) fn says_whether_cpu_steering_helps(facts: &Facts<'_>) -> Verdict {
    if let Some(reason) = obstacle(facts) {
        return Verdict::Useless(reason);
    }
    if facts.steering != Steering::Cpu || facts.accepted < ACCEPTED_MIN {
        return Verdict::MayHelp;
    }
    let percent = u128::from(facts.local_cpu) * 100 / u128::from(facts.accepted);
    let local_percent = u64::try_from(percent).unwrap_or(100).min(100);
    if local_percent >= LOCAL_PERCENT_MIN {
        Verdict::Helps { local_percent }
    } else {
        Verdict::Misses { local_percent }
    }
}

/// The interfaces that are up, loopback apart, as `/sys/class/net` describes them.
pub(crate) fn interfaces(class_net: &Path) -> Vec<Interface> {
    let Ok(entries) = fs::read_dir(class_net) else {
        return Vec::new();
    };
    let mut found: Vec<Interface> = entries
        .filter_map(|entry| interface(&entry.ok()?.path()))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn obstacle(facts: &Facts<'_>) -> Option<Reason> {
    let sockets = facts.pins.len();
    if sockets < 2 {
        return Some(Reason::OneDriver);
    }
    if facts.processors < 2 {
        return Some(Reason::OneProcessor);
    }
    if facts.is_loopback_only {
        return Some(Reason::Loopback);
    }
    for (socket, pin) in facts.pins.iter().enumerate() {
        match *pin {
            None => return Some(Reason::NotPinned { socket }),
            // What comes in on a processor goes to the socket of that number, modulo sockets.
            Some(cpu) if cpu % sockets != socket => {
                let home = cpu % sockets;
                return Some(Reason::PinnedElsewhere { socket, cpu, home });
            }
            Some(_) => {}
        }
    }
    let receiving = facts.interfaces.iter().map(Interface::processors).max();
    let receiving = receiving.unwrap_or(0);
    (receiving < sockets).then_some(Reason::FewProcessors { receiving, sockets })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Helps { local_percent } => write!(
                f,
                "helps: {local_percent} % of connections came in on their driver's processor"
            ),
            Verdict::MayHelp => f.write_str(
                "may help: drivers are pinned, and connections come in on enough processors",
            ),
            Verdict::Misses { local_percent } => write!(
                f,
                "does not help: only {local_percent} % of connections came in on their driver's processor; see where the network card's interrupts go"
            ),
            Verdict::Useless(reason) => write!(f, "cannot help: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::OneDriver => f.write_str("there is one driver"),
            Reason::OneProcessor => f.write_str("there is one processor"),
            Reason::Loopback => {
                f.write_str("connections of this machine come in on the processor of their client")
            }
            Reason::NotPinned { socket } => write!(
                f,
                "driver {socket} is not pinned to a processor; see `driver_cpus`"
            ),
            Reason::PinnedElsewhere { socket, cpu, home } => write!(
                f,
                "driver {socket} is pinned to processor {cpu}, whose connections go to driver {home}"
            ),
            Reason::FewProcessors { receiving, sockets } => write!(
                f,
                "the network card's connections come in on {receiving} processors, so that some of {sockets} drivers would get none; see its receive queues and `rps_cpus`"
            ),
        }
    }
}

fn interface(folder: &Path) -> Option<Interface> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    if read("type").trim() == LOOPBACK_TYPE || read("operstate").trim() == "down" {
        return None;
    }
    let mut queues = 0;
    let mut mask = Vec::new();
    for entry in fs::read_dir(folder.join("queues")).ok()?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"rx-") {
            queues += 1;
            let text = fs::read_to_string(entry.path().join("rps_cpus")).unwrap_or_default();
            merge(&mut mask, &text);
        }
    }
    Some(Interface {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        queues,
        software_processors: mask.iter().map(|word| word.count_ones() as usize).sum(),
    })
}

/// Adds the processors of a mask, as the kernel writes it: `0000000f` or `ff,ffffffff`, the highest first.
fn merge(mask: &mut Vec<u32>, text: &str) {
    let words = text.trim().rsplit(',');
    for (index, word) in words.enumerate() {
        let bits = u32::from_str_radix(word, 16).unwrap_or(0);
        if mask.len() <= index {
            mask.resize(index + 1, 0);
        }
        mask[index] |= bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(queues: usize, software_processors: usize) -> Interface {
        Interface {
            name: "eth0".to_owned(),
            queues,
            software_processors,
        }
    }

    fn facts<'a>(interfaces: &'a [Interface], pins: &'a [Option<usize>]) -> Facts<'a> {
        Facts {
            steering: Steering::Cpu,
            processors: 4,
            interfaces,
            is_loopback_only: false,
            pins,
            accepted: 0,
            local_cpu: 0,
        }
    }

    #[test]
    fn says_why_steering_by_processor_cannot_help() {
        let (one, four) = ([card(1, 0)], [card(4, 0)]);
        let pinned = [Some(0), Some(1), Some(2), Some(3)];
        let check = |facts: Facts<'_>, expect: &str| {
            let text = says_whether_cpu_steering_helps(&facts).to_string();
            assert!(text.contains(expect), "{text}");
        };
        check(
            facts(&four, &pinned[..1]),
            "cannot help: there is one driver",
        );
        let processors = 1;
        let alone = Facts {
            processors,
            ..facts(&four, &pinned)
        };
        check(alone, "there is one processor");
        let is_loopback_only = true;
        let local = Facts {
            is_loopback_only,
            ..facts(&four, &pinned)
        };
        check(local, "the processor of their client");
        check(facts(&four, &[Some(0), None]), "driver 1 is not pinned");
        check(
            facts(&four, &[Some(1), Some(0)]),
            "driver 0 is pinned to processor 1, whose connections go to driver 1",
        );
        check(facts(&one, &pinned), "come in on 1 processors");
        check(facts(&[], &pinned), "come in on 0 processors");
        check(facts(&[card(1, 4)], &pinned), "may help");
        check(facts(&four, &pinned), "may help");
    }

    #[test]
    fn trusts_counters_more_than_queues() {
        let four = [card(4, 0)];
        let pinned = [Some(0), Some(1)];
        let check = |accepted, local_cpu, expect| {
            let facts = Facts {
                accepted,
                local_cpu,
                ..facts(&four, &pinned)
            };
            assert_eq!(says_whether_cpu_steering_helps(&facts), expect);
        };
        check(999, 0, Verdict::MayHelp);
        check(1000, 800, Verdict::Helps { local_percent: 80 });
        check(1000, 799, Verdict::Misses { local_percent: 79 });
        let local_percent = 100;
        check(u64::MAX, u64::MAX, Verdict::Helps { local_percent });
    }

    #[test]
    fn counts_queues_and_processors_of_interfaces() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, kind: &str, state: &str, queues: &[(&str, &str)]| {
            let at = folder.path().join(name);
            fs::create_dir_all(at.join("queues/tx-0")).unwrap();
            fs::write(at.join("type"), kind).unwrap();
            fs::write(at.join("operstate"), state).unwrap();
            for (queue, mask) in queues {
                let queue = at.join("queues").join(queue);
                fs::create_dir_all(&queue).unwrap();
                fs::write(queue.join("rps_cpus"), mask).unwrap();
            }
        };
        make("lo", "772\n", "unknown\n", &[("rx-0", "0\n")]);
        make("eth1", "1\n", "down\n", &[("rx-0", "0\n")]);
        make(
            "eth0",
            "1\n",
            "up\n",
            &[("rx-0", "00000003\n"), ("rx-1", "1,00000006\n")],
        );
        let found = interfaces(folder.path());
        assert_eq!(found, [card(2, 4)]);
        assert_eq!(interfaces(&folder.path().join("none")), []);
    }

    #[test]
    fn needs_a_program_for_processors_and_for_a_surplus_only() {
        let check = |steering: Steering, wanted, held, expect: Option<(Choice, u16)>| {
            let program = Program::wanted(steering.into(), wanted, held);
            assert_eq!(program.map(|program| (program.by, program.among)), expect);
        };
        check(Steering::Hash, 3, 3, None);
        check(Steering::Hash, 3, 8, Some((Choice::Random, 3)));
        check(Steering::Cpu, 3, 3, Some((Choice::Cpu, 3)));
        check(Steering::Cpu, 1, 1, None);
        check(Steering::Cpu, 1, 2, Some((Choice::Cpu, 1)));
    }
}
