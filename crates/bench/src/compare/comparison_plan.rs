//! The TOML file of a comparison, and the built-in broker entries.

use super::broker_process::BrokerEntry;
use crate::flags::parse_seconds;
use crate::limits::THREADS_MAX;
use crate::report;
use crate::target;
use netem::NetworkConditions;
use std::net::IpAddr;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// A scenario of a comparison with its scale and rate; see `ComparisonPlan::tasks`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ComparisonTask {
    pub(crate) scenario: String,
    pub(crate) scale: f64,
    pub(crate) rate: f64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ComparisonPlan {
    /// Tasks of `scenarios` first, then of each `[[run]]`.
    pub(crate) tasks: Vec<ComparisonTask>,
    pub(crate) rounds: usize,
    pub(crate) duration_s: Option<f64>,
    pub(crate) warm_s: Option<f64>,
    pub(crate) connects_per_s: Option<f64>,
    pub(crate) threads: Option<usize>,
    /// Addresses of this host to connect from.
    pub(crate) local_addresses: Vec<IpAddr>,
    /// Percentage of steal time of the host above which a run is repeated.
    pub(crate) stolen_percent_max: Option<f64>,
    /// Largest number of attempts of one run.
    pub(crate) tries: usize,
    pub(crate) brokers: Vec<BrokerEntry>,
    /// Network conditions of the line between two brokers and the seed of its randomness; `None` is
    /// loopback.
    pub(crate) line: Option<(NetworkConditions, u64)>,
}

impl ComparisonPlan {
    pub(crate) fn runs(&self) -> usize {
        self.tasks.len() * self.rounds * self.brokers.len()
    }
}

pub(crate) fn read(text: &str) -> Result<ComparisonPlan, String> {
    let document = DeTable::parse(text).map_err(|error| describe_other_file(text, &error))?;
    let mut comparison = ComparisonPlan { rounds: 3, tries: 3, ..ComparisonPlan::default() };
    let (mut scenarios, mut own, mut scale, mut rate) = (Vec::new(), Vec::new(), 1.0, 1.0);
    for (key, value) in document.get_ref() {
        let (key, value) = (key.get_ref().as_ref(), value.get_ref());
        let wrong = || format!("{key}: this value does not fit");
        match key {
            "scenarios" => scenarios = texts(value).ok_or_else(wrong)?,
            "rounds" => comparison.rounds = whole(value).ok_or_else(wrong)?,
            "scale" => scale = number(value).ok_or_else(wrong)?,
            "rate" => rate = number(value).ok_or_else(wrong)?,
            "connects_per_s" => comparison.connects_per_s = Some(number(value).ok_or_else(wrong)?),
            "threads" => {
                let threads = whole(value).filter(|threads| *threads as u64 <= THREADS_MAX);
                comparison.threads = Some(threads.ok_or_else(wrong)?);
            }
            "ifaddr" => {
                comparison.local_addresses =
                    target::parse_local_addresses(value.as_str().ok_or_else(wrong)?)?
            }
            "stolen_percent_max" => {
                comparison.stolen_percent_max = Some(number(value).ok_or_else(wrong)?);
            }
            "tries" => comparison.tries = whole(value).ok_or_else(wrong)?,
            "duration" => comparison.duration_s = Some(span(value).ok_or_else(wrong)?),
            "warm" => comparison.warm_s = Some(span(value).ok_or_else(wrong)?),
            "run" => {
                for one in value.as_array().ok_or_else(wrong)? {
                    own.push(one.get_ref().as_table().ok_or_else(wrong)?);
                }
            }
            "line" => {
                comparison.line = Some(network_conditions(value.as_table().ok_or_else(wrong)?)?)
            }
            "use" => {
                for name in texts(value).ok_or_else(wrong)? {
                    let entry = built_in_brokers().into_iter().find(|entry| entry.name == name);
                    let entry = entry.ok_or_else(|| format!("use: no ready entry named {name}"))?;
                    comparison.brokers.push(entry);
                }
            }
            "broker" => {
                for entry in value.as_array().ok_or_else(wrong)? {
                    let entry = entry.get_ref().as_table().ok_or_else(wrong)?;
                    comparison.brokers.push(broker(entry)?);
                }
            }
            _ => return Err(format!("{key}: no such key of a comparison")),
        }
    }
    let named = scenarios.into_iter().map(|scenario| ComparisonTask { scenario, scale, rate });
    comparison.tasks = named.collect();
    for table in own {
        comparison.tasks.push(task(table, scale, rate)?);
    }
    check(&comparison)?;
    Ok(comparison)
}

/// Returns the error for a file that is not TOML, with a hint if the file is a report or a
/// scenario.
fn describe_other_file(text: &str, error: &toml::de::Error) -> String {
    match report::file_kind(text) {
        Some(kind) => format!(
            "this is {kind}, and not the plan of a comparison: use a TOML file, as \
             `godwit-bench compare --help` shows; `godwit-bench report FILE.json... --html OUT` \
             lays reports side by side"
        ),
        None => {
            let at = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            format!("line {line}: not TOML: {}", error.message())
        }
    }
}

