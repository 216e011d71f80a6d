//! A second, deliberately naive broker without packets and queues. It computes the messages which
//! each session must receive, and checks the messages which a client did receive.

use mqtt::{QoS, filter_matches};

/// A published message. The payload of the packet is `m` and `number`.
#[derive(Clone, Debug)]
pub struct OracleMessage {
    pub number: usize,
    pub publisher: usize,
    /// Topic with the publisher's namespace, which makes topics of all clients comparable.
    pub topic: String,
    pub qos: QoS,
    pub retain: RetainAction,
    /// Message Expiry Interval in seconds; 0 stands for none.
    pub expiry_s: u64,
    /// Whether the broker has certainly read the message. If not, the message need not arrive: a
    /// publisher that was cut sends it again.
    pub certain: bool,
}

/// Effect of a publish on the retained message of its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainAction {
    /// Clears the retained message. Subscribers of the empty message are not checked.
    Clear,
    Keep,
    No,
}

/// A will, published `delay_s` seconds after the connection's end or at the session's end.
#[derive(Clone, Debug)]
pub struct OracleWill {
    pub message: OracleMessage,
    pub delay_s: u64,
}

/// The claim of a session or a group to one sending of a message. A QoS 1 message which the
/// publisher sends again is a further sending: subscribers may receive both.
#[derive(Clone, Debug)]
struct DeliveryClaim {
    message: OracleMessage,
    sending: usize,
    qos: QoS,
    /// Whether the message must arrive; otherwise it may.
    due: bool,
    expires_at: Option<u64>,
    /// Whether a client may read the message after its expiry, as bytes may have left before.
    may_be_late: bool,
    /// Client and connection of the first delivery, or of the last redelivery.
    read: Option<(usize, usize)>,
    acknowledged: bool,
}

/// A session as the oracle sees it. `claims` are never removed during the session.
#[derive(Clone, Debug, Default)]
struct OracleSession {
    exists: bool,
    online: bool,
    stalled: bool,
    connection: usize,
    expiry_s: u32,
    ends_at: Option<u64>,
    will: Option<OracleWill>,
    will_at: Option<u64>,
    subscriptions: Vec<(String, QoS)>,
    claims: Vec<DeliveryClaim>,
}

/// A shared group. Each message has one claim, whichever member receives it.
#[derive(Clone, Debug)]
struct OracleGroup {
    namespace: &'static str,
    name: String,
    filter: String,
    qos: QoS,
    members: Vec<usize>,
    claims: Vec<DeliveryClaim>,
}

/// The naive broker: sessions, groups and retained messages in lists.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Namespace of each client: a prefix of `OracleMessage::topic` which the client does not see.
    namespaces: Vec<&'static str>,
    sessions: Vec<OracleSession>,
    groups: Vec<OracleGroup>,
    /// Retained messages with their expiry time.
    retained: Vec<(OracleMessage, Option<u64>)>,
    now: u64,
    sendings: usize,
    connections: usize,
}

pub const FOREVER: u32 = u32::MAX;

impl Oracle {
    pub fn new(namespaces: Vec<&'static str>) -> Oracle {
        let sessions = vec![OracleSession::default(); namespaces.len()];
        Oracle { namespaces, sessions, ..Oracle::default() }
    }

    /// Connects a client. Returns the Session Present flag that CONNACK must have.
    pub fn connect(
        &mut self,
        client: usize,
        clean: bool,
        expiry_s: u32,
        will: Option<OracleWill>,
    ) -> bool {
        if self.sessions[client].online {
            self.on_disconnected(client);
        }
        if clean {
            self.end_session(client);
        }
        self.connections += 1;
        let session = &mut self.sessions[client];
        let present = session.exists;
        (session.exists, session.online, session.stalled) = (true, true, false);
        (session.expiry_s, session.ends_at) = (expiry_s, None);
        // A reconnection before the Will Delay Interval ends discards the old will [MQTT-3.1.3-9].
        (session.will, session.will_at) = (will, None);
        session.connection = self.connections;
        present
    }

