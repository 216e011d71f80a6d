//! Changes of the time of day while the real program runs, and between two runs: on a host without
//! a hardware clock, which starts in 1970, and on a host whose clock was wrong.

use crate::broker::{TestBroker, TestProgram, godwit, run, scratch};
use crate::clients::{publish, subscriber};
use crate::ports::free_port;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// A time of day for a broker, other than the host's, set by a tracer.
struct OtherTime {
    tracer: PathBuf,
    seconds: PathBuf,
}

impl OtherTime {
    fn new(folder: &Path) -> OtherTime {
        let (tracer, seconds) = (folder.join("other_time"), folder.join("seconds"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/other_time.c");
        let built = Command::new("cc").arg("-O1").arg("-o").arg(&tracer).arg(source).status();
        assert!(built.expect("cc links this test too").success());
        OtherTime { tracer, seconds }
    }

    fn set(&self, seconds: i64) {
        // Whole at any moment: the tracer reads it all the time.
        let new = self.seconds.with_extension("new");
        std::fs::write(&new, seconds.to_string()).expect("the scratch folder can be written");
        std::fs::rename(new, &self.seconds).expect("it was written");
    }

    fn start(&self, arguments: &[&str]) -> TestBroker {
        let mut command = Command::new(&self.tracer);
        command.arg(&self.seconds).arg(godwit::<&str>(&[]).get_program()).arg("serve");
        command.args(["--listen", &format!("tcp://127.0.0.1:{}", free_port())]).args(arguments);
        TestBroker::announced(TestProgram::start(command))
    }
}

fn today() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

/// Returns the offset in seconds from the present time of day to 1970.
fn to_1970() -> i64 {
    1_000 - today()
}

const YEAR: i64 = 365 * 86_400;

/// Sends the signal to the broker itself, a child of the tracer. A broker whose tracer is killed
/// ends as well, but later.
fn stop(mut broker: TestBroker, signal: &str) {
    let tracer = broker.program.id();
    let children = std::fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children"));
    let children = children.expect("it runs");
    let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {children}")]).status();
    assert!(kill.expect("sh can be run").success());
    broker.program.exit_code();
}

/// Returns the times in a row of a rule: milliseconds and seconds since 1970.
fn stamps(broker: &TestBroker) -> (i64, i64) {
    let mut sub = TestProgram::start(godwit(&[
        "sub",
        "-p",
        &broker.port(),
        "-t",
        "out",
        "-C",
        "1",
        "-W",
        "10",
        "-d",
    ]));
    sub.wait_for("SUBACK");
    publish(&broker.port(), &["-t", "in", "-m", "x"]);
    let (_, printed) = sub.finish();
    let number = |name: &str| {
        let (_, rest) = printed.split_once(&format!("\"{name}\":")).expect("it is in the row");
        let end = rest.find([',', '}']).expect("the row goes on");
        rest[..end].trim().parse::<i64>().expect("a number")
    };
    (number("timestamp"), number("now"))
}

#[test]
fn rules_say_the_time_of_day_that_is_right_now() {
    let folder = scratch("times-rules");
    let time = OtherTime::new(&folder);
    let file = folder.join("godwit.toml");
    let rule = "SELECT timestamp, now_timestamp() AS now FROM \"in\"";
    let text = format!("[[rule]]\nname = \"r\"\nsql = '{rule}'\npublish.topic = \"out\"\n");
    std::fs::write(&file, text).expect("the scratch folder can be written");
    time.set(to_1970());
    let mut broker = time.start(&["--memory", "--config", &file.display().to_string()]);
    for (at, seconds) in [to_1970(), 0, -3_600, YEAR].into_iter().enumerate() {
        time.set(seconds);
        if at > 0 {
            // It is noticed by itself, by the time that a client comes.
            publish(&broker.port(), &["-t", "wake", "-m", "x"]);
            let line = broker.program.wait_for("the time of day was changed");
            assert!(line.contains("by_s="), "{line}");
        }
        let (timestamp, now) = stamps(&broker);
        let right = today() + seconds;
        assert!((timestamp / 1000 - right).abs() < 30, "{timestamp} is not {right}");
        assert!((now - right).abs() < 30, "{now} is not {right}");
    }
}

/// Retained messages, and messages with an expiry for a session with an expiry, are acknowledged
/// under one time of day, and read after a restart under another.
#[test]
fn nothing_is_lost_because_the_clock_was_wrong() {
    let folder = scratch("times-store");
    let time = OtherTime::new(&folder);
    let cases = [
        ("1970-then-right", to_1970(), None, 0, "TERM"),
        ("1970-then-right-killed", to_1970(), None, 0, "KILL"),
        ("1970-then-ntp", to_1970(), Some(0), 0, "KILL"),
        ("right-then-1970", 0, None, to_1970(), "TERM"),
        ("a-year-late", -YEAR, None, 0, "TERM"),
        ("a-year-early", 0, None, YEAR, "KILL"),
        ("put-back-and-forward", 0, Some(-YEAR), YEAR, "KILL"),
    ];
    for (name, first, during, second, signal) in cases {
        let data = folder.join(name).display().to_string();
        time.set(first);
        let mut broker = time.start(&["--data", &data]);
        let come = ["-V", "5", "-i", "away", "-c", "-t", "t", "-q", "1", "-d"];
        let expiry = ["-x", "600"];
        let mut sub = subscriber(&broker.port(), &[&come[..], &expiry].concat());
        sub.signal("TERM");
        sub.exit_code();
        let lasting = ["-V", "5", "-q", "1", "-D", "publish", "message-expiry-interval", "600"];
        publish(&broker.port(), &[&["-t", "t", "-m", "before"], &lasting[..]].concat());
        publish(&broker.port(), &[&["-t", "kept", "-r", "-m", "x"], &lasting[..]].concat());
        if let Some(during) = during {
            time.set(during);
            publish(&broker.port(), &[&["-t", "t", "-m", "after"], &lasting[..]].concat());
            broker.program.wait_for("the time of day was changed");
        }
        stop(broker, signal);
        time.set(second);
        let broker = time.start(&["--data", &data]);
        let count = if during.is_some() { "2" } else { "1" };
        let back = ["sub", "-p", &broker.port(), "-C", count, "-W", "10"];
        let (code, printed, why) = run(&[&back[..], &come[..9], &expiry].concat());
        assert_eq!(code, Some(0), "{name}: {why}");
        assert!(printed.starts_with("before\n"), "{name}: {printed}");
        let kept = ["sub", "-p", &broker.port(), "-t", "kept", "-C", "1", "-W", "10"];
        assert_eq!(run(&kept).0, Some(0), "{name}: the retained message is gone");
        stop(broker, "TERM");
    }
}

/// A retained message with an expiry expires even if the time of day was wrong.
#[test]
fn what_has_expired_is_gone_all_the_same() {
    let folder = scratch("times-expiry");
    let time = OtherTime::new(&folder);
    let data = folder.join("data").display().to_string();
    time.set(to_1970());
    let broker = time.start(&["--data", &data]);
    let lasting = ["-V", "5", "-q", "1", "-D", "publish", "message-expiry-interval", "2"];
    publish(&broker.port(), &[&["-t", "kept", "-r", "-m", "x"], &lasting[..]].concat());
    stop(broker, "TERM");
    std::thread::sleep(std::time::Duration::from_secs(3));
    time.set(-YEAR);
    let broker = time.start(&["--data", &data]);
    let kept = ["sub", "-p", &broker.port(), "-t", "kept", "-C", "1", "-W", "2"];
    assert_ne!(run(&kept).0, Some(0), "it is still there");
}
