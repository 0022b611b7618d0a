//! libnowait_ahead.so: tells `nowait run` which directories and files an unmodified program opens,
//! and where its calls of stat(2) wait for the disk. `nowait run` reads ahead; see nowait-run(1).
//! With `--keep-cache` it also tells which pages of opened files are not resident, and `nowait run`
//! evicts these when the program has used them. It evicts small files itself when they are closed.
//!
//! ```text
//!  program ─► opendir, stat, open … (calls) ─► the C library's function (next)
//!                       │
//!                       └─► listing, watch, survey, learn ─► channels, memory that is shared with `nowait run`
//! ```
//!
//! # Decisions
//!
//! - **The library only watches.** It returns what the C library's function has returned. umount(2) is an exception: it
//!   is repeated if `nowait run` had files open. With `--keep-cache` there are two more: advice that evicts, and long
//!   copies (`calls/data`).
//!   It has no thread, no descriptor and only static memory, calls no malloc(3) and takes no
//!   lock. So nothing in it can deadlock with signals, fork(2) or dlopen(3), and a program that
//!   counts its descriptors or closes all of them notices nothing.
//! - **The library makes no system call**, except to survey and evict files, and with `--learn`. A program
//!   may have installed a filter that kills it for one (seccomp(2)). Only at the start the library opens and maps the
//!   channel, with the calls by which ld.so(8) loads libraries. The time is the processor's
//!   counter, the ID of the thread is the C library's, and the inode of a directory is that of its
//!   entry `.`. All else is asked by `nowait run`, which also looks if a thread has slept or read
//!   (proc(5)). These calls are made only in a process without a filter: /proc/self/status says so at
//!   the start, and `calls/sandbox` sees a filter that is installed later.
//! - **errno stays as the C library left it.**
//! - **Forked children share the channel.** The mapping is inherited, and a child that runs another
//!   program attaches by the environment.
//! - **Each call of stat(2) is timed.** A slow one is an event. The counts of the channel are
//!   changed once for `watch::CALLS_PER_COUNT` calls, and before each event.
//! - **Opened files are events of readahead only if `nowait run` reads data ahead** (`--data`). `--keep-cache` and `--learn` have
//!   events of their own.
//!
//! # Files
//!
//! A file imports only from files below it.
//!
//! ```text
//!  start     runs when the library is loaded, and when the process ends
//!  calls/    the functions that the library interposes
//!  listing   the directories that the program lists
//!  watch     what is sent of a call
//!  survey    the pages of a file that are not resident when it is opened
//!  windows   the pages of large files, before they are read
//!  survey_events  the channel of surveys, and their events
//!  residency  the resident pages of a file
//!  file      a file while it is surveyed
//!  open_files  files that the program evicts when it closes them
//!  learn     what the program reads, maps, looks up and lists
//!  path      the absolute path of a file
//!  position  the position of a descriptor
//!  statx     the device, the inode number and the size of an open file
//!  system_calls  if this process may make system calls of the library's own
//!  named     the file of a call, as the program names it
//!  thread    the ID of a thread
//!  next      the C library's functions
//! ```
#![allow(unsafe_code)]

mod calls;
mod file;
mod learn;
mod listing;
mod named;
mod next;
mod open_files;
mod path;
mod position;
mod residency;
mod start;
mod statx;
mod survey;
mod survey_events;
mod system_calls;
mod thread;
mod watch;
mod windows;
