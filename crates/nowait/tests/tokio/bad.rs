//! `nowait::tokio` with failing devices, odd files, sandboxes, limits, forks, odd runtimes and bad arguments.
//! An error has its errno and is returned by the same call as in tokio. Only what waits for the device waits,
//! and it can be dropped.

use std::future::Future;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};
use futures_util::future::{join_all, poll_fn};
use nowait::engine::{Engine, Options};
use nowait::tokio::{File, OpenOptions};
use nowait::{ErrorKind, Mode};
use rustix::fs::{OFlags, statvfs};
use slowdisk::{Fault, Filesystem, TestMount, extents, require};

use crate::common::accounting::{device_bytes, read_bytes};
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::limit::Limit;
use crate::common::mounts::{ON_DISK, mounted};
use crate::common::old_container::OLD_CONTAINER;
use crate::common::rig::{PAGE, PAGES, Rig};
use crate::common::samples::Sample;
use crate::common::sandbox::{deny, sandboxed};
use crate::common::shared_engine::each_shared;
use crate::common::terminal::terminal;
use crate::common::truncation::cut_off_until;
use crate::common::wait::wait_until;

const ALL: usize = PAGES as usize * PAGE;

/// A runtime of one thread, without I/O driver and without timers.
fn bare() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Opens a file for reading, or for reading and writing.
async fn open(engine: &Engine, path: &Path, write: bool) -> File {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(write).engine(engine).open(path);
    opened.await.unwrap()
}

/// Any descriptor, on an engine.
fn on(engine: &Engine, fd: OwnedFd) -> File {
    nowait::File::from_fd(fd, engine).unwrap().into()
}

/// Polls a future once and drops it.
async fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

fn rig() -> Option<Rig> {
    let missing = slowdisk::available()
        .and_then(|()| Filesystem::Ext4.available())
        .err();
    match missing {
        Some(missing) => {
            slowdisk::skip_or_fail(missing);
            None
        }
        None => Some(Rig::new()),
    }
}

#[test]
fn a_bad_block_in_the_midst_of_a_stream_stops_it_there_and_it_can_go_on() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        let pieces = [(PAGE, PAGE), (5000, 2 << 20), (ALL, 2 << 20)];
        for (i, (piece, most)) in (0..2).flat_map(|i| pieces.map(|piece| (i, piece))) {
            let path = rig.cold("bad");
            let at = extents(&std::fs::File::open(&path).unwrap()).unwrap();
            let bad = at[0].start + 40 * PAGE as u64;
            let fault = Fault::eio(bad..bad + PAGE as u64).reads_only();
            let fault = rig.disk.inject(fault);
            bare().block_on(async {
                let mut file = open(engine, &path, false).await;
                file.set_max_buf_size(most);
                // With a clone, workers read at the position. Without one, the engine reads at offsets.
                let early = if i == 0 {
                    Some(file.try_clone().await.unwrap())
                } else {
                    None
                };
                let mut got = Vec::new();
                let mut room = vec![0; piece];
                let error = loop {
                    match file.read(&mut room).await {
                        Ok(0) => panic!("no error"),
                        Ok(n) => got.extend_from_slice(&room[..n]),
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{piece}");
                // Earlier bytes were read, except those in the same folio.
                assert!(
                    (1..=40 * PAGE).contains(&got.len()),
                    "{piece}: {}",
                    got.len()
                );
                let again = file.read(&mut room).await.unwrap_err();
                assert_eq!(again.raw_os_error(), Some(libc::EIO));
                // The position is unchanged, and a clone sees it.
                let mut clone = match early {
                    Some(clone) => clone,
                    None => file.try_clone().await.unwrap(),
                };
                let position = clone.stream_position().await.unwrap();
                assert_eq!(position, got.len() as u64);
                // Beyond it there is data.
                clone.seek(SeekFrom::Start(60 * PAGE as u64)).await.unwrap();
                clone.read_exact(&mut room[..PAGE]).await.unwrap();
                assert!(room[..PAGE] == pattern(60 * PAGE as u64, PAGE));
                rig.disk.release(fault);
                file.seek(SeekFrom::Start(position)).await.unwrap();
                file.read_to_end(&mut got).await.unwrap();
                assert!(got == pattern(0, ALL), "{piece}");
            });
        }
    });
}

#[test]
fn a_position_that_another_holder_moves_during_a_read_stays() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        let path = rig.cold("bad");
        let stall = rig.fault(&path, Fault::stall);
        bare().block_on(async {
            let mut file = open(engine, &path, false).await;
            let mut room = vec![0; PAGE];
            let read = Box::pin(file.read(&mut room));
            assert!(poll_once(read).await.is_pending());
            let mut other = std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap());
            other.seek(SeekFrom::Start(7)).unwrap();
            rig.release(stall);
            file.read_exact(&mut room).await.unwrap();
            assert!(room == pattern(0, PAGE));
            assert_eq!(other.stream_position().unwrap(), 7);
            file.read_exact(&mut room).await.unwrap();
            assert!(room == pattern(7, PAGE));
        });
    });
}

