//! What only the store has: queues that nobody has read since the start, and what sessions that
//! ended left there. Both are read a piece at a time.

use crate::flight::{Marks, Slot, State};
use crate::input::SessionId;
use crate::journal::{Number, Space, Stored, Unreadable};
use crate::lasting::Origin;
use crate::limits::NONE;
use crate::message::{KeptId, Message};
use crate::outbox::{Effect, Outbox};
use crate::records::{self, Body, Entry};
use crate::session::Sessions;
use crate::shard::Shard;
use mqtt::QoS;

/// What the store is to be read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Queue {
        session: SessionId,
        generation: u32,
    },
    /// The queue of a shared group, by its place and its number.
    Group {
        group: u32,
        number: u64,
    },
    /// What a session left behind, to be removed.
    Grave {
        number: u64,
    },
    /// Messages that nobody wants any more.
    Leftovers,
}

/// So much of a queue is read at a time, ...
pub(crate) const READ_MESSAGES: usize = 1024;
pub(crate) const READ_BYTES: usize = 1024 * 1024;
/// ... and more once fewer than this wait.
pub(crate) const LOW_WATER: usize = 256;

impl Sessions {
    /// Asks for more of what only the store has.
    pub(crate) fn read_on(&mut self, id: SessionId, out: &mut Outbox) {
        let session = self.get_mut(id);
        let generation = session.generation;
        let waiting = session.flight.as_ref().map_or(0, |flight| flight.waiting.len());
        let Some(lasting) = &mut session.lasting else { return };
        let may_read = !lasting.reading && !lasting.is_unreadable;
        if lasting.unread.is_some() && may_read && waiting < LOW_WATER {
            lasting.reading = true;
            out.effects.push(Effect::Read { reading: Reading::Queue { session: id, generation } });
        }
    }
}

impl Shard {
    /// The engine answers `Effect::Read` with the store.
    pub(crate) fn read(&mut self, reading: Reading, stored: &dyn Stored, out: &mut Outbox) {
        match reading {
            Reading::Queue { session, generation } => {
                if self.sessions.current(session, generation) {
                    self.read_queue(session, stored, out);
                }
            }
            Reading::Group { group, number } => self.read_group(group, number, stored, out),
            Reading::Grave { number } => self.dig(Number(number), stored, out),
            Reading::Leftovers => self.search_on(stored, out),
        }
    }

    fn read_queue(&mut self, id: SessionId, stored: &dyn Stored, out: &mut Outbox) {
        let is_crowded = self.sessions.is_crowded();
        let Some(lasting) = &mut self.sessions.get_mut(id).lasting else { return };
        lasting.reading = false;
        let Some(from) = lasting.unread else { return };
        // Only what joined the queue since the start was counted.
        let (number, begins) = (lasting.number, lasting.begins);
        let (mut found, mut bytes) = (Vec::new(), 0);
        let (messages_max, bytes_max) = match is_crowded {
            true => (READ_MESSAGES / 64, READ_BYTES / 64),
            false => (READ_MESSAGES, READ_BYTES),
        };
        let scanned = stored.scan(
            Space::Queues,
            &records::number_key(number),
            &records::queue_key(number, from),
            &mut |key, value| {
                bytes += value.len();
                found.extend(records::position_of(key).map(|at| (at, value.to_vec())));
                found.len() < messages_max && bytes < bytes_max
            },
        );
        // Said by the engine. What stands behind it, and what comes, waits: nothing overtakes what
        // a repair may bring.
        let is_unreadable = scanned.is_err();
        // What came in this very turn is not in the store yet. Only what came since the start is
        // counted, and of what was found the same.
        let since_start = found.iter().filter(|(position, _)| *position >= begins).count();
        let is_behind = since_start < lasting.spooled as usize && !self.sessions.journal.is_empty();
        let more = found.len() >= messages_max || bytes >= bytes_max || is_unreadable || is_behind;
        let next = found.last().map_or(from, |(position, _)| position + 1);
        let (mut count, mut counted) = (0, 0);
        for (position, value) in found {
            let taken = self.take_in(id, position, &value, stored);
            if position >= begins {
                (count, counted) = (count + 1, counted + taken);
            }
        }
        let session = self.sessions.get_mut(id);
        if let Some(lasting) = &mut session.lasting {
            lasting.is_unreadable = is_unreadable;
            lasting.unread = more.then_some(next);
            let left = lasting.spooled.saturating_sub(count);
            let left_bytes = lasting.spooled_bytes.saturating_sub(counted);
            (lasting.spooled, lasting.spooled_bytes) = match more && left > 0 {
                true => (left, left_bytes),
                false => (0, 0),
            };
        }
        self.sessions.flow(id, out);
    }

