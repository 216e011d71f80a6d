//! Connections to another server: TCP, with TLS if configured.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use transport::tls_errors::describe_io_error;

/// A byte stream in both directions, over any transport.
pub trait AsyncStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncStream for T {}

#[derive(Clone)]
pub struct ServerEndpoint {
    pub host: String,
    pub port: u16,
    /// TLS configuration; `None` is plain TCP.
    pub tls: Option<Arc<ClientConfig>>,
}

impl ServerEndpoint {
    pub async fn connect_tcp(&self) -> Result<TcpStream, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| format!("{self}: {error}"))?;
        // A request is one write and its answer another, so Nagle's algorithm would only delay.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Starts TLS on a connected stream, for protocols that begin without TLS.
    pub async fn start_tls(
        &self,
        stream: TcpStream,
        tls: Arc<ClientConfig>,
    ) -> Result<Box<dyn AsyncStream>, String> {
        self.start_tls_as(&self.host, stream, tls).await
    }

    /// Starts TLS with `name` in place of the host's name in the certificate.
    pub async fn start_tls_as(
        &self,
        name: &str,
        stream: impl AsyncStream + 'static,
        tls: Arc<ClientConfig>,
    ) -> Result<Box<dyn AsyncStream>, String> {
        let name = ServerName::try_from(name.to_string());
        let name = name.map_err(|_| format!("{self}: no certificate has such a name"))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| format!("{self}: {}", describe_io_error(&error)))?))
    }

    pub async fn connect(&self) -> Result<Box<dyn AsyncStream>, String> {
        let stream = self.connect_tcp().await?;
        match &self.tls {
            Some(tls) => self.start_tls(stream, tls.clone()).await,
            None => Ok(Box::new(stream)),
        }
    }
}

impl std::fmt::Display for ServerEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ServerEndpoint { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}
