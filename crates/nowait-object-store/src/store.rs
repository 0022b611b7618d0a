//! The store: the interface of object_store. This file is compiled once for each version, as a part
//! of the module that names the version.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use nowait::mapping::Budget;
use nowait::{Engine, Metadata};
use tokio::task::coop::consume_budget;

use super::object_store::path::{self, Path};
use super::object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, UploadPart,
};
use super::{get_result, list_result, put_result, quoted};
use crate::durable::Sync;
use crate::listing::Listed;
use crate::open_file::Opened;
use crate::root::{Root, process_engine};
use crate::staged::{Replace, Staged};
use crate::stats::Stats;
use crate::{change, listing, location, object};

/// The name of the store in errors.
const STORE: &str = "NowaitFileSystem";

/// The most bytes of an object that the worker that opens it reads, too.
const SMALL: u64 = 64 << 10;

/// The number of objects that are deleted at the same time.
const DELETIONS: usize = 10;

/// An object store in a local directory, with the behaviour of object_store's `LocalFileSystem`.
///
/// [The first page](crate) describes the reads, and the differences.
#[derive(Clone, Debug)]
pub struct NowaitFileSystem {
    root: Arc<Root>,
    engine: Option<Engine>,
    automatic_cleanup: bool,
    sync: Sync,
}

impl Default for NowaitFileSystem {
    fn default() -> Self {
        NowaitFileSystem::new()
    }
}

impl fmt::Display for NowaitFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}({})", self.root.path().display())
    }
}

impl NowaitFileSystem {
    /// A store of all files of the filesystem: the location `a/b` is the file `/a/b`.
    pub fn new() -> Self {
        NowaitFileSystem::of(Root::filesystem())
    }

    /// A store of the files below a directory. Blocks: the symbolic links in `prefix` are resolved
    /// once, now.
    ///
    /// # Errors
    /// [`Error::Generic`] if the directory does not exist.
    pub fn new_with_prefix(prefix: impl AsRef<std::path::Path>) -> Result<Self> {
        Ok(NowaitFileSystem::of(Root::new(prefix.as_ref())?))
    }

    fn of(root: Root) -> Self {
        NowaitFileSystem {
            root: Arc::new(root),
            engine: None,
            automatic_cleanup: false,
            sync: Sync::No,
        }
    }

    /// If true, a deletion also removes the directories above the object that are then empty, up to
    /// the root. False by default.
    #[must_use]
    pub fn with_automatic_cleanup(mut self, automatic_cleanup: bool) -> Self {
        self.automatic_cleanup = automatic_cleanup;
        self
    }

