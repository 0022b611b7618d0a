//! `nowait::OpenOptions` opens what `std::fs::OpenOptions` opens, with the same effect, and refuses what it
//! refuses, with the same error. All combinations are compared.

use std::fs::Permissions;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use nowait::engine::{Engine, Options};
use nowait::{Error, ErrorKind, OpenOptions};

use crate::common::files::scratch;
use crate::common::shared_engine::each_shared;

const FLAGS: [&str; 6] = [
    "read",
    "write",
    "append",
    "truncate",
    "create",
    "create_new",
];

/// The outcome of an open: the errno, or the open file's flags, content and permission bits.
type Came = Result<(u32, Vec<u8>, u32), Option<i32>>;

fn came(opened: Result<impl AsFd, Option<i32>>, path: &Path) -> Came {
    let file = opened?;
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    let stat = rustix::fs::fstat(&file).unwrap();
    // Through a link to it, or not at all, if it is a directory or has no name.
    let bytes = std::fs::read(path).unwrap_or_default();
    Ok((flags.bits(), bytes, stat.st_mode))
}

/// Sets the combination of options that the bits of a number encode.
macro_rules! set {
    ($options:expr, $bits:expr) => {{
        let on = |n: usize| $bits & 1 << n != 0;
        $options.read(on(0)).write(on(1)).append(on(2));
        $options.truncate(on(3)).create(on(4)).create_new(on(5));
    }};
}

/// Opens with std and with nowait, blocking and as a future, each time with the same files.
fn compare(
    engine: &Engine,
    path: &Path,
    prepare: impl Fn(),
    set: (
        impl Fn(&mut std::fs::OpenOptions),
        impl Fn(&mut OpenOptions),
    ),
    what: &str,
) {
    let mut std = std::fs::OpenOptions::new();
    set.0(&mut std);
    prepare();
    let want = came(
        std.open(path)
            .map_err(|e| e.raw_os_error().or(Some(libc::EINVAL))),
        path,
    );
    let mut options = OpenOptions::new();
    set.1(&mut options);
    options.engine(engine);
    let errno = |e: Error| e.errno();
    prepare();
    let blocking = came(options.blocking_open(path).map_err(errno), path);
    assert_eq!(blocking, want, "{what}, blocking");
    prepare();
    let future = came(pollster::block_on(options.open(path)).map_err(errno), path);
    assert_eq!(future, want, "{what}");
}

#[test]
fn every_combination_is_as_the_standard_librarys() {
    let dir = scratch();
    let path = dir.path().join("file");
    each_shared(Options::new(), |engine| {
        for bits in 0..1 << FLAGS.len() {
            for there in [false, true] {
                let prepare = || {
                    let _ = std::fs::remove_file(&path);
                    if there {
                        std::fs::write(&path, b"content").unwrap();
                        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
                    }
                };
                let names: Vec<_> = (0..FLAGS.len())
                    .filter(|n| bits & 1 << n != 0)
                    .map(|n| FLAGS[n])
                    .collect();
                let what = format!("{names:?}, there: {there}");
                let std = |o: &mut std::fs::OpenOptions| set!(o, bits);
                let ours = |o: &mut OpenOptions| set!(o, bits);
                compare(engine, &path, prepare, (std, ours), &what);
            }
        }
    });
}

#[test]
fn permission_bits_and_further_flags_are_as_the_standard_librarys() {
    let dir = scratch();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    symlink("file", &link).unwrap();
    let nul = Path::new("a\0b");
    let prepare = || {
        let _ = std::fs::remove_file(&file);
    };
    let full = || std::fs::write(&file, b"content").unwrap();
    each_shared(Options::new(), |engine| {
        for mode in [0o600, 0o777, 0o4755, 0o100_644, 0, u32::MAX] {
            let what = format!("mode {mode:o}");
            for bits in [0b010010, 0b100010, 0b000001] {
                let std = |o: &mut std::fs::OpenOptions| {
                    set!(o, bits);
                    o.mode(mode);
                };
                let ours = |o: &mut OpenOptions| {
                    set!(o, bits);
                    o.mode(mode);
                };
                compare(engine, &file, prepare, (std, ours), &what);
            }
        }
        let flags = [
            libc::O_NOFOLLOW,
            libc::O_DIRECTORY,
            libc::O_PATH,
            libc::O_PATH | libc::O_NOFOLLOW,
            libc::O_PATH | libc::O_TRUNC | libc::O_CREAT,
            libc::O_TMPFILE,
            libc::O_SYNC,
            libc::O_DSYNC,
            libc::O_NOATIME,
            libc::O_NONBLOCK,
            libc::O_ASYNC,
            libc::O_NOCTTY,
            libc::O_TRUNC,
            libc::O_APPEND,
            libc::O_CREAT,
            libc::O_EXCL,
            libc::O_RDWR,
            libc::O_ACCMODE,
            1 << 30,
            i32::MIN,
        ];
        for flags in flags {
            for path in [&*file, &*link, dir.path(), nul] {
                for bits in [0b000001, 0b000010, 0b010011, 0b100010] {
                    let what = format!("flags {flags:#o} and {bits:#b} on {path:?}");
                    let std = |o: &mut std::fs::OpenOptions| {
                        set!(o, bits);
                        o.custom_flags(flags);
                    };
                    let ours = |o: &mut OpenOptions| {
                        set!(o, bits);
                        o.custom_flags(flags);
                    };
                    compare(engine, path, full, (std, ours), &what);
                }
            }
        }
        // The last call counts.
        let std = |o: &mut std::fs::OpenOptions| {
            o.read(true).custom_flags(libc::O_APPEND).custom_flags(0);
        };
        let ours = |o: &mut OpenOptions| {
            o.read(true).custom_flags(libc::O_APPEND).custom_flags(0);
        };
        for path in [&*file, Path::new("")] {
            compare(engine, path, full, (std, ours), "twice");
        }
    });
}

/// A file of another type is not opened: a program that waits for the reader of a FIFO goes on waiting.
#[test]
fn only_regular_files_are_opened_if_asked_for() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), "bytes").unwrap();
        symlink("file", path("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), 0o600.into()).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).regular(true).engine(engine);
        let both = |name: &str| {
            let future = pollster::block_on(options.open(path(name)));
            let blocking = options.blocking_open(path(name));
            assert_eq!(future.is_ok(), blocking.is_ok(), "{name}");
            let kinds = [future, blocking].map(|opened| opened.map_err(|e| (e.kind(), e.errno())));
            kinds.map(|opened| opened.map(drop))
        };
        assert_eq!(both("file"), [Ok(()), Ok(())]);
        assert_eq!(both("link"), [Ok(()), Ok(())]);
        let refused = Err((ErrorKind::NotRegular, None));
        // It has no writer: an open would wait.
        assert_eq!(both("fifo"), [refused, refused]);
        for (name, errno) in [("", libc::EISDIR), ("missing", libc::ENOENT)] {
            for opened in both(name) {
                assert_eq!(opened.unwrap_err().1, Some(errno), "{name}");
            }
        }
        let mut create = options.clone();
        create.write(true).create(true);
        let refused = create.blocking_open(path("new")).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::EINVAL));
        // Other access modes work as well.
        let mut write = options.clone();
        let file = write
            .write(true)
            .truncate(true)
            .blocking_open(path("file"))
            .unwrap();
        file.blocking_write_all_at(b"new", 0).unwrap();
        assert_eq!(std::fs::read(path("file")).unwrap(), b"new");
    });
}
