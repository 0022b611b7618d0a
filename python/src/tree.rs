//! The directories of a tree, listed ahead of walk().
//!
//! ```text
//!  walk(): list(a) ─► edits dirnames ─► descend([b, c]) ─► list(b) ─► …
//!                                            │
//!                                            ▼ in the order in which walk() will want them
//!             at most 64 directories: open, list, statx on the engine; their subdirectories too
//! ```
//! A directory that walk() does not descend into may have been listed in vain.

use std::ffi::{CString, OsStr};
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, Stream};
use nowait::op::Statx;
use nowait::{Engine, FileType, StatxMask, scan};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustix::io::Errno;

use crate::dir_entry::{DirEntry, Directory, Listed};
use crate::error::{call_error, forked, library_error};
use crate::hang;
use crate::parked::Unpark;
use crate::paths;

/// The number of directories that are listed ahead, at most.
const DIRECTORIES: usize = 64;
/// The number of their entries after which no other directory is begun.
const ENTRIES: usize = 65_536;

/// The number of times, and the pauses between them, that a directory is opened without a free
/// descriptor.
const FAILURES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// The directories of a walk() that are known and not returned yet. Each has a number.
#[pyclass(frozen, module = "nowait")]
pub struct Tree {
    state: Mutex<State>,
    bytes: bool,
    process: u32,
}

/// The entries of a directory.
#[pyclass(frozen, get_all, module = "nowait")]
pub struct Listing {
    /// The names, or the entries, of directories and of links to them.
    directories: Py<PyList>,
    /// The names, or the entries, of all other files.
    others: Py<PyList>,
    /// The number of each of the directories; None for a link that is not followed.
    numbers: Vec<Option<usize>>,
}

struct State {
    how: How,
    nodes: Vec<Node>,
    /// The numbers that may be used again.
    free: Vec<usize>,
    /// The directories that will be wanted, the next one at the end of the last list.
    stack: Vec<Vec<usize>>,
    reads: FuturesUnordered<Read>,
    /// The number of directories that may be listed ahead.
    limit: usize,
    /// The number of times that no descriptor was free although no other directory was being listed.
    failures: u32,
}

/// The options of a walk.
#[derive(Clone)]
struct How {
    scan: scan::Options,
    engine: Engine,
    follow_links: bool,
    /// True if entries are returned, and not names.
    entries: bool,
}

type Read = Pin<Box<dyn Future<Output = (usize, nowait::Result<Found>)> + Send>>;

/// A directory.
struct Node {
    path: Arc<[u8]>,
    content: Content,
}

enum Content {
    Unread,
    Reading,
    /// The entries, with the numbers of the directories.
    Read(nowait::Result<Found>, Vec<Option<usize>>),
    /// The directory is not wanted any more. A read of it may be under way.
    Dropped,
}

/// The entries of a directory, in the order of the listing.
struct Found {
    /// Directories, and links to them.
    directories: Vec<(scan::DirEntry, Kind)>,
    others: Vec<scan::DirEntry>,
}

/// The kind of an entry, as os.walk() asks for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    LinkToDirectory,
    Other,
}

#[pymethods]
impl Tree {
    /// A tree without a directory. Names are `bytes` or str.
    #[new]
    fn new(py: Python<'_>, bytes: bool, follow_links: bool, entries: bool) -> PyResult<Tree> {
        let engine = Engine::process().map_err(|error| call_error(py, &error))?;
        let mut scan = scan::Options::new().engine(&engine);
        if entries {
            scan = scan.metadata(StatxMask::BASIC_STATS);
        }
        let state = State {
            how: How {
                scan,
                engine,
                follow_links,
                entries,
            },
            nodes: Vec::new(),
            free: Vec::new(),
            stack: Vec::new(),
            reads: FuturesUnordered::new(),
            limit: DIRECTORIES,
            failures: 0,
        };
        Ok(Tree {
            state: Mutex::new(state),
            bytes,
            process: std::process::id(),
        })
    }

    /// Another directory. Returns its number.
    fn add(&self, path: &Bound<'_, PyAny>) -> PyResult<usize> {
        let path = paths::path(path)?.into_os_string().into_encoded_bytes();
        Ok(self.lock()?.add(&path))
    }

