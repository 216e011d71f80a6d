//! Options of an HTTP sink; InfluxDB sinks share the options of requests.

use super::rows::TEMPLATE;
use super::settings::SinkSettings;
use super::webhook::{self, RequestBatching};
use broker::peer::authentication::SecretBytes;
use config::row::OptionRow;
use config::value::OptionKind;
use net::http_client;
use net::http_proxy::HttpProxy;
use net::server_url::ServerUrl;

pub(super) const ROWS: &[OptionRow<SinkSettings>] = &[
    OptionRow {
        key: "http.url",
        kind: OptionKind::Hidden(&OptionKind::Text {
            of: "a URL like https://example/hook",
            check: |text| match text {
                "" => Ok(()),
                text => ServerUrl::parse(text, http_client::SCHEMES).map(drop),
            },
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "the server that gets requests; it may have a user and a password",
        long: "2xx is taken, and everything else is tried again, after Retry-After where the \
               server says so, unless it is one of `http.refused_statuses`.",
        source: "",
        set: |sink, value| sink.given.url = value.text().into(),
    },
    OptionRow {
        key: "http.proxy",
        kind: HttpProxy::OPTION,
        default: "",
        live: true,
        also_for: &[],
        short: "the proxy that requests go through; of influx.url, too",
        long: "`http://USER:PASSWORD@HOST:PORT`, or `environment` for `HTTP_PROXY`, \
               `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` of the broker's environment. An \
               `https` server is reached by CONNECT, and the proxy sees no more than its name. \
               Empty goes straight to the server, whatever the environment says.",
        source: "RFC 9110, 9.3.6",
        set: |sink, value| {
            sink.given.proxy = HttpProxy::parse(value.text()).unwrap_or_default();
        },
    },
    OptionRow {
        key: "http.follow_redirects",
        kind: OptionKind::Bool,
        default: "false",
        live: true,
        also_for: &[],
        short: "whether a redirection within the server is followed; of influx.url, too",
        long: "With 307 and 308 the request is sent again, up to 5 times, where scheme, host and \
               port stay the same. Any other redirection is a failure, and so is each without \
               this: it would send headers and messages elsewhere, or nothing but a GET.",
        source: "RFC 9110, 15.4",
        set: |sink, value| sink.given.follows_redirects = value.bool(),
    },
    OptionRow {
        key: "http.method",
        kind: OptionKind::Choice(&["POST", "PUT"]),
        default: "POST",
        live: true,
        also_for: &[],
        short: "how it is asked",
        long: "",
        source: "",
        set: |sink, value| sink.given.method = value.text().into(),
    },
    OptionRow {
        key: "http.headers",
        kind: OptionKind::Hidden(&OptionKind::Map {
            of: "NAME",
            value: "VALUE",
            check: http_client::check_header,
        }),
        default: "",
        live: true,
        also_for: &[],
        short: "headers of each request",
        long: "",
        source: "",
        set: |sink, value| {
            let secret = |text: &String| SecretBytes(text.as_bytes().into());
            let all = value.map().iter().map(|(name, value)| (name.clone(), secret(value)));
            sink.given.headers = all.collect();
        },
    },
    OptionRow {
        key: "http.content_type",
        kind: OptionKind::Text {
            of: "a media type",
            check: |text| http_client::check_header("content-type", text),
        },
        default: "application/json",
        live: true,
        also_for: &[],
        short: "what the body is, and so how values are written into it",
        long: "Into JSON as JSON, into application/x-www-form-urlencoded percent-encoded, into \
               everything else as they are.",
        source: "",
        set: |sink, value| sink.given.content_type = value.text().into(),
    },
    OptionRow {
        key: "http.body",
        kind: TEMPLATE,
        default: "",
        live: true,
        also_for: &[],
        short: "the body of one message; empty is an object of its columns",
        long: "In JSON, `\"${topic}\"` within quotes becomes a part of the string, and \
               `${payload}` without them a value.",
        source: "",
        set: |sink, value| sink.given.body = value.text().into(),
    },
    OptionRow {
        key: "http.batch",
        kind: OptionKind::Choice(&["array", "lines", "alone"]),
        default: "array",
        live: true,
        also_for: &[],
        short: "how a batch is sent: as an array of JSON, a line each, or a request each",
        long: "",
        source: "",
        set: |sink, value| {
            sink.given.together = match value.text() {
                "lines" => RequestBatching::Lines,
                "alone" => RequestBatching::Single,
                _ => RequestBatching::Array,
            };
        },
    },
    OptionRow {
        key: "http.refused_statuses",
        kind: OptionKind::List {
            of: "HTTP statuses",
            check: |text| webhook::parse_status(text).map(drop),
        },
        default: "400,409,413,415,422",
        live: true,
        also_for: &[],
        short: "what the server says of a message that it will never take; InfluxDB, too",
        long: "Such a message is passed over (`refused_tries`, `refused`). Any other status above \
               299 is about who asks and where, as 401, 403 and 404, or it passes: nothing goes \
               on until it does, and nothing is lost. A server that says 404 of a device that it \
               does not know wants it in here.",
        source: "RFC 9110, 15",
        set: |sink, value| {
            // Each was checked.
            let statuses = value.list().iter().filter_map(|text| webhook::parse_status(text).ok());
            sink.given.refused_statuses = statuses.collect();
        },
    },
];
