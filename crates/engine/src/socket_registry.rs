//! Registers the sockets and listeners of a shard with a poller: the scheduler's, or the shard's
//! own on a worker thread.

use crate::poll_token::{LISTENER_FIRST, socket_token};
use crate::socket::Socket;
use crate::stream::SocketAcceptor;
use broker::ShardId;
use mio::{Interest, Registry};
use std::io;

/// The poller where the sockets of a shard are registered.
#[derive(Debug)]
pub(crate) struct SocketRegistry {
    shard: ShardId,
    registry: Registry,
}

impl SocketRegistry {
    pub(crate) fn new(shard: ShardId, registry: Registry) -> SocketRegistry {
        SocketRegistry { shard, registry }
    }

    /// Registers a socket for reading, and for writing if it waits for room.
    pub(crate) fn register(&self, socket: &mut Socket, index: u32) -> io::Result<()> {
        let interest = if socket.watches_writable() { BOTH } else { Interest::READABLE };
        let token = socket_token(self.shard, index as usize);
        self.registry.register(socket.stream_mut(), token, interest)
    }

    /// Registers a socket for writing as well.
    pub(crate) fn watch_writable(&self, socket: &mut Socket, index: u32) {
        let token = socket_token(self.shard, index as usize);
        let _ = self.registry.reregister(socket.stream_mut(), token, BOTH);
    }

    pub(crate) fn deregister(&self, socket: &mut Socket) {
        let _ = self.registry.deregister(socket.stream_mut());
    }

    pub(crate) fn register_listener(
        &self,
        listener: &mut SocketAcceptor,
        at: usize,
    ) -> io::Result<()> {
        let token = socket_token(self.shard, LISTENER_FIRST + at);
        self.registry.register(listener, token, Interest::READABLE)
    }

    pub(crate) fn deregister_listener(&self, listener: &mut SocketAcceptor) -> io::Result<()> {
        self.registry.deregister(listener)
    }
}

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
