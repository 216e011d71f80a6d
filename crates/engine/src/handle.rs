//! How the rest of the process tells shards something and asks them.

use crate::docket::Control;
use crate::relay::RelayLoan;
use crate::ring::Bell;
use broker::Command;
use broker::judge::Grant;
use broker::rules::Told;
use broker::survey::{Report, Which};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// Good for as long as anybody has one; shards that have ended hear nothing.
#[derive(Clone, Debug)]
pub struct Handle {
    controls: Vec<Sender<Control>>,
    bells: Arc<[Bell]>,
}

impl Handle {
    pub(crate) fn new(controls: Vec<Sender<Control>>, bells: Arc<[Bell]>) -> Handle {
        Handle { controls, bells }
    }

    pub fn command(&self, command: Command) {
        self.send(|| Control::Command(command.clone()));
    }

    /// A value below `$SYS/broker/`.
    pub fn say(&self, topic: Arc<str>, value: Arc<str>) {
        self.send_first(Control::Command(Command::Say { topic, value }));
    }

    /// Something that rules may hear of.
    pub fn tell(&self, told: Told) {
        self.send_first(Control::Command(Command::Told(told)));
    }

    /// What this process connects to itself: the other end speaks MQTT, and is who `grant` says.
    pub fn connect_own(&self, stream: UnixStream, grant: Grant) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.send_first(Control::Own { stream, grant: Box::new(grant) });
        Ok(())
    }

    /// Has the shard of a link's session pass packets on in the link's place. The relay comes back
    /// at once where the session is not connected.
    pub fn host_relay(&self, loan: RelayLoan) {
        let slot = Arc::new(Mutex::new(Some(loan)));
        self.send(|| Control::HostRelay(slot.clone()));
    }

    /// Has the relay of a session given back, if a shard has it.
    pub fn recall_relay(&self, client_id: &Arc<str>) {
        self.send(|| Control::RecallRelay(client_id.clone()));
    }

    /// Says something to the other broker behind what the relay has said.
    pub fn say_by_relay(&self, client_id: &Arc<str>, bytes: &Arc<[u8]>) {
        self.send(|| {
            let (client_id, bytes) = (client_id.clone(), bytes.clone());
            Control::SayByRelay { client_id, bytes }
        });
    }

    /// What is to be known of sessions. It waits for every shard.
    pub fn survey(&self, which: Which) -> Vec<Report> {
        let (to, reports) = channel();
        let which = Arc::new(which);
        self.send(|| Control::Survey { which: which.clone(), to: to.clone() });
        drop(to);
        reports.into_iter().flatten().collect()
    }

    pub(crate) fn send_first(&self, control: Control) {
        // A shard that has ended needs nothing.
        let _ = self.controls[0].send(control);
        self.bells[0].ring_out();
    }

    /// Waits until every shard has done what it was told before.
    pub fn wait_until_done(&self) {
        let (sender, done) = channel();
        self.send(|| Control::Done(sender.clone()));
        drop(sender);
        // Nothing is ever sent: it ends when the last shard has let go.
        let _ = done.recv();
    }

    pub(crate) fn send(&self, control: impl Fn() -> Control) {
        for (sender, bell) in self.controls.iter().zip(self.bells.iter()) {
            // A shard that has ended needs no commands.
            let _ = sender.send(control());
            bell.ring_out();
        }
    }
}
