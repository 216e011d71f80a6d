//! Descriptions of TLS handshake errors, with the form of the presented certificate and a remedy.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Describes a failed handshake with a client, for the log of a listener.
pub fn describe_client_error(error: &Error) -> String {
    use PeerIncompatible as P;
    match error {
        Error::InvalidCertificate(error) => {
            format!("the client's certificate: {}", describe_certificate(error, "tls.client_ca"))
        }
        Error::NoCertificatesPresented => {
            "peer sent no certificates, and tls.client_certificate requires one".to_string()
        }
        Error::PeerIncompatible(error) => match error {
            P::NoCipherSuitesInCommon | P::NoSignatureSchemesInCommon => {
                "no cipher suite in common: the client does not know ECDHE with AES-GCM or \
                 ChaCha20-Poly1305, or no signature of the kind of our certificate's key (a client \
                 that knows only RSA needs an RSA certificate beside the first in tls.certificate)"
                    .to_string()
            }
            P::NoKxGroupsInCommon
            | P::NamedGroupsExtensionRequired
            | P::KeyShareExtensionRequired
            | P::EcPointsExtensionRequired
            | P::NoEcPointFormatsInCommon => {
                "no key exchange in common: the client does not know ECDHE with X25519, P-256 or \
                 P-384, which is needed for forward secrecy"
                    .to_string()
            }
            P::ServerTlsVersionIsDisabledByOurConfig
            | P::Tls12NotOffered
            | P::Tls12NotOfferedOrEnabled
            | P::SupportedVersionsExtensionRequired => {
                "no version of TLS in common: the client speaks one that is older than \
                 tls.version_min (1.2 is the oldest that can be spoken)"
                    .to_string()
            }
            P::SignatureAlgorithmsExtensionRequired => {
                "no version of TLS in common: the client names no signature algorithm, as clients \
                 of TLS 1.1 and older do, so it would be SHA-1, which is not accepted"
                    .to_string()
            }
            other => format!("the client's TLS cannot be used: {other:?}"),
        },
        Error::AlertReceived(alert) => describe_alert(*alert),
        Error::InvalidMessage(error) => format!("this is not TLS, or broken: {error:?}"),
        other => other.to_string(),
    }
}

/// Describes a failed handshake with a server, for a client, a bridge or a backend.
pub fn describe_server_error(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => {
            format!(
                "the server's certificate: {}",
                describe_certificate(error, "the file of trusted CAs")
            )
        }
        Error::PeerIncompatible(error) => {
            format!(
                "no version, cipher suite or key exchange of TLS 1.2 or 1.3 in common: {error:?}"
            )
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "the server requires a certificate of ours, and none is configured".to_string()
            }
            alert => format!("the server ended the handshake: {alert:?}"),
        },
        other => other.to_string(),
    }
}

/// Describes an I/O error of a connection to a server, with the TLS [`Error`] inside if there is
/// one.
pub fn describe_io_error(error: &std::io::Error) -> String {
    describe_io(error, describe_server_error)
}

/// Describes an I/O error of a connection from a client, with the TLS [`Error`] inside if there is
/// one.
pub fn describe_client_io_error(error: &std::io::Error) -> String {
    describe_io(error, describe_client_error)
}

/// Looks for the TLS [`Error`] in an I/O error, and in the I/O errors that libraries wrap it in.
fn describe_io(error: &std::io::Error, describe: fn(&Error) -> String) -> String {
    let mut error = error;
    while let Some(inner) = error.get_ref() {
        match (inner.downcast_ref::<Error>(), inner.downcast_ref::<std::io::Error>()) {
            (Some(found), _) => return describe(found),
            (None, Some(next)) => error = next,
            (None, None) => break,
        }
    }
    error.to_string()
}

/// Describes an alert from a client: certificate alerts concern the certificate of this server.
fn describe_alert(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::UnknownCA
        | A::BadCertificate
        | A::CertificateUnknown
        | A::CertificateExpired
        | A::UnsupportedCertificate
        | A::DecryptError => format!(
            "received fatal alert: {alert:?}: the client does not accept our certificate (its file \
             of CAs, the name it asks for, or its clock)"
        ),
        alert => format!("received fatal alert: {alert:?}"),
    }
}

fn describe_certificate(error: &CertificateError, trusted: &str) -> String {
    use CertificateError as C;
    match error {
        C::Expired | C::ExpiredContext { .. } => {
            format!("{error}: it has expired, or our clock is wrong")
        }
        C::NotValidYet | C::NotValidYetContext { .. } => {
            format!("{error}: it is not valid yet, or our clock is wrong")
        }
        C::UnknownIssuer => format!(
            "unknown issuer: no CA in {trusted} signed it, or an intermediate certificate is \
             missing in what was shown"
        ),
        C::BadEncoding => "it is not X.509 in DER, or a field is encoded wrongly".to_string(),
        C::BadSignature => format!("its signature is not that of a CA in {trusted}"),
        C::Other(other) => describe_form(&other.to_string(), trusted),
        C::UnhandledCriticalExtension => {
            "it has a critical extension that is not known here".to_string()
        }
        error if is_algorithm(error) => {
            "it is signed by an algorithm that is not accepted (SHA-1, \
             MD5, RSA below 2048 bits, P-521): use RSA of 2048 to 8192 bits, ECDSA P-256 or P-384 \
             with SHA-256 or better, or Ed25519"
                .to_string()
        }
        error => error.to_string(),
    }
}

#[allow(deprecated, reason = "rustls still gives the old one for handshake signatures")]
fn is_algorithm(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::UnsupportedSignatureAlgorithm
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
    )
}

/// Describes webpki errors which rustls passes on only as text.
fn describe_form(text: &str, trusted: &str) -> String {
    if text.contains("CaUsedAsEndEntity") {
        return format!(
            "it is a certificate of a CA (basicConstraints CA:TRUE), as openssl req -x509 makes \
             them: put the certificate itself into {trusted}, or use one of a CA with CA:FALSE"
        );
    }
    if text.contains("UnsupportedCertVersion") {
        return format!(
            "it is of X.509 version 1 and not signed by a CA that stands in {trusted} itself: use \
             one of version 3 (openssl x509 -req with -extfile)"
        );
    }
    let inner = text.strip_prefix("OtherError(").and_then(|text| text.strip_suffix(')'));
    inner.unwrap_or(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_tls_error_is_found_in_the_io_errors_around_it() {
        let error = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::other(error));
        let text = describe_io_error(&wrapped);
        assert!(text.starts_with("the server's certificate: unknown issuer"), "{text}");
        let plain = io::Error::other(io::Error::new(io::ErrorKind::BrokenPipe, "it broke"));
        assert_eq!(describe_io_error(&plain), "it broke");
    }
}
