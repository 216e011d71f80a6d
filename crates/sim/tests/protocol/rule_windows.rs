//! Rules with a window: all messages of a key are aggregated, on whatever shard they were
//! published, and rows are produced at the end of the window.

crate::transcripts! {
    // Publishers on all shards, and one row a key.
    fn what_comes_in_on_any_shard_comes_together_under_its_key() {
        r##"
        # rule: mean publish=mean/${dev} payload=${n},${sum},${avg} : SELECT payload.dev AS \
            dev, count(*) AS n, sum(payload.v) AS sum, avg(payload.v) AS avg FROM "in/+" GROUP BY \
            payload.dev, TUMBLINGWINDOW(ss, 10)
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "mean/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        q> CONNECT id=q2
        q< CONNACK present=0
        r> CONNECT id=r3
        r< CONNACK present=0
        p> PUBLISH "in/p" qos=0 "{\"dev\":\"a\",\"v\":1}"
        q> PUBLISH "in/q" qos=0 "{\"dev\":\"a\",\"v\":2}"
        r> PUBLISH "in/r" qos=0 "{\"dev\":\"a\",\"v\":6}"
        + 11s
        s< PUBLISH "mean/a" qos=0 "3,9,3.0"
        p> PUBLISH "in/p" qos=0 "{\"dev\":\"b\",\"v\":7}"
        + 11s
        s< PUBLISH "mean/b" qos=0 "1,7,7.0"
        "##
    }

    fn a_window_of_a_number_of_messages() {
        r##"
        # rule: three publish=three payload=${all} : SELECT collect(payload) AS all FROM "in" \
            GROUP BY COUNTWINDOW(3)
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "three" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 "1"
        p> PUBLISH "in" qos=0 "2"
        p> PUBLISH "in" qos=0 "3"
        s< PUBLISH "three" qos=0 "[\"1\",\"2\",\"3\"]"
        p> PUBLISH "in" qos=0 "4"
        "##
    }

    fn a_window_that_slides_ends_with_each_message() {
        r##"
        # rule: slide publish=slide payload=${all} : SELECT collect(payload) AS all FROM "in" \
            GROUP BY SLIDINGWINDOW(ss, 5) HAVING count(*) > 1
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "slide" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 "1"
        p> PUBLISH "in" qos=0 "2"
        s< PUBLISH "slide" qos=0 "[\"1\",\"2\"]"
        + 3s
        p> PUBLISH "in" qos=0 "3"
        s< PUBLISH "slide" qos=0 "[\"1\",\"2\",\"3\"]"
        + 3s
        p> PUBLISH "in" qos=0 "4"
        s< PUBLISH "slide" qos=0 "[\"3\",\"4\"]"
        + 6s
        p> PUBLISH "in" qos=0 "5"
        "##
    }

    fn windows_that_hop() {
        r##"
        # rule: hop publish=hop payload=${all} : SELECT collect(payload) AS all FROM "in" \
            GROUP BY HOPPINGWINDOW(ss, 4, 2)
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "hop" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 "1"
        + 2s
        s< PUBLISH "hop" qos=0 "[\"1\"]"
        p> PUBLISH "in" qos=0 "2"
        + 30s
        s< PUBLISH "hop" qos=0 "[\"1\",\"2\"]"
        s< PUBLISH "hop" qos=0 "[\"2\"]"
        p> PUBLISH "in" qos=0 "3"
        + 70s
        s< PUBLISH "hop" qos=0 "[\"3\"]"
        s< PUBLISH "hop" qos=0 "[\"3\"]"
        "##
    }

    fn a_window_that_a_pause_ends() {
        r##"
        # rule: pause publish=pause/${who} payload=${n} : SELECT clientid AS who, count(*) AS \
            n FROM "in" GROUP BY clientid, SESSIONWINDOW(mi, 10, 1)
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "pause/+" qos=0
        s< SUBACK 1 [0]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "in" qos=0 "1"
        + 30s
        p> PUBLISH "in" qos=0 "2"
        + 59s
        p> PUBLISH "in" qos=0 "3"
        + 61s
        s< PUBLISH "pause/p" qos=0 "3"
        "##
    }

    // One publisher comes and goes; the window is over events.
    fn events_come_together_too() {
        r##"
        # rule: flap publish=flap/${who} payload=${n} : SELECT clientid AS who, count(*) AS n \
            FROM "$events/client/disconnected" GROUP BY clientid, TUMBLINGWINDOW(mi, 1) HAVING n \
            >= 2
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "flap/+" qos=0
        s< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> DISCONNECT
        a< CLOSED
        a> CONNECT id=a
        a< CONNACK present=0
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        b> DISCONNECT
        b< CLOSED
        + 61s
        s< PUBLISH "flap/a" qos=0 "2"
        "##
    }

    // A second after it came, what a window knows is on the disk.
    fn a_window_goes_on_after_a_power_cut() {
        r##"
        # disk: on
        # rule: sum publish=sum payload=${s} qos=1 : SELECT sum(payload.v) AS s FROM "in" \
            GROUP BY payload.k, TUMBLINGWINDOW(mi, 1)
        s> CONNECT id=s clean=0 expiry=3600
        s< CONNACK present=0
        s> SUBSCRIBE 1 "sum" qos=1
        s< SUBACK 1 [1]
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "{\"k\":1,\"v\":1}"
        p< PUBACK 1
        p> PUBLISH 2 "in" qos=1 "{\"k\":1,\"v\":2}"
        p< PUBACK 2
        + 2s
        p> PUBLISH 3 "in" qos=1 "{\"k\":1,\"v\":4}"
        p< PUBACK 3
        ! power
        s< CLOSED
        p< CLOSED
        s> CONNECT id=s clean=0 expiry=3600
        s< CONNACK present=1
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 "in" qos=1 "{\"k\":1,\"v\":8}"
        p< PUBACK 1
        + 61s
        s< PUBLISH 1 "sum" qos=1 "11"
        ! stored
        disk< messages 0, queues 1, retained 0, sessions 3
        "##
    }

    // What its own rows bring into it again ends after eight times.
    fn a_window_that_feeds_itself_by_another_rule_ends() {
        r##"
        # options: sys.interval_s=10
        # rule: a publish=b payload=${n} : SELECT count(*) AS n FROM "a" GROUP BY \
            COUNTWINDOW(1)
        # rule: b publish=a payload=${n} : SELECT payload AS n FROM "b"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "a" qos=0 "b" qos=0
        s< SUBACK 1 [0 0]
        s> PUBLISH "a" qos=0 "x"
        s< PUBLISH "a" qos=0 "x"
        s< PUBLISH "b" qos=0 "1"
        s< PUBLISH "a" qos=0 "1"
        s< PUBLISH "b" qos=0 "1"
        s< PUBLISH "a" qos=0 "1"
        s< PUBLISH "b" qos=0 "1"
        s< PUBLISH "a" qos=0 "1"
        s< PUBLISH "b" qos=0 "1"
        s< PUBLISH "a" qos=0 "1"
        "##
    }

    fn what_no_window_takes_is_counted() {
        r##"
        # options: sys.interval_s=10
        # rule: all publish=all payload=${n} : SELECT count_distinct(topic) AS n FROM "in/#" \
            GROUP BY TUMBLINGWINDOW(hh, 1)
        # rule: bad publish=bad payload=${s} : SELECT sum(payload) AS s FROM "in/#" GROUP BY \
            COUNTWINDOW(2)
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "$SYS/broker/rule/+/failed/+" qos=0
        s< SUBACK 1 [0]
        s> PUBLISH "in/1" qos=0 "one"
        + 10s
        s< PUBLISH "$SYS/broker/rule/bad/failed/type" qos=0 "1"
        "##
    }

    fn another_text_begins_anew_and_the_same_goes_on() {
        r##"
        # rule: n publish=n payload=${n} : SELECT count(*) AS n FROM "in" GROUP BY \
            COUNTWINDOW(3)
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "n" qos=0 "m" qos=0
        s< SUBACK 1 [0 0]
        s> PUBLISH "in" qos=0 "1"
        s> PUBLISH "in" qos=0 "2"
        ! rule n publish=m payload=${n} : SELECT count(*) AS n FROM "in" GROUP BY \
            COUNTWINDOW(3)
        s> PUBLISH "in" qos=0 "3"
        s< PUBLISH "m" qos=0 "3"
        s> PUBLISH "in" qos=0 "4"
        ! rule n publish=m payload=${n} : SELECT count(*) AS n FROM "in" GROUP BY \
            COUNTWINDOW(2)
        s> PUBLISH "in" qos=0 "5"
        s> PUBLISH "in" qos=0 "6"
        s< PUBLISH "m" qos=0 "2"
        "##
    }
}
