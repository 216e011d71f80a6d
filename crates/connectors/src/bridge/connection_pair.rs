//! The two connections of a bridge, to this broker and to the remote broker, and the relay between
//! them.
//!
//! Over plain TCP the shard with the local session runs the relay (see `loan`), from the time when
//! the remote broker has answered all requests until the connection ends or the bridge stops.

use super::loan::{LineActivity, LineLoan, PipeReturn};
use super::relay::{BridgeSide, FailoverState, PoisonCandidates, Relay, RelayEnd};
use super::remote_session::{FarStream, RemoteSession, encode_disconnect};
use super::send_progress::SendProgress;
use super::settings::BridgeSettings;
use crate::connection::{LinkConnection, READ_BYTES};
use crate::local_session::LocalSession;
use crate::{LinkSettings, LinkStop, wait_for_stop};
use engine::{EngineHandle, RelayLoan};
use mqtt::client::{KeepAlive, KeepAliveStep};
use mqtt::{PINGREQ, ProtocolVersion, ReasonCode};
use net::pause_aware_timeout::{extended_deadline, timeout};
use net::server_url::ServerUrl;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub struct ConnectionPair {
    local: LinkConnection<UnixStream>,
    remote: LinkConnection<FarStream>,
    send_progress: SendProgress,
    /// The relay, or `None` while a shard runs it.
    relay: Option<Box<Relay>>,
    loan: Option<LineLoan>,
    /// Whether the relay may be lent to a shard. Set only for plain TCP; cleared by `lend`, so a
    /// relay is lent once.
    is_lendable: bool,
    handle: EngineHandle,
    link_id: Arc<str>,
    buffer: Box<[u8]>,
    version: ProtocolVersion,
    status_topic: String,
    keep_alive: KeepAlive<Instant>,
    answer_timeout: Duration,
    /// Time until which no timeout counts, because the process was paused.
    paused_until: Instant,
}

/// Reason for the end of a connection pair.
pub enum BridgeExit {
    Stopped,
    /// The preferred server has accepted a connection.
    Return(Box<RemoteSession>),
    Failed(BridgeSide, String),
}

impl BridgeExit {
    /// Returns the reason as text, for events and logs.
    pub fn describe(&self) -> &str {
        match self {
            BridgeExit::Stopped => "stopped",
            BridgeExit::Return(_) => "it goes back to its first server",
            BridgeExit::Failed(_, why) => why,
        }
    }
}

/// Bytes waiting to be written above which reading stops, so the slower side sets the pace.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// Multiple of the response timeout which a ping may wait behind earlier bytes.
const BEHIND: u32 = 3;
/// Number of checks within the response timeout whether earlier bytes still leave: see
/// `SendProgress`.
const LOOKS: u32 = 8;
/// Longest time to finish exchanges, and to disconnect, when a connection ends.
const GOODBYE: Duration = Duration::from_secs(1);

impl ConnectionPair {
    pub fn new(
        local: LocalSession,
        remote: RemoteSession,
        pipe: Relay,
        settings: &BridgeSettings,
        handle: EngineHandle,
    ) -> ConnectionPair {
        let answer_timeout = Duration::from_secs(u64::from(settings.answer_timeout_s));
        let keep_alive = Duration::from_secs(u64::from(remote.grants.keep_alive_s(settings)));
        ConnectionPair {
            is_lendable: matches!(remote.stream, FarStream::Plain(_)),
            local: LinkConnection::new(local.stream, local.read),
            remote: LinkConnection::new(remote.stream, remote.read),
            send_progress: remote.send_progress,
            relay: Some(Box::new(pipe)),
            loan: None,
            handle,
            link_id: settings.link_id().into(),
            buffer: vec![0; READ_BYTES].into(),
            version: settings.version,
            status_topic: settings.status_topic.clone(),
            keep_alive: KeepAlive::new(keep_alive, answer_timeout),
            answer_timeout,
            paused_until: Instant::now(),
        }
    }

