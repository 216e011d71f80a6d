//! Certificates for servers of tests.

#[path = "../../../godwit/tests/process/certs.rs"]
mod certs;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Creates a folder with a test CA, a second CA, and a certificate for localhost.
pub(super) fn certificates(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("godwit-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    certs::make(&folder).unwrap();
    folder
}

pub(super) fn served(folder: &Path) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(chain.map(Result::unwrap).collect(), key).unwrap())
}
