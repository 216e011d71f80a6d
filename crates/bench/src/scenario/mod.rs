//! Scenarios: named tests in TOML that users can copy and change.

mod built_in;
mod parser;

pub(crate) use built_in::BUILT_IN;
pub(crate) use parser::read;

use crate::limits::{
    CLIENTS_MAX, DRAIN_S_DEFAULT, INFLIGHT_DEFAULT, PUBLISHER_PER_S_MAX, WINDOW_DEFAULT,
};
use crate::plan::{
    BrokerTarget, LoadPlan, PayloadKind, PlanGroup, PlanShare, PublishPace, PublishPlan, StartMode,
};
use mqtt::{ProtocolVersion, QoS};

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) title: String,
    /// Source of the scenario, and the result reported there.
    pub(crate) source: String,
    pub(crate) reported: String,
    pub(crate) connects_per_s: f64,
    pub(crate) warm_s: f64,
    pub(crate) measure_s: f64,
    pub(crate) drain_s: f64,
    /// Whether latency counts from the actual sending and not from the due time, as in testers
    /// without a schedule; see `LoadPlan::from_sending`.
    pub(crate) from_sending: bool,
    pub(crate) threads: usize,
    pub(crate) window: u64,
    pub(crate) groups: Vec<ScenarioGroup>,
}

/// A group of a scenario, before scaling.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioGroup {
    pub(crate) name: String,
    pub(crate) clients: u64,
    pub(crate) topics: u64,
    pub(crate) target: Option<usize>,
    pub(crate) client_id: Option<String>,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) version: ProtocolVersion,
    pub(crate) keep_alive_s: u16,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry_s: u32,
    pub(crate) subscribe: Vec<String>,
    pub(crate) publish: Option<String>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) size: usize,
    pub(crate) payload: Option<String>,
    /// Messages per second of one publisher.
    pub(crate) per_s: Option<f64>,
    /// `PublishPace::AsTaken`, a closed loop, instead of `per_s`.
    pub(crate) as_taken: bool,
    pub(crate) inflight: u16,
    pub(crate) messages: Option<u64>,
    pub(crate) reconnects: u32,
}

/// Changes to a scenario by the command line.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioOverrides {
    pub(crate) scale: f64,
    pub(crate) rate: f64,
    pub(crate) measure_s: Option<f64>,
    pub(crate) warm_s: Option<f64>,
    pub(crate) connects_per_s: Option<f64>,
    pub(crate) threads: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) share: PlanShare,
}

impl Default for ScenarioOverrides {
    fn default() -> ScenarioOverrides {
        ScenarioOverrides {
            scale: 1.0,
            rate: 1.0,
            measure_s: None,
            warm_s: None,
            connects_per_s: None,
            threads: None,
            seed: 1,
            share: LoadPlan::default().share,
        }
    }
}

