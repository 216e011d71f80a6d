//! Messages between shards about caches.

use crate::ids::SessionRef;
use crate::limits::{CACHE_ANSWER_MESSAGES_MAX, CACHE_REQUEST_BYTES_MAX};
use crate::message::Message;
use crate::options::cache_config::is_cacheable_filter;
use crate::refusal::Refusal;
use crate::special_topics::CACHE_PREFIX;
use mqtt::{Property, Publish, QoS};
use rules::Value;
use std::sync::Arc;

/// Messages between shards about caches, sent as `ShardMessage::Cache`.
#[derive(Clone, Debug)]
pub enum CacheShardMessage {
    /// Add a message to a cache which the receiver owns.
    Insert { cache: Arc<str>, message: Message },
    /// The response to a request, for the shard of the requesting client.
    Response(CacheResponse),
    /// A request to a cache which the receiver owns.
    Request(Box<CacheRequest>),
}

impl CacheShardMessage {
    /// Returns the memory of the message in transit between shards.
    pub(crate) fn bytes(&self) -> i64 {
        match self {
            CacheShardMessage::Insert { message, .. } => message.bytes() as i64,
            CacheShardMessage::Response(found) => found.bytes(),
            CacheShardMessage::Request(read) => read.bytes(),
        }
    }
}

/// A request in transit to the owner of the cache.
#[derive(Clone, Debug)]
pub struct CacheRequest {
    pub(crate) cache: Arc<str>,
    pub(crate) asker: SessionRef,
    pub(crate) wanted: CacheQuery,
    pub(crate) to: CacheReplyTarget,
}

impl CacheRequest {
    /// Returns the memory of the request in transit between shards.
    pub(crate) fn bytes(&self) -> i64 {
        let own = size_of::<CacheRequest>() + self.wanted.filter.len() + self.to.topic.len();
        (own + self.to.correlation.as_ref().map_or(0, |bytes| bytes.len())) as i64
    }
}

/// Destination of responses: Response Topic, Correlation Data and the QoS of the request.
#[derive(Clone, Debug)]
pub(crate) struct CacheReplyTarget {
    /// The Response Topic with the namespace.
    pub(crate) topic: Box<str>,
    pub(crate) correlation: Option<Box<[u8]>>,
    pub(crate) qos: QoS,
}

/// Result of a `CacheRequest`, for the shard of the requesting client.
#[derive(Clone, Debug)]
pub struct CacheResponse {
    pub(crate) read: Box<CacheRequest>,
    pub(crate) gathered: CacheMatches,
    /// Whether the cache exists.
    pub(crate) is_there: bool,
}

impl CacheResponse {
    pub(crate) fn bytes(&self) -> i64 {
        self.read.bytes() + self.gathered.bytes() as i64
    }
}

/// Query of a `CacheRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheQuery {
    /// Filter with the namespace, whose prefix has `prefix_len` bytes.
    pub(crate) filter: Box<str>,
    pub(crate) prefix_len: u8,
    /// Largest number of messages of each topic, newest first.
    pub(crate) messages_max: u32,
    pub(crate) after_ms: Option<u64>,
    pub(crate) before_ms: Option<u64>,
    /// End of the previous answer: see `CacheMatches::next`.
    pub(crate) from: Option<CachePosition>,
}

/// A message in a cache: its number and topic.
pub(crate) type CachePosition = (u64, Box<str>);

/// Matches of a `CacheQuery` found so far; a query may continue in later turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheMatches {
    pub(crate) messages: Vec<Message>,
    pub(crate) bytes: usize,
    /// The last message found, which becomes `next` if the answer is full.
    pub(crate) last: Option<CachePosition>,
    /// End of this answer, if more messages match than `CACHE_ANSWER_MESSAGES_MAX` or
    /// `CACHE_ANSWER_BYTES_MAX` allow.
    pub(crate) next: Option<CachePosition>,
    /// The topic visited last, where `collect_matches` continues.
    pub(crate) after: Option<Arc<str>>,
}

pub(crate) fn response_topic<'a>(packet: &Publish<'a>) -> Option<&'a str> {
    packet.properties.iter().find_map(|property| match property {
        Property::ResponseTopic(topic) => Some(topic),
        _ => None,
    })
}

/// A parsed request.
#[derive(Debug, Default)]
pub(crate) struct ParsedCacheRequest<'a> {
    pub(crate) cache: &'a str,
    /// Filter or topic, without the namespace.
    pub(crate) filter: String,
    pub(crate) messages_max: Option<u32>,
    pub(crate) after_ms: Option<u64>,
    pub(crate) before_ms: Option<u64>,
    pub(crate) next: Option<(u64, String)>,
}

impl<'a> ParsedCacheRequest<'a> {
    pub(crate) fn parse(
        topic: &'a str,
        payload: &[u8],
    ) -> Result<ParsedCacheRequest<'a>, CacheRequestError> {
        let rest = topic.strip_prefix(CACHE_PREFIX).unwrap_or_default();
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

/// Error response: the reason code of the acknowledgement, and the text of `cache_error`.
pub(crate) struct CacheRequestError {
    pub(crate) refusal: Refusal,
    pub(crate) why: String,
}

impl From<Refusal> for CacheRequestError {
    fn from(refusal: Refusal) -> CacheRequestError {
        CacheRequestError { refusal, why: refusal.description().to_string() }
    }
}

fn request_error(why: String) -> CacheRequestError {
    CacheRequestError { refusal: Refusal::CacheRequestInvalid, why }
}
