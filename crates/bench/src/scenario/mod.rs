//! Scenarios: named tests in TOML that users can copy and change.

mod built_in;
mod read;

pub(crate) use built_in::BUILT_IN;
pub(crate) use read::read;

use crate::limits::{DRAIN_S_DEFAULT, INFLIGHT_DEFAULT, WINDOW_DEFAULT};
use crate::plan::{Body, Group, Pace, Plan, Publishing, Share, Start, Target};
use mqtt::{QoS, Version};

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) title: String,
    /// Where it comes from, and what was reported there.
    pub(crate) source: String,
    pub(crate) reported: String,
    pub(crate) connects_per_s: f64,
    pub(crate) warm_s: f64,
    pub(crate) measure_s: f64,
    pub(crate) drain_s: f64,
    /// Latency counts from the sending, as testers without a schedule have it.
    pub(crate) from_sending: bool,
    pub(crate) threads: usize,
    pub(crate) window: u64,
    pub(crate) groups: Vec<Task>,
}

/// One group of a scenario, before it is scaled.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) clients: u64,
    pub(crate) topics: u64,
    pub(crate) target: Option<usize>,
    pub(crate) client_id: Option<String>,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) version: Version,
    pub(crate) keep_alive_s: u16,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry_s: u32,
    pub(crate) subscribe: Vec<String>,
    pub(crate) publish: Option<String>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) size: usize,
    pub(crate) payload: Option<String>,
    /// Messages a second of one publisher.
    pub(crate) per_s: Option<f64>,
    /// Closed loop instead.
    pub(crate) as_taken: bool,
    pub(crate) inflight: u16,
    pub(crate) messages: Option<u64>,
    pub(crate) reconnects: u32,
}

/// What the command line changes about a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) scale: f64,
    pub(crate) rate: f64,
    pub(crate) measure_s: Option<f64>,
    pub(crate) warm_s: Option<f64>,
    pub(crate) connects_per_s: Option<f64>,
    pub(crate) threads: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) share: Share,
}

impl Default for Change {
    fn default() -> Change {
        Change {
            scale: 1.0,
            rate: 1.0,
            measure_s: None,
            warm_s: None,
            connects_per_s: None,
            threads: None,
            seed: 1,
            share: Plan::default().share,
        }
    }
}

impl Scenario {
    /// The plan, and in words what was scaled.
    pub(crate) fn plan(
        &self,
        targets: Vec<Target>,
        change: &Change,
    ) -> Result<(Plan, String), String> {
        let brokers = self.brokers();
        if brokers > targets.len() {
            return Err(format!("this scenario needs {brokers} brokers: give --target that often"));
        }
        let groups = self.groups.iter().map(|task| task.group(change)).collect();
        let plan = Plan {
            targets,
            groups,
            threads: change.threads.unwrap_or(self.threads).max(1),
            connects_per_s: change.connects_per_s.unwrap_or(self.connects_per_s),
            local: Vec::new(),
            start: Start::Together,
            warm_s: change.warm_s.unwrap_or(self.warm_s),
            measure_s: Some(change.measure_s.unwrap_or(self.measure_s)),
            drain_s: self.drain_s,
            from_sending: self.from_sending,
            window: self.window,
            seed: change.seed,
            share: change.share,
        };
        let scaled = self.scaled(&plan, change);
        Ok((plan, scaled))
    }

    /// How many it needs.
    pub(crate) fn brokers(&self) -> usize {
        self.groups.iter().filter_map(|task| task.target).max().map_or(1, |highest| highest + 1)
    }

    /// Messages a second that all publishers mean to send.
    pub(crate) fn intended_per_s(&self, change: &Change) -> f64 {
        let publishers = self.groups.iter().filter(|task| task.publish.is_some());
        let of = |task: &Task| {
            task.per_s.unwrap_or(0.0) * change.rate * task.group(change).clients as f64
        };
        publishers.map(of).sum()
    }

    fn scaled(&self, plan: &Plan, change: &Change) -> String {
        let mut scaled = Vec::new();
        for (task, group) in self.groups.iter().zip(&plan.groups) {
            if task.clients != group.clients {
                scaled.push(format!("{} {} instead of {}", task.name, group.clients, task.clients));
            }
        }
        if change.rate != 1.0 {
            scaled.push(format!("message rates times {}", change.rate));
        }
        if plan.connects_per_s != self.connects_per_s {
            let (now, before) = (plan.connects_per_s, self.connects_per_s);
            scaled.push(format!("{now} connections a second instead of {before}"));
        }
        if let Some(measured) = change.measure_s.filter(|measured| *measured != self.measure_s) {
            scaled.push(format!("measured {measured} s instead of {}", self.measure_s));
        }
        scaled.join("; ")
    }
}

