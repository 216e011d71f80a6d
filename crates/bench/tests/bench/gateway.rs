//! A WebSocket server before a broker that speaks TCP: unwraps one way, wraps the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Where it listens.
pub(crate) fn start(broker: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(client, broker));
        }
    });
    address
}

fn serve(client: TcpStream, broker: SocketAddr) -> Option<()> {
    let broker = TcpStream::connect(broker).ok()?;
    let mut from = BufReader::new(client.try_clone().ok()?);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        from.read_line(&mut request).ok().filter(|read| *read > 0)?;
    }
    // RFC 6455, 4.2.1, and the subprotocol that MQTT wants [MQTT-6.0.0-3].
    for line in ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mqtt"]
    {
        assert!(request.contains(line), "{request}");
    }
    let answer = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    (&client).write_all(answer.as_bytes()).ok()?;
    let (mut back, mut to_client) = (broker.try_clone().ok()?, client.try_clone().ok()?);
    thread::spawn(move || {
        let mut buffer = [0; 10_000];
        while let Ok(read @ 1..) = back.read(&mut buffer) {
            let mut frame = vec![0x82];
            match read {
                0..=125 => frame.push(read as u8),
                _ => frame.extend_from_slice(&[126, (read >> 8) as u8, read as u8]),
            }
            frame.extend_from_slice(&buffer[..read]);
            if to_client.write_all(&frame).is_err() {
                return;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let unwrapped = unwrap(&mut from, broker.try_clone().ok()?);
    let _ = broker.shutdown(Shutdown::Both);
    unwrapped
}

/// Until the client is done.
fn unwrap(from: &mut impl Read, mut to: TcpStream) -> Option<()> {
    loop {
        let mut head = [0; 2];
        from.read_exact(&mut head).ok()?;
        assert!(head[1] & 0x80 != 0, "a client masks");
        let long = match head[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let (mut len, mut mask) = ([0; 8], [0; 4]);
        from.read_exact(&mut len[8 - long..]).ok()?;
        from.read_exact(&mut mask).ok()?;
        let len = if long == 0 { u64::from(head[1] & 0x7F) } else { u64::from_be_bytes(len) };
        let mut payload = vec![0; len as usize];
        from.read_exact(&mut payload).ok()?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        to.write_all(&payload).ok()?;
    }
}
