//! Every value that a shard is told from outside. An immutable plan: a reload makes a new one and
//! swaps it in with a `ShardCommand`. The table in the `godwit` crate gives each its name, range,
//! default text and documentation; the defaults here are the ones in force.

use crate::authorization::acl_rules::AclRuleSet;
use crate::authorization::bans::BanList;
use crate::authorization::client_groups::ClientGroup;
use crate::caches::{self, CacheConfig};
use crate::connection::peer::ListenerId;
use crate::connection::refusal::Refusal;
use crate::limits::{self, LINK_IDS};
use crate::routing::delayed;
use crate::routing::exclusive::EXCLUSIVE;
use crate::routing::namespace::NamespaceTemplate;
use crate::routing::rewrite::TopicRewrite;
use crate::rules::{DeliveryEventOptions, Rule};
use crate::session::auto_subscription::AutoSubscription;
use crate::session::preset::PresetSession;
use std::sync::Arc;

/// Action when a session's queue is full. Every dropped message is counted by client and reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The slow client loses its connection, its session stays as it is.
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

/// Durability of a message, which decides what its publisher's acknowledgement waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Durability {
    /// The message is lost when the process ends.
    #[default]
    Memory,
    /// The message reaches the disk within `store.lazy_ms`; the acknowledgement does not wait for
    /// it.
    Lazy,
    /// The receipt leaves when it is on the disk.
    Sync,
}

impl Durability {
    pub(crate) fn from_bits(bits: u8) -> Option<Durability> {
        [Durability::Memory, Durability::Lazy, Durability::Sync].get(usize::from(bits)).copied()
    }
}

/// Traces the packets of whoever matches: every given condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    pub client_id: Option<String>,
    /// A topic filter, for packets that carry a topic.
    pub topic: Option<String>,
    pub address: Option<std::net::IpAddr>,
}

/// Events that are only recorded if a consumer asks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// In a User Property, which bridge of 3.1.1 brought a message.
    pub bridge_path: bool,
    pub delivery: DeliveryEventOptions,
    pub trace: Option<TraceFilter>,
}

/// Options of the server that decides where no rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthzOptions {
    /// Time for which a decision is valid for the same client and topic.
    pub cache_ms: u32,
    /// Whether QoS and RETAIN can make a difference.
    pub uses_qos_or_retain: bool,
}

/// Access options of a listener, where they differ from the broker's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerAccess {
    pub authz: Option<AuthzOptions>,
    pub authenticates: bool,
    /// Listeners with the same number know the same users; 0 is that of all which have no backends
    /// of their own. One user name in two domains is two users, whose sessions are apart.
    pub identity_domain: u64,
    pub methods: Arc<[Box<str>]>,
    pub permissions: Option<Arc<AclRuleSet>>,
}

