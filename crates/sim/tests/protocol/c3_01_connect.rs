//! CONNECT and CONNACK: versions, client ids, refusals, and negotiated properties.

crate::transcripts! {
    // [MQTT-3.1.4-5] [MQTT-3.2.0-1] [MQTT-3.2.0-2] [MQTT-3.1.2-6] [MQTT-7.0.0-2]
    fn a_5_0_client_is_welcome() {
        r##"
        # connack: whole
        a> CONNECT id=a
        a< CONNACK present=0 receive_maximum=16384 maximum_packet_size=2097152 \
            topic_alias_maximum=64
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [3.1.1:MQTT-3.1.4-4] [3.1.1:MQTT-3.2.0-1] [3.1.1:MQTT-7.0.0-2]
    fn a_3_1_1_client_is_welcome() {
        r##"
        a> CONNECT id=a v=311
        a< CONNACK present=0
        a> PINGREQ
        a< PINGRESP
        a> DISCONNECT
        a< CLOSED
        "##
    }

    fn a_3_1_client_is_welcome() {
        r##"
        a> CONNECT id=a v=31
        a< CONNACK present=0
        a> PINGREQ
        a< PINGRESP
        a> DISCONNECT
        a< CLOSED
        "##
    }

    // [MQTT-4.2-1]
    fn bytes_may_come_one_by_one() {
        r##"
        a! trickle
        a> CONNECT id=a user_name=u password=p
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a> PUBLISH 7 "t" qos=2 "x"
        a< PUBLISH 1 "t" qos=2 "x"
        a< PUBREC 7
        a> PUBREL 7
        a< PUBCOMP 7
        "##
    }

    fn packets_may_follow_connect_at_once() {
        r##"
        a> CONNECT id=a &
        a> SUBSCRIBE 1 "t" qos=0 &
        a> PUBLISH "t" qos=0 "x" &
        a> PINGREQ
        a< CONNACK present=0
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 "x"
        a< PINGRESP
        "##
    }

    // [MQTT-3.1.3-5] [MQTT-3.1.3-2] [3.1.1:MQTT-3.1.3-5]
    fn client_ids_of_23_bytes_and_more_are_taken() {
        r##"
        a> CONNECT id=0123456789abcdefghijklm
        a< CONNACK present=0
        b> CONNECT id=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ v=311
        b< CONNACK present=0
        c> CONNECT id="caf\u{e9} +#/$"
        c< CONNACK present=0
        "##
    }

    // [MQTT-3.1.3-8] [MQTT-3.2.2-7] [MQTT-3.1.4-2] [MQTT-3.1.4-6] [MQTT-4.13.2-1]
    // [3.1.1:MQTT-3.1.3-9]
    fn a_client_id_above_the_limit_is_refused() {
        r##"
        # options: connect.client_id_bytes_max=8
        a> CONNECT id=12345678
        a< CONNACK present=0
        b> CONNECT id=123456789 &
        b> PINGREQ
        b< CONNACK present=0 ClientIdentifierNotValid \
            reason_string="the client id is too long"
        b< CLOSED
        c> CONNECT id=123456789 v=311
        c< CONNACK present=0 ClientIdentifierNotValid
        c< CLOSED
        "##
    }

    // [MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16]
    fn an_empty_client_id_is_assigned() {
        r##"
        a> CONNECT id=""
        a< CONNACK present=0 assigned_id=*
        b> CONNECT id="" clean=0
        b< CONNACK present=0 assigned_id=*
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [3.1.1:MQTT-3.1.3-6] [3.1.1:MQTT-3.1.3-7] [3.1.1:MQTT-3.1.3-8]
    fn an_empty_client_id_in_3_1_1_needs_a_clean_session() {
        r##"
        a> CONNECT id="" v=311
        a< CONNACK present=0
        a> PINGREQ
        a< PINGRESP
        b> CONNECT id="" v=311 clean=0
        b< CONNACK present=0 ClientIdentifierNotValid
        b< CLOSED
        "##
    }

    fn an_empty_client_id_in_3_1_is_refused() {
        r##"
        a> CONNECT id="" v=31
        a< CONNACK present=0 ClientIdentifierNotValid
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-1] [3.1.1:MQTT-3.1.2-1]
    fn another_protocol_name_closes() {
        r##"
        a> HEX 10 0d 00 04 48 54 54 50 04 02 00 00 00 01 61
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-2] [3.1.1:MQTT-3.1.2-2]
    fn an_unknown_protocol_level_is_told() {
        r##"
        a> HEX 10 0d 00 04 4d 51 54 54 09 02 00 00 00 01 61
        a< CONNACK present=0 UnsupportedProtocolVersion \
            reason_string="asked for an unknown protocol version"
        a< CLOSED
        b> HEX 10 0d 00 04 4d 51 54 54 03 02 00 00 00 01 61
        b< CONNACK present=0 UnsupportedProtocolVersion
        b< CLOSED
        c> HEX 10 0f 00 06 4d 51 49 73 64 70 04 02 00 00 00 01 61
        c< CONNACK present=0 UnsupportedProtocolVersion
        c< CLOSED
        "##
    }

    // [MQTT-3.1.2-3] [MQTT-3.1.4-1] [3.1.1:MQTT-3.1.2-3] [3.1.1:MQTT-3.1.4-1]
    fn the_reserved_connect_flag_is_checked() {
        r##"
        a> HEX 10 0e 00 04 4d 51 54 54 05 03 00 00 00 00 01 61
        a< CONNACK present=0 MalformedPacket reason_string="set the reserved connect flag"
        a< CLOSED
        b> HEX 10 0d 00 04 4d 51 54 54 04 03 00 00 00 01 61
        b< CLOSED
        "##
    }

    // [MQTT-3.1.2-11] [MQTT-3.1.2-13] [3.1.1:MQTT-3.1.2-13] [3.1.1:MQTT-3.1.2-15]
    fn will_flags_without_a_will_are_malformed() {
        r##"
        a> HEX 10 0e 00 04 4d 51 54 54 05 0a 00 00 00 00 01 61
        a< CONNACK present=0 MalformedPacket \
            reason_string="set will QoS or will retain without a will"
        a< CLOSED
        b> HEX 10 0e 00 04 4d 51 54 54 05 22 00 00 00 00 01 61
        b< CONNACK present=0 MalformedPacket \
            reason_string="set will QoS or will retain without a will"
        b< CLOSED
        c> HEX 10 0d 00 04 4d 51 54 54 04 22 00 00 00 01 61
        c< CLOSED
        "##
    }

    // [MQTT-3.1.2-12] [3.1.1:MQTT-3.1.2-14]
    fn a_will_of_qos_3_is_malformed() {
        r##"
        a> HEX 10 13 00 04 4d 51 54 54 05 1e 00 00 00 00 01 61 00 00 01 74 00 00
        a< CONNACK present=0 MalformedPacket reason_string="used QoS 3"
        a< CLOSED
        b> HEX 10 11 00 04 4d 51 54 54 04 1e 00 00 00 01 61 00 01 74 00 00
        b< CLOSED
        "##
    }

    // [MQTT-3.1.2-9] [MQTT-3.1.2-17] [MQTT-3.1.2-19]
    fn a_connect_without_its_announced_will_is_malformed() {
        r##"
        a> HEX 10 0e 00 04 4d 51 54 54 05 06 00 00 00 00 01 61
        a< CONNACK present=0 MalformedPacket \
            reason_string="sent a packet that ends inside a field"
        a< CLOSED
        b> HEX 10 0e 00 04 4d 51 54 54 05 82 00 00 00 00 01 61
        b< CONNACK present=0 MalformedPacket \
            reason_string="sent a packet that ends inside a field"
        b< CLOSED
        c> HEX 10 0e 00 04 4d 51 54 54 05 42 00 00 00 00 01 61
        c< CONNACK present=0 MalformedPacket \
            reason_string="sent a packet that ends inside a field"
        c< CLOSED
        "##
    }

    // [MQTT-3.1.2-16] [MQTT-3.1.2-18]
    fn bytes_after_the_payload_are_malformed() {
        r##"
        a> HEX 10 11 00 04 4d 51 54 54 05 02 00 00 00 00 01 61 00 01 75
        a< CONNACK present=0 MalformedPacket \
            reason_string="sent a packet with bytes after its last field"
        a< CLOSED
        b> HEX 10 10 00 04 4d 51 54 54 04 02 00 00 00 01 61 00 01 75
        b< CLOSED
        "##
    }

    // [3.1.1:MQTT-3.1.2-22]
    fn a_password_alone_is_a_5_0_thing() {
        r##"
        a> CONNECT id=a password=p
        a< CONNACK present=0
        b> HEX 10 10 00 04 4d 51 54 54 04 42 00 00 00 01 62 00 01 70
        b< CLOSED
        "##
    }

    // [MQTT-3.1.3-4] [MQTT-1.5.4-1] [MQTT-1.5.4-2] [3.1.1:MQTT-1.5.3-1] [3.1.1:MQTT-1.5.3-2]
    fn a_client_id_that_is_not_utf_8_closes() {
        r##"
        a> HEX 10 0e 00 04 4d 51 54 54 05 02 00 00 00 00 01 ff
        a< CONNACK present=0 MalformedPacket reason_string="sent text that is not UTF-8"
        a< CLOSED
        b> HEX 10 0e 00 04 4d 51 54 54 05 02 00 00 00 00 01 00
        b< CONNACK present=0 MalformedPacket \
            reason_string="sent text with the character U+0000"
        b< CLOSED
        c> HEX 10 0d 00 04 4d 51 54 54 04 02 00 00 00 01 ff
        c< CLOSED
        "##
    }

    fn a_property_twice_is_a_protocol_error() {
        r##"
        a> CONNECT id=a expiry=1 expiry=2
        a< CONNACK present=0 ProtocolError reason_string="sent a property twice"
        a< CLOSED
        b> CONNECT id=b receive_maximum=0
        b< CONNACK present=0 ProtocolError \
            reason_string="sent a property with a value out of its range"
        b< CLOSED
        c> CONNECT id=c maximum_packet_size=0
        c< CONNACK present=0 ProtocolError \
            reason_string="sent a property with a value out of its range"
        c< CLOSED
        d> CONNECT id=d request_problem=2
        d< CONNACK present=0 ProtocolError \
            reason_string="sent a property with a value out of its range"
        d< CLOSED
        e> CONNECT id=e assigned_id=x
        e< CONNACK present=0 MalformedPacket \
            reason_string="sent a property that this packet cannot have"
        e< CLOSED
        "##
    }

    // [MQTT-3.1.0-2] [3.1.1:MQTT-3.1.0-2]
    fn a_second_connect_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> CONNECT id=a
        a< DISCONNECT ProtocolError reason_string="sent a second CONNECT"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> CONNECT id=b v=311
        b< CLOSED
        "##
    }

    // [MQTT-3.1.0-1] [MQTT-3.14.0-1] [3.1.1:MQTT-3.1.0-1]
    fn another_packet_before_connect_closes_without_a_word() {
        r##"
        a> PINGREQ
        a< CLOSED
        b> PUBLISH "t" qos=0 "x"
        b< CLOSED
        c> AUTH auth_method=x
        c< CLOSED
        d> DISCONNECT
        d< CLOSED
        e> HEX 00 00
        e< CLOSED
        "##
    }

    // [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT-3.14.4-2] [3.1.1:MQTT-4.8.0-1]
    fn packets_that_only_servers_send_close() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PINGRESP
        a< DISCONNECT ProtocolError reason_string="sent a packet that only servers send"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> CONNACK present=0
        b< DISCONNECT ProtocolError reason_string="sent a packet that only servers send"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBACK 1 [0]
        c< DISCONNECT ProtocolError reason_string="sent a packet that only servers send"
        c< CLOSED
        d> CONNECT id=d v=311
        d< CONNACK present=0
        d> UNSUBACK 1
        d< CLOSED
        e> CONNECT id=e v=311
        e< CONNACK present=0
        e> HEX f0 00
        e< CLOSED
        "##
    }

    // [MQTT-2.1.3-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1]
    // [MQTT-3.15.1-1] [3.1.1:MQTT-2.2.2-1] [3.1.1:MQTT-2.2.2-2] [3.1.1:MQTT-3.14.1-1]
    fn reserved_flags_of_a_fixed_header_close() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 60 02 00 01
        a< DISCONNECT MalformedPacket reason_string="set reserved flags of a fixed header"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> HEX 80 07 00 01 00 00 01 74 00
        b< DISCONNECT MalformedPacket reason_string="set reserved flags of a fixed header"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> HEX a0 06 00 01 00 00 01 74
        c< DISCONNECT MalformedPacket reason_string="set reserved flags of a fixed header"
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0
        d> HEX e1 00
        d< DISCONNECT MalformedPacket reason_string="set reserved flags of a fixed header"
        d< CLOSED
        e> CONNECT id=e
        e< CONNACK present=0
        e> HEX f1 00
        e< DISCONNECT MalformedPacket reason_string="set reserved flags of a fixed header"
        e< CLOSED
        f> CONNECT id=f
        f< CONNACK present=0
        f> HEX c1 00
        f< DISCONNECT MalformedPacket reason_string="set reserved flags of a fixed header"
        f< CLOSED
        g> CONNECT id=g v=311
        g< CONNACK present=0
        g> HEX 60 02 00 01
        g< CLOSED
        h> CONNECT id=h v=311
        h< CONNACK present=0
        h> HEX e1 00
        h< CLOSED
        "##
    }

    // [MQTT-1.5.5-1]
    fn a_length_in_more_bytes_than_needed_closes() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX c0 80 00
        a< DISCONNECT MalformedPacket \
            reason_string="encoded an integer in more bytes than needed"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> HEX 30 ff ff ff ff
        b< DISCONNECT MalformedPacket \
            reason_string="encoded an integer in more than four bytes"
        b< CLOSED
        "##
    }

    fn a_silent_connection_is_closed_after_the_greeting_time() {
        r##"
        # options: connect.timeout_ms=2000
        a> HEX 10
        + 1900ms
        + 200ms
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-22] [3.1.1:MQTT-3.1.2-24]
    fn keep_alive_counts_one_and_a_half_times() {
        r##"
        a> CONNECT id=a keep_alive=10
        a< CONNACK present=0
        b> CONNECT id=b keep_alive=10 v=311
        b< CONNACK present=0
        + 14900ms
        + 200ms
        a< DISCONNECT KeepAliveTimeout \
            reason_string="was silent for longer than its keep alive"
        a< CLOSED
        b< CLOSED
        "##
    }

    // [MQTT-3.1.2-20] [MQTT-3.12.4-1] [3.1.1:MQTT-3.12.4-1]
    fn anything_heard_counts_as_life() {
        r##"
        a> CONNECT id=a keep_alive=2
        a< CONNACK present=0
        + 2s
        a> PINGREQ
        a< PINGRESP
        + 2s
        a> PUBLISH "t" qos=0 "x"
        + 2900ms
        a> PINGREQ
        a< PINGRESP
        + 3100ms
        a< DISCONNECT KeepAliveTimeout \
            reason_string="was silent for longer than its keep alive"
        a< CLOSED
        "##
    }

    fn keep_alive_0_never_ends() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        + 100000s
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [MQTT-3.1.2-21] [MQTT-3.2.2-21] [MQTT-3.2.2-22]
    fn the_server_may_shorten_the_keep_alive() {
        r##"
        # options: connect.keep_alive_s_max=10
        a> CONNECT id=a keep_alive=100
        a< CONNACK present=0 server_keep_alive=10
        b> CONNECT id=b
        b< CONNACK present=0 server_keep_alive=10
        c> CONNECT id=c keep_alive=5
        c< CONNACK present=0
        d> CONNECT id=d keep_alive=100 v=311
        d< CONNACK present=0
        + 7600ms
        c< DISCONNECT KeepAliveTimeout \
            reason_string="was silent for longer than its keep alive"
        c< CLOSED
        + 7500ms
        a< DISCONNECT KeepAliveTimeout \
            reason_string="was silent for longer than its keep alive"
        a< CLOSED
        b< DISCONNECT KeepAliveTimeout \
            reason_string="was silent for longer than its keep alive"
        b< CLOSED
        // A client that cannot be told goes by its own.
        + 134s
        + 1s
        d< CLOSED
        "##
    }

    // [MQTT-3.2.2-9]
    fn what_the_server_cannot_do_is_announced() {
        r##"
        # options: message.qos_max=1 retain.available=false subscription.wildcard_available=false
        # options: subscription.ids_available=false shared.available=false
        a> CONNECT id=a
        a< CONNACK present=0 maximum_qos=1 retain_available=0 wildcard_available=0 \
            subscription_id_available=0 shared_available=0
        "##
    }

    fn the_server_s_limits_are_announced() {
        r##"
        # options: connection.receive_maximum=7 connection.packet_bytes_max=100 \
            connection.topic_alias_max=3
        a> CONNECT id=a
        a< CONNACK present=0 receive_maximum=7 maximum_packet_size=100 topic_alias_maximum=3
        "##
    }

    // [MQTT-3.2.2-18]
    fn no_aliases_are_announced_where_there_are_none() {
        r##"
        # connack: whole
        # options: connection.topic_alias_max=0
        a> CONNECT id=a
        a< CONNACK present=0 receive_maximum=16384 maximum_packet_size=2097152
        a> PUBLISH "t" qos=0 "x" alias=1
        a< DISCONNECT TopicAliasInvalid \
            reason_string="used a topic alias of 0 or above the maximum"
        a< CLOSED
        "##
    }

    // [MQTT-3.2.2-12] [MQTT-3.2.2-13] [MQTT-3.2.2-6] [MQTT-3.1.4-2]
    fn a_will_beyond_the_server_s_ability_is_refused() {
        r##"
        # options: message.qos_max=1 retain.available=false
        a> CONNECT id=a will="w" will_qos=2
        a< CONNACK present=0 QoSNotSupported \
            reason_string="the QoS is above the server's maximum"
        a< CLOSED
        b> CONNECT id=b will="w" will_retain
        b< CONNACK present=0 RetainNotSupported \
            reason_string="retained messages are not supported"
        b< CLOSED
        c> CONNECT id=c will="w" will_qos=1
        c< CONNACK present=0 maximum_qos=1 retain_available=0
        d> CONNECT id=d will="w" will_qos=2 v=311
        d< CLOSED
        e> CONNECT id=e will="$SYS/x"
        e< CONNACK present=0 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        e< CLOSED
        "##
    }

    // [MQTT-3.1.2-28]
    fn response_information_comes_only_when_asked_for() {
        r##"
        # options: connect.response_information=reply/
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b request_response=0
        b< CONNACK present=0
        c> CONNECT id=c request_response=1
        c< CONNACK present=0 response=reply/
        "##
    }

    // [MQTT-4.12.0-1] [MQTT-4.12.0-6] [MQTT-4.12.0-7]
    fn authentication_methods_are_refused() {
        r##"
        a> CONNECT id=a auth_method=SCRAM
        a< CONNACK present=0 BadAuthenticationMethod \
            reason_string="the authentication method is not supported"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> AUTH 0x19 auth_method=SCRAM
        b< DISCONNECT ProtocolError reason_string="sent authentication without a method"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> AUTH
        c< DISCONNECT ProtocolError reason_string="sent authentication without a method"
        c< CLOSED
        "##
    }

    // [MQTT-3.1.2-29]
    fn request_problem_information_0_leaves_reasons_out() {
        r##"
        a> CONNECT id=a request_problem=0
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        a> UNSUBSCRIBE 2 "t"
        a< UNSUBACK 2 [0x11]
        a> PUBLISH 0 "t" qos=0 "x" alias=99
        a< DISCONNECT TopicAliasInvalid \
            reason_string="used a topic alias of 0 or above the maximum"
        a< CLOSED
        "##
    }

    // [MQTT-3.2.2-15]
    fn a_packet_above_the_server_s_maximum_closes() {
        r##"
        # options: connection.packet_bytes_max=60
        a> CONNECT id=a
        a< CONNACK present=0 maximum_packet_size=60
        a> PUBLISH "t" qos=0 "x"*54
        a> PUBLISH "t" qos=0 "x"*55
        a< DISCONNECT PacketTooLarge reason_string="sent a packet above the maximum size"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH "t" qos=0 "x"*56
        b< CLOSED
        c> CONNECT id=0123456789012345678901234567890123456789012345678901234567890
        c< CLOSED
        "##
    }

    fn a_draining_broker_takes_nobody_new() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        ! drain
        b> CONNECT id=b
        b< CONNACK present=0 ServerUnavailable reason_string="the server is shutting down"
        b< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0 ServerUnavailable
        c< CLOSED
        a> PINGREQ
        a< PINGRESP
        "##
    }

    fn a_closing_broker_says_so() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b v=311
        b< CONNACK present=0
        ! drain
        ! close_all
        a< DISCONNECT ServerShuttingDown
        a< CLOSED
        b< CLOSED
        "##
    }

    fn a_draining_broker_publishes_the_wills_of_those_it_sends_away() {
        r##"
        # disk: off
        a> CONNECT id=a will="w/a" will_payload="a" expiry=60
        a< CONNACK present=0
        b> CONNECT id=b will="w/b" will_payload="b" will_delay=30 expiry=60
        b< CONNACK present=0
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "w/a" qos=0
        c< SUBACK 1 [0]
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "w/b" qos=0
        d< SUBACK 1 [0]
        ! drain
        c< PUBLISH "w/a" qos=0 "a"
        d< PUBLISH "w/b" qos=0 "b"
        ! close_all
        a< DISCONNECT ServerShuttingDown
        a< CLOSED
        b< DISCONNECT ServerShuttingDown
        b< CLOSED
        c< DISCONNECT ServerShuttingDown
        c< CLOSED
        d< DISCONNECT ServerShuttingDown
        d< CLOSED
        "##
    }

    // [MQTT-3.14.4-1] [MQTT-3.14.4-2]
    fn a_disconnect_ends_the_connection() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> DISCONNECT &
        a> PINGREQ
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> DISCONNECT 0x80 reason_string="out of battery" user="a":"b"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> DISCONNECT expiry=0 expiry=0
        c< DISCONNECT ProtocolError reason_string="sent a property twice"
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0
        d> HEX e0 01 8e
        d< CLOSED
        "##
    }

    // [MQTT-3.1.2-24]
    fn a_client_too_narrow_for_its_connack_is_refused() {
        r##"
        # connack: whole
        a> CONNECT id=a maximum_packet_size=16
        a< CONNACK present=0 receive_maximum=16384 maximum_packet_size=2097152 \
            topic_alias_maximum=64
        b> CONNECT id=a maximum_packet_size=15
        b< CONNACK present=0 PacketTooLarge
        b< CLOSED
        c> CONNECT id=a maximum_packet_size=4
        c< CLOSED
        d> CONNECT id=a maximum_packet_size=4 auth_method=SCRAM
        d< CLOSED
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [MQTT-3.2.2-19] [MQTT-3.14.2-3]
    fn reason_strings_stay_out_of_packets_that_they_would_make_too_large() {
        r##"
        a> CONNECT id=a maximum_packet_size=49 auth_method=SCRAM
        a< CONNACK present=0 BadAuthenticationMethod
        a< CLOSED
        b> CONNECT id=b maximum_packet_size=50 auth_method=SCRAM
        b< CONNACK present=0 BadAuthenticationMethod \
            reason_string="the authentication method is not supported"
        b< CLOSED
        c> CONNECT id=c maximum_packet_size=27
        c< CONNACK present=0
        c> CONNECT id=c
        c< DISCONNECT ProtocolError
        c< CLOSED
        d> CONNECT id=d maximum_packet_size=28
        d< CONNACK present=0
        d> CONNECT id=d
        d< DISCONNECT ProtocolError reason_string="sent a second CONNECT"
        d< CLOSED
        "##
    }
}
