//! `nowait::tokio` promises more than `tokio::fs`: the same bytes as the standard library's file, for every
//! filesystem, backend, mode and state of the page cache; reads that need no position; full engines; strict
//! mode.

use std::fs::File as StdFile;
use std::future::Future;
use std::io::{Read, Seek, SeekFrom, Write};
use std::iter::once;
use std::os::fd::AsFd;
use std::panic::catch_unwind;
use std::path::Path;
use std::task::Poll;

use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use futures_util::future::{join_all, poll_fn};
use nowait::engine::{Backend, Engine, Options};
use nowait::tokio::{File, OpenOptions};
use nowait::{ErrorKind, Mode, ServedBy};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::inotify;
use slowdisk::Filesystem;
use test_support::pages::Locked;
use test_support::repeat::{Excuse, repeat};

use crate::common::backends::backends;
use crate::common::files::scratch;
use crate::common::mounts::mounted;
use crate::common::samples::{Sample, bytes};
use crate::common::wait::wait_until;

/// A step on two files: nowait's and the standard library's.
#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    ReadToEnd,
    /// A read that is polled once and dropped.
    GiveUp(usize),
    Write(usize),
    Seek(SeekFrom),
    Flush,
    SetLen(u64),
    /// Evicts the file from the page cache.
    Chill,
    /// Continues with the other of two clones, the second of which is made then.
    Swap,
}

const SIZE: u64 = 200_000;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || {
        prop_oneof![
            1..100usize,
            1..20_000usize,
            Just(4096usize),
            Just(300_000usize)
        ]
    };
    let by = -(SIZE as i64)..SIZE as i64;
    let step = prop_oneof![
        6 => len().prop_map(Step::Read),
        1 => Just(Step::ReadToEnd),
        2 => len().prop_map(Step::GiveUp),
        3 => len().prop_map(Step::Write),
        2 => (0..SIZE * 2).prop_map(|to| Step::Seek(SeekFrom::Start(to))),
        2 => by.clone().prop_map(|by| Step::Seek(SeekFrom::Current(by))),
        1 => by.prop_map(|by| Step::Seek(SeekFrom::End(by))),
        1 => Just(Step::Flush),
        1 => (0..SIZE * 2).prop_map(Step::SetLen),
        2 => Just(Step::Chill),
        1 => Just(Step::Swap),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Carries out the steps on both files and compares the outcomes.
async fn go(
    engine: &Engine,
    dir: &Path,
    append: bool,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let (ours, theirs) = (
        Sample::new(dir, "file", SIZE),
        Sample::new(dir, "elif", SIZE),
    );
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(!append)
        .append(append)
        .engine(engine);
    let mut file = options.open(&ours.path).await.unwrap();
    // Made by the first swap: until then the position is the file's alone.
    let mut other = None;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(!append).append(append);
    let mut std = options.open(&theirs.path).unwrap();
    for (n, step) in steps.iter().enumerate() {
        match step {
            Step::Read(len) => {
                let (mut a, mut b) = (vec![0; *len], vec![0; *len]);
                // A short read in the middle is allowed: the rest is read then.
                let mut got = 0;
                while got < *len {
                    match file.read(&mut a[got..]).await.unwrap() {
                        0 => break,
                        n => got += n,
                    }
                }
                let mut want = 0;
                while want < *len {
                    match std.read(&mut b[want..]).unwrap() {
                        0 => break,
                        n => want += n,
                    }
                }
                prop_assert_eq!(got, want, "step {}", n);
                prop_assert!(a == b, "step {}: other bytes", n);
            }
            Step::ReadToEnd => {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let got = file.read_to_end(&mut a).await.unwrap();
                prop_assert_eq!(got, std.read_to_end(&mut b).unwrap(), "step {}", n);
                prop_assert!(a == b, "step {}: other bytes", n);
            }
            Step::GiveUp(len) => {
                let mut room = vec![0; *len];
                let polled = {
                    let mut read = std::pin::pin!(file.read(&mut room));
                    poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await
                };
                if let Poll::Ready(n) = polled {
                    let n = n.unwrap();
                    let mut same = vec![0; n];
                    std.read_exact(&mut same).unwrap();
                    prop_assert!(room[..n] == same, "step {}: other bytes", n);
                }
            }
            Step::Write(len) => {
                let bytes = bytes(n as u64, 0..*len as u64);
                file.write_all(&bytes).await.unwrap();
                std.write_all(&bytes).unwrap();
            }
            Step::Seek(to) => {
                let ours = file.seek(*to).await.map_err(|e| e.raw_os_error());
                let theirs = std.seek(*to).map_err(|e| e.raw_os_error());
                prop_assert_eq!(ours, theirs, "step {}", n);
            }
            Step::Flush => file.flush().await.unwrap(),
            Step::SetLen(len) => {
                file.set_len(*len).await.unwrap();
                std.set_len(*len).unwrap();
            }
            Step::Chill => {
                file.flush().await.unwrap();
                ours.evict();
            }
            Step::Swap => {
                // Otherwise both have operations in flight, whose order is not defined. A seek goes back
                // over unread bytes.
                file.flush().await.unwrap();
                file.seek(SeekFrom::Current(0)).await.unwrap();
                let next = match other.take() {
                    Some(next) => next,
                    None => file.try_clone().await.unwrap(),
                };
                other = Some(std::mem::replace(&mut file, next));
            }
        }
    }
    file.flush().await.unwrap();
    let (a, b) = (
        std::fs::read(&ours.path).unwrap(),
        std::fs::read(&theirs.path).unwrap(),
    );
    prop_assert!(a == b, "the files differ in the end");
    file.seek(SeekFrom::Current(0)).await.unwrap();
    let mut ended = file.into_std().await;
    prop_assert_eq!(
        ended.stream_position().unwrap(),
        std.stream_position().unwrap()
    );
    Ok(())
}

fn like_std(filesystem: Filesystem) {
    let mount = mounted!(filesystem);
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(std::env::var("PROPTEST_CASES").map_or(24, |n| n.parse().unwrap()))
    };
    for backend in backends() {
        for mode in [Mode::Eager, Mode::Strict] {
            for append in [false, true] {
                let engine = Options::new().backend(backend).mode(mode).build().unwrap();
                let tried = TestRunner::new(config.clone()).run(&steps(), |steps| {
                    runtime.block_on(go(&engine, mount.path(), append, &steps))
                });
                if let Err(why) = tried {
                    panic!("{filesystem:?}, {backend}, {mode:?}, append {append}: {why}");
                }
            }
        }
    }
}

