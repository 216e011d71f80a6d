//! The protocol of Kafka: requests, answers and the way to one of its brokers. Which version of a
//! request is spoken the broker and we agree on first.

use super::codes::name;
use crate::identity::remote::dial::{Endpoint, Wire};
use crate::identity::scram::Sha;
use crate::identity::scram::client::Client;
use rustls::ClientConfig;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

/// The way to any broker of a cluster, and as whom.
pub(super) struct Way<'a> {
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) who: Option<&'a Who>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) mechanism: Mechanism,
    pub(crate) user: String,
    pub(crate) password: String,
}

/// How a user proves who it is (SASL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mechanism {
    #[default]
    Plain,
    Scram(Sha),
}

pub(super) struct Conn {
    wire: BufReader<Box<dyn Wire>>,
    pub(super) versions: Versions,
}

/// What is spoken with a broker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Versions {
    pub(super) metadata: i16,
    pub(super) produce: i16,
}

/// The requests that we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Produce = 0,
    Metadata = 3,
    SaslHandshake = 17,
    Versions = 18,
    SaslAuthenticate = 36,
}

/// From Kafka 1.0 on; later ones have another encoding, which all that know it do not insist on.
const PRODUCE: RangeInclusive<i16> = 3..=8;
const METADATA: RangeInclusive<i16> = 4..=7;
const ANSWER_BYTES_MAX: i32 = 16 * 1024 * 1024;
pub(super) const NO_SENSE: &str = "it makes no sense";

impl Way<'_> {
    pub(super) async fn connect(&self, host: &str, port: u16) -> Result<Conn, String> {
        let endpoint = Endpoint { host: host.into(), port, tls: self.tls.clone() };
        let wire = BufReader::new(endpoint.open().await?);
        let mut conn = Conn { wire, versions: Versions::default() };
        match self.introduce(&mut conn).await {
            Ok(()) => Ok(conn),
            Err(why) => Err(format!("{endpoint}: {why}")),
        }
    }

    async fn introduce(&self, conn: &mut Conn) -> Result<(), String> {
        let said = conn.ask(Api::Versions, 0, |_| {}).await?;
        conn.versions = Versions::agreed(&said)?;
        let Some(Who { mechanism, user, password }) = self.who else { return Ok(()) };
        let known = match mechanism {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(Sha::Of256) => "SCRAM-SHA-256",
            Mechanism::Scram(Sha::Of512) => "SCRAM-SHA-512",
        };
        let said = conn.ask(Api::SaslHandshake, 1, |out| out.text(known)).await?;
        match Said(&said).short()? {
            0 => {}
            code => return Err(format!("{known}: {}", name(code))),
        }
        let sha = match mechanism {
            Mechanism::Plain => {
                let proof = format!("\0{user}\0{password}");
                return conn.prove(proof.as_bytes()).await.map(drop);
            }
            Mechanism::Scram(sha) => *sha,
        };
        let scram = Client::of(sha, user, password)?;
        let first = conn.prove(scram.first().as_bytes()).await?;
        let (last, signature) = scram.last(&first).ok_or(NO_SENSE)?;
        let said = conn.prove(last.as_bytes()).await?;
        match signature.is(&said) {
            true => Ok(()),
            false => Err("it does not know the password itself".into()),
        }
    }
}

impl std::fmt::Debug for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.mechanism)
    }
}

impl Versions {
    fn agreed(said: &[u8]) -> Result<Versions, String> {
        let mut said = Said(said);
        match said.short()? {
            0 => {}
            code => return Err(name(code)),
        }
        let all = said.list(|said| Ok((said.short()?, said.short()?, said.short()?)))?;
        let best = |api: Api, ours: RangeInclusive<i16>| {
            let (_, min, max) = all.iter().find(|(key, ..)| *key == api as i16)?;
            let best = *ours.end().min(max);
            (best >= *ours.start().max(min)).then_some(best)
        };
        let both = best(Api::Produce, PRODUCE).zip(best(Api::Metadata, METADATA));
        let (produce, metadata) = both.ok_or("it speaks other versions than Kafka 1.0 to 4 do")?;
        Ok(Versions { metadata, produce })
    }
}

