//! Options of HTTP servers that authenticate or authorize clients.

use super::{AuthOptionTables, AuthOptionTarget};
use crate::remote::http_call::{HttpAnswerFormat, HttpParamPlacement};
use crate::remote::template::AuthTemplate;
use broker::peer::authentication::SecretBytes;
use config::row::{OptionRow, OptionScope};
use config::value::{NumberUnit, OptionKind, OptionValue};
use net::http_client::{SCHEMES, check_header};
use net::http_proxy::HttpProxy;
use net::server_url::{ServerUrl, has_dot_segments};

const HTTP_URL: OptionKind =
    OptionKind::Text { of: "a URL", check: |text| check_url(text, parse_client) };
const WISH_URL: OptionKind =
    OptionKind::Text { of: "a URL", check: |text| check_url(text, AuthTemplate::parse_wish) };
const HEADERS: OptionKind = OptionKind::Map { of: "names", value: "value", check: check_header };
const PARAMS: OptionKind = OptionKind::Map {
    of: "names",
    value: "text with placeholders",
    check: |_, text| parse_client(text).map(|_| ()),
};
const WISH_PARAMS: OptionKind = OptionKind::Map {
    of: "names",
    value: "text with placeholders",
    check: |_, text| AuthTemplate::parse_wish(text).map(|_| ()),
};
const METHODS: OptionKind = OptionKind::Choice(&["get", "post_form", "post_json"]);
const SECONDS: OptionKind = OptionKind::Number {
    min: 0,
    max: 86_400,
    unit: NumberUnit::Named("seconds"),
    word: Some(("off", 0)),
};

const ANSWERS: OptionKind = OptionKind::Choice(&["json", "emqx", "status", "text"]);

fn answer_form(value: &OptionValue) -> HttpAnswerFormat {
    match value.text() {
        "emqx" => HttpAnswerFormat::Emqx,
        "status" => HttpAnswerFormat::Status,
        "text" => HttpAnswerFormat::Text,
        _ => HttpAnswerFormat::Json,
    }
}

type TemplateParser = fn(&str) -> Result<AuthTemplate, String>;

fn parse_client(text: &str) -> Result<AuthTemplate, String> {
    AuthTemplate::parse(text, true)
}

/// Splits a URL into the server and the template of path and query.
fn http_url(text: &str, parse: TemplateParser) -> Result<(ServerUrl, AuthTemplate), String> {
    let url = ServerUrl::parse(text, SCHEMES)?;
    let target = parse(&url.path)?;
    if has_dot_segments(&url.path) {
        return Err("a path with . or .. in it leads elsewhere, write where it leads".into());
    }
    Ok((url, target))
}

fn check_url(text: &str, parse: TemplateParser) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { http_url(text, parse).map(|_| ()) }
}

fn read_url(value: &OptionValue, parse: TemplateParser) -> Option<(ServerUrl, AuthTemplate)> {
    let given = Some(value.text()).filter(|text| !text.is_empty());
    given.map(|text| http_url(text, parse).expect("it was checked when it was read"))
}

fn read_params(value: &OptionValue, parse: TemplateParser) -> Vec<(String, AuthTemplate)> {
    let params = value
        .map()
        .iter()
        .map(|(name, text)| (name.clone(), parse(text).expect("it was checked when it was read")));
    params.collect()
}

fn read_headers(value: &OptionValue) -> Vec<(String, SecretBytes)> {
    let secret = |text: &String| SecretBytes(text.as_bytes().into());
    value.map().iter().map(|(name, text)| (name.clone(), secret(text))).collect()
}

