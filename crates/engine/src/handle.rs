//! How the rest of the process tells shards something and asks them.

use crate::pending_auth::ShardControl;
use crate::relay::RelayLoan;
use crate::ring::ShardWaker;
use broker::ShardCommand;
use broker::connection::authentication::Principal;
use broker::rules::LinkEvent;
use broker::session::session_report::{SessionReport, SessionSelector};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// Good for as long as anybody has one; shards that have ended hear nothing.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    controls: Vec<Sender<ShardControl>>,
    wakers: Arc<[ShardWaker]>,
}

impl EngineHandle {
    pub(crate) fn new(
        controls: Vec<Sender<ShardControl>>,
        wakers: Arc<[ShardWaker]>,
    ) -> EngineHandle {
        EngineHandle { controls, wakers }
    }

    pub fn send_command(&self, command: ShardCommand) {
        self.send_to_all(|| ShardControl::Command(command.clone()));
    }

    /// A value below `$SYS/broker/`.
    pub fn publish_sys(&self, topic: Arc<str>, value: Arc<str>) {
        self.send_to_first_shard(ShardControl::Command(ShardCommand::PublishSys { topic, value }));
    }

    /// Something that rules may hear of.
    pub fn report_link_event(&self, told: LinkEvent) {
        self.send_to_first_shard(ShardControl::Command(ShardCommand::LinkEvent(told)));
    }

    /// Connects a link of this process: the other end of `stream` speaks MQTT and acts as
    /// `principal`.
    pub fn connect_internal(&self, stream: UnixStream, principal: Principal) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.send_to_first_shard(ShardControl::ConnectInternal {
            stream,
            principal: Box::new(principal),
        });
        Ok(())
    }

    /// Has the shard of a link's session pass packets on in the link's place. The relay comes back
    /// at once where the session is not connected.
    pub fn host_relay(&self, loan: RelayLoan) {
        let slot = Arc::new(Mutex::new(Some(loan)));
        self.send_to_all(|| ShardControl::HostRelay(slot.clone()));
    }

    /// Has the relay of a session given back, if a shard has it.
    pub fn recall_relay(&self, client_id: &Arc<str>) {
        self.send_to_all(|| ShardControl::RecallRelay(client_id.clone()));
    }

    /// Says something to the other broker behind what the relay has said.
    pub fn say_by_relay(&self, client_id: &Arc<str>, bytes: &Arc<[u8]>) {
        self.send_to_all(|| {
            let (client_id, bytes) = (client_id.clone(), bytes.clone());
            ShardControl::SayByRelay { client_id, bytes }
        });
    }

    /// Reports on sessions. Blocks until every shard has answered.
    pub fn report_sessions(&self, which: SessionSelector) -> Vec<SessionReport> {
        let (to, reports) = channel();
        let which = Arc::new(which);
        self.send_to_all(|| ShardControl::ReportSessions { which: which.clone(), to: to.clone() });
        drop(to);
        reports.into_iter().flatten().collect()
    }

    pub(crate) fn send_to_first_shard(&self, control: ShardControl) {
        // A shard that has ended needs nothing.
        let _ = self.controls[0].send(control);
        self.wakers[0].wake_always();
    }

    /// Waits until every shard has done what it was told before.
    pub fn wait_for_commands(&self) {
        let (sender, done) = channel();
        self.send_to_all(|| ShardControl::Barrier(sender.clone()));
        drop(sender);
        // Nothing is ever sent: it ends when the last shard has let go.
        let _ = done.recv();
    }

    pub(crate) fn send_to_all(&self, control: impl Fn() -> ShardControl) {
        for (sender, waker) in self.controls.iter().zip(self.wakers.iter()) {
            // A shard that has ended needs no commands.
            let _ = sender.send(control());
            waker.wake_always();
        }
    }
}
