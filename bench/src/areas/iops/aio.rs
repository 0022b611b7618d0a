//! Linux's old asynchronous interface by the numbers of its system calls: io_setup(2), io_submit(2),
//! io_getevents(2) and io_destroy(2). libaio is a library for these four.
//!
//! A [`Queue`] owns the files and the memory that the kernel uses, until the context is destroyed.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use nowait::buffer::PoolBuffer;
use nowait_cli::problem::Problem;

use super::load::{self, Done, Parts};
use crate::harness::contender::Fit;

/// A context of the kernel, with the files and the memory of its requests. Each piece of memory is
/// a slot with one request at a time.
pub struct Queue {
    context: Context,
    slots: Vec<Slot>,
    /// Requests that are prepared and not submitted.
    ready: Vec<*mut libc::iocb>,
    events: Vec<Event>,
    files: Vec<File>,
}

/// A context. Dropping it waits for its requests, so that it is the first field of [`Queue`].
struct Context(libc::c_ulong);

struct Slot {
    /// The request, in a box, because the kernel keeps its address.
    request: Box<libc::iocb>,
    /// The memory that the request points to.
    _memory: PoolBuffer,
    in_flight: bool,
}

/// `struct io_event`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    second_result: i64,
}

/// Returns if this kernel has the calls.
pub fn fits() -> Fit {
    match Context::new(1) {
        Ok(_) => Fit::Yes,
        Err(e) => Fit::No(format!("io_setup(2) says: {e}")),
    }
}

impl Context {
    /// A context for this many requests.
    fn new(room: usize) -> io::Result<Context> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to `id`.
        check(unsafe { libc::syscall(libc::SYS_io_setup, room as u32, ptr::from_mut(&mut id)) })?;
        Ok(Context(id))
    }
}

impl Queue {
    pub fn new(parts: Parts) -> Result<Queue, Problem> {
        let room = parts.memory.len();
        Ok(Queue {
            context: Context::new(room).map_err(|e| Problem::of("io_setup", e))?,
            ready: Vec::with_capacity(room),
            events: vec![Event::default(); room],
            files: parts.files,
            slots: parts.memory.into_iter().map(Slot::new).collect(),
        })
    }

    /// Submits all prepared requests: io_submit(2), again if it takes only a part of them.
    fn submit(&mut self) -> io::Result<()> {
        let mut taken = 0;
        while taken < self.ready.len() {
            let rest = &self.ready[taken..];
            // SAFETY: the kernel reads `n` pointers and the requests that they point to, which are
            // boxed in slots. Each request names a file and memory of this queue, which are freed
            // after the context, and which are not used while the slot is in flight.
            let done = unsafe {
                let (n, requests) = (rest.len() as libc::c_long, rest.as_ptr());
                libc::syscall(libc::SYS_io_submit, self.context.0, n, requests)
            };
            match check(done) {
                Ok(n) => taken += n,
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
                Err(e) => return Err(e),
            }
        }
        self.ready.clear();
        Ok(())
    }

    /// Waits for at least this many requests, io_getevents(2). Returns the number of events.
    fn wait(&mut self, at_least: usize) -> io::Result<usize> {
        // SAFETY: the kernel writes at most `events.len()` structures of this layout.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context.0,
                at_least as libc::c_long,
                self.events.len() as libc::c_long,
                self.events.as_mut_ptr(),
                ptr::null_mut::<libc::timespec>(),
            )
        };
        match check(done) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }
}

impl load::Queue for Queue {
    /// Does nothing if the slot is in flight.
    #[inline]
    fn prepare(&mut self, slot: usize, file: usize, offset: u64) {
        const IOCB_CMD_PREAD: u16 = 0;
        let file = self.files[file].as_raw_fd();
        let of = &mut self.slots[slot];
        if std::mem::replace(&mut of.in_flight, true) {
            return;
        }
        let request = &mut *of.request;
        request.aio_data = slot as u64;
        request.aio_lio_opcode = IOCB_CMD_PREAD;
        request.aio_fildes = file as u32;
        request.aio_offset = offset as i64;
        self.ready.push(ptr::from_mut(request));
    }

    fn submit_and_wait(&mut self, at_least: usize, done: &mut Vec<Done>) -> Result<(), Problem> {
        self.submit().map_err(|e| Problem::of("io_submit", e))?;
        let n = self.wait(at_least);
        let n = n.map_err(|e| Problem::of("io_getevents", e))?;
        for event in &self.events[..n] {
            let slot = event.data as usize;
            self.slots[slot].in_flight = false;
            let failed = |_| io::Error::from_raw_os_error(-event.result as i32);
            let read = usize::try_from(event.result).map_err(failed);
            done.push((slot, read.map_err(|e| Problem::of("read", e))));
        }
        Ok(())
    }
}

impl Slot {
    fn new(mut memory: PoolBuffer) -> Slot {
        // SAFETY: all zeroes is a valid `iocb`.
        let mut request: Box<libc::iocb> = Box::new(unsafe { std::mem::zeroed() });
        request.aio_buf = memory.as_mut_ptr() as u64;
        request.aio_nbytes = memory.len() as u64;
        Slot {
            request,
            _memory: memory,
            in_flight: false,
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the call waits until the kernel is done with every request of this context.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn check(done: libc::c_long) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}
