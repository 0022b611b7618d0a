//! Reads directories and files into the kernel's caches ahead of a program. `nowait run` uses this
//! crate; see nowait-run(1).
//!
//! ```text
//!  the program ── events ──► channel ──► follow ──► trees ──► walks read inodes
//!       │                                  │          └─────► files: threads read data
//!       └────────── inotify(7) ────────────┼──► watches ──► trees
//!                                          └──► comparison, disk: does readahead help?
//! ```
//!
//! # Files
//!
//! The imports have no circle.
//!
//! ```text
//!  readahead    all of it together
//!  follow       which directories are read
//!  evictor      evicts what the program has added to the page cache
//!  evictions    the report of what it has evicted
//!  surveyed_file    a file of it
//!  renamed      files that are not at their paths
//!  surveyed     what surveys have found about its pages
//!  learner      what a program uses
//!  path_starts  the beginnings of long paths
//!  process      opens the directories that an event names
//!  trees        the walks, and how long they wait for the program
//!  watches      the directories and files that the program opens, by inotify(7)
//!  directories  the directories that the walks have found, and how far the program is
//!  files        reads the data of files
//!  file_queue   which files are read next, and how many
//!  found_files  the files of a directory that were found
//!  roots        the roots of the walks in which they are to be read
//!  siblings     the order in which a program opens directories
//!  sequence     the order in which a program opens files
//!  comparison   the program's speed with readahead and without
//!  disk         the disks that seek
//!  cached       if a directory or a tree is cached already
//!  directory    the identity of a directory, how it is opened, and its listing
//!  mounts       the mount points at which filesystems are unmounted, and the mounts of open files
//!  uses         the files that a program has open or mapped
//!  threads      if a thread has slept or read
//! ```

mod cached;
mod comparison;
mod directories;
mod directory;
mod disk;
mod evictions;
mod evictor;
mod file_queue;
mod files;
mod follow;
mod found_files;
mod learner;
mod mounts;
mod path_starts;
mod process;
mod readahead;
mod renamed;
mod roots;
mod sequence;
mod siblings;
mod surveyed;
mod surveyed_file;
mod threads;
mod trees;
mod uses;
mod watches;

pub use comparison::{Comparison, Sum};
pub use directories::Summary as Inodes;
pub use evictions::{Evictions, Sums};
pub use evictor::Evictor;
pub use file_queue::Summary as Data;
pub use follow::Activity;
pub use learner::{LEARNING_TIME, Learned, Learner, Use};
pub use readahead::{Readahead, Report};
