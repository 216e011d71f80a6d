//! The session of a link at this broker. The process connects to itself, and the link is a client
//! with a client id which no other client can use. The session is the queue of the link: it has the
//! bounds and the storage of sessions, and messages without an acknowledgement are sent again.

use super::lock;
use super::new_filters::NewLinkFilters;
use broker::BrokerOptions;
use broker::access_rules::client_group_counter::ClientGroupCounter;
use broker::limits::LINK_IDS;
use broker::options::client_groups::ClientGroup;
use broker::peer::authentication::Principal;
use broker::session::session_report::{SessionReport, SessionSelector};
use mqtt::client::{ServerLimits, UnacknowledgedPackets};
use mqtt::{
    Connect, Disconnect, FilterListBuf, Packet, PacketId, PacketType, Properties, PropertiesBuf,
    Property, ProtocolVersion, PublishAck, QoS, ReasonCode, Subscribe, SubscribeOptions,
    SubscriptionListBuf, Unsubscribe,
};
use ring::digest::{SHA256, digest};
use std::collections::HashSet;
use std::os::unix::net::UnixStream as Pair;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{iter, thread};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tracing::warn;

/// The broker of this process, with the sessions of links. See [`LocalBroker::connect`].
pub struct LocalBroker {
    pub handle: engine::EngineHandle,
    /// Client ids of links which have just started, until `prepare_session` has succeeded or failed
    /// once.
    starting: Mutex<HashSet<String>>,
    fewer: Condvar,
    /// Notes of new filters whose retained messages this process has requested, see
    /// [`NewLinkFilters`].
    asked: Mutex<HashSet<String>>,
}

/// Bound of [`LocalBroker::wait_for_sessions`]: longer than any healthy disk needs to store the
/// sessions.
const BEGIN_MAX: Duration = Duration::from_secs(10);

/// A connected session of a link. Returned by `LocalBroker::connect`.
pub struct LocalSession {
    pub stream: UnixStream,
    /// Bytes received behind CONNACK.
    pub read: Vec<u8>,
    pub session_present: bool,
    pub limits: ServerLimits,
}

/// Identity under which a link acts. The broker checks permissions of the link as of a client with
/// this user name and these groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkIdentity {
    pub user: Arc<str>,
    pub groups: Vec<Arc<str>>,
}

/// A text about a filter which this broker refused to a link: the filter and the reason.
pub type FilterRefusal = String;

/// A session which exists and has its subscriptions, see `prepare_session_as`.
pub struct PreparedSession {
    pub refused: Vec<FilterRefusal>,
    pub new_filters: NewLinkFilters,
}

/// Parameters of the CONNECT of a link's session.
#[derive(Clone, Copy, Debug)]
pub struct LocalSessionRequest<'a> {
    pub link_id: &'a str,
    pub receive_maximum: u16,
    /// Ends the session: Clean Start is 1 and Session Expiry Interval is 0. Otherwise the session
    /// continues and does not expire.
    pub is_last: bool,
    /// The connection receives no messages, only acknowledgements: see `Principal::is_quiet`.
    pub is_quiet: bool,
}

/// Returns the subscription by which a link receives rows of rules. Rows have at most `qos_max`.
pub fn row_subscription(link_id: &str, qos_max: QoS) -> (String, SubscribeOptions) {
    let options = SubscribeOptions {
        qos: qos_max,
        no_local: false,
        retain_as_published: true,
        retain_handling: 2,
    };
    (format!("{link_id}/#"), options)
}

/// Returns the prefix of filters which are notes of a link's session. Notes stay when the link
/// changes its subscriptions.
pub fn note_prefix(link_id: &str) -> String {
    format!("{link_id}/.notes/")
}

/// Returns the note about `text`, as a filter of bounded length: the text, which may be longer than
/// a filter, is represented by 8 bytes of its SHA-256 digest.
pub fn note_filter(link_id: &str, what: &str, text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    let beginning = digest.as_ref().iter().take(8);
    let digits: String = beginning.map(|byte| format!("{byte:02x}")).collect();
    format!("{}{what}/{digits}", note_prefix(link_id))
}

/// Subscription options of a note. Clients do not publish to topics of notes.
pub const NOTE_OPTIONS: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtMostOnce,
    no_local: true,
    retain_as_published: false,
    retain_handling: 2,
};

/// Returns the topic which a rule gave to a row, from the internal topic `topic` of a link: the
/// levels after the kind and the name of the link. `None` for a topic of another form.
pub fn row_name(topic: &str) -> Option<&str> {
    // The first two levels are the kind and the name of the link; a name has no levels.
    topic.strip_prefix(LINK_IDS)?.splitn(3, '/').nth(2)
}

