//! The `RWF_*` flags of preadv2(2) and pwritev2(2), and of the ring's reads and writes.

bitflags::bitflags! {
    /// Per-request flags, each with the kernel that brought it (preadv2(2)).
    ///
    /// A flag that the kernel or the filesystem refuses gives an error of kind
    /// [`Unsupported`](crate::ErrorKind::Unsupported) (EOPNOTSUPP) or, where the combination makes
    /// no sense to it, EINVAL; no flag is ever dropped silently.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RwFlags: u32 {
        /// `RWF_HIPRI`: poll for the completion; needs O_DIRECT to matter (4.6).
        const HIPRI = 0x01;
        /// `RWF_DSYNC`: this write as if the file were open with O_DSYNC (4.7).
        const DSYNC = 0x02;
        /// `RWF_SYNC`: this write as if the file were open with O_SYNC (4.7).
        const SYNC = 0x04;
        /// `RWF_NOWAIT`: don't wait for what is not there at once (4.14).
        const NOWAIT = 0x08;
        /// `RWF_APPEND`: write at the end of the file, whatever the offset (4.16).
        const APPEND = 0x10;
        /// `RWF_NOAPPEND`: honour the offset even on a file open with O_APPEND (6.9). overlayfs takes
        /// it and appends all the same (seen on 6.18).
        const NOAPPEND = 0x20;
        /// `RWF_ATOMIC`: all of this write or none of it, also across a power cut (6.11).
        const ATOMIC = 0x40;
        /// `RWF_DONTCACHE`: go through the page cache but leave nothing in it (6.14).
        const DONTCACHE = 0x80;
    }
}
