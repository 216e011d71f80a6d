//! The kinds of sockets, and which goes with which.

/// Whose sockets they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// nanomsg and NNG: scalability protocols.
    Sp,
    #[default]
    Zmq,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
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

/// What becomes of a message that one of ours sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It goes to all who want it, and past whoever is slow.
    All,
    /// It goes to one of them, and waits until one has room.
    One,
    /// It goes to who asked.
    Asker,
    /// It sends none.
    None,
}

struct Row {
    pattern: Pattern,
    name: &'static str,
    manner: Manner,
    hears: bool,
    /// Its name in ZMTP, and those of its peers (rfc.zeromq.org 28, 29, 30, 31).
    zmq: Option<(&'static str, &'static [&'static str])>,
    /// Its number and that of its peers (sp-protocol-ids-01), and its name in WebSocket.
    sp: Option<(u16, u16, &'static str)>,
}

const ROWS: &[Row] = &[
    Row {
        pattern: Pattern::Pub,
        name: "pub",
        manner: Manner::All,
        hears: false,
        zmq: Some(("PUB", &["SUB", "XSUB"])),
        sp: Some((0x20, 0x21, "pub")),
    },
    Row {
        pattern: Pattern::Sub,
        name: "sub",
        manner: Manner::None,
        hears: true,
        zmq: Some(("SUB", &["PUB", "XPUB"])),
        sp: Some((0x21, 0x20, "sub")),
    },
    Row {
        pattern: Pattern::Xpub,
        name: "xpub",
        manner: Manner::All,
        hears: true,
        zmq: Some(("XPUB", &["SUB", "XSUB"])),
        sp: None,
    },
    Row {
        pattern: Pattern::Xsub,
        name: "xsub",
        manner: Manner::All,
        hears: true,
        zmq: Some(("XSUB", &["PUB", "XPUB"])),
        sp: None,
    },
    Row {
        pattern: Pattern::Push,
        name: "push",
        manner: Manner::One,
        hears: false,
        zmq: Some(("PUSH", &["PULL"])),
        sp: Some((0x50, 0x51, "push")),
    },
    Row {
        pattern: Pattern::Pull,
        name: "pull",
        manner: Manner::None,
        hears: true,
        zmq: Some(("PULL", &["PUSH"])),
        sp: Some((0x51, 0x50, "pull")),
    },
    Row {
        pattern: Pattern::Pair,
        name: "pair",
        manner: Manner::One,
        hears: true,
        zmq: Some(("PAIR", &["PAIR"])),
        sp: Some((0x10, 0x10, "pair")),
    },
    Row {
        pattern: Pattern::Pair1,
        name: "pair1",
        manner: Manner::One,
        hears: true,
        zmq: None,
        sp: Some((0x11, 0x11, "pair1")),
    },
    Row {
        pattern: Pattern::Req,
        name: "req",
        manner: Manner::One,
        hears: true,
        zmq: Some(("REQ", &["REP", "ROUTER"])),
        sp: Some((0x30, 0x31, "req")),
    },
    Row {
        pattern: Pattern::Rep,
        name: "rep",
        manner: Manner::Asker,
        hears: true,
        zmq: Some(("REP", &["REQ", "DEALER"])),
        sp: Some((0x31, 0x30, "rep")),
    },
    Row {
        pattern: Pattern::Bus,
        name: "bus",
        manner: Manner::All,
        hears: true,
        zmq: None,
        sp: Some((0x70, 0x70, "bus")),
    },
    Row {
        pattern: Pattern::Surveyor,
        name: "surveyor",
        manner: Manner::All,
        hears: true,
        zmq: None,
        sp: Some((0x62, 0x63, "surveyor")),
    },
    Row {
        pattern: Pattern::Respondent,
        name: "respondent",
        manner: Manner::Asker,
        hears: true,
        zmq: None,
        sp: Some((0x63, 0x62, "respondent")),
    },
];

/// In the order of the table; `Family::has` says which of them are whose.
pub(crate) const NAMES: [&str; ROWS.len()] = {
    let mut names = [""; ROWS.len()];
    let mut at = 0;
    while at < ROWS.len() {
        names[at] = ROWS[at].name;
        at += 1;
    }
    names
};

impl Pattern {
    /// The names of all.
    pub const NAMES: &'static [&'static str] = &NAMES;

    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.pattern == self).expect("every pattern has its row")
    }

    pub fn of(name: &str) -> Option<Pattern> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.pattern)
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Those of a family.
    pub fn all(family: Family) -> impl Iterator<Item = Pattern> {
        ROWS.iter().map(|row| row.pattern).filter(move |pattern| pattern.is_of(family))
    }

    pub fn is_of(self, family: Family) -> bool {
        match family {
            Family::Sp => self.row().sp.is_some(),
            Family::Zmq => self.row().zmq.is_some(),
        }
    }

    pub fn manner(self) -> Manner {
        self.row().manner
    }

    /// Whether messages come by it.
    pub fn hears(self) -> bool {
        self.row().hears
    }

    /// Asks, and hears answers.
    pub fn asks(self) -> bool {
        matches!(self, Pattern::Req | Pattern::Surveyor)
    }

    /// Is asked, and answers.
    pub fn answers(self) -> bool {
        matches!(self, Pattern::Rep | Pattern::Respondent)
    }

    /// Has one peer, and turns away whoever comes next.
    pub fn is_pair(self) -> bool {
        matches!(self, Pattern::Pair | Pattern::Pair1)
    }

    /// Its peers say what they want, where they are ZeroMQ's.
    pub fn is_subscribed_to(self) -> bool {
        matches!(self, Pattern::Pub | Pattern::Xpub)
    }

    /// Says what it wants, where its peers are ZeroMQ's.
    pub fn subscribes(self) -> bool {
        matches!(self, Pattern::Sub | Pattern::Xsub)
    }

    pub(crate) fn zmq_name(self) -> &'static str {
        self.row().zmq.map_or("", |(name, _)| name)
    }

    pub(crate) fn goes_with_zmq(self, peer: &str) -> bool {
        self.row().zmq.is_some_and(|(_, peers)| peers.contains(&peer))
    }

    pub(crate) fn sp_number(self) -> u16 {
        self.row().sp.map_or(0, |(own, _, _)| own)
    }

    pub(crate) fn sp_peer(self) -> u16 {
        self.row().sp.map_or(0, |(_, peer, _)| peer)
    }

    /// What WebSocket calls the side that listens: ours, or that of who listens for ours.
    pub fn web_protocol(self, listens: bool) -> String {
        let number = if listens { self.sp_number() } else { self.sp_peer() };
        let named = ROWS.iter().find_map(|row| row.sp.filter(|(own, _, _)| *own == number));
        format!("{}.sp.nanomsg.org", named.map_or("", |(_, _, name)| name))
    }
}
