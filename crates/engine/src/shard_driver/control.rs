//! Commands and answers that other threads send to a shard.

use super::*;
use crate::shard_control::ShardControl;
use broker::{MonotonicMs, ShardCommand, ShardId, ShardInput};

impl ShardDriver {
    pub(super) fn take_control(&mut self) {
        while let Ok(control) = self.control.try_recv() {
            match control {
                ShardControl::Command(command) => {
                    match &command {
                        ShardCommand::Drain => self.close_listeners(),
                        ShardCommand::Reload(options) => {
                            self.write_bytes_max = options.write_bytes_max as usize;
                            self.connect_timeout_ms = options.connect_timeout_ms;
                        }
                        ShardCommand::CloseAll => self.end_handshakes(),
                        ShardCommand::PublishSys { .. } | ShardCommand::LinkEvent(_) => {}
                    }
                    self.shard.handle(self.now, ShardInput::Command(command), &mut self.out);
                }
                ShardControl::AuthzAnswered { request_id, answer } => {
                    let input = ShardInput::AuthzAnswered { request_id, answer };
                    self.shard.handle(self.now, input, &mut self.out);
                }
                ShardControl::ReplaceTransports(transports) => self.change_transports(transports),
                ShardControl::OpenListeners { told, reserved } => {
                    _ = told.send(self.open_listeners(reserved))
                }
                ShardControl::AuthDecided { conn, case, verdict } => {
                    self.pending_auth.resolve(conn, case);
                    let input = ShardInput::AuthDecided { conn, case, verdict };
                    self.shard.handle(self.now, input, &mut self.out);
                }
                ShardControl::ConnectInternal { stream, principal } => {
                    self.open_internal(stream, *principal)
                }
                ShardControl::HostRelay(slot) => self.host_relay(&slot),
                ShardControl::RecallRelay(client_id) => self.recall_relay(&client_id),
                ShardControl::SayByRelay { client_id, bytes } => {
                    self.say_by_relay(&client_id, &bytes)
                }
                ShardControl::ReportSessions { which, to } => {
                    // The receiver may have gone.
                    let _ = to.send(self.shard.report_sessions(&which));
                }
                ShardControl::Barrier(told) => drop(told),
                ShardControl::Stop => {
                    self.stop_at = Some(MonotonicMs(self.now.0 + STOP_MS));
                    if self.id == ShardId(0) {
                        self.shard.keep_clock(&self.clock.reading());
                    }
                }
            }
        }
    }
}
