//! Requests to caches, by MQTT's request and response (MQTT 5.0, 4.10):
//!
//! | a PUBLISH to | with the payload | requests |
//! |---|---|---|
//! | `$cache/NAME` | `{"topic":"a/+/c"}` | the messages which the filter matches |
//! | `$cache/NAME/a/b/c` | empty, or `{...}` without `topic` | the topic behind the name |
//!
//! Each message of the answer is a PUBLISH to the Response Topic, in the order of topics. The
//! request itself is not routed. The client needs permission to subscribe to the filter and to
//! publish to the Response Topic; a filter is authorized as a whole, like that of a SUBSCRIBE.

use super::message_cache::{CacheMatches, CachePosition, CacheQuery};
use super::{CacheShardMessage, PREFIX, is_cacheable_filter};
use crate::authorization::ShardAuthorization;
use crate::authorization::authz::AclAction;
use crate::caches::ShardCaches;
use crate::connection::conn::CloseReason;
use crate::connection::connection_table::ConnectionTable;
use crate::connection::refusal::Refusal;
use crate::input::{ConnId, SessionId, SessionRef};
use crate::limits::{CACHE_ANSWER_MESSAGES_MAX, CACHE_READS_MAX, CACHE_REQUEST_BYTES_MAX};
use crate::outbox::Outbox;
use crate::routing::ShardRouting;
use crate::routing::message::{IncomingPublish, NO_EXPIRY};
use crate::routing::namespace;
use crate::session::session_table::SessionTable;
use crate::shard::Shard;
use mqtt::{Properties, PropertiesBuf, Property, Publish, QoS};
use rules::Value;
use std::sync::Arc;

/// A request in transit to the owner of the cache.
#[derive(Clone, Debug)]
pub struct CacheRequest {
    pub(super) cache: Arc<str>,
    pub(super) asker: SessionRef,
    pub(super) wanted: CacheQuery,
    to: CacheReplyTarget,
}

/// Destination of responses: Response Topic, Correlation Data and the QoS of the request.
#[derive(Clone, Debug)]
struct CacheReplyTarget {
    /// The Response Topic with the namespace.
    topic: Box<str>,
    correlation: Option<Box<[u8]>>,
    qos: QoS,
}

/// Result of a `CacheRequest`, for the shard of the requesting client.
#[derive(Clone, Debug)]
pub struct CacheResponse {
    pub(super) read: Box<CacheRequest>,
    pub(super) gathered: CacheMatches,
    /// Whether the cache exists.
    pub(super) is_there: bool,
}

impl CacheRequest {
    /// Returns the memory of the request in transit between shards.
    pub(super) fn bytes(&self) -> i64 {
        let own = size_of::<CacheRequest>() + self.wanted.filter.len() + self.to.topic.len();
        (own + self.to.correlation.as_ref().map_or(0, |bytes| bytes.len())) as i64
    }
}

impl CacheResponse {
    pub(super) fn bytes(&self) -> i64 {
        self.read.bytes() + self.gathered.bytes() as i64
    }
}

/// Error response: the reason code of the acknowledgement, and the text of `cache_error`.
struct CacheRequestError {
    refusal: Refusal,
    why: String,
}

impl From<Refusal> for CacheRequestError {
    fn from(refusal: Refusal) -> CacheRequestError {
        CacheRequestError { refusal, why: refusal.description().to_string() }
    }
}

fn request_error(why: String) -> CacheRequestError {
    CacheRequestError { refusal: Refusal::CacheRequestInvalid, why }
}

/// A parsed request.
#[derive(Debug, Default)]
struct ParsedCacheRequest<'a> {
    cache: &'a str,
    /// Filter or topic, without the namespace.
    filter: String,
    messages_max: Option<u32>,
    after_ms: Option<u64>,
    before_ms: Option<u64>,
    next: Option<(u64, String)>,
}