/// Cold reads at the position of a file that has no other holder need no worker.
#[test]
fn a_ring_reads_where_the_position_is_private() {
    // After a try that looks as if it had waited, workers read.
    repeat("private positions", &[Excuse::AnyPreempted], || {
        catch_unwind(private_positions)
    });
}

fn private_positions() {
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", SIZE);
    let engine = Options::new().build().unwrap();
    if engine.backend() != Backend::Uring {
        return;
    }
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut options = OpenOptions::new();
    options.read(true).engine(&engine);
    // Reads all of it, cold at the first step, and returns the operations of the ring and of the workers.
    let read = async |file: &mut File| {
        let before = engine.stats();
        file.rewind().await.unwrap();
        sample.evict();
        let mut all = Vec::new();
        file.take(SIZE).read_to_end(&mut all).await.unwrap();
        assert!(all == sample.expected(0, SIZE as usize));
        let after = engine.stats();
        (after.ring - before.ring, after.workers - before.workers)
    };
    runtime.block_on(async {
        let mut file = options.open(&sample.path).await.unwrap();
        // After this, NOWAIT reads are known to work.
        file.read_u8().await.unwrap();
        let (ring, workers) = read(&mut file).await;
        assert!(ring > 0 && workers == 0, "{ring} and {workers}");
        let clone = file.try_clone().await.unwrap();
        let (ring, workers) = read(&mut file).await;
        assert!(ring == 0 && workers > 0, "{ring} and {workers}");
        drop(clone);
        let (ring, workers) = read(&mut file).await;
        assert!(ring > 0 && workers == 0, "{ring} and {workers}");
        let mut child = StdFile::from(file.as_fd().try_clone_to_owned().unwrap());
        let (ring, workers) = read(&mut file).await;
        assert!(ring == 0 && workers > 0, "{ring} and {workers}");
        assert_eq!(child.stream_position().unwrap(), SIZE);
    });
}