#[test]
fn a_device_that_takes_no_writes_is_told_of_by_sync() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        let path = rig.cold("file");
        let file = std::fs::File::open(&path).unwrap();
        let faults: Vec<_> = extents(&file)
            .unwrap()
            .into_iter()
            .map(|range| rig.disk.inject(Fault::eio(range).writes_only()))
            .collect();
        bare().block_on(async {
            for sync in ["all", "data"] {
                let mut file = open(engine, &path, true).await;
                file.write_all(&pattern(7, ALL)).await.unwrap();
                file.flush().await.unwrap();
                let synced = match sync {
                    "all" => file.sync_all().await,
                    _ => file.sync_data().await,
                };
                assert_eq!(synced.unwrap_err().raw_os_error(), Some(libc::EIO));
            }
        });
        rig.release(faults);
    });
}

#[test]
fn a_full_disk_is_told_of_by_the_next_call_or_flush() {
    let tmpfs = require!(TestMount::builder(Filesystem::Tmpfs).size(64 << 10).build());
    each_shared(Options::new(), |engine| {
        let path = tmpfs.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let full = Some(libc::ENOSPC);
        bare().block_on(async {
            let mut file = open(engine, &path, true).await;
            file.write_all(&[1; 100_000]).await.unwrap();
            assert_eq!(file.flush().await.unwrap_err().raw_os_error(), full);
            file.flush().await.unwrap();
            file.write_all(&[1; 100_000]).await.unwrap();
            let next = file.write(&[1; 10]).await.unwrap_err();
            assert_eq!(next.raw_os_error(), full);
            file.write_all(&[1; 100_000]).await.unwrap();
            let next = file.shutdown().await.unwrap_err();
            assert_eq!(next.raw_os_error(), full);
            // Writing goes on when there is space.
            file.set_len(0).await.unwrap();
            file.rewind().await.unwrap();
            file.write_all(b"hello").await.unwrap();
            file.flush().await.unwrap();
            let by_path = nowait::tokio::write(tmpfs.path().join("b"), vec![1; 100_000]).await;
            assert_eq!(by_path.unwrap_err().raw_os_error(), full);
        });
        assert_eq!(std::fs::read(&path).unwrap(), b"hello");
    });
}

#[test]
fn a_size_limit_is_an_error_and_no_signal() {
    alone(|| {
        let mut mounts = vec![scratch()];
        let xfs = require!(TestMount::new(Filesystem::Xfs));
        mounts.push(tempfile::tempdir_in(xfs.path()).unwrap());
        let limit = rustix::process::Rlimit {
            current: Some(10_000),
            maximum: None,
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        for dir in mounts {
            each_shared(Options::new(), |engine| {
                let path = dir.path().join(engine.backend().name());
                std::fs::write(&path, b"").unwrap();
                bare().block_on(async {
                    let mut file = open(engine, &path, true).await;
                    for _ in 0..2 {
                        file.write_all(&pattern(0, 20_000)).await.unwrap();
                        let error = file.flush().await.unwrap_err();
                        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
                        file.rewind().await.unwrap();
                    }
                    file.write_all(b"fits").await.unwrap();
                    file.flush().await.unwrap();
                });
                assert_eq!(std::fs::metadata(&path).unwrap().len(), 10_000);
                assert_eq!(std::fs::read(&path).unwrap()[..5], *b"fits\x04");
            });
        }
    });
}

#[test]
fn direct_reads_that_are_not_aligned_are_refused() {
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", 100_000);
    each_shared(Options::new(), |engine| {
        bare().block_on(async {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_DIRECT);
            let opened = options.engine(engine).open(&sample.path).await;
            let mut file = opened.unwrap();
            for _ in 0..2 {
                let error = file.read(&mut [0; 100]).await.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
                assert_eq!(file.stream_position().await.unwrap(), 0);
            }
            let odd = file.read_at(vec![0; 100], 7).await;
            assert_eq!(odd.result.unwrap_err().errno(), Some(libc::EINVAL));
            assert_eq!(file.metadata().await.unwrap().len(), 100_000);
        });
    });
}

