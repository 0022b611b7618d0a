//! A walk does not enter symbolic links, other filesystems, or its own ancestors.

use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use nowait::StatxMask;
use nowait::{ErrorKind, Walk, walk};
use rustix::fs::OFlags;
use rustix::io::Errno;
use slowdisk::{Filesystem, TestMount};

use crate::common::by_workers::by_workers;
use crate::common::files::scratch;
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::sandbox::{deny, sandboxed};
use crate::directories::{engines, fill};

/// The paths that a walk returned, and its errors.
fn paths(walk: Walk) -> (HashSet<PathBuf>, Vec<nowait::Error>) {
    let (mut found, mut errors) = (HashSet::new(), Vec::new());
    for entry in walk {
        match entry {
            Ok(entry) => assert!(
                found.insert(entry.path()),
                "{} twice",
                entry.path().display()
            ),
            Err(error) => errors.push(error),
        }
    }
    (found, errors)
}

/// With and without metadata. Without it the directory tells the type of an entry.
fn both(engine: &nowait::Engine) -> [walk::Options; 2] {
    let plain = walk::Options::new().engine(engine);
    [plain.clone(), plain.metadata(StatxMask::BASIC_STATS)]
}

#[test]
fn links_are_not_followed_unless_asked_for() {
    let root = scratch();
    let elsewhere = scratch();
    fill(elsewhere.path(), "outside", 5);
    fill(&root.path().join("inside"), "f", 3);
    symlink(elsewhere.path(), root.path().join("to elsewhere")).unwrap();
    symlink("inside", root.path().join("to inside")).unwrap();
    symlink("nowhere", root.path().join("broken")).unwrap();
    for engine in engines() {
        for options in both(&engine) {
            let (found, errors) = paths(options.blocking_open(root.path()).unwrap());
            assert_eq!((found.len(), errors.len()), (4 + 3, 0));
            let (found, errors) = paths(
                options
                    .follow_links(true)
                    .blocking_open(root.path())
                    .unwrap(),
            );
            assert_eq!(
                (found.len(), errors.len()),
                (4 + 3 + 5 + 3, 0),
                "{found:?} {errors:?}"
            );
            assert!(found.contains(&root.path().join("to elsewhere/outside3")));
        }
    }
}

#[test]
fn a_circle_of_links_is_an_error_and_the_rest_comes() {
    let root = scratch();
    fill(&root.path().join("a/b"), "f", 3);
    symlink("../..", root.path().join("a/b/up")).unwrap();
    symlink(".", root.path().join("self")).unwrap();
    symlink("loop", root.path().join("loop")).unwrap();
    for engine in engines() {
        let _limit = Limit::new("a circle".into());
        for options in both(&engine) {
            let (found, errors) = paths(
                options
                    .clone()
                    .follow_links(true)
                    .blocking_open(root.path())
                    .unwrap(),
            );
            // a, self, loop; a/b; three files and up.
            assert_eq!(found.len(), 3 + 1 + 4, "{found:?}");
            assert_eq!(errors.len(), 2, "{errors:?}");
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::Cycle);
                let path = error.path().unwrap();
                assert!(path.ends_with("up") || path.ends_with("self"), "{error}");
            }
            let (_, errors) = paths(options.blocking_open(root.path()).unwrap());
            assert!(errors.is_empty());
        }
    }
}

/// A bind mount, undone on drop.
struct Bind(PathBuf);

impl Bind {
    fn new(what: &Path, at: &Path) -> Bind {
        rustix::mount::mount_bind(what, at).unwrap();
        Bind(at.to_owned())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_directory_bound_into_itself_is_an_error_and_the_rest_comes() {
    slowdisk::require!(slowdisk::available());
    let mount = mounted!(Filesystem::Ext4);
    let root = mount.path().join("root");
    fill(&root.join("a/again"), "f", 0);
    fill(&root.join("a"), "f", 3);
    let _bind = Bind::new(&root, &root.join("a/again"));
    for engine in engines() {
        let _limit = Limit::new("a bind mount".into());
        for options in both(&engine) {
            let (found, errors) = paths(options.blocking_open(&root).unwrap());
            assert_eq!(found.len(), 1 + 4);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].kind(), ErrorKind::Cycle);
            assert_eq!(errors[0].path(), Some(root.join("a/again").as_path()));
        }
    }
}

#[test]
fn one_filesystem_is_enough_if_so_wished() {
    slowdisk::require!(slowdisk::available());
    let mount = mounted!(Filesystem::Ext4);
    let other = mount.path().join("other");
    fill(&mount.path().join("own"), "f", 3);
    std::fs::create_dir(&other).unwrap();
    let inner = TestMount::builder(Filesystem::Tmpfs)
        .at(&other)
        .build()
        .unwrap();
    fill(inner.path(), "g", 4);
    for engine in engines() {
        for options in both(&engine) {
            let all = paths(options.clone().blocking_open(mount.path()).unwrap()).0;
            // own, other, lost+found.
            assert_eq!(all.len(), 3 + 3 + 4);
            let (one, errors) = paths(
                options
                    .one_filesystem(true)
                    .blocking_open(mount.path())
                    .unwrap(),
            );
            assert_eq!((one.len(), errors.len()), (3 + 3, 0));
            assert!(one.contains(&other), "its own entry comes");
        }
    }
}

