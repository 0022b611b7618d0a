//! `read_to_end` and `read_to_string`: the methods of `nowait::tokio::File` do what those of `AsyncReadExt` do, and leave the
//! same bytes as the standard library's.

use std::fs;
use std::future::Future;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;

use ::tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader};
use futures_util::future::poll_fn;
use nowait::Mode;
use nowait::engine::{Engine, Options};
use nowait::read::NowaitPolicy;
use nowait::tokio::{File, OpenOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use slowdisk::Filesystem;

use crate::common::backends::backends;
use crate::common::files::scratch;
use crate::common::growing;
use crate::common::mounts::mounted;
use crate::common::samples::bytes;

/// A read to the end, and the file and the vector before it.
#[derive(Clone, Debug)]
struct Case {
    size: u64,
    /// The change of the size after the file was opened.
    change: i64,
    seek: Option<u64>,
    /// The bytes that are read before.
    small: usize,
    prefix: usize,
    spare: usize,
    most: usize,
    cold: bool,
    /// The file is opened by a worker.
    by_worker: bool,
}

/// The engine's copy limit: some files are larger.
const COPY_LIMIT: usize = 32 << 10;

fn cases() -> impl Strategy<Value = Case> {
    let size = || {
        prop_oneof![
            Just(0),
            1..100u64,
            1..10_000u64,
            Just(4096),
            30_000..200_000u64
        ]
    };
    let few = || prop_oneof![3 => Just(0usize), 1 => 0..40usize, 1 => 0..5_000usize];
    let change = prop_oneof![2 => Just(0), 1 => -3_000..3_000i64];
    let seek = prop_oneof![2 => Just(None), 1 => size().prop_map(Some)];
    let most = prop_oneof![4 => Just(2 << 20), 1 => 1..20_000usize];
    let file = (size(), change, seek, few());
    (file, few(), few(), most, any::<(bool, bool)>()).prop_map(
        |((size, change, seek, small), prefix, spare, most, (cold, by_worker))| Case {
            size,
            change,
            seek,
            small,
            prefix,
            // Often exactly the memory for the file.
            spare: if spare % 2 == 0 { spare } else { size as usize },
            most,
            cold,
            by_worker,
        },
    )
}

async fn open(path: &Path, engine: &Engine, by_worker: bool) -> File {
    let mut options = OpenOptions::new();
    options.read(true).engine(engine);
    if by_worker {
        options.custom_flags(libc::O_NOCTTY);
    }
    options.open(path).await.unwrap()
}

async fn like_std(engine: &Engine, path: &Path, case: &Case) -> Result<(), TestCaseError> {
    let whole = bytes(case.size, 0..case.size);
    fs::write(path, &whole).unwrap();
    let mut ours = open(path, engine, case.by_worker).await;
    let mut std = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    std.set_len(case.size.saturating_add_signed(case.change))
        .unwrap();
    if case.cold {
        std.sync_all().unwrap();
        slowdisk::evict(&std).unwrap();
    }
    ours.set_max_buf_size(case.most);
    if let Some(to) = case.seek {
        ours.seek(SeekFrom::Start(to)).await.unwrap();
        std.seek(SeekFrom::Start(to)).unwrap();
    }
    let n = ours.read(&mut vec![0; case.small]).await.unwrap();
    std.seek(SeekFrom::Current(n as i64)).unwrap();

    let mut got = Vec::with_capacity(case.prefix + case.spare);
    got.resize(case.prefix, b'p');
    let (mut expected, capacity) = (got.clone(), got.capacity());
    let n = ours.read_to_end(&mut got).await.unwrap();
    prop_assert_eq!(n, std.read_to_end(&mut expected).unwrap());
    prop_assert!(got == expected, "other bytes");
    if got.len() <= capacity && capacity - case.prefix >= 32 {
        prop_assert_eq!(got.capacity(), capacity);
    }
    let position = ours.stream_position().await.unwrap();
    prop_assert_eq!(position, std.stream_position().unwrap());
    prop_assert_eq!(ours.read_to_end(&mut got).await.unwrap(), 0);

    // Bytes that are added are read, too.
    std.seek(SeekFrom::End(0)).unwrap();
    std.write_all(b"more").unwrap();
    let end = std.stream_position().unwrap();
    ours.seek(SeekFrom::Start(end - 4)).await.unwrap();
    let mut text = String::from("no ");
    prop_assert_eq!(ours.read_to_string(&mut text).await.unwrap(), 4);
    prop_assert_eq!(text, "no more");
    Ok(())
}

fn on(filesystem: Filesystem) {
    let mount = mounted!(filesystem);
    let path = mount.path().join("file");
    let runtime = ::tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let cases_of_each = std::env::var("PROPTEST_CASES").map_or(60, |n| n.parse().unwrap());
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(cases_of_each)
    };
    for backend in backends() {
        for mode in [Mode::Eager, Mode::Strict] {
            let options = Options::new().backend(backend).mode(mode);
            let engine = options.copy_limit(COPY_LIMIT).build().unwrap();
            let tried = TestRunner::new(config.clone()).run(&cases(), |case| {
                runtime.block_on(like_std(&engine, &path, &case))
            });
            if let Err(why) = tried {
                panic!("{filesystem:?}, {backend}, {mode:?}: {why}");
            }
        }
    }
}

