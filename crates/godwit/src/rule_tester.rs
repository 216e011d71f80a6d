//! `godwit rules test`: runs rules on a message or event from the command line, before a broker
//! uses the rules.

use crate::options::{self, OptionSources};
use crate::{fail_with_usage_error, parse_line, print, print_errors, rules_reference};
use broker::BrokerOptions;
use broker::options::rule::Rule;
use broker::rules::RulePreview;
use command_line::{Arg, Command, FlagRow, ParsedFlag, PossibleValuesParser};
use mqtt::{PropertiesBuf, Property};
use net::timestamp::UnixTimestamp;
use rules::{Budget, EVENTS, EventRow, RuleInput, RuleParseError, RulePlan, Value};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) fn command() -> Command {
    let verb =
        Arg::new("VERB").required_unless_present(MARKDOWN).value_name("test").help("what to do");
    let about = "Tries rules on one message or event, without a broker";
    command_line::command("rules", about, FLAGS)
        .arg(verb.value_parser(PossibleValuesParser::new(["test"])))
        .after_help(HELP)
}

pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let matches = match parse_line(command(), arguments) {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    if matches.contains_id(MARKDOWN) {
        return print(&rules_reference::markdown());
    }
    let used = command_line::flags_in_order(&matches, FLAGS.iter().map(FlagRow::name));
    let trial = match RuleTestCommand::from_flags(&used) {
        Ok(trial) => trial,
        Err(why) => return fail_with_usage_error(&[why]),
    };
    match trial.rules_under_test() {
        Ok(tried) => trial.run(&tried),
        Err(refused) => fail_with_usage_error(&refused),
    }
}

/// A rule to test, from SQL or from a `[[rule]]`.
struct RuleUnderTest {
    plan: Arc<RulePlan>,
    /// The rule with its other options, if read from an options file.
    rule: Option<Rule>,
}

/// The parsed command line.
struct RuleTestCommand {
    /// Options file, and the name of a rule in it; all rules without a name.
    config: Option<PathBuf>,
    only: Option<String>,
    /// Source of the rules, for messages, and their text.
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
    /// Further fields of the message or event, as a JSON object.
    fields: String,
    now_ms: i64,
}

