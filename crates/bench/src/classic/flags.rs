//! The flags of `conn`, `pub` and `sub`: emqtt_bench's, and our own.

use crate::flags::{Flag, Line};

pub(super) const SHARED: &[Flag] = &[
    Flag {
        names: &["-h", "--host"],
        value: "HOSTS",
        default: "localhost",
        doc: "comma list, taken in turn; URLs, too: tls://HOST:PORT",
    },
    Flag {
        names: &["-p", "--port"],
        value: "PORT",
        default: "1883",
        doc: "of hosts that are not URLs with a port",
    },
    Flag { names: &["-V", "--version"], value: "V", default: "5", doc: "3, 4 (3.1.1) or 5" },
    Flag { names: &["-c", "--count"], value: "N", default: "200", doc: "clients" },
    Flag {
        names: &["-R", "--connrate"],
        value: "N",
        default: "0",
        doc: "connections a second; 0: see -i",
    },
    Flag {
        names: &["-i", "--interval"],
        value: "MS",
        default: "10",
        doc: "between connections; 10ms, too",
    },
    crate::run::IFADDR,
    Flag { names: &["--prefix"], value: "TEXT", default: "", doc: "of client ids" },
    Flag {
        names: &["--shortids"],
        value: "",
        default: "false",
        doc: "client ids are prefix and number",
    },
    Flag {
        names: &["-n", "--startnumber"],
        value: "N",
        default: "0",
        doc: "first client's number less one",
    },
    Flag {
        names: &["--num-retry-connect"],
        value: "N",
        default: "0",
        doc: "for clients that were never connected",
    },
    Flag {
        names: &["--reconnect"],
        value: "N",
        default: "0",
        doc: "for clients that lost their connection",
    },
    Flag { names: &["-u", "--username"], value: "NAME", default: "", doc: "with %i and %rand_N" },
    Flag { names: &["-P", "--password"], value: "TEXT", default: "", doc: "" },
    Flag { names: &["-k", "--keepalive"], value: "S", default: "300", doc: "seconds; 5m, too" },
    Flag { names: &["-C", "--clean"], value: "BOOL", default: "true", doc: "clean start" },
    Flag { names: &["-x", "--session-expiry"], value: "S", default: "0", doc: "MQTT 5" },
    Flag { names: &["-S", "--ssl"], value: "", default: "false", doc: "" },
    Flag {
        names: &["--cacertfile"],
        value: "FILE",
        default: "",
        doc: "verify the server; else anyone is taken",
    },
    Flag { names: &["--certfile"], value: "FILE", default: "", doc: "our own certificate" },
    Flag { names: &["--keyfile"], value: "FILE", default: "", doc: "its key" },
    Flag { names: &["--ws"], value: "", default: "false", doc: "" },
    Flag {
        names: &["--quic"],
        value: "HOW",
        default: "false",
        doc: "true or false; TLS's files are its",
    },
    Flag {
        names: &["--restapi"],
        value: "PLACE",
        default: "",
        doc: "[IP:]PORT that serves /metrics to Prometheus",
    },
    Flag { names: &["--prometheus"], value: "", default: "", doc: "taken; --restapi says where" },
    Flag { names: &["-l", "--lowmem"], value: "", default: "", doc: "taken: of Erlang alone" },
    Flag { names: &["-d", "--dist"], value: "", default: "", doc: "taken: of Erlang alone" },
    Flag {
        names: &["--force-major-gc-interval"],
        value: "MS",
        default: "",
        doc: "taken: of Erlang alone",
    },
    Flag {
        names: &["-Q", "--qoe"],
        value: "HOW",
        default: "",
        doc: "true or false: the summary always has the latencies; dump is refused",
    },
    Flag { names: &["--qoelog"], value: "FILE", default: "", doc: "refused: use --json FILE" },
    Flag { names: &["--load-qst"], value: "FILE", default: "", doc: "refused: there is no 0-RTT" },
    Flag {
        names: &["--ssl-version"],
        value: "V",
        default: "",
        doc: "tlsv1.2 or tlsv1.3 alone; means --ssl",
    },
    Flag { names: &["--ciphers"], value: "LIST", default: "", doc: "refused: see --ssl-version" },
    Flag { names: &["--signature-algs"], value: "LIST", default: "", doc: "refused" },
    Flag { names: &["--keyex-algs"], value: "LIST", default: "", doc: "refused" },
    Flag {
        names: &["--log_to"],
        value: "WHERE",
        default: "console",
        doc: "console, or null for no line a second",
    },
];

