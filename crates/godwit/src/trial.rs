//! `godwit rules test`: rules run on one message or event that the command line describes, so that
//! a rule can be tried before a broker has it.

use crate::flags::{self, Flag, Used};
use crate::timestamp::Timestamp;
use crate::{complain, print, refuse, rulebook};
use mqtt::{PropertiesBuf, Property};
use rules::{Budget, EVENTS, EventRow, Plan, Refused, Seen, Value};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let verb = arguments.first().map(|verb| verb.to_string_lossy().into_owned());
    match verb.as_deref() {
        Some("test") => {}
        Some("--markdown") => return print(&rulebook::markdown()),
        Some("-h" | "--help") => return print(&help()),
        _ => return refuse(&["rules needs test; --help says more".to_string()]),
    }
    let used = match flags::read(FLAGS, &arguments[1..]) {
        Ok(used) => used,
        Err(wrongs) => return refuse(&wrongs),
    };
    if used.iter().any(|used| used.name == "--help") {
        return print(&help());
    }
    let trial = match Trial::read(&used) {
        Ok(trial) => trial,
        Err(why) => return refuse(&[why]),
    };
    match trial.plans() {
        Ok(plans) => trial.run(&plans),
        Err(refused) => refuse(&refused),
    }
}

/// What the command line describes.
struct Trial {
    /// Where the rules come from, for messages, and their text.
    from: Option<String>,
    text: String,
    topic: Option<String>,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
    clientid: String,
    username: Option<String>,
    peerhost: Option<String>,
    properties: PropertiesBuf,
    event: Option<&'static EventRow>,
    /// A map, as JSON.
    fields: String,
    now_ms: i64,
}

impl Trial {
    fn read(used: &[Used]) -> Result<Trial, String> {
        let now = i64::try_from(Timestamp::now().0.as_millis()).unwrap_or(i64::MAX);
        let mut trial = Trial {
            from: None,
            text: String::new(),
            topic: None,
            payload: Vec::new(),
            qos: 0,
            retain: false,
            clientid: "trial".to_string(),
            username: None,
            peerhost: None,
            properties: PropertiesBuf::default(),
            event: None,
            fields: "{}".to_string(),
            now_ms: now,
        };
        for used in used {
            let value = || used.value().to_string();
            match used.name {
                "--sql" => trial.text = value(),
                "--file" => {
                    let read = std::fs::read_to_string(used.value());
                    trial.text = read.map_err(|fault| format!("{}: {fault}", used.value()))?;
                    trial.from = Some(value());
                }
                "--topic" => trial.topic = Some(topic(used.value())?),
                "--payload" => trial.payload = value().into_bytes(),
                "--payload-file" => {
                    let read = std::fs::read(used.value());
                    trial.payload = read.map_err(|fault| format!("{}: {fault}", used.value()))?;
                }
                "--qos" => trial.qos = used.number(0, 2)?,
                "--retain" => trial.retain = true,
                "--clientid" => trial.clientid = value(),
                "--username" => trial.username = Some(value()),
                "--peerhost" => trial.peerhost = Some(value()),
                "--timestamp" => trial.now_ms = used.number(0, i64::MAX)?,
                "--user-property" => {
                    let (name, value) = used.value().split_once('=').ok_or_else(|| {
                        format!("--user-property {}: use NAME=VALUE", used.value())
                    })?;
                    trial.properties.push(Property::UserProperty(name, value));
                }
                "--event" => {
                    let name = used.value();
                    trial.event = Some(event(name.strip_prefix("$events/").unwrap_or(name))?);
                }
                _ => trial.fields = value(),
            }
        }
        if trial.text.is_empty() {
            return Err("rules test needs --sql or --file".to_string());
        }
        if !matches!(Value::from_json(&trial.fields), Some(Value::Map(_))) {
            return Err("--json is no map in JSON, use one like '{\"reason\": \"kicked\"}'".into());
        }
        Ok(trial)
    }

    /// Every rule of the text, or everything that is wrong with them.
    fn plans(&self) -> Result<Vec<Plan>, Vec<String>> {
        let mut plans = Vec::new();
        let mut wrongs = Vec::new();
        for (start, text) in rules::split(&self.text) {
            match Plan::parse(text) {
                Ok(plan) => plans.push(plan),
                Err(refused) => wrongs.push(self.show(start, refused)),
            }
        }
        if plans.is_empty() && wrongs.is_empty() {
            wrongs.push("there is no rule; SELECT what FROM \"topic/filter\"".to_string());
        }
        if wrongs.is_empty() { Ok(plans) } else { Err(wrongs) }
    }

    /// With its place in the whole text.
    fn show(&self, start: usize, refused: Refused) -> String {
        let before = &self.text[..start];
        let lines = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or("").chars().count();
        let column = if refused.line == 1 { column } else { 0 };
        let place = |of: u32, more: usize| of.saturating_add(u32::try_from(more).unwrap_or(0));
        let (line, column) = (place(refused.line, lines), place(refused.column, column));
        let shown = Refused { line, column, ..refused }.show(&self.text);
        match &self.from {
            Some(file) => format!("{file}:{shown}"),
            None => shown,
        }
    }