/// Returns the [`ClientGroup`] through which the session of a link has its own `limits`.
pub fn client_group(link_id: &str, limits: &Arc<BrokerOptions>) -> ClientGroup {
    ClientGroup {
        name: link_id.into(),
        options: limits.clone(),
        present: ClientGroupCounter::default(),
    }
}

/// Returns the options for sessions of links: limits meant for clients (rates, keep alive, expiry,
/// number of subscriptions, namespaces) do not apply.
pub fn session_limits(all: &BrokerOptions) -> BrokerOptions {
    BrokerOptions {
        bytes_out_per_s: 0,
        bytes_per_s: 0,
        client_groups: Vec::new(),
        connections_max: 0,
        keep_alive_s_max: 0,
        listeners: Vec::new(),
        messages_out_per_s: 0,
        messages_per_s: 0,
        namespace: None,
        receive_maximum: u16::MAX,
        session_expiry_s_max: u32::MAX,
        subscriptions_max: u32::MAX,
        topic_alias_max: 0,
        ..all.clone()
    }
}

impl LocalBroker {
    pub fn new(handle: engine::EngineHandle) -> LocalBroker {
        LocalBroker {
            handle,
            starting: Mutex::default(),
            fewer: Condvar::new(),
            asked: Mutex::default(),
        }
    }

    /// Registers a session for which [`LocalBroker::wait_for_sessions`] waits.
    pub fn expect_session(&self, link_id: String) {
        lock(&self.starting).insert(link_id);
    }

