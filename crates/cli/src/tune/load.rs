//! The load: GETs of named paths, or those of a log in its proportions, by the generator of `milepost bench`.
//!
//! Takes paths and a server of this command's own, gives what a run measured. Sends nothing but GETs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use loadgen::outcome::Outcome;
use loadgen::plan::{Request, RequestParts};
use loadgen::spec::LoadSpec;
use present::thousands;
use report::Input;

use super::server::OwnServer;
use crate::bench::{Disk, Stop, fault_message, watched};
use crate::environment::cause;
use crate::message::Message;

/// Different requests that are taken from a log: the most frequent ones.
const KINDS_LEN_MAX: usize = 1_000;
/// Paths that are asked for once before the load begins.
const CHECKED_LEN_MAX: usize = 20;
/// Time that does not count, while threads and caches of the application begin.
const WARM_UP_S: u64 = 1;
/// Connections of a load at a rate: enough for every request to find one.
const RATE_CONNECTIONS: usize = 256;

/// GETs with their weights.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GetMix {
    /// Targets, the most frequent first.
    targets: Vec<(String, u32)>,
    /// Header fields of all of them.
    fields: Vec<(String, String)>,
}

/// What makes the requests leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LoadKind {
    /// So many clients, each with its next request after the answer.
    Clients(usize),
    /// So many requests a second, by chance.
    Rate(f64),
}

impl GetMix {
    /// Of named paths, each as often as the others.
    ///
    /// # Errors
    /// One is no path.
    pub(super) fn of_paths(
        paths: &[String],
        fields: Vec<(String, String)>,
    ) -> Result<GetMix, Message> {
        let mix = GetMix {
            targets: paths.iter().map(|path| (path.clone(), 1)).collect(),
            fields,
        };
        mix.checked()
    }