#[test]
fn a_file_that_is_cut_off_under_its_reader_gives_its_bytes_or_its_end() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 1 << 20);
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| cut_off_until(&path, 1 << 20, &over));
            bare().block_on(async {
                let mut file = open(engine, &path, false).await;
                let mut room = vec![0; 1 << 20];
                for i in 0..200u64 {
                    let at = i * 7919 % (1 << 20);
                    file.seek(SeekFrom::Start(at)).await.unwrap();
                    let piece = &mut room[..[100, 5000, 300_000][i as usize % 3]];
                    if i % 5 == 0 {
                        // Bytes of a dropped read may have been truncated from the file by now.
                        let _ = poll_once(file.read(piece)).await;
                        continue;
                    }
                    let n = file.read(piece).await.unwrap();
                    let want = pattern(at, n);
                    // A page that is being truncated may already be zeros.
                    let odd = piece.iter().zip(&want).filter(|(a, b)| a != b && **a != 0);
                    assert_eq!(odd.count(), 0, "read {i}: {n} from {at}");
                }
            });
            over.store(true, Ordering::Relaxed);
        });
    });
}

/// The device's queue has 128 places. A try of the page cache waits if it is full.
#[test]
fn many_whole_files_that_the_disk_holds_up_hold_no_task() {
    let Some(rig) = rig() else { return };
    let _limit = Limit::new("200 files".to_owned());
    let files: Vec<_> = (0..200)
        .map(|n| patterned(rig.mount.path(), &format!("whole{n}"), 4 * PAGE))
        .collect();
    bare().block_on(async {
        // The filesystem is known from then on.
        drop(nowait::tokio::read(&files[0]).await.unwrap());
        files.iter().for_each(|path| evict(path));
        let stall = rig.disk.inject(Fault::stall(0..u64::MAX).reads_only());
        let mut reads: Vec<_> = files
            .iter()
            .map(|path| Box::pin(nowait::tokio::read(path)))
            .collect();
        for read in &mut reads {
            assert!(poll_once(read.as_mut()).await.is_pending());
            // The next one has all of the task's budget, and so is tried.
            ::tokio::task::yield_now().await;
        }
        wait_until("the disk has some of them", || rig.disk.stalled() > 0);
        rig.disk.release(stall);
        for bytes in join_all(reads).await {
            assert!(bytes.unwrap() == pattern(0, 4 * PAGE));
        }
    });
}

#[test]
fn a_read_that_the_disk_holds_up_holds_no_other_task_and_can_be_given_up() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        let (bad, good) = (rig.cold("bad"), rig.cold("good"));
        let runtime = bare();
        let (mut file, stall) = runtime.block_on(async {
            let mut file = open(engine, &bad, false).await;
            let stall = rig.fault(&bad, Fault::stall);
            // One read in a task, one that is dropped, one at an offset.
            let mut other = open(engine, &bad, false).await;
            let stuck = ::tokio::spawn(async move { other.read(&mut [0; PAGE]).await });
            assert!(poll_once(file.read(&mut [0; PAGE])).await.is_pending());
            let at = file.read_at(vec![0; PAGE], 30 * PAGE as u64);
            assert!(poll_once(at).await.is_pending());
            wait_until("the disk has it", || rig.disk.stalled() > 0);
            // Other files, cold and cached, are read meanwhile.
            for _ in 0..2 {
                let mut next = open(engine, &good, false).await;
                let mut got = Vec::new();
                next.read_to_end(&mut got).await.unwrap();
                assert!(got == pattern(0, ALL));
            }
            assert_eq!(file.metadata().await.unwrap().len(), ALL as u64);
            assert!(!stuck.is_finished());
            stuck.abort();
            assert!(stuck.await.unwrap_err().is_cancelled());
            assert!(rig.disk.stalled() > 0, "all that while it was stalled");
            (file, stall)
        });
        rig.release(stall);
        // The dropped read went on, and its bytes are returned next.
        runtime.block_on(async {
            let mut got = Vec::new();
            file.read_to_end(&mut got).await.unwrap();
            assert!(got == pattern(0, ALL));
        });
    });
}

#[test]
fn a_runtime_ends_while_the_disk_holds_up_its_reads_and_writes() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        for threads in [0, 2] {
            let (read, written) = (rig.cold("read"), rig.cold("written"));
            let runtime = match threads {
                0 => bare(),
                n => Builder::new_multi_thread()
                    .worker_threads(n)
                    .build()
                    .unwrap(),
            };
            let stall = runtime.block_on(async {
                let mut from = open(engine, &read, false).await;
                let mut to = open(engine, &written, true).await;
                let stall = rig.fault(&read, Fault::stall);
                let stall = [stall, rig.fault(&written, Fault::stall)].concat();
                // The rest of its page has to be read first.
                to.seek(SeekFrom::Start(10)).await.unwrap();
                to.write_all(b"accepted").await.unwrap();
                ::tokio::spawn(async move { from.read(&mut [0; PAGE]).await });
                ::tokio::spawn(async move { to.flush().await });
                for _ in 0..100 {
                    ::tokio::task::yield_now().await;
                }
                wait_until("the disk has both", || rig.disk.stalled() > 1);
                stall
            });
            drop(runtime);
            assert!(rig.disk.stalled() > 1, "no read waited for it");
            rig.release(stall);
            wait_until("it is written", || {
                std::fs::read(&written).unwrap()[..20]
                    == *b"\0\x01\x02\x03\x04\x05\x06\x07\x08\x09accepted\x12\x13"
            });
            wait_until("nothing is in flight", || engine.in_flight() == 0);
        }
    });
}