    /// One record of a session's queue comes back to memory. The bytes of its message, as they were
    /// counted when it joined the queue; 0 where it has none.
    fn take_in(&mut self, id: SessionId, position: u64, value: &[u8], stored: &dyn Stored) -> u64 {
        let Some((mut entry, body)) = records::read_queue(value) else { return 0 };
        // Said by the engine. The record stays: what cannot be read is not gone.
        let Ok(message) = read_body(body, stored) else { return 0 };
        let message_bytes = message.as_ref().map_or(0, |message| message.bytes() as u64);
        if message.is_none() && entry.state != State::Released {
            // It went when nobody waited for it any more, and the store took that before it took
            // what else was known: at QoS 2 the client may be waiting for PUBREL.
            let lasting = self.sessions.get(id).lasting.as_ref();
            let Some(lasting) = lasting else { return 0 };
            if entry.qos != QoS::ExactlyOnce || position >= lasting.unsent_unread {
                let number = lasting.number;
                self.sessions.journal.strike(Origin { number, position });
                return 0;
            }
            entry.state = State::Released;
        }
        let kept = match &message {
            Some(message) => self.sessions.messages.keep(&mut message.draft()),
            None => KeptId(NONE),
        };
        let ids = self.sessions.keep_ids(&entry.ids);
        let group = entry.group.as_ref().map_or(NONE, |group| self.sessions.keep_group(group));
        let mut slot = Slot::new(kept, entry.qos, entry.retain, ids, group);
        slot.position = position as u32;
        slot.marks.set(Marks::STORED);
        slot.marks.set(Marks::WAITS);
        slot.state = entry.state;
        let session = self.sessions.get_mut(id);
        let window = session.window;
        let unsent = session.lasting.as_ref().map_or(0, |lasting| lasting.unsent_unread);
        if let Some(lasting) = &mut session.lasting
            && session.flight.as_ref().is_none_or(|flight| flight.has_none())
            && !lasting.lifting
        {
            lasting.set_barrier_after(Some(position));
        }
        let open = session.lasting.as_ref().is_none_or(|lasting| lasting.is_open(position));
        let at = session.lasting.as_ref().map_or(0, |lasting| lasting.shifts.id_of(position));
        let flight = session.flight();
        let early = flight.waiting.is_empty() && flight.reaches(at) && open;
        if entry.state == State::Released {
            slot.marks.set(Marks::RELEASED);
        }
        let was_sent =
            entry.state == State::Released || (position < unsent && flight.unacknowledged < window);
        if early && was_sent {
            flight.send_back(at, slot);
        } else {
            if position < unsent {
                slot.marks.set(Marks::WAS_SENT);
            }
            flight.waiting_bytes += message_bytes;
            flight.waiting.push_back(slot);
        }
        message_bytes
    }

    /// Removes what a session left, a piece at a time. Messages of groups go back to them. If
    /// anything cannot be read it stays, and so does the grave, until the next start.
    fn dig(&mut self, number: Number, stored: &dyn Stored, out: &mut Outbox) {
        let prefix = records::number_key(number);
        let Ok(grave) = stored.get(Space::Sessions, &records::grave_key(number)) else { return };
        let unsent = grave.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let unsent = unsent.unwrap_or(0);
        let mut found = Vec::new();
        let scanned = stored.scan(Space::Queues, &prefix, &prefix, &mut |key, value| {
            found.extend(records::position_of(key).map(|at| (at, value.to_vec())));
            found.len() < READ_MESSAGES
        });
        let ends = found.len() < READ_MESSAGES;
        let mut is_whole = scanned.is_ok();
        for (position, value) in found {
            let origin = Origin { number, position };
            let record = records::read_queue(&value);
            let body = record.as_ref().map_or(Body::None, |(_, body)| *body);
            let Ok(message) = read_body(body, stored) else {
                is_whole = false;
                continue;
            };
            let may_move = |entry: &Entry| entry.qos != QoS::ExactlyOnce || position >= unsent;
            let group = record.and_then(|(entry, _)| Some(entry).filter(may_move)?.group);
            match (group, message) {
                (Some(group), Some(message)) => {
                    self.sessions.orphans.push((group, message, Some(origin)));
                }
                _ => self.sessions.journal.strike(origin),
            }
        }
        match ends {
            _ if !is_whole => {}
            true => self.sessions.journal.change(Space::Sessions, records::grave_key(number), None),
            false => {
                out.effects.push(Effect::Read { reading: Reading::Grave { number: number.0 } })
            }
        }
    }
}

