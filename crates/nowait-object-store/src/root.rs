//! The root directory of a store, and its open files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use nowait::Engine;
use nowait::mapping::Budget;

use crate::error::Error;
use crate::location;
use crate::open_file::{OpenFile, Opened};
use crate::open_files::OpenFiles;
use crate::stats::{Counters, Stats};

/// The number of times that a call waits for descriptors, each time twice as long: a quarter of a
/// second altogether. The count begins anew if another call has opened a file meanwhile.
const WAITS: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_micros(500);

/// A directory whose files are objects.
#[derive(Debug)]
pub(crate) struct Root {
    path: Arc<Path>,
    files: OpenFiles,
    /// The memory that bytes are borrowed from.
    budget: OnceLock<Budget>,
    counters: Arc<Counters>,
}

impl Root {
    /// The root directory of the filesystem.
    pub(crate) fn filesystem() -> Root {
        Root::at(Path::new("/").into())
    }

    /// Any directory. Blocks.
    pub(crate) fn new(path: &Path) -> Result<Root, Error> {
        let path = path.canonicalize().map_err(Error::io("realpath", path))?;
        Ok(Root::at(path.into()))
    }

    fn at(path: Arc<Path>) -> Root {
        Root {
            path,
            files: OpenFiles::new(),
            budget: OnceLock::new(),
            counters: Arc::default(),
        }
    }

    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    pub(crate) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// Borrows the bytes of files that are opened from now on. The first budget that is given
    /// stays.
    pub(crate) fn borrow_within(&self, budget: &Budget) {
        let _ = self.budget.set(budget.clone());
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.stats(self.files.len())
    }

    /// The file of an object: see [`location::object_path`].
    pub(crate) fn object_path(&self, location: &str) -> Result<PathBuf, Error> {
        location::object_path(&self.path, location)
    }

    /// The open file of an object.
    ///
    /// A file that is open already is taken if it is still the one at its path. Otherwise the path
    /// is opened, in the calling thread if it is cached, or else by a worker, which also reads an object of at
    /// most `small` bytes.
    pub(crate) async fn open(
        &self,
        engine: &Engine,
        location: &str,
        small: u64,
    ) -> Result<Opened, Error> {
        if let Some(file) = self.files.get(location) {
            if let Some(metadata) = file.current() {
                return Ok(Opened {
                    file,
                    metadata,
                    contents: None,
                });
            }
            self.files.remove(location);
        }
        let path = self.object_path(location)?;
        let (budget, counters) = (self.budget.get(), &self.counters);
        let open = || OpenFile::open(engine, path.clone(), small, budget, counters);
        let opened = self.with_room(engine, open).await?;
        if opened.file.is_cacheable() {
            self.files.insert(location, &opened.file);
        }
        Ok(opened)
    }

    /// Makes a blocking call in a worker that opens files before it changes anything. The call is
    /// repeated if there was no descriptor for it, after the files of the store were closed.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        engine: &Engine,
        call: impl Fn() -> Result<T, Error> + Clone + Send + 'static,
    ) -> Result<T, Error> {
        let made = || async { engine.spawn_blocking(call.clone()).await? };
        self.with_room(engine, made).await
    }

    /// Makes a call, and repeats it as long as it fails because there are no descriptors, and the
    /// store can give back some.
    pub(crate) async fn with_room<T, F: Future<Output = Result<T, Error>>>(
        &self,
        engine: &Engine,
        call: impl Fn() -> F,
    ) -> Result<T, Error> {
        let mut waits = Waits::default();
        loop {
            let closed = self.files.closed();
            match call().await {
                Err(error) if self.has_room(engine, &error, closed, &mut waits).await => {}
                done => break done,
            }
        }
    }

    /// Closes the files of the store, if the error is that there are no more descriptors. If there
    /// are none to close, it waits for other calls to close theirs. Returns true if the call may
    /// now succeed. `closed` is [`OpenFiles::closed`] before the call.
    async fn has_room(
        &self,
        engine: &Engine,
        error: &Error,
        closed: u64,
        waits: &mut Waits,
    ) -> bool {
        if !error.is_out_of_descriptors() {
            return false;
        }
        if let Some(closing) = self.files.take_all() {
            return engine.spawn_blocking(move || drop(closing)).await.is_ok();
        }
        // Another call may have closed them meanwhile.
        if self.files.closed() != closed {
            return true;
        }
        let Some(time) = waits.next(self.counters.opened()) else {
            return false;
        };
        let wait = move || thread::sleep(time);
        engine.spawn_blocking(wait).await.is_ok()
    }
}

/// The waits of one call for descriptors.
#[derive(Default)]
struct Waits {
    count: u32,
    /// The number of files that the store had opened at the last wait.
    opened: u64,
}

impl Waits {
    /// The time of the next wait; `None` if the call is to fail: it has waited for long, and no
    /// other call has got a descriptor.
    fn next(&mut self, opened: u64) -> Option<Duration> {
        if self.opened != opened {
            *self = Waits { count: 0, opened };
        }
        self.count += 1;
        (self.count <= WAITS).then(|| FIRST_WAIT * (1 << self.count))
    }
}

/// The engine of a store without one of its own.
pub(crate) fn process_engine() -> Result<Engine, Error> {
    Engine::process().map_err(|error| Error::io("engine", Path::new("/"))(io::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_a_quarter_of_a_second_after_the_last_file_was_opened() {
        let mut waits = Waits::default();
        for opened in [0, 7, 8] {
            // The other calls open a file after this one has waited several times.
            let first: Vec<_> = (1..WAITS).map_while(|_| waits.next(opened)).collect();
            assert_eq!(first.len(), WAITS as usize - 1);
            assert_eq!(first[0], 2 * FIRST_WAIT);
        }
        assert_eq!(waits.next(8), Some(FIRST_WAIT * 256));
        assert_eq!(waits.next(8), None);
    }
}
