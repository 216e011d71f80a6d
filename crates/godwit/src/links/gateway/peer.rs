//! One connected socket: its handshake, and then what goes to it and comes from it.

use super::crowd::{Crowd, Cut, STALLED};
use super::gauge::Gauge;
use super::parcel::{Parcel, PeerId, cost};
use super::settings::GatewaySettings;
use crate::identity::remote::dial::Wire;
use crate::links::tally::{Loss, Tally};
use crate::links::way::{READ_BYTES, Way};
use crate::patience::timeout;
use patterns::{Heard, Manner, Message, Speech};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};
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
    /// It was its end of the connection that ended it.
    has_hung_up: bool,
    out: Vec<u8>,
    /// So many bytes went from the front of `out` into a layer that may keep them yet.
    unflushed: usize,
    /// What is in `out`, or before it and unflushed, with where it ends there.
    begun: VecDeque<(usize, Arc<Parcel>)>,
    gauge: Arc<Gauge>,
    /// What was written and the session waits for, with where it ends on the wire.
    sent: VecDeque<(u64, Arc<Parcel>)>,
    looks: Looks,
}

/// When a peer's system is asked what it has.
struct Looks {
    next: Instant,
    /// How often it was, since more has arrived.
    count: u32,
    /// What had arrived when more did last, or something was written with nothing before it.
    arrived: u64,
    /// Since then something is on its way to it, and nothing of that arrived.
    since: Instant,
}

impl Looks {
    fn new(arrived: u64, now: Instant) -> Looks {
        Looks { next: now, count: 0, arrived, since: now }
    }

    /// Says whether more has arrived. While its system has no room nothing is on its way.
    fn sees(&mut self, arrived: u64, is_in_flight: bool, now: Instant) -> bool {
        let has_moved = arrived != self.arrived;
        if has_moved {
            *self = Looks::new(arrived, now);
        } else if !is_in_flight {
            self.since = now;
        }
        has_moved
    }

    fn are_in_vain(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= PATIENCE
    }
}

/// While so much waits to be written nothing is taken from the queue.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// So often at once, when others had their turn: who reads has it by then.
const LOOKS_AT_ONCE: u32 = 3;
const LOOK_LAST: Duration = Duration::from_millis(100);
/// Where nothing of what was sent arrives for so long nobody is there. A peer that has no room is
/// sent nothing, and may take its time.
const PATIENCE: Duration = Duration::from_secs(30);

impl Peer {
    /// Shakes hands, and takes a place. `read` is what came before.
    pub(super) async fn meet(
        shared: Shared,
        (wire, gauge): (Box<dyn Wire>, Arc<Gauge>),
        read: Vec<u8>,
        speech: Speech,
    ) -> Result<Peer, String> {
        let now = Instant::now();
        let mut peer = Peer {
            shared,
            way: Way::new(wire, read),
            speech,
            id: 0,
            wake: Arc::default(),
            heard: VecDeque::new(),
            said: VecDeque::new(),
            broken: None,
            has_hung_up: false,
            out: Vec::new(),
            unflushed: 0,
            begun: VecDeque::new(),
            gauge,
            sent: VecDeque::new(),
            looks: Looks::new(0, now),
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
        let ended = self.carry().await;
        // What it had when it went is not another's.
        self.look().await;
        match (ended, self.go()) {
            (Err(why), Some(doubt)) => Err(format!("{why}; {doubt}")),
            (ended, _) => ended,
        }
    }

    async fn carry(&mut self) -> Result<(), String> {
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
                let _ = timeout_at(end, self.finish(&mut buffer)).await;
                return Ok(());
            }
            let (is_under_way, next) = (self.is_under_way(), self.looks.next);
            tokio::select! {
                biased;
                moved = poll_fn(|cx| self.poll(cx, &mut buffer)), if self.broken.is_none() => {
                    self.has_hung_up |= moved.is_err();
                    self.broken = self.broken.take().or(moved.err());
                }
                () = wake.notified() => {}
                () = sleep_until(next), if is_under_way => {
                    self.look().await;
                    self.doubt()?;
                }
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
        match crowd.hold(self.id, held, settings) {
            Ok(()) => Ok(()),
            Err(Cut::HeldMost) => {
                tally.lose(&settings.name, Loss::NoRoom, "peers_bytes_max is reached");
                Err("peers_bytes_max is reached, and it held most".to_string())
            }
            Err(Cut::TookNothing) => {
                self.gauge.reset();
                let seconds = STALLED.as_secs();
                Err(format!("it took nothing for {seconds} s, and nothing was left for others"))
            }
        }
    }

    /// What waits for it, as it is written.
    fn fill(&mut self) {
        let Shared { settings, crowd, .. } = &self.shared;
        // What one write gave to a socket of this host counts as unread until all of it is read.
        let most = if self.gauge.is_local() { 1 } else { UNSENT_BYTES_MAX };
        while self.out.len() < most {
            let Some(parcel) = crowd.next(self.id, settings) else { return };
            self.speech.say(&parcel.message, &mut self.out);
            self.begun.push_back((self.unflushed + self.out.len(), parcel));
        }
        crowd.takes_nothing(self.id, settings);
    }

    /// Says whether its socket, or a layer before it, took anything.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let before = self.out.len();
        if self.is_under_way() {
            self.gauge.look();
            self.acknowledge();
        }
        if !self.is_under_way() {
            self.looks = Looks::new(self.gauge.arrived(), Instant::now());
        }
        // Where more and more is written a layer never has nothing, and all of it would be kept.
        let waits = self.unflushed >= UNSENT_BYTES_MAX;
        let out = if waits { &mut Vec::new() } else { &mut self.out };
        let mut moved = self.way.poll_write(cx, out)?;
        self.unflushed += before - self.out.len();
        if self.way.is_flushed() && self.unflushed > 0 {
            let len = std::mem::take(&mut self.unflushed);
            self.wrote(len);
            self.gauge.look();
            self.acknowledge();
            moved = true;
        }
        Ok(moved)
    }

