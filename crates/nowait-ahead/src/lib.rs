//! libnowait_ahead.so: tells `nowait run` which directories and files an unmodified program opens, and where its calls of
//! stat(2) wait for the disk. `nowait run` reads ahead; see nowait-run(1).
//!
//! ```text
//!  program ─► opendir, stat, open … (calls) ─► the C library's function (next)
//!                       │
//!                       └─► watch ─► the channel, memory that is shared with `nowait run`
//! ```
//!
//! # Decisions
//!
//! - **The library only watches.** It returns what the C library's function has returned. It has no thread, no descriptor and no
//!   memory of its own, calls no malloc(3) and takes no lock. So nothing in it can deadlock with signals, fork(2) or
//!   dlopen(3), and a program that counts its descriptors or closes all of them notices nothing.
//! - **errno stays as the C library left it.** The system calls of this library are made by rustix, which leaves errno alone.
//!   The clock is the C library's: valgrind does not map the one that rustix reads.
//! - **Forked children share the channel.** The mapping is inherited, and a child that runs another program attaches by the
//!   environment.
//! - **A call of stat(2) is timed one time in sixteen**, and more often after a slow one. The others only add to a counter.
//! - **Opened files are told of only if `nowait run` reads data ahead** (`--data`).
//!
//! # Files
//!
//! A file imports only from files below it.
//!
//! ```text
//!  calls/    the functions that the library interposes
//!  watch     what is told of a call
//!  next      the C library's functions
//! ```
#![allow(unsafe_code)]

mod calls;
mod next;
mod watch;
