//! Giving up root's rights once everything is bound: users and groups by name or number, and what stays.
//!
//! Takes names, gives an identity, becomes it. What stays with the supervisor is the right to bind ports
//! below 1024, because it binds more of them when drivers are added or a configuration changes; programs
//! that it starts do not have it. Starts nothing and opens nothing.

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{
    Gid, Group, Uid, User, getgrouplist, getresgid, getresuid, initgroups, setgid, setgroups,
    setuid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities, set_thread_gid,
    set_thread_groups, set_thread_uid,
};

use config::failure::StartFault;

/// What the supervisor keeps.
const KEPT: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// Whose rights are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserIdentity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The user's name, whose further groups come along; `None` for a number that has no name.
    name: Option<CString>,
}

/// Finds user and group, each by name or number; `None` when neither is given.
///
/// # Errors
/// There is no such user or group, or a number without a name comes without a group.
pub(crate) fn resolve(user: &str, group: &str) -> Result<Option<UserIdentity>, StartFault> {
    let group = match group {
        "" => None,
        group => Some(resolve_group(group)?),
    };
    let (account, uid) = match user {
        "" => match group {
            None => return Ok(None),
            // The group alone: whoever this is keeps its user.
            Some(_) => (account_of(Uid::effective())?, Uid::effective()),
        },
        user => resolve_user(user)?,
    };
    let own = account.as_ref().map(|account| account.gid);
    let gid = group.or(own).ok_or_else(|| {
        let cause = "no user has this number, so that it has no group of its own";
        StartFault::new(format!("cannot become user `{user}`"), cause)
            .with_hint("name a group as well, with `--group`")
    })?;
    let name = account.and_then(|account| CString::new(account.name).ok());
    Ok(Some(UserIdentity {
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        name,
    }))
}

/// Whether there are this user and this group, each by name or number, and empty for none.
///
/// # Errors
/// As a start would fail.
pub fn check_account(user: &str, group: &str) -> Result<(), StartFault> {
    resolve(user, group).map(drop)
}

/// Becomes user and group for good. The process must have one thread. The right to bind ports below 1024
/// stays where it was there before.
///
/// # Errors
/// This process may not, or could come back.
pub(crate) fn drop_to(identity: &UserIdentity) -> Result<(), StartFault> {
    become_identity(identity).map_err(|error| {
        let UserIdentity { uid, gid, .. } = identity;
        let what = format!("cannot become user {uid} and group {gid}");
        let fault = StartFault::of_io(what, &error);
        match error.kind() {
            io::ErrorKind::PermissionDenied => fault.with_hint(
                "only root (or the capabilities CAP_SETUID and CAP_SETGID) can become another user; start as root, or leave `user` and `group` out",
            ),
            _ => fault,
        }
    })
}

/// Lets this thread alone have the rights of user and group, and none beside them, until it ends.
pub(crate) fn lower_thread(identity: &UserIdentity) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    if is_already(uid, gid) {
        return Ok(());
    }
    let groups = match &identity.name {
        Some(name) => getgrouplist(name, gid)?,
        None => vec![gid],
    };
    let raw = |gid: &Gid| rustix::process::Gid::from_raw(gid.as_raw());
    let groups: Vec<_> = groups.iter().map(raw).collect();
    // The system calls themselves know threads only; it is the C library that makes all threads follow.
    set_thread_groups(&groups)?;
    set_thread_gid(raw(&gid))?;
    set_thread_uid(rustix::process::Uid::from_raw(identity.uid))?;
    match uid.is_root() {
        true => Ok(()),
        false => keep_only(CapabilitySet::empty()),
    }
}

/// Leaves nothing to this thread but this, and nothing of it to programs that it starts.
fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Makes what is kept survive the next start of a program in this process, which is the supervisor's own
/// successor. To be called right before it; [`settle`] takes it back.
pub(crate) fn keep_through_exec() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted & KEPT;
    set_capabilities(None, sets)?;
    // The ambient set takes only what is permitted and inheritable, capabilities(7): otherwise the call would fail.
    if sets.inheritable == KEPT {
        configure_capability_in_ambient_set(KEPT, true)?;
    }
    Ok(())
}

/// Lets no program that is started from here on have what is kept: for a successor's first moment, and after
/// a start that failed.
pub(crate) fn settle() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let mut sets = capabilities(None)?;
    sets.inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, sets)?)
}

/// Gives a file that was made before to the identity; a link is not followed.
pub(crate) fn give_file(path: &Path, identity: &UserIdentity) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(identity.uid), Some(identity.gid))
}

/// Gives the file of a unix socket to the user. The group stays if the configuration names one, which is one that the
/// process did not have.
pub(crate) fn give_socket_file(path: &Path, identity: &UserIdentity) -> io::Result<()> {
    let own = rustix::process::getegid().as_raw();
    let has_own = std::fs::symlink_metadata(path)?.gid() == own;
    let gid = has_own.then_some(identity.gid);
    std::os::unix::fs::lchown(path, Some(identity.uid), gid)
}

