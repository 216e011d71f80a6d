//! Two of ours talk to each other, and to bytes that the documents have.

use super::*;

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn probe_takes_its_corpus() {
    replay::replay("patterns", probe);
}

const LIMITS: Limits = Limits { message_bytes_max: 100_000 };

/// Two that are connected: what each has said, and heard.
struct Pair {
    sides: [Speech; 2],
    heard: [VecDeque<Heard>; 2],
    /// From each to the other.
    wires: [Vec<u8>; 2],
}

impl Pair {
    fn new(one: Speech, other: Speech) -> Pair {
        let mut wires = [Vec::new(), Vec::new()];
        one.greet(&mut wires[0]);
        other.greet(&mut wires[1]);
        Pair { sides: [one, other], heard: Default::default(), wires }
    }

    /// Until nobody has anything to say.
    fn run(&mut self) -> Result<(), Broken> {
        let mut rounds = 0;
        while rounds < 2 {
            rounds += 1;
            for from in [0, 1] {
                let to = 1 - from;
                let said = std::mem::take(&mut self.wires[from]);
                let out = &mut self.wires[to];
                let before = out.len();
                let taken = self.sides[to].hear(&said, &mut self.heard[to], out)?;
                assert_eq!(taken, said.len(), "what is whole is taken");
                if out.len() > before {
                    rounds = 0;
                }
            }
        }
        Ok(())
    }

    fn open(one: Speech, other: Speech) -> Pair {
        let mut pair = Pair::new(one, other);
        pair.run().expect("they go together");
        for heard in &mut pair.heard {
            assert_eq!(heard.pop_front(), Some(Heard::Open));
            assert_eq!(heard.pop_front(), None);
        }
        pair
    }

    fn say(&mut self, from: usize, message: &Message) -> Heard {
        self.sides[from].say(message, &mut self.wires[from]);
        self.run().expect("messages are understood");
        self.heard[1 - from].pop_front().expect("something was heard")
    }
}

fn zmtp(pattern: Pattern, plain: Option<Plain>, listens: bool) -> Speech {
    Speech::zmtp(pattern, plain, listens, LIMITS)
}

fn message(frames: &[&[u8]]) -> Message {
    let frames = frames.iter().map(|frame| frame.to_vec()).collect();
    Message { envelope: Vec::new(), frames }
}

/// Each pattern with one that goes with it.
fn couples(family: Family) -> Vec<(Pattern, Pattern)> {
    use Pattern::*;
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
    all.into_iter().filter(|(one, _)| one.is_of(family)).collect()
}

#[test]
fn every_pattern_reaches_its_counterpart_over_everything_that_carries_it() {
    let long = vec![7; 70_000];
    for (one, other) in couples(Family::Sp) {
        let carriers = [
            (Carrier::Stream, Carrier::Stream),
            (Carrier::Ipc, Carrier::Ipc),
            (Carrier::Web { masks: true }, Carrier::Web { masks: false }),
        ];
        for (ours, theirs) in carriers {
            let mut pair =
                Pair::open(Speech::sp(one, ours, LIMITS), Speech::sp(other, theirs, LIMITS));
            for body in [&b""[..], b"hello", &[1; 126], &long] {
                talk(&mut pair, one, &[body]);
            }
        }
    }
    for (one, other) in couples(Family::Zmq) {
        let mut pair = Pair::open(zmtp(one, None, true), zmtp(other, None, false));
        for frames in [&[&b"hello"[..]][..], &[b"topic", b"", &long], &[b"a", b"b"]] {
            talk(&mut pair, one, frames);
        }
    }
}

fn talk(pair: &mut Pair, one: Pattern, frames: &[&[u8]]) {
    if !one.asks() {
        assert_eq!(pair.say(0, &message(frames)), Heard::Message(message(frames)), "{one:?}");
        return;
    }
    let question = Message::question(77, frames.iter().map(|frame| frame.to_vec()).collect());
    let Heard::Message(heard) = pair.say(0, &question) else { panic!("a question") };
    assert_eq!(heard, question);
    let answer = Message { frames: vec![b"yes".to_vec()], ..heard };
    let Heard::Message(heard) = pair.say(1, &answer) else { panic!("an answer") };
    assert_eq!((heard.answered(), &heard.frames[0][..]), (Some(77), &b"yes"[..]));
}

