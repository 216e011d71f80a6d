//! Restoration from the store at the start of the process: sessions, subscriptions and retained
//! messages are restored at once, queues when the clients reconnect.

use crate::counters::DropReason;
use crate::durability::records::{self, CrossShardRoute, RecordBody, kind};
use crate::ids::{MonotonicMs, RecordNumber, SessionId, SubscriptionFlags};
use crate::interface::input::GroupJoin;
use crate::interface::outbox::Outbox;
use crate::interface::store_access::{
    RecordChange, RecordSpace, RestoreError, StoreReadError, StoreReader, number_key,
};
use crate::message::Message;
use crate::message::namespace::parse_known_share;
use crate::owner_shard::ShardHasher;
use crate::shard::Shard;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::PacketId;
use std::sync::Arc;

/// Counts of what was restored from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreStats {
    pub sessions: u64,
    pub subscriptions: u64,
    pub retained: u64,
}

type SessionLocations = HashMap<u64, (usize, SessionId), FixedState>;

/// Restores all shards of a process before any shard runs, so sessions can join groups of other
/// shards directly. The returned changes must be the store's first batch, whose number goes to
/// [`Shard::set_initial_commit`].
pub fn restore(
    shards: &mut [Shard],
    stored: &dyn StoreReader,
    now: MonotonicMs,
) -> Result<(RestoreStats, Vec<RecordChange>), RestoreError> {
    let last = stored.get(RecordSpace::Sessions, &[kind::BOOT])?;
    let last = match last {
        Some(value) => Some(records::read_boot(&value).ok_or(RestoreError::OtherFormat)?),
        None => None,
    };
    let boot = last.map_or(0, |(boot, _)| boot) + 1;
    for shard in shards.iter_mut() {
        shard.open_store(boot);
    }
    let value = records::boot_value(boot, shards[0].sessions.context.shard_hasher);
    let first = &mut shards[0].sessions.write_batch;
    first.push_change(RecordSpace::Sessions, vec![kind::BOOT], Some(value));
    for shard in shards.iter_mut() {
        shard.sessions.plan_garbage_collection();
    }
    let mut restored = RestoreStats::default();
    let mut homes = SessionLocations::default();
    stored.scan(RecordSpace::Sessions, &[kind::SESSION], &[], &mut |key, value| {
        let client_id = key.get(1..).and_then(|id| std::str::from_utf8(id).ok());
        if let (Some(client_id), Some(record)) = (client_id, records::read_session(value)) {
            let at = usize::from(shards[0].sessions.context.owner_of(client_id).0);
            let number = record.number;
            let id = shards[at].routing.restore_session(
                client_id,
                record,
                now,
                &mut shards[at].sessions,
            );
            homes.insert(number.0, (at, id));
            restored.sessions += 1;
        }
        true
    })?;
    stored.scan(RecordSpace::Sessions, &[kind::FILTER], &[], &mut |key, value| {
        restored.subscriptions += u64::from(restore_filter(shards, &homes, key, value));
        true
    })?;
    restore_received_ids(shards, &homes, stored)?;
    restore_groups(shards, stored)?;
    restore_delayed(shards, stored)?;
    stored.scan(RecordSpace::Sessions, &[kind::TOMBSTONE], &[], &mut |key, _| {
        shards[0]
            .sessions
            .durability
            .tombstones
            .extend(records::read_number(key).map(|(number, _)| number));
        true
    })?;
    restore_windows(shards, stored)?;
    stored.scan(RecordSpace::Retained, &[], &[], &mut |key, value| {
        restored.retained += u64::from(restore_retained(shards, key, value, now));
        true
    })?;
    if let Some(last) = last {
        restore_cross_shard_logs(shards, stored, last.0, last.1, now)?;
    }
    let changes = shards.iter_mut().flat_map(|shard| shard.sessions.take_changes()).collect();
    Ok((restored, changes))
}

fn restore_received_ids(
    shards: &mut [Shard],
    homes: &SessionLocations,
    stored: &dyn StoreReader,
) -> Result<(), StoreReadError> {
    stored.scan(RecordSpace::Sessions, &[kind::RECEIVED], &[], &mut |key, _| {
        let found = records::read_number(key);
        let Some((number, [high, low])) = found else { return true };
        let id = PacketId::new(u16::from_be_bytes([*high, *low]));
        match (homes.get(&number.0), id) {
            (Some(&(at, session)), Some(id)) => {
                shards[at].sessions.get_mut(session).flight().received.insert(id);
            }
            _ => shards[0].sessions.write_batch.push_change(
                RecordSpace::Sessions,
                key.to_vec(),
                None,
            ),
        }
        true
    })
}

