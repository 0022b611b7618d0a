//! Objects that are put, in parts and at the same time, on disks with and without room.

use std::collections::HashSet;
use std::path::Path as FilePath;
use std::pin::pin;
use std::task::{Context, Waker};

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::join_all;
use slowdisk::{Filesystem, ServedFlush, TestMount};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use crate::common::{names, pattern, scratch, wait_until};

fn store(root: &FilePath) -> NowaitFileSystem {
    NowaitFileSystem::new_with_prefix(root).unwrap()
}

async fn read(store: &NowaitFileSystem, location: &Path) -> Bytes {
    store.get(location).await.unwrap().bytes().await.unwrap()
}

#[tokio::test]
async fn a_full_disk_leaves_the_old_object() {
    for filesystem in [Filesystem::Tmpfs, Filesystem::Ext4] {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::builder(filesystem).size(16 << 20);
        let mount = mount.build().unwrap();
        let root = mount.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let store = store(&root);
        let location = Path::from("file");
        store.put(&location, "old".into()).await.unwrap();
        let large = PutPayload::from(pattern(32 << 20));
        for mode in [PutMode::Overwrite, PutMode::Create] {
            let name = Path::from(format!("{mode:?}"));
            for location in [&location, &name] {
                let put = store.put_opts(location, large.clone(), mode.clone().into());
                let error = put.await.unwrap_err();
                assert!(matches!(error, Error::Generic { .. }), "{error}");
                assert!(error.to_string().contains("os error 28"), "{error}");
                assert_eq!(names(&root), ["file"]);
            }
        }
        let mut upload = store.put_multipart(&location).await.unwrap();
        let error = upload.put_part(large).await.unwrap_err();
        assert!(error.to_string().contains("os error 28"), "{error}");
        drop(upload);
        wait_until("the file stays", || names(&root) == ["file"]);
        assert_eq!(read(&store, &location).await, "old");
        // There is room again, when the kernel has freed the blocks.
        wait_until("the disk stays full", || {
            pollster::block_on(store.put(&location, "new".into())).is_ok()
        });
        assert_eq!(read(&store, &location).await, "new");
    }
}

