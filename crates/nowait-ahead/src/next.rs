//! The functions of the C library that the interposed ones call.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The versions of the functions `__xstat` and its like, which newer C libraries have only for old
/// programs.
const XSTAT: &CStr = if cfg!(target_arch = "x86_64") {
    c"GLIBC_2.2.5"
} else {
    c"GLIBC_2.17"
};
const XSTATAT: &CStr = if cfg!(target_arch = "x86_64") {
    c"GLIBC_2.4"
} else {
    c"GLIBC_2.17"
};

/// The next definition of a function, after the one in this library.
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// `name` ends with a zero byte.
    pub const fn new(name: &'static str) -> Next {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("the name ends with a zero byte");
        };
        Next {
            name,
            address: AtomicPtr::new(null_mut()),
        }
    }

    /// Returns the address of the function, or null with errno set to ENOSYS if there is none.
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // For a name or version that is not there, the C library allocates memory.
        let version = match self.name.to_bytes() {
            b"__fxstatat" | b"__fxstatat64" => Some(XSTATAT),
            b"__xstat" | b"__xstat64" | b"__lxstat" | b"__lxstat64" => Some(XSTAT),
            _ => None,
        };
        let name = self.name.as_ptr();
        let found = match version {
            // SAFETY: the name and the version are C strings.
            Some(version) => unsafe { libc::dlvsym(libc::RTLD_NEXT, name, version.as_ptr()) },
            // SAFETY: the name is a C string.
            None => unsafe { libc::dlsym(libc::RTLD_NEXT, name) },
        };
        if found.is_null() {
            // SAFETY: the address of this thread's errno.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Defines functions of C. The block after `call =>` returns the result: it calls `call` for that
/// of the C library's function, and may use the arguments. `else` is the result if the C library
/// has no such function.
///
/// C++ exceptions and pthread_cancel(3) unwind these functions with another unwinder than that of
/// this library (build.rs). So they keep no value that is dropped after the call.
macro_rules! interpose {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty, else $none:expr, $call:ident => $body:expr;)*) => {
        $crate::next::functions!(find $($name)*);
    $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            let next = find::$name.address();
            if next.is_null() {
                return $none;
            }
            // SAFETY: the C library's function of this name has this type.
            let next: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { std::mem::transmute(next) };
            // SAFETY: the arguments are the program's.
            let $call = || unsafe { next($($arg),*) };
            $body
        }
    )*};
}
pub(crate) use interpose;

/// Defines functions of the C library, and a function that finds them.
macro_rules! functions {
    ($find:ident $($name:ident)*) => {
        #[allow(non_upper_case_globals, reason = "the names are those of C")]
        mod $find {
            use $crate::next::Next;
            $(pub static $name: Next = Next::new(concat!(stringify!($name), "\0"));)*
        }

        /// Finds the functions.
        pub fn $find() {
            $(let _ = $find::$name.address();)*
        }
    };
}
pub(crate) use functions;
