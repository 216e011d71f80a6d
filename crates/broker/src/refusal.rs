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

/// The answers to one refusal.
struct RefusalRow {
    refusal: Refusal,
    /// The reason code for clients of 5.0; CONNACK of 3.x has the code that fits, if one does.
    reason: ReasonCode,
    /// Whether a refused QoS 1 or 2 PUBLISH of a 3.x client is acknowledged. A forbidden message is
    /// acknowledged and dropped; a message without room must not look stored, so the connection is
    /// closed [3.1.1:MQTT-3.3.5-2].
    is_acknowledged_in_v3: bool,
    /// A sentence for Reason Strings and logs.
    description: &'static str,
    /// The options that lead to the refusal, for the log; `None` if no option does.
    options: Option<&'static str>,
}

impl RefusalRow {
    const fn new(refusal: Refusal, reason: ReasonCode, description: &'static str) -> RefusalRow {
        let (is_acknowledged_in_v3, options) = (false, None);
        RefusalRow { refusal, reason, is_acknowledged_in_v3, description, options }
    }

    const fn acknowledged_in_v3(mut self) -> RefusalRow {
        self.is_acknowledged_in_v3 = true;
        self
    }

    const fn set_by(mut self, options: &'static str) -> RefusalRow {
        self.options = Some(options);
        self
    }
}

