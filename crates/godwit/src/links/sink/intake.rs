//! A sink's session here, from the side of the sink: what comes becomes messages, and what the far
//! side has is acknowledged.

use super::message::Message;
use super::settings::SinkSettings;
use super::times::Times;
use crate::links::events::Heard;
use crate::links::near::{Near, acknowledge};
use crate::timestamp::Timestamp;
use mqtt::{Disconnect, Packet, PacketType, Properties, QoS, Reason, Version};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until};

pub(super) struct Intake {
    stream: UnixStream,
    /// What came and was not understood yet begins at `at`.
    read: Vec<u8>,
    at: usize,
    /// Answers that wait to be written.
    out: Vec<u8>,
    pub(super) times: Times,
}

/// So much is read at a time.
const READ_BYTES: usize = 64 * 1024;

impl Intake {
    pub(super) fn new(near: Near, times: Times) -> Intake {
        Intake { stream: near.stream, read: near.read, at: 0, out: Vec::new(), times }
    }

    /// Until a batch is whole: by number, by bytes, or by the time since its first message.
    pub(super) async fn gather(
        &mut self,
        batch: &mut Vec<Arc<Message>>,
        settings: &SinkSettings,
        heard: &mut Heard,
    ) -> Result<(), String> {
        let bounds = &settings.batch;
        let mut bytes: usize = batch.iter().map(|message| message.len()).sum();
        let is_full = |batch: &Vec<_>, bytes| {
            batch.len() >= bounds.messages_max as usize || bytes >= bounds.bytes_max as usize
        };
        let wait = Duration::from_millis(u64::from(bounds.wait_ms));
        let mut due = (!batch.is_empty()).then(|| Instant::now() + wait);
        loop {
            let now_ms = Timestamp::now().0.as_millis() as u64;
            while !is_full(batch, bytes) {
                let Some(message) = self.next(now_ms)? else { break };
                bytes += message.len();
                batch.push(Arc::new(message));
            }
            self.answer().await?;
            if is_full(batch, bytes) || due.is_some_and(|due| due <= Instant::now()) {
                return Ok(());
            }
            if !batch.is_empty() && due.is_none() {
                due = Some(Instant::now() + wait);
            }
            let time_is_up = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = self.read() => read?,
                event = heard.next() => {
                    bytes += event.len();
                    batch.push(Arc::new(event));
                }
                () = time_is_up => {}
            }
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        if self.at > 0 {
            self.read.drain(..self.at);
            self.at = 0;
        }
        if self.read.is_empty() && self.read.capacity() > 4 * READ_BYTES {
            self.read = Vec::new();
        }
        self.read.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.read).await {
            Ok(0) => Err("this broker closed the connection".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("this broker is not heard: {error}")),
        }
    }

    /// The next message, if it is here as a whole.
    fn next(&mut self, now_ms: u64) -> Result<Option<Message>, String> {
        let wrong = |violation: mqtt::Violation| violation.what().to_string();
        while let Some(frame) = mqtt::cut(&self.read[self.at..], u32::MAX).map_err(wrong)? {
            self.at += frame.len;
            match Packet::decode(frame, Version::V5).map_err(wrong)? {
                Packet::Publish(publish) => {
                    let mut message = Message::of(&publish, now_ms);
                    self.times.keep(&mut message, publish.dup);
                    return Ok(Some(message));
                }
                Packet::PubRel(ack) => {
                    let (kind, reason) = (PacketType::PubComp, Reason::Success);
                    acknowledge(kind, ack.packet_id, reason, &mut self.out);
                }
                Packet::Disconnect(goodbye) => {
                    return Err(format!("this broker ended the connection: {}", goodbye.reason));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    pub(super) async fn acknowledge(&mut self, taken: &[Arc<Message>]) -> Result<(), String> {
        for message in taken {
            let Some(packet_id) = message.packet_id else { continue };
            let kind = match message.qos {
                QoS::ExactlyOnce => PacketType::PubRec,
                _ => PacketType::PubAck,
            };
            acknowledge(kind, packet_id, Reason::Success, &mut self.out);
            self.times.forget(packet_id);
        }
        self.answer().await
    }

    async fn answer(&mut self) -> Result<(), String> {
        // Whoever stops waiting here has written what is no longer in `out`.
        while !self.out.is_empty() {
            match self.stream.write(&self.out).await {
                Ok(len) => _ = self.out.drain(..len),
                Err(error) => return Err(format!("this broker does not listen: {error}")),
            }
        }
        Ok(())
    }

    pub(super) async fn goodbye(&mut self) {
        let (reason, properties) = (Reason::NormalDisconnection, Properties::default());
        Disconnect { reason, properties }.encode(Version::V5, &mut self.out);
        let _ = self.answer().await;
    }
}
