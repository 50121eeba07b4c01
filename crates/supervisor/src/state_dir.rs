//! A folder of the server's own state, made before root is given up: it belongs to the user that the server becomes.

use std::io;
use std::path::Path;
use std::thread;

use super::privileges;
use config::failure::StartFault;

/// Makes a folder for this user and group, each empty for none, where it is missing, and then does some work with the
/// rights of that user: what it makes belongs to the user as well. The work is done on a thread of its own, which ends.
///
/// # Errors
/// There is no such user, the folder cannot be made, or the work fails.
pub fn in_state_dir<T: Send>(
    folder: &Path,
    user: &str,
    group: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, StartFault> {
    let identity = privileges::resolve(user, group)?;
    if let Some(identity) = &identity {
        privileges::give_new_folder(folder, identity)?;
    }
    let as_user = || {
        if let Some(identity) = &identity {
            privileges::lower_thread(identity)?;
        }
        work()
    };
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().name("mp-state-dir".to_owned());
        let thread = thread.spawn_scoped(scope, as_user)?;
        let panicked = |_| Err(io::Error::other("the thread for it has ended"));
        thread.join().unwrap_or_else(panicked)
    });
    done.map_err(|error| {
        let what = format!("cannot write in the folder `{}`", folder.display());
        StartFault::of_io(what, &error)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use rustix::process::geteuid;

    use super::*;

    /// A number that is nobody's here.
    const OTHER: u32 = 64_322;

    #[test]
    fn what_is_made_belongs_to_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let (user, owner) = match geteuid().is_root() {
            true => (OTHER.to_string(), OTHER),
            // Only root can become another user.
            false => (String::new(), geteuid().as_raw()),
        };
        if user.is_empty() {
            fs::create_dir(&folder).unwrap();
        } else {
            // The user has to reach it.
            std::os::unix::fs::chown(dir.path(), Some(OTHER), Some(OTHER)).unwrap();
        }
        let file = folder.join("file");
        in_state_dir(&folder, &user, &user, || fs::write(&file, "x")).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().uid(), owner);
        assert_eq!(fs::metadata(&file).unwrap().uid(), owner);
        // Once more, where it is there.
        in_state_dir(&folder, &user, &user, || fs::remove_file(&file)).unwrap();
        let failed = in_state_dir(&folder, &user, &user, || fs::remove_file(&file));
        let said = failed.unwrap_err().to_string();
        assert!(said.contains("cannot write in the folder"), "{said}");
    }
}
