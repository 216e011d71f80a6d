//! Tests of two sockets of this crate against each other, and against bytes of the standards.

use super::*;

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn probe_takes_its_corpus() {
    replay::replay("zmtp_sp", probe);
}

const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 100_000 };

/// Two connected sockets, with the events and the output of each.
struct SocketPair {
    sides: [SocketProtocol; 2],
    heard: [VecDeque<SocketEvent>; 2],
    /// Bytes on their way from each socket to the other.
    wires: [Vec<u8>; 2],
}

impl SocketPair {
    fn new(one: SocketProtocol, other: SocketProtocol) -> SocketPair {
        let mut wires = [Vec::new(), Vec::new()];
        one.write_greeting(&mut wires[0]);
        other.write_greeting(&mut wires[1]);
        SocketPair { sides: [one, other], heard: Default::default(), wires }
    }

    /// Exchanges bytes until both sockets have no more output.
    fn run(&mut self) -> Result<(), SocketError> {
        let mut rounds = 0;
        while rounds < 2 {
            rounds += 1;
            for from in [0, 1] {
                let to = 1 - from;
                let said = std::mem::take(&mut self.wires[from]);
                let out = &mut self.wires[to];
                let before = out.len();
                let taken = self.sides[to].decode(&said, &mut self.heard[to], out)?;
                assert_eq!(taken, said.len(), "what is whole is taken");
                if out.len() > before {
                    rounds = 0;
                }
            }
        }
        Ok(())
    }

    fn open(one: SocketProtocol, other: SocketProtocol) -> SocketPair {
        let mut pair = SocketPair::new(one, other);
        pair.run().expect("they go together");
        for heard in &mut pair.heard {
            assert_eq!(heard.pop_front(), Some(SocketEvent::Open));
            assert_eq!(heard.pop_front(), None);
        }
        pair
    }

    fn say(&mut self, from: usize, message: &MultipartMessage) -> SocketEvent {
        self.sides[from].encode(message, &mut self.wires[from]);
        self.run().expect("messages are understood");
        self.heard[1 - from].pop_front().expect("something was heard")
    }
}

fn zmtp(pattern: SocketType, plain: Option<PlainCredentials>, listens: bool) -> SocketProtocol {
    SocketProtocol::zmtp(pattern, plain, listens, LIMITS)
}

fn message(frames: &[&[u8]]) -> MultipartMessage {
    let frames = frames.iter().map(|frame| frame.to_vec()).collect();
    MultipartMessage { envelope: Vec::new(), frames }
}

/// Returns each socket type with a valid peer.
fn couples(family: ProtocolFamily) -> Vec<(SocketType, SocketType)> {
    use SocketType::*;
    let all = [
        (Pub, Sub),
        (Xpub, Xsub),
        (Push, Pull),
        (Pair, Pair),
        (Pair1, Pair1),
        (Req, Rep),
        (Bus, Bus),
        (Surveyor, Respondent),
    ];
    all.into_iter().filter(|(one, _)| one.is_in_family(family)).collect()
}

#[test]
fn every_pattern_reaches_its_counterpart_over_everything_that_carries_it() {
    let long = vec![7; 70_000];
    for (one, other) in couples(ProtocolFamily::Sp) {
        let carriers = [
            (SpTransport::Stream, SpTransport::Stream),
            (SpTransport::Ipc, SpTransport::Ipc),
            (SpTransport::WebSocket { masks: true }, SpTransport::WebSocket { masks: false }),
        ];
        for (ours, theirs) in carriers {
            let mut pair = SocketPair::open(
                SocketProtocol::sp(one, ours, LIMITS),
                SocketProtocol::sp(other, theirs, LIMITS),
            );
            for body in [&b""[..], b"hello", &[1; 126], &long] {
                talk(&mut pair, one, &[body]);
            }
        }
    }
    for (one, other) in couples(ProtocolFamily::Zmq) {
        let mut pair = SocketPair::open(zmtp(one, None, true), zmtp(other, None, false));
        for frames in [&[&b"hello"[..]][..], &[b"topic", b"", &long], &[b"a", b"b"]] {
            talk(&mut pair, one, frames);
        }
    }
}

fn talk(pair: &mut SocketPair, one: SocketType, frames: &[&[u8]]) {
    if !one.sends_requests() {
        assert_eq!(pair.say(0, &message(frames)), SocketEvent::Message(message(frames)), "{one:?}");
        return;
    }
    let question =
        MultipartMessage::new_request(77, frames.iter().map(|frame| frame.to_vec()).collect());
    let SocketEvent::Message(heard) = pair.say(0, &question) else { panic!("a question") };
    assert_eq!(heard, question);
    let answer = MultipartMessage { frames: vec![b"yes".to_vec()], ..heard };
    let SocketEvent::Message(heard) = pair.say(1, &answer) else { panic!("an answer") };
    assert_eq!((heard.request_id(), &heard.frames[0][..]), (Some(77), &b"yes"[..]));
}

