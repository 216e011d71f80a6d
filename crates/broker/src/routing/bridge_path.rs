//! What other brokers' bridges of 3.1.1 bring here says so: this broker's own bridges have to know
//! it, or a message would go round a ring of them for ever.

use crate::input::{ConnId, SessionId};
use crate::shard::Shard;
use mqtt::Property;

/// User Property with the bridges that a message has passed: `NAME@ID` each, separated by spaces.
pub const BRIDGE_PATH: &str = "godwit-path";
/// The name of a hop is as long as a person reads: its last character begins within this.
const NAME_BYTES_MAX: usize = 64;

/// A name as it stands in a path: not too long, and without what keeps hops apart.
pub fn hop_name(name: &str) -> String {
    let begins = |(at, _): &(usize, char)| *at < NAME_BYTES_MAX;
    let name: String = name.char_indices().take_while(begins).map(|(_, c)| c).collect();
    name.replace(' ', "_")
}

impl Shard {
    /// Whether `ScratchBuffers::properties` now holds a path, since a bridge of 3.1.1 publishes. A
    /// message of 3.1.1 has no properties of its own.
    #[inline(never)]
    pub(crate) fn write_bridge_path(&mut self, conn: ConnId, id: SessionId) -> bool {
        let is_bridge = self.conn(conn).is_some_and(|known| known.is_bridge);
        if is_bridge {
            let path = format!("{}@0", hop_name(&self.sessions.get(id).client_id));
            let properties = &mut self.scratch.properties;
            properties.clear();
            Property::UserProperty(BRIDGE_PATH, &path).encode(properties);
        }
        is_bridge
    }
}