    /// The client sends DISCONNECT, which discards its will [MQTT-3.1.2-10].
    pub fn disconnect(&mut self, client: usize) {
        self.sessions[client].will = None;
        self.on_disconnected(client);
    }

    /// Closes the client's connection, which starts session expiry and will delay.
    pub fn on_disconnected(&mut self, client: usize) {
        let now = self.now;
        let session = &mut self.sessions[client];
        (session.online, session.stalled) = (false, false);
        // QoS 0 messages in transit are lost with the connection.
        for claim in &mut session.claims {
            claim.due &= claim.qos != QoS::AtMostOnce || claim.read.is_some();
        }
        match session.expiry_s {
            0 => return self.end_session(client),
            FOREVER => {}
            seconds => session.ends_at = Some(now + u64::from(seconds) * 1000),
        }
        match &session.will {
            Some(will) if will.delay_s > 0 => session.will_at = Some(now + will.delay_s * 1000),
            _ => self.publish_will(client),
        }
    }

    fn publish_will(&mut self, client: usize) {
        self.sessions[client].will_at = None;
        if let Some(will) = self.sessions[client].will.take() {
            self.publish(&will.message);
        }
    }

    fn end_session(&mut self, client: usize) {
        let will = self.sessions[client].will.take();
        self.sessions[client] = OracleSession { will, ..OracleSession::default() };
        self.publish_will(client);
    }

    /// Sets whether the client stops reading. Messages sent meanwhile may be read after their
    /// expiry.
    pub fn stall(&mut self, client: usize, stalled: bool) {
        self.sessions[client].stalled = stalled;
        if stalled {
            let groups = self.groups.iter_mut().filter(|group| group.members.contains(&client));
            let claims = groups.flat_map(|group| &mut group.claims);
            let claims = claims.chain(&mut self.sessions[client].claims);
            claims.for_each(|claim| claim.may_be_late = true);
        }
    }

    /// Advances the time to `until`; wills and session expiries happen in order. `prompt` contains
    /// for each client whether it had read and acknowledged everything before.
    pub fn advance(&mut self, until: u64, prompt: &[bool]) {
        while let Some((at, client)) = self.next_event().filter(|(at, _)| *at <= until) {
            self.now = at;
            match self.sessions[client].ends_at.is_some_and(|end| end <= at) {
                true => self.end_session(client),
                false => self.publish_will(client),
            }
        }
        self.now = until;
        for (session, prompt) in self.sessions.iter_mut().zip(prompt) {
            let late = session.claims.iter_mut().filter(|claim| claim.is_expired(until));
            late.filter(|_| !session.online || !prompt).for_each(|claim| claim.due = false);
        }
    }

    fn next_event(&self) -> Option<(u64, usize)> {
        let sessions = self.sessions.iter().enumerate();
        let events = sessions.flat_map(|(client, session)| {
            let times = session.ends_at.into_iter().chain(session.will_at);
            times.map(move |at| (at, client))
        });
        events.min()
    }

    pub fn subscribe(&mut self, client: usize, filter: &str, qos: QoS) {
        self.unsubscribe(client, filter);
        self.sessions[client].subscriptions.push((filter.into(), qos));
    }

    pub fn unsubscribe(&mut self, client: usize, filter: &str) {
        self.sessions[client].subscriptions.retain(|(known, _)| known != filter);
    }

    pub fn join(&mut self, client: usize, name: &str, filter: &str, qos: QoS) {
        let namespace = self.namespaces[client];
        let same = |group: &&mut OracleGroup| group.namespace == namespace && group.name == name;
        let known = self.groups.iter_mut().find(same);
        let group = match known {
            Some(group) => group,
            None => {
                let (name, filter) = (name.to_string(), filter.to_string());
                let (members, claims) = (Vec::new(), Vec::new());
                let group = OracleGroup { namespace, name, filter, qos, members, claims };
                self.groups.push(group);
                self.groups.last_mut().expect("it was just pushed")
            }
        };
        if !group.members.contains(&client) {
            group.members.push(client);
        }
        // Messages which waited for a member are written to it now, and may be read late.
        self.stall(client, self.sessions[client].stalled);
    }