/// Some filesystems report only in close(2) that data could not be written.
#[tokio::test]
async fn an_object_that_is_not_closed_without_an_error_is_not_put() {
    slowdisk::require!(slowdisk::available());
    for durable in [false, true] {
        let root = ServedFlush::new(rustix::io::Errno::DQUOT.raw_os_error()).unwrap();
        let store = store(root.path()).with_fsync(durable);
        let location = Path::from("file");
        for mode in [PutMode::Overwrite, PutMode::Create] {
            let put = store.put_opts(&location, "bytes".into(), mode.into());
            let error = put.await.unwrap_err();
            assert!(error.to_string().contains("os error 122"), "{error}");
            assert_eq!(names(root.path()), [""; 0]);
        }
        let mut upload = store.put_multipart(&location).await.unwrap();
        upload.put_part("bytes".into()).await.unwrap();
        let error = upload.complete().await.unwrap_err();
        assert!(error.to_string().contains("os error 122"), "{error}");
        assert_eq!(names(root.path()), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn objects_that_are_put_at_the_same_time_are_whole() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let version = |i: u8| vec![i; 30_000];
    let put = |i| {
        let (store, location) = (store.clone(), location.clone());
        async move { store.put(&location, version(i).into()).await.unwrap() }
    };
    let tags = join_all((0..50).map(put)).await;
    let bytes = read(&store, &location).await;
    assert!(bytes == version(bytes[0]), "a mixture");
    let meta = store.head(&location).await.unwrap();
    assert_eq!(tags[usize::from(bytes[0])].e_tag, meta.e_tag);
    assert_eq!(names(root.path()), ["file"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_creations_succeeds() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let create = |i: u8| {
        let (store, location) = (store.clone(), location.clone());
        async move {
            let payload = vec![i; 3_000].into();
            store
                .put_opts(&location, payload, PutMode::Create.into())
                .await
        }
    };
    let created = join_all((0..50).map(create)).await;
    let (one, others): (Vec<_>, Vec<_>) = created.into_iter().partition(Result::is_ok);
    assert_eq!(one.len(), 1);
    for other in others {
        let error = other.unwrap_err();
        assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
    }
    assert_eq!(names(root.path()), ["file"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copies_at_the_same_time_leave_nothing_else() {
    let root = scratch();
    let store = store(root.path());
    let (a, b) = (Path::from("a"), Path::from("b"));
    store.put(&a, "a".into()).await.unwrap();
    store.put(&b, "b".into()).await.unwrap();
    let copies = join_all((0..100).map(|i| {
        let (store, a, b) = (store.clone(), a.clone(), b.clone());
        async move {
            match i % 3 {
                0 => store.copy(&a, &b).await,
                1 => store.copy(&b, &b).await,
                _ => store.copy(&a, &a).await,
            }
        }
    }))
    .await;
    copies.into_iter().for_each(|copy| copy.unwrap());
    assert_eq!(read(&store, &b).await, "a");
    assert_eq!(names(root.path()), ["a", "b"]);
}

/// 255 bytes are the limit of the filesystem. A `#` is percent-encoded except by `Path::parse`.
#[tokio::test]
async fn objects_with_long_or_odd_names_are_written_and_copied() {
    let root = scratch();
    let store = store(root.path());
    let names_of = |n| {
        [
            "a".repeat(n),
            "b".repeat(n),
            "ü".repeat(n / 2),
            "c".repeat(n),
        ]
    };
    let odd = ["a#b", "#c", "ü#1#2", "d"].map(str::to_owned);
    for [put, copied, uploaded, renamed] in [names_of(234), names_of(253), names_of(255), odd] {
        let at = |name: &str| Path::parse(name).unwrap();
        let mut upload = store.put_multipart(&at(&uploaded)).await.unwrap();
        upload.put_part("uploaded".into()).await.unwrap();
        store.put(&at(&put), "put".into()).await.unwrap();
        store.copy(&at(&put), &at(&copied)).await.unwrap();
        store
            .copy_if_not_exists(&at(&put), &at(&renamed))
            .await
            .unwrap();
        // Both are names of one file.
        store.rename(&at(&copied), &at(&renamed)).await.unwrap();
        // The file of the upload is no object yet.
        let list: Vec<_> = store.list(None).try_collect().await.unwrap();
        let mut found: Vec<_> = list.iter().map(|meta| meta.location.to_string()).collect();
        found.sort();
        let mut expected = [put.clone(), renamed.clone()];
        expected.sort();
        assert_eq!(found, expected);
        upload.complete().await.unwrap();
        assert_eq!(read(&store, &at(&uploaded)).await, "uploaded");
        for name in [put, uploaded, renamed] {
            store.delete(&at(&name)).await.unwrap();
        }
        assert_eq!(names(root.path()), [""; 0]);
    }
}

#[tokio::test]
async fn parts_have_the_order_in_which_they_were_made() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let bytes = pattern(100_000);
    let mut upload = store.put_multipart(&location).await.unwrap();
    let parts = bytes.chunks(7_777);
    let mut parts: Vec<_> = parts
        .map(|part| {
            let pieces = part.chunks(1_000).map(Bytes::copy_from_slice);
            upload.put_part(PutPayload::from_iter(pieces))
        })
        .collect();
    parts.reverse();
    join_all(parts)
        .await
        .into_iter()
        .for_each(|part| part.unwrap());
    assert_eq!(names(root.path()), ["file#1"]);
    let put = upload.complete().await.unwrap();
    assert_eq!(names(root.path()), ["file"]);
    let get = store.get(&location).await.unwrap();
    assert_eq!(get.meta.e_tag, put.e_tag);
    assert!(get.bytes().await.unwrap() == bytes);
    // It is over.
    assert!(upload.put_part("more".into()).await.is_err());
    assert!(upload.complete().await.is_err());
    assert!(upload.abort().await.is_err());
    drop(upload);
    assert_eq!(names(root.path()), ["file"]);
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let root = scratch();
    let store = store(root.path());
    let location = Path::from("file");
    let mut upload = store.put_multipart(&location).await.unwrap();
    upload.put_part("bytes".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(names(root.path()), [""; 0]);
    assert!(upload.complete().await.is_err());
    assert_eq!(names(root.path()), [""; 0]);
}

/// The call may still be made, in whole, or not at all.
#[tokio::test]
async fn a_dropped_call_leaves_whole_objects() {
    let root = scratch();
    let store = store(root.path());
    let cx = &mut Context::from_waker(Waker::noop());
    for i in 0..40 {
        let location = Path::from(format!("put{i}"));
        let put = store.put(&location, vec![7; 100_000].into());
        // On a busy machine a worker may have made the call before the poll ends.
        let _ = pin!(put).poll(cx);
        let upload = store.put_multipart(&location);
        let _ = pin!(upload).poll(cx);
    }
    let staged = || names(root.path()).iter().any(|name| name.contains('#'));
    wait_until("files are left", || {
        nowait::Engine::process().unwrap().in_flight() == 0 && !staged()
    });
    let sizes = names(root.path()).into_iter().map(|name| {
        let path = root.path().join(name);
        path.metadata().unwrap().len()
    });
    let sizes: HashSet<u64> = sizes.collect();
    assert!(sizes.is_subset(&HashSet::from([100_000])), "{sizes:?}");
}
