//! What happened, for rules that look at events and for sinks. What clients and sessions do is told
//! by the notes that a shard makes anyway, what becomes of messages where it is decided; both only
//! where somebody wants it. Rules see it at the end of the input that brought it about.

use super::{DEPTH_MAX, Looked, Ruled, STEPS_OF_ALL, Who, host_of};
use crate::deliver::Hit;
use crate::flight::granted;
use crate::input::SessionId;
use crate::limits::LINK_IDS;
use crate::message::{Draft, Message};
use crate::mount::parts;
use crate::note::Note;
use crate::outbox::Outbox;
use crate::refusal::Refusal;
use crate::session::Sessions;
use crate::shard::Shard;
use crate::sys::Drop;
use mqtt::Publish;
use mqtt::{QoS, Reason};
use rules::{EVENTS, Value};
use std::sync::Arc;

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Happened {
    /// Its place in the table of events.
    pub(super) event: usize,
    who: Who,
    more: Vec<(&'static str, Value<'static>)>,
    message: Option<Message>,
    qos: QoS,
    /// With its namespace, the client id of whom it is about, where that is to be told.
    told: Option<Box<str>>,
}

/// What of what becomes of messages is told beside rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    pub delivered: bool,
    pub acked: bool,
}

/// Which events about messages somebody wants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heeds {
    /// Also those that are about none.
    pub(crate) any: bool,
    pub(crate) told: Fates,
    pub(crate) delivered: bool,
    pub(crate) acked: bool,
    pub(crate) dropped: bool,
    pub(crate) delivery_dropped: bool,
}

impl Fates {
    fn has(self, event: &str) -> bool {
        match event {
            "message/delivered" => self.delivered,
            "message/acked" => self.acked,
            _ => false,
        }
    }
}

impl Heeds {
    /// Whether every delivery is to be looked at.
    #[inline]
    pub(crate) fn watches(self) -> bool {
        self.delivered | self.delivery_dropped
    }
}

/// What a shard's sessions have for rules.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) heeds: Heeds,
    happened: Vec<Happened>,
    /// Those beyond what one input may bring about, by event.
    pub(super) unheard: [u64; EVENTS.len()],
}

/// What a shard knows for events, and how it tells what rules take.
#[derive(Debug)]
pub(crate) struct Ear {
    /// How many of the outbox's notes were looked at.
    pub(crate) noted: usize,
    /// Who the CONNECT that is refused says that it is.
    pub(crate) refused: Option<(Box<str>, Option<Arc<str>>)>,
    pub(super) stopwatch: fn() -> u64,
}

impl Default for Ear {
    fn default() -> Ear {
        Ear { noted: 0, refused: None, stopwatch: || 0 }
    }
}

/// What the control plane tells of a link.
#[derive(Clone, Debug)]
pub struct Told {
    /// Behind `$events/`.
    pub event: &'static str,
    pub fields: Vec<(&'static str, String)>,
}

/// What one input may bring about and rules hear of: more than that is counted (`failed/events`).
const HAPPENED_MAX: usize = 16 * 1024;

/// What each of them has in any case: one read may bring thousands of packets, and rules that look
/// at little are to see all of it.
const STEPS_OF_EVENT: u64 = 1_000;

/// Its place in the table.
pub(super) fn place(name: &str) -> Option<usize> {
    rules::event(name)
}

impl Happened {
    pub(super) fn fields(&self) -> Vec<(&str, Value<'_>)> {
        self.more.iter().map(|(name, value)| (*name, value.view())).collect()
    }

    /// For those who hear of it as of anything else that a shard notes.
    fn note(&self) -> Option<Note> {
        let (client_id, message) = (self.told.clone()?, self.message.clone()?);
        let (event, user) = (EVENTS[self.event].label, self.who.user.clone());
        Some(Note::Fate { event, client_id, user, qos: self.qos, message })
    }
}

impl Shard {
    /// Tells what happened since it was asked last, and shows it to the rules, with what follows
    /// from that. All of it comes from one input, and so shares what a message's rules may cost.
    #[cold]
    pub(crate) fn hear(&mut self, out: &mut Outbox) {
        let mut steps = STEPS_OF_ALL;
        for round in 0_u8.. {
            self.gather(out);
            let happened = std::mem::take(&mut self.sessions.heard.happened);
            if happened.is_empty() {
                break;
            }
            let depth = round.min(DEPTH_MAX);
            for one in &happened {
                out.notes.extend(one.note());
                let least = steps.max(STEPS_OF_EVENT);
                let mut left = least;
                let ruled = self.hear_of(one, depth, &mut left, out);
                self.publish_within(ruled, &mut left, out);
                steps = steps.saturating_sub(least - left);
            }
            self.settle(out);
            if depth == DEPTH_MAX {
                break;
            }
        }
        self.count_unheard(out);
        self.owed.asked.clear();
    }

