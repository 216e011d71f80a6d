//! Buffers of a turn, shared by all connections of a shard: a silent connection holds none.

use crate::batched_send::SendResult;
use crate::socket::{Socket, TAIL_COPIED_MAX};
use crate::tls::SealedBuffer;
use crate::transport_stack::TransportError;
use broker::interface::outbox::ConnWrite;
use broker::limits;
use std::io;

#[derive(Debug)]
pub(crate) struct TurnBuffers {
    input: Box<[u8]>,
    gathered: Vec<u8>,
    /// Buffer for the decoded bytes of one read.
    plain: Vec<u8>,
    sealed: SealedBuffer,
}

impl TurnBuffers {
    pub(super) fn new() -> TurnBuffers {
        TurnBuffers {
            input: vec![0; limits::READ_BYTES_PER_TICK + TAIL_COPIED_MAX].into(),
            gathered: Vec::new(),
            plain: Vec::new(),
            sealed: SealedBuffer::default(),
        }
    }

    /// Takes the buffer for one read; [`TurnBuffers::return_input`] puts it back.
    #[inline]
    pub(super) fn take_input(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.input)
    }

    #[inline]
    pub(super) fn return_input(&mut self, input: Box<[u8]>) {
        self.input = input;
    }

    /// Returns a buffer for decoded bytes which starts with the received part of a packet: see
    /// [`Socket::take_plain_buffer`].
    pub(super) fn take_plain(&mut self, socket: &mut Socket) -> (Vec<u8>, bool) {
        socket.take_plain_buffer(&mut self.plain)
    }

    /// Keeps the buffer for the next read, unless a large packet has grown it.
    pub(super) fn return_plain(&mut self, plain: Vec<u8>) {
        if plain.capacity() <= 2 * limits::READ_BYTES_PER_TICK {
            self.plain = plain;
        }
    }

    /// Decodes received bytes through the layers of a socket, and sends the answers of the layers.
    pub(super) fn decode(
        &mut self,
        socket: &mut Socket,
        raw: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, TransportError> {
        self.sealed.clear();
        socket.decode(raw, plain, &mut self.sealed)
    }

    /// Sends the output of the last [`TurnBuffers::decode`]. The next read finds out whether the
    /// socket is broken.
    pub(super) fn send_answers(&mut self, socket: &mut Socket) {
        let _ = socket.send_sealed(self.sealed.bytes());
    }

    /// Reads a held socket ahead of the decision that it waits for: see [`Socket::receive_ahead`].
    pub(super) fn receive_ahead(&mut self, socket: &mut Socket) -> bool {
        socket.receive_ahead(&mut self.input, &mut self.sealed)
    }

    /// Sends the closing records of the layers.
    pub(super) fn close_layers(&mut self, socket: &mut Socket, is_shutting_down: bool) {
        self.sealed.clear();
        if socket.close_layers(is_shutting_down, &mut self.sealed) {
            let _ = socket.send_sealed(self.sealed.bytes());
        }
    }

    /// Sends the pending output of a relay to its peer broker, followed by `bytes`. Returns whether
    /// the bytes were written or wait.
    pub(super) fn send_by_relay(&mut self, socket: &mut Socket, bytes: &[u8]) -> bool {
        let Some(relay) = socket.relay() else { return false };
        self.sealed.clear();
        let said = relay.seal(&[], &mut self.sealed).and_then(|()| self.sealed.push(bytes));
        if said.is_err() {
            return false;
        }
        // The next read finds out whether the socket is broken.
        let _ = socket.send_sealed(self.sealed.bytes());
        true
    }

    /// Writes the rest of one turn's bytes to a socket: see [`Socket::send`].
    #[inline]
    pub(super) fn send(
        &mut self,
        socket: &mut Socket,
        write: &ConnWrite,
        sent: SendResult,
        arena: &[u8],
    ) -> io::Result<()> {
        socket.send(write, sent, arena, &mut self.gathered, &mut self.sealed)
    }

    /// Frees the buffer for gathered bytes if a turn has grown it above its usual bound.
    pub(super) fn end_writes(&mut self) {
        if self.gathered.capacity() > 2 * limits::OUTBOX_BYTES_MAX {
            self.gathered = Vec::new();
        }
    }

    /// Whether the buffer for gathered bytes is larger than `kept` bytes.
    pub(super) fn is_large(&self, kept: usize) -> bool {
        self.gathered.capacity() > kept
    }

    /// Frees the memory that a burst has left behind.
    pub(super) fn free(&mut self) {
        self.gathered = Vec::new();
        self.plain = Vec::new();
    }
}
