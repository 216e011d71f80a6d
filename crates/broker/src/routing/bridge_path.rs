//! Marks messages from MQTT 3.1.1 bridges of other brokers. The broker's own bridges read the mark;
//! without it a message could circulate in a ring of brokers for ever.

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
