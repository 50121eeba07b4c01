//! The note that an order is under way: kept in the place of a name's retry record, so that the end of this process
//! amid an order counts as a failed try. Otherwise a process that dies again and again would place one order each time.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::retry::RetryRecord;
use crate::storage::{Storage, read, remove};

/// While it lives, an order is under way. Dropped before its end, it leaves the record as it was: whoever stops this
/// process in order is not at fault.
pub(crate) struct OrderNote {
    storage: Storage,
    path: PathBuf,
    before: Option<String>,
    is_over: bool,
}

impl OrderNote {
    /// Before the order is placed; `record` is what is known of the tries before.
    ///
    /// # Errors
    /// It cannot be written: then the order must not be placed.
    pub(crate) fn write(
        storage: &Storage,
        path: PathBuf,
        record: Option<&RetryRecord>,
        now: SystemTime,
    ) -> io::Result<Self> {
        let before = read(&path)?;
        let text = serde_json::to_vec(&RetryRecord::begun(record, now))?;
        storage.save(&path, &text)?;
        Ok(Self {
            storage: storage.clone(),
            path,
            before,
            is_over: false,
        })
    }

    /// What has come of the order takes its place.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for OrderNote {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // What stays counts as a failure.
        let _ = match &self.before {
            Some(text) => self.storage.save(&self.path, text.as_bytes()),
            None => remove(&self.path),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Directory;

    #[test]
    fn a_note_stays_only_where_the_process_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        storage.prepare().unwrap();
        let path = storage.retry(&Directory::new("https://ca.example/dir"), "shop.example");
        let now = SystemTime::now();
        let note = |record: Option<&RetryRecord>| {
            OrderNote::write(&storage, path.clone(), record, now).unwrap()
        };
        let kept = || -> Option<RetryRecord> {
            let text = read(&path).unwrap()?;
            Some(serde_json::from_str(&text).unwrap())
        };
        let first = note(None);
        assert!(kept().unwrap().is_under_way);
        drop(first);
        assert_eq!(kept(), None);

        let failed = RetryRecord::failed(None, now, "refused".to_owned());
        let text = serde_json::to_vec(&failed).unwrap();
        storage.save(&path, &text).unwrap();
        let second = note(Some(&failed));
        assert_eq!(kept().unwrap().failures, 1);
        assert!(kept().unwrap().is_under_way);
        drop(second);
        assert_eq!(kept(), Some(failed.clone()));

        // A process that is killed drops nothing.
        std::mem::forget(note(Some(&failed)));
        assert!(kept().unwrap().is_under_way);
        note(Some(&failed)).over();
        assert!(kept().unwrap().is_under_way);
    }
}
