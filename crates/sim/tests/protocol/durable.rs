//! Durability: every acknowledged message and session survives a power cut.

crate::transcripts! {
    fn a_queue_survives() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1" content_type="x" expiry=100
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        ! power
        p< CLOSED
        + 10s
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1" expiry=90 content_type=x
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 1
        a> PUBACK 2
        ! power
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        "##
    }

    fn a_receipt_waits_for_the_disk() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "nobody" qos=1 "2"
        p> PINGREQ
        p< PINGRESP
        ! disk syncs
        p< PUBACK 1
        p< PUBACK 2 NoMatchingSubscribers
        "##
    }

    fn what_was_not_acknowledged_may_be_lost() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 1 "t" qos=1 "1"
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        "##
    }

    fn a_subscription_counts_once_it_is_acknowledged() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        ! disk holds
        a> SUBSCRIBE 1 "t" qos=1
        ! power
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1 NoMatchingSubscribers
        "##
    }

    fn a_clean_session_costs_no_disk_and_is_not_there_afterwards() {
        r##"
        # disk: on
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        ! disk holds
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        "##
    }

    // What the subscriber's shard did not come to write is in the batch of the publisher's.
    fn qos_2_is_exactly_once_through_a_power_cut_between_two_shards() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a! cut
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 7 "t" qos=2 "1"
        ! disk syncs 1 batch
        p< PUBREC 7
        ! power
        p< CLOSED
        p> CONNECT id=p clean=0 expiry=600
        p< CONNACK present=1
        p> PUBLISH 7 "t" qos=2 dup "1"
        p< PUBREC 7
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 "1"
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        p> CONNECT id=p clean=0 expiry=600
        p< CONNACK present=1
        p> PUBREL 7
        p< PUBCOMP 7
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 4
        "##
    }

    fn what_a_member_gave_back_survives_a_power_cut_before_its_group_has_it() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        b! cut
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        a! cut
        p> PUBLISH 1 "t" qos=1 retain "2"
        p< PUBACK 1
        ! disk holds
        a> CONNECT id=a clean=1 expiry=600
        ! disk syncs 1 batch
        a< CONNACK present=0
        ! power
        a< CLOSED
        p< CLOSED
        b> CONNECT id=b clean=0 expiry=600
        b< CONNACK present=1
        b< PUBLISH * "t" qos=1 "2"
        b< PUBLISH * "t" qos=1 "1"
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=0
        c< SUBACK 1 [0]
        c< PUBLISH "t" qos=0 retain "2"
        "##
    }

    // Else the old session would be there again, after a CONNACK that said there is none.
    fn what_the_store_refused_to_its_sender_reaches_no_other_shard_before() {
        r##"
        # disk: on
        # shards: 2
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        c> CONNECT id=c expiry=600
        c< CONNACK present=0
        q> CONNECT id=q
        q< CONNACK present=0
        q> SUBSCRIBE 1 "t" qos=2
        q< SUBACK 1 [2]
        r> CONNECT id=r
        r< CONNACK present=0
        r> SUBSCRIBE 1 "u" qos=0
        r< SUBACK 1 [0]
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        q! stall
        ! disk refuses
        // Over there the transit's line is only to be struck, and removals are never refused.
        p> PUBLISH 1 "t" qos=2 "1"
        // Whatever needs no disk goes on.
        r> PUBLISH "u" qos=0 "2"
        r< PUBLISH "u" qos=0 "2"
        ! disk takes
        p< PUBREC 1
        p> PUBREL 1
        p< PUBCOMP 1
        q! resume
        q< PUBLISH 1 "t" qos=2 "1"
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 5
        "##
    }

    fn only_who_adds_to_a_crowded_store_waits_for_it() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p keep_alive=5
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1" alias=1
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        q> CONNECT id=q
        q< CONNACK present=0
        q> SUBSCRIBE 1 "u" qos=1
        q< SUBACK 1 [1]
        ! disk is crowded
        p> PUBLISH 2 "" qos=1 "2" alias=1 &
        p> PINGREQ
        // What the store need not take is taken: acknowledgements, and messages for clean sessions.
        a> PUBACK 1
        a> PINGREQ
        a< PINGRESP
        q> PUBLISH 1 "t" qos=0 "3"
        a< PUBLISH "t" qos=0 "3"
        // Whom we do not listen to may be silent for as long as that takes.
        + 20s
        ! disk is roomy
        a< PUBLISH 2 "t" qos=1 "2"
        p< PINGRESP
        p< PUBACK 2
        "##
    }

    fn a_clean_start_is_welcomed_once_the_old_session_is_gone_for_good() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        ! disk holds
        a> CONNECT id=a clean=1 expiry=600 &
        a> PINGREQ
        b> CONNECT id=a clean=1
        a< CLOSED
        ! disk syncs
        b< CONNACK present=0
        ! power
        b< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=0
        a! cut
        ! disk holds
        a> CONNECT id=a clean=1 &
        a> PINGREQ
        ! disk syncs
        a< CONNACK present=0
        a< PINGRESP
        "##
    }

    // [MQTT-3.3.1-1]
    fn what_was_sent_before_a_power_cut_comes_as_a_duplicate_beyond_the_window_too() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 1 "t" qos=1 "2"
        p< PUBACK 1
        a< PUBLISH 2 "t" qos=1 "2"
        a! cut
        p> PUBLISH 1 "t" qos=1 "3"
        p< PUBACK 1
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 dup "2"
        a> PUBACK 2
        a< PUBLISH 3 "t" qos=1 "3"
        "##
    }

    fn qos_2_is_exactly_once_through_a_power_cut_before_pubrec() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 7 "t" qos=2 "1"
        ! disk syncs
        a< PUBLISH 1 "t" qos=2 "1"
        p< PUBREC 7
        ! power
        a< CLOSED
        p< CLOSED
        p> CONNECT id=p clean=0 expiry=600
        p< CONNACK present=1
        p> PUBLISH 7 "t" qos=2 dup "1"
        p< PUBREC 7
        p> PUBREL 7
        p< PUBCOMP 7
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "1"
        a> PUBREC 1
        a< PUBREL 1
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBREL 1
        a> PUBCOMP 1
        ! power
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        "##
    }

    fn pubrel_waits_until_the_disk_knows_that_the_client_has_it() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "t" qos=2 "1"
        p< PUBREC 7
        a< PUBLISH 1 "t" qos=2 "1"
        ! disk holds
        a> PUBREC 1
        ! disk syncs
        a< PUBREL 1
        "##
    }

    fn retained_messages_survive() {
        r##"
        # disk: on
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "r/1" qos=1 retain "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH "r/2" qos=0 retain "2"
        p> PUBLISH 2 "r/3" qos=1 retain "3" expiry=5
        p< PUBACK 2 NoMatchingSubscribers
        p> PUBLISH 3 "r/4" qos=1 retain "4"
        p< PUBACK 3 NoMatchingSubscribers
        p> PUBLISH 4 "r/4" qos=1 retain ""
        p< PUBACK 4 NoMatchingSubscribers
        ! power
        p< CLOSED
        + 6s
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r/#" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "r/1" qos=0 retain "1"
        a< PUBLISH "r/2" qos=0 retain "2"
        "##
    }

    fn a_retained_message_that_expires_on_its_way_brings_no_older_one_back() {
        r##"
        # disk: on
        # shards: 2
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "old"
        p< PUBACK 1 NoMatchingSubscribers
        ! disk syncs 1 batch
        p> PUBLISH 2 "t" qos=2 retain "new" expiry=5
        p< PUBREC 2 NoMatchingSubscribers
        ! power
        p< CLOSED
        + 10s
        q> CONNECT id=q
        q< CONNACK present=0
        q> SUBSCRIBE 1 "t" qos=1
        q< SUBACK 1 [1]
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 3
        "##
    }

    fn a_retained_receipt_waits_for_the_disk() {
        r##"
        # disk: on
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 1 "r" qos=1 retain "1"
        ! disk syncs
        p< PUBACK 1 NoMatchingSubscribers
        "##
    }

    // A clear is known for as long as something older may come from another shard.
    fn what_was_cleared_leaves_nothing_for_long() {
        r##"
        # disk: on
        # shards: 2
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "r" qos=1 retain "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "r" qos=1 retain ""
        p< PUBACK 2 NoMatchingSubscribers
        ! stored
        disk< messages 0, queues 0, retained 1, sessions 1
        ! power
        p< CLOSED
        ! stored
        disk< messages 0, queues 0, retained 1, sessions 1
        p> CONNECT id=p
        p< CONNACK present=0
        p> SUBSCRIBE 1 "r" qos=0
        p< SUBACK 1 [0]
        + 11s
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 1
        "##
    }

    fn wills_and_expiries_count_the_time_that_we_were_away() {
        r##"
        # disk: on
        w> CONNECT id=w expiry=600 will="w" will_payload="gone" will_delay=30 will_qos=1
        w< CONNACK present=0
        w! cut
        e> CONNECT id=e expiry=20
        e< CONNACK present=0
        e! cut
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "w" qos=1
        a< SUBACK 1 [1]
        + 10s
        ! power
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        + 19s
        e> CONNECT id=e clean=0
        e< CONNACK present=0
        + 2s
        a< PUBLISH 1 "w" qos=1 "gone"
        "##
    }

    fn the_will_of_a_client_that_was_there_follows_the_power_cut() {
        r##"
        # disk: on
        w> CONNECT id=w expiry=600 will="w" will_payload="gone" will_qos=1 will_retain
        w< CONNACK present=0
        ! power
        w< CLOSED
        + 1s
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "w" qos=1
        a< SUBACK 1 [1]
        a< PUBLISH 1 "w" qos=1 retain "gone"
        "##
    }

    fn a_group_waits_through_a_power_cut() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        a! cut
        b! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        ! power
        p< CLOSED
        b> CONNECT id=b clean=0 expiry=600
        b< CONNACK present=1
        b< PUBLISH * "t" qos=1 "1"
        b< PUBLISH * "t" qos=1 "2"
        "##
    }

    fn an_unsubscription_survives() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 "u" qos=2 subscription_id=9
        a< SUBACK 1 [1 2]
        a> UNSUBSCRIBE 2 "t"
        a< UNSUBACK 2 [0]
        ! power
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "u" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 1 "u" qos=1 "2" subscription_id=9
        "##
    }

    fn a_session_that_ended_stays_away() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        ! power
        p< CLOSED
        a> CONNECT id=a clean=1
        a< CONNACK present=0
        a> DISCONNECT
        a< CLOSED
        ! power
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        "##
    }

    fn a_will_with_delay_goes_on_after_a_clean_stop() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600 will="w/a" will_payload="a" will_delay=30 will_qos=1
        a< CONNACK present=0
        b> CONNECT id=b expiry=600 will="w/b" will_payload="b" will_qos=1
        b< CONNACK present=0
        c> CONNECT id=c expiry=600
        c< CONNACK present=0
        c> SUBSCRIBE 1 "w/#" qos=1
        c< SUBACK 1 [1]
        ! drain
        c< PUBLISH 1 "w/b" qos=1 "b"
        ! close_all
        a< DISCONNECT ServerShuttingDown
        a< CLOSED
        b< DISCONNECT ServerShuttingDown
        b< CLOSED
        c< DISCONNECT ServerShuttingDown
        c< CLOSED
        + 10s
        ! power
        c> CONNECT id=c clean=0 expiry=600
        c< CONNACK present=1
        c< PUBLISH 1 "w/b" qos=1 dup "b"
        c> PUBACK 1
        + 21s
        c< PUBLISH 2 "w/a" qos=1 "a"
        "##
    }

    fn a_connected_client_s_messages_are_sent_again_under_their_ids() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600 receive_maximum=2
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
        a> PUBACK 1
        a< PUBLISH 3 "t" qos=1 "3"
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=2
        a< CONNACK present=1
        a< PUBLISH 2 "t" qos=2 dup "2"
        a< PUBLISH 3 "t" qos=1 dup "3"
        "##
    }

    fn lazy_topics_are_not_waited_for_and_memory_s_are_not_kept() {
        r##"
        # disk: on
        # options: store.topics=lazy/#=lazy,memory/#=memory
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=2
        a< SUBACK 1 [2]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "memory/1" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "lazy/2" qos=1 "2"
        p< PUBACK 2
        ! disk holds
        p> PUBLISH 3 "lazy/3" qos=1 "3"
        p< PUBACK 3
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 2 "lazy/2" qos=1 "2"
        "##
    }

    fn one_message_for_several_is_kept_once_and_leaves_nothing() {
        r##"
        # disk: on
        # shards: 1
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        b< PUBLISH 1 "t" qos=1 "1"
        ! stored
        disk< messages 1, queues 2, retained 0, sessions 5
        a> PUBACK 1
        ! stored
        disk< messages 1, queues 1, retained 0, sessions 5
        b> PUBACK 1
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 5
        "##
    }

    fn what_several_absent_sessions_want_is_there_for_each() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut

        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        b! cut

        ! power
        c> CONNECT id=c expiry=600
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=1
        c< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        c< PUBLISH 1 "t" qos=1 "1"
        ! stored
        disk< messages 1, queues 3, retained 0, sessions 7
        ! power
        c< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a> PUBACK 1
        b> CONNECT id=b clean=0
        b< CONNACK present=1
        b< PUBLISH 1 "t" qos=1 "1"
        b> DISCONNECT
        b< CLOSED
        ! stored
        disk< messages 1, queues 1, retained 0, sessions 5
        + 3602s
        ! stored
        disk< messages 0, queues 0, retained 0, sessions 3

        c> PUBACK 1
        c< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< DISCONNECT ProtocolError reason_string="sent a second CONNECT"
        a< CLOSED
        b> CONNECT id=b clean=0 expiry=600
        b< CONNACK present=0
        "##
    }

    // The end of a's session and with it the way of its message to b wait for room, the removal
    // that c's PUBACK brings does not.
    fn a_message_that_moves_stands_where_it_was_until_the_store_has_the_move() {
        r##"
        # disk: on
        # shards: 1
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        c> CONNECT id=c expiry=600
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=1
        c< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        c< PUBLISH 1 "t" qos=1 "1"
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        ! disk refuses
        a> DISCONNECT expiry=0
        a< CLOSED
        b< PUBLISH 1 "t" qos=1 "1"
        c> PUBACK 1
        ! power
        c< CLOSED
        p< CLOSED
        b< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        "##
    }

    fn a_group_waits_through_any_number_of_power_cuts() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        ! power
        p< CLOSED
        + 1s
        ! power
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH * "t" qos=1 "1"
        "##
    }

    fn a_will_that_was_published_is_not_published_after_a_power_cut() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "w" qos=1
        a< SUBACK 1 [1]
        w> CONNECT id=w expiry=600 will="w" will_payload="gone" will_delay=5 will_qos=1
        w< CONNACK present=0
        w! cut
        + 6s
        a< PUBLISH 1 "w" qos=1 "gone"
        a> PUBACK 1
        ! power
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        + 6s
        a> PINGREQ
        a< PINGRESP
        "##
    }

    fn a_repeated_qos_2_message_is_answered_no_sooner_than_the_first() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 7 "t" qos=2 "1"
        p! cut
        p> CONNECT id=p clean=0 expiry=600
        p< CONNACK present=1
        p> PUBLISH 7 "t" qos=2 dup "1"
        ! disk syncs
        p< PUBREC 7
        ! disk holds
        p> PUBREL 7
        p! cut
        p> CONNECT id=p clean=0 expiry=600
        p< CONNACK present=1
        p> PUBREL 7
        ! disk syncs
        p< PUBCOMP 7 PacketIdentifierNotFound
        "##
    }

    fn pubrel_waits_for_the_disk_on_the_next_connection_too() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "t" qos=2 "1"
        p< PUBREC 7
        a< PUBLISH 1 "t" qos=2 "1"
        ! disk holds
        a> PUBREC 1
        a! cut
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        ! disk syncs
        a< PUBREL 1
        "##
    }

    fn after_a_start_an_id_in_use_is_passed_over() {
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
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 1
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 2 "t" qos=1 dup "2"
        p> CONNECT id=p
        p< CONNACK present=0
        // The position after the start has the id of the second message.
        p> PUBLISH 3 "t" qos=2 "3"
        p< PUBREC 3
        a< PUBLISH 3 "t" qos=2 "3"
        ! disk holds
        a> PUBACK 2
        ! disk syncs
        "##
    }

    fn after_a_start_nothing_waits_longer_than_for_a_sync() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        ! power
        a< CLOSED
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        p> CONNECT id=p
        p< CONNACK present=0
        // What is done of what was sent before the start is to be known for good.
        ! disk waits
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        "##
    }

    fn a_receipt_does_not_wait_for_what_nobody_waits_for() {
        r##"
        # disk: on
        # shards: 2
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        c> CONNECT id=c expiry=600
        c< CONNACK present=0
        q> CONNECT id=q
        q< CONNACK present=0
        q> SUBSCRIBE 1 "u" qos=0
        q< SUBACK 1 [0]
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        p> SUBSCRIBE 1 "t" qos=1
        p< SUBACK 1 [1]
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        ! disk waits
        // That p has it is written in the tick of the next message, which no disk needs.
        p> PUBACK 1 &
        p> PUBLISH 2 "u" qos=1 "2"
        p< PUBACK 2
        q< PUBLISH "u" qos=0 "2"
        "##
    }

    fn pubrel_comes_once_the_client_is_back_where_the_disk_was_faster() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "t" qos=2 "1"
        p< PUBREC 7
        a< PUBLISH 1 "t" qos=2 "1"
        ! disk holds
        a> PUBREC 1
        a! cut
        ! disk syncs
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBREL 1
        "##
    }

    fn pubcomp_waits_for_the_disk_on_the_next_connection_too() {
        r##"
        # disk: on
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        p> PUBLISH 7 "t" qos=2 "1"
        p< PUBREC 7 NoMatchingSubscribers
        ! disk holds
        p> PUBREL 7
        p! cut
        p> CONNECT id=p clean=0 expiry=600
        p< CONNACK present=1
        p> PUBREL 7
        p> PINGREQ
        p< PINGRESP
        ! disk syncs
        p< PUBCOMP 7 PacketIdentifierNotFound
        "##
    }

    fn what_a_member_leaves_unread_when_it_ends_goes_back_to_its_group() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1 "t" qos=1
        a< SUBACK 1 [1 1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 2 "t" qos=1 "1"
        ! power
        a< CLOSED
        p< CLOSED
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        a> CONNECT id=a clean=1
        a< CONNACK present=0
        b< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    fn what_a_member_may_have_goes_to_no_other() {
        r##"
        # disk: on
        a> CONNECT id=a expiry=600 receive_maximum=2
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "1"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "1"
        p> PUBLISH 2 "t" qos=2 "2"
        p< PUBREC 2
        a< PUBLISH 2 "t" qos=2 "2"
        ! power
        a< CLOSED
        p< CLOSED
        b> CONNECT id=b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=2
        b< SUBACK 1 [2]
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=1
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "1"
        a! cut
        b> PINGREQ
        b< PINGRESP
        a> CONNECT id=a clean=0 expiry=600 receive_maximum=2
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "1"
        a< PUBLISH 2 "t" qos=2 dup "2"
        "##
    }
}
