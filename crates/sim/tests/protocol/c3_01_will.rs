//! Will messages, which are published when a client disconnects without DISCONNECT.

crate::transcripts! {
    // [MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-14] [3.1.1:MQTT-3.1.2-8] [3.1.1:MQTT-3.1.2-16]
    fn a_cut_publishes_the_will() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=2 retain_as_published
        b< SUBACK 1 [2]
        a> CONNECT id=a will="last/words" will_payload="gone"
        a< CONNACK present=0
        a! cut
        b< PUBLISH "last/words" qos=0 "gone"
        c> CONNECT id=c v=311 will="last/words" will_payload="gone" will_qos=1
        c< CONNACK present=0
        c! cut
        b< PUBLISH 1 "last/words" qos=1 "gone"
        "##
    }

    fn a_will_without_payload_is_published_too() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=2
        b< SUBACK 1 [2]
        a> CONNECT id=a will="w" will_qos=2
        a< CONNACK present=0
        a! cut
        b< PUBLISH 1 "w" qos=2 ""
        "##
    }

    // [MQTT-3.1.2-15] [3.1.1:MQTT-3.1.2-17]
    fn a_retained_will_is_retained() {
        r##"
        a> CONNECT id=a will="w" will_payload="gone" will_retain will_qos=1
        a< CONNACK present=0
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=1
        b< SUBACK 1 [1]
        b< PUBLISH 1 "w" qos=1 retain "gone"
        "##
    }

    // [MQTT-3.14.4-3] [MQTT-3.1.2-10] [3.1.1:MQTT-3.14.4-3] [3.1.1:MQTT-3.1.2-10]
    fn a_normal_disconnect_takes_the_will_back() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a will="w" will_payload="gone"
        a< CONNACK present=0
        a> DISCONNECT
        a< CLOSED
        c> CONNECT id=c v=311 will="w" will_payload="gone"
        c< CONNACK present=0
        c> DISCONNECT
        c< CLOSED
        "##
    }

    fn any_other_disconnect_publishes_it() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a will="w" will_payload="gone"
        a< CONNACK present=0
        a> DISCONNECT DisconnectWithWillMessage
        a< CLOSED
        b< PUBLISH "w" qos=0 "gone"
        c> CONNECT id=c will="w" will_payload="failed"
        c< CONNACK present=0
        c> DISCONNECT UnspecifiedError
        c< CLOSED
        b< PUBLISH "w" qos=0 "failed"
        "##
    }

    fn a_protocol_error_publishes_it() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a will="w" will_payload="gone"
        a< CONNACK present=0
        a> CONNECT id=a
        a< DISCONNECT ProtocolError reason_string="sent a second CONNECT"
        a< CLOSED
        b< PUBLISH "w" qos=0 "gone"
        "##
    }

    fn a_keep_alive_timeout_publishes_it() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a keep_alive=2 will="w" will_payload="gone"
        a< CONNACK present=0
        + 3100ms
        b< PUBLISH "w" qos=0 "gone"
        a< DISCONNECT KeepAliveTimeout \
            reason_string="was silent for longer than its keep alive"
        a< CLOSED
        "##
    }

    fn a_takeover_publishes_it() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a will="w" will_payload="gone"
        a< CONNACK present=0
        c> CONNECT id=a
        c< CONNACK present=0
        b< PUBLISH "w" qos=0 "gone"
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-8]
    fn a_delayed_will_waits() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a expiry=60 will="w" will_payload="gone" will_delay=10
        a< CONNACK present=0
        a! cut
        + 9900ms
        + 200ms
        b< PUBLISH "w" qos=0 "gone"
        "##
    }

    // [MQTT-3.1.3-9]
    fn a_delayed_will_is_forgotten_on_resume() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a expiry=60 will="w" will_payload="gone" will_delay=10
        a< CONNACK present=0
        a! cut
        + 5s
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a> DISCONNECT
        a< CLOSED
        + 20s
        "##
    }

    // [MQTT-3.1.3-9]
    fn a_new_will_does_not_inherit_the_former_s_delay() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a expiry=60 will="w" will_payload="old" will_delay=10
        a< CONNACK present=0
        a! cut
        + 5s
        a> CONNECT id=a clean=0 expiry=60 will="w" will_payload="new" will_delay=10
        a< CONNACK present=1
        + 20s
        a> PINGREQ
        a< PINGRESP
        "##
    }

    // [MQTT-3.1.3-9]
    fn a_takeover_within_the_delay_forgets_the_will() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a expiry=60 will="w" will_payload="gone" will_delay=10
        a< CONNACK present=0
        c> CONNECT id=a clean=0 expiry=60
        c< CONNACK present=1
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        + 20s
        "##
    }

    // [3.1.1:MQTT-3.1.2-12]
    fn a_connect_without_a_will_leaves_none_of_a_former_one() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a v=311 clean=0 will="w" will_payload="gone"
        a< CONNACK present=0
        a! cut
        b< PUBLISH "w" qos=0 "gone"
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=1
        a! cut
        c> CONNECT id=c expiry=60 will="w" will_payload="gone" will_delay=10
        c< CONNACK present=0
        d> CONNECT id=c v=311 clean=0
        d< CONNACK present=1
        c< DISCONNECT SessionTakenOver
        c< CLOSED
        d! cut
        + 20s
        "##
    }

    fn a_new_will_replaces_the_old() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a expiry=60 will="w" will_payload="old" will_delay=10
        a< CONNACK present=0
        a! cut
        a> CONNECT id=a clean=0 expiry=60 will="w" will_payload="new" will_delay=20
        a< CONNACK present=1
        a! cut
        + 15s
        + 6s
        b< PUBLISH "w" qos=0 "new"
        "##
    }

    // [MQTT-3.1.2-8]
    fn a_delayed_will_comes_with_the_end_of_its_session() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a expiry=5 will="w" will_payload="expired" will_delay=10
        a< CONNACK present=0
        a! cut
        + 4s
        + 1100ms
        b< PUBLISH "w" qos=0 "expired"
        c> CONNECT id=c will="w" will_payload="at once" will_delay=10
        c< CONNACK present=0
        c! cut
        b< PUBLISH "w" qos=0 "at once"
        d> CONNECT id=d expiry=60 will="w" will_payload="cleaned" will_delay=10
        d< CONNACK present=0
        d! cut
        d> CONNECT id=d clean=1
        d< CONNACK present=0
        b< PUBLISH "w" qos=0 "cleaned"
        "##
    }

    // [MQTT-3.1.3-10] [MQTT-3.3.2-18]
    fn a_will_carries_its_properties_in_order() {
        r##"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a will="w" will_payload="x" will_payload_format=1 \
            will_content_type=text/plain will_response_topic=re will_correlation="id" \
            will_user="b":"1" will_user="a":"2" will_user="b":"3" will_expiry=100
        a< CONNACK present=0
        a! cut
        b< PUBLISH "w" qos=0 "x" expiry=100 payload_format=1 content_type=text/plain \
            response_topic=re correlation="id" user="b":"1" user="a":"2" user="b":"3"
        "##
    }

    fn a_will_expires_from_when_it_is_published() {
        r##"
        b> CONNECT id=b expiry=100
        b< CONNACK present=0
        b> SUBSCRIBE 1 "w" qos=1
        b< SUBACK 1 [1]
        b! cut
        a> CONNECT id=a expiry=60 will="w" will_payload="x" will_qos=1 will_delay=10 \
            will_expiry=30
        a< CONNACK present=0
        a! cut
        + 12s
        + 18s
        b> CONNECT id=b clean=0 expiry=100
        b< CONNACK present=1
        b< PUBLISH 1 "w" qos=1 "x" expiry=10
        "##
    }

    fn a_client_gets_its_own_will_when_it_is_back() {
        r##"
        a> CONNECT id=a expiry=60 will="w" will_payload="x" will_qos=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "w" qos=1
        a< SUBACK 1 [1]
        a! cut
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "w" qos=1 "x"
        "##
    }
}