    /// If true, an object that was put, copied or renamed is on the device when the call returns:
    /// its file and the directories that have changed are synced (fsync(2)). [The first
    /// page](crate#writes) lists what each call syncs. A copy or a rename needs the permission to
    /// read the file, and each call that to read the directories. If a sync fails after the object
    /// got its name, the call fails, and the name stays. Deletions are not synced. False by
    /// default.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.sync = if fsync { Sync::Yes } else { Sync::No };
        self
    }

    /// Sets the engine that runs what the calling thread does not. The process's engine
    /// ([`Engine::process`]) by default.
    #[must_use]
    pub fn with_engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets the maximum number of descriptors that are kept open for further reads, at least 1, for
    /// this store and its clones. A quarter of the process's limit (RLIMIT_NOFILE) by default, at
    /// most 1,024.
    #[must_use]
    pub fn with_open_files(self, files: usize) -> Self {
        self.root.files().limit(files);
        self
    }

    /// Lets this store and its clones borrow bytes of objects that are read often. The bytes are
    /// not copied, and no read is made. The file is still compared with its path. It is off by
    /// default. A second call changes nothing.
    ///
    /// The files are mapped, and the windows of the mapping that reads find cached are locked in
    /// memory, within the budget ([`nowait::mapping`]). The rest of such a window is read from the
    /// device. Each mapped file has a lease (fcntl(2), `F_SETLEASE`), and takes one more
    /// descriptor. If a file cannot be mapped, it is read as usual.
    ///
    /// The memory and the lease are given back when the object was not read for about half a
    /// second, and the bytes of all results were dropped. Until then the space of a deleted file is
    /// not free, and the two descriptors stay open. The thread that drops the last bytes closes
    /// them. The bytes must not be used in a forked child.
    ///
    /// The locked memory is taken from the page cache and the processes of the machine, so choose a
    /// limit: [`BudgetOptions::limit`](nowait::mapping::BudgetOptions::limit).
    #[must_use]
    pub fn with_mapped_reads(self, budget: &Budget) -> Self {
        self.root.borrow_within(budget);
        self
    }

    /// The path of an object's file.
    ///
    /// # Errors
    /// [`Error::Generic`] if no object can have this name: the root, and names that end with `#`
    /// and a number.
    pub fn path_to_filesystem(&self, location: &Path) -> Result<PathBuf> {
        Ok(self.root.object_path(location.as_ref())?)
    }

    /// The reads of this store and its clones.
    pub fn stats(&self) -> Stats {
        self.root.stats()
    }

    fn engine(&self) -> Result<Engine, crate::error::Error> {
        self.engine.clone().map_or_else(process_engine, Ok)
    }

    /// The directory at a prefix.
    fn directory(&self, prefix: Option<&Path>) -> PathBuf {
        location::path(self.root.path(), prefix.map_or("", AsRef::as_ref))
    }

    /// Makes a blocking call in a worker.
    async fn on_worker<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, crate::error::Error> + Send + 'static,
    ) -> Result<T> {
        let called = self.engine()?.spawn_blocking(call).await;
        Ok(called.map_err(crate::error::Error::from)??)
    }

    /// Makes a blocking call in a worker that opens files before it changes anything.
    async fn change<T: Send + 'static>(
        &self,
        call: impl Fn() -> Result<T, crate::error::Error> + Clone + Send + 'static,
    ) -> Result<T> {
        Ok(self.root.change(&self.engine()?, call).await?)
    }

    /// Refuses attributes, which files do not have.
    fn check(&self, attributes: &Attributes) -> Result<()> {
        if attributes.is_empty() {
            Ok(())
        } else {
            Err(self.not_implemented("attributes of objects"))
        }
    }

    /// Deletes an object.
    async fn delete(&self, location: &Path) -> Result<()> {
        let path = self.path_to_filesystem(location)?;
        self.root.files().remove(location.as_ref());
        let up_to = self.clean_up_to();
        self.change(move || change::delete(&path, up_to.as_deref()))
            .await
    }

    /// The directory up to which a deletion removes empty directories.
    fn clean_up_to(&self) -> Option<Arc<std::path::Path>> {
        self.automatic_cleanup.then(|| self.root.path().clone())
    }

    fn not_implemented(&self, operation: &str) -> Error {
        Error::NotImplemented {
            operation: operation.to_owned(),
            implementer: self.to_string(),
        }
    }
}

