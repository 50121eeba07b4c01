//! The table with real sockets and real connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use socket2::SockRef;

use super::change::Committed;
use super::*;
use config::typed::{Bind, Listen, Steering, UnixSocket};
use ipc::ListenAddr;

const LATER: Duration = Duration::from_secs(3600);

fn config(binds: Vec<Bind>) -> Config {
    Config {
        binds,
        ..Config::default()
    }
}

fn tcp(at: impl Into<SocketAddr>) -> Bind {
    Bind::Tcp(vec![at.into()])
}

fn unix(path: &std::path::Path) -> Bind {
    Bind::Unix(UnixSocket {
        path: path.to_owned(),
        mode: 0o777,
        group: None,
    })
}

fn any_port() -> Bind {
    tcp(([127, 0, 0, 1], 0))
}

fn open(binds: Vec<Bind>, len: usize) -> (Config, Sockets) {
    let config = config(binds);
    let sockets = Sockets::open(&config, Vec::new(), len, Instant::now()).unwrap();
    (config, sockets)
}

fn change(sockets: &mut Sockets, config: &Config, len: usize) -> Committed {
    let change = sockets.adjust(config, len).unwrap();
    sockets.commit(change, Instant::now()).unwrap()
}

fn at(sockets: &Sockets, number: u16) -> SocketAddr {
    match &sockets.groups[&number].at {
        ListenAddr::Tcp(at) => *at,
        ListenAddr::Unix(path) => panic!("{} is no TCP address", path.display()),
    }
}

/// Waiting connections by index, of the first address.
fn depths(sockets: &Sockets) -> Vec<u32> {
    let waiting = sockets.waiting();
    let first = waiting.iter().filter(|(key, _)| key.address == 0);
    first.map(|(_, depth)| depth.waiting).collect()
}

/// Closes connections as soon as both sides are done, so that no port stays behind.
fn connect(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(stream)
}

fn surplus_len(sockets: &Sockets) -> usize {
    let group = &sockets.groups[&0];
    group.held.len() - group.wanted_len
}

/// Whether processes accept from other sockets after a look at the surplus.
fn retires(sockets: &mut Sockets, now: Instant) -> bool {
    let before = sockets.listeners();
    sockets.retire(now);
    sockets.listeners() != before
}

#[test]
fn closes_no_socket_in_which_somebody_waits() {
    let (config, mut sockets) = open(vec![any_port()], 8);
    let to = at(&sockets, 0);
    let mut clients: Vec<TcpStream> = (0..200).map(|_| connect(to).unwrap()).collect();
    let full = depths(&sockets);
    assert_eq!(full.iter().sum::<u32>(), 200);
    assert!(full.iter().all(|waiting| *waiting > 0), "{full:?}");
    change(&mut sockets, &config, 3);
    // A process that does not execute: its copy of a socket stays open.
    let (_, stubborn) = sockets.listener(key(0, 7).listener(0)).unwrap();
    let stubborn = stubborn.try_clone_to_owned().unwrap();
    clients.extend((0..100).map(|_| connect(to).unwrap()));
    assert_eq!(
        depths(&sockets)[3..],
        full[3..],
        "new ones go to the first three"
    );
    assert!(
        depths(&sockets)[..3]
            .iter()
            .zip(&full)
            .all(|(now, before)| now > before)
    );
    let old = Instant::now() + LATER;
    assert!(sockets.retire(old).is_some_and(|next| next > old));
    assert_eq!(sockets.listeners().len(), 8);
    // The last but one is empty, but it is not its turn.
    empty(&sockets, 6);
    assert!(!retires(&mut sockets, old));
    for index in [3, 4, 5, 7] {
        empty(&sockets, index);
    }
    assert!(retires(&mut sockets, old));
    assert_eq!(sockets.listeners().len(), 3);
    assert_eq!(sockets.retire(old), Some(old + Duration::from_secs(1)));
    assert_eq!(surplus_len(&sockets), 5);
    sockets.retire(old + Duration::from_secs(1));
    assert_eq!(surplus_len(&sockets), 0);
    assert!(!retires(&mut sockets, old + LATER));
    let dead = rustix::net::accept(&stubborn).unwrap_err();
    assert_eq!(dead, rustix::io::Errno::INVAL);
    let waiting: u32 = depths(&sockets).iter().sum();
    assert_eq!(waiting, 100 + full[..3].iter().sum::<u32>());
}

fn empty(sockets: &Sockets, index: usize) {
    let (_, socket) = sockets.listener(key(0, index).listener(0)).unwrap();
    while rustix::net::accept(socket).is_ok() {}
}

