//! The guarantees of the broker across power cuts, and their check:
//!
//! 1. A message whose PUBACK or PUBREC reached its publisher arrives at every session whose SUBACK
//!    came before the message was sent, and at one member of every such group.
//! 2. At QoS 2 it arrives once: at each session, and at one member of each group.
//! 3. First deliveries keep the order of publisher, topic and QoS. Wills are excepted: a will
//!    which a CONNECT replaced exists again if the power fails before the CONNECT is on the disk.
//! 4. The retained message of a topic is the last acknowledged message, or a later one.
//!
//! A delayed message arrives likewise, without order, unless the session unsubscribed meanwhile.
//!
//! All other results are allowed.

use super::{CLIENTS, GROUPS, PowerRetain};
use mqtt::{QoS, filter_matches};
use std::collections::BTreeMap;

/// First index of the publishers whose messages are delayed, after clients and their wills.
pub(crate) const DELAYED: usize = 2 * CLIENTS;

/// Records what clients send and receive, and reports a broken guarantee as an error.
#[derive(Debug)]
pub(crate) struct GuaranteeChecker {
    /// Messages by number, which is the payload.
    messages: Vec<CheckedMessage>,
    /// Sessions by the index of their client.
    sessions: Vec<CheckedSession>,
    /// Shared groups by their index in [`GROUPS`].
    groups: Vec<CheckedGroup>,
    /// Counts publishes, acknowledgements and the like, to compare their order.
    clock: usize,
}

/// A message with the sessions and groups that it is guaranteed to.
#[derive(Debug)]
struct CheckedMessage {
    publisher: usize,
    topic: String,
    qos: QoS,
    retain: PowerRetain,
    sent: usize,
    /// `clock` when the publisher received PUBACK or PUBREC.
    acked: Option<usize>,
    /// `clock` when the publisher abandoned the message.
    given_up: Option<usize>,
    /// Indexes of the sessions each of which must receive the message if it is acknowledged.
    sessions: Vec<usize>,
    /// Indexes of the groups one member of which must receive the message if it is acknowledged.
    groups: Vec<usize>,
}

impl CheckedMessage {
    fn is_delayed(&self) -> bool {
        self.publisher >= DELAYED
    }
}

/// Deliveries of one session or group.
#[derive(Debug, Default)]
struct DeliveryCounts {
    /// Delivered messages, with the number of deliveries at QoS 2.
    came: BTreeMap<usize, usize>,
}

/// Subscriptions and deliveries of one session.
#[derive(Debug, Default)]
struct CheckedSession {
    /// Filters, and whether the SUBACK was received.
    filters: Vec<(&'static str, bool)>,
    /// Groups, and whether the SUBACK was received.
    shares: Vec<(usize, bool)>,
    /// Groups which the session has joined, whose messages may be lost with the session.
    gave: Vec<usize>,
    inbox: DeliveryCounts,
    /// Last new message by publisher, topic and QoS: a lower number afterwards is out of order.
    last: BTreeMap<(usize, String, u8), usize>,
}

/// Deliveries of one shared group.
#[derive(Debug, Default)]
struct CheckedGroup {
    inbox: DeliveryCounts,
}

impl GuaranteeChecker {
    pub(crate) fn new() -> GuaranteeChecker {
        GuaranteeChecker {
            messages: Vec::new(),
            sessions: (0..CLIENTS).map(|_| CheckedSession::default()).collect(),
            groups: GROUPS.iter().map(|_| CheckedGroup::default()).collect(),
            clock: 0,
        }
    }

    fn advance_clock(&mut self) -> usize {
        self.clock += 1;
        self.clock
    }