fn form(value: &OptionValue) -> HttpParamPlacement {
    match value.text() {
        "get" => HttpParamPlacement::Query,
        "post_form" => HttpParamPlacement::Encoded,
        _ => HttpParamPlacement::Json,
    }
}

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options `acl.http_*` of the server that authorizes clients.
    pub(super) const HTTP_ACL: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "acl.http_answer",
            kind: ANSWERS,
            default: "json",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what of an answer says whether the client may",
            long: "`json`: as `acl.http_url` says. `emqx`: the same without empty answers and \
                   words, which EMQX 5 does not read. `status`: 200 allows whatever stands in it, \
                   but an object with a `result`, `deny` or `ignore`, which deny; any other \
                   status below 500 denies, as at EMQX 4 and NanoMQ. `text`: 200 with `ok` \
                   allows, as at mosquitto-go-auth.",
            source: "",
            set: |settings, value| settings.security().permits.answer = answer_form(value),
        },
        OptionRow {
            key: "acl.http_cache_s",
            kind: SECONDS,
            default: "60",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how long a server's answer is good for the same client and topic",
            long: "Up to 1024 answers for a connection are kept; a client that connects again is \
                   asked about again. SIGHUP forgets them. `off` asks each time.",
            source: "",
            set: |settings, value| settings.security().permits.cache_s = value.u32(),
        },
        OptionRow {
            key: "acl.http_headers",
            kind: OptionKind::Hidden(&HEADERS),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "headers of each question",
            long: "Their values are not shown anywhere.",
            source: "",
            set: |settings, value| settings.security().permits.call.headers = read_headers(value),
        },
        OptionRow {
            key: "acl.http_method",
            kind: METHODS,
            default: "post_json",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how the parameters are sent",
            long: "In the query of a GET, or in the body of a POST, as a form or an object of \
                   JSON.",
            source: "",
            set: |settings, value| settings.security().permits.call.form = form(value),
        },
        OptionRow {
            key: "acl.http_params",
            kind: WISH_PARAMS,
            default: "action=${action},clientid=${clientid},topic=${topic},username=${username}",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what the server is told of a publish or a subscription",
            long: "Names and text with placeholders: `${topic}` or `%t` (of a subscription its \
                   filter), `${action}` (`publish` or `subscribe`), `${access}` `%A` (2 or 1 for \
                   them), `${qos}`, `${retain}` (`true` or `false`), `${username}` `%u`, \
                   `${clientid}` `%c`, `${peerhost}` `%a`, `${listener}` `%p` (its port), \
                   `${namespace}`, `${cert_cn}` `%C`, `${protocol}` `%r`; `%%` is a percent sign. \
                   What is not there is empty.",
            source: "",
            set: |settings, value| {
                settings.security().permits.call.params =
                    read_params(value, AuthTemplate::parse_wish);
            },
        },
        OptionRow {
            key: "acl.http_url",
            kind: OptionKind::Hidden(&WISH_URL),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "server that is asked by HTTP what a client may publish and subscribe",
            long: "Asked about what no rule allows or denies, neither the client's own nor one \
                   of `acl.file`. `http://` or `https://`, a user and a password in it are sent \
                   as Basic authentication. Behind the host it may have placeholders, as in \
                   `acl.http_params`. 204, or 200 with `{\"result\": \"allow\"}`, `allow`, `ok` \
                   or nothing allows; 401, 403, and 200 with `deny` or `ignore` deny. Anything \
                   else, and no answer within `auth.backend_timeout_ms`, is a no for this once \
                   (0x87). The client's next packets wait for the answer, nobody else's. \
                   docs/security.md explains it.",
            source: "MQTT 5.0, 5.4.2",
            set: |settings, value| {
                settings.security().permits.call.url = read_url(value, AuthTemplate::parse_wish);
            },
        },
    ];
}

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Options `auth.http_*` of the server that authenticates clients.
    pub(super) const HTTP: &'static [OptionRow<S>] = &[
        OptionRow {
            key: "auth.http_acl",
            kind: OptionKind::Bool,
            default: "false",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "whether answers bring the client's own rules (`acl`)",
            long: "The rules of `acl.file` come after them, and what no rule allows is refused, \
                   also where an answer has none. Without this an answer with rules lets nobody \
                   in.",
            source: "MQTT 5.0, 5.4.2",
            set: |settings, value| settings.security().http.takes_rules = value.bool(),
        },
        OptionRow {
            key: "auth.http_answer",
            kind: ANSWERS,
            default: "json",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what of an answer says whether the client may connect",
            long: "`json`: an object with `result`, as EMQX 5 has it, or with `ok`, as \
                   mosquitto-go-auth; or `result` in a form. `emqx`: `result` alone, with \
                   `expire_at` in seconds, and no `clientid_override`. `status`: 200 allows \
                   whatever stands in it, but an object with a `result`, which counts, `deny`, \
                   which denies, and `ignore`; any other status below 500 denies, as at EMQX 4 \
                   and NanoMQ. `text`: 200 with `ok` allows, as at mosquitto-go-auth, and any \
                   other text denies.",
            source: "",
            set: |settings, value| settings.security().http.answer = answer_form(value),
        },
        OptionRow {
            key: "auth.http_cache_s",
            kind: SECONDS,
            default: "off",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how long an answer is good for the same question",
            long: "What was decided stays so for as long, whatever the server would say by then. \
                   At most 10,000 answers are kept, under a keyed hash of the question. SIGHUP \
                   forgets them.",
            source: "",
            set: |settings, value| settings.security().http.cache_s = value.u32(),
        },
        OptionRow {
            key: "auth.http_headers",
            kind: OptionKind::Hidden(&HEADERS),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "headers of each question",
            long: "Their values are not shown anywhere.",
            source: "",
            set: |settings, value| settings.security().http.call.headers = read_headers(value),
        },
        OptionRow {
            key: "auth.http_method",
            kind: METHODS,
            default: "post_json",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "how the parameters are sent",
            long: "In the query of a GET, or in the body of a POST, as a form or an object of \
                   JSON.",
            source: "",
            set: |settings, value| settings.security().http.call.form = form(value),
        },
        OptionRow {
            key: "auth.http_params",
            kind: PARAMS,
            default: "clientid=${clientid},password=${password},username=${username}",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "what the server is told of a client",
            long: "Names and text with placeholders: `${username}` or `%u`, `${clientid}` `%c`, \
                   `${password}` `%P`, `${peerhost}` `%a`, `${listener}` `%p` (its port), \
                   `${cert_cn}` `%C`, `${cert_subject}` `%d`, `${protocol}` `%r`; `%%` is a \
                   percent sign. What is not there is empty.",
            source: "",
            set: |settings, value| {
                settings.security().http.call.params = read_params(value, parse_client);
            },
        },
        OptionRow {
            key: "auth.http_proxy",
            kind: HttpProxy::OPTION,
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "the proxy on the way to servers that are asked by HTTP",
            long: "To those of `auth.http_url`, `acl.http_url` and `auth.jwt_keys`: \
                   `http://USER:PASSWORD@HOST:PORT`, or `environment` for `HTTP_PROXY`, \
                   `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` of the broker's environment. An \
                   `https` server is reached by CONNECT; of an `http` one the proxy reads all \
                   that is asked, passwords too. Empty goes straight to the server, whatever \
                   the environment says.",
            source: "RFC 9110, 9.3.6",
            set: |settings, value| {
                let proxy = HttpProxy::parse(value.text()).unwrap_or_default();
                settings.security().http.proxy = proxy.clone();
                settings.security().permits.proxy = proxy;
            },
        },
        OptionRow {
            key: "auth.http_url",
            kind: OptionKind::Hidden(&HTTP_URL),
            default: "",
            live: true,
            also_for: &[OptionScope::Listener],
            short: "server that is asked by HTTP whether a client may connect",
            long: "`http://` or `https://`, a user and a password in it are sent as Basic \
                   authentication. Behind the host it may have placeholders, as in \
                   `auth.http_params`. It answers as `auth.http_answer` says, by default as EMQX \
                   5 has it: 200 with `{\"result\": \"allow\"}`, `\"deny\"` or `\"ignore\"`, and \
                   `is_superuser`, `groups`, `acl`, `expire_at`; 204 allows, 401 and 403 deny, \
                   any other 4xx leaves the client to the next that is asked. Anything else is \
                   no answer, and then nobody is let in. It is asked about every client, also \
                   about one that brings nothing but its client id. docs/security.md explains it.",
            source: "MQTT 5.0, 5.4.1",
            set: |settings, value| {
                settings.security().http.call.url = read_url(value, parse_client)
            },
        },
    ];
}