#[test]
fn a_stream_is_like_stds_on_ext4() {
    like_std(Filesystem::Ext4);
}

#[test]
fn a_stream_is_like_stds_on_xfs() {
    like_std(Filesystem::Xfs);
}

#[test]
fn a_stream_is_like_stds_on_btrfs() {
    like_std(Filesystem::Btrfs);
}

#[test]
fn a_stream_is_like_stds_on_tmpfs() {
    like_std(Filesystem::Tmpfs);
}

#[test]
fn a_stream_is_like_stds_on_overlayfs() {
    like_std(Filesystem::Overlay);
}

#[tokio::test]
async fn reads_at_offsets_run_at_once_beside_the_stream() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "file", 1 << 20);
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        sample.evict();
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .engine(&engine)
            .open(&sample.path)
            .await
            .unwrap();
        let reads = join_all((0..64).map(|n| file.read_at(vec![0; 5000], n * 16_000))).await;
        for (n, read) in reads.into_iter().enumerate() {
            let (got, bytes) = read.into_result().unwrap();
            assert_eq!(bytes, sample.expected(n as u64 * 16_000, 5000));
            assert_eq!(got, 5000);
        }
        sample.evict();
        let buffers = vec![vec![0; 3000], vec![0; 100_000], vec![0; 1]];
        let whole = file.read_vectored_at(buffers, 77).await;
        assert_eq!(whole.result.unwrap(), 103_001);
        assert_eq!(whole.buf.concat(), sample.expected(77, 103_001));
        let provenance = whole.provenance;
        let sum = provenance.cached + provenance.device + provenance.unknown;
        assert_eq!(sum, 103_001);
        let over = file
            .read_vectored_at(vec![vec![0; 10], vec![0; 10]], sample.size() - 15)
            .await;
        assert_eq!(over.result.unwrap(), 15);
        let short = file.read_exact_at(vec![0; 10], sample.size() - 5).await;
        assert_eq!(short.result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(file.stream_position().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn writes_at_offsets_are_there() {
    let dir = scratch();
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .engine(&engine);
        let path = dir.path().join(backend.name());
        let file = options.open(&path).await.unwrap();
        let wrote = file
            .write_vectored_at(vec![vec![1; 10], vec![2; 10]], 5)
            .await;
        assert_eq!(
            wrote.into_result().unwrap(),
            (20, vec![vec![1; 10], vec![2; 10]])
        );
        assert_eq!(file.write_all_at("end", 25).await.result.unwrap(), 3);
        let want = [&[0; 5][..], &[1; 10], &[2; 10], b"end"].concat();
        assert_eq!(std::fs::read(&path).unwrap(), want);
    }
}

#[tokio::test]
async fn an_engine_that_is_full_is_waited_for() {
    let dir = scratch();
    for backend in backends() {
        let engine = Options::new().backend(backend).depth(1).build().unwrap();
        let tasks = (0..16u64).map(|n| {
            let sample = Sample::new(dir.path(), &format!("f{n}"), 50_000 + n);
            sample.evict();
            let copy = dir.path().join(format!("c{n}"));
            let engine = engine.clone();
            ::tokio::spawn(async move {
                let mut options = OpenOptions::new();
                options.read(true).engine(&engine);
                let mut from = options.open(&sample.path).await.unwrap();
                options.write(true).create(true).truncate(true);
                let mut to = options.open(&copy).await.unwrap();
                ::tokio::io::copy(&mut from, &mut to).await.unwrap();
                to.flush().await.unwrap();
                assert!(std::fs::read(&copy).unwrap() == sample.content);
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
    }
}

#[test]
fn what_was_written_and_not_flushed_is_written_all_the_same() {
    let dir = scratch();
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        let path = dir.path().join(backend.name());
        let runtime = ::tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut options = OpenOptions::new();
            options.write(true).create(true).engine(&engine);
            let mut file = options.open(&path).await.unwrap();
            assert_eq!(file.write(&[7; 100_000]).await.unwrap(), 100_000);
        });
        drop(runtime);
        wait_until("it is written", || {
            std::fs::metadata(&path).is_ok_and(|m| m.len() == 100_000)
        });
    }
}

#[test]
fn no_runtime_is_needed() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "file", 100_000);
    sample.evict();
    let got = pollster::block_on(async {
        let mut file = File::open(&sample.path).await.unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).await.unwrap();
        got
    });
    assert!(got == sample.content);
}

