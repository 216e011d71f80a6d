//! The peer of a transport: facts from the transport (address, certificate) and the result of the
//! authentication. A connection that moves to another shard takes the whole [`PeerInfo`] along.

pub mod authentication;

use crate::ids::ListenerId;
use crate::peer::authentication::{AuthOutcome, Principal};
use crate::refusal::Refusal;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    pub address: PeerAddress,
    /// Listener that accepted the connection; `ListenerId::NONE` for connections of this process.
    pub listener: ListenerId,
    /// Bytes of memory that the transport (TLS, WebSocket, QUIC) needs in the engine, socket
    /// excluded.
    pub transport_bytes: u32,
    /// Certificate and authentication result; absent for a peer with neither.
    proof: Option<Box<PeerIdentity>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PeerIdentity {
    certificate: Option<Arc<PeerCertificate>>,
    pass: Option<AuthOutcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    Network(SocketAddr),
    /// Process at the far end of a Unix socket, as reported by the kernel.
    Unix {
        user: u32,
        process: u32,
    },
}

/// Source by which attempts and connections are counted. A host has up to 2^64 IPv6 addresses and a
/// local user any number of processes, so an IPv6 /64 network and a Unix user count as one source
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerSource {
    Network(IpAddr),
    User(u32),
}

/// Names in a client's certificate (RFC 5280).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Last CN of the subject, the most specific.
    pub common_name: Option<Box<str>>,
    /// Whole subject in the notation of RFC 4514.
    pub subject: Box<str>,
    pub alternatives: Vec<AlternativeName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    Address(IpAddr),
    Dns(Box<str>),
    Email(Box<str>),
    Uri(Box<str>),
}

impl PeerInfo {
    /// Creates the peer of a connection that was just accepted.
    pub fn new(address: PeerAddress, listener: ListenerId) -> PeerInfo {
        PeerInfo { address, listener, transport_bytes: 0, proof: None }
    }

    /// Creates the peer of a connection from this process to itself, authenticated as `principal`.
    pub fn internal(address: PeerAddress, principal: Principal) -> PeerInfo {
        let mut peer = PeerInfo::new(address, ListenerId::NONE);
        peer.set_auth_outcome(AuthOutcome {
            decision: Ok(Box::new(principal)),
            expires: None,
            auth_packets: 0,
        });
        peer
    }

    pub(crate) fn is_internal(&self) -> bool {
        self.listener == ListenerId::NONE
    }

    /// Creates a peer with an address only, on listener 0.
    pub fn from_address(address: SocketAddr) -> PeerInfo {
        PeerInfo::new(PeerAddress::Network(address), ListenerId::default())
    }

    /// Returns the peer for a data stream of the same transport. `transport_bytes` is 0, since the
    /// control stream counts the memory.
    pub(crate) fn for_data_stream(&self) -> PeerInfo {
        PeerInfo { transport_bytes: 0, ..self.clone() }
    }

    /// Returns the client's certificate. The TLS handshake has verified the chain up to a CA of the
    /// listener.
    pub fn certificate(&self) -> Option<&Arc<PeerCertificate>> {
        self.proof.as_ref()?.certificate.as_ref()
    }

    pub fn set_certificate(&mut self, certificate: Arc<PeerCertificate>) {
        self.proof.get_or_insert_default().certificate = Some(certificate);
    }

    /// Returns the result of the authentication: present from the decision until
    /// `ConnectionTable::take_permissions` has moved the contents to the session.
    pub(crate) fn auth_outcome(&self) -> Option<&AuthOutcome> {
        self.proof.as_ref()?.pass.as_ref()
    }

    pub(crate) fn set_auth_outcome(&mut self, pass: AuthOutcome) {
        self.proof.get_or_insert_default().pass = Some(pass);
    }

    /// Marks the connection as above a limit: CONNECT is answered with `refusal` and without
    /// authentication.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.set_auth_outcome(AuthOutcome {
            decision: Err(refusal),
            expires: None,
            auth_packets: 0,
        });
    }

    pub(crate) fn clear_auth_outcome(&mut self) {
        if let Some(proof) = &mut self.proof {
            proof.pass = None;
        }
        self.proof.take_if(|proof| **proof == PeerIdentity::default());
    }
}

impl PeerAddress {
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            PeerAddress::Network(address) => Some(address.ip()),
            PeerAddress::Unix { .. } => None,
        }
    }
}

impl From<PeerAddress> for PeerSource {
    fn from(address: PeerAddress) -> PeerSource {
        match address {
            PeerAddress::Network(address) => PeerSource::Network(counted_network(address.ip())),
            PeerAddress::Unix { user, .. } => PeerSource::User(user),
        }
    }
}

fn counted_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

impl fmt::Display for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerSource::Network(address) => write!(f, "{address}"),
            PeerSource::User(user) => write!(f, "unix:user={user}"),
        }
    }
}

impl fmt::Display for AlternativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlternativeName::Address(address) => write!(f, "{address}"),
            AlternativeName::Dns(name)
            | AlternativeName::Email(name)
            | AlternativeName::Uri(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Network(address) => write!(f, "{address}"),
            PeerAddress::Unix { user, process } => write!(f, "unix:user={user},process={process}"),
        }
    }
}