    /// Its socket took so many bytes from the front.
    fn wrote(&mut self, len: usize) {
        for (end, _) in &mut self.begun {
            *end = end.saturating_sub(len);
        }
        let written = self.gauge.written();
        while self.begun.front().is_some_and(|(end, _)| *end == 0)
            && let Some((_, parcel)) = self.begun.pop_front()
        {
            match parcel.receipt {
                Some(_) => self.sent.push_back((written, parcel)),
                None => self.count(&parcel),
            }
        }
    }

    /// Of what was sent, what has arrived. Only then does the session here forget it: what this
    /// system has goes with the connection.
    fn acknowledge(&mut self) {
        let arrived = self.gauge.arrived();
        if self.looks.sees(arrived, self.gauge.is_in_flight(), Instant::now()) {
            self.shared.crowd.moves(self.id);
        }
        while self.sent.front().is_some_and(|(end, _)| *end <= arrived)
            && let Some((_, parcel)) = self.sent.pop_front()
        {
            self.count(&parcel);
            let Shared { settings, crowd, .. } = &self.shared;
            // Who asks waits for the answer.
            let receipt = parcel.receipt.filter(|_| !settings.pattern.asks());
            crowd.arrived(self.id, receipt);
        }
    }

    fn count(&self, parcel: &Parcel) {
        let payload = parcel.message.frames.last().map_or(0, Vec::len);
        self.shared.tally.count_out(payload);
    }

    /// Something was written that has not arrived.
    fn is_under_way(&self) -> bool {
        self.gauge.written() > self.gauge.arrived()
    }

    /// How much has arrived; no event says so.
    async fn look(&mut self) {
        self.looks.count += 1;
        if let Some(over) = self.looks.count.checked_sub(LOOKS_AT_ONCE) {
            let pause = Duration::from_millis(1 << over.min(10));
            self.looks.next = Instant::now() + pause.min(LOOK_LAST);
        }
        yield_now().await;
        self.gauge.look();
        self.acknowledge();
    }

    fn doubt(&self) -> Result<(), String> {
        if !self.looks.are_in_vain(Instant::now()) {
            return Ok(());
        }
        self.gauge.reset();
        Err(format!("nothing arrives there since {} s", PATIENCE.as_secs()))
    }

