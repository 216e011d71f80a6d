//! A refusal: the request is legal and the broker declines. The connection lives on, except after
//! CONNECT, and the answer carries the reason. A 3.x client, whose protocol has fewer reason codes,
//! receives an answer by this table:
//!
//! | refused | 5.0 | 3.1 and 3.1.1 |
//! |---|---|---|
//! | CONNECT | CONNACK with the reason | CONNACK 1 to 5 where one fits, else closed |
//! | PUBLISH QoS 0 | dropped and counted | the same |
//! | PUBLISH QoS 1, 2, not permitted | PUBACK or PUBREC with the reason | acknowledged, dropped |
//! | PUBLISH QoS 1, 2, no room | PUBACK or PUBREC with the reason | closed, not acknowledged |
//! | SUBSCRIBE, per filter | the reason | 0x80 |
//! | SUBSCRIBE, UNSUBSCRIBE whose answer is too large | DISCONNECT with 0x95 | cannot be |

use mqtt::{ReasonCode, Violation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    AnswerTooLarge,
    AuthMethodUnsupported,
    BadCredentials,
    Banned,
    BannedMeanwhile,
    CacheRequestInvalid,
    CacheUnanswerable,
    CacheUnknown,
    ClientIdMissing,
    ClientIdReserved,
    ClientIdTooLong,
    DelayInvalid,
    DelayedFull,
    Draining,
    ExclusiveTaken,
    ExclusiveUnsupported,
    Expired,
    Flapping,
    NoNamespace,
    NoVerdict,
    NotAuthorized,
    NotPermitted,
    NotRenewed,
    NotWelcome,
    PayloadFormatInvalid,
    QoSUnsupported,
    QueueFull,
    QuotaExceeded,
    RetainUnsupported,
    SharedUnsupported,
    StoreFull,
    SubscriptionIdsUnsupported,
    TooBusy,
    TooFast,
    TooManyFailures,
    TopicFilterInvalid,
    TopicNameInvalid,
    TopicReserved,
    WildcardUnsupported,
}

impl Refusal {
    pub fn reason(self) -> ReasonCode {
        match self {
            Refusal::AnswerTooLarge => ReasonCode::PacketTooLarge,
            Refusal::AuthMethodUnsupported => ReasonCode::BadAuthenticationMethod,
            Refusal::BadCredentials => ReasonCode::BadUserNameOrPassword,
            Refusal::Banned | Refusal::Flapping => ReasonCode::Banned,
            // 0x8A is valid in CONNACK only [MQTT-3.14.2-1].
            Refusal::BannedMeanwhile => ReasonCode::AdministrativeAction,
            Refusal::ClientIdMissing | Refusal::ClientIdReserved | Refusal::ClientIdTooLong => {
                ReasonCode::ClientIdentifierNotValid
            }
            Refusal::CacheRequestInvalid => ReasonCode::PayloadFormatInvalid,
            Refusal::CacheUnanswerable => ReasonCode::ImplementationSpecificError,
            Refusal::CacheUnknown
            | Refusal::DelayInvalid
            | Refusal::TopicNameInvalid
            | Refusal::TopicReserved => ReasonCode::TopicNameInvalid,
            Refusal::Draining | Refusal::NoVerdict => ReasonCode::ServerUnavailable,
            Refusal::ExclusiveUnsupported | Refusal::TopicFilterInvalid => {
                ReasonCode::TopicFilterInvalid
            }
            Refusal::Expired => ReasonCode::MaximumConnectTime,
            Refusal::NoNamespace
            | Refusal::NotAuthorized
            | Refusal::NotPermitted
            | Refusal::NotRenewed
            | Refusal::NotWelcome => ReasonCode::NotAuthorized,
            Refusal::PayloadFormatInvalid => ReasonCode::PayloadFormatInvalid,
            Refusal::QoSUnsupported => ReasonCode::QoSNotSupported,
            Refusal::DelayedFull
            | Refusal::ExclusiveTaken
            | Refusal::QueueFull
            | Refusal::QuotaExceeded
            | Refusal::StoreFull => ReasonCode::QuotaExceeded,
            Refusal::RetainUnsupported => ReasonCode::RetainNotSupported,
            Refusal::SharedUnsupported => ReasonCode::SharedSubscriptionsNotSupported,
            Refusal::SubscriptionIdsUnsupported => ReasonCode::SubscriptionIdentifiersNotSupported,
            Refusal::TooBusy => ReasonCode::ServerBusy,
            Refusal::TooFast | Refusal::TooManyFailures => ReasonCode::ConnectionRateExceeded,
            Refusal::WildcardUnsupported => ReasonCode::WildcardSubscriptionsNotSupported,
        }
    }

