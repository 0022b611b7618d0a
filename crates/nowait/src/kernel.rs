//! What kernel, sandbox and filesystem allow, learnt by trying, never from a version number.
//!
//! What ENOSYS or EPERM denies holds for the process ([`Kernel`]). What EOPNOTSUPP denies holds
//! for a filesystem ([`Filesystem`]), and not even for each of its files: a handle learns for
//! itself and only starts from what its filesystem taught others.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use crate::sys::stat::FilesystemId;
use crate::sys::{self, Errno};

/// Whether something works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// It was tried and works.
    Yes,
    /// It was tried and refused with this errno.
    No(i32),
}

impl Capability {
    /// Whether it works.
    pub fn is_yes(self) -> bool {
        self == Capability::Yes
    }

    /// From what a call said of a descriptor that can't exist: only EBADF proves the call.
    fn from_probe(errno: Errno) -> Capability {
        if errno == Errno::BADF {
            Capability::Yes
        } else {
            Capability::No(errno.raw_os_error())
        }
    }

    /// From what a try gave.
    fn from_io(tried: std::io::Result<()>) -> Capability {
        tried.map_or_else(
            |e| Capability::No(e.raw_os_error().unwrap_or(libc::EIO)),
            |()| Capability::Yes,
        )
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capability::Yes => f.write_str("yes"),
            Capability::No(errno) => {
                let why = match Errno::from_raw_os_error(*errno) {
                    Errno::NOSYS => "this kernel does not have it, or a sandbox hides it",
                    Errno::PERM | Errno::ACCESS => "a sandbox or sysctl denies it",
                    Errno::OPNOTSUPP => "this filesystem or kernel refuses it",
                    Errno::NOMEM => "not enough lockable memory (RLIMIT_MEMLOCK)",
                    Errno::MFILE | Errno::NFILE => "no file descriptor left (RLIMIT_NOFILE)",
                    _ => "refused",
                };
                write!(
                    f,
                    "no: {why} ({})",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
        }
    }
}

/// What this process may call. Asked once, on first use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// preadv2(2) (4.6), and with it every cached read.
    pub preadv2: Capability,
    /// pwritev2(2) (4.6).
    pub pwritev2: Capability,
    /// cachestat(2) (6.5).
    pub cachestat: Capability,
    /// io_uring_setup(2) (5.1) with a ring of two entries.
    pub io_uring: Capability,
}

impl Kernel {
    /// What was learnt of this process's kernel and sandbox.
    ///
    /// ```
    /// let kernel = nowait::kernel::Kernel::get();
    /// println!("cachestat: {}", kernel.cachestat);
    /// ```
    pub fn get() -> &'static Kernel {
        static KERNEL: OnceLock<Kernel> = OnceLock::new();
        KERNEL.get_or_init(Kernel::probe)
    }

    /// Asks anew, without remembering: for a program that has just put on a sandbox.
    pub fn probe() -> Kernel {
        Kernel {
            preadv2: Capability::from_probe(sys::rw::probe_preadv2()),
            pwritev2: Capability::from_probe(sys::rw::probe_pwritev2()),
            cachestat: Capability::from_probe(sys::residency::probe_cachestat()),
            io_uring: Capability::from_io(io_uring::IoUring::new(2).map(drop)),
        }
    }
}

/// What io_uring offers here: learnt from rings that were made for the question and closed again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ring {
    /// `IORING_SETUP_SINGLE_ISSUER` (6.0): only one thread submits.
    pub single_issuer: Capability,
    /// `IORING_SETUP_DEFER_TASKRUN` (6.1): completions are worked on when they are waited for.
    pub defer_taskrun: Capability,
    /// `IORING_SETUP_SQPOLL`: a kernel thread takes submissions. Engines make none unasked.
    pub sqpoll: Capability,
    /// `IORING_SETUP_IOPOLL`: completions of O_DIRECT reads and writes are polled for.
    pub iopoll: Capability,
    /// `IORING_FEAT_EXT_ARG` (5.11): waits with a timeout. Engines use no ring without it.
    pub ext_arg: bool,
    /// `IORING_FEAT_NODROP` (5.5): no completion is lost. Engines use no ring without it.
    pub nodrop: bool,
    /// Each operation of [`op`](crate::op) by its name, and whether the ring does it. What it does
    /// not, workers do.
    pub operations: Vec<(&'static str, bool)>,
}

