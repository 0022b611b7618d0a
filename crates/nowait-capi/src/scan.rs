//! nw_scan: the entries of a directory with metadata and extended attributes; and readahead of a
//! directory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, TryLockError};

use libc::{size_t, ssize_t};
use nowait::scan::{Batch, DirEntry, Options, Order, Scan, Xattrs, readahead_from};
use nowait::{FileType, StatxMask};

use crate::guard::{Extensible, Outcome, copy_in, errno, failed, get_mut, guard, guard_with_errno};
use crate::handle::{self, Closed, Slot};
use crate::rw::descriptor;

/// Follows symbolic links: the metadata is that of their targets, and so are d_type and ino if the
/// mask has STATX_TYPE and STATX_INO.
pub const NW_SCAN_FOLLOW: u32 = 1;
/// Accepts cached attributes of a network filesystem (AT_STATX_DONT_SYNC).
pub const NW_SCAN_DONT_SYNC: u32 = 2;
/// Returns the entries sorted by name.
pub const NW_SCAN_SORT_NAME: u32 = 4;
/// Returns the entries in the order of their inode numbers, within each run of entries that are in
/// memory together.
pub const NW_SCAN_SORT_INODE: u32 = 8;
/// Reads the names of extended attributes.
pub const NW_SCAN_XATTR_NAMES: u32 = 16;
/// Reads the names and values of extended attributes.
pub const NW_SCAN_XATTR_VALUES: u32 = 32;

const FLAGS: u32 = NW_SCAN_FOLLOW
    | NW_SCAN_DONT_SYNC
    | NW_SCAN_SORT_NAME
    | NW_SCAN_SORT_INODE
    | NW_SCAN_XATTR_NAMES
    | NW_SCAN_XATTR_VALUES;

/// The options of a scan. `size` is set by the program to sizeof(struct nw_scan_options). A field
/// that is 0 has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nw_scan_options {
    /// sizeof(struct nw_scan_options).
    pub size: size_t,
    /// NW_SCAN_FOLLOW and so on.
    pub flags: u32,
    /// The fields to ask for: STATX_BASIC_STATS and so on. 0: no metadata.
    pub mask: u32,
    /// The maximum number of workers.
    pub workers: u32,
    /// 0.
    pub reserved: u32,
    /// The number of entries that are listed and not yet returned; default 65,536.
    pub buffered_entries: u64,
    /// The bytes of those; default 32 MiB.
    pub buffered_bytes: u64,
    /// The names of the extended attributes to return, ended by a null pointer. Null: all of them.
    pub xattr_names: *const *const c_char,
}

impl Default for nw_scan_options {
    fn default() -> nw_scan_options {
        nw_scan_options {
            size: 0,
            flags: 0,
            mask: 0,
            workers: 0,
            reserved: 0,
            buffered_entries: 0,
            buffered_bytes: 0,
            xattr_names: std::ptr::null(),
        }
    }
}

// SAFETY: integers and a pointer, which may be null; the size comes first.
unsafe impl Extensible for nw_scan_options {}

/// One entry, followed by its metadata, name and attributes. nw_dirent_name, nw_dirent_statx and
/// nw_dirent_xattr read those.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nw_dirent {
    /// The bytes of this record. The next record begins after them.
    pub reclen: u32,
    /// The bytes of the name, without its NUL.
    pub name_len: u16,
    /// The file type: DT_REG and so on.
    pub d_type: u8,
    /// 0.
    pub reserved: u8,
    /// The inode number.
    pub ino: u64,
    /// −errno if the metadata could not be read.
    pub stat_error: i32,
    /// −errno if the attributes could not be read.
    pub xattr_error: i32,
    /// The offset of the name, from the start of the record.
    pub name_offset: u32,
    /// The offset of the struct statx. 0 if there is none.
    pub stat_offset: u32,
    /// The offset of the attributes. 0 if there are none.
    pub xattr_offset: u32,
    /// The bytes of the attributes.
    pub xattr_len: u32,
}

/// A scan of a directory.
pub struct nw_scan(());

struct Inner(Box<Mutex<State>>);

struct State {
    scan: Scan,
    /// The batch that is being returned, and the index of its next entry.
    batch: Option<(Batch, usize)>,
    names: Option<Vec<Vec<u8>>>,
    /// The record of the entry that a callback gets.
    record: Vec<u8>,
    /// The error that ends the scan, after all entries were returned.
    error: Option<i32>,
}

