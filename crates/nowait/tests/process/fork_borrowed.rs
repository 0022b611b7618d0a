//! A forked child uses, clones and drops what its parent has in hand: files, streams, borrowed bytes, buffers, futures.
//! Each refuses or works, and the parent's goes on. No call hangs, and no signal is raised.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nowait::buffer::BufferPool;
use nowait::engine::{Engine, Options};
use nowait::mapping::BudgetOptions;
use nowait::{ErrorKind, File, Mapping, Mode, OpenOptions, Walk};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::drop_here::drop_here;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::limit::Limit;

const LEN: usize = 300_000;
const NAMES: usize = 3_000;

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Takes what a stream has, up to its first error. The child has no workers: a stream may refuse at once.
fn take_all<T>(results: impl Iterator<Item = nowait::Result<T>>) -> usize {
    let mut taken = 0;
    for result in results.take(2 * NAMES) {
        match result {
            Ok(_) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Forked);
                break;
            }
        }
    }
    taken
}

fn reads_right(file: &File, at: u64) {
    let mut buf = vec![0; 5000];
    file.blocking_read_exact_at(&mut buf[..], at).unwrap();
    assert!(buf == pattern(at, 5000));
}

fn with(engine: &Engine, dir: &Path) {
    let path = patterned(dir, "file", LEN);
    let names = dir.join("names");
    std::fs::create_dir_all(&names).unwrap();
    for i in 0..NAMES {
        std::fs::write(names.join(i.to_string()), i.to_string()).unwrap();
    }
    let mut options = OpenOptions::new();
    options.read(true).engine(engine);
    let eager = options.blocking_open(&path).unwrap();
    let strict = options
        .clone()
        .cache_mode(Mode::Strict)
        .blocking_open(&path)
        .unwrap();

    let pool = BufferPool::new(2, 4096).unwrap();
    let mut buffer = pool.take().unwrap();
    buffer.copy_from_slice(&pattern(0, 4096));
    let set = engine.file_set(2).unwrap();
    let registered = set.insert(eager.handle()).unwrap();

    let scanned = nowait::scan::Options::new()
        .engine(engine)
        .max_buffered(500, 1 << 20);
    let mut scan = scanned.blocking_open(&names).unwrap();
    let batch = scan.blocking_batch().unwrap().unwrap();
    let entry = batch.get(0).unwrap();
    let mut walk = Walk::blocking_open(dir).unwrap();
    let found = walk.next().unwrap().unwrap();
    let paths = (0..NAMES).map(|i| names.join(i.to_string()));
    let reading = nowait::read_files::Options::new()
        .engine(engine)
        .max_buffered(100, 1 << 20);
    let mut reads = reading.read(paths);
    let first = reads.next().unwrap().unwrap();

    let budget = BudgetOptions::new()
        .window(64 << 10)
        .limit(1 << 20)
        .build()
        .unwrap();
    let mapping = Arc::new(Mapping::within(&eager, &budget).unwrap());
    let held = mapping.blocking_load(0..1000).unwrap();
    let here = mapping.get(10..20).unwrap();
    let owned = mapping.get_owned(20..30).unwrap();
    evict(&path);
    // A future that has not begun, and one that a worker has.
    let mut new = mapping.load(200_000..200_010);
    let mut begun = mapping.load(100_000..100_010);
    let loaded = match poll_once(&mut begun) {
        Poll::Pending => None,
        Poll::Ready(loaded) => Some(loaded.unwrap()),
    };
    let mut read = mapping.read_at(vec![0; 10], 250_000);

    forked("all", || {
        // Used.
        reads_right(&eager, 7);
        reads_right(&strict, 200_000);
        let _ = (
            eager.residency().residency(0..u64::MAX).unwrap(),
            strict.residency().is_resident(0, 10).unwrap(),
        );
        assert!(pool.take().is_none() && buffer[..] == pattern(0, 4096));
        assert_eq!(
            set.insert(strict.handle()).unwrap_err().kind(),
            ErrorKind::Forked
        );
        reads_right(&File::from_handle(&registered, engine), 9);
        assert_eq!(
            (batch.len() > 1, entry.file_name().is_empty()),
            (true, false)
        );
        assert!(take_all(std::iter::from_fn(|| scan.blocking_batch())) <= NAMES);
        assert!(take_all(walk.by_ref()) <= 2 * NAMES && !found.path().as_os_str().is_empty());
        assert!(take_all(reads.by_ref()) < NAMES && first.bytes() == b"0");
        assert!(held.is_empty() && here.is_empty() && owned.is_empty());
        assert!(loaded.as_ref().is_none_or(|loaded| loaded.is_empty()));
        match poll_once(&mut new) {
            Poll::Ready(loaded) => assert_eq!(loaded.unwrap_err().kind(), ErrorKind::Forked),
            Poll::Pending => panic!("no engine works here"),
        }
        // An operation in flight is the parent's.
        if let Poll::Ready(Ok(bytes)) = poll_once(&mut begun) {
            assert!(bytes.is_empty());
        }
        match poll_once(&mut read) {
            Poll::Ready(done) => assert!(match done.result {
                Ok(n) => n == 10 && done.buf == pattern(250_000, 10),
                Err(error) => error.kind() == ErrorKind::Forked,
            }),
            Poll::Pending => panic!("no engine works here"),
        }
        // Cloned.
        reads_right(&eager.clone(), 100);
        let clones = (
            pool.clone(),
            budget.clone(),
            mapping.clone(),
            eager.handle().clone(),
        );
        assert!(clones.0.take().is_none() && clones.2.get_owned(0..10).is_none());
        drop((clones, engine.clone(), set.clone(), registered.clone()));
        drop((scan.canceller(), walk.canceller(), reads.canceller()));
        assert!(held.is_empty() && here.is_empty() && owned.is_empty());
        // Dropped.
        drop_here(&held);
        assert!(here.is_empty() && owned.is_empty());
        drop_here(&here);
        drop_here(&owned);
        drop_here(&loaded);
        drop_here(&new);
        drop_here(&begun);
        drop_here(&read);
        drop_here(&mapping);
        drop_here(&budget);
        drop_here(&scan);
        drop_here(&batch);
        drop_here(&entry);
        drop_here(&walk);
        drop_here(&reads);
        drop_here(&first);
        drop_here(&buffer);
        drop_here(&registered);
        drop_here(&set);
        drop_here(&pool);
        drop_here(&eager);
        drop_here(&strict);
        drop_here(engine);
    });

    assert_eq!(
        (&*held, &*here, &*owned),
        (&*pattern(0, 1000), &*pattern(10, 10), &*pattern(20, 10))
    );
    if loaded.is_none() {
        assert_eq!(*pollster::block_on(begun).unwrap(), pattern(100_000, 10));
    }
    assert_eq!(*pollster::block_on(new).unwrap(), pattern(200_000, 10));
    assert_eq!(pollster::block_on(read).buf, pattern(250_000, 10));
    let rest = std::iter::from_fn(|| scan.blocking_batch()).map(|batch| batch.unwrap().len());
    assert_eq!(batch.len() + rest.sum::<usize>(), NAMES);
    assert_eq!(take_all(reads), NAMES - 1);
    assert!(take_all(walk) >= NAMES);
    drop(buffer);
    assert_eq!(pool.free(), 2);
    for file in [&eager, &strict, &File::from_handle(&registered, engine)] {
        let read = pollster::block_on(file.read_at(Vec::with_capacity(LEN), 0));
        assert!(read.buf == pattern(0, LEN));
    }
}

