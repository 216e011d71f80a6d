//! The two connections of a bridge while both are there: bytes in, through the pipe, bytes out.
//!
//! Over plain TCP that is the work of the shard that has the session, see `loan`, from when the
//! other broker has answered what it was asked until the end, or until the bridge is to stop.

use super::far::{Far, FarStream, goodbye};
use super::loan::{LineActivity, LineLoan, PipeReturn};
use super::pipe::{End, Past, Pipe, Side, Suspects};
use super::settings::BridgeSettings;
use super::underway::UnderWay;
use crate::identity::remote::url::Url;
use crate::links::near::Near;
use crate::links::way::{READ_BYTES, Way};
use crate::links::{Stop, stopped};
use crate::patience::{extension, timeout};
use engine::{Handle, RelayLoan};
use mqtt::{PINGREQ, Reason, Version};
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

pub(crate) struct Line {
    near: Way<UnixStream>,
    far: Way<FarStream>,
    under_way: UnderWay,
    /// There when it is not lent.
    pipe: Option<Box<Pipe>>,
    loan: Option<LineLoan>,
    /// Not before it is answered, nor twice.
    is_lendable: bool,
    handle: Handle,
    link_id: Arc<str>,
    buffer: Box<[u8]>,
    version: Version,
    status_topic: String,
    keep_alive: Duration,
    answer_timeout: Duration,
    pinged: Option<Instant>,
    /// The process was paused: nobody is late before this.
    spared_until: Instant,
}

/// Why it is over.
pub(crate) enum Ended {
    Stopped,
    /// Where it should be has let us in.
    Return(Box<Far>),
    Why(Side, String),
}

impl Ended {
    /// Why, for whoever hears of it.
    pub(crate) fn why(&self) -> &str {
        match self {
            Ended::Stopped => "stopped",
            Ended::Return(_) => "it goes back to its first server",
            Ended::Why(_, why) => why,
        }
    }
}

/// Nothing more is read while so much waits to be written: whoever is slower sets the pace.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// So many times the time for an answer a question may stand behind what was said before it.
const BEHIND: u32 = 3;
/// So often, within the time for an answer, it is seen whether what was said before still leaves.
const LOOKS: u32 = 8;
const GOODBYE: Duration = Duration::from_secs(1);

impl Line {
    pub(crate) fn new(
        near: Near,
        far: Far,
        pipe: Pipe,
        (settings, handle): (&BridgeSettings, Handle),
    ) -> Line {
        Line {
            is_lendable: matches!(far.stream, FarStream::Plain(_)),
            near: Way::new(near.stream, near.read),
            far: Way::new(far.stream, far.read),
            under_way: far.under_way,
            pipe: Some(Box::new(pipe)),
            loan: None,
            handle,
            link_id: settings.link_id().into(),
            buffer: vec![0; READ_BYTES].into(),
            version: settings.version,
            status_topic: settings.status_topic.clone(),
            keep_alive: Duration::from_secs(u64::from(far.granted.keep_alive_s)),
            answer_timeout: Duration::from_secs(u64::from(settings.answer_timeout_s)),
            pinged: None,
            spared_until: Instant::now(),
        }
    }

    /// Until it is over. `returns` is done when there is a better place to be. What the other
    /// broker completed is done here too, however it ends, or it would come again.
    pub(crate) async fn carry(
        &mut self,
        (stop, server): (&mut watch::Receiver<Stop>, &Url),
        returns: impl Future<Output = Far>,
    ) -> Ended {
        let ended = self.until_end((stop, server), returns).await;
        if let Some(pipe) = &self.pipe {
            let near = &mut self.near.stream;
            let _ = timeout(GOODBYE, near.write_all(&pipe.to_near)).await;
        }
        ended
    }

    async fn until_end(
        &mut self,
        (stop, server): (&mut watch::Receiver<Stop>, &Url),
        returns: impl Future<Output = Far>,
    ) -> Ended {
        let mut returns = pin!(returns);
        loop {
            if self.can_be_lent() {
                self.lend();
            }
            let due = self.due();
            tokio::select! {
                biased;
                () = stopped(stop) => {
                    let is_last = stop.borrow().ends_at(server);
                    self.recall().await;
                    if !is_last {
                        self.finish().await;
                    }
                    self.goodbye(is_last).await;
                    return Ended::Stopped;
                }
                end = poll_fn(|cx| self.poll(cx)) => {
                    // It has answered, and from now on another time counts.
                    let Some(end) = end else { continue };
                    if matches!(end, End::Closed(_) | End::NoRoom(_)) {
                        self.goodbye(false).await;
                    }
                    return Ended::Why(end.side(), end.to_string());
                }
                far = &mut returns => {
                    self.recall().await;
                    self.finish().await;
                    self.goodbye(false).await;
                    return Ended::Return(Box::new(far));
                }
                () = sleep_until(due) => {
                    let extended = extension(due, Instant::now(), self.answer_timeout);
                    self.spared_until = extended.unwrap_or(self.spared_until);
                    if let Err(why) = self.look_at_time() {
                        return Ended::Why(Side::Between, why);
                    }
                }
            }
        }
    }

