//! POSIX AIO that is asynchronous: `libnowait_aio.so`, for unmodified programs.
//!
//! `LD_PRELOAD=libnowait_aio.so program`, or linked. The library has every function of <aio.h>: see
//! nowait-aio(7).
//!
//! ```text
//!  caller                                                 │ driver
//!                                                         │
//!  aio_read ─► submit ─► cached read: preadv2(RWF_NOWAIT) │
//!                 │         └ all cached ─► complete      │
//!  aio_write ─────┤                                       │
//!  aio_fsync ─────┤    ┌─► fd_passing: the open file ─────┼─► accept ─► scheduler ─► engine ─┐
//!                 └────┴─► queue: the request ────────────┼─────┘           └──────► stream ─┤
//!                                                         │
//!  aio_suspend, aio_error ◄─ wait, control_block ◄────────┼─ complete, notify ◄──────────────┘
//! ```
//!
//! # Decisions
//!
//! - **There is no table of requests.** The state of a request is in private fields of glibc's
//!   `struct aiocb` (`control_block`). So aio_error(3), aio_return(3) and aio_suspend(3) are loads
//!   and one futex (`wait`). They take no lock, allocate nothing, and can run in a signal handler.
//!   aio_suspend(3) may wait in a handler, whatever the handler has interrupted: a thread that has
//!   a lock of the library has all signals blocked, and the library does not use malloc(3)
//!   (`allocator`).
//! - **The program's buffer is the buffer of the engine's operation** (`request`). The operation
//!   has the right to use it until its completion.
//! - **One thread, the driver, drives a [`nowait::engine::LocalEngine`]** and completes requests
//!   (`driver`). The driver and its workers have all signals blocked, so no request delivers
//!   SIGPIPE or SIGXFSZ to the program: these signals go to the thread that writes.
//! - **The driver has a descriptor table of its own** (close_range(2), unshare(2)). A request must
//!   outlive the close(2) of its descriptor, and closing a duplicate in the program's table would
//!   drop the program's fcntl(2) locks. Open files are passed to the driver by SCM_RIGHTS
//!   (`fd_passing`). The driver has an open file once, for all requests in flight on it, and closes
//!   it before the last of them is reported as done.
//! - **Order.** Positional requests run in parallel. Appends run one after the other. Requests on
//!   files without pread(2) (pipes, sockets, terminals, eventfds) wait in epoll and not on a
//!   worker, and run in the order of submission. A synchronisation waits for the transfers that
//!   were submitted before it on the same inode.
//! - **A request is in progress, then notifying, then done** (`notification_slot`). A signal
//!   handler never sees EINPROGRESS for the request that it was notified of. Once aio_error(3) says
//!   that a request is done, its signal is queued.
//! - **The notifier starts the threads for SIGEV_THREAD** (`notify`). It is a thread with the
//!   program's descriptor table, which the new threads share.
//! - **A forked child starts without state** (`process_state`): the kernel zeroes the page of a
//!   process in a child. The parent's requests do not exist there.
//!
//! # Files
//!
//! A file imports only from files below it.
//!
//! ```text
//!  calls/               the functions of <aio.h>, _exit(2)
//!  submit/              the caller's part of a request: checks, cached reads, completion within the call
//!  allocator            the global allocator
//!  process_state        the page of a process: generation, queue, counters, heap
//!  driver_thread        starts the driver
//!  driver/              the driver: scheduler, engine, epoll, open files
//!  queue/               requests, cancellations and open files, from callers to the driver
//!  fd_passing           passes open files to the driver
//!  counters             statistics
//!  request              a checked request and its buffer
//!  notify/              signals, threads, lists, the notifier
//!  wait                 waiting threads, and waking them
//!  control_block        a `struct aiocb` and the state of its request
//!  heap                 the memory of the library
//!  sys/                 system calls
//!  abi                  C types and constants
//!  notification_slot    the state of a notification, to which a control block points
//! ```
//!
//! # Deliberately absent
//! A table keyed by address, signal handlers, pthread_atfork(3) handlers, and a limit on worker
//! threads that requests on blocked pipes could use up.
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
