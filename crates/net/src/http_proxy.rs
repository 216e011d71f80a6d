//! The proxy that HTTP requests go through, where an option names one.

use crate::endpoint::ServerEndpoint;
use crate::server_url::ServerUrl;
use config::value::OptionKind;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, Proxy};

/// Proxy of HTTP requests. A request to `https` is tunnelled by CONNECT (RFC 9110, 9.3.6); a
/// request to `http` is sent to the proxy with the whole URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HttpProxy {
    #[default]
    None,
    /// `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, or the same in small letters.
    Environment,
    Server(ServerUrl),
}

const ENVIRONMENT: &str = "environment";
const SCHEMES: &[&str] = &["http"];
const PORT: u16 = 80;

impl HttpProxy {
    /// Kind of an option that names a proxy. The value may contain a password.
    pub const OPTION: OptionKind = OptionKind::Hidden(&OptionKind::Text {
        of: "a URL like http://proxy:3128",
        check: |text| HttpProxy::parse(text).map(drop),
    });

    /// Parses an option: empty, `environment`, or a URL, which may have a user and a password.
    pub fn parse(text: &str) -> Result<HttpProxy, String> {
        match text {
            "" => Ok(HttpProxy::None),
            ENVIRONMENT => Ok(HttpProxy::Environment),
            text => {
                let url = ServerUrl::parse(text, SCHEMES)
                    .map_err(|why| format!("{why} or {ENVIRONMENT}"))?;
                if !["", "/"].contains(&url.path.as_str()) {
                    return Err("a proxy has no path, use http://HOST:PORT".to_string());
                }
                // Stricter about hosts than a `ServerUrl`, such as about 1.2.3.999.
                match Proxy::all(url.to_string()) {
                    Ok(_) => Ok(HttpProxy::Server(url)),
                    Err(_) => Err(format!("{} is not the name or address of a host", url.host)),
                }
            }
        }
    }

    pub(crate) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        let url = match self {
            HttpProxy::Environment => return builder,
            HttpProxy::None => return builder.no_proxy(),
            HttpProxy::Server(url) => url,
        };
        let mut proxy = Proxy::all(url.to_string()).expect("it was checked when it was read");
        if let Some(user) = &url.user {
            proxy = proxy.basic_auth(user, url.password.as_deref().unwrap_or_default());
        }
        builder.no_proxy().proxy(proxy)
    }

    /// Returns the proxy that requests to a server go through, if there is one.
    pub(crate) fn endpoint(&self, origin: &str) -> Option<ServerEndpoint> {
        let (host, port) = match self {
            HttpProxy::None => return None,
            HttpProxy::Server(url) => (url.host.clone(), url.port),
            HttpProxy::Environment => {
                let proxy = Matcher::from_env().intercept(&origin.parse().ok()?)?;
                let host = proxy.uri().host()?.trim_matches(['[', ']']).to_string();
                (host, proxy.uri().port_u16())
            }
        };
        Some(ServerEndpoint { host, port: port.unwrap_or(PORT), tls: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_cannot_be_asked_is_not_an_option() {
        for text in ["", "environment", "http://h", "http://[::1]:3128/", "http://u:p@1.2.3.4:80"] {
            assert!(HttpProxy::parse(text).is_ok(), "{text}");
        }
        for text in ["http://1.2.3.999:80", "http://a/b", "https://h", "h:80", "http://xn--:80"] {
            assert!(HttpProxy::parse(text).is_err(), "{text}");
        }
        let why = HttpProxy::parse("http://user:secret@1.2.3.999:80").unwrap_err();
        assert_eq!(why, "1.2.3.999 is not the name or address of a host");
    }
}
