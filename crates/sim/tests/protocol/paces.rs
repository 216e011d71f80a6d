//! How fast a client may talk. Above that it waits, and nobody else does.

crate::transcripts! {
    fn who_is_ahead_of_its_rate_is_not_read_and_loses_nothing() {
        r##"
        # options: messages_per_s=2
        # sim only
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "t" qos=0 "1" &
        a> PUBLISH 2 "t" qos=1 "2" &
        a> PUBLISH 3 "t" qos=1 "3" &
        a> PUBLISH "t" qos=0 "4" &
        a> PINGREQ
        a< PUBACK 2
        b< PUBLISH "t" qos=0 "1"
        b< PUBLISH "t" qos=0 "2"
        b> PINGREQ
        b< PINGRESP
        + 400ms
        + 100ms
        b< PUBLISH "t" qos=0 "3"
        a< PUBACK 3
        + 500ms
        b< PUBLISH "t" qos=0 "4"
        + 500ms
        a< PINGRESP
        "##
    }

    fn bytes_count_with_their_packets() {
        r##"
        # options: bytes_per_s=1024
        # sim only
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "x"*2048
        a< PUBACK 1 NoMatchingSubscribers
        a> PINGREQ
        + 900ms
        + 200ms
        a< PINGRESP
        "##
    }

    // [MQTT-3.1.2-22]: a client that we do not hear is not silent.
    fn who_is_held_does_not_miss_its_keep_alive() {
        r##"
        # options: bytes_per_s=1024
        # sim only
        a> CONNECT id=a keep_alive=1
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "x"*8192
        a< PUBACK 1 NoMatchingSubscribers
        a> PINGREQ
        + 6900ms
        + 300ms
        a< PINGRESP
        + 2s
        a< DISCONNECT KeepAliveTimeout reason_string="was silent for longer than its keep alive"
        a< CLOSED
        "##
    }

    fn a_rate_that_is_kept_holds_nobody() {
        r##"
        # options: messages_per_s=2 sys_interval_s=1
        # sim only
        # shards: 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "1"
        a< PUBACK 1 NoMatchingSubscribers
        + 500ms
        a> PUBLISH 2 "t" qos=1 "2"
        a< PUBACK 2 NoMatchingSubscribers
        + 500ms
        a> PUBLISH 3 "t" qos=1 "3"
        a< PUBACK 3 NoMatchingSubscribers
        a> SUBSCRIBE 4 "$SYS/broker/connections/paced" qos=0
        a< SUBACK 4 [0]
        a< PUBLISH "$SYS/broker/connections/paced" qos=0 retain "0"
        "##
    }
}
