//! Creates a test CA with valid and invalid certificates, as PEM files. `cargo x certs` writes the
//! same files.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::fs;
use std::path::Path;

/// A certificate to create: file name, common name, alternative names, and whether a server or a
/// client uses it.
struct CertificateSpec {
    file: &'static str,
    common_name: &'static str,
    names: &'static [&'static str],
    usage: ExtendedKeyUsagePurpose,
    serial: u64,
}

const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;
const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;
const EXPIRED: &str = "expired";
const REVOKED_SERIAL: u64 = 5;

const WANTED: &[CertificateSpec] = &[
    CertificateSpec {
        file: "server",
        common_name: "localhost",
        names: &["localhost", "127.0.0.1", "::1"],
        usage: SERVER,
        serial: 1,
    },
    CertificateSpec {
        file: "other",
        common_name: "other.example",
        names: &["other.example", "*.wild.example"],
        usage: SERVER,
        serial: 2,
    },
    CertificateSpec {
        file: "client",
        common_name: "sensor-7",
        names: &["sensor-7.example"],
        usage: CLIENT,
        serial: 3,
    },
    CertificateSpec { file: EXPIRED, common_name: "late", names: &[], usage: CLIENT, serial: 4 },
    CertificateSpec {
        file: "revoked",
        common_name: "gone",
        names: &[],
        usage: CLIENT,
        serial: REVOKED_SERIAL,
    },
];

/// Writes `ca.pem` and `crl.pem`, a `.pem` and a `.key` file for each certificate of the CA, and
/// `stranger.pem` of another CA.
pub(crate) fn make(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let ours = authority(folder, "ca", "Godwit test CA")?;
    let theirs = authority(folder, "stranger-ca", "Another CA")?;
    for wanted in WANTED {
        issue(folder, wanted.file, wanted, &ours)?;
    }
    let stranger = CertificateSpec {
        file: "stranger",
        common_name: "sensor-7",
        names: &[],
        usage: CLIENT,
        serial: 6,
    };
    issue(folder, stranger.file, &stranger, &theirs)?;
    fs::write(folder.join("crl.pem"), revocations(&ours)?)?;
    Ok(())
}

/// Replaces the server certificate by one with a new key, as a renewal does.
#[allow(dead_code, reason = "only tests renew")]
pub(crate) fn renew(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let ours = authority(folder, "ca", "Godwit test CA")?;
    issue(folder, "server", &CertificateSpec { serial: 101, ..first() }, &ours)
}

#[allow(dead_code, reason = "only tests renew")]
fn first() -> CertificateSpec {
    let CertificateSpec { file, common_name, names, serial, .. } = WANTED[0];
    CertificateSpec { file, common_name, names, usage: SERVER, serial }
}

fn authority(
    folder: &Path,
    file: &str,
    name: &str,
) -> Result<Issuer<'static, KeyPair>, Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    fs::write(folder.join(format!("{file}.pem")), params.self_signed(&key)?.pem())?;
    Ok(Issuer::new(params, key))
}

fn issue(
    folder: &Path,
    file: &str,
    wanted: &CertificateSpec,
    by: &Issuer<'static, KeyPair>,
) -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> = wanted.names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, wanted.common_name);
    params.extended_key_usages = vec![wanted.usage.clone()];
    params.serial_number = Some(SerialNumber::from(wanted.serial));
    params.not_before = date_time_ymd(2020, 1, 1);
    let until = if wanted.file == EXPIRED { 2021 } else { 2120 };
    params.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, by)?;
    fs::write(folder.join(format!("{file}.pem")), certificate.pem())?;
    fs::write(folder.join(format!("{file}.key")), key.serialize_pem())?;
    Ok(())
}

fn revocations(by: &Issuer<'static, KeyPair>) -> Result<String, Error> {
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2120, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(REVOKED_SERIAL),
            revocation_time: date_time_ymd(2020, 1, 2),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(by)?.pem()
}
