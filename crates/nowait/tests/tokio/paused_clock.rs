//! A paused clock of tokio stands still during each call, and goes on afterwards. A clock that runs is not stopped.

use std::future::Future;
use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};
use ::tokio::time::{Instant, sleep, timeout};
use nowait::engine::{Engine, Options};
use nowait::tokio as fs;
use nowait::walk::Walk;

use crate::common::cache::evict;
use crate::common::files::scratch;
use crate::common::limit::Limit;

/// A runtime, and the number of threads that it has started for blocking calls.
fn runtime(is_paused: bool) -> (Runtime, Arc<AtomicUsize>) {
    let started = Arc::new(AtomicUsize::new(0));
    let counted = started.clone();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(is_paused)
        .on_thread_start(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    (runtime.unwrap(), started)
}

/// Runs a call that must end before any timer of the paused clock.
async fn in_no_time<T>(what: &str, call: impl Future<Output = io::Result<T>>) -> T {
    let begun = Instant::now();
    let done = timeout(Duration::from_millis(1), call).await;
    let done = done.unwrap_or_else(|_| panic!("{what}: the clock has gone on"));
    assert_eq!(begun.elapsed(), Duration::ZERO, "{what}");
    done.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Every kind of call, each in no time of the paused clock.
async fn every_call(dir: &Path) {
    let path = dir.join("file");
    in_no_time("create_dir_all", fs::create_dir_all(dir.join("a/b"))).await;
    in_no_time("write", fs::write(&path, vec![7; 100_000])).await;
    evict(&path);
    assert_eq!(in_no_time("read", fs::read(&path)).await.len(), 100_000);
    in_no_time("metadata", fs::metadata(&path)).await;
    in_no_time("set_permissions", async {
        let permissions = fs::metadata(&path).await?.permissions();
        fs::set_permissions(&path, permissions).await
    })
    .await;
    in_no_time("canonicalize", fs::canonicalize(&path)).await;
    in_no_time("copy", fs::copy(&path, dir.join("copy"))).await;
    in_no_time("rename", fs::rename(dir.join("copy"), dir.join("moved"))).await;
    in_no_time("symlink", fs::symlink("file", dir.join("link"))).await;
    in_no_time("read_link", fs::read_link(dir.join("link"))).await;
    let mut entries = in_no_time("read_dir", fs::read_dir(dir)).await;
    let mut seen = 0;
    while let Some(entry) = in_no_time("next_entry", entries.next_entry()).await {
        in_no_time("its metadata", entry.metadata()).await;
        seen += 1;
    }
    assert_eq!(seen, 4);
    in_no_time("a walk", async {
        let mut walk = Walk::open(dir).await?;
        while let Some(batch) = walk.batch().await {
            batch?;
        }
        Ok(())
    })
    .await;

    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    let mut file = in_no_time("open", options.open(&path)).await;
    in_no_time("write_all", file.write_all(&[8; 5_000_000])).await;
    in_no_time("flush", file.flush()).await;
    in_no_time("sync_all", file.sync_all()).await;
    in_no_time("set_len", file.set_len(300_000)).await;
    evict(&path);
    in_no_time("rewind", file.rewind()).await;
    let mut all = Vec::new();
    in_no_time("read_to_end", file.read_to_end(&mut all)).await;
    assert_eq!(all.len(), 300_000);
    evict(&path);
    let done = in_no_time("read_at", async {
        Ok(file.read_at(vec![0; 50_000], 0).await)
    });
    assert_eq!(done.await.result.unwrap(), 50_000);
    in_no_time("remove_file", fs::remove_file(dir.join("moved"))).await;
    in_no_time("remove_dir_all", fs::remove_dir_all(dir.join("a"))).await;
}

#[test]
fn a_paused_clock_stands_still_during_every_call() {
    let _limit = Limit::new("a paused clock".into());
    let (runtime, started) = runtime(true);
    runtime.block_on(async {
        let dir = scratch();
        for round in 0..5 {
            let dir = dir.path().join(round.to_string());
            std::fs::create_dir(&dir).unwrap();
            every_call(&dir).await;
            // Nothing is held any more.
            let begun = Instant::now();
            sleep(Duration::from_secs(100_000)).await;
            assert!(begun.elapsed() >= Duration::from_secs(100_000));
        }
    });
    assert_eq!(started.load(Ordering::Relaxed), 0, "no thread was started");
}

#[test]
fn a_paused_clock_stands_still_for_many_calls_on_a_small_engine() {
    let _limit = Limit::new("a small engine".into());
    let (runtime, _) = runtime(true);
    let engine = Options::new().depth(2).build().unwrap();
    let dir = scratch();
    let calls = (0..200).map(|i| {
        let path = dir.path().join(i.to_string());
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).engine(&engine);
        async move {
            let mut file = options.open(path).await?;
            file.write_all(&[1; 10_000]).await?;
            file.flush().await
        }
    });
    runtime.block_on(async {
        in_no_time("200 files", futures_util::future::try_join_all(calls)).await;
        sleep(Duration::from_secs(100_000)).await;
    });
}

#[test]
fn a_clock_is_not_held_for_futures_that_are_gone() {
    let _limit = Limit::new("dropped futures".into());
    let (runtime, _) = runtime(true);
    let (reader, writer) = std::io::pipe().unwrap();
    let dir = scratch();
    runtime.block_on(async {
        let mut pipe = fs::File::from_std(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        // A read that waits without end is polled once and dropped, with its file.
        let mut byte = [0];
        let mut read = Box::pin(pipe.read(&mut byte));
        std::future::poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(read);
        drop(pipe);
        sleep(Duration::from_secs(100_000)).await;
        // A write that is accepted and never asked about again.
        let mut file = fs::File::create(dir.path().join("file")).await.unwrap();
        file.write_all(&[1; 3_000_000]).await.unwrap();
        sleep(Duration::from_secs(100_000)).await;
        drop(file);
    });
    drop(writer);
    // The end of the runtime waits for no operation.
    drop(runtime);
}

/// A read of a pipe, which has been polled once and waits.
type Reading = Pin<Box<dyn Future<Output = io::Result<usize>>>>;

fn pending_read(runtime: &Runtime, reader: io::PipeReader) -> Reading {
    let pipe = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
    let mut read: Reading = Box::pin(async move {
        let mut pipe = fs::File::from_std(pipe);
        pipe.read(&mut [0]).await
    });
    runtime.block_on(std::future::poll_fn(|cx| {
        assert!(read.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    read
}

#[test]
fn a_runtime_ends_while_a_future_waits_outside_it() {
    let _limit = Limit::new("the end of a runtime".into());
    let (runtime, _) = runtime(true);
    let (reader, mut writer) = io::pipe().unwrap();
    let read = pending_read(&runtime, reader);
    drop(runtime);
    // The future does not need that runtime.
    writer.write_all(b"x").unwrap();
    assert_eq!(pollster::block_on(read).unwrap(), 1);
}

#[test]
fn a_held_clock_takes_no_thread_of_the_runtime() {
    let _limit = Limit::new("one blocking thread".into());
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let (reader, mut writer) = io::pipe().unwrap();
    let read = pending_read(&runtime, reader);
    runtime.block_on(async {
        let write = ::tokio::task::spawn_blocking(move || writer.write_all(b"x"));
        assert_eq!(in_no_time("read", read).await, 1);
        write.await.unwrap().unwrap();
    });
}

#[test]
fn a_clock_that_runs_is_left_alone() {
    let _limit = Limit::new("a running clock".into());
    let (runtime, started) = runtime(false);
    runtime.block_on(async {
        let dir = scratch();
        let path = dir.path().join("file");
        let begun = std::time::Instant::now();
        let clock = Instant::now();
        for _ in 0..20 {
            fs::write(&path, vec![7; 100_000]).await.unwrap();
            evict(&path);
            assert_eq!(fs::read(&path).await.unwrap().len(), 100_000);
            fs::metadata(dir.path()).await.unwrap();
        }
        // A timer fires while an operation waits without end.
        let (reader, _writer) = std::io::pipe().unwrap();
        let mut pipe = fs::File::from_std(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        let mut byte = [0];
        let read = timeout(Duration::from_millis(5), pipe.read(&mut byte));
        assert!(read.await.is_err());
        assert!(clock.elapsed() <= begun.elapsed());
        assert!(clock.elapsed() >= Duration::from_millis(5));
        let engine = Engine::process().unwrap();
        assert!(engine.stats().handoffs > 0);
    });
    assert_eq!(started.load(Ordering::Relaxed), 0, "no thread was started");
}
