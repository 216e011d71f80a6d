//! Protocol of Kafka: requests, responses and the connection to one broker. The client and the
//! broker first agree on the version of each request.

use super::codes::error_name;
use mqtt::ByteReader;
use net::endpoint::{AsyncStream, ServerEndpoint};
use net::scram::ScramHash;
use net::scram::client::ScramClient;
use rustls::ClientConfig;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

/// The address and credentials by which the sink connects to any broker of a cluster.
pub(super) struct KafkaEndpoint<'a> {
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) who: Option<&'a SaslCredentials>,
}

/// Credentials for SASL. `Debug` leaves out user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslCredentials {
    pub mechanism: SaslMechanism,
    pub user: String,
    pub password: String,
}

/// SASL mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaslMechanism {
    #[default]
    Plain,
    Scram(ScramHash),
}

/// A connection to one broker, after authentication.
pub(super) struct KafkaConnection {
    wire: BufReader<Box<dyn AsyncStream>>,
    pub(super) versions: KafkaVersions,
}

/// Versions of requests in use with a broker, see [`KafkaVersions::negotiate`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KafkaVersions {
    pub(super) metadata: i16,
    pub(super) produce: i16,
}

/// The requests which this client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KafkaApi {
    Produce = 0,
    Metadata = 3,
    SaslHandshake = 17,
    Versions = 18,
    SaslAuthenticate = 36,
}

/// Supported versions of the request Produce, from Kafka 1.0 on. Later versions have another
/// encoding, and brokers with those versions still accept these.
const PRODUCE: RangeInclusive<i16> = 3..=8;
const METADATA: RangeInclusive<i16> = 4..=7;
const ANSWER_BYTES_MAX: i32 = 16 * 1024 * 1024;
pub(super) const NO_SENSE: &str = "it makes no sense";

impl KafkaEndpoint<'_> {
    pub(super) async fn connect(&self, host: &str, port: u16) -> Result<KafkaConnection, String> {
        let endpoint = ServerEndpoint { host: host.into(), port, tls: self.tls.clone() };
        let wire = BufReader::new(endpoint.connect().await?);
        let mut conn = KafkaConnection { wire, versions: KafkaVersions::default() };
        match self.authenticate(&mut conn).await {
            Ok(()) => Ok(conn),
            Err(why) => Err(format!("{endpoint}: {why}")),
        }
    }

    async fn authenticate(&self, conn: &mut KafkaConnection) -> Result<(), String> {
        let said = conn.request(KafkaApi::Versions, 0, |_| {}).await?;
        conn.versions = KafkaVersions::negotiate(&said)?;
        let Some(SaslCredentials { mechanism, user, password }) = self.who else { return Ok(()) };
        let known = match mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::Scram(ScramHash::Sha256) => "SCRAM-SHA-256",
            SaslMechanism::Scram(ScramHash::Sha512) => "SCRAM-SHA-512",
        };
        let said = conn.request(KafkaApi::SaslHandshake, 1, |out| out.push_text(known)).await?;
        match KafkaResponse::new(&said).read_i16()? {
            0 => {}
            code => return Err(format!("{known}: {}", error_name(code))),
        }
        let sha = match mechanism {
            SaslMechanism::Plain => {
                let proof = format!("\0{user}\0{password}");
                return conn.sasl_step(proof.as_bytes()).await.map(drop);
            }
            SaslMechanism::Scram(sha) => *sha,
        };
        let scram = ScramClient::with_hash(sha, user, password)?;
        let first = conn.sasl_step(scram.client_first_message().as_bytes()).await?;
        let (last, signature) = scram.client_final_message(&first).ok_or(NO_SENSE)?;
        let said = conn.sasl_step(last.as_bytes()).await?;
        match signature.matches(&said) {
            true => Ok(()),
            false => Err("it does not know the password itself".into()),
        }
    }
}

impl std::fmt::Debug for SaslCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.mechanism)
    }
}

impl KafkaVersions {
    fn negotiate(said: &[u8]) -> Result<KafkaVersions, String> {
        let mut said = KafkaResponse::new(said);
        match said.read_i16()? {
            0 => {}
            code => return Err(error_name(code)),
        }
        let all =
            said.read_list(|said| Ok((said.read_i16()?, said.read_i16()?, said.read_i16()?)))?;
        let best = |api: KafkaApi, ours: RangeInclusive<i16>| {
            let (_, min, max) = all.iter().find(|(key, ..)| *key == api as i16)?;
            let best = *ours.end().min(max);
            (best >= *ours.start().max(min)).then_some(best)
        };
        let both = best(KafkaApi::Produce, PRODUCE).zip(best(KafkaApi::Metadata, METADATA));
        let (produce, metadata) = both.ok_or("it speaks other versions than Kafka 1.0 to 4 do")?;
        Ok(KafkaVersions { metadata, produce })
    }
}

