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
        Worker { fresh, orders: None }
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

    fn order(&mut self, order: Order) -> Result<(), String> {
        if self.orders.is_none() {
            let (orders, taken) = sync_channel(1);
            let own = self.fresh.clone();
            let worker = thread::Builder::new().name(B::NAME.into()).stack_size(STACK_BYTES);
            let started = worker.spawn(move || work(own, &taken));
            started.map_err(|error| format!("no thread to write from: {error}"))?;
            self.orders = Some(orders);
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
