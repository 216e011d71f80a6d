//! Budget of file descriptors. The kernel gives out the lowest free number, so a number tells how
//! many are open. Client connections always stay below a ceiling; the descriptors above it are for
//! the next file of the store, logs, links, backends and files that are read again.

use crate::shard_driver::ShardDriver;
use crate::stream::SocketStream;
use broker::{BrokerEvent, MonotonicMs, PeerAddress};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Limit of open descriptors (`RLIMIT_NOFILE`), and the ceiling below which client connections
/// stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    limit: u64,
    reserved: u64,
    ceiling: RawFd,
}

/// Number that descriptors of client connections stay below, for [`has_room`], which listeners
/// outside of shards call. [`DescriptorBudget::measure`] sets it at the start.
static CEILING: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// Interval in milliseconds of the search for a descriptor below the ceiling.
const LOOK_EVERY_MS: u64 = 100;
/// Interval in milliseconds between two log lines about paused accepting.
const WARN_EVERY_MS: u64 = 60_000;
/// Size of the descriptor table after [`raise_descriptor_limit`], where the limit allows: 128 KiB
/// of kernel memory.
const DESCRIPTOR_TABLE_MIN: u64 = 16_384;

impl DescriptorBudget {
    pub(crate) const UNLIMITED: DescriptorBudget =
        DescriptorBudget { limit: u64::MAX, reserved: 0, ceiling: RawFd::MAX };

    /// Splits `limit` descriptors, of which `used` are open. Clients get at least half of the rest,
    /// even if `wanted` are to be reserved.
    fn new(limit: u64, used: u64, wanted: u64) -> DescriptorBudget {
        let reserved = wanted.min(limit.saturating_sub(used) / 2);
        let ceiling = RawFd::try_from(limit - reserved).unwrap_or(RawFd::MAX);
        DescriptorBudget { limit, reserved, ceiling }
    }

    /// Measures the limit of this process and stores the ceiling for [`has_room`]. Counts
    /// descriptors open now as open forever.
    pub(crate) fn measure(wanted: usize) -> DescriptorBudget {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let used = lowest_free_descriptor().map_or(limit, |lowest| lowest as u64);
        let budget = DescriptorBudget::new(limit, used, wanted as u64);
        CEILING.store(budget.ceiling, Relaxed);
        budget
    }

    fn allows(self, descriptor: RawFd) -> bool {
        descriptor < self.ceiling
    }

    /// Duplicates a descriptor to a number below the ceiling. Returns `None` if every number there
    /// is in use.
    fn duplicate_below_ceiling(self, descriptor: BorrowedFd<'_>) -> Option<OwnedFd> {
        let moved = rustix::io::fcntl_dupfd_cloexec(descriptor, 0).ok()?;
        self.allows(moved.as_raw_fd()).then_some(moved)
    }
}

/// Returns the lowest free descriptor, or `None` if the process has none left.
fn lowest_free_descriptor() -> Option<RawFd> {
    match rustix::io::fcntl_dupfd_cloexec(io::stderr(), 0) {
        Ok(lowest) => Some(lowest.as_raw_fd()),
        Err(rustix::io::Errno::MFILE) => None,
        Err(_) => Some(0),
    }
}

/// Whether another listener of this process, such as a gateway, may accept a connection: the
/// lowest free descriptor is below the ceiling.
pub fn has_room() -> bool {
    lowest_free_descriptor().is_some_and(|lowest| lowest < CEILING.load(Relaxed))
}

/// Raises the soft limit of descriptors to the hard limit, since every connection needs a
/// descriptor.
///
/// The kernel doubles the descriptor table of a process when full, and waits for all processors
/// each time where threads share the table (`expand_fdtable` in fs/file.c): 10 to 20 ms for every
/// client connecting meanwhile. Opening a descriptor near [`DESCRIPTOR_TABLE_MIN`] enlarges the
/// table before the first client.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the kernel refuses, the old limit stands, and accepting pauses when it is reached.
    let _ = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let last = allowed.min(DESCRIPTOR_TABLE_MIN).saturating_sub(1);
    drop(rustix::io::fcntl_dupfd_cloexec(io::stderr(), last as i32));
}

/// Reasons for which a shard pauses `accept_connections`.
#[derive(Debug)]
pub(crate) struct AcceptPause {
    /// End of the pause after a failed accept, or for lack of a descriptor below the ceiling.
    pub(crate) until: MonotonicMs,
    /// Earliest time at which a listener above its rate may accept again.
    pub(crate) rate_until: Option<MonotonicMs>,
    pub(crate) budget: DescriptorBudget,
    /// An accepted connection with a descriptor above the ceiling, and its listener. Accepting
    /// waits until [`ShardDriver::admit_waiting`] has found a lower descriptor.
    waiting: Option<(usize, SocketStream, PeerAddress)>,
    warned_at: Option<MonotonicMs>,
    is_warned: bool,
}

