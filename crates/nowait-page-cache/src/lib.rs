//! Fills and empties the page cache. The program `nowait` and the Python package share this policy;
//! they parse options, print, and handle signals.
//!
//! ```text
//!  visit: a given path, or the regular files below it ─┬─► Prefetcher: reads the missing ranges
//!             (FileRef: opened later, if unchanged)     └─► examine: threads ─► evict_all: advice, and
//!                                                                             the reasons why pages stay
//! ```
//! [`ReadAhead`] reads files while the program loads them, and follows the program's position.
//! [`Reporter`] hears of files that fail, [`Stop`] ends the work early, [`Budget`] is the memory that
//! may be used.

mod batches;
mod evict;
mod examine;
mod file_ref;
mod holes;
mod operations;
mod populate;
mod prefetch;
pub mod proc;
mod pseudo;
mod read_ahead;
mod reporter;
mod seen_inodes;
pub mod size;
mod stop;
mod unknown;
mod visit;

pub use batches::Batches;
pub use evict::{
    Action, Counted, Kind, MappingProcess, MappingProcesses, Row, Totals, Why, evict_all,
};
pub use examine::examine;
pub use file_ref::{FileRef, OpenError, TreeRoot, open_for_readahead};
pub use holes::data_ranges;
pub use populate::begin_to_read;
pub use prefetch::{
    Allowed, Budget, Limits, Prefetcher, Progress, Recount, Request, Selection, Stamp, Stopped,
    Summary, Total, engine,
};
pub use pseudo::{PseudoDevices, PseudoMounts};
pub use read_ahead::{Chosen, ReadAhead, Report};
pub use reporter::{Reporter, report_cycle, report_error};
pub use seen_inodes::SeenInodes;
pub use stop::{LOOK, Stop};
pub use unknown::{Unknown, Unknowns};
pub use visit::{Given, Kinds, given, visit};
