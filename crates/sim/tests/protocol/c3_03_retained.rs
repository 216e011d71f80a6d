//! Retained messages: set, replaced, cleared and expired, and their delivery to new subscriptions.

crate::transcripts! {
    // [MQTT-3.3.1-5] [MQTT-3.3.1-9] [3.1.1:MQTT-3.3.1-5] [3.1.1:MQTT-3.3.1-6]
    // [3.1.1:MQTT-3.3.1-8]
    fn a_retained_message_waits_for_subscribers() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "kept"
        p< PUBACK 1 NoMatchingSubscribers
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a< PUBLISH 1 "t" qos=1 retain "kept"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=0
        b< SUBACK 1 [0]
        b< PUBLISH "t" qos=0 retain "kept"
        c> CONNECT id=c v=31
        c< CONNACK present=0
        c> SUBSCRIBE 1 "+" qos=1
        c< SUBACK 1 [1]
        c< PUBLISH 1 "t" qos=1 retain "kept"
        "##
    }

    // [MQTT-3.3.1-12] [3.1.1:MQTT-3.3.1-9]
    fn subscribers_that_are_there_get_it_as_an_ordinary_message() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "x"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "x"
        "##
    }

    // [MQTT-3.3.1-13]
    fn retain_as_published_keeps_the_flag() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 retain_as_published
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "x"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 retain "x"
        p> PUBLISH 2 "t" qos=1 "y"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "y"
        a> PUBLISH "t" qos=0 retain ""
        a< PUBLISH "t" qos=0 retain ""
        "##
    }

    // [MQTT-3.3.1-5] [3.1.1:MQTT-3.3.1-7]
    fn the_latest_replaces_the_former() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH "t" qos=0 retain "2"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a< PUBLISH "t" qos=0 retain "2"
        "##
    }

    // [MQTT-3.3.1-8] [3.1.1:MQTT-3.3.1-12]
    fn retain_flag_zero_keeps_the_retained_message() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        p> PUBLISH "t" qos=0 "2"
        p> PUBLISH "t" qos=0 ""
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a< PUBLISH "t" qos=0 retain "1"
        "##
    }

    // [MQTT-3.3.1-6] [MQTT-3.3.1-7] [3.1.1:MQTT-3.3.1-10] [3.1.1:MQTT-3.3.1-11]
    fn an_empty_payload_clears() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=2
        a< SUBACK 1 [2]
        a< PUBLISH "t" qos=0 retain "1"
        p> PUBLISH "t" qos=0 retain ""
        a< PUBLISH "t" qos=0 ""
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=2
        b< SUBACK 1 [2]
        "##
    }

    // [3.1.1:MQTT-3.1.2-7]
    fn a_retained_message_survives_its_publisher_s_session() {
        r##"
        p> CONNECT id=p v=311
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        p> DISCONNECT
        p< CLOSED
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 retain "1"
        "##
    }

    // [MQTT-3.3.2-5] [MQTT-3.3.2-6]
    fn a_retained_message_expires() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1" expiry=10
        + 4s
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 retain "1" expiry=6
        + 6s
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0
        b< SUBACK 1 [0]
        "##
    }

    fn a_replacement_outlives_the_former_s_expiry() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1" expiry=10
        p> PUBLISH "t" qos=0 retain "2" expiry=100
        p> PUBLISH "u" qos=0 retain "1" expiry=10
        p> PUBLISH "u" qos=0 retain "2"
        + 50s
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "+" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 retain "2" expiry=50
        a< PUBLISH "u" qos=0 retain "2"
        "##
    }

    // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] [MQTT-3.8.4-4]
    fn retain_handling_says_when_they_are_sent() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "x"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0 retain_handling=0
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 retain "x"
        a> SUBSCRIBE 2 "t" qos=0 retain_handling=0
        a< SUBACK 2 [0]
        a< PUBLISH "t" qos=0 retain "x"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=0 retain_handling=1
        b< SUBACK 1 [0]
        b< PUBLISH "t" qos=0 retain "x"
        b> SUBSCRIBE 2 "t" qos=1 retain_handling=1
        b< SUBACK 2 [1]
        b> UNSUBSCRIBE 3 "t"
        b< UNSUBACK 3 [0]
        b> SUBSCRIBE 4 "t" qos=0 retain_handling=1
        b< SUBACK 4 [0]
        b< PUBLISH "t" qos=0 retain "x"
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "t" qos=0 retain_handling=2
        c< SUBACK 1 [0]
        d> CONNECT id=d v=311
        d< CONNACK present=0
        d> SUBSCRIBE 1 "t" qos=0
        d< SUBACK 1 [0]
        d< PUBLISH "t" qos=0 retain "x"
        d> SUBSCRIBE 2 "t" qos=0
        d< SUBACK 2 [0]
        d< PUBLISH "t" qos=0 retain "x"
        "##
    }

    fn a_resumed_session_gets_retained_messages_only_when_it_subscribes() {
        r##"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "x"
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        "##
    }

    // [MQTT-4.7.2-1]
    fn wildcards_find_what_matches() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a" qos=0 retain "a"
        p> PUBLISH "a/b" qos=0 retain "a/b"
        p> PUBLISH "a/b/c" qos=0 retain "a/b/c"
        p> PUBLISH "a/d" qos=0 retain "a/d"
        p> PUBLISH "/" qos=0 retain "/"
        p> PUBLISH "$hidden/b" qos=0 retain "$hidden/b"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "/" qos=0 retain "/"
        a< PUBLISH "a" qos=0 retain "a"
        a< PUBLISH "a/b" qos=0 retain "a/b"
        a< PUBLISH "a/b/c" qos=0 retain "a/b/c"
        a< PUBLISH "a/d" qos=0 retain "a/d"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/#" qos=0
        b< SUBACK 1 [0]
        b< PUBLISH "a" qos=0 retain "a"
        b< PUBLISH "a/b" qos=0 retain "a/b"
        b< PUBLISH "a/b/c" qos=0 retain "a/b/c"
        b< PUBLISH "a/d" qos=0 retain "a/d"
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "a/+" qos=0
        c< SUBACK 1 [0]
        c< PUBLISH "a/b" qos=0 retain "a/b"
        c< PUBLISH "a/d" qos=0 retain "a/d"
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "+/b/#" qos=0
        d< SUBACK 1 [0]
        d< PUBLISH "a/b" qos=0 retain "a/b"
        d< PUBLISH "a/b/c" qos=0 retain "a/b/c"
        e> CONNECT id=e
        e< CONNACK present=0
        e> SUBSCRIBE 1 "$hidden/#" qos=0
        e< SUBACK 1 [0]
        e< PUBLISH "$hidden/b" qos=0 retain "$hidden/b"
        f> CONNECT id=f
        f< CONNACK present=0
        f> SUBSCRIBE 1 "+/+" qos=0
        f< SUBACK 1 [0]
        f< PUBLISH "/" qos=0 retain "/"
        f< PUBLISH "a/b" qos=0 retain "a/b"
        f< PUBLISH "a/d" qos=0 retain "a/d"
        "##
    }

    fn retained_messages_carry_their_properties_and_the_subscription_s_identifier() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 retain "x" content_type=a/b user="a":"1" user="a":"2"
        p< PUBACK 1 NoMatchingSubscribers
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1 subscription_id=7
        a< SUBACK 1 [1]
        a< PUBLISH 1 "t" qos=1 retain "x" subscription_id=7 content_type=a/b user="a":"1" \
            user="a":"2"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> SUBSCRIBE 1 "t" qos=1
        b< SUBACK 1 [1]
        b< PUBLISH 1 "t" qos=1 retain "x"
        "##
    }

    fn shared_subscriptions_get_no_retained_messages() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "x"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/t" qos=0
        a< SUBACK 1 [0]
        "##
    }

    // [MQTT-3.3.4-9] [MQTT-3.3.4-10]
    fn retained_messages_wait_for_the_window() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/1" qos=1 retain "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "t/2" qos=1 retain "2"
        p< PUBACK 2 NoMatchingSubscribers
        p> PUBLISH 3 "t/3" qos=1 retain "3"
        p< PUBACK 3 NoMatchingSubscribers
        p> PUBLISH 4 "t/4" qos=1 retain "4"
        p< PUBACK 4 NoMatchingSubscribers
        a> CONNECT id=a receive_maximum=2
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=1
        a< SUBACK 1 [1]
        a< PUBLISH 1 "t/1" qos=1 retain "1"
        a< PUBLISH 2 "t/2" qos=1 retain "2"
        a> PINGREQ
        a< PINGRESP
        a> PUBACK 1
        a< PUBLISH 3 "t/3" qos=1 retain "3"
        a> PUBACK 2
        a< PUBLISH 4 "t/4" qos=1 retain "4"
        a> PUBACK 3
        a> PUBACK 4
        "##
    }

    fn what_is_published_meanwhile_comes_too() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/1" qos=1 retain "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "t/3" qos=1 retain "3"
        p< PUBACK 2 NoMatchingSubscribers
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=1
        a< SUBACK 1 [1]
        a< PUBLISH 1 "t/1" qos=1 retain "1"
        p> PUBLISH 3 "t/2" qos=1 "live"
        p< PUBACK 3
        a> PUBACK 1
        a< PUBLISH 2 "t/2" qos=1 "live"
        a> PUBACK 2
        a< PUBLISH 3 "t/3" qos=1 retain "3"
        a> PUBACK 3
        "##
    }

    fn several_filters_of_one_subscribe_each_get_theirs() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a" qos=0 retain "a"
        p> PUBLISH "b" qos=0 retain "b"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "b" qos=0 "a" qos=0 "+" qos=0
        a< SUBACK 1 [0 0 0]
        a< PUBLISH "b" qos=0 retain "b"
        a< PUBLISH "a" qos=0 retain "a"
        a< PUBLISH "a" qos=0 retain "a"
        a< PUBLISH "b" qos=0 retain "b"
        "##
    }

    fn a_store_that_is_full_takes_no_new_topics() {
        r##"
        # options: retain.messages_max=2
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "1" qos=1 retain "x"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "2" qos=1 retain "x"
        p< PUBACK 2 NoMatchingSubscribers
        p> PUBLISH 3 "3" qos=1 retain "x"
        p< PUBACK 3 QuotaExceeded reason_string="no room: a limit of the server is reached"
        p> PUBLISH 4 "2" qos=1 retain "y"
        p< PUBACK 4 NoMatchingSubscribers
        p> PUBLISH 5 "1" qos=1 retain ""
        p< PUBACK 5 NoMatchingSubscribers
        p> PUBLISH 6 "3" qos=1 retain "z"
        p< PUBACK 6 NoMatchingSubscribers
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "2" qos=0 retain "y"
        a< PUBLISH "3" qos=0 retain "z"
        "##
    }

    fn cleared_topics_make_room() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a/b/c" qos=0 retain "x"
        p> PUBLISH "a/b/c" qos=0 retain ""
        + 20s
        p> PUBLISH "a/b" qos=0 retain "y"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/#" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "a/b" qos=0 retain "y"
        "##
    }

    fn the_later_publisher_wins_whoever_was_busier() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "p" &
        p> PUBLISH "t" qos=0 retain "p" &
        p> PUBLISH "t" qos=0 retain "p" &
        p> PUBLISH "t" qos=0 retain "p"
        q> CONNECT id=q
        q< CONNACK present=0
        q> PUBLISH "t" qos=0 retain "q"
        r> CONNECT id=r
        r< CONNACK present=0
        r> SUBSCRIBE 1 "t" qos=0
        r< SUBACK 1 [0]
        r< PUBLISH "t" qos=0 retain "q"
        p> PUBLISH "t" qos=0 retain ""
        r< PUBLISH "t" qos=0 ""
        q> PUBLISH "t" qos=0 retain "q again"
        r< PUBLISH "t" qos=0 "q again"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "t" qos=0
        s< SUBACK 1 [0]
        s< PUBLISH "t" qos=0 retain "q again"
        t> CONNECT id=t
        t< CONNACK present=0
        t> SUBSCRIBE 1 "t" qos=0
        t< SUBACK 1 [0]
        t< PUBLISH "t" qos=0 retain "q again"
        u> CONNECT id=u
        u< CONNACK present=0
        u> SUBSCRIBE 1 "t" qos=0
        u< SUBACK 1 [0]
        u< PUBLISH "t" qos=0 retain "q again"
        "##
    }

    fn unsubscribing_stops_what_is_on_its_way() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/1" qos=1 retain "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "t/2" qos=1 retain "2"
        p< PUBACK 2 NoMatchingSubscribers
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t/#" qos=1
        a< SUBACK 1 [1]
        a< PUBLISH 1 "t/1" qos=1 retain "1"
        a> UNSUBSCRIBE 2 "t/#"
        a< UNSUBACK 2 [0]
        a> PUBACK 1
        "##
    }
}
