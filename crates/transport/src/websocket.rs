//! Client half of WebSocket (RFC 6455), limited to the needs of MQTT: one upgrade, binary frames in
//! both directions, answers to pings, and a close frame as the end of the stream.
//!
//! MQTT over WebSocket is a byte stream: frame boundaries and packet boundaries are independent
//! (MQTT 5.0, 6).

use base64ct::{Base64, Encoding};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::io::{self, Read, Write};
use websocket_codec::{
    CloseStatus, FrameDecoder, FrameError, FrameOpcode, FrameRules, StreamProgress, write_close,
    write_frame,
};

#[derive(Debug)]
pub(super) struct WebSocketClient {
    /// Upgrade request; `None` after the server has accepted the upgrade.
    pending_upgrade: Option<WebSocketUpgrade>,
    masks: MaskGenerator,
    /// Accepted and unwritten bytes: the request, then frames.
    out: Vec<u8>,
    /// Received bytes that are not read yet: the response to the upgrade, then payload.
    input: Vec<u8>,
    frames: FrameDecoder,
    /// State after the decoded frames. Payload before the end is read first.
    progress: Result<StreamProgress, FrameError>,
}

/// Rules for frames of a server, of any length: payload is passed on as it arrives.
const FRAME_RULES: FrameRules =
    FrameRules { from_client: false, accepts_text: false, payload_bytes_max: u32::MAX };

/// The HTTP request that upgrades a connection to WebSocket [RFC 6455, 4.1].
#[derive(Debug)]
pub struct WebSocketUpgrade {
    pub request: String,
    accept_key: String,
}

impl WebSocketUpgrade {
    pub fn new(host: &str, path: &str, subprotocol: &str) -> WebSocketUpgrade {
        let key = Base64::encode_string(&random::<16>());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
        );
        WebSocketUpgrade { request, accept_key: accept_key_of(&key) }
    }

    /// Checks the head of the response: status 101, and a Sec-WebSocket-Accept for the key of this
    /// request (RFC 6455, 4.1).
    pub fn check(&self, head: &[u8]) -> Result<(), String> {
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        if !first.starts_with("HTTP/1.1 101") {
            return Err(format!("no upgrade: {first}"));
        }
        let mut headers = lines.filter_map(|line| line.split_once(':'));
        let proof = headers.find(|(name, _)| name.eq_ignore_ascii_case("Sec-WebSocket-Accept"));
        match proof {
            Some((_, proof)) if proof.trim() == self.accept_key => Ok(()),
            _ => Err("no upgrade: its Sec-WebSocket-Accept is not for our key".to_string()),
        }
    }
}

/// Returns the end of the head of a request or response, or `None` while the head is incomplete. An
/// earlier call found no end in the first `seen` bytes.
pub fn http_head_end(head: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(HEAD_END.len() - 1);
    let at = head[from..].windows(HEAD_END.len()).position(|window| window == HEAD_END)?;
    Some(from + at + HEAD_END.len())
}

const HEAD_END: &[u8] = b"\r\n\r\n";

/// Returns Sec-WebSocket-Accept for a key: the proof that the server speaks WebSocket and has read
/// the key (RFC 6455, 4.2.2).
pub fn accept_key_of(key: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, [key.as_bytes(), GUID].concat().as_slice());
    Base64::encode_string(hash.as_ref())
}

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns random bytes, or zeros if the system's generator fails: keys and masks do not protect
/// secrets.
fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

/// Generates the masking key of each frame. The keys cannot be predicted from payloads, so a
/// payload cannot imitate a request at a proxy [RFC 6455, 5.3]. The seed comes from the system's
/// random generator.
#[derive(Debug)]
struct MaskGenerator(fastrand::Rng);

impl MaskGenerator {
    fn next(&mut self) -> [u8; 4] {
        self.0.u32(..).to_ne_bytes()
    }
}

