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
#[cfg(feature = "tables")]
mod tables;

use crate::settings::SecuritySettings;
use broker::options::BrokerOptions;
use std::marker::PhantomData;

/// Settings of a program that uses the option rows.
pub trait AuthOptionTarget {
    fn security(&mut self) -> &mut SecuritySettings;
    fn broker(&mut self) -> &mut BrokerOptions;
}

/// Tables of [`OptionRow`](config::row::OptionRow)s for a program whose settings are `S`.
pub struct AuthOptionTables<S>(PhantomData<S>);
