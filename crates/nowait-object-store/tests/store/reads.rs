//! Every read is compared with the file's bytes, and with `LocalFileSystem`.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use proptest::prelude::*;

use super::NowaitFileSystem;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use crate::common::{evict, pattern, patterned, scratch};

/// A range of a file of at most 300,000 bytes, or beyond it.
fn range() -> impl Strategy<Value = Range<u64>> {
    let near = 0u64..310_000;
    prop_oneof![
        (near.clone(), 0u64..20_000).prop_map(|(start, len)| start..start + len),
        (near.clone(), near).prop_map(|(a, b)| a.min(b)..a.max(b)),
    ]
}

fn get_range() -> impl Strategy<Value = GetRange> {
    prop_oneof![
        range().prop_map(GetRange::Bounded),
        (0u64..310_000).prop_map(GetRange::Offset),
        (0u64..310_000).prop_map(GetRange::Suffix),
    ]
}

/// The bytes of a result, or its error without the name of the store.
fn outcome<T>(result: Result<T, super::object_store::Error>) -> Result<T, &'static str> {
    result.map_err(|error| super::errors::variant(&error))
}

async fn get(
    store: &dyn ObjectStore,
    location: &Path,
    range: Option<GetRange>,
) -> Result<(Range<u64>, Bytes), super::object_store::Error> {
    let options = GetOptions {
        range,
        ..GetOptions::default()
    };
    let get = store.get_opts(location, options).await?;
    let range = get.range.clone();
    Ok((range, get.bytes().await?))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn reads_return_the_bytes_of_the_file(
        len in 0usize..300_000,
        gets in prop::collection::vec((prop::option::of(get_range()), any::<bool>()), 1..4),
        ranges in prop::collection::vec(range(), 0..12),
        cold in any::<bool>(),
    ) {
        let root = scratch();
        let bytes = pattern(len);
        let path = patterned(root.path(), "file", len);
        let ours = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let local = LocalFileSystem::new_with_prefix(root.path()).unwrap();
        let location = Path::from("file");
        pollster::block_on(async {
            for (range, cold) in gets {
                if cold {
                    evict(&path);
                }
                let read = outcome(get(&ours, &location, range.clone()).await);
                let expected = outcome(get(&local, &location, range).await);
                if let Ok((range, read)) = &read {
                    assert_eq!(read, &bytes[range.start as usize..range.end as usize]);
                }
                assert_eq!(read, expected);
            }
            if cold {
                evict(&path);
            }
            let read = outcome(ours.get_ranges(&location, &ranges).await);
            let expected = outcome(local.get_ranges(&location, &ranges).await);
            if let Ok(read) = &read {
                for (range, read) in ranges.iter().zip(read) {
                    let range = range.start.min(len as u64)..range.end.min(len as u64);
                    assert_eq!(read, &bytes[range.start as usize..range.end as usize]);
                }
            }
            assert_eq!(read, expected);
        });
    }
}

#[tokio::test]
async fn a_stream_returns_the_file_in_chunks() {
    let root = scratch();
    let bytes = pattern(9 << 20);
    let path = patterned(root.path(), "file", bytes.len());
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let location = Path::from("file");
    for cold in [true, false] {
        if cold {
            evict(&path);
        }
        let get = store.get(&location).await.unwrap();
        let chunks: Vec<Bytes> = get.into_stream().try_collect().await.unwrap();
        assert_eq!(chunks.len(), 3);
        assert!(chunks.concat() == bytes);
        let get = store.get(&location).await.unwrap();
        assert!(get.bytes().await.unwrap() == bytes);
    }
}

