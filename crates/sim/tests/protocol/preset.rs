//! Preset sessions (`[[preset]]`), which exist before their clients connect for the first time.

crate::transcripts! {
    fn messages_wait_for_a_client_that_was_never_here() {
        r##"
        # preset: a t/# u qos=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t/1" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "u" qos=1 "2"
        p< PUBACK 2
        p> PUBLISH 3 "v" qos=1 "3"
        p< PUBACK 3 NoMatchingSubscribers
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t/1" qos=1 "1"
        a< PUBLISH 2 "u" qos=1 "2"
        a> PUBACK 1
        a> PUBACK 2
        p> PUBLISH 4 "u" qos=1 "4"
        p< PUBACK 4
        a< PUBLISH 3 "u" qos=1 "4"
        "##
    }

    fn a_client_of_3_1_1_finds_it_too() {
        r##"
        # preset: a t
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=2 "1"
        p< PUBREC 1
        p> PUBREL 1
        p< PUBCOMP 1
        a> CONNECT id=a v=311 clean=0
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=2 "1"
        "##
    }

    fn a_clean_start_begins_anew() {
        r##"
        # preset: a t
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a> CONNECT id=a
        a< CONNACK present=0
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2 NoMatchingSubscribers
        "##
    }

    fn it_waits_as_long_as_it_says() {
        r##"
        # preset: a t expiry=60
        p> CONNECT id=p
        p< CONNACK present=0
        + 59s
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        + 2s
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2 NoMatchingSubscribers
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=0
        "##
    }

    fn it_is_its_users() {
        r##"
        # user: ann password=x
        # user: bob password=x
        # preset: a t user=ann
        # preset: b t user=ann
        p> CONNECT id=p user_name=ann password=x
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a> CONNECT id=a clean=0 expiry=60 user_name=bob password=x
        a< CONNACK present=0
        b> CONNECT id=b clean=0 expiry=60 user_name=ann password=x
        b< CONNACK present=1
        b< PUBLISH 1 "t" qos=1 "1"
        "##
    }

    fn permissions_are_looked_at_when_its_client_comes() {
        r##"
        # rules: allow topic=open/#
        # preset: a open/t shut/t qos=1
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a> UNSUBSCRIBE 1 "open/t" "shut/t"
        a< UNSUBACK 1 [0 0x11]
        "##
    }

    fn what_waits_in_it_outlives_the_process_and_it_is_not_made_again() {
        r##"
        # disk: on
        # preset: a t u qos=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        ! power
        p< CLOSED
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a> PUBACK 1
        a> UNSUBSCRIBE 1 "u"
        a< UNSUBACK 1 [0]
        ! power
        a< CLOSED
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "2"
        p< PUBACK 1
        p> PUBLISH 2 "u" qos=1 "3"
        p< PUBACK 2 NoMatchingSubscribers
        ! reload queue.qos0=true
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 2 "t" qos=1 "2"
        "##
    }
}