impl handle::Handle for Inner {
    type InC = nw_scan;

    fn closed() -> &'static Closed<Inner> {
        static CLOSED: Closed<Inner> = Closed::new();
        &CLOSED
    }
}

impl Inner {
    /// The state. EBUSY if another call on the scan has not returned yet: in another thread, or the
    /// one that has called back.
    fn state(&self) -> Outcome<MutexGuard<'_, State>> {
        match self.0.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(libc::EBUSY),
        }
    }
}

/// Opens the directory again. The new descriptor has a position of its own.
fn reopened(dirfd: c_int) -> Outcome<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path is a constant.
    let fd = unsafe { libc::openat(dirfd, c".".as_ptr(), flags) };
    if fd < 0 {
        // SAFETY: the address of the calling thread's `errno`.
        return Err(unsafe { *libc::__errno_location() });
    }
    // SAFETY: a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Begins a scan of a directory. `options` may be null: names alone. The scan opens the directory
/// again, and leaves the position of `dirfd` as it is. Returns 0 or −errno. See nw_xgetdents(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_scan_open(
    dirfd: c_int,
    options: *const nw_scan_options,
    scan: *mut *mut nw_scan,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let (place, fd) = unsafe { (get_mut(scan)?, descriptor(dirfd)?) };
        let asked = if options.is_null() {
            nw_scan_options::default()
        } else {
            // SAFETY: as above.
            unsafe { copy_in(options)? }
        };
        let options = asked.options()?;
        // SAFETY: as above.
        let names = unsafe { asked.names()? };
        let scan = options.from_fd(reopened(fd.as_raw_fd())?).map_err(failed)?;
        *place = Slot::open(Inner(Box::new(Mutex::new(State {
            scan,
            batch: None,
            names,
            record: Vec::new(),
            error: None,
        }))));
        Ok(0)
    })
}

impl nw_scan_options {
    fn options(&self) -> Outcome<Options> {
        let has = |flag| self.flags & flag != 0;
        if self.flags & !FLAGS != 0 || self.reserved != 0 {
            return Err(libc::EINVAL);
        }
        let mut options = Options::new()
            .follow(has(NW_SCAN_FOLLOW))
            .dont_sync(has(NW_SCAN_DONT_SYNC));
        if self.mask != 0 {
            options = options.metadata(StatxMask::from_bits_retain(self.mask));
        }
        options = match (has(NW_SCAN_SORT_NAME), has(NW_SCAN_SORT_INODE)) {
            (false, false) => options,
            (true, false) => options.order(Order::Name),
            (false, true) => options.order(Order::Inode),
            (true, true) => return Err(libc::EINVAL),
        };
        options = match (has(NW_SCAN_XATTR_NAMES), has(NW_SCAN_XATTR_VALUES)) {
            (false, false) => options,
            (true, false) => options.xattrs(Xattrs::Names),
            (_, true) => options.xattrs(Xattrs::Values),
        };
        if self.workers > 0 {
            options = options.workers(self.workers as usize);
        }
        if self.buffered_entries > 0 || self.buffered_bytes > 0 {
            let or = |value, default| if value > 0 { value } else { default };
            let entries = or(self.buffered_entries, 65_536);
            let bytes = or(self.buffered_bytes, 32 << 20);
            options = options.max_buffered(entries as usize, bytes as usize);
        }
        Ok(options)
    }

    /// The attributes to return.
    ///
    /// # Safety
    /// The list is as nw_xgetdents(3) demands.
    unsafe fn names(&self) -> Outcome<Option<Vec<Vec<u8>>>> {
        if self.xattr_names.is_null() {
            return Ok(None);
        }
        let mut names = Vec::new();
        loop {
            if names.len() > 1024 {
                return Err(libc::E2BIG);
            }
            // SAFETY: the caller's promise: the list ends with a null pointer.
            let name = unsafe { *self.xattr_names.add(names.len()) };
            if name.is_null() {
                return Ok(Some(names));
            }
            // SAFETY: the caller's promise.
            names.push(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec());
        }
    }
}

/// Ends a scan and frees it. Returns 0 or −errno. See nw_xgetdents(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_scan_close(scan: *mut nw_scan) -> c_int {
    let close = |scan: Inner| match scan.state().map(drop) {
        Ok(()) => Ok(()),
        Err(errno) => Err((errno, scan)),
    };
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe { Slot::<Inner>::close(scan, close) }.map(|()| 0))
}

