//! Budget of file descriptors. The kernel gives out the lowest free number, so a number tells how
//! many are open. Client connections always stay below a ceiling; the descriptors above it are for
//! the next file of the store, logs, links, backends and files that are read again.

use broker::BrokerEvent;
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

    /// Returns the event for the log that accepting pauses for lack of a descriptor.
    pub(crate) fn paused_event(self) -> BrokerEvent {
        BrokerEvent::AcceptPaused { limit: self.limit, reserved: self.reserved }
    }

    pub(crate) fn allows(self, descriptor: RawFd) -> bool {
        descriptor < self.ceiling
    }

    /// Duplicates a descriptor to a number below the ceiling. Returns `None` if every number there
    /// is in use.
    pub(crate) fn duplicate_below_ceiling(self, descriptor: BorrowedFd<'_>) -> Option<OwnedFd> {
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
