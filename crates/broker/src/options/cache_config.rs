//! `[[cache]]`: which messages a cache keeps, and how many.

use crate::limits::CACHE_ANSWER_MESSAGES_MAX;
use crate::options::cache_metrics::CacheMetrics;
use mqtt::filter_matches;
use std::sync::Arc;

/// A `[[cache]]` section.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    pub name: Arc<str>,
    pub(crate) filters: Arc<[Box<str>]>,
    /// Largest number of messages per topic, at most `CACHE_ANSWER_MESSAGES_MAX`.
    pub(crate) messages_max: u32,
    pub(crate) topics_max: u32,
    pub(crate) bytes_max: u64,
    /// Longest age of a message in seconds; `u32::MAX` is unlimited.
    pub(crate) age_s_max: u32,
    /// Metrics by the cache's name, kept across reloads.
    pub metrics: Arc<CacheMetrics>,
}

impl PartialEq for CacheConfig {
    fn eq(&self, other: &CacheConfig) -> bool {
        let bounds =
            |one: &CacheConfig| (one.messages_max, one.topics_max, one.bytes_max, one.age_s_max);
        (&self.name, &self.filters, bounds(self)) == (&other.name, &other.filters, bounds(other))
    }
}

impl Eq for CacheConfig {}

impl CacheConfig {
    /// Checks the values of a `[[cache]]` section. The error names the faulty value and a correct
    /// example.
    pub fn parse(
        name: &str,
        filters: &[String],
        messages_max: u32,
        topics_max: u32,
        bytes_max: u64,
        age_s_max: u32,
    ) -> Result<CacheConfig, String> {
        if filters.is_empty() {
            return Err("a cache needs filters = [\"a/#\"]".to_string());
        }
        for filter in filters {
            if !is_cacheable_filter(filter) {
                let why = "is not a topic filter that it can have, use one like \"a/#\"";
                return Err(format!("filters: {filter:?} {why}"));
            }
        }
        if messages_max as usize > CACHE_ANSWER_MESSAGES_MAX {
            let most = CACHE_ANSWER_MESSAGES_MAX;
            return Err(format!("messages_max is more than one answer holds, use 1 to {most}"));
        }
        let filters = filters.iter().map(|filter| filter.as_str().into()).collect();
        let (name, metrics) = (name.into(), Arc::default());
        Ok(CacheConfig { name, filters, messages_max, topics_max, bytes_max, age_s_max, metrics })
    }

    pub(crate) fn matches_topic(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| filter_matches(filter, topic))
    }
}

/// Whether a cache may store the topics of a filter: a valid filter without a leading `$`.
pub(crate) fn is_cacheable_filter(filter: &str) -> bool {
    mqtt::topic::check_filter(filter).is_ok() && !filter.starts_with('$')
}
