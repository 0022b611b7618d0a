//! libnowait: nowait for C and C++. The header is `include/nowait.h`, made from this crate by
//! cbindgen.
//!
//! Each function converts its arguments, calls the library, and converts the result. It has no
//! policy of its own. Each group of functions is one file, and has one manual page:
//!
//! ```text
//!  rw           nw_preadv2, nw_pwritev2, nw_pread_cached                            nw_preadv2(3), nw_pread_cached(3)
//!  file         nw_file: a descriptor with its hit history                          nw_file(3)
//!  residency    nw_fincore, nw_resident_prefix, nw_residency                        nw_fincore(3)
//!  scan         nw_xgetdents, nw_scan_each, nw_dirreadahead                         nw_xgetdents(3), nw_dirreadahead(3)
//!  engine/      nw_engine: submit, reap, cancel; op, completion, options            nw_engine(3), nw_submit(3)
//!  mapping      nw_mapping: borrowed bytes of a mapped file                         nw_mapping(3)
//!  about        version, capabilities, names of errors                              nowait(3)
//!  handle       the memory of handles: use after close is found
//!  guard        errors as −errno; no panic crosses to C
//! ```
#![allow(unsafe_code)]
#![allow(
    non_camel_case_types,
    reason = "the types have their names in C, and cbindgen writes them to the header"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions are called from C: the header and the manual pages have the obligations"
)]

mod about;
mod engine;
mod file;
mod guard;
mod handle;
mod mapping;
mod residency;
mod rw;
mod scan;

pub use about::*;
pub use engine::*;
pub use file::*;
pub use mapping::*;
pub use residency::*;
pub use rw::*;
pub use scan::*;