    fn hear_of(&mut self, one: &Happened, depth: u8, steps: &mut u64, out: &mut Outbox) -> Ruled {
        let mut ruled = Ruled::default();
        ruled.budget.steps = *steps;
        let mut found = self.ruling.wanting(one.event).to_vec();
        let mut draft = match &one.message {
            Some(message) => message.draft(),
            None => Draft::new("", b"", self.now),
        };
        draft.qos = one.qos;
        // A rule that publishes when its own message is delivered would never end.
        if draft.made {
            let all = self.ruling.all.clone();
            found.retain(|at| {
                let rule = &all[*at as usize];
                let goes_on = rule.acts.publishes.is_some();
                if goes_on {
                    rule.tally.fail("loop");
                }
                !goes_on
            });
        }
        let looked =
            Looked { draft: &draft, who: &one.who, is_dup: false, depth, event: Some(one) };
        self.run_rules(&found, &looked, &mut ruled, out);
        *steps = ruled.budget.steps;
        ruled
    }

    /// Makes events of the notes since it was asked last, while what they are about is still here.
    #[cold]
    pub(crate) fn gather(&mut self, out: &Outbox) {
        let from = std::mem::replace(&mut self.ear.noted, out.notes.len());
        for note in out.notes.get(from..).unwrap_or_default() {
            for event in events_of(note) {
                let Some(event) = place(event) else { continue };
                if self.ruling.wanting(event).is_empty() {
                    continue;
                }
                let happened = self.happened(event, note);
                self.sessions.heard.happened.push(happened);
            }
        }
    }

    fn happened(&self, event: usize, note: &Note) -> Happened {
        let whole = note.client_id().unwrap_or_default();
        let (namespace, said) = parts(whole);
        let session = self.sessions.find(whole).filter(|_| !whole.is_empty());
        let mut who = session.map(|id| self.who(id)).unwrap_or_default();
        who.client_id = said.into();
        let mut more = note.fields();
        let now = self.time_of_day_ms(self.now.0);
        match note {
            Note::Connected { peer, .. } => {
                who.address = Some(host_of(*peer));
                let expiry_s = session.map_or(0, |id| self.sessions.get(id).expiry_s);
                more.push(("expiry_interval", Value::Int(expiry_s.into())));
                more.push(("connected_at", Value::Int(now)));
                more.push(("reason_code", Value::text("success")));
            }
            Note::Refused { peer, refusal, user, .. } => {
                who.address = Some(host_of(*peer));
                who.user = who.user.or_else(|| user.clone());
                more.push(("reason_code", word(refusal.reason())));
                more.push(("result", Value::text("deny")));
            }
            Note::Denied { .. } => more.push(("result", Value::text("deny"))),
            Note::Subscribed { code, .. } => more.push(("qos", Value::Int((*code).into()))),
            _ => {}
        }
        if EVENTS[event].fields.contains(&"disconnected_at") {
            more.push(("disconnected_at", Value::Int(now)));
        }
        more.extend(namespace.map(|name| ("namespace", Value::Text(name.to_string().into()))));
        more.retain(|(name, _)| EVENTS[event].fields.contains(name));
        Happened { event, who, more, message: None, qos: QoS::AtMostOnce, told: None }
    }

    /// What only the control plane knows of.
    pub(crate) fn told(&mut self, told: Told) {
        let Some(event) = place(told.event).filter(|at| !self.ruling.wanting(*at).is_empty())
        else {
            return;
        };
        let more = told.fields.into_iter();
        let more = more.map(|(name, value)| (name, Value::Text(value.into()))).collect();
        let (who, qos) = (Who::default(), QoS::AtMostOnce);
        let happened = Happened { event, who, more, message: None, qos, told: None };
        self.sessions.heard.happened.push(happened);
    }

    /// What a client published goes nowhere.
    #[cold]
    pub(crate) fn heed_dropped(&mut self, id: SessionId, draft: &mut Draft<'_>, why: &'static str) {
        if self.sessions.heard.heeds.dropped {
            self.sessions.heed(id, "message/dropped", draft.qos, Some(why), draft);
        }
    }

    /// The same of what is refused before it is a message.
    #[cold]
    pub(crate) fn heed_refused(&mut self, id: SessionId, packet: &Publish<'_>, drop: Drop) {
        let mut draft = Draft::new(packet.topic, packet.payload, self.now);
        (draft.qos, draft.retain) = (packet.qos, packet.retain);
        self.heed_dropped(id, &mut draft, drop.name());
    }