    /// Waits until the expected sessions are subscribed or have failed once, at most `BEGIN_MAX`.
    /// Messages published afterwards wait in the sessions of their links.
    pub fn wait_for_sessions(&self) {
        let beginning = lock(&self.starting);
        let waited = self.fewer.wait_timeout_while(beginning, BEGIN_MAX, |all| !all.is_empty());
        let (mut late, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for link_id in late.drain() {
            warn!(target: "godwit::link", link = link_id, "its session is not there yet");
        }
    }

    /// Returns reports on the sessions of `link_ids`. Shards answer between two ticks, so a
    /// separate thread waits: the runtime's blocking threads may be busy with name resolution.
    pub async fn report_sessions(&self, link_ids: Vec<Box<str>>) -> Vec<SessionReport> {
        let (handle, (told, reports)) = (self.handle.clone(), oneshot::channel());
        let asks = thread::Builder::new().name("survey".into()).spawn(move || {
            let _ = told.send(handle.report_sessions(SessionSelector::ClientIds(link_ids)));
        });
        match asks {
            Ok(_) => reports.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Creates the session of a link if needed and makes its subscriptions equal to `wanted`, a
    /// function of the largest QoS here. Messages and retained messages wait from then on. The
    /// first refused filter is an error.
    pub async fn prepare_session(
        &self,
        link_id: &str,
        is_subscribed: bool,
        wanted: impl Fn(QoS) -> Vec<(String, SubscribeOptions)>,
    ) -> Result<NewLinkFilters, String> {
        let PreparedSession { refused, new_filters: fresh } =
            self.prepare_session_as(link_id, None, is_subscribed, wanted).await?;
        refused.into_iter().next().map_or(Ok(fresh), Err)
    }

    /// Prepares a session which acts as `identity` and may lack permissions. Returns the refused
    /// filters; see [`LocalBroker::prepare_session`].
    pub async fn prepare_session_as(
        &self,
        link_id: &str,
        identity: Option<&LinkIdentity>,
        is_subscribed: bool,
        wanted: impl Fn(QoS) -> Vec<(String, SubscribeOptions)>,
    ) -> Result<PreparedSession, String> {
        let prepared = self.open_prepared_session(link_id, identity, is_subscribed, wanted).await;
        lock(&self.starting).remove(link_id);
        self.fewer.notify_all();
        prepared
    }

    async fn open_prepared_session(
        &self,
        link_id: &str,
        identity: Option<&LinkIdentity>,
        is_subscribed: bool,
        wanted: impl Fn(QoS) -> Vec<(String, SubscribeOptions)>,
    ) -> Result<PreparedSession, String> {
        let before = self.report_sessions(vec![link_id.into()]).await;
        let had = before.iter().flat_map(|report| &report.filters);
        let had: HashSet<&str> = had.map(|filter| &**filter).collect();
        if is_subscribed && !before.is_empty() {
            let fresh = NewLinkFilters::new_since(link_id, &wanted(QoS::ExactlyOnce), &had);
            return Ok(PreparedSession { refused: Vec::new(), new_filters: fresh });
        }
        let wish =
            LocalSessionRequest { link_id, receive_maximum: 1, is_last: false, is_quiet: true };
        let mut local = self.connect_as(wish, identity).await?;
        let wanted = wanted(local.limits.qos_max);
        let fresh = NewLinkFilters::new_since(link_id, &wanted, &had);
        let asked = lock(&self.asked).clone();
        let all = fresh
            .initial_subscriptions(&wanted, |note| had.contains(note) && !asked.contains(note));
        let others = note_prefix(link_id);
        let is_gone = |filter: &&str| {
            let stays = filter.starts_with(&others) && !NewLinkFilters::is_note(link_id, filter);
            !stays && all.iter().all(|(wanted, _)| wanted != filter)
        };
        let gone: Vec<&str> = had.iter().copied().filter(is_gone).collect();
        let refused = local.subscribe(&all, &gone).await?;
        lock(&self.asked).extend(fresh.notes().map(str::to_string));
        local.disconnect().await?;
        Ok(PreparedSession { refused, new_filters: fresh })
    }

    /// Ends the session of a link and discards its queue.
    pub async fn end_session(&self, link_id: &str) -> Result<(), String> {
        let wish =
            LocalSessionRequest { link_id, receive_maximum: 1, is_last: true, is_quiet: true };
        self.connect(wish).await?.disconnect().await
    }

    pub async fn connect(&self, wish: LocalSessionRequest<'_>) -> Result<LocalSession, String> {
        self.connect_as(wish, None).await
    }

    /// Connects as `identity`. Without an identity the link has all permissions, and only its topic
    /// maps restrict it.
    pub async fn connect_as(
        &self,
        wish: LocalSessionRequest<'_>,
        identity: Option<&LinkIdentity>,
    ) -> Result<LocalSession, String> {
        let wrong = |error: std::io::Error| format!("no connection to this broker: {error}");
        let (ours, theirs) = Pair::pair().map_err(wrong)?;
        ours.set_nonblocking(true).map_err(wrong)?;
        let groups = identity.into_iter().flat_map(|own| own.groups.iter().cloned());
        let principal = Principal {
            user: Some(identity.map_or(wish.link_id.into(), |own| own.user.clone())),
            namespace: Some("".into()),
            // The first group is the class of the session's limits, see `client_group`.
            groups: iter::once(wish.link_id.into()).chain(groups).collect(),
            is_superuser: identity.is_none(),
            is_quiet: wish.is_quiet,
            ..Principal::default()
        };
        self.handle.connect_internal(theirs, principal).map_err(wrong)?;
        let mut stream = UnixStream::from_std(ours).map_err(wrong)?;
        stream.write_all(&encode_connect(wish)).await.map_err(wrong)?;
        let mut read = Vec::new();
        let frame_len = read_frame(&mut stream, &mut read).await?;
        let Some(Packet::ConnAck(ack)) = first_packet(&read, ProtocolVersion::V5) else {
            return Err("this broker did not answer as one".to_string());
        };
        let limits = ServerLimits::from_connack(&ack)
            .map_err(|reason| format!("this broker refused the link: {reason}"))?;
        let session_present = ack.session_present;
        read.drain(..frame_len);
        Ok(LocalSession { stream, read, session_present, limits })
    }
}

impl LocalSession {
    /// Subscribes to `wanted` and unsubscribes from `gone`, and waits for SUBACK and UNSUBACK.
    /// Other packets which arrive meanwhile stay at the front of `read`.
    pub async fn subscribe(
        &mut self,
        wanted: &[(&str, SubscribeOptions)],
        gone: &[&str],
    ) -> Result<Vec<FilterRefusal>, String> {
        let (mut bytes, mut all_refused) = (Vec::new(), Vec::new());
        let mut requests = UnacknowledgedPackets::default();
        if !wanted.is_empty()
            && let Some(id) = requests.add(PacketType::SubAck, ())
        {
            encode_subscribe(id, wanted.iter().copied(), ProtocolVersion::V5, &mut bytes);
        }
        if !gone.is_empty()
            && let Some(id) = requests.add(PacketType::UnsubAck, ())
        {
            encode_unsubscribe(id, gone, ProtocolVersion::V5, &mut bytes);
        }
        self.write_all(&bytes).await?;
        let mut others = Vec::new();
        while requests.request_count() > 0 {
            let len = read_frame(&mut self.stream, &mut self.read).await?;
            match first_packet(&self.read, ProtocolVersion::V5) {
                Some(Packet::SubAck(ack)) => {
                    requests.answer_request(PacketType::SubAck, ack.packet_id);
                    let filters = wanted.iter().map(|(filter, _)| *filter);
                    all_refused = refused_filters(filters, ack.codes);
                }
                Some(Packet::UnsubAck(ack)) => {
                    requests.answer_request(PacketType::UnsubAck, ack.packet_id);
                }
                Some(_) => others.extend_from_slice(&self.read[..len]),
                None => return Err("this broker did not answer as one".to_string()),
            }
            self.read.drain(..len);
        }
        self.read.splice(..0, others);
        Ok(all_refused)
    }

    pub async fn disconnect(mut self) -> Result<(), String> {
        let mut bytes = Vec::new();
        let (reason, properties) = (ReasonCode::NormalDisconnection, Properties::default());
        Disconnect { reason, properties }.encode(ProtocolVersion::V5, &mut bytes);
        self.write_all(&bytes).await?;
        // The broker closes the connection when it has processed DISCONNECT.
        while self.stream.read(&mut [0; 4096]).await.is_ok_and(|len| len > 0) {}
        Ok(())
    }

    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), String> {
        let said = self.stream.write_all(bytes).await;
        said.map_err(|error| format!("this broker does not listen: {error}"))
    }
}

/// Appends a SUBSCRIBE with the filters `wanted` to `out`.
pub fn encode_subscribe<'a>(
    packet_id: PacketId,
    wanted: impl Iterator<Item = (&'a str, SubscribeOptions)>,
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) {
    let (mut filters, properties) = (SubscriptionListBuf::default(), Properties::default());
    wanted.for_each(|(filter, options)| _ = filters.push(filter, options));
    let filters = filters.as_subscriptions();
    Subscribe { packet_id, properties, filters }.encode(version, out);
}

pub fn encode_unsubscribe(
    packet_id: PacketId,
    gone: &[impl AsRef<str>],
    version: ProtocolVersion,
    out: &mut Vec<u8>,
) {
    let (mut filters, properties) = (FilterListBuf::default(), Properties::default());
    gone.iter().for_each(|filter| _ = filters.push(filter.as_ref()));
    let filters = filters.as_filters();
    Unsubscribe { packet_id, properties, filters }.encode(version, out);
}

/// Returns the filters which SUBACK refuses, with the names of the reason codes.
pub fn refused_filters<'a>(
    wanted: impl Iterator<Item = &'a str>,
    codes: &[u8],
) -> Vec<FilterRefusal> {
    let denied = wanted.zip(codes).filter(|(_, code)| **code >= 0x80);
    let say = |(filter, code): (&str, &u8)| {
        let why = ReasonCode::from_byte(*code).map_or("", ReasonCode::name);
        format!("this broker does not let it subscribe to {filter}: {why}")
    };
    denied.map(say).collect()
}

fn encode_connect(wish: LocalSessionRequest<'_>) -> Vec<u8> {
    let mut properties = PropertiesBuf::default();
    let expiry_s = if wish.is_last { 0 } else { u32::MAX };
    properties.push(Property::SessionExpiryInterval(expiry_s));
    properties.push(Property::ReceiveMaximum(wish.receive_maximum.max(1)));
    let mut bytes = Vec::new();
    let packet = Connect {
        is_bridge: false,
        version: ProtocolVersion::V5,
        clean_start: wish.is_last,
        keep_alive_s: 0,
        client_id: wish.link_id,
        will: None,
        user_name: None,
        password: None,
        properties: properties.as_properties(),
    };
    packet.encode(ProtocolVersion::V5, &mut bytes);
    bytes
}

/// Appends an acknowledgement of `kind` (PUBACK, PUBREC, PUBREL or PUBCOMP) with a reason code to
/// `out`.
pub fn encode_ack(kind: PacketType, packet_id: PacketId, reason: ReasonCode, out: &mut Vec<u8>) {
    let properties = Properties::default();
    PublishAck { packet_id, reason, properties }.encode(kind, ProtocolVersion::V5, out);
}

/// Decodes the packet at the front of `read`, or returns `None` if it is incomplete or malformed.
pub fn first_packet(read: &[u8], version: ProtocolVersion) -> Option<Packet<'_>> {
    let frame = mqtt::split_frame(read, u32::MAX).ok().flatten()?;
    Packet::decode(frame, version).ok()
}

/// Reads until a whole packet stands at the front of `read`, and returns the packet's length in
/// bytes.
pub async fn read_frame(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
    read: &mut Vec<u8>,
) -> Result<usize, String> {
    loop {
        let frame = mqtt::split_frame(read, u32::MAX)
            .map_err(|violation| violation.description().to_string())?;
        if let Some(frame) = frame {
            return Ok(frame.len);
        }
        match stream.read_buf(read).await {
            Ok(0) => return Err("the connection was closed".to_string()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
