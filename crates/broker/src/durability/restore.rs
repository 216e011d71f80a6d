//! Restoration from the store at the start of the process: sessions, subscriptions and retained
//! messages are restored at once, queues when the clients reconnect.

use crate::durability::cross_shard_log::restore_cross_shard_logs;
use crate::durability::persistent_session::PersistentSession;
use crate::durability::records::{self, SessionRecord, kind};
use crate::durability::write_batch::{
    RecordChange, RecordNumber, RecordSpace, StoreReadError, StoreReader,
};
use crate::input::{MonotonicMs, SessionId, SessionRef};
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::exclusive::restore_exclusive;
use crate::routing::namespace::parse_known_share;
use crate::routing::topics::SubscriptionFlags;
use crate::session::session_table::GroupMembership;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use crate::timer::ShardTimer;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use mqtt::client::PacketIds;
use mqtt::{PacketId, SubscribeOptions};
use std::sync::Arc;

/// Counts of what was restored from the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreStats {
    pub sessions: u64,
    pub subscriptions: u64,
    pub retained: u64,
}

/// Reason for which a restore failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The store has a format that this version cannot read.
    OtherFormat,
    Unreadable,
}

impl From<StoreReadError> for RestoreError {
    fn from(_: StoreReadError) -> RestoreError {
        RestoreError::Unreadable
    }
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
    })?;
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
        options,
        given,
        false,
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

impl ShardRouting {
    /// Restores a session as offline. If the client was connected at the end of the process,
    /// `away_at` is absent and the expiry starts anew.
    fn restore_session(
        &mut self,
        client_id: &str,
        mut record: SessionRecord,
        now: MonotonicMs,
        sessions: &mut SessionTable,
    ) -> SessionId {
        let id = sessions.create(client_id, record.version);
        let (expiry_s, was_here) = (record.expiry_s, record.away_at.is_none());
        let away_at = record.away_at.unwrap_or(now.0);
        let ends_at = MonotonicMs(away_at + u64::from(expiry_s) * 1000);
        let will_at = match (&record.will, record.will_at) {
            (None, _) => None,
            (Some(_), Some(at)) => Some(MonotonicMs(at)),
            (Some(will), None) => Some(MonotonicMs(away_at + u64::from(will.delay_s) * 1000)),
        };
        sessions.set_will(id, record.will.take());
        let session = sessions.get_mut(id);
        session.expiry_s = expiry_s;
        let SessionRecord { number, mark, unsent, .. } = record;
        let mut persistent = Box::new(PersistentSession::restored(number, mark, unsent));
        persistent.shifts = record.shifts;
        persistent.owner = record.owner.take();
        session.persistent = Some(persistent);
        let generation = session.generation;
        let ends_at = (expiry_s != u32::MAX).then_some(ends_at);
        if ends_at.is_some() || will_at.is_some() {
            let extras = session.extras();
            (extras.ends_at, extras.will_at) = (ends_at, will_at);
        }
        for at in ends_at.into_iter().chain(will_at) {
            sessions.context.timers.set(at, ShardTimer::Session { index: id.0, generation });
        }
        self.count_persistent(1, sessions);
        if was_here {
            sessions.make_dirty(id);
        }
        id
    }
}

impl SessionTable {
    fn restore_share(
        &mut self,
        id: SessionId,
        group: &Arc<str>,
        options: SubscribeOptions,
        given: u32,
    ) -> (SessionRef, Box<str>) {
        let (name, owner) = (self.keep_group(group), self.context.owner_of(group));
        let session = self.get_mut(id);
        session.is_member = true;
        let group = group.clone();
        session.extras().shares.push(GroupMembership {
            group,
            name,
            owner,
            options,
            id: given,
            online: false,
            granted: 0,
        });
        let client_id = session.client_id.clone();
        (self.session_ref(id), client_id)
    }
}

impl SessionTable {
    pub(crate) fn erase_retained(&mut self, topic: &str) {
        if self.write_batch.has_store && self.context.owner_of(topic) == self.context.id {
            self.write_batch.push_change(RecordSpace::Retained, topic.into(), None);
        }
    }
}

impl ShardRouting {
    /// Erases the records of a session that ends; `write_tombstone` leaves a queue in the store to
    /// `collect_tombstone`.
    pub(crate) fn forget_persistent(&mut self, id: SessionId, sessions: &mut SessionTable) {
        let session = sessions.get_mut(id);
        let Some(persistent) = session.persistent.take() else { return };
        let number: RecordNumber = persistent.number;
        let received = session.flight.as_ref().map(|flight| flight.received.clone());
        let client_id = session.client_id.clone();
        for packet_id in received.iter().flat_map(PacketIds::iter) {
            let key = records::received_key(number, packet_id);
            sessions.write_batch.push_change(RecordSpace::Sessions, key, None);
        }
        let grave = sessions.write_tombstone(&persistent, &client_id);
        sessions.durability.tombstones.extend(grave);
        sessions.get_mut(id).persistent = Some(persistent);
        self.count_persistent(-1, sessions);
        if sessions.request_sync() {
            sessions.note_session_end(id);
        }
    }
}
