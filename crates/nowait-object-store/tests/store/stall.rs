//! A disk that does not answer delays the objects on it, and nothing else.

use std::sync::Arc;

use futures_util::TryStreamExt;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt};
use crate::common::{evict, pattern, patterned, scratch, wait_until};

#[tokio::test]
async fn objects_of_other_prefixes_do_not_wait() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder()
        .size(64 << 20)
        .queue(64)
        .build()
        .unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let root = scratch();
    std::os::unix::fs::symlink(mount.path(), root.path().join("stalled")).unwrap();
    std::fs::create_dir(root.path().join("other")).unwrap();
    let bytes = pattern(100_000);
    for i in 0..20 {
        let path = patterned(mount.path(), &format!("file{i}"), bytes.len());
        evict(&path);
    }
    let cold = patterned(&root.path().join("other"), "cold", bytes.len());
    patterned(&root.path().join("other"), "warm", bytes.len());
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let store = Arc::new(store);
    // The other file is open. Its descriptor is kept while the store waits.
    let warm = Path::from("other/warm");
    store.get_range(&warm, 0..10).await.unwrap();

    let fault = disk.inject(Fault::stall(0..disk.size()));
    let stalled: Vec<_> = (0..20)
        .map(|i| {
            let store = store.clone();
            tokio::spawn(async move {
                let location = Path::from(format!("stalled/file{i}"));
                store
                    .get_ranges(&location, &[0..5_000, 60_000..100_000])
                    .await
            })
        })
        .collect();
    while disk.stalled() == 0 {
        tokio::task::yield_now().await;
    }

    evict(&cold);
    for _ in 0..50 {
        let read = store.get(&warm).await.unwrap().bytes().await.unwrap();
        assert!(read == bytes);
    }
    let get = store.get(&Path::from("other/cold")).await.unwrap();
    assert!(get.bytes().await.unwrap() == bytes);
    let new = Path::from("other/new");
    store.put(&new, "bytes".into()).await.unwrap();
    store.copy(&new, &Path::from("other/copy")).await.unwrap();
    let list = store.list(Some(&Path::from("other")));
    assert_eq!(list.try_collect::<Vec<_>>().await.unwrap().len(), 4);
    store.delete(&new).await.unwrap();
    assert!(stalled.iter().all(|read| !read.is_finished()));

    disk.release(fault);
    for read in stalled {
        let read = read.await.unwrap().unwrap();
        assert!(read == [&bytes[..5_000], &bytes[60_000..]]);
    }
    drop(store);
    // Without open files the filesystem can be unmounted.
    wait_until("files are open", || {
        crate::common::open_below(mount.path()).is_empty()
    });
}
