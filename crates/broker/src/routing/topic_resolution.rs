//! From the topic name in a PUBLISH to the topic: resolves the topic alias, the prefix
//! `$delayed/SECONDS/` and the rewrite rules.

use std::borrow::Cow;

/// A topic name of a PUBLISH after `$delayed/` and the rewrites were applied.
#[derive(Debug)]
pub(crate) struct ResolvedTopic<'a> {
    pub(crate) topic: Cow<'a, str>,
    /// Delay in seconds; 0 publishes at once.
    pub(crate) delay_s: u32,
}

/// Memory of an alias in addition to its topic: counters, and the allocator's overhead.
pub(crate) const ALIAS_BYTES: usize = 32;
