//! Parser of a scenario's TOML, key by key; every error has its line.

use super::{Scenario, ScenarioGroup};
use crate::limits::{CLIENTS_MAX, PAYLOAD_BYTES_MAX, THREADS_MAX};
use crate::template::{check_filter_template, check_topic_template};
use mqtt::{ProtocolVersion, QoS};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Parses a scenario. Returns every error with its line.
pub(crate) fn read(text: &str) -> Result<Scenario, Vec<String>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut wrongs: Vec<String> = errors
        .iter()
        .map(|error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("line {}: not TOML: {}", line_at(text, at), error.message())
        })
        .collect();
    if !wrongs.is_empty() {
        return Err(wrongs);
    }
    let mut scenario = Scenario::default();
    for (key, value) in document.get_ref() {
        if let Err(why) = scenario.set_key(text, key.get_ref(), value, &mut wrongs) {
            wrongs.push(format!(
                "line {}: {}: {why}",
                line_at(text, key.span().start),
                key.get_ref()
            ));
        }
    }
    if scenario.groups.is_empty() {
        wrongs.push("a scenario needs at least one [[group]]".into());
    }
    for task in &scenario.groups {
        if task.clients == 0 {
            wrongs.push(format!("group {}: clients = N is missing", task.name));
        }
        if task.publish.is_some() && task.per_s.is_none() && !task.as_taken {
            wrongs.push(format!(
                "group {}: per_s, every_ms or as_taken says how fast it publishes",
                task.name
            ));
        }
    }
    wrongs.extend(scenario.names_taken_twice());
    if wrongs.is_empty() { Ok(scenario) } else { Err(wrongs) }
}

impl Scenario {
    /// Returns the error for two groups with the same client identifiers, which contain the group's
    /// name: their clients would take over each other's sessions.
    fn names_taken_twice(&self) -> Option<String> {
        let ids =
            |task: &ScenarioGroup| task.client_id.clone().unwrap_or_else(|| task.name.clone());
        let mut groups = self.groups.iter().enumerate();
        let (_, twice) = groups.find(|(at, task)| {
            let is_same =
                |other: &ScenarioGroup| other.target == task.target && ids(other) == ids(task);
            self.groups[..*at].iter().any(is_same)
        })?;
        Some(format!(
            "two groups are named {}, and would have the same client ids: write name = \"...\"",
            twice.name
        ))
    }

    fn set_key(
        &mut self,
        text: &str,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        wrongs: &mut Vec<String>,
    ) -> Result<(), String> {
        let value = value.get_ref();
        match key {
            "title" => self.title = string(value)?,
            "source" => self.source = string(value)?,
            "reported" => self.reported = string(value)?,
            "connects_per_s" => self.connects_per_s = positive(value)?,
            "warm_s" => self.warm_s = number(value)?,
            "measure_s" => self.measure_s = positive(value)?,
            "drain_s" => self.drain_s = number(value)?,
            "latency_from" => {
                self.from_sending = match &*string(value)? {
                    "due" => false,
                    "sent" => true,
                    _ => return Err("use \"due\" or \"sent\"".into()),
                }
            }
            "threads" => {
                let threads = Some(whole(value)?).filter(|threads| *threads <= THREADS_MAX);
                let threads = threads.ok_or_else(|| format!("use at most {THREADS_MAX}"))?;
                self.threads = threads as usize;
            }
            "window" => self.window = whole(value)?,
            "group" => {
                let groups = value.as_array().ok_or("write [[group]], in two brackets")?;
                for group in groups {
                    let table = group.get_ref().as_table().ok_or("a group is a table")?;
                    let mut task = ScenarioGroup::default();
                    for (key, value) in table {
                        if let Err(why) = task.set_key(key.get_ref(), value.get_ref()) {
                            let line = line_at(text, key.span().start);
                            wrongs.push(format!("line {line}: {}: {why}", key.get_ref()));
                        }
                    }
                    self.groups.push(task);
                }
            }
            _ => return Err("no such key of a scenario".into()),
        }
        Ok(())
    }
}

