//! Access of the rest of the process to the shards: commands and requests.

use crate::relay::RelayLoan;
use crate::ring::ShardWaker;
use crate::shard_control::ShardControl;
use broker::ShardCommand;
use broker::interface::rule_event::LinkEvent;
use broker::peer::authentication::Principal;
use broker::session::session_report::{SessionReport, SessionSelector};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// Sends commands to the shards of a `Server`, also after the owner of the server is gone. A
/// command to an ended shard has no effect.
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

    /// Publishes `value`, retained, at the full topic `topic` below `$SYS/broker/`.
    pub fn publish_sys(&self, topic: Arc<str>, value: Arc<str>) {
        self.send_to_first_shard(ShardControl::Command(ShardCommand::PublishSys { topic, value }));
    }

    /// Reports a `LinkEvent` to the rules, by shard 0.
    pub fn report_link_event(&self, told: LinkEvent) {
        self.send_to_first_shard(ShardControl::Command(ShardCommand::LinkEvent(told)));
    }

    /// Connects a link of this process: the far end of `stream` speaks MQTT and acts as
    /// `principal`.
    pub fn connect_internal(&self, stream: UnixStream, principal: Principal) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.send_to_first_shard(ShardControl::ConnectInternal {
            stream,
            principal: Box::new(principal),
        });
        Ok(())
    }

    /// Lends a relay to the shard of the link's session, which passes packets on in place of the
    /// link. If the session is not connected, `LinkRelay::give_back` is called at once.
    pub fn host_relay(&self, loan: RelayLoan) {
        let slot = Arc::new(Mutex::new(Some(loan)));
        self.send_to_all(|| ShardControl::HostRelay(slot.clone()));
    }

    /// Makes the shard give the relay of a session back, if a shard hosts the relay.
    pub fn recall_relay(&self, client_id: &Arc<str>) {
        self.send_to_all(|| ShardControl::RecallRelay(client_id.clone()));
    }

    /// Sends `bytes` to the peer broker, after all pending output of the relay.
    pub fn say_by_relay(&self, client_id: &Arc<str>, bytes: &Arc<[u8]>) {
        self.send_to_all(|| {
            let (client_id, bytes) = (client_id.clone(), bytes.clone());
            ShardControl::SayByRelay { client_id, bytes }
        });
    }

    /// Collects reports on the sessions selected by `which`. Blocks until every shard has answered.
    pub fn report_sessions(&self, which: SessionSelector) -> Vec<SessionReport> {
        let (to, reports) = channel();
        let which = Arc::new(which);
        self.send_to_all(|| ShardControl::ReportSessions { which: which.clone(), to: to.clone() });
        drop(to);
        reports.into_iter().flatten().collect()
    }

    pub(crate) fn send_to_first_shard(&self, control: ShardControl) {
        // An ended shard needs no commands.
        let _ = self.controls[0].send(control);
        self.wakers[0].wake_always();
    }

    /// Blocks until every shard has done all earlier commands.
    pub fn wait_for_commands(&self) {
        let (sender, done) = channel();
        self.send_to_all(|| ShardControl::Barrier(sender.clone()));
        drop(sender);
        // No value is ever sent: `recv` fails when the last shard has dropped its sender.
        let _ = done.recv();
    }

    pub(crate) fn send_to_all(&self, control: impl Fn() -> ShardControl) {
        for (sender, waker) in self.controls.iter().zip(self.wakers.iter()) {
            // An ended shard needs no commands.
            let _ = sender.send(control());
            waker.wake_always();
        }
    }
}
