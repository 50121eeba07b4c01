//! Looking a file up: an opener opens and reads it, because its storage may be slow; the connection waits,
//! the driver does not.

use std::rc::Rc;

use measure::{Ending, Phases, Stamp};
use tokio::sync::oneshot;
use wire::RequestHead;

use super::Driver;
use super::answer::{About, After};
use super::connection::{Connection, Step};
use super::refused::Refused;
use crate::exchange::Id;
use crate::handler::files::{Look, Looked};
use crate::stats::Doing;

/// A request for a file that nobody has looked at lately.
pub(super) struct Looking {
    look: Box<Look>,
    id: Id,
    head: RequestHead,
    phases: Phases,
    route: u16,
    request_bytes: u64,
    after: After,
}

impl Looking {
    /// # Panics
    /// When the head of `about` was refused.
    pub(super) fn new(look: Box<Look>, about: &About<'_>) -> Self {
        let view = about.view.expect("only a complete head is looked up");
        Self {
            look,
            id: about.id,
            head: RequestHead::take(view),
            phases: about.phases,
            route: about.route,
            request_bytes: about.request_bytes,
            after: about.after,
        }
    }
}

impl Driver {
    /// Has a look done for the next requests; nobody waits for it.
    pub(super) fn look_behind(self: &Rc<Self>, look: Box<Look>) {
        self.join_look(look, None);
    }

    /// Has a look done. Equal looks share one: a cold file that many ask for is read once.
    fn wait_for_look(self: &Rc<Self>, look: Box<Look>) -> oneshot::Receiver<Looked> {
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
        let openers = &self.shared.openers;
        let looked = openers.run(move || look.look()).await;
        let waiting = self.looks.borrow_mut().remove(&key).unwrap_or_default();
        // After a panic, those who wait see their senders dropped.
        let Ok(looked) = looked else { return };
        for sender in waiting {
            // Its connection may be gone.
            let _ = sender.send(looked.clone());
        }
        let mut files = self.files.borrow_mut();
        files.learn(looked, measure::now());
        if let Some(gone) = files.take_gone() {
            openers.discard(gone);
        }
    }
}

impl Connection {
    /// Has a file looked up and answers.
    pub(super) async fn look(&mut self, looking: Box<Looking>) -> Step {
        let Looking {
            look,
            id,
            head,
            phases,
            route,
            request_bytes,
            after,
        } = *looking;
        // Storage has its own time: no deadline of the client's is running.
        self.now_doing(Doing::Sending, Stamp::NEVER);
        let looked = self.driver.wait_for_look(look);
        let looked = self.unless_cut(looked).await;
        let view = head.view();
        let reply = match looked {
            Some(Ok(looked)) => self.driver.files.borrow().reply(&looked, view),
            Some(Err(_)) => Refused::because(500, "looking the file up failed").reply(),
            None => {
                self.arrived = phases.arrived;
                let about = Some((view, request_bytes));
                self.end_unanswered(id, about, b"", Ending::Drained);
                return Step::Close;
            }
        };
        let about = About {
            id,
            view: Some(view),
            line: b"",
            pool: None,
            phases,
            route,
            request_bytes,
            ending: Ending::Complete,
            cause: "",
            after,
        };
        self.answer(&about, reply).unwrap_or(Step::Receive)
    }
}