    /// For the next one; there once it has ended.
    pub(crate) fn into_past(self) -> Option<Past> {
        self.pipe.map(|pipe| pipe.into_past())
    }

    /// What may have made the other broker hang up.
    pub(crate) fn suspects(&self) -> Option<&Suspects> {
        self.pipe.as_ref().map(|pipe| pipe.suspects())
    }

    /// Whether the other broker has answered what it was asked at the beginning, as it had when the
    /// pipe was lent.
    pub(crate) fn is_answered(&self) -> bool {
        self.pipe.as_ref().is_none_or(|pipe| pipe.is_answered())
    }

    fn can_be_lent(&self) -> bool {
        self.is_lendable && self.pipe.as_ref().is_some_and(|pipe| pipe.is_ready())
    }

    /// To the shard that has the session here. Should it not take the pipe, that comes back.
    fn lend(&mut self) {
        self.is_lendable = false;
        let Ok(near) = self.near.stream.as_fd().try_clone_to_owned() else { return };
        let FarStream::Plain(_) = self.far.stream else { return };
        let FarStream::Plain(far) = std::mem::replace(&mut self.far.stream, FarStream::Lent) else {
            return;
        };
        // Without the stream the next read says that it is not connected.
        let (Ok(far), Some(pipe)) = (far.into_std(), self.pipe.take()) else { return };
        let activity = LineActivity::new(self.far.heard, self.far.said);
        let (near_read, far_read) =
            (std::mem::take(&mut self.near.read), std::mem::take(&mut self.far.read));
        let (loan, relay) = LineLoan::new(pipe, near_read, far_read, activity);
        self.loan = Some(loan);
        self.handle.host_relay(RelayLoan::new(&self.link_id, relay, far, near.into()));
    }

    /// Has the pipe here again.
    async fn recall(&mut self) {
        let Some(loan) = &mut self.loan else { return };
        loan.is_recalled = true;
        self.handle.recall_relay(&self.link_id);
        if let Ok(returned) = (&mut loan.returned).await {
            let _ = self.take_back(returned);
        }
    }

    /// Says why it ended, where it did.
    fn take_back(&mut self, returned: PipeReturn) -> Option<End> {
        let PipeReturn { mut pipe, near_read, far_read, socket, end } = returned;
        (self.near.read, self.far.read) = (near_read, far_read);
        let is_recalled = self.loan.take().is_some_and(|loan| {
            (self.far.heard, self.far.said) = (loan.activity.heard(), loan.activity.said());
            loan.is_recalled
        });
        pipe.to_far.splice(..0, socket.unsent);
        self.pipe = Some(pipe);
        if let Some(Ok(stream)) = socket.stream.map(TcpStream::from_std) {
            self.far.stream = FarStream::Plain(stream);
        }
        let far_end = socket.fault.map(|fault| End::Far(said_of(&fault)));
        let near_end = (!is_recalled).then_some(End::Closed(Reason::UnspecifiedError));
        end.or(far_end).or(near_end)
    }

