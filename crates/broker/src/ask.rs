//! Permission that somebody else gives: where rules say nothing of what a client wants, a server
//! may be asked that knows.
//!
//! ```text
//!       PUBLISH, SUBSCRIBE, nothing known       the last Input::Answered, or the deadline
//! Live ----------------------------------> Unpermitted, held -----------------------> Live
//!       Effect::Ask for each topic                       Effect::Resume
//! ```
//!
//! The packet stays unread in the transport and is read again when the answers are there, so
//! whatever follows it keeps its order. Only its own connection waits. A CONNECT with a will waits
//! likewise. Who does not answer in time has said no.

use crate::answers::Answers;
use crate::caches;
use crate::conn::State;
use crate::exclusive::behind;
use crate::input::{ConnId, Now, SessionId};
use crate::outbox::{Effect, Outbox};
use crate::peer::ListenerId;
use crate::permissions::{Deed, Who};
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{Frame, PacketType, Publish, Subscribe, Violation};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What a client wants to do, and the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub client_id: Box<str>,
    /// Empty where it is in none. The topic is what the client calls it.
    pub namespace: Box<str>,
    pub user: Option<Arc<str>>,
    /// None over a unix socket.
    pub address: Option<IpAddr>,
    pub listener: ListenerId,
    pub common_name: Option<Box<str>>,
    pub action: Action,
    pub topic: Box<str>,
    pub qos: u8,
    pub retain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Publish,
    Subscribe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow,
    Deny,
    /// Nobody could say. It is no for this once.
    Silence,
}

/// The number of a question, which comes back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slip {
    /// None where it is about what a session has already.
    pub(crate) conn: Option<ConnId>,
    pub(crate) number: u32,
    pub(crate) at: u32,
}

/// A topic or a filter, and what a client wants with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) action: Action,
    pub(crate) topic: &'a str,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
}

impl<'a> Wish<'a> {
    pub(crate) fn publish(topic: &'a str, (qos, retain): (u8, bool)) -> Wish<'a> {
        Wish { action: Action::Publish, topic, qos, retain }
    }

    pub(crate) fn subscribe(topic: &'a str, qos: u8) -> Wish<'a> {
        Wish { action: Action::Subscribe, topic, qos, retain: false }
    }
}

/// What one packet waits for.
#[derive(Debug)]
pub(crate) struct Inquiry {
    number: u32,
    /// Of the rules that left it open.
    generation: u32,
    deadline: Now,
    all: Vec<Open>,
    unanswered: usize,
}

#[derive(Debug)]
struct Open {
    action: Action,
    topic: Box<str>,
    qos: u8,
    retain: bool,
    answer: Option<Answer>,
}

impl Open {
    fn new(wish: Wish<'_>) -> Open {
        let Wish { action, topic, qos, retain } = wish;
        Open { action, topic: topic.into(), qos, retain, answer: None }
    }

    fn wish(&self) -> Wish<'_> {
        let Open { action, ref topic, qos, retain, .. } = *self;
        Wish { action, topic, qos, retain }
    }
}

/// Of one packet. What a SUBSCRIBE has beyond that is refused, ...
const QUESTIONS_MAX: usize = 256;
/// ... and so are longer topics.
const QUESTION_BYTES_MAX: usize = 4 * 1024;

impl State {
    fn inquiry(&mut self) -> Option<&mut Inquiry> {
        match self {
            State::Unpermitted { inquiry, .. } | State::Willing { inquiry } => Some(inquiry),
            _ => None,
        }
    }
}

impl Shard {
    /// Holds a connection before a packet of which somebody else has to be asked. Says whether it
    /// is such a one.
    pub(crate) fn waits_for_answers(
        &mut self,
        conn: ConnId,
        id: SessionId,
        frame: Frame<'_>,
        out: &mut Outbox,
    ) -> bool {
        let kind = PacketType::from_byte(frame.first);
        if !matches!(kind, Some(PacketType::Publish | PacketType::Subscribe)) {
            return false;
        }
        self.look_at_answers(id, Answers::begin);
        let all = match kind {
            Some(PacketType::Publish) => self.open_publish(conn, id, frame).unwrap_or_default(),
            _ => self.open_filters(id, frame),
        };
        if all.is_empty() {
            self.look_at_answers(id, Answers::end);
            return false;
        }
        let inquiry = self.inquiry(all);
        let (number, deadline) = (inquiry.number, inquiry.deadline);
        let session = self.sessions.get(id);
        let Some(rights) = &session.rights else { return false };
        let client = (&rights.who, session.said_id(), session.namespace());
        let asked = inquiry.all.iter().enumerate().map(|(at, open)| {
            let slip = Slip { conn: Some(conn), number, at: at as u32 };
            Effect::Ask { slip, question: question(client, open.wish()) }
        });
        out.effects.push(Effect::Hold { conn });
        out.effects.extend(asked);
        let asked = inquiry.all.len();
        let is_timed = rights.answers.as_ref().is_some_and(|answers| answers.timer_at.is_some());
        let Some(known) = self.conn_mut(conn) else { return false };
        known.state = State::Unpermitted { session: id, inquiry };
        let generation = known.generation;
        if !is_timed {
            self.timers.set(deadline, Timer::Asked { index: conn.0, generation });
        }
        self.change_answers(id, |answers| {
            answers.ask(asked);
            answers.timer_at.get_or_insert(deadline);
        });
        true
    }