    /// Lists the `wanted` directories ahead, in this order, before all others, and drops the `unwanted`
    /// ones of the same listing.
    fn descend(&self, wanted: Vec<usize>, unwanted: Vec<usize>) -> PyResult<()> {
        let mut state = self.lock()?;
        for number in unwanted {
            state.drop_node(number);
        }
        state.stack.push(wanted.into_iter().rev().collect());
        state.read_ahead();
        Ok(())
    }

    /// The entries of the directory with this number, whose path it is.
    fn list(&self, py: Python<'_>, number: usize, path: &Bound<'_, PyAny>) -> PyResult<Listing> {
        let _guard = hang::guard();
        if std::process::id() != self.process {
            return Err(forked("this iterator of walk()"));
        }
        let mut state = self.lock()?;
        let waker = Waker::from(Unpark::this_thread());
        let (found, numbers) = loop {
            state.read_ahead();
            if let Some(read) = state.poll(number, &mut Context::from_waker(&waker)) {
                break read;
            }
            match state.failures {
                0 => py.detach(Unpark::wait),
                // The directory that was listed before is being closed.
                _ => py.detach(|| std::thread::sleep(PAUSE)),
            }
            py.check_signals()?;
        };
        let found = found.map_err(|error| library_error(py, &error, path))?;
        let root = paths::path(path)?.into_os_string().into_encoded_bytes();
        let directory = Arc::new(Directory::of_path(&root, self.bytes));
        let entries = state.how.entries;
        let list = |from: &mut dyn Iterator<Item = scan::DirEntry>| {
            let objects = from.map(|entry| match entries {
                true => {
                    let listed = Listed::Scanned(entry);
                    DirEntry::new(py, &directory, listed)?.into_bound_py_any(py)
                }
                false => directory.object(py, entry.file_name().as_bytes()),
            });
            PyList::new(py, objects.collect::<PyResult<Vec<_>>>()?).map(Bound::unbind)
        };
        Ok(Listing {
            directories: list(&mut found.directories.into_iter().map(|(entry, _)| entry))?,
            others: list(&mut found.others.into_iter())?,
            numbers,
        })
    }
}

impl Tree {
    /// # Errors
    /// ValueError in a call from a callback of another one, as generators raise.
    fn lock(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(PyValueError::new_err("walk() is already executing"))
            }
        }
    }
}

