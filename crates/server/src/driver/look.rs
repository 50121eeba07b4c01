//! Looking a file up: an opener opens and reads it, because its storage may be slow; the connection waits,
//! the driver does not.

use std::io;

use measure::{Phases, Stamp};
use tokio::sync::oneshot;
use wire::RequestHead;

use super::answer::{About, After};
use super::connection::{Connection, Step};
use crate::handler::files::{Look, LookKey, Looked};
use crate::stats::Doing;

/// A request for a file that nobody has looked at lately.
pub(super) struct Looking {
    look: Box<Look>,
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
            head: RequestHead::take(view),
            phases: about.phases,
            route: about.route,
            request_bytes: about.request_bytes,
            after: about.after,
        }
    }
}

impl Connection {
    /// What an opener sees. Equal looks share one: a cold file that many ask for is read once.
    async fn looked(&self, look: Box<Look>) -> Option<io::Result<Looked>> {
        let key = look.key().clone();
        if let Some(looked) = self.join_look(&key) {
            // It may hold the last descriptor of a file, which is not to be closed here later.
            drop(look);
            let failed = |_| io::Error::other("the look failed");
            let looked = self.unless_cut(looked).await;
            return looked.map(|looked| looked.map_err(failed));
        }
        let openers = &self.driver.shared.openers;
        let looked = self.unless_cut(openers.run(move || look.look())).await;
        let looks = &self.driver.looks;
        let others = looks.borrow_mut().remove(&key).unwrap_or_default();
        if let Some(Ok(looked)) = &looked {
            for other in others {
                // Its connection may be gone.
                let _ = other.send(looked.clone());
            }
        }
        looked
    }

    /// Joins those who wait for the same look; `None` when there is none under way: there is now.
    fn join_look(&self, key: &LookKey) -> Option<oneshot::Receiver<Looked>> {
        let mut looks = self.driver.looks.borrow_mut();
        let Some(others) = looks.get_mut(key) else {
            looks.insert(key.clone(), Vec::new());
            return None;
        };
        let (sender, looked) = oneshot::channel();
        others.push(sender);
        Some(looked)
    }

    /// Has a file looked up and answers.
    pub(super) async fn look(&mut self, looking: Box<Looking>) -> Step {
        let Looking {
            look,
            head,
            phases,
            route,
            request_bytes,
            after,
        } = *looking;
        // Storage has its own time: no deadline of the client's is running.
        self.now_doing(Doing::Sending, Stamp::NEVER);
        let looked = self.looked(look).await;
        let view = head.view();
        let reply = match looked {
            Some(Ok(looked)) => {
                let mut files = self.driver.files.borrow_mut();
                let reply = files.settle(looked, view, measure::now());
                if let Some(gone) = files.take_gone() {
                    self.driver.shared.openers.discard(gone);
                }
                reply
            }
            Some(Err(_)) => super::refused::Refused::because(500, "the look panicked").reply(),
            None => {
                let about = Some((view, request_bytes));
                self.end_unanswered(about, b"", measure::Ending::Drained);
                return Step::Close;
            }
        };
        let about = About {
            view: Some(view),
            line: b"",
            phases,
            route,
            request_bytes,
            ending: measure::Ending::Complete,
            cause: "",
            after,
        };
        self.answer(&about, reply).unwrap_or(Step::Receive)
    }
}
