//! All calls of a store at the same time, for long: objects of known bytes that are put, copied, renamed, deleted and
//! read, with uploads and futures that are dropped. At the end no staged file, descriptor or locked page is left.
//! `NOWAIT_SOAK_SECONDS` is the duration; six seconds if not set.

use std::path::Path as FilePath;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use nowait::mapping::{Budget, BudgetOptions};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode};
use crate::common::{alone, evict, open_below, scratch, wait_until};

/// The number of objects.
const OBJECTS: u64 = 60;
const TASKS: u64 = 12;
/// Numbers that look random: xorshift64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn location(&mut self) -> Path {
        let number = self.below(OBJECTS);
        Path::from(format!("{}/{}/{number}", number % 3, number % 2))
    }

    /// An object: its first byte is repeated.
    fn object(&mut self) -> Vec<u8> {
        let len = 1 + self.below(200_000);
        vec![self.below(256) as u8; len as usize]
    }
}

/// An object is whole: all of its bytes are the same.
fn check(bytes: &[u8]) {
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture");
}

/// Others have removed or created the object, or have replaced it by a shorter one between two calls.
fn is_of_others(error: &Error) -> bool {
    let text = error.to_string();
    let range = text.contains("the range begins") || text.contains("the range ends");
    range || matches!(error, Error::NotFound { .. } | Error::AlreadyExists { .. })
}

async fn upload(store: &NowaitFileSystem, draws: &mut Draws) -> Result<(), Error> {
    let object = draws.object();
    let mut upload = store.put_multipart(&draws.location()).await?;
    for part in object.chunks(50_000) {
        upload.put_part(part.to_vec().into()).await?;
    }
    match draws.below(3) {
        0 => upload.abort().await,
        1 => Ok(()),
        _ => upload.complete().await.map(drop),
    }
}

async fn call(store: &NowaitFileSystem, root: &FilePath, draws: &mut Draws) -> Result<(), Error> {
    let (location, other) = (draws.location(), draws.location());
    match draws.below(16) {
        0..3 => store.put(&location, draws.object().into()).await.map(drop),
        3 => {
            let create = PutMode::Create.into();
            let put = store.put_opts(&location, draws.object().into(), create);
            put.await.map(drop)
        }
        4 => upload(store, draws).await,
        5 => store.copy(&location, &other).await,
        6 => store.rename(&location, &other).await,
        7 => store.rename_if_not_exists(&location, &other).await,
        8 => store.delete(&location).await,
        9 => {
            let list = store.list(Some(&Path::from("1")));
            list.try_collect::<Vec<_>>().await.map(drop)
        }
        10 => store.list_with_delimiter(None).await.map(drop),
        11 => {
            let put = store.put(&location, draws.object().into());
            let cx = &mut Context::from_waker(Waker::noop());
            let _ = pin!(put).poll(cx);
            Ok(())
        }
        12 => {
            let path = root.join(location.as_ref());
            if path.exists() && draws.below(8) == 0 {
                let _ = std::panic::catch_unwind(|| evict(&path));
            }
            let mut chunks = store.get(&location).await?.into_stream();
            while let Some(chunk) = chunks.next().await {
                check(&chunk?);
            }
            Ok(())
        }
        _ => {
            let size = store.head(&location).await?.size;
            let at = draws.below(size);
            let read = store.get_ranges(&location, &[0..1, at..size]).await?;
            check(&read[1]);
            Ok(())
        }
    }
}

/// The files that are being written, anywhere below a directory.
fn staged(dir: &FilePath) -> usize {
    let entries = std::fs::read_dir(dir).unwrap();
    let staged = entries.map(|entry| {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            staged(&entry.path())
        } else {
            usize::from(entry.file_name().to_string_lossy().contains('#'))
        }
    });
    staged.sum()
}

/// One store, from its creation to its end.
fn live(runtime: &tokio::runtime::Runtime, budget: &Budget, seed: u64, time: Duration) -> u64 {
    let root = scratch();
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let plain = store
        .with_open_files(20)
        .with_automatic_cleanup(seed.is_multiple_of(2));
    let mapped = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let stores = Arc::new([
        plain.clone().with_fsync(true),
        mapped.with_mapped_reads(budget),
        plain,
    ]);
    let end = Instant::now() + time;
    let tasks = (0..TASKS).map(|task| {
        let (stores, root) = (stores.clone(), root.path().to_owned());
        runtime.spawn(async move {
            let mut draws = Draws(1 + task + seed * TASKS);
            let mut calls = 0;
            while Instant::now() < end {
                // Few calls sync.
                let store = &stores[1 + draws.below(2) as usize];
                let store = if draws.below(50) == 0 {
                    &stores[0]
                } else {
                    store
                };
                match call(store, &root, &mut draws).await {
                    Err(error) if !is_of_others(&error) => panic!("{error}"),
                    _ => calls += 1,
                }
            }
            calls
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let calls = runtime.block_on(async {
        let mut calls = 0;
        for task in tasks {
            calls += task.await.unwrap();
        }
        calls
    });
    drop(stores);
    wait_until("staged files are left", || staged(root.path()) == 0);
    wait_until("descriptors are left", || {
        open_below(root.path()).is_empty()
    });
    wait_until("memory is locked", || budget.locked() == 0);
    calls
}

#[test]
fn much_of_everything_leaves_nothing_behind() {
    alone(|| {
        let seconds = std::env::var("NOWAIT_SOAK_SECONDS");
        let seconds = seconds.map_or(6, |text| text.parse().unwrap());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(4).build().unwrap();
        let budget = BudgetOptions::new().limit(16 << 20).window(64 << 10);
        let budget = budget.build().unwrap();
        let end = Instant::now() + Duration::from_secs(seconds);
        let (mut calls, mut lives) = (0, 0);
        while lives < 2 || Instant::now() < end {
            calls += live(&runtime, &budget, lives, Duration::from_secs(2));
            lives += 1;
        }
        println!("{lives} stores, {calls} calls");
    });
}