    /// Relays until the connection ends, `stop` is signalled, or `returns` completes with a
    /// connection to the preferred server. Exchanges which the remote broker has completed are
    /// completed at this broker too, however the connection ends: otherwise their messages would be
    /// sent again.
    pub async fn relay_until_end(
        &mut self,
        stop: &mut watch::Receiver<LinkStop>,
        server: &ServerUrl,
        returns: impl Future<Output = RemoteSession>,
    ) -> BridgeExit {
        let ended = self.run_loop(stop, server, returns).await;
        if let Some(pipe) = &self.relay {
            let near = &mut self.local.stream;
            let _ = timeout(GOODBYE, near.write_all(&pipe.to_local)).await;
        }
        ended
    }

    async fn run_loop(
        &mut self,
        stop: &mut watch::Receiver<LinkStop>,
        server: &ServerUrl,
        returns: impl Future<Output = RemoteSession>,
    ) -> BridgeExit {
        let mut returns = pin!(returns);
        loop {
            if self.can_be_lent() {
                self.lend();
            }
            let due = self.next_deadline();
            tokio::select! {
                biased;
                () = wait_for_stop(stop) => {
                    let is_last = stop.borrow().ends_session_at(server);
                    self.recall().await;
                    if !is_last {
                        self.finish_inflight().await;
                    }
                    self.disconnect(is_last).await;
                    return BridgeExit::Stopped;
                }
                end = poll_fn(|cx| self.poll(cx)) => {
                    // A ping was answered or the relay can be lent, so the deadline is computed
                    // again.
                    let Some(end) = end else { continue };
                    if matches!(end, RelayEnd::Closed(_) | RelayEnd::NoRoom(_)) {
                        self.disconnect(false).await;
                    }
                    return BridgeExit::Failed(end.side(), end.to_string());
                }
                remote = &mut returns => {
                    self.recall().await;
                    self.finish_inflight().await;
                    self.disconnect(false).await;
                    return BridgeExit::Return(Box::new(remote));
                }
                () = sleep_until(due) => {
                    let extended = extended_deadline(due, Instant::now(), self.answer_timeout);
                    self.paused_until = extended.unwrap_or(self.paused_until);
                    if let Err(why) = self.check_timeouts() {
                        return BridgeExit::Failed(BridgeSide::NoResponse, why);
                    }
                }
            }
        }
    }

    /// Returns the state for the next connection, or `None` if a shard kept the relay.
    pub fn into_failover_state(self) -> Option<FailoverState> {
        self.relay.map(|pipe| pipe.into_failover_state())
    }

    /// Returns the messages which may have made the remote broker disconnect; `None` while the
    /// relay is lent to a shard.
    pub fn poison_candidates(&self) -> Option<&PoisonCandidates> {
        self.relay.as_ref().map(|pipe| pipe.poison_candidates())
    }

    /// Whether the remote broker has answered the requests of [`Relay::send_requests`]. A lent
    /// relay was answered before.
    pub fn is_answered(&self) -> bool {
        self.relay.as_ref().is_none_or(|pipe| pipe.is_answered())
    }

    fn can_be_lent(&self) -> bool {
        self.is_lendable && self.relay.as_ref().is_some_and(|pipe| pipe.is_ready())
    }

    /// Lends the relay to the shard with the local session. Should the shard refuse, `PipeReturn`
    /// comes back at once.
    fn lend(&mut self) {
        self.is_lendable = false;
        let Ok(near) = self.local.stream.as_fd().try_clone_to_owned() else { return };
        let FarStream::Plain(_) = self.remote.stream else { return };
        let FarStream::Plain(far) = std::mem::replace(&mut self.remote.stream, FarStream::Lent)
        else {
            return;
        };
        // Without the stream the next read fails with `NotConnected`.
        let (Ok(far), Some(pipe)) = (far.into_std(), self.relay.take()) else { return };
        let activity = LineActivity::new(self.remote.read_at, self.remote.written_at);
        let (near_read, far_read) =
            (std::mem::take(&mut self.local.read), std::mem::take(&mut self.remote.read));
        let (loan, relay) = LineLoan::new(pipe, near_read, far_read, activity);
        self.loan = Some(loan);
        self.handle.host_relay(RelayLoan::new(&self.link_id, relay, far, near.into()));
    }

