//! Operations. Each owns everything that the kernel may touch until its completion.
//!
//! There is one file per operation. It defines the data that the operation owns, the asynchronous
//! form (`sqe`: the submission queue entry), the blocking form (`run`: the system call), and the
//! meaning of a result (`settle`). The engine chooses the form; the operation does not know which
//! is used.
//!
//! ```text
//!   Op ──► engine ──► sqe() ─► ring ─► result ─┐
//!              └────► run() ───────► result ───┴─► settle(result) ─► Again | Done(result)
//! ```

pub(crate) mod call;
pub(crate) mod fadvise;
pub(crate) mod fallocate;
pub(crate) mod fsync;
pub(crate) mod nop;
pub(crate) mod openat2;
mod operation;
mod progress;
pub(crate) mod read;
pub(crate) mod readv;
mod reused;
pub(crate) mod statx;
pub(crate) mod sync_file_range;
pub(crate) mod write;
pub(crate) mod writev;

use std::cell::RefCell;
use std::thread::LocalKey;
use std::time::Instant;

use io_uring::squeue;

pub use call::Call;
pub use fadvise::{Advice, Fadvise};
pub use fallocate::{Fallocate, FallocateMode};
pub use fsync::Fsync;
pub use nop::Nop;
pub use openat2::Openat2;
pub(crate) use openat2::Opens;
pub(crate) use operation::{Operation, Registered, Step, is_end};
pub(crate) use progress::{Progress, Route};
pub use read::Read;
pub use readv::Readv;
use reused::{Kept, Reuse, Reused};
pub use statx::Statx;
pub use sync_file_range::{SyncFileRange, SyncRange};
pub use write::Write;
pub use writev::Writev;

use crate::buffer::{Buffer, Source};
use crate::error::ErrorKind;
use crate::handle::Handle;
use crate::kernel::flags::RwFlags;
use crate::sys::Errno;
use crate::sys::limit::file_size_is_limited;
use crate::sys::rw::Offset;
use nowait_residency::magic;

/// One operation, ready to be submitted. Making it takes at most one allocation.
///
/// ```
/// use nowait::op::{Op, Read};
/// let file = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
/// let op = Op::from(Read::new(&file, Box::new(vec![0; 4096]), 0)).user_data(7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Op {
    /// On the heap, because an operation moves through several lists on its way to its completion.
    pub(crate) body: Reused<Body>,
}

/// The contents of an operation.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) kind: Kind,
    user_data: u64,
    deadline: Option<Instant>,
    pub(crate) progress: Progress,
}

thread_local! {
    /// The memory of operations that have ended in this thread.
    static KEPT: Kept<Body> = const { RefCell::new(Vec::new()) };
}

impl Reuse for Body {
    const KEPT: &'static LocalKey<Kept<Body>> = &KEPT;
}

impl Op {
    /// Sets a number that is returned with the operation.
    #[must_use]
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Op {
        self.body.user_data = user_data;
        self
    }

    /// Sets a deadline. An operation completes with
    /// [`DeadlinePassed`](crate::ErrorKind::DeadlinePassed) if the kernel has not begun it by then,
    /// or can still cancel it. An operation that a device is working on cannot be cancelled: it
    /// completes when the device answers, and keeps its buffer until then.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Op {
        self.body.deadline = Some(deadline);
        self
    }

    /// The number set by [`user_data`](Op::user_data).
    #[inline]
    pub fn get_user_data(&self) -> u64 {
        self.body.user_data
    }

    /// The deadline, if there is one.
    pub fn get_deadline(&self) -> Option<Instant> {
        self.body.deadline
    }

    /// Returns the operation itself, which gives access to what it owned.
    pub fn into_kind(self) -> Kind {
        self.body.into_part(|body| body.kind)
    }

    /// Makes it an operation that has not begun. The program may submit it again.
    pub(crate) fn restart(&mut self) {
        self.body.progress = Progress::default();
        if let Kind::Read(read) = &mut self.body.kind {
            read.advance(0);
        }
    }

    /// The name of the operation, as in errors.
    pub fn name(&self) -> &'static str {
        self.body.kind.name()
    }

    /// Returns the buffer of a [`Read`]. `None` for other operations.
    #[inline]
    pub fn into_buffer(mut self) -> Option<Buffer> {
        match &mut self.body.kind {
            Kind::Read(read) => Some(read.take_buffer()),
            _ => None,
        }
    }

    /// Returns the source of a [`Write`]. `None` for other operations.
    #[inline]
    pub fn into_source(mut self) -> Option<Source> {
        match &mut self.body.kind {
            Kind::Write(write) => Some(write.take_source()),
            _ => None,
        }
    }
}

