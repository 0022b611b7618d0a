//! call: a blocking call that no operation of its own stands for, made by a worker.
#![allow(unsafe_code)]

use io_uring::{opcode, squeue};

use super::operation::{Known, Operation};
use crate::foreign;
use crate::handle::Handle;
use crate::sys::Errno;

/// Makes a call on one of the engine's workers: whatever may block and has no operation here, such
/// as rename(2). What comes of it the closure passes on by itself.
///
/// It counts as in flight like any other. Cancelled or past its deadline before a worker has begun
/// it, it is not made.
///
/// ```
/// use nowait::engine::{Engine, Submit, Wait};
/// use nowait::op::{Call, Op};
/// let engine = Engine::new()?;
/// let (tell, told) = std::sync::mpsc::channel();
/// let call = Call::new(move || drop(tell.send(std::fs::metadata("Cargo.toml"))));
/// let Submit::Queued(_) = engine.submit(Op::from(call)) else { panic!() };
/// engine.reap(&mut Vec::new(), Wait::For(1))?;
/// assert!(told.recv()?.is_ok_and(|metadata| metadata.is_file()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Call {
    call: Option<Box<dyn FnOnce() + Send>>,
    handle: Option<Handle>,
    transfers: bool,
}

impl Call {
    /// Makes this call. One that panics ends with EIO, and the worker goes on.
    pub fn new(call: impl FnOnce() + Send + 'static) -> Call {
        Call {
            call: Some(Box::new(call)),
            handle: None,
            transfers: false,
        }
    }

    /// Makes this call on a file, against whose share of the workers it counts.
    #[must_use]
    pub fn on(mut self, handle: &Handle) -> Call {
        self.handle = Some(handle.clone());
        self
    }

    /// Makes this call on a file as a read or write of it.
    #[cfg(feature = "tokio")]
    pub(crate) fn transferring(self, handle: &Handle) -> Call {
        let mut call = self.on(handle);
        call.transfers = true;
        call
    }

    /// Whether it reads or writes its file.
    pub(crate) fn transfers(&self) -> bool {
        self.transfers
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // One that was never made is dropped on a thread of the engine's, with what it holds.
        foreign::discard(self.call.take());
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
    /// No ring has it: `fits_ring` says so.
    const OPCODE: u8 = opcode::Nop::CODE;
    const NAME: &'static str = "call";

    fn handle(&self) -> Option<&Handle> {
        self.handle.as_ref()
    }

    fn sqe(&mut self, _: &Known<'_>) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn run(&mut self) -> Result<usize, Errno> {
        let call = self.call.take().ok_or(Errno::INVAL)?;
        foreign::call(call).map(|()| 0).ok_or(Errno::IO)
    }
}
