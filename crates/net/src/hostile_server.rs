//! A server for tests that answers whatever a script says, and a runtime as small as the control
//! plane's to ask it from.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// An answer to whatever comes next.
pub(crate) enum HostileAnswer {
    Bytes(Vec<u8>),
    /// The first of these bytes, and then the others until nobody reads them.
    Endless(Vec<u8>, Vec<u8>),
}

const OURS: &str = "it is the test's own";

/// Plays the script for one connection and closes it. Returns the port.
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

/// Runs on a thread whose stack is that of the control plane.
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
