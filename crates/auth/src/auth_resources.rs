//! State of access control that outlives a reload of the options: the runtime for requests to
//! servers, the authorizer, and keys published by servers.

#[cfg(feature = "http")]
use crate::acl::authorizer::Authorizer;
#[cfg(feature = "http")]
use crate::jwks::RemoteJwks;
use crate::security_state::SecurityState;
#[cfg(feature = "remote")]
use net::control_runtime::ControlRuntime;
use std::sync::{Arc, Mutex, PoisonError};

/// Resources that loaded access options share with the options loaded before.
#[derive(Default)]
pub struct AuthResources {
    #[cfg(feature = "remote")]
    pub runtime: Arc<ControlRuntime>,
    /// Asks servers for permissions of clients.
    #[cfg(feature = "http")]
    authorizer: Arc<Authorizer>,
    #[cfg(feature = "http")]
    keys: Mutex<Vec<Arc<RemoteJwks>>>,
}

impl AuthResources {
    /// Returns the handler of the shards' authorization requests; `None` without servers.
    pub fn authz_handler(&self) -> Option<engine::AuthzHandler> {
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

    /// Sends further authorization requests to the servers of these options. `indexes` maps each
    /// socket to its listener in the settings.
    pub fn replace_authz_servers(&self, security: &SecurityState, indexes: &[usize]) {
        #[cfg(feature = "http")]
        self.authorizer.replace_servers(security.authz_pools(indexes));
    }
}

#[cfg(feature = "http")]
impl AuthResources {
    /// Returns the key servers in use, so that a reload keeps their keys.
    pub(crate) fn remote_key_sets(&self) -> Vec<Arc<RemoteJwks>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_remote_key_sets(&self, keys: Vec<Arc<RemoteJwks>>) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}
