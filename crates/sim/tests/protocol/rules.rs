//! Rules: their input fields and the messages that they publish. Rules never disturb the message
//! itself.

crate::transcripts! {
    fn a_row_becomes_a_message_behind_the_one_it_was_made_of() {
        r##"
        # rule: hot publish=alarms/${room} payload={"t":${t}} qos=1 : \
            SELECT payload.t AS t, nth(2, tokens(topic, '/')) AS room FROM "rooms/+/climate" \
            WHERE payload.t > 30
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=1
        s< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "rooms/kitchen/climate" qos=1 "{\"t\":31}"
        p< PUBACK 7
        s< PUBLISH 1 "rooms/kitchen/climate" qos=1 "{\"t\":31}"
        s< PUBLISH 2 "alarms/kitchen" qos=1 "{\"t\":31}"
        p> PUBLISH "rooms/kitchen/climate" qos=0 "{\"t\":30}"
        s< PUBLISH "rooms/kitchen/climate" qos=0 "{\"t\":30}"
        p> PUBLISH "rooms/kitchen" qos=0 "{\"t\":31}"
        s< PUBLISH "rooms/kitchen" qos=0 "{\"t\":31}"
        "##
    }

    fn what_a_rule_drops_goes_nowhere_but_to_the_rules() {
        r##"
        # rule: spam drop publish=bin/${topic} : SELECT topic FROM "a/#" WHERE payload = 'spam'
        # rule: all print : SELECT * FROM "a/b"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "a/#" qos=0 "bin/#" qos=0
        s< SUBACK 1 [0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "a/b" qos=1 retain "spam"
        p< PUBACK 1
        s< PUBLISH "bin/a/b" qos=0 "{\"topic\":\"a/b\"}"
        p> PUBLISH 2 "a/b" qos=1 retain "ham"
        p< PUBACK 2
        s< PUBLISH "a/b" qos=0 "ham"
        t> CONNECT id=t
        t< CONNACK present=0
        t> SUBSCRIBE 1 "a/b" qos=0
        t< SUBACK 1 [0]
        t< PUBLISH "a/b" qos=0 retain "ham"
        "##
    }

    fn a_rule_that_fails_does_not_disturb_the_message() {
        r##"
        # rule: bad drop publish=${nothing} : SELECT 1 / payload.n AS x FROM "a"
        # rule: nameless publish=out/${nothing} : SELECT topic FROM "a"
        # rule: wild publish=out/${payload} : SELECT payload FROM "a"
        # rule: ours publish=$SYS/${topic} : SELECT topic FROM "a"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=0 "$SYS/a" qos=0
        s< SUBACK 1 [0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "a" qos=1 "{\"n\":0}#"
        p< PUBACK 1
        s< PUBLISH "a" qos=0 "{\"n\":0}#"
        p> PUBLISH 2 "a" qos=1 "{\"n\":0}"
        p< PUBACK 2
        s< PUBLISH "a" qos=0 "{\"n\":0}"
        s< PUBLISH "out/{\"n\":0}" qos=0 "{\"payload\":\"{\\\"n\\\":0}\"}"
        "##
    }

    fn rules_go_on_from_each_other_and_not_for_ever() {
        r##"
        # rule: own publish=a : SELECT payload FROM "a"
        # rule: ping publish=pong payload=${n} : SELECT int(payload) + 1 AS n FROM "ping"
        # rule: pong publish=ping payload=${n} : SELECT int(payload) + 1 AS n FROM "pong"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "ping" qos=0 "pong" qos=0 "a" qos=0
        s< SUBACK 1 [0 0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a" qos=0 "x"
        s< PUBLISH "a" qos=0 "x"
        s< PUBLISH "a" qos=0 "{\"payload\":\"x\"}"
        p> PUBLISH "ping" qos=0 "0"
        s< PUBLISH "ping" qos=0 "0"
        s< PUBLISH "pong" qos=0 "1"
        s< PUBLISH "ping" qos=0 "2"
        s< PUBLISH "pong" qos=0 "3"
        s< PUBLISH "ping" qos=0 "4"
        s< PUBLISH "pong" qos=0 "5"
        s< PUBLISH "ping" qos=0 "6"
        s< PUBLISH "pong" qos=0 "7"
        s< PUBLISH "ping" qos=0 "8"
        "##
    }

    fn properties_and_retain_are_as_the_rule_says() {
        r##"
        # rule: kept publish=out/kept payload=${payload} retain=as_published keep \
            user=from:${clientid} : SELECT * FROM "in"
        # rule: bare publish=out/bare payload=${pub_props.User-Property.k} qos=2 \
            retain=true : SELECT * FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out/#" qos=2 retain_as_published
        s< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 content_type="t" expiry=60 user="k":"v" "x"
        s< PUBLISH "out/kept" qos=0 "x" expiry=60 content_type=t user="k":"v" user="from":"p"
        s< PUBLISH 1 "out/bare" qos=2 retain "v"
        s> PUBREC 1
        s< PUBREL 1
        s> PUBCOMP 1
        "##
    }

    // [MQTT-3.3.2-5]
    fn what_a_rule_makes_expires_when_the_rule_says() {
        r##"
        # rule: own publish=out/own payload=${payload} expiry=10 qos=1 : SELECT * FROM "in"
        # rule: both publish=out/both payload=${payload} keep expiry=20 qos=1 : SELECT * FROM \
            "in"
        # rule: as publish=out/as payload=${payload} keep qos=1 : SELECT * FROM "in"
        # rule: never publish=out/never payload=${payload} qos=1 : SELECT * FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out/#" qos=0
        s< SUBACK 1 [0]
        t> CONNECT id=t expiry=3600
        t< CONNACK present=0
        t> SUBSCRIBE 1 "out/#" qos=1
        t< SUBACK 1 [1]
        t> DISCONNECT
        t< CLOSED
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 expiry=30 content_type="t" "x"
        p< PUBACK 1
        s< PUBLISH "out/own" qos=0 "x" expiry=10
        s< PUBLISH "out/both" qos=0 "x" expiry=20 content_type=t
        s< PUBLISH "out/as" qos=0 "x" expiry=30 content_type=t
        s< PUBLISH "out/never" qos=0 "x"
        + 12s
        t> CONNECT id=t clean=0 expiry=3600
        t< CONNACK present=1
        t< PUBLISH 1 "out/both" qos=1 "x" expiry=8 content_type=t
        t< PUBLISH 2 "out/as" qos=1 "x" expiry=18 content_type=t
        t< PUBLISH 3 "out/never" qos=1 "x"
        "##
    }

    fn no_rule_makes_a_message_live_longer_than_the_broker_lets_it() {
        r##"
        # options: message.expiry_s_max=5
        # rule: own publish=out expiry=10 payload=${payload} : SELECT * FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out" qos=0
        s< SUBACK 1 [0]
        s> PUBLISH "in" qos=0 "x"
        s< PUBLISH "out" qos=0 "x" expiry=5
        "##
    }

    fn a_row_for_each_element() {
        r##"
        # rule: each publish=one/${i.id} payload=${i.v} : \
            FOREACH payload.all AS i INCASE i.v <> 2 FROM "all"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "one/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "all" qos=1 \
            "{\"all\":[{\"id\":\"a\",\"v\":1},{\"id\":\"b\",\"v\":2},{\"id\":\"c\",\"v\":[3]}]}"
        p< PUBACK 1
        s< PUBLISH "one/a" qos=0 "1"
        s< PUBLISH "one/c" qos=0 "[3]"
        "##
    }

    fn a_column_below_the_payload_keeps_what_it_has() {
        r##"
        # rule: site publish=out payload=${payload} : SELECT *, 7 AS payload.site FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "{\"t\":21,\"h\":[1,2]}"
        p< PUBACK 1
        s< PUBLISH "out" qos=0 "{\"t\":21,\"h\":[1,2],\"site\":7}"
        p> PUBLISH 2 "in" qos=1 "no JSON"
        p< PUBACK 2 NoMatchingSubscribers
        "##
    }

    fn a_will_is_a_message_too() {
        r##"
        # rule: gone publish=gone/${clientid} payload=${payload} : SELECT * FROM "status/+"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "gone/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p will="status/p" will_payload="away"
        p< CONNACK present=0
        p! cut
        s< PUBLISH "gone/p" qos=0 "away"
        "##
    }

    // [MQTT-4.3.3-13]
    fn a_message_that_comes_again_is_seen_once() {
        r##"
        # rule: count publish=seen payload=${topic} : SELECT topic FROM "a"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "seen" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "a" qos=2 "x"
        p< PUBREC 1
        s< PUBLISH "seen" qos=0 "a"
        p> PUBLISH 1 "a" qos=2 dup "x"
        p< PUBREC 1
        "##
    }

    // Somebody on each shard wants what was published and what was made of it.
    fn other_shards_get_it_and_run_no_rule_again() {
        r##"
        # shards: 2
        # rule: up publish=out/${clientid} payload=${payload} qos=1 : SELECT * FROM "in/#"
        r> CONNECT id=r
        r< CONNACK present=0
        r> SUBSCRIBE 1 "out/+" qos=1 "in/#" qos=1
        r< SUBACK 1 [1 1]
        s> CONNECT id=s2
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out/+" qos=1 "in/#" qos=1
        s< SUBACK 1 [1 1]
        t> CONNECT id=t3
        t< CONNACK present=0
        t> SUBSCRIBE 1 "out/+" qos=1 "in/#" qos=1
        t< SUBACK 1 [1 1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in/x" qos=1 "1"
        p< PUBACK 1
        r< PUBLISH 1 "in/x" qos=1 "1"
        r< PUBLISH 2 "out/p" qos=1 "1"
        s< PUBLISH 1 "in/x" qos=1 "1"
        s< PUBLISH 2 "out/p" qos=1 "1"
        t< PUBLISH 1 "in/x" qos=1 "1"
        t< PUBLISH 2 "out/p" qos=1 "1"
        "##
    }

    fn a_client_in_a_namespace_is_called_as_it_calls_itself() {
        r##"
        # user: ann password=x namespace=n
        # rule: up publish=out/${clientid} payload=${topic} : SELECT * FROM "n/in"
        s> CONNECT id=s user_name=ann password=x
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=0
        s< SUBACK 1 [0]
        s> PUBLISH "in" qos=0 "1"
        s< PUBLISH "in" qos=0 "1"
        "##
    }

    fn one_that_makes_too_much_makes_what_its_budget_pays_for() {
        r##"
        # rule: flood publish=f/${i} payload=${all}${all}${all} : \
            FOREACH json_decode('[1,2,3,4,5,6]') AS i DO i AS i, payload AS all FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "f/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "x"*300000
        p< PUBACK 1
        s< PUBLISH "f/1" qos=0 "x"*900000
        s< PUBLISH "f/2" qos=0 "x"*900000
        s< PUBLISH "f/3" qos=0 "x"*900000
        s< PUBLISH "f/4" qos=0 "x"*900000
        "##
    }

    // [MQTT-1.5.4-2]
    fn no_string_that_it_makes_has_a_nul() {
        r##"
        # rule: bad publish=out payload=x user=k:${s} : SELECT payload.s AS s FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "{\"s\":\"a\\u0000b\"}"
        p< PUBACK 1
        p> PUBLISH 2 "in" qos=1 "{\"s\":\"ab\"}"
        p< PUBACK 2
        s< PUBLISH "out" qos=0 "x" user="k":"ab"
        "##
    }

    fn where_no_more_is_retained_everyone_gets_it_all_the_same() {
        r##"
        # shards: 2
        # options: retain.messages_max=1
        # rule: keep publish=out/${clientid} payload=${payload} retain=true : SELECT * FROM "in"
        r> CONNECT id=r
        r< CONNACK present=0
        r> SUBSCRIBE 1 "out/+" qos=0
        r< SUBACK 1 [0]
        s> CONNECT id=s2
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "full" qos=1 retain "x"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "in" qos=1 "1"
        p< PUBACK 2
        r< PUBLISH "out/p" qos=0 "1"
        s< PUBLISH "out/p" qos=0 "1"
        "##
    }

    fn what_became_of_it_stands_in_the_tree() {
        r##"
        # options: sys.interval_s=10
        # rule: half publish=out : SELECT payload.x + 1 AS x FROM "in" WHERE payload.x >= 0
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 "{\"x\":1}"
        p> PUBLISH "in" qos=0 "{\"x\":-1}"
        p> PUBLISH "in" qos=0 "{\"x\":\"one\"}"
        p> SUBSCRIBE 1 "$SYS/broker/rule/half/matched" qos=0 "$SYS/broker/rule/half/passed" qos=0 \
            "$SYS/broker/rule/half/published" qos=0
        p< SUBACK 1 [0 0 0]
        + 10s
        p< PUBLISH "$SYS/broker/rule/half/matched" qos=0 "3"
        p< PUBLISH "$SYS/broker/rule/half/passed" qos=0 "1"
        p< PUBLISH "$SYS/broker/rule/half/published" qos=0 "1"
        "##
    }

    fn what_it_makes_for_a_session_on_the_disk_is_there_when_the_publisher_hears() {
        r##"
        # disk: on
        # rule: keep publish=out payload=${payload} qos=1 : SELECT * FROM "in"
        s> CONNECT id=s clean=0 expiry=3600
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out" qos=1
        s< SUBACK 1 [1]
        s> DISCONNECT
        s< CLOSED
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "x"
        p< PUBACK 1
        ! power
        p< CLOSED
        s> CONNECT id=s clean=0 expiry=3600
        s< CONNACK present=1
        s< PUBLISH 1 "out" qos=1 "x"
        "##
    }

    // Of what the disk has not the publisher has heard nothing, and says it again; the rest comes
    // once to sessions of both shards.
    fn what_is_made_of_qos_2_comes_once_through_power_cuts() {
        r##"
        # shards: 2
        # disk: on
        # rule: up publish=out payload=${payload} qos=2 : SELECT payload FROM "in"
        s> CONNECT id=s2 clean=0 expiry=3600
        s< CONNACK present=0
        s> SUBSCRIBE 1 "out" qos=2
        s< SUBACK 1 [2]
        t> CONNECT id=t3 clean=0 expiry=3600
        t< CONNACK present=0
        t> SUBSCRIBE 1 "out" qos=2
        t< SUBACK 1 [2]
        u> CONNECT id=u clean=0 expiry=3600
        u< CONNACK present=0
        u> SUBSCRIBE 1 "out" qos=2
        u< SUBACK 1 [2]
        p> CONNECT id=p clean=0 expiry=3600
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 1 "in" qos=2 "1"
        ! power
        s< CLOSED
        t< CLOSED
        u< CLOSED
        p< CLOSED
        ! disk syncs
        p> CONNECT id=p clean=0 expiry=3600
        p< CONNACK present=1
        p> PUBLISH 1 "in" qos=2 dup "1"
        p< PUBREC 1
        ! power
        p< CLOSED
        s> CONNECT id=s2 clean=0 expiry=3600
        s< CONNACK present=1
        s< PUBLISH 1 "out" qos=2 dup "1"
        t> CONNECT id=t3 clean=0 expiry=3600
        t< CONNACK present=1
        t< PUBLISH 1 "out" qos=2 dup "1"
        u> CONNECT id=u clean=0 expiry=3600
        u< CONNACK present=1
        u< PUBLISH 1 "out" qos=2 dup "1"
        p> CONNECT id=p clean=0 expiry=3600
        p< CONNACK present=1
        p> PUBLISH 1 "in" qos=2 dup "1"
        p< PUBREC 1
        p> PUBREL 1
        p< PUBCOMP 1
        "##
    }

    fn what_is_made_goes_to_one_member_of_a_group() {
        r##"
        # rule: up publish=out payload=${payload} qos=1 : SELECT payload FROM "in"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$share/g/out" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b2
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$share/g/out" qos=1
        b< SUBACK 1 [1]
        c> CONNECT id=c3
        c< CONNACK present=0
        c> SUBSCRIBE 1 "out" qos=1
        c< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "1"
        p< PUBACK 1
        b< PUBLISH 1 "out" qos=1 "1"
        c< PUBLISH 1 "out" qos=1 "1"
        p> PUBLISH 2 "in" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 1 "out" qos=1 "2"
        c< PUBLISH 2 "out" qos=1 "2"
        p> PUBLISH 3 "in" qos=1 "3"
        p< PUBACK 3
        b< PUBLISH 2 "out" qos=1 "3"
        c< PUBLISH 3 "out" qos=1 "3"
        p> PUBLISH 4 "in" qos=1 "4"
        p< PUBACK 4
        a< PUBLISH 2 "out" qos=1 "4"
        c< PUBLISH 4 "out" qos=1 "4"
        "##
    }

    fn rules_are_others_between_two_messages() {
        r##"
        # rule: one publish=one payload=${payload} : SELECT payload FROM "in"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "one" qos=0 "two" qos=0 "in" qos=0
        s< SUBACK 1 [0 0 0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 "1"
        s< PUBLISH "in" qos=0 "1"
        s< PUBLISH "one" qos=0 "1"
        ! rule two drop publish=two payload=${payload} : SELECT payload FROM "in", \
            "$events/message/delivered"
        p> PUBLISH "in" qos=0 "2"
        s< PUBLISH "two" qos=0 "2"
        ! rule three publish=two payload=${topic} : SELECT topic FROM \
            "$events/session/subscribed"
        p> PUBLISH "in" qos=0 "3"
        s< PUBLISH "in" qos=0 "3"
        p> SUBSCRIBE 1 "x" qos=0
        p< SUBACK 1 [0]
        s< PUBLISH "two" qos=0 "x"
        "##
    }

    // Nobody subscribes to what it publishes, and the rule's message is for the disk.
    fn who_adds_to_a_crowded_store_by_a_rule_waits_for_it_too() {
        r##"
        # disk: on
        # rule: up publish=out payload=${payload} qos=1 : SELECT payload FROM "in"
        a> CONNECT id=a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "out" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk is crowded
        p> PUBLISH "else" qos=0 "0"
        p> PUBLISH "in" qos=0 "1"
        + 1s
        ! disk is roomy
        a< PUBLISH 1 "out" qos=1 "1"
        "##
    }
}
