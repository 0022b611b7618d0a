//! The functions that the fuzz targets in `fuzz/` call.

pub use crate::scan::exactly_once;

/// See `filesystem::source_of`.
pub fn source_of<'a>(mounts: &'a [u8], number: &str) -> Option<&'a [u8]> {
    crate::filesystem::source_of(mounts, number)
}
