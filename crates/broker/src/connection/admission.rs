//! Admission: bounds on the number and the rate of connections, by listener and by address. The
//! engine asks as it accepts, before anything is read, and reports the end of each connection. All
//! shards share one [`AdmissionControl`], because the listeners are in one place.
//!
//! | above | what happens |
//! |---|---|
//! | a listener's rate | the listener accepts nothing for a while: clients wait in the kernel |
//! | a listener's number | 0x97, and no shard takes part |
//! | an address' number | 0x97 |
//! | an address' rate | 0x9F: in the kernel's queue the client would delay others |
//!
//! An answer needs a CONNECT (MQTT 5.0, 3.2), so only `ANSWERS_PER_S` connections a second get one;
//! the rest are closed at once, as a server may always do.

use crate::ids::{ListenerId, MonotonicMs};
use crate::leaky_bucket::LeakyBucket;
use crate::options::BrokerOptions;
use crate::peer::PeerSource;
use crate::refusal::Refusal;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

#[derive(Debug)]
pub struct AdmissionControl {
    /// Counts by listener, indexed by [`ListenerId`].
    listeners: Vec<ListenerAdmission>,
    addresses: HashMap<(ListenerId, PeerSource), ConnectionCount, FixedState>,
    /// Number of entries in `addresses` from which idle entries are removed.
    sweep_at: usize,
}

#[derive(Clone, Debug, Default)]
struct ListenerAdmission {
    counted: ConnectionCount,
    /// Limits how many refused connections per second get an answer.
    answers: LeakyBucket,
}

#[derive(Clone, Copy, Debug, Default)]
struct ConnectionCount {
    present: u32,
    pace: LeakyBucket,
}

/// Decision about an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The connection is closed at once.
    ClosedAtOnce(Refusal),
    /// The connection is admitted and counted, as is the named source.
    Admitted(Option<PeerSource>),
    /// The connection may send a CONNECT, and gets this refusal as the answer.
    RefusedAfterConnect(Refusal),
}

/// Refused connections per second and listener that get an answer.
const ANSWERS_PER_S: u32 = 64;
const SWEEP_MIN: usize = 16 * 1024;

impl BrokerOptions {
    /// Whether a rate limit may make this listener wait before the next accept.
    pub fn limits_accept_rate(&self, at: ListenerId) -> bool {
        self.options_of_listener(at).connections_per_s > 0
    }

    /// Whether connections have to be counted at this listener, because some limit is set.
    pub fn limits_connections(&self, at: ListenerId) -> bool {
        let own = self.options_of_listener(at);
        own.connections_max > 0
            || own.connections_per_s > 0
            || own.address_connections_max > 0
            || own.address_connections_per_s > 0
    }
}

impl AdmissionControl {
    /// Creates the state without connections. `seed` keys the hash of addresses, which strangers
    /// choose.
    pub fn new(seed: u64) -> AdmissionControl {
        AdmissionControl {
            listeners: Vec::new(),
            addresses: HashMap::with_hasher(FixedState::with_seed(seed)),
            sweep_at: 0,
        }
    }

    /// Returns the time before which a listener accepts nothing because of its rate limit; `None`
    /// if the listener may accept now.
    pub fn accepts_again_at(
        &mut self,
        now: MonotonicMs,
        at: ListenerId,
        options: &BrokerOptions,
    ) -> Option<MonotonicMs> {
        let per_s = options.options_of_listener(at).connections_per_s;
        if per_s == 0 {
            return None;
        }
        self.listener(at).counted.pace.blocked_until(now, per_s)
    }

    /// Counts an accepted connection against the limits of the listener and, if known, the source.
    /// Behind a proxy the source is `None`, and [`admit_address`](Self::admit_address) follows.
    pub fn admit_connection(
        &mut self,
        now: MonotonicMs,
        at: ListenerId,
        source: Option<PeerSource>,
        options: &BrokerOptions,
    ) -> Admission {
        let own = options.options_of_listener(at);
        let listener = self.listener(at);
        if own.connections_per_s > 0 {
            listener.counted.pace.charge(now, 1, own.connections_per_s);
        }
        if own.connections_max > 0 && listener.counted.present >= own.connections_max {
            return self.refuse(now, at, Refusal::QuotaExceeded);
        }
        let entry = source
            .map_or(Admission::Admitted(None), |one| self.admit_address(now, at, one, options));
        if matches!(entry, Admission::Admitted(_)) {
            self.listener(at).counted.present += 1;
        }
        entry
    }

    /// Counts the source of an admitted connection against the limits per address.
    pub fn admit_address(
        &mut self,
        now: MonotonicMs,
        at: ListenerId,
        source: PeerSource,
        options: &BrokerOptions,
    ) -> Admission {
        let own = options.options_of_listener(at);
        let (max, per_s) = (own.address_connections_max, own.address_connections_per_s);
        if max == 0 && per_s == 0 {
            return Admission::Admitted(None);
        }
        self.sweep(now);
        let counted = self.addresses.entry((at, source)).or_default();
        if max > 0 && counted.present >= max {
            return self.refuse(now, at, Refusal::QuotaExceeded);
        }
        if per_s > 0 {
            if counted.pace.blocked_until(now, per_s).is_some() {
                return self.refuse(now, at, Refusal::TooFast);
            }
            counted.pace.charge(now, 1, per_s);
        }
        counted.present += 1;
        Admission::Admitted(Some(source))
    }

