//! Rows of the broker's options: key, kind, default, texts, and the field of [`BrokerOptions`] that
//! the option sets. The program, the simulator and the tests read the same rows.

mod connections;
mod limits;
mod messages;
mod process;
mod sessions;

use broker::BrokerOptions;
use config::row::OptionRow;
use std::marker::PhantomData;

/// Settings of a program, with the broker's options inside.
pub trait BrokerOptionTarget {
    fn broker(&mut self) -> &mut BrokerOptions;
}

impl BrokerOptionTarget for BrokerOptions {
    fn broker(&mut self) -> &mut BrokerOptions {
        self
    }
}

/// Tables of rows for a program whose settings are `S`.
pub struct BrokerOptionTables<S>(PhantomData<S>);

impl<S: BrokerOptionTarget + 'static> BrokerOptionTables<S> {
    /// Returns the rows of all tables, in no particular order.
    pub fn rows() -> impl Iterator<Item = &'static OptionRow<S>> {
        let tables = [
            Self::SINGLE,
            Self::FLAPPING,
            Self::LIMITS,
            Self::CONNECTIONS,
            Self::SESSIONS,
            Self::MESSAGES,
            Self::STORE,
        ];
        tables.into_iter().flatten()
    }

    /// Rows outside of the other tables: documents list each of them next to rows of other crates.
    const SINGLE: &'static [OptionRow<S>] =
        &[Self::NAMESPACE, Self::DURABILITY, Self::MEMORY_BYTES_MAX, Self::SYS_INTERVAL_S];
}
