//! Shared subscriptions: exactly one member gets each message, even if other members fail.

crate::transcripts! {
    fn members_take_turns() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH "t" qos=0 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 1 "t" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        b< PUBLISH "t" qos=0 "3"
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        a< PUBLISH 2 "t" qos=1 "4"
        "##
    }

    fn shared_subscriptions_work_in_3_1_1() {
        r##"
        a> CONNECT id=a v=311
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        a> PUBACK 1
        a> UNSUBSCRIBE 2 "$share/g/t"
        a< UNSUBACK 2
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2 NoMatchingSubscribers
        "##
    }

    fn groups_and_ordinary_subscriptions_are_apart() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1 subscription_id=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/h/t" qos=1
        b< SUBACK 1 [1]
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=1
        c< SUBACK 1 [1]
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "$share/g/+" qos=1
        d< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1" subscription_id=1
        b< PUBLISH 1 "t" qos=1 "1"
        c< PUBLISH 1 "t" qos=1 "1"
        d< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    // [MQTT-3.3.4-5]: which is first depends on where the group is at home.
    fn a_member_that_also_subscribes_itself_gets_both() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=0 subscription_id=1
        a< SUBACK 1 [0]
        a> SUBSCRIBE 2 "t" qos=0 subscription_id=2
        a< SUBACK 2 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        a< PUBLISH "t" qos=0 "1" subscription_id=*
        a< PUBLISH "t" qos=0 "1" subscription_id=*
        "##
    }

    // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
    fn names_of_shares_are_checked() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share//t" qos=0
        a< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g" qos=0
        b< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$share/g/" qos=0
        c< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "$share/g+/t" qos=0
        d< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        d< CLOSED
        e> CONNECT id=e
        e< CONNACK present=0
        e> SUBSCRIBE 1 "$share/g/t#" qos=0
        e< DISCONNECT TopicFilterInvalid reason_string="sent a topic filter that is not valid"
        e< CLOSED
        f> CONNECT id=f
        f< CONNACK present=0
        f> SUBSCRIBE 1 "$share" qos=0
        f< SUBACK 1 [0]
        "##
    }

    // [MQTT-4.8.2-3]
    fn the_granted_qos_holds() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "x"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=1 "x"
        p> PUBLISH "t" qos=0 "x"
        a< PUBLISH "t" qos=0 "x"
        "##
    }

    fn members_with_room_come_first() {
        r##"
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 1 "t" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        b< PUBLISH 2 "t" qos=1 "3"
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        b< PUBLISH 3 "t" qos=1 "4"
        p> PUBLISH 5 "t" qos=1 "5"
        p< PUBACK 5
        b< PUBLISH 4 "t" qos=1 "5"
        "##
    }

    fn members_that_are_there_come_first() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        b< PUBLISH 2 "t" qos=1 "2"
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        a< PUBLISH 1 "t" qos=1 "3"
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        b< PUBLISH 3 "t" qos=1 "4"
        "##
    }

    fn messages_wait_while_nobody_has_room() {
        r##"
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b receive_maximum=1
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 1 "t" qos=1 "2"
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        b> PUBACK 1
        b< PUBLISH 2 "t" qos=1 "3"
        b> PUBACK 2
        b< PUBLISH 3 "t" qos=1 "4"
        a> PUBACK 1
        a> PUBACK 2
        "##
    }

    fn messages_wait_while_all_are_away() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b expiry=60
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
        p> PUBLISH "t" qos=0 "3"
        b> CONNECT id=b clean=0 expiry=60
        b< CONNACK present=1
        b< PUBLISH 1 "t" qos=1 "1"
        b< PUBLISH 2 "t" qos=1 "2"
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        p> PUBLISH 3 "t" qos=1 "4"
        p< PUBACK 3
        a< PUBLISH 1 "t" qos=1 "4"
        p> PUBLISH 4 "t" qos=1 "5"
        p< PUBACK 4
        b< PUBLISH 3 "t" qos=1 "5"
        "##
    }

    fn waiting_messages_are_bounded_as_a_session_s() {
        r##"
        # options: queue.messages_max=2
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
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
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "2"
        a< PUBLISH 2 "t" qos=1 "3"
        "##
    }

    fn waiting_messages_expire() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1" expiry=5
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        + 6s
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "2"
        "##
    }

    fn an_unacknowledged_qos_1_message_goes_to_another_when_the_session_ends() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
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
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        a! cut
        b< PUBLISH 1 "t" qos=1 "2"
        "##
    }

    // [MQTT-3.3.2-5]: nobody had begun to send it to the other member.
    fn an_expired_message_of_an_ended_session_goes_to_nobody() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1" expiry=10
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1" expiry=10
        p> PUBLISH 2 "t" qos=1 "2" expiry=20
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2" expiry=20
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        + 11s
        a! cut
        b< PUBLISH 1 "t" qos=1 "2" expiry=9
        "##
    }

    fn an_unacknowledged_qos_1_message_stays_while_the_session_lives() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        a! cut
        + 30s
        a> CONNECT id=a clean=0 expiry=10
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a! cut
        + 11s
        b< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    // [MQTT-4.8.2-4]
    fn a_sent_qos_2_message_stays_with_its_member() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=2
        a< SUBACK 1 [2]
        b> CONNECT id=b
        b< CONNACK present=0
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "1"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "1"
        b> SUBSCRIBE 1 "$share/g/t" qos=2
        b< SUBACK 1 [2]
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 dup "1"
        a> PUBREC 1
        a< PUBREL 1
        a> PUBCOMP 1
        "##
    }

    // [MQTT-4.8.2-5]
    fn a_sent_qos_2_message_never_goes_to_another() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "1"
        p< PUBREC 1
        a< PUBLISH 1 "t" qos=2 "1"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=2
        b< SUBACK 1 [2]
        a! cut
        p> PUBLISH 2 "t" qos=2 "2"
        p< PUBREC 2
        b< PUBLISH 1 "t" qos=2 "2"
        "##
    }

    // [MQTT-4.8.2-5]
    fn a_qos_2_message_that_was_not_sent_goes_to_another() {
        r##"
        a> CONNECT id=a receive_maximum=1
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
        p> PUBLISH 3 "t" qos=2 "3"
        p< PUBREC 3
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=2
        b< SUBACK 1 [2]
        b< PUBLISH 1 "t" qos=2 "2"
        b< PUBLISH 2 "t" qos=2 "3"
        a! cut
        "##
    }

    // [MQTT-4.8.2-6]
    fn a_negative_acknowledgement_discards_the_message() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=2
        a< SUBACK 1 [2]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=2
        b< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH 1 "t" qos=1 "1"
        b> PUBACK 1 0x83
        p> PUBLISH 2 "t" qos=2 "2"
        p< PUBREC 2
        a< PUBLISH 1 "t" qos=2 "2"
        a> PUBREC 1 0x97
        a! cut
        "##
    }

    fn the_last_member_takes_the_group_with_it() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        + 61s
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2 NoMatchingSubscribers
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        "##
    }

    fn unsubscribing_leaves_the_group() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        b> UNSUBSCRIBE 2 "$share/g/t" "$share/h/t" "t"
        b< UNSUBACK 2 [0 0x11 0x11]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        "##
    }

    fn options_of_a_member_can_change() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1 subscription_id=1
        a< SUBACK 1 [1]
        a> SUBSCRIBE 2 "$share/g/t" qos=0 subscription_id=2
        a< SUBACK 2 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH "t" qos=0 "1" subscription_id=2
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH "t" qos=0 "2" subscription_id=2
        "##
    }

    fn sticky_stays_with_one_member() {
        r##"
        # options: shared.strategy=sticky
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        a< PUBLISH "t" qos=0 "1"
        p> PUBLISH "t" qos=0 "2"
        a< PUBLISH "t" qos=0 "2"
        a! cut
        p> PUBLISH "t" qos=0 "3"
        b< PUBLISH "t" qos=0 "3"
        p> PUBLISH "t" qos=0 "4"
        b< PUBLISH "t" qos=0 "4"
        "##
    }

    fn a_group_may_have_its_own_strategy() {
        r##"
        # options: shared.strategies=g=sticky
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=0 "$share/h/u" qos=0
        a< SUBACK 1 [0 0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=0 "$share/h/u" qos=0
        b< SUBACK 1 [0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "sticky 1"
        a< PUBLISH "t" qos=0 "sticky 1"
        p> PUBLISH "t" qos=0 "sticky 2"
        a< PUBLISH "t" qos=0 "sticky 2"
        p> PUBLISH "u" qos=0 "in turn 1"
        b< PUBLISH "u" qos=0 "in turn 1"
        p> PUBLISH "u" qos=0 "in turn 2"
        a< PUBLISH "u" qos=0 "in turn 2"
        "##
    }

    fn hash_client_gives_a_publisher_one_member_and_another_publisher_another() {
        r##"
        # sim only: the seed of the process decides
        # options: shared.strategy=hash_client
        # shards: 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/+" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/+" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        q> CONNECT id=q
        q< CONNACK present=0
        r> CONNECT id=r
        r< CONNACK present=0
        s> CONNECT id=s
        s< CONNACK present=0
        p> PUBLISH "1" qos=0 "p1"
        b< PUBLISH "1" qos=0 "p1"
        p> PUBLISH "2" qos=0 "p2"
        b< PUBLISH "2" qos=0 "p2"
        q> PUBLISH "1" qos=0 "q1"
        a< PUBLISH "1" qos=0 "q1"
        q> PUBLISH "2" qos=0 "q2"
        a< PUBLISH "2" qos=0 "q2"
        r> PUBLISH "1" qos=0 "r1"
        b< PUBLISH "1" qos=0 "r1"
        r> PUBLISH "2" qos=0 "r2"
        b< PUBLISH "2" qos=0 "r2"
        s> PUBLISH "1" qos=0 "s1"
        b< PUBLISH "1" qos=0 "s1"
        s> PUBLISH "2" qos=0 "s2"
        b< PUBLISH "2" qos=0 "s2"
        "##
    }

    fn hash_topic_gives_a_topic_one_member() {
        r##"
        # sim only: the seed of the process decides
        # options: shared.strategy=hash_topic
        # shards: 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/+" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/+" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        q> CONNECT id=q
        q< CONNACK present=0
        p> PUBLISH "1" qos=0 "p1"
        a< PUBLISH "1" qos=0 "p1"
        q> PUBLISH "1" qos=0 "q1"
        a< PUBLISH "1" qos=0 "q1"
        p> PUBLISH "2" qos=0 "p2"
        a< PUBLISH "2" qos=0 "p2"
        q> PUBLISH "2" qos=0 "q2"
        a< PUBLISH "2" qos=0 "q2"
        p> PUBLISH "3" qos=0 "p3"
        a< PUBLISH "3" qos=0 "p3"
        q> PUBLISH "3" qos=0 "q3"
        a< PUBLISH "3" qos=0 "q3"
        p> PUBLISH "4" qos=0 "p4"
        b< PUBLISH "4" qos=0 "p4"
        q> PUBLISH "4" qos=0 "q4"
        b< PUBLISH "4" qos=0 "q4"
        "##
    }

    fn random_spreads() {
        r##"
        # sim only: the seed of the process decides
        # options: shared.strategy=random
        # shards: 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        b< PUBLISH "t" qos=0 "1"
        p> PUBLISH "t" qos=0 "2"
        b< PUBLISH "t" qos=0 "2"
        p> PUBLISH "t" qos=0 "3"
        b< PUBLISH "t" qos=0 "3"
        p> PUBLISH "t" qos=0 "4"
        b< PUBLISH "t" qos=0 "4"
        p> PUBLISH "t" qos=0 "5"
        a< PUBLISH "t" qos=0 "5"
        p> PUBLISH "t" qos=0 "6"
        a< PUBLISH "t" qos=0 "6"
        "##
    }

    fn qos_0_waits_for_nobody_who_is_away_even_if_its_window_was_full() {
        r##"
        a> CONNECT id=a expiry=60 receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        a! cut
        p> PUBLISH "t" qos=0 "2"
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        a> PUBACK 1
        "##
    }

    fn a_member_s_own_subscription_may_fill_its_window() {
        r##"
        # options: shared.strategy=sticky
        # shards: 1
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1 subscription_id=1
        a< SUBACK 1 [1]
        a> SUBSCRIBE 2 "t" qos=1
        a< SUBACK 2 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "x"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x"
        a> PUBACK 1
        a< PUBLISH 2 "t" qos=1 "x" subscription_id=1
        a> PUBACK 2
        "##
    }

    fn retained_messages_reach_a_group_as_they_are_published() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1 retain_as_published
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "x"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 retain "x"
        "##
    }

    fn subscribing_and_publishing_in_one_breath() {
        r##"
        a> CONNECT id=a &
        a> SUBSCRIBE 1 "$share/g/t" qos=1 "$share/h/t" qos=1 "t" qos=1 &
        a> PUBLISH "t" qos=0 "x"
        a< CONNACK present=0
        a< SUBACK 1 [1 1 1]
        a< PUBLISH "t" qos=0 "x"
        a< PUBLISH "t" qos=0 "x"
        a< PUBLISH "t" qos=0 "x"
        "##
    }

    fn what_a_member_was_given_and_not_sent_goes_to_another_when_it_leaves() {
        r##"
        a> CONNECT id=a expiry=60 receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1" &
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 1
        p< PUBACK 2
        a< PUBLISH 1 "t" qos=1 "1"
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/t" qos=1
        b< SUBACK 1 [1]
        b< PUBLISH 1 "t" qos=1 "2"
        a> CONNECT id=a expiry=60 clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "1"
        "##
    }
}