    /// Records a new message of a client. `publisher` is offset by `CLIENTS` for the client's will,
    /// and by `DELAYED` for a delayed message. Returns the message's number.
    pub(crate) fn publish(
        &mut self,
        publisher: usize,
        topic: &str,
        qos: QoS,
        keep: PowerRetain,
    ) -> usize {
        let sent = self.advance_clock();
        let wants = |session: &CheckedSession| {
            let known = session.filters.iter();
            known.into_iter().any(|(filter, acked)| *acked && filter_matches(filter, topic))
        };
        let sessions = (0..CLIENTS).filter(|client| wants(&self.sessions[*client])).collect();
        let takes = |group: &usize| {
            let members = self.sessions.iter().flat_map(|session| &session.shares);
            let mut members = members.filter(|(joined, acked)| joined == group && *acked);
            filter_matches(GROUPS[*group].1, topic) && members.next().is_some()
        };
        let groups = (0..GROUPS.len()).filter(takes).collect();
        self.messages.push(CheckedMessage {
            publisher,
            topic: topic.into(),
            qos,
            retain: keep,
            sent,
            acked: None,
            given_up: None,
            sessions,
            groups,
        });
        self.messages.len() - 1
    }

    pub(crate) fn on_ack(&mut self, number: usize) {
        let at = self.advance_clock();
        self.messages[number].acked.get_or_insert(at);
    }

    pub(crate) fn on_give_up(&mut self, number: usize) {
        let at = self.advance_clock();
        self.messages[number].given_up.get_or_insert(at);
    }

    pub(crate) fn subscribe(&mut self, client: usize, filter: &'static str) {
        let filters = &mut self.sessions[client].filters;
        if !filters.iter().any(|(known, _)| *known == filter) {
            filters.push((filter, false));
        }
    }

    pub(crate) fn on_suback(&mut self, client: usize, filter: &str) {
        let filters = self.sessions[client].filters.iter_mut();
        filters.filter(|(known, _)| *known == filter).for_each(|(_, acked)| *acked = true);
    }

    /// Handles an UNSUBSCRIBE when it is sent: unacknowledged and delayed messages need not arrive
    /// any more.
    pub(crate) fn unsubscribe(&mut self, client: usize, filter: &str) {
        self.sessions[client].filters.retain(|(known, _)| *known != filter);
        let waits = |message: &&mut CheckedMessage| message.acked.is_none() || message.is_delayed();
        for message in self.messages.iter_mut().filter(waits) {
            message.sessions.retain(|session| *session != client);
        }
    }

    pub(crate) fn join(&mut self, client: usize, group: usize) {
        let CheckedSession { shares, gave, .. } = &mut self.sessions[client];
        gave.push(group);
        if !shares.iter().any(|(known, _)| *known == group) {
            shares.push((group, false));
        }
    }

    pub(crate) fn on_group_suback(&mut self, client: usize, group: usize) {
        let shares = self.sessions[client].shares.iter_mut();
        shares.filter(|(known, _)| *known == group).for_each(|(_, acked)| *acked = true);
    }

    pub(crate) fn leave(&mut self, client: usize, group: usize) {
        self.sessions[client].shares.retain(|(known, _)| *known != group);
        let members = self.sessions.iter().flat_map(|session| &session.shares);
        if members.filter(|(known, acked)| *known == group && *acked).count() == 0 {
            self.waive_group(group, QoS::AtLeastOnce);
        }
    }

    /// Gives up the guarantee for messages of QoS `from` or higher that have not yet arrived at a
    /// shared group.
    fn waive_group(&mut self, group: usize, from: QoS) {
        let came = &self.groups[group].inbox.came;
        let qos = |message: &CheckedMessage| message.qos.min(qos_of(GROUPS[group].2));
        for (number, message) in self.messages.iter_mut().enumerate() {
            if qos(message) >= from && !came.contains_key(&number) {
                message.groups.retain(|known| *known != group);
            }
        }
    }

    /// Ends a session. QoS 2 messages which a group had sent to the session are not sent to another
    /// member [MQTT-4.8.2-5].
    pub(crate) fn end_session(&mut self, client: usize) {
        let groups = std::mem::take(&mut self.sessions[client].gave);
        for group in groups {
            self.waive_group(group, QoS::ExactlyOnce);
            self.leave(client, group);
        }
        self.sessions[client] = CheckedSession::default();
        self.waive_session(client);
    }

