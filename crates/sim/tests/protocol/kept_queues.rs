//! No loss of queued messages when a client returns with a smaller window, a full queue or another
//! expiry.

crate::transcripts! {
    // What was sent before the restart stays unacknowledged; ids that follow are others.
    fn after_a_power_cut_a_message_that_is_not_acknowledged_stops_no_other() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 1 "t" qos=2 "2"
        p< PUBREC 1
        a< PUBLISH 2 "t" qos=2 "2"
        p> PUBREL 1
        p< PUBCOMP 1
        a> PUBREC 2
        a< PUBREL 2
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a< PUBREL 2
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "3"
        p< PUBACK 1
        a< PUBLISH 3 "t" qos=1 "3"
        p> PUBLISH 1 "t" qos=2 "4"
        p< PUBREC 1
        a< PUBLISH 4 "t" qos=2 "4"
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a< PUBREL 2
        a< PUBLISH 3 "t" qos=1 dup "3"
        a< PUBLISH 4 "t" qos=2 dup "4"
        a> PUBCOMP 2
        a> PUBACK 1
        "##
    }

    // What owes but PUBREL has no message to give up, and takes none of the room.
    fn a_full_queue_passes_by_what_the_client_has_already() {
        r##"
        # disk: on
        # options: queue.messages_max=1
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 1 "t" qos=1 "2"
        p< PUBACK 1
        a< PUBLISH 2 "t" qos=1 "2"
        p> PUBLISH 1 "t" qos=2 "3"
        p< PUBREC 1
        a< PUBLISH 3 "t" qos=2 "3"
        p> PUBREL 1
        p< PUBCOMP 1
        a> PUBREC 3
        a< PUBREL 3
        a! cut
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "4"
        p< PUBACK 1
        "##
    }

    // Its id would be the next one's, which the client would take for this.
    fn a_full_queue_passes_by_what_may_have_been_sent_at_qos_2() {
        r##"
        # disk: on
        # options: queue.messages_max=2
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 1 "t" qos=2 "2"
        p< PUBREC 1
        a< PUBLISH 2 "t" qos=2 "2"
        p> PUBREL 1
        p< PUBCOMP 1
        a! cut
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "3"
        p< PUBREC 1
        p> PUBREL 1
        p< PUBCOMP 1
        p> PUBLISH 1 "t" qos=2 "4"
        p< PUBREC 1
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=2 dup "2"
        "##
    }

    fn what_may_have_been_sent_at_qos_2_does_not_expire() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 1 "t" qos=2 "2" expiry=5
        p< PUBREC 1
        a< PUBLISH 2 "t" qos=2 "2" expiry=5
        p> PUBREL 1
        p< PUBCOMP 1
        a! cut
        ! power
        p< CLOSED
        + 10s
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "3"
        p< PUBREC 1
        p> PUBREL 1
        p< PUBCOMP 1
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=2 dup "2" expiry=0
        "##
    }

    fn the_bytes_of_a_queue_count_though_only_the_store_has_it() {
        r##"
        # disk: on
        # options: queue.bytes_max=200 queue.messages_max=3
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        ! power
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 \
            "1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        p< PUBACK 1
        p> PUBLISH 1 "t" qos=1 \
            "2aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        p< PUBACK 1
        p> PUBLISH 1 "t" qos=1 \
            "3aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        p< PUBACK 1
        p> PUBLISH 1 "t" qos=1 "4"
        p< PUBACK 1
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 \
            "1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        a< PUBLISH 2 "t" qos=1 "4"
        "##
    }

    // What the store has was acknowledged to its publisher.
    fn a_message_of_qos_0_takes_no_place_of_a_stored_one() {
        r##"
        # disk: on
        # options: queue.messages_max=2 queue.qos0=true
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 1 "t" qos=1 "2"
        p< PUBACK 1
        p> PUBLISH "t" "none"
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 2 "t" qos=1 "2"
        "##
    }

    fn a_will_that_was_taken_back_waits_for_no_second() {
        r##"
        # disk: on
        s> CONNECT id=s expiry=600
        s< CONNACK present=0
        s> SUBSCRIBE 1 "w" qos=1
        s< SUBACK 1 [1]
        s! cut
        a> CONNECT id=a expiry=600 will="w" will_payload="gone" will_qos=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        ! disk waits
        a> DISCONNECT
        a< CLOSED
        ! power
        s> CONNECT id=s expiry=600 clean=0
        s< CONNACK present=1
        + 2s
        "##
    }
}
