//! Conversions between the sizes of numbers. `as` cuts off what does not fit; the library denies it
//! where that can happen, and converts by these functions or by `try_from`.

const _: () = assert!(
    usize::BITS == 64,
    "a length in a file is a length of memory"
);

/// A length in a file as a length of memory: the same number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`usize` has 64 bits, as asserted above"
)]
#[inline]
pub(crate) const fn to_usize(n: u64) -> usize {
    n as usize
}

/// The number, or the largest that there is: for lengths and counts of which the kernel takes part
/// or says that they are too large.
#[inline]
pub(crate) fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_the_largest() {
        assert_eq!(to_u32(u32::MAX as usize), u32::MAX);
        assert_eq!(to_u32(u32::MAX as usize + 1), u32::MAX);
        assert_eq!(to_u32(usize::MAX), u32::MAX);
        assert_eq!(to_usize(u64::MAX), usize::MAX);
    }
}