impl Ring {
    /// Tries each. `None` where no ring is to be had at all ([`Kernel::io_uring`] says why).
    ///
    /// ```
    /// match nowait::kernel::Ring::probe() {
    ///     Some(ring) => println!("deferred task work: {}", ring.defer_taskrun),
    ///     None => println!("no ring: {}", nowait::kernel::Kernel::get().io_uring),
    /// }
    /// ```
    pub fn probe() -> Option<Ring> {
        let ring = io_uring::IoUring::new(2).ok()?;
        let mut known = io_uring::Probe::new();
        let probed = ring.submitter().register_probe(&mut known).is_ok();
        let with = |set: fn(&mut io_uring::Builder)| {
            let mut builder = io_uring::IoUring::builder();
            set(&mut builder);
            Capability::from_io(builder.build(2).map(drop))
        };
        Some(Ring {
            single_issuer: with(|b| {
                b.setup_single_issuer();
            }),
            defer_taskrun: with(|b| {
                b.setup_single_issuer().setup_defer_taskrun();
            }),
            sqpoll: with(|b| {
                b.setup_sqpoll(1);
            }),
            iopoll: with(|b| {
                b.setup_iopoll();
            }),
            ext_arg: ring.params().is_feature_ext_arg(),
            nodrop: ring.params().is_feature_nodrop(),
            operations: crate::op::ALL
                .iter()
                .map(|&(name, code)| (name, probed && known.is_supported(code)))
                .collect(),
        })
    }
}

/// What was learnt of one thing on one filesystem: nothing yet, it works, or it is refused.
#[derive(Debug, Default)]
pub(crate) struct Learnt(AtomicU8);

const UNTRIED: u8 = 0;
const WORKS: u8 = 1;
const REFUSED: u8 = 2;

impl Learnt {
    /// Nothing yet.
    pub(crate) const fn untried() -> Learnt {
        Learnt(AtomicU8::new(UNTRIED))
    }

    /// What to start from where others were refused. That it worked elsewhere proves nothing here.
    pub(crate) fn like(other: &Learnt) -> Learnt {
        let start = if other.is_refused() { REFUSED } else { UNTRIED };
        Learnt(AtomicU8::new(start))
    }

    /// Whether it was refused and never worked.
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == REFUSED
    }

    /// Whether it is known to work.
    pub(crate) fn works(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WORKS
    }

    /// It worked. A plain load first: many threads come by here, few have news.
    pub(crate) fn worked(&self) {
        if !self.works() {
            self.0.store(WORKS, Ordering::Relaxed);
        }
    }

    /// It was refused.
    pub(crate) fn refused(&self) {
        self.0.store(REFUSED, Ordering::Relaxed);
    }

    /// It was refused, but what has worked on this filesystem once is not given up for all its
    /// files.
    pub(crate) fn refused_once(&self) {
        let _ = self
            .0
            .compare_exchange(UNTRIED, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// For a report.
    pub(crate) fn answer(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            WORKS => Some(true),
            REFUSED => Some(false),
            _ => None,
        }
    }
}

/// What was learnt of one mounted filesystem.
#[derive(Debug)]
pub struct Filesystem {
    id: FilesystemId,
    pub(crate) nowait_read: Learnt,
    pub(crate) nowait_write: Learnt,
    rotating: OnceLock<Option<bool>>,
}

/// Filesystems whose files live in memory: `f_type` of tmpfs, ramfs and hugetlbfs (statfs(2)).
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, HUGETLBFS];
/// hugetlbfs, and the files of memfd_create(2) with `MFD_HUGETLB`.
pub(crate) const HUGETLBFS: u64 = 0x9584_58f6;
/// ext2, ext3 and ext4; xfs; f2fs.
const OPEN_AT_ONCE: [u64; 3] = [0xef53, 0x5846_5342, 0xf2f5_2010];
/// overlayfs.
pub(crate) const OVERLAY: u64 = 0x794c_7630;
/// FUSE, virtiofs among them.
pub(crate) const FUSE: u64 = 0x6573_5546;

/// The filesystems that files were opened on.
static KNOWN: RwLock<Option<HashMap<FilesystemId, Arc<Filesystem>>>> = RwLock::new(None);

impl Filesystem {
    /// The facts about the filesystem with this identity, shared by all its files.
    pub(crate) fn of(id: FilesystemId) -> Arc<Filesystem> {
        if let Some(known) = read(&KNOWN).as_ref().and_then(|k| k.get(&id)) {
            return known.clone();
        }
        let mut known = KNOWN.write().unwrap_or_else(|e| e.into_inner());
        known
            .get_or_insert_default()
            .entry(id)
            .or_insert_with(|| {
                Arc::new(Filesystem {
                    id,
                    nowait_read: Learnt::default(),
                    nowait_write: Learnt::default(),
                    rotating: OnceLock::new(),
                })
            })
            .clone()
    }

    /// Whether the regular files of a block device can be opened for reading without waiting, once
    /// their paths are resolved: of filesystems that are known to be like that, and that a file was
    /// opened on before (the first may write). Elsewhere a server may have to be asked. Device
    /// numbers without a device are given to the next mount, and tell nothing.
    pub(crate) fn opens_at_once(dev: u64) -> bool {
        let is_one = |fs: &Filesystem| fs.id.dev == dev && OPEN_AT_ONCE.contains(&fs.id.magic);
        rustix::fs::major(dev) != 0
            && read(&KNOWN)
                .as_ref()
                .is_some_and(|known| known.values().any(|fs| is_one(fs)))
    }

