//! Reports grouped for a comparison: loads, the brokers tested with each load, and their rounds.

use super::{list, number, text};
use serde_json::Value;

/// All runs with the same load.
pub(crate) struct LoadGroup<'a> {
    /// The scenario's name, numbered if several loads use the same scenario.
    pub(crate) name: String,
    /// Description of the scenario.
    pub(crate) title: String,
    /// Description of the scaled parts of the scenario; empty without scaling.
    pub(crate) scaled: &'a str,
    pub(crate) kind: GroupKind,
    pub(crate) brokers: Vec<BrokerRuns<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKind {
    Brokers,
    /// Steps of a ramp, compared like brokers.
    Steps,
}

/// Runs of one broker with one load.
pub(crate) struct BrokerRuns<'a> {
    pub(crate) name: String,
    pub(crate) runs: Vec<&'a Value>,
}

impl BrokerRuns<'_> {
    /// Returns the median over the runs that have the figure; `None` if no run has the figure.
    pub(crate) fn median(&self, figure: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        median(self.sorted(figure))
    }

    /// Returns the minimum and maximum over the rounds; `None` if no round has the figure.
    pub(crate) fn range(&self, figure: impl Fn(&Value) -> Option<f64>) -> Option<(f64, f64)> {
        let all = self.sorted(figure);
        Some((*all.first()?, *all.last()?))
    }

    fn sorted(&self, figure: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
        let mut all: Vec<f64> = self.runs.iter().filter_map(|run| figure(run)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Returns the distinct faults of all rounds: two good rounds do not hide a bad round.
    pub(crate) fn faults(&self) -> Vec<String> {
        let faults = self.runs.iter().flat_map(|run| list(run, "/faults"));
        let mut all: Vec<String> = faults.filter_map(Value::as_str).map(String::from).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Returns the error of the first run that failed to start.
    pub(crate) fn error(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run["error"].as_str())
    }
}

/// Returns the median of sorted values; `None` for an empty list.
pub(crate) fn median(sorted: Vec<f64>) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Groups reports by load, in the order in which loads and brokers first occur.
pub(crate) fn group_by_load(reports: &[Value]) -> Vec<LoadGroup<'_>> {
    let mut groups: Vec<(LoadKey<'_>, LoadGroup<'_>)> = Vec::new();
    for report in reports {
        let key = load_key(report);
        let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            groups.push((key, new_group(report)));
            groups.len() - 1
        });
        let group = &mut groups[at].1;
        if group.title.is_empty() {
            group.title = title(report);
        }
        if group.scaled.is_empty() {
            group.scaled = text(report, "/scenario/scaled");
        }
        add_report(group, report);
    }
    let mut groups: Vec<LoadGroup<'_>> = groups.into_iter().map(|(_, group)| group).collect();
    number_duplicates(&mut groups);
    groups
}

/// Key of a load: scenario, task of a comparison, scaling, and whether the run is a step of a ramp.
type LoadKey<'a> = (&'a str, Option<u64>, &'a str, bool);

fn load_key(report: &Value) -> LoadKey<'_> {
    let (name, is_ramp) = (text(report, "/scenario/name"), report["ramp"].is_object());
    match report.pointer("/comparison/task").and_then(Value::as_u64) {
        Some(task) => (name, Some(task), "", is_ramp),
        // Steps of a ramp differ in their scaling, and the row of a failed broker has none.
        None if is_ramp || report["error"].is_string() => (name, None, "", is_ramp),
        None => (name, None, text(report, "/scenario/scaled"), is_ramp),
    }
}

fn new_group(report: &Value) -> LoadGroup<'_> {
    let kind = if report["ramp"].is_object() { GroupKind::Steps } else { GroupKind::Brokers };
    // Only the file name of a path.
    let name = match text(report, "/scenario/name") {
        path if path.ends_with(".toml") => path.rsplit('/').next().unwrap_or_default().to_string(),
        name => name.to_string(),
    };
    LoadGroup { name, title: String::new(), scaled: "", kind, brokers: Vec::new() }
}

fn title(report: &Value) -> String {
    let scenario = crate::scenario::read(text(report, "/scenario/text"));
    scenario.map(|scenario| scenario.title).unwrap_or_default()
}

