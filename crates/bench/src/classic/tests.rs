//! Tests of the command lines of `conn`, `pub` and `sub`.

use super::console::format_span;
use super::*;

fn plan_of(kind: ClassicCommand, text: &str) -> Result<LoadPlan, String> {
    let arguments: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
    let line = kind.parse_line(&arguments).map_err(|error| error.to_string())?;
    build_plan(kind, &line)
}

#[test]
fn defaults_are_those_of_emqtt_bench() {
    let plan = plan_of(ClassicCommand::Pub, "-h 127.0.0.1 -t a/%i").expect("a good line");
    let group = &plan.groups[0];
    let publishing = group.publish.as_ref().expect("it publishes");
    assert_eq!((group.clients, group.keep_alive_s, group.version), (200, 300, ProtocolVersion::V5));
    assert_eq!(publishing.pace, PublishPace::EveryNs(1_000_000_000));
    assert_eq!((publishing.inflight, &publishing.body), (1, &PayloadKind::Sized(256)));
    assert_eq!((plan.connects_per_s, plan.start, plan.measure_s), (100.0, StartMode::Each, None));
}

#[test]
fn flags_say_what_is_done() {
    let line = "-h 127.0.0.1,127.0.0.2 -p 1884 -V 4 -c 5 -R 50 -n 10 --prefix p --shortids \
                -t x -I 0 -q 2 -L 7 -F 0 -w --payload-hdrs cnt64,ts -s 4 --ifaddr 127.0.0.9 \
                --num-retry-connect 3 --reconnect 4 --min-random-wait 5 --max-random-wait 6 -r";
    let plan = plan_of(ClassicCommand::Pub, line).expect("a good line");
    let urls: Vec<&str> = plan.targets.iter().map(|target| target.url.as_str()).collect();
    assert_eq!(urls, ["tcp://127.0.0.1:1884", "tcp://127.0.0.2:1884"]);
    let group = &plan.groups[0];
    assert_eq!((group.client_id.as_str(), group.number_first), ("p%i", 11));
    assert_eq!((group.connect_retries, group.reconnects), (3, 4));
    let publishing = group.publish.as_ref().expect("it publishes");
    assert_eq!(publishing.pace, PublishPace::AsTaken);
    assert_eq!((publishing.messages_max, publishing.inflight), (Some(7), 0));
    assert_eq!((publishing.wait_ms, publishing.retain), ((5, 6), true));
    assert_eq!(
        publishing.body,
        PayloadKind::Fields(vec![PayloadField::Count, PayloadField::Milliseconds], 4)
    );
    assert_eq!(
        (plan.start, plan.local_addresses.len(), plan.connects_per_s),
        (StartMode::Together, 1, 50.0)
    );
}

#[test]
fn what_is_not_done_is_refused() {
    for (kind, line) in [
        (ClassicCommand::Pub, "-t x -S --certfile a"),
        (ClassicCommand::Pub, "-t x -q 3"),
        (ClassicCommand::Pub, ""),
        (ClassicCommand::Sub, ""),
        (ClassicCommand::Conn, "--quic options.eterm"),
        (ClassicCommand::Conn, "--quic true --ws"),
        (ClassicCommand::Conn, "--quic true --ssl-version tlsv1.2"),
        (ClassicCommand::Conn, "--ifaddr eth0"),
        (ClassicCommand::Conn, "-V 6"),
        (ClassicCommand::Conn, "now"),
        (ClassicCommand::Conn, "-i -1"),
        (ClassicCommand::Conn, "-R -1"),
        (ClassicCommand::Conn, "-C perhaps"),
        (ClassicCommand::Pub, "-t x -I -5"),
        (ClassicCommand::Pub, "-t x -I 0.000001"),
        (ClassicCommand::Pub, "-t x -s 999999999999"),
    ] {
        let line = format!("-h 127.0.0.1 {line}");
        assert!(plan_of(kind, &line).is_err(), "{line}");
    }
    assert!(plan_of(ClassicCommand::Conn, "-h 127.0.0.1 --quic false").is_ok());
}

#[test]
fn time_is_written_as_emqtt_bench_writes_it() {
    assert_eq!([5, 62, 3_723].map(format_span), ["5s", "1m2s", "1h2m3s"]);
}

