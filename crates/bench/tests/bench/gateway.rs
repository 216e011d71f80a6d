//! A WebSocket server in front of a broker with TCP: removes and adds WebSocket frames.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use websocket_codec::{FrameDecoder, FrameOpcode, FrameRules, StreamProgress, write_frame};

/// Starts the server. Returns its address.
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

/// Starts a TLS server in front of another server. Returns its address.
pub(crate) fn secured(plain: SocketAddr, certificate: &str, key: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    let chain = CertificateDer::pem_file_iter(certificate).expect("a file of ours");
    let chain = chain.collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key of ours");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("the provider has them");
    let config = config.with_no_client_auth().with_single_cert(chain, key).expect("they fit");
    let config = Arc::new(config);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&config);
            thread::spawn(move || unveil(client, plain, config));
        }
    });
    address
}

fn unveil(client: TcpStream, plain: SocketAddr, config: Arc<ServerConfig>) -> Option<()> {
    let mut below = TcpStream::connect(plain).ok()?;
    for stream in [&client, &below] {
        stream.set_read_timeout(Some(TURN)).ok()?;
        stream.set_nodelay(true).ok()?;
    }
    let mut tls = StreamOwned::new(ServerConnection::new(config).ok()?, client);
    loop {
        pass(&mut tls, &mut below)?;
        pass(&mut below, &mut tls)?;
    }
}

/// Forwards the bytes that are available. Returns `None` at the end of the stream.
fn pass(from: &mut impl Read, to: &mut impl Write) -> Option<()> {
    let mut buffer = [0; 10_000];
    match from.read(&mut buffer) {
        Ok(read @ 1..) => to.write_all(&buffer[..read]).ok(),
        Err(error) if [WouldBlock, TimedOut].contains(&error.kind()) => Some(()),
        _ => None,
    }
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
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))?;
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {}\r\n\
         Sec-WebSocket-Protocol: mqtt\r\n\r\n",
        transport::accept_key_of(key)
    );
    (&client).write_all(answer.as_bytes()).ok()?;
    let (mut back, mut to_client) = (broker.try_clone().ok()?, client.try_clone().ok()?);
    thread::spawn(move || {
        let mut buffer = [0; 10_000];
        while let Ok(read @ 1..) = back.read(&mut buffer) {
            let mut frame = Vec::new();
            write_frame(FrameOpcode::Binary, read, [&buffer[..read]], None, &mut frame);
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

/// Forwards the payloads of a client's frames until the client ends.
fn unwrap(from: &mut impl Read, mut to: TcpStream) -> Option<()> {
    let rules = FrameRules { from_client: true, accepts_text: false, payload_bytes_max: u32::MAX };
    let mut frames = FrameDecoder::default();
    loop {
        let mut buffer = vec![0; 10_000];
        let read = from.read(&mut buffer).ok()?;
        buffer.truncate(read);
        let progress = frames.decode(&mut buffer, 0, &rules, None, &mut Vec::new());
        to.write_all(&buffer).ok()?;
        if read == 0 || progress.expect("a client's frames") != StreamProgress::Open {
            return None;
        }
    }
}

const TURN: Duration = Duration::from_millis(1);
