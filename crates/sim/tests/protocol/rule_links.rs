//! Rows that rules send to links: the receiving sessions, and durability equal to that of the
//! message.

crate::transcripts! {
    fn a_row_goes_to_the_links_that_the_rule_names_and_to_nobody_else() {
        r##"
        # rule: hot send=sink/a,bridge/b qos=1 : SELECT payload.t AS t FROM "rooms/#" WHERE \
            payload.t > 30
        # rule: all publish=seen/${topic} : SELECT topic FROM "#", "$link/#"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=2
        a< SUBACK 1 [2]
        b! by own
        b> CONNECT id=$link/bridge/b expiry=600
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$link/bridge/b/#" qos=2
        b< SUBACK 1 [2]
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "#" qos=1 "+/+/+/#" qos=1
        s< SUBACK 1 [1 1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 7 "rooms/kitchen" qos=2 retain "{\"t\":31}"
        p< PUBREC 7
        a< PUBLISH 1 "$link/sink/a/rooms/kitchen" qos=1 "{\"t\":31}"
        b< PUBLISH 1 "$link/bridge/b/rooms/kitchen" qos=1 "{\"t\":31}"
        s< PUBLISH 1 "rooms/kitchen" qos=1 "{\"t\":31}"
        s< PUBLISH 2 "seen/rooms/kitchen" qos=1 "{\"topic\":\"rooms/kitchen\"}"
        p> PUBREL 7
        p< PUBCOMP 7
        p> PUBLISH 8 "rooms/kitchen" qos=1 "{\"t\":30}"
        p< PUBACK 8
        s< PUBLISH 3 "rooms/kitchen" qos=1 "{\"t\":30}"
        s< PUBLISH 4 "seen/rooms/kitchen" qos=1 "{\"topic\":\"rooms/kitchen\"}"
        "##
    }

    fn a_row_is_called_as_the_rule_says_or_as_the_message_the_event_or_the_rule() {
        r##"
        # rule: named send=sink/a topic=hot/${t} payload=${t} qos=1 keep user=by:${t} : SELECT \
            payload.t AS t FROM "named"
        # rule: event send=sink/a : SELECT clientid FROM "$events/client/connected"
        # rule: window send=sink/a : SELECT count(*) AS n FROM "counted" GROUP BY \
            COUNTWINDOW(2)
        # rule: nameless send=sink/a topic=${nothing} : SELECT topic FROM "named"
        # rule: told send=sink/a topic=$SYS/x : SELECT topic FROM "named"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        a< PUBLISH "$link/sink/a/client/connected" qos=0 "{\"clientid\":\"p\"}"
        p> PUBLISH 1 "named" qos=1 "{\"t\":1}" content_type="j" expiry=60
        p< PUBACK 1
        a< PUBLISH 1 "$link/sink/a/hot/1" qos=1 "1" expiry=60 content_type=j user="by":"1"
        p> PUBLISH 2 "counted" qos=1 "1"
        p< PUBACK 2
        p> PUBLISH 3 "counted" qos=1 "2"
        p< PUBACK 3
        a< PUBLISH "$link/sink/a/window" qos=0 "{\"n\":2}"
        "##
    }

    fn topics_of_links_are_not_for_clients() {
        r##"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "$link/sink/a/t" qos=1 "x"
        p< PUBACK 1 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        p> PUBLISH "$link/sink/a/t" qos=0 retain "x"
        p> PUBLISH 2 "$delayed/1/$link/sink/a/t" qos=1 "x"
        p< PUBACK 2 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        p> SUBSCRIBE 3 "$link/#" qos=0 "$link/sink/a/#" qos=0 "$share/g/$link/#" qos=0 \
            "$exclusive/$link/sink/a/t" qos=0 "$link" qos=0
        p< SUBACK 3 [0x87 0x87 0x87 0x8f 0] \
            reason_string="not permitted: $SYS and $link topics are the server's"
        q> CONNECT id=$link
        q< CONNACK present=0
        q> SUBSCRIBE 1 "$link/sink/a/#" qos=0
        q< SUBACK 1 [0x87] \
            reason_string="not permitted: $SYS and $link topics are the server's"
        w> CONNECT id=w will="$link/sink/a/t" will_payload="x"
        w< CONNACK present=0 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        w< CLOSED
        r> CONNECT id=$link/sink/a
        r< CONNACK present=0 ClientIdentifierNotValid \
            reason_string="client ids that begin with $link/ are the server's own"
        r< CLOSED
        b! by own
        b> CONNECT id=$link/sink/b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$link/sink/a/#" qos=0 "$link/sink/b" qos=0 "$link/sink/b/#" qos=0 \
            "$link/sink/ba/#" qos=0
        b< SUBACK 1 [0x87 0x87 0 0x87] \
            reason_string="not permitted: $SYS and $link topics are the server's"
        b> PUBLISH 2 "$link/sink/b/t" qos=1 "x"
        b< PUBACK 2 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        "##
    }

    fn a_link_that_is_away_finds_its_rows_after_a_power_cut() {
        r##"
        # disk: on
        # rule: all send=sink/a : SELECT payload FROM "t"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=2
        a< SUBACK 1 [2]
        a! cut
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=2 "2"
        p< PUBREC 2
        p> PUBREL 2
        p< PUBCOMP 2
        ! power
        p< CLOSED
        a> CONNECT id=$link/sink/a clean=0 expiry=600
        a< CONNACK present=1
        a< PUBLISH 1 "$link/sink/a/t" qos=1 "{\"payload\":\"1\"}"
        a< PUBLISH 2 "$link/sink/a/t" qos=2 "{\"payload\":\"2\"}"
        "##
    }

    fn a_receipt_waits_until_the_row_is_kept() {
        r##"
        # disk: on
        # rule: all drop send=sink/a : SELECT payload FROM "t"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk holds
        p> PUBLISH 1 "t" qos=1 "1"
        a< PUBLISH 1 "$link/sink/a/t" qos=1 "{\"payload\":\"1\"}"
        p> PINGREQ
        p< PINGRESP
        ! disk syncs
        p< PUBACK 1
        "##
    }

    fn a_row_is_as_durable_as_its_message() {
        r##"
        # options: store.topics=quick/#=memory
        # disk: on
        # rule: all send=sink/a topic=quick/x : SELECT payload FROM "t"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p expiry=600
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        ! power
        p< CLOSED
        a> CONNECT id=$link/sink/a clean=0 expiry=600
        a< CONNACK present=1
        "##
    }

    fn a_rule_that_is_new_or_gone_counts_at_once() {
        r##"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        ! rule new send=sink/a : SELECT payload FROM "t"
        p> PUBLISH "t" qos=0 "2"
        a< PUBLISH "$link/sink/a/t" qos=0 "{\"payload\":\"2\"}"
        ! rule new print : SELECT payload FROM "t"
        p> PUBLISH "t" qos=0 "3"
        "##
    }

    fn what_no_link_takes_is_counted() {
        r##"
        # options: sys.interval_s=1
        # shards: 1
        # rule: r send=sink/a,sink/gone : SELECT payload FROM "t"
        a! by own
        a> CONNECT id=$link/sink/a expiry=600
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$link/sink/a/#" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> SUBSCRIBE 1 "$SYS/broker/rule/r/sent" qos=0 "$SYS/broker/rule/r/failed/#" qos=0
        p< SUBACK 1 [0 0]
        p> PUBLISH "t" qos=0 "1"
        a< PUBLISH "$link/sink/a/t" qos=0 "{\"payload\":\"1\"}"
        p> PUBLISH "t" qos=0 "2"
        a< PUBLISH "$link/sink/a/t" qos=0 "{\"payload\":\"2\"}"
        + 1s
        p< PUBLISH "$SYS/broker/rule/r/sent" qos=0 "2"
        p< PUBLISH "$SYS/broker/rule/r/failed/link" qos=0 "2"
        "##
    }
}
