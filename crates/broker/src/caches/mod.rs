//! Caches: the last messages of the topics that a `[[cache]]` names, whether RETAIN is set or not,
//! for whoever asks for them by `$cache/` (see `request`).
//!
//! A cache as a whole is at home on one shard, which its name says, as a shared group is: so there
//! is one order of its messages, its bounds hold exactly, and a read asks one shard. Messages of
//! other shards come over the ring. `Shard::pass_on` is where all pass by that go to anybody.

mod kept;
mod request;
mod tally;

use request::{Found, Read};
pub use tally::{TALLY_ROWS, Tally, TallyRow};

use crate::input::{Cross, Now, ShardId};
use crate::limits::{CACHE_ANSWER_MESSAGES_MAX, CACHE_STEPS_PER_READ, CURSOR_STEPS_PER_TURN};
use crate::message::{Draft, Message};
use crate::outbox::Outbox;
use crate::shard::Shard;
use crate::timer::Timer;
use kept::{Gathered, Kept};
use mqtt::filter_matches;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What stands in front of the name of a cache, where a request is published.
pub(crate) const PREFIX: &str = "$cache/";

/// `[[cache]]`
#[derive(Clone, Debug)]
pub struct Cache {
    pub name: Arc<str>,
    filters: Arc<[Box<str>]>,
    /// Of a topic.
    messages_max: u32,
    topics_max: u32,
    bytes_max: u64,
    /// `u32::MAX` is for ever.
    age_s_max: u32,
    /// Outlives a reload: it is that of the cache's name.
    pub tally: Arc<Tally>,
}

impl PartialEq for Cache {
    fn eq(&self, other: &Cache) -> bool {
        let bounds = |one: &Cache| (one.messages_max, one.topics_max, one.bytes_max, one.age_s_max);
        (&self.name, &self.filters, bounds(self)) == (&other.name, &other.filters, bounds(other))
    }
}

impl Eq for Cache {}

impl Cache {
    /// The error says what is wrong and what would be right.
    pub fn parse(
        name: &str,
        filters: &[String],
        messages_max: u32,
        topics_max: u32,
        bytes_max: u64,
        age_s_max: u32,
    ) -> Result<Cache, String> {
        if filters.is_empty() {
            return Err("a cache needs filters = [\"a/#\"]".to_string());
        }
        for filter in filters {
            if !is_readable(filter) {
                let why = "is no topic filter that it can have, use one like \"a/#\"";
                return Err(format!("filters: {filter:?} {why}"));
            }
        }
        if messages_max as usize > CACHE_ANSWER_MESSAGES_MAX {
            let most = CACHE_ANSWER_MESSAGES_MAX;
            return Err(format!("messages_max is more than one answer holds, use 1 to {most}"));
        }
        let filters = filters.iter().map(|filter| filter.as_str().into()).collect();
        let (name, tally) = (name.into(), Arc::default());
        Ok(Cache { name, filters, messages_max, topics_max, bytes_max, age_s_max, tally })
    }

    fn takes(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| filter_matches(filter, topic))
    }
}

/// What shards say to each other of caches.
#[derive(Clone, Debug)]
pub enum Word {
    /// For one that is at home where this goes.
    Cached { cache: Arc<str>, message: Message },
    /// What a client asked for ...
    Found(Found),
    /// ... and that it asks.
    Read(Box<Read>),
}

impl Word {
    /// What it takes on its way.
    fn bytes(&self) -> i64 {
        match self {
            Word::Cached { message, .. } => message.bytes() as i64,
            Word::Found(found) => found.bytes(),
            Word::Read(read) => read.bytes(),
        }
    }
}

/// What a shard has to do with caches.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    /// Those that are at home here.
    kept: Vec<Kept>,
    /// What was asked and is not answered: here, ...
    reads: VecDeque<(Box<Read>, Gathered)>,
    /// ... and by clients of this shard.
    asked: usize,
    timer_at: Option<Now>,
}

/// How often topics are looked at that may be too old, ...
const AGED_EVERY_MS: u64 = 1000;
/// ... and how many of them.
const AGED_MAX: usize = 4096;

impl Caches {
    /// The memory that they take.
    pub(crate) fn held(&self) -> u64 {
        self.kept.iter().map(|kept| kept.bytes).sum()
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    fn of(&mut self, name: &str) -> Option<&mut Kept> {
        self.kept.iter_mut().find(|kept| *kept.cache.name == *name)
    }
}

impl Shard {
    /// The options may have other caches than before. One of the same name keeps what it has, as
    /// far as its filters and bounds let it.
    pub(crate) fn cache_anew(&mut self) {
        let options = self.options.clone();
        let here = |cache: &&Cache| self.home_of(&cache.name) == self.id;
        let here: Vec<&Cache> = options.caches.iter().filter(here).collect();
        let now = self.now;
        let caches = &mut self.caches;
        caches.kept.retain(|kept| here.iter().any(|cache| cache.name == kept.cache.name));
        for cache in here {
            match caches.of(&cache.name) {
                Some(kept) if kept.cache == *cache => {}
                Some(kept) => kept.change(cache, now),
                None => caches.kept.push(Kept::new(cache.clone())),
            }
        }
        self.time_caches();
    }

