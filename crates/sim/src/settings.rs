//! Sets broker options by name, from a transcript's header.

use broker::BrokerOptions;
use broker::options::{Durability, QueuePolicy, SharedStrategy};
use broker::routing::namespace::NamespaceTemplate;

/// Sets one option. The names are the fields of `BrokerOptions`.
pub fn set(options: &mut BrokerOptions, name: &str, value: &str) -> Result<(), String> {
    let wrong = || format!("no option {name}={value}");
    let number = || value.parse::<u64>().map_err(|_| wrong());
    let flag = || value.parse::<bool>().map_err(|_| wrong());
    match name {
        "address_connections_max" => options.address_connections_max = number()? as u32,
        "address_connections_per_s" => options.address_connections_per_s = number()? as u32,
        "asks_kept_ms" => options.authz.get_or_insert_default().cache_ms = number()? as u32,
        "bytes_out_per_s" => options.bytes_out_per_s = number()? as u32,
        "bytes_per_s" => options.bytes_per_s = number()? as u32,
        "check_payload_format" => options.check_payload_format = flag()?,
        "client_id_bytes_max" => options.client_id_bytes_max = number()? as u16,
        "connect_timeout_ms" => options.connect_timeout_ms = number()? as u32,
        "connections_max" => options.connections_max = number()? as u32,
        "connections_per_s" => options.connections_per_s = number()? as u32,
        "delayed_bytes_max" => options.delayed_bytes_max = number()?,
        "delayed_client_percent_max" => options.delayed_client_percent_max = number()? as u8,
        "delayed_messages_max" => options.delayed_messages_max = number()? as u32,
        "durabilities" => {
            let (filter, chosen) = value.split_once(':').ok_or_else(wrong)?;
            options.durabilities.push((filter.into(), durability(chosen).ok_or_else(wrong)?));
        }
        "durability" => options.durability = durability(value).ok_or_else(wrong)?,
        "exclusive_available" => options.exclusive_available = flag()?,
        "flapping_ban_s" => options.flapping_ban_s = number()? as u32,
        "flapping_count_max" => options.flapping_count_max = number()? as u32,
        "flapping_window_s" => options.flapping_window_s = number()? as u32,
        "inflight_max" => options.inflight_max = number()? as u16,
        "keep_alive_s_max" => options.keep_alive_s_max = number()? as u16,
        "memory_bytes_max" => options.memory_bytes_max = number()?,
        "message_expiry_s_max" => options.message_expiry_s_max = number()? as u32,
        "messages_out_per_s" => options.messages_out_per_s = number()? as u32,
        "messages_per_s" => options.messages_per_s = number()? as u32,
        "namespace" => options.namespace = NamespaceTemplate::parse(value)?,
        "packet_bytes_max" => options.packet_bytes_max = number()? as u32,
        "qos_max" => options.qos_max = number()? as u8,
        "queue_age_s_max" => options.queue_age_s_max = number()? as u32,
        "queue_bytes_max" => options.queue_bytes_max = number()?,
        "queue_messages_max" => options.queue_messages_max = number()? as u32,
        "queue_policy" => options.queue_policy = policy(value).ok_or_else(wrong)?,
        "queue_qos0" => options.queue_qos0 = flag()?,
        "receive_maximum" => options.receive_maximum = number()? as u16,
        "response_information" => options.response_information = value.into(),
        "retain_available" => options.retain_available = flag()?,
        "retained_bytes_max" => options.retained_bytes_max = number()?,
        "retained_messages_max" => options.retained_messages_max = number()? as u32,
        "session_expiry_s_default" => options.session_expiry_s_default = number()? as u32,
        "session_expiry_s_max" => options.session_expiry_s_max = number()? as u32,
        "shared_available" => options.shared_available = flag()?,
        "shared_strategy" => options.shared_strategy = strategy(value).ok_or_else(wrong)?,
        "shared_strategies" => {
            let (group, chosen) = value.split_once(':').ok_or_else(wrong)?;
            options.shared_strategies.push((group.into(), strategy(chosen).ok_or_else(wrong)?));
        }
        "subscription_ids_available" => options.subscription_ids_available = flag()?,
        "subscriptions_max" => options.subscriptions_max = number()? as u32,
        "sys_interval_s" => options.sys_interval_s = number()? as u32,
        "topic_alias_max" => options.topic_alias_max = number()? as u16,
        "topic_alias_out_max" => options.topic_alias_out_max = number()? as u16,
        "topic_bytes_max" => options.topic_bytes_max = number()? as u16,
        "topic_levels_max" => options.topic_levels_max = number()? as u16,
        "verdict_timeout_ms" => options.verdict_timeout_ms = number()? as u32,
        "wildcard_available" => options.wildcard_available = flag()?,
        "write_bytes_max" => options.write_bytes_max = number()? as u32,
        _ => return Err(wrong()),
    }
    Ok(())
}

fn policy(name: &str) -> Option<QueuePolicy> {
    Some(match name {
        "disconnect" => QueuePolicy::Disconnect,
        "drop_newest" => QueuePolicy::DropNewest,
        "drop_oldest" => QueuePolicy::DropOldest,
        _ => return None,
    })
}

fn durability(name: &str) -> Option<Durability> {
    Some(match name {
        "lazy" => Durability::Lazy,
        "memory" => Durability::Memory,
        "sync" => Durability::Sync,
        _ => return None,
    })
}

fn strategy(name: &str) -> Option<SharedStrategy> {
    Some(match name {
        "hash_client" => SharedStrategy::HashClient,
        "hash_topic" => SharedStrategy::HashTopic,
        "random" => SharedStrategy::Random,
        "round_robin" => SharedStrategy::RoundRobin,
        "sticky" => SharedStrategy::Sticky,
        _ => return None,
    })
}
