//! Caches of the last messages by topic (`[[cache]]`), and requests to them.

crate::transcripts! {
    fn the_last_message_of_a_topic_is_answered_whether_it_was_retained_or_not() {
        r##"
        # caches: last t/#
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "old"
        p> PUBLISH 1 "t/1" qos=1 "new" content_type="text/plain" payload_format=1 user="a":"b"
        p< PUBACK 1 NoMatchingSubscribers
        p> PUBLISH 2 "t/2" qos=1 retain "other"
        p< PUBACK 2 NoMatchingSubscribers
        p> PUBLISH "u" qos=0 "no cache's"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "answers/a" qos=1
        a< SUBACK 1 [1]
        + 5s
        a> PUBLISH 1 "$cache/last/t/1" qos=1 "" response_topic=answers/a correlation="7"
        a< PUBACK 1
        a< PUBLISH 1 "answers/a" qos=1 "new" correlation="7" user="cache_topic":"t/1" \
            user="cache_at_ms":"0" user="cache_number":"1" user="cache_count":"1" \
            content_type=text/plain payload_format=1 user="a":"b"
        a> PUBACK 1
        a> PUBLISH "$cache/last" qos=0 "{\"topic\":\"#\"}" response_topic=answers/a
        a< PUBLISH "answers/a" qos=0 "new" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2" content_type=text/plain \
            payload_format=1 user="a":"b"
        a< PUBLISH "answers/a" qos=0 "other" user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBLISH "$cache/last/u" qos=0 "" response_topic=answers/a correlation="8"
        a< PUBLISH "answers/a" qos=0 "" correlation="8" user="cache_count":"0"
        "##
    }

    fn a_ring_keeps_the_newest_of_each_topic_in_their_order() {
        r##"
        # caches: ring t/+/v messages_max=3
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/b/v" qos=0 "b1"
        p> PUBLISH "t/a/v" qos=0 "a1"
        p> PUBLISH "t/a/v" qos=0 "a2"
        + 1s
        p> PUBLISH "t/a/v" qos=0 "a3"
        p> PUBLISH "t/a/v" qos=0 "a4"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "$cache/ring" qos=0 "{\"topic\":\"t/+/v\"}" response_topic=r
        a< PUBLISH "r" qos=0 "a2" user="cache_topic":"t/a/v" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"4"
        a< PUBLISH "r" qos=0 "a3" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"2" user="cache_count":"4"
        a< PUBLISH "r" qos=0 "a4" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"3" user="cache_count":"4"
        a< PUBLISH "r" qos=0 "b1" user="cache_topic":"t/b/v" user="cache_at_ms":"0" \
            user="cache_number":"4" user="cache_count":"4"
        a> PUBLISH "$cache/ring" qos=0 "{\"topic\":\"t/#\",\"messages_max\":1}" \
            response_topic=r
        a< PUBLISH "r" qos=0 "a4" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "b1" user="cache_topic":"t/b/v" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBLISH "$cache/ring/t/a/v" qos=0 "{\"messages_max\":2}" response_topic=r
        a< PUBLISH "r" qos=0 "a3" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "a4" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBLISH "$cache/ring" qos=0 "{\"topic\":\"#\",\"after_ms\":0}" response_topic=r
        a< PUBLISH "r" qos=0 "a3" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "a4" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBLISH "$cache/ring" qos=0 "{\"topic\":\"#\",\"before_ms\":1000}" response_topic=r
        a< PUBLISH "r" qos=0 "a2" user="cache_topic":"t/a/v" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "b1" user="cache_topic":"t/b/v" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBLISH "$cache/ring" qos=0 "{\"topic\":\"t/b/#\",\"after_ms\":1000}" \
            response_topic=r
        a< PUBLISH "r" qos=0 "" user="cache_count":"0"
        a> PUBLISH "$cache/ring" qos=0 "{\"topic\":\"#\",\"next\":\"3:t/a/v\"}" \
            response_topic=r
        a< PUBLISH "r" qos=0 "a3" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"1" user="cache_count":"3"
        a< PUBLISH "r" qos=0 "a4" user="cache_topic":"t/a/v" user="cache_at_ms":"1000" \
            user="cache_number":"2" user="cache_count":"3"
        a< PUBLISH "r" qos=0 "b1" user="cache_topic":"t/b/v" user="cache_at_ms":"0" \
            user="cache_number":"3" user="cache_count":"3"
        "##
    }

    fn what_is_too_old_or_has_expired_is_not_answered() {
        r##"
        # caches: young t/# messages_max=2 age_s_max=10
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "1"
        p> PUBLISH "t/2" qos=0 "2" expiry=5
        + 4s
        p> PUBLISH "t/1" qos=0 "3"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "$cache/young" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"3"
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/1" user="cache_at_ms":"4000" \
            user="cache_number":"2" user="cache_count":"3"
        a< PUBLISH "r" qos=0 "2" expiry=1 user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"3" user="cache_count":"3"
        + 2s
        a> PUBLISH "$cache/young" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/1" user="cache_at_ms":"4000" \
            user="cache_number":"2" user="cache_count":"2"
        + 4s
        a> PUBLISH "$cache/young" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/1" user="cache_at_ms":"4000" \
            user="cache_number":"1" user="cache_count":"1"
        + 5s
        a> PUBLISH "$cache/young" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "" user="cache_count":"0"
        "##
    }

    fn above_a_bound_the_topic_goes_that_was_written_longest_ago() {
        r##"
        # caches: c # topics_max=2; bytes # bytes_max=1000
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "a" qos=0 "1"
        p> PUBLISH "b" qos=0 "2"
        p> PUBLISH "a" qos=0 "3"
        p> PUBLISH "c" qos=0 "4"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0 "$SYS/broker/cache/+/+" qos=0
        a< SUBACK 1 [0 0]
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"a" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "4" user="cache_topic":"c" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        p> PUBLISH "big" qos=0 "x"*400
        a> PUBLISH "$cache/bytes" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "x"*400 user="cache_topic":"big" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        "##
    }

    fn answers_are_no_messages_of_a_cache_and_are_not_retained() {
        r##"
        # caches: all #
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 retain "1"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0 "$cache/#" qos=0
        a< SUBACK 1 [0 0]
        a> PUBLISH "$cache/all/t" qos=0 retain "" response_topic=r
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        a> PUBLISH "$cache/all" qos=0 "{\"topic\":\"+\"}" response_topic=r
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "r" qos=0 "$cache/#" qos=0
        b< SUBACK 1 [0 0]
        "##
    }

    fn no_local_holds_nothing_back_and_others_may_listen() {
        r##"
        # caches: all t
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0 no_local
        a< SUBACK 1 [0]
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 "#" qos=0
        b< SUBACK 1 [0]
        a> PUBLISH 1 "$cache/all/t" qos=2 "" response_topic=r
        a< PUBREC 1
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        b< PUBLISH "r" qos=0 "1" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        a> PUBLISH 1 "$cache/all/t" qos=2 dup "" response_topic=r
        a< PUBREC 1
        a> PUBREL 1
        a< PUBCOMP 1
        "##
    }

    fn what_a_rule_drops_is_not_kept_and_what_it_publishes_is() {
        r##"
        # caches: all #
        # rule: r publish=made drop : SELECT 1 AS x FROM "t"
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t" qos=0 "1"
        p> PUBLISH "u" qos=0 "2"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "$cache/all" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "{\"x\":1}" user="cache_topic":"made" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "2" user="cache_topic":"u" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        "##
    }

    fn wills_and_delayed_messages_are_kept_when_they_go_out() {
        r##"
        # caches: all #
        w> CONNECT id=w will="bye" will_payload="gone"
        w< CONNACK present=0
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "$delayed/2/late" qos=0 "1"
        w! cut
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "$cache/all" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "gone" user="cache_topic":"bye" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        + 3s
        a> PUBLISH "$cache/all" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "gone" user="cache_topic":"bye" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"late" user="cache_at_ms":"2000" \
            user="cache_number":"2" user="cache_count":"2"
        "##
    }

    fn what_is_wrong_is_answered_and_acknowledged_with_its_reason() {
        r##"
        # caches: c t
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH 1 "$cache/other/t" qos=1 "" response_topic=r correlation="1"
        a< PUBACK 1 TopicNameInvalid \
            reason_string="no such cache: a request goes to $cache/NAME"
        a< PUBLISH "r" qos=0 "" correlation="1" \
            user="cache_error":"no such cache: a request goes to $cache/NAME"
        a> PUBLISH 1 "$cache/c" qos=1 "x" response_topic=r correlation="2"
        a< PUBACK 1 PayloadFormatInvalid \
            reason_string="a request to $cache/NAME is JSON like {\"topic\":\"a/#\"}"
        a< PUBLISH "r" qos=0 "" correlation="2" \
            user="cache_error":"a request to $cache/NAME is JSON like {\"topic\":\"a/#\"}"
        a> PUBLISH 1 "$cache/c" qos=2 "{\"topic\":\"a/#/b\"}" response_topic=r
        a< PUBREC 1 PayloadFormatInvalid \
            reason_string="a request to $cache/NAME is JSON like {\"topic\":\"a/#\"}"
        a< PUBLISH "r" qos=0 "" \
            user="cache_error":"topic is not a topic filter, use one like \"a/+/c\" or \"a/#\""
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"t\",\"last\":3}" response_topic=r
        a< PUBLISH "r" qos=0 "" \
            user="cache_error":"last is unknown, use topic, messages_max, after_ms, before_ms, next"
        a> PUBLISH 1 "$cache/c/t" qos=1 ""
        a< PUBACK 1 ImplementationSpecificError \
            reason_string="a request to $cache/ needs a Response Topic"
        a> PUBLISH 1 "$cache/c/t" qos=1 "" response_topic=$SYS/x
        a< PUBACK 1 NotAuthorized \
            reason_string="not permitted: $SYS and $link topics are the server's"
        a> PUBLISH 1 "$cache/c/t" qos=1 "" response_topic=$cache/c/t
        a< PUBACK 1 TopicNameInvalid \
            reason_string="no such cache: a request goes to $cache/NAME"
        a> PUBLISH 1 "$delayed/5/$cache/c/t" qos=1 "" response_topic=r
        a< PUBACK 1 TopicNameInvalid \
            reason_string="no such cache: a request goes to $cache/NAME"
        w> CONNECT id=w will="$cache/c/t" will_payload="x"
        w< CONNACK present=0 TopicNameInvalid \
            reason_string="no such cache: a request goes to $cache/NAME"
        w< CLOSED
        "##
    }

    fn a_client_of_3_1_1_cannot_ask_and_hears_answers_without_properties() {
        r##"
        # caches: c t
        a> CONNECT id=a v=311
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 1 "t" qos=1 "kept"
        a< PUBACK 1
        a> PUBLISH 2 "$cache/c/t" qos=1 ""
        a< PUBACK 2
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 1 "$cache/c/t" qos=1 "" response_topic=r
        b< PUBACK 1
        a< PUBLISH 1 "r" qos=1 "kept"
        "##
    }

    fn who_asks_must_be_permitted_to_subscribe_and_to_publish_the_answers() {
        r##"
        # caches: c #
        # rules: allow publish topic=r; deny publish topic=shut; deny subscribe \
            topic=secret/#; allow subscribe topic=open/#; allow topic=r; allow publish topic=#
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "open/1" qos=0 "1"
        a> PUBLISH "secret/1" qos=0 "2"
        a> PUBLISH 1 "$cache/c" qos=1 "{\"topic\":\"open/#\"}" response_topic=r
        a< PUBACK 1
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"open/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        a> PUBLISH 1 "$cache/c/secret/1" qos=1 "" response_topic=r
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PUBLISH "r" qos=0 "" user="cache_error":"not permitted by the rules of the server"
        a> PUBLISH 1 "$cache/c" qos=1 "{\"topic\":\"#\"}" response_topic=r
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PUBLISH "r" qos=0 "" user="cache_error":"not permitted by the rules of the server"
        a> PUBLISH 1 "$cache/c/open/1" qos=1 "" response_topic=shut
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        "##
    }

    fn who_is_asked_about_permissions_is_asked_about_both() {
        r##"
        # caches: c #
        # warden: allow t/#; deny u; allow r
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH "t/1" qos=0 "1"
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        ! warden asked
        warden< publish "t/1" qos=0 by a
        warden< subscribe "r" qos=0 by a
        a> PUBLISH 1 "$cache/c/t/1" qos=1 "" response_topic=r
        a< PUBACK 1
        a< PUBLISH "r" qos=0 "1" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        ! warden asked
        warden< publish "r" qos=1 by a
        warden< subscribe "t/1" qos=1 by a
        a> PUBLISH 1 "$cache/c/u" qos=1 "" response_topic=r
        a< PUBACK 1 NotAuthorized reason_string="not permitted by the rules of the server"
        a< PUBLISH "r" qos=0 "" user="cache_error":"not permitted by the rules of the server"
        ! warden asked
        warden< subscribe "u" qos=1 by a
        "##
    }

    fn clients_in_a_namespace_see_their_own_alone() {
        r##"
        # listener: 1 namespace=acme
        # listener: 2 namespace=globex
        # caches: c #
        a! by 1
        a> CONNECT id=a
        a< CONNACK present=0
        g! by 2
        g> CONNECT id=g
        g< CONNACK present=0
        p> CONNECT id=p
        p< CONNACK present=0
        a> PUBLISH "t" qos=0 "acme's"
        g> PUBLISH "t" qos=0 "globex's"
        p> PUBLISH "t" qos=0 "nobody's"
        p> PUBLISH "acme" qos=0 "called like it"
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        g> SUBSCRIBE 1 "r" qos=0
        g< SUBACK 1 [0]
        p> SUBSCRIBE 1 "r" qos=0
        p< SUBACK 1 [0]
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "acme's" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        g> PUBLISH "$cache/c/t" qos=0 "" response_topic=r
        g< PUBLISH "r" qos=0 "globex's" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        g> PUBLISH "$cache/c" qos=0 "{\"topic\":\"acme/#\"}" response_topic=r
        g< PUBLISH "r" qos=0 "" user="cache_count":"0"
        p> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        p< PUBLISH "r" qos=0 "called like it" user="cache_topic":"acme" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"4"
        p< PUBLISH "r" qos=0 "acme's" user="cache_topic":"acme/t" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"4"
        p< PUBLISH "r" qos=0 "globex's" user="cache_topic":"globex/t" user="cache_at_ms":"0" \
            user="cache_number":"3" user="cache_count":"4"
        p< PUBLISH "r" qos=0 "nobody's" user="cache_topic":"t" user="cache_at_ms":"0" \
            user="cache_number":"4" user="cache_count":"4"
        "##
    }

    fn names_of_a_request_are_rewritten_as_those_of_clients_are() {
        r##"
        # caches: c new/#
        # rewrite: all old/# ^old/(.+)$ new/$1
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "old/r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "old/t" qos=0 "1"
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"old/+\"}" response_topic=old/r
        a< PUBLISH "new/r" qos=0 "1" user="cache_topic":"new/t" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        "##
    }

    fn a_reload_keeps_what_still_fits() {
        r##"
        # caches: c t/# messages_max=2; d t/#
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "1"
        p> PUBLISH "t/1" qos=0 "2"
        p> PUBLISH "t/2" qos=0 "3"
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        ! caches c t/# messages_max=1; d t/2; e t/#
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "2" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBLISH "$cache/d" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        a> PUBLISH "$cache/e" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "" user="cache_count":"0"
        ! caches c t/# topics_max=1
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        a> PUBLISH "$cache/d" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "" \
            user="cache_error":"no such cache: a request goes to $cache/NAME"
        ! caches none
        ! caches c t/#
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "" user="cache_count":"0"
        "##
    }

    fn what_is_in_a_cache_is_counted() {
        r##"
        # options: sys.interval_s=10
        # caches: c t/# topics_max=2
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "1"
        p> PUBLISH "t/2" qos=0 "2"
        p> PUBLISH "t/3" qos=0 "3"
        p> PUBLISH "$cache/c/t/1" qos=0 "" response_topic=r
        + 15s
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "$SYS/broker/cache/#" qos=0
        a< SUBACK 1 [0]
        a< PUBLISH "$SYS/broker/cache/c/bytes" qos=0 retain "636"
        a< PUBLISH "$SYS/broker/cache/c/evicted" qos=0 retain "1"
        a< PUBLISH "$SYS/broker/cache/c/messages" qos=0 retain "2"
        a< PUBLISH "$SYS/broker/cache/c/missed" qos=0 retain "0"
        a< PUBLISH "$SYS/broker/cache/c/reads" qos=0 retain "1"
        a< PUBLISH "$SYS/broker/cache/c/topics" qos=0 retain "2"
        ! caches none
        + 12s
        a< PUBLISH "$SYS/broker/cache/c/bytes" qos=0 ""
        a< PUBLISH "$SYS/broker/cache/c/evicted" qos=0 ""
        a< PUBLISH "$SYS/broker/cache/c/messages" qos=0 ""
        a< PUBLISH "$SYS/broker/cache/c/missed" qos=0 ""
        a< PUBLISH "$SYS/broker/cache/c/reads" qos=0 ""
        a< PUBLISH "$SYS/broker/cache/c/topics" qos=0 ""
        "##
    }

    fn no_more_is_kept_while_the_memory_is_crowded() {
        r##"
        # options: memory.bytes_max=1048576
        # caches: c t/#
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "1"
        p> PUBLISH "t/2" qos=0 "2"
        s> CONNECT id=s
        s< CONNACK present=0
        s> SUBSCRIBE 1 "fill" qos=1
        s< SUBACK 1 [1]
        p> PUBLISH 1 "fill" qos=1 "x"*300000
        p< PUBACK 1
        s< PUBLISH 1 "fill" qos=1 "x"*300000
        p> PUBLISH 2 "fill" qos=1 "x"*250000
        p< PUBACK 2
        s< PUBLISH 2 "fill" qos=1 "x"*250000
        p> PUBLISH "t/3" qos=0 "3"
        a> CONNECT id=a clean=0
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "2" user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a< PUBLISH "r" qos=0 "3" user="cache_topic":"t/3" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        "##
    }

    fn answers_wait_in_a_queue_as_any_message_does() {
        r##"
        # caches: c t/# messages_max=9
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "1"
        p> PUBLISH "t/1" qos=0 "2"
        a> CONNECT id=a receive_maximum=1
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=1
        a< SUBACK 1 [1]
        a> PUBLISH 1 "$cache/c/t/1" qos=1 "" response_topic=r
        a< PUBACK 1
        a< PUBLISH 1 "r" qos=1 "1" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"2"
        a> PUBACK 1
        a< PUBLISH 2 "r" qos=1 "2" user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"2" user="cache_count":"2"
        a> PUBACK 2
        "##
    }

    fn an_answer_that_is_not_whole_says_where_the_next_one_goes_on() {
        r##"
        # caches: c t/# bytes_max=2000000
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH "t/1" qos=0 "x"*600000
        p> PUBLISH "t/2" qos=0 "y"*600000
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 "r" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\"}" response_topic=r
        a< PUBLISH "r" qos=0 "x"*600000 user="cache_topic":"t/1" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1" user="cache_next":"1:t/1"
        a> PUBLISH "$cache/c" qos=0 "{\"topic\":\"#\",\"next\":\"1:t/1\"}" response_topic=r
        a< PUBLISH "r" qos=0 "y"*600000 user="cache_topic":"t/2" user="cache_at_ms":"0" \
            user="cache_number":"1" user="cache_count":"1"
        "##
    }
}
