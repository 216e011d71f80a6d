//! The protocol state of one client: unfinished publishes, received QoS 2 messages, and its
//! knowledge of its session.

use crate::world::WireId;
use std::collections::BTreeMap;

/// A client and its knowledge of its session, which power cuts make uncertain.
#[derive(Debug, Default)]
pub(crate) struct PowerClient {
    pub(crate) wire: Option<WireId>,
    /// Whether CONNACK was received on this connection.
    pub(crate) connacked: bool,
    /// Whether CONNECT requested a clean start.
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    /// Whether an answer was received which proves that this connection's CONNECT is on the disk.
    pub(crate) is_on_disk: bool,
    /// Shortest and longest possible expiry of the session: a lost CONNECT may have changed it.
    pub(crate) expiries_s: (u32, u32),
    pub(crate) unread: Vec<u8>,
    pub(crate) silent: bool,
    /// Acknowledgements that a silent client has not sent yet.
    pub(crate) held_acks: Vec<String>,
    /// Whether the session certainly exists: if not, the next CONNECT requests a clean start.
    pub(crate) certain: bool,
    /// Time of the last CONNECT, on the world's clock in milliseconds.
    pub(crate) connect_sent_at: u64,
    /// Whether the session may have expired before the last CONNECT.
    pub(crate) is_doubtful: bool,
    /// Earliest and latest possible disconnection: after a cut the disk may hold an earlier one.
    pub(crate) away_from: u64,
    pub(crate) away_upto: u64,
    pub(crate) pending: Vec<PowerPendingPublish>,
    /// Received QoS 2 messages before PUBREL, by packet id.
    pub(crate) received: BTreeMap<u16, String>,
    /// Unacknowledged QoS 1 messages of this connection, by packet id. Their number must not exceed
    /// `window`.
    pub(crate) open: BTreeMap<u16, String>,
    pub(crate) pending_subscribes: Vec<(u16, PendingSubscribe)>,
    pub(crate) window: u16,
}

/// A publish whose acknowledgements are not complete.
#[derive(Debug)]
pub(crate) struct PowerPendingPublish {
    pub(crate) packet_id: u16,
    pub(crate) number: usize,
    pub(crate) line: String,
    /// Whether PUBREC was received.
    pub(crate) received: bool,
}

/// A request whose SUBACK or UNSUBACK is pending. `Nothing` ignores the answer.
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

    /// Returns the lowest free id, so that ids are reused as early as possible.
    pub(crate) fn packet_id(&self) -> u16 {
        let pending = self.pending.iter().map(|pending| pending.packet_id);
        let used: Vec<u16> =
            pending.chain(self.pending_subscribes.iter().map(|(id, _)| *id)).collect();
        (1..u16::MAX).find(|id| !used.contains(id)).unwrap_or(u16::MAX)
    }

    /// Ignores the pending SUBACK of a filter or group that has been unsubscribed meanwhile.
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

    /// Handles an answer which the broker sends only after a sync: session and expiry are now
    /// certain.
    pub(crate) fn mark_durable(&mut self) {
        self.certain = true;
        self.is_on_disk = true;
        self.expiries_s = (self.expiry_s, self.expiry_s);
    }

    /// Discards the session and all its state. Returns the numbers of the abandoned messages.
    pub(crate) fn forget_session(&mut self) -> Vec<usize> {
        self.certain = false;
        self.received.clear();
        self.open.clear();
        self.pending.drain(..).map(|pending| pending.number).collect()
    }
}

impl PowerPendingPublish {
    /// Returns the packet that the publisher sends again after reconnecting [MQTT-4.4.0-1].
    pub(crate) fn resend_line(&self) -> String {
        match self.received {
            true => format!("PUBREL {}", self.packet_id),
            false => {
                self.line.replacen(" qos=1", " qos=1 dup", 1).replacen(" qos=2", " qos=2 dup", 1)
            }
        }
    }
}
