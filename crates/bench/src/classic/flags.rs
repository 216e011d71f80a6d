//! The flags of `conn`, `pub` and `sub`: emqtt_bench's, and our own.

use crate::flags::{FlagSpec, ParsedFlags};

pub(super) const SHARED: &[FlagSpec] = &[
    FlagSpec {
        names: &["-h", "--host"],
        value: "HOSTS",
        default: "localhost",
        doc: "comma list, taken in turn; URLs, too: tls://HOST:PORT",
    },
    FlagSpec {
        names: &["-p", "--port"],
        value: "PORT",
        default: "1883",
        doc: "of hosts that are not URLs with a port",
    },
    FlagSpec { names: &["-V", "--version"], value: "V", default: "5", doc: "3, 4 (3.1.1) or 5" },
    FlagSpec { names: &["-c", "--count"], value: "N", default: "200", doc: "clients" },
    FlagSpec {
        names: &["-R", "--connrate"],
        value: "N",
        default: "0",
        doc: "connections a second; 0: see -i",
    },
    FlagSpec {
        names: &["-i", "--interval"],
        value: "MS",
        default: "10",
        doc: "between connections; 10ms, too",
    },
    crate::run::IFADDR,
    FlagSpec { names: &["--prefix"], value: "TEXT", default: "", doc: "of client ids" },
    FlagSpec {
        names: &["--shortids"],
        value: "",
        default: "false",
        doc: "client ids are prefix and number",
    },
    FlagSpec {
        names: &["-n", "--startnumber"],
        value: "N",
        default: "0",
        doc: "first client's number less one",
    },
    FlagSpec {
        names: &["--num-retry-connect"],
        value: "N",
        default: "0",
        doc: "for clients that were never connected",
    },
    FlagSpec {
        names: &["--reconnect"],
        value: "N",
        default: "0",
        doc: "for clients that lost their connection",
    },
    FlagSpec {
        names: &["-u", "--username"],
        value: "NAME",
        default: "",
        doc: "with %i and %rand_N",
    },
    FlagSpec { names: &["-P", "--password"], value: "TEXT", default: "", doc: "" },
    FlagSpec { names: &["-k", "--keepalive"], value: "S", default: "300", doc: "seconds; 5m, too" },
    FlagSpec { names: &["-C", "--clean"], value: "BOOL", default: "true", doc: "clean start" },
    FlagSpec { names: &["-x", "--session-expiry"], value: "S", default: "0", doc: "MQTT 5" },
    FlagSpec { names: &["-S", "--ssl"], value: "", default: "false", doc: "" },
    FlagSpec {
        names: &["--cacertfile"],
        value: "FILE",
        default: "",
        doc: "verify the server; else anyone is taken",
    },
    FlagSpec { names: &["--certfile"], value: "FILE", default: "", doc: "our own certificate" },
    FlagSpec { names: &["--keyfile"], value: "FILE", default: "", doc: "its key" },
    FlagSpec { names: &["--ws"], value: "", default: "false", doc: "" },
    FlagSpec {
        names: &["--quic"],
        value: "HOW",
        default: "false",
        doc: "true or false; TLS's files are its",
    },
    FlagSpec {
        names: &["--restapi"],
        value: "PLACE",
        default: "",
        doc: "[IP:]PORT that serves /metrics to Prometheus",
    },
    FlagSpec {
        names: &["--prometheus"],
        value: "",
        default: "",
        doc: "taken; --restapi says where",
    },
    FlagSpec { names: &["-l", "--lowmem"], value: "", default: "", doc: "taken: of Erlang alone" },
    FlagSpec { names: &["-d", "--dist"], value: "", default: "", doc: "taken: of Erlang alone" },
    FlagSpec {
        names: &["--force-major-gc-interval"],
        value: "MS",
        default: "",
        doc: "taken: of Erlang alone",
    },
    FlagSpec {
        names: &["-Q", "--qoe"],
        value: "HOW",
        default: "",
        doc: "true or false: the summary always has the latencies; dump is refused",
    },
    FlagSpec { names: &["--qoelog"], value: "FILE", default: "", doc: "refused: use --json FILE" },
    FlagSpec {
        names: &["--load-qst"],
        value: "FILE",
        default: "",
        doc: "refused: 0-RTT is not supported",
    },
    FlagSpec {
        names: &["--ssl-version"],
        value: "V",
        default: "",
        doc: "tlsv1.2 or tlsv1.3 alone; means --ssl",
    },
    FlagSpec {
        names: &["--ciphers"],
        value: "LIST",
        default: "",
        doc: "refused: see --ssl-version",
    },
    FlagSpec { names: &["--signature-algs"], value: "LIST", default: "", doc: "refused" },
    FlagSpec { names: &["--keyex-algs"], value: "LIST", default: "", doc: "refused" },
    FlagSpec {
        names: &["--log_to"],
        value: "WHERE",
        default: "console",
        doc: "console, or null for no line a second",
    },
];

