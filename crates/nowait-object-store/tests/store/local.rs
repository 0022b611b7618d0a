//! The tests of object_store's `local.rs`, by their names.

use std::os::unix::fs::symlink;
use std::path::Path as FilePath;

use bytes::Bytes;
use futures_util::TryStreamExt;

use super::NowaitFileSystem;
use super::object_store::integration::{
    copy_if_not_exists, copy_rename_nonexistent_object, get_nonexistent_object, get_opts,
    list_uses_directories_correctly, list_with_delimiter, list_with_offset_exclusivity,
    multipart_out_of_order, put_get_delete_list, put_opts, rename_and_copy, stream_get,
};
use super::object_store::path::Path;
use super::object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use crate::common::{alone, names, scratch, wait_until};

fn store(root: impl AsRef<FilePath>) -> NowaitFileSystem {
    NowaitFileSystem::new_with_prefix(root).unwrap()
}

/// The locations of a list, sorted.
async fn listed(store: &NowaitFileSystem, prefix: Option<&Path>) -> Vec<String> {
    let list = store.list(prefix).map_ok(|object| object.location.into());
    let mut list: Vec<String> = list.try_collect().await.unwrap();
    list.sort();
    list
}

pub async fn integration(store: &NowaitFileSystem) {
    put_get_delete_list(store).await;
    list_with_offset_exclusivity(store).await;
    get_opts(store).await;
    list_uses_directories_correctly(store).await;
    list_with_delimiter(store).await;
    rename_and_copy(store).await;
    copy_if_not_exists(store).await;
    copy_rename_nonexistent_object(store).await;
    stream_get(store).await;
    put_opts(store, false).await;
}

#[tokio::test]
async fn file_test() {
    let root = scratch();
    integration(&store(root.path())).await;
    multipart_out_of_order(&store(root.path())).await;
}

#[tokio::test]
async fn file_test_fsync() {
    let root = scratch();
    integration(&store(root.path()).with_fsync(true)).await;
}

#[tokio::test]
async fn fsync_creates_nested_dirs() {
    let root = scratch();
    let store = store(root.path()).with_fsync(true);
    let (put, parts) = (Path::from("a/b/c/put"), Path::from("d/e/f/parts"));
    store.put(&put, "put".into()).await.unwrap();
    let mut upload = store.put_multipart(&parts).await.unwrap();
    upload.put_part("parts".into()).await.unwrap();
    upload.complete().await.unwrap();
    for (location, bytes) in [(put, "put"), (parts, "parts")] {
        let read = store.get(&location).await.unwrap().bytes().await.unwrap();
        assert_eq!(read, bytes);
    }
}

/// A user who may change the old directory and not read it cannot sync it. Unlike with `LocalFileSystem`, nothing has
/// changed then.
#[test]
fn fsync_rename_if_not_exists_propagates_source_delete_sync_error() {
    alone(|| {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let other = rustix::fs::Uid::from_raw(65534);
        for dir in ["from", "to"] {
            std::fs::create_dir(root.join(dir)).unwrap();
        }
        std::fs::write(root.join("from/a"), "bytes").unwrap();
        for (path, mode) in [
            ("", 0o755),
            ("from", 0o300),
            ("to", 0o700),
            ("from/a", 0o600),
        ] {
            rustix::fs::chown(root.join(path), Some(other), None).unwrap();
            rustix::fs::chmod(root.join(path), mode.into()).unwrap();
        }
        // The engine's threads inherit it. Root could read all directories.
        let user = rustix::fs::Uid::ROOT;
        rustix::thread::set_thread_res_uid(other, other, user).unwrap();
        let store = store(root).with_fsync(true);
        let (from, to) = (Path::from("from/a"), Path::from("to/a"));
        let rename = pollster::block_on(store.rename_if_not_exists(&from, &to));
        let error = rename.unwrap_err().to_string();
        assert!(error.contains("os error 13"), "{error}");
        let read = pollster::block_on(async { store.get(&from).await.unwrap().bytes().await });
        assert_eq!(read.unwrap(), "bytes");
        let none = pollster::block_on(store.get(&to)).unwrap_err();
        assert!(matches!(none, Error::NotFound { .. }), "{none}");
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    });
}

