//! BPF program that chooses which socket of an address gets a new connection (`SO_ATTACH_REUSEPORT_CBPF`).
//!
//! Takes numbers of sockets, gives classic BPF programs and attaches them. Owns no socket.

use std::io;
use std::os::fd::BorrowedFd;

use os::invariant;
use serde::{Deserialize, Serialize};

use config::typed::Steering;

/// How a socket is chosen, among the first so many of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BpfProgram {
    pub(crate) by: Steering,
    /// At least 1.
    pub(crate) among: u16,
}

impl BpfProgram {
    /// The program that an address needs which has `held` sockets and wants connections on the first
    /// `wanted`; none when the kernel's hash does it.
    pub(crate) fn wanted(by: Steering, wanted: usize, held: usize) -> Option<BpfProgram> {
        // The kernel's hash spreads over all sockets of an address: a program keeps connections from surplus ones.
        let is_needed = match by {
            Steering::Cpu => held > 1,
            Steering::Hash => held > wanted,
        };
        if !is_needed {
            return None;
        }
        let among = u16::try_from(wanted).ok().filter(|among| *among > 0)?;
        Some(BpfProgram { by, among })
    }

    /// Makes it choose among the sockets that share the address of this one.
    pub(crate) fn attach(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        os::set_reuseport_program(socket, &self.steps())
    }

    fn steps(self) -> [libc::sock_filter; 3] {
        // The kernel refuses a program that divides by zero, and the surplus would get connections for good.
        invariant!(self.among > 0, "a socket is to be chosen among none");
        let source = match self.by {
            // A random number: as even as the kernel's hash.
            Steering::Hash => libc::SKF_AD_RANDOM,
            Steering::Cpu => libc::SKF_AD_CPU,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_a_program_for_processors_and_for_a_surplus_only() {
        let check = |steering: Steering, wanted, held, expect: Option<(Steering, u16)>| {
            let program = BpfProgram::wanted(steering, wanted, held);
            assert_eq!(program.map(|program| (program.by, program.among)), expect);
        };
        check(Steering::Hash, 3, 3, None);
        check(Steering::Hash, 3, 8, Some((Steering::Hash, 3)));
        check(Steering::Cpu, 3, 3, Some((Steering::Cpu, 3)));
        check(Steering::Cpu, 1, 1, None);
        check(Steering::Cpu, 1, 2, Some((Steering::Cpu, 1)));
    }
}
