//! An entry in the journal's own protocol, and the sealed memory that a large one travels in.
//!
//! <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>: `NAME=value` lines; a value with a newline in it has its
//! length before it, 64 bits, little endian.

use std::fs::File;
use std::io::{self, Write};

use rustix::fs::{MemfdFlags, SealFlags};

use super::Voice;
use super::syslog::{severity, write_cut};
use crate::config::meant::Level;

/// Where the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Writes the entry of `text` to `out`; of a text that is longer than `text_bytes_max` what fits.
pub(super) fn write(
    level: Level,
    voice: Voice,
    text: &[u8],
    text_bytes_max: usize,
    out: &mut Vec<u8>,
) {
    let mut cut = Vec::new();
    let is_long = text.len() > text_bytes_max;
    if is_long {
        write_cut(text, text_bytes_max, &mut cut);
    }
    write_field("MESSAGE", if is_long { &cut } else { text }, out);
    write_field("PRIORITY", &[b'0' + severity(level)], out);
    write_field("SYSLOG_IDENTIFIER", b"milepost", out);
    write_field("MILEPOST_LOG", voice.name().as_bytes(), out);
}

fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The entry in memory that nobody can change any more: the journal maps it.
pub(super) fn sealed(entry: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(rustix::fs::memfd_create("milepost-log", flags)?);
    memory.write_all(entry)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(level: Level, voice: Voice, text: &[u8], expect: &[u8]) {
        let mut out = Vec::new();
        write(level, voice, text, 30, &mut out);
        assert_eq!(out, expect);
    }

    #[test]
    fn writes_one_line_as_text() {
        check(
            Level::Info,
            Voice::Access,
            b"GET / = 200",
            b"MESSAGE=GET / = 200\nPRIORITY=6\nSYSLOG_IDENTIFIER=milepost\nMILEPOST_LOG=access\n",
        );
    }

    #[test]
    fn cuts_a_text_that_is_too_long() {
        check(
            Level::Warning,
            Voice::Errors,
            &[b'x'; 100],
            b"MESSAGE=xxxxxxxxxxxxx [87 more bytes]\nPRIORITY=4\nSYSLOG_IDENTIFIER=milepost\n\
              MILEPOST_LOG=error\n",
        );
    }

    #[test]
    fn writes_several_lines_with_their_length() {
        check(
            Level::Error,
            Voice::Errors,
            b"one\nPRIORITY=0",
            b"MESSAGE\n\x0e\0\0\0\0\0\0\0one\nPRIORITY=0\nPRIORITY=3\nSYSLOG_IDENTIFIER=milepost\n\
              MILEPOST_LOG=error\n",
        );
    }
}