    /// Publishes a message, for the first time or again: replaces the retained message, and adds a
    /// `DeliveryClaim` to each session and group with a matching filter.
    pub fn publish(&mut self, message: &OracleMessage) {
        let expires_at = (message.expiry_s > 0).then(|| self.now + message.expiry_s * 1000);
        if message.retain != RetainAction::No {
            self.retained.retain(|(kept, _)| kept.topic != message.topic);
        }
        match message.retain {
            RetainAction::Clear => return,
            RetainAction::Keep => self.retained.push((message.clone(), expires_at)),
            RetainAction::No => {}
        }
        self.sendings += 1;
        let sending = self.sendings;
        let claim = |granted: QoS, due, may_be_late| DeliveryClaim {
            message: message.clone(),
            sending,
            qos: granted.min(message.qos),
            due: due && message.certain,
            expires_at,
            may_be_late,
            read: None,
            acknowledged: false,
        };
        for (session, namespace) in self.sessions.iter_mut().zip(&self.namespaces) {
            let matching = session.subscriptions.iter();
            let matching =
                matching.filter(|(filter, _)| filter_takes(namespace, filter, &message.topic));
            let Some(granted) = matching.map(|(_, qos)| *qos).max() else { continue };
            let claim = claim(granted, true, session.stalled);
            if session.online || claim.qos != QoS::AtMostOnce {
                session.claims.push(claim);
            }
        }
        for group in &mut self.groups {
            if filter_takes(group.namespace, &group.filter, &message.topic) {
                let due = group.qos.min(message.qos) != QoS::AtMostOnce && expires_at.is_none();
                let stalled = group.members.iter().any(|member| self.sessions[*member].stalled);
                group.claims.push(claim(group.qos, due, stalled));
            }
        }
    }

    /// Checks a message which arrived at a client, through a group if `shared`. Returns the
    /// sending.
    pub fn on_delivery(
        &mut self,
        client: usize,
        number: usize,
        topic: &str,
        qos: QoS,
        dup: bool,
        shared: bool,
    ) -> Result<usize, String> {
        let (now, connection) = (self.now, self.sessions[client].connection);
        let wrong = |what: &str| Err(format!("m{number} came to c{client} {what}"));
        let topic = format!("{}{topic}", self.namespaces[client]);
        let mut claims = self.claims(client, shared);
        let last = |one: &DeliveryClaim| match shared {
            true => 0,
            false => last_read(&claims, one),
        };
        let is_ours = |one: &OracleMessage| one.number == number && one.topic == topic;
        let ours = (0..claims.len()).filter(|at| is_ours(&claims[*at].message));
        let ours: Vec<usize> = ours.filter(|at| claims[*at].qos == qos).collect();
        if ours.is_empty() {
            return wrong(&format!("with {qos:?}, for which it has no claim"));
        }
        let again = ours.iter().find(|at| dup && claims[**at].may_return(client, connection));
        let unread = || ours.iter().filter(|at| claims[**at].read.is_none());
        let Some(first) = again.or_else(|| unread().next()).copied() else {
            return wrong("again");
        };
        let in_time =
            |at: &&usize| claims[**at].may_be_late || dup || !claims[**at].is_expired(now);
        let in_order = |at: &&usize| claims[**at].sending > last(claims[**at]);
        let chosen = match again {
            Some(_) => first,
            None if !unread().any(|at| in_time(&at)) => {
                return wrong("after its expiry");
            }
            None => match unread().filter(in_time).find(in_order) {
                Some(at) => *at,
                None => return wrong("out of order"),
            },
        };
        if again.is_some() {
            // The delivery may also have been another sending, which was written before but not
            // read.
            for at in ours.iter().copied().filter(|at| *at != chosen) {
                claims[at].due &= claims[at].read.is_some();
            }
        }
        claims[chosen].read = Some((client, connection));
        Ok(claims[chosen].sending)
    }

