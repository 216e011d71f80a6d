//! CONNECT and CONNACK.

crate::transcripts! {
    // [MQTT-4.4.0-1]
    fn unacknowledged_publish_returns_with_dup_and_the_same_id() {
        r#"
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=0
        a> SUBSCRIBE 1 "t" qos=1
        a< SUBACK 1 [1]
        b> CONNECT id=b
        b< CONNACK present=0
        b> PUBLISH 9 "t" qos=1 "hello"
        b< PUBACK 9
        a< PUBLISH 1 "t" qos=1 "hello"
        a! cut
        +  5s
        a> CONNECT id=a clean=0 expiry=60
        a< CONNACK present=1
        a< PUBLISH 1 "t" qos=1 dup "hello"
        "#
    }
}
