//! Topic names and filters, and their matching.

crate::transcripts! {
    // [MQTT-4.7.1-1] [MQTT-3.3.2-3] [3.1.1:MQTT-3.3.2-3]
    fn hash_takes_its_parent_and_everything_below() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "sport/tennis/#" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "sport/tennis" qos=0 "1"
        a< PUBLISH "sport/tennis" qos=0 "1"
        a> PUBLISH "sport/tennis/" qos=0 "2"
        a< PUBLISH "sport/tennis/" qos=0 "2"
        a> PUBLISH "sport/tennis/player/ranking" qos=0 "3"
        a< PUBLISH "sport/tennis/player/ranking" qos=0 "3"
        a> PUBLISH "sport" qos=0 "4"
        a> PUBLISH "sport/tenni" qos=0 "5"
        a> PUBLISH "Sport/tennis" qos=0 "6"
        "##
    }

    // [MQTT-4.7.1-2]
    fn plus_takes_one_level_even_an_empty_one() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "sport/+" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "sport/" qos=0 "1"
        a< PUBLISH "sport/" qos=0 "1"
        a> PUBLISH "sport/tennis" qos=0 "2"
        a< PUBLISH "sport/tennis" qos=0 "2"
        a> PUBLISH "sport" qos=0 "3"
        a> PUBLISH "sport/tennis/x" qos=0 "4"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "+/+" qos=0
        b< SUBACK 1 [0]
        b> PUBLISH "/finance" qos=0 "5"
        b< PUBLISH "/finance" qos=0 "5"
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "/+" qos=0
        c< SUBACK 1 [0]
        c> PUBLISH "/finance" qos=0 "6"
        c< PUBLISH "/finance" qos=0 "6"
        b< PUBLISH "/finance" qos=0 "6"
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "+" qos=0
        d< SUBACK 1 [0]
        d> PUBLISH "/finance" qos=0 "7"
        b< PUBLISH "/finance" qos=0 "7"
        c< PUBLISH "/finance" qos=0 "7"
        d> PUBLISH "finance" qos=0 "8"
        d< PUBLISH "finance" qos=0 "8"
        "##
    }

    fn plus_and_hash_together() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "+/tennis/#" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "sport/tennis" qos=0 "1"
        a< PUBLISH "sport/tennis" qos=0 "1"
        a> PUBLISH "/tennis/x/y" qos=0 "2"
        a< PUBLISH "/tennis/x/y" qos=0 "2"
        a> PUBLISH "x/y/tennis" qos=0 "3"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/+/c/+/e" qos=0
        b< SUBACK 1 [0]
        b> PUBLISH "a/b/c/d/e" qos=0 "4"
        b< PUBLISH "a/b/c/d/e" qos=0 "4"
        b> PUBLISH "a//c//e" qos=0 "5"
        b< PUBLISH "a//c//e" qos=0 "5"
        b> PUBLISH "a/b/c/d/f" qos=0 "6"
        "##
    }

    // [MQTT-4.7.2-1] [3.1.1:MQTT-4.7.2-1]
    fn leading_wildcards_do_not_match_dollar_topics() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0 "+/x" qos=0
        a< SUBACK 1 [0 0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$own/#" qos=0
        b< SUBACK 1 [0]
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$own/+" qos=0 "x/$own" qos=0
        c< SUBACK 1 [0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$own/x" qos=0 "1"
        b< PUBLISH "$own/x" qos=0 "1"
        c< PUBLISH "$own/x" qos=0 "1"
        p> PUBLISH "x/$own" qos=0 "2"
        a< PUBLISH "x/$own" qos=0 "2"
        c< PUBLISH "x/$own" qos=0 "2"
        p> PUBLISH "$own" qos=0 "3"
        b< PUBLISH "$own" qos=0 "3"
        "##
    }

    // [MQTT-4.7.3-1]
    fn empty_levels_are_levels() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "/" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a//b" qos=0
        b< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "/" qos=0 "1"
        a< PUBLISH "/" qos=0 "1"
        p> PUBLISH "a//b" qos=0 "2"
        b< PUBLISH "a//b" qos=0 "2"
        p> PUBLISH "a/b" qos=0 "3"
        p> PUBLISH "//" qos=0 "4"
        "##
    }

    // [MQTT-4.7.3-4]
    fn blanks_and_case_count() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "Accounts payable" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "Accounts payable" qos=0 "1"
        a< PUBLISH "Accounts payable" qos=0 "1"
        a> PUBLISH "ACCOUNTS payable" qos=0 "2"
        a> PUBLISH "Accounts  payable" qos=0 "3"
        "##
    }

    // [MQTT-4.7.3-3] [3.1.1:MQTT-4.7.3-3]
    fn the_longest_topic_is_65535_bytes() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "x"*65535 qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "x"*65535 qos=0 "long"
        a< PUBLISH "x"*65535 qos=0 "long"
        a> PUBLISH "x"*65534 qos=0 "shorter"
        "##
    }

    fn a_filter_with_many_wildcards_matches_each_topic_once() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0 "+/#" qos=0 "+/+" qos=0 "a/#" qos=0 "a/+" qos=0 "a/b" qos=0 \
            "a/b/#" qos=0
        a< SUBACK 1 [0 0 0 0 0 0 0]
        a> PUBLISH "a/b" qos=0 "once"
        a< PUBLISH "a/b" qos=0 "once"
        "##
    }

    fn many_shapes_of_filters_are_told_apart() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "+/b/c" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "a/+/c" qos=0
        b< SUBACK 1 [0]
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "a/b/+" qos=0
        c< SUBACK 1 [0]
        d> CONNECT id=d
        d< CONNACK present=0
        d> SUBSCRIBE 1 "a/b/c" qos=0
        d< SUBACK 1 [0]
        e> CONNECT id=e
        e< CONNACK present=0
        e> SUBSCRIBE 1 "+/+/c" qos=0
        e< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a/b/c" qos=0 "all"
        a< PUBLISH "a/b/c" qos=0 "all"
        b< PUBLISH "a/b/c" qos=0 "all"
        c< PUBLISH "a/b/c" qos=0 "all"
        d< PUBLISH "a/b/c" qos=0 "all"
        e< PUBLISH "a/b/c" qos=0 "all"
        p> PUBLISH "x/b/c" qos=0 "a, e"
        a< PUBLISH "x/b/c" qos=0 "a, e"
        e< PUBLISH "x/b/c" qos=0 "a, e"
        p> PUBLISH "a/x/c" qos=0 "b, e"
        b< PUBLISH "a/x/c" qos=0 "b, e"
        e< PUBLISH "a/x/c" qos=0 "b, e"
        p> PUBLISH "a/b/x" qos=0 "c"
        c< PUBLISH "a/b/x" qos=0 "c"
        p> PUBLISH "x/x/c" qos=0 "e"
        e< PUBLISH "x/x/c" qos=0 "e"
        p> PUBLISH "x/x/x" qos=0 "none"
        c> UNSUBSCRIBE 2 "a/b/+"
        c< UNSUBACK 2 [0]
        p> PUBLISH "a/b/x" qos=0 "none"
        "##
    }
}
