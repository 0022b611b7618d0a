//! nw_mapping: borrowed bytes of a mapped file, without a system call and without a fault.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;

use libc::{size_t, ssize_t};
use nowait::buffer::UninitSlice;
use nowait::mapping::{Resident, SendResident, Unavailable};
use nowait::op::Call;
use nowait::{Engine, File, Mapping};

use crate::file::{handle_of, nw_file};
use crate::guard::{Outcome, failed, get_mut, guard, guard_or};
use crate::handle::{self, Closed, Slot};
use crate::rw::space;

/// A mapped file.
pub struct nw_mapping(());

struct Inner {
    mapping: Mapping,
}

impl handle::Handle for Inner {
    type InC = nw_mapping;

    fn closed() -> &'static Closed<Inner> {
        static CLOSED: Closed<Inner> = Closed::new();
        &CLOSED
    }
}

/// Bytes of a mapped file that stay in memory, and stay as they are, until nw_resident_release.
#[repr(C)]
pub struct nw_resident {
    /// The first byte. Null after the release.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: size_t,
    /// Belongs to the library.
    pub opaque: [u64; 8],
}

/// Borrowed bytes, as `opaque` has them. They are returned when this is dropped.
enum Borrowed {
    Here(Resident<'static>),
    Anywhere(SendResident<'static>),
}

const _: () = assert!(
    size_of::<Borrowed>() <= size_of::<[u64; 8]>() && align_of::<Borrowed>() <= align_of::<u64>()
);

impl nw_resident {
    fn fill(&mut self, borrowed: Borrowed) {
        let bytes: &[u8] = match &borrowed {
            Borrowed::Here(bytes) => bytes,
            Borrowed::Anywhere(bytes) => bytes,
        };
        self.data = bytes.as_ptr().cast();
        self.len = bytes.len();
        // SAFETY: the memory is large and aligned enough, and has no value.
        unsafe { self.opaque.as_mut_ptr().cast::<Borrowed>().write(borrowed) };
    }
}

fn range(offset: u64, len: size_t) -> Outcome<Range<u64>> {
    let end = offset.checked_add(len as u64).ok_or(libc::EINVAL)?;
    Ok(offset..end)
}

/// Maps a file. If its bytes cannot be borrowed, nw_mapping_why has the reason, and
/// nw_mapping_pread works all the same. Returns 0 or −errno. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_open(
    file: *const nw_file,
    mapping: *mut *mut nw_mapping,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let (place, handle) = unsafe { (get_mut(mapping)?, handle_of(file)?) };
        let file = File::from_handle(handle, &Engine::process().map_err(failed)?);
        let mapping = Mapping::new(&file).map_err(failed)?;
        *place = Slot::open(Inner { mapping });
        Ok(0)
    })
}

/// Frees a mapping. Everything that was borrowed must have been released. Returns 0 or −errno. See
/// nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_close(mapping: *mut nw_mapping) -> c_int {
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe { Slot::<Inner>::close(mapping, |_| Ok(())) }.map(|()| 0))
}

/// Borrows bytes if they are resident, in some tens of nanoseconds. The thread that borrows them
/// releases them. Returns 0, −EAGAIN if they are not resident, or −errno. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_get(
    mapping: *const nw_mapping,
    offset: u64,
    len: size_t,
    resident: *mut nw_resident,
) -> c_int {
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe {
        borrow(mapping, offset, len, resident, |mapping, range| {
            mapping.get(range).ok_or(libc::EAGAIN).map(Borrowed::Here)
        })
    })
}

/// As nw_mapping_get, and waits until the bytes are resident. Any thread may release them. Returns
/// 0, or −errno if they cannot be borrowed. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_load(
    mapping: *const nw_mapping,
    offset: u64,
    len: size_t,
    resident: *mut nw_resident,
) -> c_int {
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe {
        borrow(mapping, offset, len, resident, |mapping, range| {
            let loaded = mapping.blocking_load(range).map_err(failed);
            loaded.map(Borrowed::Anywhere)
        })
    })
}