impl Scenario {
    /// Returns the plan, and a description of the scaled parts.
    pub(crate) fn plan(
        &self,
        targets: Vec<BrokerTarget>,
        change: &ScenarioOverrides,
    ) -> Result<(LoadPlan, String), String> {
        let brokers = self.broker_count();
        if brokers > targets.len() {
            return Err(format!("this scenario needs {brokers} brokers: give --target that often"));
        }
        let rates = self.groups.iter().filter_map(|task| task.per_s);
        let fastest = rates.fold(0.0, f64::max) * change.rate;
        if fastest > PUBLISHER_PER_S_MAX {
            return Err(format!(
                "a publisher would send {fastest:.0} messages a second, \
                 {PUBLISHER_PER_S_MAX:.0} are the most: as_taken = true is as fast as it goes"
            ));
        }
        let groups: Vec<PlanGroup> =
            self.groups.iter().map(|task| task.plan_group(change)).collect();
        let clients = groups.iter().fold(0, |sum: u64, group| sum.saturating_add(group.clients));
        if clients > CLIENTS_MAX {
            return Err(format!(
                "there would be {clients} clients, {CLIENTS_MAX} are the most: use a smaller scale"
            ));
        }
        let plan = LoadPlan {
            targets,
            groups,
            threads: change.threads.unwrap_or(self.threads).max(1),
            connects_per_s: change.connects_per_s.unwrap_or(self.connects_per_s),
            local_addresses: Vec::new(),
            start: StartMode::Together,
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

    /// Returns the number of brokers that the scenario needs: the highest `target`, counted from 1.
    pub(crate) fn broker_count(&self) -> usize {
        self.groups.iter().filter_map(|task| task.target).max().map_or(1, |highest| highest + 1)
    }

    /// Returns the messages per second intended by all publishers together, after `change`.
    pub(crate) fn intended_per_s(&self, change: &ScenarioOverrides) -> f64 {
        let publishers = self.groups.iter().filter(|task| task.publish.is_some());
        let of = |task: &ScenarioGroup| {
            task.per_s.unwrap_or(0.0) * change.rate * task.plan_group(change).clients as f64
        };
        publishers.map(of).sum()
    }

    fn scaled(&self, plan: &LoadPlan, change: &ScenarioOverrides) -> String {
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

impl ScenarioGroup {
    fn plan_group(&self, change: &ScenarioOverrides) -> PlanGroup {
        let scale = |n: u64| ((n as f64 * change.scale).round() as u64).max(1);
        let client_id = match &self.client_id {
            Some(client_id) => client_id.clone(),
            None => format!("gb-{:x}-{}-%i", change.seed & 0xFF_FFFF, self.name),
        };
        let publish = self.publish.as_ref().map(|topic| PublishPlan {
            topic: topic.clone(),
            qos: self.qos,
            retain: self.retain,
            body: match &self.payload {
                Some(text) => PayloadKind::Literal(text.clone().into_bytes()),
                None => PayloadKind::Sized(self.size),
            },
            pace: match self.per_s {
                Some(per_s) if !self.as_taken => {
                    PublishPace::EveryNs((1e9 / (per_s * change.rate)) as u64)
                }
                _ => PublishPace::AsTaken,
            },
            inflight: self.inflight,
            messages_max: self.messages,
            wait_ms: (0, 0),
        });
        PlanGroup {
            clients: scale(self.clients),
            // Groups with a topic per client keep a topic per client; groups with few topics keep
            // their number.
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
            ..PlanGroup::default()
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

impl Default for ScenarioGroup {
    fn default() -> ScenarioGroup {
        ScenarioGroup {
            name: "clients".into(),
            clients: 0,
            topics: 1,
            target: None,
            client_id: None,
            user_name: None,
            password: None,
            version: ProtocolVersion::V311,
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
    use crate::plan::ConsumerIndex;
    use crate::target::from_url;
    use crate::template::{self, BenchRng, TemplateValues};

    fn plan(name: &str, change: &ScenarioOverrides) -> (LoadPlan, String) {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).expect("it is built in").1;
        let target = from_url("127.0.0.1").expect("an address");
        let scenario = read(text).expect("it is right");
        scenario.plan(vec![target.clone(), target], change).expect("two brokers are enough")
    }

    #[test]
    fn every_built_in_scenario_can_be_planned_at_any_scale() {
        for (name, _) in BUILT_IN {
            for scale in [1.0, 0.1, 0.000_1] {
                let (plan, _) =
                    plan(name, &ScenarioOverrides { scale, ..ScenarioOverrides::default() });
                assert!(plan.clients() > 0 && plan.measure_s > Some(1.0), "{name}");
            }
        }
    }

    #[test]
    fn a_scale_changes_clients_and_says_so() {
        let change =
            ScenarioOverrides { scale: 0.1, measure_s: Some(20.0), ..ScenarioOverrides::default() };
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
        let (plan, _) = plan(
            "fanout-5-1000-5-250k",
            &ScenarioOverrides { rate: 0.5, ..ScenarioOverrides::default() },
        );
        let publish = plan.groups[1].publish.as_ref().expect("the second group publishes");
        assert_eq!(publish.pace, PublishPace::EveryNs(40_000_000));
    }

    #[test]
    fn a_rate_that_nobody_can_schedule_is_refused() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "nano-2c4g-q0").expect("built in").1;
        let target = from_url("127.0.0.1").expect("an address");
        let scenario = read(text).expect("it is right");
        let plan = |rate| {
            let change = ScenarioOverrides { rate, ..ScenarioOverrides::default() };
            scenario.plan(vec![target.clone()], &change).map(drop)
        };
        assert_eq!(plan(5_000.0), Ok(()));
        assert!(plan(5_001.0).expect_err("above a million").contains("1000200 messages a second"));
    }

    /// Figures from the source of each scenario: clients, messages in and deliveries out per
    /// second.
    #[test]
    fn built_in_scenarios_are_the_load_that_their_sources_tell_of() {
        for (name, clients, per_s_in, per_s_out) in [
            ("conn-tcp-10k-100", 10_000, 0.0, 0.0),
            ("conn-tcp-1m-5k", 1_000_000, 0.0, 0.0),
            ("fanout-1-1k-1-1k", 1_001, 1.0, 1_000.0),
            ("fanout-5-1000-5-250k", 1_005, 250.0, 250_000.0),
            ("p2p-1k-1k-1k-1k", 2_000, 1_000.0, 1_000.0),
            ("p2p-50k-50k-50k-50k", 100_000, 50_000.0, 50_000.0),
            ("sharedsub-1k-5-1k-1k", 1_005, 1_000.0, 1_000.0),
            ("sharedsub-50k-500-50k-50k", 50_500, 50_000.0, 50_000.0),
            ("nano-a53-q0", 510, 10.0 / 0.075, 500.0 * 10.0 / 0.075),
            ("nano-a72-q2", 510, 10.0 / 0.14, 500.0 * 10.0 / 0.14),
            ("nano-2c4g-q0", 255, 1_000.0, 250_000.0),
            ("nano-4c8g-q0", 510, 10.0 / 0.014, 500.0 * 10.0 / 0.014),
            ("nano-4c8g-q1", 520, 20.0 / 0.044, 500.0 * 20.0 / 0.044),
            ("nano-4c8g-q2", 520, 20.0 / 0.046, 500.0 * 20.0 / 0.046),
            ("nano-16c32g-q0", 1_020, 20.0 / 0.026, 1_000.0 * 20.0 / 0.026),
            ("nano-1to1-1c", 60_000, 30_000.0, 30_000.0),
            ("nano-1to1-8c", 160_000, 80_000.0, 80_000.0),
            ("nano-500k", 520, 1_000.0, 500_000.0),
            ("nano-200k", 510, 400.0, 200_000.0),
            ("nano-1m-q0", 510, 2_000.0, 1_000_000.0),
            ("nano-14k", 28_000, 14_000.0, 14_000.0),
            ("emqx-symmetric-q0", 2_000, 30_000.0, 30_000.0),
            ("emqx-symmetric-q1", 2_000, 20_000.0, 20_000.0),
            ("emqx-symmetric-q2", 2_000, 10_000.0, 10_000.0),
            ("emqx-payload-8k", 2_000, 20_000.0, 20_000.0),
            ("emqx-fanin", 2_100, 15_000.0, 15_000.0),
            ("emqx-fanout", 2_010, 250.0, 50_000.0),
            ("emqx-bridge", 2_000, 15_000.0, 15_000.0),
            ("emqx-10m-broadcast-q0", 10_001_050, 5_000.0, 1_000_000.0),
            ("emqx-10m-broadcast-q1", 10_001_050, 2_500.0, 500_000.0),
            ("emqx-10m-1to1-q0", 10_050_000, 500_000.0, 500_000.0),
            ("emqx-10m-1to1-q1", 10_050_000, 250_000.0, 250_000.0),
        ] {
            let text = BUILT_IN.iter().find(|(known, _)| *known == name).expect("built in").1;
            let scenario = read(text).expect("it is right");
            let (plan, _) = plan(name, &ScenarioOverrides::default());
            let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.max(1.0);
            let intended = scenario.intended_per_s(&ScenarioOverrides::default());
            assert_eq!(plan.clients(), clients, "{name}");
            assert!(close(intended, per_s_in), "{name}: {intended} in");
            let delivered = delivered_per_s(&scenario, &plan);
            assert!(close(delivered, per_s_out), "{name}: {delivered} out");
        }
    }

    /// Returns the expected deliveries per second of a plan. The group `background` of ten million
    /// clients is skipped, since its topics are never published.
    fn delivered_per_s(scenario: &Scenario, plan: &LoadPlan) -> f64 {
        let mut rng = BenchRng::new(1);
        let mut wanted = ConsumerIndex::default();
        let (mut topics, mut delivered) = (Vec::new(), 0.0);
        for (task, group) in scenario.groups.iter().zip(&plan.groups) {
            for number in 0..group.clients {
                if task.name == "background" {
                    break;
                }
                let (client_id, filters) = group.client_names(number, &mut rng);
                filters.iter().for_each(|filter| wanted.add(filter, 1));
                if let Some(topic) = &task.publish {
                    let who = TemplateValues {
                        number,
                        topics: group.topics,
                        client_id: &client_id,
                        ..TemplateValues::default()
                    };
                    let topic = template::fill_template(topic, &who, &mut rng);
                    topics.push((topic, task.per_s.expect("an open loop")));
                }
            }
        }
        topics
            .iter()
            .for_each(|(topic, per_s)| delivered += per_s * wanted.consumers_of(topic) as f64);
        delivered
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
        let twice = "[[group]]\nclients = 1\n[[group]]\nclients = 2\n";
        let why = read(twice).expect_err("they would have the same ids");
        assert!(why[0].starts_with("two groups are named clients, and would have"), "{why:?}");
        for apart in ["name = \"b\"", "client_id = \"b%i\""] {
            assert!(read(&twice.replace("clients = 2", &format!("clients = 2\n{apart}"))).is_ok());
        }
        let large = "[[group]]\nclients = 1\nsize = 999999999999\n";
        assert!(read(large).expect_err("too large")[0].starts_with("line 3: size: MQTT takes"));
        assert!(read("x = ").expect_err("not TOML")[0].starts_with("line 1: not TOML"));
        for (key, says) in [
            ("publish = \"a/#\"\nper_s = 1", "line 3: publish: \"a/#\" has a wildcard"),
            ("subscribe = [\"a/#/b\"]", "line 3: subscribe: \"a/#/b\" has a # that"),
            ("clients = 10000000000", "use at most 1000000000"),
        ] {
            let text = format!("[[group]]\nname = \"x\"\n{key}\n");
            let wrongs = read(&text).expect_err("it is wrong");
            assert!(wrongs.iter().any(|wrong| wrong.contains(says)), "{wrongs:?}");
        }
    }

    #[test]
    fn a_scenario_of_two_brokers_needs_two() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "emqx-bridge").expect("built in").1;
        let target = from_url("127.0.0.1").expect("an address");
        let scenario = read(text).expect("it is right");
        assert!(scenario.plan(vec![target], &ScenarioOverrides::default()).is_err());
    }
}
