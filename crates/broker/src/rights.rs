//! What one session may do, and what happens when the rules change under it.

use crate::classes::{ClassId, Presence};
use crate::input::{ConnId, Now, SessionId};
use crate::judge::Pass;
use crate::mount::share_of;
use crate::note::Note;
use crate::options::Options;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::permissions::{Deed, Permissions, Who};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::shard::Shard;

/// Who a session's client is, and what was decided of it lately. There is none where everyone may
/// do everything.
#[derive(Debug)]
pub(crate) struct Rights {
    pub(crate) who: Who,
    /// Of those that have limits of their own, ...
    pub(crate) class: Option<ClassId>,
    /// ... and where there may be only so many the place that the connection has.
    pub(crate) presence: Option<Presence>,
    /// When the client has to go.
    expires: Option<Now>,
    /// Of the rules that `decided` follows.
    generation: u32,
    decided: Vec<Decided>,
    /// Bytes of their topics.
    topic_bytes: u32,
    /// Which of them goes next.
    oldest: u8,
    denials: u32,
    denial_noted: Option<Now>,
}

/// The answer for one topic that the client published to.
#[derive(Debug)]
struct Decided {
    topic: Box<str>,
    /// QoS and RETAIN, where they matter.
    manner: u8,
    allows: bool,
}

/// Topics of one client whose answers are kept, ...
const DECIDED_MAX: usize = 8;
/// ... unless they are longer.
const TOPIC_BYTES_MAX: usize = 256;
/// Denials of one client are noted so often, with their number.
const NOTED_EVERY_MS: u64 = 1_000;
/// Subscriptions that are compared with new rules in one tick.
const DOUBTED_PER_TICK: usize = 1_024;

impl Rights {
    fn new(peer: &Peer, options: &Options) -> Rights {
        let grant = peer.pass().and_then(Pass::grant);
        let certificate = peer.certificate();
        let who = Who {
            // A name that nobody has checked is nobody's.
            user: grant.and_then(|grant| grant.user.clone()),
            groups: grant.map(|grant| grant.groups.clone().into()).unwrap_or_default(),
            address: peer.address.ip(),
            listener: peer.listener,
            common_name: certificate.and_then(|known| known.common_name.clone()),
            is_superuser: grant.is_some_and(|grant| grant.is_superuser),
            own: grant.and_then(|grant| grant.permissions.clone()),
        };
        Rights {
            class: options.class_of(&who.groups),
            presence: None,
            who,
            expires: peer.pass().and_then(|pass| pass.expires),
            generation: 0,
            decided: Vec::new(),
            topic_bytes: 0,
            oldest: 0,
            denials: 0,
            denial_noted: None,
        }
    }

    /// The same for another stream of its client's.
    pub(crate) fn branch(&self) -> Rights {
        Rights {
            who: self.who.clone(),
            expires: self.expires,
            generation: self.generation,
            decided: Vec::new(),
            topic_bytes: 0,
            oldest: 0,
            denials: 0,
            denial_noted: None,
            class: self.class,
            // Its client is counted once.
            presence: None,
        }
    }

    /// What it costs beside its session.
    pub(crate) fn bytes(&self) -> u64 {
        let user = self.who.user.as_ref().map_or(0, |user| user.len());
        let decided = self.decided.capacity() * size_of::<Decided>();
        (size_of::<Rights>() + user + decided) as u64 + u64::from(self.topic_bytes)
    }

    fn allows(&self, all: &Permissions, client_id: &str, deed: Deed<'_>) -> bool {
        let who = &self.who;
        let own = || who.own.as_ref().and_then(|own| own.decide(who, client_id, deed));
        who.is_superuser || own().or_else(|| all.decide(who, client_id, deed)).unwrap_or(false)
    }