impl WebSocketClient {
    pub(super) fn new(host: &str, path: &str) -> WebSocketClient {
        let asked = WebSocketUpgrade::new(host, path, "mqtt");
        WebSocketClient {
            out: asked.request.clone().into_bytes(),
            pending_upgrade: Some(asked),
            masks: MaskGenerator(fastrand::Rng::with_seed(u64::from_ne_bytes(random()))),
            input: Vec::new(),
            frames: FrameDecoder::default(),
            progress: Ok(StreamProgress::Open),
        }
    }

    /// Continues the upgrade. Returns whether the server has accepted the upgrade.
    pub(super) fn poll_upgrade(&mut self, below: &mut (impl Read + Write)) -> io::Result<bool> {
        match self.write_pending(below) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            pushed => pushed?,
        }
        while self.pending_upgrade.is_some() {
            if !self.fill(below)? {
                return Ok(false);
            }
            let Some(end) = http_head_end(&self.input, 0) else {
                if self.input.len() > ANSWER_BYTES_MAX {
                    return Err(io::Error::other("the answer to the upgrade does not end"));
                }
                continue;
            };
            if let Some(asked) = self.pending_upgrade.take() {
                asked.check(&self.input[..end]).map_err(io::Error::other)?;
            }
            self.input.drain(..end);
            self.decode();
        }
        Ok(true)
    }

    pub(super) fn read(
        &mut self,
        below: &mut (impl Read + Write),
        into: &mut [u8],
    ) -> io::Result<usize> {
        self.write_available(below)?;
        while self.input.is_empty() {
            match self.progress {
                Ok(StreamProgress::Open) => {}
                Ok(StreamProgress::Closed(_)) => return Ok(0),
                Err(error) => return Err(io::Error::other(error)),
            }
            if !self.fill(below)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if self.input.is_empty() {
                return Ok(0);
            }
            self.decode();
            self.write_available(below)?;
        }
        let take = self.input.len().min(into.len());
        into[..take].copy_from_slice(&self.input[..take]);
        self.input.drain(..take);
        Ok(take)
    }

    /// Writes pending bytes until the lower layer would block.
    fn write_available(&mut self, below: &mut impl Write) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        match self.write_pending(below) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Decodes `input` in place to payload, and queues the answer to a ping.
    fn decode(&mut self) {
        let (key, out) = (Some(self.masks.next()), &mut self.out);
        self.progress = self.frames.decode(&mut self.input, 0, &FRAME_RULES, key, out);
    }

    /// Accepts all of `bytes`, or none while earlier bytes are pending.
    pub(super) fn write(&mut self, below: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        self.write_pending(below)?;
        let key = Some(self.masks.next());
        write_frame(FrameOpcode::Binary, bytes.len(), [bytes], key, &mut self.out);
        self.write_available(below)?;
        Ok(bytes.len())
    }

    pub(super) fn write_pending(&mut self, below: &mut impl Write) -> io::Result<()> {
        while !self.out.is_empty() {
            let written = below.write(&self.out)?;
            if written == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.out.drain(..written);
        }
        self.out = Vec::new();
        below.flush()
    }

    /// Queues the close frame (RFC 6455, 5.5.1).
    pub(super) fn queue_close(&mut self) {
        write_close(Some(CloseStatus::NORMAL), "", Some(self.masks.next()), &mut self.out);
    }

    /// Returns whether accepted bytes are unwritten.
    pub(super) fn has_pending(&self) -> bool {
        !self.out.is_empty()
    }

    /// Reads bytes from the lower layer into `input`. Returns false if no bytes are available. At
    /// the end of the stream adds no bytes and returns true.
    fn fill(&mut self, below: &mut impl Read) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        match below.read(&mut buffer) {
            Ok(0) if self.pending_upgrade.is_some() => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.input.extend_from_slice(&buffer[..read]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A stream that returns a server's bytes a few at a time, and stores the written bytes.
    #[derive(Default)]
    struct TestStream {
        given: VecDeque<Vec<u8>>,
        written: Vec<u8>,
    }

    impl Read for TestStream {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.given.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    impl Write for TestStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn give(bytes: &[u8], piece: usize) -> TestStream {
        TestStream {
            given: bytes.chunks(piece).map(<[u8]>::to_vec).collect(),
            ..TestStream::default()
        }
    }

    fn agreement(proof: &str) -> String {
        let name = "sec-websocket-ACCEPT";
        format!("HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n{name}:  {proof}\r\n\r\n")
    }

    /// Returns the response that accepts the client's upgrade request.
    fn agreed(websocket: &WebSocketClient) -> Vec<u8> {
        let asked = websocket.pending_upgrade.as_ref().expect("it has not been agreed to");
        agreement(&asked.accept_key).into_bytes()
    }

    #[test]
    fn a_server_that_has_not_read_our_key_has_not_agreed() {
        // The example of RFC 6455, 1.3.
        let theirs = accept_key_of("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(theirs, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let asked = WebSocketUpgrade::new("h", "/mqtt", "mqtt");
        assert_eq!(asked.check(agreement(&asked.accept_key).as_bytes()), Ok(()));
        for wrong in [&agreement(&theirs), "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n"] {
            assert!(asked.check(wrong.as_bytes()).is_err_and(|why| why.contains("Accept")));
        }
        let other = WebSocketUpgrade::new("h", "/mqtt", "mqtt");
        assert_ne!(asked.request, other.request, "the key is another one each time");
    }

    #[test]
    fn no_two_frames_have_a_mask_that_could_be_told() {
        let mut masks =
            [1, 2].map(|_| MaskGenerator(fastrand::Rng::with_seed(u64::from_ne_bytes(random()))));
        let drawn: std::collections::HashSet<[u8; 4]> =
            masks.iter_mut().flat_map(|masks| [masks.next(), masks.next()]).collect();
        assert!(drawn.len() >= 3, "{drawn:?}");
    }

    #[test]
    fn payload_comes_out_however_frames_are_cut() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(b"\x82\x03abc\x89\x02hi\x02\x01d\x80\x7E\x00\x80");
        bytes.extend_from_slice(&[b'x'; 128]);
        for piece in [1, 7, 1_000] {
            let mut websocket = WebSocketClient::new("h", "/mqtt");
            let agreed = agreed(&websocket);
            let mut below = give(&[agreed, bytes.clone()].concat(), piece);
            assert!(websocket.poll_upgrade(&mut below).expect("the server agreed"));
            below.written.clear();
            let (mut got, mut into) = (Vec::new(), [0; 50]);
            while let Ok(read) = websocket.read(&mut below, &mut into) {
                got.extend_from_slice(&into[..read]);
            }
            assert_eq!(got, [&b"abcd"[..], &[b'x'; 128]].concat());
            // The ping was answered, masked.
            assert_eq!(below.written[..2], [0x8A, 0x82]);
        }
    }

    #[test]
    fn a_refused_upgrade_says_what_the_server_said() {
        let mut below = give(b"HTTP/1.1 404 Not Found\r\n\r\n", 100);
        let error =
            WebSocketClient::new("h", "/mqtt").poll_upgrade(&mut below).expect_err("refused");
        assert_eq!(error.to_string(), "no upgrade: HTTP/1.1 404 Not Found");
    }

    #[test]
    fn a_close_frame_is_the_end() {
        let mut websocket = WebSocketClient::new("h", "/mqtt");
        let agreed = agreed(&websocket);
        let mut below = give(&[&agreed[..], b"\x88\x00"].concat(), 200);
        assert!(websocket.poll_upgrade(&mut below).expect("the server agreed"));
        assert_eq!(websocket.read(&mut below, &mut [0; 10]).expect("an end"), 0);
    }

    #[test]
    fn payload_before_a_wrong_frame_is_passed_on() {
        let mut websocket = WebSocketClient::new("h", "/mqtt");
        let agreed = agreed(&websocket);
        let mut below = give(&[&agreed[..], b"\x82\x03abc\x82\x81keyxx"].concat(), 200);
        assert!(websocket.poll_upgrade(&mut below).expect("the server agreed"));
        let mut into = [0; 10];
        assert_eq!(websocket.read(&mut below, &mut into).expect("payload"), 3);
        let error = websocket.read(&mut below, &mut into).expect_err("a masked frame");
        assert_eq!(error.to_string(), "a server's frame is masked");
    }
}