#[test]
fn random_files_are_read_as_by_std_on_ext4() {
    on(Filesystem::Ext4);
}

#[test]
fn random_files_are_read_as_by_std_on_tmpfs() {
    on(Filesystem::Tmpfs);
}

#[test]
fn random_files_are_read_as_by_std_on_overlayfs() {
    on(Filesystem::Overlay);
}

/// Another thread appends numbered lines meanwhile.
#[::tokio::test]
async fn a_file_that_grows_is_read_with_all_that_it_had_before_the_call() {
    let dir = scratch();
    let path = dir.path().join("file");
    let mut to = fs::File::create(&path).unwrap();
    let line = |n: usize| format!("{n:07}\n");
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let writer = std::thread::spawn(move || {
        for n in 0..20_000 {
            to.write_all(line(n).as_bytes()).unwrap();
            count.store(n + 1, SeqCst);
        }
    });
    while !writer.is_finished() {
        let mut file = File::open(&path).await.unwrap();
        let before = written.load(SeqCst);
        let mut text = String::new();
        assert_eq!(file.read_to_string(&mut text).await.unwrap(), text.len());
        let read = text.lines().count();
        assert!(read >= before, "{read} of {before}");
        assert!(text.lines().eq((0..read).map(|n| format!("{n:07}"))));
    }
    writer.join().unwrap();
}

fn fifo(dir: &Path) -> PathBuf {
    let path = dir.join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0).unwrap();
    path
}

