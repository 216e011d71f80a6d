//! QoS 0, 1 and 2: acknowledgements in both directions, flow control, and order of queued messages.

crate::transcripts! {
    // [MQTT-4.3.2-4] [MQTT-4.3.2-5] [MQTT-2.2.1-5] [MQTT-3.3.4-1] [3.1.1:MQTT-4.3.2-2]
    // [3.1.1:MQTT-2.3.1-6]
    fn qos_1_in() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH "t" qos=0 "1"
        p> PUBLISH 1 "t" qos=1 "the same id is a new message"
        p< PUBACK 1
        a< PUBLISH "t" qos=0 "the same id is a new message"
        p> PUBLISH 65535 "t" qos=1 dup "so is a repetition"
        p< PUBACK 65535
        a< PUBLISH "t" qos=0 "so is a repetition"
        p> PUBLISH 1 "t" qos=2 "and so in another QoS"
        p< PUBREC 1
        a< PUBLISH "t" qos=0 "and so in another QoS"
        "##
    }

    // [MQTT-4.3.2-1] [MQTT-4.3.2-2] [MQTT-4.3.2-3] [MQTT-2.2.1-4] [3.1.1:MQTT-4.3.2-1]
    // [3.1.1:MQTT-2.3.1-4]
    fn qos_1_out() {
        r##"
        a> CONNECT id=a expiry=60
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
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 1
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 3 "t" qos=1 "3"
        a! cut
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 2 "t" qos=1 dup "2"
        a< PUBLISH 3 "t" qos=1 dup "3"
        "##
    }

    // [MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT-3.3.4-1]
    // [3.1.1:MQTT-4.3.3-2]
    fn qos_2_in() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "t" qos=2 "once"
        p< PUBREC 7
        a< PUBLISH "t" qos=0 "once"
        p> PUBLISH 7 "t" qos=2 dup "once"
        p< PUBREC 7
        p> PUBLISH 7 "t" qos=2 "not even without dup"
        p< PUBREC 7
        p> PUBREL 7
        p< PUBCOMP 7
        p> PUBREL 7
        p< PUBCOMP 7 PacketIdentifierNotFound
        p> PUBLISH 7 "t" qos=2 "new"
        p< PUBREC 7
        a< PUBLISH "t" qos=0 "new"
        p> PUBREL 7
        p< PUBCOMP 7
        "##
    }

    // [MQTT-4.3.3-10] [MQTT-4.1.0-1]
    fn qos_2_in_is_remembered_across_connections() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        p> CONNECT id=p expiry=60
        p< CONNACK present=0
        p> PUBLISH 7 "t" qos=2 "once"
        p< PUBREC 7
        a< PUBLISH "t" qos=0 "once"
        p! cut
        p> CONNECT id=p expiry=60 clean=0
        p< CONNACK present=1
        p> PUBLISH 7 "t" qos=2 dup "once"
        p< PUBREC 7
        p> PUBREL 7
        p< PUBCOMP 7
        p! cut
        p> CONNECT id=p clean=1
        p< CONNACK present=0
        p> PUBREL 7
        p< PUBCOMP 7 PacketIdentifierNotFound
        "##
    }

    // [MQTT-4.3.3-1] [MQTT-4.3.3-2] [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5]
    // [3.1.1:MQTT-4.3.3-1]
    fn qos_2_out() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "x"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "x"
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "x"
        a> PUBREC 1
        a< PUBREL 1
        a> PUBREC 1
        a< PUBREL 1
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBREL 1
        a> PUBCOMP 1
        a> PUBCOMP 1
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        "##
    }

    // [MQTT-4.4.0-2]
    fn a_negative_pubrec_ends_the_exchange() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "x"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "x"
        a> PUBREC 1 0x83
        p> PUBLISH 2 "t" qos=1 "y"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "y"
        a> PUBACK 2 0x97
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        "##
    }

    // [MQTT-4.3.3-9]
    fn a_refused_qos_2_message_leaves_its_id_free() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH 1 "$SYS/t" qos=2 "no"
        a< PUBREC 1 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 1 "t" qos=2 "yes"
        a< PUBLISH "t" qos=0 "yes"
        a< PUBREC 1
        a> PUBREL 1
        a< PUBCOMP 1
        "##
    }

    fn a_puback_for_a_qos_2_message_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBACK 1
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "two"
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    fn a_pubrec_for_a_qos_1_message_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBREC 2
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "two"
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    fn a_pubcomp_for_a_qos_1_message_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBCOMP 2
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "two"
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    fn a_pubcomp_before_pubrel_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBCOMP 1
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "two"
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    fn a_negative_pubrec_for_a_qos_1_message_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBREC 2 0x83
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "two"
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    fn a_puback_after_pubrel_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBREC 1
        a< PUBREL 1
        a> PUBACK 1
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBREL 1
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    // They may be late or come twice.
    // The message is the client's since the first one: what is owed is PUBCOMP.
    fn a_negative_pubrec_after_a_pubrec_ends_the_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        a> PUBREC 1
        a< PUBREL 1
        a> PUBREC 1
        a< PUBREL 1
        a> PUBREC 1 0x80
        a< DISCONNECT ProtocolError \
            reason_string="acknowledged a message as its QoS or its state does not allow"
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBREL 1
        a> PUBCOMP 1
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        "##
    }

    fn acknowledgements_under_ids_that_are_not_in_use_change_nothing() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a> PUBACK 99
        a> PUBCOMP 99
        a> PUBREC 99
        a< PUBREL 99 PacketIdentifierNotFound
        a> PUBACK 2
        a> PUBACK 2
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        a> PUBCOMP 1
        a> PUBREC 1
        a< PUBREL 1 PacketIdentifierNotFound
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        "##
    }

    fn acknowledgements_in_advance_of_a_message_that_is_sent_again_change_nothing() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "two"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "two"
        p> PUBLISH 2 "t" qos=1 "one"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "one"
        a! cut
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "two"
        a> PUBREC 2
        a< PUBREL 2 PacketIdentifierNotFound
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        a< PUBLISH 2 "t" qos=1 dup "one"
        "##
    }

    fn acknowledgements_may_come_in_any_order() {
        r##"
        a> CONNECT id=a receive_maximum=3
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
        a< PUBLISH 2 "t" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 3 "t" qos=1 "3"
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        p> PUBLISH 5 "t" qos=1 "5"
        p< PUBACK 5
        a> PUBACK 3
        a< PUBLISH 4 "t" qos=1 "4"
        a> PUBACK 2
        a< PUBLISH 5 "t" qos=1 "5"
        a> PUBACK 1
        "##
    }

    // [MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-4.9.0-3]
    fn the_client_s_receive_maximum_bounds_the_window() {
        r##"
        a> CONNECT id=a receive_maximum=1
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
        p> PUBLISH "u" qos=0 "other"
        a> SUBSCRIBE 2 "u" qos=0
        a< SUBACK 2 [0]
        a> PINGREQ
        a< PINGRESP
        p> PUBLISH "u" qos=0 "qos 0 goes on"
        a< PUBLISH "u" qos=0 "qos 0 goes on"
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 2
        "##
    }

    fn our_own_bound_holds_where_the_client_has_none() {
        r##"
        # options: session.inflight_max=2
        a> CONNECT id=a v=311
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
        a< PUBLISH 2 "t" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a> PUBACK 1
        a< PUBLISH 3 "t" qos=1 "3"
        "##
    }

    fn qos_0_goes_past_qos_1_that_waits_for_its_window() {
        r##"
        a> CONNECT id=a expiry=60 receive_maximum=1
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
        p> PUBLISH "t" qos=0 "3"
        a< PUBLISH "t" qos=0 "3"
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 "2"
        "##
    }

    // [MQTT-3.3.4-7]
    fn more_than_our_receive_maximum_closes() {
        r##"
        # options: connection.receive_maximum=2
        p> CONNECT id=p
        p< CONNACK present=0 receive_maximum=2
        p> PUBLISH 1 "t" qos=2 "x"
        p< PUBREC 1 NoMatchingSubscribers
        p> PUBLISH 2 "t" qos=2 "x"
        p< PUBREC 2 NoMatchingSubscribers
        p> PUBLISH 1 "t" qos=2 dup "x"
        p< PUBREC 1
        p> PUBREL 1
        p< PUBCOMP 1
        p> PUBLISH 3 "t" qos=2 "x"
        p< PUBREC 3 NoMatchingSubscribers
        p> PUBLISH 4 "t" qos=1 "x"
        p< PUBACK 4 NoMatchingSubscribers
        p> PUBLISH 5 "t" qos=2 "x"
        p< DISCONNECT ReceiveMaximumExceeded \
            reason_string="sent more QoS 1 and 2 messages than agreed"
        p< CLOSED
        "##
    }

    fn a_3_1_1_client_knows_no_receive_maximum() {
        r##"
        # options: connection.receive_maximum=1
        p> CONNECT id=p v=311
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "x"
        p< PUBREC 1
        p> PUBLISH 2 "t" qos=2 "x"
        p< PUBREC 2
        p> PUBREL 1
        p< PUBCOMP 1
        p> PUBREL 2
        p< PUBCOMP 2
        "##
    }

    fn acknowledgements_carry_reasons_and_properties() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "x"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "x"
        a> PUBREC 1 0x10 reason_string="thanks" user="a":"b"
        a< PUBREL 1
        a> PUBCOMP 1 reason_string="done"
        p> PUBREL 1 0x92 reason_string="lost"
        p< PUBCOMP 1
        "##
    }

    // [MQTT-3.4.2-1] [MQTT-3.6.2-1]
    fn reasons_that_a_packet_cannot_have_close() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 40 03 00 01 92
        a< DISCONNECT ProtocolError \
            reason_string="sent a reason code that this packet cannot have"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> HEX 62 03 00 01 10
        b< DISCONNECT ProtocolError \
            reason_string="sent a reason code that this packet cannot have"
        b< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> HEX 40 03 00 01 00
        c< CLOSED
        "##
    }

    fn packet_ids_go_on_after_a_pause_and_after_a_resume() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 1 "t" qos=1 "1"
        a< PUBACK 1
        a> PUBACK 1
        + 5s
        a> PUBLISH 1 "t" qos=1 "2"
        a< PUBLISH 2 "t" qos=1 "2"
        a< PUBACK 1
        a> PUBACK 2
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a> PUBLISH 1 "t" qos=1 "3"
        a< PUBLISH 3 "t" qos=1 "3"
        a< PUBACK 1
        "##
    }

    // [MQTT-4.4.0-1]
    fn an_unacknowledged_message_does_not_come_again_on_the_same_connection() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBLISH 1 "t" qos=1 "x"
        a< PUBACK 1
        + 1000s
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.1.2-29]
    fn acknowledgements_say_why_where_the_client_takes_it() {
        r##"
        a> CONNECT id=a maximum_packet_size=56
        a< CONNACK present=0
        a> PUBLISH 1 "$SYS/x" qos=1 "x"
        a< PUBACK 1 NotAuthorized
        a> PUBLISH 2 "$SYS/x" qos=2 "x"
        a< PUBREC 2 NotAuthorized
        b> CONNECT id=b maximum_packet_size=55
        b< CONNACK present=0
        b> PUBLISH 1 "$SYS/x" qos=1 "x"
        b< PUBACK 1 NotAuthorized
        b> PUBLISH 2 "$SYS/x" qos=2 "x"
        b< PUBREC 2 NotAuthorized
        c> CONNECT id=c request_problem=0
        c< CONNACK present=0
        c> PUBLISH 1 "$SYS/x" qos=1 "x"
        c< PUBACK 1 NotAuthorized
        c> PUBLISH 2 "$SYS/x" qos=2 "x"
        c< PUBREC 2 NotAuthorized
        "##
    }
}