    /// A message that goes to whoever wants it is kept by the caches that want it, too.
    #[cold]
    pub(crate) fn keep_in_caches(&mut self, draft: &mut Draft<'_>, out: &mut Outbox) {
        let options = self.options.clone();
        for cache in options.caches.iter().filter(|cache| cache.takes(draft.topic)) {
            let home = self.home_of(&cache.name);
            let message = draft.message().clone();
            if home == self.id {
                self.keep_cached(&cache.name, message);
            } else if self.sessions.is_full() {
                // On its way it takes memory too.
                cache.tally.missed.fetch_add(1, Relaxed);
            } else {
                let word = Word::Cached { cache: cache.name.clone(), message };
                self.say_of_cache(home, word, out);
            }
        }
    }

    fn say_of_cache(&mut self, to: ShardId, word: Word, out: &mut Outbox) {
        self.ledger.crossing += word.bytes();
        out.lanes[usize::from(to.0)].push_back(Cross::Cache(Box::new(word)));
    }

    pub(crate) fn hear_of_cache(&mut self, word: Word, out: &mut Outbox) {
        self.ledger.crossing -= word.bytes();
        match word {
            Word::Cached { cache, message } => self.keep_cached(&cache, message),
            Word::Found(found) => self.found(found, out),
            Word::Read(read) => self.read_cache(read, out),
        }
    }

    /// Where it is at home. A cache that is not there any more has no use for it.
    fn keep_cached(&mut self, name: &str, message: Message) {
        let (now, may_grow) = (self.now, !self.sessions.is_crowded());
        if let Some(kept) = self.caches.of(name) {
            kept.put(message, now, may_grow);
            self.time_caches();
        }
    }

    fn time_caches(&mut self) {
        let caches = &mut self.caches;
        if caches.timer_at.is_none() && caches.kept.iter().any(Kept::ages) {
            let at = Now(self.now.0 + AGED_EVERY_MS);
            caches.timer_at = Some(at);
            self.timers.set(at, Timer::Caches);
        }
    }

    /// Time takes from caches what is too old.
    pub(crate) fn age_caches(&mut self) {
        self.caches.timer_at = None;
        let now = self.now;
        for kept in self.caches.kept.iter_mut().filter(|kept| kept.ages()) {
            kept.drop_aged(now, AGED_MAX);
        }
        self.time_caches();
    }

    /// Somebody wants to know what a cache has that is at home here.
    fn read_cache(&mut self, read: Box<Read>, out: &mut Outbox) {
        self.caches.reads.push_back((read, Gathered::default()));
        self.read_on(out);
    }

    /// Goes on with what was asked, as far as this turn has steps for it: each looks at some
    /// topics, then the next has its turn.
    pub(crate) fn read_on(&mut self, out: &mut Outbox) {
        while out.cursor_steps < CURSOR_STEPS_PER_TURN
            && !out.is_full()
            && let Some((read, mut gathered)) = self.caches.reads.pop_front()
        {
            let now = self.now;
            let most = CACHE_STEPS_PER_READ.min(CURSOR_STEPS_PER_TURN - out.cursor_steps);
            let mut left = most;
            let kept = self.caches.of(&read.cache);
            let is_there = kept.is_some();
            let is_done =
                kept.is_none_or(|kept| kept.gather(&read.wanted, &mut gathered, now, &mut left));
            // The search itself is work too.
            out.cursor_steps += most - left + 1;
            if !is_done {
                self.caches.reads.push_back((read, gathered));
                continue;
            }
            if let Some(kept) = self.caches.of(&read.cache) {
                kept.cache.tally.reads.fetch_add(1, Relaxed);
            }
            self.answer_read(Found { read, gathered, is_there }, out);
        }
    }

    fn answer_read(&mut self, found: Found, out: &mut Outbox) {
        let home = found.read.asker.shard;
        if home == self.id {
            return self.found(found, out);
        }
        self.say_of_cache(home, Word::Found(found), out);
    }
}

impl Tally {
    /// What it holds, as `bytes_max` counts it.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Topics below `$SYS/broker/cache/{name}/` and their values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TALLY_ROWS.iter().map(|row| (row.topic, (row.value)(self)))
    }
}

/// Whether a cache can have what a filter is about.
fn is_readable(filter: &str) -> bool {
    mqtt::topic::check_filter(filter).is_ok() && !filter.starts_with('$')
}
