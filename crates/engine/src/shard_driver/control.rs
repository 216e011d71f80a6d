//! Commands and answers that other threads send to a shard.

use super::{STOP_MS, ShardDriver};
use crate::shard_control::ShardControl;
use broker::{MonotonicMs, ShardCommand, ShardId, ShardInput};

impl ShardDriver {
    pub(super) fn take_control(&mut self) {
        while let Ok(control) = self.control.try_recv() {
            self.obey_control(control);
        }
    }

    fn obey_control(&mut self, control: ShardControl) {
        let (turn, connections) = (&mut self.turn, &mut self.connections);
        match control {
            ShardControl::Command(command) => self.obey_command(command),
            ShardControl::AuthzAnswered { request_id, answer } => {
                turn.handle(ShardInput::AuthzAnswered { request_id, answer });
            }
            ShardControl::ReplaceTransports(transports) => {
                connections.reload_quic(&transports);
                self.acceptor.change_transports(transports);
            }
            ShardControl::OpenListeners { told, reserved } => {
                _ = told.send(self.acceptor.open(connections.registry(), reserved))
            }
            ShardControl::AuthDecided { conn, case, verdict } => {
                connections.resolve_auth(conn, case);
                turn.handle(ShardInput::AuthDecided { conn, case, verdict });
            }
            ShardControl::ConnectInternal { stream, principal } => {
                connections.open_internal(turn, stream, *principal)
            }
            ShardControl::HostRelay(slot) => connections.host_relay(turn, &slot),
            ShardControl::RecallRelay(client_id) => connections.recall_relay(turn, &client_id),
            ShardControl::SayByRelay { client_id, bytes } => {
                connections.say_by_relay(turn, &client_id, &bytes)
            }
            ShardControl::ReportSessions { which, to } => {
                // The receiver may have gone.
                let _ = to.send(turn.shard().report_sessions(&which));
            }
            ShardControl::Barrier(told) => drop(told),
            ShardControl::Stop => {
                self.stop_at = Some(MonotonicMs(turn.now().0 + STOP_MS));
                if turn.id() == ShardId(0) {
                    turn.keep_clock();
                }
            }
        }
    }

    fn obey_command(&mut self, command: ShardCommand) {
        match &command {
            ShardCommand::Drain => {
                self.acceptor.close();
                self.connections.close_quic_listeners();
            }
            ShardCommand::Reload(options) => self.connections.change_options(options),
            ShardCommand::CloseAll => self.connections.end_handshakes(&mut self.turn),
            ShardCommand::PublishSys { .. } | ShardCommand::LinkEvent(_) => {}
        }
        self.turn.handle(ShardInput::Command(command));
    }
}
