//! Data for temporary files.

use crate::scramble::Random;

/// Pseudo-random bytes, which a filesystem cannot compress or deduplicate.
pub struct Noise {
    piece: Vec<u8>,
    random: Random,
}

impl Noise {
    /// The bytes of this seed.
    pub fn new(seed: u64) -> Noise {
        Noise {
            piece: vec![0; 1 << 20],
            random: Random::new(seed),
        }
    }

    /// The next bytes: as many as `wanted`, at most 1 MiB.
    pub fn bytes(&mut self, wanted: u64) -> &[u8] {
        let len = wanted.min(self.piece.len() as u64) as usize;
        for word in self.piece[..len.next_multiple_of(8)].chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.number().to_le_bytes());
        }
        &self.piece[..len]
    }
}
