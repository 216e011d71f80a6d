//! Memory and processor time of an idle server, the only test in its process.

use broker::BrokerOptions;
use engine::{Server, ServerOptions};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn waiting_for_a_client_that_does_not_read_costs_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let setup = ServerOptions {
        auth_handler: None,
        authz_handler: None,
        listeners: vec![listener.into()],
        shards: 2,
        io_uring: true,
        descriptors_reserved: 0,
        options: Arc::new(BrokerOptions { write_bytes_max: 64 * 1024, ..BrokerOptions::default() }),
        seed: 7,
        store: None,
        log: Box::new(|_| {}),
    };
    let server = Server::start(setup).expect("it starts");
    server.open_listeners().expect("it listens");
    let mut client = TcpStream::connect(address).expect("it listens");
    // CONNECT of 3.1.1, SUBSCRIBE to `t`, and 40 MB to it, of which nothing is ever read back.
    client.write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c").expect("it reads");
    client.write_all(b"\x82\x06\0\x01\0\x01t\0").expect("it reads");
    client.set_write_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let mut publish = b"\x30\x83\x80\x04\0\x01t".to_vec();
    publish.resize(4 + 3 + 65536, b'x');
    // The unsent answers stop growing, so in the end no more is read from the client either.
    let mut sent = 0;
    while sent < 640 && client.write_all(&publish).is_ok() {
        sent += 1;
    }
    client.write_all(b"\xc0").ok();
    std::thread::sleep(Duration::from_millis(300));
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(1000));
    let spent = processor_time() - before;
    assert!(spent < Duration::from_millis(50), "{spent:?} of a second");
    drop(client);
    server.stop().expect("it stops");
}
