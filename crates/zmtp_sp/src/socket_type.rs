//! The kinds of sockets, and their valid peers.

/// Family of protocols of a socket type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolFamily {
    /// nanomsg and NNG: scalability protocols.
    Sp,
    #[default]
    Zmq,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketType {
    Bus,
    Pair,
    Pair1,
    #[default]
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Respondent,
    Sub,
    Surveyor,
    Xpub,
    Xsub,
}

/// Rule for the distribution of sent messages to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingStrategy {
    /// Every peer subscribed to the message; a slow peer misses the message.
    All,
    /// A single peer; the message waits until a peer has room.
    One,
    /// The peer which sent the request.
    Requester,
    /// The socket sends no messages.
    None,
}

struct SocketTypeRow {
    socket_type: SocketType,
    name: &'static str,
    routing: RoutingStrategy,
    receives: bool,
    /// Name in ZMTP, and the names of valid peers (rfc.zeromq.org 28, 29, 30, 31).
    zmq: Option<(&'static str, &'static [&'static str])>,
    /// Number and the number of the peer (sp-protocol-ids-01), and the name in WebSocket.
    sp: Option<(u16, u16, &'static str)>,
}

const ROWS: &[SocketTypeRow] = &[
    SocketTypeRow {
        socket_type: SocketType::Pub,
        name: "pub",
        routing: RoutingStrategy::All,
        receives: false,
        zmq: Some(("PUB", &["SUB", "XSUB"])),
        sp: Some((0x20, 0x21, "pub")),
    },
    SocketTypeRow {
        socket_type: SocketType::Sub,
        name: "sub",
        routing: RoutingStrategy::None,
        receives: true,
        zmq: Some(("SUB", &["PUB", "XPUB"])),
        sp: Some((0x21, 0x20, "sub")),
    },
    SocketTypeRow {
        socket_type: SocketType::Xpub,
        name: "xpub",
        routing: RoutingStrategy::All,
        receives: true,
        zmq: Some(("XPUB", &["SUB", "XSUB"])),
        sp: None,
    },
    SocketTypeRow {
        socket_type: SocketType::Xsub,
        name: "xsub",
        routing: RoutingStrategy::All,
        receives: true,
        zmq: Some(("XSUB", &["PUB", "XPUB"])),
        sp: None,
    },
    SocketTypeRow {
        socket_type: SocketType::Push,
        name: "push",
        routing: RoutingStrategy::One,
        receives: false,
        zmq: Some(("PUSH", &["PULL"])),
        sp: Some((0x50, 0x51, "push")),
    },
    SocketTypeRow {
        socket_type: SocketType::Pull,
        name: "pull",
        routing: RoutingStrategy::None,
        receives: true,
        zmq: Some(("PULL", &["PUSH"])),
        sp: Some((0x51, 0x50, "pull")),
    },
    SocketTypeRow {
        socket_type: SocketType::Pair,
        name: "pair",
        routing: RoutingStrategy::One,
        receives: true,
        zmq: Some(("PAIR", &["PAIR"])),
        sp: Some((0x10, 0x10, "pair")),
    },
    SocketTypeRow {
        socket_type: SocketType::Pair1,
        name: "pair1",
        routing: RoutingStrategy::One,
        receives: true,
        zmq: None,
        sp: Some((0x11, 0x11, "pair1")),
    },
    SocketTypeRow {
        socket_type: SocketType::Req,
        name: "req",
        routing: RoutingStrategy::One,
        receives: true,
        zmq: Some(("REQ", &["REP", "ROUTER"])),
        sp: Some((0x30, 0x31, "req")),
    },
    SocketTypeRow {
        socket_type: SocketType::Rep,
        name: "rep",
        routing: RoutingStrategy::Requester,
        receives: true,
        zmq: Some(("REP", &["REQ", "DEALER"])),
        sp: Some((0x31, 0x30, "rep")),
    },
    SocketTypeRow {
        socket_type: SocketType::Bus,
        name: "bus",
        routing: RoutingStrategy::All,
        receives: true,
        zmq: None,
        sp: Some((0x70, 0x70, "bus")),
    },
    SocketTypeRow {
        socket_type: SocketType::Surveyor,
        name: "surveyor",
        routing: RoutingStrategy::All,
        receives: true,
        zmq: None,
        sp: Some((0x62, 0x63, "surveyor")),
    },
    SocketTypeRow {
        socket_type: SocketType::Respondent,
        name: "respondent",
        routing: RoutingStrategy::Requester,
        receives: true,
        zmq: None,
        sp: Some((0x63, 0x62, "respondent")),
    },
];

/// Names in the order of [`ROWS`]; [`SocketType::is_in_family`] tells their family.
pub(crate) const NAMES: [&str; ROWS.len()] = {
    let mut names = [""; ROWS.len()];
    let mut at = 0;
    while at < ROWS.len() {
        names[at] = ROWS[at].name;
        at += 1;
    }
    names
};

impl SocketType {
    /// The names of all socket types of both families.
    pub const NAMES: &'static [&'static str] = &NAMES;

    fn row(self) -> &'static SocketTypeRow {
        ROWS.iter().find(|row| row.socket_type == self).expect("every pattern has its row")
    }

    pub fn from_name(name: &str) -> Option<SocketType> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.socket_type)
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Iterates over the socket types of a family.
    pub fn all(family: ProtocolFamily) -> impl Iterator<Item = SocketType> {
        ROWS.iter().map(|row| row.socket_type).filter(move |pattern| pattern.is_in_family(family))
    }

