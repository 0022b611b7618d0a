//! call: a blocking call that has no operation of its own, made by a worker.
#![allow(unsafe_code)]

use std::io;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered};
use crate::handle::Handle;
use crate::sys::Errno;
use crate::user_code;

/// Makes a call on one of the engine's workers. It is for calls that may block and have no
/// operation here, such as rename(2). For a future of the result see
/// [`Engine::spawn_blocking`](crate::Engine::spawn_blocking).
///
/// It is in flight like any other operation. It is not made if it is cancelled, or its deadline
/// passes, before a worker has begun it.
///
/// ```
/// use nowait::engine::{Engine, Submit, Wait};
/// use nowait::op::{Call, Op};
/// let engine = Engine::new()?;
/// let call = Call::new(|| std::fs::remove_file("no such file").map(|()| 0));
/// let Submit::Queued(_) = engine.submit(Op::from(call)) else { panic!() };
/// let mut done = Vec::new();
/// engine.reap(&mut done, Wait::For(1))?;
/// let error = done.remove(0).result.unwrap_err();
/// assert_eq!(error.errno(), Some(2), "ENOENT");
/// # Ok::<(), nowait::Error>(())
/// ```
pub struct Call {
    call: Option<Box<dyn FnOnce() -> io::Result<usize> + Send>>,
    handle: Option<Handle>,
    transfers: bool,
}

impl Call {
    /// Makes this call. Its result is that of the operation, with EIO for an error without an
    /// errno. If the closure panics, the operation fails with EIO, and the worker continues.
    pub fn new(call: impl FnOnce() -> io::Result<usize> + Send + 'static) -> Call {
        Call {
            call: Some(Box::new(call)),
            handle: None,
            transfers: false,
        }
    }

    /// Makes this call on a file. It counts against the share of the workers that the file may use.
    #[must_use]
    pub fn on(mut self, handle: &Handle) -> Call {
        self.handle = Some(handle.clone());
        self
    }

    /// Makes this call as a read or write of a file.
    #[cfg(feature = "tokio")]
    pub(crate) fn transferring(self, handle: &Handle) -> Call {
        let mut call = self.on(handle);
        call.transfers = true;
        call
    }

    /// Returns true if it reads or writes its file.
    pub(crate) fn transfers(&self) -> bool {
        self.transfers
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A call that was never made is dropped on a thread of the engine, with everything that it
        // holds.
        user_code::discard(self.call.take());
    }
}

// SAFETY: a shared reference to it gives no access to the closure.
unsafe impl Sync for Call {}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Operation for Call {
    /// A ring does not support calls: `fits_ring` returns false for them.
    const OPCODE: u8 = opcode::Nop::CODE;
    const NAME: &'static str = "call";

    fn handle(&self) -> Option<&Handle> {
        self.handle.as_ref()
    }

    fn sqe(&mut self, _: &Registered<'_>) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let call = self.call.take().ok_or(Errno::INVAL)?;
        let result = user_code::call(call).ok_or(Errno::IO)?;
        result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
