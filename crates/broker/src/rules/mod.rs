//! Rules: what becomes of a message beside going to whoever wants it. An immutable list that all
//! shards share and a reload swaps; each shard has an index of the filters that its rules name.
//!
//! A rule sees a message once, on the shard where it was published, with its whole name, before it
//! is stored or delivered; what the rule publishes follows the message. Nothing that a rule does
//! or fails to do disturbs the message, but for the rules whose business it is to drop it.

use crate::delayed::Publisher;
use crate::input::SessionId;
use crate::message::Draft;
use crate::mount::parts;
use crate::note::Note;
use crate::outbox::Outbox;
use crate::peer::Address;
use crate::shard::Shard;
use crate::topics::{FilterId, Topics};
use mqtt::{Properties, QoS};
use rules::{Budget, EVENTS, Failed, Map, Plan, Seen, Template};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) mod events;
mod heads;
mod made;
mod tally;
pub(crate) mod windows;

pub use events::{Fates, Told};
pub use made::Preview;
pub use tally::{FAILURES, TALLY_ROWS, Tally, TallyRow};
pub use windows::Row;

pub(crate) use events::Ear;
use events::{Happened, Heeds};
use heads::Heads;
use made::{Of, Unmade};

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    pub name: Arc<str>,
    /// Its SQL.
    pub text: Arc<str>,
    pub plan: Arc<Plan>,
    pub acts: Acts,
    /// Outlives a reload: it is that of the rule's name.
    pub tally: Arc<Tally>,
}

/// What is done with its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acts {
    /// A message of which there is a row goes nowhere else.
    pub drops: bool,
    /// A row is a line in the log.
    pub prints: bool,
    pub publishes: Option<Publishing>,
    pub sends: Option<Sending>,
}

/// A message that is made of each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publishing {
    /// That of what the rule saw where there is none, see `Looked::name`.
    pub topic: Option<Template>,
    pub payload: Template,
    /// That of the message where there is none.
    pub qos: Option<QoS>,
    pub retain: Option<bool>,
    /// Whether it has the properties of the message, Message Expiry Interval among them.
    pub keeps_properties: bool,
    /// In the place of the message's.
    pub expiry_s: Option<NonZeroU32>,
    pub user_properties: Vec<(Box<str>, Template)>,
}

/// A message for links alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// By the client ids of their sessions.
    pub to: Vec<Box<str>>,
    pub message: Publishing,
}

impl Acts {
    /// What is made of each row, each with the link that it is for.
    pub(crate) fn makes(&self) -> impl Iterator<Item = (Option<&str>, &Publishing)> {
        let sends = self.sends.iter();
        let sends = sends.flat_map(|sends| sends.to.iter().map(|to| (Some(&**to), &sends.message)));
        self.publishes.iter().map(|publishes| (None, publishes)).chain(sends)
    }
}

/// The same text that does the same is the same rule.
impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        (&self.name, &self.text, &self.acts) == (&other.name, &other.text, &other.acts)
    }
}

impl Eq for Rule {}

/// A shard's way from a topic to the rules that want it.
#[derive(Debug)]
pub(crate) struct Ruling {
    all: Arc<[Rule]>,
    heads: Heads,
    topics: Topics,
    /// By filter: places in `all`.
    wanted: Vec<Vec<u32>>,
    filters: Vec<FilterId>,
    runs: u64,
    /// The same by event. None where no rule looks at any.
    events: Option<Box<[Vec<u32>; EVENTS.len()]>>,
}