#[test]
fn an_engine_that_a_stalled_disk_has_filled_serves_hits_and_is_waited_for() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new().depth(1), |engine| {
        let (bad, good) = (rig.cold("bad"), rig.cold("good"));
        let dir = scratch();
        let cached = patterned(dir.path(), "cached", ALL);
        bare().block_on(async {
            let [mut bad_file, mut good_file] = [
                open(engine, &bad, false).await,
                open(engine, &good, false).await,
            ];
            let mut cached_file = open(engine, &cached, true).await;
            let stall = rig.fault(&bad, Fault::stall);
            // A try of the page cache starts readahead; this keeps it from serving the next try.
            let good_stall = rig.fault(&good, Fault::stall);
            assert!(poll_once(bad_file.read(&mut [0; PAGE])).await.is_pending());
            wait_until("the disk has it", || rig.disk.stalled() > 0);
            let mut got = Vec::new();
            cached_file.read_to_end(&mut got).await.unwrap();
            assert!(got == pattern(0, ALL));
            // Dropped while they wait for a place, then awaited. Calls have places of their own.
            for _ in 0..3 {
                assert!(poll_once(good_file.read(&mut [0; PAGE])).await.is_pending());
                assert_eq!(cached_file.metadata().await.unwrap().len(), ALL as u64);
            }
            assert_eq!(engine.in_flight(), 1);
            let reader = ::tokio::spawn(async move {
                let mut got = Vec::new();
                good_file.read_to_end(&mut got).await.unwrap();
                got
            });
            let writer = ::tokio::spawn(async move {
                cached_file.write_all(b"more").await.unwrap();
                cached_file.flush().await.unwrap();
            });
            for _ in 0..100 {
                ::tokio::task::yield_now().await;
            }
            assert!(!reader.is_finished());
            rig.release(stall);
            rig.release(good_stall);
            assert!(reader.await.unwrap() == pattern(0, ALL));
            writer.await.unwrap();
            got.clear();
            bad_file.read_to_end(&mut got).await.unwrap();
            assert!(got == pattern(0, ALL));
        });
        assert_eq!(std::fs::metadata(&cached).unwrap().len(), ALL as u64 + 4);
    });
}

