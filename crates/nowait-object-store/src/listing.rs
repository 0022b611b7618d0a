//! The objects below a directory.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use nowait::scan::Batch;
use nowait::walk;
use nowait::{Engine, Metadata, StatxMask, Walk};
use rustix::fs::CWD;

use crate::error::Error;
use crate::location::is_object_name;
use crate::root::Root;

/// The number of batches whose metadata is asked for at the same time, if it is not the walk that
/// asks.
const BATCHES: usize = 8;

/// An object or a directory.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The path below the root, in any bytes.
    pub(crate) location: Vec<u8>,
    pub(crate) metadata: Metadata,
}

/// The files at the names of a batch.
struct Names {
    /// The directory of the names.
    directory: Arc<Path>,
    /// The length of the root's path, and of the slash after it.
    root: usize,
}

impl Names {
    fn of(root: &Path, found: &Batch) -> Names {
        let root = root.as_os_str().as_bytes();
        let slash = usize::from(!root.ends_with(b"/"));
        Names {
            directory: found.dir().path(),
            root: root.len() + slash,
        }
    }

    /// The path below the root of the file with this name.
    fn location(&self, name: &OsStr) -> Vec<u8> {
        let directory = self.directory.as_os_str().as_bytes();
        let below = directory.get(self.root..).unwrap_or_default();
        let mut location = Vec::with_capacity(below.len() + 1 + name.len());
        location.extend_from_slice(below);
        if !below.is_empty() && !below.ends_with(b"/") {
            location.push(b'/');
        }
        location.extend_from_slice(name.as_bytes());
        location
    }
}

/// A file to be listed, or `None` if it is not: it is a link without a target, was removed since,
/// or has the name of a file that is being written.
fn listed(location: Vec<u8>, metadata: Result<Metadata, Error>) -> Option<Result<Listed, Error>> {
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(Error::Engine(error)) if error.kind() == not_found() => return None,
        Err(error) => return Some(Err(error)),
    };
    let is_name = || std::str::from_utf8(&location).is_ok_and(|name| !is_object_name(name));
    if !metadata.is_dir() && is_name() {
        return None;
    }
    Some(Ok(Listed { location, metadata }))
}

fn not_found() -> nowait::ErrorKind {
    nowait::ErrorKind::Io(io::ErrorKind::NotFound)
}

