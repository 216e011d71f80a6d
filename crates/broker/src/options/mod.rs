//! The options of a shard: an immutable value which a reload replaces as a whole, by
//! `ShardCommand::Reload`. The rows in crate `broker_options` have name, range, default text and
//! documentation of every option; the defaults in force are here.

pub mod auto_subscription;
pub mod bans;
pub mod cache_config;
pub mod cache_metrics;
pub mod client_groups;
pub mod namespace_template;
pub mod preset;
pub mod rewrite;
pub mod rule;
pub mod rule_metrics;

use crate::access_rules::acl_rules::AclRuleSet;
use crate::ids::ListenerId;
use crate::limits::{self, LINK_IDS};
use crate::message::Durability;
use crate::options::auto_subscription::AutoSubscription;
use crate::options::bans::BanList;
use crate::options::cache_config::CacheConfig;
use crate::options::client_groups::{AuthzOptions, ClientGroup};
use crate::options::namespace_template::NamespaceTemplate;
use crate::options::preset::PresetSession;
use crate::options::rewrite::TopicRewrite;
use crate::options::rule::{DeliveryEventOptions, Rule};
use crate::refusal::Refusal;
use crate::special_topics::{CACHE_PREFIX, DELAYED_PREFIX, EXCLUSIVE};
use std::sync::Arc;

/// Action when a session's queue is full. Every dropped message is counted by client and reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// Close the slow client's connection. The session and its queue stay.
    Disconnect,
    DropNewest,
    #[default]
    DropOldest,
}

/// Rule by which a shared subscription chooses the member for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedStrategy {
    HashClient,
    HashTopic,
    Random,
    #[default]
    RoundRobin,
    Sticky,
}

/// Selects the packets to trace. A packet must meet all given conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    pub client_id: Option<String>,
    /// A topic filter, for packets with a topic.
    pub topic: Option<String>,
    pub address: Option<std::net::IpAddr>,
}

/// Optional records of events, each with a cost that is paid only if a consumer is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// Adds a User Property which names the MQTT 3.1.1 bridge a message came from: see
    /// `BRIDGE_PATH`.
    pub bridge_path: bool,
    pub delivery: DeliveryEventOptions,
    pub trace: Option<TraceFilter>,
}

/// Access options of a listener which differ from `BrokerOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerAccess {
    pub authz: Option<AuthzOptions>,
    pub authenticates: bool,
    /// Number of the listener's set of users. 0 is the set of all listeners without backends of
    /// their own. The same user name in two domains stands for two users with separate sessions.
    pub identity_domain: u64,
    pub methods: Arc<[Box<str>]>,
    pub permissions: Option<Arc<AclRuleSet>>,
}

/// Access options by listener, read by `authz_at`, `authenticates_at` and similar functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessByListener {
    /// Authentication methods of MQTT 5.0, for listeners without a `ListenerAccess`.
    pub methods: Arc<[Box<str>]>,
    /// Access options of each listener that has its own, indexed by `ListenerId`. Code outside
    /// [`BrokerOptions`] reads them by functions such as `authz_at`.
    pub own: Vec<Option<Arc<ListenerAccess>>>,
}

