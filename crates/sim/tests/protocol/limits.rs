//! Limits of a listener or of a group of users; the more specific limit applies.

crate::transcripts! {
    // [MQTT-3.2.2-15]
    fn a_listener_says_its_own_packet_size_and_receive_maximum() {
        r##"
        # listener: 1 connection.packet_bytes_max=100 connection.receive_maximum=1
        # connack: whole
        a> CONNECT id=a
        a< CONNACK present=0 receive_maximum=16384 maximum_packet_size=2097152 \
            topic_alias_maximum=64
        a> PUBLISH 1 "t" qos=1 "x"*100
        a< PUBACK 1 NoMatchingSubscribers
        b! by 1
        b> CONNECT id=b
        b< CONNACK present=0 receive_maximum=1 maximum_packet_size=100 topic_alias_maximum=64
        b> PUBLISH 1 "t" qos=1 "x"*100
        b< DISCONNECT PacketTooLarge reason_string="sent a packet above the maximum size"
        b< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0 receive_maximum=1 maximum_packet_size=100 topic_alias_maximum=64
        b> PUBLISH 1 "t" qos=2 "x"
        b< PUBREC 1 NoMatchingSubscribers
        b> PUBLISH 2 "t" qos=2 "x"
        b< DISCONNECT ReceiveMaximumExceeded \
            reason_string="sent more QoS 1 and 2 messages than agreed"
        b< CLOSED
        "##
    }

    fn a_listener_has_its_own_number_of_subscriptions_and_levels() {
        r##"
        # listener: 1 session.subscriptions_max=1 topic.levels_max=2
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/b/c" qos=0 "d" qos=0
        a< SUBACK 1 [0 0]
        b! by 1
        b> CONNECT id=b will="a/b/c" will_qos=0 will_payload="x"
        b< CONNACK present=0 TopicNameInvalid \
            reason_string="the topic name has too many levels or bytes"
        b< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/b/c" qos=0 "d" qos=0 "e" qos=0
        b< SUBACK 1 [0x8f 0 0x97] \
            reason_string="the topic filter has too many levels or bytes"
        b> PUBLISH 2 "a/b/c" qos=1 "x"
        b< PUBACK 2 TopicNameInvalid \
            reason_string="the topic name has too many levels or bytes"
        "##
    }

    fn a_listener_has_its_own_window_and_queue() {
        r##"
        # listener: 1 session.inflight_max=1 queue.messages_max=1
        a! by 1
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 2
        a! cut
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        p> PUBLISH 5 "t" qos=1 "5"
        p< PUBACK 5
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 3 "t" qos=1 "5"
        "##
    }

    // The group of a verdict goes before the listener, and that before what is for all.
    fn the_more_particular_limit_wins() {
        r##"
        # options: topic.levels_max=1
        # listener: 1 topic.levels_max=2
        # group: slow topic.levels_max=3
        # user: ann password=x group=fast group=slow
        # user: bob password=x group=fast
        a> CONNECT id=a user_name=bob password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "1" qos=0 "1/2" qos=0 "1/2/3" qos=0 "1/2/3/4" qos=0
        a< SUBACK 1 [0 0x8f 0x8f 0x8f] \
            reason_string="the topic filter has too many levels or bytes"
        b! by 1
        b> CONNECT id=b user_name=bob password=x
        b< CONNACK present=0
        b> SUBSCRIBE 1 "1" qos=0 "1/2" qos=0 "1/2/3" qos=0 "1/2/3/4" qos=0
        b< SUBACK 1 [0 0 0x8f 0x8f] \
            reason_string="the topic filter has too many levels or bytes"
        c! by 1
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        c> SUBSCRIBE 1 "1" qos=0 "1/2" qos=0 "1/2/3" qos=0 "1/2/3/4" qos=0
        c< SUBACK 1 [0 0 0 0x8f] reason_string="the topic filter has too many levels or bytes"
        "##
    }

    // What a group does not say is its listener's.
    fn a_group_has_what_its_listener_has() {
        r##"
        # listener: 1 session.subscriptions_max=1
        # group: slow topic.levels_max=3
        # user: ann password=x group=slow
        a! by 1
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/b/c/d" qos=0 "a" qos=0 "b" qos=0
        a< SUBACK 1 [0x8f 0 0x97] \
            reason_string="the topic filter has too many levels or bytes"
        "##
    }

    // [MQTT-3.2.2-7]
    fn a_group_comes_so_fast_wherever_its_clients_are() {
        r##"
        # shards: 2
        # group: slow limits.connections_per_s=2
        # user: ann password=x group=slow
        # user: bob password=x
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        b> CONNECT id=b user_name=ann password=x
        b< CONNACK present=0
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0 ConnectionRateExceeded *
        c< CLOSED
        d> CONNECT id=d user_name=bob password=x
        d< CONNACK present=0
        + 500ms
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        "##
    }

    fn who_finds_no_room_in_a_group_takes_nobodys_turn() {
        r##"
        # group: few limits.connections_max=1 limits.connections_per_s=1
        # user: ann password=x group=few
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        + 1s
        b> CONNECT id=b user_name=ann password=x
        b< CONNACK present=0 QuotaExceeded *
        b< CLOSED
        a> DISCONNECT
        a< CLOSED
        b> CONNECT id=b user_name=ann password=x
        b< CONNACK present=0
        "##
    }

    fn a_group_has_so_many_connections_wherever_they_are() {
        r##"
        # group: few limits.connections_max=2
        # user: ann password=x group=few
        # user: bob password=x
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        b> CONNECT id=b user_name=ann password=x clean=0 expiry=60
        b< CONNACK present=0
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        c< CLOSED
        d> CONNECT id=d user_name=bob password=x
        d< CONNACK present=0
        // Who comes again takes its own place.
        e> CONNECT id=b user_name=ann password=x
        e< CONNACK present=0
        b< DISCONNECT SessionTakenOver
        b< CLOSED
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        c< CLOSED
        a! cut
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        e> DISCONNECT
        e< CLOSED
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        "##
    }

    fn a_group_talks_at_its_own_rate() {
        r##"
        # group: slow limits.messages_per_s=1
        # user: ann password=x group=slow
        # user: bob password=x
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        b> CONNECT id=b user_name=bob password=x
        b< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "1" &
        a> PUBLISH 2 "t" qos=1 "2"
        a< PUBACK 1 NoMatchingSubscribers
        b> PUBLISH 1 "t" qos=1 "1" &
        b> PUBLISH 2 "t" qos=1 "2"
        b< PUBACK 1 NoMatchingSubscribers
        b< PUBACK 2 NoMatchingSubscribers
        + 1s
        a< PUBACK 2 NoMatchingSubscribers
        "##
    }

    // [MQTT-4.12.1-1]: what it proves anew is not another connection.
    fn who_proves_itself_again_keeps_its_place_in_its_group() {
        r##"
        # group: few limits.connections_max=1
        # user: ann password=x group=few
        a> CONNECT id=a auth_method=STEPS auth="ann" &
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a> AUTH 0x19 auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH auth_method=STEPS auth="welcome"
        b> CONNECT id=b user_name=ann password=x
        b< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        b< CLOSED
        a! cut
        b> CONNECT id=b user_name=ann password=x
        b< CONNACK present=0
        "##
    }
}
