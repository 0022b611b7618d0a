//! Objects of a store with `with_fsync`, on filesystems that end without a flush of their log, as in a power cut.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path as FilePath;

use slowdisk::{Filesystem, Log, TestMount};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use crate::common::{alone, names, pattern};
use crate::places::deny_links;

/// A store whose objects are durable, and one of the same directory whose objects are not.
struct Stores {
    durable: NowaitFileSystem,
    plain: NowaitFileSystem,
}

impl Stores {
    fn new(root: &FilePath) -> Stores {
        let plain = NowaitFileSystem::new_with_prefix(root).unwrap();
        Stores {
            durable: plain.clone().with_fsync(true),
            plain,
        }
    }

    /// Puts an object that is not durable.
    async fn put(&self, location: &str) {
        self.plain.put(&at(location), bytes().into()).await.unwrap();
    }
}

fn at(location: &str) -> Path {
    Path::from(location)
}

fn bytes() -> Vec<u8> {
    pattern(300_000)
}

/// A call after which `object` has the bytes, and the other names do not exist.
macro_rules! case {
    ($object:literal, [$($gone:literal),*], |$stores:ident, $root:ident| $body:expr) => {{
        let run = |$stores: &Stores, $root: &FilePath| {
            let _ = $root;
            pollster::block_on(async { $body }).unwrap();
        };
        (stringify!($body), run as fn(&Stores, &FilePath), $object, &[$($gone),*] as &[&str])
    }};
}

type Case = (
    &'static str,
    fn(&Stores, &FilePath),
    &'static str,
    &'static [&'static str],
);

fn cases() -> Vec<Case> {
    vec![
        case!("a", ["a#1"], |s, root| s
            .durable
            .put(&at("a"), bytes().into())
            .await),
        case!("a", ["a#1"], |s, root| {
            s.durable.put(&at("a"), "old".into()).await.unwrap();
            s.durable.put(&at("a"), bytes().into()).await
        }),
        case!("a", ["a#1"], |s, root| {
            let options = PutMode::Create.into();
            s.durable.put_opts(&at("a"), bytes().into(), options).await
        }),
        case!("x/y/z/a", ["x/y/z/a#1"], |s, root| s
            .durable
            .put(&at("x/y/z/a"), bytes().into())
            .await),
        // The directory was created by another, and not synced.
        case!("x/y/a", ["x/y/a#1"], |s, root| {
            s.put("x/y/other").await;
            s.durable.put(&at("x/y/a"), bytes().into()).await
        }),
        case!("x/y/a", ["x/y/a#1"], |s, root| {
            let mut upload = s.durable.put_multipart(&at("x/y/a")).await.unwrap();
            for part in bytes().chunks(100_000) {
                let part = PutPayload::from(part.to_vec());
                upload.put_part(part).await.unwrap();
            }
            upload.complete().await
        }),
        case!("b", [], |s, root| {
            s.put("a").await;
            s.durable.copy(&at("a"), &at("b")).await
        }),
        case!("b", [], |s, root| {
            s.durable.put(&at("b"), "old".into()).await.unwrap();
            s.put("a").await;
            s.durable.copy(&at("a"), &at("b")).await
        }),
        case!("x/y/b", [], |s, root| {
            s.put("a").await;
            s.durable.copy(&at("a"), &at("x/y/b")).await
        }),
        case!("x/b", [], |s, root| {
            s.put("a").await;
            s.durable.copy_if_not_exists(&at("a"), &at("x/b")).await
        }),
        case!("x/b", [], |s, root| {
            s.put("d/a").await;
            symlink("a", root.join("d/link")).unwrap();
            s.durable.copy(&at("d/link"), &at("x/b")).await
        }),
        case!("b", ["a"], |s, root| {
            s.put("a").await;
            s.durable.rename(&at("a"), &at("b")).await
        }),
        case!("x/y/b", ["d/a"], |s, root| {
            s.durable.put(&at("d/a"), "old".into()).await.unwrap();
            s.put("d/a").await;
            s.durable.rename(&at("d/a"), &at("x/y/b")).await
        }),
        case!("x/b", ["d/a"], |s, root| {
            s.durable.put(&at("d/a"), "old".into()).await.unwrap();
            s.put("d/a").await;
            s.durable.rename_if_not_exists(&at("d/a"), &at("x/b")).await
        }),
        case!("x/b", ["d/link"], |s, root| {
            s.put("d/a").await;
            symlink("a", root.join("d/link")).unwrap();
            s.durable.rename(&at("d/link"), &at("x/b")).await
        }),
        // Two names of one file.
        case!("b", ["a"], |s, root| {
            s.put("a").await;
            s.durable.copy(&at("a"), &at("b")).await.unwrap();
            s.durable.rename(&at("a"), &at("b")).await
        }),
        case!("a", [], |s, root| {
            s.put("a").await;
            s.durable.rename(&at("a"), &at("a")).await
        }),
    ]
}

