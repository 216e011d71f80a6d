//! Keep-alive of a client: when PINGREQ is due, and when a server without an answer counts as lost.
//!
//! The caller supplies the clock. The type of an instant needs an order and the addition of a
//! [`Duration`].

use std::ops::Add;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct KeepAlive<I> {
    /// Keep-alive interval; zero disables keep-alive.
    interval: Duration,
    /// Longest wait for PINGRESP.
    answer_timeout: Duration,
    ping: Option<UnansweredPing<I>>,
}

#[derive(Clone, Copy, Debug)]
struct UnansweredPing<I> {
    sent_at: I,
    deadline: I,
}

/// Next step of keep-alive on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAliveStep {
    Wait,
    /// PINGREQ is due. The client sends PINGREQ and then calls [`KeepAlive::on_ping_sent`].
    Ping,
    /// The server did not answer PINGREQ within the answer timeout.
    Lost,
}

impl<I: Copy + Ord + Add<Duration, Output = I>> KeepAlive<I> {
    pub fn new(interval: Duration, answer_timeout: Duration) -> KeepAlive<I> {
        KeepAlive { interval, answer_timeout, ping: None }
    }

    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns when the next step is due, other than [`KeepAliveStep::Wait`], for a connection that
    /// is idle since `idle_since`. `None` if keep-alive is off and PINGREQ is not outstanding.
    pub fn due(&self, idle_since: I) -> Option<I> {
        match self.ping {
            Some(ping) => Some(ping.deadline),
            None => (!self.interval.is_zero()).then(|| idle_since + self.interval),
        }
    }

    /// Returns the next step. `idle_since` is the time of the last packet of the client, or an
    /// earlier time if the client also requires traffic from the server.
    pub fn step(&self, idle_since: I, now: I) -> KeepAliveStep {
        match self.due(idle_since) {
            Some(due) if now >= due => match self.ping {
                Some(_) => KeepAliveStep::Lost,
                None => KeepAliveStep::Ping, // [MQTT-3.1.2-20]
            },
            _ => KeepAliveStep::Wait,
        }
    }

    /// Records that PINGREQ was sent at `now`.
    pub fn on_ping_sent(&mut self, now: I) {
        self.ping = Some(UnansweredPing { sent_at: now, deadline: now + self.answer_timeout });
    }

    /// Records PINGRESP, or any packet that proves that the server is alive.
    pub fn on_answer(&mut self) {
        self.ping = None;
    }

    /// Returns when the outstanding PINGREQ was sent, if there is an outstanding PINGREQ.
    pub fn unanswered_since(&self) -> Option<I> {
        self.ping.map(|ping| ping.sent_at)
    }

    /// Extends the deadline of the outstanding PINGREQ to at least `until`.
    pub fn extend_deadline(&mut self, until: I) {
        if let Some(ping) = &mut self.ping {
            ping.deadline = ping.deadline.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_idle_client_pings_once_an_interval() {
        // [MQTT-3.1.2-20]
        let mut keep_alive = KeepAlive::new(s(10), s(10));
        assert_eq!(keep_alive.due(s(5)), Some(s(15)));
        assert_eq!(keep_alive.step(s(5), s(14)), KeepAliveStep::Wait);
        assert_eq!(keep_alive.step(s(5), s(15)), KeepAliveStep::Ping);
        // What was sent meanwhile counts as well.
        assert_eq!(keep_alive.step(s(6), s(15)), KeepAliveStep::Wait);
        keep_alive.on_ping_sent(s(16));
        keep_alive.on_answer();
        assert_eq!(keep_alive.unanswered_since(), None);
        assert_eq!(keep_alive.due(s(16)), Some(s(26)));
    }

    #[test]
    fn a_server_that_does_not_answer_is_gone() {
        let mut keep_alive = KeepAlive::new(s(10), s(3));
        keep_alive.on_ping_sent(s(10));
        assert_eq!(keep_alive.unanswered_since(), Some(s(10)));
        assert_eq!(keep_alive.due(s(10)), Some(s(13)));
        // Sending more does not answer it.
        assert_eq!(keep_alive.step(s(12), s(12)), KeepAliveStep::Wait);
        assert_eq!(keep_alive.step(s(13), s(13)), KeepAliveStep::Lost);
        keep_alive.extend_deadline(s(15));
        keep_alive.extend_deadline(s(11));
        assert_eq!(keep_alive.step(s(13), s(14)), KeepAliveStep::Wait);
        assert_eq!(keep_alive.step(s(13), s(15)), KeepAliveStep::Lost);
    }

    #[test]
    fn a_keep_alive_of_zero_is_none() {
        let mut keep_alive = KeepAlive::new(s(0), s(0));
        assert_eq!(keep_alive.due(s(5)), None);
        assert_eq!(keep_alive.step(s(5), s(500)), KeepAliveStep::Wait);
        keep_alive.extend_deadline(s(1));
        assert_eq!(keep_alive.step(s(5), s(500)), KeepAliveStep::Wait);
    }
}