#[test]
fn takes_surplus_sockets_back_when_it_grows_again() {
    let (config, mut sockets) = open(vec![any_port()], 6);
    let old = Instant::now() + LATER;
    change(&mut sockets, &config, 2);
    assert!(retires(&mut sockets, old));
    assert_eq!(sockets.listeners().len(), 2);
    let change_of_mind = sockets.adjust(&config, 4).unwrap();
    assert_eq!(sockets.retire(old + LATER), None, "a change is under way");
    sockets.commit(change_of_mind, old).unwrap();
    assert_eq!(sockets.listeners().len(), 4);
    let to = at(&sockets, 0);
    let _clients: Vec<TcpStream> = (0..100).map(|_| connect(to).unwrap()).collect();
    let depths = depths(&sockets);
    assert!(depths[..4].iter().all(|waiting| *waiting > 0), "{depths:?}");
    assert!(
        depths[4..].iter().all(|waiting| *waiting == 0),
        "{depths:?}"
    );
}

#[test]
fn steers_by_processor_and_back() {
    let (mut config, mut sockets) = open(vec![any_port()], 4);
    config.listen.steering = Steering::Cpu;
    change(&mut sockets, &config, 4);
    let to = at(&sockets, 0);
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(cpu);
    // On loopback a connection comes in on the processor of its client.
    let clients = thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        (0..50)
            .map(|_| connect(to).unwrap())
            .collect::<Vec<TcpStream>>()
    });
    let _clients = clients.join().unwrap();
    let mut expect = [0; 4];
    expect[cpu % 4] = 50;
    assert_eq!(depths(&sockets), expect);
    config.listen.steering = Steering::Hash;
    change(&mut sockets, &config, 4);
    let _more: Vec<TcpStream> = (0..100).map(|_| connect(to).unwrap()).collect();
    let spread = depths(&sockets);
    assert!(spread.iter().all(|waiting| *waiting > 0), "{spread:?}");
}

#[test]
fn keeps_numbers_through_changes_and_names_what_closes() {
    let (mut config, mut sockets) = open(vec![any_port(), any_port()], 2);
    let (first, second) = (at(&sockets, 0), at(&sockets, 1));
    assert_ne!(first, second);
    // The second by the port that it got, and a third.
    config.binds = vec![tcp(second), any_port()];
    config.binds.swap(0, 1);
    let committed = change(&mut sockets, &config, 2);
    let numbers: Vec<u16> = sockets.groups.keys().copied().collect();
    assert_eq!(numbers, [0, 1], "any port is the one that there was");
    assert!(committed.closing.is_empty());
    config.binds = vec![tcp(second)];
    let committed = change(&mut sockets, &config, 2);
    assert_eq!(committed.closing, [0]);
    assert_eq!(sockets.closing_at_end(), [1]);
    config.binds.push(any_port());
    change(&mut sockets, &config, 2);
    assert_eq!(sockets.closing_at_end(), [1, 2], "no number is given twice");
}

#[test]
fn changes_nothing_when_an_address_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.sock");
    let (mut config, mut sockets) = open(vec![any_port()], 2);
    let before = sockets.addresses();
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = foreign.local_addr().unwrap();
    config.binds.extend([unix(&path), tcp(taken)]);
    let fault = sockets.adjust(&config, 4).err().unwrap();
    assert!(
        fault
            .to_string()
            .contains(&format!("cannot listen on `{taken}`")),
        "{fault}"
    );
    assert!(fault.hint().is_some());
    assert_eq!(sockets.addresses(), before);
    assert!(!path.exists());
    assert_eq!(sockets.listeners().len(), 2);
}

#[test]
fn lets_nobody_in_before_a_change_is_made_and_forgets_one_that_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.sock");
    let (mut config, mut sockets) = open(vec![any_port()], 1);
    let to = at(&sockets, 0);
    config.binds.push(unix(&path));
    let first = sockets.adjust(&config, 3).unwrap();
    assert!(UnixStream::connect(&path).is_err());
    let _clients: Vec<TcpStream> = (0..50).map(|_| connect(to).unwrap()).collect();
    assert_eq!(depths(&sockets), [50]);
    sockets.abandon(first);
    assert!(!path.exists());
    change(&mut sockets, &config, 3);
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(sockets.addresses().len(), 2);
    let listeners = sockets.listeners().into_iter();
    let shared: Vec<bool> = listeners.map(|listener| listener.is_shared).collect();
    assert_eq!(shared, [false, false, false, true]);
    sockets.remove_files();
    assert!(!path.exists());
}

#[test]
fn opens_addresses_beside_its_own_with_the_same_port() {
    let (mut config, mut sockets) = open(vec![tcp(([0; 16], 0))], 2);
    let port = at(&sockets, 0).port();
    let v4 = SocketAddr::from(([0, 0, 0, 0], port));
    let v6 = SocketAddr::from(([0; 16], port));
    // v4 clients leave the socket for both, which can only be replaced.
    config.binds = vec![tcp(v6), tcp(v4)];
    let committed = change(&mut sockets, &config, 3);
    assert_eq!(committed.closing, [0]);
    assert_eq!(sockets.closing_at_end(), [1, 2]);
    let _client = connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let waiting = |sockets: &Sockets, number| -> u32 {
        let all = sockets.waiting().into_iter();
        all.filter(|(key, _)| key.address == number)
            .map(|(_, depth)| depth.waiting)
            .sum()
    };
    assert_eq!((waiting(&sockets, 1), waiting(&sockets, 2)), (0, 1));
    // A narrower one beside them.
    config.binds.push(tcp(([127, 0, 0, 1], port)));
    change(&mut sockets, &config, 3);
    let _client = connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    assert_eq!(waiting(&sockets, 3), 1);
}

