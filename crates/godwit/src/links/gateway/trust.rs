//! What a gateway shows and trusts by TLS: as a client where it connects, and as a server where it
//! listens.

use super::settings::GatewaySettings;
use crate::links::bridge::far::trust as trust_of;
use engine::tls::{ClientCertificate, Files};
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// What a gateway shows and trusts where it connects, and where it listens.
pub(crate) fn trust(own: &GatewaySettings) -> Result<Shown, String> {
    let dials = own.dials_tls().then(|| trust_of(&own.tls)).transpose()?;
    let tls = &own.tls;
    let authorities = (!tls.authorities.as_os_str().is_empty()).then(|| tls.authorities.clone());
    let asks = authorities.is_some();
    let files = Files {
        certificates: vec![tls.certificate.clone()],
        keys: vec![tls.key.clone()],
        client: if asks { ClientCertificate::Required } else { ClientCertificate::Off },
        client_authorities: authorities,
        ..Files::default()
    };
    let serves = own.serves_tls().then(|| files.load()).transpose();
    let serves = serves.map_err(|whys| whys.join(", "))?;
    Ok((dials, serves.map(|credentials| credentials.config())))
}

type Shown = (Option<Arc<ClientConfig>>, Option<Arc<ServerConfig>>);