/// A row for each refusal, in the order of the enum.
static REFUSAL_ROWS: [RefusalRow; 39] = [
    RefusalRow::new(
        Refusal::AnswerTooLarge,
        ReasonCode::PacketTooLarge,
        "the answer is above the client's Maximum Packet Size",
    ),
    RefusalRow::new(
        Refusal::AuthMethodUnsupported,
        ReasonCode::BadAuthenticationMethod,
        "the authentication method is not supported",
    )
    .set_by("auth and allow_anonymous"),
    RefusalRow::new(
        Refusal::BadCredentials,
        ReasonCode::BadUserNameOrPassword,
        "the user name or the password is wrong",
    )
    .set_by("auth and allow_anonymous"),
    RefusalRow::new(Refusal::Banned, ReasonCode::Banned, "the client is banned")
        .set_by("bans.file"),
    // 0x8A is valid in CONNACK only [MQTT-3.14.2-1].
    RefusalRow::new(
        Refusal::BannedMeanwhile,
        ReasonCode::AdministrativeAction,
        "the client is banned",
    )
    .set_by("bans.file"),
    RefusalRow::new(
        Refusal::CacheRequestInvalid,
        ReasonCode::PayloadFormatInvalid,
        "a request to $cache/NAME is JSON like {\"topic\":\"a/#\"}",
    )
    .acknowledged_in_v3(),
    RefusalRow::new(
        Refusal::CacheUnanswerable,
        ReasonCode::ImplementationSpecificError,
        "a request to $cache/ needs a Response Topic",
    )
    .acknowledged_in_v3(),
    RefusalRow::new(
        Refusal::CacheUnknown,
        ReasonCode::TopicNameInvalid,
        "no such cache: a request goes to $cache/NAME",
    )
    .acknowledged_in_v3(),
    RefusalRow::new(
        Refusal::ClientIdMissing,
        ReasonCode::ClientIdentifierNotValid,
        "the client id is empty where the version wants one",
    ),
    RefusalRow::new(
        Refusal::ClientIdReserved,
        ReasonCode::ClientIdentifierNotValid,
        "client ids that begin with $link/ are the server's own",
    ),
    RefusalRow::new(
        Refusal::ClientIdTooLong,
        ReasonCode::ClientIdentifierNotValid,
        "the client id is too long",
    )
    .set_by("connect.client_id_bytes_max"),
    RefusalRow::new(
        Refusal::DelayInvalid,
        ReasonCode::TopicNameInvalid,
        "a PUBLISH is delayed by $delayed/SECONDS/TOPIC, with 1 to 4294967",
    )
    .acknowledged_in_v3(),
    RefusalRow::new(
        Refusal::DelayedFull,
        ReasonCode::QuotaExceeded,
        "no room: too many delayed messages wait",
    )
    .set_by("delayed.messages_max, delayed.bytes_max, delayed.client_percent_max"),
    RefusalRow::new(
        Refusal::Draining,
        ReasonCode::ServerUnavailable,
        "the server is shutting down",
    ),
    RefusalRow::new(
        Refusal::ExclusiveTaken,
        ReasonCode::QuotaExceeded,
        "another client has this exclusive subscription",
    ),
    RefusalRow::new(
        Refusal::ExclusiveUnsupported,
        ReasonCode::TopicFilterInvalid,
        "exclusive subscriptions are not supported",
    )
    .set_by("subscription.exclusive_available"),
    RefusalRow::new(
        Refusal::Expired,
        ReasonCode::MaximumConnectTime,
        "the client's credentials have expired",
    ),
    RefusalRow::new(
        Refusal::Flapping,
        ReasonCode::Banned,
        "the client came and went too often: it has to wait",
    )
    .set_by("flapping.count_max"),
    RefusalRow::new(
        Refusal::NoNamespace,
        ReasonCode::NotAuthorized,
        "the client has no name that a namespace could have",
    )
    .set_by("namespace"),
    RefusalRow::new(
        Refusal::NoVerdict,
        ReasonCode::ServerUnavailable,
        "nobody could say in time whether the client may connect",
    )
    .set_by("auth.timeout_ms"),
    RefusalRow::new(
        Refusal::NotAuthorized,
        ReasonCode::NotAuthorized,
        "not permitted: $SYS and $link topics are the server's",
    )
    .acknowledged_in_v3(),
    RefusalRow::new(
        Refusal::NotPermitted,
        ReasonCode::NotAuthorized,
        "not permitted by the rules of the server",
    )
    .acknowledged_in_v3()
    .set_by("acl.file"),
    RefusalRow::new(
        Refusal::NotRenewed,
        ReasonCode::NotAuthorized,
        "the client did not prove again who it is",
    )
    .set_by("auth and allow_anonymous"),
    RefusalRow::new(Refusal::NotWelcome, ReasonCode::NotAuthorized, "the client may not connect")
        .set_by("auth and allow_anonymous"),
    RefusalRow::new(
        Refusal::PayloadFormatInvalid,
        ReasonCode::PayloadFormatInvalid,
        "the payload is not the UTF-8 that it promises",
    )
    .acknowledged_in_v3()
    .set_by("message.check_payload_format"),
    RefusalRow::new(
        Refusal::QoSUnsupported,
        ReasonCode::QoSNotSupported,
        "the QoS is above the server's maximum",
    )
    .set_by("message.qos_max"),
    RefusalRow::new(
        Refusal::QueueFull,
        ReasonCode::QuotaExceeded,
        "the queue is full: the client takes messages too slowly",
    )
    .set_by("queue.policy, queue.bytes_max, queue.messages_max"),
    RefusalRow::new(
        Refusal::QuotaExceeded,
        ReasonCode::QuotaExceeded,
        "no room: a limit of the server is reached",
    )
    .set_by("limits.connections_max, limits.address_connections_max, memory.bytes_max"),
    RefusalRow::new(
        Refusal::RetainUnsupported,
        ReasonCode::RetainNotSupported,
        "retained messages are not supported",
    )
    .set_by("retain.available"),
    RefusalRow::new(
        Refusal::SharedUnsupported,
        ReasonCode::SharedSubscriptionsNotSupported,
        "shared subscriptions are not supported",
    )
    .set_by("shared.available"),
    RefusalRow::new(
        Refusal::StoreFull,
        ReasonCode::QuotaExceeded,
        "no room: the server's store is full",
    )
    .set_by("store.bytes_max"),
    RefusalRow::new(
        Refusal::SubscriptionIdsUnsupported,
        ReasonCode::SubscriptionIdentifiersNotSupported,
        "subscription identifiers are not supported",
    )
    .set_by("subscription.ids_available"),
    RefusalRow::new(Refusal::TooBusy, ReasonCode::ServerBusy, "too many clients wait to be let in")
        .set_by("auth.queue_max"),
    RefusalRow::new(
        Refusal::TooFast,
        ReasonCode::ConnectionRateExceeded,
        "too many connections in so short a time",
    )
    .set_by("limits.address_connections_per_s"),
    RefusalRow::new(
        Refusal::TooManyFailures,
        ReasonCode::ConnectionRateExceeded,
        "too many failed attempts from this address",
    )
    .set_by("auth.failures_max"),
    RefusalRow::new(
        Refusal::TopicFilterInvalid,
        ReasonCode::TopicFilterInvalid,
        "the topic filter has too many levels or bytes",
    )
    .set_by("topic.levels_max, topic.bytes_max"),
    RefusalRow::new(
        Refusal::TopicNameInvalid,
        ReasonCode::TopicNameInvalid,
        "the topic name has too many levels or bytes",
    )
    .acknowledged_in_v3()
    .set_by("topic.levels_max, topic.bytes_max"),
    RefusalRow::new(
        Refusal::TopicReserved,
        ReasonCode::TopicNameInvalid,
        "$share/ and $exclusive/ begin filters, not topic names",
    )
    .acknowledged_in_v3(),
    RefusalRow::new(
        Refusal::WildcardUnsupported,
        ReasonCode::WildcardSubscriptionsNotSupported,
        "wildcards in topic filters are not supported",
    )
    .set_by("subscription.wildcard_available"),
];

// `Refusal::row` takes a refusal as the index of its row.
const _: () = {
    let mut at = 0;
    while at < REFUSAL_ROWS.len() {
        assert!(REFUSAL_ROWS[at].refusal as usize == at);
        at += 1;
    }
};

impl Refusal {
    fn row(self) -> &'static RefusalRow {
        &REFUSAL_ROWS[self as usize]
    }

    /// Returns the reason code for clients of 5.0.
    pub fn reason(self) -> ReasonCode {
        self.row().reason
    }

    /// Returns the names of the options that lead to this refusal, for the log; `None` if no option
    /// does.
    pub fn options(self) -> Option<&'static str> {
        self.row().options
    }

    /// Returns a sentence for Reason Strings and logs.
    pub fn description(self) -> &'static str {
        self.row().description
    }

    /// Whether a refused QoS 1 or 2 PUBLISH of a 3.x client is acknowledged: see [`RefusalRow`].
    pub(crate) fn is_acknowledged_in_v3(self) -> bool {
        self.row().is_acknowledged_in_v3
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
