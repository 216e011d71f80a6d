//! Automatic subscriptions (`[[auto_subscribe]]`), which clients have without a SUBSCRIBE.

crate::transcripts! {
    fn a_client_is_subscribed_as_it_connects() {
        r##"
        # auto: to/%c/# qos=1
        # auto: all qos=0
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b v=311
        b< CONNACK present=0
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "to/a/x" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "to/a/x" qos=1 "1"
        p> PUBLISH 2 "to/b/x" qos=1 "2"
        p< PUBACK 2
        b< PUBLISH 1 "to/b/x" qos=1 "2"
        p> PUBLISH "all" qos=0 "3"
        p< PUBLISH "all" qos=0 "3"
        a< PUBLISH "all" qos=0 "3"
        b< PUBLISH "all" qos=0 "3"
        a> PUBLISH "all" qos=0 "4"
        a< PUBLISH "all" qos=0 "4"
        b< PUBLISH "all" qos=0 "4"
        p< PUBLISH "all" qos=0 "4"
        "##
    }

    fn its_options_are_those_of_a_subscription() {
        r##"
        # auto: t qos=0 no_local retain_as_published
        # auto: u qos=0 retain_handling=2
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        p> PUBLISH "u" qos=0 retain "2"
        p< PUBLISH "u" qos=0 "2"
        a> CONNECT id=a
        a< CONNACK present=0
        a< PUBLISH "t" qos=0 retain "1"
        p> PUBLISH "t" qos=0 retain "3"
        a< PUBLISH "t" qos=0 retain "3"
        "##
    }

    fn a_session_that_comes_back_keeps_what_it_has() {
        r##"
        # auto: t qos=0 retain_handling=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        p< PUBLISH "t" qos=0 "1"
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a< PUBLISH "t" qos=0 retain "1"
        a> SUBSCRIBE 1 "t" qos=1 retain_handling=2 subscription_id=7
        a< SUBACK 1 [1]
        a! cut
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        p> PUBLISH 1 "t" qos=1 "2"
        p< PUBLISH "t" qos=0 "2"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "2" subscription_id=7
        a> UNSUBSCRIBE 2 "t"
        a< UNSUBACK 2 [0]
        p> PUBLISH "t" qos=0 "3"
        p< PUBLISH "t" qos=0 "3"
        "##
    }

    fn permissions_go_for_it() {
        r##"
        # rules: allow topic=open/#
        # auto: open/t
        # auto: shut/t
        # auto: for/%u
        a> CONNECT id=a
        a< CONNACK present=0
        a> UNSUBSCRIBE 1 "open/t" "shut/t" "for/x"
        a< UNSUBACK 1 [0 0x11 0x11]
        "##
    }

    fn whoever_has_no_such_name_has_no_such_subscription() {
        r##"
        # user: ann password=x
        # auto: for/%u/%c
        # auto: at/%h
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> UNSUBSCRIBE 1 "for/ann/a" "at/127.0.0.1"
        a< UNSUBACK 1 [0 0]
        b> CONNECT id=# user_name=ann password=x
        b< CONNACK present=0
        b> UNSUBSCRIBE 1 "for/ann/#"
        b< UNSUBACK 1 [0x11]
        "##
    }

    fn it_may_be_shared() {
        r##"
        # auto: $share/g/t qos=0
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b
        b< CONNACK present=0
        a> PUBLISH "t" qos=0 "1"
        b< PUBLISH "t" qos=0 "1"
        a> PUBLISH "t" qos=0 "2"
        a< PUBLISH "t" qos=0 "2"
        "##
    }

    fn it_outlives_the_process_with_its_session() {
        r##"
        # disk: on
        # auto: t qos=1
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a! cut
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a> PINGREQ
        a< PINGRESP
        ! power
        a< CLOSED
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    // [MQTT-3.2.0-1]: retained messages come behind the CONNACK that waits for the disk.
    fn nothing_comes_before_the_connack() {
        r##"
        # disk: on
        # auto: t qos=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        p< PUBLISH "t" qos=0 "1"
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a< PUBLISH "t" qos=0 retain "1"
        ! disk holds
        a> DISCONNECT expiry=0
        a< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        p> PUBLISH "t" qos=0 "2"
        p< PUBLISH "t" qos=0 "2"
        ! disk syncs
        a< CONNACK present=0
        a< PUBLISH "t" qos=0 retain "1"
        "##
    }
}
