//! The stamp in the first 16 bytes of a payload: intended time, stream and sequence number. The
//! rest of the payload is padding.
//!
//! ```text
//!   0..2    mark     0x47 0x77, so that other programs' payloads are not read as stamps
//!   2..8    time     microseconds since the Unix epoch, modulo 2^48 (about nine years)
//!   8..12   stream   one publisher on one topic; processes of one test start at random numbers
//!   12..16  seq      0, 1, 2 ... in the stream
//! ```

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadStamp {
    /// Intended time, not the actual time: a delay by the tester is part of the latency.
    pub(crate) time_us: u64,
    pub(crate) stream: u32,
    pub(crate) seq: u32,
}

impl PayloadStamp {
    #[inline]
    pub(crate) fn write(self, payload: &mut [u8]) {
        let Some(head) = payload.first_chunk_mut::<STAMP_BYTES>() else { return };
        let time = (u64::from(MARK) << 48 | self.time_us & TIME_MASK).to_be_bytes();
        head[..8].copy_from_slice(&time);
        head[8..12].copy_from_slice(&self.stream.to_be_bytes());
        head[12..].copy_from_slice(&self.seq.to_be_bytes());
    }

    /// Reads a stamp; `None` for payloads of other programs, which lack `MARK`.
    #[inline]
    pub(crate) fn read(payload: &[u8]) -> Option<PayloadStamp> {
        let &head = payload.first_chunk::<STAMP_BYTES>()?;
        let both = u128::from_be_bytes(head);
        if (both >> 112) as u16 != MARK {
            return None;
        }
        Some(PayloadStamp {
            time_us: (both >> 64) as u64 & TIME_MASK,
            stream: (both >> 32) as u32,
            seq: both as u32,
        })
    }

    /// Returns the age at `now_us`; zero if another host's clock is ahead of ours.
    #[inline]
    pub(crate) fn age_us(self, now_us: u64) -> u64 {
        let age = now_us.wrapping_sub(self.time_us) & TIME_MASK;
        if age > TIME_MASK / 2 { 0 } else { age }
    }
}

pub(crate) const STAMP_BYTES: usize = 16;
pub(crate) const TIME_MASK: u64 = (1 << 48) - 1;
const MARK: u16 = 0x4777;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_comes_back_as_it_was_written() {
        let stamp = PayloadStamp { time_us: 0x1234_5678_9ABC, stream: u32::MAX, seq: 7 };
        let mut payload = [0xEE; 20];
        stamp.write(&mut payload);
        assert_eq!(PayloadStamp::read(&payload), Some(stamp));
        assert_eq!(payload[16..], [0xEE; 4]);
    }

    #[test]
    fn payload_of_others_has_no_stamp() {
        assert_eq!(PayloadStamp::read(b"too short"), None);
        assert_eq!(PayloadStamp::read(b"twenty bytes of text"), None);
        let mut short = [0; 15];
        PayloadStamp { time_us: 1, stream: 1, seq: 1 }.write(&mut short);
        assert_eq!(short, [0; 15]);
    }

    #[test]
    fn age_survives_the_wrap_and_is_never_negative() {
        let stamp = PayloadStamp { time_us: TIME_MASK, stream: 0, seq: 0 };
        assert_eq!(stamp.age_us(1 << 48 | 4), 5);
        let ahead = PayloadStamp { time_us: 1_000, stream: 0, seq: 0 };
        assert_eq!(ahead.age_us(400), 0);
    }
}