    /// Takes the relay back from the shard, and waits for it.
    async fn recall(&mut self) {
        let Some(loan) = &mut self.loan else { return };
        loan.is_recalled = true;
        self.handle.recall_relay(&self.link_id);
        if let Ok(returned) = (&mut loan.returned).await {
            let _ = self.take_back(returned);
        }
    }

    /// Takes the relay, buffers and sockets back from the shard that ran the relay. Returns the
    /// reason if the relay has ended there.
    fn take_back(&mut self, returned: PipeReturn) -> Option<RelayEnd> {
        let PipeReturn { mut pipe, near_read, far_read, socket, end } = returned;
        (self.local.read, self.remote.read) = (near_read, far_read);
        let is_recalled = self.loan.take().is_some_and(|loan| {
            (self.remote.read_at, self.remote.written_at) =
                (loan.activity.heard(), loan.activity.said());
            loan.is_recalled
        });
        pipe.to_remote.splice(..0, socket.unsent);
        self.relay = Some(pipe);
        if let Some(Ok(stream)) = socket.stream.map(TcpStream::from_std) {
            self.remote.stream = FarStream::Plain(stream);
        }
        let far_end = socket.fault.map(|fault| RelayEnd::Remote(describe_io_error(&fault)));
        let near_end = (!is_recalled).then_some(RelayEnd::Closed(ReasonCode::UnspecifiedError));
        end.or(far_end).or(near_end)
    }

