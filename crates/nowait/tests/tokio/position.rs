//! The stream of `nowait::tokio::File` follows the kernel's file position: all users of an open file
//! description continue where the others stopped, and no accepted byte is lost. Each case also runs on
//! `tokio::fs`.

use std::fs::File as StdFile;
use std::future::Future;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use ::tokio::runtime::{Builder, Runtime};
use futures_util::future::poll_fn;
use nowait::engine::{Engine, Options};
use slowdisk::{Fault, Filesystem, TestMount, extents};

use crate::common::cache::evict;
use crate::common::files::{pattern, scratch};
use crate::common::limit::Limit;
use crate::common::rig::{PAGE, Rig};
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

const SIZE: usize = 300_000;

fn bare() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Polls a future once and drops it.
async fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

fn read_write(path: &Path) -> StdFile {
    let mut options = StdFile::options();
    options.read(true).write(true).create(true);
    options.truncate(false).open(path).unwrap()
}

macro_rules! cases {
    ($face:ident, $fs:path) => {
        mod $face {
            use $fs as fs;

            use super::*;

            /// Makes a file of one of the two libraries from the standard library's.
            pub type From<'a> = &'a dyn Fn(StdFile) -> fs::File;

            /// Runs all cases in a directory of its own.
            pub async fn all(from: From<'_>, dir: &Path) {
                clones_that_end(from, &dir.join("a")).await;
                children_that_write(from, &dir.join("b")).await;
                children_that_read(from, &dir.join("c")).await;
                standard_files(from, &dir.join("d")).await;
                duplicates(from, &dir.join("e")).await;
                raw_seeks(from, &dir.join("f")).await;
                files_without_pwrite(from).await;
            }

            /// Bytes that a clone has accepted are written even if the clone was dropped.
            async fn clones_that_end(from: From<'_>, path: &Path) {
                for flush in [false, true] {
                    for _ in 0..20 {
                        let _ = std::fs::remove_file(path);
                        let mut first = from(read_write(path));
                        let mut second = first.try_clone().await.unwrap();
                        first.write_all(&vec![b'A'; 100_000]).await.unwrap();
                        if flush {
                            first.flush().await.unwrap();
                        }
                        drop(first);
                        second.write_all(&vec![b'B'; 100_000]).await.unwrap();
                        second.flush().await.unwrap();
                        drop(second);
                        // With tokio the first write may come second.
                        let count = |byte| {
                            let got = std::fs::read(path).unwrap();
                            got.iter().filter(|b| **b == byte).count()
                        };
                        wait_until("both are there", || {
                            (count(b'A'), count(b'B')) == (100_000, 100_000)
                        });
                    }
                }
            }

            async fn children_that_write(from: From<'_>, path: &Path) {
                let mut file = from(read_write(path));
                file.write_all(b"parent\n").await.unwrap();
                file.flush().await.unwrap();
                for _ in 0..3 {
                    let out = file.try_clone().await.unwrap().into_std().await;
                    let mut child = Command::new("echo").arg("child").stdout(out).spawn();
                    assert!(child.as_mut().unwrap().wait().unwrap().success());
                    file.write_all(b"parent\n").await.unwrap();
                    file.flush().await.unwrap();
                }
                let got = std::fs::read_to_string(path).unwrap();
                assert_eq!(got, ["parent\n"; 4].join("child\n"));
            }

            async fn children_that_read(from: From<'_>, path: &Path) {
                std::fs::write(path, pattern(0, SIZE)).unwrap();
                for cold in [false, true] {
                    if cold {
                        evict(path);
                    }
                    let mut file = from(StdFile::open(path).unwrap());
                    let mut got = vec![0; 1000];
                    for round in 0..4 {
                        file.read_exact(&mut got).await.unwrap();
                        assert!(got == pattern(round * 2000, 1000));
                        let input = file.try_clone().await.unwrap().into_std().await;
                        let mut head = Command::new("dd");
                        head.args(["bs=1000", "count=1"]).stderr(Stdio::null());
                        let output = head.stdin(input).output().unwrap();
                        assert!(output.stdout == pattern(round * 2000 + 1000, 1000));
                    }
                }
            }

            async fn standard_files(from: From<'_>, path: &Path) {
                let mut file = from(read_write(path));
                let mut clone = file.try_clone().await.unwrap();
                file.write_all(b"first").await.unwrap();
                let mut std = file.into_std().await;
                assert_eq!(std.stream_position().unwrap(), 5);
                std.write_all(b" second").unwrap();
                clone.write_all(b" third").await.unwrap();
                clone.flush().await.unwrap();
                std.write_all(b" fourth").unwrap();
                let mut rest = from(std.try_clone().unwrap());
                rest.write_all(b" fifth").await.unwrap();
                rest.flush().await.unwrap();
                let Ok(std) = clone.try_into_std() else {
                    panic!("nothing is on its way")
                };
                (&std).write_all(b" sixth").unwrap();
                let got = std::fs::read_to_string(path).unwrap();
                assert_eq!(got, "first second third fourth fifth sixth");
            }

            async fn duplicates(from: From<'_>, path: &Path) {
                std::fs::write(path, pattern(0, SIZE)).unwrap();
                let mut file = from(read_write(path));
                let owned = file.as_fd().try_clone_to_owned().unwrap();
                let mut plain = StdFile::from(owned.try_clone().unwrap());
                let mut other = from(owned.into());
                let mut got = vec![0; 100];
                for round in 0..5 {
                    let at = round * 300;
                    file.read_exact(&mut got).await.unwrap();
                    assert!(got == pattern(at, 100));
                    plain.read_exact(&mut got).unwrap();
                    assert!(got == pattern(at + 100, 100));
                    other.read_exact(&mut got).await.unwrap();
                    assert!(got == pattern(at + 200, 100));
                    assert_eq!(file.stream_position().await.unwrap(), at + 300);
                }
                file.seek(SeekFrom::End(-3)).await.unwrap();
                other.write_all(b"xyz").await.unwrap();
                other.flush().await.unwrap();
                plain.write_all(b"!").unwrap();
                assert_eq!(std::fs::read(path).unwrap()[SIZE - 3..], *b"xyz!");
            }

            async fn raw_seeks(from: From<'_>, path: &Path) {
                std::fs::write(path, pattern(0, SIZE)).unwrap();
                for cold in [false, true] {
                    if cold {
                        evict(path);
                    }
                    let mut file = from(StdFile::open(path).unwrap());
                    let mut got = vec![0; 100];
                    for at in [0, 5, 200_000, 4096] {
                        let to = rustix::fs::SeekFrom::Start(at);
                        rustix::fs::seek(&file, to).unwrap();
                        file.read_exact(&mut got).await.unwrap();
                        assert!(got == pattern(at, 100));
                        assert_eq!(rustix::fs::tell(&file).unwrap(), at + 100);
                        let by = SeekFrom::Current(-50);
                        assert_eq!(file.seek(by).await.unwrap(), at + 50);
                        assert_eq!(rustix::fs::tell(&file).unwrap(), at + 50);
                    }
                }
            }

            /// Regular files that support write(2) but not pwrite(2).
            async fn files_without_pwrite(from: From<'_>) {
                let before = std::fs::read("/proc/self/comm").unwrap();
                let path = Path::new("/proc/self/comm");
                let mut comm = from(StdFile::options().write(true).open(path).unwrap());
                comm.write_all(b"position").await.unwrap();
                comm.flush().await.unwrap();
                assert_eq!(std::fs::read(path).unwrap(), b"position\n");
                std::fs::write(path, before).unwrap();

                let mut child = Command::new("unshare");
                child.args(["--user", "cat"]).stdin(Stdio::piped());
                let mut child = child.stdout(Stdio::null()).spawn().unwrap();
                let path = format!("/proc/{}/uid_map", child.id());
                let own = std::fs::read_link("/proc/self/ns/user").unwrap();
                let theirs = format!("/proc/{}/ns/user", child.id());
                wait_until("a user namespace", || {
                    std::fs::read_link(&theirs).unwrap() != own
                });
                let mut map = from(StdFile::options().write(true).open(&path).unwrap());
                map.write_all(b"7 0 1\n").await.unwrap();
                map.flush().await.unwrap();
                let said = std::fs::read_to_string(&path).unwrap();
                assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["7", "0", "1"]);
                drop(child.stdin.take());
                child.wait().unwrap();

                let Ok(file) = StdFile::options().write(true).open("/proc/pressure/io") else {
                    return slowdisk::skip_or_fail("/proc/pressure is missing (CONFIG_PSI)");
                };
                let mut pressure = from(file);
                for (n, errno) in [(0, None), (1, Some(libc::EBUSY))] {
                    pressure.write_all(b"some 900000 2000000\0").await.unwrap();
                    let said = pressure.flush().await.err().map(|e| e.raw_os_error());
                    assert_eq!(said.flatten(), errno, "trigger {n}");
                }
            }
        }
    };
}

