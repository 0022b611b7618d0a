//! scandir(3), which calls neither opendir(3) nor readdir(3) through the linker.
//!
//! The first name is passed to the program's function before the others are read. Then the kernel
//! has read the path.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use libc::dirent64;
use nowait_ahead_channel::Kind;

use crate::watch;

/// The function that selects entries. On 64-bit machines `struct dirent` and `struct dirent64` are
/// the same.
type Select = unsafe extern "C-unwind" fn(*const dirent64) -> c_int;

#[derive(Clone, Copy)]
struct Scan {
    select: Option<Select>,
    /// The path of the directory. Null if it was sent, or is relative to another directory than the
    /// working directory.
    path: *const c_char,
    is_absolute: bool,
}

thread_local! {
    /// The scan that runs in this thread. The program's function may begin another one.
    static SCAN: Cell<Option<Scan>> = const { Cell::new(None) };
}

/// Tells of the directory, and calls the program's function.
unsafe extern "C-unwind" fn each(entry: *const dirent64) -> c_int {
    let Some(scan) = SCAN.get() else { return 1 };
    // SAFETY: the C library has opened the directory by this path.
    if !scan.path.is_null() && (!scan.is_absolute || unsafe { *scan.path } == b'/' as c_char) {
        // SAFETY: as above.
        unsafe { watch::path(Kind::Listing, scan.path) };
    }
    let scan = Scan {
        path: std::ptr::null(),
        ..scan
    };
    SCAN.set(Some(scan));
    // SAFETY: the entry is that of scandir(3), and the function is the program's.
    let result = scan.select.map_or(1, |select| unsafe { select(entry) });
    // The function may have scanned another directory.
    SCAN.set(Some(scan));
    result
}

macro_rules! scans {
    ($($name:ident ( $($dir:ident: $type:ty)? );)*) => {
        $crate::next::functions!(find $($name)*);
    $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            $($dir: $type,)? path: *const c_char, list: *mut c_void, select: Option<Select>, compare: *mut c_void,
        ) -> c_int {
            let next = find::$name.address();
            if next.is_null() {
                return -1;
            }
            // SAFETY: the C library's function of this name has this type.
            let next = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(
                    $($type,)? *const c_char, *mut c_void, Option<Select>, *mut c_void,
                ) -> c_int>(next)
            };
            let is_absolute = $($dir != libc::AT_FDCWD ||)? false;
            let scan = Scan { select, path, is_absolute };
            let before = SCAN.replace(Some(scan));
            // SAFETY: the arguments are the program's. `each` calls its function.
            let result = unsafe { next($($dir,)? path, list, Some(each), compare) };
            SCAN.set(before);
            result
        }
    )*};
}

scans! {
    scandir();
    scandir64();
    scandirat(dir: c_int);
    scandirat64(dir: c_int);
}