    /// Rules see less than happened, and less is told.
    fn count_unheard(&mut self, out: &mut Outbox) {
        for (event, count) in
            std::mem::take(&mut self.sessions.heard.unheard).into_iter().enumerate()
        {
            for &at in self.ruling.wanting(event).iter().filter(|_| count > 0) {
                self.ruling.all[at as usize].tally.fail_times("events", count);
            }
            if count > 0 && self.options.noted.fates.has(EVENTS[event].name) {
                out.notes.push(Note::Untold { event: EVENTS[event].label, count });
            }
        }
    }
}

impl Sessions {
    /// Delivers where rules may want to hear of it. What is sent is told by the counters, so that
    /// the way of a message that no rule hears of is no longer.
    pub(crate) fn deliver_heeded(&mut self, hit: Hit, draft: &mut Draft<'_>, out: &mut Outbox) {
        let before = self.written();
        self.deliver(hit, draft, out);
        self.heed_sent(hit.session, granted(draft.qos, hit.options), before, draft);
    }

    /// How many messages were written to clients, and how many were too large for them.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.counters.publish_sent, self.counters.drops[Drop::PacketTooLarge as usize])
    }

    /// What became of one since.
    pub(crate) fn heed_sent(
        &mut self,
        id: SessionId,
        qos: QoS,
        before: (u64, u64),
        draft: &mut Draft<'_>,
    ) {
        if !self.heard.heeds.watches() {
            return;
        }
        let (sent, too_large) = self.written();
        if sent > before.0 && self.heard.heeds.delivered {
            self.heed(id, "message/delivered", qos, None, draft);
        }
        if too_large > before.1 {
            self.heed_drop(id, Drop::PacketTooLarge, draft);
        }
    }

    /// A message is a client's own from here on.
    #[cold]
    pub(crate) fn heed_acked(&mut self, id: SessionId, draft: &mut Draft<'_>) {
        self.heed(id, "message/acked", draft.qos, None, draft);
    }

    /// A message does not reach a client.
    #[cold]
    pub(crate) fn heed_drop(&mut self, id: SessionId, drop: Drop, draft: &mut Draft<'_>) {
        if self.heard.heeds.delivery_dropped {
            let why = Some(drop.name());
            self.heed(id, "message/delivery_dropped", draft.qos, why, draft);
        }
    }

    fn heed(
        &mut self,
        id: SessionId,
        event: &str,
        qos: QoS,
        why: Option<&'static str>,
        draft: &mut Draft<'_>,
    ) {
        let session = self.get(id);
        let told = self.heard.heeds.told.has(event).then(|| session.client_id.clone());
        let Some(event) = place(event) else { return };
        if session.said_id().starts_with(LINK_IDS) || draft.topic.starts_with("$SYS/") {
            return;
        }
        if self.heard.happened.len() >= HAPPENED_MAX {
            self.heard.unheard[event] += 1;
            return;
        }
        let who = Who {
            client_id: session.said_id().into(),
            user: session.rights.as_ref().and_then(|rights| rights.who.user.clone()),
            ..Who::default()
        };
        let more = why.map(|why| ("reason", Value::text(why))).into_iter().collect();
        let message = Some(draft.message().clone());
        self.heard.happened.push(Happened { event, who, more, message, qos, told });
    }
}

/// The events that a note tells of; none of links, which are nobody's clients.
fn events_of(note: &Note) -> &'static [&'static str] {
    if note.client_id().is_none_or(|id| parts(id).1.starts_with(LINK_IDS)) {
        return &[];
    }
    match note {
        Note::Connected { .. } => &["client/connack", "client/connected"],
        Note::Refused { was_in: true, .. } => &["client/disconnected"],
        Note::Refused { refusal, .. } if is_about_who(*refusal) => {
            &["client/connack", "auth/check_authn_complete"]
        }
        Note::Refused { .. } => &["client/connack"],
        Note::Disconnected { .. } | Note::Lost { .. } => &["client/disconnected"],
        Note::Violated { client_id, .. } if !client_id.is_empty() => &["client/disconnected"],
        Note::Denied { .. } => &["auth/check_authz_complete"],
        Note::Subscribed { code, .. } if *code < 0x80 => &["session/subscribed"],
        Note::Unsubscribed { code: 0, .. } => &["session/unsubscribed"],
        Note::TakenOver { .. } => &["session/takenover"],
        Note::SessionEnded { expired: true, .. } => &["session/expired"],
        Note::SessionEnded { .. } => &["session/terminated"],
        _ => &[],
    }
}

/// Whether it is who a client is that keeps it out.
fn is_about_who(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::AuthMethodUnsupported
            | Refusal::BadCredentials
            | Refusal::NoNamespace
            | Refusal::NoVerdict
            | Refusal::NotRenewed
            | Refusal::NotWelcome
    )
}

/// `BadUserNameOrPassword` as EMQX writes it.
fn word(reason: Reason) -> Value<'static> {
    let plain = format!("{reason:?}").replace("UserName", "Username");
    let mut word = String::new();
    for letter in plain.chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    Value::Text(word.into())
}
