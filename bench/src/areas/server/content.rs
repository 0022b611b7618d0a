//! The bytes of the responses. Each file has its own, so that a wrong byte, offset or file in a
//! response is found.

use nowait_cli::scramble::mix;

/// The distance in bytes between the words that are checked in a response.
const STRIDE: u64 = 4096;
/// The bytes of a word.
const WORD: u64 = 8;

/// The path of the response that needs no file.
pub const API: &str = "/api";
/// The body of that response.
pub const API_ANSWER: &str = "answer";

/// The files that are cached, and the files that are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hot,
    Cold,
}

impl Kind {
    /// Both classes, in the order of the results.
    pub const ALL: [Kind; 2] = [Kind::Hot, Kind::Cold];

    pub fn word(self) -> &'static str {
        match self {
            Kind::Hot => "hot",
            Kind::Cold => "cold",
        }
    }
}

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub kind: Kind,
    pub number: u32,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:06}", self.kind.word(), self.number)
    }
}

impl Name {
    /// All bytes of the file.
    pub fn bytes(self, size: u64) -> Vec<u8> {
        let words = (0..size.div_ceil(WORD)).flat_map(|i| self.word(i).to_le_bytes());
        words.take(size as usize).collect()
    }

    /// The place of the first wrong byte in a part of the file that begins at `offset`. Only the
    /// first eight bytes of each 4 KiB are compared.
    pub fn first_wrong(self, offset: u64, part: &[u8]) -> Option<u64> {
        let end = offset + part.len() as u64;
        let mut start = offset / STRIDE * STRIDE;
        while start < end {
            let want = self.word(start / WORD).to_le_bytes();
            for (at, want) in (start..).zip(want) {
                if (offset..end).contains(&at) && part[(at - offset) as usize] != want {
                    return Some(at);
                }
            }
            start += STRIDE;
        }
        None
    }

    fn word(self, index: u64) -> u64 {
        mix(u64::from(self.number) << 33 | (self.kind as u64) << 32 | index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: Name = Name {
        kind: Kind::Hot,
        number: 7,
    };

    #[test]
    fn a_part_is_checked_wherever_it_begins() {
        let bytes = HOT.bytes(10_001);
        assert_eq!(bytes.len(), 10_001);
        for cut in [0, 1, 5, 4095, 4096, 4100, 4104, 9000, 10_001] {
            assert_eq!(HOT.first_wrong(0, &bytes[..cut]), None, "{cut}");
            assert_eq!(HOT.first_wrong(cut as u64, &bytes[cut..]), None, "{cut}");
        }
        let mut wrong = bytes.clone();
        wrong[8197] ^= 1;
        assert_eq!(HOT.first_wrong(0, &wrong), Some(8197));
        assert_eq!(HOT.first_wrong(8197, &wrong[8197..]), Some(8197));
        assert_eq!(HOT.first_wrong(8198, &wrong[8198..]), None);
    }

    #[test]
    fn other_files_and_other_offsets_have_other_bytes() {
        let bytes = HOT.bytes(8192);
        let cold = Name {
            kind: Kind::Cold,
            ..HOT
        };
        let next = Name { number: 8, ..HOT };
        assert_eq!(cold.first_wrong(0, &bytes), Some(0));
        assert!(next.first_wrong(0, &bytes).is_some());
        assert!(HOT.first_wrong(4096, &bytes[..4096]).is_some());
    }
}