/// No thread other than the caller's takes part, and the future is ready at once.
#[test]
fn cached_ranges_are_ready_at_the_first_poll() {
    let root = scratch();
    let bytes = pattern(100_000);
    patterned(root.path(), "file", bytes.len());
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let location = Path::from("file");
    // The file is open afterwards, and its filesystem known.
    pollster::block_on(store.get_range(&location, 0..100_000)).unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    for _ in 0..100 {
        let read = pin!(store.get_range(&location, 5_000..9_000));
        let Poll::Ready(read) = read.poll(cx) else {
            panic!("the read waits")
        };
        assert_eq!(read.unwrap(), bytes[5_000..9_000]);
        let ranges = [0..10, 50_000..60_000];
        let read = pin!(store.get_ranges(&location, &ranges));
        let Poll::Ready(read) = read.poll(cx) else {
            panic!("the reads wait")
        };
        assert_eq!(read.unwrap(), [&bytes[0..10], &bytes[50_000..60_000]]);
    }
    let stats = store.stats();
    assert_eq!(stats.opened, 1);
    assert_eq!(stats.open_descriptors, 1);
    assert_eq!((stats.hits, stats.misses), (301, 0));
    assert_eq!(stats.bytes_cached, 100_000 + 100 * (4_000 + 10_010));
}

#[test]
fn bytes_of_the_device_are_counted() {
    let root = scratch();
    let path = patterned(root.path(), "file", 1 << 20);
    let location = Path::from("file");
    let ranges = [0..4096, 500_000..504_096];
    // The first read starts the kernel's readahead. If the thread is interrupted there, both ranges are cached afterwards.
    for _ in 0..100 {
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        evict(&path);
        pollster::block_on(store.get_ranges(&location, &ranges)).unwrap();
        let stats = store.stats();
        let bytes = stats.bytes_cached + stats.bytes_device + stats.bytes_unknown;
        assert_eq!(bytes, 8192, "{stats:?}");
        assert_eq!(stats.hits + stats.misses, 2, "{stats:?}");
        assert_eq!(stats.bytes_cached < bytes, stats.misses > 0, "{stats:?}");
        if stats.misses > 0 {
            return;
        }
    }
    panic!("the file is cached in spite of its eviction");
}

/// A task whose reads are all cached lets other tasks of its thread run.
#[test]
fn a_task_of_cached_reads_yields() {
    let root = scratch();
    patterned(root.path(), "file", 100_000);
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let location = Path::from("file");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    static OTHER_RAN: AtomicBool = AtomicBool::new(false);
    let reader = runtime.spawn(async move {
        // The file is open afterwards, and cached.
        store.get_range(&location, 0..100).await.unwrap();
        let other = || {
            OTHER_RAN.store(false, Ordering::Relaxed);
            drop(tokio::spawn(async {
                OTHER_RAN.store(true, Ordering::Relaxed)
            }));
        };
        other();
        for _ in 0..1_000 {
            store.get_range(&location, 0..100).await.unwrap();
        }
        let ran_beside_ranges = OTHER_RAN.load(Ordering::Relaxed);
        other();
        for _ in 0..1_000 {
            store.get_ranges(&location, &[0..100]).await.unwrap();
        }
        let stats = store.stats();
        assert_eq!((stats.opened, stats.misses), (1, 0));
        ran_beside_ranges && OTHER_RAN.load(Ordering::Relaxed)
    });
    assert!(runtime.block_on(reader).unwrap());
}

/// Many tasks read many files in many threads at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_read_at_the_same_time() {
    let root = scratch();
    let bytes = pattern(50_000);
    let paths: Vec<_> = (0..20)
        .map(|i| patterned(root.path(), &format!("file{i}"), bytes.len()))
        .collect();
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    // Fewer descriptors than files.
    let store = store.with_open_files(7);
    let tasks = futures_util::stream::iter(0..2_000usize).map(|i| {
        let (store, bytes, path) = (store.clone(), bytes.clone(), paths[i % 20].clone());
        tokio::spawn(async move {
            if i % 50 == 0 {
                evict(&path);
            }
            let location = Path::from(format!("file{}", i % 20));
            let start = (i * 997) as u64 % 45_000;
            let read = store.get_range(&location, start..start + 5_000).await;
            assert_eq!(read.unwrap(), bytes[start as usize..][..5_000]);
        })
    });
    let done: Vec<_> = tasks.buffer_unordered(64).collect().await;
    done.into_iter().for_each(|task| task.unwrap());
    let stats = store.stats();
    assert!(stats.opened > 20, "{stats:?}");
}