cases!(theirs, ::tokio::fs);
cases!(ours, ::nowait::tokio);

fn on(engine: &Engine, std: StdFile) -> nowait::tokio::File {
    nowait::File::from_fd(std, engine).unwrap().into()
}

fn everywhere_in(dir: &Path) {
    let sub = |name: &str| {
        let path = dir.join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let _limit = Limit::new("positions".to_owned());
    bare().block_on(theirs::all(&::tokio::fs::File::from_std, &sub("theirs")));
    each_shared(Options::new(), |engine| {
        let dir = sub(engine.backend().name());
        bare().block_on(ours::all(&|std| on(engine, std), &dir));
    });
}

#[test]
fn who_shares_a_file_shares_its_position() {
    everywhere_in(scratch().path());
}

#[test]
fn who_shares_a_file_in_memory_shares_its_position() {
    let tmpfs = slowdisk::require!(TestMount::new(Filesystem::Tmpfs));
    everywhere_in(tmpfs.path());
}

#[test]
fn who_shares_a_file_of_an_overlay_shares_its_position() {
    slowdisk::require!(Filesystem::Overlay.available());
    let overlay = TestMount::new(Filesystem::Overlay).unwrap();
    everywhere_in(overlay.path());
}

#[test]
fn a_trace_is_written_and_read() {
    let at = tempfile::tempdir().unwrap();
    let Ok(_mount) = slowdisk::Mount::new("none", at.path(), "tracefs", "") else {
        return slowdisk::skip_or_fail("no tracefs");
    };
    each_shared(Options::new(), |engine| {
        let name = format!("nowait-{}-{}", std::process::id(), engine.backend());
        let own = at.path().join("instances").join(name);
        std::fs::create_dir(&own).unwrap();
        let instance = Instance(&own);
        let mut options = StdFile::options();
        let marker = options.write(true).open(own.join("trace_marker")).unwrap();
        let pipe = StdFile::open(own.join("trace_pipe")).unwrap();
        bare().block_on(async {
            let (mut marker, mut pipe) = (on(engine, marker), on(engine, pipe));
            for n in 0..3 {
                let mark = format!("mark {n} of a test");
                marker.write_all(mark.as_bytes()).await.unwrap();
                marker.flush().await.unwrap();
                let mut got = String::new();
                while !got.contains(&mark) {
                    let mut room = [0; 4096];
                    let n = pipe.read(&mut room).await.unwrap();
                    got.push_str(std::str::from_utf8(&room[..n]).unwrap());
                }
            }
        });
        drop(instance);
        assert!(!own.exists());
    });
}

/// An instance of the kernel's tracing. Unmounting tracefs does not remove it.
struct Instance<'a>(&'a Path);

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        // EBUSY until a worker has closed its files.
        wait_until("it is removed", || std::fs::remove_dir(self.0).is_ok());
    }
}