    /// Relays all available bytes. Ready with the end, or with `None` when a ping is answered or
    /// the relay can be lent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<RelayEnd>> {
        if let Some(loan) = &mut self.loan {
            return match Pin::new(&mut loan.returned).poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(returned)) => Poll::Ready(self.take_back(returned)),
                Poll::Ready(Err(_)) => {
                    Poll::Ready(Some(RelayEnd::Closed(ReasonCode::UnspecifiedError)))
                }
            };
        }
        loop {
            match self.step(cx) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => return Poll::Ready(Some(end)),
            }
        }
        match self.note_answer() || self.can_be_lent() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Result<bool, RelayEnd> {
        let far = |error: io::Error| RelayEnd::Remote(describe_io_error(&error));
        let near = |_: io::Error| RelayEnd::Closed(ReasonCode::UnspecifiedError);
        let Some(pipe) = &mut self.relay else { return Ok(false) };
        pipe.now = Instant::now().into_std();
        let mut moves = self.remote.poll_write(cx, &mut pipe.to_remote).map_err(far)?;
        moves |= self.local.poll_write(cx, &mut pipe.to_local).map_err(near)?;
        let answers = pipe.to_remote.len() < 4 * UNSENT_BYTES_MAX;
        if pipe.to_local.len() < UNSENT_BYTES_MAX && answers {
            moves |= self.remote.poll_read(cx, &mut self.buffer).map_err(far)?;
            if !self.remote.unread().is_empty() {
                let taken = pipe.read_remote(self.remote.unread())?;
                self.remote.consume(taken);
                moves |= taken > 0;
            }
        }
        // Bytes which wait for `is_ready` stay in the socket, so the local session sees
        // back-pressure.
        let waits = !pipe.is_ready() && !self.local.unread().is_empty();
        if pipe.to_remote.len() < UNSENT_BYTES_MAX && !waits {
            moves |= self.local.poll_read(cx, &mut self.buffer).map_err(near)?;
            if !self.local.unread().is_empty() {
                let taken = pipe.read_local(self.local.unread())?;
                self.local.consume(taken);
                moves |= taken > 0;
            }
        }
        Ok(moves)
    }

    /// Returns the time of the next check in `check_timeouts`, independent of arriving bytes.
    fn next_deadline(&self) -> Instant {
        let due = match self.unanswered_since() {
            Some(at) => {
                let looked = self.send_progress.last_update().unwrap_or(at);
                self.answer_deadline(at).min(looked + self.answer_timeout / LOOKS)
            }
            None => self.idle_since() + self.keep_alive.interval(),
        };
        self.last_answer_at().map_or(due, |answered| due.min(self.answer_deadline(answered)))
    }

    /// Returns the deadline for an answer to a request sent at `at`.
    fn answer_deadline(&self, at: Instant) -> Instant {
        (at + self.answer_timeout).max(self.paused_until)
    }

    /// Returns when the remote broker last answered a request, if more requests are pending.
    fn last_answer_at(&self) -> Option<Instant> {
        let pipe = self.relay.as_ref().filter(|pipe| !pipe.is_answered())?;
        Some(Instant::from_std(pipe.last_answer))
    }

    fn heard(&self) -> Instant {
        self.loan.as_ref().map_or(self.remote.read_at, |loan| loan.activity.heard())
    }

    fn said(&self) -> Instant {
        self.loan.as_ref().map_or(self.remote.written_at, |loan| loan.activity.said())
    }

    fn idle_since(&self) -> Instant {
        self.heard().min(self.said())
    }

    /// Records that the remote broker has sent data since the last PINGREQ. Returns whether there
    /// was such data.
    fn note_answer(&mut self) -> bool {
        let is_answered = self.keep_alive.unanswered_since().is_some_and(|at| self.heard() > at);
        if is_answered {
            self.keep_alive.on_answer();
        }
        is_answered
    }

    /// Returns the time since which a PINGREQ waits for data of the remote broker; `None` if no
    /// PINGREQ waits. Progress in sending counts for a bounded time as well: the PINGREQ may wait
    /// behind other data, and a kernel accepts much data for a peer that does not respond.
    fn unanswered_since(&self) -> Option<Instant> {
        let asked = self.keep_alive.unanswered_since().filter(|at| self.heard() <= *at)?;
        let moved =
            self.send_progress.last_progress().map_or(self.said(), |at| at.max(self.said()));
        Some(asked.max(moved.min(asked + BEHIND * self.answer_timeout)))
    }

    /// Sends a ping if the remote broker was silent for the keep alive, or if this bridge was: the
    /// remote broker would close the connection [MQTT-3.1.2-20]. Fails if an answer is late.
    fn check_timeouts(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if self.last_answer_at().is_some_and(|answered| now >= self.answer_deadline(answered)) {
            return Err("it does not answer what it is asked for".to_string());
        }
        self.note_answer();
        if self.unanswered_since().is_some() {
            self.send_progress.update(now);
        }
        if let Some(at) = self.unanswered_since() {
            self.keep_alive.extend_deadline(self.answer_deadline(at));
        }
        match self.keep_alive.step(self.idle_since(), now) {
            KeepAliveStep::Wait => Ok(()),
            KeepAliveStep::Lost => Err("it no longer answers".to_string()),
            KeepAliveStep::Ping => {
                self.ping(now);
                self.keep_alive.on_ping_sent(now);
                self.send_progress.update(now);
                Ok(())
            }
        }
    }

    fn ping(&mut self, now: Instant) {
        if let Some(loan) = &self.loan {
            self.handle.say_by_relay(&self.link_id, &PINGREQ.into());
            loan.activity.note_said(now);
        } else if let Some(pipe) = &mut self.relay {
            pipe.to_remote.extend_from_slice(&PINGREQ);
        }
    }

    /// Waits at most `GOODBYE` for exchanges in flight to complete, since another server could not
    /// complete them.
    async fn finish_inflight(&mut self) {
        let finished = poll_fn(|cx| match (self.end_pipe(), self.poll(cx)) {
            (_, Poll::Ready(Some(_))) => Poll::Ready(()),
            _ if self.end_pipe() => Poll::Ready(()),
            _ => Poll::Pending,
        });
        let _ = timeout(GOODBYE, finished).await;
    }

    fn end_pipe(&mut self) -> bool {
        self.relay.as_mut().is_none_or(|pipe| pipe.drain())
    }

    /// Sends the remaining bytes, the status 0 and DISCONNECT, within `GOODBYE`. `is_last` ends the
    /// remote session.
    async fn disconnect(&mut self, is_last: bool) {
        let Some(pipe) = &mut self.relay else { return };
        pipe.publish_status(&self.status_topic, false);
        encode_disconnect(self.version, is_last, &mut pipe.to_remote);
        let far = &mut self.remote.stream;
        let saying = async {
            let _ = far.write_all(&pipe.to_remote).await;
            let _ = far.flush().await;
            let _ = far.shutdown().await;
        };
        let _ = timeout(GOODBYE, saying).await;
    }
}

fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_string(),
        _ => error.to_string(),
    }
}