#[test]
fn test_non_tokio() {
    let root = scratch();
    let store = store(root.path());
    futures_executor::block_on(async {
        put_get_delete_list(&store).await;
        list_uses_directories_correctly(&store).await;
        list_with_delimiter(&store).await;
        let location = Path::from("parts");
        let mut upload = store.put_multipart(&location).await.unwrap();
        upload.put_part("one".into()).await.unwrap();
        upload.put_part("two".into()).await.unwrap();
        let put = upload.complete().await.unwrap();
        let get = store.get(&location).await.unwrap();
        assert_eq!(get.meta.e_tag, put.e_tag);
        assert_eq!(get.bytes().await.unwrap(), "onetwo");
    });
}

#[tokio::test]
async fn creates_dir_if_not_present() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("a/b/file");
    store.put(&location, "bytes".into()).await.unwrap();
    let read = std::fs::read(root.path().join("a/b/file")).unwrap();
    assert_eq!(read, b"bytes");
}

#[tokio::test]
async fn unknown_length() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    store.put(&location, "bytes".into()).await.unwrap();
    let get = store.get(&location).await.unwrap();
    let chunks: Vec<Bytes> = get.into_stream().try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"bytes");
}

#[tokio::test]
async fn range_request_start_beyond_end_of_file() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    store.put(&location, "bytes".into()).await.unwrap();
    for range in [5..6, 100..200] {
        let error = store.get_range(&location, range).await.unwrap_err();
        assert!(matches!(error, Error::Generic { .. }), "{error}");
    }
}

#[tokio::test]
async fn range_request_beyond_end_of_file() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    store.put(&location, "bytes".into()).await.unwrap();
    let read = store.get_range(&location, 1..100).await.unwrap();
    assert_eq!(read, "ytes");
}

#[tokio::test]
async fn get_ranges_coalesces() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let bytes = crate::common::pattern(40_000);
    store.put(&location, bytes.clone().into()).await.unwrap();
    let slice = |range: &std::ops::Range<u64>| &bytes[range.start as usize..range.end as usize];
    for (ranges, reads) in [
        (vec![0..16, 16..32, 32..48], 1),
        (vec![0..16, 100..116, 30_000..30_016], 2),
        (vec![900..1000, 0..50, 40..60, 0..50, 990..1010, 7..7], 1),
        (vec![], 0),
    ] {
        let before = store.stats();
        let read = store.get_ranges(&location, &ranges).await.unwrap();
        assert_eq!(read.len(), ranges.len());
        for (range, read) in ranges.iter().zip(read) {
            assert_eq!(read, slice(range), "{range:?}");
        }
        let after = store.stats();
        let of = |stats: nowait_object_store::Stats| stats.hits + stats.misses;
        assert_eq!(of(after) - of(before), reads, "{ranges:?}");
    }
}

/// A directory that cannot be listed is an error of the list. Root may list all directories that are no links in a
/// circle.
#[tokio::test]
async fn bubble_up_io_errors() {
    let root = scratch();
    symlink("circle", root.path().join("circle")).unwrap();
    let store = store(root.path());
    let list: Result<Vec<_>, _> = store.list(None).try_collect().await;
    assert!(list.is_err());
    assert!(store.list_with_delimiter(None).await.is_err());
}

#[tokio::test]
async fn get_nonexistent_location() {
    let root = scratch();
    let location = Path::from("missing");
    let got = get_nonexistent_object(&store(root.path()), Some(location)).await;
    let Err(Error::NotFound { path, source }) = got else {
        panic!("{got:?}")
    };
    assert_eq!(FilePath::new(&path), root.path().join("missing"));
    assert!(source.downcast_ref::<std::io::Error>().is_some());
}

