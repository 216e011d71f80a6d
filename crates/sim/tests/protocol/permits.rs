//! Authorization by an external authorizer: which actions are authorized, when and how often, and
//! the packets that wait for a decision.

crate::transcripts! {
    fn what_no_rule_speaks_of_somebody_is_asked() {
        r##"
        # user: ann password=x namespace=n
        # user: root password=x superuser
        # rules: allow topic=free; deny topic=shut
        # warden: allow publish a; allow subscribe b/#
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> PUBLISH 1 "free" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        a> PUBLISH 2 "shut" qos=1 "x"
        a< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        ! warden asked
        a> PUBLISH 3 "a" qos=1 "x"
        a< PUBACK 3 NoMatchingSubscribers
        a> PUBLISH 4 "c" qos=2 retain "x"
        a< PUBREC 4 NotAuthorized reason_string="not permitted by the rules of the server"
        ! warden asked
        warden< publish "a" qos=1 by a user=ann namespace=n
        warden< publish "c" qos=2 retain by a user=ann namespace=n
        a> SUBSCRIBE 5 "free" qos=0 "b/+" qos=1 "$share/g/b/#" qos=2 "a" qos=0 "shut" qos=0
        a< SUBACK 5 [0 1 2 0x87 0x87] reason_string="not permitted by the rules of the server"
        ! warden asked
        warden< subscribe "a" qos=0 by a user=ann namespace=n
        warden< subscribe "b/#" qos=2 by a user=ann namespace=n
        warden< subscribe "b/+" qos=1 by a user=ann namespace=n
        r> CONNECT id=r user_name=root password=x v=311
        r< CONNACK present=0
        r> PUBLISH 1 "c" qos=1 "x"
        r< PUBACK 1
        ! warden asked
        "##
    }

    fn what_follows_waits_and_nobody_else_does() {
        r##"
        # warden: allow a; allow #
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=0
        b< SUBACK 1 [0]
        ! warden waits
        a> PUBLISH 1 "a" qos=1 "1" &
        a> PINGREQ &
        a> PUBLISH 2 "b" qos=1 "2" &
        a> PUBLISH 3 "a" qos=1 "3"
        b> PINGREQ
        b< PINGRESP
        ! warden answers 1
        a< PUBACK 1
        a< PINGRESP
        b< PUBLISH "a" qos=0 "1"
        + 1s
        ! warden answers
        a< PUBACK 2
        a< PUBACK 3
        b< PUBLISH "b" qos=0 "2"
        b< PUBLISH "a" qos=0 "3"
        "##
    }

    fn a_subscribe_waits_for_all_its_answers() {
        r##"
        # warden: allow a; allow c
        a> CONNECT id=a v=311
        a< CONNACK present=0
        ! warden waits
        a> SUBSCRIBE 1 "a" qos=1 "b" qos=1 "c" qos=1 "a" qos=1 &
        a> PINGREQ
        ! warden asked
        warden< subscribe "a" qos=1 by a
        warden< subscribe "b" qos=1 by a
        warden< subscribe "c" qos=1 by a
        ! warden answers 1
        ! warden answers 1
        ! warden answers 1
        a< SUBACK 1 [1 0x80 1 1]
        a< PINGRESP
        "##
    }

    fn an_answer_is_good_for_its_time() {
        r##"
        # options: asks_kept_ms=10000
        # warden: allow a; allow b/#
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x" &
        a> PUBLISH 2 "a" qos=1 "x" &
        a> PUBLISH 3 "no" qos=1 "x" &
        a> PUBLISH 4 "no" qos=1 "x" &
        a> PUBLISH "a" qos=0 retain "" &
        a> SUBSCRIBE 5 "b/#" qos=0 "b/#" qos=1 &
        a> SUBSCRIBE 6 "b/#" qos=0
        a< PUBACK 1 NoMatchingSubscribers
        a< PUBACK 2 NoMatchingSubscribers
        a< PUBACK 3 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PUBACK 4 NotAuthorized reason_string="not permitted by the rules of the server"
        a< SUBACK 5 [0 1]
        a< SUBACK 6 [0]
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "no" qos=1 by a
        warden< subscribe "b/#" qos=0 by a
        + 9900ms
        a> PUBLISH 6 "a" qos=1 "x"
        a< PUBACK 6 NoMatchingSubscribers
        ! warden asked
        + 200ms
        a> PUBLISH 7 "a" qos=1 "x"
        a< PUBACK 7 NoMatchingSubscribers
        ! warden asked
        warden< publish "a" qos=1 by a
        "##
    }

    fn without_a_time_each_packet_is_asked_about() {
        r##"
        # options: asks_kept_ms=0
        # warden: allow a
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x" &
        a> PUBLISH 2 "a" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        a< PUBACK 2 NoMatchingSubscribers
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "a" qos=1 by a
        "##
    }

    fn an_answer_is_for_one_manner_where_that_matters() {
        r##"
        # warden: particular allow a
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "a" qos=0 "x" &
        a> PUBLISH "a" qos=0 "x" &
        a> PUBLISH 1 "a" qos=1 "x" &
        a> PUBLISH "a" qos=0 retain "" &
        a> PINGREQ
        a< PUBACK 1 NoMatchingSubscribers
        a< PINGRESP
        ! warden asked
        warden< publish "a" qos=0 by a
        warden< publish "a" qos=0 retain by a
        warden< publish "a" qos=1 by a
        "##
    }

    fn an_alias_stands_for_its_topic() {
        r##"
        # warden: allow a
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x" alias=1 &
        a> PUBLISH 2 "" qos=1 "x" alias=1 &
        a> PUBLISH 3 "b" qos=1 "x" alias=1 &
        a> PUBLISH 4 "" qos=1 "x" alias=1
        a< PUBACK 1 NoMatchingSubscribers
        a< PUBACK 2 NoMatchingSubscribers
        a< PUBACK 3 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PUBACK 4 NotAuthorized reason_string="not permitted by the rules of the server"
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "b" qos=1 by a
        "##
    }

    fn who_does_not_answer_in_time_has_said_no() {
        r##"
        # options: auth.timeout_ms=2000
        # warden: allow #
        a> CONNECT id=a keep_alive=1
        a< CONNACK present=0
        ! warden waits
        a> PUBLISH 1 "a" qos=1 "x" &
        a> PINGREQ &
        a> PUBLISH 2 "a" qos=1 "x"
        + 1900ms
        + 200ms
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PINGRESP
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "a" qos=1 by a
        // The first of them is too late, and says nothing of the second.
        ! warden answers 1
        ! warden answers 1
        a< PUBACK 2 NoMatchingSubscribers
        "##
    }

    fn a_no_for_want_of_an_answer_is_for_once() {
        r##"
        # warden: silence a
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x" &
        a> PUBLISH 2 "a" qos=1 "x" &
        a> SUBSCRIBE 3 "a" qos=1
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        a< SUBACK 3 [0x87] reason_string="not permitted by the rules of the server"
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "a" qos=1 by a
        warden< subscribe "a" qos=1 by a
        "##
    }

    fn an_answer_for_who_has_gone_is_for_nobody() {
        r##"
        # warden: allow a; deny #
        ! warden waits
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x"
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 2 "b" qos=1 "x"
        ! warden answers 1
        ! warden answers
        b< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_takeover_asks_for_itself() {
        r##"
        # warden: allow #
        ! warden waits
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x"
        b> CONNECT id=a clean=0 expiry=100
        b< CONNACK present=1
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> PUBLISH 2 "a" qos=1 "y"
        ! warden answers 1
        ! warden answers
        b< PUBACK 2 NoMatchingSubscribers
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "a" qos=1 by a
        "##
    }

    fn a_will_is_asked_about_when_its_client_comes() {
        r##"
        # warden: allow subscribe #; allow w
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0
        a< SUBACK 1 [0]
        ! warden waits
        b> CONNECT id=b will="w" will_payload="x" &
        b> PINGREQ
        c> CONNECT id=c will="no" will_payload="x"
        d> CONNECT id=d will="no" will_payload="x" v=311
        ! warden answers
        b< CONNACK present=0
        b< PINGRESP
        c< CONNACK present=0 NotAuthorized reason_string="not permitted by the rules of the server"
        c< CLOSED
        d< CONNACK present=0 NotAuthorized
        d< CLOSED
        ! warden asked
        warden< publish "no" qos=0 by c
        warden< publish "no" qos=0 by d
        warden< publish "w" qos=0 by b
        warden< subscribe "#" qos=0 by a
        b! cut
        a< PUBLISH "w" qos=0 "x"
        ! warden asked
        "##
    }

    fn a_client_without_an_id_brings_a_will() {
        r##"
        # warden: allow w
        a> CONNECT id="" will="w" will_payload="x"
        a< CONNACK present=0 assigned_id=*
        a> CONNECT id="b"
        a< DISCONNECT ProtocolError *
        a< CLOSED
        "##
    }

    fn nobody_says_in_time_whether_a_will_may_be() {
        r##"
        # user: ann password=x
        # options: auth.timeout_ms=2000
        # warden: allow #
        ! warden waits
        a> CONNECT id=a will="w" will_payload="x" user_name=ann password=x keep_alive=1
        + 1900ms
        + 200ms
        a< CONNACK present=0 NotAuthorized reason_string="not permitted by the rules of the server"
        a< CLOSED
        ! warden answers
        b> CONNECT id=b will="w" will_payload="x" user_name=ann password=x keep_alive=10
        b< CONNACK present=0
        + 14900ms
        + 200ms
        b< DISCONNECT KeepAliveTimeout *
        b< CLOSED
        "##
    }

    fn others_who_are_asked_apply_to_who_is_connected() {
        r##"
        # warden: allow #
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/#" qos=1 "b" qos=1 "$share/g/b" qos=1
        a< SUBACK 1 [1 1 1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "b" qos=1 "x"
        b< PUBACK 1
        a< PUBLISH 1 "b" qos=1 "x"
        a< PUBLISH 2 "b" qos=1 "x"
        ! warden asked
        warden< publish "b" qos=1 by b
        warden< subscribe "a/#" qos=1 by a
        warden< subscribe "b" qos=1 by a
        ! warden says allow publish b; allow a/#
        b> PUBLISH 2 "b" qos=1 "x"
        b< PUBACK 2 NoMatchingSubscribers
        b> PUBLISH 3 "a/x" qos=1 "x"
        b< PUBACK 3
        a< PUBLISH 3 "a/x" qos=1 "x"
        ! warden says deny a/#
        b> PUBLISH 4 "a/x" qos=1 "x"
        b< PUBACK 4 NotAuthorized reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_question_of_before_is_asked_anew() {
        r##"
        # warden: allow a
        a> CONNECT id=a
        a< CONNACK present=0
        ! warden waits
        a> PUBLISH 1 "a" qos=1 "x"
        ! warden says deny #
        ! warden answers 1
        ! warden asked
        warden< publish "a" qos=1 by a
        warden< publish "a" qos=1 by a
        ! warden answers
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        "##
    }

    fn rules_alone_decide_again_when_nobody_is_asked_any_more() {
        r##"
        # warden: allow #
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        ! rules deny topic=a
        a> PUBLISH 2 "a" qos=1 "x"
        a< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_subscription_stays_until_somebody_says_no() {
        r##"
        # options: auth.timeout_ms=2000
        # shards: 1
        # warden: allow #
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=0 "b" qos=0
        a< SUBACK 1 [0 0]
        ! warden asked
        warden< subscribe "a" qos=0 by a
        warden< subscribe "b" qos=0 by a
        ! warden says allow a; silence subscribe b; allow publish #
        a> PUBLISH "b" qos=0 "1"
        a< PUBLISH "b" qos=0 "1"
        ! warden asked
        warden< publish "b" qos=0 by a
        warden< subscribe "a" qos=0 by a
        warden< subscribe "b" qos=0 by a
        + 900ms
        ! warden asked
        + 300ms
        ! warden asked
        warden< subscribe "b" qos=0 by a
        ! warden waits
        + 20s
        ! warden answers
        a> PUBLISH "b" qos=0 "2"
        a< PUBLISH "b" qos=0 "2"
        "##
    }

    fn who_comes_back_is_asked_about_again() {
        r##"
        # disk: on
        # shards: 2
        # warden: allow #
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 "u" qos=1
        a< SUBACK 1 [1 1]
        ! power
        a< CLOSED
        ! warden says allow publish #; allow u
        b> CONNECT id=b
        b< CONNACK present=0
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=1
        b> PUBLISH 1 "t" qos=1 "x"
        b< PUBACK 1 NoMatchingSubscribers
        b> PUBLISH 2 "u" qos=1 "x"
        b< PUBACK 2
        a< PUBLISH 1 "u" qos=1 "x"
        "##
    }

    fn who_is_ahead_of_its_rate_is_asked_about_once() {
        r##"
        # options: limits.messages_per_s=1 asks_kept_ms=0
        # warden: allow #
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "a" qos=1 "x" &
        a> PUBLISH 2 "a" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        ! warden asked
        warden< publish "a" qos=1 by a
        + 2s
        a< PUBACK 2 NoMatchingSubscribers
        ! warden asked
        warden< publish "a" qos=1 by a
        "##
    }

    fn what_is_no_packet_is_no_question() {
        r##"
        # warden: allow #
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/#/b" qos=0 "c" qos=0
        a< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "$SYS/x" qos=1 "x"
        b< PUBACK 1 NotAuthorized *
        b> PUBLISH 2 "" qos=1 "x" alias=9
        b< DISCONNECT ProtocolError \
            reason_string="used a topic alias before giving it a topic"
        b< CLOSED
        ! warden asked
        "##
    }
}