#[test]
fn opens_an_address_again_that_a_process_has_not_closed_yet() {
    let (mut config, mut sockets) = open(vec![any_port()], 2);
    let first = at(&sockets, 0);
    let (_, copy) = sockets.listener(key(0, 0).listener(0)).unwrap();
    let _copy = copy.try_clone_to_owned().unwrap();
    config.binds = vec![any_port()];
    config.binds[0] = tcp(([127, 0, 0, 2], 0));
    assert_eq!(change(&mut sockets, &config, 2).closing, [0]);
    config.binds.push(tcp(first));
    change(&mut sockets, &config, 2);
    assert_eq!(at(&sockets, 2), first);
}

#[test]
fn applies_what_can_be_changed_to_sockets_that_stay() {
    let (mut config, mut sockets) = open(vec![any_port()], 2);
    config.listen = Listen {
        backlog: 17,
        nodelay: false,
        ..config.listen
    };
    let committed = change(&mut sockets, &config, 2);
    assert!(committed.warnings.is_empty());
    assert!(
        sockets
            .waiting()
            .values()
            .all(|depth| depth.waiting_max == 17)
    );
    let socket = sockets.groups[&0].socket(0).unwrap();
    assert!(!SockRef::from(&socket).tcp_nodelay().unwrap());
    assert_eq!(sockets.addresses()[0].backlog, 17);
}

#[test]
fn serves_the_service_manager_s_sockets_and_gives_them_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let inherited = |name: &str, listener: TcpListener| InheritedSocket {
        name: name.to_owned(),
        at: ListenAddr::Tcp(listener.local_addr().unwrap()),
        socket: listener.into(),
    };
    let all = vec![
        inherited("web", listener),
        inherited("admin", TcpListener::bind("127.0.0.1:0").unwrap()),
    ];
    let named = |name: &str| Bind::Inherited(Some(name.to_owned()));
    let mut config = config(vec![named("web")]);
    let mut sockets = Sockets::open(&config, all, 4, Instant::now()).unwrap();
    assert_eq!(sockets.spare_names(), ["admin"]);
    assert_eq!(sockets.listeners().len(), 1);
    assert!(sockets.listeners()[0].is_shared);
    assert!(sockets.closing_at_end().is_empty());

    config.binds = vec![named("none")];
    let fault = sockets.adjust(&config, 4).err().unwrap();
    assert!(
        fault
            .to_string()
            .contains("cannot listen on `systemd:none`"),
        "{fault}"
    );
    config.binds = vec![named("admin")];
    let committed = change(&mut sockets, &config, 4);
    assert!(committed.closing.is_empty());
    assert_eq!(sockets.spare_names(), ["web"]);
    let _waits = connect(to).unwrap();
    config.binds = vec![Bind::Inherited(None)];
    change(&mut sockets, &config, 4);
    assert_eq!(
        sockets
            .waiting()
            .values()
            .map(|depth| depth.waiting)
            .sum::<u32>(),
        1
    );

    config.binds = vec![named("admin")];
    change(&mut sockets, &config, 4);
    config.binds = vec![tcp(to)];
    let fault = sockets.adjust(&config, 4).err().unwrap();
    assert!(fault.hint().unwrap().contains("systemd:web"), "{fault:?}");
}

#[test]
fn goes_on_in_the_next_program_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let (config, mut sockets) = open(vec![any_port(), unix(&path)], 4);
    change(&mut sockets, &config, 2);
    let to = at(&sockets, 0);
    let now = Instant::now();
    let before = (sockets.addresses(), sockets.listeners());
    let mut saved = serde_json::to_value(&sockets).unwrap();
    assert_eq!(sockets.descriptors().count(), 5);
    // As the start of another program leaves it.
    std::mem::forget(sockets);
    let mut sockets = Sockets::adopt(saved.clone()).unwrap();
    let socket = sockets.groups[&0].socket(0).unwrap();
    assert_eq!(
        rustix::io::fcntl_getfd(socket).unwrap(),
        rustix::io::FdFlags::CLOEXEC
    );
    assert_eq!((sockets.addresses(), sockets.listeners()), before);
    let _clients: Vec<TcpStream> = (0..50).map(|_| connect(to).unwrap()).collect();
    assert_eq!(depths(&sockets)[2..], [0, 0]);
    let margin = Duration::from_secs(1);
    assert!(!retires(&mut sockets, now + SURPLUS_AGE - margin));
    assert!(retires(&mut sockets, now + SURPLUS_AGE + margin));
    assert!(change(&mut sockets, &config, 4).closing.is_empty());

    // Read again, the descriptors would be owned twice.
    std::mem::forget(sockets);
    saved["groups"]["0"]["wanted_len"] = 9.into();
    assert!(Sockets::adopt(saved).is_err());
}