impl State {
    fn add(&mut self, path: &[u8]) -> usize {
        let node = Node {
            path: path.into(),
            content: Content::Unread,
        };
        match self.free.pop() {
            Some(number) => {
                self.nodes[number] = node;
                number
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Forgets a directory, and those in it.
    fn drop_node(&mut self, number: usize) {
        let mut numbers = vec![number];
        while let Some(number) = numbers.pop() {
            let content = std::mem::replace(&mut self.nodes[number].content, Content::Dropped);
            match content {
                // The number is free after the read.
                Content::Reading | Content::Dropped => {}
                Content::Unread => self.free.push(number),
                Content::Read(_, children) => {
                    self.free.push(number);
                    numbers.extend(children.into_iter().flatten());
                }
            }
        }
    }

    /// Begins to list the directories that will be wanted next.
    fn read_ahead(&mut self) {
        let (mut directories, mut entries) = (0, 0);
        let mut begin = Vec::new();
        let frames = self.stack.iter().rev().flat_map(|frame| frame.iter().rev());
        // The directories in a directory come before its siblings.
        let mut wanted: Vec<usize> = Vec::new();
        for first in frames {
            wanted.push(*first);
            while let Some(number) = wanted.pop() {
                if directories >= self.limit || entries >= ENTRIES {
                    wanted.clear();
                    break;
                }
                directories += 1;
                match &self.nodes[number].content {
                    Content::Unread => begin.push(number),
                    Content::Reading | Content::Dropped => {}
                    Content::Read(found, children) => {
                        entries += found.as_ref().map_or(0, Found::len);
                        wanted.extend(children.iter().rev().flatten());
                    }
                }
            }
            if directories >= self.limit || entries >= ENTRIES {
                break;
            }
        }
        for number in begin {
            let node = &mut self.nodes[number];
            node.content = Content::Reading;
            let read = read(self.how.clone(), node.path.clone());
            self.reads
                .push(Box::pin(async move { (number, read.await) }));
        }
    }

    /// Takes the entries of a directory out, if they were read.
    fn poll(
        &mut self,
        number: usize,
        context: &mut Context<'_>,
    ) -> Option<(nowait::Result<Found>, Vec<Option<usize>>)> {
        while let Poll::Ready(Some((read, found))) = Pin::new(&mut self.reads).poll_next(context) {
            self.arrived(read, found);
        }
        let node = &mut self.nodes[number];
        match std::mem::replace(&mut node.content, Content::Dropped) {
            Content::Read(found, children) => {
                self.free.push(number);
                self.remove(number);
                Some((found, children))
            }
            content => {
                node.content = content;
                None
            }
        }
    }

    /// Takes a directory off the stack: the next one, unless the program drives two walks by one
    /// object.
    fn remove(&mut self, number: usize) {
        for frame in self.stack.iter_mut().rev() {
            if let Some(at) = frame.iter().rposition(|other| *other == number) {
                frame.remove(at);
                break;
            }
        }
        while self.stack.last().is_some_and(Vec::is_empty) {
            self.stack.pop();
        }
    }

    fn arrived(&mut self, number: usize, found: nowait::Result<Found>) {
        if matches!(self.nodes[number].content, Content::Dropped) {
            self.free.push(number);
            return;
        }
        let is_out = found.as_ref().is_err_and(is_out_of_descriptors);
        let is_alone = self.limit == 1 && self.reads.is_empty();
        self.failures = if is_out && is_alone {
            self.failures + 1
        } else {
            0
        };
        if is_out && self.failures < FAILURES {
            self.limit = (self.limit / 2).max(1);
            self.nodes[number].content = Content::Unread;
            return;
        }
        let mut children = Vec::new();
        if let Ok(found) = &found {
            let directory = Directory::of_path(&self.nodes[number].path.clone(), true);
            for (entry, kind) in &found.directories {
                let enters = self.how.follow_links || *kind == Kind::Directory;
                let path = directory.join(entry.file_name().as_bytes());
                children.push(enters.then(|| self.add(&path)));
            }
        }
        self.nodes[number].content = Content::Read(found, children);
    }
}

impl Found {
    fn len(&self) -> usize {
        self.directories.len() + self.others.len()
    }
}

fn is_out_of_descriptors(error: &nowait::Error) -> bool {
    let errno = error.errno().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Lists a directory, and tells directories from other files as os.walk() does.
async fn read(how: How, path: Arc<[u8]>) -> nowait::Result<Found> {
    let mut scan = how.scan.open(Path::new(OsStr::from_bytes(&path))).await?;
    let mut found = Found {
        directories: Vec::new(),
        others: Vec::new(),
    };
    let mut unclear = Vec::new();
    while let Some(batch) = scan.batch().await {
        for entry in batch?.iter() {
            match entry.file_type() {
                FileType::Dir => found.directories.push((entry, Kind::Directory)),
                FileType::Symlink | FileType::Unknown => unclear.push(entry),
                _ => found.others.push(entry),
            }
        }
    }
    // The descriptor is not needed for them.
    drop(scan);
    let directory = Directory::of_path(&path, true);
    let kinds = unclear.iter().map(|entry| {
        let path = directory.join(entry.file_name().as_bytes());
        kind(&how.engine, entry.file_type(), path)
    });
    let kinds = join_all(kinds).await;
    for (entry, kind) in unclear.into_iter().zip(kinds) {
        match kind {
            Kind::Other => found.others.push(entry),
            kind => found.directories.push((entry, kind)),
        }
    }
    Ok(found)
}

/// The kind of a link, or of an entry of unknown type.
async fn kind(engine: &Engine, listed: FileType, path: Vec<u8>) -> Kind {
    let Ok(path) = CString::new(path) else {
        return Kind::Other;
    };
    let statx = async |flags| {
        let statx = Statx::new(path.clone(), flags, StatxMask::TYPE);
        engine.run(statx).await.op.metadata()
    };
    let is_link = match listed {
        FileType::Symlink => true,
        _ => match statx(nix::libc::AT_SYMLINK_NOFOLLOW).await {
            Some(own) if own.is_dir() => return Kind::Directory,
            own => own.is_some_and(|own| own.is_symlink()),
        },
    };
    // A link that leads nowhere is no directory.
    match is_link && statx(0).await.is_some_and(|target| target.is_dir()) {
        true => Kind::LinkToDirectory,
        false => Kind::Other,
    }
}
