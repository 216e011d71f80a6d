//! What a load thread counts and times, and what goes wrong: handed over once a second, merged
//! without loss.

use hdrhistogram::Histogram;
use mqtt::{Reason, Violation};
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// Everything since the last hand-over.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) counts: [u64; COUNTS.len()],
    pub(crate) times: [Histogram<u64>; SAMPLERS.len()],
    pub(crate) failures: BTreeMap<Failure, u64>,
    /// Processor time of the thread.
    pub(crate) cpu_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    ConnectSucc,
    ConnectFail,
    ConnectRetried,
    ReconnectSucc,
    Lost,
    Sub,
    SubFail,
    Pub,
    PubSucc,
    PubFail,
    PubNoSub,
    PubOverrun,
    PubMissed,
    PubUnanswered,
    Recv,
    RecvForeign,
    BytesIn,
    BytesOut,
    PayloadIn,
    PayloadOut,
}

/// Names as emqtt_bench prints and exports them where it has the counter.
pub(crate) const COUNTS: &[(Count, &str)] = &[
    (Count::ConnectSucc, "connect_succ"),
    (Count::ConnectFail, "connect_fail"),
    (Count::ConnectRetried, "connect_retried"),
    (Count::ReconnectSucc, "reconnect_succ"),
    (Count::Lost, "connection_lost"),
    (Count::Sub, "sub"),
    (Count::SubFail, "sub_fail"),
    (Count::Pub, "pub"),
    (Count::PubSucc, "pub_succ"),
    (Count::PubFail, "pub_fail"),
    (Count::PubNoSub, "pub_nosub"),
    (Count::PubOverrun, "pub_overrun"),
    (Count::PubMissed, "pub_missed"),
    (Count::PubUnanswered, "pub_unanswered"),
    (Count::Recv, "recv"),
    (Count::RecvForeign, "recv_foreign"),
    (Count::BytesIn, "bytes_in"),
    (Count::BytesOut, "bytes_out"),
    (Count::PayloadIn, "payload_bytes_in"),
    (Count::PayloadOut, "payload_bytes_out"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampler {
    /// First packet of TCP to CONNACK.
    Connect,
    /// SUBSCRIBE to SUBACK.
    Subscribe,
    /// Intended time to write (QoS 0), PUBACK (1) or PUBCOMP (2).
    Pub,
    /// Intended time of publishing to arrival.
    Sub,
    /// Loss of a connection to its CONNACK, or SUBACK where it subscribes.
    Reconnect,
    /// Intended time to our own sending: the tester's part of the latency.
    Lateness,
}

pub(crate) const SAMPLERS: &[(Sampler, &str)] = &[
    (Sampler::Connect, "Connect"),
    (Sampler::Subscribe, "Subscribe"),
    (Sampler::Pub, "Pub"),
    (Sampler::Sub, "Sub"),
    (Sampler::Reconnect, "Reconnect"),
    (Sampler::Lateness, "Lateness"),
];

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            counts: [0; COUNTS.len()],
            times: std::array::from_fn(|_| histogram()),
            failures: BTreeMap::new(),
            cpu_ns: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, count: Count, n: u64) {
        self.counts[count as usize] += n;
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    #[inline]
    pub(crate) fn record(&mut self, sampler: Sampler, us: u64) {
        self.record_many(sampler, us, 1);
    }

    #[inline]
    pub(crate) fn record_many(&mut self, sampler: Sampler, us: u64, times: u64) {
        let histogram = &mut self.times[sampler as usize];
        histogram.record_n(us, times).expect("a histogram that resizes takes any value");
    }

    pub(crate) fn times(&self, sampler: Sampler) -> &Histogram<u64> {
        &self.times[sampler as usize]
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        for (sum, n) in self.counts.iter_mut().zip(other.counts) {
            *sum += n;
        }
        for (sum, times) in self.times.iter_mut().zip(&other.times) {
            if !times.is_empty() {
                sum.add(times).expect("histograms that resize take each other");
            }
        }
        for (failure, n) in &other.failures {
            *self.failures.entry(failure.clone()).or_default() += n;
        }
        self.cpu_ns += other.cpu_ns;
    }
}

/// Microseconds with three digits; it grows to hold any.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

/// Why a connection was not made, a request was refused, or a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    ConnAck(u8),
    ConnectTimedOut,
    Closed,
    Disconnected(u8),
    /// As an agent put it.
    Elsewhere(String),
    /// TLS, WebSocket or QUIC: in its own words.
    Carrier(String),
    Io(io::ErrorKind),
    NoPong,
    NoDescriptor,
    NoLocalPort,
    PubAck(u8),
    SubAck(u8),
    Violation(String),
}

