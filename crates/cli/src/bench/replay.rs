//! Files that a load names: read from the disk, and access logs as recordings.
//!
//! Takes paths, gives bytes and recordings. Says how much of a log was no request.

use std::fs;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use loadgen::engine::Fault;
use loadgen::spec::{Files, Recording};
use present::thousands;
use report::{CUT_OFF, Input, Passed};
use telemetry::{Nanos, Pattern};

use crate::message::Message;

/// The disk, and the form of logs that have one of their own.
pub(crate) struct Disk {
    pub(crate) pattern: Option<Pattern>,
}

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // It is kept in memory while the load runs: no more than the largest body that can be made.
        bounded(path, 256 << 20)
    }

    fn recording(&self, path: &Path) -> Result<Recording, Fault> {
        let (mut recording, passed, unsent_len) = read(path, self.pattern.clone())?;
        let name = path.display().to_string();
        if recording.is_empty() {
            let text = format!("`{name}`: there is no request in it");
            let hint = "`milepost report` says what is in it; `--replay-format` reads templates";
            return Err(Fault::with_hint(text, hint));
        }
        // At once and not as faults: a log with some odd lines is still a load.
        for message in doubts(&name, &passed, unsent_len, recording.silence_hours()) {
            message.say();
        }
        Ok(recording)
    }
}

/// All bytes of a file that has no more than `most`.
fn bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Some files, as /dev/zero, have no end.
    let mut bytes = Vec::new();
    let mut file = fs::File::open(path)?.take(most + 1);
    match file.read_to_end(&mut bytes)? as u64 <= most {
        true => Ok(bytes),
        false => Err(io::Error::other(format!("it has more than {most} bytes"))),
    }
}

/// The requests of a log, what was read, and how many requests cannot be sent.
fn read(path: &Path, pattern: Option<Pattern>) -> Result<(Recording, Passed, u64), Fault> {
    let input = match path.as_os_str() == "-" {
        true => Input::Stdin,
        false => Input::File(path.to_owned()),
    };
    let mut recording = Recording::default();
    let mut unsent_len = 0;
    let mut full = None;
    let passed = report::lines(&input, pattern, &mut |line| {
        let began_unix_ns = line.wall_ns?;
        // As of a connection that ended, or sent something else, before it sent a request.
        if line.method.is_empty() || line.target.is_empty() {
            return None;
        }
        let (method, target) = (line.plain(line.method), line.plain(line.target));
        let Some((method, target)) = sendable(&method, &target) else {
            unsent_len += 1;
            return Some(ControlFlow::Continue(()));
        };
        full = recording.push(Nanos(began_unix_ns), method, target).err();
        Some(match full {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        })
    });
    let name = input.name();
    let wrong = |cause: &str| Fault::new(format!("`{name}`: {cause}"));
    let passed = passed.map_err(|fault| wrong(&fault.cause))?;
    if passed.is_cut_off {
        return Err(wrong(CUT_OFF));
    }
    if let Some(what) = full {
        let text = format!("`{name}`: there are more than {what} in it");
        let hint = "replay a part of it: `head`, `zcat | sed`";
        return Err(Fault::with_hint(text, hint));
    }
    Ok((recording, passed, unsent_len))
}

/// A method and a target as a client sends them to a server; `None`: it is nothing that a server is asked.
fn sendable<'a>(method: &'a [u8], target: &'a [u8]) -> Option<(&'a str, &'a str)> {
    let method = std::str::from_utf8(method).ok()?;
    let target = std::str::from_utf8(target).ok()?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    // RFC 9112 section 3.2.2: what proxies are asked; a server is asked for the path.
    let target = match target.strip_prefix("http://") {
        Some(rest) => &rest[rest.find('/')?..],
        None => target,
    };
    let is_target = (target.starts_with('/') || target == "*")
        && target.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    let is_method = !method.is_empty() && method.bytes().all(is_token) && method != "CONNECT";
    (is_target && is_method).then_some((method, target))
}

