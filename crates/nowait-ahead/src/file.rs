//! A regular file of the program while it is surveyed.

use std::ffi::c_long;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nowait_ahead_channel::key;

use crate::statx::{statx, syscall};

/// `f_type` of statfs(2). Reads of their files may be served from the pages of other files, which
/// cachestat(2) does not count. So may those of FUSE, but its files may not be mapped without asking
/// the server, and the pages of others cannot be evicted by them.
const LAYERED: [u64; 2] = [libc::OVERLAYFS_SUPER_MAGIC as u64, EROFS_SUPER_MAGIC];
/// With the mount option `inode_share` (Linux 7.0), files of the same content share their pages.
const EROFS_SUPER_MAGIC: u64 = 0xe0f5_e1e2;

/// The file.
pub struct File<'a> {
    pub fd: BorrowedFd<'a>,
    /// The device and the inode number.
    pub id: (u64, u64),
    /// The [`birth`](nowait_ahead_channel::birth), or 0.
    pub birth: u32,
    /// The ID of the mount, or 0.
    pub mount: u64,
    pub size: u64,
    /// The size of a page.
    pub page: u64,
    /// The filesystem may be one of [`LAYERED`]: it has no device of its own, or its files cannot be changed.
    may_be_layered: bool,
}

impl<'a> File<'a> {
    /// `None` if it is no regular file.
    #[inline(never)]
    pub fn new(fd: BorrowedFd<'a>) -> Option<File<'a>> {
        let stat = statx(fd, libc::STATX_MNT_ID)?;
        // SAFETY: sysconf(3) knows the size of a page without a system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        stat.is_regular.then_some(File {
            fd,
            id: stat.id,
            birth: stat.birth,
            mount: stat.mount.unwrap_or(0),
            size: stat.size,
            page,
            may_be_layered: !stat.has_device || stat.is_immutable,
        })
    }

    /// The offset after the last page.
    pub fn end(&self) -> u64 {
        self.size.next_multiple_of(self.page)
    }

    /// Returns true if the files of the filesystem may be served from the pages of others. The kernel is
    /// asked once for each mount, unless there are many.
    pub fn is_layered(&self) -> bool {
        static KNOWN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
        if !self.may_be_layered {
            return false;
        }
        let mount = key((self.id.0, self.mount));
        let known = &KNOWN[(mount >> 60) as usize];
        let of = |is_layered| mount & !1 | u64::from(is_layered);
        let found = known.load(Ordering::Relaxed);
        if let Some(is_layered) = [false, true].into_iter().find(|&it| found == of(it)) {
            return is_layered;
        }
        // Before Linux 6.8, all filesystems without a device are taken to be layered.
        let is_layered = self.filesystem().is_none_or(|it| LAYERED.contains(&it));
        known.store(of(is_layered), Ordering::Relaxed);
        is_layered
    }

    /// `f_type` of statfs(2), which would ask a server. By statmount(2) of Linux 6.8.
    #[inline(never)]
    fn filesystem(&self) -> Option<u64> {
        /// The number of the call on all architectures.
        const STATMOUNT: c_long = 457;
        const SB_BASIC: u64 = 1;
        /// `STATX_MNT_ID_UNIQUE`.
        const UNIQUE_ID: u32 = 0x4000;
        /// The first words of `struct statmount`. The fourth one is `sb_magic`.
        const WORDS: usize = 8;
        let request = [24, statx(self.fd, UNIQUE_ID)?.mount?, SB_BASIC];
        let mut answer = [0_u64; WORDS];
        let next = syscall()?;
        let (request, to) = (request.as_ptr(), answer.as_mut_ptr());
        // SAFETY: the kernel reads the request, whose first word is its size, and writes at most as many bytes as
        // the answer has.
        let result = unsafe { next(STATMOUNT, request, to, size_of::<[u64; WORDS]>(), 0) };
        (result == 0 && answer[1] & SB_BASIC != 0).then_some(answer[3])
    }
}
