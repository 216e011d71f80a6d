//! `godwit pub` and `godwit sub` against a scripted broker that violates the protocol, or uses
//! features which godwit rarely uses.

use crate::broker::run;
use mqtt::{Packet, PropertiesBuf, Property, ProtocolVersion, Publish, QoS};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Starts a broker of MQTT 5.0 whose response to each packet is given by `answer`. Returns its
/// port, and the received packets in the notation of transcripts.
fn scripted_broker(
    answer: impl Fn(&Packet<'_>) -> Vec<u8> + Send + 'static,
) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    let (told, came) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &told, &answer);
        }
    });
    (port.to_string(), came)
}

fn serve(mut stream: TcpStream, told: &Sender<String>, answer: &impl Fn(&Packet<'_>) -> Vec<u8>) {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Ok(Some(frame)) = mqtt::split_frame(&read, u32::MAX) {
            let len = frame.len;
            let packet = Packet::decode(frame, ProtocolVersion::V5).expect("well formed");
            let _ = told.send(packet.to_string());
            if stream.write_all(&answer(&packet)).is_err() {
                return;
            }
            read.drain(..len);
        }
        match stream.read(&mut buffer) {
            Ok(len @ 1..) => read.extend_from_slice(&buffer[..len]),
            _ => return,
        }
    }
}

const CONNACK: &[u8] = b"\x20\x03\0\0\0";

/// Returns the packets of a client up to DISCONNECT, without CONNECT.
fn packets(came: &Receiver<String>) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(packet) = came.recv_timeout(Duration::from_secs(20)) {
        let is_last = packet.starts_with("DISCONNECT");
        all.push(packet);
        if is_last {
            break;
        }
    }
    all.remove(0);
    all
}

#[test]
fn wrong_acknowledgements_count_for_nothing() {
    let (port, came) = scripted_broker(|packet| match packet {
        Packet::Connect(_) => CONNACK.to_vec(),
        // Of no message, of another state, of another QoS, and of the client itself.
        Packet::Publish(publish) if publish.qos == QoS::AtLeastOnce => {
            b"\x40\x02\0\x09\x50\x02\0\x01\x70\x02\0\x01\x90\x04\0\x01\0\0\x20\x03\0\0\0\xc0\0\
              \x40\x02\0\x01"
                .to_vec()
        }
        // PUBCOMP and PUBACK before PUBREC, which comes twice.
        Packet::Publish(_) => {
            b"\x70\x02\0\x01\x40\x02\0\x01\x50\x02\0\x02\x50\x02\0\x01\x50\x02\0\x01".to_vec()
        }
        Packet::PubRel(_) => b"\x70\x02\0\x01".to_vec(),
        _ => Vec::new(),
    });
    let publish = |qos| {
        let line = ["pub", "-p", &port, "-V", "5", "-t", "t", "-m", "x", "-q", qos];
        let (code, _, stderr) = run(&line);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        packets(&came)
    };
    let sent = publish("1");
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].starts_with("PUBLISH 1 "), "{sent:?}");
    let sent = publish("2");
    let kinds: Vec<&str> = sent.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(kinds[..2], ["PUBLISH", "PUBREL"], "{sent:?}");
    assert_eq!(kinds.last(), Some(&"DISCONNECT"), "{sent:?}");
}

#[test]
fn a_refused_message_is_over() {
    let (port, came) = scripted_broker(|packet| match packet {
        Packet::Connect(_) => CONNACK.to_vec(),
        Packet::Publish(_) => b"\x50\x03\0\x01\x87".to_vec(),
        _ => Vec::new(),
    });
    let line = ["pub", "-p", &port, "-V", "5", "-t", "t", "-m", "x", "-q", "2"];
    let (code, _, stderr) = run(&line);
    assert_eq!(code, Some(0x87), "{stderr}");
    assert_eq!(packets(&came).len(), 2, "there is nothing to release");
}

/// Appends a QoS 2 PUBLISH with a topic alias and a topic, which may be empty.
fn aliased(topic: &str, alias: u16, id: u16, out: &mut Vec<u8>) {
    let mut properties = PropertiesBuf::default();
    properties.push(Property::TopicAlias(alias));
    let publish = Publish {
        dup: false,
        qos: QoS::ExactlyOnce,
        retain: false,
        topic,
        packet_id: mqtt::PacketId::new(id),
        properties: properties.as_properties(),
        payload: b"x",
    };
    publish.encode(ProtocolVersion::V5, out);
}

/// Starts a scripted broker that sends the bytes of `behind` directly after SUBACK.
fn subscribed_and(behind: impl Fn(&mut Vec<u8>) + Send + 'static) -> (String, Receiver<String>) {
    scripted_broker(move |packet| match packet {
        Packet::Connect(_) => CONNACK.to_vec(),
        Packet::Subscribe(asked) => {
            let [high, low] = asked.packet_id.get().to_be_bytes();
            let mut answer = vec![0x90, 4, high, low, 0, 2];
            behind(&mut answer);
            answer
        }
        _ => Vec::new(),
    })
}

const ALIASES: [&str; 4] = ["-D", "connect", "topic-alias-maximum", "2"];

#[test]
fn topic_aliases_stand_for_topics() {
    let (port, came) = subscribed_and(|out| {
        aliased("a", 1, 1, out);
        aliased("b", 2, 2, out);
        aliased("", 1, 3, out);
        // The same message again, and one behind its release.
        aliased("", 1, 3, out);
        out.extend_from_slice(b"\x62\x02\0\x03");
        aliased("", 2, 3, out);
    });
    let line = ["sub", "-p", &port, "-q", "2", "-t", "#", "-C", "4", "-F", "%t"];
    let (code, stdout, stderr) = run(&[&line[..], &ALIASES].concat());
    assert_eq!((code, stdout.as_str()), (Some(0), "a\nb\na\nb\n"), "{stderr}");
    let kinds: Vec<String> =
        packets(&came).iter().filter_map(|line| line.split(' ').next()).map(Into::into).collect();
    let expected =
        ["SUBSCRIBE", "PUBREC", "PUBREC", "PUBREC", "PUBREC", "PUBCOMP", "PUBREC", "DISCONNECT"];
    assert_eq!(kinds, expected);
}

#[test]
fn an_alias_that_stands_for_nothing_ends_the_connection() {
    let (port, _came) = subscribed_and(|out| aliased("", 1, 1, out));
    let line = ["sub", "-p", &port, "-q", "2", "-t", "#", "-W", "0.5", "-F", "%t"];
    let (code, stdout, stderr) = run(&[&line[..], &ALIASES].concat());
    assert_eq!((code, stdout.as_str()), (Some(27), ""), "{stderr}");
    assert!(stderr.contains("the broker broke the protocol"), "{stderr}");
}
