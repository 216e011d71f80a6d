//! What one session may do. What happens when the rules change under it stands in `doubts`.

use crate::answers::Answers;
use crate::ask::{Action, Wish};
use crate::classes::{ClassId, Presence};
use crate::decisions::Decisions;
use crate::input::{ConnId, Now, SessionId};
use crate::judge::Pass;
use crate::limits::{LINK_IDS, RULES_PER_TICK};
use crate::note::Note;
use crate::options::{Asks, Options};
use crate::outbox::Outbox;
use crate::peer::{ListenerId, Peer};
use crate::permissions::{Deed, DenialCause, Permissions, Who};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::shard::Shard;
use crate::subscribe::is_below;

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
    decided: Option<Box<Decisions>>,
    /// Whether somebody who was asked allowed its will.
    pub(crate) will_is_allowed: bool,
    /// Its messages wait for another connection.
    pub(crate) is_quiet: bool,
    denials: u32,
    /// The first of those that were withheld.
    denied: Option<(&'static str, Box<str>, DenialCause)>,
    /// When a denial may be noted again.
    denial_noted: Now,
    /// What others said of it, where they are asked.
    pub(crate) answers: Option<Box<Answers>>,
}

/// Of longer ones nothing is remembered.
pub(crate) const TOPIC_BYTES_MAX: usize = 256;
/// Denials of one client are noted so often, with their number.
const NOTED_EVERY_MS: u64 = 1_000;

impl Rights {
    /// What was withheld of denials.
    pub(crate) fn withheld_denials(&mut self, client_id: &str, now: Now) -> Option<Note> {
        let (deed, topic, cause) = self.denied.take()?;
        self.denial_noted = Now(now.0 + NOTED_EVERY_MS);
        let count = std::mem::take(&mut self.denials);
        let (client_id, user) = (client_id.into(), self.who.user.clone());
        Some(Note::Denied { client_id, user, deed, topic, cause, count })
    }

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
        let class = options.class_of(peer.listener, who.user.as_deref(), &who.groups);
        let is_quiet = grant.is_some_and(|grant| grant.is_quiet);
        let expires = peer.pass().and_then(|pass| pass.expires);
        Rights { class, expires, is_quiet, ..Rights::of(who) }
    }

    /// Of somebody who is not here yet.
    pub(crate) fn of_absent(user: &str) -> Rights {
        Rights::of(Who {
            user: Some(user.into()),
            groups: Box::default(),
            address: None,
            listener: ListenerId::NONE,
            common_name: None,
            is_superuser: false,
            own: None,
        })
    }

    fn of(who: Who) -> Rights {
        Rights {
            class: None,
            presence: None,
            who,
            expires: None,
            generation: 0,
            decided: None,
            will_is_allowed: false,
            is_quiet: false,
            denials: 0,
            denied: None,
            denial_noted: Now(0),
            answers: None,
        }
    }

    /// The same for another stream of its client's.
    pub(crate) fn branch(&self) -> Rights {
        Rights {
            who: self.who.clone(),
            expires: self.expires,
            generation: self.generation,
            decided: None,
            will_is_allowed: false,
            is_quiet: false,
            denials: 0,
            denied: None,
            denial_noted: Now(0),
            answers: None,
            class: self.class,
            // Its client is counted once.
            presence: None,
        }
    }

    fn owner(&self) -> &str {
        self.who.user.as_deref().unwrap_or_default()
    }

    /// What it costs beside its session.
    pub(crate) fn bytes(&self) -> u64 {
        let user = self.who.user.as_ref().map_or(0, |user| user.len());
        let decided = self.decided.as_ref().map_or(0, |decided| decided.bytes());
        let answers = self.answers.as_ref().map_or(0, |answers| answers.bytes());
        (size_of::<Rights>() + user) as u64 + decided + answers
    }

    /// What the rules say, if they say anything.
    pub(crate) fn decide(&self, all: &Permissions, id: &str, deed: Deed<'_>) -> Option<bool> {
        let who = &self.who;
        let own = || who.own.as_ref().and_then(|own| own.decide(who, id, deed));
        who.is_superuser.then_some(true).or_else(own).or_else(|| all.decide(who, id, deed))
    }

    /// Which rule stands against something.
    fn cause(&self, all: &Permissions, id: &str, deed: Deed<'_>) -> DenialCause {
        let own = self.who.own.as_ref().map(|own| own.cause(&self.who, id, deed));
        let own = own.filter(|own| *own != DenialCause::NoRule);
        own.unwrap_or_else(|| all.cause(&self.who, id, deed))
    }

    /// Nobody publishes for now.
    pub(crate) fn forget_decided(&mut self) {
        self.decided = None;
    }

    /// What was decided by other rules is forgotten.
    pub(crate) fn follow(&mut self, generation: u32) {
        if self.generation != generation {
            self.generation = generation;
            self.decided = None;
            if let Some(answers) = &mut self.answers {
                answers.forget();
            }
        }
    }

    /// What rules and answers say of a publish, if they say anything, from memory if that knows.
    fn decide_publish(
        &mut self,
        all: &Permissions,
        client_id: &str,
        wish: &Wish<'_>,
        asked: Option<(Asks, Now)>,
        keeps: bool,
    ) -> Option<bool> {
        let Wish { topic, qos, retain, .. } = *wish;
        let own_is_particular = self.who.own.as_ref().is_some_and(|own| own.is_particular());
        let manner = match all.is_particular() || own_is_particular {
            true => qos | u8::from(retain) << 2,
            false => 0,
        };
        let decided = self.decided.as_mut();
        if let Some(known) = decided.and_then(|decided| decided.find(topic, manner)) {
            return Some(known);
        }
        if let Some((asks, now)) = asked
            && let Some(answers) = &self.answers
            && let Some(allows) = answers.find(wish, asks, now)
        {
            return Some(allows);
        }
        let decided = self.decide(all, client_id, Deed::Publish { topic, qos, retain });
        let allows = match (decided, asked) {
            (None, Some(_)) => return None,
            (decided, _) => decided.unwrap_or(false),
        };
        if keeps && topic.len() <= TOPIC_BYTES_MAX {
            self.decided.get_or_insert_default().keep(topic, manner, allows);
        }
        Some(allows)
    }
}