#[test]
fn subscriptions_come_as_commands_and_as_messages() {
    let mut pair = Pair::open(zmtp(Pattern::Pub, None, true), zmtp(Pattern::Sub, None, false));
    pair.sides[1].subscribe(b"a/", &mut pair.wires[1]);
    pair.run().expect("understood");
    assert_eq!(pair.heard[0].pop_front(), Some(Heard::Subscribe(b"a/".to_vec())));
    // As 3.0 has it.
    pair.wires[1].extend_from_slice(b"\x00\x03\x01b/\x00\x03\x00b/");
    pair.run().expect("understood");
    let expected = [Heard::Subscribe(b"b/".to_vec()), Heard::Cancel(b"b/".to_vec())];
    assert_eq!(pair.heard[0], expected);
    pair.wires[1].extend_from_slice(b"\x04\x0b\x04PING\x00\x05cntx");
    let (said, mut out) = (std::mem::take(&mut pair.wires[1]), Vec::new());
    pair.sides[0].hear(&said, &mut VecDeque::new(), &mut out).expect("understood");
    assert_eq!(out, b"\x04\x09\x04PONGcntx");
}

#[test]
fn passwords_let_in_and_keep_out() {
    let plain = |password: &str| {
        Some(Plain { user_name: "ann".into(), password: password.as_bytes().into() })
    };
    let pull = |plain| zmtp(Pattern::Pull, plain, true);
    let push = |plain| zmtp(Pattern::Push, plain, false);
    let mut pair = Pair::open(pull(plain("right")), push(plain("right")));
    assert!(matches!(pair.say(1, &message(&[b"x"])), Heard::Message(_)));
    for password in ["wrong", "righ", "right2", ""] {
        let mut pair = Pair::new(pull(plain("right")), push(plain(password)));
        assert_eq!(pair.run(), Err(Broken::Credentials), "{password}");
    }
    let mut pair = Pair::new(pull(plain("right")), push(None));
    assert_eq!(pair.run(), Err(Broken::Mechanism("PLAIN".into())));
}

#[test]
fn who_does_not_go_with_us_is_told_apart() {
    let mut pair = Pair::new(zmtp(Pattern::Pull, None, true), zmtp(Pattern::Req, None, false));
    assert_eq!(pair.run(), Err(Broken::Pattern("REQ".into())));
    let sp = |pattern| Speech::sp(pattern, Carrier::Stream, LIMITS);
    let mut pair = Pair::new(sp(Pattern::Pull), sp(Pattern::Sub));
    assert_eq!(pair.run(), Err(Broken::Pattern("pull".into())));
}

/// What a peer's bytes are taken for, after the greetings where `greeted`.
fn broken(mut speech: Speech, greeting: &[u8], bytes: &[u8]) -> Broken {
    let (mut heard, mut out) = (VecDeque::new(), Vec::new());
    let said = [greeting, bytes].concat();
    let taken = speech.hear(&said, &mut heard, &mut out);
    taken.expect_err("it is broken")
}

