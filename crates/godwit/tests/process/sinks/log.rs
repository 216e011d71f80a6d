//! A minimal Kafka client, which creates topics and reads their records.

use super::contract::{OURS, SinkRow};
use std::io::{Read, Write};
use std::net::TcpStream;

pub(super) struct KafkaLogClient {
    stream: TcpStream,
}

/// A record read from a topic.
pub(super) struct StoredRecord {
    pub(super) key: Option<String>,
    pub(super) value: String,
    pub(super) headers: Vec<(String, String)>,
}

impl StoredRecord {
    pub(super) fn row(&self) -> SinkRow {
        let topic = self.headers.iter().find(|(name, _)| name == "topic");
        (topic.expect("its topic").1.clone(), self.value.clone())
    }
}

const FETCH: i16 = 1;
const CREATE_TOPICS: i16 = 19;

impl KafkaLogClient {
    pub(super) fn connect(port: u16) -> Option<KafkaLogClient> {
        Some(KafkaLogClient { stream: TcpStream::connect(("127.0.0.1", port)).ok()? })
    }

    fn ask(&mut self, api: i16, version: i16, body: &[u8]) -> Vec<u8> {
        let mut request = Vec::new();
        request.extend(api.to_be_bytes());
        request.extend(version.to_be_bytes());
        // Its number, and no name of ours.
        request.extend([0, 0, 0, 7, 0xff, 0xff]);
        request.extend(body);
        self.stream.write_all(&(request.len() as i32).to_be_bytes()).expect(OURS);
        self.stream.write_all(&request).expect("it listens");
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).expect("an answer");
        let mut said = vec![0; i32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut said).expect("an answer");
        said.split_off(4)
    }

    /// Creates a topic with one partition for each of `leaders`.
    pub(super) fn make(&mut self, topic: &str, leaders: &[i32], largest: &str) {
        let mut body = Vec::new();
        number(1, &mut body);
        text(topic, &mut body);
        body.extend([0xff; 4 + 2]);
        number(leaders.len() as i32, &mut body);
        for (partition, leader) in leaders.iter().enumerate() {
            number(partition as i32, &mut body);
            number(1, &mut body);
            number(*leader, &mut body);
        }
        number(1, &mut body);
        text("max.message.bytes", &mut body);
        text(largest, &mut body);
        number(10_000, &mut body);
        body.push(0);
        let said = self.ask(CREATE_TOPICS, 2, &body);
        let mut said = ByteCursor(&said);
        said.cut(4 + 4);
        said.text();
        assert_eq!(said.short(), 0, "{:?}", said.text());
    }

    /// Reads all records from the offset `from` on.
    pub(super) fn read(&mut self, topic: &str, partition: i32, from: i64) -> Vec<StoredRecord> {
        let (mut all, mut next) = (Vec::new(), from);
        loop {
            let (end, records) = self.fetch(topic, partition, next);
            let mut rest = ByteCursor(&records);
            while rest.0.len() > 12 {
                let begins = rest.long();
                let len = rest.number() as usize;
                if len > rest.0.len() {
                    break;
                }
                let mut batch = ByteCursor(rest.cut(len));
                // Up to the number of its records.
                batch.cut(4 + 1 + 4 + 2 + 4 + 8 + 8 + 8 + 2 + 4);
                for _ in 0..batch.number() {
                    let (delta, stored) = batch.record();
                    if begins + delta >= next {
                        all.push(stored);
                        next = begins + delta + 1;
                    }
                }
            }
            if next >= end {
                return all;
            }
        }
    }

    pub(super) fn end(&mut self, topic: &str, partition: i32) -> i64 {
        self.fetch(topic, partition, 0).0
    }

    /// Fetches from an offset. Returns the end offset of the partition, and the bytes of the record
    /// batches.
    fn fetch(&mut self, topic: &str, partition: i32, from: i64) -> (i64, Vec<u8>) {
        let mut body = vec![0xff; 4];
        [0, 0, 16 << 20].into_iter().for_each(|value| number(value, &mut body));
        body.push(0);
        number(1, &mut body);
        text(topic, &mut body);
        number(1, &mut body);
        number(partition, &mut body);
        body.extend(from.to_be_bytes());
        number(16 << 20, &mut body);
        let said = self.ask(FETCH, 4, &body);
        let mut said = ByteCursor(&said);
        said.cut(4 + 4);
        said.text();
        said.cut(4 + 4);
        assert!(matches!(said.short(), 0 | 6), "it can be read");
        let end = said.long();
        said.cut(8);
        let aborted = said.number().max(0) as usize;
        said.cut(16 * aborted);
        let len = said.number().max(0) as usize;
        (end.max(0), said.cut(len).to_vec())
    }
}

fn number(value: i32, out: &mut Vec<u8>) {
    out.extend(value.to_be_bytes());
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as i16).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Reads fields from the front of a response.
struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    fn cut(&mut self, len: usize) -> &'a [u8] {
        let (cut, rest) = self.0.split_at(len);
        self.0 = rest;
        cut
    }

    fn short(&mut self) -> i16 {
        i16::from_be_bytes(self.cut(2).try_into().expect(OURS))
    }

    fn number(&mut self) -> i32 {
        i32::from_be_bytes(self.cut(4).try_into().expect(OURS))
    }

    fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.cut(8).try_into().expect(OURS))
    }

    fn text(&mut self) -> String {
        let len = self.short().max(0) as usize;
        String::from_utf8(self.cut(len).to_vec()).expect("text")
    }

    fn small(&mut self) -> i64 {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = self.cut(1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return (value >> 1) as i64 ^ -((value & 1) as i64);
            }
        }
    }

    fn word(&mut self) -> Option<String> {
        let len = usize::try_from(self.small()).ok()?;
        Some(String::from_utf8(self.cut(len).to_vec()).expect("text"))
    }

    /// Reads a record of a batch. Returns the offset of the record within the batch, and the
    /// record.
    fn record(&mut self) -> (i64, StoredRecord) {
        let len = self.small() as usize;
        let mut record = ByteCursor(self.cut(len));
        record.cut(1);
        record.small();
        let delta = record.small();
        let (key, value) = (record.word(), record.word().unwrap_or_default());
        let headers = (0..record.small())
            .map(|_| (record.word().unwrap_or_default(), record.word().unwrap_or_default()))
            .collect();
        assert!(record.0.is_empty(), "nothing is left of a record");
        (delta, StoredRecord { key, value, headers })
    }
}
