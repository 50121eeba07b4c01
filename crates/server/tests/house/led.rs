//! A house under a supervisor: it counts where the supervisor reads.

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;

use server::channel::{Channel, EarAt, EarKey, EarOrder, Identity, Notice, Order, Received, Role};
use server::stats::{CounterFile, Shape};
use server::{House, Lead};

use super::support::*;

#[test]
fn a_supervisor_reads_what_a_house_counts() {
    let (mut config, dir) = config();
    config.listen.drivers = 2;
    let threads = u64::try_from(config.pools[0].threads_max).unwrap();
    let shape = Shape {
        drivers: 2,
        routes: config.route_names(),
        pools: vec!["default".to_owned()],
    };
    let mut counters = CounterFile::new().unwrap();
    let segment = counters.allot(&shape).unwrap();
    let (ours, theirs) = Channel::pair().unwrap();
    let lead = Lead {
        channel: Arc::new(theirs),
        identity: Identity {
            role: Role::Serving,
            generation: 1,
            slot: 0,
            segment: Some(segment),
        },
        counters: Some(counters.file().try_clone_to_owned().unwrap()),
        ready: Notice::Ready {
            python: None,
            modules: Vec::new(),
        },
    };
    let house = House::open_under(config, Some(Arc::new(echo)), lead).unwrap();
    let (stopper, orders) = (house.stopper(), house.orders());
    let thread = std::thread::spawn(move || house.run().unwrap());
    let ready: Received<Notice> = ours.receive().unwrap().unwrap();
    assert!(matches!(ready.message, Notice::Ready { .. }));

    // Nobody has connected, so nothing but the beat makes a driver publish anything.
    let view = counters.view(&segment).unwrap();
    let mut number = 0;
    wait_until("all pool threads asleep, and no beat unanswered", || {
        number += 1;
        ours.send(&Order::Beat(number), &[]).unwrap();
        wait_until("an answer to a beat", || view.beats() == [number; 2]);
        view.counted().pools[0].figures.idle == threads
    });

    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let ear = EarOrder {
        key: EarKey {
            address: 0,
            index: 0,
            driver: 0,
        },
        at: EarAt::Tcp(address),
        is_shared: false,
        takes_turns: false,
        is_inherited: false,
    };
    ours.send(&Order::Hear(vec![ear]), &[socket.as_fd()])
        .unwrap();
    let running = Running {
        address,
        stopper,
        orders,
        thread,
        dir,
    };
    assert!(text(&running.get("/a")).ends_with("[/a empty 0 0]"));
    let (ended, lines) = running.stop();
    assert_eq!((ended.exchanges, lines.len()), (1, 1));
    let counted = counters.read(&segment).unwrap();
    let received: u64 = counted.drivers.iter().map(|driver| driver.received).sum();
    assert_eq!((counted.exchanges(), received), (1, 1));
    assert_eq!(counted.pools[0].figures.completed, 1);
}