impl Default for AcceptPause {
    fn default() -> AcceptPause {
        AcceptPause {
            until: MonotonicMs::default(),
            rate_until: None,
            budget: DescriptorBudget::UNLIMITED,
            waiting: None,
            warned_at: None,
            is_warned: false,
        }
    }
}

impl ShardDriver {
    /// Admits an accepted connection if its descriptor is below the ceiling; otherwise the
    /// connection waits. Returns whether the next connection may be accepted.
    pub(crate) fn admit_below_ceiling(
        &mut self,
        at: usize,
        stream: SocketStream,
        address: PeerAddress,
    ) -> bool {
        let budget = self.accept_pause.budget;
        let is_below = stream.descriptor().is_ok_and(|own| budget.allows(own.as_raw_fd()));
        if is_below {
            self.admit_accepted(at, stream, address);
            return true;
        }
        self.accept_pause.waiting = Some((at, stream, address));
        self.wait_for_descriptor();
        false
    }

    /// Retries the connection waiting for a descriptor. Returns whether accepting may go on.
    pub(crate) fn admit_waiting(&mut self) -> bool {
        let Some((at, stream, address)) = self.accept_pause.waiting.take() else { return true };
        let budget = self.accept_pause.budget;
        let moved = stream.descriptor().ok().and_then(|own| budget.duplicate_below_ceiling(own));
        match moved.map(|moved| stream.with_descriptor(moved)) {
            Some(stream) => {
                self.admit_accepted(at, stream, address);
                true
            }
            None => {
                self.accept_pause.waiting = Some((at, stream, address));
                self.wait_for_descriptor();
                false
            }
        }
    }

    fn wait_for_descriptor(&mut self) {
        let pause = &mut self.accept_pause;
        pause.until = MonotonicMs(self.now.0 + LOOK_EVERY_MS);
        if pause.warned_at.is_some_and(|at| self.now.0 < at.0 + WARN_EVERY_MS) {
            return;
        }
        pause.warned_at = Some(self.now);
        pause.is_warned = true;
        let DescriptorBudget { limit, reserved, .. } = pause.budget;
        (self.log)(&BrokerEvent::AcceptPaused { limit, reserved });
    }

    /// Marks the accept queues as empty, and logs the end of a logged pause.
    pub(crate) fn finish_accepting(&mut self) {
        self.has_accepts = false;
        if std::mem::take(&mut self.accept_pause.is_warned) {
            (self.log)(&BrokerEvent::AcceptResumed);
        }
    }

    /// Drops the connection waiting for a descriptor, when the shard closes its listeners.
    pub(crate) fn drop_waiting_connection(&mut self) {
        self.accept_pause.waiting = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the size of the descriptor table: FDSize of proc_pid_status(5).
    #[test]
    fn the_table_of_descriptors_is_wide_before_anyone_connects() {
        raise_descriptor_limit();
        let status = std::fs::read_to_string("/proc/self/status").expect("it is ours");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size = size.and_then(|size| size.trim().parse::<u64>().ok()).expect("it has a size");
        let limit = getrlimit(Resource::Nofile).current;
        assert!(
            size >= limit.map_or(DESCRIPTOR_TABLE_MIN, |limit| limit.min(DESCRIPTOR_TABLE_MIN))
        );
    }

    #[test]
    fn what_is_kept_from_clients_leaves_them_half_of_what_is_free() {
        let budget = |limit, used, wanted| {
            let DescriptorBudget { reserved, ceiling, .. } =
                DescriptorBudget::new(limit, used, wanted);
            (reserved, ceiling)
        };
        assert_eq!(budget(1024, 30, 100), (100, 924));
        assert_eq!(budget(90, 30, 100), (30, 60));
        assert_eq!(budget(64, 64, 100), (0, 64));
        assert_eq!(budget(20, 30, 100), (0, 20));
        assert_eq!(budget(u64::MAX, 30, 100), (100, RawFd::MAX));
    }

    #[test]
    fn a_descriptor_above_the_ceiling_moves_below_it_where_one_is_free() {
        raise_descriptor_limit();
        // Above every descriptor opened by other tests of this process meanwhile.
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let middle = (limit.min(DESCRIPTOR_TABLE_MIN) / 2) as RawFd;
        let high = rustix::io::fcntl_dupfd_cloexec(io::stderr(), middle).expect("one is free");
        let with = |ceiling| DescriptorBudget { limit: 1000, reserved: 0, ceiling };
        assert!(!with(middle).allows(high.as_raw_fd()));
        let moved = with(middle).duplicate_below_ceiling(std::os::fd::AsFd::as_fd(&high));
        assert!(moved.is_some_and(|moved| moved.as_raw_fd() < middle));
        assert!(with(0).duplicate_below_ceiling(std::os::fd::AsFd::as_fd(&high)).is_none());
    }
}