/// Calls everything once, on the engine of the process.
async fn all_of_it(dir: &Path) {
    use nowait::tokio as fs;
    let path = patterned(dir, "all", ALL);
    let copy = dir.join("copy");
    for cold in [false, true] {
        if cold {
            evict(&path);
        }
        let mut from = File::open(&path).await.unwrap();
        let mut to = File::create(&copy).await.unwrap();
        ::tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.sync_all().await.unwrap();
        assert!(fs::read(&copy).await.unwrap() == pattern(0, ALL));
        evict(&path);
        let at = from.read_at(vec![0; 5000], 77).await;
        assert!(at.buf == pattern(77, 5000));
        from.seek(SeekFrom::End(-10)).await.unwrap();
        let mut end = Vec::new();
        from.read_to_end(&mut end).await.unwrap();
        assert_eq!(end, pattern(ALL as u64 - 10, 10));
    }
    assert_eq!(fs::metadata(&copy).await.unwrap().len(), ALL as u64);
    fs::remove_file(&copy).await.unwrap();
    let mut names = fs::read_dir(dir).await.unwrap();
    assert_eq!(
        names.next_entry().await.unwrap().unwrap().file_name(),
        "all"
    );
    assert!(names.next_entry().await.unwrap().is_none());
    let missing = File::open(&copy).await.unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn in_a_sandbox_everything_is_there() {
    sandboxed(|errno| {
        let dir = scratch();
        deny(&OLD_CONTAINER, errno);
        bare().block_on(all_of_it(dir.path()));
        let engine = Engine::process().unwrap();
        assert_eq!(engine.backend(), nowait::engine::Backend::Threads);
    });
}

#[test]
fn a_ring_that_is_denied_while_files_are_open_gives_way() {
    sandboxed(|errno| {
        let dir = scratch();
        bare().block_on(async {
            let path = patterned(dir.path(), "file", ALL);
            let mut file = File::open(&path).await.unwrap();
            file.read_exact(&mut [0; 100]).await.unwrap();
            deny(&[libc::SYS_io_uring_enter], errno);
            evict(&path);
            let mut got = Vec::new();
            file.read_to_end(&mut got).await.unwrap();
            assert!(got == pattern(100, ALL - 100));
            std::fs::remove_file(&path).unwrap();
            all_of_it(dir.path()).await;
        });
    });
}

#[test]
fn a_forked_child_serves_hits_and_refuses_the_rest_of_its_parents_files() {
    alone(|| {
        let Some(rig) = rig() else { return };
        each_shared(Options::new(), |engine| {
            let dir = scratch();
            let path = patterned(dir.path(), "file", ALL);
            let cold = rig.cold("cold");
            let mode = std::fs::metadata(&cold).unwrap().permissions();
            // A fast disk may deliver during a try of the page cache.
            let stall = rig.fault(&cold, Fault::stall);
            let mut file = pollster::block_on(open(engine, &path, true));
            let mut other = pollster::block_on(open(engine, &cold, true));
            let mut own = pollster::block_on(File::open(&cold)).unwrap();
            forked("a child", || {
                pollster::block_on(async {
                    let mut got = [0; 100];
                    file.read_exact(&mut got).await.unwrap();
                    assert_eq!(got, pattern(0, 100)[..]);
                    for file in [&mut other, &mut own] {
                        assert_eq!(file.metadata().await.unwrap().len(), ALL as u64);
                        let refused = [
                            file.read(&mut got).await.map(drop),
                            file.set_permissions(mode.clone()).await,
                            file.write(b"no").await.map(drop),
                            file.sync_all().await,
                            file.set_len(0).await,
                        ];
                        for refused in refused {
                            let error = refused.unwrap_err();
                            assert!(error.to_string().contains("parent"), "{error}");
                        }
                        let read = file.read_at(vec![0; 10], 50_000).await;
                        assert_eq!(read.result.unwrap_err().kind(), ErrorKind::Forked);
                    }
                    // A file that is opened here uses the child's own engine.
                    let here = dir.path().join("here");
                    std::fs::create_dir(&here).unwrap();
                    all_of_it(&here).await;
                    std::fs::remove_dir_all(&here).unwrap();
                });
            });
            rig.release(stall);
            pollster::block_on(async {
                let mut got = Vec::new();
                other.read_to_end(&mut got).await.unwrap();
                assert!(got == pattern(0, ALL), "the parent's goes on");
            });
        });
    });
}

#[test]
fn a_future_polled_after_its_end_does_no_harm() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", ALL);
    bare().block_on(async {
        let mut file = File::open(&path).await.unwrap();
        let mut room = [0; 100];
        // An `async fn` unwinds then.
        let mut read = Box::pin(file.read_at(vec![0; 10], 0));
        read.as_mut().await.into_result().unwrap();
        let again = std::panic::AssertUnwindSafe(|| {
            let waker = futures_util::task::noop_waker();
            let mut cx = std::task::Context::from_waker(&waker);
            read.as_mut().poll(&mut cx).is_ready()
        });
        assert!(std::panic::catch_unwind(again).is_err());
        drop(read);
        // The stream has no future of its own and can be polled again.
        for at in 0..10 {
            file.read_exact(&mut room).await.unwrap();
            assert_eq!(room, pattern(at * 100, 100)[..]);
            poll_fn(|cx| ::tokio::io::AsyncSeek::poll_complete(std::pin::pin!(&mut file), cx))
                .await
                .unwrap();
        }
    });
}