    /// Records that the broker has read the client's acknowledgement: a redelivery is an error from
    /// here on.
    pub fn on_ack(&mut self, client: usize, sending: usize, shared: bool) {
        let claims = self.claims(client, shared).into_iter();
        let ours = claims.filter(|claim| {
            claim.sending == sending && claim.read.is_some_and(|(by, _)| by == client)
        });
        ours.for_each(|claim| claim.acknowledged = true);
    }

    fn claims(&mut self, client: usize, shared: bool) -> Vec<&mut DeliveryClaim> {
        if !shared {
            return self.sessions[client].claims.iter_mut().collect();
        }
        let groups = self.groups.iter_mut().filter(|group| group.members.contains(&client));
        groups.flat_map(|group| &mut group.claims).collect()
    }

    /// Checks for missing messages, after all clients have reconnected and read all messages.
    pub fn check_missing(&self) -> Result<(), String> {
        for (client, session) in self.sessions.iter().enumerate() {
            if let Some(number) = undelivered(&session.claims) {
                return Err(format!("m{number} never came to c{client}"));
            }
        }
        for group in &self.groups {
            if let Some(number) = undelivered(&group.claims) {
                return Err(format!("m{number} never came to any member of {}", group.name));
            }
        }
        Ok(())
    }

    pub fn has_session(&self, client: usize) -> bool {
        self.sessions[client].exists
    }

    /// Topics and payloads that a new subscriber to `#` must receive.
    pub fn expected_retained(&self) -> Vec<(String, String)> {
        let kept = self.retained.iter().filter(|(_, at)| at.is_none_or(|at| self.now < at));
        let mut all: Vec<(String, String)> =
            kept.map(|(kept, _)| (kept.topic.clone(), format!("m{}", kept.number))).collect();
        all.sort();
        all
    }
}

impl DeliveryClaim {
    fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| now >= at)
    }

    /// Whether a message may come with DUP to a client that has read it before: once per connection
    /// [MQTT-4.4.0-1], until it was acknowledged.
    fn may_return(&self, client: usize, connection: usize) -> bool {
        let elsewhen = |(by, on)| by == client && on != connection;
        self.qos == QoS::AtLeastOnce && !self.acknowledged && self.read.is_some_and(elsewhen)
    }
}

/// Whether a client's filter matches a topic. Topics outside of its namespace never match.
fn filter_takes(namespace: &str, filter: &str, topic: &str) -> bool {
    let name = topic.strip_prefix(namespace).filter(|name| !name.is_empty());
    name.is_some_and(|name| filter_matches(filter, name))
}

/// Returns the last sending read in the same order as `one`: of the same publisher, topic and QoS
/// [MQTT-4.6.0-6].
fn last_read(claims: &[&mut DeliveryClaim], one: &DeliveryClaim) -> usize {
    let stream =
        |claim: &DeliveryClaim| (claim.message.publisher, claim.message.topic.clone(), claim.qos);
    let same = claims.iter().filter(|claim| claim.read.is_some() && stream(claim) == stream(one));
    same.map(|claim| claim.sending).max().unwrap_or(0)
}

/// Returns a message which arrived fewer times than required.
fn undelivered(claims: &[DeliveryClaim]) -> Option<usize> {
    let numbers = claims.iter().map(|claim| claim.message.number);
    numbers.into_iter().find(|number| {
        let ours = || claims.iter().filter(|claim| claim.message.number == *number);
        ours().filter(|claim| claim.read.is_some()).count()
            < ours().filter(|claim| claim.due).count()
    })
}
