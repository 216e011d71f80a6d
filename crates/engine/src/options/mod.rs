//! Rows of the options of the broker, its store and what stands behind a listener.

mod connections;
mod limits;
mod listeners;
mod messages;
mod sessions;
mod store;

use crate::proxy::ProxyVersions;
use crate::quic::QuicOptions;
use crate::tls::TlsFiles;
use ::store::StoreOptions;
use broker::options::BrokerOptions;
use std::marker::PhantomData;
use std::path::PathBuf;

pub use self::store::{DURABILITIES, durability};

/// Settings of the program that the rows are for.
pub trait EngineOptionTarget {
    fn broker(&mut self) -> &mut BrokerOptions;

    fn store(&mut self) -> &mut StoreOptions;

    fn transport(&mut self) -> &mut ListenerTransportSettings;
}

/// Tables of rows for a program whose settings are `S`.
pub struct EngineOptionTables<S>(PhantomData<S>);

/// Layers of a listener's connections below MQTT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTransportSettings {
    pub proxy: Option<ProxyVersions>,
    /// Keys of clients, in the place of certificates.
    pub psk_file: Option<PathBuf>,
    pub quic: QuicOptions,
    pub tls: TlsFiles,
    pub unix_mode: u32,
    /// Origins of pages that may connect by WebSocket; `*` allows every page.
    pub ws_origins: Vec<String>,
    /// Header in which a proxy names its client, if one does.
    pub ws_address_header: Option<String>,
}
