//! The `RWF_*` flags of preadv2(2) and pwritev2(2), and of the ring's reads and writes.

bitflags::bitflags! {
    /// Flags of one read or write, each with the Linux version that introduced it (preadv2(2)).
    ///
    /// If the kernel or the filesystem refuses a flag, the call fails with
    /// [`Unsupported`](crate::ErrorKind::Unsupported) (EOPNOTSUPP), or with EINVAL if the
    /// combination is invalid. No flag is ever dropped silently.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RwFlags: u32 {
        /// `RWF_HIPRI`: poll for the completion. It has an effect only with O_DIRECT (4.6).
        const HIPRI = 0x01;
        /// `RWF_DSYNC`: write as if the file were open with O_DSYNC (4.7).
        const DSYNC = 0x02;
        /// `RWF_SYNC`: write as if the file were open with O_SYNC (4.7).
        const SYNC = 0x04;
        /// `RWF_NOWAIT`: do not wait for data that is not immediately available (4.14).
        const NOWAIT = 0x08;
        /// `RWF_APPEND`: write at the end of the file, whatever the offset (4.16).
        const APPEND = 0x10;
        /// `RWF_NOAPPEND`: use the offset even if the file is open with O_APPEND (6.9). overlayfs
        /// accepts the flag and appends nevertheless (seen on 6.18).
        const NOAPPEND = 0x20;
        /// `RWF_ATOMIC`: write all bytes or none, even if power fails (6.11).
        const ATOMIC = 0x40;
        /// `RWF_DONTCACHE`: use the page cache and drop the pages afterwards (6.14).
        const DONTCACHE = 0x80;
    }
}