impl Task {
    fn group(&self, change: &Change) -> Group {
        let scale = |n: u64| ((n as f64 * change.scale).round() as u64).max(1);
        let client_id = match &self.client_id {
            Some(client_id) => client_id.clone(),
            None => format!("gb-{:x}-{}-%i", change.seed & 0xFF_FFFF, self.name),
        };
        let publish = self.publish.as_ref().map(|topic| Publishing {
            topic: topic.clone(),
            qos: self.qos,
            retain: self.retain,
            body: match &self.payload {
                Some(text) => Body::Literal(text.clone().into_bytes()),
                None => Body::Sized(self.size),
            },
            pace: match self.per_s {
                Some(per_s) if !self.as_taken => {
                    Pace::EveryNs((1e9 / (per_s * change.rate)) as u64)
                }
                _ => Pace::AsTaken,
            },
            inflight: self.inflight,
            messages_max: self.messages,
            wait_ms: (0, 0),
        });
        Group {
            clients: scale(self.clients),
            // One topic a client stays one topic a client; a few topics for all stay a few.
            topics: if self.topics > 1 { scale(self.topics).min(self.topics) } else { 1 },
            target: self.target,
            client_id,
            user_name: self.user_name.clone(),
            password: self.password.clone(),
            version: self.version,
            keep_alive_s: self.keep_alive_s,
            clean_start: self.clean_start,
            session_expiry_s: self.session_expiry_s,
            subscribe: self.subscribe.clone(),
            subscribe_qos: self.qos,
            publish,
            reconnects: self.reconnects,
            ..Group::default()
        }
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            title: String::new(),
            source: String::new(),
            reported: String::new(),
            connects_per_s: 1_000.0,
            warm_s: 0.0,
            measure_s: 60.0,
            drain_s: DRAIN_S_DEFAULT,
            from_sending: false,
            threads: 1,
            window: WINDOW_DEFAULT,
            groups: Vec::new(),
        }
    }
}

impl Default for Task {
    fn default() -> Task {
        Task {
            name: "clients".into(),
            clients: 0,
            topics: 1,
            target: None,
            client_id: None,
            user_name: None,
            password: None,
            version: Version::V311,
            keep_alive_s: 300,
            clean_start: true,
            session_expiry_s: 0,
            subscribe: Vec::new(),
            publish: None,
            qos: QoS::AtMostOnce,
            retain: false,
            size: 16,
            payload: None,
            per_s: None,
            as_taken: false,
            inflight: INFLIGHT_DEFAULT,
            messages: None,
            reconnects: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::from_url;

    fn plan(name: &str, change: &Change) -> (Plan, String) {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).expect("it is built in").1;
        let target = from_url("127.0.0.1").expect("an address");
        let scenario = read(text).expect("it is right");
        scenario.plan(vec![target.clone(), target], change).expect("two brokers are enough")
    }

    #[test]
    fn every_built_in_scenario_can_be_planned_at_any_scale() {
        for (name, _) in BUILT_IN {
            for scale in [1.0, 0.1, 0.000_1] {
                let (plan, _) = plan(name, &Change { scale, ..Change::default() });
                assert!(plan.clients() > 0 && plan.measure_s > Some(1.0), "{name}");
            }
        }
    }

    #[test]
    fn a_scale_changes_clients_and_says_so() {
        let change = Change { scale: 0.1, measure_s: Some(20.0), ..Change::default() };
        let (plan, scaled) = plan("p2p-50k-50k-50k-50k", &change);
        assert_eq!((plan.clients(), plan.measure_s), (10_000, Some(20.0)));
        assert_eq!(
            scaled,
            "subscribers 5000 instead of 50000; publishers 5000 instead of 50000; \
             measured 20 s instead of 1800"
        );
    }

    #[test]
    fn a_rate_is_an_interval() {
        let (plan, _) = plan("fanout-5-1000-5-250k", &Change { rate: 0.5, ..Change::default() });
        let publish = plan.groups[1].publish.as_ref().expect("the second group publishes");
        assert_eq!(publish.pace, Pace::EveryNs(40_000_000));
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let text =
            "measure_s = -1\ntitel = \"x\"\n[[group]]\nclients = 1\nqos = 3\npublish = \"a\"\n";
        let wrongs = read(text).expect_err("it is wrong");
        let expected = [
            "line 1: measure_s: use a number from 0 on",
            "line 2: titel: no such key of a scenario",
            "line 5: qos: use 0, 1 or 2",
            "group clients: per_s, every_ms or as_taken says how fast it publishes",
        ];
        let mut sorted = wrongs.clone();
        sorted.sort_by_key(|wrong| !wrong.starts_with("line"));
        sorted[..3].sort();
        assert_eq!(sorted, expected);
        assert!(read("x = ").expect_err("not TOML")[0].starts_with("line 1: not TOML"));
    }

    #[test]
    fn a_scenario_of_two_brokers_needs_two() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "emqx-bridge").expect("built in").1;
        let target = from_url("127.0.0.1").expect("an address");
        let scenario = read(text).expect("it is right");
        assert!(scenario.plan(vec![target], &Change::default()).is_err());
    }
}