    /// The same from memory, if that knows.
    fn may_publish(
        &mut self,
        all: &Permissions,
        generation: u32,
        client_id: &str,
        deed: (&str, u8, bool),
    ) -> bool {
        let (topic, qos, retain) = deed;
        if self.generation != generation {
            self.generation = generation;
            self.decided.clear();
            self.topic_bytes = 0;
        }
        let own_is_particular = self.who.own.as_ref().is_some_and(|own| own.is_particular());
        let manner = match all.is_particular() || own_is_particular {
            true => qos | u8::from(retain) << 2,
            false => 0,
        };
        let known = self.decided.iter().find(|one| one.manner == manner && *one.topic == *topic);
        if let Some(known) = known {
            return known.allows;
        }
        let allows = self.allows(all, client_id, Deed::Publish { topic, qos, retain });
        if topic.len() <= TOPIC_BYTES_MAX {
            self.topic_bytes += topic.len() as u32;
            let decided = Decided { topic: topic.into(), manner, allows };
            if self.decided.len() < DECIDED_MAX {
                self.decided.push(decided);
            } else {
                let place = &mut self.decided[usize::from(self.oldest)];
                self.topic_bytes -= std::mem::replace(place, decided).topic.len() as u32;
                self.oldest = (self.oldest + 1) % DECIDED_MAX as u8;
            }
        }
        allows
    }
}

impl Session {
    /// When its client has to go.
    pub(crate) fn expires(&self) -> Option<Now> {
        self.rights.as_ref()?.expires
    }
}

impl Shard {
    /// The client of a connection, as far as rules ask: none where there are no rules and nobody
    /// was asked who it is.
    fn rights_of(&self, peer: &Peer) -> Option<Box<Rights>> {
        let needed = self.options.permissions.is_some()
            || self.options.judges
            || peer.pass().is_some_and(|pass| pass.grant().is_some());
        needed.then(|| Box::new(Rights::new(peer, &self.options)))
    }

    /// Those of a new session: from now on it has what was decided of its client.
    pub(crate) fn take_rights(&mut self, conn: ConnId) -> Option<Box<Rights>> {
        let rights = self.rights_of(&self.conn(conn)?.peer);
        self.conn_mut(conn)?.peer.take_pass();
        rights
    }

    /// Whether a kept session is of somebody else, whose messages are not this client's to read.
    pub(crate) fn is_of_another(&self, kept: SessionId, rights: Option<&Rights>) -> bool {
        let owner = &self.sessions.get(kept).rights;
        match (owner, rights) {
            (Some(owner), Some(rights)) => owner.who.user != rights.who.user,
            _ => false,
        }
    }

    /// Whether rules stand against the will of a client that is not in yet.
    pub(crate) fn permit_will(
        &mut self,
        rights: Option<&Rights>,
        client_id: &str,
        will: &mqtt::Will<'_>,
    ) -> Result<(), Refusal> {
        let (Some(all), Some(rights)) = (&self.options.permissions, rights) else { return Ok(()) };
        let deed = Deed::Publish { topic: will.topic, qos: will.qos as u8, retain: will.retain };
        if rights.allows(all, client_id, deed) {
            return Ok(());
        }
        self.sessions.counters.denied_publishes += 1;
        Err(Refusal::NotPermitted)
    }

    /// Whether the rules let a session publish. There are rules.
    pub(crate) fn may_publish(
        &mut self,
        id: SessionId,
        topic: &str,
        (qos, retain): (u8, bool),
        out: &mut Outbox,
    ) -> bool {
        let Some(all) = &self.options.permissions else { return true };
        let session = self.sessions.get_mut(id);
        // Without any its client has not been here since there are rules.
        let Some(rights) = &mut session.rights else { return false };
        let (deed, before) = ((topic, qos, retain), rights.bytes());
        let said_id = &session.client_id[usize::from(session.mount)..];
        let allows = rights.may_publish(all, self.rights_generation, said_id, deed);
        let after = rights.bytes();
        self.sessions.count_rights(before, after);
        if !allows {
            self.sessions.counters.denied_publishes += 1;
            self.note_denial(id, "publish", topic, out);
        }
        allows
    }

