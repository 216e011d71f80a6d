//! What a pipe leaves to the next one: what may still come back from each server, and, where there
//! are several of them, how far the QoS 2 messages are that went there.
//!
//! One server is told what the session here says: that hears PUBREC, has the message no more, and
//! says PUBREL until it is answered. To another server PUBREL would mean nothing, and the message
//! would be lost. So with several the session here hears nothing of a message before it is done:
//!
//! ```text
//!          PUBLISH        PUBREC, then PUBREL         PUBCOMP: the session here has it no more
//!     - -------------> Sent ---------------> Taken ------------------------------------------> -
//!                        |                     |
//!                        +---------------------+--> stale: done at another server, and released
//!                                                   at this one when the bridge is back there
//! ```
//!
//! A server that still has an id takes what comes under it for what it has, so there nothing goes
//! out before all that is stale has been released.

use super::loop_guard::LoopGuard;
use super::loops::CarriedMessages;
use mqtt::PacketId;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub struct FailoverState {
    /// The server that the pipe leads to.
    current: usize,
    servers: Vec<FailoverServer>,
    pub(super) carried: CarriedMessages,
}

#[derive(Debug, Default)]
struct FailoverServer {
    /// This process was there, so it knows what the server has.
    is_known: bool,
    echoes: LoopGuard,
    open: HashMap<PacketId, Qos2Step>,
    /// Ids that it may still have taken, of messages that are done.
    stale: HashSet<PacketId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Qos2Step {
    Sent,
    Taken,
}

/// Origin of the exchange that a PUBCOMP ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PubCompKind {
    /// The session here waits for nothing.
    Stale,
    /// An exchange that the local session does not know.
    Whole,
    /// PUBREL of the session here.
    Release,
}

impl FailoverState {
    pub fn for_servers(servers: usize) -> FailoverState {
        let servers = (0..servers).map(|_| FailoverServer::default()).collect();
        FailoverState { current: 0, servers, carried: CarriedMessages::default() }
    }

    /// A new connection, to a session there that was begun anew if it was not present. `was_left`
    /// when a message may have been half-way, in this process or in one before it.
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

    /// The session here has been begun anew: its ids mean something else.
    pub fn reset_local(&mut self) {
        for server in &mut self.servers {
            server.stale.extend(server.open.drain().map(|(id, _)| id));
        }
    }

    pub(super) fn loop_guard(&mut self) -> &mut LoopGuard {
        &mut self.current_server().echoes
    }

    /// Ids that are to be released.
    pub(super) fn stale(&self) -> &HashSet<PacketId> {
        &self.servers[self.current].stale
    }

    /// Whether the server has it, so that PUBREL is what is missing [MQTT-4.3.3-6].
    pub(super) fn record_sent(&mut self, id: PacketId, is_again: bool) -> bool {
        let has_several = self.has_several_servers();
        let open = &mut self.current_server().open;
        let is_there = has_several && is_again && open.get(&id) == Some(&Qos2Step::Taken);
        if !is_there {
            open.insert(id, Qos2Step::Sent);
        }
        is_there
    }

    /// PUBREC came. Whether it is for something that went there.
    pub(super) fn record_pubrec(&mut self, id: PacketId) -> bool {
        let step = self.current_server().open.get_mut(&id);
        step.map(|step| *step = Qos2Step::Taken).is_some()
    }

    /// PUBCOMP came.
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

    /// Whether there is something that another server, or another process, would send again.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.servers[self.current].open.is_empty()
    }

    /// The session here hears that it need not keep a message.
    pub(super) fn record_done(&mut self, id: PacketId) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            if server.open.remove(&id).is_some() && at != self.current {
                server.stale.insert(id);
            }
        }
    }

    /// Whether the session here hears of a message once it is done, and not before.
    pub(super) fn has_several_servers(&self) -> bool {
        self.servers.len() > 1
    }

    fn current_server(&mut self) -> &mut FailoverServer {
        &mut self.servers[self.current]
    }
}