/// Calls whose two names are on two filesystems: `other` is on the second one.
fn cases_across_mounts() -> Vec<Case> {
    vec![
        case!("other/b", [], |s, root| {
            s.put("a").await;
            s.durable.copy(&at("a"), &at("other/b")).await
        }),
        case!("other/x/b", [], |s, root| {
            s.put("a").await;
            s.durable.put(&at("other/x/b"), "old".into()).await.unwrap();
            s.durable.copy(&at("a"), &at("other/x/b")).await
        }),
        case!("other/x/b", [], |s, root| {
            s.put("a").await;
            s.durable
                .copy_if_not_exists(&at("a"), &at("other/x/b"))
                .await
        }),
        case!("other/b", ["a"], |s, root| {
            s.durable.put(&at("a"), bytes().into()).await.unwrap();
            s.durable.rename(&at("a"), &at("other/b")).await
        }),
        case!("other/x/b", ["d/a"], |s, root| {
            s.durable.put(&at("d/a"), bytes().into()).await.unwrap();
            s.durable
                .rename_if_not_exists(&at("d/a"), &at("other/x/b"))
                .await
        }),
        // The object was durable, and is not lost.
        case!("other/b", [], |s, root| {
            s.durable.put(&at("a"), bytes().into()).await.unwrap();
            s.plain.rename(&at("a"), &at("other/b")).await
        }),
        case!("other/b", [], |s, root| {
            s.durable.put(&at("a"), bytes().into()).await.unwrap();
            s.plain.rename_if_not_exists(&at("a"), &at("other/b")).await
        }),
        case!("x/b", ["other/a"], |s, root| {
            s.durable.put(&at("other/a"), bytes().into()).await.unwrap();
            s.durable.rename(&at("other/a"), &at("x/b")).await
        }),
    ]
}

fn after_a_power_cut(filesystem: Filesystem, cases: Vec<Case>) {
    slowdisk::require!(filesystem.available());
    let mounts = [(); 2].map(|()| TestMount::new(filesystem).unwrap());
    let [mount, other] = &mounts;
    for (number, (text, run, object, gone)) in cases.into_iter().enumerate() {
        let root = mount.path().join(format!("{number}"));
        fs::create_dir(&root).unwrap();
        let second = other.path().join(format!("{number}"));
        fs::create_dir(&second).unwrap();
        symlink(second, root.join("other")).unwrap();
        mounts.iter().for_each(|mount| mount.sync().unwrap());
        run(&Stores::new(&root), &root);
        for mount in &mounts {
            mount.shut_down(Log::Lost).unwrap();
            mount.remount().unwrap();
        }
        let read = fs::read(root.join(object));
        assert!(
            read.as_ref().is_ok_and(|read| *read == bytes()),
            "{filesystem}: {text}: {:?} bytes",
            read.map(|read| read.len())
        );
        for name in gone {
            assert!(!root.join(name).exists(), "{filesystem}: {text}: {name}");
        }
    }
    // The test can detect a loss.
    let root = mount.path().join("plain");
    fs::create_dir(&root).unwrap();
    mount.sync().unwrap();
    pollster::block_on(Stores::new(&root).put("a"));
    assert_eq!(names(&root), ["a"]);
    mount.shut_down(Log::Lost).unwrap();
    mount.remount().unwrap();
    assert_ne!(fs::read(root.join("a")).unwrap_or_default(), bytes());
}

#[test]
fn objects_of_with_fsync_are_there_after_a_power_cut_on_ext4() {
    after_a_power_cut(Filesystem::Ext4, cases());
}

#[test]
fn objects_of_with_fsync_are_there_after_a_power_cut_on_xfs() {
    after_a_power_cut(Filesystem::Xfs, cases());
}

#[test]
fn objects_on_another_mount_are_there_after_a_power_cut() {
    after_a_power_cut(Filesystem::Ext4, cases_across_mounts());
    after_a_power_cut(Filesystem::Xfs, cases_across_mounts());
}

/// Bytes are copied, and names are given by renames.
#[test]
fn objects_without_hard_links_are_there_after_a_power_cut() {
    alone(|| {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
            slowdisk::require!(filesystem.available());
        }
        deny_links(libc::EPERM);
        after_a_power_cut(Filesystem::Ext4, cases());
        after_a_power_cut(Filesystem::Xfs, cases());
    });
}

/// Each call on a filesystem that was shut down is an error, or returns bytes that were cached before.
#[test]
fn a_filesystem_that_was_shut_down_is_an_error() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        let stores = Stores::new(mount.path());
        pollster::block_on(async {
            stores.durable.put(&at("a"), bytes().into()).await.unwrap();
            let read = stores.plain.get_range(&at("a"), 0..300_000).await;
            assert!(read.unwrap() == bytes());
            let mut upload = stores.durable.put_multipart(&at("parts")).await.unwrap();
            upload.put_part(bytes().into()).await.unwrap();
            mount.shut_down(Log::Lost).unwrap();
            if let Ok(read) = stores.plain.get_range(&at("a"), 0..300_000).await {
                assert!(read == bytes());
            }
            for store in [&stores.plain, &stores.durable] {
                store.put(&at("b"), bytes().into()).await.unwrap_err();
                store.copy(&at("a"), &at("b")).await.unwrap_err();
                store.rename(&at("a"), &at("b")).await.unwrap_err();
                store.delete(&at("a")).await.unwrap_err();
                store.put_multipart(&at("b")).await.unwrap_err();
            }
            upload.complete().await.unwrap_err();
        });
        drop(stores);
        mount.remount().unwrap();
        assert!(fs::read(mount.path().join("a")).unwrap() == bytes());
    }
}
