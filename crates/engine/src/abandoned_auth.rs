//! Clients that leave before the decision on their authentication: a held connection is not read,
//! so `end_abandoned` looks for its end once the poller has reported it.

use crate::ingress::TAIL_COPIED_MAX;
use crate::shard_driver::ShardDriver;

impl ShardDriver {
    /// Drops a held connection whose peer has sent its end of stream and only packets which need no
    /// response after its CONNECT: the pending decision has no receiver. The bytes read to learn
    /// this stay in `Socket::tail`, so a client which published and left without waiting is still
    /// served.
    pub(crate) fn end_abandoned(&mut self, index: u32) {
        if !self.pending_auth.awaits_decision(index) {
            return;
        }
        let Some(Some(socket)) = self.sockets.get_mut(index as usize) else { return };
        // A connection of QUIC reports the end of its streams itself.
        if socket.stream.quic_connection().is_some() || socket.tail.len() > TAIL_COPIED_MAX {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let kept = socket.stack.as_ref().map_or(0, |layers| layers.copy_pending(&mut buffer));
        let mut is_all = true;
        if let Ok(Some(read @ 1..)) = socket.receive(&mut buffer[kept..]) {
            let len = kept + read;
            is_all = len < buffer.len();
            match &mut socket.stack {
                None => socket.tail.extend_from_slice(&buffer[..len]),
                Some(layers) => {
                    self.sealed.clear();
                    // A layer that fails here gives no more bytes, as a layer whose peer has ended.
                    let _ = layers.decode(&mut buffer[..len], &mut socket.tail, &mut self.sealed);
                }
            }
        }
        let is_abandoned = is_all && needs_no_response(&socket.tail);
        self.buffer = buffer;
        self.count_socket_bytes(index);
        if is_abandoned {
            self.drop_lost_connection(index);
        }
    }
}

/// Whether every whole packet after the first in `bytes` is AUTH, DISCONNECT or PINGREQ: a client
/// may still send these after losing patience, and no answer or action is due.
fn needs_no_response(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_first = true;
    while let Some(len) = mqtt::expected_len(rest).filter(|len| *len <= rest.len()) {
        if !is_first && !matches!(rest[0] >> 4, AUTH | DISCONNECT | PINGREQ) {
            return false;
        }
        is_first = false;
        rest = &rest[len..];
    }
    true
}

const AUTH: u8 = 15;
const DISCONNECT: u8 = 14;
const PINGREQ: u8 = 12;

#[cfg(test)]
mod tests {
    use super::needs_no_response;

    #[test]
    fn a_client_that_said_goodbye_or_nothing_has_given_up() {
        let connect = b"\x10\x02ab";
        let with = |more: &[u8]| needs_no_response(&[&connect[..], more].concat());
        assert!(with(b"") && with(b"\xe0\x00") && with(b"\xc0\x00\xe0\x00"));
        assert!(with(b"\xf0\x01\x18"), "a step of its authentication");
        assert!(with(b"\x30\x05\x00"), "half a packet is none");
        assert!(!with(b"\x30\x03\x00\x01a") && !with(b"\xc0\x00\x30\x03\x00\x01a\xe0\x00"));
        assert!(!with(b"\x82\x06\x00\x01\x00\x01a\x00"));
        assert!(needs_no_response(b""));
    }
}
