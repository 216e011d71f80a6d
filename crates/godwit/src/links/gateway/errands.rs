//! Questions that are under way, in both directions, with what is needed to bring the answer back.
//!
//! Invariant: those of either direction have a bound of bytes, whoever asks and goes.

use super::crowd::Crowd;
use super::parcel::{PeerId, Receipt};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use tokio::time::Instant;

/// A client of MQTT asks sockets.
pub(super) struct Asked {
    pub(super) topic: Box<str>,
    pub(super) response: Option<Box<str>>,
    pub(super) correlation: Option<Box<[u8]>>,
    /// The session here is done with the question when it has the answer, or it is too late.
    pub(super) receipt: Option<Receipt>,
    pub(super) due: Instant,
    /// Who has it; of a survey the last of all who were there.
    pub(super) given_to: Option<PeerId>,
}

/// A socket asks clients of MQTT.
pub(super) struct Told {
    pub(super) peer: PeerId,
    pub(super) envelope: Vec<Vec<u8>>,
    pub(super) due: Instant,
}

#[derive(Default)]
pub(super) struct Errands {
    asked: BTreeMap<u32, Asked>,
    told: BTreeMap<u64, Told>,
    /// What those that are asked cost.
    asked_bytes: usize,
    asked_order: BTreeSet<(Instant, u32)>,
    told_order: BTreeSet<(Instant, u64)>,
    /// How many of those that are told are whose.
    told_of: BTreeMap<PeerId, usize>,
    /// What those that are told cost.
    told_bytes: usize,
    /// Those of sockets that have gone. They are known as long as they are in nobody's way, so that
    /// an answer to them is counted as what it is.
    gone: BTreeSet<(Instant, u64)>,
    /// So many sockets had left when it was found out last who has gone.
    left: u64,
    drawn: u64,
    random: RandomState,
}

/// While there are so many of a kind nobody else asks, ...
const MOST: usize = 4096;
/// ... but for sockets that have fewer than this, while there are bytes.
const MOST_OF_ONE: usize = 16;
/// What a question costs beside its bytes.
const QUESTION_BYTES: usize = 256;
/// What a frame of an envelope costs beside its bytes.
const FRAME_BYTES: usize = 48;
/// Of questions to sockets.
const NUMBERS: u64 = 1 << 31;

impl Asked {
    fn cost(&self) -> usize {
        let response = self.response.as_ref().map_or(0, |topic| topic.len());
        let correlation = self.correlation.as_ref().map_or(0, |data| data.len());
        QUESTION_BYTES + self.topic.len() + response + correlation
    }
}

impl Told {
    fn cost(&self) -> usize {
        QUESTION_BYTES + self.envelope.iter().map(|own| own.len() + FRAME_BYTES).sum::<usize>()
    }
}

