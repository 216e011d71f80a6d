//! Events of the broker for operators: [`BrokerEvent`], which the engine turns into log lines. An
//! event is recorded once, at the decision, with the names of the connection and the session.

use crate::access_rules::acl_rules::DenialCause;
use crate::counters::DropReason;
use crate::ids::{ConnId, MonotonicMs};
use crate::log_rate_limiter::LogRateLimiter;
use crate::message::Message;
use crate::peer::PeerAddress;
use crate::refusal::Refusal;
use mqtt::{QoS, ReasonCode, Violation};
use rules::Value;
use std::sync::Arc;

/// An event for the log, for sinks and for event rules: see `fields` and `rules::events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    Connected {
        client_id: Box<str>,
        conn: ConnId,
        peer: PeerAddress,
        version: mqtt::ProtocolVersion,
        session_present: bool,
        keep_alive_s: u16,
        /// The client's keep-alive exceeds `keep_alive_s_max`: MQTT 3.x cannot announce a lower
        /// value.
        keeps_own_keep_alive: bool,
    },
    /// The client sent DISCONNECT.
    Disconnected {
        client_id: Box<str>,
        conn: ConnId,
        reason: ReasonCode,
    },
    /// The transport ended without DISCONNECT.
    Lost {
        client_id: Box<str>,
        conn: ConnId,
    },
    TakenOver {
        client_id: Box<str>,
        by: PeerAddress,
    },
    Violated {
        client_id: Box<str>,
        conn: ConnId,
        peer: PeerAddress,
        violation: Violation,
        /// Details of the detection, and the deciding option where there is one.
        detail: Box<str>,
        /// Number of events withheld by `LogBurstLimiter` before this event, here and below.
        withheld: u64,
    },
    /// The broker refused a CONNECT, or ended an accepted connection, with a [`Refusal`].
    Refused {
        /// The client id of CONNECT, if there is no session.
        client_id: Box<str>,
        user: Option<Arc<str>>,
        conn: ConnId,
        peer: PeerAddress,
        refusal: Refusal,
        /// Whether the client had received its CONNACK.
        was_in: bool,
        withheld: u64,
    },
    /// A CONNECT was refused, or an accepted client disconnected, because the `BanList` has its
    /// value.
    Banned {
        client_id: Box<str>,
        peer: PeerAddress,
        /// Kind of the banned value: `address`, `client id` or `user`.
        by: &'static str,
        reason: Arc<str>,
    },
    /// A client exceeded `flapping_count_max` and is banned for `ban_s` seconds.
    Flapped {
        client_id: Box<str>,
        count: u32,
        ban_s: u32,
    },
    /// A connection was closed right after accept. At most one event per second, with the `count`
    /// since the last event.
    TurnedAway {
        peer: PeerAddress,
        why: Box<str>,
        count: u64,
    },
    /// A connection ended before its CONNECT: the PROXY header or the handshake was malformed or
    /// timed out. At most one event per second and shard, with the `count` since the last event.
    NotOpened {
        peer: PeerAddress,
        why: Box<str>,
        count: u64,
    },
    SessionEnded {
        client_id: Box<str>,
        expired: bool,
    },
    Subscribed {
        client_id: Box<str>,
        filter: Box<str>,
        code: u8,
    },
    Unsubscribed {
        client_id: Box<str>,
        filter: Box<str>,
        code: u8,
    },
    /// The process is out of descriptors or memory: connections wait in the backlog until
    /// `AcceptResumed`.
    AcceptFailed {
        fault: Box<str>,
    },
    /// The descriptors for clients (`limit`) are used up: connections wait in the listener's
    /// backlog, and `reserved` descriptors stay free for the rest of the process.
    AcceptPaused {
        limit: u64,
        reserved: u64,
    },
    /// All connections in the backlog have been accepted, after `AcceptFailed` or `AcceptPaused`.
    AcceptResumed,
    /// The time of day was changed by `by_ms`, forward or back, as NTP does after a start.
    TimeOfDayStepped {
        by_ms: i64,
    },
    /// The process did not run for `ms`: it was stopped, or the host slept.
    ProcessPaused {
        ms: u64,
    },
    /// The disk refused a write. The store retries, and acknowledgements wait for the write.
    StoreFailing {
        fault: Box<str>,
    },
    StoreRecovered,
    /// The store has no room: requests which need a new record are refused.
    StoreFull,
    StoreHasRoom,
    /// A record of the store could not be read.
    StoreUnreadable {
        fault: Box<str>,
    },
    /// A client has left a message unacknowledged for long: see `StallSearch`.
    WindowStalled {
        client_id: Box<str>,
        packet_id: u16,
        age_s: u64,
        /// Number of the client's unacknowledged messages.
        unacknowledged: u16,
        /// Whether the client's window has no room for another message.
        is_full: bool,
        withheld: u64,
    },
    /// Number of events which a `LogBurstLimiter` did not report in the past second.
    Withheld {
        what: WithheldKind,
        count: u64,
    },
    /// Log line for a row of a rule with the action `logs_rows`.
    RulePrinted {
        rule: Arc<str>,
        row: Box<str>,
        withheld: u64,
    },
    /// A rule failed. The message which triggered the rule is delivered all the same.
    RuleFailed {
        rule: Arc<str>,
        why: Box<str>,
        withheld: u64,
    },
    /// Access rules denied a client's action. At most one event per second and client, with the
    /// `count` since the last event.
    Denied {
        client_id: Box<str>,
        user: Option<Arc<str>>,
        deed: &'static str,
        topic: Box<str>,
        cause: DenialCause,
        count: u64,
    },
    /// Messages for a client were dropped. At most one event per second and client, with the
    /// `count` since the last event.
    Dropped {
        client_id: Box<str>,
        drop: crate::counters::DropReason,
        count: u64,
    },
    /// The outcome of a message's delivery, reported if `EventOptions::delivery` requests it.
    Delivery {
        /// Name of the event for sinks, as in `EVENTS`.
        event: &'static str,
        client_id: Box<str>,
        user: Option<Arc<str>>,
        qos: QoS,
        message: Message,
    },
    /// Number of delivery events beyond the bound of one input.
    DeliveriesSkipped {
        event: &'static str,
        count: u64,
    },
    /// A packet of a traced connection, if `EventOptions::trace` is set. `packet` is a line of the
    /// transcript language.
    Traced {
        client_id: Box<str>,
        peer: PeerAddress,
        sent: bool,
        packet: Box<str>,
    },
}

