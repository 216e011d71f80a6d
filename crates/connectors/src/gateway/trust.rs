//! TLS of a gateway: as a client for outgoing connections, and as a server for listeners.

use super::settings::GatewaySettings;
use crate::LinkTlsConfigs;
use crate::bridge::remote_session::load_client_tls as trust_of;
use engine::tls::{ClientCertificateMode, TlsFiles};

/// Loads the TLS configurations of a gateway for outgoing and incoming connections. With
/// `authorities` set, a listener requires client certificates.
pub(super) fn load_tls_configs(own: &GatewaySettings) -> Result<LinkTlsConfigs, String> {
    let dial = own.dials_tls().then(|| trust_of(&own.tls)).transpose()?;
    let tls = &own.tls;
    let authorities = (!tls.authorities.as_os_str().is_empty()).then(|| tls.authorities.clone());
    let asks = authorities.is_some();
    let files = TlsFiles {
        certificates: vec![tls.certificate.clone()],
        keys: vec![tls.key.clone()],
        client: if asks { ClientCertificateMode::Required } else { ClientCertificateMode::Off },
        client_authorities: authorities,
        ..TlsFiles::default()
    };
    let listen = own.serves_tls().then(|| files.load()).transpose();
    let listen = listen.map_err(|whys| whys.join(", "))?;
    Ok(LinkTlsConfigs { dial, listen: listen.map(|credentials| credentials.config()) })
}
