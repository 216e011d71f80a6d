//! Delayed messages: `$delayed/{seconds}/{topic}`.

crate::transcripts! {
    fn a_delayed_message_comes_at_its_time_under_its_own_name() {
        r##"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=1 "$delayed/#" qos=1
        s< SUBACK 1 [1 1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "$delayed/2/a/b" qos=1 content_type="x" "later"
        p< PUBACK 7
        p> PUBLISH "$delayed/1/a/b" qos=0 "sooner"
        p> DISCONNECT
        p< CLOSED
        + 900ms
        + 200ms
        s< PUBLISH "a/b" qos=0 "sooner"
        + 800ms
        + 200ms
        s< PUBLISH 1 "a/b" qos=1 "later" content_type=x
        "##
    }

    fn those_of_one_moment_come_in_their_order() {
        r##"
        s> CONNECT id=s v=311
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p v=311
        p< CONNACK present=0
        p> PUBLISH "$delayed/1/t" qos=0 "1"
        p> PUBLISH "$delayed/1/t" qos=0 "2"
        p> PUBLISH "$delayed/1/t" qos=0 "3"
        + 1100ms
        s< PUBLISH "t" qos=0 "1"
        s< PUBLISH "t" qos=0 "2"
        s< PUBLISH "t" qos=0 "3"
        "##
    }

    fn what_is_no_delay_is_refused() {
        r##"
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/0/t" qos=1 "x"
        p< PUBACK 1 TopicNameInvalid
        p> PUBLISH 2 "$delayed/4294968/t" qos=1 "x"
        p< PUBACK 2 TopicNameInvalid
        p> PUBLISH 3 "$delayed/t" qos=2 "x"
        p< PUBREC 3 TopicNameInvalid
        p> PUBLISH 4 "$delayed/1/" qos=1 "x"
        p< PUBACK 4 TopicNameInvalid
        p> PUBLISH 5 "$delayed/1/$delayed/1/t" qos=1 "x"
        p< PUBACK 5 TopicNameInvalid
        p> PUBLISH 6 "$delayed/1/$SYS/t" qos=1 "x"
        p< PUBACK 6 NotAuthorized
        o> CONNECT id=o v=311
        o< CONNACK present=0
        o> PUBLISH 1 "$delayed/0/t" qos=1 "x"
        o< PUBACK 1
        "##
    }

    fn a_will_has_a_delay_of_its_own() {
        r##"
        p> CONNECT id=p request_problem=0 will="$delayed/1/t" will_payload="x"
        p< CONNACK present=0 TopicNameInvalid \
            reason_string="a PUBLISH is delayed by $delayed/SECONDS/TOPIC, with 1 to 4294967"
        p< CLOSED
        "##
    }

    fn no_more_wait_than_may() {
        r##"
        # options: delayed.messages_max=2 delayed.client_percent_max=100
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=1
        s< SUBACK 1 [1]
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH "$delayed/1/t" qos=0 "2"
        p> PUBLISH "$delayed/1/t" qos=0 "dropped"
        p> PUBLISH 3 "$delayed/1/t" qos=1 "3"
        p< PUBACK 3 QuotaExceeded
        q> CONNECT id=q request_problem=0
        q< CONNACK present=0
        q> PUBLISH 3 "$delayed/1/t" qos=2 "3"
        q< PUBREC 3 QuotaExceeded
        o> CONNECT id=o v=311
        o< CONNACK present=0
        o> PUBLISH 1 "$delayed/1/t" qos=1 "4"
        o< CLOSED
        + 1100ms
        s< PUBLISH 1 "t" qos=1 "1"
        s< PUBLISH "t" qos=0 "2"
        p> PUBLISH 4 "$delayed/1/t" qos=1 "5"
        p< PUBACK 4
        + 1100ms
        s< PUBLISH 2 "t" qos=1 "5"
        "##
    }

    fn one_client_does_not_fill_it_for_all() {
        r##"
        # options: delayed.messages_max=4
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        q> CONNECT id=q request_problem=0
        q< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "$delayed/2/t" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH 3 "$delayed/1/t" qos=1 "3"
        p< PUBACK 3 QuotaExceeded
        q> PUBLISH 1 "$delayed/9/t" qos=1 "4"
        q< PUBACK 1
        + 1100ms
        p> PUBLISH 4 "$delayed/9/t" qos=1 "5"
        p< PUBACK 4
        p> PUBLISH 5 "$delayed/9/t" qos=1 "6"
        p< PUBACK 5 QuotaExceeded
        ! reload delayed.client_percent_max=75
        p> PUBLISH 6 "$delayed/9/t" qos=1 "7"
        p< PUBACK 6
        "##
    }

    fn nor_with_few_large_messages() {
        r##"
        # options: delayed.bytes_max=600
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        q> CONNECT id=q request_problem=0
        q< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "$delayed/1/t" qos=1 "2"
        p< PUBACK 2 QuotaExceeded
        q> PUBLISH 1 "$delayed/1/t" qos=1 "3"
        q< PUBACK 1
        "##
    }

    fn their_bytes_are_bounded_too() {
        r##"
        # options: delayed.bytes_max=300 delayed.client_percent_max=100
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "$delayed/1/t" qos=1 "2"
        p< PUBACK 2 QuotaExceeded
        "##
    }

    fn a_reload_changes_the_bound_and_takes_nothing_away() {
        r##"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=1
        s< SUBACK 1 [1]
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/t" qos=1 "1"
        p< PUBACK 1
        ! reload delayed.messages_max=0
        p> PUBLISH 2 "$delayed/1/t" qos=1 "2"
        p< PUBACK 2 QuotaExceeded
        + 1100ms
        s< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    fn it_expires_that_long_after_it_is_published() {
        r##"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=1
        s< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/10/t" qos=1 expiry=5 "1"
        p< PUBACK 1
        + 10100ms
        s< PUBLISH 1 "t" qos=1 "1" expiry=5
        "##
    }

    fn it_is_retained_when_it_is_published() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/t" qos=1 retain "1"
        p< PUBACK 1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=1
        s< SUBACK 1 [1]
        + 1100ms
        s< PUBLISH 1 "t" qos=1 "1"
        r> CONNECT id=r
        r< CONNACK present=0
        r> SUBSCRIBE 1 "t" qos=1
        r< SUBACK 1 [1]
        r< PUBLISH 1 "t" qos=1 retain "1"
        "##
    }

    // [MQTT-3.8.3-3]
    fn its_publisher_does_not_get_it_back_with_no_local() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> SUBSCRIBE 1 "t" qos=0 no_local "u" qos=0
        p< SUBACK 1 [0 0]
        p> PUBLISH "$delayed/1/t" qos=0 "1"
        p> PUBLISH "$delayed/1/u" qos=0 "2"
        + 1100ms
        p< PUBLISH "u" qos=0 "2"
        "##
    }

    fn an_alias_may_stand_for_it() {
        r##"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$delayed/1/t" qos=0 alias=1 "1"
        p> PUBLISH "" qos=0 alias=1 "2"
        + 1100ms
        s< PUBLISH "t" qos=0 "1"
        s< PUBLISH "t" qos=0 "2"
        "##
    }

    fn rules_see_it_when_it_is_published() {
        r##"
        # rule: seen publish=out/${clientid} payload=${payload} : SELECT * FROM "t"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$delayed/1/t" qos=0 "1"
        p> DISCONNECT
        p< CLOSED
        + 1100ms
        s< PUBLISH "t" qos=0 "1"
        s< PUBLISH "out/p" qos=0 "1"
        "##
    }

    fn rules_know_who_said_it_and_from_where_though_it_has_gone() {
        r##"
        # user: ann password=x
        # user: sam password=x
        # rule: by publish=by/${username} payload=${clientid},${peerhost} : SELECT * FROM "t"
        s> CONNECT id=s user_name=sam password=x
        s< CONNACK present=0
        s> SUBSCRIBE 1 "by/#" qos=0
        s< SUBACK 1 [0]
        p! from 10.0.0.7
        p> CONNECT id=p user_name=ann password=x
        p< CONNACK present=0
        p> PUBLISH "$delayed/1/t" qos=0 "1"
        p> DISCONNECT
        p< CLOSED
        + 1100ms
        s< PUBLISH "by/ann" qos=0 "p,10.0.0.7"
        "##
    }

    fn and_after_a_power_cut() {
        r##"
        # disk: on
        # user: ann password=x
        # user: sam password=x
        # rule: by publish=by/${username} payload=${clientid},${peerhost} : SELECT * FROM "t"
        p! from 10.0.0.7
        p> CONNECT id=p user_name=ann password=x
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/5/t" qos=1 "1"
        p< PUBACK 1
        ! power
        p< CLOSED
        s> CONNECT id=s user_name=sam password=x
        s< CONNACK present=0
        s> SUBSCRIBE 1 "by/#" qos=0
        s< SUBACK 1 [0]
        + 5100ms
        s< PUBLISH "by/ann" qos=0 "p,10.0.0.7"
        "##
    }

    fn the_rules_judge_the_topic_behind_the_delay() {
        r##"
        # rules: allow topic=open/#
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/open/t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "$delayed/1/shut/t" qos=1 "1"
        p< PUBACK 2 NotAuthorized
        "##
    }

    fn a_warden_is_asked_about_the_topic_behind_the_delay() {
        r##"
        # warden: allow open/#
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/1/open/t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "$delayed/1/shut/t" qos=1 "1"
        p< PUBACK 2 NotAuthorized
        ! warden asked
        warden< publish "open/t" qos=1 by p
        warden< publish "shut/t" qos=1 by p
        "##
    }

    fn in_a_namespace_it_stays_there() {
        r##"
        # options: namespace=tenant
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$delayed/1/t" qos=0 "1"
        + 1100ms
        s< PUBLISH "t" qos=0 "1"
        "##
    }

    fn what_was_acknowledged_comes_after_a_power_cut() {
        r##"
        # disk: on
        s> CONNECT id=s expiry=600
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=2
        s< SUBACK 1 [2]
        s! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/20/t" qos=1 retain "1"
        p< PUBACK 1
        p> PUBLISH 2 "$delayed/10/t" qos=2 "2"
        p< PUBREC 2
        p> PUBLISH "$delayed/10/t" qos=0 "not kept"
        ! power
        p< CLOSED
        + 5s
        s> CONNECT id=s clean=0 expiry=600
        s< CONNACK present=1
        + 5100ms
        s< PUBLISH 1 "t" qos=2 "2"
        s> PUBREC 1
        s< PUBREL 1
        s> PUBCOMP 1
        ! power
        s< CLOSED
        s> CONNECT id=s clean=0 expiry=600
        s< CONNACK present=1
        + 10s
        s< PUBLISH 2 "t" qos=1 "1"
        s> PUBACK 2
        ! power
        s< CLOSED
        + 60s
        s> CONNECT id=s clean=0 expiry=600
        s< CONNACK present=1
        ! stored
        disk< messages 0, queues 0, retained 1, sessions 3
        "##
    }

    fn it_is_acknowledged_once_it_is_stored() {
        r##"
        # disk: on
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 1 "$delayed/20/t" qos=1 "1"
        p> PUBLISH 2 "$delayed/20/t" qos=2 "2"
        p> PINGREQ
        p< PINGRESP
        ! disk syncs
        p< PUBACK 1
        p< PUBREC 2
        ! disk refuses
        p> PUBLISH 3 "$delayed/20/t" qos=1 "3"
        p> PUBLISH 4 "$delayed/20/t" qos=1 "4"
        ! disk takes
        p< PUBACK 3
        p< PUBACK 4
        "##
    }

    fn what_is_in_memory_alone_ends_with_it() {
        r##"
        # options: durability=memory
        # disk: on
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "$delayed/20/t" qos=1 "1"
        p< PUBACK 1
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 1
        "##
    }

    fn they_are_counted() {
        r##"
        # options: sys.interval_s=10
        # shards: 1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/broker/delayed/messages/count" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$delayed/15/t" qos=0 "1"
        p> PUBLISH "$delayed/15/t" qos=0 "2"
        + 25s
        s< PUBLISH "$SYS/broker/delayed/messages/count" qos=0 "2"
        s< PUBLISH "$SYS/broker/delayed/messages/count" qos=0 "0"
        "##
    }
}
