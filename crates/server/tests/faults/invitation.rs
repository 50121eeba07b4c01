//! An invitation to send a body (RFC 9110 section 15.2.1) in calls that take some of it.

use server::transport::faults::{Plan, Temper};

use super::tested::Tested;
use super::visit::Visit;

const INVITATION: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// It may not be sent at all, but never in part: what is missing would be taken from the reply.
#[test]
fn an_invitation_arrives_whole_or_not_at_all() {
    let tested = Tested::open(1);
    let before = tested.holding();
    for bytes in 1..INVITATION.len() {
        let mut visit = Visit::begin(&tested.running, Plan::new(Temper::First(bytes), 0), 2);
        visit.ask(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        );
        let (first, _) = visit.read(1);
        visit.ask(b"HELLO");
        visit.half_close();
        let (rest, _) = visit.read_to_end();
        let received = [first, rest].concat();
        let reply = received.strip_prefix(INVITATION).unwrap_or(&received);
        assert!(
            reply.starts_with(b"HTTP/1.1 200 "),
            "{bytes}: {}",
            String::from_utf8_lossy(&received)
        );
    }
    tested.assert_holds(&before);
    tested.stop();
}