#[test]
fn a_file_goes_from_one_runtime_to_another_in_the_middle_of_a_read() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "file", 1 << 20);
    sample.evict();
    let one = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut file = one.block_on(async {
        let mut file = File::open(&sample.path).await.unwrap();
        let mut room = vec![0; 100_000];
        {
            let mut read = std::pin::pin!(file.read(&mut room));
            let _ = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
        }
        file.rewind().await.unwrap();
        let mut read = std::pin::pin!(file.read(&mut room));
        let _ = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).map(drop))).await;
        file
    });
    drop(one);
    let two = ::tokio::runtime::Runtime::new().unwrap();
    two.block_on(async {
        file.rewind().await.unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).await.unwrap();
        assert!(got == sample.content);
    });
}

#[tokio::test]
async fn errors_keep_the_kernels_number() {
    let missing = File::open("/nowhere/at/all").await.unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    let dir = scratch();
    let mut file = File::open(dir.path()).await.unwrap();
    let error = file.read(&mut [0; 10]).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
}

/// Polls a future once and drops it.
async fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[test]
fn a_cached_file_is_opened_and_read_at_the_first_poll() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let mount = mounted!(filesystem);
        let sample = Sample::new(mount.path(), "file", 5000);
        let fifo = mount.path().join("fifo");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
        pollster::block_on(async {
            // The first file of a filesystem is opened by a worker.
            match filesystem {
                Filesystem::Ext4 => drop(File::open(&sample.path).await.unwrap()),
                _ => drop(nowait::tokio::read(&sample.path).await.unwrap()),
            }
            for _ in 0..100 {
                let Poll::Ready(opened) = poll_once(File::open(&sample.path)).await else {
                    panic!("{filesystem}: not ready");
                };
                let mut file = opened.unwrap();
                let flags = rustix::fs::fcntl_getfl(&file).unwrap();
                assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
                let mut got = Vec::new();
                file.read_to_end(&mut got).await.unwrap();
                assert!(got == sample.content);
                let Poll::Ready(bytes) = poll_once(nowait::tokio::read(&sample.path)).await else {
                    panic!("{filesystem}: not ready");
                };
                assert!(bytes.unwrap() == sample.content);
                let ours = nowait::File::open(&sample.path);
                assert!(poll_once(ours).await.is_ready(), "{filesystem}");
            }
            sample.evict();
            assert!(nowait::tokio::read(&sample.path).await.unwrap() == sample.content);
            std::fs::write(&sample.path, b"").unwrap();
            assert_eq!(nowait::tokio::read(&sample.path).await.unwrap(), b"");
            std::fs::write(&sample.path, b"\xff").unwrap();
            let text = nowait::tokio::read_to_string(&sample.path).await;
            assert_eq!(text.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
            // The open of a fifo waits for the other end: a worker makes it, the caller does not try.
            let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
            inotify::add_watch(&watch, &fifo, inotify::WatchFlags::CLOSE).unwrap();
            let mut opening = Box::pin(File::open(&fifo));
            assert!(poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx).is_pending())).await);
            let mut to = std::fs::File::options().write(true).open(&fifo).unwrap();
            let mut from = opening.await.unwrap();
            to.write_all(b"through").unwrap();
            let mut got = [0; 7];
            from.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"through");
            let mut events = [std::mem::MaybeUninit::uninit(); 512];
            let mut events = inotify::Reader::new(&watch, &mut events);
            assert!(events.next().is_err(), "{filesystem}: it was tried here");
            let dir = File::open(mount.path()).await.unwrap();
            assert!(dir.metadata().await.unwrap().is_dir());
        });
    }
}