impl BrokerEvent {
    /// Returns the client id with its namespace, for events about a client.
    pub fn client_id(&self) -> Option<&str> {
        match self {
            BrokerEvent::Connected { client_id, .. }
            | BrokerEvent::Denied { client_id, .. }
            | BrokerEvent::Disconnected { client_id, .. }
            | BrokerEvent::Dropped { client_id, .. }
            | BrokerEvent::Delivery { client_id, .. }
            | BrokerEvent::Lost { client_id, .. }
            | BrokerEvent::Refused { client_id, .. }
            | BrokerEvent::SessionEnded { client_id, .. }
            | BrokerEvent::Subscribed { client_id, .. }
            | BrokerEvent::TakenOver { client_id, .. }
            | BrokerEvent::Unsubscribed { client_id, .. }
            | BrokerEvent::Violated { client_id, .. } => Some(client_id),
            _ => None,
        }
    }

    /// Returns the fields for sinks and rules, without the client id: see `client_id`.
    pub fn fields(&self) -> Vec<(&'static str, Value<'static>)> {
        let text = |text: &dyn std::fmt::Display| Value::Text(text.to_string().into());
        let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        match self {
            BrokerEvent::Connected { peer, version, session_present, keep_alive_s, .. } => vec![
                ("peername", text(peer)),
                ("proto_ver", text(version)),
                ("session_present", Value::Bool(*session_present)),
                ("keepalive", Value::Int((*keep_alive_s).into())),
            ],
            BrokerEvent::Disconnected { reason, .. } => vec![("reason", text(reason))],
            BrokerEvent::Lost { .. } => vec![("reason", Value::text("connection lost"))],
            BrokerEvent::Violated { peer, violation, withheld, .. } => vec![
                ("reason", text(&violation.description())),
                ("peername", text(peer)),
                ("withheld", number(*withheld)),
            ],
            BrokerEvent::Refused { peer, refusal, withheld, .. } => vec![
                ("reason", text(&refusal.reason())),
                ("peername", text(peer)),
                ("withheld", number(*withheld)),
            ],
            BrokerEvent::TakenOver { by, .. } => vec![("peername", text(by))],
            BrokerEvent::SessionEnded { expired, .. } => {
                vec![("reason", Value::text(if *expired { "expired" } else { "ended" }))]
            }
            BrokerEvent::Subscribed { filter, code, .. }
            | BrokerEvent::Unsubscribed { filter, code, .. } => {
                vec![("topic", text(filter)), ("reason_code", Value::Int((*code).into()))]
            }
            BrokerEvent::Denied { user, deed, topic, count, .. } => vec![
                ("username", user.as_ref().map_or(Value::Null, |user| text(user))),
                ("action", Value::text(deed)),
                ("topic", text(topic)),
                ("count", number(*count)),
            ],
            BrokerEvent::Dropped { drop, count, .. } => {
                vec![("reason", Value::text(drop.name())), ("count", number(*count))]
            }
            BrokerEvent::Delivery { user, qos, message, .. } => vec![
                ("username", user.as_ref().map_or(Value::Null, |user| text(user))),
                ("topic", text(&message.topic())),
                ("qos", Value::Int(*qos as i64)),
                ("retain", Value::Bool(message.retain())),
                ("payload", Value::Bytes(message.payload().to_vec().into())),
            ],
            _ => Vec::new(),
        }
    }
}