impl KafkaConnection {
    /// Sends a request and returns the response. `fill` writes the body of the request.
    pub(super) async fn request(
        &mut self,
        api: KafkaApi,
        version: i16,
        fill: impl FnOnce(&mut KafkaRequest),
    ) -> Result<Vec<u8>, String> {
        let mut request = KafkaRequest::new(api, version);
        fill(&mut request);
        self.send(&request.finish()).await?;
        self.read_response().await
    }

    pub(super) async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.wire.write_all(request).await.map_err(|error| error.to_string())?;
        self.wire.flush().await.map_err(|error| error.to_string())
    }

    /// Returns the response to the pending request. Fails above `ANSWER_BYTES_MAX`.
    pub(super) async fn read_response(&mut self) -> Result<Vec<u8>, String> {
        let broken = |error: std::io::Error| error.to_string();
        let len = self.wire.read_i32().await.map_err(broken)?;
        let number = self.wire.read_i32().await.map_err(broken)?;
        if !(4..=ANSWER_BYTES_MAX).contains(&len) || number != NUMBER {
            return Err(NO_SENSE.into());
        }
        let mut body = Vec::new();
        // The buffer grows with received bytes, not with the announced length.
        let read = (&mut self.wire).take(len as u64 - 4).read_to_end(&mut body).await;
        match read.map_err(broken)? + 4 == len as usize {
            true => Ok(body),
            false => Err("it closed the connection".into()),
        }
    }

    /// Sends one step of SASL and returns the response.
    async fn sasl_step(&mut self, proof: &[u8]) -> Result<String, String> {
        let said = self.request(KafkaApi::SaslAuthenticate, 0, |out| out.push_bytes(proof)).await?;
        let mut said = KafkaResponse::new(&said);
        let (code, why) = (said.read_i16()?, said.read_text()?);
        if code != 0 {
            return Err(
                why.map_or_else(|| error_name(code), |why| format!("{}: {why}", error_name(code)))
            );
        }
        let answer = said.read_bytes()?.to_vec();
        String::from_utf8(answer).map_err(|_| NO_SENSE.into())
    }
}

/// Requests on one connection are sequential, so one correlation id is enough.
const NUMBER: i32 = 1;

/// A request in its encoding. The first four bytes are the length, set by [`KafkaRequest::finish`].
pub(super) struct KafkaRequest(Vec<u8>);

impl KafkaRequest {
    pub(super) fn new(api: KafkaApi, version: i16) -> KafkaRequest {
        let mut request = KafkaRequest(vec![0; 4]);
        request.push_i16(api as i16);
        request.push_i16(version);
        request.push_i32(NUMBER);
        request.push_text("godwit");
        request
    }

    pub(super) fn push_i16(&mut self, value: i16) {
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn push_i32(&mut self, value: i32) {
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn push_bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(super) fn push_text(&mut self, text: &str) {
        self.push_i16(text.len() as i16);
        self.0.extend(text.as_bytes());
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.push_i32(bytes.len() as i32);
        self.0.extend(bytes);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() as i32 - 4).to_be_bytes();
        self.0[..4].copy_from_slice(&len);
        self.0
    }
}

/// Unread rest of a response.
pub(super) struct KafkaResponse<'a>(ByteReader<'a>);

impl<'a> KafkaResponse<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> KafkaResponse<'a> {
        KafkaResponse(ByteReader::new(bytes))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        self.0.bytes(len).ok_or_else(|| NO_SENSE.into())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.0.array().ok_or_else(|| NO_SENSE.into())
    }

    pub(super) fn read_bool(&mut self) -> Result<bool, String> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn read_i16(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn read_i32(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn read_i64(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads a nullable text.
    pub(super) fn read_text(&mut self) -> Result<Option<String>, String> {
        let Ok(len) = usize::try_from(self.read_i16()?) else { return Ok(None) };
        let text = String::from_utf8(self.take(len)?.to_vec()).map_err(|_| NO_SENSE)?;
        Ok(Some(text))
    }

    pub(super) fn read_bytes(&mut self) -> Result<&'a [u8], String> {
        let len = usize::try_from(self.read_i32()?).unwrap_or_default();
        self.take(len)
    }

    pub(super) fn read_list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        (0..self.read_i32()?).map(|_| one(self)).collect()
    }
}
