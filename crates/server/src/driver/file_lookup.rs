//! File lookups: a file-open thread opens and reads a file, because its storage may be slow; the connection waits,
//! the driver does not.

use std::rc::Rc;

use files::{Files, Lookup, LookupResult};
use tokio::sync::oneshot;

use super::Driver;

impl Driver {
    /// Starts a lookup for later requests; no request waits for it.
    pub(crate) fn look_up_later(self: &Rc<Self>, lookup: Box<Lookup>) {
        self.join_lookup(lookup, None);
    }

    /// Starts a lookup and returns its result. Equal lookups share one: a cold file that many clients ask for is read
    /// once.
    pub(crate) fn look_up(self: &Rc<Self>, lookup: Box<Lookup>) -> oneshot::Receiver<LookupResult> {
        let (sender, result) = oneshot::channel();
        self.join_lookup(lookup, Some(sender));
        result
    }

    fn join_lookup(
        self: &Rc<Self>,
        lookup: Box<Lookup>,
        waiting: Option<oneshot::Sender<LookupResult>>,
    ) {
        let mut lookups = self.lookups.borrow_mut();
        if let Some(others) = lookups.get_mut(lookup.key()) {
            others.extend(waiting);
            // Dropped elsewhere: it may hold the last descriptor of a file, whose close can wait for a disk.
            return self.shared.openers.discard(lookup);
        }
        // Entered before the task runs, on the one thread that does both: an equal lookup that follows finds it here.
        lookups.insert(lookup.key().clone(), Vec::from_iter(waiting));
        tokio::task::spawn_local(Rc::clone(self).run_lookup(lookup));
    }

    async fn run_lookup(self: Rc<Self>, lookup: Box<Lookup>) {
        let key = lookup.key().clone();
        let result = self.shared.openers.run(move || lookup.run()).await;
        // Removed before the results are given: a request that comes in between must not wait for a lookup that has
        // ended, and its own finds what this one has learned.
        let waiting = self.lookups.borrow_mut().remove(&key).unwrap_or_default();
        // After a panic, the waiting requests see their senders dropped.
        let Ok(result) = result else { return };
        for sender in waiting {
            // The connection may be gone.
            let _ = sender.send(result.clone());
        }
        self.change_files(|files| files.learn(result, telemetry::now()));
    }

    /// Changes the files, and has evicted ones closed where a disk may be waited for.
    pub(super) fn change_files(&self, change: impl FnOnce(&mut Files)) {
        let mut files = self.files.borrow_mut();
        change(&mut files);
        if let Some(evicted) = files.take_evicted() {
            self.shared.openers.discard(evicted);
        }
    }
}