impl Session {
    /// When its client has to go.
    pub(crate) fn expires(&self) -> Option<Now> {
        self.rights.as_ref()?.expires
    }

    /// Whose it is, if that was ever found out; empty is nobody's in particular.
    pub(crate) fn owner(&self) -> Option<&str> {
        let before = || self.lasting.as_ref()?.owner.as_deref();
        self.rights.as_ref().map(|rights| rights.owner()).or_else(before)
    }
}

impl Shard {
    /// The client of a connection, as far as rules ask: none where there are no rules and nobody
    /// was asked who it is.
    pub(crate) fn rights_of(&self, peer: &Peer) -> Option<Box<Rights>> {
        let needed = self.options.permissions_at(peer.listener).is_some()
            // Where another listener asks who somebody is, nobody in particular is no match for it.
            || self.options.judges_anywhere()
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
        let session = self.sessions.get(kept);
        // A link may act as somebody else from now on; its queue is the link's.
        if session.client_id.starts_with(LINK_IDS) {
            return false;
        }
        match (session.owner(), rights) {
            (Some(owner), Some(rights)) => owner != rights.owner(),
            _ => false,
        }
    }

    /// Whether rules stand against the will of a client that is not in yet. Where they say nothing
    /// somebody was asked.
    pub(crate) fn permit_will(
        &mut self,
        answered: Option<bool>,
        rights: Option<&mut Rights>,
        client_id: &str,
        will: &mqtt::Will<'_>,
    ) -> Result<(), Refusal> {
        let Some(rights) = rights else { return Ok(()) };
        let Some(all) = self.options.permissions_at(rights.who.listener) else { return Ok(()) };
        let deed = Deed::Publish { topic: will.topic, qos: will.qos as u8, retain: will.retain };
        let decided = rights.decide(all, client_id, deed);
        rights.will_is_allowed = answered.unwrap_or(false);
        if decided.unwrap_or(rights.will_is_allowed) {
            return Ok(());
        }
        self.sessions.counters.denied_publishes += 1;
        Err(Refusal::NotPermitted)
    }

    /// Whether the rules of today let a will go out that was accepted when its client came.
    pub(crate) fn may_leave_will(
        &mut self,
        id: SessionId,
        topic: &str,
        manner: (u8, bool),
        out: &mut Outbox,
    ) -> bool {
        let wish = Wish::publish(topic, manner);
        let asks = self.options.asks_at(self.sessions.get(id).listener);
        let was_asked = asks.is_some() && self.decide(id, &wish).is_none();
        let rights = self.sessions.get(id).rights.as_ref();
        let was_allowed = rights.is_some_and(|rights| rights.will_is_allowed);
        (was_asked && was_allowed) || self.may_publish(id, topic, manner, out)
    }

