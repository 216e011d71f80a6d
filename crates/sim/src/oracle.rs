//! A second broker, naive on purpose: lists and loops, no wire, no queue. It says what each
//! session must get, and judges what its client really got.

use mqtt::{QoS, filter_matches};

/// What one publish is, for ever: its number is its payload.
#[derive(Clone, Debug)]
pub struct Published {
    pub number: usize,
    pub publisher: usize,
    pub topic: String,
    pub qos: QoS,
    /// When it must not begin to be delivered any more, in ms.
    pub expires_at: Option<u64>,
    /// Sent again by a publisher that was cut: subscribers at QoS 1 may get it twice.
    pub doubtful: bool,
}

/// One session's, or one group's, claim on a message.
#[derive(Clone, Debug)]
struct Claim {
    message: Published,
    qos: QoS,
    group: Option<usize>,
    /// Must arrive; else it may.
    due: bool,
    arrived: usize,
}

#[derive(Clone, Debug, Default)]
struct Session {
    exists: bool,
    online: bool,
    /// Reads nothing, or is about to be cut: QoS 0 may be lost.
    shaky: bool,
    expiry_s: u32,
    ends_at: Option<u64>,
    subscriptions: Vec<(String, QoS)>,
    claims: Vec<Claim>,
    /// What arrived first, in order: (publisher, topic, QoS, number).
    arrivals: Vec<(usize, String, QoS, usize)>,
}

#[derive(Clone, Debug)]
struct Group {
    name: String,
    filter: String,
    qos: QoS,
    members: Vec<usize>,
    claims: Vec<Claim>,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    sessions: Vec<Session>,
    groups: Vec<Group>,
    retained: Vec<Published>,
    now: u64,
}

pub const FOREVER: u32 = u32::MAX;

impl Oracle {
    pub fn new(clients: usize) -> Oracle {
        Oracle { sessions: vec![Session::default(); clients], ..Oracle::default() }
    }

    /// A client connects. Says whether its session must be present.
    pub fn connect(&mut self, client: usize, clean: bool, expiry_s: u32) -> bool {
        if self.sessions[client].online {
            self.leave(client, None);
        }
        if clean {
            self.end(client);
        }
        let session = &mut self.sessions[client];
        let present = session.exists;
        (session.exists, session.online, session.shaky) = (true, true, false);
        (session.expiry_s, session.ends_at) = (expiry_s, None);
        present
    }

    /// The client's connection is gone, with another expiry where DISCONNECT said so.
    pub fn leave(&mut self, client: usize, expiry_s: Option<u32>) {
        let now = self.now;
        let session = &mut self.sessions[client];
        session.online = false;
        session.expiry_s = expiry_s.unwrap_or(session.expiry_s);
        match session.expiry_s {
            0 => self.end(client),
            FOREVER => {}
            seconds => session.ends_at = Some(now + u64::from(seconds) * 1000),
        }
        // QoS 0 that was on its way is gone with the connection.
        for claim in &mut self.sessions[client].claims {
            claim.due &= claim.qos != QoS::AtMostOnce || claim.arrived > 0;
        }
    }

    fn end(&mut self, client: usize) {
        self.sessions[client] = Session::default();
    }

    /// Whether the client reads what comes.
    pub fn shake(&mut self, client: usize, shaky: bool) {
        self.sessions[client].shaky = shaky;
    }

    pub fn pass(&mut self, now: u64) {
        self.now = now;
        for client in 0..self.sessions.len() {
            if self.sessions[client].ends_at.is_some_and(|at| now >= at) {
                self.end(client);
            }
        }
    }

    pub fn subscribe(&mut self, client: usize, filter: &str, qos: QoS) {
        self.unsubscribe(client, filter);
        self.sessions[client].subscriptions.push((filter.into(), qos));
    }

    pub fn unsubscribe(&mut self, client: usize, filter: &str) {
        self.sessions[client].subscriptions.retain(|(known, _)| known != filter);
    }

    pub fn join(&mut self, client: usize, name: &str, filter: &str, qos: QoS) {
        let known = self.groups.iter_mut().find(|group| group.name == name);
        let group = match known {
            Some(group) => group,
            None => {
                let (name, filter) = (name.to_string(), filter.to_string());
                let group = Group { name, filter, qos, members: vec![], claims: vec![] };
                self.groups.push(group);
                self.groups.last_mut().expect("it was just pushed")
            }
        };
        if !group.members.contains(&client) {
            group.members.push(client);
        }
    }

    /// An empty retained message: only the store changes that is looked at.
    pub fn clear(&mut self, topic: &str) {
        self.retained.retain(|kept| kept.topic != topic);
    }

