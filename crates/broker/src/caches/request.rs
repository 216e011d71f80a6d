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

use crate::caches::ShardCaches;
use crate::interface::cache_message::{
    CachePosition, CacheRequest, CacheResponse, CacheShardMessage,
};
use crate::interface::outbox::Outbox;
use crate::refusal::Refusal;
use crate::routing::ShardRouting;
use crate::session::session_table::SessionTable;

impl ShardCaches {
    pub(crate) fn send_cache_request(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::cache_message::ParsedCacheRequest;
    use crate::limits::CACHE_REQUEST_BYTES_MAX;

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
