//! An upstream whose requests take known times: `GET /20` takes 20 ms of one of its N threads, and nothing of a
//! processor. Further requests wait in one queue, first come, first served.
//!
//! Takes `upstream PORT THREADS [slow=TIMES] [reports]`; listens on 127.0.0.1 until it is killed. `slow=10` makes each
//! request take ten times as long. With `reports`, each response says in `endpoint-load-metrics` how loaded the server is,
//! and how long the request waited and ran. Times may have fractions (`/2.5`), and `GET /20/4000` gets 4,000 bytes.
//! `GET /counts` gives what it has done so far, at once: `REQUESTS CONNECTIONS INSIDE`, the last of which is the number of
//! requests that it has now and whose clients are still there. Requests have no bodies.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::mem::size_of;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::raw::{c_int, c_void};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

static SEND_BUFFER_BYTES: c_int = 64 * 1024;
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Of responses whose path says nothing else.
const BODY_BYTES: usize = 4;

/// A request that waits for a thread.
struct Job {
    takes: Duration,
    body_bytes: usize,
    client: Arc<TcpStream>,
    arrived: Instant,
    /// Whether it no longer counts as inside: it was answered, or its client is gone.
    is_over: Arc<AtomicBool>,
}

/// What a path asks for.
enum Asked {
    Counts,
    Work { takes: Duration, body_bytes: usize },
}

struct Server {
    threads: u64,
    slow_times: u32,
    reports: bool,
    queue: Mutex<VecDeque<Job>>,
    arrived: Condvar,
    inside: AtomicU64,
    requests: AtomicU64,
    connections: AtomicU64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((port, server)) = parse(&arguments) else {
        fail("usage: upstream PORT THREADS [slow=TIMES] [reports]");
    };
    let listener = TcpListener::bind(("127.0.0.1", port))
        .unwrap_or_else(|cause| fail(&format!("port {port}: {cause}")));
    keep_little_unsent(&listener).unwrap_or_else(|cause| fail(&cause.to_string()));
    let server = Arc::new(server);
    for _ in 0..server.threads {
        let server = Arc::clone(&server);
        thread::spawn(move || server.work());
    }
    for client in listener.incoming().flatten() {
        let server = Arc::clone(&server);
        // Whose client ends it, or whose end the proxy sees: neither is a fault of this program.
        thread::spawn(move || server.read_requests(client).unwrap_or(()));
    }
}

fn parse(arguments: &[String]) -> Option<(u16, Server)> {
    let [port, threads, options @ ..] = arguments else {
        return None;
    };
    let mut server = Server {
        threads: threads.parse().ok()?,
        slow_times: 1,
        reports: false,
        queue: Mutex::default(),
        arrived: Condvar::new(),
        inside: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        connections: AtomicU64::new(0),
    };
    for option in options {
        match option.split_once('=') {
            Some(("slow", times)) => server.slow_times = times.parse().ok()?,
            None if option == "reports" => server.reports = true,
            _ => return None,
        }
    }
    Some((port.parse().ok()?, server))
}

