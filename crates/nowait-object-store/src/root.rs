//! The root directory of a store, and its open files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nowait::mapping::Budget;
use nowait::{Engine, Metadata};

use crate::error::Error;
use crate::location;
use crate::open_file::OpenFile;
use crate::open_files::OpenFiles;
use crate::stats::{Counters, Stats};
use crate::worker::on_worker;

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

    /// Borrows the bytes of files that are opened from now on. The first budget that is given stays.
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

    /// The open file of an object, and its metadata now.
    ///
    /// A file that is open already is taken if it is still the one at its path. Otherwise the path is opened, in the
    /// calling thread if it is cached, or else by the engine.
    pub(crate) async fn open(
        &self,
        engine: &Engine,
        location: &str,
    ) -> Result<(Arc<OpenFile>, Metadata), Error> {
        if let Some(file) = self.files.get(location) {
            if let Some(metadata) = file.current() {
                return Ok((file, metadata));
            }
            self.files.remove(location);
        }
        let path = self.object_path(location)?;
        let (file, metadata) = loop {
            let closed = self.files.closed();
            match OpenFile::open(engine, path.clone(), self.budget.get(), &self.counters).await {
                Err(error) if self.made_room(engine, &error, closed).await => {}
                opened => break opened?,
            }
        };
        let file = Arc::new(file);
        if file.is_cacheable() {
            self.files.insert(location, &file);
        }
        Ok((file, metadata))
    }

    /// Makes a blocking call in a worker that begins with the creation of a file. The call is repeated if there was no
    /// descriptor for it, after the files of the store were closed.
    pub(crate) async fn create<T: Send + 'static>(
        &self,
        engine: &Engine,
        call: impl Fn() -> Result<T, Error> + Clone + Send + 'static,
    ) -> Result<T, Error> {
        loop {
            let closed = self.files.closed();
            match on_worker(engine, call.clone()).await {
                Err(error) if self.made_room(engine, &error, closed).await => {}
                created => break created,
            }
        }
    }

    /// Closes the files of the store, if the error is that there are no more descriptors. Returns true if the call may
    /// now succeed. `closed` is [`OpenFiles::closed`] before the call.
    async fn made_room(&self, engine: &Engine, error: &Error, closed: u64) -> bool {
        if !error.is_out_of_descriptors() {
            return false;
        }
        let Some(closing) = self.files.take_all() else {
            // Another call may have closed them meanwhile.
            return self.files.closed() != closed;
        };
        let close = move || {
            drop(closing);
            Ok(())
        };
        on_worker(engine, close).await.is_ok()
    }
}

/// The engine of a store without one of its own.
pub(crate) fn process_engine() -> Result<Engine, Error> {
    Engine::process().map_err(|error| Error::io("engine", Path::new("/"))(io::Error::from(error)))
}