/// The options of a shard. Listeners and `ClientGroup`s may have copies with values of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerOptions {
    pub access: AccessByListener,
    /// Connections from one address to one listener. 0 is unlimited, here and below.
    pub address_connections_max: u32,
    pub address_connections_per_s: u32,
    /// Authorization server for actions to which no rule of `permissions` applies; ignored without
    /// `permissions`.
    pub authz: Option<AuthzOptions>,
    /// Subscriptions which the broker makes for every client.
    pub auto_subscriptions: Arc<[AutoSubscription]>,
    /// Clients to refuse; `None` refuses no client.
    pub bans: Option<Arc<BanList>>,
    /// Bytes per second to one client, and from one client. 0 is unlimited.
    pub bytes_out_per_s: u32,
    pub bytes_per_s: u32,
    /// Caches of the last messages of topics: see `caches`.
    pub caches: Arc<[CacheConfig]>,
    pub check_payload_format: bool,
    /// Groups of clients with limits of their own. Read only by `options_of_client`.
    pub client_groups: Vec<ClientGroup>,
    pub client_id_bytes_max: u16,
    pub connect_timeout_ms: u32,
    /// Largest number of connections of a listener or of a `ClientGroup`.
    pub connections_max: u32,
    pub connections_per_s: u32,
    /// Bytes of all delayed messages of the process, `cost::DELAYED` included.
    pub delayed_bytes_max: u64,
    /// Percentage of `delayed_messages_max` and of `delayed_bytes_max` that one client may use.
    pub delayed_client_percent_max: u8,
    pub delayed_messages_max: u32,
    pub durability: Durability,
    /// Durability by topic filter; the first match wins.
    pub durabilities: Vec<(String, Durability)>,
    /// Whether clients may make exclusive subscriptions.
    pub exclusive_available: bool,
    /// Seconds of a ban for a client that connects and disconnects too often.
    pub flapping_ban_s: u32,
    /// Disconnections of one client within `flapping_window_s` which lead to a ban; 0 disables
    /// bans.
    pub flapping_count_max: u32,
    pub flapping_window_s: u32,
    /// Unacknowledged QoS 1 and 2 messages towards a client; the client's Receive Maximum may lower
    /// this.
    pub inflight_max: u16,
    /// Whether a CONNECT waits for the authenticator: see `Effect::Authenticate`.
    pub authenticates: bool,
    /// Longest keep-alive in seconds; 0 accepts the client's value. MQTT 3.x has no Server Keep
    /// Alive, so for its clients only the broker's own timeout is shorter.
    pub keep_alive_s_max: u16,
    /// Options of listeners with limits of their own, indexed by `ListenerId`. Read only by
    /// `options_of_listener`.
    pub listeners: Vec<Option<Arc<BrokerOptions>>>,
    /// Bound of all memory that clients cause: see `memory`.
    pub memory_bytes_max: u64,
    pub message_expiry_s_max: u32,
    /// Messages per second to one client, and from one client. 0 is unlimited.
    pub messages_out_per_s: u32,
    pub messages_per_s: u32,
    /// Whether a client's namespace depends on the user which the authenticator returns.
    pub namespace_needs_user: bool,
    pub namespace: Option<NamespaceTemplate>,
    pub event_options: EventOptions,
    pub packet_bytes_max: u32,
    /// Access rules; `None` allows every action.
    pub permissions: Option<Arc<AclRuleSet>>,
    /// Sessions which exist before the client has ever connected.
    pub presets: Arc<[PresetSession]>,
    pub qos_max: u8,
    /// Longest time that a message waits in a session's queue, in seconds; `u32::MAX` is unlimited.
    pub queue_age_s_max: u32,
    /// Largest number of bytes in a session's queue. `u64::MAX` selects a default, which depends on
    /// where the queue is: see `queue_bounds`.
    pub queue_bytes_max: u64,
    /// Largest number of messages in a session's queue; `u32::MAX` selects the default of
    /// `queue_bounds`.
    pub queue_messages_max: u32,
    pub queue_policy: QueuePolicy,
    /// Whether QoS 0 messages are queued for a disconnected client. For a congested client they
    /// always are.
    pub queue_qos0: bool,
    /// QoS 2 messages from one client that await its PUBREL, announced as Receive Maximum.
    pub receive_maximum: u16,
    pub response_information: String,
    pub retain_available: bool,
    pub retained_bytes_max: u64,
    pub retained_messages_max: u32,
    /// Rewrites of topics and filters of clients, applied as a packet arrives.
    pub rewrites: Arc<[TopicRewrite]>,
    /// Rules that receive messages and events, in addition to their delivery.
    pub rules: Arc<[Rule]>,
    /// Session expiry of 3.x clients with Clean Session 0, in seconds; `u32::MAX` never expires.
    pub session_expiry_s_default: u32,
    pub session_expiry_s_max: u32,
    pub shared_available: bool,
    pub shared_strategy: SharedStrategy,
    /// Strategies by group name; the first match wins.
    pub shared_strategies: Vec<(String, SharedStrategy)>,
    pub subscription_ids_available: bool,
    pub subscriptions_max: u32,
    /// Seconds between two `$SYS` rounds; 0 disables the `$SYS` tree.
    pub sys_interval_s: u32,
    pub topic_alias_max: u16,
    pub topic_alias_out_max: u16,
    pub topic_bytes_max: u16,
    pub topic_levels_max: u16,
    /// Longest time that a CONNECT, or another packet, waits for an authentication or authorization
    /// decision before the broker refuses it.
    pub verdict_timeout_ms: u32,
    pub wildcard_available: bool,
    /// Unsent bytes at which a connection counts as congested: messages then wait in the session's
    /// queue.
    pub write_bytes_max: u32,
}

