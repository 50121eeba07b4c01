//! A server under a supervisor: its commands come over a channel, and its counters lie where the supervisor
//! reads them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::stack_report::StackReporter;
use super::{Closing, Drain, Event, Idle, ServerHandle, say, start_fault};
use config::failure::StartFault;
use ipc::history::RequestHistory;
use ipc::payload;
use ipc::stats::{Shape, SharedRates, SharedSlots, Stats};
use ipc::{Channel, Identity, ProcessEvent, ReceivedMessage, SupervisorCommand};

/// The link of a server to its supervisor.
pub struct SupervisorLink {
    /// Carries commands to this process and notices to the supervisor.
    pub channel: Arc<Channel>,
    /// Who this process is.
    pub identity: Identity,
    /// The file of all counters.
    pub counters: Option<OwnedFd>,
    /// The file of the history.
    pub history: Option<OwnedFd>,
    /// The file of certificates and keys, where TLS is spoken.
    pub credentials: Option<OwnedFd>,
    /// What to say once the server can serve.
    pub ready: ProcessEvent,
}

impl SupervisorLink {
    /// This process's part of the counters of all.
    pub(super) fn stats(&self, shape: &Shape) -> Result<Stats, StartFault> {
        let missing = || io::Error::other("the supervisor has not handed over its file");
        let stats = match (&self.counters, &self.identity.segment) {
            (Some(file), Some(segment)) => Stats::shared(file.as_fd(), segment, shape),
            _ => Err(missing()),
        };
        stats.map_err(|error| start_fault("cannot keep counters", &error))
    }

    /// Where requests are kept that have ended. Without it the process serves all the same.
    pub(super) fn history(&self) -> Option<&'static RequestHistory> {
        let (file, names) = (self.history.as_ref()?, self.identity.history?);
        match RequestHistory::open(file.as_fd(), names) {
            // For the life of the process, as the counters.
            Ok(history) => Some(Box::leak(Box::new(history))),
            Err(error) => {
                say(&format!("no history of requests: {error}"));
                None
            }
        }
    }

    /// What all processes have of the slots of upstream servers.
    pub(super) fn slots(&self) -> io::Result<SharedSlots> {
        let row = self.identity.segment.and_then(|segment| segment.row);
        match (&self.counters, row) {
            (Some(file), Some(row)) => SharedSlots::shared(file.as_fd(), row),
            // More processes than there are rows: this one counts alone.
            _ => SharedSlots::private(),
        }
    }

    /// When clients may ask again, for all processes.
    pub(super) fn rates(&self) -> io::Result<SharedRates> {
        match &self.counters {
            Some(file) => SharedRates::shared(file.as_fd()),
            None => SharedRates::private(),
        }
    }

    /// Sends the notice that the server can serve, and performs the supervisor's commands from now on.
    pub(super) fn follow(
        self,
        handle: ServerHandle,
        events: mpsc::Sender<Event>,
        mut stacks: StackReporter,
    ) -> io::Result<()> {
        let SupervisorLink { channel, ready, .. } = self;
        let follow = {
            let channel = Arc::clone(&channel);
            move || {
                while let Ok(Some(received)) = channel.receive() {
                    match received.message {
                        SupervisorCommand::Stack { number, id } => stacks.report(number, id),
                        _ => perform(received, &handle, &events, &channel),
                    }
                }
                // The supervisor is gone, and no other process gets the sockets: what waits in them is this process's.
                handle.drain_alone();
            }
        };
        thread::Builder::new()
            .name("mp-supervised".to_owned())
            .spawn(follow)?;
        channel.send(&ready, &[])
    }
}

fn perform(
    received: ReceivedMessage<SupervisorCommand>,
    handle: &ServerHandle,
    events: &mpsc::Sender<Event>,
    channel: &Arc<Channel>,
) {
    match received.message {
        SupervisorCommand::StartAccepting(listeners) => {
            for (listener, socket) in listeners.into_iter().zip(received.fds) {
                if let Err(error) = handle.start_accepting(listener, socket) {
                    say(&format!("cannot accept from a socket: {error}"));
                }
            }
        }
        SupervisorCommand::StopAccepting(keys) => {
            keys.into_iter().for_each(|key| handle.stop_accepting(key));
        }
        SupervisorCommand::Drain {
            closing,
            is_patient,
            timeout_ms,
        } => handle.drain(Drain {
            closing: Closing::These(closing),
            idle: match is_patient {
                true => Idle::Awaited,
                false => Idle::Closed,
            },
            timeout: Duration::from_millis(timeout_ms),
        }),
        // A server that has ended can be neither cut nor reopen files.
        SupervisorCommand::Cut => drop(events.send(Event::Cut)),
        SupervisorCommand::Reopen => drop(events.send(Event::Reopen)),
        command @ (SupervisorCommand::TakeCredentials
        | SupervisorCommand::TakeChallenges
        | SupervisorCommand::TakeCertificates) => match received.fds.first() {
            Some(file) => take_file(&command, file, handle),
            None => say("the supervisor told of a file without its descriptor"),
        },
        SupervisorCommand::Heartbeat(number) => handle.heartbeat(number),
        SupervisorCommand::Reshape {
            pool,
            threads_min,
            threads_max,
            number,
        } => {
            if !handle.reshape(&pool, threads_min, threads_max) {
                say(&format!(
                    "the supervisor told of a pool `{pool}` that is not there"
                ));
            } else if number != 0 {
                // A supervisor that is gone asks no longer.
                let _ = channel.send(&ProcessEvent::Confirmed { number }, &[]);
            }
        }
        SupervisorCommand::Confirm(number) => {
            let channel = Arc::clone(channel);
            // A driver may call this, which must not wait: a supervisor that reads nothing for long
            // answers without it.
            handle
                .confirm(move || drop(channel.send_now(&ProcessEvent::Confirmed { number }, &[])));
        }
        SupervisorCommand::Begin(_)
        | SupervisorCommand::Fork
        | SupervisorCommand::Stack { .. }
        | SupervisorCommand::AdminAnswer(_) => {
            say("the supervisor gave an order to the wrong process");
        }
    }
}

/// Takes what one of the supervisor's files holds.
fn take_file(command: &SupervisorCommand, file: &OwnedFd, handle: &ServerHandle) {
    let taken = match command {
        SupervisorCommand::TakeCredentials => handle.take_credentials(file),
        SupervisorCommand::TakeChallenges => {
            payload::from_file(file.as_fd()).map(|challenges| handle.take_challenges(challenges))
        }
        SupervisorCommand::TakeCertificates => {
            payload::from_file(file.as_fd()).map(|all| handle.take_certificates(all))
        }
        _ => Ok(()),
    };
    if let Err(error) = taken {
        let what = match command {
            SupervisorCommand::TakeChallenges => "challenges",
            SupervisorCommand::TakeCertificates => "state of the certificates",
            _ => "certificates",
        };
        say(&format!("cannot use the new {what}: {error}"));
    }
}
