//! A FUSE filesystem without hard links that shows and changes the tree below a directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{CWD, renameat_with};

use crate::error::Result;
use crate::nodes::Nodes;
use crate::replies::{attr, empty, entry};
use crate::served_mount::ServedMount;
use crate::served_tree;
use crate::syncs::Syncs;

/// A mount that shows the files, directories and symbolic links below a directory, and in which
/// they can be created and changed. There are no hard links. The kernel caches no name and no
/// attribute. Drop unmounts it.
///
/// Each new file has a number of its own. The tree must not be changed elsewhere meanwhile.
#[derive(Debug)]
pub struct LinklessTree {
    mount: ServedMount,
    syncs: Arc<Syncs>,
}

/// The properties of a [`LinklessTree`].
#[derive(Clone, Copy, Debug)]
pub struct Linkless {
    /// The errno of link(2).
    pub link: i32,
    /// If true, renameat2(2) has its flags. Otherwise they are EINVAL.
    pub rename_flags: bool,
}

/// The number of requests that are served at a time.
const THREADS: usize = 16;

impl LinklessTree {
    /// Mounts the tree below `root`. 16 requests are served at a time.
    ///
    /// # Errors
    ///
    /// If a requirement is missing (see [`available`](crate::available)) or the mount fails.
    pub fn new(root: impl Into<PathBuf>, properties: Linkless) -> Result<Self> {
        let syncs = Arc::new(Syncs::default());
        let server = Server {
            properties,
            nodes: Mutex::new(Nodes::new(root.into())),
            open: Mutex::default(),
            syncs: syncs.clone(),
        };
        let mount = ServedMount::with_threads(server, THREADS)?;
        Ok(LinklessTree { mount, syncs })
    }

    /// The path of the root.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Stalls the requests of fsync(2) for a file or directory, by its path below the root, from now
    /// on. With `None`, and for another path, the stall ends.
    pub fn stall_syncs(&self, of: Option<PathBuf>) {
        self.syncs.stall(of);
    }

    /// The files and directories that requests of fsync(2) were made for, below the root, in the
    /// order of the requests. Those that are stalled are among them.
    pub fn syncs(&self) -> Vec<PathBuf> {
        self.syncs.paths()
    }
}

impl Drop for LinklessTree {
    fn drop(&mut self) {
        self.stall_syncs(None);
    }
}

struct Server {
    properties: Linkless,
    nodes: Mutex<Nodes>,
    open: Mutex<Open>,
    syncs: Arc<Syncs>,
}

/// The open files and directories, by their handles.
#[derive(Default)]
struct Open {
    last: u64,
    files: HashMap<u64, (INodeNo, Arc<File>)>,
    directories: HashMap<u64, Arc<Vec<Entry>>>,
}

type Entry = (INodeNo, FileType, OsString);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(lock(&self.nodes).path(parent)?.join(name))
    }

    fn look_up(&self, path: &Path) -> io::Result<FileAttr> {
        // No other thread removes or renames it meanwhile.
        let mut nodes = lock(&self.nodes);
        let metadata = path.symlink_metadata()?;
        Ok(served_tree::attributes(nodes.number(path), &metadata))
    }

    fn attributes(&self, ino: INodeNo, file: Option<FileHandle>) -> io::Result<FileAttr> {
        let metadata: Metadata = match self.file(file).or_else(|| self.open_file(ino)) {
            Some(file) => file.metadata()?,
            None => {
                let nodes = lock(&self.nodes);
                nodes.path(ino)?.symlink_metadata()?
            }
        };
        Ok(served_tree::attributes(ino, &metadata))
    }

    fn file(&self, handle: Option<FileHandle>) -> Option<Arc<File>> {
        let open = lock(&self.open);
        open.files.get(&handle?.0).map(|(_, file)| file.clone())
    }

    /// An open file of the inode, which may have no path any more.
    fn open_file(&self, ino: INodeNo) -> Option<Arc<File>> {
        let open = lock(&self.open);
        let mut files = open.files.values();
        files
            .find(|(of, _)| *of == ino)
            .map(|(_, file)| file.clone())
    }

    fn opened(&self, ino: INodeNo, file: File) -> FileHandle {
        let mut open = lock(&self.open);
        open.last += 1;
        let handle = open.last;
        open.files.insert(handle, (ino, Arc::new(file)));
        FileHandle(handle)
    }

    fn list(&self, ino: INodeNo) -> io::Result<FileHandle> {
        let mut nodes = lock(&self.nodes);
        let path = nodes.path(ino)?;
        let mut entries = vec![
            (ino, FileType::Directory, ".".into()),
            (ino, FileType::Directory, "..".into()),
        ];
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let kind = served_tree::kind(&entry.metadata()?);
            entries.push((nodes.number(&entry.path()), kind, entry.file_name()));
        }
        let mut open = lock(&self.open);
        open.last += 1;
        let handle = open.last;
        open.directories.insert(handle, Arc::new(entries));
        Ok(FileHandle(handle))
    }

    /// Removes a name by one of the calls for files and directories.
    fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        remove: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.child(parent, name)?;
        let mut nodes = lock(&self.nodes);
        remove(&path)?;
        nodes.removed(&path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        if !self.properties.rename_flags && !flags.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut nodes = lock(&self.nodes);
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        renameat_with(CWD, from, CWD, to, flags)?;
        nodes.renamed(from, to);
        Ok(())
    }

    fn create(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> io::Result<(FileAttr, FileHandle)> {
        let path = self.child(parent, name)?;
        let mut options = options(flags);
        let file = options.create_new(true).mode(mode).open(&path)?;
        let attr = self.look_up(&path)?;
        Ok((attr, self.opened(attr.ino, file)))
    }

    fn set_size(&self, ino: INodeNo, file: Option<FileHandle>, size: u64) -> io::Result<()> {
        match self.file(file) {
            Some(file) => file.set_len(size),
            None => {
                let path = lock(&self.nodes).path(ino)?;
                OpenOptions::new().write(true).open(path)?.set_len(size)
            }
        }
    }

    fn sync(&self, ino: INodeNo, file: Option<FileHandle>) -> io::Result<()> {
        let (path, below) = {
            let nodes = lock(&self.nodes);
            let path = nodes.path(ino).unwrap_or_default();
            (path.clone(), nodes.below(&path))
        };
        self.syncs.request(below);
        match self.file(file) {
            Some(file) => file.sync_all(),
            None => File::open(path)?.sync_all(),
        }
    }
}

