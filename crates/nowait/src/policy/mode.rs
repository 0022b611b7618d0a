//! Eager and strict mode.

/// The mode of an engine or a file: what the calling thread does for a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Try the page cache first, in the calling thread. On kernels since about 6.12 a failed try
    /// submits readahead in the calling thread before it returns. The I/O starts early, and the
    /// calling thread pays for its submission.
    #[default]
    Eager,
    /// Query residency first, and read in the calling thread only resident data. The calling thread
    /// does not touch the device. There are two exceptions. Where only an ordinary read works, as
    /// on overlayfs, a page may be evicted or a file copied up after the query. The readahead of
    /// *other* open files of the same file leaves marks on pages, and the kernel starts the next
    /// readahead in the thread that reads such a page.
    Strict,
}
