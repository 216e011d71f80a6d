//! Namespaces: clients in a namespace reach only topics and clients of the same namespace, and
//! clients without a namespace see the full topic names.

crate::transcripts! {
    // [MQTT-3.3.1-9] [MQTT-4.7.1-1]
    fn a_client_in_a_namespace_says_and_hears_short_names() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> SUBSCRIBE 1 "#" qos=1
        admin< SUBACK 1 [1]
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=1
        a< SUBACK 1 [1]
        b! by 2
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=1
        b< SUBACK 1 [1]
        c! by 1
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> SUBSCRIBE 1 "x/+" qos=0
        c< SUBACK 1 [0]
        a> PUBLISH 2 "x/y" qos=1 "1"
        a< PUBLISH 1 "x/y" qos=1 "1"
        a< PUBACK 2
        admin< PUBLISH 1 "acme/x/y" qos=1 "1"
        c< PUBLISH "x/y" qos=0 "1"
        // From outside it has to be called by its whole name.
        admin> PUBLISH 2 "globex/x" qos=1 "2"
        admin< PUBLISH 2 "globex/x" qos=1 "2"
        admin< PUBACK 2
        b< PUBLISH 1 "x" qos=1 "2"
        admin> PUBLISH 3 "x/y" qos=1 "3"
        admin< PUBLISH 3 "x/y" qos=1 "3"
        admin< PUBACK 3
        "##
    }

    // `acme/#` is for `acme` too (MQTT 5.0, 4.7.1.2), which no name in there is.
    fn the_topic_that_is_called_like_the_namespace_is_outside() {
        r##"
        # listener: 1 namespace=acme
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=1 "$share/g/#" qos=1
        a< SUBACK 1 [1 1]
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> PUBLISH 1 "acme" qos=1 retain "1"
        admin< PUBACK 1
        admin> PUBLISH 2 "acme" qos=0 "2"
        admin> PUBLISH 3 "acme/$x" qos=1 "3"
        admin< PUBACK 3
        b! by 1
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=1
        b< SUBACK 1 [1]
        "##
    }

    // [MQTT-4.7.2-1]
    fn nobody_in_a_namespace_sees_or_says_what_is_the_servers() {
        r##"
        # options: sys.interval_s=1
        # listener: 1 namespace=acme
        # shards: 1
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/#" qos=0 "#" qos=0
        a< SUBACK 1 [0 0]
        + 3s
        a> PUBLISH 2 "$SYS/x" qos=1 "x"
        a< PUBACK 2 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 3 "$x" qos=1 "x"
        a< PUBACK 3 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        b! by 1
        b> CONNECT id=b will="$x" will_qos=0 will_payload="x"
        b< CONNACK present=0 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        b< CLOSED
        "##
    }

    // [MQTT-3.3.1-5] [MQTT-3.3.1-6]
    fn retained_messages_are_of_their_namespace() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 retain "ours"
        a< PUBACK 1 NoMatchingSubscribers
        b! by 2
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "t" qos=1 retain "theirs"
        b< PUBACK 1 NoMatchingSubscribers
        b> SUBSCRIBE 2 "#" qos=1
        b< SUBACK 2 [1]
        b< PUBLISH 1 "t" qos=1 retain "theirs"
        b> PUBLISH 2 "t" qos=1 retain ""
        b< PUBLISH 2 "t" qos=1 ""
        b< PUBACK 2
        a> SUBSCRIBE 2 "+" qos=1
        a< SUBACK 2 [1]
        a< PUBLISH 1 "t" qos=1 retain "ours"
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> SUBSCRIBE 1 "#" qos=0
        admin< SUBACK 1 [0]
        admin< PUBLISH "acme/t" qos=0 retain "ours"
        "##
    }

    // [MQTT-3.1.2-8]
    fn a_will_is_of_its_namespace() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=a will="gone" will_qos=1 will_payload="a"
        a< CONNACK present=0
        b! by 1
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "gone" qos=1
        b< SUBACK 1 [1]
        c! by 2
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "gone" qos=1
        c< SUBACK 1 [1]
        a! cut
        b< PUBLISH 1 "gone" qos=1 "a"
        "##
    }

    // [MQTT-4.8.2-4]
    fn a_shared_subscription_is_of_its_namespace() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b! by 2
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        // Another group than theirs, though it has the same name and the same topic.
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> SUBSCRIBE 1 "$share/g/acme/t" qos=1
        admin< SUBACK 1 [1]
        c! by 1
        c> CONNECT id=c
        c< CONNACK present=0
        c> PUBLISH 1 "t" qos=1 "1"
        c< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        admin< PUBLISH 1 "acme/t" qos=1 "1"
        c> PUBLISH 2 "t" qos=1 "2"
        c< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        admin< PUBLISH 2 "acme/t" qos=1 "2"
        a> UNSUBSCRIBE 2 "$share/g/acme/t" "$share/g/t"
        a< UNSUBACK 2 [0x11 0]
        c> PUBLISH 3 "t" qos=1 "3"
        c< PUBACK 3
        admin< PUBLISH 3 "acme/t" qos=1 "3"
        "##
    }

    // One namespace in another: the same filter in the broker, and not the same group.
    fn a_group_of_a_namespace_within_another_is_another() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=acme/east
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/east/t" qos=1
        a< SUBACK 1 [1]
        b! by 2
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        c! by 2
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "#" qos=0
        c< SUBACK 1 [0]
        c> PUBLISH 1 "t" qos=1 "1"
        c< PUBLISH "t" qos=0 "1"
        c< PUBACK 1
        a< PUBLISH 1 "east/t" qos=1 "1"
        b< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    // [MQTT-3.1.3-2] [MQTT-3.1.4-3]
    fn a_client_id_is_taken_over_within_its_namespace_only() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=x clean=0 expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b! by 2
        b> CONNECT id=x clean=0 expiry=60
        b< CONNACK present=0
        c> CONNECT id=x clean=0 expiry=60
        c< CONNACK present=0
        d! by 1
        d> CONNECT id=x clean=0 expiry=60
        d< CONNACK present=1
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        d> PUBLISH 1 "t" qos=1 "1"
        d< PUBLISH 1 "t" qos=1 "1"
        d< PUBACK 1
        b> PINGREQ
        b< PINGRESP
        c> PINGREQ
        c< PINGRESP
        "##
    }

    // [MQTT-3.1.3-6] [MQTT-3.1.3-7]
    fn an_assigned_client_id_does_not_show_the_namespace() {
        r##"
        # listener: 1 namespace=acme
        a! by 1
        a> CONNECT id=""
        a< CONNACK present=0 assigned_id=*
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "t" qos=0 "1"
        a< PUBLISH "t" qos=0 "1"
        "##
    }

    // [MQTT-3.3.2-15]
    fn a_response_topic_is_mounted_and_cut_like_a_topic() {
        r##"
        # listener: 1 namespace=acme
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> SUBSCRIBE 1 "acme/ask" qos=1
        admin< SUBACK 1 [1]
        s! by 1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "ask" qos=1
        s< SUBACK 1 [1]
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "answer" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 2 "ask" qos=1 "?" content_type="x" response_topic="answer" user="k":"v"
        a< PUBACK 2
        admin< PUBLISH 1 "acme/ask" qos=1 "?" content_type=x response_topic=acme/answer \
            user="k":"v"
        s< PUBLISH 1 "ask" qos=1 "?" content_type=x response_topic=answer user="k":"v"
        s> PUBLISH 2 "answer" qos=1 "from s"
        s< PUBACK 2
        a< PUBLISH 1 "answer" qos=1 "from s"
        admin> PUBLISH 2 "acme/answer" qos=1 "from admin"
        admin< PUBACK 2
        a< PUBLISH 2 "answer" qos=1 "from admin"
        // What cannot be answered from in there is not asked for.
        admin> PUBLISH 3 "acme/ask" qos=1 "??" response_topic="elsewhere" user="k":"v"
        admin< PUBLISH 2 "acme/ask" qos=1 "??" response_topic=elsewhere user="k":"v"
        admin< PUBACK 3
        s< PUBLISH 2 "ask" qos=1 "??" user="k":"v"
        "##
    }

    fn a_will_has_a_response_topic_of_its_namespace() {
        r##"
        # listener: 1 namespace=acme
        a! by 1
        a> CONNECT id=a will="gone" will_qos=0 will_payload="x" will_response_topic="r"
        a< CONNACK present=0
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> SUBSCRIBE 1 "acme/gone" qos=0
        admin< SUBACK 1 [0]
        a! cut
        admin< PUBLISH "acme/gone" qos=0 "x" response_topic=acme/r
        "##
    }

    // [MQTT-3.3.2-12] [MQTT-3.1.2-26]
    fn aliases_stand_for_short_names() {
        r##"
        # listener: 1 namespace=acme
        a! by 1
        a> CONNECT id=a topic_alias_maximum=2
        a< CONNACK present=0
        a> SUBSCRIBE 1 "long/name" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "long/name" qos=0 "1" alias=1
        a< PUBLISH "long/name" qos=0 "1"
        a> PUBLISH "" qos=0 "2" alias=1
        a< PUBLISH "long/name" qos=0 "2" alias=1
        a> PUBLISH "" qos=0 "3" alias=1
        a< PUBLISH "" qos=0 "3" alias=1
        "##
    }

    // [MQTT-4.7.3-3]
    fn what_the_client_says_is_what_is_counted() {
        r##"
        # options: topic.levels_max=2
        # listener: 1 namespace=customers/acme
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/b" qos=0 "a/b/c" qos=0
        a< SUBACK 1 [0 0x8f] reason_string="the topic filter has too many levels or bytes"
        a> PUBLISH 1 "a/b" qos=1 "1"
        a< PUBLISH "a/b" qos=0 "1"
        a< PUBACK 1
        a> PUBLISH 2 "a/b/c" qos=1 "1"
        a< PUBACK 2 TopicNameInvalid \
            reason_string="the topic name has too many levels or bytes"
        "##
    }

    // Rules are about the names that the client uses.
    fn rules_are_about_short_names() {
        r##"
        # user: ann password=x
        # rules: allow topic=a/${clientid}/#; allow publish topic=b
        # listener: 1 namespace=acme
        a! by 1
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/a/#" qos=0 "acme/a/a/#" qos=0 "$share/g/a/a/x" qos=0 "#" qos=0
        a< SUBACK 1 [0 0x87 0 0x87] reason_string="not permitted by the rules of the server"
        a> PUBLISH 1 "a/a/y" qos=1 "1"
        a< PUBLISH "a/a/y" qos=0 "1"
        a< PUBACK 1
        a> PUBLISH 2 "acme/a/a/y" qos=1 "1"
        a< PUBACK 2 NotAuthorized reason_string="not permitted by the rules of the server"
        ! rules allow topic=c; allow publish topic=a/#
        a> PUBLISH 3 "a/a/y" qos=1 "1"
        a< PUBACK 3 NoMatchingSubscribers
        "##
    }

    // By user or by group, where the listener has another or none.
    fn a_verdict_may_name_the_namespace() {
        r##"
        # user: ann password=x namespace=acme
        # user: bob password=x group=globex
        # user: root password=x namespace=
        # group: globex namespace=globex
        # listener: 1 namespace=users/${username}
        root! by 1
        root> CONNECT id=x user_name=root password=x
        root< CONNACK present=0
        root> SUBSCRIBE 1 "#" qos=0
        root< SUBACK 1 [0]
        a! by 1
        a> CONNECT id=x user_name=ann password=x
        a< CONNACK present=0
        a> PUBLISH "t" qos=0 "a"
        root< PUBLISH "acme/t" qos=0 "a"
        b> CONNECT id=x user_name=bob password=x
        b< CONNACK present=0
        b> PUBLISH "t" qos=0 "b"
        root< PUBLISH "globex/t" qos=0 "b"
        a> PINGREQ
        a< PINGRESP
        "##
    }

    fn a_namespace_may_be_the_users_own() {
        r##"
        # user: ann password=x
        # user: a/b password=x
        # user: anonymous
        # listener: 1 namespace=users/${username}
        a! by 1
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        admin> CONNECT id=admin
        admin< CONNACK present=0
        admin> SUBSCRIBE 1 "users/#" qos=0
        admin< SUBACK 1 [0]
        a> PUBLISH "t" qos=0 "1"
        admin< PUBLISH "users/ann/t" qos=0 "1"
        // Who has no name, or one that is none, is under no namespace, and not let in.
        b! by 1
        b> CONNECT id=b user_name=a/b password=x
        b< CONNACK present=0 NotAuthorized \
            reason_string="the client has no name that a namespace could have"
        b< CLOSED
        c! by 1
        c> CONNECT id=c
        c< CONNACK present=0 NotAuthorized \
            reason_string="the client has no name that a namespace could have"
        c< CLOSED
        "##
    }

    fn whoever_flaps_is_kept_out_of_its_own_namespace() {
        r##"
        # options: flapping.count_max=2 flapping.ban_s=20
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=x
        a< CONNACK present=0
        a! cut
        a> CONNECT id=x
        a< CONNACK present=0
        a! cut
        a> CONNECT id=x
        a< CONNACK present=0 Banned \
            reason_string="the client came and went too often: it has to wait"
        a< CLOSED
        b! by 2
        b> CONNECT id=x
        b< CONNACK present=0
        "##
    }

    // Where only the verdict says who is meant, nobody is kept out before it.
    fn whoever_flaps_under_a_users_namespace_keeps_no_other_user_out() {
        r##"
        # options: flapping.count_max=2 flapping.ban_s=20
        # user: ann password=x namespace=acme
        # user: bob password=x namespace=globex
        a> CONNECT id=x user_name=ann password=x
        a< CONNACK present=0
        a! cut
        a> CONNECT id=x user_name=ann password=x
        a< CONNACK present=0
        a! cut
        a> CONNECT id=x user_name=ann password=x
        a< CONNACK present=0 Banned \
            reason_string="the client came and went too often: it has to wait"
        a< CLOSED
        b> CONNECT id=x user_name=bob password=x
        b< CONNACK present=0
        "##
    }

    fn a_ban_is_by_the_name_that_the_client_uses() {
        r##"
        # bans: id=x
        # listener: 1 namespace=acme
        a! by 1
        a> CONNECT id=x
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        a> CONNECT id=y
        a< CONNACK present=0
        ! bans id=y
        a< DISCONNECT AdministrativeAction reason_string="the client is banned"
        a< CLOSED
        "##
    }

    // What is sent out of a queue, and again, is cut as well [MQTT-4.4.0-1].
    fn what_waited_is_cut_too() {
        r##"
        # listener: 1 namespace=acme session.inflight_max=1
        a! by 1
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p! by 1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1" response_topic="r"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1" response_topic=r
        p> PUBLISH 2 "t" qos=1 "2" response_topic="r"
        p< PUBACK 2
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1" response_topic=r
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 "2" response_topic=r
        "##
    }

    // The namespace is part of what the store knows a session by.
    fn a_namespace_outlives_the_process() {
        r##"
        # disk: on
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=x clean=0 expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 "$share/g/s" qos=1
        a< SUBACK 1 [1 1]
        w! by 1
        w> CONNECT id=w clean=0 expiry=600 will="t" will_qos=1 will_payload="w" will_delay=5
        w< CONNACK present=0
        b! by 2
        b> CONNECT id=x clean=0 expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        b! cut
        p! by 2
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "2"
        p< PUBACK 1
        ! power
        a< CLOSED
        w< CLOSED
        p< CLOSED
        q! by 1
        q> CONNECT id=q
        q< CONNACK present=0
        q> PUBLISH 1 "t" qos=1 "3"
        q< PUBACK 1
        q> PUBLISH 2 "s" qos=1 "4"
        q< PUBACK 2
        + 6s
        b> CONNECT id=x clean=0 expiry=600
        b< CONNACK present=1
        b< PUBLISH 1 "t" qos=1 "2"
        a> CONNECT id=x clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "3"
        a< PUBLISH 2 "t" qos=1 "w"
        a< PUBLISH 3 "s" qos=1 "4"
        q> SUBSCRIBE 3 "#" qos=1
        q< SUBACK 3 [1]
        "##
    }

    // [MQTT-4.12.1-1]
    fn who_proves_itself_again_stays_in_its_namespace() {
        r##"
        # user: ann password=x namespace=acme
        # rules: allow topic=t
        a> CONNECT id=a auth_method=STEPS auth="ann" &
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> AUTH 0x19 auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH auth_method=STEPS auth="welcome"
        a> PUBLISH "t" qos=0 "1"
        a< PUBLISH "t" qos=0 "1"
        "##
    }

    // Every tenant's queue, and what is retained, is cleaned up as ever [3.1.1:MQTT-3.1.2-6].
    fn a_clean_start_ends_the_session_of_its_own_namespace_only() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        a! by 1
        a> CONNECT id=x clean=0 expiry=60
        a< CONNACK present=0
        a> DISCONNECT
        a< CLOSED
        b! by 2
        b> CONNECT id=x clean=0 expiry=60
        b< CONNACK present=0
        b> DISCONNECT
        b< CLOSED
        b> CONNECT id=x clean=1
        b< CONNACK present=0
        a> CONNECT id=x clean=0 expiry=60
        a< CONNACK present=1
        "##
    }
}
