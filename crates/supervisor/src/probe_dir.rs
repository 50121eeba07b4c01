//! UpgradeProbe of a folder: whether the server can make files there, as the user that it is to become.
//!
//! Takes a folder and the names of user and group, makes a file on a thread that has given up its rights, and
//! gives the error. Leaves nothing behind.

use std::io;
use std::path::Path;
use std::thread;

use rustix::io::Errno;

use super::privileges::{self, UserIdentity};
use os::unnamed_file;

/// Makes an unnamed file in `dir` as this user and group, each empty for none, and lets go of it.
///
/// What says nothing of the folder is no error: a user that cannot be found or become, of which the start
/// has more to say, and a machine that has no room or no descriptors just now.
///
/// # Errors
/// No file can be made there.
pub fn spooled_file(dir: &Path, user: &str, group: &str) -> io::Result<()> {
    let Ok(identity) = privileges::resolve(user, group) else {
        return Ok(());
    };
    let made = thread::scope(|scope| {
        let thread = thread::Builder::new().name("mp-probe-dir".to_owned());
        let tried = thread.spawn_scoped(scope, || made_by(dir, identity.as_ref()))?;
        tried.join().unwrap_or(Ok(()))
    });
    made.or_else(|error| {
        if is_of_now(&error) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// This thread keeps the rights that it is left with.
fn made_by(dir: &Path, identity: Option<&UserIdentity>) -> io::Result<()> {
    if let Some(identity) = identity
        // The thread ends after this: its rights do not come back.
        && privileges::lower_thread(identity).is_err()
    {
        return Ok(());
    }
    unnamed_file(dir).map(drop)
}

/// What passes, and is no reason not to start again a process that has ended.
fn is_of_now(error: &io::Error) -> bool {
    let passing = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::AGAIN,
        Errno::INTR,
    ];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use rustix::process::{geteuid, getgroups};

    use super::*;

    /// A number that is nobody's here.
    const OTHER: u32 = 64_321;

    #[test]
    fn tries_a_folder_as_the_user_that_the_server_becomes() {
        let dir = tempfile::tempdir().unwrap();
        let number = OTHER.to_string();
        let is_root = geteuid().is_root();
        // Only root can become another user; others are held up by the folder itself.
        let (user, mode) = if is_root {
            (number.as_str(), 0o755)
        } else {
            ("", 0o555)
        };
        let check = |dir: &Path, expect: Option<io::ErrorKind>| {
            let tried = spooled_file(dir, user, user);
            assert_eq!(tried.err().map(|error| error.kind()), expect, "{user}");
        };
        let groups = getgroups().unwrap();
        set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        check(dir.path(), Some(io::ErrorKind::PermissionDenied));
        match is_root {
            true => chown(dir.path(), Some(OTHER), None).unwrap(),
            false => set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap(),
        }
        check(dir.path(), None);
        check(&dir.path().join("missing"), Some(io::ErrorKind::NotFound));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // The other threads are who they were.
        assert_eq!(geteuid().is_root(), is_root);
        assert_eq!(getgroups().unwrap(), groups);
    }

    #[test]
    fn a_user_that_there_is_not_says_nothing_of_a_folder() {
        let missing = Path::new("/nowhere");
        assert!(spooled_file(missing, "nobody-of-this-name", "").is_ok());
        assert!(spooled_file(missing, "", "").is_err());
    }
}
