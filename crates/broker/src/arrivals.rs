//! How many connections there are and how fast they come, by listener and by address, against what
//! the options allow. The engine asks as it accepts, before anything is read, and says when one has
//! gone. One of these is for all shards, since all listeners are with one.
//!
//! | above | what happens |
//! |---|---|
//! | a listener's rate | nothing is accepted there for a while: who comes waits in the kernel |
//! | a listener's number | 0x97, and nobody inside notices |
//! | an address' number | 0x97 |
//! | an address' rate | 0x9F: in the kernel's queue it would keep others waiting |
//!
//! An answer needs a CONNECT to be answered (MQTT 5.0, 3.2), so only a few a second get one; the
//! others are closed at once, which a server may always do.

use crate::input::Now;
use crate::options::Options;
use crate::pace::Pace;
use crate::peer::{ListenerId, Source};
use crate::refusal::Refusal;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

#[derive(Debug)]
pub struct Arrivals {
    /// By listener.
    listeners: Vec<Listener>,
    addresses: HashMap<(ListenerId, Source), Counted, FixedState>,
    /// Addresses that nothing is known of any more are taken out once there are so many.
    sweep_at: usize,
}

#[derive(Clone, Debug, Default)]
struct Listener {
    counted: Counted,
    /// Of answers to those that do not come in.
    answers: Pace,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    present: u32,
    pace: Pace,
}

/// What becomes of a connection that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It is closed at once.
    Closed(Refusal),
    /// It is counted, and so is the source that is named.
    In(Option<Source>),
    /// It may say CONNECT, and hears this.
    Told(Refusal),
}

/// Of those above a limit so many a second are told so, on each listener.
const ANSWERS_PER_S: u32 = 64;
const SWEEP_MIN: usize = 16 * 1024;

impl Options {
    /// Whether a listener may have to wait before it accepts.
    pub fn paces_arrivals(&self, at: ListenerId) -> bool {
        self.of(at).connections_per_s > 0
    }

    /// Whether arrivals have to be counted at this listener.
    pub fn counts_arrivals(&self, at: ListenerId) -> bool {
        let own = self.of(at);
        own.connections_max > 0
            || own.connections_per_s > 0
            || own.address_connections_max > 0
            || own.address_connections_per_s > 0
    }
}

impl Arrivals {
    /// The seed keys what strangers may choose.
    pub fn new(seed: u64) -> Arrivals {
        Arrivals {
            listeners: Vec::new(),
            addresses: HashMap::with_hasher(FixedState::with_seed(seed)),
            sweep_at: 0,
        }
    }

    /// Until when nothing is to be accepted at a listener.
    pub fn waits(&mut self, now: Now, at: ListenerId, options: &Options) -> Option<Now> {
        let per_s = options.of(at).connections_per_s;
        if per_s == 0 {
            return None;
        }
        self.listener(at).counted.pace.waits(now, per_s)
    }

    /// A connection was accepted. Behind a proxy its address is not known yet: see `meet`.
    pub fn knock(
        &mut self,
        now: Now,
        at: ListenerId,
        source: Option<Source>,
        options: &Options,
    ) -> Entry {
        let own = options.of(at);
        let listener = self.listener(at);
        if own.connections_per_s > 0 {
            listener.counted.pace.take(now, 1, own.connections_per_s);
        }
        if own.connections_max > 0 && listener.counted.present >= own.connections_max {
            return self.say_no(now, at, Refusal::QuotaExceeded);
        }
        let entry = source.map_or(Entry::In(None), |one| self.meet(now, at, one, options));
        if matches!(entry, Entry::In(_)) {
            self.listener(at).counted.present += 1;
        }
        entry
    }

    /// The address of a connection that is in is known now.
    pub fn meet(&mut self, now: Now, at: ListenerId, source: Source, options: &Options) -> Entry {
        let own = options.of(at);
        let (max, per_s) = (own.address_connections_max, own.address_connections_per_s);
        if max == 0 && per_s == 0 {
            return Entry::In(None);
        }
        self.sweep(now);
        let counted = self.addresses.entry((at, source)).or_default();
        if max > 0 && counted.present >= max {
            return self.say_no(now, at, Refusal::QuotaExceeded);
        }
        if per_s > 0 {
            if counted.pace.waits(now, per_s).is_some() {
                return self.say_no(now, at, Refusal::TooFast);
            }
            counted.pace.take(now, 1, per_s);
        }
        counted.present += 1;
        Entry::In(Some(source))
    }

