//! The control plane's runtime: one thread for all tasks that wait for other hosts.
//!
//! Invariant: the thread starts with the first task and sleeps in the kernel while idle; no shard
//! waits for the thread.

use std::future::{Future, pending};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use tokio::runtime::{Builder, Handle};
use tracing::error;

#[derive(Default)]
pub struct ControlRuntime {
    handle: OnceLock<Handle>,
    /// Held while a thread starts the runtime.
    starting: Mutex<()>,
}

/// Stack of the thread in bytes; TLS handshakes need the most.
pub(crate) const STACK_BYTES: usize = 512 * 1024;
/// Threads for DNS lookups, which end when idle.
const LOOKUPS_MAX: usize = 2;

impl ControlRuntime {
    /// Spawns a task. If the runtime cannot start, `work` is dropped, which waiting callers treat
    /// as a failure.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        match self.handle() {
            Ok(handle) => _ = handle.spawn(work),
            Err(error) => error!(target: "godwit::serve", %error, "no thread to ask others from"),
        }
    }

    fn handle(&self) -> std::io::Result<&Handle> {
        if let Some(handle) = self.handle.get() {
            return Ok(handle);
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.handle.get().is_none() {
            let _ = self.handle.set(start()?);
        }
        self.handle.get().ok_or_else(|| std::io::Error::other("it has not started"))
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