#[tokio::test]
async fn root() {
    let store = NowaitFileSystem::new();
    let file = FilePath::new("Cargo.toml").canonicalize().unwrap();
    let location = Path::from_absolute_path(&file).unwrap();
    assert_eq!(store.path_to_filesystem(&location).unwrap(), file);
    store.head(&location).await.unwrap();
}

#[tokio::test]
async fn test_list_root() {
    let root = NowaitFileSystem::new().list_with_delimiter(None).await;
    let prefixes = root.unwrap().common_prefixes;
    assert!(prefixes.contains(&Path::from("proc")), "{prefixes:?}");
}

#[tokio::test]
async fn test_symlink() {
    let root = scratch();
    let root = root.path();
    let store = store(root);
    let a = "a/file";
    std::fs::create_dir(root.join("a")).unwrap();
    std::fs::write(root.join("a/file"), "in").unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), "outside").unwrap();

    // A link to a file that is not below the root.
    symlink(outside.path(), root.join("link")).unwrap();
    assert_eq!(listed(&store, None).await, [a, "link"]);
    let link = Path::from("link");
    assert_eq!(store.head(&link).await.unwrap().size, 7);
    let read = store.get(&link).await.unwrap().bytes().await.unwrap();
    assert_eq!(read, "outside");

    // A link to a directory.
    symlink(root.join("a"), root.join("b")).unwrap();
    let (prefix, b) = (Path::from("b"), Path::from("b/file"));
    assert_eq!(listed(&store, None).await, [a, "b/file", "link"]);
    assert_eq!(listed(&store, Some(&prefix)).await, ["b/file"]);
    store.head(&b).await.unwrap();

    // A link to nothing.
    symlink(root.join("nothing"), root.join("c")).unwrap();
    assert_eq!(listed(&store, None).await, [a, "b/file", "link"]);
    let list = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(list.common_prefixes, [Path::from("a"), Path::from("b")]);
    let objects: Vec<_> = list.objects.iter().map(|o| o.location.as_ref()).collect();
    assert_eq!(objects, ["link"]);

    // The link is deleted, and not its target.
    store.delete(&link).await.unwrap();
    assert!(outside.path().exists());
    assert_eq!(listed(&store, None).await, [a, "b/file"]);
    // Through a link to a directory, the file is deleted.
    store.delete(&b).await.unwrap();
    assert_eq!(listed(&store, None).await, [""; 0]);
    store.put(&b, "new".into()).await.unwrap();
    assert_eq!(listed(&store, None).await, [a, "b/file"]);
}

#[tokio::test]
async fn invalid_path() {
    // `Path::from` would encode these names.
    let root = scratch();
    let root = root.path().join("🙀");
    std::fs::create_dir(&root).unwrap();
    let store = store(&root);
    let location = Path::from("dir/file");
    store.put(&location, "bytes".into()).await.unwrap();
    let read = store.get(&location).await.unwrap().bytes().await.unwrap();
    assert_eq!(read, "bytes");
    assert_eq!(listed(&store, Some(&Path::from("dir"))).await, ["dir/file"]);
    std::fs::write(root.join("💀"), "bytes").unwrap();
    assert_eq!(listed(&store, None).await, ["dir/file", "💀"]);
    store.head(&Path::parse("💀").unwrap()).await.unwrap();
}

#[tokio::test]
async fn list_hides_incomplete_uploads() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let mut uploads: Vec<Box<dyn MultipartUpload>> = Vec::new();
    for _ in 0..2 {
        let mut upload = store.put_multipart(&location).await.unwrap();
        upload.put_part("bytes".into()).await.unwrap();
        uploads.push(upload);
    }
    assert_eq!(names(root.path()), ["file#1", "file#2"]);
    assert_eq!(listed(&store, None).await, [""; 0]);
    let list = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(list.objects, []);
}