#[test]
fn runtimes_that_share_a_file_share_its_bytes_out() {
    let dir = scratch();
    let sample = Sample::new(dir.path(), "file", 1_000_000);
    each_shared(Options::new(), |engine| {
        sample.evict();
        let first = bare().block_on(open(engine, &sample.path, false));
        let counts: Vec<usize> = std::thread::scope(|s| {
            let runs: Vec<_> = (0..3)
                .map(|n| {
                    let mut file = bare().block_on(first.try_clone()).unwrap();
                    s.spawn(move || {
                        let runtime = match n {
                            0 => bare(),
                            _ => Builder::new_multi_thread()
                                .worker_threads(n)
                                .build()
                                .unwrap(),
                        };
                        let count = async move {
                            let (mut count, mut room) = (0, vec![0; 1000]);
                            loop {
                                match file.read(&mut room).await.unwrap() {
                                    0 => return count,
                                    n => count += n,
                                }
                            }
                        };
                        let task = runtime.spawn(count);
                        runtime.block_on(task).unwrap()
                    })
                })
                .collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert_eq!(counts.iter().sum::<usize>(), 1_000_000, "{counts:?}");
    });
}

#[test]
fn a_strict_streams_task_never_touches_the_device() {
    if read_bytes().is_none() {
        slowdisk::skip_or_fail("/proc/thread-self/io is missing (CONFIG_TASK_IO_ACCOUNTING)");
        return;
    }
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let sample = Sample::new(mount.path(), "file", 4 << 20);
        each_shared(Options::new().mode(Mode::Strict), |engine| {
            let runtime = bare();
            let mut file = runtime.block_on(open(engine, &sample.path, false));
            let mut got = Vec::new();
            sample.evict();
            let moved = device_bytes(|| {
                runtime.block_on(async {
                    let mut room = vec![0; 10_000];
                    loop {
                        match file.read(&mut room).await.unwrap() {
                            0 => break,
                            n => got.extend_from_slice(&room[..n]),
                        }
                    }
                });
            });
            assert!(got == sample.content);
            assert_eq!(moved, 0, "{filesystem}: in sequence");
            sample.evict();
            let moved = device_bytes(|| {
                runtime.block_on(async {
                    let reads =
                        (0..64).map(|n| file.read_at(vec![0; 5000], n * 7919 % 1000 * 4096));
                    for (n, read) in join_all(reads).await.into_iter().enumerate() {
                        let at = n as u64 * 7919 % 1000 * 4096;
                        assert!(read.buf == sample.expected(at, 5000));
                    }
                    for n in 0..64 {
                        let at = n * 104_729 % 1000 * 4096;
                        file.seek(SeekFrom::Start(at)).await.unwrap();
                        let mut room = vec![0; 3000];
                        file.read_exact(&mut room).await.unwrap();
                        assert!(room == sample.expected(at, 3000));
                    }
                });
            });
            assert_eq!(moved, 0, "{filesystem}: at random");
            // An open does not touch the device either, even if the name is not cached.
            drop(file);
            wait_until("the mount is not in use", || mount.remount().is_ok());
            let moved = device_bytes(|| drop(runtime.block_on(open(engine, &sample.path, false))));
            assert_eq!(moved, 0, "{filesystem}: opened");
        });
    }
    // A plain read is counted: the counter works.
    let mount = mounted!(Filesystem::Ext4);
    let sample = Sample::new(mount.path(), "file", 1 << 20);
    sample.evict();
    assert!(device_bytes(|| drop(std::fs::read(&sample.path).unwrap())) > 0);
}

#[test]
fn a_file_is_not_stds_again_while_the_disk_holds_up_a_write() {
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        let path = rig.cold("file");
        bare().block_on(async {
            let mut file = open(engine, &path, true).await;
            let stall = rig.fault(&path, Fault::stall);
            // The rest of its page has to be read first.
            file.seek(SeekFrom::Start(10)).await.unwrap();
            file.write_all(b"accepted").await.unwrap();
            let file = file.try_into_std().expect_err("it is on its way");
            let mut whole = Box::pin(file.into_std());
            assert!(poll_once(&mut whole).await.is_pending());
            wait_until("the disk has it", || rig.disk.stalled() > 0);
            rig.release(stall);
            let mut std = whole.await;
            assert_eq!(io::Seek::stream_position(&mut std).unwrap(), 18);
            assert_eq!(std::fs::read(&path).unwrap()[10..18], *b"accepted");
        });
    });
}

/// Only the task that polled last is woken.
#[test]
fn a_read_that_goes_from_task_to_task_wakes_the_last() {
    use std::sync::atomic::AtomicUsize;
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let Some(rig) = rig() else { return };
    each_shared(Options::new(), |engine| {
        let path = rig.cold("file");
        let mut file = bare().block_on(open(engine, &path, false));
        let stall = rig.fault(&path, Fault::stall);
        let counts: [_; 3] = std::array::from_fn(|_| std::sync::Arc::new(Count(0.into())));
        let mut room = [0; 100];
        let mut read = |waker: &std::task::Waker| {
            let mut cx = std::task::Context::from_waker(waker);
            std::pin::pin!(file.read(&mut room)).poll(&mut cx)
        };
        for count in &counts {
            assert!(read(&count.clone().into()).is_pending());
        }
        wait_until("the disk has it", || rig.disk.stalled() > 0);
        rig.release(stall);
        let woken = || {
            counts
                .each_ref()
                .map(|count| count.0.load(Ordering::SeqCst))
        };
        wait_until("a task is woken", || woken() != [0; 3]);
        assert_eq!(woken(), [0, 0, 1]);
        let Poll::Ready(n) = read(std::task::Waker::noop()) else {
            panic!("woken for nothing")
        };
        assert_eq!(room[..n.unwrap()], pattern(0, 100));
    });
}

/// Writes more than there is space for. Returns the position and the size of the file.
/// Waits until the blocks of removed files are free. A worker may close such a file later than its last call
/// returns.
fn wait_until_empty(tmpfs: &Path) {
    wait_until("the removed files are closed", || {
        let stat = statvfs(tmpfs).unwrap();
        stat.f_bfree == stat.f_blocks
    });
}

