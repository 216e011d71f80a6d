//! Properties of single sinks: responses of HTTP servers, events, values that a column does not
//! accept, and wrong options.

use super::contract::{SinkRig, wait_until};
use super::places::row_of;
use super::tls::{certificates, served};
use crate::broker::{TestProgram, run, scratch};
use crate::ports::free_port;
use crate::stub::{TestWebServer, WebResponse};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a web server whose responses are given by `say`. Returns the server, and the bodies of
/// the requests that were answered with 200.
pub(super) fn server(
    port: u16,
    say: impl Fn(&str) -> WebResponse + Send + Sync + 'static,
) -> (TestWebServer, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = heard.clone();
    let web = TestWebServer::start(port, None, move |asked| {
        let said = say(&asked.body);
        if matches!(said, WebResponse::Json(200, _)) {
            own.lock().expect("nobody panicked").push(asked.body.clone());
        }
        said
    });
    (web, heard)
}

pub(super) fn hook(port: u16, more: &str) -> String {
    format!(
        "[[sink]]\nname = \"s\"\nretry_min_ms = 20\nretry_max_s = 1\nbatch.wait_ms = 100\n\
         http.url = \"http://u:p@127.0.0.1:{port}\"\n{more}\n"
    )
}

/// The error contains the full path of the file, because no other log line names the folder.
#[test]
fn a_file_that_cannot_be_written_is_named_whole_with_its_option() {
    let folder = scratch("sink-file-named");
    fs::write(folder.join("taken"), "a file").expect("this host has room for it");
    for (option, words) in [
        (
            "file.path = \"taken/x.json\"",
            "/taken/x.json (option file.path) cannot be written: its \
            folder cannot be made: a part of the path is a file",
        ),
        (
            "file.path = \"taken/x.parquet\"\nfile.format = \"parquet\"\n\
             columns = [\"v=${payload}\"]",
            "/taken/x.parquet (option file.path) cannot be written",
        ),
        (
            "sql.url = \"sqlite:taken/x.db\"\n\
             sql.statement = \"INSERT INTO m VALUES (${payload})\"",
            "/taken/x.db (option sql.url) cannot be opened",
        ),
    ] {
        let config = folder.join("godwit.toml");
        let text = format!("[[sink]]\nname = \"s\"\nfilters = [\"#\"]\n{option}\n");
        fs::write(&config, text).expect("this host has room for it");
        let mut command = crate::broker::godwit(&["--memory", "--listen", "tcp://127.0.0.1:0"]);
        command.current_dir(&folder).args(["--config", "godwit.toml"]);
        let mut program = TestProgram::start(command);
        program.wait_for(&format!("{}{words}", folder.display()));
    }
}

#[test]
fn what_a_server_refuses_is_passed_over_and_nothing_else() {
    let port = free_port();
    let (_web, heard) = server(port, |body| match body.contains("poison") {
        true => WebResponse::Json(400, "{\"why\":\"poison\"}".into()),
        false => WebResponse::Json(200, String::new()),
    });
    let mut edge = SinkRig::start("sink-refuses", &hook(port, "filters = [\"#\"]"), &[]);
    edge.wait_for_value("state", |value| value == "1");
    let port = edge.broker.port();
    let mut publisher = TestProgram::start(crate::broker::godwit(&[
        "pub", "-p", &port, "-t", "a", "-q", "1", "-l",
    ]));
    for number in 0..50 {
        let text = if number % 20 == 7 { "poison" } else { "good" };
        publisher.write(&format!("{text} {number}\n"));
    }
    assert_eq!(publisher.finish().0, Some(0));
    edge.wait_for_value("dropped/refused", |value| value == "3");
    let line = edge.broker.program.wait_for("not passed on");
    assert!(line.contains("HTTP 400") && line.contains("reason=refused"), "{line}");
    edge.wait_for_value("out/messages", |value| value == "47");
    let all: Vec<String> = heard
        .lock()
        .unwrap()
        .iter()
        .flat_map(|body| {
            let rows: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
            rows.iter().map(|row| row_of(row).1).collect::<Vec<_>>()
        })
        .collect();
    let wanted = (0..50).filter(|number| number % 20 != 7).map(|number| format!("good {number}"));
    assert!(all.into_iter().eq(wanted));
}

