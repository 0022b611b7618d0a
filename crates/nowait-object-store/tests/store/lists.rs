//! Lists are those of `LocalFileSystem`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path as FilePath;

use futures_util::TryStreamExt;
use proptest::prelude::*;
use test_support::opens;

use super::NowaitFileSystem;
use super::errors::variant;
use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{Error, ObjectMeta, ObjectStore};
use crate::common::scratch;

/// The objects of a list in order, or the variant of its error.
type Objects = Result<Vec<ObjectMeta>, &'static str>;

fn sorted(list: Result<Vec<ObjectMeta>, Error>) -> Objects {
    let mut list = list.map_err(|error| variant(&error))?;
    list.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(list)
}

async fn list(store: &dyn ObjectStore, prefix: Option<&Path>) -> Objects {
    sorted(store.list(prefix).try_collect().await)
}

async fn list_after(store: &dyn ObjectStore, prefix: Option<&Path>, offset: &Path) -> Objects {
    sorted(store.list_with_offset(prefix, offset).try_collect().await)
}

async fn delimited(store: &dyn ObjectStore, prefix: Option<&Path>) -> (Vec<Path>, Objects) {
    match store.list_with_delimiter(prefix).await {
        Ok(list) => (list.common_prefixes, sorted(Ok(list.objects))),
        Err(error) => (Vec::new(), Err(variant(&error))),
    }
}

/// Makes a tree of files, directories, links and FIFOs at these paths. Some cannot be made, because another file is in
/// their way.
fn tree(root: &FilePath, outside: &FilePath, entries: &[(String, u8)]) {
    std::fs::write(outside.join("file"), "outside").unwrap();
    for (path, kind) in entries {
        let path = root.join(path);
        let _ = std::fs::create_dir_all(path.parent().unwrap());
        let _ = match kind {
            0..5 => File::create_new(&path)
                .and_then(|mut file| file.write_all(b"bytes"))
                .is_ok(),
            // A link to itself would be an error of `LocalFileSystem` also where an offset excludes it.
            5 if path == root.join("a") => false,
            5 => symlink(root.join("a"), &path).is_ok(),
            6 => symlink(outside, &path).is_ok(),
            7 => symlink("nothing", &path).is_ok(),
            8 => rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).is_ok(),
            _ => std::fs::create_dir(&path).is_ok(),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn lists_are_those_of_local_file_system(
        entries in prop::collection::vec(("[ab]{1,2}(/[ab%]{1,2}(#[12])?){0,3}", 0u8..10), 1..30),
        prefix in "[ab]{1,2}(/[ab]{1,2})?",
        offset in "[ab]{0,2}(/[ab%]{1,2}){0,2}",
    ) {
        let (root, outside) = (scratch(), scratch());
        tree(root.path(), outside.path(), &entries);
        let ours = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let local = LocalFileSystem::new_with_prefix(root.path()).unwrap();
        let offset = Path::parse(offset).unwrap_or_default();
        let prefix = Path::parse(prefix).unwrap();
        pollster::block_on(async {
            // The prefix may be that of a file.
            for prefix in [None, Some(&prefix)] {
                assert_eq!(list(&ours, prefix).await, list(&local, prefix).await);
                assert_eq!(
                    list_after(&ours, prefix, &offset).await,
                    list_after(&local, prefix, &offset).await
                );
                assert_eq!(delimited(&ours, prefix).await, delimited(&local, prefix).await);
            }
        });
    }
}

/// A link may lead to a directory above the prefix, or above the root of the store.
#[tokio::test]
async fn links_to_directories_above_are_errors() {
    for up in [".", "..", "../..", "../../.."] {
        let root = scratch();
        std::fs::create_dir_all(root.path().join("a/b/other")).unwrap();
        symlink(up, root.path().join("a/b/link")).unwrap();
        let ours = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let local = LocalFileSystem::new_with_prefix(root.path()).unwrap();
        let prefix = Path::from("a/b");
        let expected = delimited(&local, Some(&prefix)).await;
        assert!(expected.1.is_err(), "{up}");
        assert_eq!(delimited(&ours, Some(&prefix)).await, expected, "{up}");
        // The link is no entry of this directory.
        let above = delimited(&ours, Some(&Path::from("a"))).await;
        assert_eq!(above, (vec![prefix], Ok(vec![])));
    }
}

#[tokio::test]
async fn large_directories_are_listed_completely() {
    let root = scratch();
    for dir in ["a", "a/b", "c"] {
        std::fs::create_dir(root.path().join(dir)).unwrap();
        for i in 0..3_000 {
            std::fs::write(root.path().join(format!("{dir}/{i}")), "bytes").unwrap();
        }
    }
    let ours = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let local = LocalFileSystem::new_with_prefix(root.path()).unwrap();
    let all = list(&ours, None).await.unwrap();
    assert_eq!(all.len(), 9_000);
    assert_eq!(Ok(all), list(&local, None).await);
    let offset = Path::from("a/b/5");
    let after = list_after(&ours, None, &offset).await;
    assert_eq!(after, list_after(&local, None, &offset).await);
    let after = after.unwrap().len();
    assert!(after > 3_000 && after < 9_000);
}

/// The list returns an error, as that of `LocalFileSystem` does.
#[tokio::test]
async fn names_that_are_no_locations_are_errors() {
    for name in [&b"\xff"[..], b"a\nb"] {
        let root = scratch();
        std::fs::write(root.path().join(OsStr::from_bytes(name)), "bytes").unwrap();
        let ours = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let local = LocalFileSystem::new_with_prefix(root.path()).unwrap();
        let stores: [&dyn ObjectStore; 2] = [&ours, &local];
        for store in stores {
            let list: Result<Vec<_>, _> = store.list(None).try_collect().await;
            let error = list.unwrap_err();
            assert!(matches!(error, Error::InvalidPath { .. }), "{error}");
            assert!(store.list_with_delimiter(None).await.is_err());
        }
    }
}

#[tokio::test]
async fn a_list_may_be_dropped() {
    let root = scratch();
    for i in 0..5_000 {
        std::fs::write(root.path().join(format!("{i}")), "bytes").unwrap();
    }
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let mut list = store.list(None);
    list.try_next().await.unwrap().unwrap();
    drop(list);
    assert_eq!(self::list(&store, None).await.unwrap().len(), 5_000);
}

/// Directories are opened relative to those above, and not by paths from the root, of which this tree has some that are
/// 32 KiB long.
#[test]
fn each_directory_of_16384_levels_is_opened_at_most_twice() {
    const ROOT: &str = "NOWAIT_TEST_ROOT";
    const LEVELS: usize = 16_384;
    const OBJECTS: usize = 32;
    if let Some(root) = std::env::var_os(ROOT) {
        let store = NowaitFileSystem::new_with_prefix(root).unwrap();
        let list: Vec<_> = pollster::block_on(store.list(None).try_collect()).unwrap();
        assert_eq!(list.len(), OBJECTS);
        return;
    }
    let root = scratch();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = slowdisk::require!(opens::traced(log.path()));
    opens::plant(root.path(), LEVELS, LEVELS / OBJECTS);
    let thread = std::thread::current();
    let output = command
        .arg(std::env::current_exe().unwrap())
        .args([thread.name().unwrap(), "--exact", "--nocapture"])
        .env(ROOT, root.path())
        .output()
        .unwrap();
    opens::remove(root.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("1 passed"), "{text}{errors}");
    // The test program itself needs some more.
    let opens = opens::count(log.path());
    assert!(
        (2 * LEVELS..=4 * LEVELS + 200).contains(&opens),
        "{opens} opens"
    );
}
