//! Rows of the options of the store and of the layers below MQTT of a listener's connections.

mod listeners;
mod store;

use crate::proxy::ProxyVersions;
use crate::quic::QuicOptions;
use crate::tls::TlsFiles;
use ::store::StoreOptions;
use std::marker::PhantomData;
use std::path::PathBuf;

/// Settings of a program, as the setters of the rows in [`EngineOptionTables`] reach their fields.
pub trait EngineOptionTarget {
    fn store(&mut self) -> &mut StoreOptions;

    fn transport(&mut self) -> &mut ListenerTransportSettings;
}

/// Tables of option rows for a program with settings of type `S`.
pub struct EngineOptionTables<S>(PhantomData<S>);

/// Layers of a listener's connections below MQTT, as the option files name their parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTransportSettings {
    pub proxy: Option<ProxyVersions>,
    /// Keys of TLS clients (`tls.psk_file`), in place of certificates.
    pub psk_file: Option<PathBuf>,
    pub quic: QuicOptions,
    pub tls: TlsFiles,
    pub unix_mode: u32,
    /// Origins of pages which may connect by WebSocket (`ws.origins`); `*` allows every page.
    pub ws_origins: Vec<String>,
    /// Header in which a proxy names its client (`ws.address_header`).
    pub ws_address_header: Option<String>,
}