/// The number of a group, by name or number.
///
/// # Errors
/// There is no such group.
pub(crate) fn group_id(group: &str) -> Result<u32, StartFault> {
    resolve_group(group).map(Gid::as_raw)
}

/// Makes a folder for the identity alone, where there is none. One that is there stays whose it is.
pub(crate) fn give_new_folder(path: &Path, identity: &UserIdentity) -> Result<(), StartFault> {
    let made = match path.parent() {
        Some(above) => std::fs::create_dir_all(above),
        None => Ok(()),
    };
    let made = made.and_then(|()| {
        let mut folder = std::fs::DirBuilder::new();
        match std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| give_file(path, identity)),
        }
    });
    made.map_err(|error| {
        StartFault::of_io(
            format!("cannot make the folder `{}`", path.display()),
            &error,
        )
        .with_hint("`acme_storage` names another one")
    })
}

/// The same for an open one.
pub(crate) fn give_descriptor(file: BorrowedFd<'_>, identity: &UserIdentity) -> io::Result<()> {
    // Sockets share an address only with those of the same user, and this is what makes it theirs.
    std::os::unix::fs::fchown(file, Some(identity.uid), Some(identity.gid))
}

fn become_identity(identity: &UserIdentity) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    if is_already(uid, gid) {
        return Ok(());
    }
    // The user last: with root goes the right to change groups.
    match &identity.name {
        Some(name) => initgroups(name, gid)?,
        None => setgroups(&[gid])?,
    }
    setgid(gid)?;
    // `setuid` to another user than root empties the sets unless they are kept, and what is kept is cut right after.
    let had = capabilities(None)?.permitted;
    set_keep_capabilities(true)?;
    let became = setuid(uid);
    set_keep_capabilities(false)?;
    became?;
    if !uid.is_root() {
        keep_only(had & KEPT)?;
        clear_ambient_capability_set()?;
    }
    check_no_way_back(uid, gid)
}

/// An identity that this process has already needs no rights to become.
fn is_already(uid: Uid, gid: Gid) -> bool {
    !uid.is_root() && is_wholly(uid, gid).unwrap_or(false)
}

fn is_wholly(uid: Uid, gid: Gid) -> io::Result<bool> {
    let (users, groups) = (getresuid()?, getresgid()?);
    Ok([users.real, users.effective, users.saved] == [uid; 3]
        && [groups.real, groups.effective, groups.saved] == [gid; 3])
}

fn check_no_way_back(uid: Uid, gid: Gid) -> io::Result<()> {
    if !is_wholly(uid, gid)? {
        return Err(io::Error::other("the system has changed only a part of it"));
    }
    let root_group = Gid::from_raw(0);
    let comes_back = !uid.is_root()
        && (setuid(Uid::from_raw(0)).is_ok() || (gid != root_group && setgid(root_group).is_ok()));
    if comes_back {
        return Err(io::Error::other("this process could become root again"));
    }
    Ok(())
}

fn resolve_user(user: &str) -> Result<(Option<User>, Uid), StartFault> {
    let by_name = User::from_name(user).map_err(|error| lookup_fault("user", user, error))?;
    if let Some(account) = by_name {
        let uid = account.uid;
        return Ok((Some(account), uid));
    }
    // -1 says "unchanged" to the system.
    match user.parse().ok().filter(|number| *number != u32::MAX) {
        Some(number) => {
            let uid = Uid::from_raw(number);
            Ok((account_of(uid)?, uid))
        }
        None => Err(missing("user", user, "useradd --system")),
    }
}

fn account_of(uid: Uid) -> Result<Option<User>, StartFault> {
    User::from_uid(uid).map_err(|error| lookup_fault("user", &uid.to_string(), error))
}

fn resolve_group(group: &str) -> Result<Gid, StartFault> {
    let by_name = Group::from_name(group).map_err(|error| lookup_fault("group", group, error))?;
    if let Some(found) = by_name {
        return Ok(found.gid);
    }
    let number = group.parse().ok().filter(|number| *number != u32::MAX);
    number
        .map(Gid::from_raw)
        .ok_or_else(|| missing("group", group, "groupadd --system"))
}

fn missing(kind: &str, name: &str, command: &str) -> StartFault {
    let database = if kind == "user" { "passwd" } else { "group" };
    let what = format!("cannot become {kind} `{name}`");
    StartFault::new(what, format!("there is no such {kind}")).with_hint(format!(
        "see `getent {database}`, or make it with `{command} {name}`"
    ))
}

