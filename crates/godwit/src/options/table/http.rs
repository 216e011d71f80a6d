//! Options of the server that is asked by HTTP.

use super::Row;
use crate::identity::http::Form;
use crate::identity::remote::http::{SCHEMES, check_header};
use crate::identity::remote::template::Template;
use crate::identity::remote::url::Url;
use crate::options::value::{Kind, Unit};
use broker::judge::Secret;

const HTTP_URL: Kind = Kind::Text {
    of: "a URL",
    check: |text| if text.is_empty() { Ok(()) } else { http_url(text).map(|_| ()) },
};
const HEADERS: Kind = Kind::Map { of: "names", value: "value", check: check_header };
const PARAMS: Kind = Kind::Map {
    of: "names",
    value: "text with placeholders",
    check: |_, text| Template::parse(text, true).map(|_| ()),
};

/// The server and the text behind it.
fn http_url(text: &str) -> Result<(Url, Template), String> {
    let url = Url::parse(text, SCHEMES)?;
    let target = Template::parse(&url.path, true)?;
    Ok((url, target))
}

pub(super) const ROWS: &[Row] = &[
    Row {
        key: "auth.http_acl",
        kind: Kind::Bool,
        default: "false",
        live: true,
        short: "whether answers bring the client's own rules (`acl`)",
        long: "The rules of `acl.file` come after them, and what no rule allows is refused, also \
               where an answer has none. Without this an answer with rules lets nobody in.",
        source: "MQTT 5.0, 5.4.2",
        set: |settings, value| settings.security.http.takes_rules = value.bool(),
    },
    Row {
        key: "auth.http_cache_s",
        kind: Kind::Number {
            min: 0,
            max: 86_400,
            unit: Unit::Of("seconds"),
            word: Some(("off", 0)),
        },
        default: "off",
        live: true,
        short: "how long an answer is good for the same question",
        long: "What was decided stays so for as long, whatever the server would say by then. At \
               most 10,000 answers are kept, under a keyed hash of the question. SIGHUP forgets \
               them.",
        source: "",
        set: |settings, value| settings.security.http.cache_s = value.u32(),
    },
    Row {
        key: "auth.http_headers",
        kind: Kind::Hidden(&HEADERS),
        default: "",
        live: true,
        short: "headers of each question",
        long: "Their values are not shown anywhere.",
        source: "",
        set: |settings, value| {
            let secret = |text: &String| Secret(text.as_bytes().into());
            let headers = value.map().iter().map(|(name, text)| (name.clone(), secret(text)));
            settings.security.http.headers = headers.collect();
        },
    },
    Row {
        key: "auth.http_method",
        kind: Kind::Choice(&["get", "post_form", "post_json"]),
        default: "post_json",
        live: true,
        short: "how the parameters are sent",
        long: "In the query of a GET, or in the body of a POST, as a form or an object of JSON.",
        source: "",
        set: |settings, value| {
            settings.security.http.form = match value.text() {
                "get" => Form::Query,
                "post_form" => Form::Encoded,
                _ => Form::Json,
            };
        },
    },
    Row {
        key: "auth.http_params",
        kind: PARAMS,
        default: "clientid=${clientid},password=${password},username=${username}",
        live: true,
        short: "what the server is told of a client",
        long: "Names and text with placeholders: `${username}` or `%u`, `${clientid}` `%c`, \
               `${password}` `%P`, `${peerhost}` `%a`, `${listener}` `%p` (its port), `${cert_cn}` \
               `%C`, `${cert_subject}` `%d`, `${protocol}` `%r`; `%%` is a percent sign. What is \
               not there is empty.",
        source: "",
        set: |settings, value| {
            let params = value.map().iter().map(|(name, text)| {
                (
                    name.clone(),
                    Template::parse(text, true).expect("it was checked when it was read"),
                )
            });
            settings.security.http.params = params.collect();
        },
    },
    Row {
        key: "auth.http_url",
        kind: Kind::Hidden(&HTTP_URL),
        default: "",
        live: true,
        short: "server that is asked by HTTP whether a client may connect",
        long: "`http://` or `https://`, a user and a password in it are sent as Basic \
               authentication. Behind the host it may have placeholders, as in \
               `auth.http_params`. It answers as EMQX has it: 200 with `{\"result\": \"allow\"}`, \
               `\"deny\"` or `\"ignore\"`, and `is_superuser`, `groups`, `acl`, `expire_at`; 204 \
               allows, 401 and 403 deny. Anything else is no answer, and then nobody is let in. \
               docs/security.md explains it.",
        source: "MQTT 5.0, 5.4.1",
        set: |settings, value| {
            let given = Some(value.text()).filter(|text| !text.is_empty());
            settings.security.http.url =
                given.map(|text| http_url(text).expect("it was checked when it was read"));
        },
    },
];
