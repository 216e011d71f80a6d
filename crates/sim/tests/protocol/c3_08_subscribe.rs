//! SUBSCRIBE and UNSUBSCRIBE: reason codes, options and limits.

crate::transcripts! {
    // [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-3.9.3-1]
    // [MQTT-2.2.1-6] [3.1.1:MQTT-3.8.4-1] [3.1.1:MQTT-3.8.4-2] [3.1.1:MQTT-3.8.4-4]
    // [3.1.1:MQTT-3.8.4-5] [3.1.1:MQTT-3.9.3-1] [3.1.1:MQTT-2.3.1-7]
    fn each_filter_has_its_code_in_order() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 10 "a" qos=2 "b" qos=0 "c" qos=1 "a" qos=1
        a< SUBACK 10 [2 0 1 1]
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 65535 "a" qos=2 "b" qos=0 "c" qos=1
        b< SUBACK 65535 [2 0 1]
        c> CONNECT id=c v=31
        c< CONNACK present=0
        c> SUBSCRIBE 1 "a" qos=2
        c< SUBACK 1 [2]
        "##
    }

    fn a_bridge_of_3_1_1_does_not_get_back_what_it_said() {
        r##"
        a> CONNECT id=a v=311 bridge
        a< CONNACK present=0
        b> CONNECT id=b v=311
        b< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        a> PUBLISH 2 "t" qos=1 "own"
        a< PUBACK 2
        b< PUBLISH "t" qos=0 "own"
        b> PUBLISH "t" qos=0 retain "other"
        b< PUBLISH "t" qos=0 "other"
        a< PUBLISH "t" qos=0 retain "other"
        "##
    }

    fn a_repeated_3_1_subscribe_may_carry_dup() {
        r##"
        c> CONNECT id=c v=31
        c< CONNACK present=0
        c> HEX 8a 06 00 01 00 01 74 01
        c< SUBACK 1 [1]
        c> HEX aa 05 00 02 00 01 74
        c< UNSUBACK 2
        "##
    }

    // [MQTT-3.8.4-3] [3.1.1:MQTT-3.8.4-3]
    fn the_same_filter_replaces_the_subscription() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a> SUBSCRIBE 2 "t" qos=0 no_local
        a< SUBACK 2 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "x"
        p< PUBACK 1
        a< PUBLISH "t" qos=0 "x"
        a> PUBLISH 1 "t" qos=1 "own"
        a< PUBACK 1
        "##
    }

    // [MQTT-3.8.3-2] [3.1.1:MQTT-3.8.3-3]
    fn a_subscribe_without_filters_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 82 03 00 01 00
        a< DISCONNECT ProtocolError reason_string="sent SUBSCRIBE without a filter"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> HEX 82 02 00 01
        b< CLOSED
        "##
    }

    // [MQTT-3.8.3-5] [3.1.1:MQTT-3.8.3-4]
    fn reserved_option_bits_are_malformed() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 82 07 00 01 00 00 01 74 40
        a< DISCONNECT MalformedPacket reason_string="set reserved subscription options"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> HEX 82 07 00 01 00 00 01 74 30
        b< DISCONNECT ProtocolError reason_string="used retain handling 3"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> HEX 82 07 00 01 00 00 01 74 03
        c< DISCONNECT ProtocolError reason_string="subscribed with QoS 3"
        c< CLOSED
        d> CONNECT id=d v=311
        d< CONNACK present=0
        d> HEX 82 06 00 01 00 01 74 04
        d< CLOSED
        e> CONNECT id=e v=311
        e< CONNACK present=0
        e> HEX 82 06 00 01 00 01 74 03
        e< CLOSED
        "##
    }

    // [MQTT-3.8.3-1] [MQTT-3.10.3-1] [3.1.1:MQTT-3.8.3-1] [3.1.1:MQTT-3.10.3-1]
    fn a_filter_that_is_no_text_closes() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 82 07 00 01 00 00 01 ff 00
        a< DISCONNECT MalformedPacket reason_string="sent text that is not UTF-8"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> HEX a2 05 00 01 00 01 ff
        b< CLOSED
        "##
    }

    // [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [3.1.1:MQTT-4.7.1-2] [3.1.1:MQTT-4.7.1-3]
    // [3.1.1:MQTT-4.7.3-1]
    fn wildcards_stand_for_whole_levels() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/#/b" qos=0
        a< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a#" qos=0
        b< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "a+/b" qos=0
        c< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "" qos=0
        d< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        d< CLOSED
        e> CONNECT id=e v=311
        e< CONNACK present=0
        e> SUBSCRIBE 1 "a/b+" qos=0
        e< CLOSED
        f> CONNECT id=f
        f< CONNACK present=0
        f> SUBSCRIBE 1 "a/b#/c" qos=0
        f< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        f< CLOSED
        "##
    }

    // [MQTT-4.7.1-1] [MQTT-4.7.3-1]
    fn filters_of_unsubscribe_are_checked_too() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "+/b" qos=0
        a< SUBACK 1 [0]
        a> UNSUBSCRIBE 1 "+/b/#/x"
        a< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        a< CLOSED
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a> PUBLISH "a/b" qos=0 "still subscribed"
        a< PUBLISH "a/b" qos=0 "still subscribed"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> UNSUBSCRIBE 1 ""
        b< CLOSED
        "##
    }

    // [MQTT-3.8.3-3]
    fn no_local_keeps_a_client_s_own_messages_from_it() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 no_local
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "from a"
        a< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "from a"
        b> PUBLISH 1 "t" qos=1 "from b"
        b< PUBLISH 2 "t" qos=1 "from b"
        b< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "from b"
        "##
    }

    fn no_local_counts_per_subscription() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/x" qos=1 no_local subscription_id=1
        a< SUBACK 1 [1]
        a> SUBSCRIBE 2 "t/#" qos=0 subscription_id=2
        a< SUBACK 2 [0]
        a> PUBLISH 1 "t/x" qos=1 "from a"
        a< PUBLISH "t/x" qos=0 "from a" subscription_id=2
        a< PUBACK 1
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "t/x" qos=1 "from b"
        b< PUBACK 1
        a< PUBLISH 1 "t/x" qos=1 "from b" subscription_id=1 subscription_id=2
        "##
    }

    // [MQTT-3.8.3-3]
    fn no_local_holds_for_a_connection_that_took_over() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 no_local
        a< SUBACK 1 [1]
        b> CONNECT id=a clean=0 expiry=60
        b< CONNACK present=1
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> PUBLISH 1 "t" qos=1 "mine"
        b< PUBACK 1
        "##
    }

    // [MQTT-3.8.3-4]
    fn no_local_on_a_shared_subscription_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=0 no_local
        a< DISCONNECT ProtocolError \
            reason_string="asked for No Local on a shared subscription"
        a< CLOSED
        "##
    }

    // [3.1.1:MQTT-3.8.3-2] [3.1.1:MQTT-3.9.3-2]
    fn what_is_not_available_is_refused_by_its_code() {
        r##"
        # options: subscription.wildcard_available=false shared.available=false \
            subscription.ids_available=false
        a> CONNECT id=a
        a< CONNACK present=0 wildcard_available=0 subscription_id_available=0 \
            shared_available=0
        a> SUBSCRIBE 1 "a/+" qos=0 "a" qos=1 "$share/g/t" qos=0
        a< SUBACK 1 [0xa2 1 0x9e] reason_string="wildcards in topic filters are not supported"
        a> SUBSCRIBE 2 "b" qos=0 subscription_id=1
        a< SUBACK 2 [0xa1] reason_string="subscription identifiers are not supported"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/+" qos=0 "a" qos=1
        b< SUBACK 1 [0x80 1]
        "##
    }

    fn filters_above_the_limits_are_refused() {
        r##"
        # options: topic.levels_max=3 topic.bytes_max=10
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/b/c" qos=0 "a/b/c/d" qos=0 "0123456789" qos=0 "0123456789a" qos=0
        a< SUBACK 1 [0 0x8f 0 0x8f] \
            reason_string="the topic filter has too many levels or bytes"
        a> SUBSCRIBE 2 "$share/group/a/b/c" qos=0 "$share/group/a/b/c/d" qos=0
        a< SUBACK 2 [0 0x8f] reason_string="the topic filter has too many levels or bytes"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/b/c/d" qos=0
        b< SUBACK 1 [0x80]
        "##
    }

    fn a_session_has_only_so_many_subscriptions() {
        r##"
        # options: session.subscriptions_max=2
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "1" qos=0 "$share/g/2" qos=0 "3" qos=0
        a< SUBACK 1 [0 0 0x97] reason_string="no room: a limit of the server is reached"
        a> SUBSCRIBE 2 "1" qos=1
        a< SUBACK 2 [1]
        a> SUBSCRIBE 3 "$share/g/2" qos=1
        a< SUBACK 3 [1]
        a> UNSUBSCRIBE 4 "1"
        a< UNSUBACK 4 [0]
        a> SUBSCRIBE 5 "3" qos=0
        a< SUBACK 5 [0]
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "1" qos=0 "2" qos=0 "3" qos=0
        b< SUBACK 1 [0 0 0x80]
        "##
    }

    fn more_than_a_few_subscriptions_are_all_found() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "1" qos=0 "2" qos=0 "3" qos=0 "4" qos=0 "5" qos=0 "6" qos=0 "7" qos=0 \
            "8" qos=0 "9" qos=0 "10" qos=0 "11" qos=0 "12" qos=0 "13" qos=0 "14" qos=0 "15" qos=0 \
            "16" qos=0 "17" qos=0 "18" qos=0
        a< SUBACK 1 [0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0]
        a> SUBSCRIBE 2 "18" qos=1 retain_handling=1 "1" qos=1
        a< SUBACK 2 [1 1]
        a> UNSUBSCRIBE 3 "1" "17" "x"
        a< UNSUBACK 3 [0 0 0x11]
        a> UNSUBSCRIBE 4 "2" "3" "4"
        a< UNSUBACK 4 [0 0 0]
        a> PUBLISH 1 "18" qos=1 "x"
        a< PUBLISH 1 "18" qos=1 "x"
        a< PUBACK 1
        a> PUBLISH 2 "17" qos=1 "x"
        a< PUBACK 2 NoMatchingSubscribers
        a> PUBLISH 3 "16" qos=1 "x"
        a< PUBLISH "16" qos=0 "x"
        a< PUBACK 3
        a> UNSUBSCRIBE 5 "5" "6" "7" "8" "9" "10" "11" "12" "13" "14" "15" "16" "18"
        a< UNSUBACK 5 [0 0 0 0 0 0 0 0 0 0 0 0 0]
        a> PUBLISH 4 "18" qos=1 "x"
        a< PUBACK 4 NoMatchingSubscribers
        "##
    }

    // [MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6]
    // [MQTT-3.11.3-1] [3.1.1:MQTT-3.10.4-1] [3.1.1:MQTT-3.10.4-2] [3.1.1:MQTT-3.10.4-4]
    // [3.1.1:MQTT-3.10.4-5] [3.1.1:MQTT-3.10.4-6]
    fn unsubscribe_ends_an_exact_match_only() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/+" qos=0 "a/b" qos=0 "c" qos=0
        a< SUBACK 1 [0 0 0]
        a> UNSUBSCRIBE 2 "a/b" "a/#" "c" "c"
        a< UNSUBACK 2 [0 0x11 0 0x11]
        a> PUBLISH "a/b" qos=0 "x"
        a< PUBLISH "a/b" qos=0 "x"
        a> PUBLISH "c" qos=0 "x"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> UNSUBSCRIBE 3 "a" "b"
        b< UNSUBACK 3
        "##
    }

    // [MQTT-3.10.4-3] [3.1.1:MQTT-3.10.4-3]
    fn what_is_in_flight_is_finished_after_unsubscribe() {
        r##"
        a> CONNECT id=a expiry=60 receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "1"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a> UNSUBSCRIBE 2 "t"
        a< UNSUBACK 2 [0]
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3 NoMatchingSubscribers
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 2
        "##
    }

    // [MQTT-3.10.3-2] [3.1.1:MQTT-3.10.3-2]
    fn an_unsubscribe_without_filters_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX a2 03 00 01 00
        a< DISCONNECT ProtocolError reason_string="sent UNSUBSCRIBE without a filter"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> HEX a2 02 00 01
        b< CLOSED
        "##
    }

    fn subscriptions_do_not_disturb_each_other_when_they_go() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=2
        c< SUBACK 1 [2]
        b> UNSUBSCRIBE 2 "t"
        b< UNSUBACK 2 [0]
        c> PUBLISH 1 "t" qos=1 "1"
        c< PUBLISH 1 "t" qos=1 "1"
        c< PUBACK 1
        a< PUBLISH "t" qos=0 "1"
        a> DISCONNECT
        a< CLOSED
        c> PUBLISH 2 "t" qos=1 "2"
        c< PUBLISH 2 "t" qos=1 "2"
        c< PUBACK 2
        c> UNSUBSCRIBE 3 "t"
        c< UNSUBACK 3 [0]
        c> PUBLISH 3 "t" qos=1 "3"
        c< PUBACK 3 NoMatchingSubscribers
        "##
    }

    fn user_properties_of_subscribe_and_unsubscribe_are_taken() {
        r##"
        a> CONNECT id=a user="a":"b"
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0 user="a":"b" user="a":"b"
        a< SUBACK 1 [0]
        a> UNSUBSCRIBE 2 "t" user="a":"b"
        a< UNSUBACK 2 [0]
        "##
    }

    // [MQTT-3.9.2-1] [MQTT-3.1.2-29]
    fn a_suback_says_why_where_the_client_takes_it() {
        r##"
        # options: topic.levels_max=3 session.subscriptions_max=2
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=0 "a/b/c/d" qos=0 "b" qos=0 "c" qos=0
        a< SUBACK 1 [0 0x8f 0 0x97] \
            reason_string="the topic filter has too many levels or bytes"
        a> SUBSCRIBE 2 "$share/g/t" qos=0
        a< SUBACK 2 [0x97] reason_string="no room: a limit of the server is reached"
        b> CONNECT id=b maximum_packet_size=54
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/b/c/d" qos=0
        b< SUBACK 1 [0x8f] reason_string="the topic filter has too many levels or bytes"
        b> SUBSCRIBE 2 "a/b/c/d" qos=0 "a" qos=0
        b< SUBACK 2 [0x8f 0]
        c> CONNECT id=c request_problem=0
        c< CONNACK present=0
        c> SUBSCRIBE 1 "a/b/c/d" qos=0
        c< SUBACK 1 [0x8f]
        "##
    }

    // [MQTT-3.1.2-24]
    fn a_request_whose_answer_the_client_would_not_take_is_refused() {
        r##"
        a> CONNECT id=a expiry=60 maximum_packet_size=16
        a< CONNACK present=0
        a> SUBSCRIBE 1 "1" qos=0 "2" qos=0 "3" qos=0 "4" qos=0 "5" qos=0 "6" qos=0 "7" qos=0 \
            "8" qos=0 "9" qos=0 "10" qos=0 "11" qos=0
        a< SUBACK 1 [0 0 0 0 0 0 0 0 0 0 0]
        a> SUBSCRIBE 2 "a" qos=0 "b" qos=0 "c" qos=0 "d" qos=0 "e" qos=0 "f" qos=0 "g" qos=0 \
            "h" qos=0 "i" qos=0 "j" qos=0 "k" qos=0 "l" qos=0
        a< DISCONNECT PacketTooLarge
        a< CLOSED
        a> CONNECT id=a expiry=60 clean=0 maximum_packet_size=16
        a< CONNACK present=1
        a> UNSUBSCRIBE 3 "2" "3" "4" "5" "6" "7" "8" "9" "10" "11" "12"
        a< UNSUBACK 3 [0 0 0 0 0 0 0 0 0 0 0x11]
        a> UNSUBSCRIBE 4 "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11" "12"
        a< DISCONNECT PacketTooLarge
        a< CLOSED
        a> CONNECT id=a expiry=60 clean=0
        a< CONNACK present=1
        a> PUBLISH 1 "a" qos=1 "was never subscribed to"
        a< PUBACK 1 NoMatchingSubscribers
        a> PUBLISH 2 "1" qos=1 "still is"
        a< PUBLISH "1" qos=0 "still is"
        a< PUBACK 2
        "##
    }

    // Links of this broker's own rely on it: they pass messages on under the ids that they came by.
    fn a_request_may_have_the_id_of_an_unfinished_message() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=2 "x"
        a< PUBREC 1 NoMatchingSubscribers
        a> SUBSCRIBE 1 "u" qos=1
        a< SUBACK 1 [1]
        a! cut
        a> CONNECT id=a expiry=60 clean=0
        a< CONNACK present=1
        a> SUBSCRIBE 1 "u" qos=1
        a< SUBACK 1 [1]
        a> PUBREL 1
        a< PUBCOMP 1
        "##
    }
}
