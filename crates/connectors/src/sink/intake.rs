//! The local session of a sink: received packets become messages, and messages in the destination
//! are acknowledged.

use super::message::SinkMessage;
use super::receive_times::ReceiveTimes;
use super::settings::SinkSettings;
use crate::events::SinkEventReceiver;
use crate::local_session::LocalSession;
use mqtt::client::{receipt, success_ack};
use mqtt::{Disconnect, Packet, Properties, ProtocolVersion, ReasonCode};
use net::timestamp::UnixTimestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until};

/// A connection to the local session of a sink.
pub(super) struct SinkIntake {
    stream: UnixStream,
    /// Received bytes; the unparsed ones begin at `at`.
    read: Vec<u8>,
    at: usize,
    /// Acknowledgements waiting to be written.
    out: Vec<u8>,
    pub(super) times: ReceiveTimes,
}

/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;

impl SinkIntake {
    pub(super) fn new(local: LocalSession, times: ReceiveTimes) -> SinkIntake {
        SinkIntake { stream: local.stream, read: local.read, at: 0, out: Vec::new(), times }
    }

    /// Gathers a batch until it is complete: by the number of messages, by bytes, or by the time
    /// since the first message. Events are added as they arrive.
    pub(super) async fn gather_batch(
        &mut self,
        batch: &mut Vec<Arc<SinkMessage>>,
        settings: &SinkSettings,
        heard: &mut SinkEventReceiver,
    ) -> Result<(), String> {
        let bounds = &settings.batch;
        let mut bytes: usize = batch.iter().map(|message| message.size_bytes()).sum();
        let is_full = |batch: &Vec<_>, bytes| {
            batch.len() >= bounds.messages_max as usize || bytes >= bounds.bytes_max as usize
        };
        let wait = Duration::from_millis(u64::from(bounds.wait_ms));
        let mut due = (!batch.is_empty()).then(|| Instant::now() + wait);
        loop {
            let now_ms = UnixTimestamp::now().0.as_millis() as u64;
            while !is_full(batch, bytes) {
                let Some(message) = self.next_message(now_ms)? else { break };
                bytes += message.size_bytes();
                batch.push(Arc::new(message));
            }
            self.flush_answers().await?;
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
                event = heard.next_event() => {
                    let message = SinkMessage::from_event(event);
                    bytes += message.size_bytes();
                    batch.push(Arc::new(message));
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

    /// Returns the next message, if it is complete. Handles other packets on the way.
    fn next_message(&mut self, now_ms: u64) -> Result<Option<SinkMessage>, String> {
        let wrong = |violation: mqtt::Violation| violation.description().to_string();
        while let Some(frame) = mqtt::split_frame(&self.read[self.at..], u32::MAX).map_err(wrong)? {
            self.at += frame.len;
            match Packet::decode(frame, ProtocolVersion::V5).map_err(wrong)? {
                Packet::Publish(publish) => {
                    let mut message = SinkMessage::from_publish(&publish, now_ms);
                    self.times.assign_time(&mut message, publish.dup);
                    return Ok(Some(message));
                }
                Packet::PubRel(ack) => {
                    let pubcomp = Packet::PubComp(success_ack(ack.packet_id));
                    pubcomp.encode(ProtocolVersion::V5, &mut self.out);
                }
                Packet::Disconnect(goodbye) => {
                    return Err(format!("this broker ended the connection: {}", goodbye.reason));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    pub(super) async fn acknowledge(&mut self, taken: &[Arc<SinkMessage>]) -> Result<(), String> {
        for message in taken {
            let Some(packet_id) = message.packet_id else { continue };
            if let Some(receipt) = receipt(message.qos, message.packet_id) {
                receipt.encode(ProtocolVersion::V5, &mut self.out);
            }
            self.times.forget(packet_id);
        }
        self.flush_answers().await
    }

    async fn flush_answers(&mut self) -> Result<(), String> {
        // A cancelled call loses nothing: written bytes have left `out`, and the rest is still
        // there.
        while !self.out.is_empty() {
            match self.stream.write(&self.out).await {
                Ok(len) => _ = self.out.drain(..len),
                Err(error) => return Err(format!("this broker does not listen: {error}")),
            }
        }
        Ok(())
    }

    pub(super) async fn disconnect(&mut self) {
        let (reason, properties) = (ReasonCode::NormalDisconnection, Properties::default());
        Disconnect { reason, properties }.encode(ProtocolVersion::V5, &mut self.out);
        let _ = self.flush_answers().await;
    }
}