/// Access options by listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessByListener {
    /// Authentication methods of MQTT 5.0 that the judge knows, where a listener has no own ones.
    pub methods: Arc<[Box<str>]>,
    /// By `ListenerId`, and only to be read by `authz_at`, `authenticates_at` and their like.
    pub own: Vec<Option<Arc<ListenerAccess>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerOptions {
    pub access: AccessByListener,
    /// Connections from one address to one listener; 0 is any number, here and below.
    pub address_connections_max: u32,
    pub address_connections_per_s: u32,
    /// Only where there are `permissions`.
    pub authz: Option<AuthzOptions>,
    /// Subscriptions that every client gets.
    pub auto_subscriptions: Arc<[AutoSubscription]>,
    /// Clients that are refused; `None` refuses no client.
    pub bans: Option<Arc<BanList>>,
    /// To one client, and from it; 0 is any number.
    pub bytes_out_per_s: u32,
    pub bytes_per_s: u32,
    /// Caches of the last messages of topics.
    pub caches: Arc<[CacheConfig]>,
    pub check_payload_format: bool,
    /// Groups of users with limits of their own: only to be read by `of_client`.
    pub client_groups: Vec<ClientGroup>,
    pub client_id_bytes_max: u16,
    pub connect_timeout_ms: u32,
    /// Largest number of connections of a listener or of a group.
    pub connections_max: u32,
    pub connections_per_s: u32,
    /// Bytes of all delayed messages.
    pub delayed_bytes_max: u64,
    /// Share of both bounds of delayed messages that one client may use, in percent.
    pub delayed_client_percent_max: u8,
    pub delayed_messages_max: u32,
    pub durability: Durability,
    /// By topic filter, first match wins.
    pub durabilities: Vec<(String, Durability)>,
    /// Whether a session may have a subscription alone.
    pub exclusive_available: bool,
    /// Duration of a ban for a client that connects and disconnects too often.
    pub flapping_ban_s: u32,
    /// Ends of one client's connections within the window that are too often; 0 is never.
    pub flapping_count_max: u32,
    pub flapping_window_s: u32,
    /// Unacknowledged QoS 1 and 2 messages towards one client, where it does not ask for fewer.
    pub inflight_max: u16,
    /// Whether a CONNECT waits for a verdict: see `judge`.
    pub authenticates: bool,
    /// Longest keep-alive in seconds; 0 leaves the client's own. 3.x clients cannot be told, so
    /// for them only the check is shorter.
    pub keep_alive_s_max: u16,
    /// Options of listeners with limits of their own, by `ListenerId`; to be read by `of` only.
    pub listeners: Vec<Option<Arc<BrokerOptions>>>,
    /// Bound of all memory that clients cause: see `memory`.
    pub memory_bytes_max: u64,
    pub message_expiry_s_max: u32,
    /// To one client, and from it; 0 is any number.
    pub messages_out_per_s: u32,
    pub messages_per_s: u32,
    /// Whether it takes a verdict to know under which namespace a client is.
    pub namespace_needs_user: bool,
    pub namespace: Option<NamespaceTemplate>,
    pub event_options: EventOptions,
    pub packet_bytes_max: u32,
    /// Access rules; `None` allows every action.
    pub permissions: Option<Arc<AclRuleSet>>,
    /// Sessions of clients that were never here.
    pub presets: Arc<[PresetSession]>,
    pub qos_max: u8,
    /// Longest time that a message waits in a session's queue, in seconds; `u32::MAX` for no limit.
    pub queue_age_s_max: u32,
    /// `u64::MAX` is by where the queue is: see `queue_bounds`.
    pub queue_bytes_max: u64,
    /// `u32::MAX` is the same.
    pub queue_messages_max: u32,
    pub queue_policy: QueuePolicy,
    /// Whether QoS 0 messages wait for a client that is away (a congested one's always do).
    pub queue_qos0: bool,
    /// QoS 2 messages from one client that await its PUBREL (announced as Receive Maximum).
    pub receive_maximum: u16,
    pub response_information: String,
    pub retain_available: bool,
    pub retained_bytes_max: u64,
    pub retained_messages_max: u32,
    /// Names that become others as they come in.
    pub rewrites: Arc<[TopicRewrite]>,
    /// Rules that see messages and events, in addition to their delivery.
    pub rules: Arc<[Rule]>,
    /// Given to 3.x clients with Clean Session 0; `u32::MAX` never expires.
    pub session_expiry_s_default: u32,
    pub session_expiry_s_max: u32,
    pub shared_available: bool,
    pub shared_strategy: SharedStrategy,
    /// Strategies by group name, first match wins.
    pub shared_strategies: Vec<(String, SharedStrategy)>,
    pub subscription_ids_available: bool,
    pub subscriptions_max: u32,
    /// 0 turns the `$SYS` tree off.
    pub sys_interval_s: u32,
    pub topic_alias_max: u16,
    pub topic_alias_out_max: u16,
    pub topic_bytes_max: u16,
    pub topic_levels_max: u16,
    /// Longest time that a CONNECT, or another packet, waits for an authentication or authorization
    /// decision before it is refused.
    pub verdict_timeout_ms: u32,
    pub wildcard_available: bool,
    /// Unsent bytes after which a connection counts as congested: messages then wait in its
    /// session's queue.
    pub write_bytes_max: u32,
}

