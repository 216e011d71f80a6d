//! Flags of `conn`, `pub` and `sub`: the flags of emqtt_bench, and additional flags.

use crate::flags::ParsedFlags;
use command_line::{FlagRow, TRUTH};

pub(super) const SHARED: &[FlagRow] = &[
    FlagRow::new(
        &["-h", "--host"],
        &["HOSTS"],
        "comma list, taken in turn; URLs, too: tls://HOST:PORT",
    )
    .with_default("localhost"),
    FlagRow::new(&["-p", "--port"], &["PORT"], "of hosts that are not URLs with a port")
        .with_default("1883"),
    FlagRow::new(&["-V", "--version"], &["V"], "3, 4 (3.1.1) or 5").with_default("5"),
    FlagRow::new(&["-c", "--count"], &["N"], "clients").with_default("200"),
    FlagRow::new(&["-R", "--connrate"], &["N"], "connections a second; 0: see -i")
        .with_default("0"),
    FlagRow::new(&["-i", "--interval"], &["MS"], "between connections; 10ms, too")
        .with_default("10"),
    crate::run::IFADDR,
    FlagRow::new(&["--prefix"], &["TEXT"], "of client ids"),
    FlagRow::new(&["--shortids"], TRUTH, "client ids are prefix and number").with_default("false"),
    FlagRow::new(&["-n", "--startnumber"], &["N"], "first client's number less one")
        .with_default("0"),
    FlagRow::new(&["--num-retry-connect"], &["N"], "for clients that were never connected")
        .with_default("0"),
    FlagRow::new(&["--reconnect"], &["N"], "for clients that lost their connection")
        .with_default("0"),
    FlagRow::new(&["-u", "--username"], &["NAME"], "with %i and %rand_N"),
    FlagRow::new(&["-P", "--password"], &["TEXT"], ""),
    FlagRow::new(&["-k", "--keepalive"], &["S"], "seconds; 5m, too").with_default("300"),
    FlagRow::new(&["-C", "--clean"], TRUTH, "clean start").with_default("true"),
    FlagRow::new(&["-x", "--session-expiry"], &["S"], "MQTT 5").with_default("0"),
    FlagRow::new(&["-S", "--ssl"], TRUTH, "").with_default("false"),
    FlagRow::new(&["--cacertfile"], &["FILE"], "verify the server; else anyone is taken"),
    FlagRow::new(&["--certfile"], &["FILE"], "our own certificate"),
    FlagRow::new(&["--keyfile"], &["FILE"], "its key"),
    FlagRow::new(&["--ws"], TRUTH, "").with_default("false"),
    FlagRow::new(&["--quic"], &["HOW"], "true or false; TLS's files are its").with_default("false"),
    FlagRow::new(&["--restapi"], &["PLACE"], "[IP:]PORT that serves /metrics to Prometheus"),
    FlagRow::new(&["--prometheus"], TRUTH, "taken; --restapi says where"),
    FlagRow::new(&["-l", "--lowmem"], TRUTH, "taken: of Erlang alone"),
    FlagRow::new(&["-d", "--dist"], TRUTH, "taken: of Erlang alone"),
    FlagRow::new(&["--force-major-gc-interval"], &["MS"], "taken: of Erlang alone"),
    FlagRow::new(
        &["-Q", "--qoe"],
        &["HOW"],
        "true or false: the summary always has the latencies; dump is refused",
    ),
    FlagRow::new(&["--qoelog"], &["FILE"], "refused: use --json FILE"),
    FlagRow::new(&["--load-qst"], &["FILE"], "refused: 0-RTT is not supported"),
    FlagRow::new(&["--ssl-version"], &["V"], "tlsv1.2 or tlsv1.3 alone; means --ssl"),
    FlagRow::new(&["--ciphers"], &["LIST"], "refused: see --ssl-version"),
    FlagRow::new(&["--signature-algs"], &["LIST"], "refused"),
    FlagRow::new(&["--keyex-algs"], &["LIST"], "refused"),
    FlagRow::new(&["--log_to"], &["WHERE"], "console, or null for no line a second")
        .with_default("console"),
];

pub(super) const OURS: &[FlagRow] = &[
    FlagRow::new(&["--duration"], &["SPAN"], "end after 90s, 5m, 1h"),
    FlagRow::new(&["--threads"], &["N"], "load threads").with_default("1"),
    FlagRow::new(&["--window"], &["N"], "deliveries under way with -I 0"),
    FlagRow::new(&["--pid"], &["PID"], "the broker's process, to watch"),
    FlagRow::new(&["--json"], &["FILE"], "write the whole report, - for stdout"),
];

pub(super) const PUB: &[FlagRow] = &[
    FlagRow::new(&["-t", "--topic"], &["TOPIC"], "with %u %c %i %s %rand_N anywhere"),
    FlagRow::new(&["-I", "--interval_of_msg"], &["MS"], "a client; 0: as fast as taken")
        .with_default("1000"),
    FlagRow::new(&["-s", "--size"], &["BYTES"], "payload; from 16 on it is stamped")
        .with_default("256"),
    FlagRow::new(&["-m", "--message"], &["TEXT"], "payload, or template://FILE"),
    FlagRow::new(&["-q", "--qos"], &["QOS"], "").with_default("0"),
    FlagRow::new(&["-r", "--retain"], TRUTH, "").with_default("false"),
    FlagRow::new(&["-L", "--limit"], &["N"], "messages of all clients together").with_default("0"),
    FlagRow::new(&["-F", "--inflight"], &["N"], "unacknowledged a client; 0: no bound")
        .with_default("1"),
    FlagRow::new(&["-w", "--wait-before-publishing"], TRUTH, "until all are connected")
        .with_default("false"),
    FlagRow::new(&["--min-random-wait"], &["MS"], "before the first message").with_default("0"),
    FlagRow::new(&["--retry-interval"], &["S"], "refused unless 0"),
    FlagRow::new(&["--keep-connected"], TRUTH, "refused unless false"),
    FlagRow::new(&["--topics-payload"], &["FILE"], "refused: write a scenario and run it"),
    FlagRow::new(&["--max-random-wait"], &["MS"], "").with_default("0"),
    FlagRow::new(&["--payload-hdrs"], &["LIST"], "cnt64,ts"),
];

pub(super) const SUB: &[FlagRow] = &[
    FlagRow::new(&["-t", "--topic"], &["FILTER"], "may be repeated; with %u %c %i"),
    FlagRow::new(&["-q", "--qos"], &["QOS"], "").with_default("0"),
    FlagRow::new(&["--payload-hdrs"], &["LIST"], "cnt64,ts: read the latency from ts"),
];

/// Flags of emqtt_bench that are refused instead of ignored, because the test would differ from its
/// command line: flag, accepted values, and the alternative to use.
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
