//! Bad input has the results that it has in `LocalFileSystem`.

use std::path::Path as FilePath;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryStreamExt};
use proptest::prelude::*;

use super::object_store::local::LocalFileSystem;
use super::object_store::path::Path;
use super::object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, UpdateVersion,
};
use super::{NowaitFileSystem, QUOTE};
use crate::common::scratch;

/// The name of an error's variant.
pub fn variant(error: &Error) -> &'static str {
    match error {
        Error::Generic { .. } => "Generic",
        Error::NotFound { .. } => "NotFound",
        Error::InvalidPath { .. } => "InvalidPath",
        Error::AlreadyExists { .. } => "AlreadyExists",
        Error::Precondition { .. } => "Precondition",
        Error::NotModified { .. } => "NotModified",
        Error::NotImplemented { .. } => "NotImplemented",
        Error::PermissionDenied { .. } => "PermissionDenied",
        other => panic!("{other:?}"),
    }
}

/// A call, and its result as text: the variant of the error, and its path if it has one.
type Call = fn(&'static dyn ObjectStore) -> BoxFuture<'static, Result<String, Error>>;

/// Makes a call of a store.
macro_rules! call {
    (|$store:ident| $body:expr) => {
        (|$store: &'static dyn ObjectStore| {
            async move { $body.await.map(|result| format!("{result:?}")) }.boxed()
        }) as Call
    };
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// A directory with `file` (5 bytes), `dir/file`, and links.
fn tree(root: &FilePath) {
    std::fs::create_dir(root.join("dir")).unwrap();
    std::fs::write(root.join("file"), "bytes").unwrap();
    std::fs::write(root.join("dir/file"), "bytes").unwrap();
    std::fs::write(root.join("other"), "others").unwrap();
    std::os::unix::fs::symlink("nothing", root.join("dangling")).unwrap();
    std::os::unix::fs::symlink("circle", root.join("circle")).unwrap();
    std::os::unix::fs::symlink("..", root.join("dir/up")).unwrap();
}

async fn get(
    store: &dyn ObjectStore,
    location: &str,
    options: GetOptions,
) -> Result<(std::ops::Range<u64>, bytes::Bytes), Error> {
    let get = store.get_opts(&path(location), options).await?;
    let range = get.range.clone();
    Ok((range, get.bytes().await?))
}

async fn ranged(
    store: &dyn ObjectStore,
    range: impl Into<GetRange>,
) -> Result<(std::ops::Range<u64>, bytes::Bytes), Error> {
    let range = Some(range.into());
    let options = GetOptions {
        range,
        ..GetOptions::default()
    };
    get(store, "file", options).await
}

async fn put(store: &dyn ObjectStore, location: &str, mode: PutMode) -> Result<(), Error> {
    let location = path(location);
    let put = store.put_opts(&location, "new".into(), mode.into());
    put.await.map(|_| ())
}

async fn conditional(
    store: &dyn ObjectStore,
    set: impl FnOnce(&mut GetOptions, &str),
) -> Result<(std::ops::Range<u64>, bytes::Bytes), Error> {
    let e_tag = store.head(&path("file")).await?.e_tag.unwrap();
    let mut options = GetOptions::default();
    set(&mut options, &e_tag);
    get(store, "file", options).await
}

async fn list(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<String>, Error> {
    let list = store.list(Some(&path(prefix)));
    let list: Vec<_> = list.try_collect().await?;
    Ok(list.into_iter().map(|o| o.location.to_string()).collect())
}

fn attributes() -> Attributes {
    Attributes::from_iter([(Attribute::ContentType, "text/plain")])
}

fn calls() -> Vec<(&'static str, Call)> {
    macro_rules! calls {
        ($($(#[$attribute:meta])? |$store:ident| $body:expr;)*) => {
            vec![$((stringify!($body), call!(|$store| $body))),*]
        };
    }
    calls![
        |s| get(s, "missing", GetOptions::default());
        |s| get(s, "dir", GetOptions::default());
        |s| get(s, "dir/missing", GetOptions::default());
        |s| get(s, "missing/missing", GetOptions::default());
        |s| get(s, "file/below", GetOptions::default());
        |s| get(s, "dangling", GetOptions::default());
        |s| get(s, "circle", GetOptions::default());
        |s| get(s, "", GetOptions::default());
        |s| get(s, "file#1", GetOptions::default());
        |s| get(s, "dir/up/file", GetOptions::default());
        |s| get(s, "%2E%2E/file", GetOptions::default());
        |s| get(s, "a%2Fb", GetOptions::default());
        |s| ranged(s, 0..5);
        |s| ranged(s, 1..100);
        |s| ranged(s, 5..6);
        |s| ranged(s, 6..7);
        |s| ranged(s, 3..3);
        |s| ranged(s, GetRange::Bounded(std::ops::Range { start: 4, end: 2 }));
        |s| ranged(s, 0..u64::MAX);
        |s| ranged(s, 5..);
        |s| ranged(s, 4..);
        |s| ranged(s, GetRange::Suffix(0));
        |s| ranged(s, GetRange::Suffix(3));
        |s| ranged(s, GetRange::Suffix(300));
        |s| s.get_range(&path("file"), 3..3);
        |s| async { s.get_ranges(&path("file"), &[0..2, 4..6]).await };
        |s| async { s.get_ranges(&path("file"), &[5..6]).await };
        |s| async { s.get_ranges(&path("file"), &[9..9]).await };
        |s| async { s.get_ranges(&path("missing"), &[0..1]).await };
        |s| async { s.get_ranges(&path("missing"), &[]).await };
        |s| async { s.get_ranges(&path("file#1"), &[]).await };
        |s| conditional(s, |o, tag| o.if_match = Some(tag.to_owned()));
        |s| conditional(s, |o, _| o.if_match = Some("other".to_owned()));
        |s| conditional(s, |o, _| o.if_match = Some("*".to_owned()));
        |s| conditional(s, |o, tag| o.if_none_match = Some(tag.to_owned()));
        |s| conditional(s, |o, tag| o.if_none_match = Some(format!("other, {tag}")));
        |s| conditional(s, |o, _| o.if_none_match = Some("other".to_owned()));
        |s| conditional(s, |o, _| o.if_modified_since = Some(chrono::DateTime::UNIX_EPOCH));
        |s| conditional(s, |o, _| o.if_modified_since = Some(chrono::Utc::now()));
        |s| conditional(s, |o, _| o.if_unmodified_since = Some(chrono::DateTime::UNIX_EPOCH));
        |s| conditional(s, |o, _| o.if_unmodified_since = Some(chrono::Utc::now()));
        |s| conditional(s, |o, _| o.head = true);
        |s| async { s.head(&path("file")).await.map(|meta| (meta.size, meta.version)) };
        |s| put(s, "file", PutMode::Create);
        |s| put(s, "created", PutMode::Create);
        |s| put(s, "created", PutMode::Create);
        |s| put(s, "file", PutMode::Update(UpdateVersion { e_tag: None, version: None }));
        |s| put(s, "dir", PutMode::Overwrite);
        |s| put(s, "dir", PutMode::Create);
        |s| put(s, "file/below", PutMode::Overwrite);
        |s| put(s, "", PutMode::Overwrite);
        |s| put(s, "file#1", PutMode::Overwrite);
        |s| async {
            let options = PutOptions { attributes: attributes(), ..PutOptions::default() };
            s.put_opts(&path("file"), "new".into(), options).await
        };
        |s| async {
            let attributes = attributes();
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            s.put_multipart_opts(&path("file"), options).await.map(|_| ())
        };
        |s| async { s.put_multipart(&path("file#1")).await.map(|_| ()) };
        |s| async { s.delete(&path("missing")).await };
        |s| async { s.delete(&path("dir")).await };
        |s| async { s.delete(&path("file/below")).await };
        |s| async { s.delete(&path("file#1")).await };
        |s| async { s.copy(&path("missing"), &path("copy")).await };
        |s| async { s.copy(&path("file"), &path("dir")).await };
        |s| async { s.copy(&path("file"), &path("other/below")).await };
        |s| async { s.copy(&path("dir"), &path("copy")).await };
        |s| async { s.copy(&path("file"), &path("copy#1")).await };
        |s| async { s.copy(&path("file"), &path("new/copy")).await };
        |s| async { s.copy(&path("file"), &path("other")).await };
        |s| async { s.copy_if_not_exists(&path("file"), &path("other")).await };
        |s| async { s.copy_if_not_exists(&path("file"), &path("new/other")).await };
        |s| async { s.copy_if_not_exists(&path("missing"), &path("new/third")).await };
        |s| async { s.rename(&path("missing"), &path("renamed")).await };
        |s| async { s.rename(&path("file"), &path("dir")).await };
        |s| async { s.rename(&path("new/copy"), &path("newer/copy")).await };
        |s| async { s.rename_if_not_exists(&path("newer/copy"), &path("file")).await };
        |s| async { s.rename_if_not_exists(&path("newer/copy"), &path("newest/copy")).await };
        |s| async { s.rename_if_not_exists(&path("newer/copy"), &path("newest/other")).await };
        |s| list(s, "missing");
        |s| list(s, "file");
        |s| list(s, "file/below");
        |s| list(s, "newest");
        |s| list(s, "dangling");
        |s| list(s, "circle");
        |s| async { s.list_with_delimiter(Some(&path("missing"))).await };
        |s| async { s.list_with_delimiter(Some(&path("file"))).await };
        |s| async { s.list_with_delimiter(Some(&path("file/below"))).await };
        |s| async { s.list_with_delimiter(Some(&path("dir/up/newest"))).await.map(|l| l.objects.len()) };
        |s| list(s, "dir");
    ]
}

#[tokio::test]
async fn each_call_has_the_result_that_it_has_in_local_file_system() {
    let (ours, theirs) = (scratch(), scratch());
    tree(ours.path());
    tree(theirs.path());
    let stores: [(&FilePath, &'static dyn ObjectStore); 2] = [
        (
            ours.path(),
            Box::leak(Box::new(
                NowaitFileSystem::new_with_prefix(ours.path()).unwrap(),
            )),
        ),
        (
            theirs.path(),
            Box::leak(Box::new(
                LocalFileSystem::new_with_prefix(theirs.path()).unwrap(),
            )),
        ),
    ];
    for (text, call) in calls() {
        let mut results = Vec::new();
        for (root, store) in stores {
            results.push(match call(store).await {
                Ok(result) => result,
                Err(error) => {
                    let at = match &error {
                        Error::NotFound { path, .. }
                        | Error::AlreadyExists { path, .. }
                        | Error::Precondition { path, .. }
                        | Error::NotModified { path, .. } => {
                            path.replace(root.to_str().unwrap(), "ROOT")
                        }
                        _ => String::new(),
                    };
                    format!("{} {at}", variant(&error))
                }
            });
        }
        assert_eq!(results[0], results[1], "{text}");
    }
    assert_eq!(
        crate::common::names(ours.path()),
        crate::common::names(theirs.path())
    );
}

#[tokio::test]
async fn metadata_is_that_of_local_file_system() {
    let root = scratch();
    tree(root.path());
    let ours = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let local = LocalFileSystem::new_with_prefix(root.path()).unwrap();
    let file = std::fs::File::open(root.path().join("file")).unwrap();
    let location = path("file");
    for (seconds, nanoseconds) in [(1, 0), (1_700_000_000, 123_456_789), (0, 999), (-5, 7)] {
        let time = rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(&file, &times).unwrap();
        let (ours, theirs) = (ours.head(&location).await, local.head(&location).await);
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!(ours, theirs);
        assert_eq!(ours.e_tag.unwrap().starts_with('"'), !QUOTE.is_empty());
    }
}

/// tmpfs accepts times that chrono does not have.
#[tokio::test]
async fn times_beyond_all_calendars_are_the_last_one() {
    slowdisk::require!(slowdisk::Filesystem::Tmpfs.available());
    let mount = slowdisk::TestMount::new(slowdisk::Filesystem::Tmpfs).unwrap();
    let file = std::fs::File::create(mount.path().join("file")).unwrap();
    let store = NowaitFileSystem::new_with_prefix(mount.path()).unwrap();
    for (seconds, time) in [
        (i64::MAX / 2, chrono::DateTime::<chrono::Utc>::MAX_UTC),
        (i64::MIN / 2, chrono::DateTime::<chrono::Utc>::MIN_UTC),
    ] {
        let tv_sec = seconds;
        let time_of_file = rustix::fs::Timespec { tv_sec, tv_nsec: 0 };
        let times = rustix::fs::Timestamps {
            last_access: time_of_file,
            last_modification: time_of_file,
        };
        rustix::fs::futimens(&file, &times).unwrap();
        let meta = store.head(&path("file")).await.unwrap();
        assert_eq!(meta.last_modified, time);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_location_is_the_file_that_it_is_in_local_file_system(
        location in "[ -~äß💀]{1,4}(/[ -~ä.%#\\\\]{1,5}){0,3}",
    ) {
        let root = FilePath::new("/usr/share");
        let ours = NowaitFileSystem::new_with_prefix(root).unwrap();
        let local = LocalFileSystem::new_with_prefix(root).unwrap();
        let locations = [Path::parse(&location).ok(), Some(Path::from(location.as_str()))];
        for location in locations.into_iter().flatten() {
            let file = ours.path_to_filesystem(&location).ok();
            prop_assert!(file.as_ref().is_none_or(|file| file.starts_with(root)));
            prop_assert_eq!(&file, &local.path_to_filesystem(&location).ok());
        }
    }
}
