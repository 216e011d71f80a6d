//! Rows of the options about identity and permission.

#[cfg(feature = "remote")]
mod backends;
mod clients;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[cfg(feature = "tables")]
mod tables;

use crate::settings::SecuritySettings;
use broker::BrokerOptions;
use config::row::OptionRow;
use std::marker::PhantomData;

/// Settings of a program that uses the option rows.
pub trait AuthOptionTarget {
    fn security(&mut self) -> &mut SecuritySettings;
    fn broker(&mut self) -> &mut BrokerOptions;
}

/// Tables of [`OptionRow`]s for a program whose settings are `S`.
pub struct AuthOptionTables<S>(PhantomData<S>);

impl<S: AuthOptionTarget + 'static> AuthOptionTables<S> {
    /// Every table of this build, in the order of the documents and the sample file.
    pub const ALL: &'static [&'static [OptionRow<S>]] = &[
        Self::ACL,
        #[cfg(feature = "http")]
        Self::HTTP_ACL,
        Self::CLIENTS,
        #[cfg(feature = "remote")]
        Self::BACKENDS,
        #[cfg(feature = "http")]
        Self::HTTP,
        #[cfg(feature = "tables")]
        Self::TABLES,
        #[cfg(feature = "postgres")]
        Self::POSTGRES,
        #[cfg(feature = "mysql")]
        Self::MYSQL,
        #[cfg(feature = "redis")]
        Self::REDIS,
        Self::BANS,
    ];
}
