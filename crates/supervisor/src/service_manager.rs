//! The service manager (systemd): notifications to it, and sockets that it hands over.
//!
//! Takes the variables of its environment, sends datagrams to `NOTIFY_SOCKET` (sd_notify(3)), gives listening
//! sockets (sd_listen_fds(3)). Where no manager is, everything is silently nothing. Never changes the
//! environment: programs that are started are to be started without [`VARIABLES`].

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Type};

use crate::handed;
use config::failure::StartFault;
use ipc::ListenAddr;

/// What programs that are started must not see: they would take it for their own.
pub(crate) const VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
];

/// A manager that does not read for this long is not waited for.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    to: Option<(SocketAddr, UnixDatagram)>,
    watchdog: Option<Duration>,
}

/// A listening socket that the service manager has opened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InheritedSocket {
    /// `FileDescriptorName=`, or the unit's name.
    pub(crate) name: String,
    #[serde(with = "handed::fd")]
    pub(crate) socket: OwnedFd,
    pub(crate) at: ListenAddr,
}

impl Manager {
    /// The manager that the environment names, for the process `pid`; `look_up` gives a variable's value.
    ///
    /// # Errors
    /// It names one that cannot be reached: the service can go on without, with [`Manager::default`].
    pub(crate) fn find(
        look_up: impl Fn(&str) -> Option<OsString>,
        pid: u32,
    ) -> io::Result<Manager> {
        let Some(name) = look_up("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Manager::default());
        };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            [b'/', ..] => SocketAddr::from_pathname(&name)?,
            _ => {
                let kind = format!("`{}` is no unix socket", name.to_string_lossy());
                return Err(io::Error::new(io::ErrorKind::Unsupported, kind));
            }
        };
        let socket = connect(&address)?;
        let number = |name: &str| look_up(name)?.to_str()?.parse::<u64>().ok();
        let is_for_us = look_up("WATCHDOG_PID").is_none()
            || number("WATCHDOG_PID").is_some_and(|watched| watched == u64::from(pid));
        // A limit that is meant for another process of the service is not this one's to keep.
        let watchdog = number("WATCHDOG_USEC").filter(|usec| is_for_us && *usec > 0);
        Ok(Manager {
            to: Some((address, socket)),
            watchdog: watchdog.map(Duration::from_micros),
        })
    }

    /// How often [`Manager::is_alive`] is to be said: twice in the time after which the manager ends the
    /// service.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// Everything serves; also the end of a reload.
    pub(crate) fn is_ready(&mut self, status: &str) -> io::Result<()> {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)])
    }

    /// A reload begins; [`Manager::is_ready`] ends it, whether it has succeeded or not.
    pub(crate) fn is_reloading(&mut self) -> io::Result<()> {
        // Both in one message: `Type=notify-reload` goes by the time.
        self.tell(&[
            NotifyState::Reloading,
            NotifyState::monotonic_usec_now()?,
            NotifyState::Status("reloading"),
        ])
    }

    /// The end begins.
    pub(crate) fn is_stopping(&mut self) -> io::Result<()> {
        self.tell(&[NotifyState::Stopping, NotifyState::Status("stopping")])
    }

    /// The watchdog may wait on.
    pub(crate) fn is_alive(&mut self) -> io::Result<()> {
        self.tell(&[NotifyState::Watchdog])
    }

    /// A start or an end takes longer: `more` from now on.
    pub(crate) fn wait_for(&mut self, more: Duration) -> io::Result<()> {
        let usec = u32::try_from(more.as_micros()).unwrap_or(u32::MAX);
        self.tell(&[NotifyState::ExtendTimeoutUsec(usec)])
    }

    fn tell(&mut self, states: &[NotifyState<'_>]) -> io::Result<()> {
        let Some((address, socket)) = &mut self.to else {
            return Ok(());
        };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        if socket.send(message.as_bytes()).is_ok() {
            return Ok(());
        }
        // A manager that was restarted has another socket under the same name.
        *socket = connect(address)?;
        socket.send(message.as_bytes()).map(drop)
    }
}