    /// Of the GETs of a log.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub(super) fn of_log(path: &Path, fields: Vec<(String, String)>) -> Result<GetMix, Message> {
        let what = format!("`{}`", path.display());
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut others: u64 = 0;
        let passed = report::lines(&Input::File(path.to_owned()), None, &mut |line| {
            // What was answered with an error then is none of the load now.
            let is_good = line
                .status
                .is_none_or(|status| (200..400).contains(&status));
            let target = line.plain(line.target);
            let target = std::str::from_utf8(&target).ok();
            match target.filter(|target| is_target(target)) {
                Some(target) if line.method == b"GET" && is_good => {
                    let count = counts.entry(target.to_owned()).or_default();
                    *count = count.saturating_add(1);
                }
                _ => others += 1,
            }
            Some(ControlFlow::Continue(()))
        });
        let passed = passed.map_err(|fault| Message::new(&what, &fault.cause))?;
        if counts.is_empty() {
            let text = format!(
                "there is no GET with a status of 200 to 399 in its {} lines",
                thousands(passed.lines_len)
            );
            let hint = "name paths instead: `milepost tune shop:app / /orders`";
            return Err(Message::new(&what, text).with_hint(hint));
        }
        let mix = GetMix {
            targets: most_frequent(counts),
            fields,
        };
        mix.checked()
    }

    fn checked(self) -> Result<GetMix, Message> {
        let parts = self.targets.iter().map(|(target, _)| self.parts(target));
        match parts.filter_map(|parts| parts.fault()).next() {
            Some(fault) => Err(Message::new("request", fault)),
            None => Ok(self),
        }
    }

    /// The most frequent request.
    pub(super) fn first(&self) -> Request {
        let target = self.targets.first().map_or("/", |(target, _)| target);
        self.parts(target).request(1)
    }

    /// For the heading: `GET /`, or how many there are.
    pub(super) fn name(&self) -> String {
        let names: Vec<&str> = self
            .targets
            .iter()
            .map(|(target, _)| target.as_str())
            .collect();
        match names.as_slice() {
            names if names.len() <= 4 => format!("GET {}", names.join(" ")),
            names => format!("{} different GETs", thousands(names.len() as u64)),
        }
    }

    /// Asks for some of the paths once.
    ///
    /// # Errors
    /// None of them has a right answer.
    pub(super) fn check(&self, server: &OwnServer) -> Result<Vec<Message>, Message> {
        let mut wrong: Vec<(String, String)> = Vec::new();
        let mut redirects = 0;
        let checked = &self.targets[..self.targets.len().min(CHECKED_LEN_MAX)];
        for (target, _) in checked {
            match server.ask(&self.parts(target).request(1).last_bytes) {
                Ok(answer) if (200..300).contains(&answer.0) => {}
                Ok(answer) if (300..400).contains(&answer.0) => redirects += 1,
                Ok(answer) => wrong.push((target.clone(), format!("status {}", answer.0))),
                Err(error) => wrong.push((target.clone(), cause(&error))),
            }
        }
        judged(&wrong, redirects, checked.len())
    }

    /// Puts a load on the server.
    ///
    /// # Errors
    /// This machine or the load does not allow it.
    pub(super) fn run(
        &self,
        server: &OwnServer,
        kind: LoadKind,
        seconds: u64,
        name: String,
        stop: &Stop,
    ) -> Result<Outcome, Message> {
        let mut spec = LoadSpec::default();
        spec.put("url", "http://localhost/");
        spec.put("unix", &server.socket.display().to_string());
        spec.put("server_pid", &server.pid().to_string());
        spec.put("duration", &format!("{seconds}s"));
        spec.put("warm_up", &format!("{WARM_UP_S}s"));
        match kind {
            LoadKind::Clients(clients) => {
                spec.put("connections", &clients.to_string());
            }
            LoadKind::Rate(rate) => {
                spec.put("connections", &RATE_CONNECTIONS.to_string());
                spec.put("rate", &rate.to_string());
                spec.put("arrivals", "poisson");
            }
        }
        let plan = spec.plan(&Disk { pattern: None });
        let mut plan = plan.map_err(|faults| {
            let first = faults.first().map(fault_message);
            first.unwrap_or_else(|| Message::new("load", "it cannot be made"))
        })?;
        let request = |(target, weight): &(String, u32)| self.parts(target).request(*weight);
        plan.requests = self.targets.iter().map(request).collect();
        watched(&plan, name, stop, false).map_err(|fault| fault_message(&fault))
    }

    fn parts<'a>(&'a self, target: &'a str) -> RequestParts<'a> {
        RequestParts {
            method: "GET",
            target,
            host: "localhost",
            fields: &self.fields,
            body: None,
        }
    }
}

fn is_target(target: &str) -> bool {
    target.starts_with('/') && target.bytes().all(|byte| (0x21..0x7f).contains(&byte))
}

fn most_frequent(counts: BTreeMap<String, u32>) -> Vec<(String, u32)> {
    /// Greatest weight of one kind: they are added up.
    const WEIGHT_MAX: u32 = 1_000_000;
    let mut all: Vec<(String, u32)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.truncate(KINDS_LEN_MAX);
    let greatest = all.first().map_or(1, |(_, count)| *count);
    let divisor = greatest.div_ceil(WEIGHT_MAX).max(1);
    for (_, count) in &mut all {
        *count = (*count / divisor).max(1);
    }
    all
}

/// What the first answers say of the paths.
fn judged(
    wrong: &[(String, String)],
    redirects: usize,
    len: usize,
) -> Result<Vec<Message>, Message> {
    let Some((target, answer)) = wrong.first() else {
        let mut doubts = Vec::new();
        if redirects == len {
            let text =
                "every path is answered with a redirect, which is little work for the application";
            doubts.push(Message::new("load", text).with_hint("name the paths that it leads to"));
        }
        return Ok(doubts);
    };
    if wrong.len() == len {
        let text = match len {
            1 => format!("`GET {target}` is answered with {answer}"),
            _ => format!(
                "none of {len} paths has a right answer; the first: `GET {target}`, {answer}"
            ),
        };
        let hint = "name paths that the application answers with 200, as `milepost tune shop:app /orders`; \
                    `--header 'Host: shop.example'` is for applications that serve some hosts only";
        return Err(Message::new("load", text).with_hint(hint));
    }
    let text = format!(
        "{} of {len} paths have no right answer and count as failed requests; the first: `GET {target}`, {answer}",
        wrong.len()
    );
    Ok(vec![Message::new("load", text)])
}