fn doubts(name: &str, passed: &Passed, unsent_len: u64, silence_hours: u64) -> Vec<Message> {
    let what = format!("`{name}`");
    let mut messages = Vec::new();
    if let Some(first) = passed.first_other {
        let cause = format!(
            "{} of {} lines are no requests and are left out; the first: {name}:{first}",
            thousands(passed.others_len),
            thousands(passed.lines_len),
        );
        messages.push(Message::new(&what, cause));
    }
    if unsent_len > 0 {
        let len = thousands(unsent_len);
        let cause =
            format!("{len} requests cannot be sent and are left out: no path, or no method");
        messages.push(Message::new(&what, cause));
    }
    if silence_hours > 0 {
        let hours = match silence_hours {
            1 => "an hour".to_owned(),
            _ => format!("{} hours", thousands(silence_hours)),
        };
        let cause = format!("no request was recorded for {hours}, and none is sent for as long");
        let hint =
            "`--replay-speed` shortens it, `--duration` ends the run before; or cut the log there";
        messages.push(Message::new(&what, cause).with_hint(hint));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let line = |(at, request): (usize, &&str)| {
            format!("1.2.3.4 - - [21/Nov/2026:12:00:{at:02} +0000] \"{request}\" 200 5\n")
        };
        let text: String = lines.iter().enumerate().map(line).collect();
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn reads_no_file_without_an_end() {
        let (_folder, path) = log(&["GET / HTTP/1.1"]);
        let whole = fs::read(&path).unwrap();
        let most = whole.len() as u64;
        assert_eq!(bounded(&path, most).unwrap(), whole);
        assert!(bounded(&path, most - 1).is_err());
        let endless = bounded(Path::new("/dev/zero"), 100).unwrap_err();
        assert_eq!(endless.to_string(), "it has more than 100 bytes");
    }

    #[test]
    fn takes_what_can_be_sent() {
        let (_folder, path) = log(&[
            "GET /a HTTP/1.1",
            "GET http://shop/b?c HTTP/1.1",
            "CONNECT shop:443 HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "-",
            "GET shop HTTP/1.1",
        ]);
        let (recording, passed, unsent_len) = read(&path, None).unwrap();
        let lens = (recording.len(), passed.lines_len, unsent_len);
        assert_eq!(lens, (3, 6, 2));
        let said: Vec<String> = doubts("log", &passed, unsent_len, 0)
            .iter()
            .map(Message::text)
            .collect();
        assert_eq!(
            said,
            [
                "milepost: `log`: 1 of 6 lines are no requests and are left out; the first: log:5\n",
                "milepost: `log`: 2 requests cannot be sent and are left out: no path, or no method\n",
            ]
        );
    }

    #[test]
    fn says_for_how_long_it_would_send_nothing() {
        let line = |date: &str| format!("1.2.3.4 - - [{date} +0000] \"GET / HTTP/1.1\" 200 5\n");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (dates, expect) in [
            (&["21/Nov/2026:12:59:59", "21/Nov/2026:13:00:00"][..], None),
            // Logs in the wrong order leave no gap.
            (
                &[
                    "21/Nov/2026:14:00:00",
                    "21/Nov/2026:12:00:00",
                    "21/Nov/2026:13:00:00",
                ],
                None,
            ),
            (
                &["21/Nov/2026:12:00:00", "21/Nov/2026:14:00:00"],
                Some("an hour"),
            ),
            (
                &["21/Nov/2026:12:00:00", "01/Jan/1970:00:00:05"],
                Some("498,683 hours"),
            ),
        ] {
            let text: String = dates.iter().map(|date| line(date)).collect();
            fs::write(&path, text).unwrap();
            let (mut recording, passed, unsent_len) = read(&path, None).unwrap();
            let said = doubts("log", &passed, unsent_len, recording.silence_hours());
            let expect = expect.map(|hours| {
                format!("milepost: `log`: no request was recorded for {hours}, and none is sent for as long\n")
            });
            let first = said.first().map(|message| {
                let text = message.text();
                text.lines().next().unwrap_or_default().to_owned() + "\n"
            });
            assert_eq!(first, expect, "{dates:?}");
        }
    }

    #[test]
    fn knows_paths_and_methods() {
        for (method, target, expect) in [
            ("GET", "/", Some("/")),
            ("GET", "http://a/b", Some("/b")),
            ("GET", "http://a", None),
            ("GET", "a", None),
            ("GET", "/a b", None),
            ("GET", "/é", None),
            ("G T", "/", None),
            ("CONNECT", "/", None),
        ] {
            let found = sendable(method.as_bytes(), target.as_bytes());
            assert_eq!(found.map(|(_, target)| target), expect, "{method} {target}");
        }
        assert_eq!(sendable(b"GET", b"/\xff"), None);
    }

    #[test]
    fn says_what_cannot_be_replayed() {
        let disk = Disk { pattern: None };
        let fault = |path: &Path| disk.recording(path).map(|_| ()).unwrap_err().text;
        let (folder, path) = log(&[]);
        let name = path.display();
        assert_eq!(fault(&path), format!("`{name}`: there is no request in it"));
        let missing = folder.path().join("missing");
        let name = missing.display();
        assert_eq!(fault(&missing), format!("`{name}`: no such file"));
    }
}