#[test]
fn a_file_with_several_names_comes_by_each() {
    let root = scratch();
    fill(&root.path().join("a"), "f", 1);
    for i in 0..5 {
        std::fs::hard_link(
            root.path().join("a/f0"),
            root.path().join(format!("name{i}")),
        )
        .unwrap();
    }
    let ino = std::fs::metadata(root.path().join("a/f0")).unwrap().ino();
    let walk = walk::Options::new()
        .metadata(StatxMask::BASIC_STATS)
        .blocking_open(root.path())
        .unwrap();
    let named = walk.map(Result::unwrap).filter(|found| found.ino() == ino);
    let counts: Vec<_> = named
        .map(|found| found.metadata().unwrap().unwrap().nlink())
        .collect();
    assert_eq!(counts, [6; 6]);
}

/// Names are as they were listed, but a directory can be swapped for a link before it is opened.
fn no_link_in_a_directorys_place_is_followed() {
    let root = scratch();
    let secret = scratch();
    fill(&secret.path().join("y"), "secret", 1);
    for i in 0..50 {
        fill(&root.path().join(format!("d{i}/x/y")), "f", 1);
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::sync::atomic::Ordering::Relaxed;
            while !over.load(Relaxed) {
                for i in 0..50 {
                    let (dir, aside) = (
                        root.path().join(format!("d{i}/x")),
                        root.path().join(format!("d{i}/aside")),
                    );
                    std::fs::rename(&dir, &aside).unwrap();
                    symlink(secret.path(), &dir).unwrap();
                    std::thread::yield_now();
                    std::fs::remove_file(&dir).unwrap();
                    std::fs::rename(&aside, &dir).unwrap();
                }
            }
        });
        let mut leaked = None;
        for _ in 0..100 {
            let walk = walk::Options::new().blocking_open(root.path());
            leaked = leaked.or(by_workers(&mut walk.unwrap())
                .filter_map(Result::ok)
                .map(|e| e.path())
                .find(|p| p.ends_with("secret0")));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(leaked, None);
    });
}

#[test]
fn a_link_put_in_a_directorys_place_is_not_followed() {
    no_link_in_a_directorys_place_is_followed();
}

#[test]
fn nor_is_it_without_openat2() {
    sandboxed(|errno| {
        deny(&[libc::SYS_openat2], errno);
        no_link_in_a_directorys_place_is_followed();
    });
}

/// Paths below a directory that can be opened, and paths that can't.
fn what_is_beneath_can_be_opened() {
    let (root, secret) = (scratch(), scratch());
    fill(&secret.path().join("y"), "secret", 1);
    fill(&root.path().join("d/x/y"), "f", 1);
    symlink(secret.path(), root.path().join("d/link")).unwrap();
    symlink("x", root.path().join("d/inside")).unwrap();
    symlink("y/f0", root.path().join("d/x/last")).unwrap();
    let mut deep = root.path().join("deep");
    let mut below = PathBuf::from("deep");
    std::fs::create_dir(&deep).unwrap();
    let mut at = std::fs::File::open(&deep).unwrap();
    while below.as_os_str().len() < 9000 {
        let name = "n".repeat(250);
        rustix::fs::mkdirat(&at, &name, 0o700.into()).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, &name, flags, 0.into())
            .unwrap()
            .into();
        deep.push(&name);
        below.push(&name);
    }
    let directory = std::fs::File::open(root.path()).unwrap();
    let open = |path: &Path| walk::open_beneath(&directory, path, OFlags::RDONLY);
    for there in ["d/x/y/f0", "d//x/./y/f0", "d/x/y/", "d", "."] {
        assert!(open(Path::new(there)).is_ok(), "{there}");
    }
    assert!(
        open(&below).is_ok(),
        "a path that is longer than a call takes"
    );
    for (refused, errnos) in [
        ("d/link/y/secret0", &[Errno::LOOP, Errno::NOTDIR][..]),
        ("d/inside/y/f0", &[Errno::LOOP, Errno::NOTDIR]),
        ("d/x/last", &[Errno::LOOP]),
        ("d/x/y/f0/", &[Errno::NOTDIR]),
        ("d/x/missing", &[Errno::NOENT]),
        ("", &[Errno::NOENT]),
        ("d/../d/x/y/f0", &[Errno::XDEV]),
        ("/etc/passwd", &[Errno::XDEV]),
        ("d/x\0", &[Errno::INVAL]),
    ] {
        let error = open(Path::new(refused)).unwrap_err();
        let errno = error.errno().map(Errno::from_raw_os_error);
        assert!(errnos.contains(&errno.unwrap()), "{refused:?}: {error}");
    }
}

#[test]
fn a_file_is_opened_beneath_a_directory_and_through_no_link() {
    what_is_beneath_can_be_opened();
}

#[test]
fn so_it_is_without_openat2() {
    sandboxed(|errno| {
        deny(&[libc::SYS_openat2], errno);
        what_is_beneath_can_be_opened();
    });
}
