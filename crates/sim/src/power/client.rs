//! One client's side of the protocol, as the specification has it: what it has sent and not seen
//! finished, what it has got and not released, and what it knows of its session.

use crate::world::WireId;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct PowerClient {
    pub(crate) wire: Option<WireId>,
    /// CONNACK came.
    pub(crate) connacked: bool,
    /// Whether CONNECT asked for a clean start.
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    /// Something came that says that this connection is on the disk.
    pub(crate) is_on_disk: bool,
    /// The shortest and the longest that its session may have, for all that it knows.
    pub(crate) expiries_s: (u32, u32),
    pub(crate) unread: Vec<u8>,
    pub(crate) silent: bool,
    /// Acknowledgements held back.
    pub(crate) held_acks: Vec<String>,
    /// Whether the session is.
    pub(crate) certain: bool,
    /// When it sent CONNECT last.
    pub(crate) connect_sent_at: u64,
    /// Whether its session may have been over by then.
    pub(crate) is_doubtful: bool,
    /// When it went, at the earliest and at the latest.
    pub(crate) away_from: u64,
    pub(crate) away_upto: u64,
    pub(crate) pending: Vec<PowerPendingPublish>,
    /// QoS 2 ids that came and were not released, and the message of each.
    pub(crate) received: BTreeMap<u16, String>,
    /// Unacknowledged QoS 1 messages of this connection.
    pub(crate) open: BTreeMap<u16, String>,
    pub(crate) pending_subscribes: Vec<(u16, PendingSubscribe)>,
    pub(crate) window: u16,
}

/// A publish that its publisher has not seen finished.
#[derive(Debug)]
pub(crate) struct PowerPendingPublish {
    pub(crate) packet_id: u16,
    pub(crate) number: usize,
    pub(crate) line: String,
    /// PUBREC came.
    pub(crate) received: bool,
}

/// A request that SUBACK or UNSUBACK will answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingSubscribe {
    Filter(&'static str),
    Group(usize),
    Nothing,
}

impl PowerClient {
    pub(crate) fn is_connacked(&self) -> bool {
        self.wire.is_some() && self.connacked
    }

    /// The lowest id that is free, so that ids are used again as soon as they may be.
    pub(crate) fn packet_id(&self) -> u16 {
        let pending = self.pending.iter().map(|pending| pending.packet_id);
        let used: Vec<u16> =
            pending.chain(self.pending_subscribes.iter().map(|(id, _)| *id)).collect();
        (1..u16::MAX).find(|id| !used.contains(id)).unwrap_or(u16::MAX)
    }

    /// A SUBACK that is still to come for what is unsubscribed by now means nothing.
    pub(crate) fn cancel_subscribes(&mut self, is: impl Fn(PendingSubscribe) -> bool) {
        for (_, asked) in self.pending_subscribes.iter_mut().filter(|(_, asked)| is(*asked)) {
            *asked = PendingSubscribe::Nothing;
        }
    }

    pub(crate) fn reopen(&mut self, wire: WireId) {
        self.wire = Some(wire);
        self.connacked = false;
        self.is_on_disk = false;
        self.unread.clear();
        self.held_acks.clear();
        self.open.clear();
        self.pending_subscribes.clear();
    }

    /// An answer came that waits for the disk.
    pub(crate) fn mark_durable(&mut self) {
        self.certain = true;
        self.is_on_disk = true;
        self.expiries_s = (self.expiry_s, self.expiry_s);
    }

    /// Forgets the session and everything that belongs to it. Returns the messages that are given
    /// up.
    pub(crate) fn forget_session(&mut self) -> Vec<usize> {
        self.certain = false;
        self.received.clear();
        self.open.clear();
        self.pending.drain(..).map(|pending| pending.number).collect()
    }
}

impl PowerPendingPublish {
    /// Returns the packets that the publisher sends again when it is back [MQTT-4.4.0-1].
    pub(crate) fn resend_line(&self) -> String {
        match self.received {
            true => format!("PUBREL {}", self.packet_id),
            false => {
                self.line.replacen(" qos=1", " qos=1 dup", 1).replacen(" qos=2", " qos=2 dup", 1)
            }
        }
    }
}