    /// A connection that was in has gone; the source is the one that was counted, if any was.
    pub fn leave(&mut self, at: ListenerId, source: Option<Source>) {
        let counted = &mut self.listener(at).counted;
        counted.present = counted.present.saturating_sub(1);
        if let Some(source) = source
            && let Some(counted) = self.addresses.get_mut(&(at, source))
        {
            counted.present = counted.present.saturating_sub(1);
        }
    }

    fn say_no(&mut self, now: Now, at: ListenerId, refusal: Refusal) -> Entry {
        let answers = &mut self.listener(at).answers;
        if answers.waits(now, ANSWERS_PER_S).is_some() {
            return Entry::Closed(refusal);
        }
        answers.take(now, 1, ANSWERS_PER_S);
        Entry::Told(refusal)
    }

    fn listener(&mut self, at: ListenerId) -> &mut Listener {
        let at = usize::from(at.0);
        if self.listeners.len() <= at {
            self.listeners.resize(at + 1, Listener::default());
        }
        &mut self.listeners[at]
    }

    fn sweep(&mut self, now: Now) {
        if self.addresses.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.addresses.retain(|_, counted| counted.present > 0 || !counted.pace.is_rested(now));
        self.addresses.shrink_to_fit();
        self.sweep_at = 2 * self.addresses.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Address;

    const AT: ListenerId = ListenerId(0);

    fn from(text: &str) -> Option<Source> {
        let address: std::net::IpAddr = text.parse().unwrap();
        Some(Address::Network((address, 1).into()).into())
    }

    #[test]
    fn a_crowd_of_addresses_that_has_gone_leaves_nothing_behind() {
        let options = Options { address_connections_per_s: 1, ..Options::default() };
        let mut arrivals = Arrivals::new(1);
        for at in 0..2 * SWEEP_MIN as u64 {
            let source = Source::Network(u128::from(at).to_be_bytes().into());
            // So many a second that the first are long forgotten when the last ones come.
            let Entry::In(counted) = arrivals.knock(Now(at), AT, Some(source), &options) else {
                panic!("it is the first of its address");
            };
            arrivals.leave(AT, counted);
        }
        assert!(arrivals.addresses.len() <= SWEEP_MIN, "{}", arrivals.addresses.len());
    }

    #[test]
    fn limits_that_come_later_do_not_miscount_who_is_in_already() {
        let mut arrivals = Arrivals::new(1);
        let before = Options { connections_max: 9, ..Options::default() };
        let after = Options { address_connections_max: 1, ..Options::default() };
        let one = from("192.0.2.1");
        let early = arrivals.knock(Now(0), AT, one, &before);
        assert_eq!(early, Entry::In(None));
        assert_eq!(arrivals.knock(Now(0), AT, one, &after), Entry::In(one));
        arrivals.leave(AT, None);
        let refused = Entry::Told(Refusal::QuotaExceeded);
        assert_eq!(arrivals.knock(Now(0), AT, one, &after), refused);
        arrivals.leave(AT, one);
        assert_eq!(arrivals.knock(Now(0), AT, one, &after), Entry::In(one));
    }

    #[test]
    fn a_flood_above_the_limit_is_answered_only_so_often() {
        let options = Options { connections_max: 1, ..Options::default() };
        let mut arrivals = Arrivals::new(1);
        let mut told = 0;
        for at in 0..1000 {
            let entry = arrivals.knock(Now(at), AT, from("192.0.2.1"), &options);
            told += usize::from(matches!(entry, Entry::Told(_)));
        }
        assert!((ANSWERS_PER_S as usize..=2 * ANSWERS_PER_S as usize).contains(&told), "{told}");
    }

    #[test]
    fn each_listener_counts_for_itself() {
        let own = Options { connections_max: 1, ..Options::default() };
        let listeners = vec![None, Some(own.into())];
        let options = Options { listeners, ..Options::default() };
        assert!(!options.counts_arrivals(AT) && options.counts_arrivals(ListenerId(1)));
        let mut arrivals = Arrivals::new(1);
        let mut knock = |at| arrivals.knock(Now(0), ListenerId(at), None, &options);
        assert_eq!([knock(0), knock(0), knock(1)], [Entry::In(None); 3]);
        assert_eq!(knock(1), Entry::Told(Refusal::QuotaExceeded));
    }
}