fn restore_filter(
    shards: &mut [Shard],
    homes: &SessionLocations,
    key: &[u8],
    value: &[u8],
) -> bool {
    let found = records::read_number(key).and_then(|(number, filter)| {
        Some((homes.get(&number.0)?, std::str::from_utf8(filter).ok()?))
    });
    let (Some((&(at, id), filter)), Some((bits, given, is_exclusive))) =
        (found, records::read_filter(value))
    else {
        // The session ended in an earlier batch, which this record outlived.
        shards[0].sessions.write_batch.push_change(RecordSpace::Sessions, key.to_vec(), None);
        return false;
    };
    let options = SubscriptionFlags::from_bits(bits).options();
    if parse_known_share(filter).is_none() {
        shards[at].routing.subscribe_own(id, filter, options, given, &mut shards[at].sessions);
        if is_exclusive {
            restore_exclusive(shards, at, id, filter);
        }
        return true;
    }
    let group: Arc<str> = filter.into();
    let (member, client_id) = shards[at].sessions.restore_share(id, &group, options, given);
    let owner = usize::from(shards[at].sessions.context.owner_of(&group).0);
    let mut out = Outbox::new(shards.len());
    // `restore_groups` reads the group's own records later.
    shards[owner].routing.join_group(
        &group,
        member,
        &client_id,
        GroupJoin { options, id: given, lasts: false },
        &mut shards[owner].sessions,
    );
    shards[owner].routing.set_room(&group, member, false, 0, &mut shards[owner].sessions, &mut out);
    true
}

fn restore_groups(shards: &mut [Shard], stored: &dyn StoreReader) -> Result<(), StoreReadError> {
    let mut groups = Vec::new();
    stored.scan(RecordSpace::Sessions, &[kind::GROUP], &[], &mut |key, value| {
        let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok());
        if let (Some(name), Some((number, mark))) = (name, records::read_group(value)) {
            groups.push((name.to_string(), number, mark));
        }
        true
    })?;
    for (name, number, mark) in groups {
        let owner = usize::from(shards[0].sessions.context.owner_of(&name).0);
        if !shards[owner].routing.restore_group(
            &name,
            number,
            mark,
            stored,
            &mut shards[owner].sessions,
        )? {
            // The last member left in the last batch before the end of the process.
            let journal = &mut shards[owner].sessions.write_batch;
            journal.push_change(RecordSpace::Sessions, records::text_key(kind::GROUP, &name), None);
            journal.push_change(
                RecordSpace::Sessions,
                records::tombstone_key(number),
                Some(Vec::new()),
            );
            shards[owner].sessions.durability.tombstones.push(number);
        }
    }
    for shard in shards.iter_mut() {
        shard.routing.make_groups_persistent(&mut shard.sessions);
    }
    Ok(())
}

/// Restores each delayed message on the shard that owns the publisher's client id.
fn restore_delayed(shards: &mut [Shard], stored: &dyn StoreReader) -> Result<(), StoreReadError> {
    for kind in [kind::DELAYED_FORMAT_4, kind::DELAYED_WITH_PUBLISHER] {
        stored.scan(RecordSpace::Sessions, &[kind], &[], &mut |key, value| {
            let number = records::read_number(key).map(|(number, _)| number);
            match (number, records::read_delayed(kind, value)) {
                (Some(number), Some((by, message))) => {
                    let home = usize::from(shards[0].sessions.context.owner_of(&by.client_id).0);
                    shards[home].routing.restore_delayed(
                        by,
                        message,
                        (kind, number),
                        &mut shards[home].sessions,
                    );
                }
                _ => shards[0].sessions.write_batch.push_change(
                    RecordSpace::Sessions,
                    key.to_vec(),
                    None,
                ),
            }
            true
        })?;
    }
    Ok(())
}

fn restore_windows(shards: &mut [Shard], stored: &dyn StoreReader) -> Result<(), StoreReadError> {
    stored.scan(RecordSpace::Sessions, &[kind::WINDOW], &[], &mut |key, value| {
        let took = records::read_window_key(key).is_some_and(|(rule, window)| {
            let at =
                usize::from(shards[0].sessions.context.owner_of(&format!("{rule}\0{window}")).0);
            shards[at].rule_engine.restore_window(rule, window, value, &mut shards[at].sessions)
        });
        if !took {
            shards[0].sessions.write_batch.push_change(RecordSpace::Sessions, key.to_vec(), None);
        }
        true
    })
}

