//! Rate limits for messages and bytes in both directions: a client above a limit waits, and other
//! clients do not.

crate::transcripts! {
    fn who_is_ahead_of_its_rate_is_not_read_and_loses_nothing() {
        r##"
        # options: limits.messages_per_s=2
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
        # options: limits.bytes_per_s=1024
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

    // [MQTT-3.1.2-22]: a client whose packets are held back does not time out.
    fn who_is_held_does_not_miss_its_keep_alive() {
        r##"
        # options: limits.bytes_per_s=1024
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

    // [MQTT-4.6.0-6]
    fn what_is_for_a_client_above_its_rate_waits_in_its_queue_and_no_publisher_does() {
        r##"
        # options: limits.messages_out_per_s=2
        # sim only
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        c> CONNECT id=c
        c< CONNACK present=0
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "1" &
        a> PUBLISH "t" qos=0 "2" &
        a> PUBLISH 3 "t" qos=1 "3" &
        a> PUBLISH "t" qos=0 "4"
        a< PUBACK 1
        a< PUBACK 3
        b< PUBLISH 1 "t" qos=1 "1"
        b< PUBLISH "t" qos=0 "2"
        b> PUBACK 1
        + 400ms
        + 100ms
        b< PUBLISH 2 "t" qos=1 "3"
        b> PINGREQ
        b< PINGRESP
        + 500ms
        b< PUBLISH "t" qos=0 "4"
        "##
    }

    fn bytes_to_a_client_count_with_their_packets() {
        r##"
        # options: limits.bytes_out_per_s=1024
        # sim only
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "t" qos=0 "x"*2048 &
        a> PUBLISH "t" qos=0 "2"
        b< PUBLISH "t" qos=0 "x"*2048
        + 900ms
        + 200ms
        b< PUBLISH "t" qos=0 "2"
        "##
    }

    fn the_queue_of_a_client_above_its_rate_has_its_bound() {
        r##"
        # options: limits.messages_out_per_s=1 queue.messages_max=2
        # sim only
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "t" qos=0 "1"
        b< PUBLISH "t" qos=0 "1"
        a> PUBLISH "t" qos=0 "2"
        a> PUBLISH "t" qos=0 "3"
        a> PUBLISH "t" qos=0 "4"
        + 1s
        b< PUBLISH "t" qos=0 "3"
        + 1s
        b< PUBLISH "t" qos=0 "4"
        "##
    }

    // The memory of the broker is not filled with what a slow client asked for.
    fn retained_messages_come_at_the_clients_rate() {
        r##"
        # options: limits.messages_out_per_s=1 queue.messages_max=1
        # sim only
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t/1" qos=1 retain "1"
        a< PUBACK 1 NoMatchingSubscribers
        a> PUBLISH 2 "t/2" qos=1 retain "2"
        a< PUBACK 2 NoMatchingSubscribers
        a> PUBLISH 3 "t/3" qos=1 retain "3"
        a< PUBACK 3 NoMatchingSubscribers
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t/+" qos=0
        b< SUBACK 1 [0]
        b< PUBLISH "t/1" qos=0 retain "1"
        + 1s
        b< PUBLISH "t/2" qos=0 retain "2"
        + 1s
        b< PUBLISH "t/3" qos=0 retain "3"
        "##
    }

    fn a_member_above_its_rate_leaves_messages_to_the_others() {
        r##"
        # listener: 1 limits.messages_out_per_s=1
        b! by 1
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "1"
        a< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "1"
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$share/g/t" qos=1
        c< SUBACK 1 [1]
        a> PUBLISH 2 "t" qos=1 "2"
        a< PUBACK 2
        c< PUBLISH 1 "t" qos=1 "2"
        a> PUBLISH 3 "t" qos=1 "3"
        a< PUBACK 3
        c< PUBLISH 2 "t" qos=1 "3"
        "##
    }

    fn a_rate_that_is_kept_holds_nobody() {
        r##"
        # options: limits.messages_per_s=2 sys.interval_s=1
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