    /// Everything that can go on does, until the end, or an answer to the question whether anybody
    /// is there.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<End>> {
        if let Some(loan) = &mut self.loan {
            return match Pin::new(&mut loan.returned).poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(returned)) => Poll::Ready(self.take_back(returned)),
                Poll::Ready(Err(_)) => Poll::Ready(Some(End::Closed(Reason::UnspecifiedError))),
            };
        }
        loop {
            match self.step(cx) {
                Ok(true) => {}
                Ok(false) => break,
                Err(end) => return Poll::Ready(Some(end)),
            }
        }
        match self.pinged.take_if(|at| self.far.heard > *at) {
            Some(_) => Poll::Ready(None),
            None if self.can_be_lent() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let far = |error: io::Error| End::Far(said_of(&error));
        let near = |_: io::Error| End::Closed(Reason::UnspecifiedError);
        let Some(pipe) = &mut self.pipe else { return Ok(false) };
        pipe.now = Instant::now().into_std();
        let mut moves = self.far.poll_write(cx, &mut pipe.to_far).map_err(far)?;
        moves |= self.near.poll_write(cx, &mut pipe.to_near).map_err(near)?;
        let answers = pipe.to_far.len() < 4 * UNSENT_BYTES_MAX;
        if pipe.to_near.len() < UNSENT_BYTES_MAX && answers {
            moves |= self.far.poll_read(cx, &mut self.buffer).map_err(far)?;
            if !self.far.unread().is_empty() {
                let taken = pipe.hear_far(self.far.unread())?;
                self.far.take(taken);
                moves |= taken > 0;
            }
        }
        // What cannot go on yet is not made longer.
        let waits = !pipe.is_ready() && !self.near.unread().is_empty();
        if pipe.to_far.len() < UNSENT_BYTES_MAX && !waits {
            moves |= self.near.poll_read(cx, &mut self.buffer).map_err(near)?;
            if !self.near.unread().is_empty() {
                let taken = pipe.hear_near(self.near.unread())?;
                self.near.take(taken);
                moves |= taken > 0;
            }
        }
        Ok(moves)
    }

    /// When there is something to do that no byte tells of.
    fn due(&self) -> Instant {
        let due = match self.unanswered() {
            Some(at) => {
                let looked = self.under_way.looked().unwrap_or(at);
                self.late_at(at).min(looked + self.answer_timeout / LOOKS)
            }
            None => self.heard().min(self.said()) + self.keep_alive,
        };
        self.answered().map_or(due, |answered| due.min(self.late_at(answered)))
    }

    /// When an answer is late that was asked for at `at`.
    fn late_at(&self, at: Instant) -> Instant {
        (at + self.answer_timeout).max(self.spared_until)
    }

    /// When it last answered something, where there is more to answer.
    fn answered(&self) -> Option<Instant> {
        let pipe = self.pipe.as_ref().filter(|pipe| !pipe.is_answered())?;
        Some(Instant::from_std(pipe.answered))
    }

    fn heard(&self) -> Instant {
        self.loan.as_ref().map_or(self.far.heard, |loan| loan.activity.heard())
    }

    fn said(&self) -> Instant {
        self.loan.as_ref().map_or(self.far.said, |loan| loan.activity.said())
    }

    /// Since when a question waits for any word. What is still taken of what we say, or leaves,
    /// counts for some time: the question may stand behind it, and systems take much for somebody
    /// who hangs.
    fn unanswered(&self) -> Option<Instant> {
        let asked = self.pinged.filter(|at| self.heard() <= *at)?;
        let moved = self.under_way.moved().map_or(self.said(), |at| at.max(self.said()));
        Some(asked.max(moved.min(asked + BEHIND * self.answer_timeout)))
    }

    /// A broker that says nothing is asked whether it is there, and so is one to which we say
    /// nothing, which would think us gone [MQTT-3.1.2-20].
    fn look_at_time(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if self.answered().is_some_and(|answered| now >= self.late_at(answered)) {
            return Err("it does not answer what it is asked for".to_string());
        }
        if self.unanswered().is_some() {
            self.under_way.look(now);
        }
        match self.unanswered() {
            Some(at) if now >= self.late_at(at) => Err("it no longer answers".to_string()),
            None if now >= self.heard().min(self.said()) + self.keep_alive => {
                self.ping(now);
                self.pinged = Some(now);
                self.under_way.look(now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn ping(&mut self, now: Instant) {
        if let Some(loan) = &self.loan {
            self.handle.say_by_relay(&self.link_id, &PINGREQ.into());
            loan.activity.note_said(now);
        } else if let Some(pipe) = &mut self.pipe {
            pipe.to_far.extend_from_slice(&PINGREQ);
        }
    }

    /// What is half-way at it no other server could bring to its end: it gets a moment for that.
    async fn finish(&mut self) {
        let finished = poll_fn(|cx| match (self.end_pipe(), self.poll(cx)) {
            (_, Poll::Ready(Some(_))) => Poll::Ready(()),
            _ if self.end_pipe() => Poll::Ready(()),
            _ => Poll::Pending,
        });
        let _ = timeout(GOODBYE, finished).await;
    }

    fn end_pipe(&mut self) -> bool {
        self.pipe.as_mut().is_none_or(|pipe| pipe.end())
    }

    /// Says what is left, and that it was all.
    async fn goodbye(&mut self, is_last: bool) {
        let Some(pipe) = &mut self.pipe else { return };
        pipe.say_status(&self.status_topic, false);
        goodbye(self.version, is_last, &mut pipe.to_far);
        let far = &mut self.far.stream;
        let saying = async {
            let _ = far.write_all(&pipe.to_far).await;
            let _ = far.flush().await;
            let _ = far.shutdown().await;
        };
        let _ = timeout(GOODBYE, saying).await;
    }
}

fn said_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_string(),
        _ => error.to_string(),
    }
}
