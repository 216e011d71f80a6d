//! Counters, latencies and failures of a load thread: handed over once a second, merged without
//! loss.

use hdrhistogram::Histogram;
use mqtt::{ReasonCode, Violation};
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// Counters and latencies since the last hand-over.
#[derive(Clone, Debug)]
pub(crate) struct LoadStats {
    pub(crate) counts: [u64; COUNTS.len()],
    pub(crate) times: [Histogram<u64>; SAMPLERS.len()],
    pub(crate) failures: BTreeMap<LoadFailure, u64>,
    /// Processor time of the thread, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadCounter {
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

/// Names of the counters, as emqtt_bench prints and exports the counters that both have.
pub(crate) const COUNTS: &[(LoadCounter, &str)] = &[
    (LoadCounter::ConnectSucc, "connect_succ"),
    (LoadCounter::ConnectFail, "connect_fail"),
    (LoadCounter::ConnectRetried, "connect_retried"),
    (LoadCounter::ReconnectSucc, "reconnect_succ"),
    (LoadCounter::Lost, "connection_lost"),
    (LoadCounter::Sub, "sub"),
    (LoadCounter::SubFail, "sub_fail"),
    (LoadCounter::Pub, "pub"),
    (LoadCounter::PubSucc, "pub_succ"),
    (LoadCounter::PubFail, "pub_fail"),
    (LoadCounter::PubNoSub, "pub_nosub"),
    (LoadCounter::PubOverrun, "pub_overrun"),
    (LoadCounter::PubMissed, "pub_missed"),
    (LoadCounter::PubUnanswered, "pub_unanswered"),
    (LoadCounter::Recv, "recv"),
    (LoadCounter::RecvForeign, "recv_foreign"),
    (LoadCounter::BytesIn, "bytes_in"),
    (LoadCounter::BytesOut, "bytes_out"),
    (LoadCounter::PayloadIn, "payload_bytes_in"),
    (LoadCounter::PayloadOut, "payload_bytes_out"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencySampler {
    /// Time from the first TCP packet to CONNACK.
    Connect,
    /// Time from SUBSCRIBE to SUBACK.
    Subscribe,
    /// Time from the intended time of a message to its write (QoS 0), PUBACK (QoS 1) or PUBCOMP
    /// (QoS 2).
    Pub,
    /// Time from the intended time of a message to its arrival at a consumer.
    Sub,
    /// Time from the loss of a connection to the next CONNACK, or to SUBACK for a client with
    /// `subscribe`.
    Reconnect,
    /// Time from the intended time of a message to its sending: the tester's part of `Pub` and
    /// `Sub`.
    Lateness,
}

pub(crate) const SAMPLERS: &[(LatencySampler, &str)] = &[
    (LatencySampler::Connect, "Connect"),
    (LatencySampler::Subscribe, "Subscribe"),
    (LatencySampler::Pub, "Pub"),
    (LatencySampler::Sub, "Sub"),
    (LatencySampler::Reconnect, "Reconnect"),
    (LatencySampler::Lateness, "Lateness"),
];

impl LoadStats {
    pub(crate) fn new() -> LoadStats {
        LoadStats {
            counts: [0; COUNTS.len()],
            times: std::array::from_fn(|_| histogram()),
            failures: BTreeMap::new(),
            cpu_ns: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, count: LoadCounter, n: u64) {
        self.counts[count as usize] += n;
    }

    pub(crate) fn count(&self, count: LoadCounter) -> u64 {
        self.counts[count as usize]
    }

    #[inline]
    pub(crate) fn record(&mut self, sampler: LatencySampler, us: u64) {
        self.record_many(sampler, us, 1);
    }

    #[inline]
    pub(crate) fn record_many(&mut self, sampler: LatencySampler, us: u64, times: u64) {
        let histogram = &mut self.times[sampler as usize];
        histogram.record_n(us, times).expect("a histogram that resizes takes any value");
    }

    pub(crate) fn times(&self, sampler: LatencySampler) -> &Histogram<u64> {
        &self.times[sampler as usize]
    }

    pub(crate) fn record_failure(&mut self, failure: LoadFailure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &LoadStats) {
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

/// Returns an auto-resizing histogram of microseconds with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

/// Reason of a failed connection attempt, a refused request or a lost connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadFailure {
    ConnAck(u8),
    ConnectTimedOut,
    Closed,
    Disconnected(u8),
    /// A failure reported by an agent, as text.
    FromAgent(String),
    /// A failure of TLS, WebSocket or QUIC, as text of that layer.
    Carrier(String),
    Io(io::ErrorKind),
    NoPong,
    NoDescriptor,
    NoLocalPort,
    PubAck(u8),
    SubAck(u8),
    Violation(String),
}

impl LoadFailure {
    pub(crate) fn from_io(error: &io::Error) -> LoadFailure {
        match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::MFILE.raw_os_error() => {
                LoadFailure::NoDescriptor
            }
            Some(code) if code == rustix::io::Errno::NFILE.raw_os_error() => {
                LoadFailure::NoDescriptor
            }
            Some(code) if code == rustix::io::Errno::ADDRNOTAVAIL.raw_os_error() => {
                LoadFailure::NoLocalPort
            }
            _ if error.kind() == io::ErrorKind::UnexpectedEof => LoadFailure::Closed,
            _ if error.get_ref().is_some() => LoadFailure::Carrier(error.to_string()),
            _ => LoadFailure::Io(error.kind()),
        }
    }
}

impl LoadFailure {
    /// Returns the sampler name of the failed request; `None` if an established connection ended.
    pub(crate) fn request(&self) -> Option<&'static str> {
        match self {
            LoadFailure::PubAck(_) => Some("Pub"),
            LoadFailure::SubAck(_) => Some("Subscribe"),
            LoadFailure::ConnAck(_)
            | LoadFailure::ConnectTimedOut
            | LoadFailure::NoDescriptor
            | LoadFailure::NoLocalPort => Some("Connect"),
            LoadFailure::Io(io::ErrorKind::ConnectionRefused) => Some("Connect"),
            _ => None,
        }
    }
}

impl From<Violation> for LoadFailure {
    fn from(violation: Violation) -> LoadFailure {
        LoadFailure::Violation(format!("{violation:?}"))
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadFailure::ConnAck(code) => write!(f, "CONNACK {}", ReasonCodeText(*code)),
            LoadFailure::ConnectTimedOut => write!(f, "connection_timeout"),
            LoadFailure::Closed => write!(f, "closed by the broker"),
            LoadFailure::Disconnected(code) => write!(f, "DISCONNECT {}", ReasonCodeText(*code)),
            LoadFailure::Carrier(what) | LoadFailure::FromAgent(what) => write!(f, "{what}"),
            LoadFailure::Io(io::ErrorKind::ConnectionRefused) => write!(f, "connection_refused"),
            LoadFailure::Io(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                write!(f, "unreachable")
            }
            LoadFailure::Io(io::ErrorKind::TimedOut) => write!(f, "connection_timeout (TCP)"),
            LoadFailure::Io(kind) => write!(f, "{kind}"),
            LoadFailure::NoPong => write!(f, "connection_idle: no PINGRESP"),
            LoadFailure::NoDescriptor => write!(f, "no file descriptor left here"),
            LoadFailure::NoLocalPort => write!(f, "no local port left here"),
            LoadFailure::PubAck(code) => write!(f, "PUBACK or PUBREC {}", ReasonCodeText(*code)),
            LoadFailure::SubAck(code) => write!(f, "SUBACK {}", ReasonCodeText(*code)),
            LoadFailure::Violation(what) => write!(f, "the broker broke the protocol: {what}"),
        }
    }
}

/// A reason code, displayed with its name if the code is known.
struct ReasonCodeText(u8);

impl fmt::Display for ReasonCodeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X}", self.0)?;
        ReasonCode::from_byte(self.0).map_or(Ok(()), |reason| write!(f, " {}", reason.name()))
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
        let (mut a, mut b) = (LoadStats::new(), LoadStats::new());
        a.add(LoadCounter::Recv, 2);
        b.add(LoadCounter::Recv, 3);
        a.record(LatencySampler::Sub, 10);
        b.record(LatencySampler::Sub, 70_000_000_000);
        b.record_failure(LoadFailure::ConnAck(0x87));
        a.merge(&b);
        a.merge(&b);
        assert_eq!(a.count(LoadCounter::Recv), 8);
        assert_eq!(a.times(LatencySampler::Sub).len(), 3);
        assert!(a.times(LatencySampler::Sub).max() >= 70_000_000_000);
        let failure = a.failures.iter().next().expect("one");
        assert_eq!(
            (failure.0.to_string().as_str(), *failure.1),
            ("CONNACK 0x87 Not authorized", 2)
        );
    }
}