impl BrokerOptions {
    fn access_at(&self, at: ListenerId) -> Option<&ListenerAccess> {
        self.access.own.get(usize::from(at.0))?.as_deref()
    }

    /// Whether a CONNECT at a listener waits for the authenticator.
    pub(crate) fn authenticates_at(&self, at: ListenerId) -> bool {
        self.access_at(at).map_or(self.authenticates, |own| own.authenticates)
    }

    /// Whether any listener has an authenticator.
    pub(crate) fn authenticates_anywhere(&self) -> bool {
        self.authenticates || self.access.own.iter().flatten().any(|own| own.authenticates)
    }

    /// Returns the identity domain of a listener: see `ListenerAccess::identity_domain`.
    pub(crate) fn identity_domain_at(&self, at: ListenerId) -> u64 {
        self.access_at(at).map_or(0, |own| own.identity_domain)
    }

    /// Returns the access rules for clients of a listener; `None` allows every action.
    #[inline]
    pub(crate) fn permissions_at(&self, at: ListenerId) -> Option<&Arc<AclRuleSet>> {
        match self.access_at(at) {
            Some(own) => own.permissions.as_ref(),
            None => self.permissions.as_ref(),
        }
    }

    /// Returns the authorization options for clients of a listener; `None` has no backend.
    pub(crate) fn authz_at(&self, at: ListenerId) -> Option<AuthzOptions> {
        self.access_at(at).map_or(self.authz, |own| own.authz)
    }

    /// Whether any listener has an authorization backend.
    pub(crate) fn uses_authz_anywhere(&self) -> bool {
        self.authz.is_some() || self.access.own.iter().flatten().any(|own| own.authz.is_some())
    }

    /// Whether any listener has access rules.
    pub(crate) fn has_permissions(&self) -> bool {
        let has_own = |own: &Arc<ListenerAccess>| own.permissions.is_some();
        self.permissions.is_some() || self.access.own.iter().flatten().any(has_own)
    }

    pub(crate) fn supports_auth_method(&self, at: ListenerId, method: &str) -> bool {
        let methods = self.access_at(at).map_or(&self.access.methods, |own| &own.methods);
        self.authenticates_at(at) && methods.iter().any(|known| **known == *method)
    }

    /// Returns the bounds of a queue in messages and bytes. The default of a stored queue is
    /// larger, since its messages are on the disk.
    pub fn queue_bounds(&self, is_stored: bool) -> (u64, u64) {
        let (messages, bytes) = match is_stored {
            true => (u64::MAX, limits::STORED_QUEUE_BYTES_MAX),
            false => (limits::MEMORY_QUEUE_MESSAGES_MAX, limits::MEMORY_QUEUE_BYTES_MAX),
        };
        // The largest packet has to fit.
        let bytes = bytes.max(u64::from(self.packet_bytes_max));
        let set_messages = Some(self.queue_messages_max).filter(|max| *max != u32::MAX);
        let set_bytes = Some(self.queue_bytes_max).filter(|max| *max != u64::MAX);
        (set_messages.map_or(messages, u64::from), set_bytes.unwrap_or(bytes))
    }

    /// Returns a listener's own options, or these where the listener has none.
    pub(crate) fn options_of_listener(&self, at: ListenerId) -> &BrokerOptions {
        match self.listeners.get(usize::from(at.0)) {
            Some(Some(own)) => own,
            _ => self,
        }
    }
}

impl BrokerOptions {
    /// Checks the topic of a PUBLISH or of a will: length, levels and the topics reserved below
    /// `$`.
    #[inline]
    pub(crate) fn check_topic(&self, topic: &str) -> Result<(), Refusal> {
        if topic.len() > usize::from(self.topic_bytes_max)
            || is_deeper_than(topic, usize::from(self.topic_levels_max))
        {
            return Err(Refusal::TopicNameInvalid);
        }
        if !topic.starts_with('$') {
            return Ok(());
        }
        check_reserved_topic(topic)
    }
}

