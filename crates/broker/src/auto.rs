//! Subscriptions that a client has without asking for them: made when it connects, as if it had
//! sent a SUBSCRIBE, permissions included.

use crate::input::SessionId;
use crate::limits::LINK_IDS;
use crate::note::Note;
use crate::outbox::Outbox;
use crate::placeholders::Template;
use crate::rewrite::is_special;
use crate::shard::Shard;
use crate::subscribe::Granted;
use mqtt::{Share, SubscribeOptions};

/// `[[auto_subscribe]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auto {
    filter: Template,
    options: SubscribeOptions,
}

impl Auto {
    /// The error says what is wrong and what would be right.
    pub fn parse(filter: &str, options: SubscribeOptions) -> Result<Auto, String> {
        let filter = Template::parse(filter, 0).map_err(|why| format!("topic: {why}"))?;
        let example = filter.example();
        let share = Share::parse(&example).map_err(|_| NO_FILTER.to_string())?;
        let inner = share.map_or(&*example, |share| share.filter);
        if mqtt::topic::check_filter(inner).is_err() || is_special(inner) {
            return Err(NO_FILTER.to_string());
        }
        // [MQTT-3.8.3-4]
        if share.is_some() && options.no_local {
            return Err("no_local is not for shared subscriptions".to_string());
        }
        Ok(Auto { filter, options })
    }
}

const NO_FILTER: &str = "topic is no topic filter, use one like \"clients/${clientid}/#\"";

impl Shard {
    /// A client is in and has heard so.
    pub(crate) fn subscribe_for(&mut self, id: SessionId, out: &mut Outbox) {
        if self.options.autos.is_empty() {
            return;
        }
        // Links say themselves what they want.
        if self.sessions.get(id).client_id.starts_with(LINK_IDS) {
            return;
        }
        let autos = self.options.autos.clone();
        for Auto { filter, options } in autos.iter() {
            let Some(filter) = filter.fill(&self.whom(id), |_| "") else { continue };
            let options = self.kept_or(id, &filter, *options);
            let granted = self.subscribe_one(id, (&filter, true), options.0, options.1, out);
            // What is wrong with a name is its client's, and nobody waits for an answer.
            let Ok(granted) = granted else { continue };
            let code = match granted {
                Ok(Granted::Own { known, qos, is_new }) => {
                    self.feed_from(id, known, (qos, is_new), options);
                    qos as u8
                }
                Ok(Granted::Shared { qos, .. }) => qos as u8,
                Ok(Granted::Asked { .. }) => continue,
                Err(refusal) => refusal.reason().code(),
            };
            let client_id = self.sessions.get(id).client_id.clone();
            out.notes.push(Note::Subscribed { client_id, filter: filter.into(), code });
        }
        self.sessions.feed(id);
    }

    /// A session that comes back keeps what it has subscribed: the options, with the identifier.
    fn kept_or(
        &self,
        id: SessionId,
        filter: &str,
        options: SubscribeOptions,
    ) -> (SubscribeOptions, u32) {
        let session = self.sessions.get(id);
        let named = self.named_filter(id, filter).unwrap_or_default();
        let known = session.mounted_filter(&named).unwrap_or_default();
        let handling = options.retain_handling;
        let shares = session.rare.as_ref().map_or(&[][..], |rare| &rare.shares);
        if let Some(share) = shares.iter().find(|share| *share.group == *known) {
            return (share.options, share.id);
        }
        let own = self.topics.find(&known).and_then(|filter| {
            let at = session.subscription(filter)?;
            let place = session.subscriptions[at as usize].place;
            Some(&self.topics.filter(filter).subscribers[place as usize])
        });
        own.map_or((options, 0), |own| {
            (SubscribeOptions { retain_handling: handling, ..own.options.options() }, own.id)
        })
    }
}