/// Each flag of emqtt_bench's help (`COMMON_OPTS`, `PUB_OPTS`, `SUB_OPTS`), with a usual value, is
/// accepted, or refused with a hint at the flag to use instead.
#[test]
fn every_flag_of_emqtt_bench_is_taken_or_refused_with_another_way() {
    let mut known = 0;
    for row in include_str!("emqtt_bench_flags.tsv").lines().filter(|row| !row.starts_with('#')) {
        let [kind, flag, answer] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three fields: {row}");
        };
        let kind = match kind {
            "conn" => ClassicCommand::Conn,
            "pub" => ClassicCommand::Pub,
            _ => ClassicCommand::Sub,
        };
        let topic =
            if kind == ClassicCommand::Conn || flag.starts_with("-t") { "" } else { "-t x " };
        let host =
            if flag.starts_with("-h") || flag.starts_with("--host") { "" } else { "-h 127.0.0.1 " };
        let found = plan_of(kind, &format!("{host}{topic}{flag}"));
        match (answer, found) {
            ("taken", Ok(_)) => {}
            ("taken", Err(why)) => panic!("{flag}: {why}"),
            (_, Ok(_)) => panic!("{flag} is taken"),
            (instead, Err(why)) => assert!(why.contains(instead), "{flag}: {why}"),
        }
        known += 1;
    }
    assert!(known > 80, "{known}");
}

#[test]
fn times_of_emqtt_bench_have_their_meaning_with_and_without_units() {
    for (line, per_s) in [("-i 10", 100.0), ("-i 10ms", 100.0), ("-i 1s", 1.0), ("-R 50", 50.0)] {
        let plan = plan_of(ClassicCommand::Conn, &format!("-h 127.0.0.1 {line}")).expect(line);
        assert!((plan.connects_per_s - per_s).abs() < 1e-9, "{line}: {}", plan.connects_per_s);
    }
    for (line, pace) in [("-I 10", 10), ("-I 10ms", 10), ("-I 1.5s", 1_500), ("-I 1m", 60_000)] {
        let plan = plan_of(ClassicCommand::Pub, &format!("-h 127.0.0.1 -t x {line}")).expect(line);
        let publishing = plan.groups[0].publish.clone().expect("it publishes");
        assert_eq!(publishing.pace, PublishPace::EveryNs(pace * 1_000_000), "{line}");
    }
    let plan = plan_of(ClassicCommand::Conn, "-h 127.0.0.1 -k 5m -x 1h").expect("good");
    assert_eq!((plan.groups[0].keep_alive_s, plan.groups[0].session_expiry_s), (300, 3_600));
}

#[test]
fn a_host_may_be_a_url() {
    for (line, urls) in [
        ("-h mqtt://127.0.0.1:1884", "tcp://127.0.0.1:1884"),
        ("-h tcp://127.0.0.1", "tcp://127.0.0.1:1883"),
        ("-h mqtts://127.0.0.1", "tls://127.0.0.1:8883"),
        ("-h mqtts://127.0.0.1 -p 9000", "tls://127.0.0.1:9000"),
        ("-h tls://127.0.0.1:9001 -p 9000", "tls://127.0.0.1:9001"),
        ("-h ws://127.0.0.1:8083/mqtt", "ws://127.0.0.1:8083"),
        ("-h 127.0.0.1:1885,127.0.0.2 -p 9000", "tcp://127.0.0.1:1885 tcp://127.0.0.2:9000"),
        ("-h mqtt://127.0.0.1 -S", "tls://127.0.0.1:1883"),
        ("-h 127.0.0.1 --ssl-version tlsv1.3", "tls://127.0.0.1:1883"),
    ] {
        let plan = plan_of(ClassicCommand::Conn, line).expect(line);
        let found: Vec<&str> = plan.targets.iter().map(|target| target.url.as_str()).collect();
        assert_eq!(found.join(" "), urls, "{line}");
    }
    for (line, says) in [
        ("mqtt://127.0.0.1", "write -h mqtt://127.0.0.1"),
        ("-h http://127.0.0.1", "http is not spoken here"),
        ("-h ws://127.0.0.1/other", "leave out /other"),
        ("-h mqtt://u:p@127.0.0.1", "flags of their own"),
        ("-h ws://127.0.0.1 --quic true", "use one of them"),
    ] {
        let why = plan_of(ClassicCommand::Conn, line).map(drop).expect_err(line);
        assert!(why.contains(says), "{line}: {why}");
    }
}

#[test]
fn complete_is_said_of_what_was_published_alone() {
    let of =
        |published: u64| completion(&serde_json::json!({ "counts": { "pub": published } }), 20);
    assert_eq!(of(20), "publish complete\n");
    assert_eq!(of(0), "publish not complete: 0 of 20 messages were published\n");
    assert_eq!(of(19), "publish not complete: 19 of 20 messages were published\n");
}
