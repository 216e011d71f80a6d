//! Queues of sessions: limits and overflow policies, slow subscribers, and dropped messages.

crate::transcripts! {
    fn the_oldest_goes_when_the_queue_is_full() {
        r##"
        # options: queue.messages_max=2
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "2"
        a< PUBLISH 2 "t" qos=1 "3"
        "##
    }

    fn the_newest_goes_by_option() {
        r##"
        # options: queue.messages_max=2 queue.policy=drop_newest
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 2 "t" qos=1 "2"
        "##
    }

    fn the_slow_client_goes_by_option() {
        r##"
        # options: queue.messages_max=1 queue.policy=disconnect
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
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< DISCONNECT QuotaExceeded \
            reason_string="the queue is full: the client takes messages too slowly"
        a< CLOSED
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a< PUBLISH 2 "t" qos=1 "4"
        "##
    }

    fn a_client_that_overruns_itself_and_leaves_at_once_harms_nobody() {
        r##"
        # options: queue.messages_max=1 queue.policy=disconnect
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "1" &
        a> PUBLISH 2 "t" qos=1 "2" &
        a> PUBLISH 3 "t" qos=1 "3" &
        a> DISCONNECT
        a< PUBLISH 1 "t" qos=1 "1"
        a< PUBACK 1
        a< PUBACK 2
        a< PUBACK 3
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> PINGREQ
        b< PINGRESP
        "##
    }

    fn a_message_that_one_drops_reaches_the_next() {
        r##"
        # options: queue.messages_max=1 queue.policy=drop_newest
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        b< PUBLISH 2 "t" qos=1 "2"
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    // [MQTT-3.1.2-25]
    fn a_message_too_large_for_one_reaches_the_next() {
        r##"
        a> CONNECT id=a maximum_packet_size=20
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        c> CONNECT id=c maximum_packet_size=20
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=1
        c< SUBACK 1 [1]
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "t" qos=1
        d< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "0123456789012345678901234567890"
        p< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "0123456789012345678901234567890"
        d< PUBLISH 1 "t" qos=1 "0123456789012345678901234567890"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        b< PUBLISH 2 "t" qos=1 "2"
        c< PUBLISH 2 "t" qos=1 "2"
        d< PUBLISH 2 "t" qos=1 "2"
        "##
    }

    fn bytes_bound_a_queue_too() {
        r##"
        # options: queue.bytes_max=2500
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"*1000
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"*1000
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"*1000
        p< PUBACK 3
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "2"*1000
        a< PUBLISH 2 "t" qos=1 "3"*1000
        "##
    }

    fn a_large_message_displaces_several_small_ones() {
        r##"
        # options: queue.bytes_max=1000
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"*200
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"*200
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"*200
        p< PUBACK 3
        p> PUBLISH 4 "t" qos=1 "4"*500
        p< PUBACK 4
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "3"*200
        a< PUBLISH 2 "t" qos=1 "4"*500
        "##
    }

    fn qos_0_does_not_wait_for_who_is_away() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "2"
        "##
    }

    fn qos_0_waits_by_option() {
        r##"
        # options: queue.qos0=true
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH "t" qos=0 "3"
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH "t" qos=0 "1"
        a< PUBLISH 1 "t" qos=1 "2"
        a< PUBLISH "t" qos=0 "3"
        "##
    }

    fn what_waits_too_long_is_dropped_by_option() {
        r##"
        # options: queue.age_s_max=10
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "old"
        p< PUBACK 1
        + 6s
        p> PUBLISH 2 "t" qos=1 "new"
        p< PUBACK 2
        + 6s
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "new"
        "##
    }

    fn what_waits_too_long_goes_though_nothing_else_happens() {
        r##"
        # options: queue.age_s_max=5 sys.interval_s=10
        # shards: 1
        # sim only: counts
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/broker/publish/messages/dropped/expired" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        + 1s
        s< PUBLISH "$SYS/broker/publish/messages/dropped/expired" qos=0 "0"
        p> PUBLISH 1 "t" qos=1 "old"
        p< PUBACK 1
        + 2s
        p> PUBLISH 2 "t" qos=1 "not so old"
        p< PUBACK 2
        + 10s
        s< PUBLISH "$SYS/broker/publish/messages/dropped/expired" qos=0 "2"
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        p> PUBLISH 3 "t" qos=1 "new"
        p< PUBACK 3
        a< PUBLISH * "t" qos=1 "new"
        "##
    }

    fn what_is_too_old_takes_nobodys_place() {
        r##"
        # options: queue.age_s_max=10 queue.messages_max=1 queue.policy=drop_newest
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "old"
        p< PUBACK 1
        + 11s
        p> PUBLISH 2 "t" qos=1 "new"
        p< PUBACK 2
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH * "t" qos=1 "new"
        "##
    }

    fn what_waits_may_expire_in_the_middle_of_a_queue() {
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
        p> PUBLISH 2 "t" qos=1 "2" expiry=5
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        + 6s
        a> CONNECT id=a clean=0 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 "3"
        "##
    }

    fn a_slow_reader_costs_only_its_own_queue() {
        r##"
        # options: connection.write_bytes_max=1000 queue.messages_max=3
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        a! stall
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"*1000
        b< PUBLISH "t" qos=0 "1"*1000
        p> PUBLISH "t" qos=0 "2"*1000
        b< PUBLISH "t" qos=0 "2"*1000
        p> PUBLISH "t" qos=0 "3"*1000
        b< PUBLISH "t" qos=0 "3"*1000
        p> PUBLISH "t" qos=0 "4"*1000
        b< PUBLISH "t" qos=0 "4"*1000
        p> PUBLISH "t" qos=0 "5"*1000
        b< PUBLISH "t" qos=0 "5"*1000
        p> PUBLISH "t" qos=0 "6"*1000
        b< PUBLISH "t" qos=0 "6"*1000
        p> PUBLISH "t" qos=0 "7"*1000
        b< PUBLISH "t" qos=0 "7"*1000
        a! resume
        a< PUBLISH "t" qos=0 "1"*1000
        a< PUBLISH "t" qos=0 "2"*1000
        a< PUBLISH "t" qos=0 "3"*1000
        a< PUBLISH "t" qos=0 "5"*1000
        a< PUBLISH "t" qos=0 "6"*1000
        a< PUBLISH "t" qos=0 "7"*1000
        p> PUBLISH "t" qos=0 "8"
        a< PUBLISH "t" qos=0 "8"
        b< PUBLISH "t" qos=0 "8"
        "##
    }

    fn a_slow_reader_s_qos_1_messages_wait_in_order() {
        r##"
        # options: connection.write_bytes_max=1000
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! stall
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"*2000
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"*1000
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"*2000
        a< PUBLISH 2 "t" qos=1 dup "2"*1000
        a< PUBLISH 3 "t" qos=1 "3"
        "##
    }

    fn a_slow_reader_is_disconnected_by_option() {
        r##"
        # options: connection.write_bytes_max=1000 queue.messages_max=1 queue.policy=disconnect
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a! stall
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"*2000
        p> PUBLISH "t" qos=0 "2"*1000
        p> PUBLISH "t" qos=0 "3"
        p> PUBLISH "t" qos=0 "4"
        a! resume
        a< PUBLISH "t" qos=0 "1"*2000
        a< PUBLISH "t" qos=0 "2"*1000
        a< DISCONNECT QuotaExceeded \
            reason_string="the queue is full: the client takes messages too slowly"
        a< CLOSED
        "##
    }

    fn a_slow_reader_of_retained_messages_gets_them_all() {
        r##"
        # options: connection.write_bytes_max=1000
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 retain "1"*1000
        p> PUBLISH "t/2" qos=0 retain "2"*1000
        p> PUBLISH "t/3" qos=0 retain "3"*1000
        a> CONNECT id=a
        a< CONNACK present=0
        a! stall
        a> SUBSCRIBE 1 "t/#" qos=0
        a! resume
        a< SUBACK 1 [0]
        a< PUBLISH "t/1" qos=0 retain "1"*1000
        a< PUBLISH "t/2" qos=0 retain "2"*1000
        a< PUBLISH "t/3" qos=0 retain "3"*1000
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [MQTT-3.3.4-9] [MQTT-4.9.0-1]
    fn a_narrower_window_after_a_resume_holds_for_what_is_sent_again() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=2 "2"
        p< PUBREC 2
        a< PUBLISH 2 "t" qos=2 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 3 "t" qos=1 "3"
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        a< PUBLISH 4 "t" qos=1 "4"
        a! cut
        p> PUBLISH 5 "t" qos=1 "5"
        p< PUBACK 5
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=2 dup "2"
        a> PUBREC 2
        a< PUBREL 2
        a> PUBCOMP 2
        a< PUBLISH 3 "t" qos=1 dup "3"
        a> PUBACK 3
        a< PUBLISH 4 "t" qos=1 dup "4"
        a> PUBACK 4
        a< PUBLISH 5 "t" qos=1 "5"
        a> PUBACK 5
        "##
    }

    fn a_wider_window_after_a_resume_takes_more() {
        r##"
        a> CONNECT id=a expiry=60 receive_maximum=2
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
        a< PUBLISH 2 "t" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a> PUBREC 1
        a< PUBREL 1
        a! cut
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=10
        a< CONNACK present=1
        a< PUBREL 1
        a< PUBLISH 2 "t" qos=1 dup "2"
        a< PUBLISH 3 "t" qos=1 "3"
        a> PUBCOMP 1
        a> PUBACK 2
        a> PUBACK 3
        "##
    }

    // [MQTT-4.4.0-1]
    fn what_waits_to_be_sent_again_may_be_cut_again() {
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
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 3 "t" qos=1 "3"
        a! cut
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 dup "2"
        a> PUBACK 3
        a! cut
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 2 "t" qos=1 dup "2"
        a> PUBACK 2
        a< PUBLISH 4 "t" qos=1 "4"
        a> PUBACK 4
        "##
    }

    fn options_change_while_it_runs() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "before"
        ! reload queue.qos0=true
        p> PUBLISH "t" qos=0 "after"
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH "t" qos=0 "after"
        "##
    }

    // [MQTT-4.6.0-5] [MQTT-4.6.0-6]
    fn messages_of_one_qos_stay_in_order_behind_those_that_wait() {
        r##"
        # options: queue.qos0=true
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH "t" qos=0 "3"
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH "t" qos=0 "4"
        p> PUBLISH 5 "t" qos=1 "5"
        p< PUBACK 5
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 "2"
        a< PUBLISH "t" qos=0 "3"
        a< PUBLISH "t" qos=0 "4"
        a> PUBACK 2
        a< PUBLISH 3 "t" qos=1 "5"
        "##
    }
}
