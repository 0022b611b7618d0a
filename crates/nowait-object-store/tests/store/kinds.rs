//! Files that are no objects, links, and objects with several names.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, ObjectStore, ObjectStoreExt};
use crate::common::{names, scratch, wait_until};

/// A store, and the same with durable changes.
fn stores(root: &FilePath) -> [NowaitFileSystem; 2] {
    let store = NowaitFileSystem::new_with_prefix(root).unwrap();
    [store.clone(), store.with_fsync(true)]
}

fn at(location: &str) -> Path {
    Path::from(location)
}

async fn read(store: &NowaitFileSystem, location: &str) -> Result<String, Error> {
    let bytes = store.get(&at(location)).await?.bytes().await?;
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

async fn put(store: &NowaitFileSystem, location: &str) {
    let text = location.to_owned();
    store.put(&at(location), text.into()).await.unwrap();
}

/// All calls of a store on a file that is no object.
async fn calls_are_refused(store: &NowaitFileSystem, location: &str) {
    let (from, to) = (at(location), at("to/new"));
    let refused = [
        store.get(&from).await.map(drop),
        store.head(&from).await.map(drop),
        store.get_range(&from, 0..1).await.map(drop),
        store.get_ranges(&from, &[0..1, 2..3]).await.map(drop),
        store.rename(&from, &to).await,
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, Error::NotFound { .. }),
            "{location}: {error}"
        );
        assert!(error.to_string().contains(location), "{location}: {error}");
    }
    for refused in [
        store.copy(&from, &to).await,
        store.copy_if_not_exists(&from, &to).await,
        store.rename_if_not_exists(&from, &to).await,
    ] {
        refused.unwrap_err();
    }
}

/// A program that waits in open(2) for the reader of a FIFO does not see one.
#[test]
fn files_that_are_not_regular_are_never_opened() {
    let root = scratch();
    let fifo = root.path().join("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, 0o600.into()).unwrap();
    symlink("fifo", root.path().join("link")).unwrap();
    let kinds = [
        (FileType::Socket, "socket"),
        (FileType::CharacterDevice, "device"),
    ];
    for (kind, name) in kinds {
        let null = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(CWD, root.path().join(name), kind, 0o600.into(), null).unwrap();
    }
    static WOKEN: AtomicBool = AtomicBool::new(false);
    WOKEN.store(false, Ordering::Relaxed);
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let _ = fs::OpenOptions::new().write(true).open(fifo).unwrap();
            WOKEN.store(true, Ordering::Relaxed);
        }
    });
    // A call that opens the FIFO never ends.
    let calls = std::thread::spawn({
        let root = root.path().to_owned();
        move || {
            pollster::block_on(async {
                for store in stores(&root) {
                    for location in ["fifo", "link", "socket", "device"] {
                        calls_are_refused(&store, location).await;
                    }
                    let list: Vec<_> = store.list(None).try_collect().await.unwrap();
                    assert!(list.is_empty(), "{list:?}");
                    store.list_with_delimiter(None).await.unwrap();
                }
            });
        }
    });
    let is_woken = || WOKEN.load(Ordering::Relaxed);
    wait_until("a call hangs", || calls.is_finished() || is_woken());
    assert!(!is_woken(), "the writer of the FIFO was woken");
    calls.join().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!is_woken(), "the writer of the FIFO was woken");
    // This reader ends the wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let _reader = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
    writer.join().unwrap();
    let left = names(root.path());
    assert_eq!(left.len(), 5, "{left:?}");
    assert!(names(&root.path().join("to")).is_empty());
}

#[tokio::test]
async fn a_directory_is_not_renamed() {
    let root = scratch();
    for store in stores(root.path()) {
        put(&store, "dir/a").await;
        let refused = store.rename(&at("dir"), &at("other")).await.unwrap_err();
        assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
        assert!(
            refused.to_string().contains("not a regular file"),
            "{refused}"
        );
        let link = root.path().join("dir/up");
        symlink("..", &link).unwrap();
        store.rename(&at("dir/up"), &at("other")).await.unwrap_err();
        fs::remove_file(link).unwrap();
        assert_eq!(names(root.path()), ["dir"]);
        assert_eq!(read(&store, "dir/a").await.unwrap(), "dir/a");
    }
}

