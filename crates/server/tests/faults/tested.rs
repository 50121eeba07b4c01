//! The server under test, with what its replies are to be and what its log is to say.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};

use config::typed::{Coding, Config};

use super::cases::{self, After, Case};
use super::expected::{self, Expected};
use super::support::{Running, config, mount, run, text, tls, wait_until};

/// Descriptors and threads are counted, and they are the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// Whoever serves in this process, or opens descriptors in it, takes this first.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    ALONE
        .lock()
        .expect("no earlier test failed: the threads of its server would be counted here")
}

pub(super) struct Tested {
    pub(super) running: Running,
    pub(super) cases: Vec<Case>,
    /// Of each case.
    pub(super) expected: Vec<Expected>,
    runs: Cell<usize>,
    rows: RefCell<Vec<Logged>>,
    _alone: MutexGuard<'static, ()>,
}

/// The exchanges of one connection, for the log.
struct Logged {
    /// Number of each run and its case.
    exchanges: Vec<(usize, usize)>,
    fortune: Fortune,
}

/// How a connection fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fortune {
    /// Every exchange came to its own end.
    Undisturbed,
    /// It was reset in one of them.
    Reset,
}

/// What a server holds while it has nothing to do.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Holding {
    descriptors: usize,
    threads: Vec<String>,
}

impl Tested {
    /// Opens a server and takes every reply from it once, undisturbed.
    pub(super) fn open(writers: usize) -> Self {
        Self::open_with(|config| config.file_serving.writers = writers)
    }

    /// As `open`, with another configuration.
    pub(super) fn open_with(change: impl FnOnce(&mut Config)) -> Self {
        let alone = alone();
        let (mut config, dir) = config();
        let files = dir.path().join("files");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("small.txt"), cases::small_file()).unwrap();
        fs::write(files.join("large.txt"), cases::large_file()).unwrap();
        mount(&mut config, files);
        config.compression.codings = vec![Coding::Gzip];
        // Large replies move to files above half of it, and none is cut: each is smaller than all of it.
        config.delivery.replies_memory_bytes_max = 700_000;
        config.status_path = Some("/-/status".to_owned());
        config.pools[0].threads_min = 2;
        config.pools[0].threads_max = 2;
        tls::certify(&mut config, dir.path());
        change(&mut config);
        let named = named_threads(&config);
        let running = run(config, dir, Some(Arc::new(cases::answer)));
        // A thread names itself when it first runs, which may be long after its start on a busy machine.
        wait_until("the names of all threads", || threads().len() >= named);
        let cases = cases::cases();
        let expected = cases.iter().map(|case| expect(&running, case)).collect();
        Self {
            running,
            cases,
            expected,
            runs: Cell::new(0),
            rows: RefCell::default(),
            _alone: alone,
        }
    }

    /// Requests of these cases, one behind the other.
    pub(super) fn requests(&self, row: &[usize]) -> Requests {
        let mut requests = Requests::default();
        for index in row {
            let run = self.runs.get() + 1;
            self.runs.set(run);
            requests.bytes.extend(self.cases[*index].request(run));
            requests.exchanges.push((run, *index));
            requests.expected.push(&self.expected[*index]);
        }
        requests
    }

    /// What the log is to tell of them.
    pub(super) fn note(&self, requests: Requests, fortune: Fortune) {
        let exchanges = requests.exchanges;
        self.rows.borrow_mut().push(Logged { exchanges, fortune });
    }

    /// What is held once nobody is there.
    pub(super) fn holding(&self) -> Holding {
        wait_until("a server without work", || self.is_quiet());
        Holding {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: threads(),
        }
    }

    /// Waits until everybody is gone, and checks that nothing is left of them.
    pub(super) fn assert_holds(&self, before: &Holding) {
        // Spans that nobody will send are let go of by a writer, later.
        wait_until("what was held before", || self.holding() == *before);
    }

    /// Whether the only connection is the one that asks, and no reply waits.
    fn is_quiet(&self) -> bool {
        let status = text(&self.running.get("/-/status"));
        status.contains("\"waiting\":{\"connections\":1,")
            && status.contains("\"replies_memory_bytes\":0}")
    }

    /// Stops the server and checks its log.
    pub(super) fn stop(self) {
        self.stop_while(|_| ());
    }

    /// As `stop`, with something to do once the server has been told.
    pub(super) fn stop_while(self, act: impl FnOnce(&Self)) {
        self.running.handle.drain_alone();
        act(&self);
        let ended = self.running.thread.join().unwrap();
        assert_eq!(ended.cut, 0);
        // Crews end by themselves, once nobody can have an errand for them.
        drop(self.running.handle);
        wait_until("the end of all threads", || threads().is_empty());
        let log = fs::read_to_string(self.running.dir.path().join("access.log")).unwrap();
        let mut endings: HashMap<usize, Vec<&str>> = HashMap::new();
        for line in log.lines() {
            if let Some(run) = between(line, "run=", ".") {
                let ending = between(line, " end=", " ").unwrap_or("complete");
                endings
                    .entry(run.parse().unwrap())
                    .or_default()
                    .push(ending);
            }
        }
        for row in self.rows.take() {
            check_row(&self.cases, &row, &endings);
        }
    }
}

