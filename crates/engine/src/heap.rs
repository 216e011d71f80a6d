//! Memory that a crowd left behind goes back to the system.
//!
//! The GNU allocator gives back only what lies above the last piece in use, and a single piece that
//! stays pins everything below it. Measured: after the third crowd of 15,000 subscribers 11 MB
//! stayed on one shard, 1 with this.
#![expect(unsafe_code, reason = "malloc_trim(3) has no safe wrapper")]

/// # Safety
///
/// malloc_trim(3) takes no pointer and gives none: it hands pages back that hold no piece in use,
/// under the allocator's own locks, and may be called by any thread at any time (attributes(7):
/// MT-Safe). Another allocator's build does without.
pub(crate) fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: as above; nothing is assumed of what it returns.
    unsafe {
        libc::malloc_trim(0);
    }
}
