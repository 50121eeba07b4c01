//! Where control sockets are, and which servers can be found there.
//!
//! Every server with a control socket has an entry in its user's runtime folder, from its start to its end:
//! a file that says who it is and where its socket is. Names are made from the path of the configuration
//! file, or of the socket where one was named, so that who has the same file finds the same entry. Takes
//! paths, gives paths; opens no socket.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use config::failure::plain;

/// An entry holds three lines; more than this is another kind of file.
const ENTRY_BYTES_MAX: u64 = 16 << 10;
/// A socket's path has at most 107 bytes; names leave room for the folder.
const STEM_BYTES_MAX: usize = 32;
/// Entries that are looked at in one folder.
const ENTRIES_LEN_MAX: usize = 4096;

/// Whose servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Number of the user.
    pub uid: u32,
    /// `XDG_RUNTIME_DIR`, where it is set.
    pub runtime_dir: Option<PathBuf>,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The supervisor's process id.
    pub pid: u32,
    /// Its control socket, absolute.
    pub control: PathBuf,
    /// Its configuration file, absolute; none without one.
    pub config_file: Option<PathBuf>,
}

impl Who {
    /// Folders in which a server of this user may have its entry; the first that can be used is taken.
    pub fn folders(&self) -> Vec<PathBuf> {
        // That of another user is left over from `su` or `sudo`.
        let is_ours = |dir: &PathBuf| {
            dir.is_absolute() && fs::metadata(dir).is_ok_and(|facts| facts.uid() == self.uid)
        };
        let own = self.runtime_dir.clone().filter(is_ours);
        let root = (self.uid == 0).then(|| PathBuf::from("/run"));
        let temporary = PathBuf::from(format!("/tmp/milepost-{}", self.uid));
        let named = own.into_iter().chain(root).map(|dir| dir.join("milepost"));
        named.chain([temporary]).collect()
    }

    /// Folders in which a client looks: a server that was started without a session may be elsewhere than
    /// one that was started within.
    pub fn folders_to_search(&self) -> Vec<PathBuf> {
        let session = PathBuf::from(format!("/run/user/{}/milepost", self.uid));
        let mut folders = self.folders();
        // A cron job or `sudo -u` has no XDG_RUNTIME_DIR, and asks the same server.
        if !folders.contains(&session) {
            folders.push(session);
        }
        folders
    }
}

impl Entry {
    /// The text of its file.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\ncontrol {}\n", self.pid, self.control.display());
        if let Some(file) = &self.config_file {
            text.push_str(&format!("config {}\n", file.display()));
        }
        text
    }

    /// `None`: it is another kind of text, or not complete.
    fn read(text: &str) -> Option<Entry> {
        let mut lines = text.split_terminator('\n');
        let pid = lines.next()?.parse().ok()?;
        let control = lines.next()?.strip_prefix("control ")?.into();
        let config_file = lines.next().and_then(|line| line.strip_prefix("config "));
        Some(Entry {
            pid,
            control,
            config_file: config_file.map(PathBuf::from),
        })
    }

    /// The entry in a file.
    pub(super) fn in_file(file: &Path) -> Option<Entry> {
        // Opening a pipe that somebody has put there would wait for ever.
        if !fs::symlink_metadata(file).ok()?.is_file() {
            return None;
        }
        let mut text = String::new();
        let opened = File::open(file).ok()?;
        opened
            .take(ENTRY_BYTES_MAX)
            .read_to_string(&mut text)
            .ok()?;
        Entry::read(&text)
    }
}

/// Entries in the folders that this user owns, the living with those that were left behind by servers which
/// were killed: whether one lives is seen by connecting to its socket.
pub fn entries(folders: &[PathBuf], uid: u32) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    for folder in folders.iter().filter(|dir| private(dir, uid).is_ok()) {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let locks = files
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|end| end == "lock"));
        for entry in locks
            .take(ENTRIES_LEN_MAX)
            .filter_map(|lock| Entry::in_file(&lock))
        {
            // A server has one entry, but a folder may be reached by two names.
            if !found.iter().any(|other| other.control == entry.control) {
                found.push(entry);
            }
        }
    }
    found.sort_by_key(|entry| entry.pid);
    found
}

/// Makes a folder that belongs to this user alone, or looks whether it does.
///
/// # Errors
/// It cannot be made, or others may write to it.
pub(super) fn make(folder: &Path, uid: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // Not taken on trust either: under a strange umask it may be less.
        _ => private(folder, uid),
    }
}