macro_rules! filling {
    ($fs:path, $path:expr) => {{
        use $fs as fs;
        async {
            let mut file = fs::File::create($path).await.unwrap();
            file.write_all(&[1; 5000]).await.unwrap();
            file.write_all(&[2; 100_000]).await.unwrap();
            let error = file.flush().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            let position = file.stream_position().await.unwrap();
            let len = file.metadata().await.unwrap().len();
            std::fs::remove_file($path).unwrap();
            (position, len)
        }
    }};
}

#[test]
fn the_position_is_behind_what_a_full_disk_took() {
    let tmpfs = require!(TestMount::builder(Filesystem::Tmpfs).size(64 << 10).build());
    let path = tmpfs.path().join("file");
    let theirs = bare().block_on(filling!(::tokio::fs, &path));
    wait_until_empty(tmpfs.path());
    let ours = bare().block_on(filling!(::nowait::tokio, &path));
    assert_eq!(ours, theirs);
    assert_eq!(ours.0, ours.1);
}

/// A step on a file that is about to fill its disk.
#[derive(Clone, Copy, Debug)]
enum Fill {
    Write(usize),
    Flush,
    Shutdown,
    Sync,
    Read,
    Rewind,
    SetLen(u64),
}

/// Carries out steps, from an empty file on. Returns the error of each, the position and the contents.
macro_rules! filled_by {
    ($fs:path, $path:expr, $steps:expr) => {{
        use $fs as fs;
        async {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            let mut file = options.open($path).await.unwrap();
            let mut said = Vec::new();
            for (step, fill) in $steps.iter().zip(1u8..) {
                let result = match *step {
                    Fill::Write(n) => file.write_all(&vec![fill; n]).await,
                    Fill::Flush => file.flush().await,
                    Fill::Shutdown => file.shutdown().await,
                    Fill::Sync => file.sync_all().await,
                    Fill::Read => file.read(&mut [0; 100]).await.map(drop),
                    Fill::Rewind => file.rewind().await.map(drop),
                    Fill::SetLen(n) => file.set_len(n).await,
                };
                said.push(result.map_err(|error| error.kind()));
            }
            let last = file.flush().await.map_err(|error| error.kind());
            let again = file.flush().await.map_err(|error| error.kind());
            let position = file.stream_position().await.unwrap();
            drop(file);
            let contents = std::fs::read($path).unwrap();
            std::fs::remove_file($path).unwrap();
            (said, last, again, position, contents)
        }
    }};
}

/// The error of a write is returned once, by the next write or flush, and not by a sync. Writes go on after that.
#[test]
fn after_a_full_disk_every_call_says_what_it_says_to_tokio() {
    let tmpfs = require!(TestMount::builder(Filesystem::Tmpfs).size(1 << 20).build());
    let path = tmpfs.path().join("file");
    let (mut state, mut full) = (7u64, 0);
    for _ in 0..150 {
        let steps: Vec<Fill> = (0..12)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                match (state >> 33) % 13 {
                    0 | 1 => Fill::Write(10),
                    2 | 3 => Fill::Write(100_000),
                    4 | 5 => Fill::Write(700_000),
                    6 => Fill::Write(5_000_000),
                    7 | 8 => Fill::Flush,
                    9 => Fill::Sync,
                    10 => Fill::Read,
                    11 => Fill::Rewind,
                    _ if state >> 60 > 7 => Fill::Shutdown,
                    _ => Fill::SetLen(50_000),
                }
            })
            .collect();
        wait_until_empty(tmpfs.path());
        let theirs = bare().block_on(filled_by!(::tokio::fs, &path, steps));
        wait_until_empty(tmpfs.path());
        let ours = bare().block_on(filled_by!(::nowait::tokio, &path, steps));
        let what = |(said, last, again, at, contents): &(_, _, _, u64, Vec<u8>)| {
            let (said, last, again): (&Vec<_>, &_, &_) = (said, last, again);
            let errors: Vec<Result<(), io::ErrorKind>> = said.clone();
            let ends: [Result<(), io::ErrorKind>; 2] = [*last, *again];
            format!("{errors:?} {ends:?} at {at} of {}", contents.len())
        };
        assert!(
            ours == theirs,
            "{steps:?}\nours {}\ntheirs {}",
            what(&ours),
            what(&theirs)
        );
        assert_eq!(ours.2, Ok(()), "an error is returned once");
        full += ours.0.iter().filter(|said| said.is_err()).count();
    }
    assert!(full > 100, "{full} errors");
}

