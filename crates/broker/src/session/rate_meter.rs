//! The meter of a rate limit.

use crate::ids::MonotonicMs;
use crate::leaky_bucket::LeakyBucket;
use crate::options::BrokerOptions;

/// Rate meter of one direction of a connection. Absent without a limit.
#[derive(Debug)]
pub(crate) struct RateMeter {
    messages: LeakyBucket,
    bytes: LeakyBucket,
    /// PUBLISH packets per second; 0 for no limit, as in `bytes_per_s`.
    messages_per_s: u32,
    bytes_per_s: u32,
}

impl RateMeter {
    /// Creates the meter for packets from the client; `None` without a limit.
    pub(crate) fn of_reads(options: &BrokerOptions) -> Option<Box<RateMeter>> {
        RateMeter::new(options.messages_per_s, options.bytes_per_s)
    }

    /// Creates the meter for packets to the client; `None` without a limit.
    pub(crate) fn of_writes(options: &BrokerOptions) -> Option<Box<RateMeter>> {
        RateMeter::new(options.messages_out_per_s, options.bytes_out_per_s)
    }

    pub(crate) fn new(messages_per_s: u32, bytes_per_s: u32) -> Option<Box<RateMeter>> {
        (messages_per_s > 0 || bytes_per_s > 0).then(|| {
            let (messages, bytes) = (LeakyBucket::default(), LeakyBucket::default());
            Box::new(RateMeter { messages, bytes, messages_per_s, bytes_per_s })
        })
    }

    pub(crate) fn blocked_until(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        let waits = |pace: LeakyBucket, per_s| {
            if per_s > 0 { pace.blocked_until(now, per_s) } else { None }
        };
        waits(self.messages, self.messages_per_s).max(waits(self.bytes, self.bytes_per_s))
    }

    /// Counts a packet, and a message if `publishes`. A packet larger than a second's worth is
    /// charged whole and delays later packets.
    pub(crate) fn charge(&mut self, now: MonotonicMs, publishes: bool, bytes: u64) {
        if self.messages_per_s > 0 && publishes {
            self.messages.charge(now, 1, self.messages_per_s);
        }
        if self.bytes_per_s > 0 {
            self.bytes.charge(now, bytes, self.bytes_per_s);
        }
    }
}
