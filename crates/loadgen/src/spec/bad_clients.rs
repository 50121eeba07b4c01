//! Misbehaving clients as they are written: `100:never-reads`, `50:reads-at=1K:receive-buffer=4K`.
//!
//! Takes texts, gives [`BadClients`]. Pure.

use super::reader::SpecReader;
use super::values::{self, ExpectedText};
use crate::plan::{BadClients, Misbehaviour};

/// Greatest pace of reading, and greatest receive buffer.
const BYTES_MAX: u64 = 1 << 30;

const EXPECTED: &str = "N:WHAT, where WHAT is never-reads, reads-at=SIZE, trickles=TIME, idle, half-closes or \
                        resets=TIME, and may be followed by :receive-buffer=SIZE";

/// All groups.
pub(super) fn bad_clients(reading: &mut SpecReader<'_>) -> Vec<BadClients> {
    let texts = reading.texts("bad_clients");
    texts
        .iter()
        .filter_map(|text| reading.element("bad_clients", text, group))
        .collect()
}

fn group(text: &str) -> Result<BadClients, ExpectedText> {
    let expected = || EXPECTED.to_owned();
    let mut parts = text.split(':');
    let len = parts.next().unwrap_or_default();
    let what = parts.next().ok_or_else(expected)?;
    let mut receive_buffer_bytes = None;
    for option in parts {
        let size = option
            .strip_prefix("receive-buffer=")
            .ok_or_else(expected)?;
        receive_buffer_bytes = Some(some_bytes(size)? as usize);
    }
    let (name, value) = match what.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (what, None),
    };
    let misbehaviour = match (name, value) {
        ("never-reads", None) => Misbehaviour::NeverReads,
        ("reads-at", Some(pace)) => Misbehaviour::ReadsAt {
            bytes_per_s: some_bytes(pace)?,
        },
        ("trickles", Some(pause)) => Misbehaviour::Trickles {
            pause: values::some_time(pause)?,
        },
        ("idle", None) => Misbehaviour::Idle,
        ("half-closes", None) => Misbehaviour::HalfCloses,
        ("resets", Some(after)) => Misbehaviour::Resets {
            after: values::time(after)?,
        },
        _ => return Err(expected()),
    };
    Ok(BadClients {
        len: values::count(len, 1, 1_000_000)? as usize,
        misbehaviour,
        receive_buffer_bytes,
    })
}

fn some_bytes(text: &str) -> Result<u64, ExpectedText> {
    let bytes = values::bytes(text, BYTES_MAX)?;
    let some = Some(bytes).filter(|bytes| *bytes > 0);
    some.ok_or_else(|| "bytes, more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_cases;

    #[test]
    fn understands_every_misbehaviour_and_says_what_a_group_has_to_be() {
        let cases = "
100:never-reads
    100 NeverReads
1:reads-at=1K
    1 ReadsAt { bytes_per_s: 1024 }
50:reads-at=10:receive-buffer=4K
    50 ReadsAt { bytes_per_s: 10 } by 4096
2:trickles=1s
    2 Trickles { pause: Nanos(1000000000) }
3:idle
    3 Idle
4:half-closes
    4 HalfCloses
5:resets=100ms
    5 Resets { after: Nanos(100000000) }
5:resets=0
    5 Resets { after: Nanos(0) }
5
    N:WHAT
5:
    N:WHAT
5:sleeps
    N:WHAT
5:idle=1
    N:WHAT
5:trickles
    N:WHAT
5:idle:x=1
    N:WHAT
idle
    N:WHAT
0:idle
    a count from 1 to 1000000
x:idle
    a count from 1 to 1000000
1:trickles=0
    a time of more than 0
1:reads-at=0
    bytes, more than 0
1:reads-at=fast
    bytes as `1024` or `64K`, at most 1073741824
1:idle:receive-buffer=0
    bytes, more than 0
";
        check_cases(cases, |text| match group(text) {
            Ok(BadClients {
                len,
                misbehaviour,
                receive_buffer_bytes: None,
            }) => {
                format!("{len} {misbehaviour:?}")
            }
            Ok(BadClients {
                len,
                misbehaviour,
                receive_buffer_bytes: Some(bytes),
            }) => {
                format!("{len} {misbehaviour:?} by {bytes}")
            }
            Err(expected) => expected.replace(EXPECTED, "N:WHAT"),
        });
    }
}
