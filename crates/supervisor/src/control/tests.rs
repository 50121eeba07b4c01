//! The socket as its clients see it, with a small loop in the supervisor's place.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, Timespec, poll};
use tempfile::TempDir;

use super::messages::CommandKind;
use super::*;

/// A user's runtime folder with a control socket, and the loop's clock.
struct Place {
    dir: TempDir,
    now: Instant,
}

impl Place {
    fn new() -> Self {
        Place {
            dir: tempfile::tempdir().unwrap(),
            now: Instant::now(),
        }
    }

    fn who(&self) -> Who {
        Who {
            uid: own_uid(),
            runtime_dir: Some(self.dir.path().to_owned()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(
        &self,
        wish: &typed::ControlConfig,
        config_file: Option<&str>,
    ) -> Result<Control, StartFault> {
        let config_file = config_file.map(|name| self.path(name));
        let opened = Control::open(wish, config_file.as_deref(), &self.who(), &[own_uid()]);
        opened.map(|(control, warnings)| {
            assert_eq!(warnings, [] as [String; 0]);
            control.unwrap()
        })
    }

    fn open_named(&self) -> Control {
        self.open(&typed::ControlConfig::At(self.path("c.sock")), None)
            .unwrap()
    }

    fn entries(&self) -> Vec<Entry> {
        place::entries(&[self.path("milepost")], own_uid())
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn client(control: &Control) -> UnixStream {
    let client = UnixStream::connect(control.path()).unwrap();
    // A test that would hang fails.
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    client
}

fn answer(client: &UnixStream) -> Option<Outcome> {
    let mut line = Vec::new();
    // Byte by byte: what is behind the line is for the next call.
    loop {
        let mut byte = [0];
        match (&mut &*client).read(&mut byte) {
            Ok(1) => line.push(byte[0]),
            _ => break,
        }
        if byte[0] == b'\n' {
            break;
        }
    }
    Outcome::read(&line)
}

#[track_caller]
fn check_refused(client: &UnixStream, kind: CommandKind, expect: &str) {
    let Some(Outcome::Refused(found, failure)) = answer(client) else {
        panic!("not refused");
    };
    assert!(failure.message.contains(expect), "{failure:?}");
    assert_eq!(found, kind);
    // And it is over.
    assert_eq!(answer(client), None);
}

/// Waits as the supervisor does, and gives what came; nothing when only connections did.
fn turn(control: &mut Control, now: Instant) -> Vec<(ClientId, Request)> {
    let mut fds: Vec<PollFd<'_>> = Vec::new();
    let asked = control.fds();
    for (fd, interest) in &asked {
        fds.push(PollFd::from_borrowed_fd(*fd, *interest));
    }
    let limit = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    assert_ne!(poll(&mut fds, Some(&limit)).unwrap(), 0, "nothing came");
    control.accept_and_read(now)
}

/// The next request, and who sent it.
fn next(control: &mut Control, now: Instant) -> (ClientId, Request) {
    loop {
        if let Some(request) = turn(control, now).pop() {
            return request;
        }
    }
}

/// Has turns, one at least, until so many clients are left.
fn settle(control: &mut Control, clients_len: usize, now: Instant) {
    loop {
        assert_eq!(turn(control, now), []);
        if control.fds().len() == clients_len + 1 {
            return;
        }
    }
}

#[test]
fn is_found_by_its_configuration_and_gone_at_its_end() {
    let place = Place::new();
    let control = place
        .open(&typed::ControlConfig::Auto, Some("m.toml"))
        .unwrap();
    let name = place::name_of(&place.path("m.toml"));
    let path = place.path(&format!("milepost/{name}.sock"));
    assert_eq!(control.path(), path);
    let mut expect = Entry {
        pid: std::process::id(),
        control: path.clone(),
        config_file: Some(place.path("m.toml")),
    };
    assert_eq!(place.entries(), [expect.clone()]);
    drop(control);
    assert_eq!(fs::read_dir(place.path("milepost")).unwrap().count(), 0);

    // One that is named has its entry there, too.
    let named = place.path("c.sock");
    let wish = typed::ControlConfig::At(named.clone());
    let control = place.open(&wish, Some("m.toml")).unwrap();
    expect.control = named;
    assert_eq!(place.entries(), [expect]);
    drop(control);
    assert_eq!(place.entries(), []);
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1);

    let control = place.open(&typed::ControlConfig::Auto, None).unwrap();
    let name = format!("milepost/pid-{}.sock", std::process::id());
    assert_eq!(control.path(), place.path(&name));
    let (none, warnings) =
        Control::open(&typed::ControlConfig::Off, None, &place.who(), &[]).unwrap();
    assert!(none.is_none() && warnings.is_empty());
}

#[test]
fn leaves_alone_what_is_not_its_own() {
    let place = Place::new();
    let named = typed::ControlConfig::At(place.path("c.sock"));
    let listener = UnixListener::bind(place.path("c.sock")).unwrap();
    let fault = place.open(&named, None).unwrap_err();
    assert_eq!(fault.cause, "another program listens there");
    drop(listener);
    fs::remove_file(place.path("c.sock")).unwrap();
    fs::write(place.path("c.sock"), "data").unwrap();
    let fault = place.open(&named, None).unwrap_err();
    assert_eq!(fault.cause, "it is there already, and is no socket");
    assert_eq!(fs::read_to_string(place.path("c.sock")).unwrap(), "data");
    assert!(!place.path("c.sock.lock").exists());
    fs::remove_file(place.path("c.sock")).unwrap();

    // Another one has been put in its place meanwhile.
    let control = place.open(&named, None).unwrap();
    fs::remove_file(control.path()).unwrap();
    let _other = UnixListener::bind(control.path()).unwrap();
    drop(control);
    assert!(place.path("c.sock").exists());
}

#[test]
fn does_not_wait_for_a_client_that_reads_nothing() {
    let place = Place::new();
    let mut control = place.open_named();
    let mut client = client(&control);
    client.write_all(Request::Status.line().as_bytes()).unwrap();
    let (id, _) = next(&mut control, place.now);
    let status = Status {
        version: "v".repeat(1 << 20),
        ..Status::default()
    };
    control.done(id, &Outcome::Status(Box::new(status)), place.now);
    assert!(control.fds()[1].1.contains(PollFlags::OUT));
    let deadline = control.deadline().unwrap();
    assert_eq!(deadline, place.now + Duration::from_secs(5));

    // It begins to read.
    let reader = std::thread::spawn(move || {
        let mut line = Vec::new();
        client.read_to_end(&mut line).unwrap();
        Outcome::read(&line)
    });
    while control.clients.len() > 0 {
        assert_eq!(turn(&mut control, place.now), []);
    }
    let read = reader.join().unwrap();
    let Some(Outcome::Status(status)) = read else {
        panic!("{read:?}");
    };
    assert_eq!(status.version.len(), 1 << 20);
}

#[test]
fn has_room_for_sixteen() {
    let place = Place::new();
    let mut control = place.open_named();
    let mut clients: Vec<UnixStream> = (0..16).map(|_| client(&control)).collect();
    settle(&mut control, 16, place.now);
    let one_more = client(&control);
    assert_eq!(turn(&mut control, place.now), []);
    check_refused(&one_more, CommandKind::CouldNot, "16 others are connected");
    drop(clients.pop());
    settle(&mut control, 15, place.now);
    let mut next_one = client(&control);
    next_one.write_all(b"{\"verb\":\"upgrade\"}\n").unwrap();
    assert_eq!(next(&mut control, place.now).1, Request::Upgrade);
}

#[test]
fn goes_on_in_a_program_that_is_started_in_its_place() {
    let place = Place::new();
    let mut control = place
        .open(
            &typed::ControlConfig::At(place.path("c.sock")),
            Some("m.toml"),
        )
        .unwrap();
    let mut waiting = client(&control);
    waiting
        .write_all(Request::Upgrade.line().as_bytes())
        .unwrap();
    let (id, _) = next(&mut control, place.now);
    let mut half = client(&control);
    half.write_all(b"{\"verb\":").unwrap();
    assert_eq!(turn(&mut control, place.now), []);

    let text = serde_json::to_string(&control).unwrap();
    assert_eq!(control.descriptors().count(), 5);
    // A program that is started in another's place ends without dropping anything.
    std::mem::forget(control);
    let mut control: Control = serde_json::from_str(&text).unwrap();

    half.write_all(b"\"status\"}\n").unwrap();
    let (second, request) = next(&mut control, place.now);
    assert_eq!(request, Request::Status);
    control.done(id, &Outcome::Done(None), place.now);
    assert_eq!(answer(&waiting), Some(Outcome::Done(None)));
    assert!(
        place
            .open(&typed::ControlConfig::At(place.path("c.sock")), None)
            .is_err()
    );
    assert_ne!(second, id);
    drop(control);
    assert_eq!(place.entries(), []);
    assert!(!place.path("c.sock").exists() && !place.path("c.sock.lock").exists());
}