fn lookup_fault(kind: &str, name: &str, error: nix::Error) -> StartFault {
    StartFault::of_io(format!("cannot look up {kind} `{name}`"), &error.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{SocketAddr, TcpStream};
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use crate::sockets::Sockets;
    use config::typed::{Bind, Config, UnixSocket};

    #[test]
    fn finds_users_and_groups_by_name_and_number() {
        let ids = |user, group| {
            let found = resolve(user, group).unwrap();
            found.map(|found| (found.uid, found.gid))
        };
        assert_eq!(ids("", ""), None);
        assert_eq!(ids("root", ""), Some((0, 0)));
        assert_eq!(ids("0", ""), Some((0, 0)));
        assert_eq!(ids("root", "4242"), Some((0, 4242)));
        assert_eq!(ids("4242424", "4343"), Some((4_242_424, 4343)));
        assert_eq!(ids("", "4343"), Some((Uid::effective().as_raw(), 4343)));
    }

    #[test]
    fn says_which_name_is_missing_and_what_to_do() {
        let check = |user, group, expect: &str, hint: &str| {
            let fault = resolve(user, group).unwrap_err();
            assert!(fault.to_string().contains(expect), "{fault}");
            assert!(fault.hint().unwrap().contains(hint), "{fault:?}");
        };
        check(
            "no-such-user",
            "",
            "cannot become user `no-such-user`: there is no such user",
            "getent passwd",
        );
        check(
            "root",
            "no-such-group",
            "there is no such group",
            "groupadd --system no-such-group",
        );
        check("4242424", "", "no user has this number", "--group");
        check("4294967295", "0", "there is no such user", "getent passwd");
        check("-1", "", "there is no such user", "getent passwd");
    }

    /// Set in a copy of this test program, which may give up its rights.
    const CHILD: &str = "MILEPOST_TEST_PRIVILEGES";

    #[test]
    fn gives_up_root_for_good_and_still_adds_sockets_to_a_low_port() {
        if std::env::var_os(CHILD).is_some() {
            return live_as_another();
        }
        if !Uid::effective().is_root() {
            return check_refused();
        }
        let name = "privileges::tests::gives_up_root_for_good_and_still_adds_sockets_to_a_low_port";
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
    }

    /// Whoever is not root cannot become it.
    fn check_refused() {
        let fault = drop_to(&resolve("root", "root").unwrap().unwrap()).unwrap_err();
        assert!(
            fault.to_string().contains("cannot become user 0"),
            "{fault}"
        );
        assert!(fault.hint().unwrap().contains("start as root"));
    }

    fn live_as_another() {
        let folder = tempfile::tempdir().unwrap();
        let unix = folder.path().join("a.sock");
        let (mut config, mut sockets, at) = open_low_port(&unix);
        let identity = resolve("65534", "65533").unwrap().unwrap();
        sockets.give(&identity).unwrap();
        let file = fs::metadata(&unix).unwrap();
        assert_eq!((file.uid(), file.gid()), (65_534, 65_533));
        drop_to(&identity).unwrap();
        let mine = (Uid::effective().as_raw(), Gid::effective().as_raw());
        assert_eq!(mine, (65_534, 65_533));
        assert!(fs::write("/proc/sys/kernel/hostname", "x").is_err());
        assert!(fs::read("/etc/shadow").is_err());
        check_refused();
        drop_to(&identity).unwrap();

        let change = sockets.adjust(&config, 4).unwrap();
        sockets.commit(change, Instant::now()).unwrap();
        assert_eq!(sockets.addresses()[0].sockets, 4);
        let clients: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(at).unwrap()).collect();
        let waiting = sockets.waiting();
        let all: u32 = waiting.values().map(|depth| depth.waiting).sum();
        assert_eq!(all as usize, clients.len());
        assert!(
            waiting
                .iter()
                .any(|(key, depth)| key.index >= 2 && depth.waiting > 0)
        );
        // Another low port, as after a reload.
        let next = SocketAddr::new(at.ip(), at.port() - 1);
        config.binds.push(Bind::Tcp(vec![next]));
        let change = sockets.adjust(&config, 4).unwrap();
        sockets.abandon(change);

        // Programs that are started have nothing of it, but for a successor.
        assert_eq!(capabilities_of_a_program(), 0);
        keep_through_exec().unwrap();
        assert_eq!(capabilities_of_a_program(), KEPT.bits());
        settle().unwrap();
        assert_eq!(capabilities_of_a_program(), 0);
        assert_eq!(capabilities(None).unwrap().permitted, KEPT);
    }

    /// A port below 1024 that nobody has, on loopback.
    fn open_low_port(unix: &Path) -> (Config, Sockets, SocketAddr) {
        for port in (512..1024).rev() {
            let at = SocketAddr::from(([127, 0, 0, 1], port));
            let config = Config {
                binds: vec![
                    Bind::Tcp(vec![at]),
                    Bind::Unix(UnixSocket {
                        path: unix.to_owned(),
                        mode: 0o660,
                        group: None,
                    }),
                ],
                ..Config::default()
            };
            if let Ok(sockets) = Sockets::open(&config, Vec::new(), 2, Instant::now()) {
                return (config, sockets, at);
            }
        }
        panic!("all low ports are taken");
    }

    fn capabilities_of_a_program() -> u64 {
        let status = Command::new("/bin/cat")
            .arg("/proc/self/status")
            .output()
            .unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }
}
