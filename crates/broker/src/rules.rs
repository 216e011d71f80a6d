//! Rules: what becomes of a message beside going to whoever wants it. An immutable list that all
//! shards share and a reload swaps; each shard has an index of the filters that its rules name.
//!
//! A rule sees a message once, on the shard where it was published, with its whole name, before it
//! is stored or delivered; what the rule publishes follows the message. Nothing that a rule does
//! or fails to do disturbs the message, but for the rules whose business it is to drop it.

use crate::input::SessionId;
use crate::limits;
use crate::message::{Draft, NO_EXPIRY};
use crate::note::Note;
use crate::options::Options;
use crate::outbox::Outbox;
use crate::peer::Address;
use crate::publish::awaited;
use crate::shard::Shard;
use crate::topics::{FilterId, Topics};
use mqtt::{Properties, PropertiesBuf, Property, QoS};
use rules::{Budget, Failed, Map, Plan, Seen, Template};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
}

/// A message that is made of each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publishing {
    pub topic: Template,
    pub payload: Template,
    /// That of the message where there is none.
    pub qos: Option<QoS>,
    pub retain: Option<bool>,
    /// Whether it has the properties of the message, Message Expiry Interval among them.
    pub keeps_properties: bool,
    pub user_properties: Vec<(Box<str>, Template)>,
}

/// The same text that does the same is the same rule.
impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        (&self.name, &self.text, &self.acts) == (&other.name, &other.text, &other.acts)
    }
}

impl Eq for Rule {}

/// What became of what a rule saw. Shards add to it side by side, which costs little beside a run.
#[derive(Debug, Default)]
pub struct Tally {
    matched: AtomicU64,
    passed: AtomicU64,
    published: AtomicU64,
    steps: AtomicU64,
    failed: [AtomicU64; FAILURES.len()],
}

/// Why a run, or an action, came to nothing.
pub const FAILURES: [&str; 11] = [
    "arithmetic",
    "bytes",
    "function",
    "loop",
    "memory",
    "property",
    "rows",
    "steps",
    "store",
    "topic",
    "type",
];

/// One value below `$SYS/broker/rule/{name}/`.
pub struct TallyRow {
    pub topic: &'static str,
    pub about: &'static str,
    pub value: fn(&Tally) -> u64,
}

pub const TALLY_ROWS: &[TallyRow] = &[
    TallyRow {
        topic: "matched",
        about: "messages that its filters match",
        value: |tally| tally.matched.load(Relaxed),
    },
    TallyRow {
        topic: "passed",
        about: "those of which there was a row",
        value: |tally| tally.passed.load(Relaxed),
    },
    TallyRow {
        topic: "published",
        about: "messages that it made",
        value: |tally| tally.published.load(Relaxed),
    },
    TallyRow {
        topic: "steps",
        about: "steps of its budget that it used, of some ten nanoseconds each",
        value: |tally| tally.steps.load(Relaxed),
    },
];

impl Tally {
    fn fail(&self, reason: &str) {
        if let Some(at) = FAILURES.iter().position(|known| *known == reason) {
            self.failed[at].fetch_add(1, Relaxed);
        }
    }

    /// Topics below `$SYS/broker/rule/{name}/` and their values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (String, u64)> {
        let rows = TALLY_ROWS.iter().map(|row| (row.topic.to_string(), (row.value)(self)));
        let failed = FAILURES.iter().zip(&self.failed);
        let failed = failed.map(|(why, count)| (format!("failed/{why}"), count.load(Relaxed)));
        rows.chain(failed.filter(|(_, count)| *count > 0))
    }
}

/// A shard's way from a topic to the rules that want it.
#[derive(Debug)]
pub(crate) struct Ruling {
    all: Arc<[Rule]>,
    topics: Topics,
    /// By filter: places in `all`.
    wanted: Vec<Vec<u32>>,
    filters: Vec<FilterId>,
}

