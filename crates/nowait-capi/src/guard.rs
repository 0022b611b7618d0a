//! Errors as negative errnos, and panics that do not cross to C.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nowait::{Error, ErrorKind};

/// The result of a call: a number, or an errno.
pub type Outcome<T = i32> = Result<T, i32>;

/// A type that C functions return, in which a negative number is an errno.
pub trait Returned {
    fn of_errno(errno: i32) -> Self;
}

impl Returned for i32 {
    fn of_errno(errno: i32) -> i32 {
        -errno
    }
}

impl Returned for isize {
    fn of_errno(errno: i32) -> isize {
        -(errno as isize)
    }
}

/// Runs the body of a C function. An error becomes −errno, and a panic −ENOTRECOVERABLE.
#[inline]
pub fn guard<T: Returned>(body: impl FnOnce() -> Outcome<T>) -> T {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or(Err(libc::ENOTRECOVERABLE))
        .unwrap_or_else(T::of_errno)
}

/// As [`guard`], and sets `errno` if the call fails, as the system call of that name does.
#[inline]
pub fn guard_with_errno<T: Returned>(body: impl FnOnce() -> Outcome<T>) -> T {
    guard(|| {
        body().inspect_err(|errno| {
            // SAFETY: the address of the calling thread's `errno`.
            unsafe { *libc::__errno_location() = *errno };
        })
    })
}

/// Runs the body of a C function that returns nothing, or has another value for failure.
#[inline]
pub fn guard_or<T>(failed: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(failed)
}

/// The errno of an error of the library.
pub fn errno(error: &Error) -> i32 {
    if let Some(errno) = error.errno() {
        return errno;
    }
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::NeedsRing | ErrorKind::NeedsPollQueues => {
            libc::EOPNOTSUPP
        }
        ErrorKind::Cancelled => libc::ECANCELED,
        ErrorKind::DeadlinePassed => libc::ETIME,
        ErrorKind::Forked => libc::ESTALE,
        ErrorKind::Full => libc::EAGAIN,
        ErrorKind::SetFull => libc::ENFILE,
        ErrorKind::Repeats | ErrorKind::Cycle => libc::ELOOP,
        ErrorKind::Unprotected => libc::EBUSY,
        ErrorKind::Io(_) => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// The errno of an error, for `map_err`.
pub fn failed(error: impl Into<Error>) -> i32 {
    errno(&error.into())
}

/// The value that a pointer from C points to. EFAULT for a null pointer.
///
/// # Safety
/// The pointer is null, or valid for `'a`.
pub unsafe fn get<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(libc::EFAULT)
}

/// The place for a result that C passed. EFAULT for a null pointer.
///
/// # Safety
/// The pointer is null, or valid for writes for `'a`.
pub unsafe fn get_mut<'a, T>(pointer: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }.ok_or(libc::EFAULT)
}

/// A struct whose first field is its size in bytes, so that later versions can add fields.
///
/// # Safety
/// The struct consists of integers. Its first field is a `usize`.
pub unsafe trait Extensible: Copy + Default {}

/// The size of the caller's version of a struct. EINVAL for a size that no version has.
///
/// # Safety
/// The pointer is null, or points to a struct that begins with its size.
unsafe fn size_in_c<T: Extensible>(pointer: *const T) -> Outcome<usize> {
    const MAX_SIZE: usize = 4096;
    // SAFETY: the caller's promise.
    let size = unsafe { pointer.cast::<usize>().as_ref() }.ok_or(libc::EFAULT)?;
    if (size_of::<usize>()..=MAX_SIZE).contains(size) {
        Ok(*size)
    } else {
        Err(libc::EINVAL)
    }
}

/// Copies a struct that begins with its size from C. Fields that the caller's version does not have
/// are 0. E2BIG if the caller's version has further fields that are not 0, as clone3(2) does.
///
/// # Safety
/// The pointer is null, or points to as many bytes as the first field says.
pub unsafe fn copy_in<T: Extensible>(pointer: *const T) -> Outcome<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_in_c(pointer)? };
    let known = size.min(size_of::<T>());
    let mut copy = T::default();
    let bytes = pointer.cast::<u8>();
    for at in known..size {
        // SAFETY: the caller's struct has `size` bytes.
        if unsafe { *bytes.add(at) } != 0 {
            return Err(libc::E2BIG);
        }
    }
    // SAFETY: both have `known` bytes, and any integers are a valid `T`.
    unsafe { std::ptr::copy_nonoverlapping(bytes, (&raw mut copy).cast::<u8>(), known) };
    Ok(copy)
}

/// Copies a struct that begins with its size to C: as many bytes as the caller's version has.
///
/// # Safety
/// The pointer is null, or valid for writes of as many bytes as its first field says.
pub unsafe fn copy_out<T: Extensible>(value: &T, pointer: *mut T) -> Outcome<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_in_c(pointer)? };
    let known = size.min(size_of::<T>());
    let first = size_of::<usize>();
    // SAFETY: the caller's struct has `size` bytes, and `known` are those of both. Its size stays.
    unsafe {
        let to = pointer.cast::<u8>();
        let from = (&raw const *value).cast::<u8>();
        std::ptr::copy_nonoverlapping(from.add(first), to.add(first), known - first);
        std::ptr::write_bytes(to.add(known), 0, size - known);
    }
    Ok(())
}
