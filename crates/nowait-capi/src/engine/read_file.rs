//! nw_read_file: a whole small file in one operation.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use libc::size_t;
use nowait::IoBufMut;
use nowait::op::{Call, Op};
use nowait::read_files::{blocking_read_into, try_read_into_cached};

use super::completion::NW_BY_CALLER;
use super::op::{memory, path};
use super::{Inner, NW_DONE, nw_completion, nw_engine};
use crate::guard::{errno, get_mut, guard};

/// Opens the regular file at `path`, reads it from its beginning until `len` bytes are read or it ends, and closes it. If
/// path and pages are cached, the calling thread does it, up to the engine's `copy_limit`. Otherwise one worker does all of it. Returns
/// NW_DONE, NW_QUEUED or NW_FULL, or −errno if a pointer is null or `len` is too large. The result is the number of bytes: the
/// file is whole if they are fewer than `len`. See nw_read_file(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_read_file(
    engine: *const nw_engine,
    path: *const c_char,
    buf: *mut c_void,
    len: size_t,
    user_data: u64,
    completion: *mut nw_completion,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let (engine, place) = unsafe { (Inner::get(engine)?, get_mut(completion)?) };
        // SAFETY: as above.
        let (path, mut memory) = unsafe { (self::path(path)?, memory(buf, len as u64)?) };
        let path = PathBuf::from(OsString::from_vec(path.into_bytes()));
        let (limit, mode) = (engine.copy_limit, engine.mode);
        let read = limit.and_then(|it| try_read_into_cached(&path, memory.as_uninit(), it, mode));
        if let Some(read) = read {
            let result = read.map_or_else(|error| -i64::from(errno(&error)), |n| n as i64);
            *place = nw_completion {
                user_data,
                result,
                cached: result.max(0).cast_unsigned(),
                served_by: NW_BY_CALLER,
                ..nw_completion::default()
            };
            return Ok(NW_DONE);
        }
        let call = Call::new(move || {
            let read = blocking_read_into(&path, memory.as_uninit());
            read.map_err(|error| io::Error::from_raw_os_error(errno(&error)))
        });
        Ok(engine.submit(Op::from(call).user_data(user_data), place))
    })
}
