//! `milepost serve` as a running process: the start-up block, one reply, one log line, the end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn serve(folder: &Path, line: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_milepost"))
        .arg("serve")
        .args(line.split_whitespace())
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(folder.path().join("pub")).expect("a folder in it");
    fs::write(folder.path().join("pub/a.txt"), "milestone").expect("a file in it");
    folder
}

#[test]
fn serves_a_folder_until_it_is_told_to_stop() {
    let folder = folder();
    let mut child = serve(
        folder.path(),
        "--static /=pub --bind 127.0.0.1:0 --access-log -",
    );
    let mut talk = BufReader::new(child.stderr.take().expect("standard error is piped"));
    let mut first = String::new();
    talk.read_line(&mut first).expect("a first line");
    let (_, address) = first
        .trim_end()
        .split_once(" listening on http://")
        .expect("an address in it");

    let mut client = TcpStream::connect(address).expect("somebody listens");
    client
        .write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("a reply");
    assert!(
        reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\nmilestone"),
        "{reply}"
    );

    kill_process(Pid::from_child(&child), Signal::TERM).expect("it still runs");
    let mut log = String::new();
    child
        .stdout
        .take()
        .expect("standard output is piped")
        .read_to_string(&mut log)
        .expect("a log");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(
        log.contains("\"GET /a.txt HTTP/1.1\" 200 9 ") && log.contains(" total="),
        "{log}"
    );
    let mut rest = String::new();
    talk.read_to_string(&mut rest)
        .expect("the rest of the talk");
    let expect = format!("  files    / from pub\n  process  {}, ", child.id());
    assert!(rest.starts_with(&expect), "{rest}");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn refuses_an_address_in_use() {
    let folder = folder();
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("its address");
    let ended = serve(
        folder.path(),
        &format!("--static /=pub --bind {address} --access-log log"),
    )
    .wait_with_output()
    .expect("it ends");
    let talk = String::from_utf8(ended.stderr).expect("text");
    assert!(
        talk.starts_with("milepost: ") && talk.contains(&address.to_string()),
        "{talk}"
    );
    assert!(
        talk.contains("\nhint: ") && talk.lines().count() == 2,
        "{talk}"
    );
    assert_eq!(ended.status.code(), Some(2));
    assert!(!folder.path().join("log").exists());
}