#[test]
fn cached_metadata_and_missing_names_are_known_at_the_first_poll() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let mount = mounted!(filesystem);
        let sample = Sample::new(mount.path(), "file", 5000);
        let (link, missing) = (mount.path().join("link"), mount.path().join("missing"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        pollster::block_on(async {
            let file = File::open(&sample.path).await.unwrap();
            let want = std::fs::metadata(&sample.path).unwrap();
            let Poll::Ready(got) = poll_once(file.metadata()).await else {
                panic!("{filesystem}: not ready");
            };
            assert_eq!(format!("{:?}", got.unwrap()), format!("{want:?}"));
            let mut new = File::open(&sample.path).await.unwrap();
            let Poll::Ready(Ok(4000)) = poll_once(new.seek(SeekFrom::Start(4000))).await else {
                panic!("{filesystem}: not ready");
            };
            let Poll::Ready(got) = poll_once(nowait::tokio::metadata(&sample.path)).await else {
                panic!("{filesystem}: not ready");
            };
            assert_eq!(format!("{:?}", got.unwrap()), format!("{want:?}"));
            // The kernel reads the links of xfs without its caches.
            let got = nowait::tokio::metadata(&link).await;
            assert_eq!(format!("{:?}", got.unwrap()), format!("{want:?}"));
            let directory = nowait::tokio::metadata(mount.path());
            let Poll::Ready(Ok(directory)) = poll_once(directory).await else {
                panic!("{filesystem}: not ready");
            };
            assert!(directory.is_dir());
            // The kernel remembers that there is no such name, until it is made.
            for _ in 0..2 {
                assert!(std::fs::metadata(&missing).is_err());
                let Poll::Ready(Err(stat)) = poll_once(nowait::tokio::metadata(&missing)).await
                else {
                    panic!("{filesystem}: not ready");
                };
                let Poll::Ready(Err(open)) = poll_once(File::open(&missing)).await else {
                    panic!("{filesystem}: not ready");
                };
                assert_eq!(stat.raw_os_error(), Some(libc::ENOENT));
                assert_eq!(open.raw_os_error(), Some(libc::ENOENT));
                std::fs::write(&missing, b"now").unwrap();
                assert_eq!(nowait::tokio::metadata(&missing).await.unwrap().len(), 3);
                assert!(File::open(&missing).await.is_ok());
                std::fs::remove_file(&missing).unwrap();
            }
        });
    }
}

#[test]
fn who_opens_and_reads_what_is_cached_lets_other_tasks_run() {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", 5000);
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for open in [false, true] {
        runtime.block_on(async {
            let done = std::sync::Arc::new(AtomicUsize::new(0));
            let (told, path) = (done.clone(), sample.path.clone());
            let busy = ::tokio::spawn(async move {
                while told.load(SeqCst) < 1_000_000 {
                    if open {
                        drop(File::open(&path).await.unwrap());
                    } else {
                        nowait::tokio::read(&path).await.unwrap();
                    }
                    told.fetch_add(1, SeqCst);
                }
            });
            while done.load(SeqCst) < 1000 {
                ::tokio::task::yield_now().await;
            }
            assert!(done.load(SeqCst) < 1_000_000, "it went through to the end");
            busy.abort();
        });
    }
}

/// On filesystems that support NOWAIT writes.
#[test]
fn who_writes_at_once_keeps_to_its_buffer_and_lets_other_tasks_run() {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for filesystem in [Filesystem::Xfs, Filesystem::Btrfs] {
        let mount = mounted!(filesystem);
        let sample = Sample::new(mount.path(), "file", 5000);
        runtime.block_on(async {
            let mut options = OpenOptions::new();
            let opened = options.read(true).write(true).open(&sample.path).await;
            let mut file = opened.unwrap();
            file.set_max_buf_size(1000);
            for _ in 0..10 {
                file.rewind().await.unwrap();
                assert_eq!(file.write(&[7; 4000]).await.unwrap(), 1000);
                let slices = [[8; 600], [9; 600]]
                    .each_ref()
                    .map(|s| std::io::IoSlice::new(s));
                assert!(file.write_vectored(&slices).await.unwrap() <= 1000);
                file.flush().await.unwrap();
            }
            let done = std::sync::Arc::new(AtomicUsize::new(0));
            let told = done.clone();
            let busy = ::tokio::spawn(async move {
                while told.load(SeqCst) < 1_000_000 {
                    file.rewind().await.unwrap();
                    file.write_all(&[7; 1000]).await.unwrap();
                    told.fetch_add(1, SeqCst);
                }
            });
            while done.load(SeqCst) < 1000 {
                ::tokio::task::yield_now().await;
            }
            assert!(done.load(SeqCst) < 1_000_000, "it went through to the end");
            busy.abort();
        });
    }
}

