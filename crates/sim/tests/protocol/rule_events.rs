//! Rules over events of clients, sessions and messages, which the deciding shard reports.

crate::transcripts! {
    fn who_comes_and_goes() {
        r##"
        # rule: in publish=in/${clientid} \
            payload=${proto_ver},${keepalive},${session_present},${expiry_interval} : SELECT * \
            FROM "$events/client/connected"
        # rule: ack publish=ack/${clientid} payload=${reason_code} : SELECT * FROM \
            "$events/client_connack"
        # rule: out publish=out/${clientid} payload=${reason} : SELECT * FROM \
            "$events/client_disconnected" WHERE clientid <> 's'
        # rule: over publish=over/${clientid} payload=${event} : SELECT clientid, event FROM \
            "$events/session/takenover"
        # rule: gone publish=gone/${clientid} payload=${event} : SELECT clientid, event FROM \
            "$events/session/expired", "$events/session/terminated"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "in/+" qos=0 "ack/+" qos=0 "out/+" qos=0 "over/+" qos=0 "gone/+" qos=0
        s< SUBACK 1 [0 0 0 0 0]
        a> CONNECT id=a keep_alive=30 expiry=5
        a< CONNACK present=0
        s< PUBLISH "ack/a" qos=0 "success"
        s< PUBLISH "in/a" qos=0 "5.0,30,false,5"
        b> CONNECT id=a keep_alive=30 expiry=5
        b< CONNACK present=0
        s< PUBLISH "over/a" qos=0 "session.takenover"
        s< PUBLISH "gone/a" qos=0 "session.terminated"
        s< PUBLISH "ack/a" qos=0 "success"
        s< PUBLISH "in/a" qos=0 "5.0,30,false,5"
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> DISCONNECT
        b< CLOSED
        s< PUBLISH "out/a" qos=0 "Success"
        + 6s
        s< PUBLISH "gone/a" qos=0 "session.expired"
        c> CONNECT id=c
        c< CONNACK present=0
        s< PUBLISH "ack/c" qos=0 "success"
        s< PUBLISH "in/c" qos=0 "5.0,0,false,0"
        c! cut
        s< PUBLISH "out/c" qos=0 "connection lost"
        s< PUBLISH "gone/c" qos=0 "session.terminated"
        "##
    }

    // What is refused of one client within a second is told once.
    fn who_may_not_come_in_and_who_may_not_say_what_it_says() {
        r##"
        # user: ann password=x
        # bans: id=u
        # rules: deny topic=secret/#; allow topic=#
        # rule: authn publish=authn/${clientid} payload=${username},${reason_code},${result} : \
            SELECT * FROM "$events/client_check_authn_complete"
        # rule: authz publish=authz/${clientid} payload=${action},${topic},${result} : SELECT \
            * FROM "$events/auth/check_authz_complete"
        # rule: ack publish=ack/${clientid} payload=${reason_code} : SELECT * FROM \
            "$events/client/connack" WHERE reason_code <> 'success'
        s> CONNECT id=s user_name=ann password=x
        s< CONNACK present=0
        s> SUBSCRIBE 1 "authn/+" qos=0 "authz/+" qos=0 "ack/+" qos=0
        s< SUBACK 1 [0 0 0]
        t> CONNECT id=t user_name=ann password=y
        t< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        t< CLOSED
        s< PUBLISH "ack/t" qos=0 "bad_username_or_password"
        s< PUBLISH "authn/t" qos=0 "ann,bad_username_or_password,deny"
        u> CONNECT id=u
        u< CONNACK present=0 Banned reason_string="the client is banned"
        u< CLOSED
        s< PUBLISH "ack/u" qos=0 "banned"
        s> PUBLISH 1 "secret/a" qos=1 "x"
        s< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        s< PUBLISH "authz/s" qos=0 "publish,secret/a,deny"
        + 2s
        s> SUBSCRIBE 2 "secret/+" qos=1 "open" qos=0
        s< SUBACK 2 [0x87 0] reason_string="not permitted by the rules of the server"
        s< PUBLISH "authz/s" qos=0 "subscribe,secret/+,deny"
        "##
    }

    fn subscriptions() {
        r##"
        # rule: sub publish=sub/${clientid} payload=${topic},${qos} : SELECT clientid, topic, \
            qos FROM "$events/session_subscribed" WHERE topic = 'a/#'
        # rule: unsub publish=unsub/${clientid} payload=${topic} : SELECT clientid, topic FROM \
            "$events/session/unsubscribed"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "sub/+" qos=0 "unsub/+" qos=0
        s< SUBACK 1 [0 0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/#" qos=1 "b" qos=0
        a< SUBACK 1 [1 0]
        s< PUBLISH "sub/a" qos=0 "a/#,1"
        a> UNSUBSCRIBE 2 "a/#" "c"
        a< UNSUBACK 2 [0 0x11]
        s< PUBLISH "unsub/a" qos=0 "a/#"
        "##
    }

    // What the log's own subscriber gets is made by a rule, and is no event again.
    fn what_becomes_of_a_message() {
        r##"
        # rule: sent publish=sent/${clientid} payload=${topic},${qos},${payload} : SELECT * \
            FROM "$events/message_delivered"
        # rule: acked publish=acked/${clientid} payload=${topic},${payload} : SELECT * FROM \
            "$events/message/acked"
        # rule: lost publish=lost/${clientid} payload=${topic},${reason} : SELECT * FROM \
            "$events/message/dropped", "$events/delivery_dropped"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "sent/+" qos=0 "acked/+" qos=1 "lost/+" qos=0
        s< SUBACK 1 [0 1 0]
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a/#" qos=2
        a< SUBACK 1 [2]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a/0" qos=0 "0"
        s< PUBLISH "sent/a" qos=0 "a/0,0,0"
        a< PUBLISH "a/0" qos=0 "0"
        p> PUBLISH 1 "a/1" qos=1 "1"
        p< PUBACK 1
        s< PUBLISH "sent/a" qos=0 "a/1,1,1"
        a< PUBLISH 1 "a/1" qos=1 "1"
        p> PUBLISH 2 "a/2" qos=2 "2"
        p< PUBREC 2
        a> PUBACK 1
        a< PUBLISH 2 "a/2" qos=2 "2"
        s< PUBLISH 1 "acked/a" qos=1 "a/1,1"
        s< PUBLISH "sent/a" qos=0 "a/2,2,2"
        a> PUBREC 2
        a< PUBREL 2
        s< PUBLISH 2 "acked/a" qos=1 "a/2,2"
        a> PUBCOMP 2
        p> PUBLISH 3 "b" qos=1 "nobody"
        p< PUBACK 3 NoMatchingSubscribers
        s< PUBLISH "lost/p" qos=0 "b,no_subscribers"
        "##
    }

    fn what_a_queue_has_no_room_for() {
        r##"
        # options: queue.messages_max=1
        # rule: lost publish=lost/${clientid} payload=${topic},${n},${reason} : SELECT *, \
            strlen(payload) AS n FROM "$events/message/delivery_dropped"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "lost/+" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a expiry=60 maximum_packet_size=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 9 "a" qos=1 "x"*100
        p< PUBACK 9
        s< PUBLISH "lost/a" qos=0 "a,100,packet_too_large"
        a! cut
        p> PUBLISH 1 "a" qos=1 "1"
        p< PUBACK 1
        p> PUBLISH 2 "a" qos=1 "2"
        p< PUBACK 2
        s< PUBLISH "lost/a" qos=0 "a,1,queue_full"
        p> PUBLISH "a" qos=0 "3"
        s< PUBLISH "lost/a" qos=0 "a,1,offline"
        "##
    }

    fn what_memory_has_no_room_for() {
        r##"
        # options: memory.bytes_max=60000 queue.bytes_max=1000000
        # shards: 1
        # rule: lost publish=lost/${clientid} payload=${event},${topic},${n},${reason} : SELECT \
            *, strlen(payload) AS n FROM "$events/message/dropped", \
            "$events/message/delivery_dropped"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "lost/+" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "a" qos=1 "x"*12000
        p< PUBACK 1
        w> CONNECT id=w will="w" will_payload="x"*13000
        w< CONNACK present=0
        p> PUBLISH 2 "a" qos=1 "x"*10000
        p< PUBACK 2
        s< PUBLISH "lost/a" qos=0 "delivery.dropped,a,12000,out_of_memory"
        p> PUBLISH 3 "b" qos=1 retain "x"*9000
        p< PUBACK 3 QuotaExceeded reason_string="no room: a limit of the server is reached"
        s< PUBLISH "lost/p" qos=0 "message.dropped,b,9000,out_of_memory"
        "##
    }

    fn what_a_store_has_no_room_for() {
        r##"
        # disk: on
        # rule: lost publish=lost/${clientid} payload=${topic},${reason} : SELECT * FROM \
            "$events/message/dropped"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "lost/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        ! disk is full
        p> PUBLISH 1 "b" qos=1 retain "x"
        p< PUBACK 1 QuotaExceeded reason_string="no room: the server's store is full"
        s< PUBLISH "lost/p" qos=0 "b,store_full"
        ! disk has room
        p> PUBLISH 1 "b" qos=1 retain "x"
        p< PUBACK 1 NoMatchingSubscribers
        s< PUBLISH "lost/p" qos=0 "b,no_subscribers"
        "##
    }

    fn a_topic_that_is_called_like_an_event_is_none() {
        r##"
        # rule: in publish=in payload=${clientid} : SELECT * FROM "$events/client/connected"
        # rule: all publish=all payload=${topic} : SELECT * FROM "$events/client/connected", \
            "a"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "in" qos=0 "all" qos=0
        s< SUBACK 1 [0 0]
        s> PUBLISH "$events/client/connected" qos=0 "x"
        s> PUBLISH "a" qos=0 "x"
        s< PUBLISH "all" qos=0 "a"
        "##
    }

    fn events_that_follow_from_what_rules_make_end() {
        r##"
        # options: sys.interval_s=10
        # rule: own publish=log payload=${topic} : SELECT * FROM "$events/message/delivered"
        # rule: see print : SELECT * FROM "$events/message/delivered"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "log" qos=0 "a" qos=0
        s< SUBACK 1 [0 0]
        s> PUBLISH "a" qos=0 "x"
        s< PUBLISH "a" qos=0 "x"
        s< PUBLISH "log" qos=0 "a"
        s> SUBSCRIBE 2 "$SYS/broker/rule/own/failed/loop" qos=0
        s< SUBACK 2 [0]
        + 10s
        s< PUBLISH "$SYS/broker/rule/own/failed/loop" qos=0 "1"
        "##
    }

    fn all_events_of_one_input_share_what_the_rules_of_a_message_may_cost() {
        r##"
        # options: sys.interval_s=10
        # rule: sub publish=sub/${topic} payload=heard : SELECT topic FROM \
            "$events/session/subscribed" WHERE strlen(topic) = 1 AND NOT (pad(topic, 700000) LIKE \
            '%y') AND NOT (pad(topic, 700000) LIKE '%z')
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "sub/+" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=0 "b" qos=0 "c" qos=0 "d" qos=0 "e" qos=0 "f" qos=0 "g" qos=0 \
            "h" qos=0 "i" qos=0 "j" qos=0 "k" qos=0 "l" qos=0 "m" qos=0 "n" qos=0 "o" qos=0 "p" \
            qos=0 "q" qos=0 "r" qos=0 "s" qos=0 "t" qos=0
        a< SUBACK 1 [0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0]
        s< PUBLISH "sub/a" qos=0 "heard"
        s< PUBLISH "sub/b" qos=0 "heard"
        s< PUBLISH "sub/c" qos=0 "heard"
        s< PUBLISH "sub/d" qos=0 "heard"
        s< PUBLISH "sub/e" qos=0 "heard"
        s< PUBLISH "sub/f" qos=0 "heard"
        s< PUBLISH "sub/g" qos=0 "heard"
        s< PUBLISH "sub/h" qos=0 "heard"
        s< PUBLISH "sub/i" qos=0 "heard"
        s< PUBLISH "sub/j" qos=0 "heard"
        s< PUBLISH "sub/k" qos=0 "heard"
        s< PUBLISH "sub/l" qos=0 "heard"
        s< PUBLISH "sub/m" qos=0 "heard"
        s< PUBLISH "sub/n" qos=0 "heard"
        a> SUBSCRIBE 2 "z" qos=0
        a< SUBACK 2 [0]
        s< PUBLISH "sub/z" qos=0 "heard"
        s> SUBSCRIBE 2 "$SYS/broker/rule/sub/failed/steps" qos=0
        s< SUBACK 2 [0]
        + 10s
        s< PUBLISH "$SYS/broker/rule/sub/failed/steps" qos=0 "6"
        "##
    }

    fn what_rules_make_of_events_shares_it_too() {
        r##"
        # options: sys.interval_s=10
        # rule: sub publish=sub/${topic} payload=heard : SELECT topic FROM \
            "$events/session/subscribed" WHERE strlen(topic) = 1
        # rule: more publish=more/${topic} payload=more : SELECT topic FROM "sub/+" WHERE NOT \
            (pad(topic, 700000) LIKE '%y') AND NOT (pad(topic, 700000) LIKE '%z')
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "more/sub/+" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "a" qos=0 "b" qos=0 "c" qos=0 "d" qos=0 "e" qos=0 "f" qos=0 "g" qos=0 \
            "h" qos=0 "i" qos=0 "j" qos=0 "k" qos=0 "l" qos=0 "m" qos=0 "n" qos=0 "o" qos=0 "p" \
            qos=0 "q" qos=0 "r" qos=0 "s" qos=0 "t" qos=0
        a< SUBACK 1 [0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0]
        s< PUBLISH "more/sub/a" qos=0 "more"
        s< PUBLISH "more/sub/b" qos=0 "more"
        s< PUBLISH "more/sub/c" qos=0 "more"
        s< PUBLISH "more/sub/d" qos=0 "more"
        s< PUBLISH "more/sub/e" qos=0 "more"
        s< PUBLISH "more/sub/f" qos=0 "more"
        s< PUBLISH "more/sub/g" qos=0 "more"
        s< PUBLISH "more/sub/h" qos=0 "more"
        s< PUBLISH "more/sub/i" qos=0 "more"
        s< PUBLISH "more/sub/j" qos=0 "more"
        s< PUBLISH "more/sub/k" qos=0 "more"
        s< PUBLISH "more/sub/l" qos=0 "more"
        s< PUBLISH "more/sub/m" qos=0 "more"
        s< PUBLISH "more/sub/n" qos=0 "more"
        s> SUBSCRIBE 2 "$SYS/broker/rule/+/failed/steps" qos=0
        s< SUBACK 2 [0]
        + 10s
        s< PUBLISH "$SYS/broker/rule/more/failed/steps" qos=0 "6"
        # Of which each event has enough of its own for a rule that looks at little.
        "##
    }
}