/// The options of an open with these flags of open(2).
fn options(flags: i32) -> OpenOptions {
    let access = flags & libc::O_ACCMODE;
    let mut options = OpenOptions::new();
    options.read(access != libc::O_WRONLY);
    options.write(access != libc::O_RDONLY);
    options.truncate(access != libc::O_RDONLY && flags & libc::O_TRUNC != 0);
    options
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let path = self.child(parent, name);
        entry(reply, path.and_then(|path| self.look_up(&path)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, file: Option<FileHandle>, reply: ReplyAttr) {
        attr(reply, self.attributes(ino, file));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        file: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            if let Some(mode) = mode {
                let path = lock(&self.nodes).path(ino)?;
                fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
            }
            size.map_or(Ok(()), |size| self.set_size(ino, file, size))?;
            self.attributes(ino, file)
        };
        attr(reply, set());
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let path = lock(&self.nodes).path(ino);
        match path.and_then(fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(e) => reply.error(e.into()),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            let path = self.child(parent, name)?;
            fs::DirBuilder::new().mode(mode).create(&path)?;
            self.look_up(&path)
        };
        entry(reply, make());
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let make = || {
            let path = self.child(parent, name)?;
            symlink(target, &path)?;
            self.look_up(&path)
        };
        entry(reply, make());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::from_i32(self.properties.link));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.remove(parent, name, |path| fs::remove_file(path)),
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.remove(parent, name, |path| fs::remove_dir(path)),
        );
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
            self.rename(&from, &to, flags)
        };
        empty(reply, rename());
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create(parent, name, mode, flags) {
            Ok((attr, file)) => {
                let flags = FopenFlags::empty();
                reply.created(&Duration::ZERO, &attr, Generation(0), file, flags);
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let path = lock(&self.nodes).path(ino);
        match path.and_then(|path| options(flags.0).open(path)) {
            Ok(file) => reply.opened(self.opened(ino, file), FopenFlags::empty()),
            Err(e) => reply.error(e.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(Some(file)) else {
            return reply.error(Errno::EBADF);
        };
        let mut bytes = vec![0; size as usize];
        match file.read_at(&mut bytes, offset) {
            Ok(n) => reply.data(&bytes[..n]),
            Err(e) => reply.error(e.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(Some(file)) else {
            return reply.error(Errno::EBADF);
        };
        match file.write_all_at(data, offset) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).files.remove(&file.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, file: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.sync(ino, Some(file)));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(ino) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(e) => reply.error(e.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        directory: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(entries) = lock(&self.open).directories.get(&directory.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        for (next, (ino, kind, name)) in (1..).zip(entries.iter()).skip(offset as usize) {
            if reply.add(*ino, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        directory: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.open).directories.remove(&directory.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.sync(ino, None));
    }
}
