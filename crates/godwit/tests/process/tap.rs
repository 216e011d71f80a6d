//! A proxy between a bridge and the remote broker that inspects every packet.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Direction of a packet: to the bridge (`Near`) or to the remote broker (`Far`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TapDirection {
    Near,
    Far,
}

/// Starts a proxy that forwards connections for which `lets_in` is true to `far`. `look` inspects
/// each packet, with the socket of the bridge; if `look` returns false, the packet is dropped and
/// the connection is closed.
pub(crate) fn tap(
    far: SocketAddr,
    lets_in: impl Fn() -> bool + Send + 'static,
    look: impl Fn(TapDirection, &[u8], &TcpStream) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("this host has room for it");
    let address = listener.local_addr().expect("it is bound");
    let look = Arc::new(look);
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok).filter(|_| lets_in()) {
            let Ok(far) = TcpStream::connect(far) else { continue };
            for towards in [TapDirection::Far, TapDirection::Near] {
                let (near, far, look) = (own(&near), own(&far), look.clone());
                thread::spawn(move || match towards {
                    TapDirection::Far => carry(&near, &far, |packet| look(towards, packet, &near)),
                    TapDirection::Near => carry(&far, &near, |packet| look(towards, packet, &near)),
                });
            }
        }
    });
    address
}

/// Returns a second handle of the socket, without Nagle's algorithm.
fn own(stream: &TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("a socket");
    stream.try_clone().expect("a socket")
}

/// Forwards packets while `goes_on` returns true for each.
fn carry(mut from: &TcpStream, mut to: &TcpStream, goes_on: impl Fn(&[u8]) -> bool) {
    let (mut read, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        read.extend_from_slice(&buffer[..len]);
        let (mut done, mut is_over) = (0, false);
        while let Ok(Some(frame)) = mqtt::split_frame(&read[done..], u32::MAX) {
            is_over = !goes_on(&read[done..done + frame.len]);
            if is_over {
                break;
            }
            done += frame.len;
        }
        if to.write_all(&read[..done]).is_err() || is_over {
            break;
        }
        read.drain(..done);
    }
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}