/// Borrows bytes by `take`. The place has no bytes if that fails.
///
/// # Safety
/// `mapping` is as [`Slot::get`] demands, and `resident` is null or valid for writes. The program
/// releases what it borrows before it frees the mapping, so the mapping lives for as long as the
/// borrow.
unsafe fn borrow(
    mapping: *const nw_mapping,
    offset: u64,
    len: size_t,
    resident: *mut nw_resident,
    take: impl FnOnce(&'static Mapping, Range<u64>) -> Outcome<Borrowed>,
) -> Outcome<c_int> {
    // SAFETY: the caller's promise.
    let place = unsafe { get_mut(resident)? };
    place.data = std::ptr::null();
    place.len = 0;
    // SAFETY: the caller's promise.
    let mapping: &'static Inner = unsafe { Slot::<Inner>::get(mapping)? };
    place.fill(take(&mapping.mapping, range(offset, len)?)?);
    Ok(0)
}

/// The place where a load on an engine puts what it borrows. It belongs to the engine until the
/// completion.
struct Place(*mut nw_resident);

// SAFETY: only the worker that runs the load uses the place, and the program promises that it is
// valid until then.
unsafe impl Send for Place {}

/// The operation of an engine that makes the call nw_mapping_load.
///
/// # Safety
/// As `borrow`, until the operation completes.
pub unsafe fn load(
    mapping: *const nw_mapping,
    offset: u64,
    len: size_t,
    resident: *mut nw_resident,
) -> Outcome<Call> {
    // SAFETY: the caller's promise.
    let place = unsafe { get_mut(resident)? };
    place.data = std::ptr::null();
    place.len = 0;
    let place = Place(resident);
    // SAFETY: the caller's promise.
    let mapping: &'static Inner = unsafe { Slot::<Inner>::get(mapping)? };
    let range = range(offset, len)?;
    Ok(Call::new(move || {
        let Place(resident) = { place };
        let loaded = mapping.mapping.blocking_load(range);
        let bytes = loaded.map_err(|error| io::Error::from_raw_os_error(failed(error)))?;
        // SAFETY: the caller's promise.
        unsafe { (*resident).fill(Borrowed::Anywhere(bytes)) };
        Ok(0)
    }))
}

/// Returns borrowed bytes. Does nothing after the first call. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_resident_release(resident: *mut nw_resident) {
    guard_or((), || {
        // SAFETY: the C program's promise: the manual page.
        let Some(resident) = (unsafe { resident.as_mut() }) else {
            return;
        };
        if resident.data.is_null() {
            return;
        }
        resident.data = std::ptr::null();
        let place: *mut MaybeUninit<Borrowed> = resident.opaque.as_mut_ptr().cast();
        // SAFETY: `fill` has written the value, and it is taken once.
        drop(unsafe { (*place).assume_init_read() });
    });
}

/// Makes bytes resident in the background. Returns 0 or −errno. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_prefetch(
    mapping: *const nw_mapping,
    offset: u64,
    len: size_t,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let mapping = unsafe { Slot::<Inner>::get(mapping)? };
        mapping.mapping.prefetch(range(offset, len)?);
        Ok(0)
    })
}

/// Copies bytes: from memory if they are resident, otherwise by an ordinary read, which may wait.
/// Returns the number of bytes, or −errno. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_pread(
    mapping: *const nw_mapping,
    buf: *mut c_void,
    len: size_t,
    offset: u64,
) -> ssize_t {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let (mapping, space) = unsafe { (Slot::<Inner>::get(mapping)?, space(buf, len)?) };
        let space = match space {
            UninitSlice::Raw(memory) => {
                let start = memory.start().cast::<MaybeUninit<u8>>();
                // SAFETY: as above: the memory is writable. The calling thread copies into it.
                UninitSlice::Uninit(unsafe { std::slice::from_raw_parts_mut(start, memory.len()) })
            }
            empty => empty,
        };
        let read = mapping.mapping.blocking_read_at(space, offset);
        Ok(read.map_err(failed)? as ssize_t)
    })
}

/// The length of the mapped file, or −errno. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_len(mapping: *const nw_mapping) -> ssize_t {
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe { Slot::<Inner>::get(mapping) }.map(|mapping| mapping.mapping.len() as ssize_t))
}

/// The reason why no bytes can be borrowed, a constant; null if they can. See nw_mapping(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_mapping_why(mapping: *const nw_mapping) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: the C program's promise: the manual page.
        let why = unsafe { Slot::<Inner>::get(mapping) }.map(|mapping| mapping.mapping.why());
        let text = match why {
            Ok(None) => return std::ptr::null(),
            Err(_) => c"not a mapping",
            Ok(Some(Unavailable::OpenForWriting)) => c"the file is open for writing",
            Ok(Some(Unavailable::NotOwner)) => {
                c"the file belongs to another user, and the process lacks CAP_LEASE"
            }
            Ok(Some(Unavailable::Filesystem)) => {
                c"files of this filesystem can change beside a lease"
            }
            Ok(Some(Unavailable::Nameless)) => {
                c"the file has no name, and its filesystem is a tmpfs"
            }
            Ok(Some(Unavailable::OthersMayWrite)) => {
                c"the file is on xfs, and another user owns it or may write to it"
            }
            Ok(Some(Unavailable::LeaseBroken)) => {
                c"the file was opened for writing or truncated after it was mapped"
            }
            Ok(Some(Unavailable::NoBudget)) => c"no memory can be locked: RLIMIT_MEMLOCK",
            Ok(Some(Unavailable::Forked)) => c"the mapping belongs to the parent of this process",
            Ok(Some(_)) => c"the file cannot be mapped, or the kernel denies a call that is needed",
        };
        text.as_ptr()
    })
}
