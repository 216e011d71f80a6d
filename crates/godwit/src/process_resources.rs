//! What the program keeps of the world outside when its options are read again: the thread that
//! asks others, and keys that somebody published.

#[cfg(feature = "http")]
use auth::acl::authorizer::Authorizer;
#[cfg(feature = "http")]
use auth::jwks::RemoteJwks;
#[cfg(feature = "sink")]
use connectors::events::EventHub;
#[cfg(feature = "remote")]
use net::control_runtime::ControlRuntime;
#[cfg(feature = "remote")]
use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(crate) struct ProcessResources {
    /// Distributes events about clients and sessions to sinks.
    #[cfg(feature = "sink")]
    pub(crate) hub: Arc<EventHub>,
    #[cfg(feature = "remote")]
    pub(crate) runtime: Arc<ControlRuntime>,
    /// Asks servers for permissions of clients.
    #[cfg(feature = "http")]
    pub(crate) authorizer: Arc<Authorizer>,
    #[cfg(feature = "http")]
    keys: Mutex<Vec<Arc<RemoteJwks>>>,
}

impl ProcessResources {
    /// Returns what links share with others.
    #[cfg(feature = "bridge")]
    pub(crate) fn links(&self) -> connectors::LinkResources {
        connectors::LinkResources {
            runtime: self.runtime.clone(),
            #[cfg(feature = "sink")]
            hub: self.hub.clone(),
        }
    }

    /// Returns the handler of the shards' authorization requests.
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
    /// Returns the key servers in use, so that a reload keeps their keys.
    pub(crate) fn remote_key_sets(&self) -> Vec<Arc<RemoteJwks>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_remote_key_sets(&self, keys: Vec<Arc<RemoteJwks>>) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}