    /// Until all that waits for it has arrived, and it has closed the connection behind that. What
    /// it says is let go: a connection that is closed while something comes is reset, and what was
    /// not read of it at the other end is lost with it.
    async fn finish(&mut self, buffer: &mut [u8]) {
        let mut has_shut = false;
        loop {
            self.fill();
            let has_all = self.out.is_empty() && self.way.is_flushed() && !self.is_under_way();
            if has_all && !has_shut {
                has_shut = true;
                let shut = poll_fn(|cx| Pin::new(&mut self.way.stream).poll_shutdown(cx));
                if shut.await.is_err() {
                    return;
                }
            }
            let (is_under_way, next) = (self.is_under_way(), self.looks.next);
            tokio::select! {
                biased;
                moved = poll_fn(|cx| self.poll_last(cx, buffer)) => {
                    if moved.is_err() {
                        return;
                    }
                }
                () = sleep_until(next), if is_under_way => self.look().await,
            }
        }
    }

    fn poll_last(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<()>> {
        let written = self.write(cx)?;
        let read = self.way.poll_read(cx, buffer)?;
        self.way.take(self.way.unread().len());
        if written || read { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Nobody is left in the crowd who is not there, and what a socket did not take goes to another
    /// one where there are others. Says which message it may have gone for.
    fn go(&mut self) -> Option<String> {
        let id = std::mem::take(&mut self.id);
        if id == 0 {
            return None;
        }
        let doubt = self.suspect().and_then(|parcel| self.doubt_of(&parcel));
        let Shared { settings, crowd, tally } = &self.shared;
        let sent = self.sent.drain(..).map(|(_, parcel)| parcel);
        let begun = sent.chain(self.begun.drain(..).map(|(_, parcel)| parcel));
        let lost = crowd.leave(id, begun, settings.pattern.manner() == Manner::One);
        lose_all(&self.shared, lost);
        let peers = tally.peers.fetch_sub(1, Relaxed) - 1;
        debug!(target: "godwit::gateway", gateway = &*settings.name, peers, "a socket went");
        doubt
    }

    /// Where the other end has closed the connection without a word: the largest message that was
    /// half-way to it. If any was too long for it, that one was.
    fn suspect(&self) -> Option<Arc<Parcel>> {
        let Shared { settings, crowd, .. } = &self.shared;
        let goes_on = settings.pattern.manner() == Manner::One && crowd.end().is_none();
        if !self.has_hung_up || !goes_on {
            return None;
        }
        let mut start = 0;
        let is_begun = |(end, _): &&(usize, Arc<Parcel>)| {
            let from = std::mem::replace(&mut start, *end);
            from == 0 || from < self.unflushed
        };
        let begun = self.begun.iter().take_while(is_begun).map(|(_, parcel)| parcel);
        let half_way = self.sent.iter().map(|(_, parcel)| parcel).chain(begun);
        half_way.min_by_key(|parcel| Reverse(parcel.message.len())).cloned()
    }

    /// What is to be said of it, if too many went with it.
    fn doubt_of(&self, parcel: &Parcel) -> Option<String> {
        let Shared { settings, crowd, tally } = &self.shared;
        let (count, len, topic) = (crowd.ends_with(parcel), parcel.message.len(), &parcel.topic);
        if !parcel.is_doubted() {
            return None;
        }
        let doubt = format!(
            "{count} connections ended with a message of {len} bytes to {topic:?} half-way, so \
             others pass it: if it is too long there, message_bytes_max of the gateway has such \
             messages dropped"
        );
        tally.fail(&settings.name, doubt.clone());
        if parcel.receipt.is_none() && !parcel.is_question() {
            tally.lose(&settings.name, Loss::Refused, topic);
        }
        Some(doubt)
    }
}

/// However it ends.
impl Drop for Peer {
    fn drop(&mut self) {
        self.go();
    }
}

/// Nobody has so many messages any more.
pub(super) fn lose_all(shared: &Shared, count: usize) {
    let about = "it waited for a socket when the gateway stopped";
    shared.tally.lose_times(&shared.settings.name, Loss::NoPeer, about, count as u64);
}

fn said_of(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is on its way for one round trip when there is room again did not wait for an answer.
    #[test]
    fn only_time_on_the_way_is_time_without_an_answer() {
        let start = Instant::now();
        let mut looks = Looks::new(7, start);
        let mut at = |tenths: u32, is_in_flight| {
            let now = start + LOOK_LAST * tenths;
            assert!(!looks.sees(7, is_in_flight, now));
            looks.are_in_vain(now)
        };
        assert!(!at(600, false), "it has no room for a minute");
        assert!(!at(601, true), "and then it has");
        assert!(!at(899, true));
        assert!(at(901, true));
    }
}