/// Checks the complete comparison after all keys were read: tasks, brokers, unique names.
fn check(comparison: &ComparisonPlan) -> Result<(), String> {
    if comparison.tasks.is_empty() || comparison.brokers.is_empty() {
        return Err(
            "a comparison needs scenarios = [...] or a [[run]], and at least one broker".into()
        );
    }
    let mut names = comparison.brokers.iter().enumerate();
    let is_known = |at: usize, entry: &BrokerEntry| {
        comparison.brokers[..at].iter().any(|other| other.name == entry.name)
    };
    if let Some((_, twice)) = names.find(|(at, entry)| is_known(*at, entry)) {
        return Err(format!("two brokers are named {}: each needs a name of its own", twice.name));
    }
    let is_none = |task: &ComparisonTask| !(task.scale > 0.0 && task.rate > 0.0);
    if comparison.connects_per_s == Some(0.0) {
        return Err("connects_per_s is above 0".into());
    }
    if comparison.rounds == 0 || comparison.tries == 0 || comparison.tasks.iter().any(is_none) {
        return Err("rounds, tries, scale and rate are above 0".into());
    }
    Ok(())
}

/// Returns the broker entries of `brokers.toml`, which is part of the program.
pub(crate) fn built_in_brokers() -> Vec<BrokerEntry> {
    let document = DeTable::parse(READY).expect("a test reads it");
    let brokers = document.get_ref().get("broker").and_then(|value| value.get_ref().as_array());
    let tables = brokers.into_iter().flatten().filter_map(|one| one.get_ref().as_table());
    tables.map(|table| broker(table).expect("a test reads it")).collect()
}

fn task(table: &DeTable<'_>, scale: f64, rate: f64) -> Result<ComparisonTask, String> {
    let mut task = ComparisonTask { scenario: String::new(), scale, rate };
    for (key, value) in table {
        let (key, value) = (key.get_ref().as_ref(), value.get_ref());
        let wrong = || format!("{key}: this value does not fit");
        match key {
            "scenario" => task.scenario = value.as_str().ok_or_else(wrong)?.into(),
            "scale" => task.scale = number(value).ok_or_else(wrong)?,
            "rate" => task.rate = number(value).ok_or_else(wrong)?,
            _ => return Err(format!("{key}: no such key of a run")),
        }
    }
    if task.scenario.is_empty() { Err("a run has a scenario".into()) } else { Ok(task) }
}

/// Reads the table `line`: conditions, equal in both directions, and the seed, 1 by default.
fn network_conditions(table: &DeTable<'_>) -> Result<(NetworkConditions, u64), String> {
    let (mut weather, mut seed) = (NetworkConditions::default(), 1);
    for (key, value) in table {
        let (key, value) = (key.get_ref().as_ref(), value.get_ref());
        let wrong = || format!("line.{key}: this value does not fit");
        let percent = || number(value).filter(|percent| *percent <= 100.0).ok_or_else(wrong);
        let time = || {
            let time = span(value).and_then(|s| Duration::try_from_secs_f64(s).ok());
            time.ok_or_else(wrong)
        };
        match key {
            "delay" => weather.delay = time()?,
            "late_by" => weather.reorder_delay = time()?,
            "loss_percent" => weather.loss_percent = percent()?,
            "late_percent" => weather.reorder_percent = percent()?,
            "bytes_per_s" => weather.bytes_per_s = whole(value).ok_or_else(wrong)? as u64,
            "seed" => seed = whole(value).ok_or_else(wrong)? as u64,
            _ => return Err(format!("line.{key}: no such key of a line")),
        }
    }
    Ok((weather, seed))
}

fn broker(table: &DeTable<'_>) -> Result<BrokerEntry, String> {
    let mut entry = BrokerEntry::default();
    for (key, value) in table {
        let key = key.get_ref().as_ref();
        let text = value.get_ref().as_str().ok_or_else(|| format!("{key}: use text in quotes"))?;
        let into = match key {
            "name" => &mut entry.name,
            "install" => &mut entry.install,
            "command" => &mut entry.command,
            "url" => &mut entry.url,
            "file" => &mut entry.file,
            "content" => &mut entry.content,
            "version" => &mut entry.version,
            "bridge" => &mut entry.bridge,
            _ => return Err(format!("{key}: no such key of a broker")),
        };
        *into = text.to_string();
    }
    if entry.name.is_empty() || entry.command.is_empty() && entry.url.is_empty() {
        return Err("a broker has a name, and a command or a url".into());
    }
    Ok(entry)
}

fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|one| one.get_ref().as_str().map(str::to_string)).collect()
}

/// Reads an integer or a float that is finite and not negative.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let integer = value.as_integer().and_then(|integer| integer.as_str().parse().ok());
    let float = || value.as_float().and_then(|float| float.as_str().parse().ok());
    integer.or_else(float).filter(|number: &f64| *number >= 0.0 && number.is_finite())
}