    /// Removes the guarantee for messages that have not arrived at a client's session.
    pub(crate) fn waive_session(&mut self, client: usize) {
        for message in &mut self.messages {
            message.sessions.retain(|session| *session != client);
        }
    }

    /// Checks a delivery to a client: at most once at QoS 2, and in order for first deliveries.
    pub(crate) fn on_delivery(
        &mut self,
        client: usize,
        number: usize,
        qos: QoS,
        group: Option<usize>,
    ) -> Result<(), String> {
        let Some(message) = self.messages.get(number) else {
            return Err(format!("c{client} got m{number}, which nobody sent"));
        };
        let session = &mut self.sessions[client];
        let inbox = match group {
            Some(group) => &mut self.groups[group].inbox,
            None => &mut session.inbox,
        };
        let is_new = !inbox.came.contains_key(&number);
        let came = inbox.came.entry(number).or_default();
        *came += usize::from(qos == QoS::ExactlyOnce);
        if *came > 1 {
            let through = group.map_or(String::new(), |group| format!(" of {}", GROUPS[group].0));
            return Err(format!("m{number} came to c{client}{through} a second time at QoS 2"));
        }
        // A message sent before the subscription may arrive when the publisher sends it again.
        let is_ordered = group.is_none() && message.publisher < CLIENTS;
        if is_ordered && is_new && message.sessions.contains(&client) {
            let stream = (message.publisher, message.topic.clone(), message.qos as u8);
            let last = session.last.insert(stream, number);
            if let Some(last) = last.filter(|last| *last > number) {
                return Err(format!("m{number} came to c{client} after m{last}"));
            }
        }
        Ok(())
    }

    /// Checks that all acknowledged messages arrived, after all clients have reconnected and read.
    pub(crate) fn check_missing(&self) -> Result<(), String> {
        for (number, message) in self.messages.iter().enumerate() {
            if message.acked.is_none() {
                continue;
            }
            let absent =
                |client: &&usize| !self.sessions[**client].inbox.came.contains_key(&number);
            if let Some(client) = message.sessions.iter().find(absent) {
                return Err(format!("m{number} was acknowledged and never came to c{client}"));
            }
            let absent = |group: &&usize| !self.groups[**group].inbox.came.contains_key(&number);
            if let Some(group) = message.groups.iter().find(absent) {
                let name = GROUPS[*group].0;
                return Err(format!("m{number} was acknowledged and never came to group {name}"));
            }
        }
        Ok(())
    }

    /// Checks the retained message of a topic at the end; `came` is its number, `None` for no
    /// message.
    pub(crate) fn check_retained(&self, topic: &str, came: Option<usize>) -> Result<(), String> {
        let all = self.messages.iter().enumerate();
        let all = all.filter(|(_, one)| one.topic == topic && one.retain != PowerRetain::No);
        let kept: Vec<_> = all.filter(|(_, one)| one.qos != QoS::AtMostOnce).collect();
        let latest = kept.iter().filter(|(_, one)| one.acked.is_some()).map(|(_, one)| one.sent);
        let latest = latest.max().unwrap_or(0);
        // A message finished before the latest acknowledged message was sent has been replaced.
        let over = |one: &CheckedMessage| one.acked.or(one.given_up).unwrap_or(usize::MAX);
        let mut legal = kept.iter().filter(|(_, one)| over(one) > latest);
        let is_same = |(number, one): &(usize, &CheckedMessage)| match one.retain {
            PowerRetain::Retain => came == Some(*number),
            PowerRetain::Clear | PowerRetain::No => came.is_none(),
        };
        let untouched = latest == 0 && came.is_none();
        if untouched || legal.any(is_same) {
            return Ok(());
        }
        Err(format!("{topic} retains {came:?}, which is older than what was acknowledged"))
    }
}

pub(crate) fn qos_of(qos: u8) -> QoS {
    QoS::from_bits(qos).unwrap_or_default()
}
