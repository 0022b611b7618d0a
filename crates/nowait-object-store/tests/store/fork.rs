//! A forked child of a store has neither its threads nor its locks.
#![allow(unsafe_code, reason = "fork(2)")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt};
use crate::common::{alone, evict, names, open_below, pattern, scratch, wait_until};

/// Runs `body` in a forked child, which ends without the destructors of its parent.
fn forked(body: impl FnOnce()) {
    // SAFETY: the child runs `body` and ends. No other thread holds a lock that `body` needs: glibc resets its own locks
    // in the child, and the locks of the store are what is tested.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let ended = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: ends the process at once.
            unsafe { nix::libc::_exit(i32::from(ended.is_err())) };
        }
        ForkResult::Parent { child } => {
            let mut status = WaitStatus::StillAlive;
            wait_until("the child hangs", || {
                status = waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap();
                status != WaitStatus::StillAlive
            });
            assert_eq!(status, WaitStatus::Exited(child, 0), "its message is above");
        }
    }
}

fn at(location: &str) -> Path {
    Path::from(location)
}

fn read(store: &NowaitFileSystem, location: &str) -> Result<Vec<u8>, Error> {
    pollster::block_on(async {
        let bytes = store.get(&at(location)).await?.bytes().await?;
        Ok(bytes.to_vec())
    })
}

fn files(root: &FilePath) {
    for i in 0..40 {
        std::fs::write(root.join(format!("{i}")), pattern(100_000 + i)).unwrap();
    }
}

#[test]
fn a_child_opens_its_files_itself_and_keeps_none_open() {
    alone(|| {
        let root = scratch();
        files(root.path());
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        for i in 0..10 {
            read(&store, &format!("{i}")).unwrap();
        }
        let mut upload = pollster::block_on(store.put_multipart(&at("upload"))).unwrap();
        pollster::block_on(upload.put_part("one, ".into())).unwrap();
        let mut upload = Some(upload);
        forked(|| {
            // The engine of the parent's files reads nothing here.
            evict(&root.path().join("3"));
            let open = open_below(root.path()).len();
            for i in 0..40 {
                for _ in 0..3 {
                    let bytes = read(&store, &format!("{i}")).unwrap();
                    assert!(bytes == pattern(100_000 + i));
                }
            }
            assert_eq!(open_below(root.path()).len(), open);
            assert_eq!(store.stats().open_descriptors, 0);
            pollster::block_on(async {
                store.put(&at("child"), "child".into()).await.unwrap();
                store.copy(&at("child"), &at("0")).await.unwrap();
                assert_eq!(read(&store, "0").unwrap(), b"child");
                store.rename(&at("child"), &at("1")).await.unwrap();
                store.delete(&at("2")).await.unwrap();
                let list: Vec<_> = store.list(None).try_collect().await.unwrap();
                assert_eq!(list.len(), 39);
                // The upload is the parent's.
                let mut upload = upload.take().unwrap();
                upload.put_part("child".into()).await.unwrap_err();
                upload.complete().await.unwrap_err();
                upload.abort().await.unwrap_err();
                drop(upload);
            });
            let store = store.clone().with_open_files(3);
            // A store of the child keeps files open.
            let own = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
            read(&own, "5").unwrap();
            assert_eq!(own.stats().open_descriptors, 1);
            drop((store, own));
        });
        assert_eq!(read(&store, "0").unwrap(), b"child");
        let mut upload = upload.unwrap();
        pollster::block_on(upload.put_part("two".into())).unwrap();
        pollster::block_on(upload.complete()).unwrap();
        assert_eq!(read(&store, "upload").unwrap(), b"one, two");
        assert!(names(root.path()).iter().all(|name| !name.contains('#')));
        drop(store);
        wait_until("files are open", || open_below(root.path()).is_empty());
    });
}

/// A lock that another thread held at the fork is never free in the child.
#[test]
fn a_child_waits_for_no_lock_of_its_parent() {
    alone(|| {
        let root = scratch();
        files(root.path());
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for t in 0..3 {
                let (store, over) = (store.clone(), &over);
                scope.spawn(move || {
                    let mut i = t;
                    while !over.load(Ordering::Relaxed) {
                        i = (i + 7) % 40;
                        read(&store, &format!("{i}")).unwrap();
                    }
                });
            }
            // Also if a child fails.
            let _end = End(&over);
            for _ in 0..60 {
                forked(|| {
                    for i in 0..5 {
                        read(&store, &format!("{i}")).unwrap();
                    }
                    pollster::block_on(store.delete(&at("missing"))).unwrap_err();
                    drop(store.clone());
                });
            }
        });
    });
}

/// Ends the threads when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
