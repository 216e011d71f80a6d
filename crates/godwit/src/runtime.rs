//! The control plane's runtime: one thread for everything that waits for other hosts.
//!
//! Invariant: it exists from the first work on and sleeps in the kernel while there is none; no
//! shard waits for it.

use std::future::{Future, pending};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tokio::runtime::{Builder, Handle};
use tracing::error;

#[derive(Default)]
pub(crate) struct Runtime {
    handle: Mutex<Option<Handle>>,
}

/// Handshakes of TLS are what lies deepest on it.
const STACK_BYTES: usize = 512 * 1024;
/// Names are looked up on threads of their own, which end when there is nothing to look up.
const LOOKUPS_MAX: usize = 2;

impl Runtime {
    /// Work that cannot begin is dropped, which whoever waits for it takes for a fault.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if handle.is_none() {
            match start() {
                Ok(started) => *handle = Some(started),
                Err(error) => {
                    error!(target: "godwit::serve", %error, "no thread to ask others from");
                    return;
                }
            }
        }
        if let Some(handle) = &*handle {
            handle.spawn(work);
        }
    }
}

fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(LOOKUPS_MAX)
        .thread_name("lookup")
        .thread_stack_size(STACK_BYTES)
        .build()?;
    let handle = runtime.handle().clone();
    let control = thread::Builder::new().name("control".into()).stack_size(STACK_BYTES);
    control.spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