/// The methods of any reader.
async fn generic(reader: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> usize {
    reader.read_to_end(bytes).await.unwrap()
}

macro_rules! behaviours {
    ($face:ident, $fs:path) => {
        mod $face {
            use $fs as fs;

            use super::*;

            #[::tokio::test]
            async fn every_way_to_call_them() {
                let dir = scratch();
                let path = dir.path().join("file");
                std::fs::write(&path, "text").unwrap();
                let mut file = fs::File::open(&path).await.unwrap();
                let (mut all, mut text) = (Vec::new(), String::new());
                file.read_to_end(&mut all).await.unwrap();
                file.rewind().await.unwrap();
                (&mut file).read_to_end(&mut all).await.unwrap();
                file.rewind().await.unwrap();
                file.read_to_string(&mut text).await.unwrap();
                let by_reference = &mut file;
                by_reference.rewind().await.unwrap();
                let n: usize = by_reference.read_to_end(all.as_mut()).await.unwrap();
                assert_eq!((n, text.as_str()), (4, "text"));
                file.rewind().await.unwrap();
                assert_eq!(generic(&mut file, &mut all).await, 4);
                file.rewind().await.unwrap();
                assert_eq!(
                    AsyncReadExt::read_to_end(&mut file, &mut all)
                        .await
                        .unwrap(),
                    4
                );
                let mut boxed = Box::new(file);
                boxed.rewind().await.unwrap();
                assert_eq!(boxed.read_to_end(&mut all).await.unwrap(), 4);
                boxed.rewind().await.unwrap();
                assert_eq!(Pin::new(&mut boxed).read_to_end(&mut all).await.unwrap(), 4);
                boxed.rewind().await.unwrap();
                let mut any: Box<dyn AsyncRead + Send + Unpin> = boxed;
                assert_eq!(any.read_to_string(&mut text).await.unwrap(), 4);
                let mut lines = BufReader::new(fs::File::open(&path).await.unwrap());
                assert_eq!(lines.read_to_end(&mut all).await.unwrap(), 4);
                assert_eq!(all, b"text".repeat(8));
                let file = fs::File::open(&path).await.unwrap();
                assert_eq!(file.take(3).read_to_string(&mut text).await.unwrap(), 3);
                assert_eq!(text, "texttexttex");
                let read = async move {
                    let mut all = Vec::new();
                    let mut file = fs::File::open(&path).await?;
                    file.read_to_end(&mut all).await
                };
                assert_eq!(::tokio::spawn(read).await.unwrap().unwrap(), 4);
            }

            #[::tokio::test]
            async fn a_write_in_flight_counts() {
                let dir = scratch();
                let mut options = fs::OpenOptions::new();
                options.read(true).write(true).create(true);
                let mut file = options.open(dir.path().join("file")).await.unwrap();
                file.write_all(&[b'x'; 100_000]).await.unwrap();
                file.rewind().await.unwrap();
                let mut all = Vec::new();
                assert_eq!(file.read_to_end(&mut all).await.unwrap(), 100_000);
                file.rewind().await.unwrap();
                file.write_all(b"yyy").await.unwrap();
                all.clear();
                assert_eq!(file.read_to_end(&mut all).await.unwrap(), 99_997);
                // The position of a clone.
                let mut clone = file.try_clone().await.unwrap();
                clone.seek(SeekFrom::Start(2)).await.unwrap();
                assert_eq!(file.read_to_end(&mut all).await.unwrap(), 99_998);
                assert_eq!(clone.read_to_end(&mut all).await.unwrap(), 0);
                assert!(all[99_997..].starts_with(b"yx"));
            }

            #[::tokio::test]
            async fn fifos_and_the_kernels_own_files_have_an_end() {
                let dir = scratch();
                let path = fifo(dir.path());
                let mut options = std::fs::OpenOptions::new();
                let mut to = options.read(true).write(true).open(&path).unwrap();
                let mut from = fs::File::open(&path).await.unwrap();
                let writer = std::thread::spawn(move || to.write_all(&[b'x'; 300_000]).unwrap());
                let mut text = "a fifo: ".to_string();
                assert_eq!(from.read_to_string(&mut text).await.unwrap(), 300_000);
                assert_eq!(text, format!("a fifo: {}", "x".repeat(300_000)));
                writer.join().unwrap();
                for path in [
                    "/proc/filesystems",
                    "/sys/kernel/mm/transparent_hugepage/enabled",
                ] {
                    let mut file = fs::File::open(path).await.unwrap();
                    let mut text = String::new();
                    file.read_to_string(&mut text).await.unwrap();
                    assert_eq!(text, std::fs::read_to_string(path).unwrap());
                }
            }

            #[::tokio::test]
            async fn errors_leave_what_was_there() {
                let dir = scratch();
                let path = dir.path().join("file");
                let mut text = "text".to_string();
                let mut all = b"all".to_vec();
                let mut file = fs::File::open(dir.path()).await.unwrap();
                let error = file.read_to_end(&mut all).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::IsADirectory);
                let mut file = fs::File::create(&path).await.unwrap();
                assert!(file.read_to_end(&mut all).await.is_err());
                assert!(file.read_to_string(&mut text).await.is_err());
                assert_eq!((&all[..], text.as_str()), (&b"all"[..], "text"));
                file.write_all(b"123\xff").await.unwrap();
                file.flush().await.unwrap();
                let mut file = fs::File::open(&path).await.unwrap();
                let error = file.read_to_string(&mut text).await.unwrap_err();
                assert_eq!(
                    (error.kind(), text.as_str()),
                    (ErrorKind::InvalidData, "text")
                );
                let why = "invalid utf-8 sequence of 1 bytes from index 7";
                assert_eq!(error.to_string(), why);
                assert_eq!(file.stream_position().await.unwrap(), 4);
            }

            #[::tokio::test]
            async fn a_future_that_is_dropped_leaves_the_bytes_that_it_has_read() {
                let dir = scratch();
                let path = fifo(dir.path());
                let mut options = std::fs::OpenOptions::new();
                let mut to = options.read(true).write(true).open(&path).unwrap();
                let mut from = fs::File::open(&path).await.unwrap();
                to.write_all(&[b'x'; 10_000]).unwrap();
                let mut all = b"all: ".to_vec();
                while all.len() < 10_000 {
                    let mut read = pin!(from.read_to_end(&mut all));
                    poll_fn(|cx| {
                        assert!(read.as_mut().poll(cx).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    ::tokio::task::yield_now().await;
                }
                to.write_all(b"yyy").unwrap();
                drop(to);
                from.read_to_end(&mut all).await.unwrap();
                assert_eq!(all, [&b"all: "[..], &[b'x'; 10_000], b"yyy"].concat());
            }
        }
    };
}

behaviours!(theirs, ::tokio::fs);
behaviours!(ours, nowait::tokio);

/// A read whose future was dropped has read all bytes, and a clone has moved the position back since.
#[::tokio::test]
async fn unread_bytes_come_before_those_at_the_position() {
    let dir = scratch();
    let path = dir.path().join("file");
    fs::write(&path, "12345").unwrap();
    let engine = Options::new().nowait_policy(NowaitPolicy::Never);
    let mut file = open(&path, &engine.build().unwrap(), false).await;
    let mut clone = file.try_clone().await.unwrap();
    {
        let mut bytes = [0; 5];
        let mut read = pin!(file.read(&mut bytes));
        poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    // Waits for the read.
    file.sync_data().await.unwrap();
    clone.rewind().await.unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "1234512345");
}

/// tokio's string is empty then.
#[::tokio::test]
async fn a_string_is_unchanged_if_the_future_is_dropped() {
    let dir = scratch();
    let path = fifo(dir.path());
    let mut options = fs::OpenOptions::new();
    let _to = options.read(true).write(true).open(&path).unwrap();
    let mut from = File::open(&path).await.unwrap();
    let mut text = "text".to_string();
    {
        let mut read = pin!(from.read_to_string(&mut text));
        poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    assert_eq!(text, "text");
}

#[test]
fn a_file_that_becomes_longer_is_not_returned_in_part() {
    let mount = mounted!(Filesystem::Xfs);
    let runtime = ::tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    growing::check(mount.path(), |path| {
        Some(runtime.block_on(nowait::tokio::read(path)).unwrap())
    });
    growing::check(mount.path(), |path| {
        let read = async {
            let mut bytes = Vec::new();
            let mut file = File::open(path).await.unwrap();
            file.read_to_end(&mut bytes).await.unwrap();
            bytes
        };
        Some(runtime.block_on(read))
    });
}