#[test]
fn all_that_a_parent_has_in_hand() {
    alone(|| {
        for backend in backends() {
            let _limit = Limit::new(format!("{backend}"));
            let dir = scratch();
            with(
                &Options::new().backend(backend).build().unwrap(),
                dir.path(),
            );
        }
    });
}

/// A file that is being read, and one that has been written.
#[cfg(feature = "tokio")]
#[test]
fn files_of_the_tokio_api() {
    use nowait::tokio::File;
    use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    alone(|| {
        let _limit = Limit::new("tokio".into());
        let dir = scratch();
        let path = patterned(dir.path(), "file", LEN);
        let here = runtime();
        let (mut reader, mut writer) = here.block_on(async {
            let mut reader = File::open(&path).await.unwrap();
            assert_eq!(reader.read_u8().await.unwrap(), pattern(0, 1)[0]);
            let mut writer = File::create(dir.path().join("new")).await.unwrap();
            writer.write_all(b"parent").await.unwrap();
            writer.flush().await.unwrap();
            (reader, writer)
        });
        forked("tokio", || {
            runtime().block_on(async {
                // The child has a process engine of its own, and shares the position with its parent.
                let mut buf = [0; 10];
                if reader.read(&mut buf).await.is_ok() {
                    assert_eq!(buf[..], pattern(1, 10));
                    reader.seek(std::io::SeekFrom::Start(1)).await.unwrap();
                }
                let _ = reader.metadata().await;
                drop(reader.try_clone().await);
                let _ = writer.flush().await;
            });
            drop_here(&reader);
            drop_here(&writer);
        });
        here.block_on(async {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).await.unwrap();
            assert!(rest == pattern(1, LEN - 1));
            writer.flush().await.unwrap();
        });
        assert_eq!(std::fs::read(dir.path().join("new")).unwrap(), b"parent");
    });
}
