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
        self.pending_acks.requested.clear();
        match cross {
            ShardMessage::Publish { message, ticket, origin } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.route_remote_message(&message, origin, out);
                self.confirm_token(from, ticket);
            }
            ShardMessage::TokensCommitted { first, last } => {
                self.on_tokens_committed(from, first, last, out);
            }
            ShardMessage::Retain { message, stamp, ticket, origin } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.set_retained(&message, stamp, true);
                self.route_remote_message(&message, origin, out);
                self.plan_sweep();
                self.confirm_token(from, ticket);
            }
            ShardMessage::JoinGroup {
                group,
                member,
                client_id,
                options,
                subscription_id,
                lasts,
            } => {
                self.join_group(&group, member, &client_id, options, subscription_id, lasts);
                out.lanes[from.0 as usize].push_back(ShardMessage::GroupJoined { group, member });
            }
            ShardMessage::GroupJoined { group, member } => {
                self.on_group_joined(&group, member, out)
            }
            ShardMessage::LeaveGroup { group, member } => self.leave_group(&group, member),
            ShardMessage::ClaimExclusive { filter, member } => {
                self.on_exclusive_claim(filter, member, out)
            }
            ShardMessage::ExclusiveClaimed { filter, member, is_granted } => {
                self.on_claim_answer(&filter, member, is_granted, out);
            }
            ShardMessage::ReleaseExclusive { filter, member } => {
                self.on_exclusive_release(&filter, member)
            }
            ShardMessage::MemberRoom { group, member, online, more } => {
                self.set_room(&group, member, online, more, out);
            }
            ShardMessage::DispatchToMember { group, target, message, origin, ticket } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.on_dispatched(from, &group, target, &message, origin, out);
                self.confirm_token(from, ticket);
            }
            ShardMessage::ReturnToGroup { group, message, origin } => {
                self.ledger.crossing -= message.bytes() as i64;
                self.dispatch_to_group(&group, &message, origin, out);
                self.await_returned();
            }
            ShardMessage::BanFlapping { client, until } => self.ban_flapping(client, until),
            ShardMessage::WindowRow(row) => self.on_window_row(*row, out),
            ShardMessage::Cache(word) => self.on_cache_message(*word, out),
            ShardMessage::Counters(counters) => self.set_shard_counters(from, *counters),
        }
    }

    fn set_shard_counters(&mut self, from: ShardId, counters: ShardCounters) {
        if let Some(place) = self.sys_tree.shards.get_mut(usize::from(from.0)) {
            *place = counters;
        }
    }
}