    /// How many filters may be compared with the rules at a time.
    pub(crate) fn filters_per_tick(&self) -> usize {
        let own = self.options.access.own.iter().flatten().map(|own| &own.permissions);
        let all = own.chain([&self.options.permissions]).flatten();
        let most = all.map(|rules| rules.len()).max();
        RULES_PER_TICK / most.unwrap_or(0).max(1)
    }

    /// What is known of a wish: of that for which somebody has to be asked, nothing.
    pub(crate) fn decide(&mut self, id: SessionId, wish: &Wish<'_>) -> Option<bool> {
        // Long before queues have to do without the room.
        let keeps = self.sessions.messages.held() < self.sessions.crowded_at / 2;
        let session = self.sessions.get_mut(id);
        let listener = session.listener;
        let Some(all) = self.options.permissions_at(listener) else { return Some(true) };
        let asked = self.options.asks_at(listener).map(|asks| (asks, self.now));
        // What rules of the broker send to a link they were told to by who wrote the options.
        let is_subscribe = wish.action == Action::Subscribe;
        if is_subscribe && is_below(&session.client_id, wish.topic) {
            return Some(true);
        }
        // Without any its client has not been here since there are rules.
        let Some(rights) = &mut session.rights else { return Some(false) };
        let before = rights.bytes();
        rights.follow(self.rights_generation);
        let said_id = &session.client_id[usize::from(session.mount)..];
        let decided = match wish.action {
            Action::Publish => rights.decide_publish(all, said_id, wish, asked, keeps),
            Action::Subscribe => {
                let deed = Deed::Subscribe { filter: wish.topic, qos: wish.qos };
                let decided = rights.decide(all, said_id, deed);
                match (decided, asked) {
                    (None, Some((asks, now))) => {
                        rights.answers.as_ref().and_then(|answers| answers.find(wish, asks, now))
                    }
                    (decided, _) => Some(decided.unwrap_or(false)),
                }
            }
        };
        let after = rights.bytes();
        self.sessions.count_rights(before, after);
        decided
    }

    /// Whether a session may publish. There are rules, and who was to be asked was asked.
    pub(crate) fn may_publish(
        &mut self,
        id: SessionId,
        topic: &str,
        manner: (u8, bool),
        out: &mut Outbox,
    ) -> bool {
        let allows = self.decide(id, &Wish::publish(topic, manner)).unwrap_or(false);
        if !allows {
            self.sessions.counters.denied_publishes += 1;
            self.note_denial(id, "publish", Wish::publish(topic, manner), out);
        }
        allows
    }

    /// The same of a subscription.
    pub(crate) fn may_subscribe(
        &mut self,
        id: SessionId,
        filter: &str,
        qos: u8,
        out: &mut Outbox,
    ) -> Result<(), Refusal> {
        let refusal = match self.decide(id, &Wish::subscribe(filter, qos)) {
            Some(true) => return Ok(()),
            Some(false) => Refusal::NotPermitted,
            // A packet with more filters than questions.
            None => Refusal::QuotaExceeded,
        };
        self.sessions.counters.denied_subscribes += 1;
        self.note_denial(id, "subscribe", Wish::subscribe(filter, qos), out);
        Err(refusal)
    }

    pub(crate) fn note_denial(
        &mut self,
        id: SessionId,
        deed: &'static str,
        wish: Wish<'_>,
        out: &mut Outbox,
    ) {
        let now = self.now;
        let session = self.sessions.get_mut(id);
        let said_id = &session.client_id[usize::from(session.mount)..];
        let all = self.options.permissions_at(session.listener);
        let Some(rights) = &mut session.rights else { return };
        rights.denials += 1;
        let is_withheld = now < rights.denial_noted;
        if is_withheld && rights.denied.is_some() {
            return;
        }
        let Wish { topic, qos, retain, .. } = wish;
        let asked = match wish.action {
            Action::Publish => Deed::Publish { topic, qos, retain },
            Action::Subscribe => Deed::Subscribe { filter: topic, qos },
        };
        let cause = all.map_or(DenialCause::NoRule, |all| rights.cause(all, said_id, asked));
        if is_withheld {
            rights.denied = Some((deed, topic.into(), cause));
            return;
        }
        rights.denial_noted = Now(now.0 + NOTED_EVERY_MS);
        rights.denied = None;
        let count = std::mem::take(&mut rights.denials);
        let (client_id, user) = (session.client_id.clone(), rights.who.user.clone());
        let topic = topic.into();
        out.notes.push(Note::Denied { client_id, user, deed, topic, cause, count });
        self.sessions.withholding.push(id);
    }
}
