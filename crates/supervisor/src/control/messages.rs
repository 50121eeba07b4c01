//! What is said on the control socket: one JSON object a line.
//!
//! A client sends one [`Request`] and gets one [`Outcome`]:
//!
//! ```text
//! {"verb":"reload"}            ─►
//!                              ◄─ {"done":true,"message":"generation 8 serves"}
//! ```
//!
//! Values and their text only: no socket, no clock.

use config::failure::Failure;
use serde::{Deserialize, Serialize};

use super::status::Status;
use crate::plan::Overrides;

/// Bytes of one request, its line end included.
pub const REQUEST_BYTES_MAX: usize = 4096;
pub use config::typed::PROCESSES_MAX;
/// Most drivers that may be asked for, as in the setting.
pub const DRIVERS_MAX: usize = 256;
/// Most threads of a pool that may be asked for, as in the setting.
pub const THREADS_MAX: usize = 4096;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Drain and end.
    Stop,
    /// Read the configuration and import the application anew, beside the old.
    Reload,
    /// Open the log files anew.
    Reopen,
    /// As `Reload`, with the program itself anew.
    Upgrade,
    /// Serve with so many processes and drivers; at least one of them is there, each from 1 to its bound.
    Scale(Overrides),
    /// Let a pool of each process have another size, until the next reload; each bound is from 1 to
    /// [`THREADS_MAX`], the lower first.
    Reshape {
        /// Its name.
        pool: String,
        /// Fewest threads.
        threads_min: usize,
        /// Most threads.
        threads_max: usize,
    },
    /// Say how things are.
    Status,
    /// Hand out the file of the last requests, for reading, with the answer.
    History,
    /// Say where a request is that runs.
    Stack {
        /// Its id as `running` of the status has it, or the beginning of one that no other has.
        request: String,
    },
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was done. The text says what there is to say about it, if anything.
    Done(Option<String>),
    /// How things are.
    Status(Box<Status>),
    /// It was not done, for this reason.
    Refused(CommandKind, Failure),
}

/// Whether the answer is no, or there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// It was tried or looked at, and the answer is no: the new code does not start.
    #[default]
    No,
    /// It was not even tried: not understood, not permitted, not now.
    CouldNot,
}

/// The members of an outcome's line.
#[derive(Default, Serialize, Deserialize)]
struct WireLine {
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(default, skip_serializing_if = "CommandKind::is_no")]
    kind: CommandKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Box<Status>>,
}

impl Request {
    /// Reads a line. Its end does not matter.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(line: &[u8]) -> Result<Request, Failure> {
        let read: Result<Request, _> = serde_json::from_slice(line);
        match read {
            // Serde leaves out what is not named, so an empty or misspelt request would be answered as done.
            Ok(Request::Scale(wanted)) if wanted == Overrides::default() => {
                Err(Failure::new("scale: neither `processes` nor `drivers`"))
            }
            Ok(Request::Scale(wanted))
                if !is_within(wanted.processes, PROCESSES_MAX)
                    || !is_within(wanted.drivers, DRIVERS_MAX) =>
            {
                Err(Failure::new(format!(
                    "scale: expected 1 to {PROCESSES_MAX} processes, 1 to {DRIVERS_MAX} drivers"
                )))
            }
            Ok(Request::Reshape {
                threads_min,
                threads_max,
                ..
            }) if !(1..=THREADS_MAX).contains(&threads_min)
                || !(threads_min..=THREADS_MAX).contains(&threads_max) =>
            {
                Err(Failure::new(format!(
                    "scale: expected 1 to {THREADS_MAX} threads, the smaller number first, found \
                     {threads_min}:{threads_max}"
                )))
            }
            // Each id begins with it.
            Ok(Request::Stack { request }) if request.is_empty() => Err(Failure::new(
                "stack: expected the id of a request, found none",
            )),
            Ok(request) => Ok(request),
            Err(error) => {
                let failure = Failure::new(format!("request not understood: {error}"));
                Err(failure.with_hint(r#"one line such as {"verb":"status"}"#))
            }
        }
    }

    /// The line, with its end.
    pub fn line(&self) -> String {
        text(self)
    }

    /// Its verb, as it is written.
    pub fn verb(&self) -> String {
        let written = serde_json::to_value(self).unwrap_or_default();
        written["verb"].as_str().unwrap_or_default().to_owned()
    }
}

impl Outcome {
    /// Reads a line. `None`: it is no answer of a supervisor.
    pub fn read(line: &[u8]) -> Option<Outcome> {
        let line: WireLine = serde_json::from_slice(line).ok()?;
        Some(match (line.done, line.status) {
            (true, Some(status)) => Outcome::Status(status),
            (true, None) => Outcome::Done(line.message),
            // Without a message it is no refusal of ours.
            (false, _) => {
                let (message, hint, detail) = (line.message?, line.hint, line.detail);
                let failure = Failure {
                    message,
                    hint,
                    detail,
                };
                Outcome::Refused(line.kind, failure)
            }
        })
    }

