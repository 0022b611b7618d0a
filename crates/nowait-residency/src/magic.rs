//! Magic numbers of filesystems: `f_type` of statfs(2), as in linux/magic.h.

pub const AFS: u64 = 0x5346_414f;
pub const BCACHEFS: u64 = 0xca45_1a4e;
pub const BTRFS: u64 = 0x9123_683e;
pub const CEPH: u64 = 0x00c3_6400;
pub const CIFS: u64 = 0xff53_4d42;
pub const DEBUGFS: u64 = 0x6462_6720;
pub const EROFS: u64 = 0xe0f5_e1e2;
/// ext2, ext3 and ext4.
pub const EXT4: u64 = 0xef53;
pub const F2FS: u64 = 0xf2f5_2010;
/// FUSE and virtiofs.
pub const FUSE: u64 = 0x6573_5546;
/// hugetlbfs, and the files of memfd_create(2) with `MFD_HUGETLB`.
pub const HUGETLBFS: u64 = 0x9584_58f6;
/// Lustre. Its client prefetches attributes while one thread queries entries in the directory's
/// order.
pub const LUSTRE: u64 = 0x0bd0_0bd0;
pub const NFS: u64 = 0x6969;
pub const OVERLAYFS: u64 = 0x794c_7630;
pub const PROC: u64 = 0x9fa0;
pub const RAMFS: u64 = 0x8584_58f6;
pub const SMB2: u64 = 0xfe53_4d42;
pub const SQUASHFS: u64 = 0x7371_7368;
pub const SYSFS: u64 = 0x6265_6572;
pub const TMPFS: u64 = 0x0102_1994;
pub const TRACEFS: u64 = 0x7472_6163;
pub const V9FS: u64 = 0x0102_1997;
pub const XFS: u64 = 0x5846_5342;
pub const ZFS: u64 = 0x2fc1_2fc1;
