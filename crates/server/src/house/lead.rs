//! A house under a supervisor: its orders come over a channel, and its counters lie where the supervisor
//! reads them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::{Closing, Drain, Event, Idle, Orders, say, start_fault};
use crate::channel::{Channel, Identity, Notice, Order, Received};
use crate::fault::StartFault;
use crate::stats::{Shape, Stats};

/// What ties a house to its supervisor.
pub struct Lead {
    /// Where orders come from and notices go.
    pub channel: Arc<Channel>,
    /// Who this process is.
    pub identity: Identity,
    /// The file of all counters.
    pub counters: Option<OwnedFd>,
    /// What to say once the house can serve.
    pub ready: Notice,
}

impl Lead {
    /// This process's part of the counters of all.
    pub(super) fn stats(&self, shape: &Shape) -> Result<Stats, StartFault> {
        let missing = || io::Error::other("the supervisor has not handed over its file");
        let stats = match (&self.counters, &self.identity.segment) {
            (Some(file), Some(segment)) => Stats::shared(file.as_fd(), segment, shape),
            _ => Err(missing()),
        };
        stats.map_err(|error| start_fault("cannot keep counters", &error))
    }

    /// Says that the house can serve, and follows orders from now on.
    pub(super) fn follow(self, orders: Orders, events: mpsc::Sender<Event>) -> io::Result<()> {
        let Lead { channel, ready, .. } = self;
        let follow = {
            let channel = Arc::clone(&channel);
            move || {
                while let Ok(Some(received)) = channel.receive() {
                    obey(received, &orders, &events, &channel);
                }
                // Nobody is left who would hand the sockets to others: what waits in them is this process's.
                orders.drain_alone();
            }
        };
        thread::Builder::new()
            .name("mp-orders".to_owned())
            .spawn(follow)?;
        channel.send(&ready, &[])
    }
}

fn obey(
    received: Received<Order>,
    orders: &Orders,
    events: &mpsc::Sender<Event>,
    channel: &Arc<Channel>,
) {
    match received.message {
        Order::Hear(ears) => {
            for (ear, socket) in ears.into_iter().zip(received.fds) {
                if let Err(error) = orders.hear(ear, socket) {
                    say(&format!("cannot accept from a socket: {error}"));
                }
            }
        }
        Order::Deafen(keys) => keys.into_iter().for_each(|key| orders.deafen(key)),
        Order::Drain {
            closing,
            is_patient,
            timeout_ms,
        } => orders.drain(Drain {
            closing: Closing::These(closing),
            idle: match is_patient {
                true => Idle::Awaited,
                false => Idle::Closed,
            },
            timeout: Duration::from_millis(timeout_ms),
        }),
        // A house that has ended can be neither cut nor told to open files.
        Order::Cut => drop(events.send(Event::Cut)),
        Order::Reopen => drop(events.send(Event::Reopen)),
        Order::Beat(number) => orders.beat(number),
        Order::Reshape {
            pool,
            threads_min,
            threads_max,
            number,
        } => {
            if !orders.reshape(&pool, threads_min, threads_max) {
                say(&format!(
                    "the supervisor told of a pool `{pool}` that is not there"
                ));
            } else if number != 0 {
                // A supervisor that is gone asks no longer.
                let _ = channel.send(&Notice::Confirmed { number }, &[]);
            }
        }
        Order::Confirm(number) => {
            let channel = Arc::clone(channel);
            // A driver may be the one to say it, and waits for nobody: a supervisor that reads nothing for long
            // answers without it.
            orders.confirm(move || drop(channel.send_now(&Notice::Confirmed { number }, &[])));
        }
        Order::Begin(_) | Order::Fork => say("the supervisor gave an order to the wrong process"),
    }
}
