//! Pseudo-random numbers and permutations that are functions of a key.

/// Scrambles 64 bits (the finalizer of splitmix64).
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of pseudo-random numbers (xorshift64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random(mix(seed) | 1)
    }

    /// The next number. The low bits of successive numbers are correlated.
    #[inline(always)]
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next number below `n`: the upper half of a product.
    #[inline(always)]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(n)) >> 64) as u64
    }
}

/// Returns true if number `at` of `n` is one of the `few` numbers that `key` picks.
pub fn picked(at: u64, n: u64, few: u64, key: u64) -> bool {
    permute(at, n, mix(key)) < few
}

/// The image of number `at` of `n` in the permutation of `key`: a Feistel network over the next
/// even power of two, applied until the result is below `n`.
pub fn permute(at: u64, n: u64, key: u64) -> u64 {
    let half = (64 - n.saturating_sub(1).leading_zeros())
        .div_ceil(2)
        .max(1);
    let mask = (1u64 << half) - 1;
    let mut x = at;
    loop {
        let (mut left, mut right) = (x >> half, x & mask);
        for round in 0..4 {
            let f = (right ^ key.rotate_left(16 * round)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            (left, right) = (right, (left ^ f) & mask);
        }
        x = left << half | right;
        if x < n {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_permutation_has_each_number_once() {
        for n in [1, 2, 3, 7, 64, 1000, 4097] {
            let seen: HashSet<u64> = (0..n).map(|i| permute(i, n, 42)).collect();
            assert_eq!(seen.len() as u64, n);
        }
    }

    #[test]
    fn exactly_as_many_are_picked_and_others_by_another_key() {
        let pick =
            |few, key| -> Vec<u64> { (0..1000).filter(|&i| picked(i, 1000, few, key)).collect() };
        for few in [0, 1, 300, 1000] {
            assert_eq!(pick(few, 7).len() as u64, few);
        }
        assert_ne!(pick(300, 7), pick(300, 8));
    }
}
