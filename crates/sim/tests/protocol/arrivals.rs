//! Limits on the number and rate of connections: the response to a client above a limit, and no
//! effect on connected clients.

crate::transcripts! {
    // [MQTT-3.2.2-7] [3.1.1:MQTT-3.2.2-5]
    fn a_listener_takes_so_many_connections() {
        r##"
        # options: limits.connections_max=2
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b
        b< CONNACK present=0
        c> CONNECT id=c
        c< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        c< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0 ServerUnavailable
        c< CLOSED
        b> PINGREQ
        b< PINGRESP
        b> DISCONNECT
        b< CLOSED
        c> CONNECT id=c
        c< CONNACK present=0
        "##
    }

    fn an_address_has_so_many_connections() {
        r##"
        # options: limits.address_connections_max=1
        # sim only
        a! from 192.0.2.1
        a> CONNECT id=a
        a< CONNACK present=0
        b! from 192.0.2.1
        b> CONNECT id=b
        b< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        b< CLOSED
        c! from 192.0.2.2
        c> CONNECT id=c
        c< CONNACK present=0
        a! cut
        b> CONNECT id=b
        b< CONNACK present=0
        "##
    }

    fn a_network_of_ipv6_is_one_address() {
        r##"
        # options: limits.address_connections_max=1
        a! from 2001:db8::1
        a> CONNECT id=a
        a< CONNACK present=0
        b! from 2001:db8::ffff:2
        b> CONNECT id=b
        b< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        b< CLOSED
        c! from 2001:db8:0:1::1
        c> CONNECT id=c
        c< CONNACK present=0
        "##
    }

    fn an_address_connects_so_fast() {
        r##"
        # options: limits.address_connections_per_s=2
        a! from 192.0.2.1
        a> CONNECT id=a
        a< CONNACK present=0
        b! from 192.0.2.1
        b> CONNECT id=b
        b< CONNACK present=0
        c! from 192.0.2.1
        c> CONNECT id=c
        c< CONNACK present=0 ConnectionRateExceeded \
            reason_string="too many connections in so short a time"
        c< CLOSED
        c> CONNECT id=c v=311
        c< CONNACK present=0 ServerUnavailable
        c< CLOSED
        d> CONNECT id=d
        d< CONNACK present=0
        + 500ms
        c> CONNECT id=c
        c< CONNACK present=0
        "##
    }

    fn above_a_listeners_rate_connections_wait_and_nobody_is_refused() {
        r##"
        # options: limits.connections_per_s=2
        # sim only
        a> CONNECT id=a
        a< CONNACK present=0
        b> CONNECT id=b
        b< CONNACK present=0
        c> CONNECT id=c &
        c> PINGREQ
        d> CONNECT id=d
        a> PINGREQ
        a< PINGRESP
        + 499ms
        + 1ms
        c< CONNACK present=0
        c< PINGRESP
        + 500ms
        d< CONNACK present=0
        "##
    }

    // Nobody is asked who it is of whom the answer does not depend on that.
    fn who_is_one_too_many_is_not_judged() {
        r##"
        # user: ann password=x
        # options: limits.connections_max=1
        a> CONNECT id=a user_name=ann password=x
        a< CONNACK present=0
        ! judge waits
        b> CONNECT id=b user_name=ann password=x
        b< CONNACK present=0 QuotaExceeded \
            reason_string="no room: a limit of the server is reached"
        b< CLOSED
        "##
    }
}
