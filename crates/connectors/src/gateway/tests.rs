//! Tests of a gateway's options, and of the form of messages on both sides.

use super::formats::{decode_inbound, encode_outbound};
use super::rules::GatewayRuleSettings;
use super::settings::{GatewaySettings, IN_ROWS, OUT_ROWS, ROWS};
use crate::metrics::LinkDropReason;
use config::row::OptionRow;
use config::row::defaults;
use mqtt::{Properties, Publish, QoS};

/// Returns the defaults of the rows, changed by `lines`.
fn set<S: Default>(rows: &'static [OptionRow<S>], lines: &[(&str, &str)]) -> S {
    let mut settings = defaults(rows);
    for (key, text) in lines {
        let row = rows.iter().find(|row| row.key == *key).expect("there is such an option");
        let value = row.kind.read_text(text).unwrap_or_else(|why| panic!("{key}: {why}"));
        (row.set)(&mut settings, &value);
    }
    settings
}

type OptionLines<'a> = &'a [(&'a str, &'a str)];

pub(super) fn gateway(
    own: OptionLines<'_>,
    out: &[OptionLines<'_>],
    inside: &[OptionLines<'_>],
) -> Result<GatewaySettings, String> {
    let mut settings = set(ROWS, own);
    let rules = |rows, all: &[OptionLines<'_>]| -> Vec<GatewayRuleSettings> {
        all.iter().map(|lines| set(rows, lines)).collect()
    };
    settings.resolve_options((&rules(OUT_ROWS, out), &rules(IN_ROWS, inside)))?;
    Ok(settings)
}

const PUB: OptionLines<'static> = &[("listen", "tcp://127.0.0.1:1")];
const SUB: OptionLines<'static> = &[("pattern", "sub"), ("dial", "tcp://h:1")];
const SP_SUB: OptionLines<'static> =
    &[("protocol", "sp"), ("pattern", "sub"), ("dial", "ipc:///run/x")];

fn with(
    own: OptionLines<'static>,
    more: OptionLines<'static>,
) -> Vec<(&'static str, &'static str)> {
    [own, more].concat()
}

#[test]
fn what_makes_no_gateway_says_what_would() {
    let out: &[OptionLines<'_>] = &[&[("filter", "a/#")]];
    let inside: &[OptionLines<'_>] = &[&[("filter", "a/+")]];
    let raw = with(SUB, &[("form", "raw")]);
    for (own, out, inside, why) in [
        (with(PUB, &[("pattern", "bus")]), out, &[][..], "zmq has no pattern \"bus\""),
        (with(SP_SUB, &[("pattern", "xsub")]), &[], inside, "sp has no pattern \"xsub\""),
        (vec![], out, &[], "needs listen"),
        (with(PUB, &[]), out, inside, "pub hears nothing"),
        (with(SUB, &[]), out, inside, "sub sends nothing"),
        (with(PUB, &[("listen", "ws://127.0.0.1:1")]), out, &[], "zmq goes over tcp"),
        (with(SP_SUB, &[("form", "frames")]), &[], inside, "use delimited, json or raw"),
        (with(SP_SUB, &[("form", "delimited"), ("delimiter", "")]), &[], inside, "a delimiter"),
        (with(SP_SUB, &[]), &[], &[&[("filter", "a/#")]], "use + or another delimiter"),
        (raw.clone(), &[], inside, "leave the filter out"),
        (raw.clone(), &[], &[&[("topic", "${topic}")]], "needs topic"),
        (raw, &[], &[&[("topic", "${1}")]], "has 0 wildcards"),
        (with(PUB, &[]), &[&[("filter", "$share/g/a")]], &[], "is shared"),
        (
            with(PUB, &[]),
            &[&[("filter", "a/#/b")]],
            &[],
            "not a topic filter: it has a # that is not the last level",
        ),
        (with(PUB, &[("user_name", "ann")]), out, &[], "go together"),
        (
            with(SP_SUB, &[("user_name", "ann"), ("password", "secret")]),
            &[],
            inside,
            "sp knows no passwords",
        ),
        (with(PUB, &[("peers_bytes_max", "1MiB")]), out, &[], "room for message_bytes_max"),
        (with(PUB, &[("identity.groups", "machines")]), out, &[], "needs identity.user"),
        (with(SP_SUB, &[("listen", "wss://127.0.0.1:1")]), &[], inside, "needs tls.certificate"),
        (with(SP_SUB, &[("tls.ca", "ca.pem")]), &[], inside, "none is"),
        (with(PUB, &[("retry_min_ms", "60000")]), out, &[], "more than retry_max_s"),
        (with(PUB, &[("message_bytes_max", "4MiB")]), out, &[], "room for message_bytes_max"),
    ] {
        let found = gateway(&own, out, inside).expect_err(why);
        assert!(found.contains(why), "{found}, not {why}");
        assert!(!found.contains("secret"), "{found}");
    }
}

#[test]
fn places_that_let_in_anyone_are_known() {
    let out: &[OptionLines<'_>] = &[&[("filter", "a/#")]];
    for (lines, is_open) in [
        (&[("listen", "tcp://*:1")][..], true),
        (&[("listen", "tcp://127.0.0.1:1,ipc:///x")], false),
        (&[("dial", "tcp://h:1")], false),
        (&[("listen", "tcp://*:1"), ("user_name", "u"), ("password", "p")], false),
    ] {
        let found = gateway(lines, out, &[]).unwrap();
        assert_eq!(found.first_open_listener().is_some(), is_open, "{lines:?}");
    }
}

fn publish<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    let (properties, qos) = (Properties::default(), QoS::AtMostOnce);
    Publish { dup: false, qos, retain: false, topic, packet_id: None, properties, payload }
}

fn frames(all: &[&[u8]]) -> Vec<Vec<u8>> {
    all.iter().map(|frame| frame.to_vec()).collect()
}

#[test]
fn a_topic_ends_where_the_delimiter_says() {
    for (delimiter, filter, message, expected) in [
        ("/", "a/+", &b"a/b/c/d"[..], Ok(("a/b", &b"c/d"[..]))),
        ("/", "a", b"a/b", Ok(("a", b"b"))),
        ("/", "a/+", b"a/b", Err(LinkDropReason::NoRule)),
        (":", "#", b"a/b:c:d", Ok(("a/b", b"c:d"))),
        (":", "a", b"a:", Ok(("a", b""))),
        (":", "a", b"ab:x", Err(LinkDropReason::NoRule)),
        (":", "a", b"a", Err(LinkDropReason::Unreadable)),
        (":", "#", b"\xff:x", Err(LinkDropReason::Unreadable)),
        (":", "#", b":x", Err(LinkDropReason::NoName)),
        (":::", "#", b"a:::x", Ok(("a", b"x"))),
    ] {
        let own = [SP_SUB, &[("delimiter", delimiter)]].concat();
        let settings = gateway(&own, &[], &[&[("filter", filter)]]).unwrap();
        let found = decode_inbound(&settings, frames(&[message]));
        let found = found.map(|found| (found.topic, found.payload)).map_err(|(loss, _)| loss);
        let expected = expected.map(|(topic, payload)| (topic.to_string(), payload.to_vec()));
        assert_eq!(found, expected, "{message:?}");
    }
}

#[test]
fn of_rules_that_count_levels_the_first_that_matches_is_taken() {
    let rules: &[OptionLines<'_>] =
        &[&[("filter", "long/+/+"), ("topic", "l/${2}")], &[("filter", "+")]];
    let settings = gateway(SP_SUB, &[], rules).unwrap();
    for (message, topic, payload) in
        [(&b"long/a/b/c"[..], "l/b", &b"c"[..]), (b"short/x/y/z", "short", b"x/y/z")]
    {
        let found = decode_inbound(&settings, frames(&[message])).unwrap();
        assert_eq!((found.topic.as_str(), &found.payload[..]), (topic, payload));
    }
}

#[test]
fn what_a_peer_sends_gets_no_name_of_the_brokers_own() {
    let settings = gateway(SUB, &[], &[&[("filter", "x/#"), ("topic", "${1}")]]).unwrap();
    let found =
        decode_inbound(&settings, frames(&[b"x/$SYS/broker", b"1"])).map(|found| found.topic);
    assert_eq!(found.unwrap_err().0, LinkDropReason::NoName);
    let settings = gateway(SUB, &[], &[&[("filter", "x/#"), ("topic", "$delayed/${1}")]]);
    let found = decode_inbound(&settings.unwrap(), frames(&[b"x/5/a", b"1"])).unwrap();
    assert_eq!(found.topic, "$delayed/5/a");
}

#[test]
fn messages_look_as_their_form_says() {
    let out: &[OptionLines<'_>] = &[&[("filter", "#")]];
    for (lines, expected) in [
        (&[][..], vec![&b"a.b"[..], b"x"]),
        (&[("form", "raw")], vec![b"x"]),
        (&[("form", "delimited"), ("delimiter", " ")], vec![b"a.b x"]),
        (
            &[("form", "json")],
            vec![br#"{"payload":"x","properties":{},"qos":0,"retain":false,"topic":"a.b"}"#],
        ),
    ] {
        let own = [PUB, &[("separator", ".")], lines].concat();
        let settings = gateway(&own, out, &[]).unwrap();
        assert_eq!(encode_outbound(&settings, "a/b", &publish("a/b", b"x")), expected, "{lines:?}");
    }
}

#[test]
fn what_is_no_text_in_json_goes_through_as_it_is_written() {
    let own = [SP_SUB, &[("form", "json")]].concat();
    let settings = gateway(&own, &[], &[&[("filter", "#")]]).unwrap();
    let heard = |message: &str| {
        decode_inbound(&settings, frames(&[message.as_bytes()]))
            .map(|found| String::from_utf8(found.payload).expect("it is text"))
            .map_err(|(loss, _)| loss)
    };
    for payload in [
        "1.10",
        "123456789012345678901234567890",
        "0.1234567890123456789012345",
        "-0",
        "1E400",
        "null",
        r#"{"b":1.0, "a":[2.50,1e2]}"#,
    ] {
        let message = format!("{{\"topic\":\"a\",\"payload\": {payload} ,\"qos\":1}}");
        assert_eq!(heard(&message).as_deref(), Ok(payload));
        let answer = frames(&[message.as_bytes()]);
        assert_eq!(
            super::formats::decode_response(&settings, answer).unwrap().0,
            payload.as_bytes()
        );
    }
    assert_eq!(heard(r#"{"topic":"a","payload":"\u00e4\n"}"#).as_deref(), Ok("\u{e4}\n"));
    assert_eq!(heard(r#"{"topic":"a","payload":1,"payload":"2"}"#).as_deref(), Ok("2"));
    for wrong in [
        r#"{"topic":"a","payload":01}"#,
        r#"{"topic":"a","payload":"\ud800"}"#,
        r#"{"topic":1,"payload":1}"#,
        r#"["topic"]"#,
        r#"{"topic":"a"} x"#,
    ] {
        assert_eq!(heard(wrong), Err(LinkDropReason::Unreadable), "{wrong}");
    }
}

#[test]
fn subscriptions_are_what_filters_begin_with() {
    for (filter, separator, prefix) in [
        ("a/#", "/", "a"),
        ("a/+/c", "/", "a/"),
        ("a/b", ".", "a.b"),
        ("a/b/+", ".", "a.b."),
        ("#", "/", ""),
        ("+/a", "/", ""),
    ] {
        let own = [SUB, &[("separator", separator)]].concat();
        let settings = gateway(&own, &[], &[&[("filter", filter)]]).unwrap();
        assert_eq!(settings.rules.inward[0].prefix, prefix, "{filter}");
    }
}
