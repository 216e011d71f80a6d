//! Bans: the ban list, the effect of a new ban on connected clients, and bans of clients that
//! connect and disconnect too often.

crate::transcripts! {
    // [MQTT-3.2.2-7] [MQTT-3.1.4-2] [3.1.1:MQTT-3.2.2-5]
    fn a_banned_client_id_is_refused() {
        r##"
        # bans: id=a; id=lab-*
        a> CONNECT id=a
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        b> CONNECT id=lab-7 v=311
        b< CONNACK present=0 NotAuthorized
        b< CLOSED
        c> CONNECT id=ab
        c< CONNACK present=0
        "##
    }

    // A name need not be proved to be turned down for it.
    fn a_banned_user_is_refused_before_anybody_is_asked_who_it_is() {
        r##"
        # user: ann password=x
        # user: bob password=x
        # bans: user=ann
        ! judge waits
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        b> CONNECT id=b user_name=bob password=x
        ! judge answers
        b< CONNACK present=0
        "##
    }

    fn the_client_id_that_a_verdict_gives_may_be_banned() {
        r##"
        # user: ann password=x id=ann-1
        # bans: id=ann-1
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        "##
    }

    fn a_banned_address_is_turned_away_before_it_says_anything() {
        r##"
        # bans: address=10.0.0.0/8; address=2001:db8::1
        # options: sys.interval_s=1
        # shards: 1
        a! from 10.1.2.3
        a> CONNECT id=a
        a< CLOSED
        b! from 2001:db8::1
        b> CONNECT id=b
        b< CLOSED
        c! from 2001:db8::2
        c> CONNECT id=c
        c< CONNACK present=0
        + 3s
        c> SUBSCRIBE 1 "$SYS/broker/connections/turned_away" qos=0
        c< SUBACK 1 [0]
        c< PUBLISH "$SYS/broker/connections/turned_away" qos=0 retain "2"
        "##
    }

    // [MQTT-3.14.2-1] [MQTT-3.14.4-1]: 0x8A is CONNACK's alone.
    fn a_new_list_ends_who_is_in() {
        r##"
        # user: ann password=x
        # user: anonymous
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b v=311
        b< CONNACK present=0
        c> CONNECT id=c user_name=ann password=x
        c< CONNACK present=0
        d! from 10.1.2.3
        d> CONNECT id=d will="d/gone" will_qos=0 will_payload="x"
        d< CONNACK present=0
        e> CONNECT id=e
        e< CONNACK present=0
        e> SUBSCRIBE 1 "d/gone" qos=0
        e< SUBACK 1 [0]
        ! bans id=a; id=b; user=ann; address=10.0.0.0/8
        a< DISCONNECT AdministrativeAction reason_string="the client is banned"
        a< CLOSED
        b< CLOSED
        c< DISCONNECT AdministrativeAction reason_string="the client is banned"
        c< CLOSED
        d< DISCONNECT AdministrativeAction reason_string="the client is banned"
        d< CLOSED
        e< PUBLISH "d/gone" qos=0 "x"
        a> CONNECT id=a
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        "##
    }

    fn a_ban_ends_by_itself() {
        r##"
        # bans: id=a for=10s
        a> CONNECT id=a
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        + 9900ms
        a> CONNECT id=a
        a< CONNACK present=0 Banned reason_string="the client is banned"
        a< CLOSED
        + 100ms
        a> CONNECT id=a
        a< CONNACK present=0
        "##
    }

    fn who_comes_and_goes_too_often_is_kept_out_for_a_while() {
        r##"
        # options: flapping.count_max=3 flapping.window_s=10 flapping.ban_s=20
        a> CONNECT id=a
        a< CONNACK present=0
        a! cut
        a> CONNECT id=a
        a< CONNACK present=0
        a> DISCONNECT
        a< CLOSED
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=a
        b< CONNACK present=0
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        b! cut
        b> CONNECT id=a
        b< CONNACK present=0 Banned \
            reason_string="the client came and went too often: it has to wait"
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        + 19s
        b> CONNECT id=a v=311
        b< CONNACK present=0 NotAuthorized
        b< CLOSED
        + 1s
        b> CONNECT id=a
        b< CONNACK present=0
        "##
    }

    fn who_comes_and_goes_slowly_does_not_flap() {
        r##"
        # options: flapping.count_max=3 flapping.window_s=10 flapping.ban_s=20
        a> CONNECT id=a
        a< CONNACK present=0
        a! cut
        a> CONNECT id=a
        a< CONNACK present=0
        a! cut
        + 10s
        a> CONNECT id=a
        a< CONNACK present=0
        a! cut
        a> CONNECT id=a
        a< CONNACK present=0
        a! cut
        a> CONNECT id=a
        a< CONNACK present=0
        "##
    }
}