    /// Whether its files live in memory, so that a plain read of one waits for no device.
    pub fn is_memory(&self) -> bool {
        IN_MEMORY.contains(&self.id.magic)
    }

    /// Whether it is overlayfs, on which cachestat(2) answers 0 whatever is cached.
    pub fn is_overlay(&self) -> bool {
        self.id.magic == OVERLAY
    }

    /// The device number (`st_dev`) of its files.
    pub fn device(&self) -> u64 {
        self.id.dev
    }

    /// Its number in statfs(2).
    pub(crate) fn magic(&self) -> u64 {
        self.id.magic
    }

    /// Whether its block device calls itself rotating. Most disks of virtual machines do, whatever
    /// they are. `None` if it has no block device, or none that can be found. Asked of /sys, once.
    pub fn rotating(&self) -> Option<bool> {
        *self.rotating.get_or_init(|| is_rotating(self.id.dev))
    }

    /// The filesystem's name as users know it, where its magic number is a known one.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.id.magic {
            0xef53 => "ext2/3/4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x0102_1994 => "tmpfs",
            0x8584_58f6 => "ramfs",
            OVERLAY => "overlayfs",
            0x6969 => "nfs",
            FUSE => "fuse",
            0xf2f5_2010 => "f2fs",
            0xff53_4d42 | 0xfe53_4d42 => "cifs",
            0x0102_1997 => "9p",
            0x9fa0 => "proc",
            0x6265_6572 => "sysfs",
            0x7371_7368 => "squashfs",
            0xe0f5_e1e2 => "erofs",
            0x2fc1_2fc1 => "zfs",
            0xca45_1a4e => "bcachefs",
            _ => return None,
        })
    }

    /// Whether cached reads (`RWF_NOWAIT`) work: `None` until a file was tried.
    pub fn nowait_read(&self) -> Option<bool> {
        self.nowait_read.answer()
    }

    /// Whether buffered writes with `RWF_NOWAIT` work: `None` until one was tried.
    pub fn nowait_write(&self) -> Option<bool> {
        self.nowait_write.answer()
    }
}

/// Asks /sys whether the block device under `st_dev` rotates. btrfs has device numbers of its own;
/// its device is the one that it was mounted from.
fn is_rotating(dev: u64) -> Option<bool> {
    let (mut major, mut minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    if major == 0 {
        let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
        let source = source_of(&mounts, &format!("{major}:{minor}"))?;
        let device = rustix::fs::stat(source)
            .ok()
            .filter(|_| source.starts_with(b"/dev/"))?;
        (major, minor) = (
            rustix::fs::major(device.st_rdev),
            rustix::fs::minor(device.st_rdev),
        );
    }
    // A partition's queue is its disk's.
    ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/rotational");
        Some(std::fs::read_to_string(path).ok()?.trim() == "1")
    })
}

/// The source of the filesystem with this device number, of /proc/PID/mountinfo
/// (proc_pid_mountinfo(5)), whose paths are any bytes.
pub(crate) fn source_of<'a>(mounts: &'a [u8], number: &str) -> Option<&'a [u8]> {
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        // 32 24 0:28 root point options [tags] - type source options
        let mut words = line.split(|byte| *byte == b' ');
        words.nth(2).filter(|word| *word == number.as_bytes())?;
        words.by_ref().find(|word| *word == b"-")?;
        words.nth(1)
    })
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    // A map of facts is whole at any moment; a panic elsewhere doesn't spoil it.
    lock.read().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_does_not_condemn_what_has_worked() {
        let fs = Learnt::default();
        fs.refused_once();
        assert!(fs.is_refused());
        fs.worked();
        fs.refused_once();
        assert!(fs.works());
    }

    #[test]
    fn the_source_of_a_mount_is_found_beside_any_names() {
        let mounts = b"28 1 0:23 / /a\\040-\\040b\xff rw - tmpfs none rw\n\
                       29 1 0:24 / /mnt rw shared:1 - btrfs /dev/vda1 rw\n";
        assert_eq!(source_of(mounts, "0:24"), Some(&b"/dev/vda1"[..]));
        assert_eq!(source_of(mounts, "0:23"), Some(&b"none"[..]));
        assert_eq!(source_of(mounts, "0:2"), None);
    }

    #[test]
    fn only_ebadf_proves_a_call() {
        assert!(Capability::from_probe(Errno::BADF).is_yes());
        assert!(!Capability::from_probe(Errno::PERM).is_yes());
        assert!(!Capability::from_probe(Errno::INVAL).is_yes());
    }
}
