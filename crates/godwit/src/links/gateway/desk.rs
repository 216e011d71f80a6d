//! What a gateway does with packets of its session here, and with what its sockets say, sans I/O.
//!
//! ```text
//!   session here           desk                       sockets
//!   PUBLISH 7 "t"  ---->   name, form          ---->  all, one, or who asked
//!   PUBACK 7       <----   when they have it   <----
//!   PUBLISH 3      <----   rule, form          <----  a message
//!   PUBACK 3       ---->   gone from `said`
//! ```

use super::crowd::Crowd;
use super::errands::{Asked, Errands, Told};
use super::forms::{self, Inward};
use super::held::Held;
use super::parcel::{Parcel, PeerId, Receipt, named, parcel};
use super::peer::Shared;
use super::said::Said;
use super::settings::GatewaySettings;
use crate::links::fresh::Fresh;
use crate::links::near::{
    NearTerms, Prepared, Refused, acknowledge, name_of_row, refused, subscribe,
};
use crate::links::tally::Loss;
use mqtt::{
    Packet, PacketId, PacketType, Property, Publish, QoS, Reason, SubscribeOptions, Version,
};
use patterns::{Family, Manner, Message};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What it remembers while connections to the session here come and go.
pub(super) struct Desk {
    shared: Shared,
    pub(super) terms: NearTerms,
    pub(super) to_near: Vec<u8>,
    said: Said,
    errands: Errands,
    pub(super) held: Held,
    /// Which connection to the session here this is.
    epoch: u64,
    answers_at: String,
    /// The filters that SUBSCRIBE asked for and SUBACK has not answered yet.
    asked_for: Option<Vec<String>>,
    refused: Vec<Refused>,
    /// Filters whose retained messages have not begun to come.
    pub(super) fresh: Fresh,
    /// When they are asked for again.
    ask_again: Option<Instant>,
    /// What comes for sockets is left to the session, which has it again for whoever is next, until
    /// another connection to it begins.
    passes_over: bool,
}

/// Nothing is added while so much waits to be written to the session here.
const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// What this broker did not let it subscribe to it asks for again.
const REFUSED_RETRY: Duration = Duration::from_secs(10);

impl Desk {
    pub(super) fn new(shared: Shared, terms: NearTerms) -> Desk {
        let answers_at = shared.settings.answers_at();
        Desk {
            shared,
            terms,
            to_near: Vec::new(),
            said: Said::default(),
            errands: Errands::default(),
            held: Held::default(),
            epoch: 0,
            answers_at,
            asked_for: None,
            refused: Vec::new(),
            fresh: Fresh::default(),
            ask_again: None,
            passes_over: false,
        }
    }

    fn settings(&self) -> &GatewaySettings {
        &self.shared.settings
    }

    fn crowd(&self) -> &Crowd {
        &self.shared.crowd
    }

    /// A new connection to the session here: it sends again what it was not acknowledged, and so
    /// do we.
    pub(super) fn begin(&mut self, terms: NearTerms) {
        self.terms = terms;
        self.epoch += 1;
        self.crowd().forget();
        self.errands.forget_receipts();
        self.held.forget_what_comes_again();
        self.to_near.clear();
        self.asked_for = None;
        self.passes_over = false;
        self.said.say_again(&mut self.to_near);
    }

    /// Asks for its filters once more, where this broker may say something else by now.
    pub(super) fn subscribe_again(&mut self) {
        let is_judged = self.settings().identity().is_some() || !self.refused.is_empty();
        if !is_judged || self.asked_for.is_some() {
            return;
        }
        let wanted = again(self.settings().wanted(self.terms.qos_max));
        if wanted.is_empty() {
            return;
        }
        let filters = wanted.iter().map(|(filter, options)| (filter.as_str(), *options));
        let id = self.said.give_id();
        subscribe(id, filters, Version::V5, &mut self.to_near);
        self.asked_for = Some(wanted.into_iter().map(|(filter, _)| filter).collect());
    }

    /// The session here is there.
    pub(super) fn heed_prepared(&mut self, prepared: Prepared) {
        self.fresh = prepared.fresh;
        self.heed(prepared.refused);
    }

