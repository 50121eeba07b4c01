//! Commands to accept: tells each process which sockets to accept from, as `listener_assignment` says.

use std::collections::BTreeMap;

use super::listener_assignment::{self, AcceptingProcess, Holder};
use super::process::ChildProcess;
use super::sockets::SocketKey;
use super::{Supervisor, say};
use os::invariant;

use ipc::{FDS_LEN_MAX, ListenerId, SupervisorCommand};

/// Sockets that one command names.
const STOP_LEN_MAX: usize = 512;

impl Supervisor<'_> {
    /// Assigns all listening sockets to the processes that serve now, and tells the processes.
    pub(super) fn assign_listeners(&mut self) {
        if self.plan.is_stopping() {
            return;
        }
        let sockets = self.sockets.listeners();
        let listening = self.listening();
        let after = listener_assignment::assign(&sockets, &listening, &self.assignment);
        if after == self.assignment {
            return;
        }
        // Stalled drivers are looked for again, under the new assignment.
        self.end_rescues();
        let changes = listener_assignment::changes(&self.assignment, &after);
        // All processes start to accept before any stops.
        for (serial, keys) in changes.start {
            self.tell_start_accepting(serial, &keys);
        }
        for (serial, keys) in changes.stop {
            self.tell_stop_accepting(serial, &keys);
        }
        // Only what was told counts: an order that cannot be sent belongs to a process that ends.
        self.assignment = after;
    }

    /// Processes of the generation that serves which can accept.
    fn listening(&self) -> Vec<AcceptingProcess> {
        let Some(serving) = self.serving() else {
            return Vec::new();
        };
        let serving_ones = self
            .processes
            .iter()
            .filter(|one| one.is_serving() && one.generation == serving.id);
        serving_ones
            .map(|one| AcceptingProcess {
                process: one.serial,
                generation: one.generation,
                slot: one.slot,
                drivers: serving.config.listen.drivers,
            })
            .collect()
    }

    /// A process that was alone is told anew of sockets that others wait for as well from now on.
    pub(super) fn share_queues(&mut self) {
        let shared = self.sockets.listeners().into_iter();
        for listener in shared.filter(|listener| listener.is_shared) {
            // A process may have had the socket for a driver's own, of which the kernel would tell it each time, and
            // did not take turns.
            let holders = self.assignment.remove(&listener.key);
            for holder in holders.into_iter().flatten() {
                self.tell_stop_accepting(holder.process, &[holder.listener(listener.key)]);
            }
        }
    }

    pub(super) fn tell_start_accepting(&mut self, serial: u64, keys: &[ListenerId]) {
        let is_alone = self.serving().is_none_or(|one| one.count() == 1);
        // As many descriptors as one message takes.
        for keys in keys.chunks(FDS_LEN_MAX) {
            let mut orders = Vec::new();
            let mut fds = Vec::new();
            for key in keys {
                let Some((mut order, socket)) = self.sockets.listener(*key) else {
                    continue;
                };
                order.takes_turns = order.is_shared && !is_alone;
                match socket.try_clone_to_owned() {
                    Ok(socket) => {
                        orders.push(order);
                        fds.push(socket);
                    }
                    Err(error) => say(&format!("cannot hand a socket over: {error}")),
                }
            }
            // A process pairs them by their order: one too few would have it accept from another socket.
            invariant!(
                orders.len() == fds.len(),
                "{} sockets are handed over for {} orders",
                fds.len(),
                orders.len()
            );
            if let Some(process) = self.by_serial(serial) {
                process
                    .accepts_from
                    .extend(orders.iter().map(|order| order.key));
                process.tell(SupervisorCommand::StartAccepting(orders), fds);
            }
        }
    }

    pub(super) fn tell_stop_accepting(&mut self, serial: u64, keys: &[ListenerId]) {
        if let Some(process) = self.by_serial(serial) {
            // What it is told, not what it does by now: until it obeys, it accepts what comes, and loses nothing.
            process.accepts_from.retain(|key| !keys.contains(key));
            // So that each fits into a message.
            for keys in keys.chunks(STOP_LEN_MAX) {
                process.tell(SupervisorCommand::StopAccepting(keys.to_vec()), Vec::new());
            }
        }
    }

    pub(super) fn by_serial(&mut self, serial: u64) -> Option<&mut ChildProcess> {
        self.processes.iter_mut().find(|one| one.serial == serial)
    }

    /// Which process and driver each socket belongs to that is not shared by all.
    pub(super) fn holders(&self) -> BTreeMap<SocketKey, Holder> {
        let own = self.sockets.listeners().into_iter();
        own.filter(|listener| !listener.is_shared)
            .filter_map(|listener| {
                let holders = self.assignment.get(&listener.key)?;
                Some((listener.key, *holders.first()?))
            })
            .collect()
    }
}