    pub fn is_in_family(self, family: ProtocolFamily) -> bool {
        match family {
            ProtocolFamily::Sp => self.row().sp.is_some(),
            ProtocolFamily::Zmq => self.row().zmq.is_some(),
        }
    }

    pub fn routing(self) -> RoutingStrategy {
        self.row().routing
    }

    /// Whether the socket receives messages.
    pub fn receives(self) -> bool {
        self.row().receives
    }

    /// Whether the socket sends requests and receives replies: `Req` and `Surveyor`.
    pub fn sends_requests(self) -> bool {
        matches!(self, SocketType::Req | SocketType::Surveyor)
    }

    /// Whether the socket receives requests and sends replies: `Rep` and `Respondent`.
    pub fn sends_replies(self) -> bool {
        matches!(self, SocketType::Rep | SocketType::Respondent)
    }

    /// Whether the socket has a single peer, and refuses further peers: `Pair` and `Pair1`.
    pub fn is_pair(self) -> bool {
        matches!(self, SocketType::Pair | SocketType::Pair1)
    }

    /// Whether ZeroMQ peers send [`crate::SocketEvent::Subscribe`] to the socket.
    pub fn receives_subscriptions(self) -> bool {
        matches!(self, SocketType::Pub | SocketType::Xpub)
    }

    /// Whether the socket sends subscriptions to ZeroMQ peers: `Sub` and `Xsub`.
    pub fn subscribes(self) -> bool {
        matches!(self, SocketType::Sub | SocketType::Xsub)
    }

    pub(crate) fn zmq_name(self) -> &'static str {
        self.row().zmq.map_or("", |(name, _)| name)
    }

    pub(crate) fn accepts_zmq_peer(self, peer: &str) -> bool {
        self.row().zmq.is_some_and(|(_, peers)| peers.contains(&peer))
    }

    pub(crate) fn sp_number(self) -> u16 {
        self.row().sp.map_or(0, |(own, _, _)| own)
    }

    pub(crate) fn sp_peer(self) -> u16 {
        self.row().sp.map_or(0, |(_, peer, _)| peer)
    }

    /// Returns the WebSocket subprotocol, which names the socket type of the listening side:
    /// this type if `listens` is set, otherwise the peer's.
    pub fn web_protocol(self, listens: bool) -> String {
        let number = if listens { self.sp_number() } else { self.sp_peer() };
        let named = ROWS.iter().find_map(|row| row.sp.filter(|(own, _, _)| *own == number));
        format!("{}.sp.nanomsg.org", named.map_or("", |(_, _, name)| name))
    }
}
