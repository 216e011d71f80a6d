//! Properties of PUBLISH: expiry, topic aliases, subscription identifiers, and properties that are
//! forwarded unchanged.

crate::transcripts! {
    // [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18]
    // [MQTT-3.3.2-20]
    fn properties_travel_unaltered_and_in_order() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "x" user="b":"1" payload_format=1 user="a":"2" \
            content_type="text/plain; x" response_topic=re/ply correlation=hex:00ff user="b":"1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x" user="b":"1" payload_format=1 user="a":"2" \
            content_type="text/plain; x" response_topic=re/ply correlation=hex:00ff user="b":"1"
        b< PUBLISH 1 "t" qos=1 "x"
        p> PUBLISH "t" qos=0 "x" payload_format=0 response_topic="a b" correlation=""
        a< PUBLISH "t" qos=0 "x" payload_format=0 response_topic="a b" correlation=""
        b< PUBLISH "t" qos=0 "x"
        "##
    }

    // [MQTT-3.3.2-6]
    fn message_expiry_counts_down_while_it_waits() {
        r##"
        a> CONNECT id=a expiry=1000
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "at once" expiry=100
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "at once" expiry=100
        a! cut
        p> PUBLISH 2 "t" qos=1 "later" expiry=100
        p< PUBACK 2
        + 30s
        a> CONNECT id=a clean=0 expiry=1000
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "at once" expiry=70
        a< PUBLISH 2 "t" qos=1 "later" expiry=70
        "##
    }

    // [MQTT-3.3.2-5]
    fn an_expired_message_is_not_sent() {
        r##"
        a> CONNECT id=a expiry=1000
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "short" expiry=10
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=2 "short" expiry=10
        p< PUBREC 2
        p> PUBLISH 3 "t" qos=1 "long" expiry=100
        p< PUBACK 3
        p> PUBLISH 4 "t" qos=1 "ever"
        p< PUBACK 4
        p> PUBREL 2
        p< PUBCOMP 2
        + 10s
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "long" expiry=90
        a< PUBLISH 2 "t" qos=1 "ever"
        "##
    }

    fn expiry_of_0_is_for_those_who_are_there() {
        r##"
        a> CONNECT id=a expiry=1000
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b expiry=1000
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        b! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "now or never" expiry=0
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "now or never" expiry=0
        b> CONNECT id=b clean=0
        b< CONNACK present=1
        "##
    }

    // [MQTT-4.3.3-7] [MQTT-4.3.3-13]
    fn a_sent_qos_2_message_does_not_expire() {
        r##"
        a> CONNECT id=a expiry=1000
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "x" expiry=10
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "x" expiry=10
        a! cut
        + 20s
        a> CONNECT id=a clean=0 expiry=1000
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "x" expiry=0
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        p> PUBREL 1
        p< PUBCOMP 1
        "##
    }

    fn the_server_may_shorten_a_message_s_life() {
        r##"
        # options: message.expiry_s_max=50
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "t" qos=0 "x" expiry=100
        a< PUBLISH "t" qos=0 "x" expiry=50
        a> PUBLISH "t" qos=0 "x" expiry=20
        a< PUBLISH "t" qos=0 "x" expiry=20
        a> PUBLISH "t" qos=0 "x"
        a< PUBLISH "t" qos=0 "x" expiry=50
        "##
    }

    fn a_payload_that_is_not_the_text_it_says_is_refused() {
        r##"
        # options: message.check_payload_format=true
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH 1 "t" qos=1 hex:ff payload_format=1
        a< PUBACK 1 PayloadFormatInvalid \
            reason_string="the payload is not the UTF-8 that it promises"
        a> PUBLISH 2 "t" qos=1 hex:ff payload_format=0
        a< PUBLISH "t" qos=0 hex:ff payload_format=0
        a< PUBACK 2
        a> PUBLISH 3 "t" qos=1 "text" payload_format=1
        a< PUBLISH "t" qos=0 "text" payload_format=1
        a< PUBACK 3
        a> PUBLISH 4 "t" qos=2 hex:ff payload_format=1
        a< PUBREC 4 PayloadFormatInvalid \
            reason_string="the payload is not the UTF-8 that it promises"
        a> PUBLISH "t" qos=0 hex:ff payload_format=1
        "##
    }

    fn payload_format_is_not_checked_unless_asked() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH 1 "t" qos=1 hex:ff payload_format=1
        a< PUBLISH "t" qos=0 hex:ff payload_format=1
        a< PUBACK 1
        "##
    }

    // [MQTT-3.3.2-8] [MQTT-3.3.2-14]
    fn property_values_out_of_range_close() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "t" qos=0 "x" payload_format=2
        a< DISCONNECT ProtocolError \
            reason_string="sent a property with a value out of its range"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH "t" qos=0 "x" alias=0
        b< DISCONNECT TopicAliasInvalid \
            reason_string="used a topic alias of 0 or above the maximum"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> PUBLISH "t" qos=0 "x" response_topic="a/#"
        c< DISCONNECT ProtocolError \
            reason_string="sent a response topic that is not a topic name"
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0
        d> PUBLISH "t" qos=0 "x" expiry=1 expiry=2
        d< DISCONNECT ProtocolError reason_string="sent a property twice"
        d< CLOSED
        e> CONNECT id=e
        e< CONNACK present=0
        e> PUBLISH "t" qos=0 "x" receive_maximum=1
        e< DISCONNECT MalformedPacket \
            reason_string="sent a property that this packet cannot have"
        e< CLOSED
        "##
    }

    // [MQTT-3.3.4-6]
    fn a_client_sends_no_subscription_identifiers() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "t" qos=0 "x" subscription_id=1
        a< DISCONNECT ProtocolError reason_string="sent a subscription identifier in PUBLISH"
        a< CLOSED
        "##
    }

    // [MQTT-3.3.2-12]
    fn an_alias_stands_for_its_topic() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "one" qos=0 "1" alias=1
        a< PUBLISH "one" qos=0 "1"
        p> PUBLISH "" qos=0 "2" alias=1
        a< PUBLISH "one" qos=0 "2"
        p> PUBLISH 1 "two" qos=1 "3" alias=64
        p< PUBACK 1
        a< PUBLISH 1 "two" qos=1 "3"
        p> PUBLISH 2 "" qos=1 "4" alias=64
        p< PUBACK 2
        a< PUBLISH 2 "two" qos=1 "4"
        p> PUBLISH "three" qos=0 "5" alias=1
        a< PUBLISH "three" qos=0 "5"
        p> PUBLISH "" qos=0 "6" alias=1
        a< PUBLISH "three" qos=0 "6"
        p> PUBLISH "one" qos=0 "7"
        a< PUBLISH "one" qos=0 "7"
        "##
    }

    // [MQTT-3.3.2-7]
    fn aliases_belong_to_one_connection() {
        r##"
        p> CONNECT id=p expiry=60
        p< CONNACK present=0
        p> PUBLISH "one" qos=0 "1" alias=1
        p! cut
        p> CONNECT id=p clean=0 expiry=60
        p< CONNACK present=1
        p> PUBLISH "" qos=0 "2" alias=1
        p< DISCONNECT ProtocolError \
            reason_string="used a topic alias before giving it a topic"
        p< CLOSED
        "##
    }

    // [MQTT-3.3.2-9] [MQTT-3.2.2-17]
    fn an_alias_above_the_maximum_closes() {
        r##"
        # options: connection.topic_alias_max=2
        a> CONNECT id=a
        a< CONNACK present=0 topic_alias_maximum=2
        a> PUBLISH "t" qos=0 "x" alias=2
        a> PUBLISH "t" qos=0 "x" alias=3
        a< DISCONNECT TopicAliasInvalid \
            reason_string="used a topic alias of 0 or above the maximum"
        a< CLOSED
        "##
    }

    fn an_alias_nobody_gave_closes() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "" qos=0 "x" alias=5
        a< DISCONNECT ProtocolError \
            reason_string="used a topic alias before giving it a topic"
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-26] [MQTT-3.3.2-10] [MQTT-3.3.2-11]
    fn aliases_go_out_to_those_who_take_them() {
        r##"
        a> CONNECT id=a topic_alias_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "first/topic" qos=0 "1"
        a< PUBLISH "first/topic" qos=0 "1"
        p> PUBLISH "first/topic" qos=0 "2"
        a< PUBLISH "first/topic" qos=0 "2" alias=1
        p> PUBLISH "first/topic" qos=0 "3"
        a< PUBLISH "" qos=0 "3" alias=1
        p> PUBLISH 1 "first/topic" qos=1 "4"
        p< PUBACK 1
        a< PUBLISH 1 "" qos=1 "4" alias=1
        p> PUBLISH "second/topic" qos=0 "5"
        a< PUBLISH "second/topic" qos=0 "5"
        p> PUBLISH "second/topic" qos=0 "6"
        a< PUBLISH "second/topic" qos=0 "6"
        p> PUBLISH "first/topic" qos=0 "7"
        a< PUBLISH "" qos=0 "7" alias=1
        "##
    }

    // [MQTT-3.1.2-27]
    fn no_aliases_go_to_those_who_do_not_ask() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b topic_alias_maximum=0
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "first/topic" qos=0 "1"
        a< PUBLISH "first/topic" qos=0 "1"
        b< PUBLISH "first/topic" qos=0 "1"
        p> PUBLISH "first/topic" qos=0 "2"
        a< PUBLISH "first/topic" qos=0 "2"
        b< PUBLISH "first/topic" qos=0 "2"
        p> PUBLISH "first/topic" qos=0 "3"
        a< PUBLISH "first/topic" qos=0 "3"
        b< PUBLISH "first/topic" qos=0 "3"
        "##
    }

    // [MQTT-3.3.2-7]
    fn outbound_aliases_end_with_the_connection() {
        r##"
        a> CONNECT id=a topic_alias_maximum=5 expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "first/topic" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "first/topic" qos=1 "1"
        p> PUBLISH 2 "first/topic" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "first/topic" qos=1 "2" alias=1
        a! cut
        a> CONNECT id=a topic_alias_maximum=5 expiry=60 clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "first/topic" qos=1 dup "1"
        a< PUBLISH 2 "first/topic" qos=1 dup "2"
        p> PUBLISH 3 "first/topic" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 3 "first/topic" qos=1 "3"
        "##
    }

    // [MQTT-3.3.4-3]
    fn a_subscription_identifier_comes_with_what_it_matches() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=0 subscription_id=268435455
        a< SUBACK 1 [0]
        a> PUBLISH "t/1" qos=0 "x"
        a< PUBLISH "t/1" qos=0 "x" subscription_id=268435455
        a> PUBLISH 1 "t/1" qos=1 "x" user="a":"b" expiry=5
        a< PUBLISH "t/1" qos=0 "x" expiry=5 subscription_id=268435455 user="a":"b"
        a< PUBACK 1
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t/#" qos=0
        b< SUBACK 1 [0]
        b> PUBLISH "t/1" qos=0 "x"
        b< PUBLISH "t/1" qos=0 "x"
        a< PUBLISH "t/1" qos=0 "x" subscription_id=268435455
        "##
    }

    // [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4] [3.1.1:MQTT-3.3.5-1]
    fn overlapping_subscriptions_give_one_copy_with_everything() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=0 subscription_id=3
        a< SUBACK 1 [0]
        a> SUBSCRIBE 2 "t/+" qos=2 subscription_id=1
        a< SUBACK 2 [2]
        a> SUBSCRIBE 3 "t/x" qos=1
        a< SUBACK 3 [1]
        a> SUBSCRIBE 4 "+/x" qos=1 subscription_id=2
        a< SUBACK 4 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t/x" qos=1 subscription_id=9
        b< SUBACK 1 [1]
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t/x" qos=0 "#" qos=1
        c< SUBACK 1 [0 1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/x" qos=2 "x"
        p< PUBREC 1
        a< PUBLISH 1 "t/x" qos=2 "x" subscription_id=3 subscription_id=1 subscription_id=2
        b< PUBLISH 1 "t/x" qos=1 "x" subscription_id=9
        c< PUBLISH 1 "t/x" qos=1 "x"
        "##
    }

    // [MQTT-3.8.4-3]
    fn a_replaced_subscription_has_the_new_identifier() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0 subscription_id=1
        a< SUBACK 1 [0]
        a> SUBSCRIBE 2 "t" qos=1 subscription_id=2
        a< SUBACK 2 [1]
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBLISH 1 "t" qos=1 "x" subscription_id=2
        a< PUBACK 1
        a> SUBSCRIBE 3 "t" qos=1
        a< SUBACK 3 [1]
        a> PUBLISH 2 "t" qos=1 "x"
        a< PUBLISH 2 "t" qos=1 "x"
        a< PUBACK 2
        "##
    }

    fn a_subscription_identifier_of_0_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0 subscription_id=0
        a< DISCONNECT ProtocolError \
            reason_string="sent a property with a value out of its range"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0 subscription_id=1 subscription_id=2
        b< DISCONNECT ProtocolError reason_string="sent a property twice"
        b< CLOSED
        "##
    }

    // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
    fn a_message_above_the_client_s_maximum_is_dropped_as_if_delivered() {
        r##"
        a> CONNECT id=a maximum_packet_size=30
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "x"*22
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "xxxxxxxxxxxxxxxxxxxxxx"
        p> PUBLISH 2 "t" qos=1 "x"*23
        p< PUBACK 2
        p> PUBLISH "t" qos=0 "x"*24
        a< PUBLISH "t" qos=0 "xxxxxxxxxxxxxxxxxxxxxxxx"
        p> PUBLISH "t" qos=0 "x"*25
        p> PUBLISH 3 "t" qos=1 "small"
        p< PUBACK 3
        a< PUBLISH 3 "t" qos=1 "small"
        "##
    }

    // [MQTT-3.1.2-25]
    fn a_narrow_client_s_backlog_goes_on_past_what_is_too_large() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "x"*100
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a> CONNECT id=a clean=0 maximum_packet_size=50 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a> PUBACK 1
        a< PUBLISH 3 "t" qos=1 "3"
        a> PUBACK 2
        a> PUBACK 3
        "##
    }

    // [MQTT-3.1.2-25]
    fn what_was_sent_before_may_be_too_large_on_resume() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "x"*100
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x"*100
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        a! cut
        a> CONNECT id=a clean=0 maximum_packet_size=50
        a< CONNACK present=1
        a< PUBLISH 2 "t" qos=1 dup "2"
        a> PUBACK 2
        "##
    }
}
