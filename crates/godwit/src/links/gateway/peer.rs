//! One connected socket: its handshake, and then what goes to it and comes from it.

use super::crowd::{Crowd, Parcel, PeerId, Receipt, cost};
use super::settings::GatewaySettings;
use crate::identity::remote::dial::Wire;
use crate::links::tally::{Loss, Tally};
use crate::links::way::{READ_BYTES, Way};
use patterns::{Heard, Manner, Message, Speech};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::time::{timeout, timeout_at};
use tracing::debug;

/// What all peers of a gateway share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) settings: Arc<GatewaySettings>,
    pub(super) crowd: Arc<Crowd>,
    pub(super) tally: Arc<Tally>,
}

pub(super) struct Peer {
    shared: Shared,
    way: Way<Box<dyn Wire>>,
    speech: Speech,
    id: PeerId,
    wake: Arc<Notify>,
    heard: VecDeque<Heard>,
    /// What was understood and has no room yet.
    said: VecDeque<Message>,
    /// Why it goes, once what it said has found room.
    broken: Option<String>,
    out: Vec<u8>,
    /// So many bytes went from the front of `out` into a layer that may keep them yet.
    unflushed: usize,
    /// What is in `out`, or before it and unflushed, with where it ends there.
    begun: VecDeque<(usize, Arc<Parcel>)>,
}

/// While so much waits to be written nothing is taken from the queue.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

impl Peer {
    /// Shakes hands, and takes a place. `read` is what came before.
    pub(super) async fn meet(
        shared: Shared,
        wire: Box<dyn Wire>,
        read: Vec<u8>,
        speech: Speech,
    ) -> Result<Peer, String> {
        let mut peer = Peer {
            shared,
            way: Way::new(wire, read),
            speech,
            id: 0,
            wake: Arc::default(),
            heard: VecDeque::new(),
            said: VecDeque::new(),
            broken: None,
            out: Vec::new(),
            unflushed: 0,
            begun: VecDeque::new(),
        };
        peer.speech.greet(&mut peer.out);
        let mut buffer = vec![0; 4096];
        let within = peer.shared.settings.connect_timeout();
        let shaken = poll_fn(|cx| peer.shake_hands(cx, &mut buffer));
        match timeout(within, shaken).await {
            Ok(shaken) => shaken?,
            Err(_) => return Err(format!("no handshake within {} s", within.as_secs())),
        }
        let Shared { settings, crowd, .. } = &peer.shared;
        peer.id = crowd.enter(settings, peer.wake.clone())?;
        if settings.pattern.subscribes() {
            for rule in &settings.rules.inward {
                peer.speech.subscribe(rule.prefix.as_bytes(), &mut peer.out);
            }
        }
        let peers = peer.shared.tally.peers.fetch_add(1, Relaxed) + 1;
        debug!(target: "godwit::gateway", gateway = &*settings.name, peers, "a socket came");
        Ok(peer)
    }

