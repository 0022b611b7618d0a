//! Files that are replaced, changed, truncated or removed while the store has them open.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path as FilePath;

use futures_util::TryStreamExt;
use nix::unistd::{Gid, Uid, seteuid, setgid, setgroups, setuid};
use nowait::mapping::Budget;
use rustix::process::{Resource, Rlimit, setrlimit};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt};
use crate::common::{alone, names, open_below, pattern, scratch, wait_until};

async fn read(store: &NowaitFileSystem, location: &str) -> Result<String, Error> {
    let get = store.get(&Path::from(location)).await?;
    let size = get.meta.size;
    let bytes = get.bytes().await?;
    assert_eq!(bytes.len() as u64, size);
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

fn store(root: &FilePath) -> NowaitFileSystem {
    NowaitFileSystem::new_with_prefix(root).unwrap()
}

/// Sets the time of a file's last change to that of another file.
fn set_time_of(path: &FilePath, from: &FilePath) {
    let time = fs::metadata(from).unwrap().modified().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// The two calls run 1,000 times beside each other: in some rounds, the object is replaced after the rename has
/// found it, and before the old name is gone.
#[test]
fn an_object_that_is_put_beside_the_rename_of_another_one_is_not_lost() {
    let root = scratch();
    let store = store(root.path());
    let from = Path::from("from");
    for round in 0..1000 {
        let to = Path::from(format!("to/{round}"));
        pollster::block_on(store.put(&from, "old".into())).unwrap();
        std::thread::scope(|scope| {
            let put = scope.spawn(|| pollster::block_on(store.put(&from, "new".into())));
            pollster::block_on(store.rename_if_not_exists(&from, &to)).unwrap();
            put.join().unwrap().unwrap();
        });
        let left = pollster::block_on(read(&store, "from"));
        let moved = pollster::block_on(read(&store, to.as_ref())).unwrap();
        match left {
            Ok(left) => assert_eq!((&*left, &*moved), ("new", "old"), "round {round}"),
            Err(_) => assert_eq!(moved, "new", "round {round}"),
        }
    }
}

#[tokio::test]
async fn a_replaced_file_is_opened_again() {
    let root = scratch();
    let (old, new) = (root.path().join("file"), root.path().join("new"));
    let store = store(root.path());
    fs::write(&old, "old").unwrap();
    assert_eq!(read(&store, "file").await.unwrap(), "old");
    let list: Vec<_> = store.list(None).try_collect().await.unwrap();
    // The same size and time.
    fs::write(&new, "new").unwrap();
    set_time_of(&new, &old);
    fs::rename(&new, &old).unwrap();
    assert_eq!(read(&store, "file").await.unwrap(), "new");
    let meta = store.head(&Path::from("file")).await.unwrap();
    assert_ne!(meta.e_tag, list[0].e_tag);
    assert_eq!(store.stats().opened, 2);
}

#[tokio::test]
async fn a_changed_file_has_its_new_size_and_bytes() {
    let root = scratch();
    let path = root.path().join("file");
    let store = store(root.path());
    for text in ["a", "longer", "", "short"] {
        fs::write(&path, text).unwrap();
        assert_eq!(read(&store, "file").await.unwrap(), text);
        let (location, range) = (Path::from("file"), 0..text.len() as u64);
        let ranges = store.get_ranges(&location, &[range]).await.unwrap();
        assert_eq!(ranges, [text]);
    }
}

/// Runs `body` as the user nobody, in a process of its own and in a directory of that user: root may read all files.
fn as_nobody(body: impl FnOnce(&FilePath)) {
    alone(|| {
        if !rustix::process::geteuid().is_root() {
            return slowdisk::skip_or_fail("not root");
        }
        let root = tempfile::tempdir().unwrap();
        let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        chown(root.path(), Some(65_534), Some(65_534)).unwrap();
        setgroups(&[]).unwrap();
        setgid(group).unwrap();
        setuid(user).unwrap();
        body(root.path());
    });
}

#[test]
fn an_object_that_may_no_longer_be_read_is_an_error() {
    as_nobody(|root| {
        let path = root.join("file");
        fs::write(&path, pattern(100_000)).unwrap();
        let plain = store(root);
        let mapped = store(root).with_mapped_reads(&Budget::process().unwrap());
        let set = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let location = Path::from("file");
        for store in [&plain, &mapped] {
            // The clock of the ctime may not advance in between.
            for _ in 0..50 {
                set(0o600);
                pollster::block_on(store.get_range(&location, 0..10)).unwrap();
                set(0);
                let refused = pollster::block_on(store.get_range(&location, 0..10)).unwrap_err();
                assert!(refused.to_string().contains("os error 13"), "{refused}");
                pollster::block_on(store.get(&location)).unwrap_err();
            }
        }
        set(0o600);
        let borrowed = || mapped.stats().bytes_borrowed;
        wait_until("no bytes are borrowed", || {
            pollster::block_on(mapped.get_range(&location, 0..5000)).unwrap();
            borrowed() > 0
        });
        let before = borrowed();
        set(0);
        pollster::block_on(mapped.get_range(&location, 0..5000)).unwrap_err();
        assert_eq!(borrowed(), before);
    });
}

/// A server gives up its rights after it has read a file that only root may read.
#[test]
fn an_object_that_the_process_may_no_longer_read_is_an_error() {
    alone(|| {
        if !rustix::process::geteuid().is_root() {
            return slowdisk::skip_or_fail("not root");
        }
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let path = root.path().join("file");
        fs::write(&path, pattern(100_000)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let plain = store(root.path());
        let mapped = store(root.path()).with_mapped_reads(&Budget::process().unwrap());
        let read = |store: &NowaitFileSystem| {
            pollster::block_on(store.get_range(&Path::from("file"), 0..5000))
        };
        read(&plain).unwrap();
        wait_until("no bytes are borrowed", || {
            read(&mapped).unwrap();
            mapped.stats().bytes_borrowed > 0
        });
        seteuid(Uid::from_raw(65_534)).unwrap();
        for store in [&plain, &mapped] {
            let refused = read(store).unwrap_err();
            assert!(refused.to_string().contains("os error 13"), "{refused}");
        }
        seteuid(Uid::from_raw(0)).unwrap();
        read(&plain).unwrap();
        // No file is opened anew while nothing changes.
        let before = plain.stats().opened;
        (0..100).for_each(|_| drop(read(&plain).unwrap()));
        let opened = plain.stats().opened - before;
        assert!(opened < 20, "{opened}");
    });
}

/// The thread that would remove the file cannot be started.
#[test]
fn an_upload_that_is_dropped_leaves_nothing_also_without_a_thread() {
    as_nobody(|root| {
        let store = store(root);
        let put = || pollster::block_on(store.put_multipart(&Path::from("file")));
        let mut upload = put().unwrap();
        let limit = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        setrlimit(Resource::Nproc, limit).unwrap();
        assert!(std::thread::Builder::new().spawn(|| {}).is_err());
        pollster::block_on(upload.put_part("bytes".into())).unwrap();
        drop(upload);
        assert_eq!(names(root), [""; 0]);
    });
}

#[test]
fn an_object_of_a_directory_that_may_no_longer_be_searched_is_an_error() {
    as_nobody(|root| {
        let directory = root.join("directory");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), "bytes").unwrap();
        let store = store(root);
        pollster::block_on(read(&store, "directory/file")).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o600)).unwrap();
        pollster::block_on(read(&store, "directory/file")).unwrap_err();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    });
}