    /// What is wrong with a packet is found out by whoever takes it.
    fn open_publish(&mut self, conn: ConnId, id: SessionId, frame: Frame<'_>) -> Option<Vec<Open>> {
        let session = self.sessions.get(id);
        let packet = Publish::decode(frame, session.version).ok()?;
        let aliased = match packet.topic {
            "" => Some(self.topic_of_alias(conn, &packet)?),
            _ => None,
        };
        let topic = aliased.as_deref().unwrap_or(packet.topic);
        if topic.starts_with(caches::PREFIX) {
            let all = self.wishes_of_read(id, (&packet, topic));
            let all = all.iter().map(|(action, topic)| match action {
                Action::Publish => Wish::publish(topic, (packet.qos as u8, false)),
                Action::Subscribe => Wish::subscribe(topic, packet.qos as u8),
            });
            return Some(all.filter(|wish| self.is_open(id, wish)).map(Open::new).collect());
        }
        let topic = self.coming(id, topic).ok()?.topic;
        self.options.of_session(session).permit_topic(&topic).ok()?;
        let wish = Wish::publish(&topic, (packet.qos as u8, packet.retain));
        self.is_open(id, &wish).then(|| vec![Open::new(wish)])
    }

    /// Whether somebody has to be asked.
    fn is_open(&mut self, id: SessionId, wish: &Wish<'_>) -> bool {
        self.decide(id, wish).is_none() && wish.topic.len() <= QUESTION_BYTES_MAX
    }

    /// Each filter once, and no more than somebody is asked about.
    fn open_filters(&mut self, id: SessionId, frame: Frame<'_>) -> Vec<Open> {
        let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
        let version = self.sessions.get(id).version;
        let Ok(packet) = Subscribe::decode(frame, version) else { return all };
        let rights = self.sessions.get(id).rights.as_ref();
        let answers = rights.and_then(|rights| rights.answers.as_ref());
        let asks = self.options.asks_at(self.sessions.get(id).listener);
        let by_qos = asks.is_some_and(|asks| asks.is_particular);
        let asked = answers.map_or(0, |answers| answers.asked());
        let most = QUESTIONS_MAX.saturating_sub(asked);
        for (filter, options) in packet.filters.iter() {
            if all.len() == most {
                break;
            }
            let Ok(inner) = bare(filter) else { return Vec::new() };
            if mqtt::topic::check_filter(inner).is_err() {
                return Vec::new();
            }
            let Ok(named) = self.named_filter(id, filter) else { continue };
            let Ok(inner) = bare(&named) else { continue };
            let wish = Wish::subscribe(inner, options.qos.min(self.qos_max_of(id)) as u8);
            let qos = if by_qos { wish.qos } else { 0 };
            if self.is_open(id, &wish) && seen.insert((inner.to_string(), qos)) {
                all.push(Open::new(wish));
            }
        }
        all
    }

