//! Pools: several of them, threads that come and go, and who is refused when there are too few.
//!
//! Handlers wait at a gate, so that nothing depends on how fast anything is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use measure::Nanos;
use server::config::meant::{Config, Pool, PoolRule, Rate};
use server::exchange::Exchange;
use server::handler::Handler;
use server::pool::Worker;
use server::response::Declared;
use stage::Class;

use super::support::*;

/// Shrinking is meant to take its time: hysteresis of ten seconds, then some for each thread.
const SLOWLY: Duration = Duration::from_secs(120);

/// Handlers wait here until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    /// How many have come to it.
    entered: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        let is_open = self.is_open.lock().unwrap();
        drop(
            self.opened
                .wait_while(is_open, |is_open| !*is_open)
                .unwrap(),
        );
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn wait_for(&self, entered: usize) {
        wait_until("all that may run do", || {
            self.entered.load(Ordering::Relaxed) >= entered
        });
    }
}

/// A house whose pool is changed by `change`; what asks for `/gate` waits at the gate, and everything is
/// answered with its path.
fn gated(change: impl FnOnce(&mut Config)) -> (Running, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let with_status = |config: &mut Config| {
        config.status_path = Some("/-/status".to_owned());
        change(config);
    };
    let running = serve_with(with_status, move |exchange, writer| {
        if exchange.path().starts_with(b"/gate") {
            at_gate.pass();
        }
        let path = exchange.path().to_vec();
        whole(writer, &path)
    });
    (running, gate)
}

fn pool(threads_min: usize, threads_max: usize) -> Pool {
    Pool {
        threads_min,
        threads_max,
        ..Pool::default()
    }
}

pub(super) fn begin(running: &Running, path: &str) -> TcpStream {
    let mut stream = running.connect();
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .unwrap();
    stream
}

/// A figure of the first pool.
pub(super) fn figure(running: &Running, name: &str) -> u64 {
    let page = text(&running.get("/-/status"));
    let (_, pool) = page.split_once("\"pool\":").unwrap();
    let (_, value) = pool.split_once(&format!("\"{name}\":")).unwrap();
    let end = value.find([',', '}']).unwrap();
    value[..end].parse().unwrap()
}

pub(super) fn wait_for_figure(running: &Running, name: &str, value: u64) {
    wait_until(name, || figure(running, name) == value);
}

fn is_served(stream: &mut TcpStream, path: &str) -> bool {
    let reply = text(&read_all(stream));
    reply.starts_with("HTTP/1.1 200 ") && reply.ends_with(path)
}

pub(super) fn with<'a>(lines: &'a [String], what: &str) -> Vec<&'a String> {
    lines.iter().filter(|line| line.contains(what)).collect()
}

fn worker(line: &str) -> String {
    let (_, rest) = line.split_once(" worker=").unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

fn worker_name(number: u32) -> String {
    format!("{}.{number}", std::process::id())
}

/// Clients that ask one after the other until they are told to stop; each gives what it got.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<thread::JoinHandle<(usize, usize)>>,
}