/// Adds a report to `group`. A further round of a comparison joins the runs of its broker; any
/// other report with the same name becomes a separate entry, `NAME, run N`.
fn add_report<'a>(group: &mut LoadGroup<'a>, report: &'a Value) {
    let name = label(report);
    let known = group.brokers.iter().position(|broker| broker.name == name);
    match known {
        Some(at) if is_round(group.brokers[at].runs[0]) && is_round(report) => {
            group.brokers[at].runs.push(report);
        }
        known => {
            let is_of_name = |one: &&BrokerRuns<'_>| {
                one.name == name || one.name.starts_with(&format!("{name}, run "))
            };
            let before = group.brokers.iter().filter(is_of_name).count();
            let name = match known {
                Some(_) => format!("{name}, run {}", before + 1),
                None => name,
            };
            group.brokers.push(BrokerRuns { name, runs: vec![report] });
        }
    }
}

/// Whether a report is a round of a comparison. Old reports lack `comparison` and are recognized by
/// their command.
fn is_round(report: &Value) -> bool {
    report["comparison"].is_object()
        || report["error"].is_string()
        || text(report, "/command").split_whitespace().nth(1) == Some("compare")
}

fn label(report: &Value) -> String {
    if report["ramp"].is_object() {
        return format!("rate {}", round_to(number(report, "/ramp/rate"), 3));
    }
    let broker = text(report, "/target/broker");
    if !broker.is_empty() {
        return broker.to_string();
    }
    let urls = list(report, "/target/urls").iter().filter_map(Value::as_str);
    let urls = urls.collect::<Vec<_>>().join(", ");
    if urls.is_empty() { "the broker".into() } else { urls }
}

/// Formats with at most `digits` decimals, without trailing zeros.
pub(crate) fn round_to(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Numbers groups with equal names, such as a scenario at two scales.
fn number_duplicates(groups: &mut [LoadGroup<'_>]) {
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    for (at, group) in groups.iter_mut().enumerate() {
        let nth = names[..=at].iter().filter(|name| **name == group.name).count();
        if names.iter().filter(|name| **name == group.name).count() > 1 {
            group.name = format!("{} ({nth})", group.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(scenario: &str, broker: &str, more: Value) -> Value {
        let mut report = json!({
            "tool": "godwit-bench",
            "scenario": { "name": scenario },
            "target": { "broker": broker },
        });
        let more = more.as_object().expect("an object").clone();
        report.as_object_mut().expect("an object").extend(more);
        report
    }

    fn names(groups: &[LoadGroup<'_>]) -> Vec<(String, Vec<(String, usize)>)> {
        let brokers = |group: &LoadGroup<'_>| {
            group.brokers.iter().map(|one| (one.name.clone(), one.runs.len())).collect()
        };
        groups.iter().map(|group| (group.name.clone(), brokers(group))).collect()
    }

    #[test]
    fn rounds_of_a_comparison_are_one_broker_and_four_brokers_are_four() {
        let mut reports = Vec::new();
        for task in 0..2 {
            for round in 1..=3 {
                for broker in ["a", "b", "c", "d"] {
                    let own = json!({ "comparison": { "task": task, "round": round } });
                    reports.push(run("fan", broker, own));
                }
            }
        }
        let all = ["a", "b", "c", "d"].map(|name| (name.to_string(), 3)).to_vec();
        let expected = vec![("fan (1)".to_string(), all.clone()), ("fan (2)".to_string(), all)];
        assert_eq!(names(&group_by_load(&reports)), expected);
    }

    #[test]
    fn runs_of_one_broker_without_a_comparison_are_told_apart() {
        let reports = ["fan", "pairs", "fan", "fan"].map(|name| run(name, "mine", json!({})));
        let runs = ["mine", "mine, run 2", "mine, run 3"].map(|name| (name.to_string(), 1));
        let expected = vec![
            ("fan".to_string(), runs.to_vec()),
            ("pairs".to_string(), vec![("mine".to_string(), 1)]),
        ];
        assert_eq!(names(&group_by_load(&reports)), expected);
    }

    #[test]
    fn steps_of_a_ramp_are_one_group() {
        let steps = [0.1, 0.2].map(|rate| {
            let scaled = json!({ "name": "p2p", "scaled": format!("times {rate}") });
            run("p2p", "", json!({ "ramp": { "rate": rate }, "scenario": scaled }))
        });
        let groups = group_by_load(&steps);
        assert_eq!(groups[0].kind, GroupKind::Steps);
        let expected = ["rate 0.1", "rate 0.2"].map(|name| (name.to_string(), 1)).to_vec();
        assert_eq!(names(&groups), [("p2p".to_string(), expected)]);
    }

    #[test]
    fn the_middle_of_rounds_counts() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(vec![1.0, 2.0]), Some(1.5));
        assert_eq!([0.1, 2.0, 100.0].map(|n| round_to(n, 3)), ["0.1", "2", "100"]);
    }
}
