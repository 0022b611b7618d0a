//! Objects that are created, copied and renamed where their files can have no second name: without hard links, and
//! across mounts.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path as FilePath;

use futures_util::future::join_all;
use slowdisk::{Filesystem, TestMount};

use super::NowaitFileSystem;
use super::local::integration;
use super::object_store::path::Path;
use super::object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutResult,
};
use crate::common::{alone, names, pattern, scratch};
use crate::places::{Place, deny_links};

/// A store, and the same with durable changes.
fn stores(root: &FilePath) -> [NowaitFileSystem; 2] {
    let store = NowaitFileSystem::new_with_prefix(root).unwrap();
    [store.clone(), store.with_fsync(true)]
}

fn at(location: impl Into<String>) -> Path {
    Path::from(location.into())
}

async fn create(store: &NowaitFileSystem, to: &str, text: &str) -> Result<PutResult, Error> {
    let options = PutMode::Create.into();
    store
        .put_opts(&at(to), text.to_owned().into(), options)
        .await
}

async fn read(store: &NowaitFileSystem, location: &str) -> String {
    let get = store.get(&at(location)).await.unwrap();
    String::from_utf8(get.bytes().await.unwrap().to_vec()).unwrap()
}

fn exists<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
}

/// All calls that give an object a name.
async fn each_call_works(store: &NowaitFileSystem, root: &FilePath) {
    let put = create(store, "d/a", "a").await.unwrap();
    assert_eq!(store.head(&at("d/a")).await.unwrap().e_tag, put.e_tag);
    exists(create(store, "d/a", "other").await);
    store.put(&at("d/b"), "old".into()).await.unwrap();
    for to in ["d/b", "e/c", "d/a"] {
        store.copy(&at("d/a"), &at(to)).await.unwrap();
        assert_eq!(read(store, to).await, "a");
    }
    store
        .copy_if_not_exists(&at("d/a"), &at("f/d"))
        .await
        .unwrap();
    store.put(&at("d/a"), "new".into()).await.unwrap();
    exists(store.copy_if_not_exists(&at("d/a"), &at("f/d")).await);
    assert_eq!(read(store, "f/d").await, "a");
    store.rename(&at("d/a"), &at("e/c")).await.unwrap();
    store
        .rename_if_not_exists(&at("e/c"), &at("g/e"))
        .await
        .unwrap();
    exists(store.rename_if_not_exists(&at("d/b"), &at("g/e")).await);
    exists(store.rename_if_not_exists(&at("g/e"), &at("g/e")).await);
    assert_eq!(read(store, "g/e").await, "new");
    let mut upload = store.put_multipart(&at("g/parts")).await.unwrap();
    for text in ["some ", "parts"] {
        upload.put_part(text.into()).await.unwrap();
    }
    upload.complete().await.unwrap();
    assert_eq!(read(store, "g/parts").await, "some parts");
    // A symbolic link stands for its file.
    symlink("e", root.join("g/link")).unwrap();
    store.copy(&at("g/link"), &at("h/copy")).await.unwrap();
    store
        .rename_if_not_exists(&at("g/link"), &at("h/moved"))
        .await
        .unwrap();
    for name in ["h/copy", "h/moved"] {
        assert!(fs::symlink_metadata(root.join(name)).unwrap().is_file());
        assert_eq!(read(store, name).await, "new");
    }
    for (directory, expected) in [
        ("d", &["b"] as &[&str]),
        ("e", &[]),
        ("f", &["d"]),
        ("g", &["e", "parts"]),
        ("h", &["copy", "moved"]),
    ] {
        assert_eq!(names(&root.join(directory)), expected, "{directory}");
        fs::remove_dir_all(root.join(directory)).unwrap();
    }
    assert_eq!(names(root), [""; 0]);
}

#[tokio::test]
async fn each_call_works_without_hard_links() {
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS, libc::EMLINK] {
        let place = slowdisk::require!(Place::linkless(errno, true));
        for store in stores(place.root()) {
            each_call_works(&store, place.root()).await;
        }
    }
}

#[tokio::test]
async fn each_call_works_on_each_filesystem() {
    for place in slowdisk::require!(Place::all()) {
        for store in stores(place.root()) {
            each_call_works(&store, place.root()).await;
        }
    }
}