/// The kernel would take megabytes of a response, and free the thread of a client that reads nothing.
fn keep_little_unsent(listener: &TcpListener) -> std::io::Result<()> {
    let bytes = size_of::<c_int>() as libc::socklen_t;
    let value = (&raw const SEND_BUFFER_BYTES).cast::<c_void>();
    let listener = listener.as_raw_fd();
    // SAFETY: `value` is a c_int of `bytes` bytes and outlives the call; connections inherit it.
    match unsafe { libc::setsockopt(listener, libc::SOL_SOCKET, libc::SO_SNDBUF, value, bytes) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn fail(what: &str) -> ! {
    eprintln!("upstream: {what}");
    exit(2)
}

impl Asked {
    /// Paths without numbers take no time.
    fn of(head: &[u8]) -> Self {
        let head = String::from_utf8_lossy(head);
        let target = head.split(' ').nth(1).unwrap_or_default();
        let mut segments = target.split('/').skip(1);
        let first = segments.next().unwrap_or_default();
        if first == "counts" {
            return Self::Counts;
        }
        let bytes = segments.next().and_then(|bytes| bytes.parse().ok());
        let ms: f64 = first.parse().unwrap_or(0.0);
        Self::Work {
            takes: Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default(),
            body_bytes: bytes.unwrap_or(BODY_BYTES),
        }
    }
}

impl Server {
    /// The requests of a connection. The one that has no response when its client ends the connection is over.
    fn read_requests(&self, client: TcpStream) -> std::io::Result<()> {
        let mut last = None;
        let end = self.read_each(client, &mut last);
        if let Some(is_over) = last {
            self.leave(&is_over);
        }
        end
    }

    /// Puts each request of a connection into the queue. The client sends the next one behind the response.
    fn read_each(
        &self,
        mut client: TcpStream,
        last: &mut Option<Arc<AtomicBool>>,
    ) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let shared = Arc::new(client.try_clone()?);
        let mut head = Vec::new();
        let mut is_counted = false;
        let mut piece = [0; 4096];
        loop {
            let bytes = client.read(&mut piece)?;
            head.extend_from_slice(&piece[..bytes]);
            if bytes == 0 || head.len() > HEAD_BYTES_MAX {
                return Ok(());
            }
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            match Asked::of(&head) {
                Asked::Counts => client.write_all(&self.counts())?,
                Asked::Work { takes, body_bytes } => {
                    if !std::mem::replace(&mut is_counted, true) {
                        self.connections.fetch_add(1, Ordering::Relaxed);
                    }
                    let is_over = Arc::new(AtomicBool::new(false));
                    *last = Some(Arc::clone(&is_over));
                    self.enter(Job {
                        takes: takes * self.slow_times,
                        body_bytes,
                        client: Arc::clone(&shared),
                        arrived: Instant::now(),
                        is_over,
                    });
                }
            }
            head.clear();
        }
    }

    fn enter(&self, job: Job) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.inside.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.queue.lock().expect("no thread panics with it");
        queue.push_back(job);
        self.arrived.notify_one();
    }

    /// A request is no longer inside, which its thread and its connection may both say.
    fn leave(&self, is_over: &AtomicBool) {
        if !is_over.swap(true, Ordering::Relaxed) {
            self.inside.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The life of one thread.
    fn work(&self) {
        loop {
            let job = {
                let queue = self.queue.lock().expect("no thread panics with it");
                let is_empty = |queue: &mut VecDeque<Job>| queue.is_empty();
                let waited = self.arrived.wait_while(queue, is_empty);
                let mut queue = waited.expect("no thread panics with it");
                queue.pop_front().expect("one that was waited for")
            };
            let began = Instant::now();
            thread::sleep(job.takes);
            let response = self.response(&job, began);
            // A client that has gone hears nothing; one that reads slowly keeps the thread.
            (&*job.client).write_all(&response).unwrap_or(());
            self.leave(&job.is_over);
        }
    }

    /// The response to a request that a thread began to run then.
    fn response(&self, job: &Job, began: Instant) -> Vec<u8> {
        let threads = self.threads;
        let others = self.inside.load(Ordering::Relaxed).saturating_sub(1);
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let report = match self.reports {
            false => String::new(),
            true => format!(
                "endpoint-load-metrics: TEXT application_utilization={:.3},named_metrics.running={},\
                 named_metrics.waiting={},named_metrics.threads={threads},\
                 named_metrics.request_queue_ms={:.3},named_metrics.request_run_ms={:.3}\r\n",
                others as f64 / threads as f64,
                others.min(threads),
                others.saturating_sub(threads),
                ms(began - job.arrived),
                ms(began.elapsed()),
            ),
        };
        response(&report, &"x".repeat(job.body_bytes))
    }

    fn counts(&self) -> Vec<u8> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (requests, connections) = (read(&self.requests), read(&self.connections));
        response(
            "",
            &format!("{requests} {connections} {}", read(&self.inside)),
        )
    }
}

fn response(more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{more}Content-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}
