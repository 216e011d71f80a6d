//! Input of a shard from other threads of the process: commands, and decisions that the shard asked
//! for.

use crate::listener::ListenerTransport;
use crate::relay::RelaySlot;
use broker::ids::RequestId;
use broker::interface::authz::AuthzDecision;
use broker::peer::authentication::Principal;
use broker::session::session_report::{SessionReport, SessionSelector};
use broker::{AuthDecision, ConnId, ShardCommand};
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;

#[derive(Debug)]
pub(crate) enum ShardControl {
    Command(ShardCommand),
    /// Replaces the layers of all listeners, in the same order.
    ReplaceTransports(Arc<[ListenerTransport]>),
    /// For shard 0: registers the listeners with the poller.
    OpenListeners {
        told: Sender<io::Result<()>>,
        /// Number of descriptors reserved from clients, for `DescriptorBudget::measure`.
        reserved: usize,
    },
    /// The decision on an `Effect::Authenticate` of this shard.
    AuthDecided {
        conn: ConnId,
        case: u32,
        verdict: AuthDecision,
    },
    /// A connection of this process to itself, for shard 0.
    ConnectInternal {
        stream: UnixStream,
        principal: Box<Principal>,
    },
    /// A relay of a link, taken by the shard of the link's session.
    HostRelay(RelaySlot),
    /// Takes the relay back to its link.
    RecallRelay(Arc<str>),
    /// Bytes of the link for the peer broker.
    SayByRelay {
        client_id: Arc<str>,
        bytes: Arc<[u8]>,
    },
    /// Requests a report on the selected sessions.
    ReportSessions {
        which: Arc<SessionSelector>,
        to: Sender<Vec<SessionReport>>,
    },
    /// The decision on an `Effect::Authorize` of this shard.
    AuthzAnswered {
        request_id: RequestId,
        answer: AuthzDecision,
    },
    /// Drops the sender after all earlier commands are done; no value is ever sent.
    Barrier(Sender<Infallible>),
    /// Ends the shard once all connections are closed, or after 500 ms.
    Stop,
}