macro_rules! odd_descriptors {
    ($face:ident, $fs:path) => {
        mod $face {
            use super::*;
            use $fs as fs;

            /// The errno of each method, or nothing.
            pub async fn said(mut file: fs::File) -> Vec<(&'static str, Option<i32>)> {
                let errno = |e: Option<io::Error>| e.map(|e| e.raw_os_error().unwrap_or(-1));
                let mut said = Vec::new();
                // First: a stream that has read holds unread bytes.
                said.push(("seek", errno(file.seek(SeekFrom::Start(3)).await.err())));
                file.write_all(b"x").await.unwrap();
                said.push(("write", errno(file.flush().await.err())));
                said.push(("read", errno(file.read(&mut [0; 5]).await.err())));
                said.push(("metadata", errno(file.metadata().await.err())));
                said.push(("set_len", errno(file.set_len(3).await.err())));
                said.push(("sync_all", errno(file.sync_all().await.err())));
                said.push(("sync_data", errno(file.sync_data().await.err())));
                said.push(("try_clone", errno(file.try_clone().await.err())));
                said
            }
        }
    };
}

odd_descriptors!(theirs, ::tokio::fs);
odd_descriptors!(ours, ::nowait::tokio);

#[test]
fn descriptors_of_any_kind_say_what_they_say_to_tokio() {
    let runtime = bare();
    let dir = scratch();
    let open = |path: &Path, flags: OFlags| -> OwnedFd {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap()
    };
    let path = patterned(dir.path(), "file", 100);
    let fifo = dir.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, 0o600.into(), 0).unwrap();
    // A writer that writes nothing.
    let _writer = open(&fifo, OFlags::RDWR);
    let later = |fd: OwnedFd| {
        let flags = rustix::fs::fcntl_getfl(&fd).unwrap();
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK).unwrap();
        fd
    };
    let cases: [(&str, &dyn Fn() -> OwnedFd); 16] = [
        ("directory", &|| open(dir.path(), OFlags::RDONLY)),
        ("pipe, reading", &|| std::io::pipe().unwrap().0.into()),
        ("pipe, writing", &|| std::io::pipe().unwrap().1.into()),
        ("socket", &|| {
            std::os::unix::net::UnixStream::pair().unwrap().0.into()
        }),
        ("/dev/null", &|| open(Path::new("/dev/null"), OFlags::RDWR)),
        ("/dev/full", &|| open(Path::new("/dev/full"), OFlags::RDWR)),
        ("read-only", &|| open(&path, OFlags::RDONLY)),
        ("write-only", &|| open(&path, OFlags::WRONLY)),
        ("both", &|| open(&path, OFlags::RDWR)),
        ("O_PATH", &|| open(&path, OFlags::PATH)),
        ("fifo, O_NONBLOCK", &|| {
            open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK)
        }),
        ("fifo, O_NONBLOCK set later", &|| {
            later(open(&fifo, OFlags::RDONLY))
        }),
        ("socket, O_NONBLOCK", &|| {
            let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
            std::mem::forget(there);
            later(here.into())
        }),
        ("eventfd, O_NONBLOCK", &|| {
            let flags = rustix::event::EventfdFlags::NONBLOCK;
            rustix::event::eventfd(0, flags).unwrap()
        }),
        ("terminal without hardware", &|| terminal().1),
        ("terminal, O_NONBLOCK", &|| {
            let (hardware, programs) = terminal();
            std::mem::forget(hardware);
            later(programs)
        }),
    ];
    for (what, make) in cases {
        let _limit = Limit::new(what.to_owned());
        let theirs = runtime.block_on(theirs::said(make().into()));
        each_shared(Options::new(), |engine| {
            let file = on(engine, make());
            let ours = runtime.block_on(ours::said(file));
            assert_eq!(ours, theirs, "{what}, {}", engine.backend());
        });
    }
}

#[test]
fn a_terminal_whose_other_end_is_closed_says_so() {
    let _limit = Limit::new("terminals".to_owned());
    bare().block_on(async {
        let mut theirs = ::tokio::fs::File::from_std(terminal().0.into());
        let error = theirs.read(&mut [0; 5]).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    });
    each_shared(Options::new(), |engine| {
        let mut ours = on(engine, terminal().0);
        let error = bare().block_on(ours.read(&mut [0; 5])).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    });
}

#[test]
fn an_entry_is_of_the_directory_that_was_read_also_elsewhere() {
    alone(|| {
        let dir = scratch();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        patterned(&dir.path().join("below"), "file", 10);
        std::env::set_current_dir(dir.path()).unwrap();
        bare().block_on(async {
            let mut entries = nowait::tokio::read_dir("below").await.unwrap();
            let entry = entries.next_entry().await.unwrap().unwrap();
            std::env::set_current_dir("/").unwrap();
            assert_eq!(entry.metadata().await.unwrap().len(), 10);
            assert!(entry.file_type().await.unwrap().is_file());
            assert_eq!(entry.path(), Path::new("below/file"));
        });
    });
}
