//! Residency: which pages of a file are in the page cache, without reading the file.
//!
//! The answers come from cachestat(2). If cachestat is missing, denied or wrong for the file, they
//! come from mincore(2) on a mapping of the file. If mincore is wrong as well, the answer is
//! "unknown", with the [`Reason`]. A query reads no data, starts no I/O, and marks no page as used.
//! The functions follow the `fincore(2)` that was proposed on the kernel list in 2015.
//! Nothing here is asynchronous. Linux 6.1 or newer, 64 bits.
//!
//! ```
//! use nowait_residency::{Answer, resident_prefix};
//! let file = std::fs::File::open("Cargo.toml")?;
//! match resident_prefix(&file, 0, 4096)? {
//!     Answer::Known { value: 0, .. } => println!("the first byte is not in the page cache"),
//!     Answer::Known { value, source } => println!("{value} bytes are cached ({source})"),
//!     Answer::Unknown(reason) => println!("unknown: {reason}"),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Sources
//! - cachestat(2) (Linux 6.5), for regular files and block devices. Since 6.14, and in stable
//!   kernels of that time, it fails with EPERM if the caller neither owns the file, nor may write
//!   it, nor has it open for writing.
//! - mincore(2), if cachestat is missing, is denied, or answers 0 whatever is cached. That is the
//!   case on overlayfs, on FUSE if the server passes reads on (Linux 6.9), and on EROFS with the mount
//!   option `inode_share` (Linux 7.0): reads use the pages of other files there. All files of FUSE
//!   and EROFS are queried by mincore. On
//!   overlayfs the file is opened again by way of /proc to be mapped, because an older descriptor
//!   may map another file than it reads. Without /proc the answer is "unknown". If the caller
//!   neither owns the file nor may write it, mincore reports every page as resident (since Linux
//!   5.2). A probe therefore asks first about a page far beyond the end of the file, which cannot
//!   be resident. If mincore reports that page as resident, it is not used.
//! - Neither is correct for hugetlbfs.
//!
//! An answer describes a moment: pages come and go while it is returned. Beyond that,
//! - cachestat counts a page as soon as the read of the page *begins*. A read of such a page waits,
//!   and a NOWAIT read fails with EAGAIN. mincore counts the page when its data has arrived.
//! - A page is counted even if only its first byte lies within the file, and even if the range
//!   begins after the end of the file, in the file's last page. [`resident_prefix`] counts bytes,
//!   and those of the file alone.
//! - On tmpfs, pages in swap are not cached. cachestat counts them as evicted.
//! - A hole that was read is cached like data. mincore is not asked about contiguous holes of more
//!   than 64 MiB. Their pages count as not cached, and [`Residency::unasked`] and
//!   [`PageMap::unasked`] return their number.
//! - Files with DAX have no page cache. None of their pages is reported as cached.
//!
//! # Cost
//! Microseconds on one machine with Linux 6.18. The program `nowait` measures the
//! machine that it runs on (`nowait doctor`).
//!
//! | | cachestat | mincore |
//! |---|---|---|
//! | a page, by a [`Probe`] that is kept | 0.2 yes, 0.4 no | 0.9 |
//! | a page of a file not asked about before | 1.3 | 12 |
//! | 64 MiB, nothing cached | 0.4 | 650 |
//! | 64 MiB, cached page by page | 470 | 970 |
//! | 64 MiB, cached by readahead | 92 | 980 |
//! | the map of 64 MiB, 20 runs | 270 | 690 |
//! | the map of 64 MiB, every other page | 9,600; with mincore's help 1,400 | 920 |

mod answer;
pub mod cgroup;
mod choice;
pub mod device;
mod display_path;
mod error;
mod files;
pub mod leases;
#[doc(hidden)]
pub mod magic;
mod mapped;
mod page_map;
mod page_query;
mod pages;
mod probe;
pub mod proc;
pub mod ranges;
pub mod source_cache;
#[doc(hidden)]
pub mod sys;
pub mod tasks;
pub mod windows;

pub use answer::{Answer, Reason, Source};
pub use display_path::DisplayPath;
pub use error::{Error, Result};
pub use files::residency_of_files;
pub use page_map::{PageMap, Run, Runs};
pub use pages::{page_size, pages};
pub use probe::{Probe, Residency, page_map, residency, residency_of_ranges, resident_prefix};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
