//! The functions of the C library that walk a tree: nftw(3), ftw(3) and fts(3). They call neither
//! opendir(3) nor stat(2) through the linker.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_short, c_ushort, c_void};
use std::ptr::null_mut;

use nowait_ahead_channel::Kind;

use crate::next::interpose;
use crate::watch;

/// A callback of nftw(3) or ftw(3). On 64-bit machines `struct stat` and `struct stat64` are the
/// same. That of ftw(3) ignores the last argument.
type Callback =
    unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int, *mut c_void) -> c_int;

thread_local! {
    /// The callback of the walk that runs in this thread. A callback may begin another walk.
    static CALLBACK: Cell<Option<Callback>> = const { Cell::new(None) };
}

/// Tells of an entry, and calls the program's callback.
unsafe extern "C-unwind" fn each(
    path: *const c_char,
    stat: *const libc::stat,
    kind: c_int,
    place: *mut c_void,
) -> c_int {
    watch::inner_stat();
    // FTW_D and FTW_DP, the same in glibc's ftw.h as in nftw's.
    const FTW_D: c_int = 1;
    if kind == FTW_D && !stat.is_null() {
        // SAFETY: nftw(3) passes a struct stat.
        let stat = unsafe { &*stat };
        watch::entered((stat.st_dev, stat.st_ino));
    }
    let callback = CALLBACK.get();
    // SAFETY: the arguments are those of nftw(3), and the callback is the program's.
    let result = callback.map_or(0, |callback| unsafe { callback(path, stat, kind, place) });
    // The callback may have walked another tree.
    CALLBACK.set(callback);
    result
}

macro_rules! walks {
    ($($name:ident ( $($arg:ident),* );)*) => {
        $crate::next::functions!(find_walks $($name)*);
    $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(path: *const c_char, callback: Option<Callback>, $($arg: c_int),*) -> c_int {
            let next = find_walks::$name.address();
            if next.is_null() {
                return -1;
            }
            // SAFETY: the C library's function of this name has this type.
            let next = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(
                    *const c_char, Option<Callback>, $($arg: c_int),*
                ) -> c_int>(next)
            };
            // SAFETY: the program's path.
            unsafe { watch::path(Kind::Walking, path) };
            let before = CALLBACK.replace(callback);
            // SAFETY: the arguments are the program's. `each` calls its callback.
            let result = unsafe { next(path, callback.map(|_| each as Callback), $($arg),*) };
            CALLBACK.set(before);
            result
        }
    )*};
}

walks! {
    nftw(fds, flags);
    nftw64(fds, flags);
    ftw(fds);
    ftw64(fds);
}

/// The beginning of glibc's FTSENT.
#[repr(C)]
struct FtsEntry {
    cycle: *mut c_void,
    parent: *mut c_void,
    link: *mut c_void,
    number: c_long,
    pointer: *mut c_void,
    accpath: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    symfd: c_int,
    pathlen: c_ushort,
    namelen: c_ushort,
    ino: libc::ino_t,
    dev: libc::dev_t,
    nlink: libc::nlink_t,
    level: c_short,
    info: c_ushort,
}

/// A directory, before its entries.
const FTS_D: c_ushort = 1;
/// The option for a walk without stat(2).
const FTS_NOSTAT: c_int = 8;

interpose! {
    fn fts_open(paths: *const *mut c_char, options: c_int, compare: *mut c_void) -> *mut c_void, else null_mut(),
        call => walking(call(), paths, options);
    fn fts64_open(paths: *const *mut c_char, options: c_int, compare: *mut c_void) -> *mut c_void, else null_mut(),
        call => walking(call(), paths, options);
    fn fts_read(walk: *mut c_void) -> *mut FtsEntry, else null_mut(), call => read(call());
    fn fts64_read(walk: *mut c_void) -> *mut FtsEntry, else null_mut(), call => read(call());
}

/// Tells of the paths if fts_open(3) has read them.
fn walking(walk: *mut c_void, paths: *const *mut c_char, options: c_int) -> *mut c_void {
    if walk.is_null() || options & FTS_NOSTAT != 0 {
        return walk;
    }
    for at in 0..64 {
        // SAFETY: the program's list of paths ends with a null pointer.
        let path = unsafe { *paths.add(at) };
        if path.is_null() {
            break;
        }
        // SAFETY: the program's path.
        unsafe { watch::path(Kind::Walking, path) };
    }
    walk
}

fn read(entry: *mut FtsEntry) -> *mut FtsEntry {
    // SAFETY: fts_read(3) has just returned this entry.
    if let Some(entry) = unsafe { entry.as_ref() } {
        watch::inner_stat();
        if entry.info == FTS_D {
            watch::entered((entry.dev, entry.ino));
        }
    }
    entry
}