pub(super) const OURS: &[FlagSpec] = &[
    FlagSpec { names: &["--duration"], value: "SPAN", default: "", doc: "end after 90s, 5m, 1h" },
    FlagSpec { names: &["--threads"], value: "N", default: "1", doc: "load threads" },
    FlagSpec {
        names: &["--window"],
        value: "N",
        default: "",
        doc: "deliveries under way with -I 0",
    },
    FlagSpec {
        names: &["--pid"],
        value: "PID",
        default: "",
        doc: "the broker's process, to watch",
    },
    FlagSpec {
        names: &["--json"],
        value: "FILE",
        default: "",
        doc: "write the whole report, - for stdout",
    },
];

pub(super) const PUB: &[FlagSpec] = &[
    FlagSpec {
        names: &["-t", "--topic"],
        value: "TOPIC",
        default: "",
        doc: "with %u %c %i %s %rand_N anywhere",
    },
    FlagSpec {
        names: &["-I", "--interval_of_msg"],
        value: "MS",
        default: "1000",
        doc: "a client; 0: as fast as taken",
    },
    FlagSpec {
        names: &["-s", "--size"],
        value: "BYTES",
        default: "256",
        doc: "payload; from 16 on it is stamped",
    },
    FlagSpec {
        names: &["-m", "--message"],
        value: "TEXT",
        default: "",
        doc: "payload, or template://FILE",
    },
    FlagSpec { names: &["-q", "--qos"], value: "QOS", default: "0", doc: "" },
    FlagSpec { names: &["-r", "--retain"], value: "BOOL", default: "false", doc: "" },
    FlagSpec {
        names: &["-L", "--limit"],
        value: "N",
        default: "0",
        doc: "messages of all clients together",
    },
    FlagSpec {
        names: &["-F", "--inflight"],
        value: "N",
        default: "1",
        doc: "unacknowledged a client; 0: no bound",
    },
    FlagSpec {
        names: &["-w", "--wait-before-publishing"],
        value: "",
        default: "false",
        doc: "until all are connected",
    },
    FlagSpec {
        names: &["--min-random-wait"],
        value: "MS",
        default: "0",
        doc: "before the first message",
    },
    FlagSpec { names: &["--retry-interval"], value: "S", default: "", doc: "refused unless 0" },
    FlagSpec {
        names: &["--keep-connected"],
        value: "BOOL",
        default: "",
        doc: "refused unless false",
    },
    FlagSpec {
        names: &["--topics-payload"],
        value: "FILE",
        default: "",
        doc: "refused: write a scenario and run it",
    },
    FlagSpec { names: &["--max-random-wait"], value: "MS", default: "0", doc: "" },
    FlagSpec { names: &["--payload-hdrs"], value: "LIST", default: "", doc: "cnt64,ts" },
];

pub(super) const SUB: &[FlagSpec] = &[
    FlagSpec {
        names: &["-t", "--topic"],
        value: "FILTER",
        default: "",
        doc: "may be repeated; with %u %c %i",
    },
    FlagSpec { names: &["-q", "--qos"], value: "QOS", default: "0", doc: "" },
    FlagSpec {
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

/// Refuses a flag of `REFUSED` whose value would mean a different test, with the flag to use
/// instead.
pub(super) fn check_refused(line: &ParsedFlags) -> Result<(), String> {
    for (flag, taken, instead) in REFUSED {
        if let Some(value) = line.text(flag).filter(|value| !taken.contains(value)) {
            return Err(format!("{flag} {value}: {instead}"));
        }
    }
    Ok(())
}
