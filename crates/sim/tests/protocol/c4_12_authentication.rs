//! Enhanced authentication: AUTH between CONNECT and CONNACK, and re-authentication. The
//! transcripts use the method STEPS: first a name, then a password.

crate::transcripts! {
    // [MQTT-4.12.0-2] [MQTT-4.12.0-3] [MQTT-4.12.0-5] [MQTT-3.15.2-2] [MQTT-3.15.2-3]
    fn a_client_proves_itself_in_steps() {
        r##"
        # user: ann password=x
        a> CONNECT id=a auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a> SUBSCRIBE 1 "t" qos=0
        a< SUBACK 1 [0]
        a> PUBLISH "t" qos=0 "1"
        a< PUBLISH "t" qos=0 "1"
        "##
    }

    fn there_may_be_several_steps_and_another_home() {
        r##"
        # user: ann password=x steps=3 id=ann-1
        # shards: 4
        a> CONNECT id=a auth_method=STEPS auth="ann" clean=0 expiry=100
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a> PINGREQ
        a< PINGRESP
        b> CONNECT id=b auth_method=STEPS auth="ann" clean=0 expiry=100 &
        b> AUTH 0x18 auth_method=STEPS auth="x" &
        b> AUTH 0x18 auth_method=STEPS auth="x" &
        b> AUTH 0x18 auth_method=STEPS auth="x" &
        b> PINGREQ
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b< CONNACK present=1 auth_method=STEPS auth="welcome"
        b< PINGRESP
        a< DISCONNECT SessionTakenOver
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-24]
    fn a_challenge_above_the_maximum_packet_size_is_not_sent() {
        r##"
        # user: ann password=x
        a> CONNECT id=a auth_method=STEPS auth="ann" maximum_packet_size=22
        a< CONNACK present=0 PacketTooLarge
        a< CLOSED
        "##
    }

    // [MQTT-4.12.0-4]
    fn who_does_not_prove_itself_stays_out() {
        r##"
        # user: ann password=x
        a> CONNECT id=a auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="y"
        a< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        a< CLOSED
        b> CONNECT id=b auth_method=STEPS auth="bob"
        b< CONNACK present=0 BadUserNameOrPassword \
            reason_string="the user name or the password is wrong"
        b< CLOSED
        "##
    }

    // [MQTT-4.12.0-1]
    fn a_method_that_nobody_knows_is_refused() {
        r##"
        # user: ann password=x
        a> CONNECT id=a auth_method=GS2-KRB5 auth="ann"
        a< CONNACK present=0 BadAuthenticationMethod \
            reason_string="the authentication method is not supported"
        a< CLOSED
        "##
    }

    // [MQTT-4.12.0-6] [MQTT-4.12.0-7]
    fn without_a_method_there_is_none() {
        r##"
        # user: ann password=x
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        a> AUTH 0x19 auth_method=STEPS auth="ann"
        a< DISCONNECT ProtocolError reason_string="sent authentication without a method"
        a< CLOSED
        "##
    }

    // [MQTT-3.1.2-30]
    fn nothing_but_auth_and_disconnect_comes_between() {
        r##"
        # user: ann password=x
        a> CONNECT id=a auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> PINGREQ
        a< CONNACK present=0 ProtocolError \
            reason_string="sent another packet before its authentication was over"
        a< CLOSED
        b> CONNECT id=b auth_method=STEPS auth="ann"
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b> DISCONNECT
        b< CLOSED
        c> CONNECT id=c auth_method=STEPS auth="ann"
        c< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        c> AUTH 0x18 auth_method=OTHER auth="x"
        c< CONNACK present=0 ProtocolError reason_string="changed the authentication method"
        c< CLOSED
        d> CONNECT id=d auth_method=STEPS auth="ann"
        d< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        d> AUTH 0x19 auth_method=STEPS auth="x"
        d< CONNACK present=0 ProtocolError reason_string="sent AUTH out of turn"
        d< CLOSED
        "##
    }

    fn an_answer_that_does_not_come_is_a_refusal() {
        r##"
        # user: ann password=x
        # options: auth.timeout_ms=2000 connect.timeout_ms=1000
        a> CONNECT id=a auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b> CONNECT id=b auth_method=STEPS auth="ann"
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b! cut
        + 1900ms
        + 200ms
        a< CONNACK present=0 ServerUnavailable \
            reason_string="nobody could say in time whether the client may connect"
        a< CLOSED
        "##
    }

    fn packets_that_follow_wait_for_the_last_step() {
        r##"
        # user: ann password=x
        ! judge waits
        a> CONNECT id=a auth_method=STEPS auth="ann"
        ! judge answers
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        ! judge waits
        a> AUTH 0x18 auth_method=STEPS auth="x" &
        a> SUBSCRIBE 1 "t" qos=0 &
        a> PUBLISH "t" qos=0 "x"
        + 1s
        ! judge answers
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a< SUBACK 1 [0]
        a< PUBLISH "t" qos=0 "x"
        "##
    }

    // [MQTT-4.12.1-1]
    fn a_client_that_is_in_proves_itself_again_and_nothing_waits() {
        r##"
        # user: ann password=x expires=10s
        a> CONNECT id=a auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        + 8s
        a> AUTH 0x19 auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> PINGREQ
        a< PINGRESP
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH auth_method=STEPS auth="welcome"
        + 9s
        a> PINGREQ
        a< PINGRESP
        + 2s
        a< DISCONNECT MaximumConnectTime \
            reason_string="the client's credentials have expired"
        a< CLOSED
        "##
    }

    // [MQTT-4.12.1-2]
    fn who_fails_to_prove_itself_again_goes() {
        r##"
        # user: ann password=x
        # user: bob password=y
        a> CONNECT id=a auth_method=STEPS auth="ann" &
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a> AUTH 0x19 auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="y"
        a< DISCONNECT NotAuthorized \
            reason_string="the client did not prove again who it is"
        a< CLOSED
        b> CONNECT id=b auth_method=STEPS auth="ann" &
        b> AUTH 0x18 auth_method=STEPS auth="x"
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b< CONNACK present=0 auth_method=STEPS auth="welcome"
        b> AUTH 0x19 auth_method=STEPS auth="bob"
        b< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        b> AUTH 0x18 auth_method=STEPS auth="y"
        b< DISCONNECT NotAuthorized \
            reason_string="the client did not prove again who it is"
        b< CLOSED
        c> CONNECT id=c auth_method=STEPS auth="ann" &
        c> AUTH 0x18 auth_method=STEPS auth="x"
        c< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        c< CONNACK present=0 auth_method=STEPS auth="welcome"
        c> AUTH 0x18 auth_method=STEPS auth="x"
        c< DISCONNECT ProtocolError reason_string="sent AUTH out of turn"
        c< CLOSED
        d> CONNECT id=d auth_method=STEPS auth="ann" &
        d> AUTH 0x18 auth_method=STEPS auth="x"
        d< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        d< CONNACK present=0 auth_method=STEPS auth="welcome"
        d> AUTH 0x19 auth_method=OTHER auth="ann"
        d< DISCONNECT ProtocolError reason_string="changed the authentication method"
        d< CLOSED
        "##
    }

    fn new_rights_come_with_a_new_proof() {
        r##"
        # user: ann password=x : allow topic=a/#
        # rules: deny topic=#
        a> CONNECT id=a auth_method=STEPS auth="ann" &
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a< CONNACK present=0 auth_method=STEPS auth="welcome"
        a> SUBSCRIBE 1 "a/b" qos=0
        a< SUBACK 1 [0]
        a> AUTH 0x19 auth_method=STEPS auth="ann"
        a< AUTH ContinueAuthentication auth_method=STEPS auth="prove it"
        a> AUTH 0x18 auth_method=STEPS auth="x"
        a< AUTH auth_method=STEPS auth="welcome"
        a> PUBLISH "a/b" qos=0 "1"
        a< PUBLISH "a/b" qos=0 "1"
        "##
    }
}