impl<'a> ParsedCacheRequest<'a> {
    fn parse(topic: &'a str, payload: &[u8]) -> Result<ParsedCacheRequest<'a>, CacheRequestError> {
        let rest = topic.strip_prefix(PREFIX).unwrap_or_default();
        let (cache, filter) = match rest.split_once('/') {
            Some((cache, filter)) => (cache, Some(filter)),
            None => (rest, None),
        };
        let mut request = ParsedCacheRequest { cache, ..ParsedCacheRequest::default() };
        if payload.len() > CACHE_REQUEST_BYTES_MAX {
            return Err(request_error(format!(
                "a request has at most {CACHE_REQUEST_BYTES_MAX} bytes"
            )));
        }
        let text = std::str::from_utf8(payload).ok();
        let said = match text.and_then(Value::from_json) {
            Some(Value::Map(said)) => said,
            _ if payload.is_empty() => rules::ValueMap::default(),
            _ => return Err(Refusal::CacheRequestInvalid.into()),
        };
        for (key, value) in said.iter() {
            request.set_field(key, value)?;
        }
        match (filter, request.filter.is_empty()) {
            (Some(filter), true) => request.filter = filter.to_string(),
            (None, false) => {}
            (None, true) => {
                return Err(request_error("topic is missing, use {\"topic\":\"a/#\"}".into()));
            }
            (Some(_), false) => {
                let why = "topic stands behind the name of the cache too, use one of both";
                return Err(request_error(why.into()));
            }
        }
        match is_cacheable_filter(&request.filter) {
            true => Ok(request),
            false => Err(request_error(
                "topic is not a topic filter, use one like \"a/+/c\" or \"a/#\"".into(),
            )),
        }
    }

    fn set_field(&mut self, key: &str, value: &Value<'_>) -> Result<(), CacheRequestError> {
        let number = || match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let time = || {
            number().ok_or_else(|| request_error(format!("{key} is not a time, use milliseconds")))
        };
        match (key, value) {
            ("topic", Value::Text(filter)) => self.filter = filter.to_string(),
            ("topic", _) => return Err(request_error("topic is not text".into())),
            ("messages_max", _) => {
                let most = CACHE_ANSWER_MESSAGES_MAX as u64;
                let number = number().filter(|number| (1..=most).contains(number));
                let why =
                    || request_error(format!("messages_max is out of range, use 1 to {most}"));
                self.messages_max = Some(number.ok_or_else(why)? as u32);
            }
            ("after_ms", _) => self.after_ms = Some(time()?),
            ("before_ms", _) => self.before_ms = Some(time()?),
            ("next", Value::Text(text)) => {
                let place = text.split_once(':');
                let place = place
                    .and_then(|(number, topic)| Some((number.parse().ok()?, topic.to_string())));
                let why = || request_error("next is not what an answer said in cache_next".into());
                self.next = Some(place.ok_or_else(why)?);
            }
            _ => {
                let known = "topic, messages_max, after_ms, before_ms, next";
                return Err(request_error(format!("{key} is unknown, use {known}")));
            }
        }
        Ok(())
    }
}

fn response_topic<'a>(packet: &Publish<'a>) -> Option<&'a str> {
    packet.properties.iter().find_map(|property| match property {
        Property::ResponseTopic(topic) => Some(topic),
        _ => None,
    })
}

