//! What the program keeps of the world outside when its options are read again: the thread that
//! asks others, and keys that somebody published.

#[cfg(feature = "http")]
use crate::acl::authorizer::Authorizer;
#[cfg(feature = "remote")]
use crate::control_runtime::ControlRuntime;
#[cfg(feature = "http")]
use crate::identity::jwks::RemoteJwks;
#[cfg(feature = "sink")]
use crate::links::events::EventHub;
#[cfg(feature = "remote")]
use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct ProcessResources {
    /// Where sinks hear of clients and sessions.
    #[cfg(feature = "sink")]
    pub(crate) hub: Arc<EventHub>,
    #[cfg(feature = "remote")]
    pub(crate) runtime: Arc<ControlRuntime>,
    /// Whoever is asked what clients may do.
    #[cfg(feature = "http")]
    pub(crate) authorizer: Arc<Authorizer>,
    #[cfg(feature = "http")]
    keys: Mutex<Vec<Arc<RemoteJwks>>>,
}

impl ProcessResources {
    /// How shards ask what clients may do.
    pub(crate) fn authz_handler(&self) -> Option<engine::AuthzHandler> {
        #[cfg(not(feature = "http"))]
        return None;
        #[cfg(feature = "http")]
        {
            let (permits, runtime) = (self.authorizer.clone(), self.runtime.clone());
            Some(Arc::new(move |engine::AuthzTask { request: question, responder: reply }| {
                permits.authorize(&runtime, question, move |answer| reply.respond(answer));
            }))
        }
    }
}

#[cfg(feature = "http")]
impl ProcessResources {
    /// Where keys of tokens came from until now.
    pub(crate) fn remote_key_sets(&self) -> Vec<Arc<RemoteJwks>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_remote_key_sets(&self, keys: Vec<Arc<RemoteJwks>>) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}