    /// The line, with its end.
    pub fn line(&self) -> String {
        let line = WireLine {
            done: !matches!(self, Outcome::Refused(..)),
            ..WireLine::default()
        };
        // As members of one object: a client of another version takes those that it knows.
        text(&match self.clone() {
            Outcome::Done(message) => WireLine { message, ..line },
            Outcome::Status(status) => WireLine {
                status: Some(status),
                ..line
            },
            Outcome::Refused(kind, failure) => WireLine {
                message: Some(failure.message),
                hint: failure.hint,
                detail: failure.detail,
                kind,
                ..line
            },
        })
    }
}

impl CommandKind {
    fn is_no(&self) -> bool {
        *self == CommandKind::No
    }
}

fn is_within(count: Option<usize>, max: usize) -> bool {
    count.is_none_or(|count| (1..=max).contains(&count))
}

fn text(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value);
    // JSON escapes line ends, so the line is one.
    text.expect("numbers, texts and lists of them can be written") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: Result<Request, &str>) {
        let read = Request::read(line.as_bytes()).map_err(|failure| failure.message);
        match (read, expect) {
            (Ok(read), Ok(expect)) => assert_eq!(read, expect, "{line}"),
            (Err(read), Err(expect)) => assert!(read.contains(expect), "{line}: {read}"),
            (read, expect) => panic!("{line}: {read:?}, not {expect:?}"),
        }
    }

    fn scale(processes: Option<usize>, drivers: Option<usize>) -> Request {
        Request::Scale(Overrides { processes, drivers })
    }

    fn reshape(pool: &str, threads_min: usize, threads_max: usize) -> Request {
        Request::Reshape {
            pool: pool.to_owned(),
            threads_min,
            threads_max,
        }
    }

    #[test]
    fn reads_requests_strictly() {
        check(r#"{"verb":"reload"}"#, Ok(Request::Reload));
        check(
            r#"{"verb":"scale","processes":3}"#,
            Ok(scale(Some(3), None)),
        );
        check(
            r#"{"verb":"scale","drivers":256,"processes":512}"#,
            Ok(scale(Some(512), Some(256))),
        );
        check(r#"{"verb":"scale"}"#, Err("neither"));
        check(r#"{"verb":"scale","processes":0}"#, Err("1 to 512"));
        check(r#"{"verb":"scale","processes":513}"#, Err("1 to 512"));
        check(r#"{"verb":"scale","drivers":257}"#, Err("1 to 256"));
        check(r#"{"verb":"scale","processes":-1}"#, Err("invalid value"));
        check(r#"{"verb":"scale","threads":1}"#, Err("unknown field"));
        check(
            r#"{"verb":"reshape","pool":"slow","threads_min":1,"threads_max":4096}"#,
            Ok(reshape("slow", 1, 4096)),
        );
        for bounds in [(0, 3), (3, 2), (1, 4097)] {
            let line = reshape("slow", bounds.0, bounds.1).line();
            check(
                &line,
                Err("expected 1 to 4096 threads, the smaller number first"),
            );
        }
        check(r#"{"verb":"reshape","pool":"slow"}"#, Err("missing field"));
        let request = "8f".to_owned();
        check(
            r#"{"verb":"stack","request":"8f"}"#,
            Ok(Request::Stack { request }),
        );
        check(r#"{"verb":"stack","request":""}"#, Err("found none"));
        check(r#"{"verb":"stack"}"#, Err("missing field `request`"));
        check(r#"{"verb":"restart"}"#, Err("unknown variant `restart`"));
        check(r#"{}"#, Err("missing field `verb`"));
        check("", Err("EOF"));
        check("reload", Err("expected value"));
    }

    #[test]
    fn reads_the_requests_that_it_writes() {
        for request in [
            Request::Stop,
            Request::Reload,
            Request::Reopen,
            Request::Upgrade,
            scale(Some(1), Some(2)),
            scale(None, Some(2)),
            reshape("default", 1, 8),
            Request::Status,
            Request::History,
            Request::Stack {
                request: "8f".to_owned(),
            },
        ] {
            let line = request.line();
            assert!(line.contains(&request.verb()) && line.ends_with("}\n"));
            assert_eq!(Request::read(line.as_bytes()), Ok(request));
        }
    }

    #[test]
    fn reads_the_answers_that_it_writes() {
        let failure = Failure {
            detail: Some("Traceback:\n  \u{1F4A5}\n".to_owned()),
            ..Failure::new("`shop:app`: the module raised").with_hint("see above")
        };
        let busy = Failure::new("another reload is under way");
        for outcome in [
            Outcome::Done(None),
            Outcome::Done(Some("generation 2 serves".to_owned())),
            Outcome::Status(Box::default()),
            Outcome::Refused(CommandKind::No, failure),
            Outcome::Refused(CommandKind::CouldNot, busy),
        ] {
            let line = outcome.line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(Outcome::read(line.as_bytes()), Some(outcome));
        }
    }

    #[test]
    fn keeps_its_lines_as_they_were_agreed() {
        assert_eq!(Outcome::Done(None).line(), "{\"done\":true}\n");
        assert_eq!(
            Outcome::Refused(CommandKind::CouldNot, Failure::new("no").with_hint("wait")).line(),
            "{\"done\":false,\"message\":\"no\",\"hint\":\"wait\",\"kind\":\"could_not\"}\n"
        );
    }

    #[test]
    fn takes_nothing_else_for_an_answer() {
        for line in [
            "",
            "{}",
            "[]",
            "HTTP/1.1 400",
            r#"{"done":1}"#,
            r#"{"done":false}"#,
        ] {
            assert_eq!(Outcome::read(line.as_bytes()), None, "{line}");
        }
    }
}
