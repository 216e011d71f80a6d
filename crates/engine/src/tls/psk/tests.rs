//! Tests against a client of OpenSSL, connected by memory.

use super::*;

const IDENTITY: &str = "sensor-7";
const KEY: &[u8] = b"0123456789abcdef";

fn keys() -> PskKeys {
    let keys = [(IDENTITY, KEY), ("other", b"\0\x01")];
    PskKeys::new(keys.map(|(identity, key)| (identity.into(), key.into())).into()).unwrap()
}

fn client(identity: &'static [u8], key: &'static [u8], suites: &str) -> SslStream<RecordBuffers> {
    let mut context = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
    context.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
    context.set_cipher_list(suites).unwrap();
    context.set_psk_client_callback(move |_, _, identity_room, key_room| {
        identity_room[..identity.len()].copy_from_slice(identity);
        identity_room[identity.len()] = 0;
        key_room[..key.len()].copy_from_slice(key);
        Ok(key.len())
    });
    let ssl = Ssl::new(&context.build()).unwrap();
    SslStream::new(ssl, RecordBuffers::default()).unwrap()
}

/// The server side, with the partial record that `TransportStack` keeps.
struct PskServerSide {
    keyed: PskLayer,
    raw: Vec<u8>,
    plain: Vec<u8>,
    sealed: SealedBuffer,
}

impl PskServerSide {
    fn new() -> PskServerSide {
        let (raw, plain) = (Vec::new(), Vec::new());
        PskServerSide {
            keyed: PskLayer::Silent(keys()),
            raw,
            plain,
            sealed: SealedBuffer::default(),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<bool, TlsError> {
        self.raw.extend_from_slice(bytes);
        let taken = self.keyed.decode(&self.raw, &mut self.plain, &mut self.sealed)?;
        self.raw.drain(..taken.consumed);
        if let PskLayer::Talking(connection) = &self.keyed {
            let wire = connection.stream.get_ref();
            assert!(wire.incoming.is_empty() && wire.outgoing.is_empty(), "nothing stays");
        }
        Ok(taken.ended)
    }

    fn answer(&mut self) -> Vec<u8> {
        let answer = self.sealed.bytes().to_vec();
        self.sealed.clear();
        answer
    }

    /// Runs the handshake to its end, passing on `step` bytes at a time.
    fn shake(
        &mut self,
        client: &mut SslStream<RecordBuffers>,
        step: usize,
    ) -> Result<(), TlsError> {
        for _ in 0..10 {
            let done = client.connect();
            let said = std::mem::take(&mut client.get_mut().outgoing);
            for part in said.chunks(step) {
                self.take(part)?;
            }
            if done.is_ok() {
                return Ok(());
            }
            let incoming = self.answer();
            *client.get_mut() = RecordBuffers { incoming, ..RecordBuffers::default() };
        }
        panic!("it goes on without an end");
    }
}

fn shaken(suites: &str) -> (PskServerSide, SslStream<RecordBuffers>) {
    let (mut ours, mut client) = (PskServerSide::new(), client(IDENTITY.as_bytes(), KEY, suites));
    ours.shake(&mut client, usize::MAX).unwrap();
    (ours, client)
}

/// Returns the records in which the client sends `words`.
fn sealed(client: &mut SslStream<RecordBuffers>, words: &[u8]) -> Vec<u8> {
    client.write_all(words).unwrap();
    std::mem::take(&mut client.get_mut().outgoing)
}

fn name(ours: &PskServerSide) -> Option<Box<str>> {
    ours.keyed.certificate().and_then(|names| names.common_name.clone())
}

#[test]
fn every_suite_that_is_offered_is_spoken() {
    for suite in SUITES.split(':') {
        let (mut ours, mut client) = shaken(&format!("{suite}:@SECLEVEL=0"));
        assert!(ours.keyed.is_ready());
        assert_eq!(name(&ours).as_deref(), Some(IDENTITY));
        assert_eq!(client.ssl().current_cipher().map(|suite| suite.name()), Some(suite));
        assert!(!ours.take(&sealed(&mut client, b"there")).unwrap());
        assert_eq!(ours.plain, b"there");
        ours.keyed.seal(b"and back", &mut ours.sealed).unwrap();
        let incoming = ours.answer();
        *client.get_mut() = RecordBuffers { incoming, ..RecordBuffers::default() };
        let mut heard = [0; 8];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(heard, *b"and back");
    }
}

#[test]
fn a_byte_at_a_time_is_enough_and_large_messages_pass_whole() {
    let (mut ours, mut client) = (PskServerSide::new(), client(IDENTITY.as_bytes(), KEY, "PSK"));
    ours.shake(&mut client, 1).unwrap();
    let large: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let said = sealed(&mut client, &large);
    said.chunks(7001).for_each(|part| assert!(!ours.take(part).unwrap()));
    assert!(ours.plain == large);
    ours.keyed.seal(&large, &mut ours.sealed).unwrap();
    let incoming = ours.answer();
    *client.get_mut() = RecordBuffers { incoming, ..RecordBuffers::default() };
    let mut heard = vec![0; large.len()];
    client.read_exact(&mut heard).unwrap();
    assert!(heard == large);
}

#[test]
fn either_side_says_when_nothing_more_comes() {
    let (mut ours, mut client) = shaken("PSK");
    ours.keyed.close(&mut ours.sealed);
    let incoming = ours.answer();
    *client.get_mut() = RecordBuffers { incoming, ..RecordBuffers::default() };
    assert_eq!(client.ssl_read(&mut [0; 1]).unwrap_err().code(), ErrorCode::ZERO_RETURN);
    let (mut ours, mut client) = shaken("PSK");
    let mut said = sealed(&mut client, b"last");
    let _ = client.shutdown();
    said.append(&mut client.get_mut().outgoing);
    assert!(ours.take(&said).unwrap());
    assert_eq!(ours.plain, b"last");
}

#[test]
fn who_has_no_key_cannot_tell_whether_there_is_the_identity() {
    let refused = |identity, key| {
        let (mut ours, mut client) = (PskServerSide::new(), client(identity, key, "PSK"));
        let why = ours.shake(&mut client, usize::MAX).unwrap_err();
        assert!(!ours.keyed.is_ready());
        (ours.answer(), why.to_string())
    };
    let (answer, why) = refused(IDENTITY.as_bytes(), b"not the key");
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 20], "bad_record_mac");
    assert_eq!(why, "TLS: the key is not that of identity \"sensor-7\"");
    for (identity, shown) in [
        (&b"nobody"[..], "\"nobody\""),
        (b"", "\"\""),
        (b"\xff\n", "\"\u{fffd}\\n\""),
        (&[b'i'; 255], &*format!("\"{}\"", "i".repeat(255))),
    ] {
        let said = refused(identity, KEY);
        assert_eq!(said, (answer.clone(), format!("TLS: nobody has identity {shown}")));
    }
}