fn restore_retained(shards: &mut [Shard], key: &[u8], value: &[u8], now: MonotonicMs) -> bool {
    let Some((stamp, message)) = records::read_retained(value) else {
        shards[0].sessions.write_batch.push_change(RecordSpace::Retained, key.to_vec(), None);
        return false;
    };
    // An expired message is removed by the next sweep; until then its stamp orders later messages.
    for shard in shards {
        shard.routing.retain_stamp = shard.routing.retain_stamp.max(stamp);
        shard.routing.retained.set(message.clone(), stamp, now, true);
    }
    !message.is_expired(now) && !message.payload().is_empty()
}

/// Restores an exclusive subscription of a session from the store.
pub(crate) fn restore_exclusive(shards: &mut [Shard], at: usize, id: SessionId, filter: &str) {
    let (filter, member) = (Arc::from(filter), shards[at].sessions.session_ref(id));
    let owner = usize::from(shards[at].sessions.context.owner_of(&filter).0);
    if shards[owner].routing.exclusives.assign(&filter, member) {
        shards[at].sessions.get_mut(id).extras().exclusives.push(filter);
    }
}

/// An entry of a cross-shard log, read by [`restore_cross_shard_logs`] at a start.
struct CrossShardEntry {
    way: CrossShardRoute,
    group: Option<Arc<str>>,
    message: Message,
}

/// Restores the messages that were on the way between the shards of the last process. All changes
/// are in one batch with the new number of the start: a power cut before that batch leaves the logs
/// unchanged.
pub(crate) fn restore_cross_shard_logs(
    shards: &mut [Shard],
    stored: &dyn StoreReader,
    boot: u32,
    homes: ShardHasher,
    now: MonotonicMs,
) -> Result<(), StoreReadError> {
    let mut found = Vec::new();
    for source in 0..homes.shards {
        let number = RecordNumber::of_cross_shard_log(boot, source);
        let prefix = number_key(number);
        stored.scan(RecordSpace::Queues, &prefix, &prefix, &mut |key, value| {
            found.extend(read_cross_shard_entry(value));
            shards[0].sessions.write_batch.push_change(RecordSpace::Queues, key.to_vec(), None);
            true
        })?;
    }
    for left in &found {
        resume_entry(shards, left, homes, now);
    }
    // The order of retained messages is by stamps, not by sending shard.
    found.retain(|left| left.group.is_none() && left.message.view().draft().retain);
    found.sort_by_key(|left| left.way.stamp);
    for CrossShardEntry { way: CrossShardRoute { to, stamp }, message, .. } in &found {
        // Only the record to the topic's owner counts; records to other shards are for subscribers.
        // An expired message counts too, so that the replaced message does not come back.
        if homes.owner_of(message.topic()) == *to {
            shards.iter_mut().for_each(|shard| {
                shard.routing.set_retained(message, *stamp, false, &mut shard.sessions)
            });
        }
    }
    Ok(())
}

fn read_cross_shard_entry(value: &[u8]) -> Option<CrossShardEntry> {
    let (entry, body) = records::read_queue(value)?;
    let RecordBody::Inline(bytes) = body else { return None };
    Some(CrossShardEntry { way: entry.route?, group: entry.group, message: Message::read(bytes)? })
}

fn resume_entry(
    shards: &mut [Shard],
    left: &CrossShardEntry,
    homes: ShardHasher,
    now: MonotonicMs,
) {
    let CrossShardEntry { way: CrossShardRoute { to, .. }, group, message } = left;
    if message.is_expired(now) {
        shards[0].sessions.counters.drops[DropReason::Expired as usize] += 1;
        return;
    }
    if let Some(group) = group {
        let owner = usize::from(shards[0].sessions.context.owner_of(group).0);
        let out = &mut Outbox::new(shards.len());
        return shards[owner].routing.dispatch_to_group(
            group,
            message,
            None,
            &mut shards[owner].sessions,
            out,
        );
    }
    for shard in shards {
        shard.routing.reroute_restored(
            message,
            |name| homes.owner_of(name) == *to,
            &mut shard.sessions,
        );
    }
}

#[cfg(test)]
mod tests;