    fn shake_hands(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<(), String>> {
        loop {
            self.way.poll_write(cx, &mut self.out).map_err(said_of)?;
            self.hear();
            if self.heard.front() == Some(&Heard::Open) {
                self.heard.pop_front();
                return Poll::Ready(Ok(()));
            }
            if let Some(why) = self.broken.take() {
                // It may hear why.
                let _ = self.way.poll_write(cx, &mut self.out);
                return Poll::Ready(Err(why));
            }
            if !self.out.is_empty() && self.way.poll_write(cx, &mut self.out).map_err(said_of)? {
                continue;
            }
            if !self.way.poll_read(cx, buffer).map_err(said_of)? {
                return Poll::Pending;
            }
        }
    }

    /// Until it, or the gateway, is gone.
    pub(super) async fn attend(mut self) -> Result<(), String> {
        let mut buffer = vec![0; READ_BYTES];
        let wake = self.wake.clone();
        loop {
            self.take_heard();
            if self.said.is_empty()
                && let Some(why) = self.broken.take()
            {
                return Err(why);
            }
            self.weigh()?;
            self.fill();
            if let Some(end) = self.shared.crowd.end() {
                let _ = timeout_at(end, self.flush()).await;
                return Ok(());
            }
            tokio::select! {
                biased;
                moved = poll_fn(|cx| self.poll(cx, &mut buffer)), if self.broken.is_none() => {
                    self.broken = self.broken.take().or(moved.err());
                }
                () = wake.notified() => {}
            }
        }
    }

    /// Comes back when something went or came.
    fn poll(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<(), String>> {
        let mut moved = self.write(cx).map_err(said_of)?;
        // Who asks for answers without reading them waits, and so does who says more than there is
        // room for.
        let has_room = self.said.is_empty() && self.out.len() < 2 * UNSENT_BYTES_MAX;
        let hears = has_room && !self.shared.crowd.is_deaf();
        if hears && self.way.poll_read(cx, buffer).map_err(said_of)? {
            moved = true;
            self.hear();
        }
        if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn hear(&mut self) {
        match self.speech.hear(self.way.unread(), &mut self.heard, &mut self.out) {
            Ok(taken) => self.way.take(taken),
            Err(broken) => self.broken = Some(broken.to_string()),
        }
    }

    fn take_heard(&mut self) {
        let Shared { settings, crowd, tally } = &self.shared;
        while let Some(heard) = self.heard.pop_front() {
            match heard {
                Heard::Open => {}
                Heard::Message(message) if settings.pattern.hears() => self.said.push_back(message),
                Heard::Message(_) => {}
                Heard::Subscribe(prefix) => {
                    if !crowd.subscribe(self.id, &prefix, settings.subscriptions_max as usize) {
                        let why = "it has more subscriptions than peer.subscriptions_max, or one \
                                   of more than 1,024 bytes";
                        self.broken = Some(why.to_string());
                        break;
                    }
                }
                Heard::Cancel(prefix) => crowd.cancel(self.id, &prefix),
                Heard::Astray => tally.lose(&settings.name, Loss::Unreadable, "no way back in it"),
            }
        }
        crowd.hand_in(self.id, &mut self.said);
    }

    /// What it has begun to say, and asked for, counts with what all have, and whoever has most of
    /// that goes.
    fn weigh(&self) -> Result<(), String> {
        let Shared { settings, crowd, tally } = &self.shared;
        let said: usize = self.said.iter().map(cost).sum();
        let held = self.way.unread().len() + self.speech.held() + said;
        if crowd.hold(self.id, held, settings) {
            return Ok(());
        }
        tally.lose(&settings.name, Loss::NoRoom, "peers_bytes_max is reached");
        Err("peers_bytes_max is reached, and it held most".to_string())
    }

    /// What waits for it, as it is written.
    fn fill(&mut self) {
        while self.out.len() < UNSENT_BYTES_MAX
            && let Some(parcel) = self.shared.crowd.next(self.id)
        {
            self.speech.say(&parcel.message, &mut self.out);
            self.begun.push_back((self.unflushed + self.out.len(), parcel));
        }
    }

    /// Says whether its socket, or a layer before it, took anything.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.out.len();
        // Where more and more is written a layer never has nothing, and all of it would be kept.
        let waits = self.unflushed >= UNSENT_BYTES_MAX;
        let out = if waits { &mut Vec::new() } else { &mut self.out };
        let mut moved = self.way.poll_write(cx, out)?;
        self.unflushed += before - self.out.len();
        if self.way.is_flushed() && self.unflushed > 0 {
            let len = std::mem::take(&mut self.unflushed);
            self.wrote(len);
            moved = true;
        }
        Ok(moved)
    }

    /// Its socket took so many bytes from the front.
    fn wrote(&mut self, len: usize) {
        for (end, _) in &mut self.begun {
            *end = end.saturating_sub(len);
        }
        while self.begun.front().is_some_and(|(end, _)| *end == 0)
            && let Some((_, parcel)) = self.begun.pop_front()
        {
            let Shared { settings, crowd, tally } = &self.shared;
            let payload = parcel.message.frames.last().map_or(0, Vec::len);
            tally.count_out(payload);
            if let Some(receipt) = parcel.receipt
                && !settings.pattern.asks()
            {
                crowd.took(receipt);
            }
        }
    }

    async fn flush(&mut self) {
        while !self.out.is_empty() || !self.way.is_flushed() {
            let written = poll_fn(|cx| match self.write(cx) {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(true),
                Err(_) => Poll::Ready(false),
            });
            if !written.await {
                return;
            }
            self.fill();
        }
    }
}

/// However it ends: nobody is left in the crowd who is not there, and what a socket did not take
/// goes to another one where there are others.
impl Drop for Peer {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        let Shared { settings, crowd, tally } = &self.shared;
        let begun = self.begun.drain(..).map(|(_, parcel)| parcel);
        let lost = crowd.leave(self.id, begun, settings.pattern.manner() == Manner::One);
        lose_all(&self.shared, lost);
        let peers = tally.peers.fetch_sub(1, Relaxed) - 1;
        debug!(target: "godwit::gateway", gateway = &*settings.name, peers, "a socket went");
    }
}

/// Nobody has so many messages any more.
pub(super) fn lose_all(shared: &Shared, count: usize) {
    let about = "it waited for a socket when the gateway stopped";
    shared.tally.lose_times(&shared.settings.name, Loss::NoPeer, about, count as u64);
}

/// `receipt` of a parcel that only one peer has.
pub(super) fn parcel(message: Message, receipt: Option<Receipt>) -> Arc<Parcel> {
    Arc::new(Parcel { message, receipt })
}

fn said_of(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_string(),
        _ => error.to_string(),
    }
}