#[test]
fn subscriptions_come_as_commands_and_as_messages() {
    let mut pair =
        SocketPair::open(zmtp(SocketType::Pub, None, true), zmtp(SocketType::Sub, None, false));
    pair.sides[1].write_subscribe(b"a/", &mut pair.wires[1]);
    pair.run().expect("understood");
    assert_eq!(pair.heard[0].pop_front(), Some(SocketEvent::Subscribe(b"a/".to_vec())));
    // Subscriptions in the form of ZMTP 3.0.
    pair.wires[1].extend_from_slice(b"\x00\x03\x01b/\x00\x03\x00b/");
    pair.run().expect("understood");
    let expected = [SocketEvent::Subscribe(b"b/".to_vec()), SocketEvent::Cancel(b"b/".to_vec())];
    assert_eq!(pair.heard[0], expected);
    pair.wires[1].extend_from_slice(b"\x04\x0b\x04PING\x00\x05cntx");
    let (said, mut out) = (std::mem::take(&mut pair.wires[1]), Vec::new());
    pair.sides[0].decode(&said, &mut VecDeque::new(), &mut out).expect("understood");
    assert_eq!(out, b"\x04\x09\x04PONGcntx");
}

#[test]
fn passwords_let_in_and_keep_out() {
    let plain = |password: &str| {
        Some(PlainCredentials { user_name: "ann".into(), password: password.as_bytes().into() })
    };
    let pull = |plain| zmtp(SocketType::Pull, plain, true);
    let push = |plain| zmtp(SocketType::Push, plain, false);
    let mut pair = SocketPair::open(pull(plain("right")), push(plain("right")));
    assert!(matches!(pair.say(1, &message(&[b"x"])), SocketEvent::Message(_)));
    for password in ["wrong", "righ", "right2", ""] {
        let mut pair = SocketPair::new(pull(plain("right")), push(plain(password)));
        assert_eq!(pair.run(), Err(SocketError::Credentials), "{password}");
    }
    let mut pair = SocketPair::new(pull(plain("right")), push(None));
    assert_eq!(pair.run(), Err(SocketError::Mechanism("PLAIN".into())));
}

#[test]
fn who_does_not_go_with_us_is_told_apart() {
    let mut pair =
        SocketPair::new(zmtp(SocketType::Pull, None, true), zmtp(SocketType::Req, None, false));
    assert_eq!(pair.run(), Err(SocketError::SocketType("REQ".into())));
    let sp = |pattern| SocketProtocol::sp(pattern, SpTransport::Stream, LIMITS);
    let mut pair = SocketPair::new(sp(SocketType::Pull), sp(SocketType::Sub));
    assert_eq!(pair.run(), Err(SocketError::SocketType("pull".into())));
}

/// Returns the error for these bytes of a peer, after a greeting.
fn broken(mut speech: SocketProtocol, greeting: &[u8], bytes: &[u8]) -> SocketError {
    let (mut heard, mut out) = (VecDeque::new(), Vec::new());
    let said = [greeting, bytes].concat();
    let taken = speech.decode(&said, &mut heard, &mut out);
    taken.expect_err("it is broken")
}

