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

use super::echoes::Echoes;
use super::loops::CarriedMessages;
use mqtt::PacketId;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(crate) struct Past {
    /// The server that the pipe leads to.
    here: usize,
    servers: Vec<Server>,
    pub(super) carried: CarriedMessages,
}

#[derive(Debug, Default)]
struct Server {
    /// This process was there, so it knows what the server has.
    is_known: bool,
    echoes: Echoes,
    open: HashMap<PacketId, Step>,
    /// Ids that it may still have taken, of messages that are done.
    stale: HashSet<PacketId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sent,
    Taken,
}

/// What PUBCOMP was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// The session here waits for nothing.
    Stale,
    /// What the session here has heard nothing of.
    Whole,
    /// PUBREL of the session here.
    Release,
}

impl Past {
    pub(crate) fn of(servers: usize) -> Past {
        let servers = (0..servers).map(|_| Server::default()).collect();
        Past { here: 0, servers, carried: CarriedMessages::default() }
    }

    /// A new connection, to a session there that was begun anew if it was not present. `was_left`
    /// when a message may have been half-way, in this process or in one before it.
    pub(crate) fn arrive(&mut self, server: usize, is_present: bool, was_left: bool) {
        self.here = server;
        let here = self.here();
        let is_known = std::mem::replace(&mut here.is_known, true);
        if !is_present {
            here.open.clear();
            here.stale.clear();
        } else if was_left && !is_known {
            here.stale = (1..=u16::MAX).filter_map(PacketId::new).collect();
        }
    }

    /// The session here has been begun anew: its ids mean something else.
    pub(crate) fn forget_near(&mut self) {
        for server in &mut self.servers {
            server.stale.extend(server.open.drain().map(|(id, _)| id));
        }
    }

    pub(super) fn echoes(&mut self) -> &mut Echoes {
        &mut self.here().echoes
    }

    /// Ids that are to be released.
    pub(super) fn stale(&self) -> &HashSet<PacketId> {
        &self.servers[self.here].stale
    }

    /// Whether the server has it, so that PUBREL is what is missing [MQTT-4.3.3-6].
    pub(super) fn send(&mut self, id: PacketId, is_again: bool) -> bool {
        let has_several = self.has_several();
        let open = &mut self.here().open;
        let is_there = has_several && is_again && open.get(&id) == Some(&Step::Taken);
        if !is_there {
            open.insert(id, Step::Sent);
        }
        is_there
    }

    /// PUBREC came. Whether it is for something that went there.
    pub(super) fn take(&mut self, id: PacketId) -> bool {
        let step = self.here().open.get_mut(&id);
        step.map(|step| *step = Step::Taken).is_some()
    }

    /// PUBCOMP came.
    pub(super) fn complete(&mut self, id: PacketId) -> Completed {
        let has_several = self.has_several();
        let here = self.here();
        if here.stale.remove(&id) {
            if here.stale.is_empty() {
                here.stale = HashSet::new();
            }
            return Completed::Stale;
        }
        if !has_several {
            here.open.remove(&id);
            return Completed::Release;
        }
        match here.open.get(&id) {
            Some(Step::Taken) => Completed::Whole,
            _ => Completed::Release,
        }
    }

    /// Whether there is something that another server, or another process, would send again.
    pub(super) fn is_half_way(&self) -> bool {
        !self.servers[self.here].open.is_empty()
    }

    /// The session here hears that it need not keep a message.
    pub(super) fn done(&mut self, id: PacketId) {
        for (at, server) in self.servers.iter_mut().enumerate() {
            if server.open.remove(&id).is_some() && at != self.here {
                server.stale.insert(id);
            }
        }
    }

    /// Whether the session here hears of a message once it is done, and not before.
    pub(super) fn has_several(&self) -> bool {
        self.servers.len() > 1
    }

    fn here(&mut self) -> &mut Server {
        &mut self.servers[self.here]
    }
}
