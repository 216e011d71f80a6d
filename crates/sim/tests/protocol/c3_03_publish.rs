//! PUBLISH: forwarding, refusals, and topic names.

crate::transcripts! {
    // [MQTT-4.5.0-1] [MQTT-3.3.4-1] [MQTT-2.2.1-2] [MQTT-4.3.1-1] [3.1.1:MQTT-4.5.0-1]
    // [3.1.1:MQTT-4.3.1-1]
    fn qos_0_goes_to_every_subscriber() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        c> CONNECT id=c v=31
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=0
        c< SUBACK 1 [0]
        d> CONNECT id=d
        d< CONNACK present=0
        d> PUBLISH "t" qos=0 "x"
        a< PUBLISH "t" qos=0 "x"
        b< PUBLISH "t" qos=0 "x"
        c< PUBLISH "t" qos=0 "x"
        d> PUBLISH "t" qos=0 ""
        a< PUBLISH "t" qos=0 ""
        b< PUBLISH "t" qos=0 ""
        c< PUBLISH "t" qos=0 ""
        "##
    }

    fn one_publish_reaches_many_in_step_and_out_of_step() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        b> SUBSCRIBE 2 "u" qos=1
        b< SUBACK 2 [1]
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=1
        c< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        b< PUBLISH 1 "t" qos=1 "1"
        c< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "u" qos=1 "2"
        p< PUBACK 2
        b< PUBLISH 2 "u" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 2 "t" qos=1 "3"
        b< PUBLISH 3 "t" qos=1 "3"
        c< PUBLISH 2 "t" qos=1 "3"
        p> PUBLISH 4 "t" qos=0 "4"
        a< PUBLISH "t" qos=0 "4"
        b< PUBLISH "t" qos=0 "4"
        c< PUBLISH "t" qos=0 "4"
        "##
    }

    // [MQTT-3.8.4-8] [3.1.1:MQTT-3.8.4-6]
    fn the_lower_qos_wins() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "0" qos=0 "1" qos=1 "2" qos=2
        a< SUBACK 1 [0 1 2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "0" qos=2 "x"
        p< PUBREC 1
        a< PUBLISH "0" qos=0 "x"
        p> PUBLISH 2 "1" qos=2 "x"
        p< PUBREC 2
        a< PUBLISH 1 "1" qos=1 "x"
        p> PUBLISH 3 "2" qos=2 "x"
        p< PUBREC 3
        a< PUBLISH 2 "2" qos=2 "x"
        p> PUBLISH 4 "2" qos=1 "x"
        p< PUBACK 4
        a< PUBLISH 3 "2" qos=1 "x"
        p> PUBLISH "2" qos=0 "x"
        a< PUBLISH "2" qos=0 "x"
        "##
    }

    // [MQTT-3.3.1-3] [3.1.1:MQTT-3.3.1-3]
    fn dup_is_ours_not_the_publisher_s() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 dup "x"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x"
        p> PUBLISH 2 "t" qos=2 dup "x"
        p< PUBREC 2
        a< PUBLISH 2 "t" qos=1 "x"
        "##
    }

    // [MQTT-3.3.1-2] [3.1.1:MQTT-3.3.1-2]
    fn dup_on_qos_0_is_malformed() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 38 05 00 01 74 00 78
        a< DISCONNECT MalformedPacket reason_string="set DUP on a QoS 0 PUBLISH"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> HEX 38 04 00 01 74 78
        b< CLOSED
        "##
    }

    // [MQTT-3.3.1-4] [3.1.1:MQTT-3.3.1-4]
    fn qos_3_is_malformed() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 36 07 00 01 74 00 01 00 78
        a< DISCONNECT MalformedPacket reason_string="used QoS 3"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> HEX 36 06 00 01 74 00 01 78
        b< CLOSED
        "##
    }

    // [MQTT-2.2.1-3] [3.1.1:MQTT-2.3.1-1]
    fn a_packet_id_of_0_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 32 07 00 01 74 00 00 00 78
        a< DISCONNECT ProtocolError reason_string="used packet id 0"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> HEX 32 06 00 01 74 00 00 78
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> HEX 82 07 00 00 00 00 01 74 00
        c< DISCONNECT ProtocolError reason_string="used packet id 0"
        c< CLOSED
        d> CONNECT id=d v=311
        d< CONNACK present=0
        d> HEX a2 05 00 00 00 01 74
        d< CLOSED
        "##
    }

    // [MQTT-3.3.2-2] [MQTT-4.7.0-1] [3.1.1:MQTT-3.3.2-2] [3.1.1:MQTT-4.7.1-1]
    fn wildcards_in_a_topic_name_close() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "a/+" qos=0 "x"
        a< DISCONNECT TopicNameInvalid reason_string="sent a topic name that is not valid"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "a/#" qos=1 "x"
        b< DISCONNECT TopicNameInvalid reason_string="sent a topic name that is not valid"
        b< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> PUBLISH "#" qos=0 "x"
        c< CLOSED
        "##
    }

    // [MQTT-3.3.2-1] [MQTT-4.7.3-2] [3.1.1:MQTT-3.3.2-1] [3.1.1:MQTT-4.7.3-2]
    fn a_topic_that_is_no_text_closes() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> HEX 30 05 00 01 ff 00 78
        a< DISCONNECT MalformedPacket reason_string="sent text that is not UTF-8"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> HEX 30 05 00 01 00 00 78
        b< DISCONNECT MalformedPacket reason_string="sent text with the character U+0000"
        b< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> HEX 30 04 00 01 c0 78
        c< CLOSED
        "##
    }

    // [MQTT-4.7.3-1] [3.1.1:MQTT-4.7.3-1]
    fn an_empty_topic_is_a_protocol_error() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "" qos=0 "x"
        a< DISCONNECT ProtocolError reason_string="sent PUBLISH with neither topic nor alias"
        a< CLOSED
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH "" qos=0 "x"
        b< CLOSED
        "##
    }

    // [MQTT-1.5.4-3] [MQTT-4.7.3-4] [3.1.1:MQTT-1.5.3-3] [3.1.1:MQTT-4.7.3-4]
    fn the_byte_order_mark_is_a_character() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "\u{feff}t" qos=0 "\u{e4}" qos=0 "a\u{308}" qos=0
        a< SUBACK 1 [0 0 0]
        a> PUBLISH "t" qos=0 "no mark"
        a> PUBLISH "\u{feff}t" qos=0 "mark"
        a< PUBLISH "\u{feff}t" qos=0 "mark"
        a> PUBLISH "\u{e4}" qos=0 "one character"
        a< PUBLISH "\u{e4}" qos=0 "one character"
        a> PUBLISH "a\u{308}" qos=0 "two"
        a< PUBLISH "a\u{308}" qos=0 "two"
        a> PUBLISH "A\u{308}" qos=0 "another"
        "##
    }

    fn nobody_there_is_told_to_5_0_clients() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        a> PUBLISH 2 "t" qos=2 "x"
        a< PUBREC 2 NoMatchingSubscribers
        a> PUBREL 2
        a< PUBCOMP 2
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH 1 "t" qos=1 "x"
        b< PUBACK 1
        b> PUBLISH 2 "t" qos=2 "x"
        b< PUBREC 2
        b> PUBREL 2
        b< PUBCOMP 2
        "##
    }

    // [3.1.1:MQTT-3.3.5-2]
    fn the_server_s_own_topics_are_not_for_clients() {
        r##"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/x" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "$SYS/x" qos=0 "x"
        a> PUBLISH 1 "$SYS/x" qos=1 "x"
        a< PUBACK 1 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 2 "$SYS/x" qos=2 "x"
        a< PUBREC 2 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBREL 2
        a< PUBCOMP 2 PacketIdentifierNotFound
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH 1 "$SYS/x" qos=1 "x"
        b< PUBACK 1
        b> PUBLISH 2 "$SYS/x" qos=2 "x"
        b< PUBREC 2
        b> PUBREL 2
        b< PUBCOMP 2
        "##
    }

    fn the_root_of_a_reserved_tree_is_reserved_like_the_topics_below_it() {
        r##"
        # rewrite: publish old/# ^old/(.+)$ $1
        # rule: up publish=${payload.t} : SELECT * FROM "rule"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/#" qos=0 "$queue/#" qos=0
        s< SUBACK 1 [0 0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "$SYS" qos=0 retain "x"
        a> PUBLISH 1 "$SYS" qos=1 retain "x"
        a< PUBACK 1 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 2 "$SYS" qos=2 "x"
        a< PUBREC 2 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 3 "$SYS" qos=1 alias=1 "x"
        a< PUBACK 3 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 4 "" qos=1 alias=1 "x"
        a< PUBACK 4 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 5 "$SYSTEM" qos=1 "x"
        a< PUBACK 5 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 6 "$link" qos=1 retain "x"
        a< PUBACK 6 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 7 "old/$SYS" qos=1 retain "x"
        a< PUBACK 7 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 8 "$delayed/1/$SYS" qos=1 retain "x"
        a< PUBACK 8 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 9 "$delayed" qos=1 retain "x"
        a< PUBACK 9 TopicNameInvalid \
            reason_string="a PUBLISH is delayed by $delayed/SECONDS/TOPIC, with 1 to 4294967"
        a> PUBLISH 10 "$cache" qos=1 retain "x"
        a< PUBACK 10 TopicNameInvalid \
            reason_string="no such cache: a request goes to $cache/NAME"
        a> PUBLISH 11 "$share" qos=1 retain "x"
        a< PUBACK 11 TopicNameInvalid \
            reason_string="$share/ and $exclusive/ begin filters, not topic names"
        a> PUBLISH 12 "$share/g/t" qos=1 retain "x"
        a< PUBACK 12 TopicNameInvalid \
            reason_string="$share/ and $exclusive/ begin filters, not topic names"
        a> PUBLISH 13 "$exclusive/t" qos=1 retain "x"
        a< PUBACK 13 TopicNameInvalid \
            reason_string="$share/ and $exclusive/ begin filters, not topic names"
        a> PUBLISH 14 "$SYS/broker/connection/a/b/state" qos=1 retain "x"
        a< PUBACK 14 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 15 "rule" qos=1 "{\"t\":\"$SYS\"}"
        a< PUBACK 15
        a> PUBLISH 16 "$queue/t" qos=1 "x"
        a< PUBACK 16
        s< PUBLISH "$queue/t" qos=0 "x"
        w> CONNECT id=w will="$SYS" will_retain
        w< CONNACK present=0 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        w< CLOSED
        t> CONNECT id=t
        t< CONNACK present=0
        t> SUBSCRIBE 1 "$SYS/#" qos=0 "$SYS" qos=0
        t< SUBACK 1 [0 0]
        "##
    }

    fn a_topic_above_the_limits_is_refused() {
        r##"
        # options: topic.bytes_max=10 topic.levels_max=3
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "0123456789" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        a> PUBLISH 2 "0123456789a" qos=1 "x"
        a< PUBACK 2 TopicNameInvalid \
            reason_string="the topic name has too many levels or bytes"
        a> PUBLISH 3 "a/b/c" qos=1 "x"
        a< PUBACK 3 NoMatchingSubscribers
        a> PUBLISH 4 "a/b/c/d" qos=1 "x"
        a< PUBACK 4 TopicNameInvalid \
            reason_string="the topic name has too many levels or bytes"
        a> PUBLISH 5 "///" qos=2 "x"
        a< PUBREC 5 TopicNameInvalid \
            reason_string="the topic name has too many levels or bytes"
        a> PUBLISH "///" qos=0 "x"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH 1 "a/b/c/d" qos=1 "x"
        b< PUBACK 1
        "##
    }

    // [MQTT-3.2.2-11] [MQTT-3.2.2-14]
    fn what_connack_said_that_we_cannot_do_is_a_violation() {
        r##"
        # options: message.qos_max=1 retain.available=false
        a> CONNECT id=a
        a< CONNACK present=0 maximum_qos=1 retain_available=0
        a> PUBLISH 1 "t" qos=2 "x"
        a< DISCONNECT QoSNotSupported reason_string="the QoS is above the server's maximum"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0 maximum_qos=1 retain_available=0
        b> PUBLISH "t" qos=0 retain "x"
        b< DISCONNECT RetainNotSupported reason_string="retained messages are not supported"
        b< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> PUBLISH 1 "t" qos=2 "x"
        c< CLOSED
        "##
    }

    // [MQTT-3.2.2-10]
    fn with_maximum_qos_subscriptions_are_granted_what_there_is() {
        r##"
        # options: message.qos_max=1
        a> CONNECT id=a
        a< CONNACK present=0 maximum_qos=1
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBLISH 1 "t" qos=1 "x"
        a< PUBACK 1
        "##
    }

    fn memory_that_is_crowded_makes_queues_full_and_lets_readers_go_on() {
        r##"
        # options: memory.bytes_max=60000 queue.bytes_max=1000000
        # shards: 1
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "+" qos=1
        a< SUBACK 1 [1]
        a! cut
        r> CONNECT id=r v=311
        r< CONNACK present=0
        r> SUBSCRIBE 1 "r/#" qos=1
        r< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "1" qos=1 "x"*12000
        p< PUBACK 1
        w> CONNECT id=w will="w" will_payload="x"*13000
        w< CONNACK present=0
        p> PUBLISH 2 "2" qos=1 "x"*10000
        p< PUBACK 2
        r> PUBLISH 1 "3" qos=1 "y"
        r< PUBACK 1
        p> PUBLISH 3 "4" qos=1 "x"*9000
        p< PUBACK 3
        p> PUBLISH 4 "5" qos=1 retain "x"*9000
        p< PUBACK 4 QuotaExceeded reason_string="no room: a limit of the server is reached"
        r> PUBLISH 2 "r/1" qos=1 "y"
        r< PUBLISH 1 "r/1" qos=1 "y"
        r< PUBACK 2
        r> PUBACK 1
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "3" qos=1 "y"
        a< PUBLISH 2 "4" qos=1 "x"*9000
        "##
    }

    // [3.1.1:MQTT-4.8.0-2]
    fn memory_that_is_full_refuses_what_would_be_kept() {
        r##"
        # options: memory.bytes_max=60000
        # shards: 1
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> SUBSCRIBE 1 "r"
        p< SUBACK 1 [0]
        p> PUBLISH 1 "t" qos=1 "x"*100
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x"*100
        a! cut
        q> CONNECT id=q v=311
        q< CONNACK present=0
        w> CONNECT id=w will="w" will_payload="x"*37000
        w< CONNACK present=0
        p> PUBLISH 2 "t" qos=1 "y"
        p< PUBACK 2 QuotaExceeded reason_string="no room: a limit of the server is reached"
        p> PUBLISH 3 "t" qos=2 "y"
        p< PUBREC 3 QuotaExceeded reason_string="no room: a limit of the server is reached"
        p> PUBLISH "r" qos=0 "y"
        p< PUBLISH "r" qos=0 "y"
        p> SUBSCRIBE 2 "new"
        p< SUBACK 2 [0x97] reason_string="no room: a limit of the server is reached"
        p> SUBSCRIBE 3 "r" qos=1
        p< SUBACK 3 [1]
        q> PUBLISH 1 "t" qos=1 "y"
        q< CLOSED
        n> CONNECT id=n
        n< CONNACK present=0 QuotaExceeded reason_string="no room: a limit of the server is reached"
        n< CLOSED
        o> CONNECT id=o v=311
        o< CONNACK present=0 ServerUnavailable
        o< CLOSED
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "x"*100
        a> PUBACK 1
        w> DISCONNECT
        w< CLOSED
        p> PUBLISH 2 "t" qos=1 "y"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "y"
        "##
    }

    fn an_alias_that_a_full_memory_cannot_keep_ends_the_connection() {
        r##"
        # options: memory.bytes_max=60000
        # shards: 1
        p> CONNECT id=p
        p< CONNACK present=0
        w> CONNECT id=w will="w" will_payload="x"*37000
        w< CONNACK present=0
        p> PUBLISH "short" alias=1 "y"
        p> PUBLISH "a"*5000 alias=2 "y"
        p< DISCONNECT QuotaExceeded reason_string="no room: a limit of the server is reached"
        p< CLOSED
        "##
    }

    // [MQTT-4.6.0-5] [MQTT-4.6.0-6] [3.1.1:MQTT-4.6.0-5] [3.1.1:MQTT-4.6.0-6]
    fn order_is_kept_per_publisher_and_topic() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/1" qos=1 "1" &
        p> PUBLISH "t/1" qos=0 "2" &
        p> PUBLISH 2 "t/2" qos=2 "3" &
        p> PUBLISH 3 "t/1" qos=1 "4" &
        p> PUBLISH "t/2" qos=0 "5"
        p< PUBACK 1
        p< PUBREC 2
        p< PUBACK 3
        a< PUBLISH 1 "t/1" qos=1 "1"
        a< PUBLISH "t/1" qos=0 "2"
        a< PUBLISH 2 "t/2" qos=2 "3"
        a< PUBLISH 3 "t/1" qos=1 "4"
        a< PUBLISH "t/2" qos=0 "5"
        "##
    }

    fn one_client_s_large_messages_and_small_ones_keep_their_bytes() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "big" qos=1 "x"*200000
        p< PUBACK 1
        a< PUBLISH 1 "big" qos=1 "x"*200000
        p> PUBLISH 2 "binary" qos=1 hex:000102ff
        p< PUBACK 2
        a< PUBLISH 2 "binary" qos=1 hex:000102ff
        p> PUBLISH 3 "text" qos=1 "\"quoted\" \\ caf\u{e9}\n"
        p< PUBACK 3
        a< PUBLISH 3 "text" qos=1 "\"quoted\" \\ caf\u{e9}\n"
        "##
    }
}