impl Conn {
    /// `fill` writes what stands behind the head of a request.
    pub(super) async fn ask(
        &mut self,
        api: Api,
        version: i16,
        fill: impl FnOnce(&mut Request),
    ) -> Result<Vec<u8>, String> {
        let mut request = Request::new(api, version);
        fill(&mut request);
        self.tell(&request.whole()).await?;
        self.hear().await
    }

    pub(super) async fn tell(&mut self, request: &[u8]) -> Result<(), String> {
        self.wire.write_all(request).await.map_err(|error| error.to_string())?;
        self.wire.flush().await.map_err(|error| error.to_string())
    }

    /// The answer to the one request that is under way.
    pub(super) async fn hear(&mut self) -> Result<Vec<u8>, String> {
        let broken = |error: std::io::Error| error.to_string();
        let len = self.wire.read_i32().await.map_err(broken)?;
        let number = self.wire.read_i32().await.map_err(broken)?;
        if !(4..=ANSWER_BYTES_MAX).contains(&len) || number != NUMBER {
            return Err(NO_SENSE.into());
        }
        let mut body = Vec::new();
        // It grows by what came, not by what was announced.
        let read = (&mut self.wire).take(len as u64 - 4).read_to_end(&mut body).await;
        match read.map_err(broken)? + 4 == len as usize {
            true => Ok(body),
            false => Err("it closed the connection".into()),
        }
    }

    /// One step of SASL.
    async fn prove(&mut self, proof: &[u8]) -> Result<String, String> {
        let said = self.ask(Api::SaslAuthenticate, 0, |out| out.bytes(proof)).await?;
        let mut said = Said(&said);
        let (code, why) = (said.short()?, said.text()?);
        if code != 0 {
            return Err(why.map_or_else(|| name(code), |why| format!("{}: {why}", name(code))));
        }
        let answer = said.bytes()?.to_vec();
        String::from_utf8(answer).map_err(|_| NO_SENSE.into())
    }
}

/// Requests on one connection wait for each other, so one number serves all.
const NUMBER: i32 = 1;

/// A request as it is written.
pub(super) struct Request(Vec<u8>);

impl Request {
    pub(super) fn new(api: Api, version: i16) -> Request {
        let mut request = Request(vec![0; 4]);
        request.short(api as i16);
        request.short(version);
        request.number(NUMBER);
        request.text("godwit");
        request
    }

    pub(super) fn short(&mut self, value: i16) {
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn number(&mut self, value: i32) {
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.short(text.len() as i16);
        self.0.extend(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i32);
        self.0.extend(bytes);
    }

    pub(super) fn whole(mut self) -> Vec<u8> {
        let len = (self.0.len() as i32 - 4).to_be_bytes();
        self.0[..4].copy_from_slice(&len);
        self.0
    }
}

/// An answer as far as it is not read.
pub(super) struct Said<'a>(pub(super) &'a [u8]);

impl<'a> Said<'a> {
    fn cut(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (cut, rest) = self.0.split_at_checked(len).ok_or(NO_SENSE)?;
        self.0 = rest;
        Ok(cut)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.cut(N)?.try_into().map_err(|_| NO_SENSE.into())
    }

    pub(super) fn bool(&mut self) -> Result<bool, String> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn short(&mut self) -> Result<i16, String> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn number(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, String> {
        self.array().map(i64::from_be_bytes)
    }

    /// Nothing where it says so.
    pub(super) fn text(&mut self) -> Result<Option<String>, String> {
        let Ok(len) = usize::try_from(self.short()?) else { return Ok(None) };
        let text = String::from_utf8(self.cut(len)?.to_vec()).map_err(|_| NO_SENSE)?;
        Ok(Some(text))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = usize::try_from(self.number()?).unwrap_or_default();
        self.cut(len)
    }

    pub(super) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        (0..self.number()?).map(|_| one(self)).collect()
    }
}