impl Errands {
    /// A question that is alone always has room.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.asked.len() >= MOST || self.asked_bytes >= bytes_max
    }

    /// Whether a socket may ask one more.
    pub(super) fn may_tell(&self, peer: PeerId, bytes_max: usize) -> bool {
        let has_few = self.told_of.get(&peer).is_none_or(|own| *own < MOST_OF_ONE);
        !self.tells_much(bytes_max) || has_few && self.told_bytes < bytes_max
    }

    /// Those that ask much are to wait: half of the bytes are for those that ask little.
    fn tells_much(&self, bytes_max: usize) -> bool {
        self.told.len() >= MOST || self.told_bytes >= bytes_max / 2
    }

    /// Where there is no room for whoever asks next, what those asked is forgotten that have gone.
    pub(super) fn make_room(&mut self, bytes_max: usize, crowd: &Crowd) {
        if !self.tells_much(bytes_max) {
            return;
        }
        let left = crowd.left();
        if self.gone.is_empty() && left != self.left {
            self.left = left;
            let gone = crowd.gone(self.told_of.keys().copied());
            let is_gone =
                |number| self.told.get(number).is_some_and(|own| gone.contains(&own.peer));
            let all = self.told_order.iter().filter(|(_, number)| is_gone(number));
            self.gone = all.copied().collect();
        }
        while self.tells_much(bytes_max)
            && let Some((_, number)) = self.gone.first().copied()
        {
            self.told(number);
        }
    }

    /// Who asked that had gone already.
    pub(super) fn told_by_nobody(&mut self, number: u64) {
        if let Some(told) = self.told.get(&number) {
            self.gone.insert((told.due, number));
        }
    }

    /// A number that nobody can guess, and that each gateway draws anew.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.random.hash_one(self.drawn)
    }

    /// The question's number. Sockets keep what they have to say over a new connection, and what
    /// answers a gateway before this one, or another process, must fit no question here.
    pub(super) fn ask(&mut self, asked: Asked) -> u32 {
        let number = loop {
            let number = (self.draw() % NUMBERS) as u32;
            if !self.asked.contains_key(&number) {
                break number;
            }
        };
        self.asked_order.insert((asked.due, number));
        self.asked_bytes += asked.cost();
        self.asked.insert(number, asked);
        number
    }

    /// Who shows it was asked that, though it comes over a connection that was not.
    pub(super) fn proof(&self, number: u32) -> [u8; 8] {
        self.random.hash_one(("asked", number)).to_be_bytes()
    }

    /// A socket was given the question, or has it in the place of another.
    pub(super) fn gave(&mut self, number: u32, peer: PeerId) {
        if let Some(asked) = self.asked.get_mut(&number) {
            asked.given_to = Some(peer);
        }
    }

    pub(super) fn given_to(&self, number: u32) -> Option<PeerId> {
        self.asked.get(&number)?.given_to
    }

    /// Who asked that; of a survey the next may answer too.
    pub(super) fn asked(&mut self, number: u32, is_last: bool) -> Option<Asked> {
        if is_last {
            return self.unask(number);
        }
        let asked = self.asked.get(&number)?;
        Some(Asked {
            topic: asked.topic.clone(),
            response: asked.response.clone(),
            correlation: asked.correlation.clone(),
            receipt: None,
            due: asked.due,
            given_to: asked.given_to,
        })
    }

    fn unask(&mut self, number: u32) -> Option<Asked> {
        let asked = self.asked.remove(&number)?;
        self.asked_order.remove(&(asked.due, number));
        self.asked_bytes -= asked.cost();
        Some(asked)
    }

    /// The question's number, which nobody can guess: whoever knows it may answer.
    pub(super) fn tell(&mut self, told: Told) -> u64 {
        let number = loop {
            let number = self.draw();
            if !self.told.contains_key(&number) {
                break number;
            }
        };
        self.told_order.insert((told.due, number));
        *self.told_of.entry(told.peer).or_default() += 1;
        self.told_bytes += told.cost();
        self.told.insert(number, told);
        number
    }

    pub(super) fn told(&mut self, number: u64) -> Option<Told> {
        let told = self.told.remove(&number)?;
        self.told_order.remove(&(told.due, number));
        self.gone.remove(&(told.due, number));
        self.told_bytes -= told.cost();
        if let Some(own) = self.told_of.get_mut(&told.peer) {
            *own -= 1;
            if *own == 0 {
                self.told_of.remove(&told.peer);
            }
        }
        Some(told)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let asked = self.asked_order.first().map(|(due, _)| *due);
        let told = self.told_order.first().map(|(due, _)| *due);
        asked.into_iter().chain(told).min()
    }

    /// Questions of clients that nobody answered in time; those of sockets are forgotten.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Box<str>, Option<Receipt>)> {
        let mut found = Vec::new();
        while let Some((due, number)) = self.asked_order.first().copied()
            && due <= now
        {
            found.extend(self.unask(number).map(|asked| (asked.topic, asked.receipt)));
        }
        while let Some((due, number)) = self.told_order.first().copied()
            && due <= now
        {
            self.told(number);
        }
        found
    }

    /// The connection that they were owed to is gone: it asks again.
    pub(super) fn forget_receipts(&mut self) {
        self.asked.retain(|_, asked| asked.receipt.is_none());
        let asked = &self.asked;
        self.asked_order.retain(|(_, number)| asked.contains_key(number));
        self.asked_bytes = asked.values().map(Asked::cost).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gateway;
    use super::*;
    use mqtt::PacketId;
    use std::sync::Arc;
    use std::time::Duration;

    fn asked(due: Instant) -> Asked {
        let (response, correlation) = (Some("r".into()), None);
        Asked { topic: "t".into(), response, correlation, receipt: None, due, given_to: None }
    }

    #[test]
    fn an_answer_finds_its_question_once_and_in_time() {
        let (mut errands, now) = (Errands::default(), Instant::now());
        let second = now + Duration::from_secs(1);
        let (one, other) = (errands.ask(asked(second)), errands.ask(asked(second)));
        assert_eq!(errands.due(), Some(second));
        assert!(errands.asked(one, true).is_some() && errands.asked(one, true).is_none());
        assert_eq!(errands.expire(now).len(), 0);
        assert_eq!(errands.expire(second).len(), 1);
        assert!(errands.asked(other, true).is_none());
        assert_eq!(errands.due(), None);
    }

    #[test]
    fn numbers_of_questions_are_not_to_be_guessed() {
        let told = |errands: &mut Errands| {
            errands.tell(Told { peer: 1, envelope: Vec::new(), due: Instant::now() })
        };
        let asked = |errands: &mut Errands| u64::from(errands.ask(asked(Instant::now())));
        let kinds: [&dyn Fn(&mut Errands) -> u64; 2] = [&told, &asked];
        for draw in kinds {
            let numbers = |mut errands: Errands| [draw(&mut errands), draw(&mut errands)];
            let (one, other) = (numbers(Errands::default()), numbers(Errands::default()));
            assert!(one.iter().all(|number| !other.contains(number)), "{one:?} {other:?}");
            assert_ne!(one[1].wrapping_sub(one[0]), other[1].wrapping_sub(other[0]));
        }
    }

    #[test]
    fn a_survey_is_answered_until_it_is_over() {
        let (mut errands, now) = (Errands::default(), Instant::now());
        let number = errands.ask(asked(now));
        assert!(errands.asked(number, false).is_some() && errands.asked(number, false).is_some());
        assert_eq!(errands.expire(now).len(), 1);
        assert!(errands.asked(number, false).is_none());
    }

    #[test]
    fn questions_that_are_answered_leave_room_for_others() {
        let (mut errands, now) = (Errands::default(), Instant::now());
        let (told, later) = (|| Told { peer: 1, envelope: Vec::new(), due: now }, asked(now));
        // One that nobody answers is in nobody's way.
        errands.tell(told());
        errands.ask(later);
        for _ in 0..3 * MOST {
            assert!(errands.may_tell(1, usize::MAX) && !errands.is_full(2 * QUESTION_BYTES));
            let numbers = (errands.tell(told()), errands.ask(asked(now)));
            assert!(errands.told(numbers.0).is_some());
            assert!(errands.asked(numbers.1, true).is_some());
        }
        (0..MOST).for_each(|_| _ = errands.ask(asked(now)));
        assert!(errands.is_full(usize::MAX));
        errands.expire(now);
        assert_eq!(errands.asked_bytes, 0);
    }

    #[test]
    fn long_questions_are_fewer() {
        const BYTES_MAX: usize = 1 << 20;
        let (mut errands, now) = (Errands::default(), Instant::now());
        let long = || Asked {
            response: Some("r".repeat(1 << 15).into()),
            correlation: Some(vec![0; 1 << 15].into()),
            receipt: Some((1, PacketId::MIN)),
            ..asked(now)
        };
        let mut count = 0;
        while !errands.is_full(BYTES_MAX) {
            errands.ask(long());
            count += 1;
        }
        assert_eq!(count, 16);
        errands.forget_receipts();
        assert!(!errands.is_full(1), "nobody asks any more");
    }

    #[test]
    fn who_asks_much_leaves_room_for_who_asks_little() {
        let (mut errands, now) = (Errands::default(), Instant::now());
        let told = |peer| Told { peer, envelope: Vec::new(), due: now };
        let may = |errands: &Errands, peer| errands.may_tell(peer, usize::MAX);
        while may(&errands, 1) {
            errands.tell(told(1));
        }
        assert_eq!(errands.told.len(), MOST);
        (0..MOST_OF_ONE).for_each(|_| {
            assert!(may(&errands, 2));
            errands.tell(told(2));
        });
        assert!(!may(&errands, 2) && may(&errands, 3));
        errands.expire(now);
        assert!(may(&errands, 1) && errands.told_of.is_empty());
    }

    /// However many ask, and whether they stay or go.
    #[test]
    fn what_sockets_ask_has_a_bound_of_bytes() {
        const BYTES_MAX: usize = 1 << 20;
        let settings = gateway(
            &[("protocol", "sp"), ("pattern", "rep"), ("listen", "tcp://127.0.0.1:1")],
            &[],
            &[&[("topic", "questions")]],
        );
        let (settings, crowd, now) = (settings.unwrap(), Crowd::default(), Instant::now());
        let mut errands = Errands::default();
        let mut asks = |peer, count: usize| {
            for at in 0..count {
                errands.make_room(BYTES_MAX, &crowd);
                if !errands.may_tell(peer, BYTES_MAX) {
                    return at;
                }
                errands.tell(Told { peer, envelope: vec![vec![b'i'; 255]; 15], due: now });
                let all = errands.told.values().map(Told::cost).sum::<usize>();
                assert_eq!(all, errands.told_bytes);
                assert!(all < BYTES_MAX + 5000 && errands.gone.len() <= errands.told.len());
            }
            count
        };
        let enter = || crowd.enter(&settings, Arc::default()).unwrap();
        let stays = enter();
        let own = asks(stays, MOST);
        assert!(own > 100, "{own} of one that stays, which is half of all");
        for _ in 0..1000 {
            let goes = enter();
            assert_eq!(asks(goes, MOST_OF_ONE), MOST_OF_ONE, "others have gone");
            assert_eq!(asks(goes, 1), 0);
            crowd.leave(goes, std::iter::empty(), false);
        }
        assert_eq!(asks(stays, 1), 0);
        let stay: Vec<usize> = (0..20).map(|_| asks(enter(), MOST_OF_ONE)).collect();
        assert_eq!((stay[0], stay[19]), (MOST_OF_ONE, 0), "nobody has gone");
        crowd.leave(stays, std::iter::empty(), false);
        assert_eq!(asks(enter(), MOST_OF_ONE), MOST_OF_ONE);
    }
}
