//! A thread for blocking destinations: disks. The thread ends with its sink.

use super::destination::BatchError;
use super::message::SinkMessage;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tokio::sync::oneshot;

/// A destination with blocking calls, run on a thread of its own by [`SinkWorker`].
pub(super) trait BlockingSink: Clone + Send + 'static {
    const NAME: &'static str;

    fn open(&mut self) -> Result<(), String>;

    fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError>;
}

/// Handle of the thread. At most one command waits while another runs.
pub(super) struct SinkWorker<B> {
    /// The destination before it is opened; each thread gets a clone.
    template: B,
    orders: Option<SyncSender<WorkerCommand>>,
    /// Completes when the thread has ended.
    ended: Option<oneshot::Receiver<()>>,
}

enum WorkerCommand {
    Open(oneshot::Sender<Result<(), String>>),
    Take(Vec<Arc<SinkMessage>>, oneshot::Sender<Result<(), BatchError>>),
}

const STACK_BYTES: usize = 512 * 1024;
const BUSY: &str = "it is still at what it was given before";
const GONE: &str = "its thread has ended";

impl<B: BlockingSink> SinkWorker<B> {
    pub(super) fn new(fresh: B) -> SinkWorker<B> {
        SinkWorker { template: fresh, orders: None, ended: None }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        let (to, answer) = oneshot::channel();
        self.send_command(WorkerCommand::Open(to))?;
        answer.await.unwrap_or_else(|_| Err(GONE.into()))
    }

    pub(super) async fn deliver(&mut self, batch: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
        let (to, answer) = oneshot::channel();
        self.send_command(WorkerCommand::Take(batch.to_vec(), to))
            .map_err(BatchError::transient)?;
        answer.await.unwrap_or_else(|_| Err(BatchError::transient(GONE.into())))
    }

    /// Waits until the thread has ended: the next sink may write to the same files.
    pub(super) async fn finish(&mut self) {
        self.orders = None;
        if let Some(gone) = &mut self.ended {
            let _ = gone.await;
        }
        self.ended = None;
    }

    fn send_command(&mut self, order: WorkerCommand) -> Result<(), String> {
        if self.orders.is_none() {
            let (orders, taken) = sync_channel(1);
            let own = self.template.clone();
            let worker = thread::Builder::new().name(B::NAME.into()).stack_size(STACK_BYTES);
            let (ends, gone) = oneshot::channel();
            let started = worker.spawn(move || {
                run_thread(own, &taken);
                let _ = ends.send(());
            });
            started.map_err(|error| format!("no thread to write from: {error}"))?;
            (self.orders, self.ended) = (Some(orders), Some(gone));
        }
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(BUSY.into()),
        }
    }
}

fn run_thread<B: BlockingSink>(mut own: B, orders: &Receiver<WorkerCommand>) {
    // The receiver of a result is gone if the caller was cancelled.
    while let Ok(order) = orders.recv() {
        match order {
            WorkerCommand::Open(to) => _ = to.send(own.open()),
            WorkerCommand::Take(batch, to) => _ = to.send(own.deliver(&batch)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    /// A destination which blocks until the test releases it, with a flag for the finished write.
    #[derive(Clone)]
    struct SlowDisk(Arc<Mutex<Receiver<()>>>, Arc<AtomicBool>);

    impl BlockingSink for SlowDisk {
        const NAME: &'static str = "slow";

        fn open(&mut self) -> Result<(), String> {
            Ok(())
        }

        fn deliver(&mut self, _: &[Arc<SinkMessage>]) -> Result<(), BatchError> {
            let _ = self.0.lock().unwrap().recv();
            self.1.store(true, SeqCst);
            Ok(())
        }
    }

    #[test]
    fn it_has_ended_when_nothing_is_written_any_more() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (lets, let_in) = channel();
            let is_written = Arc::new(AtomicBool::new(false));
            let slow = SlowDisk(Arc::new(Mutex::new(let_in)), is_written.clone());
            let mut worker = SinkWorker::new(slow);
            let given_up = timeout(Duration::from_millis(50), worker.deliver(&[])).await;
            assert!(given_up.is_err());
            let early = timeout(Duration::from_millis(50), worker.finish()).await;
            assert!(early.is_err() && !is_written.load(SeqCst));
            lets.send(()).unwrap();
            worker.finish().await;
            assert!(is_written.load(SeqCst));
        });
    }
}