#[test]
fn what_no_socket_says_ends_it() {
    let sp = |carrier| SocketProtocol::sp(SocketType::Pull, carrier, LIMITS);
    let header = b"\0SP\0\0\x50\0\0";
    let stream = |bytes: &[u8]| broken(sp(SpTransport::Stream), header, bytes);
    assert_eq!(broken(sp(SpTransport::Stream), b"", b"GET / HTTP"), SocketError::Greeting);
    assert_eq!(
        broken(sp(SpTransport::Stream), b"", b"\0SP\0\0\x50\0\x01"),
        SocketError::SocketType("push".into())
    );
    assert_eq!(stream(&[0xFF; 8]), SocketError::TooLarge);
    assert_eq!(stream(&100_001_u64.to_be_bytes()), SocketError::TooLarge);
    assert!(matches!(broken(sp(SpTransport::Ipc), header, b"\x02"), SocketError::Command(_)));
    let web = |bytes: &[u8]| broken(sp(SpTransport::WebSocket { masks: false }), b"", bytes);
    assert!(matches!(web(b"\x82\x05"), SocketError::WebSocket(_)), "it is not masked");
    assert!(matches!(web(b"\xC2\x80"), SocketError::WebSocket(_)), "it has reserved bits");
    assert!(matches!(web(b"\x80\x80abcd"), SocketError::WebSocket(_)), "it continues nothing");
    assert_eq!(web(b"\x02\xFF\0\0\0\0\0\x01\x86\xA1abcd"), SocketError::TooLarge);
    assert_eq!(web(b"\x88\x80abcd"), SocketError::Closed);

    let pull = || zmtp(SocketType::Pull, None, true);
    let mut greeting = Vec::new();
    zmtp(SocketType::Push, None, false).write_greeting(&mut greeting);
    let ready = b"\x04\x20\x05READY\x0bSocket-Type\0\0\0\x04PUSH\x01x\0\0\0\0";
    let opened = [&greeting[..], ready].concat();
    assert_eq!(broken(pull(), b"", b"\x01\x00"), SocketError::Greeting);
    let mut old = greeting.clone();
    old[10] = 1;
    assert_eq!(broken(pull(), b"", &old), SocketError::Version(1));
    assert!(matches!(broken(pull(), &greeting, b"\0\x01x"), SocketError::Command(_)), "too early");
    assert!(matches!(broken(pull(), &greeting, b"\x04\x00"), SocketError::Command(_)), "no name");
    let ready = b"\x04\x09\x05READY\xffab";
    assert!(matches!(broken(pull(), &greeting, ready), SocketError::Command(_)), "metadata is cut");
    let error = b"\x04\x0a\x05ERROR\x03no\n";
    assert_eq!(broken(pull(), &greeting, error), SocketError::Refused("no ".into()));
    let error = b"\x04\x09^RROR\x03400";
    assert_eq!(broken(pull(), &greeting, error), SocketError::Refused("400".into()));
    assert_eq!(
        broken(pull(), &opened, b"\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        SocketError::TooLarge
    );
    assert_eq!(broken(pull(), &opened, b"\x06\0\0\0\0\0\0\x10\x01"), SocketError::TooLarge);
    assert_eq!(broken(pull(), &opened, &b"\x01\0".repeat(300)), SocketError::TooManyFrames);
    let mut large = vec![1, 255];
    large.resize(257, 7);
    assert_eq!(broken(pull(), &opened, &large.repeat(400)), SocketError::TooManyFrames);
    let mut long = b"\x03\0\0\0\0\0\x01\x86\xA0".to_vec();
    long.resize(9 + 100_000, 7);
    long.extend_from_slice(b"\0\x01x");
    assert_eq!(broken(pull(), &opened, &long), SocketError::TooLarge, "both frames together");
}

/// Returns ZeroMQ sockets in each stage before the end of the handshake.
fn unshaken() -> Vec<SocketProtocol> {
    let plain =
        || Some(PlainCredentials { user_name: "ann".into(), password: b"right"[..].into() });
    let hello = b"\x04\x10\x05HELLO\x03ann\x05right";
    let stages: [(Option<PlainCredentials>, bool, &[u8]); 4] =
        [(None, true, b""), (plain(), true, b""), (plain(), true, hello), (plain(), false, b"")];
    let all = stages.into_iter().map(|(plain, listens, commands)| {
        let mut said = Vec::new();
        zmtp(SocketType::Push, plain.clone(), !listens).write_greeting(&mut said);
        said.extend_from_slice(commands);
        let (mut speech, mut heard) = (zmtp(SocketType::Pull, plain, listens), VecDeque::new());
        let taken = speech.decode(&said, &mut heard, &mut Vec::new());
        assert_eq!((taken, heard.len()), (Ok(said.len()), 0));
        speech
    });
    all.collect()
}

#[test]
fn before_hands_are_shaken_only_a_short_command_is_waited_for() {
    let hears = |speech: &mut SocketProtocol, bytes: &[u8]| {
        speech.decode(bytes, &mut VecDeque::new(), &mut Vec::new())
    };
    for flags in 0..=255 {
        for mut speech in unshaken() {
            let waits = [4, 6].contains(&flags);
            let heard = hears(&mut speech, &[flags]);
            assert_eq!(heard.is_ok(), waits, "{flags}: {heard:?}");
        }
    }
    for mut speech in unshaken() {
        assert_eq!(hears(&mut speech, b"\x06\0\0\0\0\0\0\x10\0"), Ok(0));
        assert_eq!(hears(&mut speech, b"\x06\0\0\0\0\0\0\x10\x01"), Err(SocketError::TooLarge));
    }
}

#[test]
fn what_has_no_envelope_is_astray() {
    let mut rep = SocketProtocol::sp(SocketType::Rep, SpTransport::Stream, LIMITS);
    let mut heard = VecDeque::new();
    let said = b"\0SP\0\0\x30\0\0\0\0\0\0\0\0\0\x05\0\0\0\x01x";
    rep.decode(said, &mut heard, &mut Vec::new()).expect("understood");
    assert_eq!(heard, [SocketEvent::Open, SocketEvent::Unroutable]);
}

#[test]
fn an_envelope_has_ids_and_nothing_longer() {
    let of = |id: usize| {
        let frames = vec![vec![7; id], Vec::new(), b"q".to_vec()];
        crate::envelope::decode_zmq(SocketType::Rep, frames)
    };
    assert!(matches!(of(255), SocketEvent::Message(_)));
    assert_eq!(of(256), SocketEvent::Unroutable);
}