#[tokio::test]
async fn the_tests_of_all_stores_pass_without_hard_links() {
    for durable in [false, true] {
        let place = slowdisk::require!(Place::linkless(libc::EPERM, true));
        let store = NowaitFileSystem::new_with_prefix(place.root()).unwrap();
        integration(&store.with_fsync(durable)).await;
    }
}

/// Nothing can create an object only if there is none.
#[tokio::test]
async fn a_creation_is_not_supported_without_hard_links_and_flags_of_renames() {
    let place = slowdisk::require!(Place::linkless(libc::EPERM, false));
    for store in stores(place.root()) {
        store.put(&at("a"), "a".into()).await.unwrap();
        store.copy(&at("a"), &at("b")).await.unwrap();
        store.rename(&at("a"), &at("c")).await.unwrap();
        for refused in [
            create(&store, "new", "new").await.map(drop),
            store.copy_if_not_exists(&at("b"), &at("new")).await,
            store.rename_if_not_exists(&at("b"), &at("new")).await,
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::NotSupported { .. }), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains("/new") && text.contains("hard links"),
                "{text}"
            );
        }
        exists(create(&store, "b", "new").await);
        exists(store.copy_if_not_exists(&at("b"), &at("c")).await);
        exists(store.rename_if_not_exists(&at("b"), &at("c")).await);
        assert_eq!(names(place.root()), ["b", "c"]);
        for name in ["b", "c"] {
            assert_eq!(read(&store, name).await, "a");
            store.delete(&at(name)).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_sixteen_creations_succeeds_on_each_filesystem() {
    for place in slowdisk::require!(Place::all()) {
        let [store, _] = stores(place.root());
        for round in 0..20 {
            let task = |i: usize| {
                let (store, from) = (store.clone(), format!("{i}"));
                tokio::spawn(async move {
                    let to = format!("new{round}");
                    match i % 4 {
                        0 => {
                            store.put(&at(&*from), from.clone().into()).await.unwrap();
                            store.copy_if_not_exists(&at(&*from), &at(to)).await
                        }
                        1 => {
                            store.put(&at(&*from), from.clone().into()).await.unwrap();
                            store.rename_if_not_exists(&at(&*from), &at(to)).await
                        }
                        _ => create(&store, &to, &from).await.map(drop),
                    }
                })
            };
            let created = join_all((0..16).map(task)).await;
            let created: Vec<_> = created.into_iter().map(Result::unwrap).collect();
            let won: Vec<_> = (0..16).filter(|i| created[*i].is_ok()).collect();
            assert_eq!(won.len(), 1, "{}: {created:?}", place.name);
            created.into_iter().filter(Result::is_err).for_each(exists);
            let text = read(&store, &format!("new{round}")).await;
            assert_eq!(text, won[0].to_string(), "{}", place.name);
        }
        let left = names(place.root());
        assert!(left.iter().all(|name| !name.contains('#')), "{left:?}");
    }
}

/// Writers commit versions as Delta Lake does: the next version that no other writer has created.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_of_several_writers_have_a_version_each() {
    const WRITERS: usize = 8;
    const COMMITS: usize = 10;
    let linkless = slowdisk::require!(Place::linkless(libc::EPERM, true));
    let ext4 = slowdisk::require!(Place::new(Filesystem::Ext4));
    for place in [linkless, ext4] {
        let writer = |writer: usize| {
            // Each process has a store of its own.
            let [_, store] = stores(place.root());
            tokio::spawn(async move {
                let mut version = 0;
                for commit in 0..COMMITS {
                    let text = format!("{writer} {commit}");
                    loop {
                        let to = format!("_delta_log/{version:020}.json");
                        version += 1;
                        let committed = if writer.is_multiple_of(2) {
                            create(&store, &to, &text).await.map(drop)
                        } else {
                            let from = at(format!("_delta_log/_commit_{writer}.tmp"));
                            store.put(&from, text.clone().into()).await.unwrap();
                            store.rename_if_not_exists(&from, &at(to)).await
                        };
                        match committed {
                            Ok(()) => break,
                            lost => exists(lost),
                        }
                    }
                }
            })
        };
        for writer in join_all((0..WRITERS).map(writer)).await {
            writer.unwrap();
        }
        let [store, _] = stores(place.root());
        let mut found = Vec::new();
        for version in 0..WRITERS * COMMITS {
            found.push(read(&store, &format!("_delta_log/{version:020}.json")).await);
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), WRITERS * COMMITS, "{}", place.name);
    }
}