#[tokio::test]
async fn a_link_that_points_elsewhere_is_followed_again() {
    let root = scratch();
    let link = root.path().join("link");
    let store = store(root.path());
    for text in ["a", "b", "c"] {
        fs::write(root.path().join(text), text).unwrap();
        let _ = fs::remove_file(&link);
        symlink(text, &link).unwrap();
        assert_eq!(read(&store, "link").await.unwrap(), text);
    }
}

#[tokio::test]
async fn a_renamed_directory_is_found_at_its_new_path() {
    let root = scratch();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    let store = store(root.path());
    fs::create_dir(&a).unwrap();
    fs::write(a.join("file"), "bytes").unwrap();
    assert_eq!(read(&store, "a/file").await.unwrap(), "bytes");
    fs::rename(&a, &b).unwrap();
    let gone = read(&store, "a/file").await.unwrap_err();
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
    assert_eq!(read(&store, "b/file").await.unwrap(), "bytes");
}

#[tokio::test]
async fn a_file_that_is_truncated_before_its_bytes_are_read_is_an_error() {
    let root = scratch();
    let path = root.path().join("file");
    let store = store(root.path());
    let location = Path::from("file");
    fs::write(&path, "some bytes").unwrap();
    let (whole, part) = (store.get(&location).await, store.get(&location).await);
    fs::write(&path, "some").unwrap();
    let error = whole.unwrap().bytes().await.unwrap_err();
    assert!(matches!(error, Error::Generic { .. }), "{error}");
    let chunks: Result<Vec<_>, _> = part.unwrap().into_stream().try_collect().await;
    assert!(matches!(chunks, Err(Error::Generic { .. })), "{chunks:?}");
}