    fn inquiry(&mut self, all: Vec<Open>) -> Box<Inquiry> {
        let (number, deadline) = self.next_slip();
        let unanswered = all.len();
        self.sessions.counters.asked += unanswered as u64;
        let generation = self.rights_generation;
        Box::new(Inquiry { number, generation, deadline, all, unanswered })
    }

    /// A number for questions, and by when they have to be answered.
    pub(crate) fn next_slip(&mut self) -> (u32, Now) {
        self.slips = self.slips.wrapping_add(1);
        (self.slips, Now(self.now.0 + u64::from(self.options.verdict_timeout_ms)))
    }

    /// Holds a connection before a CONNECT with a will of which somebody else has to be asked. Says
    /// whether it is such a one.
    pub(crate) fn waits_for_will(
        &mut self,
        conn: ConnId,
        client_id: &str,
        will: &mqtt::Will<'_>,
        out: &mut Outbox,
    ) -> bool {
        let Some(known) = self.conn(conn) else { return false };
        let all = self.options.permissions_at(known.peer.listener);
        let (Some(all), None) = (all, self.answered_of_will(conn)) else { return false };
        let Some(rights) = self.rights_of(&known.peer) else { return false };
        let (qos, retain) = (will.qos as u8, will.retain);
        let deed = Deed::Publish { topic: will.topic, qos, retain };
        if rights.decide(all, client_id, deed).is_some() || will.topic.len() > QUESTION_BYTES_MAX {
            return false;
        }
        let Ok(namespace) = self.namespace_at(conn) else { return false };
        let wish = Wish::publish(will.topic, (qos, retain));
        let inquiry = self.inquiry(vec![Open::new(wish)]);
        let slip = Slip { conn: Some(conn), number: inquiry.number, at: 0 };
        let question = question((&rights.who, client_id, &namespace), wish);
        let deadline = inquiry.deadline;
        let Some(known) = self.conn_mut(conn) else { return false };
        known.state = State::Willing { inquiry };
        // It is at home here, whatever chance says when it is read again.
        known.moved = true;
        known.timer_at = deadline;
        let timer = Timer::Conn { index: conn.0, generation: known.generation };
        self.timers.set(deadline, timer);
        out.effects.push(Effect::Hold { conn });
        out.effects.push(Effect::Ask { slip, question });
        true
    }

    pub(crate) fn answered_of_will(&self, conn: ConnId) -> Option<bool> {
        match self.conn(conn)?.state {
            State::Willed { is_allowed } => Some(is_allowed),
            _ => None,
        }
    }

    /// The answer, unless nobody waits for it any more.
    pub(crate) fn answered(&mut self, slip: Slip, answer: Answer, out: &mut Outbox) {
        let Some(conn) = slip.conn else { return self.answered_of_doubts(slip, answer, out) };
        let Some(known) = self.conn_mut(conn) else { return };
        let Some(inquiry) = known.state.inquiry() else { return };
        let open = inquiry.all.get_mut(slip.at as usize);
        let Some(open) = open.filter(|open| open.answer.is_none()) else { return };
        if inquiry.number != slip.number {
            return;
        }
        open.answer = Some(answer);
        inquiry.unanswered -= 1;
        if inquiry.unanswered == 0 {
            self.go_on_answered(conn, out);
        }
    }