fn whole(value: &DeValue<'_>) -> Option<usize> {
    value.as_integer().and_then(|integer| integer.as_str().parse().ok())
}

fn span(value: &DeValue<'_>) -> Option<f64> {
    value.as_str().and_then(parse_seconds).or_else(|| number(value))
}

const READY: &str = include_str!("brokers.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_entries_are_complete() {
        let names: Vec<String> = built_in_brokers().into_iter().map(|entry| entry.name).collect();
        let expected = [
            "godwit",
            "mosquitto",
            "rumqttd",
            "mochi-mqtt",
            "nats-server",
            "hivemq-ce",
            "nanomq",
            "emqx",
            "flashmq",
        ];
        assert_eq!(names, expected);
        assert!(built_in_brokers().iter().all(|entry| !entry.install.is_empty()));
    }

    #[test]
    fn a_comparison_takes_ready_entries_and_its_own() {
        let text = "scenarios = [\"p2p-1k-1k-1k-1k\"]\nrounds = 5\nscale = 0.1\nduration = \"5s\"\n\
                    use = [\"mosquitto\"]\n[[broker]]\nname = \"x\"\nurl = \"tcp://127.0.0.1\"\n";
        let comparison = read(text).expect("it is right");
        assert_eq!((comparison.rounds, comparison.duration_s), (5, Some(5.0)));
        assert_eq!(comparison.brokers.len(), 2);
        assert_eq!(comparison.tasks[0].scale, 0.1);
        let text = "scenarios = [\"a\"]\n[[broker]]\nname = \"x\"\ncommand = \"y {port}\"\n\
                    url = \"tls://127.0.0.1:{port}\"\n";
        assert_eq!(read(text).expect("it is right").brokers[0].url, "tls://127.0.0.1:{port}");
        let text = "rate = 2\nuse = [\"rumqttd\"]\n[[run]]\nscenario = \"a\"\nscale = 0.5\n";
        let task = ComparisonTask { scenario: "a".into(), scale: 0.5, rate: 2.0 };
        assert_eq!(read(text).expect("it is right").tasks, [task]);
        let text = "scenarios = [\"a\"]\nstolen_percent_max = 2.5\nuse = [\"rumqttd\"]\n";
        let comparison = read(text).expect("it is right");
        assert_eq!((comparison.stolen_percent_max, comparison.tries), (Some(2.5), 3));
        let text = "scenarios = [\"a\"]\nifaddr = \"127.0.0.2,127.0.0.3\"\nuse = [\"rumqttd\"]\n";
        assert_eq!(read(text).expect("it is right").local_addresses.len(), 2);
        assert!(
            read(&text.replace("127.0.0.3", "eth0"))
                .unwrap_err()
                .contains("eth0 is not an IP address")
        );
        let text = "scenarios = [\"a\"]\nuse = [\"rumqttd\"]\n[line]\ndelay = \"100ms\"\n\
                    loss_percent = 2\nseed = 7\n";
        let (weather, seed) = read(text).expect("it is right").line.expect("it has one");
        assert_eq!((weather.delay, weather.loss_percent), (Duration::from_millis(100), 2.0));
        assert_eq!((weather.reorder_percent, seed), (0.0, 7));
        let none = "scenarios = [\"a\"]\ntries = 0\nuse = [\"rumqttd\"]\n";
        assert_eq!(read(none).unwrap_err(), "rounds, tries, scale and rate are above 0");
        for (line, says) in [
            ("rounds = 1.5", "rounds: this value does not fit"),
            ("rounds = -1", "rounds: this value does not fit"),
            ("warm = -3", "warm: this value does not fit"),
            ("scale = inf", "scale: this value does not fit"),
            ("connects_per_s = 0", "connects_per_s is above 0"),
            ("line.loss_percent = 101", "line.loss_percent: this value does not fit"),
            ("line.fog = 1", "line.fog: no such key of a line"),
            ("[[broker]]\nname = \"rumqttd\"\nurl = \"x\"", "two brokers are named rumqttd"),
        ] {
            let wrong = format!("scenarios = [\"a\"]\nuse = [\"rumqttd\"]\n{line}\n");
            let why = read(&wrong).expect_err(line);
            assert!(why.starts_with(says), "{line}: {why}");
        }
        for wrong in ["", "scenarios = [\"a\"]", "scenarios = [\"a\"]\nuse = [\"b\"]", "x = 1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_documented_runs_name_every_scenario_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reports");
        let mut named = Vec::new();
        for file in std::fs::read_dir(folder).expect("it is there").flatten() {
            if file.path().extension().is_some_and(|extension| extension == "toml") {
                let text = std::fs::read_to_string(file.path()).expect("it can be read");
                named.extend(read(&text).expect("it is right").tasks);
            }
        }
        let mut named: Vec<String> = named.into_iter().map(|task| task.scenario).collect();
        let built_in = crate::scenario::BUILT_IN.iter();
        let mut known: Vec<String> = built_in.map(|(name, _)| (*name).to_string()).collect();
        named.sort();
        known.sort();
        assert_eq!(named, known);
    }
}