/// Fills a buffer with records of entries (struct nw_dirent), as getdents64(2) does. Returns the
/// number of bytes, 0 at the end of the directory, −EINVAL if the buffer is too small for the next
/// entry, or another −errno. The next call continues. See nw_xgetdents(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_xgetdents(
    scan: *const nw_scan,
    buf: *mut c_void,
    len: size_t,
) -> ssize_t {
    guard_with_errno(|| {
        // SAFETY: the C program's promise: the manual page.
        let mut state = unsafe { Slot::<Inner>::get(scan)? }.state()?;
        if buf.is_null() {
            return Err(libc::EFAULT);
        }
        if !(buf as usize).is_multiple_of(align_of::<nw_dirent>()) || len > isize::MAX as usize {
            return Err(libc::EINVAL);
        }
        // SAFETY: as above: the buffer has `len` bytes. They are written, and never read.
        let out = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
        state.fill(out).map(|filled| filled as ssize_t)
    })
}

/// Calls `each` with every entry, until it returns another value than 0. Returns that value, 0 at
/// the end, or −errno. The entry is valid during the call. `each` must return: it must not end by
/// longjmp(3) or an exception. See nw_xgetdents(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_scan_each(
    scan: *const nw_scan,
    each: Option<unsafe extern "C" fn(entry: *const nw_dirent, data: *mut c_void) -> c_int>,
    data: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let mut state = unsafe { Slot::<Inner>::get(scan)? }.state()?;
        let each = each.ok_or(libc::EFAULT)?;
        while let Some(entry) = state.next(true)? {
            let mut record = std::mem::take(&mut state.record);
            let attributes = state.attributes(&entry);
            let size = size_of_record(&entry, &attributes);
            record.resize(record.len().max(size + align_of::<nw_dirent>()), 0);
            let start = record.as_ptr().align_offset(align_of::<nw_dirent>());
            write_record(&entry, &attributes, &mut record[start..start + size]);
            // SAFETY: the record is complete and aligned. The function is as the manual page
            // demands.
            let said = unsafe { each(record[start..].as_ptr().cast(), data) };
            state.record = record;
            if said != 0 {
                return Ok(said);
            }
        }
        Ok(0)
    })
}

impl State {
    /// Fills a buffer. Returns the number of bytes.
    fn fill(&mut self, out: &mut [u8]) -> Outcome<usize> {
        let mut filled = 0;
        // A buffer that has entries is not kept waiting for the next batch.
        while let Some(entry) = self.next(filled == 0)? {
            let attributes = self.attributes(&entry);
            let size = size_of_record(&entry, &attributes);
            let Some(room) = out.get_mut(filled..filled + size) else {
                self.put_back();
                return if filled == 0 {
                    Err(libc::EINVAL)
                } else {
                    Ok(filled)
                };
            };
            write_record(&entry, &attributes, room);
            filled += size;
        }
        Ok(filled)
    }

    /// The next entry, or `None` at the end. The errors of parts of the directory come after all
    /// other entries. If `may_wait` is false, it also returns `None` at the end of a batch.
    fn next(&mut self, may_wait: bool) -> Outcome<Option<DirEntry>> {
        loop {
            if let Some((batch, at)) = &mut self.batch {
                if let Some(entry) = batch.get(*at) {
                    *at += 1;
                    return Ok(Some(entry));
                }
                self.batch = None;
            }
            if !may_wait {
                return Ok(None);
            }
            match self.scan.blocking_batch() {
                Some(Ok(batch)) => self.batch = Some((batch, 0)),
                Some(Err(error)) => {
                    self.error.get_or_insert(errno(&error));
                }
                None => return self.error.take().map_or(Ok(None), Err),
            }
        }
    }

    /// Returns the last entry of `next` again at the next call.
    fn put_back(&mut self) {
        if let Some((_, at)) = &mut self.batch {
            *at -= 1;
        }
    }

    /// The attributes of an entry, as records, or −errno.
    fn attributes(&self, entry: &DirEntry) -> Attributes {
        let mut bytes = Vec::new();
        match entry.xattrs() {
            None => Attributes { bytes, error: 0 },
            Some(Err(error)) => Attributes {
                bytes,
                error: -errno(&error),
            },
            Some(Ok(attributes)) => {
                for (name, value) in attributes {
                    let name = name.as_bytes();
                    let is_asked = |names: &Vec<Vec<u8>>| names.iter().any(|asked| asked == name);
                    if self.names.as_ref().is_none_or(is_asked) {
                        let len = value.map_or(u32::MAX, |value| value.len() as u32);
                        bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
                        bytes.extend_from_slice(&len.to_ne_bytes());
                        bytes.extend_from_slice(name);
                        bytes.push(0);
                        bytes.extend_from_slice(value.unwrap_or_default());
                        bytes.resize(bytes.len().next_multiple_of(4), 0);
                    }
                }
                Attributes { bytes, error: 0 }
            }
        }
    }
}