/// Requests of one connection.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) bytes: Vec<u8>,
    pub(super) expected: Expected,
    exchanges: Vec<(usize, usize)>,
}

impl Requests {
    /// For messages.
    pub(super) fn name(&self) -> String {
        text(&self.bytes)
    }
}

fn expect(running: &Running, case: &Case) -> Expected {
    // A reset may take what the client has not read yet with it: it is compared with the same in order.
    let reply = match case.after {
        After::Reset => running.ask(&case.request_in_order()),
        After::Next | After::End | After::EndAsSign | After::Cut => running.ask(&case.request(0)),
    };
    expected::check(case, &reply);
    Expected::like(&reply)
}

/// One record for each exchange; after a reset, up to the one that it hit and no further.
fn check_row(cases: &[Case], row: &Logged, endings: &HashMap<usize, Vec<&str>>) {
    let mut was_reset = false;
    for (run, case) in &row.exchanges {
        let case = &cases[*case];
        let found = endings.get(run).map_or(&[][..], Vec::as_slice);
        let fits = match found {
            [] => was_reset,
            [ending] if was_reset => panic!("{}, run {run}: {ending} after a reset", case.name),
            [ending] if *ending == case.ending && row.fortune == Fortune::Undisturbed => true,
            // The application broke it off before the reset was seen, or after.
            ["cut"] if case.ending == "cut" => true,
            ["peer-gone"] if row.fortune == Fortune::Reset => {
                was_reset = true;
                true
            }
            [ending] => *ending == case.ending,
            _ => false,
        };
        assert!(fits, "{}, run {run}: {found:?}", case.name);
    }
    let last = row.exchanges.last().expect("a row has an exchange").1;
    let was_noticed = was_reset || cases[last].ending == "cut";
    assert!(
        was_noticed || row.fortune == Fortune::Undisturbed,
        "{}, {:?}: nobody noticed the reset",
        cases[last].name,
        row.exchanges
    );
}

fn between<'l>(line: &'l str, before: &str, after: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(before)?;
    Some(rest.split_once(after).map_or(rest, |(found, _)| found))
}

/// Threads that a server with this configuration has at least.
fn named_threads(config: &Config) -> usize {
    // The two logs, signals, the controller.
    let own = 4;
    let blocking =
        config.spool.spoolers + config.file_serving.openers + config.file_serving.writers;
    own + blocking + config.listen.drivers + config.pools[0].threads_min
}

/// Names of the threads of the server.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // One that ended meanwhile has no name.
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    let mut names: Vec<String> = tasks
        .filter_map(|task| name(task.unwrap()).ok())
        .filter(|name| name.starts_with("mp-"))
        .collect();
    names.sort();
    names
}
