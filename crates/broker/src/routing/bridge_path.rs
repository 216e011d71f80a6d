//! Marks messages from MQTT 3.1.1 bridges of other brokers. The broker's own bridges read the mark;
//! without it a message could circulate in a ring of brokers for ever.

use crate::input::{ConnId, SessionId};
use crate::shard::Shard;
use mqtt::Property;

/// User Property with the bridges that a message has passed: `NAME@ID` each, separated by spaces.
pub const BRIDGE_PATH: &str = "godwit-path";
/// Bound of a hop's name: its last character begins within this number of bytes.
const NAME_BYTES_MAX: usize = 64;

/// Returns a name in the form for a path: cut to the bound, with spaces, which separate hops,
/// replaced.
pub fn hop_name(name: &str) -> String {
    let begins = |(at, _): &(usize, char)| *at < NAME_BYTES_MAX;
    let name: String = name.char_indices().take_while(begins).map(|(_, c)| c).collect();
    name.replace(' ', "_")
}

impl Shard {
    /// Writes a path to `ScratchBuffers::properties` if a 3.1.1 bridge publishes, and returns
    /// whether it did. A message of 3.1.1 has no properties of its own.
    #[inline(never)]
    pub(crate) fn write_bridge_path(&mut self, conn: ConnId, id: SessionId) -> bool {
        let is_bridge = self.connections.conn(conn).is_some_and(|known| known.is_bridge);
        if is_bridge {
            let path = format!("{}@0", hop_name(&self.sessions.get(id).client_id));
            let properties = &mut self.routing.scratch.properties;
            properties.clear();
            Property::UserProperty(BRIDGE_PATH, &path).encode(properties);
        }
        is_bridge
    }
}
