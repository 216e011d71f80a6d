//! Authentication of CONNECT, authorization of PUBLISH, SUBSCRIBE and wills, and the effect of
//! changed rules.

crate::transcripts! {
    // [MQTT-3.2.2-7] [MQTT-3.1.4-2] [MQTT-3.1.4-6] [3.1.1:MQTT-3.2.2-5]
    fn only_who_proves_it_comes_in() {
        r##"
        # user: ann password=x
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        b> CONNECT id=b user_name=ann password=y
        b< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        b< CLOSED
        c> CONNECT id=c user_name=bob password=x &
        c> PINGREQ
        c< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        d< CLOSED
        e> CONNECT id=e v=311 user_name=ann password=y
        e< CONNACK present=0 BadUserNameOrPassword
        e< CLOSED
        "##
    }

    fn packets_that_follow_wait_for_the_verdict() {
        r##"
        # user: ann password=x
        ! judge waits
        a> CONNECT id=a user_name=ann password=x &
        a> SUBSCRIBE 1 "t" qos=0 &
        a> PUBLISH "t" qos=0 "x" &
        a> PINGREQ
        + 1s
        ! judge answers
        a< CONNACK present=0
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 "x"
        a< PINGRESP
        "##
    }

    fn a_verdict_that_does_not_come_is_a_refusal() {
        r##"
        # user: ann password=x
        # options: auth.timeout_ms=2000 connect.timeout_ms=1000
        ! judge waits
        a> CONNECT id=a user_name=ann password=x
        b> CONNECT id=b user_name=ann password=x v=311
        + 1900ms
        + 200ms
        a< CONNACK present=0 ServerUnavailable \
            reason_string="nobody could say in time whether the client may connect"
        a< CLOSED
        b< CONNACK present=0 ServerUnavailable
        b< CLOSED
        ! judge answers
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        + 3s
        c> PINGREQ
        c< PINGRESP
        "##
    }

    fn a_verdict_for_who_has_gone_is_for_nobody() {
        r##"
        # user: ann password=x
        ! judge waits
        a> CONNECT id=a user_name=ann password=x
        a! cut
        b> CONNECT id=b user_name=ann password=y
        ! judge answers
        b< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        b< CLOSED
        "##
    }

    fn a_verdict_may_give_another_client_id() {
        r##"
        # user: ann password=x id=ann-1
        # user: anonymous
        # shards: 3
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        b> CONNECT id=b user_name=ann password=x clean=0
        b< CONNACK present=0
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        c> CONNECT id="" user_name=ann password=x
        c< CONNACK present=0 assigned_id=ann-1
        b< DISCONNECT SessionTakenOver
        b< CLOSED
        d> CONNECT id="" v=311
        d< CONNACK present=0
        "##
    }

    fn a_client_goes_when_its_proof_expires() {
        r##"
        # user: ann password=x expires=10s
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        b> CONNECT id=b user_name=ann password=x v=311 keep_alive=5
        b< CONNACK present=0
        + 6s
        b> PINGREQ
        b< PINGRESP
        + 3900ms
        + 200ms
        a< DISCONNECT MaximumConnectTime \
            reason_string="the client's credentials have expired"
        a< CLOSED
        b< CLOSED
        "##
    }

    // [3.1.1:MQTT-3.3.5-2]
    fn a_publish_needs_a_rule_that_allows_it() {
        r##"
        # user: anonymous
        # rules: deny topic=a/secret/#; allow topic=a/#
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/x" qos=2
        a< SUBACK 1 [2]
        a> PUBLISH "a/x" qos=0 "1"
        a< PUBLISH "a/x" qos=0 "1"
        a> PUBLISH "b" qos=0 "2"
        a> PUBLISH 3 "b" qos=1 "3"
        a< PUBACK 3 NotAuthorized reason_string="not permitted by the rules of the server"
        a> PUBLISH 4 "a/secret/x" qos=2 "4"
        a< PUBREC 4 NotAuthorized reason_string="not permitted by the rules of the server"
        a> PUBLISH 4 "a/x" qos=1 "5"
        a< PUBLISH 1 "a/x" qos=1 "5"
        a< PUBACK 4
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH "b" qos=0 "2"
        b> PUBLISH 3 "b" qos=1 "3"
        b< PUBACK 3
        b> PUBLISH 4 "b" qos=2 "4"
        b< PUBREC 4
        b> PUBREL 4
        b< PUBCOMP 4
        b> PINGREQ
        b< PINGRESP
        "##
    }

    fn an_alias_is_permitted_as_the_name_that_it_stands_for() {
        r##"
        # rules: allow topic=a
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "b" qos=1 alias=1 "x"
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        a> PUBLISH 2 "" qos=1 alias=1 "x"
        a< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        a> PUBLISH 3 "a" qos=1 alias=1 "x"
        a< PUBACK 3 NoMatchingSubscribers
        a> PUBLISH 4 "" qos=1 alias=1 "x"
        a< PUBACK 4 NoMatchingSubscribers
        "##
    }

    fn a_filter_needs_rules_for_all_that_it_brings() {
        r##"
        # rules: deny topic=a/+/secret; allow subscribe topic=a/#; allow qos=0 topic=b/#
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/x" qos=0 "a/#" qos=0 "a/+/secret" qos=0 "a/x/+" qos=0 "#" qos=0 \
            "a/x/y/#" qos=0
        a< SUBACK 1 [0 0x87 0x87 0x87 0x87 0] \
            reason_string="not permitted by the rules of the server"
        a> SUBSCRIBE 2 "$share/g/a/x" qos=1 "$share/g/c" qos=1 "b/x" qos=0 "b/x" qos=1
        a< SUBACK 2 [1 0x87 0 0x87] reason_string="not permitted by the rules of the server"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/x" qos=0 "c" qos=0
        b< SUBACK 1 [0 0x80]
        "##
    }

    fn rules_may_name_users_groups_ids_and_the_client_itself() {
        r##"
        # user: ann password=x group=ops
        # user: bob password=x
        # user: anonymous
        # rules: allow user=bob topic=bob; allow group=ops topic=ops/#; allow id=dev-* \
            topic=dev/${clientid}; allow topic=home/${username}; deny anonymous; allow topic=all
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "ops/x" qos=0 "bob" qos=0 "home/ann" qos=0 "home/bob" qos=0 "dev/a" \
            qos=0 "all" qos=0 "home/+" qos=0
        a< SUBACK 1 [0 0x87 0 0x87 0x87 0 0x87] \
            reason_string="not permitted by the rules of the server"
        b> CONNECT id=b user_name=bob password=x
        b< CONNACK present=0
        b> SUBSCRIBE 1 "ops/x" qos=0 "bob" qos=0 "home/ann" qos=0 "home/bob" qos=0
        b< SUBACK 1 [0x87 0 0x87 0] reason_string="not permitted by the rules of the server"
        c> CONNECT id=dev-1
        c< CONNACK present=0
        c> SUBSCRIBE 1 "dev/dev-1" qos=0 "dev/dev-2" qos=0 "home/" qos=0 "all" qos=0
        c< SUBACK 1 [0 0x87 0x87 0x87] \
            reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_name_that_nobody_checked_is_nobodys() {
        r##"
        # rules: allow user=ann topic=a; allow anonymous topic=b
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=0 "b" qos=0
        a< SUBACK 1 [0x87 0] reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_client_whose_name_is_a_wildcard_gets_no_more_by_it() {
        r##"
        # user: + password=x
        # rules: allow topic=home/${username}/#; allow topic=dev/${clientid}
        a> CONNECT id="#" user_name=+ password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "home/+/x" qos=0 "home/+/#" qos=0 "dev/#" qos=0 "dev/a" qos=0
        a< SUBACK 1 [0x87 0x87 0x87 0x87] \
            reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_superuser_may_do_everything() {
        r##"
        # user: root password=x superuser
        # rules: deny topic=#
        a> CONNECT id=a user_name=root password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH 2 "t" qos=1 "x"
        a< PUBLISH "t" qos=0 "x"
        a< PUBACK 2
        "##
    }

    fn rules_of_its_own_are_asked_before_everyones() {
        r##"
        # user: ann password=x : allow topic=own/#; deny topic=both
        # rules: deny topic=own/#; allow topic=both; allow topic=all
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "own/x" qos=0 "both" qos=0 "all" qos=0 "none" qos=0
        a< SUBACK 1 [0 0x87 0 0x87] reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_will_that_is_not_permitted_is_a_refusal() {
        r##"
        # rules: deny publish retain=1; allow topic=a
        a> CONNECT id=a will="b" will_payload="x"
        a< CONNACK present=0 NotAuthorized \
            reason_string="not permitted by the rules of the server"
        a< CLOSED
        b> CONNECT id=b will="a" will_payload="x"
        b< CONNACK present=0
        c> CONNECT id=c will="a" will_payload="x" will_retain
        c< CONNACK present=0 NotAuthorized \
            reason_string="not permitted by the rules of the server"
        c< CLOSED
        d> CONNECT id=d will="b" will_payload="x" v=311
        d< CONNACK present=0 NotAuthorized
        d< CLOSED
        "##
    }

    fn a_will_is_asked_for_again_when_it_is_due() {
        r##"
        # rules: allow topic=#
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "will/#" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b will="will/b" will_payload="x"
        b< CONNACK present=0
        c> CONNECT id=c will="will/c" will_payload="x"
        c< CONNACK present=0
        b! cut
        a< PUBLISH "will/b" qos=0 "x"
        ! rules allow subscribe; allow id=a
        c! cut
        "##
    }

    fn new_rules_apply_to_who_is_connected() {
        r##"
        # rules: allow topic=#
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
        ! rules allow topic=a/#
        b> PUBLISH 2 "b" qos=1 "x"
        b< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        b> PUBLISH 3 "a/x" qos=1 "x"
        b< PUBACK 3
        a< PUBLISH 3 "a/x" qos=1 "x"
        ! rules allow publish; allow subscribe topic=b
        b> PUBLISH 4 "a/x" qos=1 "x"
        b< PUBACK 4 NoMatchingSubscribers
        b> PUBLISH 5 "b" qos=1 "x"
        b< PUBACK 5 NoMatchingSubscribers
        "##
    }

    fn rules_that_come_later_apply_to_who_was_there_before() {
        r##"
        a> CONNECT id=a user_name=ann
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=1 "b" qos=1
        a< SUBACK 1 [1 1]
        ! rules allow anonymous topic=a
        a> PUBLISH 1 "a" qos=1 "x"
        a< PUBLISH 1 "a" qos=1 "x"
        a< PUBACK 1
        a> PUBLISH 2 "b" qos=1 "x"
        a< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        "##
    }

    fn a_session_of_another_user_is_not_taken_over() {
        r##"
        # user: ann password=x
        # user: bob password=x
        a> CONNECT id=a user_name=ann password=x clean=0 expiry=100
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        c> PUBLISH 1 "t" qos=1 "for ann"
        c< PUBACK 1
        b> CONNECT id=a user_name=bob password=x clean=0 expiry=100
        b< CONNACK present=0
        b! cut
        b> CONNECT id=a user_name=bob password=x clean=0 expiry=100
        b< CONNACK present=1
        "##
    }

    fn a_bridge_may_say_whether_it_is_there_and_nothing_else_of_the_servers() {
        r##"
        a> CONNECT id=a will="$SYS/broker/connection/x.y/state" will_payload="0" will_retain
        a< CONNACK present=0
        a> PUBLISH 1 "$SYS/broker/connection/x.y/state" qos=1 retain "1"
        a< PUBACK 1 NoMatchingSubscribers
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$SYS/broker/connection/+/state" qos=0
        b< SUBACK 1 [0]
        b< PUBLISH "$SYS/broker/connection/x.y/state" qos=0 retain "1"
        a> PUBLISH 2 "$SYS/broker/connection//state" qos=1 "1" &
        a> PUBLISH 3 "$SYS/broker/connection/x" qos=1 "1" &
        a> PUBLISH 4 "$SYS/broker/uptime" qos=1 "1"
        a< PUBACK 2 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a< PUBACK 3 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a< PUBACK 4 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a! cut
        b< PUBLISH "$SYS/broker/connection/x.y/state" qos=0 "0"
        "##
    }

    fn a_session_is_its_users_after_a_restart_too() {
        r##"
        # user: ann password=x
        # user: bob password=x
        # disk: on
        # shards: 2
        a> CONNECT id=a user_name=ann password=x clean=0 expiry=100
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        n> CONNECT id=n clean=0 expiry=100 user_name=bob password=x
        n< CONNACK present=0
        ! power
        a< CLOSED
        n< CLOSED
        # Whoever has not been here again since is still whose it was.
        ! power
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        c> PUBLISH 1 "t" qos=1 "for ann"
        c< PUBACK 1
        n> CONNECT id=n user_name=bob password=x clean=0 expiry=100
        n< CONNACK present=1
        b> CONNECT id=a user_name=bob password=x clean=0 expiry=100
        b< CONNACK present=0
        "##
    }

    fn who_comes_back_keeps_only_what_it_may_have() {
        r##"
        # rules: allow topic=#
        # disk: on
        # shards: 2
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 "u" qos=1
        a< SUBACK 1 [1 1]
        ! power
        a< CLOSED
        ! rules allow publish; allow topic=u
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

    fn what_waits_goes_with_the_subscription_that_the_rules_take_away() {
        r##"
        # rules: allow
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=0
        a> SUBSCRIBE 1 "secret/#" qos=1 "open" qos=1 "both" qos=1
        a< SUBACK 1 [1 1 1]
        a> DISCONNECT
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "secret/a" qos=1 "1"
        b< PUBACK 1
        b> PUBLISH 2 "open" qos=1 "2"
        b< PUBACK 2
        b> PUBLISH 3 "both" qos=1 "3"
        b< PUBACK 3
        b> PUBLISH 4 "secret/b" qos=1 "4"
        b< PUBACK 4
        ! rules deny address=10.0.0.7 subscribe topic=secret/#; allow
        a! from 10.0.0.7
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=1
        a< PUBLISH 1 "open" qos=1 "2"
        a< PUBLISH 2 "both" qos=1 "3"
        b> PUBLISH 5 "secret/a" qos=1 "5"
        b< PUBACK 5 NoMatchingSubscribers
        "##
    }

    fn what_only_the_store_has_goes_with_its_subscription_too() {
        r##"
        # rules: allow
        # disk: on
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=0
        a> SUBSCRIBE 1 "secret/#" qos=1 "open" qos=1
        a< SUBACK 1 [1 1]
        a> DISCONNECT
        a< CLOSED
        b> CONNECT id=b clean=0 expiry=100
        b< CONNACK present=0
        b> PUBLISH 1 "secret/a" qos=1 "1"
        b< PUBACK 1
        b> PUBLISH 2 "open" qos=1 "2"
        b< PUBACK 2
        b> PUBLISH 3 "secret/b" qos=1 "3"
        b< PUBACK 3
        ! power
        b< CLOSED
        ! rules deny subscribe topic=secret/#; allow
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=1
        a< PUBLISH 2 "open" qos=1 "2"
        a> PUBACK 2
        + 2s
        a> DISCONNECT
        a< CLOSED
        ! power
        ! rules allow
        a> CONNECT id=a clean=0 expiry=100
        a< CONNACK present=1
        "##
    }
}
