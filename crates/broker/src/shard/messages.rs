//! Dispatch of messages from other shards, each to the method that handles it.

use crate::ids::ShardId;
use crate::interface::input::ShardMessage;
use crate::interface::outbox::Outbox;
use crate::shard::Shard;

impl Shard {
    pub(super) fn on_shard_message(
        &mut self,
        from: ShardId,
        cross: ShardMessage,
        out: &mut Outbox,
    ) {
        let Shard { connections, caches, routing, sessions, statistics, .. } = self;
        sessions.durability.pending_acks.clear_requests();
        match cross {
            ShardMessage::Publish { message, ticket, origin } => {
                sessions.ledger.crossing -= message.bytes() as i64;
                routing.route_remote_message(&message, origin, sessions, out);
                sessions.durability.pending_acks.confirm_token(from, ticket);
            }
            ShardMessage::TokensCommitted { first, last } => {
                self.on_tokens_committed(from, first, last, out);
            }
            ShardMessage::Retain { message, stamp, ticket, origin } => {
                sessions.ledger.crossing -= message.bytes() as i64;
                routing.set_retained(&message, stamp, true, sessions);
                routing.route_remote_message(&message, origin, sessions, out);
                routing.plan_sweep(sessions);
                sessions.durability.pending_acks.confirm_token(from, ticket);
            }
            ShardMessage::JoinGroup { group, member, client_id, join } => {
                routing.join_group(&group, member, &client_id, join, sessions);
                out.lanes[from.0 as usize].push_back(ShardMessage::GroupJoined { group, member });
            }
            ShardMessage::GroupJoined { group, member } => {
                connections.on_group_joined(&group, member, sessions, out)
            }
            ShardMessage::LeaveGroup { group, member } => {
                routing.leave_group(&group, member, sessions)
            }
            ShardMessage::ClaimExclusive { filter, member } => {
                routing.on_exclusive_claim(filter, member, out)
            }
            ShardMessage::ExclusiveClaimed { filter, member, is_granted } => {
                self.on_claim_answer(&filter, member, is_granted, out);
            }
            ShardMessage::ReleaseExclusive { filter, member } => {
                routing.on_exclusive_release(&filter, member)
            }
            ShardMessage::MemberRoom { group, member, online, more } => {
                routing.set_room(&group, member, online, more, sessions, out);
            }
            ShardMessage::DispatchToMember { group, target, message, origin, ticket } => {
                sessions.ledger.crossing -= message.bytes() as i64;
                sessions.on_dispatched(from, &group, target, &message, origin, out);
                sessions.durability.pending_acks.confirm_token(from, ticket);
            }
            ShardMessage::ReturnToGroup { group, message, origin } => {
                sessions.ledger.crossing -= message.bytes() as i64;
                routing.dispatch_to_group(&group, &message, origin, sessions, out);
                sessions.durability.pending_acks.await_returned();
            }
            ShardMessage::BanFlapping { client, until } => {
                connections.ban_flapping(client, until, sessions)
            }
            ShardMessage::WindowRow(row) => self.on_window_row(*row, out),
            ShardMessage::Cache(word) => caches.on_cache_message(*word, routing, sessions, out),
            ShardMessage::Counters(counters) => statistics.set_shard_counters(from, *counters),
        }
    }
}