impl Ruling {
    pub(crate) fn new(seed: u64, all: Arc<[Rule]>) -> Ruling {
        let (mut topics, mut wanted) = (Topics::new(seed), Vec::new());
        let mut events: Option<Box<[Vec<u32>; EVENTS.len()]>> = None;
        for (at, rule) in all.iter().enumerate() {
            for event in rule.plan.events() {
                let own = &mut events.get_or_insert_default()[event];
                if own.last() != Some(&(at as u32)) {
                    own.push(at as u32);
                }
            }
            for filter in rule.plan.topics() {
                let (FilterId(id), _) = topics.find_or_insert(filter);
                let id = id as usize;
                wanted.resize_with(wanted.len().max(id + 1), Vec::new);
                wanted[id].push(at as u32);
            }
        }
        let filters: Vec<&str> = all.iter().flat_map(|rule| rule.plan.topics()).collect();
        let heads = Heads::new(&filters);
        Ruling { all, heads, topics, wanted, filters: Vec::new(), runs: 0, events }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any rule looks at events.
    pub(crate) fn hears(&self) -> bool {
        self.events.is_some()
    }

    /// Those that want an event, in their order.
    fn wanting(&self, event: usize) -> &[u32] {
        self.events.as_ref().map_or(&[], |events| &events[event])
    }

    /// What a shard has to take note of for them, and to tell.
    pub(crate) fn heeds(&self, told: Fates) -> Heeds {
        let wants = |name: &str| events::place(name).is_some_and(|at| !self.wanting(at).is_empty());
        Heeds {
            any: self.hears() || told != Fates::default(),
            told,
            delivered: told.delivered || wants("message/delivered"),
            acked: told.acked || wants("message/acked"),
            dropped: wants("message/dropped"),
            delivery_dropped: wants("message/delivery_dropped"),
        }
    }

    /// Those that want a topic, each once, in their order.
    #[inline]
    fn find(&mut self, topic: &str) -> Vec<u32> {
        match self.heads.may_match(topic) {
            true => self.look_up(topic),
            false => Vec::new(),
        }
    }

    fn look_up(&mut self, topic: &str) -> Vec<u32> {
        self.topics.matching(topic, &mut self.filters);
        let wanted = self.filters.iter().flat_map(|&FilterId(id)| &self.wanted[id as usize]);
        let mut found: Vec<u32> = wanted.copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// What the rules made of a message.
#[derive(Debug, Default)]
pub(crate) struct Ruled {
    pub(crate) drops: bool,
    /// Some rule has something of it.
    passed: bool,
    made: Vec<Made>,
    /// Of all rules that see the message, and of what comes of it.
    budget: Budget,
    /// Through a power cut too what was made is to come, as the message does: see `Draft::once`.
    pub(crate) once: bool,
    /// See `Draft::publisher`.
    publisher: u32,
}

impl Ruled {
    #[inline]
    fn has_made(&self) -> bool {
        !self.made.is_empty()
    }
}

/// A message that a rule made.
#[derive(Debug)]
struct Made {
    topic: String,
    /// Where the name begins that it has for its link. Of what everyone may have it is 0.
    link_len: usize,
    payload: Vec<u8>,
    properties: Vec<u8>,
    qos: QoS,
    retain: bool,
    expiry_s: u32,
    by: u32,
    /// How many rules came before it.
    depth: u8,
}

/// Who published what a rule sees, or whom an event is about.
#[derive(Debug, Default)]
pub(crate) struct Who {
    client_id: Box<str>,
    user: Option<Arc<str>>,
    address: Option<String>,
    id: String,
}

/// What rules look at.
struct Looked<'a> {
    /// Without topic and payload where it is an event that is about no message.
    draft: &'a Draft<'a>,
    who: &'a Who,
    is_dup: bool,
    /// How many rules came before it.
    depth: u8,
    event: Option<&'a Happened>,
}

impl<'a> Looked<'a> {
    /// What a row is called that nobody has called anything: as the message, or the event, or,
    /// of a window, the rule.
    fn name(&self, rule: &'a Rule) -> &'a str {
        match (self.draft.topic, self.event) {
            ("", Some(happened)) => EVENTS[happened.event].name,
            ("", None) => &rule.name,
            (topic, _) => topic,
        }
    }
}

/// Rules may go on from each other's messages so often.
const DEPTH_MAX: u8 = 8;

/// Of all rules that see a message, or the events of one input, eight times what one of them may
/// use: some ten milliseconds.
const STEPS_OF_ALL: u64 = 1_600_000;

/// Of so many runs one is timed.
const SAMPLED: u64 = 16;

impl Shard {
    /// The options may have other rules than before.
    pub(crate) fn rule_anew(&mut self) {
        if !Arc::ptr_eq(&self.ruling.all, &self.options.rules) {
            self.ruling = Ruling::new(self.draw(), self.options.rules.clone());
            self.window_anew();
        }
        self.heed_anew();
    }

    pub(crate) fn heed_anew(&mut self) {
        self.sessions.heard.heeds = self.ruling.heeds(self.options.noted.fates);
    }

    /// To the rules, to what is retained and to whoever wants it; then what rules made of it. Says
    /// whether anyone wants any of it.
    #[inline]
    pub(crate) fn spread(
        &mut self,
        id: SessionId,
        draft: &mut Draft<'_>,
        is_dup: bool,
        out: &mut Outbox,
    ) -> bool {
        let ruled = match self.ruling.is_empty() {
            true => Ruled::default(),
            false => self.rule(id, draft, is_dup, out),
        };
        let matched = self.pass_on(&ruled, Some(id), draft, out) | ruled.passed;
        if ruled.has_made() {
            let once = draft.qos == QoS::ExactlyOnce && self.waits_for_store(id);
            self.publish_made(Ruled { once, ..ruled }, out);
        }
        matched
    }

    /// To what is retained and to whoever wants it, if no rule drops it. Says whether anyone does.
    #[inline]
    pub(crate) fn pass_on(
        &mut self,
        ruled: &Ruled,
        from: Option<SessionId>,
        draft: &mut Draft<'_>,
        out: &mut Outbox,
    ) -> bool {
        if ruled.drops {
            return false;
        }
        if !self.options.caches.is_empty() {
            self.keep_in_caches(draft, out);
        }
        // [MQTT-3.3.1-8]
        if draft.retain {
            self.retain(draft, out);
        }
        self.route(from, draft, out)
    }

    /// Shows a message that a client published, or left as its will, to the rules.
    pub(crate) fn rule(
        &mut self,
        from: SessionId,
        draft: &Draft<'_>,
        is_dup: bool,
        out: &mut Outbox,
    ) -> Ruled {
        self.show(draft, is_dup, |shard, found| shard.publisher_for(from, found), out)
    }

    /// The same of a message whose publisher may have gone.
    pub(crate) fn rule_late(
        &mut self,
        by: &Publisher,
        draft: &Draft<'_>,
        out: &mut Outbox,
    ) -> Ruled {
        let who = |shard: &mut Shard, _: &[u32]| Who {
            client_id: parts(&by.client_id).1.into(),
            user: by.user.clone(),
            address: by.address.as_deref().map(Into::into),
            id: format!("{:016x}", shard.draw()),
        };
        self.show(draft, false, who, out)
    }

    /// Who says something now, as is to be known later.
    pub(crate) fn publisher(&self, id: SessionId) -> Publisher {
        let Who { user, address, .. } = self.who(id);
        let client_id = self.sessions.get(id).client_id.clone();
        Publisher { client_id, user, address: address.map(Into::into) }
    }

    fn show(
        &mut self,
        draft: &Draft<'_>,
        is_dup: bool,
        who: impl FnOnce(&mut Shard, &[u32]) -> Who,
        out: &mut Outbox,
    ) -> Ruled {
        let mut ruled = Ruled { publisher: draft.publisher, ..Ruled::default() };
        ruled.budget.steps = STEPS_OF_ALL;
        let found = self.ruling.find(draft.topic);
        if !found.is_empty() {
            let who = &who(self, &found);
            let looked = Looked { draft, who, is_dup, depth: 0, event: None };
            self.run_rules(&found, &looked, &mut ruled, out);
        }
        ruled
    }

    fn run_rules(
        &mut self,
        found: &[u32],
        looked: &Looked<'_>,
        ruled: &mut Ruled,
        out: &mut Outbox,
    ) {
        let all = self.ruling.all.clone();
        let more = looked.event.map(Happened::fields).unwrap_or_default();
        let mut rows = Vec::new();
        for &at in found {
            let rule = &all[at as usize];
            let chance = if rule.plan.reads().chance { self.draw() } else { 0 };
            let seen = Seen { chance, ..self.seen(looked, &more) };
            rows.clear();
            rule.tally.matched.fetch_add(1, Relaxed);
            // One that takes long leaves the others their time.
            let of_all = ruled.budget.steps;
            ruled.budget.steps = of_all.min(Budget::default().steps);
            let (before, began) = (ruled.budget.steps, self.sampled());
            let done = match rule.plan.window() {
                None => {
                    let done = rule.plan.run(&seen, &mut ruled.budget, &mut rows);
                    rule.tally.steps.fetch_add(before - ruled.budget.steps, Relaxed);
                    done
                }
                Some(_) => {
                    self.offer((at, rule), &seen, looked.depth, ruled, out);
                    Ok(())
                }
            };
            match done {
                Err(failed) => self.rule_failed(rule, &failed, out),
                Ok(()) if rows.is_empty() => {}
                // It would go on, and may not.
                Ok(()) if looked.depth >= DEPTH_MAX => rule.tally.fail("loop"),
                Ok(()) => {
                    rule.tally.passed.fetch_add(1, Relaxed);
                    ruled.passed = true;
                    self.act(rule, at, &rows, looked, ruled, out);
                }
            }
            ruled.budget.steps = of_all - (before - ruled.budget.steps);
            if let Some(began) = began {
                let took = (self.ear.stopwatch)().saturating_sub(began);
                rule.tally.ns.fetch_add(took * SAMPLED, Relaxed);
            }
        }
    }

    /// What the stopwatch shows, where this run is one of those that are timed: to look at it
    /// twice takes as long as some of them.
    fn sampled(&mut self) -> Option<u64> {
        self.ruling.runs = self.ruling.runs.wrapping_add(1);
        self.ruling.runs.is_multiple_of(SAMPLED).then(self.ear.stopwatch)
    }

    /// Nanoseconds that pass, for what rules take.
    pub fn time_rules(&mut self, stopwatch: fn() -> u64) {
        self.ear.stopwatch = stopwatch;
    }

    /// Whether a rule may make something of a message that the store would have to take.
    #[cold]
    pub(crate) fn rules_need_store(&mut self, topic: &str, qos: QoS, retain: bool) -> bool {
        let own = self.lasting_sessions > 0;
        let lasts = own || (0..self.shards as u8).any(|shard| self.interest.lasts(shard));
        let found = self.ruling.find(topic);
        found.iter().any(|&at| {
            let rule = &self.ruling.all[at as usize];
            // What a window makes comes later.
            let mut makes = rule.acts.makes().filter(|_| rule.plan.window().is_none());
            makes.any(|(link, made)| {
                let waits = made.qos.unwrap_or(qos) != QoS::AtMostOnce;
                (link.is_none() && made.retain.unwrap_or(retain)) || (waits && lasts)
            })
        })
    }

    /// It as fields.
    fn seen<'a>(&self, looked: &Looked<'a>, more: &'a [(&'a str, rules::Value<'a>)]) -> Seen<'a> {
        let Looked { draft, who, .. } = *looked;
        let event = looked.event.map(|happened| &EVENTS[happened.event]);
        Seen {
            event: event.map_or(Seen::default().event, |event| event.label),
            has_message: event.is_none_or(|event| event.has_message),
            topic: draft.topic,
            payload: draft.payload,
            qos: draft.qos as u8,
            retain: draft.retain,
            dup: looked.is_dup,
            clientid: &who.client_id,
            username: who.user.as_deref(),
            peerhost: who.address.as_deref(),
            properties: Properties::trusted(draft.properties),
            id: &who.id,
            timestamp_ms: self.time_of_day_ms(self.now.0),
            now_ms: self.time_of_day_ms(self.now.0),
            more,
            ..Seen::default()
        }
    }

    fn act(
        &mut self,
        rule: &Rule,
        by: u32,
        rows: &[Map<'_>],
        looked: &Looked<'_>,
        ruled: &mut Ruled,
        out: &mut Outbox,
    ) {
        ruled.drops |= rule.acts.drops;
        for row in rows {
            if rule.acts.prints
                && let Some(withheld) = self.tells_rule()
            {
                let (rule, row) = (rule.name.clone(), row.to_string().into());
                out.notes.push(Note::RuleSaid { rule, row, withheld });
            }
            for (link, publishing) in rule.acts.makes() {
                if self.sessions.is_full() {
                    rule.tally.fail("memory");
                    continue;
                }
                let of = Of { draft: looked.draft, name: looked.name(rule), link };
                match publishing.make(row, &of, &self.options, &mut ruled.budget) {
                    Ok(made) => {
                        if link.is_none() {
                            rule.tally.published.fetch_add(1, Relaxed);
                        }
                        ruled.made.push(Made { by, depth: looked.depth + 1, ..made });
                    }
                    Err(Unmade::Failed(failed)) => return self.rule_failed(rule, &failed, out),
                    Err(Unmade::Because(why)) => rule.tally.fail(why),
                }
            }
        }
    }

    /// Whether one more line of rules may be told, and how many before it were not.
    fn tells_rule(&mut self) -> Option<u64> {
        let told = self.rules_noted.count(self.now);
        if told.is_none() {
            self.plan_notes();
        }
        told
    }

    fn rule_failed(&mut self, rule: &Rule, failed: &Failed, out: &mut Outbox) {
        rule.tally.fail(failed.reason());
        if let Some(withheld) = self.tells_rule() {
            let (rule, why) = (rule.name.clone(), failed.to_string().into());
            out.notes.push(Note::RuleFailed { rule, why, withheld });
        }
    }

    /// The rest only where one of the rules looks at it.
    fn publisher_for(&mut self, id: SessionId, found: &[u32]) -> Who {
        let all = self.ruling.all.clone();
        let reads = found.iter().any(|&at| all[at as usize].plan.reads().publisher);
        if !reads {
            let client_id = self.sessions.get(id).said_id().into();
            return Who { client_id, ..Who::default() };
        }
        let id_of_message = format!("{:016x}", self.draw());
        Who { id: id_of_message, ..self.who(id) }
    }

    /// A session's client, as it calls itself.
    fn who(&self, id: SessionId) -> Who {
        let session = self.sessions.get(id);
        let peer = session.conn().and_then(|conn| self.conn(conn)).map(|known| known.peer.address);
        Who {
            client_id: session.said_id().into(),
            user: session.rights.as_ref().and_then(|rights| rights.who.user.clone()),
            address: peer.map(host_of),
            id: String::new(),
        }
    }
}

/// Without its port.
fn host_of(address: Address) -> String {
    match address {
        Address::Network(address) => address.ip().to_canonical().to_string(),
        unix @ Address::Unix { .. } => unix.to_string(),
    }
}

#[cfg(test)]
mod tests;