impl Shard {
    /// Handles a PUBLISH to `$cache/`: acknowledges the packet first, then sends the request to the
    /// cache's owner.
    pub(crate) fn request_from_cache(
        &mut self,
        conn: ConnId,
        id: SessionId,
        packet: &Publish<'_>,
        topic: &str,
        out: &mut Outbox,
    ) -> Result<(), CloseReason> {
        self.sessions.write_batch.stores_routed = false;
        self.sessions.durability.pending_acks.requested.clear();
        let to = match self.authorization.reply_target_of(
            id,
            packet,
            &mut self.connections,
            &mut self.sessions,
            out,
        ) {
            Ok(to) => to,
            Err(refusal) => {
                return self.connections.refuse_publish(
                    conn,
                    id,
                    packet,
                    refusal,
                    &mut self.sessions,
                    out,
                );
            }
        };
        match self.parse_cache_request(id, packet, topic, &to, out) {
            Ok(read) => {
                self.connections.acknowledge_publish(
                    conn,
                    id,
                    packet,
                    true,
                    &mut self.sessions,
                    out,
                );
                self.caches.send_cache_request(read, &mut self.routing, &mut self.sessions, out);
            }
            Err(CacheRequestError { refusal, why }) => {
                self.connections.refuse_publish(
                    conn,
                    id,
                    packet,
                    refusal,
                    &mut self.sessions,
                    out,
                )?;
                self.routing.publish_cache_reply(
                    id,
                    &to,
                    &[("cache_error", &why)],
                    None,
                    &mut self.sessions,
                    out,
                );
            }
        }
        Ok(())
    }

    fn parse_cache_request(
        &mut self,
        id: SessionId,
        packet: &Publish<'_>,
        topic: &str,
        to: &CacheReplyTarget,
        out: &mut Outbox,
    ) -> Result<Box<CacheRequest>, CacheRequestError> {
        let request = ParsedCacheRequest::parse(topic, packet.payload)?;
        let caches = &self.sessions.context.options.caches;
        let cache = caches.iter().find(|cache| *cache.name == *request.cache);
        let cache = cache.ok_or(Refusal::CacheUnknown)?.name.clone();
        let filter =
            self.connections.rewrite_filter(id, &request.filter, &self.sessions)?.into_owned();
        let listener = self.sessions.get(id).listener;
        if self.sessions.context.options.permissions_at(listener).is_some() {
            self.authorization.may_subscribe(
                id,
                &filter,
                packet.qos as u8,
                &mut self.sessions,
                out,
            )?;
        }
        if self.caches.unanswered >= CACHE_READS_MAX || self.sessions.is_pressure_high() {
            return Err(Refusal::QuotaExceeded.into());
        }
        let session = self.sessions.get(id);
        let known = |name: &str| -> Box<str> { session.add_prefix(name).into() };
        let wanted = CacheQuery {
            filter: known(&filter),
            prefix_len: session.prefix_len,
            messages_max: request.messages_max.unwrap_or(u32::MAX),
            after_ms: request.after_ms,
            before_ms: request.before_ms,
            from: request.next.map(|(number, topic)| (number, known(&topic))),
        };
        Ok(Box::new(CacheRequest {
            cache,
            asker: self.sessions.session_ref(id),
            wanted,
            to: to.clone(),
        }))
    }
}

impl ShardAuthorization {
    /// Returns the destination of responses, if the client may publish there.
    fn reply_target_of(
        &mut self,
        id: SessionId,
        packet: &Publish<'_>,
        connections: &mut ConnectionTable,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) -> Result<CacheReplyTarget, Refusal> {
        let said = response_topic(packet).ok_or(Refusal::CacheUnanswerable)?;
        let made = sessions.context.rewrite_name(
            AclAction::Publish,
            said,
            &connections.placeholder_values(id, sessions),
        )?;
        let topic = made.as_deref().unwrap_or(said);
        let session = sessions.get(id);
        sessions.context.options.options_of_session(session).check_topic(topic)?;
        namespace::check_name(usize::from(session.prefix_len), topic)?;
        let known = session.add_prefix(topic).into();
        let permitted = sessions.context.options.permissions_at(session.listener).is_none()
            || self.may_publish(id, topic, (packet.qos as u8, false), sessions, out);
        let correlation = packet.properties.iter().find_map(|property| match property {
            Property::CorrelationData(bytes) => Some(bytes.into()),
            _ => None,
        });
        match permitted {
            true => Ok(CacheReplyTarget { topic: known, correlation, qos: packet.qos }),
            false => Err(Refusal::NotPermitted),
        }
    }
}