    /// Returns the names of the options that lead to this refusal, for the log; `None` if no option
    /// does.
    pub fn options(self) -> Option<&'static str> {
        Some(match self {
            Refusal::AuthMethodUnsupported
            | Refusal::BadCredentials
            | Refusal::NotRenewed
            | Refusal::NotWelcome => "auth and allow_anonymous",
            Refusal::Banned | Refusal::BannedMeanwhile => "bans.file",
            Refusal::ClientIdTooLong => "connect.client_id_bytes_max",
            Refusal::DelayedFull => {
                "delayed.messages_max, delayed.bytes_max, delayed.client_percent_max"
            }
            Refusal::ExclusiveUnsupported => "subscription.exclusive_available",
            Refusal::Flapping => "flapping.count_max",
            Refusal::NoNamespace => "namespace",
            Refusal::NoVerdict => "auth.timeout_ms",
            Refusal::NotPermitted => "acl.file",
            Refusal::PayloadFormatInvalid => "message.check_payload_format",
            Refusal::QoSUnsupported => "message.qos_max",
            Refusal::QueueFull => "queue.policy, queue.bytes_max, queue.messages_max",
            Refusal::QuotaExceeded => {
                "limits.connections_max, limits.address_connections_max, memory.bytes_max"
            }
            Refusal::RetainUnsupported => "retain.available",
            Refusal::SharedUnsupported => "shared.available",
            Refusal::StoreFull => "store.bytes_max",
            Refusal::SubscriptionIdsUnsupported => "subscription.ids_available",
            Refusal::TooBusy => "auth.queue_max",
            Refusal::TooFast => "limits.address_connections_per_s",
            Refusal::TooManyFailures => "auth.failures_max",
            Refusal::TopicFilterInvalid | Refusal::TopicNameInvalid => {
                "topic.levels_max, topic.bytes_max"
            }
            Refusal::WildcardUnsupported => "subscription.wildcard_available",
            Refusal::AnswerTooLarge
            | Refusal::CacheRequestInvalid
            | Refusal::CacheUnanswerable
            | Refusal::CacheUnknown
            | Refusal::ClientIdMissing
            | Refusal::ClientIdReserved
            | Refusal::DelayInvalid
            | Refusal::Draining
            | Refusal::ExclusiveTaken
            | Refusal::Expired
            | Refusal::NotAuthorized
            | Refusal::TopicReserved => return None,
        })
    }

    /// Returns a sentence for Reason Strings and logs.
    pub fn description(self) -> &'static str {
        match self {
            Refusal::AnswerTooLarge => "the answer is above the client's Maximum Packet Size",
            Refusal::AuthMethodUnsupported => "the authentication method is not supported",
            Refusal::BadCredentials => "the user name or the password is wrong",
            Refusal::Banned | Refusal::BannedMeanwhile => "the client is banned",
            Refusal::CacheRequestInvalid => {
                "a request to $cache/NAME is JSON like {\"topic\":\"a/#\"}"
            }
            Refusal::CacheUnanswerable => "a request to $cache/ needs a Response Topic",
            Refusal::CacheUnknown => "no such cache: a request goes to $cache/NAME",
            Refusal::ClientIdMissing => "the client id is empty where the version wants one",
            Refusal::ClientIdReserved => "client ids that begin with $link/ are the server's own",
            Refusal::ClientIdTooLong => "the client id is too long",
            Refusal::DelayInvalid => {
                "a PUBLISH is delayed by $delayed/SECONDS/TOPIC, with 1 to 4294967"
            }
            Refusal::DelayedFull => "no room: too many delayed messages wait",
            Refusal::Draining => "the server is shutting down",
            Refusal::ExclusiveTaken => "another client has this exclusive subscription",
            Refusal::ExclusiveUnsupported => "exclusive subscriptions are not supported",
            Refusal::Expired => "the client's credentials have expired",
            Refusal::Flapping => "the client came and went too often: it has to wait",
            Refusal::NoNamespace => "the client has no name that a namespace could have",
            Refusal::NoVerdict => "nobody could say in time whether the client may connect",
            Refusal::NotAuthorized => "not permitted: $SYS and $link topics are the server's",
            Refusal::NotPermitted => "not permitted by the rules of the server",
            Refusal::NotRenewed => "the client did not prove again who it is",
            Refusal::NotWelcome => "the client may not connect",
            Refusal::PayloadFormatInvalid => "the payload is not the UTF-8 that it promises",
            Refusal::QoSUnsupported => "the QoS is above the server's maximum",
            Refusal::QueueFull => "the queue is full: the client takes messages too slowly",
            Refusal::QuotaExceeded => "no room: a limit of the server is reached",
            Refusal::RetainUnsupported => "retained messages are not supported",
            Refusal::SharedUnsupported => "shared subscriptions are not supported",
            Refusal::StoreFull => "no room: the server's store is full",
            Refusal::SubscriptionIdsUnsupported => "subscription identifiers are not supported",
            Refusal::TooBusy => "too many clients wait to be let in",
            Refusal::TooFast => "too many connections in so short a time",
            Refusal::TooManyFailures => "too many failed attempts from this address",
            Refusal::TopicFilterInvalid => "the topic filter has too many levels or bytes",
            Refusal::TopicNameInvalid => "the topic name has too many levels or bytes",
            Refusal::TopicReserved => "$share/ and $exclusive/ begin filters, not topic names",
            Refusal::WildcardUnsupported => "wildcards in topic filters are not supported",
        }
    }

    /// Whether a refused QoS 1 or 2 PUBLISH of a 3.x client is acknowledged. A forbidden message is
    /// acknowledged and dropped; a message without room must not look stored, so the connection is
    /// closed [3.1.1:MQTT-3.3.5-2].
    pub(crate) fn is_acknowledged_in_v3(self) -> bool {
        match self {
            Refusal::CacheRequestInvalid
            | Refusal::CacheUnanswerable
            | Refusal::CacheUnknown
            | Refusal::DelayInvalid
            | Refusal::NotAuthorized
            | Refusal::NotPermitted
            | Refusal::PayloadFormatInvalid
            | Refusal::TopicNameInvalid
            | Refusal::TopicReserved => true,
            Refusal::AnswerTooLarge
            | Refusal::AuthMethodUnsupported
            | Refusal::BadCredentials
            | Refusal::Banned
            | Refusal::BannedMeanwhile
            | Refusal::ClientIdMissing
            | Refusal::ClientIdReserved
            | Refusal::ClientIdTooLong
            | Refusal::DelayedFull
            | Refusal::Draining
            | Refusal::ExclusiveTaken
            | Refusal::ExclusiveUnsupported
            | Refusal::Expired
            | Refusal::Flapping
            | Refusal::NoNamespace
            | Refusal::NoVerdict
            | Refusal::NotRenewed
            | Refusal::NotWelcome
            | Refusal::QoSUnsupported
            | Refusal::QueueFull
            | Refusal::QuotaExceeded
            | Refusal::RetainUnsupported
            | Refusal::SharedUnsupported
            | Refusal::StoreFull
            | Refusal::SubscriptionIdsUnsupported
            | Refusal::TooBusy
            | Refusal::TooFast
            | Refusal::TooManyFailures
            | Refusal::TopicFilterInvalid
            | Refusal::WildcardUnsupported => false,
        }
    }
}

/// Reason for which the broker ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client sent DISCONNECT with this reason code; the will has been handled accordingly.
    ClientDisconnect(ReasonCode),
    Violation(Violation),
    Refusal(Refusal),
}

impl From<Violation> for CloseReason {
    fn from(violation: Violation) -> CloseReason {
        CloseReason::Violation(violation)
    }
}

impl From<Refusal> for CloseReason {
    fn from(refusal: Refusal) -> CloseReason {
        CloseReason::Refusal(refusal)
    }
}
