//! What somebody who was asked said of one session: each answer for as long as the option says,
//! and, whatever that says, for the packet that asked.

use crate::ask::{Action, Wish};
use crate::input::Now;
use crate::options::Asks;
use crate::rights::TOPIC_BYTES_MAX;

#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// In the order of their topics.
    kept: Vec<Said>,
    /// For the packet that is read next, in the same order, ...
    fresh: Vec<Said>,
    /// ... unless it was read already.
    is_read: bool,
    /// Questions of the packet.
    asked: usize,
    /// Bytes of all topics.
    topic_bytes: usize,
    /// When the timer fires that looks whether somebody has waited too long.
    pub(crate) timer_at: Option<Now>,
}

#[derive(Debug)]
struct Said {
    topic: Box<str>,
    until: Now,
    /// What was asked beside the topic, as far as it matters.
    manner: u8,
    allows: bool,
}

/// Answers of one session: a gateway has some hundred topics. The one that ends first goes first.
const KEPT_MAX: usize = 1_024;

impl Answers {
    pub(crate) fn bytes(&self) -> u64 {
        let lists = (self.kept.capacity() + self.fresh.capacity()) * size_of::<Said>();
        (size_of::<Answers>() + lists + self.topic_bytes) as u64
    }

    pub(crate) fn find(&self, wish: &Wish<'_>, asks: Asks, now: Now) -> Option<bool> {
        let manner = manner(wish, asks);
        let kept = place(&self.kept, wish.topic, manner).ok().map(|at| &self.kept[at]);
        let fresh = || place(&self.fresh, wish.topic, manner).ok().map(|at| &self.fresh[at]);
        kept.filter(|said| now < said.until).or_else(fresh).map(|said| said.allows)
    }

    /// `keeps` is false where the answer is for the packet alone that asked.
    pub(crate) fn take(
        &mut self,
        wish: &Wish<'_>,
        asks: Asks,
        now: Now,
        allows: bool,
        keeps: bool,
    ) {
        let keeps = keeps && asks.kept_ms > 0 && wish.topic.len() <= TOPIC_BYTES_MAX;
        let until = Now(now.0 + u64::from(asks.kept_ms));
        let manner = manner(wish, asks);
        if keeps && self.kept.len() >= KEPT_MAX {
            self.make_room(now);
        }
        let list = if keeps { &mut self.kept } else { &mut self.fresh };
        match place(list, wish.topic, manner) {
            Ok(at) => (list[at].until, list[at].allows) = (until, allows),
            Err(at) => {
                list.insert(at, Said { topic: wish.topic.into(), until, manner, allows });
                self.topic_bytes += wish.topic.len();
            }
        }
    }

    fn make_room(&mut self, now: Now) {
        self.kept.retain(|said| now < said.until);
        if self.kept.len() >= KEPT_MAX
            && let Some(first) = (0..self.kept.len()).min_by_key(|at| self.kept[*at].until)
        {
            self.kept.remove(first);
        }
        self.count();
    }

    /// How many questions were asked about the packet that is read next.
    pub(crate) fn asked(&self) -> usize {
        self.asked
    }

    /// So many more.
    pub(crate) fn ask(&mut self, count: usize) {
        self.asked += count;
    }

    /// A packet is looked at, whose answers those of an earlier one are not.
    pub(crate) fn begin(&mut self) {
        if self.is_read {
            (self.is_read, self.asked) = (false, 0);
            if !self.fresh.is_empty() {
                self.fresh = Vec::new();
                self.count();
            }
        }
    }

    /// The packet is read.
    pub(crate) fn end(&mut self) {
        self.is_read = true;
    }

    pub(crate) fn forget(&mut self) {
        *self = Answers { timer_at: self.timer_at, ..Answers::default() };
    }

    fn count(&mut self) {
        self.topic_bytes = self.kept.iter().chain(&self.fresh).map(|said| said.topic.len()).sum();
    }
}

fn place(list: &[Said], topic: &str, manner: u8) -> Result<usize, usize> {
    list.binary_search_by(|said| (&*said.topic, said.manner).cmp(&(topic, manner)))
}

/// QoS and RETAIN only where they make a difference.
fn manner(wish: &Wish<'_>, asks: Asks) -> u8 {
    let manner = match asks.is_particular {
        true => wish.qos | u8::from(wish.retain) << 2,
        false => 0,
    };
    manner | u8::from(wish.action == Action::Subscribe) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: Asks = Asks { kept_ms: 1_000, is_particular: false };

    fn take(answers: &mut Answers, topic: &str, now: u64, keeps: bool) {
        answers.take(&Wish::publish(topic, (0, false)), ASKS, Now(now), true, keeps);
    }

    fn knows(answers: &Answers, topic: &str, now: u64) -> bool {
        answers.find(&Wish::publish(topic, (0, false)), ASKS, Now(now)).is_some()
    }

    #[test]
    fn a_gateway_keeps_the_answers_of_its_topics_and_no_flood_keeps_more() {
        let mut answers = Answers::default();
        for at in 0..10_000 {
            take(&mut answers, &format!("t/{at}"), 10 + at / 100, true);
            assert!(knows(&answers, &format!("t/{at}"), 500), "{at}");
        }
        assert_eq!(answers.kept.len(), KEPT_MAX);
        let known = (0..10_000).filter(|at| knows(&answers, &format!("t/{at}"), 500));
        assert!(known.eq(10_000 - KEPT_MAX as u64..10_000), "the newest stay");
        let topics: usize = answers.kept.iter().map(|said| said.topic.len()).sum();
        assert_eq!(answers.topic_bytes, topics);
        // What has ended makes room for all others at once.
        take(&mut answers, "x", 2_000, true);
        assert_eq!((answers.kept.len(), answers.topic_bytes), (1, 1));
        assert!(!knows(&answers, "x", 3_000) && knows(&answers, "x", 2_999));
    }

    #[test]
    fn what_was_not_kept_is_for_one_packet() {
        let mut answers = Answers::default();
        take(&mut answers, "a", 0, false);
        answers.begin();
        assert!(knows(&answers, "a", 100_000), "however long it was held");
        answers.end();
        answers.begin();
        assert!(!knows(&answers, "a", 0));
        assert_eq!(answers.topic_bytes, 0);
        take(&mut answers, &"long/".repeat(100), 0, true);
        assert_eq!((answers.kept.len(), answers.fresh.len()), (0, 1));
    }

    #[test]
    fn an_answer_is_for_what_was_asked() {
        let particular = Asks { is_particular: true, ..ASKS };
        for (asks, other_qos) in [(ASKS, true), (particular, false)] {
            let mut answers = Answers::default();
            answers.take(&Wish::publish("a", (0, false)), asks, Now(0), true, true);
            let find = |wish: Wish<'_>| answers.find(&wish, asks, Now(1)).is_some();
            assert!(find(Wish::publish("a", (0, false))));
            assert_eq!(find(Wish::publish("a", (1, false))), other_qos);
            assert_eq!(find(Wish::publish("a", (0, true))), other_qos);
            assert!(!find(Wish::subscribe("a", 0)) && !find(Wish::publish("a/b", (0, false))));
        }
    }
}