impl RuleTestCommand {
    fn from_flags(used: &[ParsedFlag]) -> Result<RuleTestCommand, String> {
        let now = i64::try_from(UnixTimestamp::now().0.as_millis()).unwrap_or(i64::MAX);
        let mut trial = RuleTestCommand {
            config: None,
            only: None,
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
                "--config" => trial.config = Some(used.value().into()),
                "--rule" => trial.only = Some(value()),
                "--sql" => trial.text = value(),
                "--file" => {
                    trial.text = read_rules(used.value())?;
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
        let is_by_options = trial.config.is_some();
        if trial.text.is_empty() != is_by_options {
            return Err("rules test needs --sql or --file, or --config alone".to_string());
        }
        if trial.only.is_some() && !is_by_options {
            return Err("--rule is one of an options file: name that with --config".to_string());
        }
        if !matches!(Value::from_json(&trial.fields), Some(Value::Map(_))) {
            return Err(
                "--json is not a map in JSON, use one like '{\"reason\": \"kicked\"}'".into()
            );
        }
        Ok(trial)
    }

    /// Returns every rule of the text or of the options file, or all errors.
    fn rules_under_test(&self) -> Result<Vec<RuleUnderTest>, Vec<String>> {
        match &self.config {
            None => {
                let plans = self.parse_plans()?.into_iter();
                Ok(plans.map(|plan| RuleUnderTest { plan: plan.into(), rule: None }).collect())
            }
            Some(path) => self.rules_of_options(path),
        }
    }

    fn rules_of_options(&self, path: &Path) -> Result<Vec<RuleUnderTest>, Vec<String>> {
        let sources =
            OptionSources { config: Some(path.to_path_buf()), ..OptionSources::default() };
        let plan = options::OptionPlan::read(&sources)
            .map_err(|wrongs| wrongs.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let all = plan.settings(1).broker.rules;
        let is_it = |rule: &&Rule| self.only.as_ref().is_none_or(|only| **only == *rule.name);
        let tried =
            |rule: &Rule| RuleUnderTest { plan: rule.plan.clone(), rule: Some(rule.clone()) };
        let found: Vec<RuleUnderTest> = all.iter().filter(is_it).map(tried).collect();
        if found.is_empty() {
            let names = all.iter().map(|rule| &*rule.name).collect::<Vec<_>>().join(", ");
            let why = match &self.only {
                Some(only) if !all.is_empty() => format!("has no [[rule]] {only}, but {names}"),
                _ => "has no [[rule]]".to_string(),
            };
            return Err(vec![format!("{} {why}", path.display())]);
        }
        Ok(found)
    }

    fn parse_plans(&self) -> Result<Vec<RulePlan>, Vec<String>> {
        let mut plans = Vec::new();
        let mut wrongs = Vec::new();
        for (start, text) in rules::split(&self.text) {
            match RulePlan::parse(text) {
                Ok(plan) => plans.push(plan.with_rule_id("test")),
                Err(refused) => wrongs.push(self.describe_parse_error(start, refused)),
            }
        }
        if plans.is_empty() && wrongs.is_empty() {
            wrongs.push("the rule is missing; SELECT what FROM \"topic/filter\"".to_string());
        }
        if wrongs.is_empty() { Ok(plans) } else { Err(wrongs) }
    }

    /// Describes an error with its position in the whole text.
    fn describe_parse_error(&self, start: usize, refused: RuleParseError) -> String {
        let before = &self.text[..start];
        let lines = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or("").chars().count();
        let column = if refused.line == 1 { column } else { 0 };
        let place = |of: u32, more: usize| of.saturating_add(u32::try_from(more).unwrap_or(0));
        let (line, column) = (place(refused.line, lines), place(refused.column, column));
        let shown = RuleParseError { line, column, ..refused }.show(&self.text);
        match &self.from {
            Some(file) => format!("{file}:{shown}"),
            None => shown,
        }
    }

    /// Runs the rules and prints a line of JSON for each row. Exit code 1 if a rule failed.
    fn run(&self, all: &[RuleUnderTest]) -> ExitCode {
        let fields = match Value::from_json(&self.fields) {
            Some(Value::Map(fields)) => fields,
            _ => rules::ValueMap::default(),
        };
        let more: Vec<(&str, Value<'_>)> =
            fields.iter().map(|(name, value)| (name, value.view())).collect();
        let seen = self.rule_input(&more);
        let mut out = String::new();
        let mut failures = Vec::new();
        for (at, RuleUnderTest { plan, rule }) in all.iter().enumerate() {
            let name = match rule {
                Some(rule) => format!("rule {}: ", rule.name),
                None if all.len() > 1 => format!("rule {}: ", at + 1),
                None => String::new(),
            };
            if let Some(why) = self.passes_by(plan, seen.topic) {
                print_errors(&[format!("{name}{why}")]);
                continue;
            }
            let (mut budget, mut rows) = (Budget::default(), Vec::new());
            match plan.run(&seen, &mut budget, &mut rows) {
                Ok(()) if rows.is_empty() => print_errors(&[format!("{name}no row comes out")]),
                Ok(()) => {}
                Err(failed) => failures.push(format!("{name}{failed}")),
            }
            for row in rows {
                let _ = writeln!(out, "{row}");
                if let Some(rule) = rule {
                    self.describe_outputs(rule, &row, &seen, &mut out);
                }
            }
        }
        let done = print(&out);
        if failures.is_empty() { done } else { crate::fail(&failures) }
    }

    /// Describes the messages that the rule's options make of a row.
    fn describe_outputs(
        &self,
        rule: &Rule,
        row: &rules::ValueMap<'_>,
        seen: &RuleInput<'_>,
        out: &mut String,
    ) {
        let (name, options) = (&rule.name, BrokerOptions::default());
        let event = self.event.map(|row| row.name);
        for made in rule.preview(row, seen, event, &options) {
            let _ = match made {
                Err(why) => writeln!(out, "  {name}: nothing is made of it: failed/{why}"),
                Ok(RulePreview { link, topic, payload, qos, retain }) => {
                    let way = match link {
                        Some(link) => format!("sent to {link} as"),
                        None => "published as".to_string(),
                    };
                    let (qos, payload) = (qos as u8, String::from_utf8_lossy(&payload));
                    let kept = if retain { ", retained" } else { "" };
                    writeln!(out, "  {name}: {way} {topic}, QoS {qos}{kept}: {payload}")
                }
            };
        }
        if rule.actions.logs_rows {
            let _ = writeln!(out, "  {name}: printed to the log");
        }
        if rule.actions.drops_message {
            let _ = writeln!(out, "  {name}: the message goes nowhere else");
        }
    }

    fn rule_input<'a>(&'a self, more: &'a [(&'a str, Value<'a>)]) -> RuleInput<'a> {
        // Fields of an event that messages also have count like the corresponding flags.
        let said = |name: &str| more.iter().find(|(known, _)| *known == name).map(|(_, of)| of);
        let text = |name: &str| match said(name) {
            Some(Value::Text(text)) => Some(&**text),
            _ => None,
        };
        let qos = match said("qos") {
            Some(Value::Int(qos)) => u8::try_from(*qos).unwrap_or(self.qos),
            _ => self.qos,
        };
        RuleInput {
            event: self.event.map_or(RuleInput::default().event, |event| event.label),
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
            chance: RandomState::new().hash_one(0),
            extra_fields: more,
            ..RuleInput::default()
        }
    }

    /// Returns the reason for which a broker would not evaluate the rule for this message or event;
    /// `None` if the rule is evaluated.
    fn passes_by(&self, plan: &RulePlan, topic: &str) -> Option<String> {
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
    let wrong = || format!("--event {name}: no such event; there are {}", names());
    rules::event_index(name).map(|at| &EVENTS[at]).ok_or_else(wrong)
}

/// Reads a file of rules as UTF-8, with or without a byte order mark.
fn read_rules(path: &str) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|fault| format!("{path}: {fault}"))?;
    let text = config::source::text_of(&bytes, "rules must be");
    text.map(str::to_string).map_err(|(line, why)| format!("{path}:{line}: {why}"))
}

fn topic(text: &str) -> Result<String, String> {
    match mqtt::topic::check_topic(text) {
        Ok(()) => Ok(text.to_string()),
        Err(_) => {
            Err(format!("--topic {text}: no topic name; it has no + and #, and is not empty"))
        }
    }
}

const HELP: &str = "\
Prints a line of JSON for each row that comes out. docs/rules.md says what a rule may have. Rules of
an options file also say where each row would go. Exit code 2 if a rule is wrong, 1 if it fails on
what it sees.

  godwit rules test --sql 'SELECT payload.t AS t FROM \"car/#\"' \\
      --topic car/7 --payload '{\"t\":21}'";

const MARKDOWN: &str = "--markdown";

const FLAGS: &[FlagRow] = &[
    FlagRow::new(&["--sql"], &["TEXT"], "the rule"),
    FlagRow::new(&["--file"], &["FILE"], "rules in a file, with ; between them"),
    FlagRow::new(&["--config"], &["FILE"], "the rules of an options file"),
    FlagRow::new(&["--rule"], &["NAME"], "only this one of it"),
    FlagRow::new(&["-t", "--topic"], &["TOPIC"], "of the message"),
    FlagRow::new(&["-m", "--payload"], &["TEXT"], "of the message"),
    FlagRow::new(&["-f", "--payload-file"], &["FILE"], "the payload is this file"),
    FlagRow::new(&["-q", "--qos"], &["N"], "0, 1 or 2, default 0"),
    FlagRow::new(&["-r", "--retain"], &[], "the message is retained"),
    FlagRow::new(&["-i", "--clientid"], &["ID"], "of the publisher"),
    FlagRow::new(&["-u", "--username"], &["NAME"], "of the publisher"),
    FlagRow::new(&["--peerhost"], &["ADDRESS"], "of the publisher"),
    FlagRow::new(&["--user-property"], &["NAME=VALUE"], "of the message, any number"),
    FlagRow::new(&["--timestamp"], &["MS"], "the time, since 1970; default is now"),
    FlagRow::new(&["--event"], &["NAME"], "an event, not a message"),
    FlagRow::new(&["--json"], &["MAP"], "the fields of the event"),
    FlagRow::new(&[MARKDOWN], &[], "the language, as the page docs/rules.md"),
];
