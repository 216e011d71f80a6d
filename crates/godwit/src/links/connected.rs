//! Links of a build that has them: from their settings to running tasks.

use crate::options::settings::ProgramSettings;
use auth::auth_resources::AuthResources;
use broker::BrokerEvent;
use config::catalog::OptionDescription;
use connectors::bridge::settings::ROWS;
use connectors::events::EventHub;
use connectors::metrics::LinkMetrics;
use connectors::report::{LinkState, drop_counts, metric_rows};
use connectors::topic_map::TopicMap;
use connectors::{
    LinkDefinition, LinkKind, LinkResources, LinkSettings, LinkSupervisor, local_session,
};
use std::fmt::Write as _;
use std::sync::Arc;

/// Settings of every link of the options.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfiguredLinks(Vec<Arc<dyn LinkSettings>>);

impl ConfiguredLinks {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns every link with the contents of its files.
    pub(crate) fn load(&self) -> Result<Vec<LinkDefinition>, Vec<String>> {
        let (mut all, mut wrongs) = (Vec::new(), Vec::new());
        for settings in &self.0 {
            match LinkDefinition::load(settings.clone()) {
                Ok(link) => all.push(link),
                Err(why) => wrongs.push(why),
            }
        }
        if wrongs.is_empty() { Ok(all) } else { Err(wrongs) }
    }
}

impl ProgramSettings {
    /// Adds links, and a client group for the session of each.
    pub(crate) fn add_links<S: LinkSettings>(&mut self, links: Vec<S>) {
        for link in links {
            let group = local_session::client_group(&link.link_id(), link.limits());
            self.broker.client_groups.push(group);
            self.links.0.push(Arc::new(link));
        }
    }
}

/// The links of the running process.
#[derive(Default)]
pub(crate) struct ProcessLinks {
    /// Distributes events about clients and sessions to sinks.
    hub: Arc<EventHub>,
    /// Started with the first link.
    supervisor: Option<LinkSupervisor>,
}

impl ProcessLinks {
    /// Returns the handler of events for sinks.
    pub(crate) fn event_handler(&self) -> impl Fn(&BrokerEvent) + Send + Sync + use<> {
        let hub = self.hub.clone();
        move |event| hub.on_event(event)
    }

    /// Makes the running links those of `wanted`. Links share the runtime with the backends of
    /// authentication.
    pub(crate) fn apply(
        &mut self,
        wanted: Vec<LinkDefinition>,
        access: &AuthResources,
        server: &engine::Server,
        interval_s: u32,
    ) {
        if let Some(links) = &mut self.supervisor {
            return links.apply(wanted, interval_s);
        }
        // Stored sessions of removed links may have been restored.
        let has_stored = server.report().is_some_and(|(_, restored)| restored.sessions > 0);
        if !wanted.is_empty() || has_stored {
            let resources =
                LinkResources { runtime: access.runtime.clone(), hub: self.hub.clone() };
            self.supervisor = Some(LinkSupervisor::start(resources, server, wanted, interval_s));
        }
    }

    pub(crate) fn stop(&mut self) {
        if let Some(links) = &mut self.supervisor {
            links.stop();
        }
    }
}

/// Returns the options of a `[[bridge]]`, for the importers. `limits` are those of the broker's
/// options that a `[[bridge]]` may have for itself.
pub(crate) fn bridge_options(
    limits: impl Iterator<Item = OptionDescription>,
) -> Vec<OptionDescription> {
    ROWS.iter().map(|row| OptionDescription::of_row(row, false)).chain(limits).collect()
}

pub(crate) fn check_bridge_topic(filter: &str, template: &str, bridge: &str) -> Result<(), String> {
    TopicMap::parse(filter, template, ("bridge", bridge)).map(|_| ())
}

/// Adds the topics of a kind of links to the reference.
pub(crate) fn write_topics(kind: LinkKind, text: &mut String) {
    let word = kind.word();
    let _ = write!(
        text,
        "\nBelow `{word}/{{name}}/` for each {word}, retained as well:\n\n\
         | topic | value |\n|---|---|\n",
    );
    for row in metric_rows(kind) {
        let _ = writeln!(text, "| `{}` | {} |", row.topic, row.about);
    }
    let losses = LinkMetrics::for_kind(kind).drop_counts().collect();
    let state = LinkState { losses, ..LinkState::default() };
    let reasons: Vec<_> = drop_counts(&state).map(|(name, _)| name).collect();
    let reasons = reasons.join("`, `");
    let _ = writeln!(text, "| `dropped/{{reason}}` | messages dropped: `{reasons}` |");
}
