//! What a shard's sockets hold: beginnings of packets, and output that nobody takes. Both are
//! counted against the memory that the broker may use, and have a quarter of it: beyond it the
//! socket that has held something longest without getting on has to go.

use crate::body::Body;
use crate::socket::Socket;
use broker::ConnId;

impl Body {
    /// Counts what the socket holds, after it may have changed.
    pub(crate) fn count(&mut self, index: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        let (before, now) = (socket.counted, socket.holds());
        if before == now {
            return;
        }
        if before == 0 {
            socket.since = self.now;
        }
        socket.counted = now;
        self.held = self.held + now as usize - before as usize;
        self.shard.hold_for_sockets(self.held);
        if now > before {
            self.shed();
        }
    }

    /// The socket is gone, or goes elsewhere.
    pub(crate) fn count_out(&mut self, socket: &Socket) {
        self.held -= socket.counted as usize;
        self.shard.hold_for_sockets(self.held);
    }

    /// Ends who holds longest, until the rest has room.
    fn shed(&mut self) {
        let mut excess = self.shard.socket_bytes_excess();
        if excess == 0 {
            return;
        }
        let sockets = self.sockets.iter().enumerate();
        let stuck = sockets.filter_map(|(at, socket)| {
            let socket = socket.as_ref()?;
            let is_worth_it = socket.counted > SHED_BYTES_MIN;
            (is_worth_it && socket.is_stuck()).then_some((socket.since, at))
        });
        let mut stuck: Vec<_> = stuck.collect();
        stuck.sort_unstable();
        for (_, at) in stuck {
            let Some(Some(socket)) = self.sockets.get_mut(at) else { continue };
            let held = self.held;
            // The broker has let go of it already.
            if socket.is_leaving() {
                self.forget(at as u32);
            } else {
                socket.give_up();
                self.count(at as u32);
                self.starved.push(ConnId(at as u32));
            }
            let freed = held - self.held;
            if freed >= excess {
                break;
            }
            excess -= freed;
        }
    }
}

/// Less than this is not worth a connection.
const SHED_BYTES_MIN: u32 = 64;
