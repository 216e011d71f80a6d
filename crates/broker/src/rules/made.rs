//! A message that is made of a rule's row.

use super::{Made, Publishing};
use crate::message::{Draft, NO_EXPIRY};
use crate::options::Options;
use mqtt::{Properties, PropertiesBuf, Property};
use rules::{Budget, Failed, Map};

/// Why a row is not published.
pub(super) enum Unmade {
    Because(&'static str),
    Failed(Failed),
}

impl From<Failed> for Unmade {
    fn from(failed: Failed) -> Unmade {
        Unmade::Failed(failed)
    }
}

impl Publishing {
    pub(super) fn make(
        &self,
        row: &Map<'_>,
        draft: &Draft<'_>,
        (by, depth): (u32, u8),
        options: &Options,
        budget: &mut Budget,
    ) -> Result<Made, Unmade> {
        budget.take(size_of::<Made>())?;
        let topic = self.topic(row, options, budget)?;
        let mut payload = Vec::new();
        self.payload.fill(row, budget, &mut payload)?;
        let keeps = self.keeps_properties;
        let expiry_s = if keeps { draft.expiry_s } else { NO_EXPIRY };
        Ok(Made {
            topic,
            properties: self.properties(row, draft, &payload, budget)?,
            payload,
            qos: self.qos.unwrap_or(draft.qos),
            retain: self.retain.unwrap_or(draft.retain),
            expiry_s: expiry_s.min(options.message_expiry_s_max),
            by,
            depth,
        })
    }

    /// One that everyone could publish to.
    fn topic(
        &self,
        row: &Map<'_>,
        options: &Options,
        budget: &mut Budget,
    ) -> Result<String, Unmade> {
        let mut topic = Vec::new();
        let has_all = self.topic.fill(row, budget, &mut topic)?;
        let topic = String::from_utf8(topic).ok().filter(|topic| {
            let is_topic = mqtt::topic::check_topic(topic).is_ok();
            has_all && is_topic && options.permit_topic(topic).is_ok()
        });
        topic.ok_or(Unmade::Because("topic"))
    }

    fn properties(
        &self,
        row: &Map<'_>,
        draft: &Draft<'_>,
        payload: &[u8],
        budget: &mut Budget,
    ) -> Result<Vec<u8>, Unmade> {
        let mut properties = PropertiesBuf::default();
        if self.keeps_properties {
            budget.take(draft.properties.len())?;
            for property in Properties::trusted(draft.properties).iter() {
                let is_text = property == Property::PayloadFormatIndicator(1);
                // [MQTT-3.3.2-4]: it was said of another payload.
                if !is_text || std::str::from_utf8(payload).is_ok() {
                    properties.push(property);
                }
            }
        }
        for (name, template) in &self.user_properties {
            let mut value = Vec::new();
            template.fill(row, budget, &mut value)?;
            // [MQTT-1.5.4-1] [MQTT-1.5.4-2]
            let value = String::from_utf8(value)
                .ok()
                .filter(|value| value.len() <= usize::from(u16::MAX) && !value.contains('\0'));
            let value = value.ok_or(Unmade::Because("property"))?;
            properties.push(Property::UserProperty(name, &value));
        }
        Ok(properties.as_properties().as_bytes().to_vec())
    }
}
