//! The `$SYS` topics: values, changes of values, and clients that connect and disconnect.

crate::transcripts! {
    fn the_tree_is_published_each_interval_and_retained() {
        r##"
        # options: sys.interval_s=10
        # shards: 1
        # sim only: counts and the version
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/clients/+" qos=0 "$SYS/broker/subscriptions/count" qos=0
        a< SUBACK 1 [0 0]
        + 1s
        a< PUBLISH "$SYS/broker/clients/connected" qos=0 "1"
        a< PUBLISH "$SYS/broker/clients/disconnected" qos=0 "0"
        a< PUBLISH "$SYS/broker/clients/expired" qos=0 "0"
        a< PUBLISH "$SYS/broker/clients/flapped" qos=0 "0"
        a< PUBLISH "$SYS/broker/clients/stalled" qos=0 "0"
        a< PUBLISH "$SYS/broker/clients/total" qos=0 "1"
        a< PUBLISH "$SYS/broker/subscriptions/count" qos=0 "2"
        a< PUBLISH "$SYS/broker/clients/maximum" qos=0 "1"
        + 10s
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$SYS/broker/clients/connected" qos=0
        b< SUBACK 1 [0]
        b< PUBLISH "$SYS/broker/clients/connected" qos=0 retain "1"
        + 10s
        a< PUBLISH "$SYS/broker/clients/connected" qos=0 "2"
        a< PUBLISH "$SYS/broker/clients/total" qos=0 "2"
        a< PUBLISH "$SYS/broker/subscriptions/count" qos=0 "3"
        a< PUBLISH "$SYS/broker/clients/maximum" qos=0 "2"
        b< PUBLISH "$SYS/broker/clients/connected" qos=0 "2"
        b! cut
        + 10s
        a< PUBLISH "$SYS/broker/clients/connected" qos=0 "1"
        a< PUBLISH "$SYS/broker/clients/total" qos=0 "1"
        a< PUBLISH "$SYS/broker/subscriptions/count" qos=0 "2"
        "##
    }

    fn the_whole_tree() {
        r##"
        # options: sys.interval_s=10
        # shards: 1
        # sim only: counts and the version
        + 1s
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/#" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "$SYS/broker/bytes/received" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/bytes/sent" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/connected" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/disconnected" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/expired" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/flapped" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/maximum" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/stalled" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/clients/total" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/connections/accepted" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/connections/not_opened" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/connections/paced" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/connections/refused" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/connections/turned_away" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/connections/violations" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/delayed/messages/bytes" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/delayed/messages/count" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/load/bytes/received/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/bytes/received/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/bytes/received/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/bytes/sent/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/bytes/sent/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/bytes/sent/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/connections/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/connections/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/connections/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/messages/received/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/messages/received/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/messages/received/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/messages/sent/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/messages/sent/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/messages/sent/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/dropped/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/dropped/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/dropped/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/received/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/received/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/received/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/sent/15min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/sent/1min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/load/publish/sent/5min" qos=0 retain "0.00"
        a< PUBLISH "$SYS/broker/messages/received" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/messages/sent" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/permissions/asked" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/permissions/denied/connect" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/permissions/denied/publish" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/permissions/denied/subscribe" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/permissions/unanswered" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/bytes/received" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/expired" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/offline" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/out_of_memory" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/packet_too_large" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/queue_full" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/refused" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/dropped/store_full" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/received" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/publish/messages/sent" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/retained messages/count" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/shared_subscriptions/count" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/store/messages/bytes" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/store/messages/count" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/subscriptions/count" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/uptime" qos=0 retain "1 seconds"
        a< PUBLISH "$SYS/broker/version" qos=0 retain "godwit version 0.1.0"
        "##
    }

    fn drops_are_counted_by_reason() {
        r##"
        # options: sys.interval_s=10 queue.messages_max=1
        # shards: 1
        # sim only: counts
        a> CONNECT id=a expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        a! cut
        p> CONNECT id=p maximum_packet_size=60
        p< CONNACK present=0
        p> SUBSCRIBE 1 "$SYS/broker/publish/messages/dropped/#" qos=0
        p< SUBACK 1 [0]
        p> SUBSCRIBE 2 "t" qos=0
        p< SUBACK 2 [0]
        + 1s
        p< PUBLISH "$SYS/broker/publish/messages/dropped" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/expired" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/offline" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/out_of_memory" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/packet_too_large" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/queue_full" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/refused" qos=0 "0"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/store_full" qos=0 "0"
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBLISH "t" qos=0 "1"
        p< PUBACK 1
        p> PUBLISH 2 "t" qos=1 "2" expiry=5
        p< PUBLISH "t" qos=0 "2" expiry=5
        p< PUBACK 2
        p> PUBLISH "t" qos=0 "offline"
        p< PUBLISH "t" qos=0 "offline"
        p> PUBLISH 3 "u" qos=1 "x"*60
        p< PUBACK 3 NoMatchingSubscribers
        p> PUBLISH "t" qos=0 "x"*60
        + 10s
        p< PUBLISH "$SYS/broker/publish/messages/dropped" qos=0 "4"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/offline" qos=0 "2"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/packet_too_large" qos=0 "1"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/queue_full" qos=0 "1"
        a> CONNECT id=a clean=0
        a< CONNACK present=1
        + 10s
        p< PUBLISH "$SYS/broker/publish/messages/dropped" qos=0 "5"
        p< PUBLISH "$SYS/broker/publish/messages/dropped/expired" qos=0 "1"
        "##
    }

    fn every_shard_has_its_own_values() {
        r##"
        # options: sys.interval_s=10
        # shards: 2
        # sim only: counts
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/shards/+/publish/messages/received" qos=0
        a< SUBACK 1 [0]
        + 1s
        a< PUBLISH "$SYS/broker/shards/0/publish/messages/received" qos=0 "0"
        a< PUBLISH "$SYS/broker/shards/1/publish/messages/received" qos=0 "0"
        + 10s
        "##
    }

    fn of_many_shards_the_own_values_come_in_each_round_and_are_not_retained() {
        r##"
        # options: sys.interval_s=10
        # shards: 17
        # sim only: counts
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/shards/16/publish/messages/received" qos=0
        a< SUBACK 1 [0]
        + 1s
        a< PUBLISH "$SYS/broker/shards/16/publish/messages/received" qos=0 "0"
        + 10s
        a< PUBLISH "$SYS/broker/shards/16/publish/messages/received" qos=0 "0"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "$SYS/broker/shards/16/publish/messages/received" qos=0
        b< SUBACK 1 [0]
        "##
    }

    fn clients_that_come_and_go_are_announced() {
        r##"
        # options: sys.interval_s=3600
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        s< PUBLISH "$SYS/broker/client/a/online" qos=0 "5.0"
        a> DISCONNECT
        a< CLOSED
        s< PUBLISH "$SYS/broker/client/a/offline" qos=0 "5.0"
        b> CONNECT id="x/+ #%" v=311
        b< CONNACK present=0
        s< PUBLISH "$SYS/broker/client/x%2F%2B %23%25/online" qos=0 "3.1.1"
        b! cut
        s< PUBLISH "$SYS/broker/client/x%2F%2B %23%25/offline" qos=0 "3.1.1"
        c> CONNECT id=c v=31
        c< CONNACK present=0
        s< PUBLISH "$SYS/broker/client/c/online" qos=0 "3.1"
        c2> CONNECT id=c
        c2< CONNACK present=0
        s< PUBLISH "$SYS/broker/client/c/offline" qos=0 "3.1"
        s< PUBLISH "$SYS/broker/client/c/online" qos=0 "5.0"
        c< CLOSED
        "##
    }

    // [MQTT-3.14.4-1]
    fn nothing_comes_after_the_disconnect_of_whoever_listens_to_itself() {
        r##"
        # options: sys.interval_s=3600
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=a
        b< CONNACK present=0
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        b< SUBACK 1 [0]
        b> CONNECT id=a
        b< DISCONNECT ProtocolError reason_string="sent a second CONNECT"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        c< SUBACK 1 [0]
        c> DISCONNECT
        c< CLOSED
        "##
    }

    fn without_an_interval_there_is_no_tree() {
        r##"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/#" qos=0
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        + 100s
        "##
    }

    fn the_tree_can_be_turned_on_and_off_while_it_runs() {
        r##"
        # shards: 1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/clients/connected" qos=0
        a< SUBACK 1 [0]
        ! reload sys.interval_s=10
        + 11s
        a< PUBLISH "$SYS/broker/clients/connected" qos=0 "1"
        b> CONNECT id=b
        b< CONNACK present=0
        ! reload sys.interval_s=0
        + 30s
        ! reload sys.interval_s=10
        + 11s
        a< PUBLISH "$SYS/broker/clients/connected" qos=0 "2"
        "##
    }

    // [MQTT-4.7.2-1]
    fn a_filter_that_starts_with_a_wildcard_does_not_see_the_tree() {
        r##"
        # options: sys.interval_s=1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "#" qos=0 "+/broker/uptime" qos=0
        a< SUBACK 1 [0 0]
        + 3s
        "##
    }

    fn refused_messages_are_counted_whatever_their_qos() {
        r##"
        # options: sys.interval_s=10 topic.levels_max=6
        # shards: 1
        # sim only: counts
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/publish/messages/dropped/refused" qos=0
        a< SUBACK 1 [0]
        + 1s
        a< PUBLISH "$SYS/broker/publish/messages/dropped/refused" qos=0 "0"
        a> PUBLISH "$SYS/x" qos=0 "x"
        a> PUBLISH "a/b/c/d/e/f/g" qos=0 "x"
        b> CONNECT id=b v=311
        b< CONNACK present=0
        b> PUBLISH 1 "$SYS/x" qos=1 "x"
        b< PUBACK 1
        + 10s
        a< PUBLISH "$SYS/broker/publish/messages/dropped/refused" qos=0 "3"
        "##
    }

    fn a_window_that_does_not_move_is_counted() {
        r##"
        # options: sys.interval_s=10
        # shards: 1
        # sim only: counts
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "t" qos=1 "1"
        p< PUBACK 1
        a< PUBLISH 1 "t" qos=1 "1"
        + 20s
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/broker/clients/stalled" qos=0
        s< SUBACK 1 [0]
        s< PUBLISH "$SYS/broker/clients/stalled" qos=0 retain "0"
        + 40s
        s< PUBLISH "$SYS/broker/clients/stalled" qos=0 "1"
        p> PUBLISH 2 "t" qos=1 "2"
        p< PUBACK 2
        a< PUBLISH 2 "t" qos=1 "2"
        a> PUBACK 2
        a> PUBACK 1
        + 20s
        s< PUBLISH "$SYS/broker/clients/stalled" qos=0 "0"
        "##
    }
}
