//! A scripted server for tests, and a runtime with the small stack of the control plane to call it.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// An answer of [`serve`] to the next read, whatever the request.
pub(crate) enum HostileAnswer {
    Bytes(Vec<u8>),
    /// The first bytes once, then the other bytes repeatedly until the peer stops reading.
    Endless(Vec<u8>, Vec<u8>),
}

const OURS: &str = "it is the test's own";

/// Plays the script for one connection and closes the connection. Returns the port.
pub(crate) fn serve(script: Vec<HostileAnswer>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect(OURS);
    let port = listener.local_addr().expect(OURS).port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect(OURS);
        for answer in script {
            if !matches!(stream.read(&mut [0; 65_536]), Ok(1..)) {
                return;
            }
            match answer {
                HostileAnswer::Bytes(bytes) => _ = stream.write_all(&bytes),
                HostileAnswer::Endless(first, others) => {
                    let mut is_read = stream.write_all(&first).is_ok();
                    while is_read {
                        is_read = stream.write_all(&others).is_ok();
                    }
                }
            }
        }
    });
    port
}

/// Runs `work` on a thread with the control plane's `STACK_BYTES`.
pub(crate) fn run_on_small_stack<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("this host has room for it").block_on(work)
    };
    let thread = thread::Builder::new().stack_size(crate::control_runtime::STACK_BYTES);
    thread.spawn(run).expect("this host has room for it").join().expect("it does not panic")
}
