//! Reader of certificates, private keys and revocation lists in PEM, as editors and openssl write
//! it, or in DER. An error names the file, the detected format, and the command which converts the
//! file.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::path::Path;

/// Returns the certificates of a file in file order, at least one. PKCS #7, PKCS #12 and OpenSSL's
/// `TRUSTED CERTIFICATE` are errors which name the command to convert them.
pub fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(file, "file of certificates")?;
    if is_der(&bytes) {
        return match is_pkcs12(&bytes) {
            true => Err(pkcs12_error(file)),
            false => Ok(vec![CertificateDer::from(bytes)]),
        };
    }
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| pem_error(file, &error))?;
    if !found.is_empty() {
        return Ok(found);
    }
    let name = file.display();
    Err(if contains(&bytes, "BEGIN TRUSTED CERTIFICATE") {
        format!(
            "{name}: this is OpenSSL's form TRUSTED CERTIFICATE, use openssl x509 -in {name} \
             -out FILE"
        )
    } else if contains(&bytes, "BEGIN PKCS7") {
        format!("{name}: this is PKCS #7, use openssl pkcs7 -print_certs -in {name} -out FILE")
    } else {
        format!(
            "{name}: it has no certificate, use PEM with the own certificate first and \
             then those that lead to its CA"
        )
    })
}

/// Returns the first private key of a file: PKCS #8, PKCS #1 or SEC 1. An encrypted key is an
/// error.
pub fn read_private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read(file, "private key")?;
    let name = file.display();
    if is_der(&bytes) {
        let wrong = || match is_pkcs12(&bytes) {
            true => pkcs12_error(file),
            false => {
                format!("{name}: this is DER and not a private key, use PKCS #8, PKCS #1 or SEC 1")
            }
        };
        return PrivateKeyDer::try_from(bytes.clone()).map_err(|_| wrong());
    }
    let is_locked = contains(&bytes, "BEGIN ENCRYPTED PRIVATE KEY")
        || contains(&bytes, "Proc-Type: 4,ENCRYPTED");
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        _ if is_locked => format!(
            "{name}: the key is locked with a password, use one without: openssl pkey -in {name} \
             -out FILE"
        ),
        pem::Error::NoItemsFound => {
            format!("{name}: it has no private key, use PEM with PKCS #8, PKCS #1 or SEC 1")
        }
        error => pem_error(file, &error),
    })
}

/// Returns the revocation lists of a file, at least one.
pub fn read_revocation_lists(
    file: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = read(file, "revocation list")?;
    if is_der(&bytes) {
        return Ok(vec![CertificateRevocationListDer::from(bytes)]);
    }
    let found = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| pem_error(file, &error))?;
    match found.is_empty() {
        true => Err(format!(
            "{}: it has no revocation list, use openssl crl -in FILE -out LIST",
            file.display()
        )),
        false => Ok(found),
    }
}

/// Reads a file without a byte order mark; UTF-16 is an error. `what` is the common name of the
/// file.
fn read(file: &Path, what: &str) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(file).map_err(|error| {
        let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        format!("{}: the {what} cannot be read: {error}", whole.display())
    })?;
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(format!(
            "{}: this is text in UTF-16, save the file as ASCII or UTF-8",
            file.display()
        ));
    }
    // A byte order mark before the first line would hide the line from the PEM parser.
    Ok(match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => rest.to_vec(),
        None => bytes,
    })
}

/// Whether the file is DER: a SEQUENCE with a long length, or a short one which fills the file.
fn is_der(bytes: &[u8]) -> bool {
    matches!(bytes, [0x30, 0x81 | 0x82, ..])
        || matches!(bytes, [0x30, len, ..] if usize::from(*len) + 2 == bytes.len())
}

/// Whether the file is PKCS #12: a SEQUENCE which begins with version 3 [RFC 7292, 4].
fn is_pkcs12(bytes: &[u8]) -> bool {
    matches!(bytes, [0x30, 0x82, _, _, 2, 1, 3, ..])
}

fn pkcs12_error(file: &Path) -> String {
    let name = file.display();
    format!("{name}: this is PKCS #12, use openssl pkcs12 -in {name} -nodes -out FILE")
}

fn pem_error(file: &Path, error: &pem::Error) -> String {
    format!("{}: this is not PEM: {error}, use openssl x509 or openssl pkey", file.display())
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
