//! The `$SYS` tree: values, their changes, and clients that come and go.

crate::transcripts! {
    fn the_tree_is_published_each_interval_and_retained() {
        r##"
        # options: sys_interval_s=10
        # shards: 1
        # sim only: counts and the version
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$SYS/broker/clients/+" qos=0 "$SYS/broker/subscriptions/count" qos=0
        + 1s
        + 10s
        b> CONNECT id=b
        b> SUBSCRIBE 1 "$SYS/broker/clients/connected" qos=0
        + 10s
        b! cut
        + 10s
        "##
    }

    fn the_whole_tree() {
        r##"
        # options: sys_interval_s=10
        # shards: 1
        # sim only: counts and the version
        + 1s
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$SYS/#" qos=0
        "##
    }

    fn drops_are_counted_by_reason() {
        r##"
        # options: sys_interval_s=10 queue_messages_max=1
        # shards: 1
        # sim only: counts
        a> CONNECT id=a expiry=60
        a> SUBSCRIBE 1 "t" qos=1
        a! cut
        p> CONNECT id=p maximum_packet_size=60
        p> SUBSCRIBE 1 "$SYS/broker/publish/messages/dropped/#" qos=0
        p> SUBSCRIBE 2 "t" qos=0
        + 1s
        p> PUBLISH 1 "t" qos=1 "1"
        p> PUBLISH 2 "t" qos=1 "2" expiry=5
        p> PUBLISH "t" qos=0 "offline"
        p> PUBLISH 3 "u" qos=1 "x"*60
        p> PUBLISH "t" qos=0 "x"*60
        + 10s
        a> CONNECT id=a clean=0
        + 10s
        "##
    }

    fn every_shard_has_its_own_values() {
        r##"
        # options: sys_interval_s=10
        # shards: 2
        # sim only: counts
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$SYS/broker/shards/+/publish/messages/received" qos=0
        + 1s
        + 10s
        "##
    }

    fn clients_that_come_and_go_are_announced() {
        r##"
        # options: sys_interval_s=3600
        s> CONNECT id=s
        s> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        a> CONNECT id=a
        a> DISCONNECT
        b> CONNECT id="x/+ #%" v=311
        b! cut
        c> CONNECT id=c v=31
        c2> CONNECT id=c
        "##
    }

    // [MQTT-3.14.4-1]
    fn nothing_comes_after_the_disconnect_of_whoever_listens_to_itself() {
        r##"
        # options: sys_interval_s=3600
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        b> CONNECT id=a
        b> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        b> CONNECT id=a
        c> CONNECT id=c
        c> SUBSCRIBE 1 "$SYS/broker/client/#" qos=0
        c> DISCONNECT
        "##
    }

    fn without_an_interval_there_is_no_tree() {
        r##"
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$SYS/#" qos=0
        b> CONNECT id=b
        + 100s
        "##
    }

    fn the_tree_can_be_turned_on_and_off_while_it_runs() {
        r##"
        # shards: 1
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$SYS/broker/clients/connected" qos=0
        ! reload sys_interval_s=10
        + 11s
        b> CONNECT id=b
        ! reload sys_interval_s=0
        + 30s
        ! reload sys_interval_s=10
        + 11s
        "##
    }

    // [MQTT-4.7.2-1]
    fn a_filter_that_starts_with_a_wildcard_does_not_see_the_tree() {
        r##"
        # options: sys_interval_s=1
        a> CONNECT id=a
        a> SUBSCRIBE 1 "#" qos=0 "+/broker/uptime" qos=0
        + 3s
        "##
    }
}