#[async_trait]
impl ObjectStore for NowaitFileSystem {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let replace = match options.mode {
            PutMode::Overwrite => Replace::Yes,
            PutMode::Create => Replace::No,
            PutMode::Update(_) => return Err(self.not_implemented("`PutMode::Update`")),
        };
        self.check(&options.attributes)?;
        let path = self.path_to_filesystem(location)?;
        let parts: Arc<[Bytes]> = payload.into_iter().collect();
        let sync = self.sync;
        let put = move || Staged::put(path.clone(), &parts, replace, sync);
        let e_tag = self.change(put).await?;
        Ok(put_result(quoted(e_tag)))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check(&options.attributes)?;
        let path = self.path_to_filesystem(location)?;
        let sync = self.sync;
        let create = move || Staged::create(path.clone(), sync);
        let staged = self.change(create).await?;
        Ok(Box::new(Upload {
            store: self.clone(),
            staged: Arc::new(staged),
            offset: 0,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        consume_budget().await;
        let small = if options.head { 0 } else { SMALL };
        let engine = self.engine()?;
        let opened = self.root.open(&engine, location.as_ref(), small);
        let Opened {
            file,
            metadata,
            contents,
        } = opened.await?;
        let meta = object_meta(location.clone(), &metadata);
        options.check_preconditions(&meta)?;
        let range = match options.range {
            Some(range) => range.as_range(meta.size).map_err(generic)?,
            None => 0..meta.size,
        };
        let bytes = file.stream(range.clone(), contents);
        let bytes = bytes.map_err(Error::from).boxed();
        Ok(get_result(GetResultPayload::Stream(bytes), meta, range))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        consume_budget().await;
        let engine = self.engine()?;
        let opened = self.root.open(&engine, location.as_ref(), SMALL);
        let Opened {
            file,
            metadata,
            contents,
        } = opened.await?;
        let read = file.read_ranges(ranges, metadata.len(), contents.as_ref());
        Ok(read.await?)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let deletions = locations.map(move |location| {
            let store = store.clone();
            async move {
                let location = location?;
                store.delete(&location).await?;
                Ok(location)
            }
        });
        deletions.buffered(DELETIONS).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let root = self.root.clone();
        let objects = listing::objects(self.engine(), root, self.directory(prefix));
        objects.map(|listed| meta_of(listed?)).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let root = self.root.clone();
        let directory = self.directory(prefix);
        let offset = offset.to_string();
        let objects = listing::objects_after(self.engine(), root, directory, offset);
        objects.map(|listed| meta_of(listed?)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let engine = self.engine()?;
        let directory = self.directory(prefix);
        let entries = listing::entries(&engine, &self.root, directory).await?;
        let (mut prefixes, mut objects) = (Vec::new(), Vec::new());
        for entry in entries {
            if entry.metadata.is_dir() {
                prefixes.push(location_of(entry.location)?);
            } else {
                objects.push(meta_of(entry)?);
            }
        }
        prefixes.sort_unstable();
        Ok(list_result(prefixes, objects))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let replace = match options.mode {
            CopyMode::Overwrite => Replace::Yes,
            CopyMode::Create => Replace::No,
        };
        let from = self.path_to_filesystem(from)?;
        let to = self.path_to_filesystem(to)?;
        let (engine, sync) = (self.engine()?, self.sync);
        self.change(move || change::copy(&engine, &from, &to, replace, sync))
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let source = self.path_to_filesystem(from)?;
        let target = self.path_to_filesystem(to)?;
        self.root.files().remove(from.as_ref());
        let (engine, sync) = (self.engine()?, self.sync);
        let up_to = self.clean_up_to();
        let mode = options.target_mode;
        let rename = move || match mode {
            RenameTargetMode::Overwrite => change::rename(&engine, &source, &target, sync),
            RenameTargetMode::Create => {
                change::rename_if_not_exists(&engine, &source, &target, up_to.as_deref(), sync)
            }
        };
        let renamed = self.change(rename).await?;
        if let Some(renamed) = renamed.map(Arc::new) {
            let engine = self.engine()?;
            self.change(move || renamed.sync(&engine)).await?;
        }
        Ok(())
    }
}

/// An object that is written in parts.
#[derive(Debug)]
struct Upload {
    store: NowaitFileSystem,
    staged: Arc<Staged>,
    /// The offset of the next part.
    offset: u64,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let offset = self.offset;
        self.offset += payload.content_length() as u64;
        let (store, staged) = (self.store.clone(), self.staged.clone());
        let part: BoxFuture<'static, Result<()>> = Box::pin(async move {
            let parts: Vec<Bytes> = payload.into_iter().collect();
            store.on_worker(move || staged.write(&parts, offset)).await
        });
        part
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (staged, sync) = (self.staged.clone(), self.store.sync);
        let publish = move || staged.publish(Replace::Yes, sync);
        Ok(put_result(quoted(self.store.on_worker(publish).await?)))
    }

    async fn abort(&mut self) -> Result<()> {
        let staged = self.staged.clone();
        self.store.on_worker(move || staged.remove()).await
    }
}

/// The metadata of an object.
fn object_meta(location: Path, metadata: &Metadata) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: object::last_modified(metadata),
        size: metadata.len(),
        e_tag: Some(quoted(object::e_tag(metadata))),
        version: None,
    }
}

/// The metadata of a listed object.
fn meta_of(listed: Listed) -> Result<ObjectMeta> {
    Ok(object_meta(location_of(listed.location)?, &listed.metadata))
}

/// The location of a listed file.
fn location_of(location: Vec<u8>) -> Result<Path> {
    let location = String::from_utf8(location).map_err(|error| path::Error::NonUnicode {
        source: error.utf8_error(),
        path: String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })?;
    Ok(Path::parse(location)?)
}

fn generic(error: impl std::error::Error + Send + std::marker::Sync + 'static) -> Error {
    Error::Generic {
        store: STORE,
        source: Box::new(error),
    }
}

impl From<crate::error::Error> for Error {
    fn from(error: crate::error::Error) -> Error {
        use crate::error::Error as E;
        match error {
            E::NotFound { path, source } => Error::NotFound {
                path: path.to_string_lossy().into_owned(),
                source: source.into(),
            },
            E::AlreadyExists { path, source } => Error::AlreadyExists {
                path: path.to_string_lossy().into_owned(),
                source: source.into(),
            },
            error @ E::NotSupported { .. } => Error::NotSupported {
                source: Box::new(error),
            },
            error => generic(error),
        }
    }
}
