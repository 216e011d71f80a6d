//! Rows that rules send to links, with the real program: into a sink, over a bridge, and to the
//! sockets of a gateway. Rules come from the file and by SIGHUP; errors name the position.

use crate::bridges::servers;
use crate::broker::{PATIENCE, TestBroker, run, scratch};
use crate::clients::{publish, subscriber};
use crate::rules::write;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A rule over the events of messages selects the columns and the messages that a file sink writes.
#[test]
fn what_becomes_of_messages_goes_to_a_file_by_a_rule() {
    let folder = scratch("rule-links-events");
    let lines = folder.join("events.jsonl");
    let text = format!(
        "[[sink]]\nname = \"lines\"\nretry_min_ms = 50\nbatch.wait_ms = 20\n\
         file.path = \"{}\"\ncolumns = [\"row=${{payload}}\"]\n\
         [[rule]]\nname = \"fate\"\nsql = \"\"\"SELECT event, clientid, topic FROM \
         \"$events/message/delivered\", \"$events/message/acked\", \"$events/message/dropped\" \
         WHERE topic LIKE 'rooms/%'\"\"\"\nsend.to = [\"sink/lines\"]\n",
        lines.display()
    );
    let file = write(&folder.join("godwit.toml"), &text);
    let broker = TestBroker::start(&["--config", &file, "--set", "sys.interval_s=1"]);
    wait_for_value(&broker, "sink/lines/state", "1");
    let port = broker.port();
    let hall = subscriber(&port, &["-t", "rooms/hall", "-q", "1", "-i", "me", "-C", "1"]);
    for room in ["hall", "attic"] {
        publish(&port, &["-t", &format!("rooms/{room}"), "-q", "1", "-m", "x"]);
    }
    hall.finish();
    let found = || {
        let text = std::fs::read_to_string(&lines).unwrap_or_default();
        ["delivered", "acked", "dropped"].map(|event| text.matches(event).count())
    };
    wait_until("three events in the file", || found() == [1, 1, 1]);
}

/// A rule that selects the room and the temperature of messages above 30 degrees.
const HOT: &str = r#"[[rule]]
name = "hot"
sql = """SELECT payload.t AS t, nth(2, tokens(topic, '/')) AS room
         FROM "rooms/+/climate" WHERE payload.t > 30"""
"#;

fn history(folder: &Path) -> String {
    format!(
        "[[sink]]\nname = \"history\"\nretry_min_ms = 50\nbatch.wait_ms = 20\n\
         sql.url = \"sqlite:{}/history.db\"\n\
         sql.setup = [\"CREATE TABLE IF NOT EXISTS hot (topic, room, t)\"]\n\
         sql.statement = \"INSERT INTO hot VALUES \
         (${{topic}}, ${{payload.room}}, ${{payload.t}})\"\n",
        folder.display()
    )
}

