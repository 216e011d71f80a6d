//! The state of a session that few clients need: will, retained cursors, shared groups, exclusive
//! filters.

use crate::broker_event::WithheldDrops;
use crate::counters::DROPS;
use crate::ids::MonotonicMs;
use crate::message::will::SessionWill;
use crate::session::group_member::GroupMembership;
use crate::session::rate_meter::RateMeter;
use crate::session::retained_cursors::RetainedCursors;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct SessionExtras {
    pub(crate) will: Option<Box<SessionWill>>,
    /// Due time of the will of an offline client (Will Delay Interval).
    pub(crate) will_at: Option<MonotonicMs>,
    /// Time at which the session of an offline client expires.
    pub(crate) ends_at: Option<MonotonicMs>,
    /// Due time of the next check of the queue against `queue_age_s_max`.
    pub(crate) ages_at: Option<MonotonicMs>,
    pub(crate) shares: Vec<GroupMembership>,
    /// Exclusive filters held by the session.
    pub(crate) exclusives: Vec<Arc<str>>,
    /// Retained messages still to be sent, as searches that go on.
    pub(crate) cursors: RetainedCursors,
    /// Meter of the messages to the client; absent without a rate limit.
    pub(crate) meter: Option<Box<RateMeter>>,
    pub(crate) drops: [u64; DROPS],
    /// Counts of drops within the second after a reported drop, for the next report.
    pub(in crate::session) withheld_drops: Option<Box<WithheldDrops>>,
    /// Index into `subscriptions` by filter, used above `LOOKED_THROUGH_MAX` subscriptions.
    pub(in crate::session) by_filter: HashMap<u32, u32, FixedState>,
}

impl SessionExtras {
    pub(crate) fn is_empty(&self) -> bool {
        self.will.is_none()
            && self.will_at.is_none()
            && self.ends_at.is_none()
            && self.ages_at.is_none()
            && self.shares.is_empty()
            && self.exclusives.is_empty()
            && self.cursors.is_empty()
            && self.meter.is_none()
            && self.by_filter.is_empty()
            && self.withheld_drops.is_none()
            && self.drops == [0; DROPS]
    }
}
