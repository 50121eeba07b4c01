//! File lookups: a file-open thread opens and reads a file, because its storage may be slow; the connection waits,
//! the driver does not.

use std::rc::Rc;

use tokio::sync::oneshot;

use super::Driver;
use crate::handler::files::{Files, Look, Looked};

impl Driver {
    /// Has a look done for the next requests; nobody waits for it.
    pub(crate) fn look_behind(self: &Rc<Self>, look: Box<Look>) {
        self.join_look(look, None);
    }

    /// Has a look done. Equal looks share one: a cold file that many ask for is read once.
    pub(crate) fn wait_for_look(self: &Rc<Self>, look: Box<Look>) -> oneshot::Receiver<Looked> {
        let (sender, looked) = oneshot::channel();
        self.join_look(look, Some(sender));
        looked
    }

    fn join_look(self: &Rc<Self>, look: Box<Look>, waiting: Option<oneshot::Sender<Looked>>) {
        let mut looks = self.looks.borrow_mut();
        if let Some(others) = looks.get_mut(look.key()) {
            others.extend(waiting);
            // It may hold the last descriptor of a file.
            return self.shared.openers.discard(look);
        }
        looks.insert(look.key().clone(), Vec::from_iter(waiting));
        tokio::task::spawn_local(Rc::clone(self).lead_look(look));
    }

    async fn lead_look(self: Rc<Self>, look: Box<Look>) {
        let key = look.key().clone();
        let looked = self.shared.openers.run(move || look.look()).await;
        let waiting = self.looks.borrow_mut().remove(&key).unwrap_or_default();
        // After a panic, those who wait see their senders dropped.
        let Ok(looked) = looked else { return };
        for sender in waiting {
            // Its connection may be gone.
            let _ = sender.send(looked.clone());
        }
        self.change_files(|files| files.learn(looked, measure::now()));
    }

    /// Closing a file may wait for its disk.
    pub(super) fn change_files(&self, change: impl FnOnce(&mut Files)) {
        let mut files = self.files.borrow_mut();
        change(&mut files);
        if let Some(gone) = files.take_gone() {
            self.shared.openers.discard(gone);
        }
    }
}
