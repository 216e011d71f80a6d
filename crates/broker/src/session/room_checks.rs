//! Whether there is room for a client or a PUBLISH: memory, store and capabilities.

use crate::ids::SessionId;
use crate::memory::SMALL_BYTES_MAX;
use crate::message::namespace;
use crate::refusal::{CloseReason, Refusal};
use crate::session::session_table::SessionTable;
use mqtt::{Connect, Publish};

impl SessionTable {
    /// Checks a PUBLISH against the capabilities announced in CONNACK [MQTT-3.2.2-11]
    /// [MQTT-3.2.2-14].
    #[inline]
    pub(crate) fn check_capabilities(
        &self,
        id: SessionId,
        packet: &Publish<'_>,
    ) -> Result<(), CloseReason> {
        // Without listeners that have options of their own, the session need not be read.
        let qos_max = match self.context.options.listeners.is_empty() {
            true => self.context.options.qos_max,
            false => self.context.options.options_of_session(self.get(id)).qos_max,
        };
        if packet.qos as u8 > qos_max {
            return Err(Refusal::QoSUnsupported.into());
        }
        if packet.retain && !self.context.options.retain_available {
            return Err(Refusal::RetainUnsupported.into());
        }
        Ok(())
    }

    /// Checks for room for this client. `Refusal::QuotaExceeded` under memory pressure,
    /// `Refusal::StoreFull` for a new persistent session while the store is full.
    pub(crate) fn check_session_room(
        &self,
        packet: &Connect<'_>,
        expiry_s: u32,
        client_id: &str,
    ) -> Result<(), Refusal> {
        if !self.has_memory_for_connect(packet, client_id) {
            return Err(Refusal::QuotaExceeded);
        }
        let is_new = self.find(client_id).is_none();
        match self.durability.store_is_full && expiry_s > 0 && is_new {
            true => Err(Refusal::StoreFull),
            false => Ok(()),
        }
    }

    /// Whether the memory allows this client in. Under pressure only a client with an existing
    /// session and at most `SMALL_BYTES_MAX` bytes of will may enter: the session needs no more
    /// memory, and the client can drain the queue.
    fn has_memory_for_connect(&self, packet: &Connect<'_>, client_id: &str) -> bool {
        let will = packet.will.as_ref();
        let small = will.is_none_or(|will| {
            will.topic.len() + will.payload.len() + will.properties.as_bytes().len()
                <= SMALL_BYTES_MAX
        });
        !self.is_pressure_high() || (small && self.find(client_id).is_some())
    }

    /// Returns a new random client id, unique in the namespace and owned by this shard.
    pub(crate) fn assign_client_id(&mut self, namespace: &str) -> Box<str> {
        loop {
            let client_id = format!(
                "godwit-{:016x}{:08x}",
                self.context.next_random(),
                self.context.next_random() as u32
            );
            let key = namespace::namespaced_id(namespace, &client_id);
            if self.context.owner_of(&key) == self.context.id && self.find(&key).is_none() {
                return client_id.into();
            }
        }
    }
}
