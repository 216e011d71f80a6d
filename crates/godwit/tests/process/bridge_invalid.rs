//! A bridge to a broker that sends invalid messages: the bridge logs, counts and acknowledges the
//! invalid messages, and the valid messages behind them arrive.

use crate::bridges::{edge, servers, wait_for_value};
use crate::clients::subscriber;
use mqtt::{Packet, ProtocolVersion};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Topics of the retained messages: valid ones, and invalid ones which a broker of MQTT 3.1.1
/// without checks may have stored.
const TOPICS: [&[u8]; 5] = [b"good/1", b"bad/\xff\xfe", b"bad/\0", b"bad/+", b"good/2"];

/// Starts a remote broker that sends a retained message for each of `TOPICS` upon every SUBSCRIBE.
/// The packet ids of finished messages go to `acknowledged`.
fn broker_of_bad_topics(qos: u8, acknowledged: Sender<u16>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let told = acknowledged.clone();
            thread::spawn(move || serve(stream, qos, &told));
        }
    });
    address
}

fn serve(mut stream: TcpStream, qos: u8, acknowledged: &Sender<u16>) {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(len) = stream.read(&mut buffer) {
        if len == 0 {
            return;
        }
        read.extend_from_slice(&buffer[..len]);
        while let Ok(Some(frame)) = mqtt::split_frame(&read, u32::MAX) {
            let len = frame.len;
            let answer = match Packet::decode(frame, ProtocolVersion::V311) {
                Ok(Packet::Connect(_)) => b"\x20\x02\0\0".to_vec(),
                // A bridge says so in its version.
                Err(_) => b"\x20\x02\0\0".to_vec(),
                Ok(Packet::Subscribe(asked)) => {
                    let [high, low] = asked.packet_id.get().to_be_bytes();
                    let mut answer = vec![0x90, 3, high, low, qos];
                    (1..).zip(TOPICS).for_each(|(id, topic)| publish(qos, id, topic, &mut answer));
                    answer
                }
                Ok(Packet::PubAck(ack)) => {
                    let _ = acknowledged.send(ack.packet_id.get());
                    Vec::new()
                }
                Ok(Packet::PubRec(ack)) => {
                    let [high, low] = ack.packet_id.get().to_be_bytes();
                    vec![0x62, 2, high, low]
                }
                Ok(Packet::PubComp(ack)) => {
                    let _ = acknowledged.send(ack.packet_id.get());
                    Vec::new()
                }
                Ok(Packet::PingReq) => b"\xd0\0".to_vec(),
                Ok(_) => Vec::new(),
            };
            read.drain(..len);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn publish(qos: u8, id: u16, topic: &[u8], out: &mut Vec<u8>) {
    let id = id.to_be_bytes();
    let id = if qos > 0 { &id[..] } else { &[] };
    out.extend([0x31 | qos << 1, (3 + topic.len() + id.len()) as u8, 0, topic.len() as u8]);
    out.extend_from_slice(topic);
    out.extend_from_slice(id);
    out.push(b'x');
}

#[test]
fn topics_that_are_not_valid_are_named_and_what_is_behind_them_gets_through() {
    for qos in [0, 1, 2] {
        let (told, acknowledged) = channel();
        let far = broker_of_bad_topics(qos, told);
        let rules =
            "version = \"3.1.1\"\n[[bridge.in]]\nfilter = \"#\"\ntopic = \"from/${topic}\"\n";
        let (mut near, _) = edge("bridge-invalid", &(servers(far) + rules), &[]);
        for named in [r"bad/\\xff\\xfe:", r"bad/\0:", "bad/+:"] {
            near.program.wait_for(named);
        }
        wait_for_value(&near, "dropped/invalid_publish", |count| count == "3");
        wait_for_value(&near, "in/messages", |count| count == "2");
        let wants = ["-V", "5", "-t", "from/#", "-C", "2", "-W", "20", "-F", "%t"];
        let (code, came) = subscriber(&near.port(), &wants).finish();
        assert_eq!((code, came.as_str()), (Some(0), "from/good/1\nfrom/good/2\n"), "QoS {qos}");
        let mut ids: Vec<u16> = Vec::new();
        while qos > 0 && ids.len() < TOPICS.len() {
            ids.push(acknowledged.recv_timeout(Duration::from_secs(20)).expect("all are"));
        }
        ids.sort_unstable();
        assert_eq!(ids, if qos > 0 { vec![1, 2, 3, 4, 5] } else { vec![] }, "QoS {qos}");
        assert_eq!(wait_for_value(&near, "connects", |count| !count.is_empty()), "1");
    }
}
