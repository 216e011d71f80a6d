//! A UDP socket driven by quinn-udp: several datagrams per system call in both directions where the
//! kernel supports this.

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A UDP socket for QUIC. All shards with connections of a QUIC listener share the socket, and
/// sending takes no lock.
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

/// Number of buffers of one receive call. Each buffer holds a train of datagrams from one sender.
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

    /// Receives datagrams into slots of `buffer`, `SLOT_BYTES` each, and returns the number of
    /// filled slots.
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