    /// Prints a line of JSON for each row. Exit code 1 if a rule failed.
    fn run(&self, plans: &[Plan]) -> ExitCode {
        let fields = match Value::from_json(&self.fields) {
            Some(Value::Map(fields)) => fields,
            _ => rules::Map::default(),
        };
        let more: Vec<(&str, Value<'_>)> =
            fields.iter().map(|(name, value)| (name, value.view())).collect();
        let seen = self.seen(&more);
        let mut out = String::new();
        let mut failures = Vec::new();
        for (at, plan) in plans.iter().enumerate() {
            let name = if plans.len() > 1 { format!("rule {}: ", at + 1) } else { String::new() };
            if let Some(why) = self.passes_by(plan, seen.topic) {
                complain(&[format!("{name}{why}")]);
                continue;
            }
            let (mut budget, mut rows) = (Budget::default(), Vec::new());
            match plan.run(&seen, &mut budget, &mut rows) {
                Ok(()) if rows.is_empty() => complain(&[format!("{name}no row comes out")]),
                Ok(()) => {}
                Err(failed) => failures.push(format!("{name}{failed}")),
            }
            for row in rows {
                let _ = writeln!(out, "{row}");
            }
        }
        let done = print(&out);
        if failures.is_empty() { done } else { crate::fail(&failures) }
    }

    fn seen<'a>(&'a self, more: &'a [(&'a str, Value<'a>)]) -> Seen<'a> {
        // What an event says of the fields that messages have, too, counts as if it were a flag.
        let said = |name: &str| more.iter().find(|(known, _)| *known == name).map(|(_, of)| of);
        let text = |name: &str| match said(name) {
            Some(Value::Text(text)) => Some(&**text),
            _ => None,
        };
        let qos = match said("qos") {
            Some(Value::Int(qos)) => u8::try_from(*qos).unwrap_or(self.qos),
            _ => self.qos,
        };
        Seen {
            event: self.event.map_or(Seen::default().event, |event| event.label),
            has_message: self.event.is_none_or(|event| event.has_message),
            topic: text("topic").or(self.topic.as_deref()).unwrap_or(""),
            payload: text("payload").map_or(&self.payload, str::as_bytes),
            qos,
            retain: self.retain,
            dup: false,
            clientid: text("clientid").unwrap_or(&self.clientid),
            username: text("username").or(self.username.as_deref()),
            peerhost: text("peerhost").or(self.peerhost.as_deref()),
            properties: self.properties.as_properties(),
            id: "0",
            timestamp_ms: self.now_ms,
            now_ms: self.now_ms,
            node: "godwit",
            chance: RandomState::new().hash_one(0),
            more,
        }
    }

    /// Why a broker would not even ask this rule.
    fn passes_by(&self, plan: &Plan, topic: &str) -> Option<String> {
        let filters = || plan.filters().collect::<Vec<_>>().join("\", \"");
        if let Some(EventRow { name, .. }) = self.event {
            let wanted = plan.events().any(|known| EVENTS[known].name == *name);
            return (!wanted).then(|| format!("$events/{name} is not in FROM \"{}\"", filters()));
        }
        let mut topics = plan.topics();
        let passes = self.topic.is_some() && !topics.any(|it| mqtt::filter_matches(it, topic));
        passes.then(|| format!("the topic {topic} is not in FROM \"{}\"", filters()))
    }
}

fn event(name: &str) -> Result<&'static EventRow, String> {
    let names = || EVENTS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ");
    let wrong = || format!("--event {name}: there is no such event; there are {}", names());
    rules::event(name).map(|at| &EVENTS[at]).ok_or_else(wrong)
}

fn topic(text: &str) -> Result<String, String> {
    match mqtt::topic::check_topic(text) {
        Ok(()) => Ok(text.to_string()),
        Err(_) => {
            Err(format!("--topic {text}: no topic name; it has no + and #, and is not empty"))
        }
    }
}

fn help() -> String {
    format!("{HELP}{}", flags::help(FLAGS))
}

const HELP: &str = "\
godwit rules test runs rules on one message or event, and prints a line of JSON for each row that
comes out. docs/rules.md says what a rule may have; godwit rules --markdown prints it.
Exit code 2 if a rule is wrong, 1 if it fails on what it sees.

  godwit rules test --sql 'SELECT payload.t AS t FROM \"car/#\"' \\
      --topic car/7 --payload '{\"t\":21}'

";

const FLAGS: &[Flag] = &[
    Flag { names: &["--sql"], values: &["TEXT"], doc: "the rule" },
    Flag { names: &["--file"], values: &["FILE"], doc: "rules in a file, with ; between them" },
    Flag { names: &["-t", "--topic"], values: &["TOPIC"], doc: "of the message" },
    Flag { names: &["-m", "--payload"], values: &["TEXT"], doc: "of the message" },
    Flag { names: &["-f", "--payload-file"], values: &["FILE"], doc: "the payload is this file" },
    Flag { names: &["-q", "--qos"], values: &["N"], doc: "0, 1 or 2, default 0" },
    Flag { names: &["-r", "--retain"], values: &[], doc: "the message is retained" },
    Flag { names: &["-i", "--clientid"], values: &["ID"], doc: "of the publisher" },
    Flag { names: &["-u", "--username"], values: &["NAME"], doc: "of the publisher" },
    Flag { names: &["--peerhost"], values: &["ADDRESS"], doc: "of the publisher" },
    Flag {
        names: &["--user-property"],
        values: &["NAME=VALUE"],
        doc: "of the message, any number",
    },
    Flag { names: &["--timestamp"], values: &["MS"], doc: "the time, since 1970; default is now" },
    Flag { names: &["--event"], values: &["NAME"], doc: "an event, not a message" },
    Flag { names: &["--json"], values: &["MAP"], doc: "the fields of the event" },
    Flag { names: &["-h", "--help"], values: &[], doc: "this" },
];