macro_rules! kinds {
    ($($name:ident),*) => {
        /// An operation of any type.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each operation's own type has its documentation")]
        pub enum Kind { $($name($name)),* }

        /// The name of each operation and its io_uring opcode. A [`Call`] has no opcode.
        pub(crate) const ALL: &[(&str, u8)] = &[$(($name::NAME, $name::OPCODE)),*];

        $(impl From<$name> for Op {
            #[inline]
            fn from(op: $name) -> Op {
                Op {
                    body: Reused::new(|| Body {
                        kind: Kind::$name(op),
                        user_data: 0,
                        deadline: None,
                        progress: Progress::default(),
                    }),
                }
            }
        })*

        $(impl OpType for $name {}

        impl sealed::FromOp for $name {
            fn from_op(op: Op) -> Option<$name> {
                op.body.into_part(|body| match body.kind {
                    Kind::$name(op) => Some(op),
                    _ => None,
                })
            }
        })*

        impl Kind {
            #[inline]
            pub(crate) fn opcode(&self) -> u8 {
                match self { $(Kind::$name(_) => $name::OPCODE),* }
            }

            pub(crate) fn name(&self) -> &'static str {
                match self { $(Kind::$name(_) => $name::NAME),* }
            }

            #[inline]
            pub(crate) fn handle(&self) -> Option<&Handle> {
                match self { $(Kind::$name(op) => op.handle()),* }
            }

            #[inline(always)]
            pub(crate) fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
                match self { $(Kind::$name(op) => op.sqe(known)),* }
            }

            /// Returns true if its entry may name the file by its slot.
            pub(crate) fn in_slot(&self) -> bool {
                match self { $(Kind::$name(_) => $name::IN_SLOT),* }
            }

            pub(crate) fn run(&mut self) -> Result<usize, Errno> {
                match self { $(Kind::$name(op) => op.run()),* }
            }

            #[inline]
            pub(crate) fn settle(&mut self, result: Result<usize, Errno>) -> Step {
                match self { $(Kind::$name(op) => op.settle(result)),* }
            }
        }
    };
}

/// A type of operation: each type of this module, and [`Op`] for any of them.
///
/// [`Engine::run`](crate::Engine::run) takes an operation and returns it with its completion.
pub trait OpType: Into<Op> + sealed::FromOp {}

mod sealed {
    /// Extracts an operation of one type from an [`Op`](super::Op).
    pub trait FromOp: Sized {
        /// The operation, if it is of this type.
        fn from_op(op: super::Op) -> Option<Self>;
    }
}

impl OpType for Op {}

impl sealed::FromOp for Op {
    fn from_op(op: Op) -> Option<Op> {
        Some(op)
    }
}

impl Kind {
    /// Returns true if the result is a number of bytes of file data.
    #[inline]
    pub(crate) fn is_transfer(&self) -> bool {
        use Kind::{Read, Readv, Write, Writev};
        matches!(self, Read(_) | Readv(_) | Write(_) | Writev(_))
    }

    /// Returns true if it transfers file data without any `RWF_*` flag.
    pub(crate) fn is_unflagged(&self) -> bool {
        self.transfer().is_some_and(|(_, flags)| flags.is_empty())
    }

    /// Returns true if the page cache may hold the data that it reads.
    #[inline]
    pub(crate) fn may_be_cached(&self) -> bool {
        let reads = matches!(self, Kind::Read(_) | Kind::Readv(_));
        reads && !self.handle().is_some_and(Handle::is_direct)
    }

    /// Returns true if it may raise SIGPIPE, or SIGXFSZ with a limited file size, in the thread
    /// that runs it.
    #[inline]
    pub(crate) fn may_signal(&self) -> bool {
        match self {
            Kind::Write(_) | Kind::Writev(_) => {
                !self.handle().is_some_and(Handle::is_regular) || file_size_is_limited()
            }
            _ => false,
        }
    }

    /// Returns true if it may be repeated after EINTR. A call is made once.
    pub(crate) fn may_repeat(&self) -> bool {
        !matches!(self, Kind::Call(_))
    }

    /// Returns true if it is a read that a worker can stop. A write may have begun.
    pub(crate) fn can_be_stopped(&self) -> bool {
        matches!(self, Kind::Read(_) | Kind::Readv(_)) && self.may_block()
    }

    /// Runs the blocking form of a read once, which returns EAGAIN if it would have to wait. `None`
    /// for other operations.
    pub(crate) fn run_at_once(&mut self) -> Option<Result<usize, Errno>> {
        match self {
            Kind::Read(op) => Some(op.run_at_once()),
            Kind::Readv(op) => Some(op.run_at_once()),
            _ => None,
        }
    }

