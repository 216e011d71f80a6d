//! Rewriting of topics and filters (`[[rewrite]]`) in received packets.

crate::transcripts! {
    fn a_topic_gets_its_new_name_from_what_the_expression_found() {
        r##"
        # rewrite: publish y/# ^y/(.+)/z/(.+)$ y/z/$2
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=1
        s< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "y/a/z/b" qos=1 "1"
        p< PUBACK 1
        s< PUBLISH 1 "y/z/b" qos=1 "1"
        p> PUBLISH "y/z/b" qos=0 "2"
        s< PUBLISH "y/z/b" qos=0 "2"
        p> PUBLISH "x/a/z/b" qos=0 "3"
        s< PUBLISH "x/a/z/b" qos=0 "3"
        "##
    }

    fn the_first_that_speaks_of_a_name_decides_and_that_once() {
        r##"
        # rewrite: all a/# ^a/nothing$ no
        # rewrite: all a/# ^a/(.+)$ b/$1
        # rewrite: all a/# ^a/(.+)$ c/$1
        # rewrite: all b/# ^b/(.+)$ a/$1
        s> CONNECT id=s v=311
        s< CONNACK present=0
        s> SUBSCRIBE 1 "a/1" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p v=311
        p< CONNACK present=0
        p> PUBLISH "a/1" qos=0 "1"
        s< PUBLISH "b/1" qos=0 "1"
        p> PUBLISH "b/1" qos=0 "2"
        s> UNSUBSCRIBE 2 "a/1"
        s< UNSUBACK 2
        p> PUBLISH "a/1" qos=0 "3"
        "##
    }

    fn filters_and_shared_ones_have_new_names_too() {
        r##"
        # rewrite: subscribe old/# ^old/(.+)$ new/$1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "old/+/x" qos=0
        s< SUBACK 1 [0]
        g> CONNECT id=g
        g< CONNACK present=0
        g> SUBSCRIBE 1 "$share/g/old/#" qos=0
        g< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "new/1/x" qos=0 "1"
        s< PUBLISH "new/1/x" qos=0 "1"
        g< PUBLISH "new/1/x" qos=0 "1"
        p> PUBLISH "old/1/x" qos=0 "2"
        s> UNSUBSCRIBE 2 "old/+/x"
        s< UNSUBACK 2 [0]
        g> UNSUBSCRIBE 2 "$share/g/old/#" "$share/g/new/#"
        g< UNSUBACK 2 [0 0x11]
        "##
    }

    fn a_client_is_called_by_its_name_and_by_no_more_than_that() {
        r##"
        # user: ann password=x
        # rewrite: publish up/# ^up/(.+)$ from/%c/%u/$1
        s> CONNECT id=s user_name=ann password=x
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p user_name=ann password=x request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "up/t" qos=1 "1"
        p< PUBACK 1
        s< PUBLISH "from/p/ann/t" qos=0 "1"
        q> CONNECT id=a/b user_name=ann password=x request_problem=0
        q< CONNACK present=0
        q> PUBLISH 1 "up/t" qos=1 "1"
        q< PUBACK 1 TopicNameInvalid
        "##
    }

    fn what_becomes_no_name_is_refused() {
        r##"
        # options: topic.levels_max=3
        # rewrite: all a/# ^a/(.*)$ $1
        # rewrite: all deep/# ^deep$ a/b/c/d
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "a/" qos=1 "1"
        p< PUBACK 1 TopicNameInvalid
        p> PUBLISH 2 "deep" qos=1 "1"
        p< PUBACK 2 TopicNameInvalid
        p> PUBLISH 3 "a/$SYS/x" qos=1 "1"
        p< PUBACK 3 NotAuthorized
        p> PUBLISH 4 "a/$delayed/1/x" qos=1 "1"
        p< PUBACK 4 TopicNameInvalid
        p> SUBSCRIBE 5 "a/" qos=0 "deep" qos=0 "a/$share/g/x" qos=0
        p< SUBACK 5 [0x8f 0x8f 0x8f]
        o> CONNECT id=o v=311
        o< CONNACK present=0
        o> PUBLISH 1 "a/" qos=1 "1"
        o< PUBACK 1
        o> SUBSCRIBE 2 "a/" qos=0
        o< SUBACK 2 [0x80]
        "##
    }

    fn retained_messages_and_wills_are_under_the_new_name() {
        r##"
        # rewrite: publish old/# ^old/(.+)$ new/$1
        p> CONNECT id=p will="old/will" will_payload="gone"
        p< CONNACK present=0
        p> PUBLISH "old/t" qos=0 retain "1"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "new/#" qos=0
        s< SUBACK 1 [0]
        s< PUBLISH "new/t" qos=0 retain "1"
        p! cut
        s< PUBLISH "new/will" qos=0 "gone"
        "##
    }

    fn a_delayed_message_has_the_new_name_of_its_topic() {
        r##"
        # rewrite: publish old/# ^old/(.+)$ new/$1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$delayed/1/old/t" qos=0 "1"
        + 1100ms
        s< PUBLISH "new/t" qos=0 "1"
        "##
    }

    fn an_alias_stands_for_what_the_client_said() {
        r##"
        # rewrite: publish old/# ^old/(.+)$ new/$1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "old/t" qos=0 alias=1 "1"
        s< PUBLISH "new/t" qos=0 "1"
        p> PUBLISH "" qos=0 alias=1 "2"
        s< PUBLISH "new/t" qos=0 "2"
        "##
    }

    fn permissions_go_for_the_new_name() {
        r##"
        # rules: allow topic=new/#
        # rewrite: all old/# ^old/(.+)$ new/$1
        # rewrite: all new/x ^ shut
        p> CONNECT id=p request_problem=0
        p< CONNACK present=0
        p> PUBLISH 1 "old/t" qos=1 "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "new/x" qos=1 "1"
        p< PUBACK 2 NotAuthorized
        p> SUBSCRIBE 3 "old/t" qos=0 "new/x" qos=0
        p< SUBACK 3 [0 0x87]
        w> CONNECT id=w will="new/x" will_payload="x" request_problem=0
        w< CONNACK present=0 NotAuthorized *
        w< CLOSED
        v> CONNECT id=v will="old/t" will_payload="x" request_problem=0
        v< CONNACK present=0
        "##
    }

    fn a_warden_is_asked_about_the_new_name() {
        r##"
        # warden: allow new/#
        # rewrite: all old/# ^old/(.+)$ new/$1
        p> CONNECT id=p will="old/w" will_payload="x"
        p< CONNACK present=0
        p> PUBLISH 1 "old/t" qos=1 "1"
        p< PUBACK 1 NoMatchingSubscribers
        p> SUBSCRIBE 3 "old/s" qos=0
        p< SUBACK 3 [0]
        ! warden asked
        warden< publish "new/t" qos=1 by p
        warden< publish "new/w" qos=0 by p
        warden< subscribe "new/s" qos=0 by p
        "##
    }

    fn in_a_namespace_it_sees_what_the_client_says() {
        r##"
        # options: namespace=tenant
        # rewrite: all old/# ^old/(.+)$ new/$1
        p> CONNECT id=p
        p< CONNACK present=0
        p> SUBSCRIBE 1 "new/#" qos=0
        p< SUBACK 1 [0]
        p> PUBLISH "old/t" qos=0 "1"
        p< PUBLISH "new/t" qos=0 "1"
        "##
    }

    fn a_subscription_keeps_its_name_through_a_power_cut() {
        r##"
        # disk: on
        # rewrite: all old/# ^old/(.+)$ new/$1
        s> CONNECT id=s expiry=600
        s< CONNACK present=0
        s> SUBSCRIBE 1 "old/#" qos=1
        s< SUBACK 1 [1]
        ! power
        s< CLOSED
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "old/t" qos=1 "1"
        p< PUBACK 1
        s> CONNECT id=s clean=0 expiry=600
        s< CONNACK present=1
        s< PUBLISH 1 "new/t" qos=1 "1"
        "##
    }

    fn links_subscribe_to_the_filters_that_they_have() {
        r##"
        # rewrite: all old/# ^old/(.+)$ new/$1
        k! by own
        k> CONNECT id=$link/sink/a expiry=600
        k< CONNACK present=0
        k> SUBSCRIBE 1 "old/+" qos=0 "new/+" qos=0
        k< SUBACK 1 [0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "old/t" qos=0 "1"
        k< PUBLISH "new/t" qos=0 "1"
        k> UNSUBSCRIBE 2 "old/+"
        k< UNSUBACK 2 [0]
        p> PUBLISH "old/t" qos=0 "2"
        k< PUBLISH "new/t" qos=0 "2"
        "##
    }
}
