//! The set of files that are registered with an engine's ring.

use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::handle::Handle;
use crate::handle::registered::{Notified, Table};

/// Files that are registered with an engine's ring. The kernel does not have to look up the file,
/// and take and release a reference to it, for each operation. Made by
/// [`Engine::file_set`](super::Engine::file_set) or
/// [`LocalEngine::file_set`](super::LocalEngine::file_set). Clones refer to the same set.
///
/// Files and memory ([`Options::buffers`](super::Options::buffers)) are registered to save
/// processor time if many reads are in flight. Random reads of 512 bytes with O_DIRECT from loop
/// devices, by one thread, took 0.73 (0.65–0.82) of the processor time with 64 reads in flight, and
/// 0.83 (0.67–0.92) with 16. With 4 or fewer in flight, no difference was measured
/// (`nowait-bench iops`).
///
/// If the kernel has no sparse file table (before 5.19) or the engine has no ring, handles of the
/// set work like all others, and [`support`](super::Engine::support) gives the reason. Follows
/// io_uring_register(2), `IORING_REGISTER_FILES2` and `IORING_REGISTER_FILES_UPDATE`.
///
/// ```
/// use nowait::engine::{LocalEngine, Wait};
/// use nowait::op::{Op, Read};
/// let mut engine = LocalEngine::new()?;
/// let files = engine.file_set(16)?;
/// let plain = nowait::Handle::new(std::fs::File::open("Cargo.toml")?)?;
/// let file = files.insert(&plain)?;
/// engine.submit_batch(&mut vec![Op::from(Read::new(&file, Box::new(vec![0; 16]), 0))]);
/// let mut done = Vec::new();
/// engine.reap(&mut done, Wait::For(1))?;
/// assert!(matches!(done[0].result, Ok(16)));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSet(Arc<Table>);

impl FileSet {
    /// Adds a file, and returns a handle of it. Operations on that handle use the slot of the set
    /// on the engine of the set. They use the descriptor on other engines and in workers.
    ///
    /// The slot becomes free when the last clone of that handle is dropped and no operation on it
    /// is in flight. The file stays open until the engine has cleared the slot. An idle shared
    /// engine does that immediately, a local engine when it next submits or reaps.
    ///
    /// # Errors
    /// [`SetFull`](crate::ErrorKind::SetFull) if no slot is free;
    /// [`Forked`](crate::ErrorKind::Forked) in a forked child.
    pub fn insert(&self, handle: &Handle) -> Result<Handle> {
        let slot = self.0.insert(handle.open_file())?;
        Ok(handle.plain().in_slot(slot))
    }

    /// The number of files that the set has room for.
    pub fn capacity(&self) -> usize {
        self.0.capacity() as usize
    }

    /// The number of free slots.
    pub fn free(&self) -> usize {
        self.0.free()
    }

    pub(super) fn new(capacity: usize, owner: Option<Weak<dyn Notified>>) -> Result<FileSet> {
        Table::new(capacity, owner).map(FileSet)
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Backend, Engine, Options};

    #[test]
    fn a_set_that_no_ring_fills_keeps_no_changes() {
        let engine: Engine = Options::new().backend(Backend::Threads).build().unwrap();
        let set = engine.file_set(4).unwrap();
        let file = Handle::new(tempfile::tempfile().unwrap()).unwrap();
        for _ in 0..100 {
            drop(set.insert(&file).unwrap());
        }
        assert_eq!(set.free(), 4);
        assert_eq!(set.table().changes(), 0);
    }

    #[test]
    fn a_slot_has_one_change_however_often_it_is_given_back() {
        let Ok(mut engine) = Options::new().backend(Backend::Uring).build_local() else {
            return;
        };
        let set = engine.file_set(4).unwrap();
        let file = Handle::new(tempfile::tempfile().unwrap()).unwrap();
        for _ in 0..1000 {
            drop(set.insert(&file).unwrap());
        }
        assert!(set.table().changes() <= 4);
    }
}
