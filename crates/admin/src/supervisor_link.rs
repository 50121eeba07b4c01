//! The way to the supervisor: questions, and answers as files in memory, each kept for a moment.
//!
//! Clients that ask the same at the same time share one question, so that many clients cost the supervisor no more than
//! one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ipc::{AdminQuery, Channel, ProcessEvent, SupervisorCommand};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// How long an answer is given again.
const AGE_MAX: Duration = Duration::from_millis(250);
/// A supervisor that does not answer for so long is in trouble.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// One process's end of the channel.
pub(crate) struct SupervisorLink {
    channel: Arc<Channel>,
    /// Another descriptor of the same, which the runtime watches.
    watched: UnixStream,
    /// Clients that wait for an answer, by what they have asked; an entry is a question that is under way.
    waiting: RefCell<HashMap<AdminQuery, Vec<oneshot::Sender<Bytes>>>>,
    latest: RefCell<HashMap<AdminQuery, (Instant, Bytes)>>,
    /// The file of the history, once it was asked for.
    history: RefCell<Option<File>>,
}

impl SupervisorLink {
    /// In a runtime.
    pub(crate) fn open(channel: &Arc<Channel>) -> io::Result<Rc<Self>> {
        let watched = std::os::unix::net::UnixStream::from(channel.as_fd().try_clone_to_owned()?);
        watched.set_nonblocking(true)?;
        Ok(Rc::new(Self {
            channel: Arc::clone(channel),
            watched: UnixStream::from_std(watched)?,
            waiting: RefCell::default(),
            latest: RefCell::default(),
            history: RefCell::default(),
        }))
    }

    /// Takes answers until this process is to end.
    pub(crate) async fn run(&self) {
        loop {
            if self.watched.readable().await.is_err() {
                return;
            }
            let receive = || self.channel.receive_now();
            let received = self.watched.try_io(Interest::READABLE, receive);
            match received {
                Ok(Some(received)) => match received.message {
                    SupervisorCommand::AdminAnswer(query) => {
                        self.answered(query, received.fds.into_iter().next());
                    }
                    SupervisorCommand::Cut => return,
                    // They concern those that serve.
                    _ => {}
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A supervisor that is gone needs no process.
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn answered(&self, query: AdminQuery, file: Option<OwnedFd>) {
        let waiting = self.waiting.borrow_mut().remove(&query);
        let text = match (query, file) {
            (AdminQuery::History, Some(file)) => {
                *self.history.borrow_mut() = Some(file.into());
                Some(Bytes::new())
            }
            (_, file) => file.and_then(|file| read(file).ok()),
        };
        // Without a text they are told that there is no answer.
        let Some(text) = text else {
            return;
        };
        for client in waiting.into_iter().flatten() {
            // It may have left.
            let _ = client.send(text.clone());
        }
        let latest = (Instant::now(), text);
        self.latest.borrow_mut().insert(query, latest);
    }

    /// Has a client counted that was dropped. A supervisor that takes no message counts one fewer.
    pub(crate) fn client_dropped(&self) {
        let _ = self
            .channel
            .send_now(&ProcessEvent::AdminClientDropped, &[]);
    }

    /// The history, to be read where it lies. `None`: there is none, or the supervisor does not answer.
    pub(crate) async fn history(&self) -> Option<File> {
        self.ask(AdminQuery::History).await?;
        self.history.borrow().as_ref()?.try_clone().ok()
    }

    /// What the supervisor says, at most a quarter of a second old. `None`: it does not answer.
    pub(crate) async fn ask(&self, query: AdminQuery) -> Option<Bytes> {
        if let Some((at, text)) = self.latest.borrow().get(&query)
            && at.elapsed() < AGE_MAX
        {
            return Some(text.clone());
        }
        let (sender, answer) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting.borrow_mut();
            let clients = waiting.entry(query).or_default();
            clients.push(sender);
            clients.len() == 1
        };
        let question = ProcessEvent::AdminQuery(query);
        if is_first && self.channel.send_now(&question, &[]).is_err() {
            self.waiting.borrow_mut().remove(&query);
            return None;
        }
        match timeout(ANSWER_TIME_MAX, answer).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                // The next client asks anew.
                self.waiting.borrow_mut().remove(&query);
                None
            }
        }
    }
}

fn read(file: OwnedFd) -> io::Result<Bytes> {
    let file = File::from(file);
    let bytes = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, 0)?;
    Ok(text.into())
}
