//! State which a relay leaves to the next one: exchanges open at each server, and with several
//! servers the step of each QoS 2 message.
//!
//! With one server the local session sees every acknowledgement: after PUBREC it drops the message
//! and repeats PUBREL. Another server would not know that PUBREL, and the message would be lost. So
//! with several servers the local session gets no acknowledgement before the exchange is complete:
//!
//! ```text
//!          PUBLISH        PUBREC, then PUBREL         PUBCOMP: local session drops the message
//!     - -------------> Sent ---------------> Taken ------------------------------------------> -
//!                        |                     |
//!                        +---------------------+--> stale: completed at another server, and
//!                                                   released when the bridge returns
//! ```
//!
//! A server which still holds a packet id takes a new message with this id for a duplicate. So the
//! relay sends no message to a server before all stale ids are released there.

use super::loop_guard::LoopGuard;
use super::loops::CarriedMessages;
use mqtt::PacketId;
use std::collections::{HashMap, HashSet};

/// Exchanges of a bridge at all of its servers. Moves from relay to relay.
#[derive(Debug, Default)]
pub struct FailoverState {
    /// Index of the server to which the relay is connected.
    current: usize,
    servers: Vec<FailoverServer>,
    pub(super) carried: CarriedMessages,
}

/// Exchanges at one server.
#[derive(Debug, Default)]
struct FailoverServer {
    /// This process was connected to the server before, so `open` and `stale` are complete.
    is_known: bool,
    echoes: LoopGuard,
    open: HashMap<PacketId, Qos2Step>,
    /// Packet ids of completed messages which the server may still hold.
    stale: HashSet<PacketId>,
}

/// Step of a QoS 2 message: `Taken` after PUBREC, see the module's diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Qos2Step {
    Sent,
    Taken,
}

/// Origin of the exchange which a PUBCOMP ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PubCompKind {
    /// A stale id: the local session waits for no acknowledgement.
    Stale,
    /// An exchange whose steps the local session did not see.
    Whole,
    /// The local session sent PUBREL and waits for PUBCOMP.
    Release,
}

impl FailoverState {
    pub fn for_servers(servers: usize) -> FailoverState {
        let servers = (0..servers).map(|_| FailoverServer::default()).collect();
        FailoverState { current: 0, servers, carried: CarriedMessages::default() }
    }

    /// Records a new connection. Without a session at the server all ids are free. `was_left`: a
    /// message may have been in flight at the server, in this process or an earlier one; if this
    /// process does not know which, all ids are stale.
    pub fn connect_to(&mut self, server: usize, is_present: bool, was_left: bool) {
        self.current = server;
        let here = self.current_server();
        let is_known = std::mem::replace(&mut here.is_known, true);
        if !is_present {
            here.open.clear();
            here.stale.clear();
        } else if was_left && !is_known {
            here.stale = (1..=u16::MAX).filter_map(PacketId::new).collect();
        }
    }

    /// Marks all open exchanges as stale: the local session was created anew and will use their ids
    /// for other messages.
    pub fn reset_local(&mut self) {
        for server in &mut self.servers {
            server.stale.extend(server.open.drain().map(|(id, _)| id));
        }
    }

    pub(super) fn loop_guard(&mut self) -> &mut LoopGuard {
        &mut self.current_server().echoes
    }

    /// Returns the packet ids which have to be released at the current server.
    pub(super) fn stale(&self) -> &HashSet<PacketId> {
        &self.servers[self.current].stale
    }

    /// Records a PUBLISH. Returns true if the server already has the message, so PUBREL has to be
    /// sent instead [MQTT-4.3.3-6].
    pub(super) fn record_sent(&mut self, id: PacketId, is_again: bool) -> bool {
        let has_several = self.has_several_servers();
        let open = &mut self.current_server().open;
        let is_there = has_several && is_again && open.get(&id) == Some(&Qos2Step::Taken);
        if !is_there {
            open.insert(id, Qos2Step::Sent);
        }
        is_there
    }

    /// Records a PUBREC. Returns whether the packet id belongs to a message sent to this server.
    pub(super) fn record_pubrec(&mut self, id: PacketId) -> bool {
        let step = self.current_server().open.get_mut(&id);
        step.map(|step| *step = Qos2Step::Taken).is_some()
    }

    /// Records a PUBCOMP and returns the exchange which ends.
    pub(super) fn record_pubcomp(&mut self, id: PacketId) -> PubCompKind {
        let has_several = self.has_several_servers();
        let here = self.current_server();
        if here.stale.remove(&id) {
            if here.stale.is_empty() {
                here.stale = HashSet::new();
            }
            return PubCompKind::Stale;
        }
        if !has_several {
            here.open.remove(&id);
            return PubCompKind::Release;
        }
        match here.open.get(&id) {
            Some(Qos2Step::Taken) => PubCompKind::Whole,
            _ => PubCompKind::Release,
        }
    }

    /// Whether messages are in flight which another server or another process would send again.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.servers[self.current].open.is_empty()
    }

    /// Records the final acknowledgement to the local session. The id becomes stale at other
    /// servers with an open exchange.
    pub(super) fn record_done(&mut self, id: PacketId) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            if server.open.remove(&id).is_some() && at != self.current {
                server.stale.insert(id);
            }
        }
    }

    /// Whether the local session gets acknowledgements only for complete exchanges.
    pub(super) fn has_several_servers(&self) -> bool {
        self.servers.len() > 1
    }

    fn current_server(&mut self) -> &mut FailoverServer {
        &mut self.servers[self.current]
    }
}