    pub(crate) fn may_subscribe(
        &mut self,
        id: SessionId,
        filter: &str,
        qos: u8,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        if self.options.permissions.is_none() || self.is_covered(id, filter, qos) {
            return Ok(());
        }
        self.sessions.counters.denied_subscribes += 1;
        self.note_denial(id, "subscribe", filter, out);
        Err(Refusal::NotPermitted)
    }

    /// Whether a session may have everything that a filter brings.
    fn is_covered(&self, id: SessionId, filter: &str, qos: u8) -> bool {
        let Some(all) = &self.options.permissions else { return true };
        let session = self.sessions.get(id);
        let deed = Deed::Subscribe { filter, qos };
        session.rights.as_ref().is_some_and(|own| own.allows(all, session.said_id(), deed))
    }

    fn note_denial(&mut self, id: SessionId, deed: &'static str, topic: &str, out: &mut Outbox) {
        let now = self.now;
        let session = self.sessions.get_mut(id);
        let Some(rights) = &mut session.rights else { return };
        rights.denials += 1;
        if rights.denial_noted.is_some_and(|at| now.0 < at.0 + NOTED_EVERY_MS) {
            return;
        }
        rights.denial_noted = Some(now);
        let count = std::mem::take(&mut rights.denials);
        let (client_id, user) = (session.client_id.clone(), rights.who.user.clone());
        out.notes.push(Note::Denied { client_id, user, deed, topic: topic.into(), count });
    }

    /// The rules are others: what was decided is forgotten at once, and subscriptions are compared
    /// with them tick by tick.
    pub(crate) fn look_at_rights_again(&mut self) {
        self.rights_generation = self.rights_generation.wrapping_add(1);
        for index in 0..self.conns.len() {
            let Some(known) = &self.conns[index] else { continue };
            if let Some(id) = known.session()
                && self.sessions.get(id).rights.is_none()
            {
                let rights = self.rights_of(&known.peer);
                self.sessions.set_rights(id, rights);
            }
        }
        self.doubted.clear();
        if self.options.permissions.is_some() {
            let all = self.sessions.iter().filter(|(_, session)| session.rights.is_some());
            let all = all.map(|(id, session)| (id, session.generation));
            self.doubted = all.collect();
        }
    }

    /// Goes on comparing.
    pub(crate) fn doubt_on(&mut self, out: &mut Outbox) {
        let mut left = DOUBTED_PER_TICK;
        while left > 0
            && !out.is_full()
            && let Some((id, generation)) = self.doubted.pop()
        {
            if self.sessions.current(id, generation) {
                left = left.saturating_sub(1 + self.doubt(id, out));
            }
        }
        if self.doubted.is_empty() {
            self.doubted = Vec::new();
        }
    }

    /// Takes away the subscriptions of a session that its client may not have any more. How many it
    /// looked at.
    pub(crate) fn doubt(&mut self, id: SessionId, out: &mut Outbox) -> usize {
        let session = self.sessions.get(id);
        let own = session.subscriptions.iter().map(|one| {
            let filter = self.topics.filter(one.filter);
            let qos = filter.subscribers[one.place as usize].options.qos();
            (filter.text.to_string(), qos as u8)
        });
        let shares = session.rare.iter().flat_map(|rare| &rare.shares);
        let shares = shares.map(|share| (share.group.to_string(), share.options.qos as u8));
        let all: Vec<(String, u8)> = own.chain(shares).collect();
        for (filter, qos) in &all {
            let share = share_of(filter);
            let inner = share.map_or(&**filter, |share| share.filter);
            let inner = self.sessions.get(id).said(inner);
            if self.is_covered(id, inner, *qos) {
                continue;
            }
            match share {
                Some(_) => self.unsubscribe_shared(id, filter, out),
                None => self.unsubscribe_own(id, filter),
            };
            self.sessions.counters.denied_subscribes += 1;
            self.note_denial(id, "keep the subscription", inner, out);
        }
        all.len()
    }
}