/// Refuses topics which begin with `$` and belong to the server, each tree with its root: `$SYS/#`
/// also matches `$SYS` (MQTT 5.0, 4.7.1.2). `$share/` and the like are prefixes of filters and not
/// topics.
fn check_reserved_topic(topic: &str) -> Result<(), Refusal> {
    let is_in = |prefix: &str| {
        let root = prefix.trim_end_matches('/');
        topic.starts_with(prefix) || topic == root
    };
    if is_in(DELAYED_PREFIX) {
        return Err(Refusal::DelayInvalid);
    }
    if is_in(CACHE_PREFIX) {
        return Err(Refusal::CacheUnknown);
    }
    if is_in(SHARE) || is_in(EXCLUSIVE) {
        return Err(Refusal::TopicReserved);
    }
    let is_told = topic.starts_with("$SYS") && !is_state_of_bridge(topic);
    if is_told || is_in(LINK_IDS) { Err(Refusal::NotAuthorized) } else { Ok(()) }
}

const SHARE: &str = "$share/";

/// Whether mosquitto's bridges publish their state to this topic, at times as their will. This is
/// the only topic below `$SYS` which a client may publish to.
fn is_state_of_bridge(topic: &str) -> bool {
    let name = topic.strip_prefix("$SYS/broker/connection/");
    name.and_then(|name| name.strip_suffix("/state"))
        .is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

fn is_deeper_than(topic: &str, levels_max: usize) -> bool {
    // A topic shorter than the limit cannot be deeper.
    topic.len() >= levels_max && topic.bytes().filter(|&byte| byte == b'/').count() >= levels_max
}

impl Default for BrokerOptions {
    fn default() -> BrokerOptions {
        BrokerOptions {
            access: AccessByListener::default(),
            address_connections_max: 0,
            address_connections_per_s: 0,
            authz: None,
            auto_subscriptions: Arc::new([]),
            bans: None,
            bytes_out_per_s: 0,
            bytes_per_s: 0,
            caches: Arc::new([]),
            check_payload_format: false,
            client_groups: Vec::new(),
            client_id_bytes_max: 1024,
            connect_timeout_ms: 10_000,
            connections_max: 0,
            connections_per_s: 0,
            delayed_bytes_max: 64 * 1024 * 1024,
            delayed_client_percent_max: 50,
            delayed_messages_max: 100_000,
            durability: Durability::Sync,
            durabilities: Vec::new(),
            exclusive_available: false,
            flapping_ban_s: 300,
            flapping_count_max: 0,
            flapping_window_s: 60,
            inflight_max: 1024,
            authenticates: false,
            keep_alive_s_max: 0,
            listeners: Vec::new(),
            memory_bytes_max: limits::MEMORY_BYTES_MAX_DEFAULT,
            message_expiry_s_max: u32::MAX,
            messages_out_per_s: 0,
            messages_per_s: 0,
            namespace_needs_user: false,
            namespace: None,
            event_options: EventOptions::default(),
            packet_bytes_max: 2 * 1024 * 1024,
            permissions: None,
            presets: Arc::new([]),
            qos_max: 2,
            queue_age_s_max: u32::MAX,
            queue_bytes_max: u64::MAX,
            queue_messages_max: u32::MAX,
            queue_policy: QueuePolicy::default(),
            queue_qos0: false,
            receive_maximum: 16_384,
            response_information: String::new(),
            retain_available: true,
            retained_bytes_max: 1024 * 1024 * 1024,
            retained_messages_max: 10_000_000,
            rewrites: Arc::new([]),
            rules: Arc::new([]),
            session_expiry_s_default: u32::MAX,
            session_expiry_s_max: u32::MAX,
            shared_available: true,
            shared_strategy: SharedStrategy::default(),
            shared_strategies: Vec::new(),
            subscription_ids_available: true,
            subscriptions_max: 100_000,
            sys_interval_s: 10,
            topic_alias_max: 64,
            topic_alias_out_max: 64,
            topic_bytes_max: u16::MAX,
            topic_levels_max: 128,
            verdict_timeout_ms: 5_000,
            wildcard_available: true,
            write_bytes_max: 1024 * 1024,
        }
    }
}
