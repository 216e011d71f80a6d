//! Sessions: persistence, resumption, takeover, and expiry.

crate::transcripts! {
    // [MQTT-4.4.0-1] [MQTT-3.3.1-1] [3.1.1:MQTT-4.4.0-1]
    fn unacknowledged_publish_returns_with_dup_and_the_same_id() {
        r##"
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 9 "t" qos=1 "hello"
        b< PUBACK 9
        a< PUBLISH 1 "t" qos=1 "hello"
        a! cut
        +  5s
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "hello"
        "##
    }

    // [MQTT-3.1.2-5] [MQTT-3.1.2-23] [MQTT-3.2.0-1] [MQTT-3.2.2-3] [MQTT-4.1.0-1]
    fn a_session_with_expiry_survives_its_connection() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a> DISCONNECT
        a< CLOSED
        + 59s
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "t" qos=1 "while away"
        b< PUBACK 1
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "while away"
        "##
    }

    // [MQTT-4.1.0-1] [3.1.1:MQTT-4.1.0-2]
    fn a_session_does_not_expire_while_its_client_is_there() {
        r##"
        # options: session.expiry_s_default=10
        a> CONNECT id=a expiry=10
        a< CONNACK present=0
        b> CONNECT id=b v=311 clean=0
        b< CONNACK present=0
        a! cut
        b! cut
        + 5s
        a> CONNECT id=a clean=0 expiry=10
        a< CONNACK present=1
        b> CONNECT id=b v=311 clean=0
        b< CONNACK present=1
        + 20s
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> PUBLISH 1 "t" qos=1 "x"
        b< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x"
        "##
    }

    // [MQTT-4.1.0-2] [MQTT-3.2.2-3]
    fn a_session_ends_with_its_expiry() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        + 61s
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "t" qos=1 "x"
        b< PUBACK 1 NoMatchingSubscribers
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        "##
    }

    fn a_session_without_expiry_ends_with_its_connection() {
        r##"
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        "##
    }

    fn expiry_of_all_ones_never_comes() {
        r##"
        a> CONNECT id=a expiry=4294967295
        a< CONNACK present=0
        a! cut
        + 1000000s
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        "##
    }

    // [MQTT-3.1.2-4] [MQTT-3.2.2-2] [MQTT-3.1.4-4]
    fn clean_start_drops_the_old_session() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        a> CONNECT id=a clean=1 expiry=60
        a< CONNACK present=0
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBACK 1 NoMatchingSubscribers
        "##
    }

    // [3.1.1:MQTT-3.1.2-4] [3.1.1:MQTT-3.1.2-5] [3.1.1:MQTT-3.1.2-6] [3.1.1:MQTT-3.2.2-1]
    // [3.1.1:MQTT-3.2.2-2] [3.1.1:MQTT-3.2.2-3]
    fn a_3_1_1_session_is_kept_unless_clean() {
        r##"
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a> DISCONNECT
        a< CLOSED
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "t" qos=1 "kept"
        b< PUBACK 1
        b> PUBLISH "t" qos=0 "not kept"
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "kept"
        a> PUBACK 1
        a> DISCONNECT
        a< CLOSED
        a> CONNECT id=a v=311 clean=1
        a< CONNACK present=0
        a> DISCONNECT
        a< CLOSED
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=0
        "##
    }

    fn a_3_1_client_is_not_told_that_its_session_is_present() {
        r##"
        a> CONNECT id=a v=31 clean=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "t" qos=1 "kept"
        b< PUBACK 1
        a> CONNECT id=a v=31 clean=0
        a< CONNACK present=0
        a< PUBLISH 1 "t" qos=1 "kept"
        "##
    }

    fn a_3_x_session_expires_by_option() {
        r##"
        # options: session.expiry_s_default=30
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=0
        a! cut
        + 29s
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=1
        a! cut
        + 31s
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=0
        "##
    }

    fn the_server_may_shorten_the_session_expiry() {
        r##"
        # options: session.expiry_s_max=20
        a> CONNECT id=a expiry=60
        a< CONNACK present=0 expiry=20
        b> CONNECT id=b expiry=10
        b< CONNACK present=0
        c> CONNECT id=c
        c< CONNACK present=0
        a! cut
        + 21s
        a> CONNECT id=a clean=0 expiry=20
        a< CONNACK present=0
        "##
    }

    fn disconnect_may_change_the_expiry() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> DISCONNECT expiry=10
        a< CLOSED
        + 11s
        a> CONNECT id=a clean=0 expiry=10
        a< CONNACK present=0
        a> DISCONNECT expiry=100
        a< CLOSED
        + 90s
        a> CONNECT id=a clean=0 expiry=10
        a< CONNACK present=1
        a> DISCONNECT expiry=0
        a< CLOSED
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        "##
    }

    fn an_expiry_of_0_cannot_be_raised_at_the_end() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> DISCONNECT expiry=10
        a< DISCONNECT ProtocolError reason_string="raised a session expiry of 0 in DISCONNECT"
        a< CLOSED
        b> CONNECT id=b expiry=0
        b< CONNACK present=0
        b> DISCONNECT expiry=0
        b< CLOSED
        "##
    }

    // [MQTT-3.1.4-3] [MQTT-3.1.3-2] [MQTT-3.14.2-2] [3.1.1:MQTT-3.1.4-2]
    fn the_same_client_id_takes_over() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=a clean=0 expiry=60
        b< CONNACK present=1
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> PUBLISH 1 "t" qos=1 "to b"
        b< PUBLISH 1 "t" qos=1 "to b"
        b< PUBACK 1
        c> CONNECT id=a v=311 clean=0
        c< CONNACK present=1
        c< PUBLISH 1 "t" qos=1 dup "to b"
        b< DISCONNECT SessionTakenOver
        b< CLOSED
        d> CONNECT id=a v=311 clean=0
        d< CONNACK present=1
        d< PUBLISH 1 "t" qos=1 dup "to b"
        c< CLOSED
        e> CONNECT id=a clean=1
        e< CONNACK present=0
        d< CLOSED
        "##
    }

    fn a_takeover_of_a_session_without_expiry_finds_nothing() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=a clean=0
        b< CONNACK present=0
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> PUBLISH 1 "t" qos=1 "x"
        b< PUBACK 1 NoMatchingSubscribers
        "##
    }

    // [MQTT-4.4.0-1]
    fn a_takeover_resends_what_the_old_connection_left_unanswered() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "one"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "one"
        p> PUBLISH 2 "t" qos=2 "two"
        p< PUBREC 2
        a< PUBLISH 2 "t" qos=2 "two"
        a> PUBREC 2
        a< PUBREL 2
        b> CONNECT id=a clean=0 expiry=60
        b< CONNACK present=1
        b< PUBLISH 1 "t" qos=1 dup "one"
        b< PUBREL 2
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> PUBACK 1
        b> PUBCOMP 2
        "##
    }

    // [MQTT-4.4.0-1] [MQTT-4.6.0-5] [MQTT-4.3.3-6] [3.1.1:MQTT-4.6.0-6]
    fn everything_comes_back_in_order() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/1" qos=1 "one"
        p< PUBACK 1
        a< PUBLISH 1 "t/1" qos=1 "one"
        p> PUBLISH 2 "t/2" qos=2 "two"
        p< PUBREC 2
        a< PUBLISH 2 "t/2" qos=2 "two"
        p> PUBLISH 3 "t/3" qos=1 "three"
        p< PUBACK 3
        a< PUBLISH 3 "t/3" qos=1 "three"
        p> PUBLISH 4 "t/4" qos=2 "four"
        p< PUBREC 4
        a< PUBLISH 4 "t/4" qos=2 "four"
        a> PUBREC 2
        a< PUBREL 2
        a> PUBACK 3
        a! cut
        p> PUBLISH 5 "t/5" qos=1 "five"
        p< PUBACK 5
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t/1" qos=1 dup "one"
        a< PUBREL 2
        a< PUBLISH 4 "t/4" qos=2 dup "four"
        a< PUBLISH 5 "t/5" qos=1 "five"
        a> PUBACK 1
        a> PUBCOMP 2
        a> PUBREC 4
        a< PUBREL 4
        a> PUBCOMP 4
        a> PUBACK 5
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        "##
    }

    // [MQTT-4.1.0-1]
    fn subscriptions_of_a_resumed_session_go_on() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "x" qos=1 "y" qos=0 subscription_id=5
        a< SUBACK 1 [1 0]
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a> PUBLISH 1 "x" qos=1 "1"
        a< PUBLISH 1 "x" qos=1 "1" subscription_id=5
        a< PUBACK 1
        a> PUBACK 1
        a> PUBLISH "y" qos=0 "2"
        a< PUBLISH "y" qos=0 "2" subscription_id=5
        "##
    }

    // [MQTT-3.3.4-9]
    fn a_backlog_flows_as_fast_as_the_window_allows() {
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
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH 3 "t" qos=1 "3"
        p< PUBACK 3
        p> PUBLISH 4 "t" qos=1 "4"
        p< PUBACK 4
        p> PUBLISH 5 "t" qos=1 "5"
        p< PUBACK 5
        a> CONNECT id=a clean=0 expiry=60 receive_maximum=2
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 1
        a< PUBLISH 3 "t" qos=1 "3"
        a> PUBACK 2 &
        a> PUBACK 3
        a< PUBLISH 4 "t" qos=1 "4"
        a< PUBLISH 5 "t" qos=1 "5"
        a> PUBACK 4
        a> PUBACK 5
        "##
    }

    fn a_session_may_go_on_in_another_version() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 subscription_id=9
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "x" user="a":"b"
        p< PUBACK 1
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "x"
        a! cut
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "x" subscription_id=9 user="a":"b"
        "##
    }

    fn unknown_sessions_are_not_present_and_no_state_is_assumed() {
        r##"
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=0
        a> PUBACK 1
        a> PUBREC 1
        a< PUBREL 1 PacketIdentifierNotFound
        a> PUBREL 1
        a< PUBCOMP 1 PacketIdentifierNotFound
        a> PUBCOMP 1
        "##
    }

    fn a_session_with_an_assigned_id_is_like_any_other() {
        r##"
        a> CONNECT id="" expiry=60
        a< CONNACK present=0 assigned_id=*
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "x"
        a< PUBLISH 1 "t" qos=1 "x"
        a< PUBACK 1
        a> DISCONNECT expiry=0
        a< CLOSED
        "##
    }

    fn what_connect_asked_for_decides_whether_disconnect_raises_the_expiry() {
        r##"
        # options: session.expiry_s_max=0
        a> CONNECT id=a expiry=60
        a< CONNACK present=0 expiry=0
        a> DISCONNECT expiry=10
        a< CLOSED
        b> CONNECT id=b expiry=0
        b< CONNACK present=0
        b> DISCONNECT expiry=10
        b< DISCONNECT ProtocolError reason_string="raised a session expiry of 0 in DISCONNECT"
        b< CLOSED
        "##
    }
}