impl ScenarioGroup {
    fn set_key(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        match key {
            "name" => self.name = string(value)?,
            "clients" => {
                let clients = Some(whole(value)?).filter(|clients| *clients <= CLIENTS_MAX);
                self.clients = clients.ok_or_else(|| format!("use at most {CLIENTS_MAX}"))?;
            }
            "topics" => self.topics = whole(value)?.max(1),
            "target" => self.target = Some(whole(value)?.max(1) as usize - 1),
            "client_id" => self.client_id = Some(string(value)?),
            "user_name" => self.user_name = Some(string(value)?),
            "password" => self.password = Some(string(value)?),
            "version" => {
                self.version = match whole(value)? {
                    3 => ProtocolVersion::V31,
                    4 => ProtocolVersion::V311,
                    5 => ProtocolVersion::V5,
                    _ => return Err("use 3, 4 (3.1.1) or 5".into()),
                }
            }
            "keep_alive_s" => self.keep_alive_s = small(value)?,
            "clean_start" => self.clean_start = truth(value)?,
            "session_expiry_s" => {
                self.session_expiry_s = whole(value)?.try_into().map_err(|_| "too large")?;
            }
            "subscribe" => {
                let filters = value.as_array().ok_or("use a list of filters")?;
                let filters = filters.iter().map(|filter| string(filter.get_ref()));
                self.subscribe = filters.collect::<Result<_, String>>()?;
                self.subscribe.iter().try_for_each(|filter| check_filter_template(filter))?;
            }
            "publish" => {
                let topic = string(value)?;
                check_topic_template(&topic)?;
                self.publish = Some(topic);
            }
            "qos" => {
                let level = u8::try_from(whole(value)?).ok();
                self.qos = level.and_then(QoS::from_bits).ok_or("use 0, 1 or 2")?;
            }
            "retain" => self.retain = truth(value)?,
            "size" => {
                let size = usize::try_from(whole(value)?).ok();
                let size = size.filter(|size| *size <= PAYLOAD_BYTES_MAX);
                self.size =
                    size.ok_or_else(|| format!("MQTT takes {PAYLOAD_BYTES_MAX} bytes at most"))?;
            }
            "payload" => self.payload = Some(string(value)?),
            "per_s" => self.per_s = Some(positive(value)?),
            "every_ms" => self.per_s = Some(1_000.0 / positive(value)?),
            "as_taken" => self.as_taken = truth(value)?,
            "inflight" => self.inflight = small(value)?,
            "messages" => self.messages = Some(whole(value)?),
            "reconnects" => {
                self.reconnects = whole(value)?.try_into().map_err(|_| "too large")?;
            }
            _ => return Err("no such key of a group".into()),
        }
        Ok(())
    }
}

fn string(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_string).ok_or_else(|| "use text in quotes".into())
}

fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "use true or false".into())
}

fn whole(value: &DeValue<'_>) -> Result<u64, String> {
    let integer =
        value.as_integer().and_then(|one| u64::from_str_radix(one.as_str(), one.radix()).ok());
    integer.ok_or_else(|| "use a whole number from 0 on".into())
}

fn small(value: &DeValue<'_>) -> Result<u16, String> {
    whole(value)?.try_into().map_err(|_| "use a number up to 65535".into())
}

fn number(value: &DeValue<'_>) -> Result<f64, String> {
    let float = value.as_float().and_then(|float| float.as_str().parse().ok());
    let number = float.or_else(|| whole(value).ok().map(|n| n as f64));
    number
        .filter(|n: &f64| *n >= 0.0 && n.is_finite())
        .ok_or_else(|| "use a number from 0 on".into())
}

fn positive(value: &DeValue<'_>) -> Result<f64, String> {
    let number = number(value)?;
    if number > 0.0 { Ok(number) } else { Err("use a number above 0".into()) }
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}
