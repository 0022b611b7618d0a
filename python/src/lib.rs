//! The extension module `nowait._nowait`: functions of the package `nowait` for Python.
//!
//! ```text
//!  paths: str, bytes, PathLike, descriptors ─► a thread: nowait-page-cache ─► result, or OSError
//!                                    calling thread ─► signals, progress
//! ```
//! A function converts arguments and results, and has no policy. The threads of the library never
//! attach to the interpreter, so that it can shut down while they work.

mod asyncio_files;
mod cached_directory;
mod call;
mod dir_entry;
mod error;
mod evict;
mod failures;
mod hang;
mod interpreter;
mod parked;
mod paths;
mod progress;
mod read_ahead;
mod read_files;
mod residency;
mod safetensors;
mod scandir;
mod stat_result;
mod tree;
mod unknown;
mod warm;

use pyo3::prelude::*;

/// The functions of the package `nowait`.
// Not tested with free-threaded Python, so that such an interpreter enables the GIL.
#[pymodule(gil_used = true)]
mod _nowait {
    #[pymodule_export]
    use crate::asyncio_files::functions::{
        open_handle, pause, rename, scandir_in_worker, spend, stat, unlink,
    };
    #[pymodule_export]
    use crate::asyncio_files::handle::Handle;
    #[pymodule_export]
    use crate::asyncio_files::text::Text;
    #[pymodule_export]
    use crate::asyncio_files::write::Write;
    #[pymodule_export]
    use crate::cached_directory::list_cached;
    #[pymodule_export]
    use crate::dir_entry::DirEntry;
    #[pymodule_export]
    use crate::evict::{EvictResult, evict};
    #[pymodule_export]
    use crate::progress::Progress;
    #[pymodule_export]
    use crate::read_ahead::{ReadAhead, ReadAheadReport};
    #[pymodule_export]
    use crate::read_files::{ReadFiles, read_files};
    #[pymodule_export]
    use crate::residency::{Residency, residency};
    #[pymodule_export]
    use crate::scandir::{ScandirIterator, scandir};
    #[pymodule_export]
    use crate::tree::{Listing, Tree};
    #[pymodule_export]
    use crate::unknown::Unknown;
    #[pymodule_export]
    use crate::warm::{WarmResult, warm};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::check(module.py())?;
        let awaitable = crate::asyncio_files::awaitable::class(module.py())?;
        module.add("Awaitable", awaitable)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