/// Writes are made in the order in which they were accepted. tokio does not promise that.
#[test]
fn clones_write_in_the_order_in_which_they_were_asked() {
    let dir = scratch();
    each_shared(Options::new(), |engine| {
        let path = dir.path().join(engine.backend().name());
        bare().block_on(async {
            let first = on(engine, read_write(&path));
            let mut files = vec![first.try_clone().await.unwrap()];
            for _ in 0..7 {
                files.push(first.try_clone().await.unwrap());
            }
            let mut want = Vec::new();
            for round in 0..20 {
                for (n, file) in files.iter_mut().enumerate() {
                    let piece = vec![b'a' + n as u8; 100 + round * 1000 % 7000];
                    file.write_all(&piece).await.unwrap();
                    want.extend(piece);
                }
            }
            for file in &mut files {
                file.flush().await.unwrap();
            }
            assert!(std::fs::read(&path).unwrap() == want);
        });
    });
}

#[test]
fn a_clone_waits_for_the_position_in_a_queue_and_not_in_its_caller() {
    slowdisk::require!(slowdisk::available());
    let rig = Rig::new();
    each_shared(Options::new(), |engine| {
        let path = rig.cold("file");
        bare().block_on(async {
            let mut first = on(engine, read_write(&path));
            let mut second = first.try_clone().await.unwrap();
            let mut third = first.try_clone().await.unwrap();
            let stall = rig.fault(&path, Fault::stall);
            let (mut a, mut b) = ([0; PAGE], [0; PAGE]);
            assert!(poll_once(first.read(&mut a)).await.is_pending());
            wait_until("the disk has it", || rig.disk.stalled() > 0);
            // None of these waits in this thread, which ends the stall.
            for _ in 0..3 {
                assert!(poll_once(second.read(&mut b)).await.is_pending());
                assert!(
                    poll_once(third.seek(SeekFrom::Current(7)))
                        .await
                        .is_pending()
                );
            }
            assert!(rig.disk.stalled() > 0);
            rig.release(stall);
            first.read_exact(&mut a).await.unwrap();
            assert!(a == *pattern(0, PAGE));
            second.read_exact(&mut b).await.unwrap();
            assert!(b == *pattern(PAGE as u64, PAGE));
            let at = third.stream_position().await.unwrap();
            assert_eq!(at, 2 * PAGE as u64 + 7);
        });
    });
}

