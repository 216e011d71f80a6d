//! Bytes of sockets, as a part of the memory of the process.

use crate::memory::add_moved;
use crate::session::session_table::SessionTable;

impl SessionTable {
    pub(crate) fn socket_bytes(&mut self) -> u64 {
        let ledger = &mut self.ledger;
        let held = add_moved(&ledger.process.sockets, &mut ledger.sockets_reported, ledger.sockets);
        held.max(0) as u64
    }
}
