//! A UDP socket as quinn-udp drives it: several datagrams a call both ways where the kernel can.

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Shared by every shard that has a QUIC connection of it: whoever sends needs nobody's leave.
#[derive(Debug)]
pub struct QuicUdpSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl AsFd for QuicUdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Buffers that one call fills: each with a train of datagrams of one sender.
pub const SLOTS: usize = 16;
pub const SLOT_BYTES: usize = 64 * 1024;

impl QuicUdpSocket {
    pub fn new(socket: UdpSocket) -> io::Result<QuicUdpSocket> {
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(QuicUdpSocket { socket, state })
    }

    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns the largest number of datagrams of equal size in one send (generic segmentation
    /// offload).
    pub fn train_len_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    pub fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let contents = &bytes[..transmit.size];
        let ecn = transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8));
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn,
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// Fills slots of `buffer`, and says how many.
    pub fn receive(&self, buffer: &mut [u8], metas: &mut [RecvMeta; SLOTS]) -> io::Result<usize> {
        let mut slots = buffer.chunks_exact_mut(SLOT_BYTES);
        let mut slices: [IoSliceMut<'_>; SLOTS] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        self.state.recv((&self.socket).into(), &mut slices, metas)
    }
}

pub fn ecn_of(meta: &RecvMeta) -> Option<EcnCodepoint> {
    meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8))
}