    pub fn publish(&mut self, message: &Published, retain: bool) {
        if retain {
            self.clear(&message.topic);
            self.retained.push(message.clone());
        }
        let expires = message.expires_at.is_some();
        for session in &mut self.sessions {
            let matching = session.subscriptions.iter();
            let matching = matching.filter(|(filter, _)| filter_matches(filter, &message.topic));
            let Some(granted) = matching.map(|(_, qos)| *qos).max() else { continue };
            let qos = granted.min(message.qos);
            if !session.online && qos == QoS::AtMostOnce {
                continue;
            }
            let waits = !session.online || session.shaky;
            let due = !(waits && (expires || qos == QoS::AtMostOnce));
            let claim = Claim { message: message.clone(), qos, group: None, due, arrived: 0 };
            session.claims.push(claim);
        }
        for (at, group) in self.groups.iter_mut().enumerate() {
            if filter_matches(&group.filter, &message.topic) {
                let qos = group.qos.min(message.qos);
                let due = qos != QoS::AtMostOnce && !expires;
                let message = message.clone();
                group.claims.push(Claim { message, qos, group: Some(at), due, arrived: 0 });
            }
        }
    }

    /// A message arrived at a client for the first time, or again with DUP. `shared` says that it
    /// came through a group.
    pub fn arrived(
        &mut self,
        client: usize,
        number: usize,
        qos: QoS,
        dup: bool,
        shared: bool,
    ) -> Result<(), String> {
        let now = self.now;
        let session = &mut self.sessions[client];
        let claims = match shared {
            true => self
                .groups
                .iter_mut()
                .filter(|group| group.members.contains(&client))
                .flat_map(|group| group.claims.iter_mut())
                .collect::<Vec<_>>(),
            false => session.claims.iter_mut().collect(),
        };
        let claim = claims.into_iter().filter(|claim| claim.message.number == number);
        let claim = claim.min_by_key(|claim| claim.arrived);
        let Some(claim) = claim else { return Err(format!("m{number} is not for c{client}")) };
        if claim.qos != qos {
            return Err(format!("m{number} came to c{client} with {qos:?}, not {:?}", claim.qos));
        }
        if claim.arrived > 0 {
            let again = dup && qos == QoS::AtLeastOnce;
            let twice = claim.message.doubtful && claim.arrived == 1 && qos != QoS::ExactlyOnce;
            if !again && !twice {
                return Err(format!("m{number} came to c{client} again"));
            }
            claim.arrived += usize::from(!dup);
            return Ok(());
        }
        if claim.message.expires_at.is_some_and(|at| now >= at) {
            return Err(format!("m{number} came to c{client} after its expiry"));
        }
        claim.arrived += 1;
        let message = &claim.message;
        let (publisher, topic) = (message.publisher, message.topic.clone());
        if !shared {
            let same = session.arrivals.iter().rev();
            let mut same =
                same.filter(|(from, on, at, _)| (*from, on, *at) == (publisher, &topic, qos));
            if same.next().is_some_and(|(.., before)| *before > number) {
                return Err(format!("m{number} came to c{client} out of order"));
            }
            session.arrivals.push((publisher, topic, qos, number));
        }
        Ok(())
    }

    /// Once everybody has come back and read everything: what is missing.
    pub fn missing(&self) -> Result<(), String> {
        for (client, session) in self.sessions.iter().enumerate() {
            if let Some(claim) = session.claims.iter().find(|claim| claim.due && claim.arrived == 0)
            {
                return Err(format!("m{} never came to c{client}", claim.message.number));
            }
        }
        for group in &self.groups {
            let lost = group.claims.iter().find(|claim| claim.due && claim.arrived == 0);
            if let Some(claim) = lost {
                let number = claim.message.number;
                return Err(format!("m{number} never came to any member of {}", group.name));
            }
            let twice = group.claims.iter().find(|claim| {
                claim.arrived > 1 + usize::from(claim.message.doubtful && claim.group.is_some())
            });
            if let Some(claim) = twice {
                let number = claim.message.number;
                return Err(format!("m{number} came to two members of {}", group.name));
            }
        }
        Ok(())
    }

    pub fn exists(&self, client: usize) -> bool {
        self.sessions[client].exists
    }

    /// Topics and payloads that a new subscriber to everything must get.
    pub fn retained(&self) -> Vec<(String, String)> {
        let alive = |kept: &&Published| kept.expires_at.is_none_or(|at| self.now < at);
        let kept = self.retained.iter().filter(alive);
        let mut all: Vec<(String, String)> =
            kept.map(|kept| (kept.topic.clone(), format!("m{}", kept.number))).collect();
        all.sort();
        all
    }
}