impl Failure {
    pub(crate) fn of(error: &io::Error) -> Failure {
        match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::MFILE.raw_os_error() => Failure::NoDescriptor,
            Some(code) if code == rustix::io::Errno::NFILE.raw_os_error() => Failure::NoDescriptor,
            Some(code) if code == rustix::io::Errno::ADDRNOTAVAIL.raw_os_error() => {
                Failure::NoLocalPort
            }
            _ if error.kind() == io::ErrorKind::UnexpectedEof => Failure::Closed,
            _ if error.get_ref().is_some() => Failure::Carrier(error.to_string()),
            _ => Failure::Io(error.kind()),
        }
    }
}

impl Failure {
    /// The kind of request that failed, by the name of its sampler; `None` where a connection that
    /// was made before ended.
    pub(crate) fn request(&self) -> Option<&'static str> {
        match self {
            Failure::PubAck(_) => Some("Pub"),
            Failure::SubAck(_) => Some("Subscribe"),
            Failure::ConnAck(_)
            | Failure::ConnectTimedOut
            | Failure::NoDescriptor
            | Failure::NoLocalPort => Some("Connect"),
            Failure::Io(io::ErrorKind::ConnectionRefused) => Some("Connect"),
            _ => None,
        }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Failure {
        Failure::Violation(format!("{violation:?}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::ConnAck(code) => write!(f, "CONNACK {}", Code(*code)),
            Failure::ConnectTimedOut => write!(f, "connection_timeout"),
            Failure::Closed => write!(f, "closed by the broker"),
            Failure::Disconnected(code) => write!(f, "DISCONNECT {}", Code(*code)),
            Failure::Carrier(what) | Failure::Elsewhere(what) => write!(f, "{what}"),
            Failure::Io(io::ErrorKind::ConnectionRefused) => write!(f, "connection_refused"),
            Failure::Io(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                write!(f, "unreachable")
            }
            Failure::Io(io::ErrorKind::TimedOut) => write!(f, "connection_timeout (TCP)"),
            Failure::Io(kind) => write!(f, "{kind}"),
            Failure::NoPong => write!(f, "connection_idle: no PINGRESP"),
            Failure::NoDescriptor => write!(f, "no file descriptor left here"),
            Failure::NoLocalPort => write!(f, "no local port left here"),
            Failure::PubAck(code) => write!(f, "PUBACK or PUBREC {}", Code(*code)),
            Failure::SubAck(code) => write!(f, "SUBACK {}", Code(*code)),
            Failure::Violation(what) => write!(f, "the broker broke the protocol: {what}"),
        }
    }
}

/// A reason code with its name, as far as it has one.
struct Code(u8);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X}", self.0)?;
        Reason::from_byte(self.0).map_or(Ok(()), |reason| write!(f, " {}", reason.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stand_in_the_order_of_their_variants() {
        assert!(COUNTS.iter().enumerate().all(|(at, (count, _))| *count as usize == at));
        assert!(SAMPLERS.iter().enumerate().all(|(at, (sampler, _))| *sampler as usize == at));
    }

    #[test]
    fn merged_tallies_are_one_tally() {
        let (mut a, mut b) = (Tally::new(), Tally::new());
        a.add(Count::Recv, 2);
        b.add(Count::Recv, 3);
        a.record(Sampler::Sub, 10);
        b.record(Sampler::Sub, 70_000_000_000);
        b.fail(Failure::ConnAck(0x87));
        a.merge(&b);
        a.merge(&b);
        assert_eq!(a.count(Count::Recv), 8);
        assert_eq!(a.times(Sampler::Sub).len(), 3);
        assert!(a.times(Sampler::Sub).max() >= 70_000_000_000);
        let failure = a.failures.iter().next().expect("one");
        assert_eq!(
            (failure.0.to_string().as_str(), *failure.1),
            ("CONNACK 0x87 Not authorized", 2)
        );
    }
}
