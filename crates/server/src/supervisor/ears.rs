//! Gives every socket to somebody who accepts from it, and tells those whom it concerns.

use std::collections::BTreeMap;

use super::assign::{self, Kind, Listening};
use super::health::Rescue;
use super::process::Process;
use super::sockets::SocketKey;
use super::{Supervisor, say};
use crate::channel::{EarKey, FDS_LEN_MAX, Order};

/// Sockets that are named in one order.
const DEAFEN_LEN_MAX: usize = 512;

impl Supervisor<'_> {
    /// Makes who accepts from what fit the processes that serve.
    pub(super) fn settle_ears(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let sockets = self.sockets.listeners();
        let listening = self.listening();
        let after = assign::assign(&sockets, &listening, &self.assignment);
        if after == self.assignment {
            return;
        }
        // Who rescues whom is found out anew.
        self.end_rescues();
        let changes = assign::changes(&self.assignment, &after);
        // Everybody hears before anybody stops hearing.
        for (serial, keys) in changes.hear {
            self.tell_hear(serial, &keys);
        }
        for (serial, keys) in changes.deafen {
            self.tell_deafen(serial, &keys);
        }
        self.assignment = after;
    }

    /// Processes of the generation that serves which can accept.
    fn listening(&self) -> Vec<Listening> {
        let Some(serving) = &self.serving else {
            return Vec::new();
        };
        let serving_ones = self
            .processes
            .iter()
            .filter(|one| one.is_serving() && one.generation == serving.id);
        serving_ones
            .map(|one| Listening {
                process: one.serial,
                generation: one.generation,
                slot: one.slot,
                drivers: serving.config.listen.drivers,
            })
            .collect()
    }

    /// A process that was alone is told anew of sockets that others wait for as well from now on: it may have had
    /// one for a driver's own, of which the kernel would tell it each time, and did not take turns.
    pub(super) fn share_queues(&mut self) {
        let shared = self.sockets.listeners().into_iter();
        for listener in shared.filter(|listener| listener.kind == Kind::Shared) {
            let holders = self.assignment.remove(&listener.key);
            for holder in holders.into_iter().flatten() {
                self.tell_deafen(holder.process, &[listener.key.ear(holder.driver)]);
            }
        }
    }

    fn tell_hear(&mut self, serial: u64, keys: &[EarKey]) {
        let is_alone = self.serving.as_ref().is_none_or(|one| one.count() == 1);
        for keys in keys.chunks(FDS_LEN_MAX) {
            let mut orders = Vec::new();
            let mut fds = Vec::new();
            for key in keys {
                let Some((mut order, socket)) = self.sockets.ear(*key) else {
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
            if let Some(process) = self.by_serial(serial) {
                process.heard.extend(orders.iter().map(|order| order.key));
                process.tell(Order::Hear(orders), fds);
            }
        }
    }

    fn tell_deafen(&mut self, serial: u64, keys: &[EarKey]) {
        if let Some(process) = self.by_serial(serial) {
            process.heard.retain(|key| !keys.contains(key));
            // So that each fits into a message.
            for keys in keys.chunks(DEAFEN_LEN_MAX) {
                process.tell(Order::Deafen(keys.to_vec()), Vec::new());
            }
        }
    }

    pub(super) fn by_serial(&mut self, serial: u64) -> Option<&mut Process> {
        self.processes.iter_mut().find(|one| one.serial == serial)
    }

    /// Another driver accepts from a socket as well.
    pub(super) fn begin_rescue(&mut self, socket: SocketKey, rescue: Rescue) {
        let key = rescue.key(socket);
        self.tell_hear(rescue.process, &[key]);
    }

    /// It does so no longer.
    pub(super) fn end_rescue(&mut self, socket: SocketKey, rescue: Rescue) {
        self.tell_deafen(rescue.process, &[rescue.key(socket)]);
    }

    fn end_rescues(&mut self) {
        for (socket, rescues) in self.take_rescues() {
            for rescue in rescues {
                self.end_rescue(socket, rescue);
            }
        }
    }

    /// Which process and driver each socket belongs to that is not shared by all.
    pub(super) fn holders(&self) -> BTreeMap<SocketKey, assign::Holder> {
        let own = self.sockets.listeners().into_iter();
        own.filter(|listener| listener.kind == Kind::Own)
            .filter_map(|listener| {
                let holders = self.assignment.get(&listener.key)?;
                Some((listener.key, *holders.first()?))
            })
            .collect()
    }
}