/// Kind of the events counted by [`BrokerEvent::Withheld`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithheldKind {
    /// Connections that were refused or ended.
    Connections,
    /// Rows and failures of rules.
    Rules,
    /// Clients with a stalled window.
    Stalls,
}

/// Limits reports of peers refused before CONNECT to one per second. A report of withheld peers
/// names the first of them.
#[derive(Debug)]
pub(crate) struct PeerLog {
    limiter: LogRateLimiter,
    withheld: Option<(PeerAddress, Box<str>)>,
}

impl Default for PeerLog {
    fn default() -> PeerLog {
        PeerLog { limiter: LogRateLimiter::new(1), withheld: None }
    }
}

/// Largest number of log lines of one kind per second, for events that any unauthenticated client
/// can cause.
pub(crate) const BURST_LINES_PER_S: u16 = 20;

impl PeerLog {
    /// Counts a peer. Returns the peer to report, and the number of peers, if a report is due.
    pub(crate) fn count(
        &mut self,
        now: MonotonicMs,
        peer: PeerAddress,
        why: &str,
    ) -> Option<(PeerAddress, Box<str>, u64)> {
        let Some(count) = self.limiter.count(1, now) else {
            self.withheld.get_or_insert_with(|| (peer, why.into()));
            return None;
        };
        self.withheld = None;
        Some((peer, why.into(), count))
    }

    pub(crate) fn flush(&mut self, now: MonotonicMs) -> Option<(PeerAddress, Box<str>, u64)> {
        let (peer, why) = self.withheld.take()?;
        Some((peer, why, self.limiter.flush(now)?))
    }
}

/// Dropped messages of one session, by `DropReason`, since the last report.
#[derive(Debug, Default)]
pub(crate) struct WithheldDrops(pub(crate) [u64; crate::counters::DROPS]);

impl WithheldDrops {
    pub(crate) fn events<'a>(
        &self,
        client_id: &'a str,
    ) -> impl Iterator<Item = BrokerEvent> + use<'a> {
        let told = self.0.iter().zip(DropReason::ALL).filter(|(count, _)| **count > 0);
        let told: Vec<_> = told.map(|(count, drop)| (*count, drop)).collect();
        told.into_iter().map(|(count, drop)| BrokerEvent::Dropped {
            client_id: client_id.into(),
            drop,
            count,
        })
    }
}