impl ConnectionTable {
    /// Returns the access checks of a request, in addition to the check of the topic `$cache/NAME`.
    pub(crate) fn cache_request_checks(
        &self,
        id: SessionId,
        packet: &Publish<'_>,
        topic: &str,
        sessions: &SessionTable,
    ) -> Vec<(AclAction, String)> {
        let (Some(said), Ok(request)) =
            (response_topic(packet), ParsedCacheRequest::parse(topic, packet.payload))
        else {
            return Vec::new();
        };
        let made = sessions.context.rewrite_name(
            AclAction::Publish,
            said,
            &self.placeholder_values(id, sessions),
        );
        let filter = self.rewrite_filter(id, &request.filter, sessions);
        let (Ok(made), Ok(filter)) = (made, filter) else { return Vec::new() };
        let said = made.unwrap_or_else(|| said.to_string());
        vec![(AclAction::Publish, said), (AclAction::Subscribe, filter.into_owned())]
    }
}

impl ShardCaches {
    fn send_cache_request(
        &mut self,
        read: Box<CacheRequest>,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        self.unanswered += 1;
        let home = sessions.context.owner_of(&read.cache);
        if home == sessions.context.id {
            return self.queue_cache_request(read, routing, sessions, out);
        }
        sessions.send_cache_message(home, CacheShardMessage::Request(read), out);
    }

    /// Publishes the responses, unless the requesting session has ended.
    pub(crate) fn send_cache_replies(
        &mut self,
        found: CacheResponse,
        routing: &mut ShardRouting,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        self.unanswered -= 1;
        let CacheResponse { read, gathered, is_there } = found;
        let CacheRequest { asker, to, .. } = *read;
        let id = asker.session;
        if !sessions.is_current(id, asker.generation) {
            return;
        }
        if !is_there {
            let why = Refusal::CacheUnknown.description();
            return routing.publish_cache_reply(
                id,
                &to,
                &[("cache_error", why)],
                None,
                sessions,
                out,
            );
        }
        let count = gathered.messages.len().to_string();
        if gathered.messages.is_empty() {
            return routing.publish_cache_reply(
                id,
                &to,
                &[("cache_count", &count)],
                None,
                sessions,
                out,
            );
        }
        let next = gathered.next.map(|(number, topic): CachePosition| {
            format!("{number}:{}", sessions.get(id).strip_prefix(&topic))
        });
        for (at, message) in gathered.messages.iter().enumerate() {
            let topic = sessions.get(id).strip_prefix(message.topic()).to_string();
            let at_ms = sessions.context.time_of_day_ms(message.view().at().0).to_string();
            let number = (at + 1).to_string();
            let mut own = vec![
                ("cache_topic", &*topic),
                ("cache_at_ms", &*at_ms),
                ("cache_number", &*number),
                ("cache_count", &*count),
            ];
            if at + 1 == gathered.messages.len() {
                own.extend(next.as_deref().map(|next| ("cache_next", next)));
            }
            let draft = message.view().draft();
            routing.publish_cache_reply(id, &to, &own, Some(&draft), sessions, out);
        }
    }
}