/// The attributes of an entry: for each the lengths of name and value, the name with a NUL, the
/// value, and bytes up to a multiple of 4.
struct Attributes {
    bytes: Vec<u8>,
    error: i32,
}

const HEADER: usize = size_of::<nw_dirent>();
const STATX: usize = size_of::<libc::statx>();

fn size_of_record(entry: &DirEntry, attributes: &Attributes) -> usize {
    let stat = if matches!(entry.metadata(), Some(Ok(_))) {
        STATX
    } else {
        0
    };
    let name = entry.file_name_c().to_bytes_with_nul().len();
    let size = HEADER + stat + name.next_multiple_of(4) + attributes.bytes.len();
    size.next_multiple_of(align_of::<nw_dirent>())
}

fn write_record(entry: &DirEntry, attributes: &Attributes, out: &mut [u8]) {
    let name = entry.file_name_c().to_bytes_with_nul();
    let (stat, stat_error) = match entry.metadata() {
        Some(Ok(metadata)) => (Some(metadata.as_bytes()), 0),
        Some(Err(error)) => (None, -errno(&error)),
        None => (None, 0),
    };
    let name_at = HEADER + stat.map_or(0, |_| STATX);
    let xattr_at = name_at + name.len().next_multiple_of(4);
    let header = nw_dirent {
        reclen: out.len() as u32,
        name_len: (name.len() - 1) as u16,
        d_type: d_type(entry.file_type()),
        reserved: 0,
        ino: entry.ino(),
        stat_error,
        xattr_error: attributes.error,
        name_offset: name_at as u32,
        stat_offset: stat.map_or(0, |_| HEADER as u32),
        xattr_offset: if attributes.bytes.is_empty() {
            0
        } else {
            xattr_at as u32
        },
        xattr_len: attributes.bytes.len() as u32,
    };
    // SAFETY: the header consists of integers without padding.
    let header = unsafe { std::slice::from_raw_parts((&raw const header).cast::<u8>(), HEADER) };
    out[..HEADER].copy_from_slice(header);
    if let Some(stat) = stat {
        let n = stat.len().min(STATX);
        out[HEADER..HEADER + n].copy_from_slice(&stat[..n]);
    }
    out[name_at..name_at + name.len()].copy_from_slice(name);
    out[name_at + name.len()..xattr_at].fill(0);
    let end = xattr_at + attributes.bytes.len();
    out[xattr_at..end].copy_from_slice(&attributes.bytes);
    out[end..].fill(0);
}

fn d_type(kind: FileType) -> u8 {
    match kind {
        FileType::File => libc::DT_REG,
        FileType::Dir => libc::DT_DIR,
        FileType::Symlink => libc::DT_LNK,
        FileType::Fifo => libc::DT_FIFO,
        FileType::Socket => libc::DT_SOCK,
        FileType::CharDevice => libc::DT_CHR,
        FileType::BlockDevice => libc::DT_BLK,
        _ => libc::DT_UNKNOWN,
    }
}

/// Begins to load the inodes of at most `limit` entries into the kernel's caches, sorted and in the
/// background, from the position *cookie on, which is 0 at the beginning. A limit of 0 is none.
/// *cookie becomes the position after them. Returns the number of entries, 0 at the end of the
/// directory, or −errno. See nw_dirreadahead(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_dirreadahead(dirfd: c_int, limit: size_t, cookie: *mut u64) -> ssize_t {
    guard_with_errno(|| {
        // SAFETY: the C program's promise: the manual page.
        let (cookie, fd) = unsafe { (get_mut(cookie)?, descriptor(dirfd)?) };
        let options = match limit {
            0 => Options::new(),
            limit => Options::new().max_entries(limit as u64),
        };
        let directory = reopened(fd.as_raw_fd())?;
        let (ahead, next) = readahead_from(directory, *cookie, &options).map_err(failed)?;
        *cookie = next;
        Ok(ahead.stats().listed as ssize_t)
    })
}