impl Ruling {
    pub(crate) fn new(seed: u64, all: Arc<[Rule]>) -> Ruling {
        let (mut topics, mut wanted) = (Topics::new(seed), Vec::new());
        for (at, rule) in all.iter().enumerate() {
            for filter in rule.plan.filters() {
                let (FilterId(id), _) = topics.find_or_insert(filter);
                let id = id as usize;
                wanted.resize_with(wanted.len().max(id + 1), Vec::new);
                wanted[id].push(at as u32);
            }
        }
        Ruling { all, topics, wanted, filters: Vec::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that want a topic, each once, in their order.
    fn find(&mut self, topic: &str) -> Vec<u32> {
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
    /// Of all rules that see the message, and of what comes of it, but for the steps.
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
    payload: Vec<u8>,
    properties: Vec<u8>,
    qos: QoS,
    retain: bool,
    expiry_s: u32,
    by: u32,
    /// How many rules came before it made it.
    depth: u8,
}

/// Who published what a rule sees.
struct Publisher {
    client_id: Box<str>,
    user: Option<Arc<str>>,
    address: Option<String>,
    id: String,
}

/// Rules may go on from each other's messages so often.
const DEPTH_MAX: u8 = 8;

impl Shard {
    /// The options may have other rules than before.
    pub(crate) fn rule_anew(&mut self) {
        if !Arc::ptr_eq(&self.ruling.all, &self.options.rules) {
            self.ruling = Ruling::new(self.draw(), self.options.rules.clone());
        }
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
        let mut matched = ruled.passed;
        if !ruled.drops {
            // [MQTT-3.3.1-8]
            if draft.retain {
                self.retain(draft, out);
            }
            matched |= self.route(Some(id), draft, out);
        }
        if ruled.has_made() {
            let once = draft.qos == QoS::ExactlyOnce && self.waits_for_store(id);
            self.publish_made(Ruled { once, ..ruled }, out);
        }
        matched
    }

    /// Shows a message that a client published, or left as its will, to the rules.
    pub(crate) fn rule(
        &mut self,
        from: SessionId,
        draft: &Draft<'_>,
        is_dup: bool,
        out: &mut Outbox,
    ) -> Ruled {
        let mut ruled = Ruled { publisher: draft.publisher, ..Ruled::default() };
        let found = self.ruling.find(draft.topic);
        if found.is_empty() {
            return ruled;
        }
        let publisher = self.publisher_for(from, &found);
        self.run_rules(&found, draft, &publisher, (is_dup, 0), &mut ruled, out);
        ruled
    }

    /// The same of a message whose publisher may have gone: what it was called is all that is left.
    pub(crate) fn rule_late(
        &mut self,
        client_id: &str,
        draft: &Draft<'_>,
        out: &mut Outbox,
    ) -> Ruled {
        let mut ruled = Ruled { publisher: draft.publisher, ..Ruled::default() };
        let found = self.ruling.find(draft.topic);
        if !found.is_empty() {
            let publisher = Publisher { client_id: client_id.into(), ..Publisher::nobody() };
            self.run_rules(&found, draft, &publisher, (false, 0), &mut ruled, out);
        }
        ruled
    }

    /// Publishes what rules made, and what rules make of that.
    pub(crate) fn publish_made(&mut self, ruled: Ruled, out: &mut Outbox) {
        let (once, publisher) = (ruled.once, ruled.publisher);
        let (mut waiting, mut budget) = (VecDeque::from(ruled.made), ruled.budget);
        budget.steps = Budget::default().steps;
        while let Some(one) = waiting.pop_front() {
            let mut draft = Draft::new(&one.topic, &one.payload, self.now);
            draft.properties = &one.properties;
            (draft.qos, draft.expiry_s) = (one.qos, one.expiry_s);
            draft.retain = one.retain
                && self.options.retain_available
                && !self.retained_is_full(&one.topic)
                && !self.sessions.is_crowded();
            draft.durability = self.durability_of(&one.topic);
            draft.once = once && awaited(&draft);
            draft.publisher = publisher;
            if self.store_is_full && self.wants_store(&draft) {
                self.ruling.all[one.by as usize].tally.fail("store");
                continue;
            }
            let mut ruled = Ruled { budget, ..Ruled::default() };
            let mut found = self.ruling.find(&one.topic);
            found.retain(|at| *at != one.by);
            if one.depth < DEPTH_MAX {
                let nobody = Publisher::nobody();
                self.run_rules(&found, &draft, &nobody, (false, one.depth), &mut ruled, out);
            } else {
                for &at in &found {
                    self.ruling.all[at as usize].tally.fail("loop");
                }
            }
            budget = ruled.budget;
            if !ruled.drops {
                if draft.retain {
                    self.retain(&mut draft, out);
                }
                self.route(None, &mut draft, out);
            }
            waiting.extend(ruled.made);
        }
    }

    fn run_rules(
        &mut self,
        found: &[u32],
        draft: &Draft<'_>,
        publisher: &Publisher,
        (is_dup, depth): (bool, u8),
        ruled: &mut Ruled,
        out: &mut Outbox,
    ) {
        let all = self.ruling.all.clone();
        let mut rows = Vec::new();
        for &at in found {
            let rule = &all[at as usize];
            let seen = Seen {
                topic: draft.topic,
                payload: draft.payload,
                qos: draft.qos as u8,
                retain: draft.retain,
                dup: is_dup,
                clientid: &publisher.client_id,
                username: publisher.user.as_deref(),
                peerhost: publisher.address.as_deref(),
                properties: Properties::trusted(draft.properties),
                id: &publisher.id,
                timestamp_ms: self.now.0 as i64,
                now_ms: self.now.0 as i64,
                chance: if rule.plan.reads().chance { self.draw() } else { 0 },
                ..Seen::default()
            };
            rows.clear();
            rule.tally.matched.fetch_add(1, Relaxed);
            // One that takes long leaves the others their time.
            if depth == 0 {
                ruled.budget.steps = Budget::default().steps;
            }
            let before = ruled.budget.steps;
            let done = rule.plan.run(&seen, &mut ruled.budget, &mut rows);
            rule.tally.steps.fetch_add(before - ruled.budget.steps, Relaxed);
            match done {
                Err(failed) => self.rule_failed(rule, &failed, out),
                Ok(()) if rows.is_empty() => {}
                Ok(()) => {
                    rule.tally.passed.fetch_add(1, Relaxed);
                    ruled.passed = true;
                    self.act(rule, (at, depth), &rows, draft, ruled, out);
                }
            }
        }
    }

    fn act(
        &mut self,
        rule: &Rule,
        (by, depth): (u32, u8),
        rows: &[Map<'_>],
        draft: &Draft<'_>,
        ruled: &mut Ruled,
        out: &mut Outbox,
    ) {
        ruled.drops |= rule.acts.drops;
        for row in rows {
            if rule.acts.prints
                && let Some(withheld) = self.rules_noted.count(self.now)
            {
                let (rule, row) = (rule.name.clone(), row.to_string().into());
                out.notes.push(Note::RuleSaid { rule, row, withheld });
            }
            let Some(publishing) = &rule.acts.publishes else { continue };
            if self.sessions.is_full() {
                rule.tally.fail("memory");
                continue;
            }
            let place = (by, depth + 1);
            match publishing.make(row, draft, place, &self.options, &mut ruled.budget) {
                Ok(made) => {
                    rule.tally.published.fetch_add(1, Relaxed);
                    ruled.made.push(made);
                }
                Err(Unmade::Failed(failed)) => return self.rule_failed(rule, &failed, out),
                Err(Unmade::Because(why)) => rule.tally.fail(why),
            }
        }
    }

    fn rule_failed(&mut self, rule: &Rule, failed: &Failed, out: &mut Outbox) {
        rule.tally.fail(failed.reason());
        if let Some(withheld) = self.rules_noted.count(self.now) {
            let (rule, why) = (rule.name.clone(), failed.to_string().into());
            out.notes.push(Note::RuleFailed { rule, why, withheld });
        }
    }

    /// The rest only where one of the rules looks at it.
    fn publisher_for(&mut self, id: SessionId, found: &[u32]) -> Publisher {
        let all = self.ruling.all.clone();
        let reads = found.iter().any(|&at| all[at as usize].plan.reads().publisher);
        let session = self.sessions.get(id);
        let mut publisher =
            Publisher { client_id: session.said_id().into(), ..Publisher::nobody() };
        if reads {
            let conn = (session.conn != limits::NONE).then_some(crate::input::ConnId(session.conn));
            let peer = conn.and_then(|conn| self.conn(conn)).map(|known| known.peer.address);
            publisher.user = session.rights.as_ref().and_then(|rights| rights.who.user.clone());
            publisher.address = peer.map(|address| match address {
                Address::Network(address) => address.ip().to_canonical().to_string(),
                unix @ Address::Unix { .. } => unix.to_string(),
            });
            publisher.id = format!("{:016x}", self.draw());
        }
        publisher
    }
}

impl Publisher {
    /// A rule.
    fn nobody() -> Publisher {
        Publisher { client_id: "".into(), user: None, address: None, id: String::new() }
    }
}

/// Why a row is not published.
enum Unmade {
    Because(&'static str),
    Failed(Failed),
}

impl From<Failed> for Unmade {
    fn from(failed: Failed) -> Unmade {
        Unmade::Failed(failed)
    }
}

impl Publishing {
    fn make(
        &self,
        row: &Map<'_>,
        draft: &Draft<'_>,
        (by, depth): (u32, u8),
        options: &Options,
        budget: &mut Budget,
    ) -> Result<Made, Unmade> {
        budget.take(size_of::<Made>())?;
        let topic = self.topic(row, options, budget)?;
        let mut payload = Vec::new();
        self.payload.fill(row, budget, &mut payload)?;
        let keeps = self.keeps_properties;
        let expiry_s = if keeps { draft.expiry_s } else { NO_EXPIRY };
        Ok(Made {
            topic,
            properties: self.properties(row, draft, &payload, budget)?,
            payload,
            qos: self.qos.unwrap_or(draft.qos),
            retain: self.retain.unwrap_or(draft.retain),
            expiry_s: expiry_s.min(options.message_expiry_s_max),
            by,
            depth,
        })
    }

    /// One that everyone could publish to.
    fn topic(
        &self,
        row: &Map<'_>,
        options: &Options,
        budget: &mut Budget,
    ) -> Result<String, Unmade> {
        let mut topic = Vec::new();
        let has_all = self.topic.fill(row, budget, &mut topic)?;
        let topic = String::from_utf8(topic).ok().filter(|topic| {
            let is_topic = mqtt::topic::check_topic(topic).is_ok();
            has_all && is_topic && options.permit_topic(topic).is_ok()
        });
        topic.ok_or(Unmade::Because("topic"))
    }

    fn properties(
        &self,
        row: &Map<'_>,
        draft: &Draft<'_>,
        payload: &[u8],
        budget: &mut Budget,
    ) -> Result<Vec<u8>, Unmade> {
        let mut properties = PropertiesBuf::default();
        if self.keeps_properties {
            budget.take(draft.properties.len())?;
            for property in Properties::trusted(draft.properties).iter() {
                let is_text = property == Property::PayloadFormatIndicator(1);
                // [MQTT-3.3.2-4]: it was said of another payload.
                if !is_text || std::str::from_utf8(payload).is_ok() {
                    properties.push(property);
                }
            }
        }
        for (name, template) in &self.user_properties {
            let mut value = Vec::new();
            template.fill(row, budget, &mut value)?;
            // [MQTT-1.5.4-1] [MQTT-1.5.4-2]
            let value = String::from_utf8(value)
                .ok()
                .filter(|value| value.len() <= usize::from(u16::MAX) && !value.contains('\0'));
            let value = value.ok_or(Unmade::Because("property"))?;
            properties.push(Property::UserProperty(name, &value));
        }
        Ok(properties.as_properties().as_bytes().to_vec())
    }
}
