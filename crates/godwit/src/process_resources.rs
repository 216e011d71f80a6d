//! State of the program that outlives a reload of its options.

use auth::auth_resources::AuthResources;
#[cfg(feature = "sink")]
use connectors::events::EventHub;
#[cfg(feature = "sink")]
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct ProcessResources {
    pub(crate) access: AuthResources,
    /// Distributes events about clients and sessions to sinks.
    #[cfg(feature = "sink")]
    pub(crate) hub: Arc<EventHub>,
}

#[cfg(feature = "bridge")]
impl ProcessResources {
    /// Returns the resources that links share with the backends of authentication, and with each
    /// other.
    pub(crate) fn links(&self) -> connectors::LinkResources {
        connectors::LinkResources {
            runtime: self.access.runtime.clone(),
            #[cfg(feature = "sink")]
            hub: self.hub.clone(),
        }
    }
}
