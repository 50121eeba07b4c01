//! The loop over TLS, against rustls' server on threads.

use rustls::{ServerConnection, StreamOwned, version};

use super::*;
use crate::engine::tls::tests::{Identity, anybody};
use crate::plan::Scheme;

#[test]
fn carries_bodies_both_ways_to_their_ends_when_the_socket_is_full() {
    // More than the sockets hold, and its last bytes wait as ciphertext alone.
    let body: Vec<u8> = (0..9_000_000).map(|at| (at * 31 / 7) as u8).collect();
    let reply = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n",
        &body[..],
    ]
    .concat();
    for version in [&version::TLS13, &version::TLS12] {
        let config = Identity::plain().server(&[version]);
        let reply = reply.clone();
        let (address, seen) = server_with(
            move |stream| {
                let tls = ServerConnection::new(config.clone()).expect("a configuration");
                StreamOwned::new(tls, stream)
            },
            move |_, _| Does::Reply(reply.clone()),
        );
        let mut plan = plan(address);
        plan.target.scheme = Scheme::Https(anybody());
        plan.requests = vec![post(&body)];
        plan.expect.body = ExpectBody::Sha256(Sha256::digest(&body).into());
        plan.connections.len = 1;
        plan.connections.timeout = Nanos::from_secs(60);
        plan.length.requests = Some(2);
        plan.length.duration = Some(Nanos::from_secs(120));
        check_answered(&plan, 2);
        assert_eq!(seen.requests(), 2);
    }
}
