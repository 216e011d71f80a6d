//! CRC-32 (the polynomial of IEEE 802.3, reflected), eight bytes at a step.

/// The checksum of `parts` as if they stood behind each other.
pub(crate) fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = Crc32::default();
    parts.iter().for_each(|part| crc.add(part));
    crc.sum()
}

/// A checksum of what comes a part at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0 = !extend(!self.0, part);
    }

    pub(crate) fn sum(self) -> u32 {
        self.0
    }
}

fn extend(mut crc: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<8>();
    for step in steps {
        let [a, b, c, d] = (crc ^ u32::from_le_bytes([step[0], step[1], step[2], step[3]]))
            .to_le_bytes()
            .map(usize::from);
        crc = TABLES[7][a]
            ^ TABLES[6][b]
            ^ TABLES[5][c]
            ^ TABLES[4][d]
            ^ TABLES[3][usize::from(step[4])]
            ^ TABLES[2][usize::from(step[5])]
            ^ TABLES[1][usize::from(step[6])]
            ^ TABLES[0][usize::from(step[7])];
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

const POLYNOMIAL: u32 = 0xEDB8_8320;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut n = 0;
    while n < 256 {
        let (mut crc, mut bit) = (n as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][n] = crc;
        n += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut n = 0;
        while n < 256 {
            let before = tables[k - 1][n];
            tables[k][n] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            n += 1;
        }
        k += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        // CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
        assert_eq!(crc(&[b"123456789"]), 0xCBF4_3926);
        assert_eq!(crc(&[b"12345", b"", b"6789"]), 0xCBF4_3926);
        assert_eq!(crc(&[]), 0);
    }
}
