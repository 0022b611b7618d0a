//! POSIX AIO that is asynchronous: `libnowait_aio.so`, for unmodified programs.
//!
//! `LD_PRELOAD=libnowait_aio.so program`, or linked: every function of <aio.h>, see nowait-aio(7).
//!
//! ```text
//!  aio_read ─ begin ─ attempt: preadv2(NOWAIT) ─ all ─► done, within the call
//!                          └ not here ─► desk ─┬─ letter (SCM_RIGHTS): the file ─┐
//!  aio_write, aio_fsync ────────────────────►──┴─ queue: the request ────────────┴─► keeper
//!                                                                                      │
//!         aio_suspend, aio_error ◄─ block's words ◄─ notice ◄───────────── LocalEngine ┘
//! ```
//!
//! # What was decided
//!
//! - **The table of requests is the control blocks themselves** (`aiocb`). Private words of glibc's
//!   `struct aiocb` say whether a block is in flight in this process, and how it ended. So
//!   aio_error(3), aio_return(3) and aio_suspend(3) are loads and one futex (`wait`): they take no
//!   lock, allocate nothing, and reap nothing. They may wait in a handler, whatever it interrupted: who
//!   holds a lock of ours takes no signals, and the library has a heap of its own (`heap.rs`).
//! - **The program's buffer becomes an operation's** (`request::Memory`): the operation owns the
//!   right to it, until its completion.
//! - **One thread, the keeper, drives a [`nowait::engine::LocalEngine`]** and finishes requests
//!   (`keeper`). It and all its workers take no signals, so none reaches the program because of a
//!   request (SIGPIPE and SIGXFSZ go to the thread that writes).
//! - **Files in flight live in another descriptor table.** A request must outlive the close(2) of its
//!   descriptor, and closing a duplicate in the program's table would drop the program's fcntl(2)
//!   locks. So the keeper has a table of its own (close_range(2), unshare(2)), in which files arrive by
//!   letter (`mail`). It has an open file once, however many requests are in flight on it, and lets
//!   go of it before it says that the last of them is done.
//! - **Order.** Positional requests go to the engine in parallel; appends one after the other; what has
//!   no pread(2) (pipes, sockets, terminals, eventfds) waits in epoll, not in a worker, and is read and
//!   written in the order submitted; a synchronisation waits for what came before it on the same inode.
//! - **In progress, notifying, done** (`notice`): a handler never sees EINPROGRESS for the request
//!   that it was told of, and once aio_error(3) says done the signal is queued. After that the block is
//!   the program's, which may have freed it: that the telling is over is not said there.
//! - **Threads for SIGEV_THREAD are started by the herald**, a thread in the program's descriptor table:
//!   a new thread shares its starter's, and the keeper's is not the program's.
//! - **A forked child begins anew** (`home`): what belongs to a process lies in a page that the kernel
//!   wipes in a child. There the requests of the parent are not known.
//!
//! # What is deliberately absent
//! A table keyed by address, signal handlers, atfork handlers, and a limit on worker threads that
//! blocked pipes could use up.
#![allow(unsafe_code)]

mod abi;
mod allocator;
mod calls;
mod control_block;
mod counters;
mod driver;
mod driver_thread;
mod fd_passing;
mod heap;
mod notification_slot;
mod notify;
mod process_state;
mod queue;
mod request;
mod submit;
mod sys;
mod wait;

pub use abi::{Aiocb, Sigevent};
pub use calls::*;
