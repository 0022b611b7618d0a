//! The requests of fsync(2) of a store with `with_fsync`, as a filesystem without hard links receives them.

use std::fs::{self, File};
use std::path::{Path as FilePath, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slowdisk::{Linkless, LinklessTree};

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};
use crate::common::{alone, scratch, wait_until};

fn tree(directory: &FilePath) -> LinklessTree {
    let properties = Linkless {
        link: libc::EPERM,
        rename_flags: true,
    };
    LinklessTree::new(directory, properties).unwrap()
}

fn store(tree: &LinklessTree) -> NowaitFileSystem {
    let store = NowaitFileSystem::new_with_prefix(tree.path()).unwrap();
    store.with_fsync(true)
}

/// Returns true if a thread of this process waits for a lock of the kernel.
fn a_thread_waits() -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let mut states = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    });
    states.any(|state| state == 'D')
}

/// A put that finds the directory which another has created and not synced yet syncs its name, too.
#[test]
fn a_put_does_not_end_before_its_directory_is_durable() {
    alone(|| {
        slowdisk::require!(slowdisk::available());
        let directory = scratch();
        let tree = tree(directory.path());
        let root = PathBuf::new();
        tree.stall_syncs(Some(root.clone()));
        let put = |name: &'static str| {
            // Another store of the process.
            let store = store(&tree);
            std::thread::spawn(move || {
                pollster::block_on(store.put(&Path::from(name), "bytes".into())).unwrap();
            })
        };
        let first = put("d/a");
        wait_until("nothing is synced", || tree.syncs() == [root.clone()]);
        let second = put("d/b");
        // It has found the directory, and then waits for the lock of the root, or syncs its file.
        wait_until("the second put hangs", || {
            second.is_finished() || tree.syncs().len() > 1 || a_thread_waits()
        });
        assert!(tree.syncs().len() == 1, "{:?}", tree.syncs());
        tree.stall_syncs(None);
        first.join().unwrap();
        second.join().unwrap();
        let syncs = tree.syncs();
        let of_root = syncs.iter().filter(|path| **path == root).count();
        assert_eq!(of_root, 2, "{syncs:?}");
        // All is durable: a further put syncs its file and its directory.
        put("d/c").join().unwrap();
        let more = tree.syncs().split_off(syncs.len());
        assert_eq!(more, ["d/c#1", "d"].map(PathBuf::from));
    });
}

#[test]
fn a_file_is_synced_before_it_gets_its_name_and_its_directory_afterwards() {
    alone(|| {
        slowdisk::require!(slowdisk::available());
        let directory = scratch();
        let tree = tree(directory.path());
        let store = store(&tree);
        pollster::block_on(async {
            let at = |name: &str| Path::from(name);
            let mut seen = 0;
            let mut synced = |expected: &[&str]| {
                let syncs = tree.syncs();
                let new: Vec<_> = syncs[seen..]
                    .iter()
                    .map(|path| path.to_str().unwrap())
                    .collect();
                assert_eq!(new, expected);
                seen = syncs.len();
            };
            let (first, create) = (at("d/a"), PutMode::Create.into());
            store.put_opts(&first, "a".into(), create).await.unwrap();
            synced(&["", "d/a#1", "d"]);
            store.copy(&at("d/a"), &at("e/b")).await.unwrap();
            synced(&["", "e/b#1", "e"]);
            store
                .copy_if_not_exists(&at("d/a"), &at("e/c"))
                .await
                .unwrap();
            synced(&["e/c#1", "e"]);
            store.rename(&at("d/a"), &at("f/a")).await.unwrap();
            synced(&["d/a", "", "f", "d"]);
            store
                .rename_if_not_exists(&at("f/a"), &at("e/d"))
                .await
                .unwrap();
            synced(&["f/a", "e", "f"]);
        });
    });
}

/// Another writer replaces the object after it was synced, and few descriptors are free when it has its new name.
#[test]
fn a_rename_whose_second_sync_has_no_descriptor_is_not_repeated() {
    alone(|| {
        slowdisk::require!(slowdisk::available());
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit {
            current: Some(200),
            maximum,
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let failed = (0..12).filter(|free| rename_with_descriptors(*free).is_err());
        assert!(failed.count() > 0, "each rename had descriptors");
    });
}

/// A rename of an object that is replaced meanwhile. This number of descriptors is free.
fn rename_with_descriptors(free: usize) -> Result<(), Error> {
    let directory = scratch();
    let tree = tree(directory.path());
    let store = store(&tree);
    pollster::block_on(store.put(&Path::from("d/a"), "old".into())).unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::write(at("d/new"), "new").unwrap();
    // The object was synced when the directory of the new name is created.
    let before = tree.syncs().len();
    tree.stall_syncs(Some(PathBuf::new()));
    let rename = std::thread::spawn({
        let (store, from, to) = (store.clone(), Path::from("d/a"), Path::from("e/b"));
        move || pollster::block_on(store.rename(&from, &to))
    });
    wait_until("nothing is synced", || tree.syncs().len() == before + 2);
    fs::rename(at("d/new"), at("d/a")).unwrap();
    let mut others = Vec::new();
    while let Ok(file) = File::open("/proc/self/status") {
        others.push(file);
    }
    others.truncate(others.len() - free);
    tree.stall_syncs(None);
    let renamed = rename.join().unwrap();
    drop(others);
    if let Err(error) = &renamed {
        assert!(error.to_string().contains("os error 24"), "{free}: {error}");
    }
    let is_moved = at("e/b").exists();
    assert!(is_moved || renamed.is_err());
    let now = if is_moved { "e/b" } else { "d/a" };
    assert_eq!(fs::read(at(now)).unwrap(), b"new");
    renamed
}