#[tokio::test]
async fn test_path_with_offset() {
    let root = scratch();
    for i in 0..5 {
        std::fs::write(root.path().join(format!("file{i}.x")), "bytes").unwrap();
    }
    let list = store(root.path()).list_with_offset(None, &Path::from("file1"));
    let mut list: Vec<String> = list
        .map_ok(|object| object.location.into())
        .try_collect()
        .await
        .unwrap();
    list.sort();
    assert_eq!(list, ["file1.x", "file2.x", "file3.x", "file4.x"]);
}

#[tokio::test]
async fn filesystem_filename_with_percent() {
    let root = scratch();
    let name = "a%3Ab%2Fc%00";
    std::fs::write(root.path().join(name), "bytes").unwrap();
    let store = store(root.path());
    assert_eq!(listed(&store, None).await, [name]);
    let list = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(list.objects[0].location.as_ref(), name);
    let get = store.get(&list.objects[0].location).await.unwrap();
    assert_eq!(get.bytes().await.unwrap(), "bytes");
}

#[tokio::test]
async fn relative_paths() {
    for prefix in [".", "..", "../.."] {
        store(prefix);
    }
    let here = Path::from_filesystem_path(".").unwrap();
    let store = NowaitFileSystem::new();
    let list = store.list_with_delimiter(Some(&here));
    assert_ne!(list.await.unwrap().objects, []);
}

#[tokio::test]
async fn test_intermediate_files() {
    let root = scratch();
    let store = store(root.path());
    let a = Path::parse("dir#1/file").unwrap();
    store.put(&a, "bytes".into()).await.unwrap();
    std::fs::write(root.path().join("b#1"), "bytes").unwrap();
    assert_eq!(listed(&store, None).await, [a.as_ref()]);
    let b = Path::parse("b#1").unwrap();
    let error = store.get(&b).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "Generic NowaitFileSystem error: names that end with '#' and a number are not supported: b#1"
    );
    let c = Path::parse("c#1.txt").unwrap();
    store.put(&c, "bytes".into()).await.unwrap();
    assert_eq!(listed(&store, None).await, [c.as_ref(), a.as_ref()]);
}

#[tokio::test]
async fn delete_dirs_automatically() {
    let root = scratch();
    let location = Path::from("a/b/file");
    let keeps = store(root.path());
    let cleans = keeps.clone().with_automatic_cleanup(true);
    keeps.put(&location, "bytes".into()).await.unwrap();
    keeps.delete(&location).await.unwrap();
    assert!(root.path().join("a/b").is_dir());
    cleans.put(&location, "bytes".into()).await.unwrap();
    let other = Path::from("a/file");
    cleans.put(&other, "bytes".into()).await.unwrap();
    cleans.delete(&location).await.unwrap();
    assert_eq!(names(root.path()), ["a"]);
    assert_eq!(names(&root.path().join("a")), ["file"]);
    cleans.delete(&other).await.unwrap();
    assert!(root.path().is_dir());
    assert_eq!(names(root.path()), [""; 0]);
}

#[tokio::test]
async fn test_cleanup_intermediate_files() {
    let root = scratch();
    let location = Path::from("file");
    let mut upload = store(root.path()).put_multipart(&location).await.unwrap();
    let part = PutPayload::from_static(b"bytes");
    upload.put_part(part).await.unwrap();
    assert_eq!(names(root.path()), ["file#1"]);
    drop(upload);
    wait_until("the file stays", || names(root.path()).is_empty());
}

#[tokio::test]
async fn test_fifo() {
    let root = scratch();
    let path = root.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let store = store(root.path());
    let location = Path::from("fifo");
    // `LocalFileSystem` opens the FIFO, which waits for its other end. Here it is no object.
    let refused = store.head(&location).await.unwrap_err();
    assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
    store.get(&location).await.unwrap_err();
    assert_eq!(listed(&store, None).await, [""; 0]);
}
