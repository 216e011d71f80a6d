//! A SUBSCRIBE with more filters than permitted authorization requests: the first filters are
//! authorized, each once, and the others are refused, with and without a cache of decisions.

fn line(from: usize, to: usize, item: impl Fn(usize) -> String) -> String {
    (from..to).map(item).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_packet_asks_more_than_so_many_questions() {
    for kept_ms in [0, 60_000] {
        let filters = |from, to| line(from, to, |at| format!("\"f/{at:03}\" qos=0"));
        let codes = |granted, refused| {
            let code = |at| (if at < granted { "0" } else { "0x97" }).to_string();
            line(0, granted + refused, code)
        };
        let asked = |from: usize, to: usize| -> String {
            let line = |at| format!("        warden< subscribe \"f/{at:03}\" qos=0 by a\n");
            (from..to).map(line).collect()
        };
        let why = "reason_string=\"no room: a limit of the server is reached\"";
        sim::check(&format!(
            "
        # options: asks_kept_ms={kept_ms}
        # warden: allow f/#
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 {}
        a< SUBACK 1 [{}] {why}
        ! warden asked
{}        a> SUBSCRIBE 2 {}
        a< SUBACK 2 [{}]
        ! warden asked
{}        a> PINGREQ
        a< PINGRESP
",
            filters(0, 300),
            codes(256, 44),
            asked(0, 256),
            filters(256, 300),
            codes(44, 0),
            asked(256, 300),
        ));
    }
}

#[test]
fn nobody_is_asked_about_a_topic_of_many_bytes() {
    let (most, long) = ("t".repeat(4096), "t".repeat(4097));
    let no = "NotAuthorized reason_string=\"not permitted by the rules of the server\"";
    sim::check(&format!(
        "
        # warden: allow #
        a> CONNECT id=a
        a< CONNACK present=0
        a> PUBLISH 1 \"{most}\" qos=1 \"x\"
        a< PUBACK 1 NoMatchingSubscribers
        a> PUBLISH 2 \"{long}\" qos=1 \"x\"
        a< PUBACK 2 {no}
        a> SUBSCRIBE 3 \"{long}\" qos=1
        a< SUBACK 3 [0x97] reason_string=\"no room: a limit of the server is reached\"
        b> CONNECT id=b will=\"{long}\" will_payload=\"x\"
        b< CONNACK present=0 {no}
        b< CLOSED
        ! warden asked
        warden< publish \"{most}\" qos=1 by a
"
    ));
}

#[test]
fn who_does_not_answer_holds_up_no_rule_and_nobody_elses_question() {
    let filters = line(0, 100, |at| format!("\"f/{at:03}\" qos=0"));
    let codes = line(0, 100, |_| "0".to_string());
    sim::check(&format!(
        "
        # warden: allow #
        b> CONNECT id=b
        b< CONNACK present=0
        b> SUBSCRIBE 1 \"x\" qos=0
        b< SUBACK 1 [0]
        a> CONNECT id=a
        a< CONNACK present=0
        a> SUBSCRIBE 1 {filters}
        a< SUBACK 1 [{codes}]
        c> CONNECT id=c
        c< CONNACK present=0
        c> SUBSCRIBE 1 \"y\" qos=0
        c< SUBACK 1 [0]
        ! warden says silence f/#; deny y
        ! rules deny subscribe topic=x; allow publish topic=#
        + 500ms
        p> CONNECT id=p
        p< CONNACK present=0
        p> PUBLISH 1 \"x\" qos=1 \"1\"
        p< PUBACK 1 NoMatchingSubscribers
        + 10000ms
        p> PUBLISH 2 \"y\" qos=1 \"2\"
        p< PUBACK 2 NoMatchingSubscribers
        p> PUBLISH 3 \"f/007\" qos=0 \"3\"
        a< PUBLISH \"f/007\" qos=0 \"3\"
"
    ));
}
