//! An object store in a local directory, whose reads do not block the caller.
//!
//! `NowaitFileSystem` is an `object_store::ObjectStore` with the behaviour of object_store's
//! `LocalFileSystem`: the same paths, metadata and errors. Its reads are those of [nowait]. The
//! calling task reads cached data itself. An io_uring ring or a pool of threads reads the rest.
//!
//! ```
//! # #[cfg(feature = "object_store_0_13")]
//! # use object_store_0_13 as object_store;
//! # #[cfg(feature = "object_store_0_13")]
//! # fn main() -> object_store::Result<()> {
//! use nowait_object_store::v0_13::NowaitFileSystem;
//! use object_store::{ObjectStore, ObjectStoreExt, path::Path};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let store = NowaitFileSystem::new_with_prefix(dir.path())?;
//! # pollster::block_on(async {
//! let location = Path::from("a/b");
//! store.put(&location, "some bytes".into()).await?;
//! let read = store.get_range(&location, 5..10).await?;
//! assert_eq!(read, "bytes");
//! assert_eq!(store.stats().bytes_cached, 5);
//! # Ok(())
//! # })
//! # }
//! # #[cfg(not(feature = "object_store_0_13"))]
//! # fn main() {}
//! ```
//!
//! # Versions of object_store
//! | feature | default | content |
//! |---|---|---|
//! | `object_store_0_13` | yes | `v0_13::NowaitFileSystem` |
//! | `object_store_0_14` | no | `v0_14::NowaitFileSystem` |
//!
//! # Reads
//! - The store keeps files open between reads, at most a quarter of the process's limit for
//!   descriptors. Each call compares the file with its path, by device, inode, size, and the times
//!   of the last change of contents and attributes, and asks if the calling thread may read it
//!   (faccessat(2)). Otherwise the file is opened anew. A file that was not used for about half a
//!   second is closed. So a deleted file takes up no space after a second, and a filesystem can be
//!   unmounted then. If a call finds no free descriptor, the store closes its files, and waits
//!   for other calls to end. It fails if none of them opens a file within a quarter of a second.
//! - This needs ext4, xfs, btrfs, f2fs, tmpfs, ramfs or overlayfs. On other filesystems each call
//!   opens its file.
//! - A result is a stream, and not a file as that of `LocalFileSystem`. Its chunks have 4 MiB. The
//!   bytes of a range that is not longer are not copied after the read.
//! - `get_ranges` reads ranges together that are at most a page apart.
//! - With `with_mapped_reads`, bytes of objects that are read often are borrowed from locked
//!   memory, and not copied.
//!
//! The futures need no runtime. In a tokio runtime, they take part in the cooperative budget of
//! their task.
//!
//! # Writes
//! Workers of the engine write, copy, rename and delete. An object is written to a file of another
//! name, and renamed when it is complete. That name is `#` and a number after the object's own
//! name, up to the first `#` and at most 234 bytes of it.
//!
//! A copy is a second name of the same file (link(2)). The bytes are copied if link(2) fails with
//! EPERM, EOPNOTSUPP, ENOSYS, EMLINK or EXDEV: the filesystem has no hard links, the process may
//! not make one, the file has as many as it can have, or the two names are on different mounts.
//! xfs and btrfs then share the blocks of both files. Such a copy belongs to the user of the
//! process, has the permissions of the object within the umask, and a time of its own. A rename
//! across mounts copies the bytes, and then removes the object, unless another writer has replaced
//! it meanwhile.
//!
//! An object that is created only if there is none (`PutMode::Create`, and copies in that mode) gets
//! its name by link(2). After EPERM, EOPNOTSUPP, ENOSYS or EMLINK it gets it by renameat2(2) with
//! `RENAME_NOREPLACE`. If the filesystem does not support that, either, the error is `NotSupported`.
//! A rename in that mode is such a renameat2(2), so that an object that is put under the old name
//! meanwhile stays. Where that is not supported, the object is copied, and the old name removed. Each
//! of these calls is tried each time.
//!
//! With `with_fsync`, the following calls make an object durable before the call returns, on the
//! filesystems where fsync(2) does. Without it, nothing is synced except the copy of a rename across
//! mounts, because its object is then removed.
//!
//! | call | what is synced (fsync(2)), in this order |
//! |---|---|
//! | put, and completion of an upload in parts | the file, before it gets its name; its directory |
//! | copy | the file, before it gets the second name, or the copy of its bytes, before it gets its name; the directory of that name |
//! | rename | the file, before it is renamed; the directories of both names |
//! | rename across mounts, of a symbolic link, and if the name is not in use without `RENAME_NOREPLACE` | as a copy; then the directory of the removed name |
//! | all of these | the directory above each one that is created for the name, by this call or by another one of the process that syncs, before it is used |
//! | delete | nothing: the object may be there again after a power cut |
//!
//! A directory that another program has created without a sync is not synced. On ext4 and xfs, an
//! fsync of such a directory also makes its own name durable.
//!
//! # Forks
//! A store can be used in a forked child. There it keeps no files open, and uses none of those of
//! the parent, whose descriptors stay open in the child until it ends. An upload in parts that the
//! parent has begun is an error in the child, and its file is not removed. A store that has an
//! engine of the parent (`with_engine`) fails.
//!
//! # Differences from `LocalFileSystem`
//! - An error names the store `NowaitFileSystem`, and has another text.
//! - `list_with_offset` does not ask for the metadata of locations before the offset, and returns
//!   no error for them.
//! - Objects can be created, copied and renamed on filesystems without hard links, and copied and
//!   renamed across mounts. `LocalFileSystem` returns an error.
//! - A copy to a second name of the same file leaves no third name. A rename to a second name of
//!   the same file removes the first one, and not neither of them.
//! - A copy or a rename of a symbolic link gives the new name to the file that the link points to,
//!   and a rename removes the link. `LocalFileSystem` copies or renames the link itself, which may
//!   lead elsewhere from another directory.
//! - A directory cannot be renamed: no object has its path.
//! - FIFOs, sockets and devices are no objects: they are not found, and never opened.
//!   `LocalFileSystem` opens them, which may wait without end.
//! - A copy or a rename of `LocalFileSystem` (version 0.14) with `with_fsync` does not sync the
//!   file. A rename that cannot sync a directory is an error after the change.
//! - A stream of a file that was truncated ends with an error.

#[cfg(not(any(feature = "object_store_0_13", feature = "object_store_0_14")))]
compile_error!("nowait-object-store needs the feature object_store_0_13 or object_store_0_14");

mod change;
mod durable;
mod error;
mod listing;
mod location;
mod mapped;
mod names;
mod object;
mod open_file;
mod open_files;
mod ranges;
mod root;
mod staged;
mod stats;

#[cfg(feature = "object_store_0_13")]
pub mod v0_13;
#[cfg(feature = "object_store_0_14")]
pub mod v0_14;

pub use stats::Stats;
