//! The way to the supervisor: questions by number, answers as files in memory, each kept for a moment.

use std::cell::{Cell, RefCell};
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
const PATIENCE: Duration = Duration::from_secs(5);

/// One process's end of the channel.
pub(crate) struct SupervisorLink {
    channel: Arc<Channel>,
    /// Another descriptor of the same, which the runtime watches.
    watched: UnixStream,
    asked: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<OwnedFd>>>,
    latest: RefCell<HashMap<AdminQuery, (Instant, Bytes)>>,
}

impl SupervisorLink {
    /// In a runtime.
    pub(crate) fn open(channel: &Arc<Channel>) -> io::Result<Rc<Self>> {
        let watched = std::os::unix::net::UnixStream::from(channel.as_fd().try_clone_to_owned()?);
        watched.set_nonblocking(true)?;
        Ok(Rc::new(Self {
            channel: Arc::clone(channel),
            watched: UnixStream::from_std(watched)?,
            asked: Cell::new(0),
            waiting: RefCell::default(),
            latest: RefCell::default(),
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
                    SupervisorCommand::AdminAnswer(number) => {
                        let asked = self.waiting.borrow_mut().remove(&number);
                        if let (Some(asked), Some(file)) = (asked, received.fds.into_iter().next())
                        {
                            // Its client may have left.
                            let _ = asked.send(file);
                        }
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

    /// What the supervisor says, at most a quarter of a second old. `None`: it does not answer.
    pub(crate) async fn ask(&self, query: AdminQuery) -> Option<Bytes> {
        let now = Instant::now();
        if let Some((at, text)) = self.latest.borrow().get(&query)
            && now.duration_since(*at) < AGE_MAX
        {
            return Some(text.clone());
        }
        let number = self.asked.get() + 1;
        self.asked.set(number);
        let (sender, answer) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, sender);
        let question = ProcessEvent::AdminQuery(number, query);
        let answer = match self.channel.send_now(&question, &[]) {
            Ok(()) => timeout(PATIENCE, answer).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        self.waiting.borrow_mut().remove(&number);
        let text = read(answer?).ok()?;
        self.latest
            .borrow_mut()
            .insert(query, (Instant::now(), text.clone()));
        Some(text)
    }
}

fn read(file: OwnedFd) -> io::Result<Bytes> {
    let file = File::from(file);
    let bytes = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, 0)?;
    Ok(text.into())
}