#[tokio::test]
async fn a_cached_read_is_ready_at_the_first_poll() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "file", 1 << 20);
    let mut room = vec![0; 65_536];
    let mut file = File::open(&sample.path).await.unwrap();
    sample.warm();
    // The kernel may take other pages back at any time.
    let _locked = Locked::new(&sample.path, once(0..1 << 20));
    let (mut at, mut waited) = (0, 0);
    for _ in 0..16 {
        ::tokio::task::yield_now().await;
        let n = {
            let mut read = std::pin::pin!(file.read(&mut room));
            match poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
                Poll::Ready(read) => read,
                Poll::Pending => {
                    waited += 1;
                    read.await
                }
            }
        };
        let n = n.unwrap();
        assert_eq!(&room[..n], sample.expected(at, n));
        at += n as u64;
    }
    // The kernel may refuse a single read of resident pages.
    assert!(waited <= 1, "{waited} of 16 were not ready at once");
    assert!(file.history().hit_rate > 0.95);
}

#[test]
fn a_task_that_only_meets_hits_lets_the_others_run() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "file", 256 << 10);
    sample.warm();
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    // A task yields after 42 calls of at most 12 KiB.
    for (positional, len, most) in [
        (true, 64, 42),
        (false, 64, 42),
        (true, 256 << 10, 2),
        (false, 256 << 10, 2),
    ] {
        runtime.block_on(async {
            let mut file = File::open(&sample.path).await.unwrap();
            let (tell, mut told) = ::tokio::sync::oneshot::channel();
            let other = ::tokio::spawn(async move { tell.send(()) });
            let mut buffer = vec![0; len];
            let mut reads = 0;
            while told.try_recv().is_err() {
                if positional {
                    let read = file.read_at(buffer, 0).await;
                    read.result.unwrap();
                    buffer = read.buf;
                } else {
                    file.rewind().await.unwrap();
                    file.read_exact(&mut buffer).await.unwrap();
                }
                reads += 1;
                assert!(reads <= most + 1, "{len} bytes, positional: {positional}");
                // tokio moves a task that this one has woken behind all others if no budget is left.
                assert!(::tokio::task::coop::has_budget_remaining());
            }
            other.await.unwrap().unwrap();
        });
    }
}

/// ext4 does not support NOWAIT writes: a ring would pass each to a kernel worker.
#[tokio::test]
async fn a_write_that_a_ring_would_put_off_is_a_workers_if_it_is_alone() {
    let mount = mounted!(Filesystem::Ext4);
    for backend in backends() {
        let engine = Options::new().backend(backend).build().unwrap();
        let mut options = OpenOptions::new();
        options.write(true).create(true).engine(&engine);
        let file = options.open(mount.path().join("file")).await.unwrap();
        for n in 0..3 {
            let wrote = file.write_at(vec![1; 5000], n * 5000).await;
            assert_eq!(wrote.result.unwrap(), 5000);
            assert_eq!(wrote.provenance.served_by, ServedBy::Worker, "{n}");
        }
        // They wait for the disk, so that several are in flight.
        options.custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32);
        let file = options.open(mount.path().join("file")).await.unwrap();
        let many = (0..32).map(|n| file.write_at(vec![1; 5000], n * 5000));
        let by_ring = join_all(many)
            .await
            .iter()
            .filter(|wrote| wrote.provenance.served_by == ServedBy::Ring)
            .count();
        assert_eq!(by_ring > 0, backend == Backend::Uring, "{by_ring}");
    }
}
