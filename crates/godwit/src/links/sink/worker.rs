//! A thread for what blocks: disks. It ends with its sink.

use super::far::Setback;
use super::message::Message;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tokio::sync::oneshot;

/// What it works on.
pub(super) trait Blocking: Clone + Send + 'static {
    const NAME: &'static str;

    fn open(&mut self) -> Result<(), String>;

    fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback>;
}

pub(super) struct Worker<B> {
    /// As it is before it is opened.
    fresh: B,
    orders: Option<SyncSender<Order>>,
    /// Comes back when its thread has ended.
    gone: Option<oneshot::Receiver<()>>,
}

enum Order {
    Open(oneshot::Sender<Result<(), String>>),
    Take(Vec<Arc<Message>>, oneshot::Sender<Result<(), Setback>>),
}

const STACK_BYTES: usize = 512 * 1024;
const BUSY: &str = "it is still at what it was given before";
const GONE: &str = "its thread has ended";

impl<B: Blocking> Worker<B> {
    pub(super) fn new(fresh: B) -> Worker<B> {
        Worker { fresh, orders: None, gone: None }
    }

    pub(super) async fn connect(&mut self) -> Result<(), String> {
        let (to, answer) = oneshot::channel();
        self.order(Order::Open(to))?;
        answer.await.unwrap_or_else(|_| Err(GONE.into()))
    }

    pub(super) async fn take(&mut self, batch: &[Arc<Message>]) -> Result<(), Setback> {
        let (to, answer) = oneshot::channel();
        self.order(Order::Take(batch.to_vec(), to)).map_err(Setback::down)?;
        answer.await.unwrap_or_else(|_| Err(Setback::down(GONE.into())))
    }

    /// Nothing is written any more: who comes after it may write at the same place.
    pub(super) async fn end(&mut self) {
        self.orders = None;
        if let Some(gone) = &mut self.gone {
            let _ = gone.await;
        }
        self.gone = None;
    }

    fn order(&mut self, order: Order) -> Result<(), String> {
        if self.orders.is_none() {
            let (orders, taken) = sync_channel(1);
            let own = self.fresh.clone();
            let worker = thread::Builder::new().name(B::NAME.into()).stack_size(STACK_BYTES);
            let (ends, gone) = oneshot::channel();
            let started = worker.spawn(move || {
                work(own, &taken);
                let _ = ends.send(());
            });
            started.map_err(|error| format!("no thread to write from: {error}"))?;
            (self.orders, self.gone) = (Some(orders), Some(gone));
        }
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(BUSY.into()),
        }
    }
}

fn work<B: Blocking>(mut own: B, orders: &Receiver<Order>) {
    // Who does not wait for an answer any more did not get one.
    while let Ok(order) = orders.recv() {
        match order {
            Order::Open(to) => _ = to.send(own.open()),
            Order::Take(batch, to) => _ = to.send(own.take(&batch)),
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

    /// A disk that writes once it is let, and whether it has.
    #[derive(Clone)]
    struct Slow(Arc<Mutex<Receiver<()>>>, Arc<AtomicBool>);

    impl Blocking for Slow {
        const NAME: &'static str = "slow";

        fn open(&mut self) -> Result<(), String> {
            Ok(())
        }

        fn take(&mut self, _: &[Arc<Message>]) -> Result<(), Setback> {
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
            let slow = Slow(Arc::new(Mutex::new(let_in)), is_written.clone());
            let mut worker = Worker::new(slow);
            let given_up = timeout(Duration::from_millis(50), worker.take(&[])).await;
            assert!(given_up.is_err());
            let early = timeout(Duration::from_millis(50), worker.end()).await;
            assert!(early.is_err() && !is_written.load(SeqCst));
            lets.send(()).unwrap();
            worker.end().await;
            assert!(is_written.load(SeqCst));
        });
    }
}
