//! Parses options about names (rewrites, caches, presets) in a transcript's header.

use broker::access_rules::acl_rules::AclAction;
use broker::options::auto_subscription::AutoSubscription;
use broker::options::cache_config::CacheConfig;
use broker::options::preset::PresetSession;
use broker::options::rewrite::TopicRewrite;
use mqtt::{QoS, SubscribeOptions};

/// Parses a `TopicRewrite`: `ACTION SOURCE REGEX DEST`.
pub(crate) fn rewrite(text: &str) -> Result<TopicRewrite, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [action, source, regex, dest] = words[..] else {
        return Err("ACTION SOURCE REGEX DEST".into());
    };
    let action = match action {
        "publish" => Some(AclAction::Publish),
        "subscribe" => Some(AclAction::Subscribe),
        "all" => None,
        _ => return Err(format!("no action {action}")),
    };
    TopicRewrite::parse(action, source, regex, dest)
}

/// Parses an `AutoSubscription`: `FILTER [qos=N] [no_local] [retain_as_published]
/// [retain_handling=N]`.
pub(crate) fn auto(text: &str) -> Result<AutoSubscription, String> {
    let (filter, options) = subscription(text)?;
    AutoSubscription::parse(filter, options)
}

/// Parses a `PresetSession`: `CLIENT_ID FILTER... [qos=N] [expiry=N] [user=NAME]`.
pub(crate) fn preset(text: &str) -> Result<PresetSession, String> {
    let mut words = text.split_whitespace();
    let client_id = words.next().ok_or("whose session?")?;
    let (mut filters, mut qos) = (Vec::new(), QoS::ExactlyOnce);
    let (mut expiry_s, mut user) = (u32::MAX, None);
    for word in words {
        let number = |value: &str| value.parse::<u32>().map_err(|_| format!("no {word}"));
        match word.split_once('=') {
            Some(("qos", value)) => {
                qos = QoS::from_bits(number(value)? as u8).ok_or("which QoS?")?;
            }
            Some(("expiry", value)) => expiry_s = number(value)?,
            Some(("user", name)) => user = Some(name),
            _ => filters.push(word.to_string()),
        }
    }
    PresetSession::parse(client_id, user, &filters, qos, expiry_s)
}

/// Parses caches separated by `; `: `NAME FILTER... [messages_max=N] [topics_max=N] [bytes_max=N]
/// [age_s_max=N]`. `none` stands for no cache.
pub(crate) fn caches(text: &str) -> Result<Vec<CacheConfig>, String> {
    let all = text.split("; ").filter(|one| *one != "none");
    all.map(cache).collect()
}

fn cache(text: &str) -> Result<CacheConfig, String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("which cache?")?;
    let (mut filters, mut messages_max, mut topics_max) = (Vec::new(), 1, 1000);
    let (mut bytes_max, mut age_s_max) = (1 << 20, u32::MAX);
    for word in words {
        let number = |value: &str| value.parse::<u32>().map_err(|_| format!("no {word}"));
        match word.split_once('=') {
            Some(("messages_max", value)) => messages_max = number(value)?,
            Some(("topics_max", value)) => topics_max = number(value)?,
            Some(("bytes_max", value)) => bytes_max = u64::from(number(value)?),
            Some(("age_s_max", value)) => age_s_max = number(value)?,
            _ => filters.push(word.to_string()),
        }
    }
    CacheConfig::parse(name, &filters, messages_max, topics_max, bytes_max, age_s_max)
}

fn subscription(text: &str) -> Result<(&str, SubscribeOptions), String> {
    let mut words = text.split_whitespace();
    let filter = words.next().ok_or("which filter?")?;
    let mut options = SubscribeOptions::default();
    for word in words {
        let wrong = || format!("no {word}");
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<u8>().map_err(|_| wrong());
        match key {
            "qos" => options.qos = QoS::from_bits(number()?).ok_or_else(wrong)?,
            "no_local" => options.no_local = true,
            "retain_as_published" => options.retain_as_published = true,
            "retain_handling" => options.retain_handling = number()?,
            _ => return Err(wrong()),
        }
    }
    Ok((filter, options))
}
