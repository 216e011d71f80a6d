//! Exclusive subscriptions, which only one session may hold.

crate::transcripts! {
    fn the_first_has_it_and_others_have_not() {
        r##"
        # options: subscription.exclusive_available=true
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1 "plain" qos=0
        a< SUBACK 1 [1 0]
        b> CONNECT id=b request_problem=0
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$exclusive/t" qos=1 "$exclusive/u" qos=2 "t" qos=0
        b< SUBACK 1 [0x97 2 0]
        c> CONNECT id=c v=311
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$exclusive/t" qos=1
        c< SUBACK 1 [0x80]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        b< PUBLISH "t" qos=0 "1"
        "##
    }

    fn it_is_free_again_when_it_is_given_up() {
        r##"
        # options: subscription.exclusive_available=true
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1
        a< SUBACK 1 [1]
        a> SUBSCRIBE 2 "$exclusive/t" qos=0
        a< SUBACK 2 [0]
        a> UNSUBSCRIBE 3 "$exclusive/t"
        a< UNSUBACK 3 [0]
        b> CONNECT id=b request_problem=0
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$exclusive/t" qos=1
        b< SUBACK 1 [1]
        a> SUBSCRIBE 4 "$exclusive/t" qos=1
        a< SUBACK 4 [0x97] reason_string="another client has this exclusive subscription"
        b> UNSUBSCRIBE 2 "t"
        b< UNSUBACK 2 [0]
        a> SUBSCRIBE 5 "$exclusive/t" qos=1
        a< SUBACK 5 [1]
        "##
    }

    fn it_is_the_sessions_and_not_the_connections() {
        r##"
        # options: subscription.exclusive_available=true
        a> CONNECT id=a expiry=10
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1
        a< SUBACK 1 [1]
        a! cut
        b> CONNECT id=b request_problem=0
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$exclusive/t" qos=1
        b< SUBACK 1 [0x97]
        a> CONNECT id=a clean=0 expiry=10
        a< CONNACK present=1
        b> SUBSCRIBE 2 "$exclusive/t" qos=1
        b< SUBACK 2 [0x97]
        a! cut
        + 11s
        b> SUBSCRIBE 3 "$exclusive/t" qos=1
        b< SUBACK 3 [1]
        b! cut
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$exclusive/t" qos=1
        c< SUBACK 1 [1]
        "##
    }

    fn retained_messages_come_behind_the_suback() {
        r##"
        # options: subscription.exclusive_available=true
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 retain "1"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t/#" qos=1 subscription_id=7
        a< SUBACK 1 [1]
        a< PUBLISH "t/1" qos=0 retain "1" subscription_id=7
        "##
    }

    fn the_same_twice_in_one_packet_is_one() {
        r##"
        # options: subscription.exclusive_available=true
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1 "$share/g/t" qos=0 "$exclusive/t" qos=2
        a< SUBACK 1 [1 0 2]
        a> UNSUBSCRIBE 2 "$exclusive/t" "$exclusive/t"
        a< UNSUBACK 2 [0 0x11]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$exclusive/t" qos=1
        b< SUBACK 1 [1]
        "##
    }

    fn without_the_option_there_are_none() {
        r##"
        a> CONNECT id=a request_problem=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1
        a< SUBACK 1 [0x8f]
        "##
    }

    fn what_is_no_filter_is_none_alone_either() {
        r##"
        # options: subscription.exclusive_available=true
        a> CONNECT id=a request_problem=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/" qos=1 "$exclusive/$share/g/t" qos=0 \
            "$exclusive/$exclusive/t" qos=0
        a< SUBACK 1 [0x8f 0x8f 0x8f]
        "##
    }

    fn permissions_go_for_the_filter() {
        r##"
        # options: subscription.exclusive_available=true
        # rules: allow topic=open/#
        a> CONNECT id=a request_problem=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/open/t" qos=1 "$exclusive/shut/t" qos=1
        a< SUBACK 1 [1 0x87]
        ! rules deny topic=open/t
        b> CONNECT id=b
        b< CONNACK present=0
        ! rules allow topic=open/#
        b> SUBSCRIBE 1 "$exclusive/open/t" qos=1
        b< SUBACK 1 [1]
        "##
    }

    fn in_another_namespace_it_is_another() {
        r##"
        # options: subscription.exclusive_available=true
        # user: ann password=x namespace=one
        # user: bob password=x namespace=two
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b user_name=bob password=x
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$exclusive/t" qos=1
        b< SUBACK 1 [1]
        c> CONNECT id=c user_name=bob password=x request_problem=0
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$exclusive/t" qos=1
        c< SUBACK 1 [0x97]
        "##
    }

    fn it_outlives_the_process() {
        r##"
        # options: subscription.exclusive_available=true
        # disk: on
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$exclusive/t" qos=1 "$exclusive/u" qos=1
        a< SUBACK 1 [1 1]
        a> UNSUBSCRIBE 2 "$exclusive/u"
        a< UNSUBACK 2 [0]
        ! power
        a< CLOSED
        b> CONNECT id=b request_problem=0
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$exclusive/t" qos=1 "$exclusive/u" qos=1
        b< SUBACK 1 [0x97 1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a> CONNECT id=a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 "1"
        a> DISCONNECT expiry=0
        a< CLOSED
        b> SUBSCRIBE 2 "$exclusive/t" qos=1
        b< SUBACK 2 [1]
        "##
    }
}