impl BrokerOptions {
    fn access_at(&self, at: ListenerId) -> Option<&ListenerAccess> {
        self.access.own.get(usize::from(at.0))?.as_deref()
    }

    /// Whether a CONNECT at a listener waits for a verdict.
    pub(crate) fn authenticates_at(&self, at: ListenerId) -> bool {
        self.access_at(at).map_or(self.authenticates, |own| own.authenticates)
    }

    /// Whether anybody is asked who it is, at any listener.
    pub(crate) fn authenticates_anywhere(&self) -> bool {
        self.authenticates || self.access.own.iter().flatten().any(|own| own.authenticates)
    }

    /// In which domain the user names of a listener's clients are known.
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

    /// Whether somebody is asked what the clients of a listener may do.
    pub(crate) fn authz_at(&self, at: ListenerId) -> Option<AuthzOptions> {
        self.access_at(at).map_or(self.authz, |own| own.authz)
    }

    /// Whether somebody is asked at any listener.
    pub(crate) fn uses_authz_anywhere(&self) -> bool {
        self.authz.is_some() || self.access.own.iter().flatten().any(|own| own.authz.is_some())
    }

    /// Whether there are rules for the clients of any listener.
    pub(crate) fn has_permissions(&self) -> bool {
        let has_own = |own: &Arc<ListenerAccess>| own.permissions.is_some();
        self.permissions.is_some() || self.access.own.iter().flatten().any(has_own)
    }

    pub(crate) fn supports_auth_method(&self, at: ListenerId, method: &str) -> bool {
        let methods = self.access_at(at).map_or(&self.access.methods, |own| &own.methods);
        self.authenticates_at(at) && methods.iter().any(|known| **known == *method)
    }

    /// Returns the bounds of a queue in messages and bytes. A queue on the disk, whose messages are
    /// acknowledged, may be larger than one in memory.
    pub fn queue_bounds(&self, is_stored: bool) -> (u64, u64) {
        let (messages, bytes) = match is_stored {
            true => (u64::MAX, limits::STORED_QUEUE_BYTES_MAX),
            false => (limits::MEMORY_QUEUE_MESSAGES_MAX, limits::MEMORY_QUEUE_BYTES_MAX),
        };
        // One packet has to fit.
        let bytes = bytes.max(u64::from(self.packet_bytes_max));
        let set_messages = Some(self.queue_messages_max).filter(|max| *max != u32::MAX);
        let set_bytes = Some(self.queue_bytes_max).filter(|max| *max != u64::MAX);
        (set_messages.map_or(messages, u64::from), set_bytes.unwrap_or(bytes))
    }

    /// The limits of a listener.
    pub(crate) fn options_of_listener(&self, at: ListenerId) -> &BrokerOptions {
        match self.listeners.get(usize::from(at.0)) {
            Some(Some(own)) => own,
            _ => self,
        }
    }
}

impl BrokerOptions {
    /// Checks a topic that a client names in a PUBLISH or as its will.
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

/// Whether a topic that begins with `$` is the server's, the root of each tree with what is below:
/// `$SYS/#` matches `$SYS`, too (MQTT 5.0, 4.7.1.2). The prefixes of filters name no topic.
fn check_reserved_topic(topic: &str) -> Result<(), Refusal> {
    let is_in = |prefix: &str| {
        let root = prefix.trim_end_matches('/');
        topic.starts_with(prefix) || topic == root
    };
    if is_in(delayed::PREFIX) {
        return Err(Refusal::DelayInvalid);
    }
    if is_in(caches::PREFIX) {
        return Err(Refusal::CacheUnknown);
    }
    if is_in(SHARE) || is_in(EXCLUSIVE) {
        return Err(Refusal::TopicReserved);
    }
    let is_told = topic.starts_with("$SYS") && !is_state_of_bridge(topic);
    if is_told || is_in(LINK_IDS) { Err(Refusal::NotAuthorized) } else { Ok(()) }
}

const SHARE: &str = "$share/";

/// Whether this is a topic where mosquitto's bridges publish their state, also as their will.
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
