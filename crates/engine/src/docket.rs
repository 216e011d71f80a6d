//! What reaches a shard from outside its rings: commands, and the answers to its questions about
//! clients.

use crate::door::Door;
use crate::relay::RelaySlot;
use crate::ring::Bell;
use broker::ask::{self, Slip};
use broker::judge::Grant;
use broker::survey::{Report, Which};
use broker::{Claim, Command, ConnId, ShardId, Verdict};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

#[derive(Debug)]
pub(crate) enum Control {
    Command(Command),
    /// The same listeners, with what is behind them now.
    Doors(Arc<[Door]>),
    /// For shard 0: who knocks is let in from now on.
    Open {
        told: Sender<io::Result<()>>,
        /// Descriptors that are kept from clients.
        reserved: usize,
    },
    /// The answer to a question of this shard.
    Verdict {
        conn: ConnId,
        case: u32,
        verdict: Verdict,
    },
    /// A connection that this process made to itself, for shard 0.
    Own {
        stream: UnixStream,
        grant: Box<Grant>,
    },
    /// A relay of a link, for the shard that has its session.
    HostRelay(RelaySlot),
    /// The link wants it back.
    RecallRelay(Arc<str>),
    /// The link has these bytes for the other broker.
    SayByRelay {
        client_id: Arc<str>,
        bytes: Arc<[u8]>,
    },
    /// What is to be known of sessions.
    Survey {
        which: Arc<Which>,
        to: Sender<Vec<Report>>,
    },
    /// The answer to a question of what a client may do.
    Answered {
        slip: Slip,
        answer: ask::Answer,
    },
    /// Never heard: it goes once all that was told before is done.
    Done(Sender<Infallible>),
    /// Leave once everything is written.
    Stop,
}

/// Takes questions. It is called on a shard's thread.
pub type Judge = Arc<dyn Fn(Question) + Send + Sync>;

/// One client that waits at the door.
#[derive(Debug)]
pub struct Question {
    pub claim: Claim,
    pub liveness: ConnectionLiveness,
    pub answer: Answer,
}

/// Whether a connection that waits for a verdict is still there. Work for one that has gone lets
/// nobody in.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLiveness {
    is_closed: Arc<AtomicBool>,
}

impl ConnectionLiveness {
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    /// The connection has ended, or its deadline has answered.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

/// Where the verdict goes. One that is never given is a refusal after
/// `Options::verdict_timeout_ms`.
#[derive(Debug)]
pub struct Answer {
    control: Sender<Control>,
    bells: Arc<[Bell]>,
    shard: ShardId,
    conn: ConnId,
    case: u32,
}

impl Answer {
    pub fn give(self, verdict: Verdict) {
        let (conn, case) = (self.conn, self.case);
        // A shard that has ended needs no verdicts.
        let _ = self.control.send(Control::Verdict { conn, case, verdict });
        self.bells[usize::from(self.shard.0)].ring_out();
    }
}

/// Takes questions of what a client may do. It is called on a shard's thread.
pub type Warden = Arc<dyn Fn(Request) + Send + Sync>;

/// One wish of one client.
#[derive(Debug)]
pub struct Request {
    pub question: ask::Question,
    pub reply: Reply,
}

/// Where the answer goes. One that is never given is a no after `Options::verdict_timeout_ms`.
#[derive(Debug)]
pub struct Reply {
    control: Sender<Control>,
    bells: Arc<[Bell]>,
    shard: ShardId,
    slip: Slip,
}

impl Reply {
    pub fn give(self, answer: ask::Answer) {
        let slip = self.slip;
        // A shard that has ended needs no answers.
        let _ = self.control.send(Control::Answered { slip, answer });
        self.bells[usize::from(self.shard.0)].ring_out();
    }
}

/// A shard's end of it.
pub(crate) struct Docket {
    judge: Option<Judge>,
    warden: Option<Warden>,
    control: Sender<Control>,
    bells: Arc<[Bell]>,
    shard: ShardId,
    /// By the number of its connection, each client of which a verdict is still to come.
    pending: HashMap<u32, PendingVerdict>,
}

struct PendingVerdict {
    case: u32,
    liveness: ConnectionLiveness,
}

impl Docket {
    pub(crate) fn new(
        judge: Option<Judge>,
        warden: Option<Warden>,
        control: Sender<Control>,
        bells: Arc<[Bell]>,
        shard: ShardId,
    ) -> Docket {
        Docket { judge, warden, control, bells, shard, pending: HashMap::new() }
    }

    /// Without anybody to ask the deadline answers.
    pub(crate) fn ask(&mut self, conn: ConnId, case: u32, claim: Claim) {
        let Some(judge) = &self.judge else { return };
        let (control, bells, shard) = (self.control.clone(), self.bells.clone(), self.shard);
        let answer = Answer { control, bells, shard, conn, case };
        let liveness = ConnectionLiveness::default();
        self.pending.insert(conn.0, PendingVerdict { case, liveness: liveness.clone() });
        judge(Question { claim, liveness, answer });
    }

    pub(crate) fn awaits_verdict(&self, index: u32) -> bool {
        self.pending.contains_key(&index)
    }

    /// The verdict has come.
    pub(crate) fn settle(&mut self, conn: ConnId, case: u32) {
        if self.pending.get(&conn.0).is_some_and(|pending| pending.case == case) {
            self.pending.remove(&conn.0);
        }
    }

    /// The connection has ended: a verdict would be for nobody.
    pub(crate) fn withdraw(&mut self, index: u32) {
        if !self.pending.is_empty()
            && let Some(pending) = self.pending.remove(&index)
        {
            pending.liveness.close();
        }
    }

    pub(crate) fn request(&self, slip: Slip, question: ask::Question) {
        let Some(warden) = &self.warden else { return };
        let (control, bells, shard) = (self.control.clone(), self.bells.clone(), self.shard);
        warden(Request { question, reply: Reply { control, bells, shard, slip } });
    }
}