    /// What it may not subscribe to: the others are its.
    fn heed(&mut self, refused: Vec<Refused>) {
        self.ask_again = (!refused.is_empty()).then(|| Instant::now() + REFUSED_RETRY);
        if refused == self.refused {
            return;
        }
        let Shared { settings, tally, .. } = &self.shared;
        match refused.is_empty() {
            true => tally.set_error(String::new()),
            false => tally.fail(&settings.name, refused.join("; ")),
        }
        self.refused = refused;
    }

    /// What the session here says: how many bytes of it were taken, or that it is over.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let wrong = |violation: mqtt::Violation| violation.what().to_string();
        let mut taken = 0;
        while let Some(frame) = mqtt::cut(&bytes[taken..], u32::MAX).map_err(wrong)? {
            let is_publish = PacketType::from_byte(frame.first) == Some(PacketType::Publish);
            if is_publish && self.is_held_up() {
                break;
            }
            let whole = &bytes[taken..taken + frame.len];
            taken += frame.len;
            match Packet::decode(frame, Version::V5).map_err(wrong)? {
                Packet::Publish(publish) if !self.passes_over => self.take_up(&publish, whole),
                Packet::Publish(publish) if publish.packet_id.is_none() => {
                    self.lose(Loss::NoPeer, publish.topic);
                }
                Packet::SubAck(ack) => {
                    let asked_for = self.asked_for.take().unwrap_or_default();
                    self.heed(refused(asked_for.iter().map(String::as_str), ack.codes));
                }
                Packet::PubAck(ack) => self.acknowledged(ack.packet_id, ack.reason),
                Packet::Disconnect(goodbye) => {
                    return Err(format!("this broker ended the connection: {}", goodbye.reason));
                }
                _ => {}
            }
        }
        Ok(taken)
    }

    /// Whether what comes for sockets stays where it is, until there is room for what is held. Not
    /// while sockets wait for acknowledgements, which come behind it.
    pub(super) fn is_held_up(&self) -> bool {
        !self.passes_over && self.held.is_full() && !self.said.is_full()
    }

    /// As soon as there is room, and never before what came first.
    fn take_up(&mut self, publish: &Publish<'_>, whole: &[u8]) {
        let has_qos = publish.packet_id.is_some();
        if !self.held.takes_up(has_qos) {
            if !has_qos {
                let loss = if self.asks_too_much() { Loss::NoRoom } else { Loss::PeerSlow };
                self.lose(loss, publish.topic);
            }
        } else if self.held.is_empty() && self.has_room() {
            self.publish(publish);
        } else {
            self.held.push(whole);
        }
    }

    fn give_out(&mut self) {
        while !self.held.is_empty()
            && self.has_room()
            && let Some(whole) = self.held.pop()
        {
            // It was a PUBLISH when it came.
            if let Ok(Some(frame)) = mqtt::cut(&whole, u32::MAX)
                && let Ok(Packet::Publish(publish)) = Packet::decode(frame, Version::V5)
            {
                self.publish(&publish);
            }
        }
    }

    /// Nothing more goes to sockets than they were given, and no question of that: nobody would
    /// hear the answer.
    pub(super) fn pass_over(&mut self) {
        self.leave_over();
        if self.settings().pattern.asks() {
            self.crowd().take_back();
        }
    }

    fn leave_over(&mut self) {
        self.passes_over = true;
        let lost = self.held.forget();
        self.lose_times(Loss::NoPeer, "it waited for a socket", lost);
    }

    /// Whether one more message could go out now, whatever it is.
    fn has_room(&self) -> bool {
        let settings = self.settings();
        if self.to_near.len() >= UNSENT_BYTES_MAX {
            return false;
        }
        if self.asks_too_much() {
            return false;
        }
        match settings.pattern.manner() {
            Manner::One => self.crowd().has_room(settings),
            Manner::All => !self.has_nobody(),
            Manner::Asker | Manner::None => true,
        }
    }

    fn asks_too_much(&self) -> bool {
        self.settings().pattern.asks()
            && self.errands.is_full(self.settings().questions_bytes_max())
    }

    fn publish(&mut self, publish: &Publish<'_>) {
        if self.settings().pattern.answers() {
            return self.answer(publish);
        }
        let name = match self.outward_name(publish.topic) {
            Ok(name) => name,
            Err(loss) => {
                self.lose(loss, publish.topic);
                return self.done(publish.packet_id);
            }
        };
        let frames = forms::outward(self.settings(), &name, publish);
        if frames.iter().map(Vec::len).sum::<usize>() > self.settings().message_bytes_max as usize {
            self.lose(Loss::TooLarge, publish.topic);
            return self.done(publish.packet_id);
        }
        match self.settings().pattern.asks() {
            true => self.ask(publish, frames),
            false => self.send(publish, Message { envelope: Vec::new(), frames }),
        }
    }

    /// What a rule of the broker sends has its name already; everything else has it by a map.
    fn outward_name(&self, topic: &str) -> Result<String, Loss> {
        if let Some(name) = name_of_row(topic) {
            return Ok(name.into());
        }
        let matching = self.settings().rules.outward.iter().find(|rule| rule.map.matches(topic));
        matching.ok_or(Loss::NoRule)?.map.apply(topic).ok_or(Loss::NoName)
    }

    fn send(&mut self, publish: &Publish<'_>, message: Message) {
        match self.settings().pattern.manner() {
            Manner::One => {
                let receipt = publish.packet_id.map(|id| (self.epoch, id));
                self.crowd().give(named(publish.topic, message, receipt), self.settings());
            }
            _ => {
                self.spread(&parcel(message, None), publish.topic);
                self.done(publish.packet_id);
            }
        }
    }

    fn spread(&self, parcel: &Arc<Parcel>, topic: &str) {
        let (_, slow) = self.crowd().spread(parcel, self.settings());
        self.lose_times(Loss::PeerSlow, topic, slow);
    }

    /// A request of MQTT goes to sockets, and what they answer to its response topic.
    fn ask(&mut self, publish: &Publish<'_>, frames: Vec<Vec<u8>>) {
        let mut asked = Asked {
            topic: publish.topic.into(),
            response: None,
            correlation: None,
            receipt: publish.packet_id.map(|id| (self.epoch, id)),
            due: Instant::now() + self.settings().answer_timeout(),
            given_to: None,
        };
        for property in publish.properties.iter() {
            match property {
                // A socket's words are no reason to speak in the broker's own name.
                Property::ResponseTopic(topic) if !topic.starts_with('$') => {
                    asked.response = Some(topic.into());
                }
                Property::CorrelationData(data) => asked.correlation = Some(data.into()),
                _ => {}
            }
        }
        let is_survey = self.settings().pattern.manner() == Manner::All;
        if is_survey {
            asked.receipt = None;
            self.done(publish.packet_id);
        }
        let number = self.errands.ask(asked);
        let mut question = Message::question(number, frames);
        if self.settings().family == Family::Zmq {
            question.envelope.insert(0, self.errands.proof(number).to_vec());
        }
        let given_to = if is_survey {
            self.spread(&parcel(question, None), publish.topic);
            Some(self.crowd().newest())
        } else {
            let receipt = publish.packet_id.map(|id| (self.epoch, id));
            self.crowd().give(named(publish.topic, question, receipt), self.settings())
        };
        given_to.into_iter().for_each(|peer| self.errands.gave(number, peer));
    }

    /// Somebody of MQTT has answered a socket.
    fn answer(&mut self, publish: &Publish<'_>) {
        let correlation = publish.properties.iter().find_map(|property| match property {
            Property::CorrelationData(data) => <[u8; 8]>::try_from(data).ok(),
            _ => None,
        });
        let told = correlation.and_then(|data| self.errands.told(u64::from_be_bytes(data)));
        match told {
            None => self.lose(Loss::NoRule, publish.topic),
            Some(told) => {
                let frames = forms::answer(self.settings(), publish);
                let message = Message { envelope: told.envelope, frames };
                let parcel = parcel(message, None);
                if let Err(loss) = self.crowd().answer(told.peer, parcel, self.settings()) {
                    self.lose(loss, publish.topic);
                }
            }
        }
        self.done(publish.packet_id);
    }

    fn lose(&self, loss: Loss, about: &str) {
        self.lose_times(loss, about, 1);
    }

    fn lose_times(&self, loss: Loss, about: &str, times: usize) {
        self.shared.tally.lose_times(&self.settings().name, loss, about, times as u64);
    }

    /// The session here is done with a message.
    fn done(&mut self, packet_id: Option<PacketId>) {
        if let Some(id) = packet_id {
            self.held.acknowledged();
            acknowledge(PacketType::PubAck, id, Reason::Success, &mut self.to_near);
        }
    }

    /// What sockets took since the last time.
    pub(super) fn take_receipts(&mut self) {
        for (epoch, id) in self.crowd().take_receipts() {
            self.settle(Some((epoch, id)));
        }
    }

    /// The same, as long as it is owed to this connection.
    fn settle(&mut self, receipt: Option<Receipt>) {
        if let Some((epoch, id)) = receipt
            && epoch == self.epoch
        {
            self.done(Some(id));
        }
    }

    /// What answers a question ends it, whatever becomes of the answer.
    fn acknowledged(&mut self, packet_id: PacketId, reason: Reason) {
        let Some(receipt) = self.said.take(packet_id) else { return };
        if reason as u8 >= 0x80 {
            self.lose(Loss::RefusedHere, &reason.to_string());
        }
        self.settle(receipt);
    }

    /// Whether what sockets say may be published. Who comes where something was passed over is for
    /// the next connection.
    fn takes_in(&self) -> bool {
        (!self.passes_over || self.crowd().is_quiet())
            && !self.held.is_over()
            && !self.said.is_full()
            && self.to_near.len() < UNSENT_BYTES_MAX
    }

    /// Brings together what sockets did and what waits here. Where the last of those has gone for
    /// whom the session here is wanted it has all again that comes from now on, so that nothing
    /// stands before its acknowledgements.
    pub(super) fn heed_crowd(&mut self) {
        if self.has_nobody() {
            self.leave_over();
        }
        if !self.passes_over {
            for (number, peer) in self.crowd().give_again(self.settings()) {
                self.errands.gave(number, peer);
            }
            self.give_out();
        }
        self.take_receipts();
    }

    /// Nobody is there for whom the session here is wanted.
    fn has_nobody(&self) -> bool {
        self.settings().waits_for_peers() && self.crowd().len() == 0
    }

    /// The same, and it has all that was said.
    pub(super) fn is_alone(&self) -> bool {
        self.settings().waits_for_peers() && self.crowd().is_over() && self.is_answered()
    }

    /// Somebody is there for whom the session here sends again over another connection what this
    /// one passed over or left, and it has all that it was told.
    pub(super) fn is_parted(&self) -> bool {
        let is_wanted = self.passes_over && self.crowd().len() > 0;
        (is_wanted || self.held.is_over()) && self.is_answered()
    }

    /// This broker has all that it was told.
    pub(super) fn is_answered(&self) -> bool {
        self.said.is_empty() && self.to_near.is_empty()
    }

    /// How many messages this broker has not acknowledged.
    pub(super) fn unanswered(&self) -> usize {
        self.said.len()
    }

    /// What sockets said, as far as there is room. Says whether there was anything.
    pub(super) fn take_in(&mut self) -> bool {
        let before = self.to_near.len();
        while self.takes_in()
            && let Some((peer, message)) = self.next_said()
        {
            if self.settings().pattern.asks() {
                self.answered(peer, message);
            } else {
                self.heard(peer, message);
            }
        }
        self.to_near.len() > before
    }

    fn next_said(&mut self) -> Option<(PeerId, Message)> {
        let Shared { settings, crowd, .. } = &self.shared;
        if !settings.pattern.answers() {
            return crowd.take_inbound(|_| true);
        }
        let bytes_max = settings.questions_bytes_max();
        self.errands.make_room(bytes_max, crowd);
        crowd.take_inbound(|peer| self.errands.may_tell(peer, bytes_max))
    }

    fn heard(&mut self, peer: PeerId, message: Message) {
        let mut inward = match forms::inward(self.settings(), message.frames) {
            Ok(inward) => inward,
            Err((loss, about)) => return self.lose(loss, &about),
        };
        if self.settings().pattern.answers() {
            let due = Instant::now() + self.settings().answer_timeout();
            let told = Told { peer, envelope: message.envelope, due };
            let number = self.errands.tell(told);
            if !self.crowd().has(peer) {
                self.errands.told_by_nobody(number);
            }
            inward.properties.push(Property::ResponseTopic(&self.answers_at));
            inward.properties.push(Property::CorrelationData(&number.to_be_bytes()));
        }
        self.say(&inward, None);
    }

    /// Who was asked may answer. A socket of ZeroMQ that is back is another one here, and says over
    /// its new connection what it has to say: with all that came before the question.
    fn may_answer(&self, peer: PeerId, number: u32, envelope: &[Vec<u8>]) -> bool {
        let Some(asked) = self.errands.given_to(number) else { return false };
        let proof = self.errands.proof(number);
        let is_back = || {
            let shows = envelope.len() == 2 && envelope[0] == proof;
            shows && peer > asked && !self.crowd().has(asked)
        };
        match self.settings().pattern.manner() {
            Manner::One => peer == asked || self.settings().family == Family::Zmq && is_back(),
            _ => peer <= asked,
        }
    }

    fn answered(&mut self, peer: PeerId, message: Message) {
        let is_last = self.settings().pattern.manner() == Manner::One;
        let envelope = &message.envelope;
        let number = message.answered().filter(|own| self.may_answer(peer, *own, envelope));
        let asked = number.and_then(|number| self.errands.asked(number, is_last));
        let Some(asked) = asked else {
            let about = "it came too late, or another socket was asked";
            return self.lose(Loss::NoQuestion, about);
        };
        let Some(topic) = asked.response else { return self.settle(asked.receipt) };
        let (payload, mut properties) = match forms::answered(self.settings(), message.frames) {
            Ok(answer) => answer,
            Err((loss, about)) => {
                self.lose(loss, &about);
                return self.settle(asked.receipt);
            }
        };
        if let Some(correlation) = &asked.correlation {
            properties.push(Property::CorrelationData(correlation));
        }
        let (qos, retain) = (QoS::AtLeastOnce, false);
        let inward = Inward { topic: topic.into(), payload, qos, retain, properties };
        self.say(&inward, asked.receipt);
    }

    /// Publishes here. The question that it answers is done with when this broker has the answer:
    /// whoever is killed in between asks again.
    fn say(&mut self, inward: &Inward, receipt: Option<Receipt>) {
        let qos = inward.qos.min(self.terms.qos_max);
        let packet_id = (qos > QoS::AtMostOnce).then(|| self.said.give_id());
        let mut packet = Vec::with_capacity(inward.payload.len() + inward.topic.len() + 16);
        let publish = Publish {
            dup: false,
            qos,
            retain: inward.retain && self.terms.takes_retain,
            topic: &inward.topic,
            packet_id,
            properties: inward.properties.as_properties(),
            payload: &inward.payload,
        };
        publish.encode(Version::V5, &mut packet);
        let most = self.terms.packet_bytes_max.min(self.settings().limits.packet_bytes_max);
        if packet.len() > most as usize {
            self.lose(Loss::TooLarge, &inward.topic);
            return self.settle(receipt);
        }
        self.to_near.extend_from_slice(&packet);
        self.shared.tally.count_in(inward.payload.len());
        match packet_id {
            Some(id) => self.said.push(id, packet, receipt),
            None => self.settle(receipt),
        }
    }

    /// When the filters that it may not have are asked for again.
    pub(super) fn asks_again_at(&self) -> Option<Instant> {
        self.ask_again
    }

    /// When somebody has waited long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        let relieves_at = (!self.passes_over).then(|| self.crowd().relieves_at(self.settings()));
        let others = self.ask_again.into_iter().chain(relieves_at.flatten());
        self.errands.due().into_iter().chain(others).min()
    }

    pub(super) fn look_at_time(&mut self) {
        if self.ask_again.is_some_and(|at| at <= Instant::now()) {
            self.ask_again = None;
            self.subscribe_again();
        }
        let is_survey = self.settings().pattern.manner() == Manner::All;
        for (topic, receipt) in self.errands.expire(Instant::now()) {
            if !is_survey {
                self.lose(Loss::NoAnswer, &topic);
            }
            self.settle(receipt);
        }
    }
}

/// What is retained comes for those that are new, and for no other.
pub(super) fn again(
    mut wanted: Vec<(String, SubscribeOptions)>,
) -> Vec<(String, SubscribeOptions)> {
    for (_, options) in &mut wanted {
        options.retain_handling = options.retain_handling.max(1);
    }
    wanted
}
