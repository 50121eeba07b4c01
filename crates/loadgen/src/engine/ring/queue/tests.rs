//! What the ring leaves behind, and what is said where there is none.

use std::net::TcpListener;
use std::sync::Arc;

use measure::Nanos;
use rustix::io::Errno;

use super::{Queue, Step, Tag};

#[test]
fn leaves_nothing_behind_when_it_is_dropped_in_the_middle() {
    // Its backlog takes the connection, and nobody reads.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let bytes: Arc<[u8]> = vec![b'x'; 8_000_000].into();
    let mut queue = Queue::new(1, address.into(), vec![bytes.clone()]).expect("a ring");
    let tag = Tag {
        place: 0,
        generation: 1,
    };
    queue.push(tag, &[Step::Socket, Step::Connect]);
    let mut come = Vec::new();
    while come.is_empty() {
        queue.wait(Nanos::from_secs(5), &mut come).expect("a ring");
    }
    assert_eq!(come[0].result, Ok(0));
    // More than the socket takes, and a reply that does not come.
    queue.push(tag, &[Step::SendTold(0)]);
    queue.push(tag, &[Step::ReceiveAll]);
    come.clear();
    queue.wait(Nanos::from_ms(1), &mut come).expect("a ring");
    drop(queue);
    assert_eq!(Arc::strong_count(&bytes), 1, "the request was freed");
}

#[test]
fn says_what_to_use_where_there_is_no_ring() {
    for (error, expect) in [
        (
            Errno::NOSYS,
            "io_uring is not to be had: Function not implemented (os error 38)",
        ),
        (
            Errno::PERM,
            "io_uring is not to be had: Operation not permitted (os error 1)",
        ),
        (
            Errno::INVAL,
            "io_uring is not to be had: the kernel is older than Linux 6.1",
        ),
    ] {
        let fault = crate::engine::ring::not_to_be_had(&error.into());
        assert_eq!(fault.text, expect);
        assert_eq!(fault.hint.as_deref(), Some("use `--engine epoll`"));
    }
}