/// A read by a duplicate, as in another process, that the disk stalls.
#[test]
fn a_file_whose_position_others_hold_is_read_by_workers() {
    slowdisk::require!(slowdisk::available());
    let rig = Rig::new();
    each_shared(Options::new(), |engine| {
        let path = rig.cold("file");
        let std = StdFile::open(&path).unwrap();
        // Only the requested pages are read.
        let random = |file: &StdFile| {
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random).unwrap();
        };
        random(&std);
        let other = StdFile::open(&path).unwrap();
        random(&other);
        other.read_exact_at(&mut [0; PAGE], PAGE as u64).unwrap();
        let start = extents(&std).unwrap()[0].start;
        let stall = |page: u64| {
            let at = start + page * PAGE as u64;
            let fault = Fault::stall(at..at + PAGE as u64).reads_only();
            rig.disk.inject(fault)
        };
        let [first, second] = [stall(0), stall(32)];
        let mut holder = std.try_clone().unwrap();
        let mut file = on(engine, std);
        let (go, on) = std::sync::mpsc::channel();
        std::thread::scope(|s| {
            let held = s.spawn(move || {
                holder.read_exact(&mut [0; PAGE]).unwrap();
                on.recv().unwrap();
                holder.seek(SeekFrom::Start(32 * PAGE as u64)).unwrap();
                holder.read_exact(&mut [0; PAGE]).unwrap();
            });
            wait_until("the disk has it", || rig.disk.stalled() > 0);
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                rig.disk.release(first);
            });
            let mut got = [0; 10];
            // The caller can't know of the other read: this read waits for its end.
            let Poll::Ready(read) = bare().block_on(poll_once(file.read(&mut got))) else {
                panic!("a hit");
            };
            assert_eq!(read.unwrap(), 10);
            assert_eq!(got, pattern(PAGE as u64, 10)[..]);
            go.send(()).unwrap();
            wait_until("the disk has the next", || rig.disk.stalled() > 0);
            for _ in 0..3 {
                let read = bare().block_on(poll_once(file.read(&mut got)));
                assert!(read.is_pending());
            }
            assert!(rig.disk.stalled() > 0 && !held.is_finished());
            rig.disk.release(second);
            bare().block_on(file.read_exact(&mut got)).unwrap();
            assert_eq!(got, pattern(33 * PAGE as u64, 10)[..]);
        });
    });
}

#[test]
fn a_seek_subtracts_unread_bytes_also_after_a_clone_has_moved_the_position() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Ext4.available());
    // So slow that the first poll of the read does not complete it.
    let rig = Rig::with_latency(Duration::from_millis(20));
    each_shared(Options::new(), |engine| {
        let path = rig.cold("moved");
        let len = std::fs::metadata(&path).unwrap().len();
        bare().block_on(async {
            let mut file = on(engine, StdFile::open(&path).unwrap());
            let mut clone = file.try_clone().await.unwrap();
            let mut buf = vec![0; 2 * len as usize];
            assert!(poll_once(file.read(&mut buf)).await.is_pending());
            // The read brings the whole file, and nothing takes its bytes.
            assert_eq!(clone.seek(SeekFrom::Start(8_115)).await.unwrap(), 8_115);
            let by = len as i64 - 8_115;
            assert_eq!(file.seek(SeekFrom::Current(by)).await.unwrap(), 0);
            assert_eq!(clone.stream_position().await.unwrap(), 0);
            // A seek that fails moves nothing.
            let n = file.read(&mut buf).await.unwrap() as u64;
            assert!(file.seek(SeekFrom::Current(-1 - len as i64)).await.is_err());
            assert_eq!(file.stream_position().await.unwrap(), n);
        });
    });
}
