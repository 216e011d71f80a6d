//! Memory held by a shard's sockets: partial packets, and output that peers do not read. Both count
//! against the memory that the broker may use, and may take a quarter of it. Above that the sockets
//! that have held bytes longest without progress are closed.

use crate::shard_driver::ShardDriver;
use crate::socket::Socket;
use broker::ConnId;

impl ShardDriver {
    /// Updates the counted bytes of the socket after a change, and sheds sockets above the bound.
    pub(crate) fn count_socket_bytes(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let (before, now) = (socket.counted_bytes, socket.held_bytes());
        if before == now {
            return;
        }
        if before == 0 {
            socket.stuck_since = self.now;
        }
        socket.counted_bytes = now;
        self.socket_bytes = self.socket_bytes + now as usize - before as usize;
        self.shard.set_socket_bytes(self.socket_bytes);
        if now > before {
            self.shed_sockets();
        }
    }

    /// Subtracts a socket which is dropped or moves to another shard.
    pub(crate) fn uncount_socket_bytes(&mut self, socket: &Socket) {
        self.socket_bytes -= socket.counted_bytes as usize;
        self.shard.set_socket_bytes(self.socket_bytes);
    }

    /// Closes the sockets stuck longest, in this order, until `socket_bytes_excess` is freed.
    fn shed_sockets(&mut self) {
        let mut excess = self.shard.socket_bytes_excess();
        if excess == 0 {
            return;
        }
        let sockets = self.sockets.iter().enumerate();
        let stuck = sockets.filter_map(|(at, socket)| {
            let socket = socket.as_ref()?;
            let is_worth_it = socket.counted_bytes > SHED_BYTES_MIN;
            (is_worth_it && socket.is_stuck()).then_some((socket.stuck_since, at))
        });
        let mut stuck: Vec<_> = stuck.collect();
        stuck.sort_unstable();
        for (_, at) in stuck {
            let Some(Some(socket)) = self.sockets.get_mut(at) else { continue };
            let held = self.socket_bytes;
            // The broker has already forgotten this connection.
            if socket.is_lingering() {
                self.drop_socket(at as u32);
            } else {
                socket.release_memory();
                self.count_socket_bytes(at as u32);
                self.out_of_memory.push(ConnId(at as u32));
            }
            let freed = held - self.socket_bytes;
            if freed >= excess {
                break;
            }
            excess -= freed;
        }
    }
}

/// Counted bytes up to which closing a socket frees too little to be worth its connection.
const SHED_BYTES_MIN: u32 = 64;
