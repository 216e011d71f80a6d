//! How a session is left: taken over, away, ended.

use crate::conn::Conn;
use crate::flight::Marks;
use crate::gate::Gate;
use crate::input::{Cross, Now, SessionId};
use crate::limits::NONE;
use crate::note::Note;
use crate::outbox::{Effect, Outbox};
use crate::peer::Address;
use crate::session::Sessions;
use crate::shard::Shard;
use crate::timer::Timer;
use mqtt::{QoS, Reason};

/// A session that never ends.
const FOREVER: u32 = u32::MAX;

impl Shard {
    /// The same client id came again: the older connection goes [MQTT-3.1.4-3]
    /// [3.1.1:MQTT-3.1.4-2].
    pub(crate) fn take_over(&mut self, id: SessionId, by: Address, out: &mut Outbox) {
        let session = self.sessions.get(id);
        let Some(conn) = session.conn() else { return };
        out.notes.push(Note::TakenOver { client_id: session.client_id.clone(), by });
        if self.ruling.hears() {
            self.gather(out);
        }
        if self.conn(conn).and_then(Conn::welcomed).is_some() {
            self.sessions.say_disconnect(id, Reason::SessionTakenOver, None, out);
        }
        out.effects.push(Effect::Close { conn });
        self.take_conn(conn);
        self.go_away(id, out);
    }

    /// A session's connection is gone.
    pub(crate) fn go_away(&mut self, id: SessionId, out: &mut Outbox) {
        self.sessions.online -= 1;
        let now = self.now;
        let session = self.sessions.get_mut(id);
        session.conn = NONE;
        session.gate = Gate::default();
        if let Some(rights) = &mut session.rights {
            rights.presence = None;
            let before = rights.bytes();
            rights.forget_decided();
            let after = rights.bytes();
            self.sessions.count_rights(before, after);
        }
        let session = self.sessions.get_mut(id);
        if let Some(rare) = &mut session.rare {
            rare.meter = None;
        }
        self.sessions.set_aliases(id, None);
        self.announce(id, false, out);
        self.arm_will(id, out);
        self.note_away(id);
        self.count_end(id, out);
        let session = self.sessions.get_mut(id);
        let (expiry_s, generation) = (session.expiry_s, session.generation);
        // [MQTT-3.1.2-23] [MQTT-4.1.0-1]
        if expiry_s == 0 {
            return self.end_session(id, false, out);
        }
        if expiry_s != FOREVER {
            let at = Now(now.0 + u64::from(expiry_s) * 1000);
            session.rare().ends_at = Some(at);
            self.timers.set(at, Timer::Session { index: id.0, generation });
        }
        self.sessions.return_waiting(id);
        self.sessions.watch_age(id);
        let session = self.sessions.get_mut(id);
        session.rest();
        if session.is_member {
            self.sessions.rooms.push(id);
        }
    }

    /// A timer of a session whose client may be away fired.
    pub(crate) fn check_away(&mut self, id: SessionId, out: &mut Outbox) {
        let now = self.now;
        let Some(rare) = &self.sessions.get(id).rare else { return };
        let (will_at, ends_at) = (rare.will_at, rare.ends_at);
        if will_at.is_some_and(|at| now >= at) {
            self.publish_will(id, out);
        }
        // [MQTT-4.1.0-2]
        if ends_at.is_some_and(|at| now >= at) {
            self.sessions.counters.sessions_expired += 1;
            self.end_session(id, true, out);
        }
    }

    /// The session is over: its will, if one waits, its subscriptions, its messages. Retained
    /// messages are no part of it [3.1.1:MQTT-3.1.2-7].
    pub(crate) fn end_session(&mut self, id: SessionId, expired: bool, out: &mut Outbox) {
        self.publish_will(id, out);
        while let Some(last) = self.sessions.get(id).subscriptions.len().checked_sub(1) {
            let filter = self.sessions.get(id).subscriptions[last].filter;
            let text = self.topics.filter(filter).text.clone();
            self.erase_filter(id, &text);
            self.drop_subscription(id, last as u32);
        }
        let member = self.member(id);
        let rare = self.sessions.get_mut(id).rare.as_mut();
        let groups: Vec<_> = rare
            .map(|rare| rare.shares.iter().map(|share| share.group.clone()).collect())
            .unwrap_or_default();
        for group in groups {
            self.erase_filter(id, &group);
            let owner = self.home_of(&group);
            if owner == self.id {
                self.leave(&group, member);
            } else {
                out.lanes[usize::from(owner.0)].push_back(Cross::Leave { group, member });
            }
        }
        self.release_exclusives(id);
        self.forget_lasting(id);
        if let Some(session) = self.sessions.remove(id).filter(|own| !own.is_branch) {
            out.notes.push(Note::SessionEnded { client_id: session.client_id, expired });
        }
    }
}

impl Sessions {
    /// What a shared group gave to a member that went away before it was sent goes to another;
    /// what was sent stays with the member [MQTT-4.8.2-4].
    fn return_waiting(&mut self, id: SessionId) {
        let Some(flight) = &mut self.get_mut(id).flight else { return };
        if flight.waiting.iter().all(|slot| slot.group == NONE) {
            return;
        }
        let waiting = std::mem::take(&mut flight.waiting);
        flight.waiting_bytes = 0;
        flight.waiting_qos0 = 0;
        let lasting = self.get_mut(id).lasting.take();
        for slot in waiting {
            if slot.group != NONE && slot.may_move(false) {
                self.abandon(lasting.as_deref(), slot, true);
                continue;
            }
            let released = slot.marks.has(Marks::RELEASED);
            let bytes = if released { 0 } else { self.messages.get(slot.message).bytes() as u64 };
            let flight = self.get_mut(id).flight();
            flight.waiting_bytes += bytes;
            flight.waiting_qos0 += u32::from(slot.qos == QoS::AtMostOnce);
            flight.waiting.push_back(slot);
        }
        self.get_mut(id).lasting = lasting;
    }
}
