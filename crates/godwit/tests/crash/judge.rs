//! Compares received messages with acknowledged ones. A violation panics at once.

use mqtt::QoS;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

#[derive(Default)]
pub(crate) struct DeliveryJudge {
    topics: Vec<JudgedTopic>,
    by_name: HashMap<String, usize>,
    claims: Vec<ReceiverClaim>,
    /// Number of acknowledgements that publishers received.
    pub(crate) acknowledgements: u64,
    pub(crate) arrivals: u64,
    pub(crate) sends: u64,
    /// Events so far, for the analysis of a failure.
    history: Vec<String>,
}

/// Identifies a message: index of its topic, and its number in the topic, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageName {
    pub(crate) topic: usize,
    pub(crate) number: u32,
}

/// A topic, to which only one publisher publishes, and its messages.
struct JudgedTopic {
    name: String,
    qos: QoS,
    retain: bool,
    messages: Vec<SentMessage>,
}

#[derive(Clone, Copy)]
struct SentMessage {
    /// Whether the payload is empty. Such a message clears a retained message and does not carry
    /// its number.
    clears: bool,
    acknowledged: bool,
}

/// A receiver that must get every acknowledged message of its topics: a session, or a shared group.
struct ReceiverClaim {
    name: String,
    qos: QoS,
    prefixes: &'static [&'static str],
    is_group: bool,
    /// Number of arrivals, by index of the topic and number of the message.
    counts: Vec<Vec<u32>>,
}

impl DeliveryJudge {
    pub(crate) fn topic(&mut self, name: String, qos: QoS, retain: bool) -> usize {
        self.by_name.insert(name.clone(), self.topics.len());
        self.topics.push(JudgedTopic { name, qos, retain, messages: Vec::new() });
        self.topics.len() - 1
    }

    pub(crate) fn claim(
        &mut self,
        name: String,
        qos: QoS,
        prefixes: &'static [&'static str],
        is_group: bool,
    ) -> usize {
        self.claims.push(ReceiverClaim { name, qos, prefixes, is_group, counts: Vec::new() });
        self.claims.len() - 1
    }

    pub(crate) fn name_of(&self, topic: usize) -> &str {
        &self.topics[topic].name
    }

    pub(crate) fn say(&self, name: MessageName) -> String {
        format!("{} {}", self.topics[name.topic].name, name.number)
    }

    pub(crate) fn note(&mut self, what: impl FnOnce(&DeliveryJudge) -> String) {
        let what = what(self);
        self.history.push(what);
    }

    pub(crate) fn write_history(&self, path: &Path) {
        let mut text = String::new();
        for line in &self.history {
            let _ = writeln!(text, "{line}");
        }
        let _ = std::fs::write(path, text);
    }

    /// Records a message that a publisher sends. Returns the identity of the message.
    pub(crate) fn sent(&mut self, topic: usize, clears: bool, packet_id: u16) -> MessageName {
        let messages = &mut self.topics[topic].messages;
        messages.push(SentMessage { clears, acknowledged: false });
        let name = MessageName { topic, number: messages.len() as u32 - 1 };
        self.sends += 1;
        self.note(|judge| format!("{} sent as {packet_id}", judge.say(name)));
        name
    }

    pub(crate) fn acknowledged(&mut self, name: MessageName) {
        self.topics[name.topic].messages[name.number as usize].acknowledged = true;
        self.acknowledgements += 1;
        self.note(|judge| format!("{} acknowledged", judge.say(name)));
    }

    /// Records the arrival of a message at a receiver. The caller excludes repetitions under a
    /// packet id that is still in use.
    pub(crate) fn arrived(&mut self, claim: usize, by: &str, topic: &str, number: Option<u32>) {
        self.arrivals += 1;
        let Some(&at) = self.by_name.get(topic) else { panic!("{by} got {topic}: never sent") };
        let topic = &self.topics[at];
        let claim = &mut self.claims[claim];
        let Some(number) = number else {
            return assert!(topic.retain, "{by} got {} without its number", topic.name);
        };
        let place = number as usize;
        assert!(place < topic.messages.len(), "{by} got {} {number}: never sent", topic.name);
        if claim.counts.len() <= at {
            claim.counts.resize(at + 1, Vec::new());
        }
        let counts = &mut claim.counts[at];
        if !claim.is_group {
            // What is acknowledged later or never is sent again, so nothing may be missing here.
            let missing = (counts.len()..place).find(|&place| !topic.messages[place].clears);
            assert_eq!(missing, None, "{by} got {} {number} before another", topic.name);
        }
        if counts.len() <= place {
            counts.resize(place + 1, 0);
        }
        counts[place] += 1;
        let once = topic.qos == QoS::ExactlyOnce && claim.qos == QoS::ExactlyOnce;
        assert!(
            !once || counts[place] == 1,
            "{} got {} {number} twice, and both QoS are 2; now {by}",
            claim.name,
            topic.name
        );
    }

    /// Returns a description of the first message that was acknowledged and has not arrived, if
    /// any.
    pub(crate) fn missing(&self) -> Option<String> {
        for claim in &self.claims {
            for (at, topic) in self.topics.iter().enumerate() {
                if !claim.prefixes.iter().any(|prefix| topic.name.starts_with(prefix)) {
                    continue;
                }
                let counts = claim.counts.get(at).map_or(&[][..], |counts| counts);
                let came = |place: usize| counts.get(place).is_some_and(|&count| count > 0);
                let lost = |(place, sent): (usize, &SentMessage)| {
                    let lost = sent.acknowledged && !sent.clears && !came(place);
                    lost.then(|| format!("{} {place} never came to {}", topic.name, claim.name))
                };
                let mut all = topic.messages.iter().enumerate();
                if let Some(lost) = all.find_map(lost) {
                    return Some(lost);
                }
            }
        }
        None
    }

    /// Returns the last acknowledged number of each retained topic: after the crash the topic must
    /// have this message or a later one.
    pub(crate) fn retained(&self) -> Vec<(usize, Option<u32>)> {
        let topics = self.topics.iter().enumerate().filter(|(_, topic)| topic.retain);
        topics
            .map(|(at, topic)| {
                let last = topic.messages.iter().rposition(|sent| sent.acknowledged);
                (at, last.map(|last| last as u32))
            })
            .collect()
    }

    /// Checks that a retained message is the one in `least` or was sent later. Returns the index of
    /// its topic.
    pub(crate) fn was_retained(
        &self,
        topic: &str,
        number: Option<u32>,
        least: &[(usize, Option<u32>)],
    ) -> usize {
        let at = self.by_name.get(topic).copied();
        let at = at.unwrap_or_else(|| panic!("{topic} is retained: never sent"));
        let number = number.unwrap_or_else(|| panic!("{topic} is retained without its number"));
        let least = least.iter().find(|(topic, _)| *topic == at).and_then(|(_, least)| *least);
        assert!(
            least.is_none_or(|least| number >= least),
            "{topic} {number} is retained, and {least:?} was acknowledged"
        );
        assert!((number as usize) < self.topics[at].messages.len(), "{topic} {number}: never sent");
        at
    }

    /// Whether a topic must have a retained message: its last message is the one in `least`, and
    /// that message does not clear the topic.
    pub(crate) fn must_be_retained(&self, topic: usize, least: Option<u32>) -> bool {
        let messages = &self.topics[topic].messages;
        let Some(least) = least else { return false };
        least as usize + 1 == messages.len() && !messages[least as usize].clears
    }
}

/// Returns the number in a payload; `None` for an empty payload.
pub(crate) fn number_in(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
