//! Conversions between integer types. `as` truncates silently. The library's lints deny it where
//! that can happen, and these functions or `try_from` are used instead.

const _: () = assert!(usize::BITS == 64, "`usize` has 64 bits");

/// Converts a length in a file to a length in memory, without change of the value.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`usize` has 64 bits, as asserted above"
)]
#[inline]
pub const fn to_usize(n: u64) -> usize {
    n as usize
}

/// Converts a number, limited to `u32::MAX`. For lengths and counts that the kernel processes in
/// part or rejects as too large.
#[inline]
pub fn to_u32(n: usize) -> u32 {
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
