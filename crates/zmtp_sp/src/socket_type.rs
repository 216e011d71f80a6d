//! The kinds of sockets, and which goes with which.

/// Family of protocols that a socket type belongs to.
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

/// Rule by which a socket distributes the messages that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingStrategy {
    /// Every peer that wants the message gets it; a slow peer misses it.
    All,
    /// A single peer gets the message, which waits until a peer has room.
    One,
    /// The peer that sent the request gets the message.
    Requester,
    /// The socket sends no messages.
    None,
}

struct SocketTypeRow {
    socket_type: SocketType,
    name: &'static str,
    routing: RoutingStrategy,
    receives: bool,
    /// Its name in ZMTP, and those of its peers (rfc.zeromq.org 28, 29, 30, 31).
    zmq: Option<(&'static str, &'static [&'static str])>,
    /// Its number and that of its peers (sp-protocol-ids-01), and its name in WebSocket.
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

/// In the order of the table; `ProtocolFamily::has` says which of them are whose.
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
    /// The names of all.
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

    /// Whether messages come by it.
    pub fn receives(self) -> bool {
        self.row().receives
    }

    /// Asks, and hears answers.
    pub fn sends_requests(self) -> bool {
        matches!(self, SocketType::Req | SocketType::Surveyor)
    }

    /// Is asked, and answers.
    pub fn sends_replies(self) -> bool {
        matches!(self, SocketType::Rep | SocketType::Respondent)
    }

    /// Has one peer, and turns away whoever comes next.
    pub fn is_pair(self) -> bool {
        matches!(self, SocketType::Pair | SocketType::Pair1)
    }

    /// Its peers say what they want, where they are ZeroMQ's.
    pub fn receives_subscriptions(self) -> bool {
        matches!(self, SocketType::Pub | SocketType::Xpub)
    }

    /// Says what it wants, where its peers are ZeroMQ's.
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

    /// Returns the WebSocket subprotocol: of our socket type if the peer listens, and of the
    /// listener's peer if we do.
    pub fn web_protocol(self, listens: bool) -> String {
        let number = if listens { self.sp_number() } else { self.sp_peer() };
        let named = ROWS.iter().find_map(|row| row.sp.filter(|(own, _, _)| *own == number));
        format!("{}.sp.nanomsg.org", named.map_or("", |(_, _, name)| name))
    }
}
