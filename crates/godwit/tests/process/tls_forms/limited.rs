//! Limits of CAs, and permitted uses of certificates, that webpki does not check for a trust anchor
//! or a client certificate, and OpenSSL checks.

use super::FormOutcome::Refused;
use super::{ANN, ClientForm};

const fn refused(
    certificate: &'static str,
    key: &'static str,
    trusted: &'static str,
    words: &'static str,
) -> ClientForm {
    ClientForm { certificate, key, trusted, ours: Refused(words), mosquitto: false, ..ANN }
}

pub(super) const CLIENTS: &[ClientForm] = &[
    refused(
        "client-of-server-ca.pem",
        "client-of-server-ca.key",
        "server-ca.pem",
        "extended key usage of its CA",
    ),
    ClientForm {
        certificate: "client-of-client-ca.pem",
        key: "client-of-client-ca.key",
        trusted: "client-ca.pem",
        ..ANN
    },
    ClientForm {
        certificate: "client-of-flat-ca.pem",
        key: "client-of-flat-ca.key",
        trusted: "flat-ca.pem",
        ..ANN
    },
    refused("client-of-flat-mid-whole.pem", "client-of-flat-mid.key", "flat-ca.pem", "path length"),
    refused("client-of-flat-mid.pem", "client-of-flat-mid.key", "flat-both.pem", "path length"),
    refused("client-of-idle-mid-whole.pem", "client-of-idle-mid.key", "ca.pem", ""),
    refused("client-of-flat-sent-whole.pem", "client-of-flat-sent.key", "ca.pem", ""),
    // Version 1 asks for the same of those that signed it.
    refused("client-v1-of-flat-mid.pem", "client-v1-of-flat-mid.key", "flat-both.pem", ""),
    refused("client-v1-of-past-mid.pem", "client-v1-of-past-mid.key", "past-both.pem", ""),
    refused("client-named-host.pem", "client-named-host.key", "named-ca.pem", "name constraints"),
    refused("client-named-mail.pem", "client-named-mail.key", "named-ca.pem", "name constraints"),
    ClientForm {
        certificate: "client-named.pem",
        key: "client-named.key",
        trusted: "named-ca.pem",
        ..ANN
    },
    refused("client-enciphers.pem", "client-enciphers.key", "ca.pem", "allows no signature"),
    ClientForm { certificate: "client-agrees.pem", key: "client-agrees.key", ..ANN },
    refused(
        "client-netscape-server.pem",
        "client-netscape-server.key",
        "ca.pem",
        "that of a server",
    ),
    // Of two lists the newer counts, wherever it stands.
    ClientForm {
        list: "crl-two.pem",
        ..refused("client-revoked.pem", "client-revoked.key", "ca.pem", "")
    },
    ClientForm { list: "crl-two.pem", ..ANN },
    // Here a CA stands for itself; an imported listener has to say that it may (`roots`).
    ClientForm {
        certificate: "client-below.pem",
        key: "client-below.key",
        trusted: "mid.pem",
        mosquitto: false,
        ..ANN
    },
    ClientForm { trusted: "client-v3.pem", mosquitto: false, ..ANN },
];