impl ShardRouting {
    /// Publishes a response as a message of the client. Rules and caches do not receive the
    /// response, and the response is not stored.
    fn publish_cache_reply(
        &mut self,
        id: SessionId,
        to: &CacheReplyTarget,
        own: &[(&str, &str)],
        kept: Option<&IncomingPublish<'_>>,
        sessions: &mut SessionTable,
        out: &mut Outbox,
    ) {
        let mut properties = PropertiesBuf::default();
        if let Some(correlation) = &to.correlation {
            properties.push(Property::CorrelationData(correlation));
        }
        for (name, value) in own {
            properties.push(Property::UserProperty(name, value));
        }
        let theirs = Properties::trusted(kept.map_or(&[][..], |kept| kept.properties));
        for property in theirs.iter() {
            match property {
                // The response has the request's Correlation Data.
                Property::ResponseTopic(_) | Property::CorrelationData(_) => {}
                // Only the broker sets properties of this name.
                Property::UserProperty(name, _) if name.starts_with("cache_") => {}
                other => {
                    properties.push(other);
                }
            }
        }
        let mut draft = IncomingPublish::new(
            &to.topic,
            kept.map_or(&[], |kept| kept.payload),
            sessions.context.now,
        );
        draft.properties = properties.as_properties().as_bytes();
        draft.qos = to.qos;
        if let Some(kept) = kept.filter(|kept| kept.expiry_s != NO_EXPIRY) {
            // The remaining Message Expiry Interval [MQTT-3.3.2-6].
            let waited_s = sessions.context.now.0.saturating_sub(kept.at.0) / 1000;
            draft.expiry_s = kept.expiry_s.saturating_sub(waited_s as u32);
        }
        if self.interest.has_groups() {
            draft.publisher = sessions.publisher_hash(id);
        }
        self.route_message(None, &mut draft, sessions, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(topic: &str, payload: &str) -> String {
        let wrong = ParsedCacheRequest::parse(topic, payload.as_bytes()).err();
        let wrong = wrong.unwrap_or_else(|| panic!("{topic} {payload} is a request"));
        assert_eq!(wrong.refusal, Refusal::CacheRequestInvalid);
        wrong.why
    }

    #[test]
    fn a_request_names_a_cache_and_a_filter() {
        let parse = |topic, payload: &'static [u8]| {
            let request = ParsedCacheRequest::parse(topic, payload);
            let request = request.unwrap_or_else(|wrong| panic!("{}", wrong.why));
            (request.cache.to_string(), request.filter)
        };
        let one = |cache: &str, filter: &str| (cache.to_string(), filter.to_string());
        assert_eq!(parse("$cache/c/a/b", b""), one("c", "a/b"));
        assert_eq!(parse("$cache/c//", b"{}"), one("c", "/"));
        assert_eq!(parse("$cache/c", br#"{"topic": "a/+/c"}"#), one("c", "a/+/c"));
        assert_eq!(parse("$cache/c/a", br#"{"messages_max": 1000}"#), one("c", "a"));
        let all = br##"{"topic":"#","after_ms":0,"before_ms":5,"next":"7:a:b","messages_max":1}"##;
        let request = ParsedCacheRequest::parse("$cache/c", all).ok().expect("it is one");
        assert_eq!((request.after_ms, request.before_ms), (Some(0), Some(5)));
        assert_eq!(request.next, Some((7, "a:b".to_string())));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_told() {
        for (payload, why) in [
            ("", "topic is missing"),
            ("{}", "topic is missing"),
            ("x", "a request to $cache/"),
            ("[1]", "a request to $cache/"),
            (r#"{"topic": 1}"#, "topic is not text"),
            (r#"{"topic": "a/#/b"}"#, "topic is not a topic filter"),
            (r#"{"topic": "$share/g/a"}"#, "topic is not a topic filter"),
            (r##"{"topic": "$SYS/#"}"##, "topic is not a topic filter"),
            (r#"{"topic": "a", "messages_max": 0}"#, "use 1 to 1000"),
            (r#"{"topic": "a", "messages_max": "1"}"#, "use 1 to 1000"),
            (r#"{"topic": "a", "after_ms": -1}"#, "after_ms is not a time"),
            (r#"{"topic": "a", "next": "a"}"#, "next is not"),
            (r#"{"topic": "a", "since": 1}"#, "since is unknown"),
        ] {
            let said = refused("$cache/c", payload);
            assert!(said.contains(why), "{payload}: {said}");
        }
        assert!(refused("$cache/c/a", r#"{"topic": "a"}"#).contains("one of both"));
        assert!(refused("$cache/c/", "").contains("topic is not a topic filter"));
        let long = format!("{{\"topic\":\"{}\"}}", "x".repeat(CACHE_REQUEST_BYTES_MAX));
        assert!(refused("$cache/c", &long).contains("at most"));
    }
}