/// None where there is none any more.
fn read_body(body: Body<'_>, stored: &dyn Stored) -> Result<Option<Message>, Unreadable> {
    let read = |bytes: &[u8]| Message::read(bytes).map(Some).ok_or(Unreadable);
    match body {
        Body::None => Ok(None),
        Body::Here(bytes) => read(bytes),
        Body::Elsewhere(number) => {
            let bytes = stored.get(Space::Messages, &records::number_key(number))?;
            bytes.map_or(Ok(None), |bytes| read(&bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::{ConnId, Interest, Memory, Now, Options, ShardId};
    use std::sync::Arc;

    const GRAVE: Number = Number(7);

    /// One place in a queue, whose message stands elsewhere and is gone, or cannot be read.
    #[derive(Debug)]
    struct OnePlace {
        is_readable: bool,
    }

    impl Stored for OnePlace {
        fn get(&self, space: Space, _: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
            if space == Space::Messages && !self.is_readable { Err(Unreadable) } else { Ok(None) }
        }

        fn scan(
            &self,
            _: Space,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), Unreadable> {
            let entry = Entry::new(QoS::AtLeastOnce, false);
            let value = records::queue_value(&entry, Body::Elsewhere(Number(9)));
            visit(&records::queue_key(GRAVE, 1), &value);
            Ok(())
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_gone() {
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        shard.sessions.journal = Journal::open(2, 0);
        let mut out = Outbox::new(1);
        shard.dig(GRAVE, &OnePlace { is_readable: false }, &mut out);
        assert!(shard.sessions.journal.is_empty() && out.effects.is_empty());
        shard.dig(GRAVE, &OnePlace { is_readable: true }, &mut out);
        assert!(!shard.sessions.journal.is_empty());
    }

    /// A queue whose second piece cannot be read.
    #[derive(Debug)]
    struct HalfAQueue;

    impl Stored for HalfAQueue {
        fn get(&self, _: Space, _: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
            Ok(None)
        }

        fn scan(
            &self,
            _: Space,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), Unreadable> {
            let message = Message::new(&crate::message::Draft::new("t", b"1", Now(0)));
            let entry = Entry::new(QoS::AtLeastOnce, false);
            let value = records::queue_value(&entry, Body::Here(message.view().as_bytes()));
            visit(&records::queue_key(Number(7), 1), &value);
            Err(Unreadable)
        }
    }

    #[test]
    fn nothing_overtakes_what_cannot_be_read() {
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        shard.sessions.journal = Journal::open(2, 0);
        let id = shard.sessions.create("a", mqtt::Version::V5);
        let lasting = Box::new(crate::lasting::Lasting::restored(Number(7), 10, 10));
        shard.sessions.get_mut(id).lasting = Some(lasting);
        let mut out = Outbox::new(1);
        let unread =
            |shard: &Shard| shard.sessions.get(id).lasting.as_ref().and_then(|it| it.unread);
        let asks = |out: &mut Outbox| !std::mem::take(&mut out.effects).is_empty();
        shard.sessions.read_on(id, &mut out);
        assert!(asks(&mut out));
        shard.read_queue(id, &HalfAQueue, &mut out);
        assert_eq!(unread(&shard), Some(2), "what comes now comes behind it");
        shard.sessions.read_on(id, &mut out);
        assert!(!asks(&mut out), "nobody asks again and again");
        shard.resume_when_kept(ConnId(0), id);
        shard.sessions.read_on(id, &mut out);
        assert!(asks(&mut out));
    }

    /// A queue of five messages of an earlier process, and all of it can be read.
    #[derive(Debug)]
    struct OldQueue;

    impl Stored for OldQueue {
        fn get(&self, _: Space, _: &[u8]) -> Result<Option<Vec<u8>>, Unreadable> {
            Ok(None)
        }

        fn scan(
            &self,
            _: Space,
            _: &[u8],
            _: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), Unreadable> {
            let message = Message::new(&crate::message::Draft::new("t", b"1", Now(0)));
            let entry = Entry::new(QoS::AtLeastOnce, false);
            let value = records::queue_value(&entry, Body::Here(message.view().as_bytes()));
            (0..5).all(|position| visit(&records::queue_key(Number(7), position), &value));
            Ok(())
        }
    }

    #[test]
    fn a_queue_is_not_at_its_end_while_its_newest_message_is_on_its_way_to_the_store() {
        let (interest, memory) = (Arc::new(Interest::new(1, 1)), Arc::new(Memory::default()));
        let options = Arc::new(Options { sys_interval_s: 0, ..Options::default() });
        let mut shard = Shard::new(ShardId(0), 1, options, interest, memory, 1, 1, Now(0));
        shard.sessions.journal = Journal::open(2, 0);
        let id = shard.sessions.create("a", mqtt::Version::V5);
        let mut lasting = crate::lasting::Lasting::restored(Number(7), 10, 10);
        lasting.spooled = 1;
        shard.sessions.get_mut(id).lasting = Some(Box::new(lasting));
        shard.sessions.journal.change(Space::Queues, records::queue_key(Number(7), 10), None);
        shard.read_queue(id, &OldQueue, &mut Outbox::new(1));
        let lasting = shard.sessions.get(id).lasting.as_ref().expect("it lasts");
        assert_eq!((lasting.unread, lasting.spooled), (Some(5), 1));
    }
}