    /// Counts the end of an admitted connection. `source` is the value of [`Admission::Admitted`].
    pub fn release(&mut self, at: ListenerId, source: Option<PeerSource>) {
        let counted = &mut self.listener(at).counted;
        counted.present = counted.present.saturating_sub(1);
        if let Some(source) = source
            && let Some(counted) = self.addresses.get_mut(&(at, source))
        {
            counted.present = counted.present.saturating_sub(1);
        }
    }

    fn refuse(&mut self, now: MonotonicMs, at: ListenerId, refusal: Refusal) -> Admission {
        let answers = &mut self.listener(at).answers;
        if answers.blocked_until(now, ANSWERS_PER_S).is_some() {
            return Admission::ClosedAtOnce(refusal);
        }
        answers.charge(now, 1, ANSWERS_PER_S);
        Admission::RefusedAfterConnect(refusal)
    }

    fn listener(&mut self, at: ListenerId) -> &mut ListenerAdmission {
        let at = usize::from(at.0);
        if self.listeners.len() <= at {
            self.listeners.resize(at + 1, ListenerAdmission::default());
        }
        &mut self.listeners[at]
    }

    fn sweep(&mut self, now: MonotonicMs) {
        if self.addresses.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.addresses.retain(|_, counted| counted.present > 0 || !counted.pace.is_empty(now));
        self.addresses.shrink_to_fit();
        self.sweep_at = 2 * self.addresses.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerAddress;

    const AT: ListenerId = ListenerId(0);

    fn from(text: &str) -> Option<PeerSource> {
        let address: std::net::IpAddr = text.parse().unwrap();
        Some(PeerAddress::Network((address, 1).into()).into())
    }

    #[test]
    fn a_crowd_of_addresses_that_has_gone_leaves_nothing_behind() {
        let options = BrokerOptions { address_connections_per_s: 1, ..BrokerOptions::default() };
        let mut arrivals = AdmissionControl::new(1);
        for at in 0..2 * SWEEP_MIN as u64 {
            let source = PeerSource::Network(u128::from(at).to_be_bytes().into());
            // Enough arrivals that the first sources are idle again when the last sources arrive.
            let Admission::Admitted(counted) =
                arrivals.admit_connection(MonotonicMs(at), AT, Some(source), &options)
            else {
                panic!("it is the first of its address");
            };
            arrivals.release(AT, counted);
        }
        assert!(arrivals.addresses.len() <= SWEEP_MIN, "{}", arrivals.addresses.len());
    }

    #[test]
    fn limits_that_come_later_do_not_miscount_who_is_in_already() {
        let mut arrivals = AdmissionControl::new(1);
        let before = BrokerOptions { connections_max: 9, ..BrokerOptions::default() };
        let after = BrokerOptions { address_connections_max: 1, ..BrokerOptions::default() };
        let one = from("192.0.2.1");
        let early = arrivals.admit_connection(MonotonicMs(0), AT, one, &before);
        assert_eq!(early, Admission::Admitted(None));
        assert_eq!(
            arrivals.admit_connection(MonotonicMs(0), AT, one, &after),
            Admission::Admitted(one)
        );
        arrivals.release(AT, None);
        let refused = Admission::RefusedAfterConnect(Refusal::QuotaExceeded);
        assert_eq!(arrivals.admit_connection(MonotonicMs(0), AT, one, &after), refused);
        arrivals.release(AT, one);
        assert_eq!(
            arrivals.admit_connection(MonotonicMs(0), AT, one, &after),
            Admission::Admitted(one)
        );
    }

    #[test]
    fn a_flood_above_the_limit_is_answered_only_so_often() {
        let options = BrokerOptions { connections_max: 1, ..BrokerOptions::default() };
        let mut arrivals = AdmissionControl::new(1);
        let mut told = 0;
        for at in 0..1000 {
            let entry = arrivals.admit_connection(MonotonicMs(at), AT, from("192.0.2.1"), &options);
            told += usize::from(matches!(entry, Admission::RefusedAfterConnect(_)));
        }
        assert!((ANSWERS_PER_S as usize..=2 * ANSWERS_PER_S as usize).contains(&told), "{told}");
    }

    #[test]
    fn each_listener_counts_for_itself() {
        let own = BrokerOptions { connections_max: 1, ..BrokerOptions::default() };
        let listeners = vec![None, Some(own.into())];
        let options = BrokerOptions { listeners, ..BrokerOptions::default() };
        assert!(!options.limits_connections(AT) && options.limits_connections(ListenerId(1)));
        let mut arrivals = AdmissionControl::new(1);
        let mut knock =
            |at| arrivals.admit_connection(MonotonicMs(0), ListenerId(at), None, &options);
        assert_eq!([knock(0), knock(0), knock(1)], [Admission::Admitted(None); 3]);
        assert_eq!(knock(1), Admission::RefusedAfterConnect(Refusal::QuotaExceeded));
    }
}
