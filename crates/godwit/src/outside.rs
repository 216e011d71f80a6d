//! What the program keeps of the world outside when its options are read again: the thread that
//! asks others, and keys that somebody published.

#[cfg(feature = "http")]
use crate::identity::jwks::Jwks;
#[cfg(feature = "remote")]
use crate::runtime::Runtime;
#[cfg(feature = "remote")]
use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Outside {
    #[cfg(feature = "remote")]
    pub(crate) runtime: Arc<Runtime>,
    #[cfg(feature = "http")]
    keys: Mutex<Option<Arc<Jwks>>>,
}

#[cfg(feature = "http")]
impl Outside {
    /// Where keys of tokens came from until now.
    pub(crate) fn keys(&self) -> Option<Arc<Jwks>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn keep_keys(&self, keys: Option<Arc<Jwks>>) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}