#[test]
fn what_shares_no_suite_or_version_hears_so() {
    let refused = |suites, oldest| {
        let (mut ours, mut client) =
            (PskServerSide::new(), client(IDENTITY.as_bytes(), KEY, suites));
        let ssl = client.ssl().ssl_context().to_owned();
        let mut ssl = Ssl::new(&ssl).unwrap();
        ssl.set_max_proto_version(oldest).unwrap();
        ssl.set_min_proto_version(oldest).unwrap();
        client = SslStream::new(ssl, RecordBuffers::default()).unwrap();
        let why = ours.shake(&mut client, usize::MAX).unwrap_err();
        (ours.answer(), why.to_string())
    };
    let (answer, why) = refused("ECDHE-ECDSA-AES128-GCM-SHA256", Some(SslVersion::TLS1_2));
    assert_eq!((&answer[..], &*why), (&[21, 3, 3, 0, 2, 2, 40][..], "TLS: no shared cipher"));
    let (answer, why) = refused("PSK", Some(SslVersion::TLS1_3));
    assert_eq!((&answer[5..], &*why), (&[2, 70][..], "TLS: unsupported protocol"));
}

#[test]
fn what_is_no_hello_is_not_begun_with() {
    let hello = {
        let mut client = client(IDENTITY.as_bytes(), KEY, "PSK");
        assert!(client.connect().is_err_and(|why| why.code() == ErrorCode::WANT_READ));
        std::mem::take(&mut client.get_mut().outgoing)
    };
    let changed = |at: usize, byte: u8| {
        let mut changed = hello.clone();
        changed[at] = byte;
        changed
    };
    for wrong in [
        b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c".to_vec(),
        b"GET / HTTP/1.1\r\n".to_vec(),
        b"\x80\x2e\x01\x03\x03".to_vec(),
        // Not a handshake; another message; a message of 64 KiB; an impossible record.
        changed(0, 23),
        changed(5, 2),
        changed(6, 1),
        changed(3, 0x50),
    ] {
        let mut ours = PskServerSide::new();
        assert!(matches!(ours.take(&wrong), Err(TlsError::Psk(PskError::NoHello))), "{wrong:?}");
        assert_eq!(ours.answer(), UNEXPECTED_MESSAGE);
        assert!(ours.keyed.is_silent());
    }
}

#[test]
fn records_that_nobody_sealed_end_the_connection() {
    for round in 0..3 {
        let (mut ours, mut client) = shaken("PSK");
        let mut said = sealed(&mut client, b"words");
        match round {
            0 => said[12] ^= 1,
            1 => said.extend(said.clone()),
            _ => said = [23, 3, 3, 0, 0].repeat(1000),
        }
        let why = ours.take(&said).unwrap_err();
        assert!(matches!(why, TlsError::Psk(PskError::OpenSsl(_))), "{why}");
        assert!(!ours.answer().is_empty(), "an alert");
    }
}

#[test]
fn an_empty_answer_of_either_side_is_no_error() {
    let (mut ours, _) = shaken("PSK");
    assert!(!ours.take(b"").unwrap());
    ours.keyed.seal(b"", &mut ours.sealed).unwrap();
    assert_eq!(ours.answer(), b"");
}
