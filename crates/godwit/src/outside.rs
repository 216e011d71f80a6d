//! What the program keeps of the world outside when its options are read again: the thread that
//! asks others, and keys that somebody published.

#[cfg(feature = "http")]
use crate::acl::warden::Warden;
#[cfg(feature = "http")]
use crate::identity::jwks::Jwks;
#[cfg(feature = "sink")]
use crate::links::events::Hub;
#[cfg(feature = "remote")]
use crate::runtime::Runtime;
#[cfg(feature = "remote")]
use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct Outside {
    /// Where sinks hear of clients and sessions.
    #[cfg(feature = "sink")]
    pub(crate) hub: Arc<Hub>,
    #[cfg(feature = "remote")]
    pub(crate) runtime: Arc<Runtime>,
    /// Whoever is asked what clients may do.
    #[cfg(feature = "http")]
    pub(crate) permits: Arc<Warden>,
    #[cfg(feature = "http")]
    keys: Mutex<Vec<Arc<Jwks>>>,
}

impl Outside {
    /// How shards ask what clients may do.
    pub(crate) fn warden(&self) -> Option<engine::Warden> {
        #[cfg(not(feature = "http"))]
        return None;
        #[cfg(feature = "http")]
        {
            let (permits, runtime) = (self.permits.clone(), self.runtime.clone());
            Some(Arc::new(move |engine::Request { question, reply }| {
                permits.hear(&runtime, question, move |answer| reply.give(answer));
            }))
        }
    }
}

#[cfg(feature = "http")]
impl Outside {
    /// Where keys of tokens came from until now.
    pub(crate) fn keys(&self) -> Vec<Arc<Jwks>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn keep_keys(&self, keys: Vec<Arc<Jwks>>) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}
