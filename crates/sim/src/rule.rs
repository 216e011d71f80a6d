//! Parses a rule in a transcript's header: `NAME [publish=TOPIC] [payload=TEMPLATE] [qos=N]
//! [retain=BOOL] [keep] [expiry=SECONDS] [user=NAME:TEMPLATE] [drop] [print] : SQL`. With
//! `send=LINK,LINK [topic=TEMPLATE]` instead of `publish`, the words behind it apply to the links'
//! message.

use broker::limits::LINK_IDS;
use broker::options::rule::{PublishAction, Rule, RuleActions, SendAction};
use mqtt::QoS;
use rules::{RowTemplate, RulePlan};

pub(crate) fn parse(text: &str) -> Result<Rule, String> {
    let (words, sql) = text.split_once(" : ").ok_or("NAME ... : SQL")?;
    let mut words = words.split_whitespace();
    let name = words.next().ok_or("what is the rule called?")?;
    let plan = RulePlan::parse(sql).map_err(|refused| refused.show(sql))?.with_rule_id(name);
    let mut acts = RuleActions::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match (key, &mut acts.send, &mut acts.publish) {
            ("drop", ..) => acts.drops_message = true,
            ("print", ..) => acts.logs_rows = true,
            ("publish", _, none) => {
                *none = Some(PublishAction {
                    topic: Some(RowTemplate::parse(value)?),
                    ..default_publish()?
                });
            }
            ("send", none, _) => {
                let to = value.split(',').map(|link| format!("{LINK_IDS}{link}").into());
                *none = Some(SendAction { to: to.collect(), message: default_publish()? });
            }
            (key, Some(sends), _) => set_field(&mut sends.message, key, value)?,
            (key, None, Some(own)) => set_field(own, key, value)?,
            _ => return Err(format!("a rule has no {key}")),
        }
    }
    let (name, text) = (name.into(), sql.into());
    Ok(Rule { name, text, plan: plan.into(), actions: acts, metrics: Default::default() })
}

fn default_publish() -> Result<PublishAction, String> {
    Ok(PublishAction {
        topic: None,
        payload: RowTemplate::parse("${.}")?,
        qos: None,
        retain: Some(false),
        keeps_properties: false,
        expiry_s: None,
        user_properties: Vec::new(),
    })
}

fn set_field(own: &mut PublishAction, key: &str, value: &str) -> Result<(), String> {
    let wrong = || format!("no {key}={value}");
    match key {
        "topic" => own.topic = Some(RowTemplate::parse(value)?),
        "payload" => own.payload = RowTemplate::parse(value)?,
        "qos" => own.qos = Some(qos(value).ok_or_else(wrong)?),
        "retain" if value == "as_published" => own.retain = None,
        "retain" => own.retain = Some(value.parse().map_err(|_| wrong())?),
        "keep" => own.keeps_properties = true,
        "expiry" => own.expiry_s = Some(value.parse().map_err(|_| wrong())?),
        "user" => {
            let (name, template) = value.split_once(':').ok_or_else(wrong)?;
            own.user_properties.push((name.into(), RowTemplate::parse(template)?));
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn qos(text: &str) -> Option<QoS> {
    [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].get(text.parse::<usize>().ok()?).copied()
}