    /// A connection's timer has fired. It may have been set for an earlier packet.
    pub(crate) fn check_inquiry(&mut self, index: u32, generation: u32, out: &mut Outbox) {
        let (now, conn) = (self.now, ConnId(index));
        let Some(known) = self.conn(conn) else { return };
        let Some(id) = known.session().filter(|_| known.generation == generation) else { return };
        let due = match &known.state {
            State::Unpermitted { inquiry, .. } => Some(self.extend_question(inquiry.deadline)),
            _ => None,
        };
        let later = due.filter(|due| now < *due);
        self.change_answers(id, |answers| answers.timer_at = later);
        match (due, later) {
            (_, Some(at)) => self.timers.set(at, Timer::Asked { index, generation }),
            (Some(_), None) => self.go_on_answered(conn, out),
            (None, None) => {}
        }
    }

    /// Everything is answered, or it is too late: the packet is read again.
    pub(crate) fn go_on_answered(&mut self, conn: ConnId, out: &mut Outbox) {
        let now = self.now;
        let is_outdated = |inquiry: &Inquiry| inquiry.generation != self.rights_generation;
        let Some(known) = self.conns.get_mut(conn.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let session = known.session();
        let Some(inquiry) = known.state.inquiry() else { return };
        let outdated = is_outdated(inquiry);
        let all = std::mem::take(&mut inquiry.all);
        let allows = |open: &Open| open.answer == Some(Answer::Allow);
        if session.is_none() {
            // It is read in a moment, and not too late.
            known.timer_at = Now(now.0 + u64::from(self.options.connect_timeout_ms));
            let timer = Timer::Conn { index: conn.0, generation: known.generation };
            self.timers.set(known.timer_at, timer);
        }
        known.state = match session {
            Some(session) => State::Live { session },
            // By other rules it is asked anew.
            None if outdated => State::Greeting,
            None => State::Willed { is_allowed: all.iter().all(allows) },
        };
        // Until now it was we who did not listen.
        known.heard = now;
        out.effects.push(Effect::Resume { conn });
        let silent = |open: &&Open| matches!(open.answer, None | Some(Answer::Silence));
        self.sessions.counters.unanswered += all.iter().filter(silent).count() as u64;
        let Some(id) = session else { return };
        let asks = self.options.asks_at(self.sessions.get(id).listener);
        let (Some(asks), false) = (asks, outdated) else { return };
        let keeps = !self.sessions.is_tight();
        self.change_answers(id, |answers| {
            for open in &all {
                let keeps = keeps && !silent(&open);
                answers.take(&open.wish(), asks, now, allows(open), keeps);
            }
        });
    }

    /// Changes what is remembered of a session's answers, which is counted.
    fn change_answers(&mut self, id: SessionId, change: impl FnOnce(&mut Answers)) {
        let generation = self.rights_generation;
        let Some(rights) = &mut self.sessions.get_mut(id).rights else { return };
        let before = rights.bytes();
        rights.follow(generation);
        change(rights.answers.get_or_insert_default());
        let after = rights.bytes();
        self.sessions.count_rights(before, after);
    }

    /// The same where there is anything to change.
    fn look_at_answers(&mut self, id: SessionId, change: impl FnOnce(&mut Answers)) {
        let rights = self.sessions.get(id).rights.as_ref();
        if rights.is_some_and(|rights| rights.answers.is_some()) {
            self.change_answers(id, change);
        }
    }
}

/// The filter behind what may stand in front of it.
fn bare(filter: &str) -> Result<&str, Violation> {
    Ok(mqtt::Share::parse(filter)?.map_or(behind(filter), |share| share.filter))
}

/// What is asked of a client: who it is, its id, and its namespace.
pub(crate) fn question(
    (who, client_id, namespace): (&Who, &str, &str),
    wish: Wish<'_>,
) -> Box<Question> {
    Box::new(Question {
        client_id: client_id.into(),
        namespace: namespace.into(),
        user: who.user.clone(),
        address: who.address,
        listener: who.listener,
        common_name: who.common_name.clone(),
        action: wish.action,
        topic: wish.topic.into(),
        qos: wish.qos,
        retain: wish.retain,
    })
}