/// The entries of a directory itself, without those that are not listed.
pub(crate) async fn entries(
    engine: &Engine,
    root: &Root,
    directory: PathBuf,
) -> Result<Vec<Listed>, Error> {
    let options = options(engine).metadata(StatxMask::BASIC_STATS);
    let Some(mut walk) = open(engine, root, &options.max_depth(1), directory).await? else {
        return Ok(Vec::new());
    };
    let mut above = None;
    let mut entries = Vec::new();
    while let Some(found) = walk.batch().await {
        let found = found?;
        for entry in of_batch(root.path(), &found) {
            let entry = entry?;
            // As in a list of the whole tree, a link from a directory to itself or to one above it
            // is an error.
            if entry.metadata.is_dir() {
                let above = match &mut above {
                    Some(above) => above,
                    above => above.insert(self_and_above(engine, &found.dir().path()).await?),
                };
                if above.contains(&id(&entry.metadata)) {
                    let circle = rustix::io::Errno::LOOP.into();
                    return Err(Error::io("walk", &found.dir().path())(circle));
                }
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Device and inode numbers of a directory and of those above it. One that cannot be found has
/// none.
async fn self_and_above(engine: &Engine, path: &Arc<Path>) -> Result<Vec<(u64, u64)>, Error> {
    let path = path.clone();
    let ids = move || {
        let path = path.canonicalize().map_err(Error::io("realpath", &path))?;
        let all = path.ancestors().filter_map(|path| {
            let metadata = Metadata::statx(CWD, path, 0, StatxMask::BASIC_STATS);
            Some(id(&metadata.ok()?))
        });
        Ok(all.collect())
    };
    engine.spawn_blocking(ids).await?
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The objects below a directory, in any order.
pub(crate) fn objects(
    engine: Result<Engine, Error>,
    root: Arc<Root>,
    directory: PathBuf,
) -> impl Stream<Item = Result<Listed, Error>> + Send + 'static {
    let metadata = |options: walk::Options| options.metadata(StatxMask::BASIC_STATS);
    batches(engine, root.clone(), directory, metadata).flat_map(move |found| {
        stream::iter(match found {
            Ok(found) => of_batch(root.path(), &found).filter(is_object).collect(),
            Err(error) => vec![Err(error)],
        })
    })
}

/// The objects below a directory whose locations are greater than `offset`, in any order. The
/// metadata of others is not asked for.
pub(crate) fn objects_after(
    engine: Result<Engine, Error>,
    root: Arc<Root>,
    directory: PathBuf,
    offset: String,
) -> impl Stream<Item = Result<Listed, Error>> + Send + 'static {
    let (asking, path) = (engine.as_ref().ok().cloned(), root.path().clone());
    let after = move |found: Result<Batch, Error>| {
        let (asking, root, offset) = (asking.clone(), path.clone(), offset.clone());
        async move {
            let found = match (found, asking) {
                (Ok(found), Some(engine)) => {
                    let ask = move || ask_after(&root, &found, offset.as_bytes());
                    engine.spawn_blocking(ask).await.map_err(Error::from)
                }
                (Err(error), _) => Err(error),
                (Ok(_), None) => Ok(Vec::new()),
            };
            stream::iter(found.unwrap_or_else(|error| vec![Err(error)]))
        }
    };
    let batches = batches(engine, root, directory, |options| options);
    batches.map(after).buffered(BATCHES).flatten()
}

/// Asks for the metadata of the objects of a batch whose locations are greater than `offset`.
/// Blocks.
fn ask_after(root: &Path, found: &Batch, offset: &[u8]) -> Vec<Result<Listed, Error>> {
    let names = Names::of(root, found);
    let after = found.iter().filter_map(|entry| {
        let location = names.location(entry.file_name());
        if *location <= *offset || entry.file_type().is_dir() {
            return None;
        }
        let path = names.directory.join(entry.file_name());
        let metadata = Metadata::statx(CWD, path, 0, StatxMask::BASIC_STATS);
        listed(location, metadata.map_err(Error::from))
    });
    after.filter(is_object).collect()
}

/// The files of a batch that has their metadata.
fn of_batch<'a>(
    root: &Path,
    found: &'a Batch,
) -> impl Iterator<Item = Result<Listed, Error>> + use<'a> {
    let names = Names::of(root, found);
    found.iter().filter_map(move |entry| {
        let metadata = entry.metadata()?.copied().map_err(Error::from);
        listed(names.location(entry.file_name()), metadata)
    })
}

/// Only regular files are objects. Errors are returned, too.
fn is_object(listed: &Result<Listed, Error>) -> bool {
    listed.as_ref().map_or(true, |l| l.metadata.is_file())
}

fn options(engine: &Engine) -> walk::Options {
    walk::Options::new().engine(engine).follow_links(true)
}

/// The batches of a walk. It begins when the stream is polled.
fn batches(
    engine: Result<Engine, Error>,
    root: Arc<Root>,
    directory: PathBuf,
    also: impl FnOnce(walk::Options) -> walk::Options + Send + 'static,
) -> impl Stream<Item = Result<Batch, Error>> + Send + 'static {
    let begun = async move {
        let engine = engine?;
        open(&engine, &root, &also(options(&engine)), directory).await
    };
    stream::once(begun).flat_map(|walk| match walk {
        Ok(Some(walk)) => stream::unfold(walk, |mut walk| async move {
            let found = walk.batch().await?;
            Some((found.map_err(Error::from), walk))
        })
        .boxed(),
        Ok(None) => stream::empty().boxed(),
        Err(error) => stream::iter([Err(error)]).boxed(),
    })
}

/// Begins a walk. Returns `None` if there is nothing to walk: no directory has this path.
async fn open(
    engine: &Engine,
    root: &Root,
    options: &walk::Options,
    directory: PathBuf,
) -> Result<Option<Walk>, Error> {
    let opened = root.with_room(engine, || async { Ok(options.open(&directory).await?) });
    match opened.await {
        Ok(walk) => Ok(Some(walk)),
        Err(Error::Engine(error)) if error.kind() == not_found() => Ok(None),
        Err(Error::Engine(error))
            if error.kind() == nowait::ErrorKind::Io(io::ErrorKind::NotADirectory) =>
        {
            // The path is that of a file, or leads through one, which is an error.
            let exists = move || {
                let metadata = std::fs::metadata(&directory);
                metadata.map_err(Error::io("statx", &directory))
            };
            engine.spawn_blocking(exists).await?.map(|_| None)
        }
        Err(error) => Err(error),
    }
}
