//! Eager and strict mode.

/// How an engine or a file treats the caller's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Try the page cache in the caller first. On kernels since about 6.12 a try that fails has
    /// submitted the readahead in the caller before it says so: the I/O starts early, and the
    /// caller pays for its submission.
    #[default]
    Eager,
    /// Ask for residency first and read in the caller only what is there: the caller never
    /// touches the device. (Two things escape it: pages that disappear between question and read
    /// where only a plain read works, as on overlayfs; and marks that the readahead of *other*
    /// open files of the same file has left on pages, for the kernel starts the next readahead in
    /// whoever reads such a page.)
    Strict,
}
