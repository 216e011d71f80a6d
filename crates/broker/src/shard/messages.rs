//! Dispatch of messages from other shards, each to the method that handles it.

use super::*;
use crate::input::{ShardId, ShardMessage};
use crate::outbox::Outbox;
use crate::statistics::sys::ShardCounters;

impl Shard {
    pub(super) fn on_shard_message(
        &mut self,
        from: ShardId,
        cross: ShardMessage,
        out: &mut Outbox,
    ) {
        self.sessions.durability.pending_acks.requested.clear();
        match cross {
            ShardMessage::Publish { message, ticket, origin } => {
                self.sessions.ledger.crossing -= message.bytes() as i64;
                self.routing.route_remote_message(&message, origin, &mut self.sessions, out);
                self.sessions.durability.confirm_token(from, ticket);
            }
            ShardMessage::TokensCommitted { first, last } => {
                self.on_tokens_committed(from, first, last, out);
            }
            ShardMessage::Retain { message, stamp, ticket, origin } => {
                self.sessions.ledger.crossing -= message.bytes() as i64;
                self.routing.set_retained(&message, stamp, true, &mut self.sessions);
                self.routing.route_remote_message(&message, origin, &mut self.sessions, out);
                self.routing.plan_sweep(&mut self.sessions);
                self.sessions.durability.confirm_token(from, ticket);
            }
            ShardMessage::JoinGroup {
                group,
                member,
                client_id,
                options,
                subscription_id,
                lasts,
            } => {
                self.routing.join_group(
                    &group,
                    member,
                    &client_id,
                    options,
                    subscription_id,
                    lasts,
                    &mut self.sessions,
                );
                out.lanes[from.0 as usize].push_back(ShardMessage::GroupJoined { group, member });
            }
            ShardMessage::GroupJoined { group, member } => {
                self.connections.on_group_joined(&group, member, &mut self.sessions, out)
            }
            ShardMessage::LeaveGroup { group, member } => {
                self.routing.leave_group(&group, member, &mut self.sessions)
            }
            ShardMessage::ClaimExclusive { filter, member } => {
                self.routing.on_exclusive_claim(filter, member, out)
            }
            ShardMessage::ExclusiveClaimed { filter, member, is_granted } => {
                self.on_claim_answer(&filter, member, is_granted, out);
            }
            ShardMessage::ReleaseExclusive { filter, member } => {
                self.routing.on_exclusive_release(&filter, member)
            }
            ShardMessage::MemberRoom { group, member, online, more } => {
                self.routing.set_room(&group, member, online, more, &mut self.sessions, out);
            }
            ShardMessage::DispatchToMember { group, target, message, origin, ticket } => {
                self.sessions.ledger.crossing -= message.bytes() as i64;
                self.sessions.on_dispatched(from, &group, target, &message, origin, out);
                self.sessions.durability.confirm_token(from, ticket);
            }
            ShardMessage::ReturnToGroup { group, message, origin } => {
                self.sessions.ledger.crossing -= message.bytes() as i64;
                self.routing.dispatch_to_group(&group, &message, origin, &mut self.sessions, out);
                self.sessions.durability.await_returned();
            }
            ShardMessage::BanFlapping { client, until } => {
                self.connections.ban_flapping(client, until, &mut self.sessions)
            }
            ShardMessage::WindowRow(row) => self.on_window_row(*row, out),
            ShardMessage::Cache(word) => {
                self.caches.on_cache_message(*word, &mut self.routing, &mut self.sessions, out)
            }
            ShardMessage::Counters(counters) => self.statistics.set_shard_counters(from, *counters),
        }
    }
}

impl ShardStatistics {
    fn set_shard_counters(&mut self, from: ShardId, counters: ShardCounters) {
        if let Some(place) = self.sys_tree.shards.get_mut(usize::from(from.0)) {
            *place = counters;
        }
    }
}