impl Load {
    fn start(running: &Running, clients: usize) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (is_over, address) = (Arc::clone(&is_over), running.address);
            thread::spawn(move || {
                let (mut asked, mut served) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let request = b"GET /load HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                    stream.write_all(request).unwrap();
                    asked += 1;
                    served += usize::from(is_served(&mut stream, "/load"));
                }
                (asked, served)
            })
        };
        Load {
            clients: (0..clients).map(client).collect(),
            is_over,
        }
    }

    /// How many were asked and how many of these were served.
    fn stop(self) -> (usize, usize) {
        self.is_over.store(true, Ordering::Relaxed);
        let all = self
            .clients
            .into_iter()
            .map(|client| client.join().unwrap());
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

#[test]
fn a_pool_grows_under_load_and_shrinks_to_its_least_size_when_idle() {
    let (least, most) = (2, 6);
    let running = serve_with(
        |config| {
            config.status_path = Some("/-/status".to_owned());
            config.pools[0] = pool(least, most);
        },
        |exchange, writer| {
            thread::sleep(Duration::from_millis(10));
            let path = exchange.path().to_vec();
            whole(writer, &path)
        },
    );
    assert_eq!(figure(&running, "threads"), 2, "it starts with the fewest");
    let load = Load::start(&running, 12);
    let check = || {
        let threads = figure(&running, "threads");
        assert!((2..=6).contains(&threads), "{threads} threads");
        threads
    };
    wait_until("it grows", || check() > 2);
    let (asked, served) = load.stop();
    assert_eq!(asked, served, "nobody is refused who can be served");
    let deadline = Instant::now() + SLOWLY;
    while check() > 2 {
        assert!(Instant::now() < deadline, "it does not shrink");
        thread::sleep(Duration::from_millis(20));
    }
    wait_until("all have gone", || {
        figure(&running, "threads_started") - figure(&running, "threads_ended") == 2
    });
    assert!(running.get("/after").ends_with(b"/after"));
    let (ended, _) = running.stop();
    assert_eq!((ended.stuck_threads, ended.exit_code), (0, 0));
}

#[test]
fn a_full_queue_refuses_and_questions_about_health_pass_it() {
    let (running, gate) = gated(|config| {
        config.pools[0] = Pool {
            queue_len_max: 4,
            reserve_threads: 1,
            reserve_len: 1,
            ..pool(2, 2)
        };
        config.pool_rules = vec![PoolRule {
            path: Some("/health".to_owned()),
            class: Class::Health,
            ..PoolRule::default()
        }];
    });
    // One runs, three wait: the other thread and the last place are kept.
    let mut first = begin(&running, "/gate");
    gate.wait_for(1);
    let mut waiting: Vec<_> = (0..3).map(|_| begin(&running, "/gate")).collect();
    wait_for_figure(&running, "waiting", 3);
    let refused = text(&running.get("/gate"));
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nRetry-After: "), "{refused}");
    for _ in 0..3 {
        assert!(text(&running.get("/health")).ends_with("/health"));
    }
    assert_eq!(gate.entered.load(Ordering::Relaxed), 1);
    gate.open();
    assert!(is_served(&mut first, "/gate"));
    assert!(waiting.iter_mut().all(|stream| is_served(stream, "/gate")));
    assert_eq!(
        (figure(&running, "refused"), figure(&running, "shed")),
        (1, 0)
    );
    let (_, lines) = running.stop();
    assert_eq!(
        with(&lines, "cause=\"queue is full\"").len(),
        1,
        "{lines:?}"
    );
}

/// Each has a thread, and none has to wait for one.
#[test]
fn a_burst_for_idle_threads_passes_the_shortest_queue() {
    let (running, _) = gated(|config| {
        config.pools[0] = Pool {
            queue_len_max: 1,
            ..pool(8, 8)
        };
    });
    let mut clients: Vec<_> = (0..8).map(|_| running.connect()).collect();
    for _ in 0..50 {
        wait_for_figure(&running, "idle", 8);
        for client in &mut clients {
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
        }
        for client in &mut clients {
            let mut reply = [0; 1024];
            let bytes = client.read(&mut reply).unwrap();
            let reply = text(&reply[..bytes]);
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        }
    }
    assert_eq!(figure(&running, "refused"), 0);
    running.stop();
}

/// Its client has been answered and is gone by the time that the handler gives a reply of limited bandwidth, which
/// a driver would send.
#[test]
fn a_reply_that_comes_too_late_takes_no_memory() {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let change = |config: &mut Config| {
        config.status_path = Some("/-/status".to_owned());
        config.pools[0] = Pool {
            request_timeout: Some(Nanos::from_ms(50)),
            ..pool(1, 1)
        };
    };
    let running = serve_with(change, move |_, writer| {
        at_gate.pass();
        let declared = Declared {
            rate: Some(Rate::BytesPerSec(1)),
            ..Declared::default()
        };
        writer.begin_with(200, "", declared);
        writer.give_whole([b'x'; 1_000]);
        Ok(())
    });
    let mut late = begin(&running, "/");
    let reply = text(&read_all(&mut late));
    assert!(reply.starts_with("HTTP/1.1 504 "), "{reply}");
    drop(late);
    let says = |what: &str| text(&running.get("/-/status")).contains(what);
    wait_until("it is gone", || says("\"connections\":1,"));
    gate.open();
    wait_for_figure(&running, "completed", 1);
    assert!(says("\"replies_memory_bytes\":0}"));
    let (_, lines) = running.stop();
    // The driver answered, but a worker was held.
    let answered = with(&lines, "\"GET / HTTP/1.1\" 504 ");
    assert_eq!(
        answered.iter().map(|line| worker(line)).collect::<Vec<_>>(),
        [worker_name(1)]
    );
}

/// The handler goes on after its reply is out, as an application does in `close()`.
#[test]
fn a_reply_that_is_out_by_the_deadline_is_not_cut() {
    for bytes in [10, 8_000_000] {
        let gate = Arc::new(Gate::default());
        let at_gate = Arc::clone(&gate);
        let change = |config: &mut Config| {
            config.pools[0] = Pool {
                request_timeout: Some(Nanos::from_ms(500)),
                ..pool(1, 1)
            };
        };
        let running = serve_with(change, move |_, writer| {
            whole(writer, &vec![b'x'; bytes])?;
            at_gate.pass();
            Ok(())
        });
        let mut client = running.connect();
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let reply = text(&read_all(&mut client));
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        assert!(reply.ends_with(&format!("\r\n\r\n{}", "x".repeat(bytes))));
        gate.open();
        let (ended, lines) = running.stop();
        assert_eq!((ended.exchanges, lines.len()), (1, 1), "{lines:?}");
        assert!(lines[0].contains(&format!("\" 200 {bytes} ")), "{lines:?}");
        assert!(with(&lines, " end=").is_empty(), "{lines:?}");
    }
}

#[test]
fn who_has_waited_too_long_is_told_so_once_and_logged_once() {
    let (running, gate) = gated(|config| {
        config.pools[0] = Pool {
            // Long enough for the first and the last, which have the thread at once.
            queue_timeout: Nanos::from_ms(2000),
            ..pool(1, 1)
        };
    });
    let mut first = begin(&running, "/gate/first");
    gate.wait_for(1);
    // A keep-alive connection goes on afterwards.
    let mut kept = running.connect();
    kept.write_all(b"GET /gate/kept HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut late: Vec<_> = (0..5).map(|_| begin(&running, "/gate/late")).collect();
    for stream in &mut late {
        let reply = text(&read_all(stream));
        assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
        assert!(reply.contains("\r\nRetry-After: "), "{reply}");
        assert_eq!(reply.matches("HTTP/1.1").count(), 1, "{reply}");
    }
    wait_for_figure(&running, "expired", 6);
    gate.open();
    assert!(is_served(&mut first, "/gate/first"));
    kept.write_all(b"GET /again HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let replies = text(&read_all(&mut kept));
    assert!(replies.starts_with("HTTP/1.1 503 "), "{replies}");
    assert!(replies.ends_with("/again"), "{replies}");
    assert_eq!(gate.entered.load(Ordering::Relaxed), 1, "none of them ran");
    assert_eq!(figure(&running, "completed"), 2);
    let (ended, lines) = running.stop();
    let lost = with(&lines, "end=refused");
    assert_eq!(lost.len(), 6, "{lines:?}");
    for line in lost {
        assert!(line.contains(" 503 "), "{line}");
        assert!(line.contains("pool=default"), "{line}");
        assert!(
            line.contains("cause=\"waited too long for a thread\""),
            "{line}"
        );
    }
    assert_eq!((ended.cut, ended.stuck_threads), (0, 0));
}

#[test]
fn an_overloaded_pool_refuses_before_its_queue_is_full() {
    let (running, gate) = gated(|config| {
        config.pools[0] = Pool {
            overload_timeout: Nanos::from_secs(30),
            ..pool(1, 1)
        };
    });
    let mut streams = vec![begin(&running, "/gate")];
    gate.wait_for(1);
    // Each that is admitted waits, until it is seen that nothing comes of it.
    wait_until("it refuses", || {
        if streams.len() < 500 {
            streams.push(begin(&running, "/gate"));
        }
        thread::sleep(Duration::from_millis(10));
        figure(&running, "shed") > 0
    });
    gate.open();
    let replies = streams.iter_mut().map(|stream| text(&read_all(stream)));
    let replies: Vec<_> = replies.collect();
    let (served, refused): (Vec<_>, Vec<_>) = replies
        .iter()
        .partition(|reply| reply.starts_with("HTTP/1.1 200 "));
    assert!(served.len() > 1, "{replies:?}");
    let is_refusal =
        |reply: &&String| reply.starts_with("HTTP/1.1 503 ") && reply.contains("\r\nRetry-After: ");
    assert!(refused.iter().all(is_refusal), "{replies:?}");
    assert_eq!(figure(&running, "shed"), refused.len() as u64);
    let (_, lines) = running.stop();
    let causes = with(&lines, "cause=\"pool is overloaded\"");
    assert_eq!(causes.len(), refused.len(), "{lines:?}");
}

#[test]
fn each_record_names_the_worker_that_ran_it() {
    let (running, gate) = gated(|config| {
        config.status_path = Some("/-/status".to_owned());
        config.pools = vec![
            pool(1, 1),
            Pool {
                name: "slow".to_owned(),
                ..pool(2, 2)
            },
        ];
        config.pool_rules = vec![PoolRule {
            path: Some("/gate".to_owned()),
            pool: 1,
            ..PoolRule::default()
        }];
    });
    let mut slow: Vec<_> = (0..2).map(|_| begin(&running, "/gate")).collect();
    gate.wait_for(2);
    for _ in 0..3 {
        assert!(running.get("/quick").ends_with(b"/quick"));
    }
    assert!(!running.get("/-/status").is_empty());
    gate.open();
    assert!(slow.iter_mut().all(|stream| is_served(stream, "/gate")));
    let (_, lines) = running.stop();
    let of = |what: &str| {
        with(&lines, what)
            .into_iter()
            .map(|line| worker(line))
            .collect::<Vec<_>>()
    };
    let mut held = [of("/gate"), of("/quick")].concat();
    held.sort();
    held.dedup();
    // Numbers are of the process, whatever the pool; two ran at the gate at once, and one ran all the others.
    assert_eq!(held, [1, 2, 3].map(worker_name), "{lines:?}");
    assert_eq!(of("pool=slow").len(), 2);
    assert_eq!(of("/-/status"), ["-"]);
}

#[test]
fn pools_do_not_wait_for_each_other() {
    let (running, gate) = gated(|config| {
        config.pools = vec![
            pool(1, 1),
            Pool {
                name: "slow".to_owned(),
                ..pool(2, 2)
            },
        ];
        config.pool_rules = vec![PoolRule {
            path: Some("/gate".to_owned()),
            pool: 1,
            ..PoolRule::default()
        }];
    });
    let mut slow: Vec<_> = (0..4).map(|_| begin(&running, "/gate")).collect();
    gate.wait_for(2);
    for _ in 0..10 {
        assert!(running.get("/quick").ends_with(b"/quick"));
    }
    let page = text(&running.get("/-/status"));
    let (_, pools) = page.split_once("\"pools\":[").unwrap();
    let slow_pool = pools.split_once("{\"name\":\"slow\"").unwrap().1;
    assert!(slow_pool.contains("\"running\":2"), "{page}");
    assert_eq!(figure(&running, "completed"), 10);
    gate.open();
    assert!(slow.iter_mut().all(|stream| is_served(stream, "/gate")));
    let (ended, lines) = running.stop();
    assert_eq!((ended.cut, ended.stuck_threads, ended.exit_code), (0, 0, 0));
    assert_eq!(with(&lines, "pool=slow").len(), 4, "{lines:?}");
    assert_eq!(with(&lines, "pool=default").len(), 10, "{lines:?}");
}

#[test]
fn exchanges_know_what_they_met_at_the_queue() {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let facts = |exchange: &Exchange| {
        let met = exchange.record.queued;
        let from = if met.from_queue { "queue" } else { "idle" };
        format!("[{} {} {} {from}]", met.waiting, met.threads, met.idle)
    };
    let running = serve_with(
        |config| {
            config.status_path = Some("/-/status".to_owned());
            config.pools[0] = pool(1, 1);
        },
        move |exchange, writer| {
            at_gate.pass();
            whole(writer, facts(exchange).as_bytes())
        },
    );
    wait_for_figure(&running, "idle", 1);
    let mut first = begin(&running, "/");
    gate.wait_for(1);
    let mut second = begin(&running, "/");
    wait_for_figure(&running, "waiting", 1);
    let mut third = begin(&running, "/");
    wait_for_figure(&running, "waiting", 2);
    // A driver keeps an exchange for 100 us at most; so many more turns take longer.
    for _ in 0..20 {
        assert_eq!(figure(&running, "waiting"), 2);
    }
    gate.open();
    let replies = [&mut first, &mut second, &mut third].map(|stream| text(&read_all(stream)));
    for (reply, expect) in replies
        .iter()
        .zip(["[0 1 1 idle]", "[0 1 0 queue]", "[1 1 0 queue]"])
    {
        assert!(reply.ends_with(expect), "{reply}");
    }
    running.stop();
}

#[test]
fn a_hundred_new_sizes_under_load_lose_nothing() {
    let (running, _) = gated(|config| config.pools[0] = pool(1, 8));
    let load = Load::start(&running, 6);
    for round in 0..100 {
        let least = round % 4 + 1;
        assert!(running.orders.reshape("default", least, least + round % 3));
        let seen = figure(&running, "completed");
        wait_until("it goes on", || figure(&running, "completed") > seen + 5);
    }
    assert!(!running.orders.reshape("no such pool", 1, 1));
    running.orders.reshape("default", 3, 3);
    wait_for_figure(&running, "threads", 3);
    let (asked, served) = load.stop();
    assert_eq!(asked, served);
    wait_until("those that were to go have gone", || {
        figure(&running, "threads_started") - figure(&running, "threads_ended") == 3
    });
    let (ended, lines) = running.stop();
    assert_eq!(with(&lines, "/load").len(), asked);
    assert_eq!((ended.cut, ended.stuck_threads, ended.exit_code), (0, 0, 0));
}

#[test]
fn a_pool_that_has_grown_drains_and_says_which_threads_are_stuck() {
    for is_opened in [true, false] {
        let (running, gate) = gated(|config| {
            config.pools[0] = pool(1, 4);
            if !is_opened {
                config.timeouts.drain = Nanos::from_ms(300);
            }
        });
        // Then three threads are needed, and one of the three has nothing to do.
        running.orders.reshape("default", 3, 4);
        wait_until("three threads", || figure(&running, "threads") >= 3);
        let mut streams: Vec<_> = (0..2).map(|_| begin(&running, "/gate")).collect();
        gate.wait_for(2);
        if is_opened {
            running.stopper.stop();
            gate.open();
            assert!(streams.iter_mut().all(|stream| is_served(stream, "/gate")));
        }
        let (ended, lines) = running.stop();
        let gates = with(&lines, "/gate").len();
        assert_eq!(gates, 2, "{lines:?}");
        match is_opened {
            // The second stop may come before the end, and hurries it.
            true => assert_eq!((ended.cut, ended.stuck_threads), (0, 0), "{lines:?}"),
            false => assert_eq!(
                (ended.cut, ended.stuck_threads, ended.exit_code),
                (2, 2, 0),
                "{lines:?}"
            ),
        }
        gate.open();
    }
}

/// Ends its first threads in ways in which no thread may end.
struct Unreliable {
    lives: AtomicUsize,
}

impl Handler for Unreliable {
    fn work(&self, worker: &mut Worker) {
        match self.lives.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("a handler that is broken"),
            1 => {}
            _ => {
                while let Some(assignment) = worker.next_now().or_else(|| worker.next_wait()) {
                    worker.attend(assignment, |_, writer| whole(writer, b"there"));
                }
            }
        }
    }
}

#[test]
fn threads_that_are_lost_are_replaced() {
    let (mut config, dir) = config();
    config.pools[0] = pool(2, 2);
    config.status_path = Some("/-/status".to_owned());
    let lives = AtomicUsize::new(0);
    let running = run(config, dir, Some(Arc::new(Unreliable { lives })));
    assert!(text(&running.get("/")).ends_with("there"));
    wait_for_figure(&running, "idle", 2);
    assert_eq!(figure(&running, "threads_started"), 4);
    assert_eq!(figure(&running, "threads_ended"), 2);
    let (ended, _) = running.stop();
    assert_eq!((ended.stuck_threads, ended.exit_code), (0, 0));
}