    /// Returns true if it waits for data that is not available immediately (it has no NOWAIT flag).
    pub(crate) fn may_block(&self) -> bool {
        self.transfer()
            .is_none_or(|(_, flags)| !flags.contains(RwFlags::NOWAIT))
    }

    /// The offset and the flags of an operation that transfers file data.
    #[inline]
    fn transfer(&self) -> Option<(Offset, RwFlags)> {
        match self {
            Kind::Read(op) => Some((op.positional(), op.flagged())),
            Kind::Readv(op) => Some((op.positional(), op.flagged())),
            Kind::Write(op) => Some((op.positional(), op.flagged())),
            Kind::Writev(op) => Some((op.positional(), op.flagged())),
            _ => None,
        }
    }

    /// The reason for refusing an operation that does not meet the alignment of O_DIRECT.
    #[inline]
    pub(crate) fn misaligned(&self) -> Option<ErrorKind> {
        let needed = self.handle()?.alignment()?;
        match self {
            // A read of any alignment is possible through an aligned buffer.
            Kind::Read(op) if op.positional().is_some() && op.uses_bounce_buffer() => None,
            Kind::Read(op) => needed.refuses(true, op.positional(), op.pieces()),
            Kind::Readv(op) => needed.refuses(true, op.positional(), op.pieces()),
            Kind::Write(op) => needed.refuses(false, op.positional(), op.pieces()),
            Kind::Writev(op) => needed.refuses(false, op.positional(), op.pieces()),
            _ => None,
        }
    }

    /// Returns true if the ring would only pass it on to a kernel worker: a buffered write to a
    /// file that does not support NOWAIT writes, or one that syncs. A worker of the engine needs
    /// one wake-up less.
    pub(crate) fn needs_kernel_worker(&self) -> bool {
        let waits = |handle: &Handle| !handle.is_direct() && handle.nowait_write().is_refused();
        let writes = matches!(self, Kind::Write(_) | Kind::Writev(_));
        writes && (self.handle().is_some_and(waits) || self.syncs_in_submission())
    }

    /// Returns true if it is a buffered write that syncs. If the write itself need not wait, the
    /// kernel syncs in the thread that submits it, and waits there for the device.
    #[inline]
    pub(crate) fn syncs_in_submission(&self) -> bool {
        let (Kind::Write(_) | Kind::Writev(_)) = self else {
            return false;
        };
        let flags = self.transfer().map_or(RwFlags::empty(), |(_, flags)| flags);
        let syncs = flags.intersects(RwFlags::DSYNC | RwFlags::SYNC);
        self.handle()
            .is_some_and(|handle| !handle.is_direct() && (syncs || handle.syncs()))
    }

    /// Returns true if the ring's form has the same effect as the system call. The effect differs
    /// in these cases:
    /// - Offset −1 means the file's own position, which the ring uses without the kernel's lock for
    ///   it. On pipes and sockets it may wait despite O_NONBLOCK.
    /// - Offsets on some files: [`Handle::fits_ring`].
    /// - The ring knows `HIPRI` only as a property of the whole ring.
    /// - The length of a range has 32 bits.
    /// - The ring opens a FIFO without its other end.
    /// - A statx by path occupies one of the few kernel workers, which a hung mount could hold.
    #[inline]
    pub(crate) fn fits_ring(&self) -> bool {
        match self {
            Kind::Fadvise(op) => return op.fits_ring(),
            Kind::SyncFileRange(op) => return op.fits_ring(),
            Kind::Openat2(op) => return op.opens() == Opens::AtOnce,
            Kind::Statx(op) => return !op.is_by_path(),
            Kind::Call(_) => return false,
            _ => {}
        }
        let (Some((offset, flags)), Some(handle)) = (self.transfer(), self.handle()) else {
            return true;
        };
        let fits = match offset {
            Some(offset) => i64::try_from(offset).is_ok() && handle.fits_ring(),
            None => {
                let is_fuse = handle.filesystem().magic() == magic::FUSE;
                !is_fuse && !handle.is_seekable() && !handle.is_nonblocking()
            }
        };
        fits && !flags.contains(RwFlags::HIPRI)
    }
}

kinds!(
    Read,
    Readv,
    Write,
    Writev,
    Fsync,
    SyncFileRange,
    Openat2,
    Statx,
    Fallocate,
    Fadvise,
    Call,
    Nop
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_op_in_flight_is_small() {
        assert!(size_of::<Body>() <= 288, "{}", size_of::<Body>());
    }
}