#[test]
fn what_no_socket_says_ends_it() {
    let sp = |carrier| Speech::sp(Pattern::Pull, carrier, LIMITS);
    let header = b"\0SP\0\0\x50\0\0";
    let stream = |bytes: &[u8]| broken(sp(Carrier::Stream), header, bytes);
    assert_eq!(broken(sp(Carrier::Stream), b"", b"GET / HTTP"), Broken::Greeting);
    assert_eq!(
        broken(sp(Carrier::Stream), b"", b"\0SP\0\0\x50\0\x01"),
        Broken::Pattern("push".into())
    );
    assert_eq!(stream(&[0xFF; 8]), Broken::TooLarge);
    assert_eq!(stream(&100_001_u64.to_be_bytes()), Broken::TooLarge);
    assert!(matches!(broken(sp(Carrier::Ipc), header, b"\x02"), Broken::Command(_)));
    let web = |bytes: &[u8]| broken(sp(Carrier::Web { masks: false }), b"", bytes);
    assert!(matches!(web(b"\x82\x05"), Broken::Web(_)), "it is not masked");
    assert!(matches!(web(b"\xC2\x80"), Broken::Web(_)), "it has reserved bits");
    assert!(matches!(web(b"\x80\x80abcd"), Broken::Web(_)), "it continues nothing");
    assert_eq!(web(b"\x02\xFF\0\0\0\0\0\x01\x86\xA1"), Broken::TooLarge);
    assert_eq!(web(b"\x88\x80abcd"), Broken::Closed);

    let pull = || zmtp(Pattern::Pull, None, true);
    let mut greeting = Vec::new();
    zmtp(Pattern::Push, None, false).greet(&mut greeting);
    let ready = b"\x04\x20\x05READY\x0bSocket-Type\0\0\0\x04PUSH\x01x\0\0\0\0";
    let opened = [&greeting[..], ready].concat();
    assert_eq!(broken(pull(), b"", b"\x01\x00"), Broken::Greeting);
    let mut old = greeting.clone();
    old[10] = 1;
    assert_eq!(broken(pull(), b"", &old), Broken::Version(1));
    assert!(matches!(broken(pull(), &greeting, b"\0\x01x"), Broken::Command(_)), "too early");
    assert!(matches!(broken(pull(), &greeting, b"\x04\x00"), Broken::Command(_)), "no name");
    let ready = b"\x04\x09\x05READY\xffab";
    assert!(matches!(broken(pull(), &greeting, ready), Broken::Command(_)), "metadata is cut");
    let error = b"\x04\x0a\x05ERROR\x03no\n";
    assert_eq!(broken(pull(), &greeting, error), Broken::Refused("no ".into()));
    let error = b"\x04\x09^RROR\x03400";
    assert_eq!(broken(pull(), &greeting, error), Broken::Refused("400".into()));
    assert_eq!(broken(pull(), &opened, b"\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), Broken::TooLarge);
    assert_eq!(broken(pull(), &opened, b"\x06\0\0\0\0\0\0\x10\x01"), Broken::TooLarge);
    assert_eq!(broken(pull(), &opened, &b"\x01\0".repeat(300)), Broken::TooManyFrames);
    let mut large = vec![1, 255];
    large.resize(257, 7);
    assert_eq!(broken(pull(), &opened, &large.repeat(400)), Broken::TooManyFrames);
    let mut long = b"\x03\0\0\0\0\0\x01\x86\xA0".to_vec();
    long.resize(9 + 100_000, 7);
    long.extend_from_slice(b"\0\x01x");
    assert_eq!(broken(pull(), &opened, &long), Broken::TooLarge, "both frames together");
}

/// Sockets of ZeroMQ that wait for a command before hands are shaken, in each stage of that.
fn unshaken() -> Vec<Speech> {
    let plain = || Some(Plain { user_name: "ann".into(), password: b"right"[..].into() });
    let hello = b"\x04\x10\x05HELLO\x03ann\x05right";
    let stages: [(Option<Plain>, bool, &[u8]); 4] =
        [(None, true, b""), (plain(), true, b""), (plain(), true, hello), (plain(), false, b"")];
    let all = stages.into_iter().map(|(plain, listens, commands)| {
        let mut said = Vec::new();
        zmtp(Pattern::Push, plain.clone(), !listens).greet(&mut said);
        said.extend_from_slice(commands);
        let (mut speech, mut heard) = (zmtp(Pattern::Pull, plain, listens), VecDeque::new());
        let taken = speech.hear(&said, &mut heard, &mut Vec::new());
        assert_eq!((taken, heard.len()), (Ok(said.len()), 0));
        speech
    });
    all.collect()
}

#[test]
fn before_hands_are_shaken_only_a_short_command_is_waited_for() {
    let hears = |speech: &mut Speech, bytes: &[u8]| {
        speech.hear(bytes, &mut VecDeque::new(), &mut Vec::new())
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
        assert_eq!(hears(&mut speech, b"\x06\0\0\0\0\0\0\x10\x01"), Err(Broken::TooLarge));
    }
}

#[test]
fn what_has_no_envelope_is_astray() {
    let mut rep = Speech::sp(Pattern::Rep, Carrier::Stream, LIMITS);
    let mut heard = VecDeque::new();
    let said = b"\0SP\0\0\x30\0\0\0\0\0\0\0\0\0\x05\0\0\0\x01x";
    rep.hear(said, &mut heard, &mut Vec::new()).expect("understood");
    assert_eq!(heard, [Heard::Open, Heard::Astray]);
}

#[test]
fn an_envelope_has_ids_and_nothing_longer() {
    let of = |id: usize| {
        let frames = vec![vec![7; id], Vec::new(), b"q".to_vec()];
        crate::envelope::of_zmq(Pattern::Rep, frames)
    };
    assert!(matches!(of(255), Heard::Message(_)));
    assert_eq!(of(256), Heard::Astray);
}