#[tokio::test]
async fn a_removed_file_is_not_found_and_its_result_can_still_be_read() {
    let root = scratch();
    let path = root.path().join("file");
    let store = store(root.path());
    let location = Path::from("file");
    fs::write(&path, "bytes").unwrap();
    let list: Vec<_> = store.list(None).try_collect().await.unwrap();
    let get = store.get(&list[0].location).await.unwrap();
    fs::remove_file(&path).unwrap();
    let gone = store.get(&location).await.unwrap_err();
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
    assert_eq!(get.bytes().await.unwrap(), "bytes");
    fs::write(&path, "again").unwrap();
    assert_eq!(read(&store, "file").await.unwrap(), "again");
}

/// Nothing asks for the file after its removal.
#[test]
fn the_descriptor_of_a_removed_file_is_closed() {
    let root = scratch();
    let store = store(root.path());
    for name in ["a", "b"] {
        fs::write(root.path().join(name), "bytes").unwrap();
        pollster::block_on(read(&store, name)).unwrap();
    }
    assert_eq!(open_below(root.path()).len(), 2);
    fs::remove_file(root.path().join("a")).unwrap();
    let is_open = || {
        // The other file stays in use.
        pollster::block_on(read(&store, "b")).unwrap();
        let open = open_below(root.path());
        open.iter().any(|path| path.ends_with("a (deleted)"))
    };
    wait_until("the file stays open", || !is_open());
    // The other file was opened once. A mount anywhere in the system makes a lookup in the kernel's caches fail.
    let opened = store.stats().opened;
    assert!(opened < 20, "{opened}");
    let idle = || open_below(root.path()).is_empty() && store.stats().open_descriptors == 0;
    wait_until("a file that is not used stays open", idle);
}

#[test]
fn a_deletion_by_the_store_closes_the_descriptor() {
    let root = scratch();
    let store = store(root.path());
    fs::write(root.path().join("a"), "bytes").unwrap();
    pollster::block_on(read(&store, "a")).unwrap();
    pollster::block_on(store.delete(&Path::from("a"))).unwrap();
    wait_until("it stays open", || open_below(root.path()).is_empty());
}

/// Without a store there is nothing that could use a descriptor.
#[test]
fn a_dropped_store_closes_its_descriptors() {
    let root = scratch();
    let store = store(root.path());
    fs::write(root.path().join("a"), "bytes").unwrap();
    pollster::block_on(read(&store, "a")).unwrap();
    drop(store);
    wait_until("it stays open", || open_below(root.path()).is_empty());
}

/// Writers replace objects while readers read them: each read is the whole of one version.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_whole_objects() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let version = |i: u8| vec![i; 20_000 + usize::from(i)];
    store.put(&location, version(0).into()).await.unwrap();
    let writer = tokio::spawn({
        let (store, location) = (store.clone(), location.clone());
        async move {
            for i in 1..200 {
                store.put(&location, version(i).into()).await.unwrap();
            }
        }
    });
    while !writer.is_finished() {
        let get = store.get(&location).await.unwrap();
        let bytes = get.bytes().await.unwrap();
        assert!(bytes == version(bytes[0]), "a mixture");
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    let last = store.head(&location).await.unwrap();
    assert_eq!(last.size, 20_199);
}
