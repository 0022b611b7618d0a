//! Few descriptors.

use std::fs::File;

use futures_util::StreamExt;
use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt};
use crate::common::{alone, evict, open_below, scratch};

fn limit_descriptors(n: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(n),
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn ten_thousand_objects_are_read_with_256_descriptors() {
    alone(|| {
        let root = scratch();
        for i in 0..10_000 {
            let dir = root.path().join(format!("{}", i % 10));
            let _ = std::fs::create_dir(&dir);
            std::fs::write(dir.join(format!("{i}")), format!("object {i}")).unwrap();
        }
        limit_descriptors(256);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let reads = futures_util::stream::iter(0..20_000).map(|i| {
            let (store, i) = (store.clone(), i % 10_000);
            async move {
                let location = Path::from(format!("{}/{i}", i % 10));
                let get = store.get(&location).await.unwrap();
                assert_eq!(get.bytes().await.unwrap(), format!("object {i}"));
            }
        });
        runtime.block_on(reads.buffer_unordered(100).collect::<Vec<()>>());
        // A quarter of the limit, those that wait to be closed, and those that are being closed.
        let most = 64 + 32 + 32;
        let open = store.stats().open_descriptors;
        assert!(open > 0 && open <= most && open_below(root.path()).len() <= most);
        let list = runtime.block_on(store.list(None).collect::<Vec<_>>());
        assert_eq!(list.iter().filter(|object| object.is_ok()).count(), 10_000);
    });
}

/// The descriptors that the store keeps are there for other files when they are needed.
#[test]
fn the_store_gives_its_descriptors_back_when_there_are_no_others() {
    alone(|| {
        let root = scratch();
        for i in 0..200 {
            std::fs::write(root.path().join(format!("{i}")), format!("object {i}")).unwrap();
        }
        limit_descriptors(256);
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let store = store.with_open_files(100);
        let read = |i: u32| {
            let location = Path::from(format!("{i}"));
            let read = store.get_range(&location, 0..100);
            assert_eq!(pollster::block_on(read).unwrap(), format!("object {i}"));
        };
        // The engine and its threads are there.
        let write = |i: u32| {
            let location = Path::from(format!("new{i}"));
            pollster::block_on(store.put(&location, "bytes".into())).unwrap();
        };
        write(0);
        let durable = store.clone().with_fsync(true);
        for round in 0..6 {
            (0..100).for_each(read);
            let mut others = Vec::new();
            while let Ok(file) = File::open("/proc/self/status") {
                others.push(file);
            }
            match round {
                0 => read(150),
                1 => write(150),
                2 => {
                    let (from, to) = (Path::from("150"), Path::from("new/copy"));
                    pollster::block_on(durable.copy(&from, &to)).unwrap();
                }
                3 => {
                    let (from, to) = (Path::from("new/copy"), Path::from("newer/name"));
                    pollster::block_on(durable.rename(&from, &to)).unwrap();
                }
                4 => {
                    let list = pollster::block_on(store.list(None).collect::<Vec<_>>());
                    assert_eq!(list.iter().filter(|object| object.is_ok()).count(), 203);
                }
                _ => {
                    let mut put = pollster::block_on(store.put_multipart(&Path::from("parts")));
                    let upload = put.as_mut().unwrap();
                    pollster::block_on(upload.put_part("bytes".into())).unwrap();
                    pollster::block_on(upload.complete()).unwrap();
                }
            }
            drop(others);
        }
        // Without a descriptor to give back, the error is the kernel's.
        drop(pollster::block_on(store.get(&Path::from("1"))));
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let mut others = Vec::new();
        while let Ok(file) = File::open("/proc/self/status") {
            others.push(file);
        }
        let error = pollster::block_on(store.get(&Path::from("2"))).unwrap_err();
        drop(others);
        assert!(error.to_string().contains("os error 24"), "{error}");
    });
}

/// Descriptors are free when other reads have ended.
#[test]
fn many_reads_at_the_same_time_share_few_descriptors() {
    alone(|| {
        let root = scratch();
        for i in 0..200 {
            std::fs::write(root.path().join(format!("{i}")), format!("object {i}")).unwrap();
        }
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        // The engine and its threads are there.
        pollster::block_on(store.head(&Path::from("0"))).unwrap();
        for limit in [64, 16] {
            let maximum = getrlimit(Resource::Nofile).maximum;
            limit_descriptors(maximum.unwrap());
            for i in 0..200 {
                evict(&root.path().join(format!("{i}")));
            }
            limit_descriptors(limit);
            let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
            let reads = (0..400).map(|i| {
                let store = store.clone();
                async move {
                    let i = i % 200;
                    let location = Path::from(format!("{i}"));
                    let read = store.get_range(&location, 0..100).await;
                    assert_eq!(read.unwrap(), format!("object {i}"));
                }
            });
            pollster::block_on(join_all(reads));
        }
    });
}

/// All calls work in a process that may open 16 files. The store needs few for itself.
#[test]
fn sixteen_descriptors_are_sufficient() {
    alone(|| {
        let root = scratch();
        limit_descriptors(16);
        pollster::block_on(async {
            let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
            let store = store.with_fsync(true);
            for i in 0..50 {
                let location = Path::from(format!("{}/{i}", i % 5));
                let text = format!("object {i}");
                store.put(&location, text.clone().into()).await.unwrap();
                let get = store.get(&location).await.unwrap();
                assert_eq!(get.bytes().await.unwrap(), text);
                let copy = Path::from(format!("copy/{i}"));
                store.copy(&location, &copy).await.unwrap();
                store.rename(&location, &copy).await.unwrap();
                let list = store.list(None).collect::<Vec<_>>().await;
                assert_eq!(list.into_iter().filter(Result::is_ok).count(), i + 1);
            }
        });
    });
}