/// Whether a folder is this user's alone.
fn private(folder: &Path, uid: u32) -> io::Result<()> {
    // In /tmp anybody could have put a link to anything.
    let facts = fs::symlink_metadata(folder)?;
    if !facts.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    if facts.uid() != uid {
        let text = format!("it belongs to user {}", facts.uid());
        return Err(io::Error::other(text));
    }
    if facts.mode() & 0o077 != 0 {
        let text = format!("others may use it (mode {:o})", facts.mode() & 0o777);
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// `shop-1a2b3c4d` for a file that has "shop" for its stem.
pub(super) fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let stem: String = stem
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .take(STEM_BYTES_MAX)
        .collect();
    let path = settled(file);
    // Two files of one name in different folders have two sockets.
    let hash = fnv1a(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    format!("{stem}-{hash:08x}")
}

/// Absolute and without `.` and `..`, by its text alone: a link that is set anew at each deployment is still
/// the same name.
pub fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut settled = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(settled.pop()),
            part => settled.push(part),
        }
    }
    settled
}

/// One sentence about a folder that cannot be used.
pub(super) fn unusable(folder: &Path, error: &io::Error) -> String {
    format!("`{}`: {}", folder.display(), plain(error).to_lowercase())
}

/// FNV-1a, 32 bits: the same in every version, and no secret.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn names_sockets_after_absolute_paths() {
        // FNV-1a's own test vectors.
        assert_eq!(fnv1a(b""), 0x811c_9dc5);
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
        let name = name_of(Path::new("/srv/shop.toml"));
        assert!(name.starts_with("shop-") && name.len() == 13, "{name}");
        assert_eq!(name_of(Path::new("/srv/./x/../shop.toml")), name);
        assert_ne!(name_of(Path::new("/srv/b/shop.toml")), name);
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            name_of(Path::new("a.toml")),
            name_of(&here.join("sub/../a.toml"))
        );
        let odd = name_of(Path::new("/a/\u{e4} b/\u{1F4A5} x\n.toml"));
        assert!(odd.starts_with("__x_-"), "{odd}");
        let long = name_of(Path::new(&format!("/{}.toml", "l".repeat(200))));
        assert_eq!(long.len(), STEM_BYTES_MAX + 9);
        assert_eq!(settled(Path::new("/../../a")), Path::new("/a"));
    }

    #[test]
    fn knows_the_folders_of_users() {
        let dir = tempfile::tempdir().unwrap();
        let who = |uid, runtime_dir: Option<&Path>| Who {
            uid,
            runtime_dir: runtime_dir.map(Path::to_owned),
        };
        let temporary = PathBuf::from(format!("/tmp/milepost-{}", own_uid()));
        let folders = who(own_uid(), Some(dir.path())).folders();
        assert_eq!(folders.first(), Some(&dir.path().join("milepost")));
        assert_eq!(folders.last(), Some(&temporary));
        // Somebody else's, a relative one, none.
        let stranger = [PathBuf::from("/tmp/milepost-54321")];
        assert_eq!(who(54321, Some(dir.path())).folders(), stranger);
        assert_eq!(who(54321, Some(Path::new("x"))).folders(), stranger);
        let root = ["/run/milepost", "/tmp/milepost-0"].map(PathBuf::from);
        assert_eq!(who(0, None).folders(), root);
        let searched = who(54321, None).folders_to_search();
        assert_eq!(searched[1], Path::new("/run/user/54321/milepost"));
    }

    #[test]
    fn makes_a_folder_and_refuses_one_that_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("milepost");
        make(&folder, own_uid()).unwrap();
        make(&folder, own_uid()).unwrap();
        let mode = fs::metadata(&folder).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        let error = make(&folder, own_uid() + 1).unwrap_err().to_string();
        assert_eq!(error, format!("it belongs to user {}", own_uid()));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        let error = make(&folder, own_uid()).unwrap_err().to_string();
        assert_eq!(error, "others may use it (mode 770)");
        let link = dir.path().join("link");
        symlink("/", &link).unwrap();
        assert!(make(&link, own_uid()).is_err());
        assert!(make(&dir.path().join("no/folder"), own_uid()).is_err());
    }

    #[test]
    fn reads_the_entries_that_it_writes() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let folders = [dir.path().to_owned(), dir.path().join("missing")];
        let entry = |pid, name: &str, config: Option<&str>| Entry {
            pid,
            control: PathBuf::from(format!("/run/{name}.sock")),
            config_file: config.map(PathBuf::from),
        };
        let two = [
            entry(7, "b", None),
            entry(12, "a c", Some("/etc/with space.toml")),
        ];
        for (name, text) in [
            ("a.lock", two[1].text()),
            ("b.lock", two[0].text()),
            ("twice.lock", two[0].text()),
            ("empty.lock", String::new()),
            ("half.lock", "12\n".to_owned()),
            ("other.lock", "hello\ncontrol x\n".to_owned()),
            ("c.sock", two[0].text()),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::create_dir(dir.path().join("d.lock")).unwrap();
        assert_eq!(entries(&folders, own_uid()), two);
        assert_eq!(entries(&folders, own_uid() + 1), []);
        // What others can write says nothing.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(entries(&folders, own_uid()), []);
    }
}
