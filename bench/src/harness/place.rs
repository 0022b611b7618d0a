//! A place in the files of a contender, which it reads.

/// A place to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The index of the file.
    pub file: usize,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// True if the bench knows the block to be cached; `None` if it does not keep track.
    pub booked: Option<bool>,
}
