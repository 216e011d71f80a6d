//! Links of the process: bridges, gateways and sinks. In a build without the feature `bridge`,
//! `absent` has the same interface, and there are no links.

#[cfg(feature = "bridge")]
mod connected;

#[cfg(not(feature = "bridge"))]
pub(crate) use absent::*;
#[cfg(feature = "bridge")]
pub(crate) use connected::*;

#[cfg(not(feature = "bridge"))]
mod absent {
    use auth::auth_resources::AuthResources;
    use broker::BrokerEvent;
    use config::catalog::OptionDescription;
    use std::convert::Infallible;

    #[derive(Clone, Debug, Default)]
    pub(crate) struct ConfiguredLinks {}

    impl ConfiguredLinks {
        pub(crate) fn count(&self) -> usize {
            0
        }

        pub(crate) fn load(&self) -> Result<Vec<Infallible>, Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[derive(Default)]
    pub(crate) struct ProcessLinks {}

    impl ProcessLinks {
        pub(crate) fn event_handler(&self) -> fn(&BrokerEvent) {
            |_| {}
        }

        pub(crate) fn apply(
            &mut self,
            _: Vec<Infallible>,
            _: &AuthResources,
            _: &engine::Server,
            _: u32,
        ) {
        }

        pub(crate) fn stop(&mut self) {}
    }

    pub(crate) fn bridge_options(
        _: impl Iterator<Item = OptionDescription>,
    ) -> Vec<OptionDescription> {
        Vec::new()
    }

    pub(crate) fn check_bridge_topic(_: &str, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }
}
