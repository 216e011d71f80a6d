//! A rule as a transcript's header gives it: `NAME [publish=TOPIC] [payload=TEMPLATE] [qos=N]
//! [retain=BOOL] [keep] [expiry=SECONDS] [user=NAME:TEMPLATE] [drop] [print] : SQL`, or in the
//! place of `publish` `send=LINK,LINK [topic=TEMPLATE]`, whose messages have the words behind it.

use broker::limits::LINK_IDS;
use broker::rules::{Acts, Publishing, Rule, Sending};
use mqtt::QoS;
use rules::{Plan, Template};

pub(crate) fn parse(text: &str) -> Result<Rule, String> {
    let (words, sql) = text.split_once(" : ").ok_or("NAME ... : SQL")?;
    let mut words = words.split_whitespace();
    let name = words.next().ok_or("what is the rule called?")?;
    let plan = Plan::parse(sql).map_err(|refused| refused.show(sql))?.named(name);
    let mut acts = Acts::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match (key, &mut acts.sends, &mut acts.publishes) {
            ("drop", ..) => acts.drops = true,
            ("print", ..) => acts.prints = true,
            ("publish", _, none) => {
                *none = Some(Publishing { topic: Some(Template::parse(value)?), ..plain()? });
            }
            ("send", none, _) => {
                let to = value.split(',').map(|link| format!("{LINK_IDS}{link}").into());
                *none = Some(Sending { to: to.collect(), message: plain()? });
            }
            (key, Some(sends), _) => set(&mut sends.message, key, value)?,
            (key, None, Some(own)) => set(own, key, value)?,
            _ => return Err(format!("a rule has no {key}")),
        }
    }
    let (name, text) = (name.into(), sql.into());
    Ok(Rule { name, text, plan: plan.into(), acts, tally: Default::default() })
}

fn plain() -> Result<Publishing, String> {
    Ok(Publishing {
        topic: None,
        payload: Template::parse("${.}")?,
        qos: None,
        retain: Some(false),
        keeps_properties: false,
        expiry_s: None,
        user_properties: Vec::new(),
    })
}

fn set(own: &mut Publishing, key: &str, value: &str) -> Result<(), String> {
    let wrong = || format!("no {key}={value}");
    match key {
        "topic" => own.topic = Some(Template::parse(value)?),
        "payload" => own.payload = Template::parse(value)?,
        "qos" => own.qos = Some(qos(value).ok_or_else(wrong)?),
        "retain" if value == "as_published" => own.retain = None,
        "retain" => own.retain = Some(value.parse().map_err(|_| wrong())?),
        "keep" => own.keeps_properties = true,
        "expiry" => own.expiry_s = Some(value.parse().map_err(|_| wrong())?),
        "user" => {
            let (name, template) = value.split_once(':').ok_or_else(wrong)?;
            own.user_properties.push((name.into(), Template::parse(template)?));
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn qos(text: &str) -> Option<QoS> {
    [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].get(text.parse::<usize>().ok()?).copied()
}