/// The lines of a log from a time on, in a file of their own: without those of the warm-up.
///
/// # Errors
/// One of the files cannot be read or written.
pub(super) fn counted_lines(log: &Path, from_unix_ms: u64, to: &Path) -> io::Result<()> {
    let text = fs::read(log)?;
    let mut kept = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if received_second(line).is_some_and(|second| second * 1e3 >= from_unix_ms as f64) {
            kept.extend_from_slice(line);
        }
    }
    fs::write(to, kept)
}

/// When the request of a line of the default format was complete: `receive=0.000312 ... at=1795852438.871443`. The first
/// request of a connection arrives with the connection, which may be long before.
fn received_second(line: &[u8]) -> Option<f64> {
    let line = std::str::from_utf8(line).ok()?;
    let number = |name: &str| -> Option<f64> {
        let (_, rest) = line.rsplit_once(name)?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    };
    Some(number(" at=")? + number(" receive=")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_gets_of_a_log_in_its_proportions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        let line = |method: &str, target: &str, status: u16| {
            format!(
                "10.0.0.1 - - [28/Nov/2026:07:53:58 +0000] \"{method} {target} HTTP/1.1\" {status} 3 \"-\" \"-\"\n"
            )
        };
        let text = [
            line("GET", "/a", 200),
            line("GET", "/b?x=1", 200),
            line("GET", "/a", 304),
            line("POST", "/a", 200),
            line("GET", "/gone", 404),
        ];
        fs::write(&path, text.concat()).expect("written");
        let mix = GetMix::of_log(&path, Vec::new()).expect("GETs");
        let expect = [("/a".to_owned(), 2), ("/b?x=1".to_owned(), 1)];
        assert_eq!(mix.targets, expect);
        assert_eq!(mix.name(), "GET /a /b?x=1");
        fs::write(&path, line("POST", "/a", 200)).expect("written");
        let fault = GetMix::of_log(&path, Vec::new()).expect_err("no GET");
        assert!(fault.text().contains("there is no GET"), "{}", fault.text());
    }

    #[test]
    fn keeps_the_proportions_of_large_counts() {
        let counts = BTreeMap::from([("/a".to_owned(), 4_000_000), ("/b".to_owned(), 2_000_000)]);
        let expect = [("/a".to_owned(), 1_000_000), ("/b".to_owned(), 500_000)];
        assert_eq!(most_frequent(counts), expect);
    }

    #[test]
    fn says_when_no_path_is_answered() {
        let wrong = |target: &str| (target.to_owned(), "status 404".to_owned());
        let fault = judged(&[wrong("/")], 0, 1).expect_err("nothing is right");
        assert!(fault.text().contains("`GET /` is answered with status 404"));
        let some = judged(&[wrong("/a")], 0, 3).expect("some are right");
        assert!(some[0].text().contains("1 of 3 paths"));
        assert_eq!(judged(&[], 0, 3).expect("all are right"), []);
        assert_eq!(judged(&[], 2, 2).expect("redirects").len(), 1);
    }

    #[test]
    fn refuses_what_is_no_path() {
        let paths = |path: &str| GetMix::of_paths(&[path.to_owned()], Vec::new());
        assert!(paths("/a b").is_err());
        assert!(paths("a").is_err());
        assert!(paths("/a?b=%20").is_ok());
    }

    #[test]
    fn leaves_the_warm_up_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, to) = (folder.path().join("log"), folder.path().join("to"));
        fs::write(
            &log,
            "a receive=0.5 at=10.4\nb receive=0.7 at=10.4 x=1\nno time\n",
        )
        .expect("written");
        counted_lines(&log, 11_000, &to).expect("copied");
        assert_eq!(
            fs::read_to_string(&to).expect("a file"),
            "b receive=0.7 at=10.4 x=1\n"
        );
    }
}