#[test]
fn what_is_refused_in_many_batches_is_waited_for_once() {
    let port = free_port();
    let (_web, _) = server(port, |body| match body.contains("poison") {
        true => WebResponse::Json(422, String::new()),
        false => WebResponse::Json(200, String::new()),
    });
    let text = hook(port, "filters = [\"#\"]\nbatch.messages_max = 20\nrefused_tries = 3");
    let text = text.replace("retry_min_ms = 20", "retry_min_ms = 1000");
    let edge = SinkRig::start("sink-refuses-often", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let begun = Instant::now();
    let file = edge.file.with_file_name("payloads");
    let line = |number| if number % 10 == 7 { "poison\n" } else { "good\n" };
    fs::write(&file, (0..400).map(line).collect::<String>()).unwrap();
    edge.publish_lines(&["-t", "a", "-q", "1"], &file);
    edge.wait_for_value("out/messages", |value| value == "360");
    edge.wait_for_value("dropped/refused", |value| value == "40");
    // The first of twenty batches waits for two seconds between its tries.
    let took = begun.elapsed();
    assert!((2..15).contains(&took.as_secs()), "{took:?}");
}

#[test]
fn which_statuses_are_about_a_message_is_an_option() {
    let port = free_port();
    let (_web, heard) = server(port, |body| match body.contains("unknown") {
        true => WebResponse::Json(404, String::new()),
        false => WebResponse::Json(200, String::new()),
    });
    let text = hook(port, "filters = [\"#\"]\nrefused_tries = 1");
    let mut edge = SinkRig::start("sink-statuses", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    edge.publish(&["-t", "a", "-m", "unknown", "-q", "1"]);
    edge.wait_for_value("last_error", |value| value.contains("HTTP 404"));
    edge.publish(&["-t", "a", "-m", "next", "-q", "1"]);
    // The place may be the wrong one, and somebody may mend that.
    edge.wait_for_value("out/failures", |value| value.parse::<u32>().is_ok_and(|times| times > 3));
    edge.wait_for_value("state", |value| value == "0");
    assert!(heard.lock().unwrap().is_empty());
    edge.reload(&(text + "http.refused_statuses = [\"400\", \"404\"]\n"));
    let line = edge.broker.program.wait_for("not passed on");
    assert!(line.contains("HTTP 404") && line.contains("reason=refused"), "{line}");
    wait_until("it came", || heard.lock().unwrap().iter().any(|body| body.contains("next")));
    edge.wait_for_value("dropped/refused", |value| value == "1");
}

#[test]
fn a_sink_that_is_to_stop_keeps_what_is_refused() {
    for next in ["skip", "stop"] {
        keeps_what_is_refused(next);
    }
}

/// Checks that a sink with `refused = "stop"` keeps a refused message until a reload, with or
/// without changed options.
fn keeps_what_is_refused(next: &str) {
    let (port, is_content) = (free_port(), Arc::new(AtomicBool::new(false)));
    let (own, asked) = (is_content.clone(), Arc::new(Mutex::new(0)));
    let count = asked.clone();
    let (_web, heard) = server(port, move |_| {
        *count.lock().expect("nobody panicked") += 1;
        match own.load(SeqCst) {
            true => WebResponse::Json(200, String::new()),
            false => WebResponse::Json(422, String::new()),
        }
    });
    let of = |refused: &str| {
        hook(port, &format!("filters = [\"#\"]\nrefused = \"{refused}\"\nrefused_tries = 1"))
    };
    let mut edge = SinkRig::start("sink-stops", &of("stop"), &[]);
    edge.wait_for_value("state", |value| value == "1");
    // What was read before it stops does not count.
    edge.reload(&of("stop"));
    edge.publish(&["-t", "a", "-m", "kept", "-q", "1"]);
    edge.broker.program.wait_for("stopped, a message is refused: HTTP 422");
    edge.wait_for_value("queue/in_flight", |value| value == "1");
    assert_eq!(*asked.lock().expect("nobody panicked"), 1, "it has stopped");
    is_content.store(true, SeqCst);
    thread::sleep(Duration::from_millis(200));
    assert!(heard.lock().expect("nobody panicked").is_empty(), "it has stopped");
    edge.reload(&of(next));
    wait_until("it came", || {
        heard.lock().expect("nobody panicked").iter().any(|body| body.contains("kept"))
    });
}

#[test]
fn who_is_busy_is_asked_again_and_who_is_silent_too() {
    let (port, times) = (free_port(), Arc::new(Mutex::new(Vec::new())));
    let own = times.clone();
    let (_web, heard) = server(port, move |_| {
        let mut times = own.lock().unwrap();
        times.push(Instant::now());
        match times.len() {
            // With Retry-After: 1.
            1 => WebResponse::Json(429, String::new()),
            2 => WebResponse::Json(503, String::new()),
            3 => WebResponse::Silence,
            _ => WebResponse::Json(200, String::new()),
        }
    });
    let text = hook(port, "filters = [\"#\"]\ntimeout_ms = 300");
    let edge = SinkRig::start("sink-busy", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    edge.publish(&["-t", "a", "-m", "late", "-q", "1"]);
    wait_until("it came", || heard.lock().unwrap().len() == 1);
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 4);
    // The server requests the first wait, instead of 20 ms; the next is the sink's own back-off.
    let waits: Vec<Duration> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(waits[0] >= Duration::from_secs(1), "{waits:?}");
    assert!(waits[1] < Duration::from_millis(900), "{waits:?}");
    edge.wait_for_value("out/failures", |value| value == "3");
    edge.wait_for_value("state", |value| value == "1");
}

#[test]
fn a_slow_server_does_not_slow_who_publishes() {
    let port = free_port();
    let (_web, heard) = server(port, |_| {
        thread::sleep(Duration::from_millis(300));
        WebResponse::Json(200, String::new())
    });
    let text = hook(port, "filters = [\"#\"]\nbatch.messages_max = 100");
    let edge = SinkRig::start("sink-slow", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let took = edge.count("a", "1", 0..1000);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(heard.lock().unwrap().len() < 9, "it is slower than who publishes");
    edge.wait_for_value("out/messages", |value| value == "1000");
}

#[test]
fn bodies_and_headers_are_as_the_options_say() {
    let (port, asked) = (free_port(), Arc::new(Mutex::new(Vec::new())));
    let own = asked.clone();
    let _web = TestWebServer::start(port, None, move |question| {
        own.lock().unwrap().push(question.clone());
        WebResponse::Json(201, String::new())
    });
    let more = "filters = [\"a/#\"]\nhttp.method = \"PUT\"\nhttp.batch = \"alone\"\n\
                http.headers = { x-key = \"an api's key\" }\n\
                http.body = '{\"at\":\"${topic[2]}\",\"v\":${payload.v},\"no\":${payload.w}}'";
    let edge = SinkRig::start("sink-bodies", &hook(port, more), &[]);
    edge.wait_for_value("state", |value| value == "1");
    edge.publish(&["-t", "a/b\"c", "-m", "{\"v\": [1, 2.50]}", "-q", "1"]);
    edge.publish(&["-t", "a/d", "-m", "no JSON", "-q", "2"]);
    wait_until("both came", || asked.lock().unwrap().len() == 2);
    let asked = asked.lock().unwrap();
    assert_eq!(asked[0].body, "{\"at\":\"b\\\"c\",\"v\":[1,2.5],\"no\":null}");
    assert_eq!(asked[1].body, "{\"at\":\"d\",\"v\":null,\"no\":null}");
    assert!(asked[0].line.starts_with("PUT / "), "{}", asked[0].line);
    for header in
        ["x-key: an api's key", "content-type: application/json", "authorization: Basic dTpw"]
    {
        assert!(asked[0].headers.iter().any(|own| own == header), "{:?}", asked[0].headers);
    }
    let config = edge.file.display().to_string();
    let (_, shown, why) = run(&["check", "--config", &config]);
    assert!(!shown.contains("api's key") && !why.contains("api's key"));
}

#[test]
fn events_are_told_and_those_beyond_the_bound_counted() {
    let port = free_port();
    let (_web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    let edge = SinkRig::start("sink-events", &hook(port, "events = [\"*\"]\nevents_max = 50"), &[]);
    edge.wait_for_value("state", |value| value == "1");
    let client = edge.broker.port();
    run(&["sub", "-p", &client, "-i", "ann", "-t", "x/+", "-W", "1"]);
    let names = ["client.connected", "session.subscribed", "client.disconnected"];
    let of_ann = || -> Vec<String> {
        let bodies = heard.lock().unwrap().clone();
        let rows = bodies
            .iter()
            .flat_map(|body| serde_json::from_str::<Vec<serde_json::Value>>(body).unwrap());
        let own = rows.filter(|row| row["clientid"] == "ann");
        own.map(|row| {
            assert_eq!(row["payload"]["event"], row["event"]);
            assert!(
                row["topic"].is_null() && row["timestamp_ms"].as_u64() > Some(1_700_000_000_000)
            );
            row["event"].as_str().unwrap().to_string()
        })
        .collect()
    };
    wait_until("all came", || names.iter().all(|name| of_ann().iter().any(|own| own == name)));
    assert!(heard.lock().unwrap().iter().all(|body| !body.contains("$link/")));
    // Nobody takes them: what is beyond the bound is lost, and said to be.
    drop(_web);
    for _ in 0..60 {
        run(&["pub", "-p", &client, "-t", "a", "-m", "1"]);
    }
    edge.wait_for_value("dropped/events_full", |value| {
        value.parse::<u32>().is_ok_and(|lost| lost > 20)
    });
}

#[test]
fn a_value_that_no_column_takes_is_passed_over() {
    let folder = scratch("sink-types");
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 20\n\
         sql.url = \"sqlite:{}/rows.db\"\n\
         sql.setup = [\"CREATE TABLE IF NOT EXISTS m \
         (v INTEGER NOT NULL CHECK (typeof(v) = 'integer'))\"]\n\
         sql.statement = \"INSERT INTO m VALUES (${{payload.v}})\"\n",
        folder.display()
    );
    let edge = SinkRig::start("sink-types-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    for payload in ["{\"v\":1}", "{\"v\":\"x\"}", "{}", "{\"v\":2}", "none"] {
        edge.publish(&["-t", "a", "-m", payload, "-q", "1"]);
    }
    edge.wait_for_value("dropped/refused", |value| value == "3");
    edge.wait_for_value("out/messages", |value| value == "2");
    let conn = rusqlite::Connection::open(folder.join("rows.db")).unwrap();
    let sum: i64 = conn.query_row("SELECT sum(v) FROM m", [], |row| row.get(0)).unwrap();
    assert_eq!(sum, 3);
}

#[test]
fn a_database_that_is_moved_or_removed_is_opened_anew() {
    let folder = scratch("sink-moved");
    let path = folder.join("plant/rows.db");
    let text = format!(
        "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 20\nretry_max_s = 1\n\
         sql.url = \"sqlite:{}\"\nsql.setup = [\"CREATE TABLE IF NOT EXISTS m (v)\"]\n\
         sql.statement = \"INSERT INTO m VALUES (${{payload}})\"\n",
        path.display()
    );
    fs::create_dir(folder.join("plant")).unwrap();
    let edge = SinkRig::start("sink-moved-options", &text, &[]);
    edge.wait_for_value("state", |value| value == "1");
    let rows = |path: &Path| -> String {
        let conn = rusqlite::Connection::open(path).unwrap();
        let rows = "SELECT min(v) || ' to ' || max(v) || ', ' || count(*) FROM m";
        conn.query_row(rows, [], |row| row.get(0)).unwrap()
    };
    edge.count("a", "1", 100..200);
    edge.wait_for_value("out/messages", |value| value == "100");
    // Without its log, which has the rows still.
    fs::rename(&path, folder.join("old.db")).unwrap();
    edge.count("a", "1", 200..300);
    edge.wait_for_value("out/messages", |value| value == "200");
    assert_eq!(rows(&folder.join("old.db")), "100 to 199, 100");
    assert_eq!(rows(&path), "200 to 299, 100");
    // Where nothing can be made nothing is acknowledged.
    fs::remove_dir_all(folder.join("plant")).unwrap();
    edge.count("a", "1", 300..400);
    edge.wait_for_value("last_error", |value| value.contains("unable to open"));
    edge.wait_for_value("out/messages", |value| value == "200");
    fs::create_dir(folder.join("plant")).unwrap();
    edge.wait_for_value("out/messages", |value| value == "300");
    assert_eq!(rows(&path), "300 to 399, 100");
}

#[test]
fn wrong_options_say_where_and_what_would_be_right() {
    let folder = scratch("sink-wrong");
    let file = folder.join("godwit.toml");
    let named = file.display().to_string();
    let head = "[[sink]]\nname = \"s\"\nfilters = [\"a\"]\n";
    for (options, line, why) in [
        ("file.path = \"x/${user}\"\n", 4, "is not a placeholder"),
        ("file.path = \"x\"\nhttp.url = \"http://h\"\n", 1, "leads to one place"),
        ("http.url = \"ftp://h\"\n", 4, "use http://HOST"),
        ("http.url = \"http://h\"\nhttp.body = '{\"a\":${payload}'\n", 1, "not JSON once"),
        ("http.url = \"http://h\"\nhttp.refused_statuses = [\"200\"]\n", 5, "refuses anything"),
        ("nats.others = [\"u:secret@h\"]\n", 4, "no server is named so, use HOST:4222"),
        ("sql.url = \"mysql://h/d\"\n", 1, "needs sql.statement"),
        ("sql.url = \"sqlite:x\"\nsql.statement = \"INSERT '${topic}'\"\n", 1, "without quotes"),
        ("sql.url = \"oracle://h\"\n", 4, "or sqlite:PATH"),
        ("file.path = \"x\"\nevents = [\"client.gone\"]\n", 5, "is not an event"),
        ("file.path = \"x\"\nfile.rotate = 1\n", 5, "file.rotate is not an option of it"),
        ("file.path = \"x\"\ntls.ca = \"x.pem\"\n", 1, "tls options are for https"),
        ("file.path = \"x\"\ncolumns = [\"${topic}\"]\n", 5, "is not a column"),
    ] {
        fs::write(&file, format!("{head}{options}")).unwrap();
        let (code, _, said) = run(&["check", "--config", &named]);
        assert_eq!(code, Some(2), "{options}");
        assert!(said.contains(&format!("godwit.toml:{line}: ")) && said.contains(why), "{said}");
    }
}

#[test]
fn over_tls_only_a_server_that_is_vouched_for_gets_anything() {
    let folder = certificates("sink-tls");
    let web =
        TestWebServer::start(0, Some(served(&folder)), |_| WebResponse::Json(200, String::new()));
    let options = |authority: &str| {
        format!(
            "[[sink]]\nname = \"s\"\nfilters = [\"#\"]\nretry_min_ms = 20\nretry_max_s = 1\n\
             http.url = \"{}\"\ntls.ca = \"{}/{authority}\"\n",
            web.url(),
            folder.display()
        )
    };
    let mut edge = SinkRig::start("sink-tls-options", &options("stranger-ca.pem"), &[]);
    edge.wait_for_value("last_error", |value| value.contains("certificate"));
    edge.publish(&["-t", "a", "-m", "secret", "-q", "1"]);
    assert!(web.asked().is_empty());
    // The files of TLS are read again, and count from the next connection on.
    edge.reload(&options("ca.pem"));
    wait_until("it came", || web.asked().iter().any(|asked| asked.body.contains("secret")));
    fs::remove_dir_all(folder).unwrap();
}

/// A sink that is not yet connected to the destination keeps its queued QoS 0 messages when other
/// options change.
#[test]
fn qos_0_that_waits_stays_when_other_options_change() {
    let port = free_port();
    let of = |timeout_ms: u32| {
        hook(port, &format!("filters = [\"a\"]\nqueue.qos0 = true\ntimeout_ms = {timeout_ms}"))
    };
    let mut edge = SinkRig::start("sink-qos0", &of(3000), &[]);
    edge.wait_for_value("out/failures", |value| value != "0" && !value.is_empty());
    edge.publish(&["-t", "a", "-m", "waits", "-q", "0", "--repeat", "20"]);
    edge.wait_for_value("queue/messages", |value| value == "20");
    edge.reload(&of(2000));
    let (_web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    wait_until("all of them come", || {
        let heard = heard.lock().expect("nobody panicked");
        heard.iter().map(|body| body.matches("waits").count()).sum::<usize>() == 20
    });
}

/// A broker that is killed before the server is reachable requests the retained messages again
/// after the restart.
#[test]
fn what_is_retained_reaches_a_new_filter_however_late_its_server_comes() {
    let port = free_port();
    let data = scratch("sink-fresh-data").display().to_string();
    let more = ["--data", &data];
    let text = hook(port, "filters = [\"keep/#\"]\nretained = \"once\"");
    let mut edge = SinkRig::start("sink-fresh", "", &more);
    for qos in ["0", "1", "2"] {
        edge.publish(&["-t", &format!("keep/{qos}"), "-m", &format!("of {qos}"), "-q", qos, "-r"]);
    }
    edge.reload(&text);
    edge.wait_for_value("out/failures", |value| value != "0" && !value.is_empty());
    edge.broker.program.signal("KILL");
    let mut edge = SinkRig::start("sink-fresh", &text, &more);
    edge.wait_for_value("out/failures", |value| value != "0" && !value.is_empty());
    let (web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    let count = || {
        let heard = heard.lock().expect("nobody panicked").join("");
        ["0", "1", "2"].map(|qos| heard.matches(&format!("of {qos}")).count())
    };
    wait_until("all of them come", || count() == [1, 1, 1]);
    edge.wait_for_value("out/messages", |value| value == "3");
    // Once.
    edge.broker.program.signal("TERM");
    edge.broker.program.exit_code();
    drop(web);
    let edge = SinkRig::start("sink-fresh", &text, &more);
    let (_web, heard) = server(port, |_| WebResponse::Json(200, String::new()));
    edge.publish(&["-t", "keep/x", "-m", "last", "-q", "1"]);
    let said = || heard.lock().expect("nobody panicked").join("");
    wait_until("the last comes", || said().contains("last"));
    thread::sleep(Duration::from_millis(500));
    assert!(!said().contains("of "), "{}", said());
}