/// Each pair of filesystems is below one root.
#[tokio::test]
async fn objects_are_copied_and_renamed_across_mounts() {
    let places = slowdisk::require!(Place::all());
    let root = scratch();
    for place in &places {
        symlink(place.root(), root.path().join(&place.name)).unwrap();
    }
    let text: String = (0..50_000).map(|i| format!("{i} ")).collect();
    for store in stores(root.path()) {
        for [from, to] in pairs(&names(root.path())) {
            let path = |name: &str| root.path().join(name);
            let source = format!("{from}/a");
            store.put(&at(&*source), text.clone().into()).await.unwrap();
            fs::set_permissions(path(&source), Permissions::from_mode(0o600)).unwrap();
            let target = |name: &str| format!("{to}/d/{name}");
            store.put(&at(target("copy")), "old".into()).await.unwrap();
            store
                .copy(&at(&*source), &at(target("copy")))
                .await
                .unwrap();
            let new = at(target("new"));
            store.copy_if_not_exists(&at(&*source), &new).await.unwrap();
            exists(store.copy_if_not_exists(&at(&*source), &new).await);
            exists(store.rename_if_not_exists(&at(&*source), &new).await);
            let renamed = at(target("renamed"));
            store.rename(&at(&*source), &renamed).await.unwrap();
            assert!(!path(&source).exists());
            let mode = path(&target("renamed")).metadata().unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{from} {to}");
            store.put(&at(&*source), text.clone().into()).await.unwrap();
            let moved = at(target("moved"));
            store
                .rename_if_not_exists(&at(&*source), &moved)
                .await
                .unwrap();
            assert!(!path(&source).exists());
            let expected = ["copy", "moved", "new", "renamed"];
            assert_eq!(names(&path(&format!("{to}/d"))), expected, "{from} {to}");
            for name in expected {
                assert!(
                    read(&store, &target(name)).await == text,
                    "{from} {to} {name}"
                );
                store.delete(&at(target(name))).await.unwrap();
            }
        }
    }
}

fn pairs(names: &[String]) -> Vec<[&str; 2]> {
    let mut pairs = Vec::new();
    for from in names {
        pairs.extend(
            names
                .iter()
                .filter(|to| *to != from)
                .map(|to| [&**from, &**to]),
        );
    }
    pairs
}

