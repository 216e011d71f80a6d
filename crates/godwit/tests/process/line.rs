//! A TCP proxy that can stop forwarding without closing its connections.

use crate::broker::PATIENCE;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const CHUNK_BYTES: usize = 4096;

pub(crate) struct FreezableProxy {
    pub(crate) address: SocketAddr,
    is_frozen: Arc<AtomicBool>,
    is_mute: Arc<AtomicBool>,
    /// Whether data of the remote side was dropped while the proxy was frozen.
    has_swallowed: Arc<AtomicBool>,
}

impl FreezableProxy {
    pub(crate) fn to(far: SocketAddr) -> FreezableProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("this host has room for it");
        FreezableProxy::at(listener, far, Duration::ZERO)
    }

    /// Starts a proxy that forwards to the remote side at this rate. Its receive buffer is small,
    /// so the data waits at the sender.
    pub(crate) fn slow(far: SocketAddr, bytes_per_s: u32) -> FreezableProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("this host has room for it");
        // Connections have from it what they have when they come.
        let room = SockRef::from(&listener).set_recv_buffer_size(4 * CHUNK_BYTES);
        room.expect("a socket has a buffer");
        let pause = Duration::from_secs(1) * CHUNK_BYTES as u32 / bytes_per_s;
        FreezableProxy::at(listener, far, pause)
    }

    fn at(listener: TcpListener, far: SocketAddr, pause: Duration) -> FreezableProxy {
        let address = listener.local_addr().expect("this host has room for it");
        let (is_frozen, is_mute): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let (frozen, mute) = (is_frozen.clone(), is_mute.clone());
        let (has_swallowed, nobody_asks) = (Arc::<AtomicBool>::default(), Arc::default());
        let swallows = has_swallowed.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(far) else { continue };
                let ways = [
                    (&near, &far, &mute, &nobody_asks, pause),
                    (&far, &near, &frozen, &swallows, Duration::ZERO),
                ];
                for (from, to, stops, swallows, pause) in ways {
                    let (from, to) = (
                        from.try_clone().expect("this host has room for it"),
                        to.try_clone().expect("this host has room for it"),
                    );
                    let (stops, swallows) = (stops.clone(), swallows.clone());
                    thread::spawn(move || carry(from, to, (&stops, &swallows), pause));
                }
            }
        });
        FreezableProxy { address, is_frozen, is_mute, has_swallowed }
    }

    pub(crate) fn freeze(&self) {
        self.mute();
        self.is_frozen.store(true, SeqCst);
    }

    /// Drops data to the remote side from now on.
    pub(crate) fn mute(&self) {
        self.is_mute.store(true, SeqCst);
    }

    /// Waits until the frozen proxy has dropped data of the remote side.
    pub(crate) fn wait_until_it_swallowed(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.has_swallowed.load(SeqCst) {
            assert!(Instant::now() < until, "the far end says nothing");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn thaw(&self) {
        self.is_mute.store(false, SeqCst);
        self.is_frozen.store(false, SeqCst);
    }
}

/// Forwards data in one direction. Data that arrives while the proxy is frozen is dropped, and the
/// connection is closed once the proxy forwards again.
fn carry(
    mut from: TcpStream,
    mut to: TcpStream,
    (is_frozen, has_swallowed): (&AtomicBool, &AtomicBool),
    pause: Duration,
) {
    let mut buffer = [0; CHUNK_BYTES];
    let mut was_frozen = false;
    let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
    loop {
        let read = from.read(&mut buffer);
        was_frozen |= is_frozen.load(SeqCst);
        match read {
            Ok(len) if len > 0 && !was_frozen && to.write_all(&buffer[..len]).is_ok() => {
                thread::sleep(pause);
            }
            // Not even an end gets through.
            Ok(len) if was_frozen => {
                has_swallowed.fetch_or(len > 0, SeqCst);
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => break,
        }
        if was_frozen && !is_frozen.load(SeqCst) {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