fn hot_rooms(folder: &Path) -> Vec<(String, String, f64)> {
    let Ok(conn) = rusqlite::Connection::open(folder.join("history.db")) else { return Vec::new() };
    let Ok(mut all) = conn.prepare("SELECT topic, room, t FROM hot ORDER BY rowid") else {
        return Vec::new();
    };
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.map_or_else(|_| Vec::new(), |rows| rows.filter_map(Result::ok).collect())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_value(broker: &TestBroker, topic: &str, wanted: &str) {
    let (port, topic) = (broker.port(), format!("$SYS/broker/{topic}"));
    wait_until(&format!("{topic} is {wanted}"), || {
        let (_, found, _) = run(&["sub", "-p", &port, "-t", &topic, "-C", "1", "-W", "2"]);
        found.trim() == wanted
    });
}

fn reload(broker: &mut TestBroker, file: &Path, text: &str) {
    write(file, text);
    broker.program.signal("HUP");
    broker.program.wait_for("options read again");
}

#[test]
fn rows_go_to_a_database_and_to_files_and_to_no_client() {
    let folder = scratch("rule-links-sinks");
    let path = folder.join("godwit.toml");
    let lines = folder.join("hot.jsonl");
    let files = format!(
        "[[sink]]\nname = \"lines\"\nretry_min_ms = 50\nbatch.wait_ms = 20\n\
         file.path = \"{}\"\ncolumns = [\"topic=${{topic}}\", \"row=${{payload}}\"]\n",
        lines.display()
    );
    let sinks = history(&folder) + &files;
    let to_both = "send.to = [\"sink/history\", \"sink/lines\"]\nsend.qos = \"1\"\n";
    let file = write(&path, &(sinks.clone() + HOT + to_both));
    let mut broker = TestBroker::start(&["--config", &file, "--set", "sys.interval_s=1"]);
    wait_for_value(&broker, "sink/history/state", "1");
    wait_for_value(&broker, "sink/lines/state", "1");
    let port = broker.port();
    let all = subscriber(&port, &["-t", "#", "-t", "+/+/+/#", "-v", "-C", "3"]);
    let say =
        |payload: &str| publish(&port, &["-t", "rooms/hall/climate", "-q", "1", "-m", payload]);
    say(r#"{"t": 31.5}"#);
    say(r#"{"t": 30}"#);
    let hall = |t: f64| ("rooms/hall/climate".to_string(), "hall".to_string(), t);
    wait_until("a row in the database", || hot_rooms(&folder) == [hall(31.5)]);
    let text = || std::fs::read_to_string(&lines).unwrap_or_default();
    let line = "{\"topic\":\"rooms/hall/climate\",\"row\":{\"t\":31.5,\"room\":\"hall\"}}
";
    wait_until("a line in the file", || text() == line);
    wait_for_value(&broker, "rule/hot/sent", "2");
    // One that is taken out of the rule and has nothing else goes out of the file with it.
    let to_one = "send.to = [\"sink/history\"]\n";
    reload(&mut broker, &path, &(history(&folder) + HOT + to_one));
    say(r#"{"t": 40.5}"#);
    wait_until("a row after a reload", || hot_rooms(&folder) == [hall(31.5), hall(40.5)]);
    assert_eq!(text(), line, "the file gets nothing more");
    let (_, heard) = all.finish();
    assert!(!heard.contains("$link") && !heard.contains("room\""), "{heard}");
    // What names a link that is not there leaves all as it was.
    write(&path, &(history(&folder) + HOT + "send.to = [\"sink/histroy\", \"sink/history\"]\n"));
    broker.program.signal("HUP");
    let said = broker.program.wait_for("not reloaded");
    let wanted = "godwit.toml:8: send.to of rule hot: no link is named sink/histroy, did you mean \
                  sink/history?";
    assert!(said.contains(wanted), "{said}");
    say(r#"{"t": 41.5}"#);
    wait_until("the row of the rule as it was", || hot_rooms(&folder).last() == Some(&hall(41.5)));
}

#[test]
fn a_link_that_rules_find_later_takes_their_rows_live() {
    let folder = scratch("rule-links-live");
    let path = folder.join("godwit.toml");
    let sink = history(&folder) + "filters = [\"direct/#\"]\n";
    let file = write(&path, &sink);
    let mut broker = TestBroker::start(&["--config", &file, "--set", "sys.interval_s=1"]);
    wait_for_value(&broker, "sink/history/state", "1");
    reload(
        &mut broker,
        &path,
        &(sink.clone() + HOT + "send.to = [\"sink/history\"]\nsend.qos = \"1\"\n"),
    );
    // Until its session has asked for them, rows are counted and not kept.
    wait_until("a row", || {
        publish(&broker.port(), &["-t", "rooms/a/climate", "-m", r#"{"t": 31}"#]);
        hot_rooms(&folder).iter().any(|(topic, ..)| topic == "rooms/a/climate")
    });
    reload(&mut broker, &path, &sink);
    publish(&broker.port(), &["-t", "direct/x", "-q", "1", "-m", r#"{"t": 1, "room": "x"}"#]);
    wait_until("its own filters go on", || {
        hot_rooms(&folder).last().is_some_and(|(topic, ..)| topic == "direct/x")
    });
}

#[test]
fn events_and_messages_go_over_a_bridge_under_the_name_that_the_rule_says() {
    let far = TestBroker::start(&[]);
    let path = scratch("rule-links-bridge").join("godwit.toml");
    let to = servers(far.address);
    let bridge = format!("[[bridge]]\nname = \"b\"\nretry_min_ms = 50\n{to}");
    let event = "[[rule]]\nname = \"in\"\n\
                 sql = 'SELECT clientid FROM \"$events/client/connected\"'\n\
                 send.to = [\"bridge/b\"]\nsend.qos = \"1\"\n";
    let named = "send.to = [\"bridge/b\"]\nsend.topic = \"site/7/hot/${room}\"\n\
                 send.payload = \"${t}\"\nsend.user_properties = { by = \"hot\" }\n";
    let file = write(&path, &(bridge + HOT + named + event));
    let mut near = TestBroker::start(&["--config", &file]);
    near.program.wait_for("godwit::bridge connected");
    let wants = ["-V", "5", "-q", "2", "-t", "#", "-C", "2", "-F", "%t %p %q %P"];
    let there = subscriber(&far.port(), &wants);
    let more = ["-i", "ann", "-q", "2"];
    publish(
        &near.port(),
        &[&more[..], &["-t", "rooms/hall/climate", "-m", r#"{"t":31}"#]].concat(),
    );
    let expected = "client/connected {\"clientid\":\"ann\"} 1 \nsite/7/hot/hall 31 2 by:hot\n";
    assert_eq!(there.finish(), (Some(0), expected.to_string()));
}

/// Connects as a PULL socket of nanomsg or NNG, with the SP greeting.
fn pull(address: SocketAddr) -> TcpStream {
    let mut socket = loop {
        if let Ok(socket) = TcpStream::connect(address) {
            break socket;
        }
        thread::sleep(Duration::from_millis(50));
    };
    socket.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    socket.write_all(b"\0SP\0\0\x51\0\0").expect("the gateway reads");
    let mut greeting = [0; 8];
    socket.read_exact(&mut greeting).expect("the gateway greets");
    assert_eq!(&greeting, b"\0SP\0\0\x50\0\0", "it pushes");
    socket
}

fn pulled(socket: &mut TcpStream) -> String {
    let mut len = [0; 8];
    socket.read_exact(&mut len).expect("a message comes");
    let mut body = vec![0; u64::from_be_bytes(len) as usize];
    socket.read_exact(&mut body).expect("all of it");
    String::from_utf8(body).expect("it is text")
}

#[test]
fn rows_wait_in_a_gateway_for_a_socket_that_takes_them() {
    let place = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = place.local_addr().expect("it is bound");
    drop(place);
    let path = scratch("rule-links-gateway").join("godwit.toml");
    let gateway = format!(
        "[[gateway]]\nname = \"plant\"\nprotocol = \"sp\"\npattern = \"push\"\n\
         listen = [\"tcp://{address}\"]\ndelimiter = \"|\"\n"
    );
    let to = "send.to = [\"gateway/plant\"]\nsend.qos = \"1\"\nsend.topic = \"hot/${room}\"\n";
    let file = write(&path, &(gateway + HOT + to));
    let broker = TestBroker::start(&["--config", &file, "--set", "sys.interval_s=1"]);
    let port = broker.port();
    wait_for_value(&broker, "gateway/plant/state", "1");
    for t in [31, 32] {
        let payload = format!("{{\"t\":{t}}}");
        publish(&port, &["-t", "rooms/hall/climate", "-q", "1", "-m", &payload]);
    }
    wait_for_value(&broker, "gateway/plant/queue/messages", "2");
    let mut socket = pull(address);
    assert_eq!(pulled(&mut socket), "hot/hall|{\"t\":31,\"room\":\"hall\"}");
    assert_eq!(pulled(&mut socket), "hot/hall|{\"t\":32,\"room\":\"hall\"}");
}

#[test]
fn topics_of_links_are_no_clients_business() {
    let broker = TestBroker::start(&[]);
    let port = broker.port();
    let wants = ["sub", "-p", &port, "-V", "5", "-t", "$link/sink/history/#", "-W", "2"];
    let (code, _, stderr) = run(&wants);
    assert_eq!(code, Some(0x87), "{stderr}");
    let says = ["pub", "-p", &port, "-V", "5", "-q", "1", "-t", "$link/sink/history/x", "-m", "x"];
    let (code, _, stderr) = run(&says);
    assert_eq!(code, Some(0x87), "{stderr}");
}

#[test]
fn what_cannot_be_sent_is_told_with_its_place() {
    let folder = scratch("rule-links-wrong");
    let path = folder.join("godwit.toml");
    let sink = history(&folder);
    let to = "send.to = [\"sink/history\"]\n";
    let rep = "[[gateway]]\nname = \"g\"\npattern = \"rep\"\nlisten = [\"tcp://127.0.0.1:1\"]\n\
               [[gateway.in]]\ntopic = \"a\"\n";
    let pair = |place: &str| format!("[[gateway]]\nname = \"g\"\npattern = \"pub\"\n{place}");
    let bridge = "[[bridge]]\nname = \"b\"\nservers = [\"tcp://127.0.0.1:1\"]\n";
    for (text, wanted) in [
        (
            sink.clone() + HOT + "send.to = [\"sink/other\"]\n",
            "toml:8: send.to of rule hot: no link is named sink/other, there are sink/history",
        ),
        (
            HOT.to_string() + to,
            "toml:1: send.to of rule hot: no link is named sink/history, there is none at all",
        ),
        (
            sink.clone() + HOT + "send.to = [\"sinks/history\"]\n",
            "toml:12: send.to: \"sinks/history\" is not a link, use bridge/NAME",
        ),
        (
            sink.clone() + HOT + "send.to = [\"sink/history\", \"sink/history\"]\n",
            "toml:8: send.to names sink/history twice",
        ),
        (sink.clone() + HOT + "send.qos = \"1\"\n", "toml:8: send.to says which links it is for"),
        (sink.clone() + HOT + to + "send.topic = \"a/${\"\n", "toml:13: send.topic: "),
        (
            sink.clone() + HOT + to + "send.retain = true\n",
            "toml:13: send.retain is not an option of it",
        ),
        (
            sink.clone(),
            "toml:1: a sink needs filters = [\"sensors/#\"], or events, or a [[rule]] with \
             send.to = [\"sink/history\"]",
        ),
        (
            bridge.to_string(),
            "toml:1: a bridge needs a rule: [[bridge.out]], [[bridge.in]], or a [[rule]] with \
             send.to = [\"bridge/b\"]",
        ),
        (
            pair("listen = [\"tcp://127.0.0.1:1\"]\n"),
            "toml:1: a gateway needs a rule: [[gateway.out]], or a [[rule]]",
        ),
        (
            rep.to_string() + HOT + "send.to = [\"gateway/g\"]\n",
            "toml:1: rep sends nothing of its own: no [[rule]]",
        ),
    ] {
        let file = write(&path, &text);
        let (code, _, said) = run(&["check", "--config", &file]);
        assert_eq!(code, Some(2), "{text}: {said}");
        assert!(said.contains(wanted), "{wanted}\n{said}");
    }
}

#[test]
fn a_trial_by_the_options_says_where_a_row_would_go() {
    let folder = scratch("rule-links-trial");
    let path = folder.join("godwit.toml");
    let acts = "send.to = [\"sink/history\"]\nsend.topic = \"hot/${room}\"\nprint = true\n\
                drop = true\npublish.topic = \"alarms/${nothing}\"\n";
    let other = "[[rule]]\nname = \"other\"\nsql = 'SELECT topic FROM \"rooms/#\"'\n\
                 publish.topic = \"seen\"\npublish.retain = \"true\"\n";
    let file = write(&path, &(history(&folder) + HOT + acts + other));
    let message = ["-t", "rooms/hall/climate", "-m", r#"{"t":31}"#, "-q", "1"];
    let fixed = ["rules", "test", "--config", &file];
    let (code, said, _) = run(&[&fixed[..], &message].concat());
    let row = r#"{"t":31,"room":"hall"}"#;
    let expected = format!(
        "{row}\n  hot: nothing is made of it: failed/topic\n  hot: sent to sink/history as \
         hot/hall, QoS 1: {row}\n  hot: printed to the log\n  hot: the message goes nowhere else\n\
         {{\"topic\":\"rooms/hall/climate\"}}\n  other: published as seen, QoS 1, retained: \
         {{\"topic\":\"rooms/hall/climate\"}}"
    );
    assert_eq!((code, said.trim_end()), (Some(0), expected.as_str()));
    let (code, said, _) = run(&[&fixed[..], &["--rule", "other"], &message].concat());
    assert!(code == Some(0) && !said.contains("hot:"), "{said}");
    let (code, _, said) = run(&[&fixed[..], &["--rule", "others"], &message].concat());
    assert!(code == Some(2) && said.contains("has no [[rule]] others, but hot, other"), "{said}");
    let (code, _, said) = run(&[&["rules", "test", "--rule", "hot"], &message[..]].concat());
    assert!(code == Some(2) && said.contains("--sql or --file, or --config"), "{said}");
}