/// A mount that is removed when this value is dropped.
struct Bound<'a>(&'a FilePath);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// link(2) and rename(2) fail between two mounts of one directory. The copy then has the name of the object.
#[tokio::test]
async fn an_object_that_is_renamed_to_itself_on_another_mount_stays() {
    let place = slowdisk::require!(Place::new(Filesystem::Tmpfs));
    let root = place.root();
    for name in ["a", "b"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let second = root.join("b");
    rustix::mount::mount_bind(root.join("a"), &second).unwrap();
    let _bound = Bound(&second);
    for store in stores(root) {
        store.put(&at("a/object"), "bytes".into()).await.unwrap();
        store
            .rename(&at("a/object"), &at("b/object"))
            .await
            .unwrap();
        assert_eq!(read(&store, "a/object").await, "bytes");
        store.copy(&at("a/object"), &at("b/object")).await.unwrap();
        exists(
            store
                .rename_if_not_exists(&at("a/object"), &at("b/object"))
                .await,
        );
        assert_eq!(read(&store, "b/object").await, "bytes");
        store.rename(&at("a/object"), &at("b/other")).await.unwrap();
        assert_eq!(names(&root.join("a")), ["other"]);
        store.delete(&at("a/other")).await.unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_gets_no_part_of_a_copy() {
    for filesystem in [Filesystem::Tmpfs, Filesystem::Ext4] {
        slowdisk::require!(filesystem.available());
        let small = TestMount::builder(filesystem).size(16 << 20).build();
        let small = Place::of(small.unwrap());
        let root = scratch();
        symlink(small.root(), root.path().join("small")).unwrap();
        for store in stores(root.path()) {
            let large = pattern(32 << 20);
            store.put(&at("large"), large.clone().into()).await.unwrap();
            store.put(&at("small/old"), "old".into()).await.unwrap();
            for (to, left) in [("small/old", true), ("small/new", false)] {
                let (from, to) = (at("large"), at(to));
                for failed in [
                    store.copy(&from, &to).await,
                    store.rename(&from, &to).await,
                    store.copy_if_not_exists(&from, &to).await,
                    store.rename_if_not_exists(&from, &to).await,
                ] {
                    let error = failed.unwrap_err();
                    let full = error.to_string().contains("os error 28");
                    let exists = left && matches!(error, Error::AlreadyExists { .. });
                    assert!(full || exists, "{filesystem}: {error}");
                    assert_eq!(names(small.root()), ["old"]);
                }
            }
            assert_eq!(read(&store, "small/old").await, "old");
            assert!(
                store
                    .get(&at("large"))
                    .await
                    .unwrap()
                    .bytes()
                    .await
                    .unwrap()
                    == large
            );
        }
    }
}

/// A filesystem that ends while it gets a copy has none of it, or all, and the object keeps its name until then.
#[test]
fn a_dead_disk_keeps_the_object_at_its_old_name() {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::new(filesystem).unwrap();
        let root = scratch();
        symlink(mount.path(), root.path().join("dead")).unwrap();
        let stores = stores(root.path());
        pollster::block_on(async {
            let bytes = pattern(300_000);
            stores[0].put(&at("a"), bytes.clone().into()).await.unwrap();
            mount.shut_down(slowdisk::Log::Lost).unwrap();
            for store in &stores {
                let (from, to) = (at("a"), at("dead/b"));
                store.copy(&from, &to).await.unwrap_err();
                store.copy_if_not_exists(&from, &to).await.unwrap_err();
                store.rename(&from, &to).await.unwrap_err();
                store.rename_if_not_exists(&from, &to).await.unwrap_err();
                let read = store.get(&from).await.unwrap().bytes().await.unwrap();
                assert!(read == bytes);
            }
        });
        drop(stores);
        mount.remount().unwrap();
        assert!(!mount.path().join("b").exists());
    }
}

/// A file of an ext4 has at most 65,000 names.
#[tokio::test]
async fn an_object_with_as_many_names_as_it_can_have_is_copied() {
    let place = slowdisk::require!(Place::new(Filesystem::Ext4));
    let [store, _] = stores(place.root());
    store.put(&at("a"), "bytes".into()).await.unwrap();
    let names_of = place.root().join("names");
    fs::create_dir(&names_of).unwrap();
    let file = place.root().join("a");
    // With the temporary name of a copy it has all.
    (2..65_000).for_each(|i| fs::hard_link(&file, names_of.join(i.to_string())).unwrap());
    store.copy_if_not_exists(&at("a"), &at("b")).await.unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 65_000);
    store.copy_if_not_exists(&at("a"), &at("c")).await.unwrap();
    store.copy(&at("a"), &at("d")).await.unwrap();
    store
        .rename_if_not_exists(&at("a"), &at("e"))
        .await
        .unwrap();
    assert_eq!(names(place.root()), ["b", "c", "d", "e", "names"]);
    for name in ["b", "c", "d", "e"] {
        assert_eq!(read(&store, name).await, "bytes");
    }
}

#[test]
fn a_copy_shares_its_blocks_where_the_filesystem_can() {
    alone(|| {
        for filesystem in [Filesystem::Xfs, Filesystem::Btrfs] {
            slowdisk::require!(filesystem.available());
        }
        let places = [Filesystem::Xfs, Filesystem::Btrfs];
        let places = places.map(|filesystem| Place::new(filesystem).unwrap());
        deny_links(libc::EPERM);
        for place in places {
            let [store, _] = stores(place.root());
            pollster::block_on(async {
                let bytes = pattern(1_000_000);
                store.put(&at("a"), bytes.into()).await.unwrap();
                store.copy(&at("a"), &at("b")).await.unwrap();
            });
            let files = ["a", "b"].map(|name| fs::File::open(place.root().join(name)).unwrap());
            let [a, b] = &files;
            assert_ne!(a.metadata().unwrap().ino(), b.metadata().unwrap().ino());
            let [a, b] = [a, b].map(|file| slowdisk::extents(file).unwrap());
            assert_eq!(a, b, "{}", place.name);
        }
    });
}