/// rename(2) does nothing if both names are those of one file.
#[tokio::test]
async fn one_of_two_names_of_a_file_is_renamed_to_the_other() {
    let root = scratch();
    for store in stores(root.path()) {
        put(&store, "d/a").await;
        for to in ["d/b", "e/b"] {
            store.copy(&at("d/a"), &at(to)).await.unwrap();
            store.rename(&at("d/a"), &at(to)).await.unwrap();
            assert!(names(&root.path().join("d")).iter().all(|name| name != "a"));
            assert_eq!(read(&store, to).await.unwrap(), "d/a");
            store.rename(&at(to), &at("d/a")).await.unwrap();
        }
        assert_eq!(names(&root.path().join("d")), ["a"]);
        assert_eq!(names(&root.path().join("e")), [""; 0]);
        // An object keeps its name, also if another path leads to it.
        store.rename(&at("d/a"), &at("d/a")).await.unwrap();
        symlink("d", root.path().join("f")).unwrap();
        store.rename(&at("d/a"), &at("f/a")).await.unwrap();
        assert_eq!(names(&root.path().join("d")), ["a"]);
        assert_eq!(read(&store, "d/a").await.unwrap(), "d/a");
        fs::remove_file(root.path().join("f")).unwrap();
    }
}

/// The bytes of the object are those of the file that the link points to, also in another directory.
#[tokio::test]
async fn a_symbolic_link_is_copied_and_renamed_as_its_file() {
    let root = scratch();
    for store in stores(root.path()) {
        put(&store, "d1/data").await;
        put(&store, "d2/data").await;
        let link = root.path().join("d1/link");
        symlink("data", &link).unwrap();
        store.copy(&at("d1/link"), &at("d2/copy")).await.unwrap();
        assert_eq!(read(&store, "d2/copy").await.unwrap(), "d1/data");
        store
            .rename(&at("d1/link"), &at("d2/renamed"))
            .await
            .unwrap();
        assert_eq!(read(&store, "d2/renamed").await.unwrap(), "d1/data");
        assert!(fs::symlink_metadata(&link).is_err());
        // Another path leads to the link itself, and replaces it by the file.
        symlink("data", &link).unwrap();
        symlink("d1", root.path().join("d3")).unwrap();
        store.rename(&at("d1/link"), &at("d3/link")).await.unwrap();
        assert_eq!(read(&store, "d1/link").await.unwrap(), "d1/data");
        store.rename(&at("d1/link"), &at("d1/link")).await.unwrap();
        // The link has no file.
        symlink("missing", root.path().join("d1/dangling")).unwrap();
        let to = at("d2/nothing");
        for missing in [
            store.copy(&at("d1/dangling"), &to).await,
            store.rename(&at("d1/dangling"), &to).await,
        ] {
            let error = missing.unwrap_err();
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
        }
        assert_eq!(names(&root.path().join("d1")), ["dangling", "data", "link"]);
        assert_eq!(names(&root.path().join("d2")), ["copy", "data", "renamed"]);
        for name in ["d1", "d2"] {
            fs::remove_dir_all(root.path().join(name)).unwrap();
        }
        fs::remove_file(root.path().join("d3")).unwrap();
    }
}

/// Writers replace both objects while one is renamed to the other: no object is lost, and none is a mixture.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn names_of_one_file_are_renamed_while_others_write() {
    let root = scratch();
    let [store, _] = stores(root.path());
    let (a, b) = (at("a"), at("b"));
    store.put(&a, "x".into()).await.unwrap();
    let writer = tokio::spawn({
        let (store, a) = (store.clone(), a.clone());
        async move {
            for i in 0..300 {
                let version = format!("version {i}");
                store.put(&a, version.into()).await.unwrap();
            }
        }
    });
    while !writer.is_finished() {
        // The object may just have been renamed.
        let _ = store.copy(&a, &b).await;
        let _ = store.rename(&a, &b).await;
        assert!(!read(&store, "b").await.unwrap().is_empty());
    }
    writer.await.unwrap();
    let _ = store.rename(&a, &b).await;
    assert_eq!(read(&store, "b").await.unwrap(), "version 299");
    assert_eq!(names(root.path()), ["b"]);
}