/// The sockets that were handed over to this process; to be called once, before anything else opens
/// descriptors. They are non-blocking from here on and closed for programs that are started.
///
/// # Errors
/// The variables contradict themselves, or one of the sockets is none to accept streams from.
pub(crate) fn inherited() -> Result<Vec<InheritedSocket>, StartFault> {
    let handed = sd_notify::listen_fds_with_names(false).map_err(|error| {
        StartFault::of_io("cannot take over the service manager's sockets", &error)
    })?;
    handed.map(|(fd, name)| take(fd, name)).collect()
}

fn take(fd: RawFd, name: String) -> Result<InheritedSocket, StartFault> {
    let taken = os::adopt_fd(fd).and_then(|socket| {
        let at = listens_on(&socket)?;
        // Systemd hands them over as they are, and a driver must never wait in accept.
        SockRef::from(&socket).set_nonblocking(true)?;
        Ok((socket, at))
    });
    match taken {
        Ok((socket, at)) => Ok(InheritedSocket { name, socket, at }),
        Err(error) => {
            let what = format!("cannot accept from the service manager's socket `{name}`");
            let hint = "sockets must be made with `ListenStream=` and `Accept=no`";
            Err(StartFault::of_io(what, &error).with_hint(hint))
        }
    }
}

/// What a socket listens on.
///
/// # Errors
/// It is no listening stream socket of TCP or of unix.
pub(crate) fn listens_on(socket: &impl AsFd) -> io::Result<ListenAddr> {
    let found = SockRef::from(socket);
    let is = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text.to_owned()));
    match found.r#type() {
        Ok(Type::STREAM) => {}
        Ok(_) => return is("it is no stream socket"),
        Err(_) => return is("it is no socket"),
    }
    if !found.is_listener()? {
        return is("it does not listen");
    }
    let address = found.local_addr()?;
    match found.domain()? {
        Domain::IPV4 | Domain::IPV6 => match address.as_socket() {
            Some(at) => Ok(ListenAddr::Tcp(at)),
            None => is("its address cannot be read"),
        },
        Domain::UNIX => Ok(ListenAddr::Unix(match address.as_abstract_namespace() {
            Some(name) => PathBuf::from(OsString::from_vec([b"@", name].concat())),
            None => address.as_pathname().unwrap_or("".as_ref()).to_owned(),
        })),
        _ => is("it is neither a TCP nor a unix socket"),
    }
}

fn connect(address: &SocketAddr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(address)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn find(variables: &[(&str, &str)]) -> io::Result<Manager> {
        let all: BTreeMap<&str, &str> = variables.iter().copied().collect();
        Manager::find(|name| all.get(name).map(OsString::from), 7)
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut text = [0; 1024];
        let bytes = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..bytes].to_vec()).unwrap()
    }

    #[test]
    fn finds_a_manager_that_was_restarted_and_one_without_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let first = UnixDatagram::bind(&path).unwrap();
        let mut told = find(&[("NOTIFY_SOCKET", path.to_str().unwrap())]).unwrap();
        drop(first);
        assert!(told.is_alive().is_err());
        std::fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        told.is_alive().unwrap();
        assert_eq!(heard(&second), "WATCHDOG=1\n");

        let name = format!("milepost-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let third = UnixDatagram::bind_addr(&address).unwrap();
        let mut told = find(&[("NOTIFY_SOCKET", &format!("@{name}"))]).unwrap();
        told.is_alive().unwrap();
        assert_eq!(heard(&third), "WATCHDOG=1\n");
    }

    #[test]
    fn goes_on_without_a_manager() {
        find(&[]).unwrap().is_ready("").unwrap();
        find(&[("NOTIFY_SOCKET", "")])
            .unwrap()
            .is_ready("")
            .unwrap();
        for nobody in ["/nowhere/notify", "vsock:2:1234", "notify"] {
            assert!(find(&[("NOTIFY_SOCKET", nobody)]).is_err(), "{nobody}");
        }
    }
}