pub(super) const OURS: &[Flag] = &[
    Flag { names: &["--duration"], value: "SPAN", default: "", doc: "end after 90s, 5m, 1h" },
    Flag { names: &["--threads"], value: "N", default: "1", doc: "load threads" },
    Flag { names: &["--window"], value: "N", default: "", doc: "deliveries under way with -I 0" },
    Flag { names: &["--pid"], value: "PID", default: "", doc: "the broker's process, to watch" },
    Flag {
        names: &["--json"],
        value: "FILE",
        default: "",
        doc: "write the whole report, - for stdout",
    },
];

pub(super) const PUB: &[Flag] = &[
    Flag {
        names: &["-t", "--topic"],
        value: "TOPIC",
        default: "",
        doc: "with %u %c %i %s %rand_N anywhere",
    },
    Flag {
        names: &["-I", "--interval_of_msg"],
        value: "MS",
        default: "1000",
        doc: "a client; 0: as fast as taken",
    },
    Flag {
        names: &["-s", "--size"],
        value: "BYTES",
        default: "256",
        doc: "payload; from 16 on it is stamped",
    },
    Flag {
        names: &["-m", "--message"],
        value: "TEXT",
        default: "",
        doc: "payload, or template://FILE",
    },
    Flag { names: &["-q", "--qos"], value: "QOS", default: "0", doc: "" },
    Flag { names: &["-r", "--retain"], value: "BOOL", default: "false", doc: "" },
    Flag {
        names: &["-L", "--limit"],
        value: "N",
        default: "0",
        doc: "messages of all clients together",
    },
    Flag {
        names: &["-F", "--inflight"],
        value: "N",
        default: "1",
        doc: "unacknowledged a client; 0: no bound",
    },
    Flag {
        names: &["-w", "--wait-before-publishing"],
        value: "",
        default: "false",
        doc: "until all are connected",
    },
    Flag {
        names: &["--min-random-wait"],
        value: "MS",
        default: "0",
        doc: "before the first message",
    },
    Flag { names: &["--retry-interval"], value: "S", default: "", doc: "refused unless 0" },
    Flag { names: &["--keep-connected"], value: "BOOL", default: "", doc: "refused unless false" },
    Flag {
        names: &["--topics-payload"],
        value: "FILE",
        default: "",
        doc: "refused: write a scenario and run it",
    },
    Flag { names: &["--max-random-wait"], value: "MS", default: "0", doc: "" },
    Flag { names: &["--payload-hdrs"], value: "LIST", default: "", doc: "cnt64,ts" },
];

pub(super) const SUB: &[Flag] = &[
    Flag {
        names: &["-t", "--topic"],
        value: "FILTER",
        default: "",
        doc: "may be repeated; with %u %c %i",
    },
    Flag { names: &["-q", "--qos"], value: "QOS", default: "0", doc: "" },
    Flag {
        names: &["--payload-hdrs"],
        value: "LIST",
        default: "",
        doc: "cnt64,ts: read the latency from ts",
    },
];

/// emqtt_bench's flags that are refused rather than ignored, since the test would not be what it
/// says: which of their values are taken all the same, and what to write instead.
const REFUSED: &[(&str, &[&str], &str)] = &[
    ("--load-qst", &[], "leave it out: tickets of 0-RTT are not kept here"),
    ("--qoelog", &[""], QOE_LOG),
    ("--qoe", &["true", "false"], QOE_LOG),
    ("--ciphers", &[], SUITES),
    ("--signature-algs", &[], SUITES),
    ("--keyex-algs", &[], SUITES),
    ("--topics-payload", &[], TOPICS),
    (
        "--retry-interval",
        &["0"],
        "leave it out: nothing is sent twice here, and what is not \
        acknowledged is counted",
    ),
    (
        "--keep-connected",
        &["false"],
        "leave it out: publishers leave with the test; run `conn` \
        beside it for idle connections",
    ),
    ("--log_to", &["console", "null"], "use console or null"),
];

const QOE_LOG: &str = "use --json FILE, which has the latencies of every second; \
    `godwit-bench report FILE --csv OUT` makes a table of them";
const SUITES: &str = "leave it out: the strongest that both know is taken; --ssl-version tlsv1.2 \
    or tlsv1.3 chooses between the versions";
const TOPICS: &str = "write a scenario with a [[group]] for each topic (publish, every_ms, qos and \
    payload), and `godwit-bench run FILE.toml`; `godwit-bench show composite` prints one to begin \
    with";

/// Says what to write in the place of a flag that would make another test.
pub(super) fn check_refused(line: &Line) -> Result<(), String> {
    for (flag, taken, instead) in REFUSED {
        if let Some(value) = line.text(flag).filter(|value| !taken.contains(value)) {
            return Err(format!("{flag} {value}: {instead}"));
        }
    }
    Ok(())
}
