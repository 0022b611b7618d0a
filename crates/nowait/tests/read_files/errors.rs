//! A file that cannot be read is an error with its path, and the others follow.

use std::fs;
use std::io::ErrorKind as Std;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nowait::read_files::Options;
use nowait::{Error, ErrorKind};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::common::children::{in_child, role};
use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;
use crate::{FACES, engines, results};

/// Checks that each path fails with this kind, and that the files around it are read.
fn each(bad: &[(PathBuf, ErrorKind)], options: &Options) {
    let dir = scratch();
    let good = patterned(dir.path(), "good", 3000);
    let mut paths = vec![good.clone()];
    for (bad, _) in bad {
        paths.extend([bad.clone(), good.clone()]);
    }
    for engine in engines() {
        for face in FACES {
            let _limit = Limit::new(format!("{} {face:?}", engine.backend()));
            let options = options.clone().engine(&engine).in_order(true);
            let results = results(&options, face, &paths);
            assert_eq!(results.len(), paths.len());
            for (result, path) in results.into_iter().zip(&paths) {
                match bad.iter().find(|(bad, _)| bad == path) {
                    None => assert_eq!(result.unwrap().bytes().len(), 3000),
                    Some((_, kind)) => {
                        let error: Error = result.expect_err(&path.display().to_string());
                        assert_eq!(error.kind(), *kind, "{error}");
                        assert_eq!(error.path(), Some(path.as_path()));
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_missing_or_a_directory_is_an_error() {
    let dir = scratch();
    let file = patterned(dir.path(), "file", 1);
    symlink("loop", dir.path().join("loop")).unwrap();
    each(
        &[
            (dir.path().join("missing"), ErrorKind::Io(Std::NotFound)),
            (dir.path().into(), ErrorKind::Io(Std::IsADirectory)),
            (file.join("below"), ErrorKind::Io(Std::NotADirectory)),
            (
                dir.path().join("n".repeat(300)),
                ErrorKind::Io(Std::InvalidFilename),
            ),
            ("nul\0".into(), ErrorKind::Io(Std::InvalidInput)),
            ("".into(), ErrorKind::Io(Std::NotFound)),
        ],
        &Options::new(),
    );
}

#[test]
fn a_file_of_another_user_is_an_error() {
    if let Some(dir) = role() {
        let dir = Path::new(&dir);
        rustix::thread::set_thread_res_uid(
            rustix::fs::Uid::from_raw(65534),
            rustix::fs::Uid::from_raw(65534),
            rustix::fs::Uid::from_raw(65534),
        )
        .unwrap();
        let error = Options::new().read([dir.join("secret")]).next().unwrap();
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io(Std::PermissionDenied));
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return slowdisk::skip_or_fail("not root: the user cannot be changed");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = patterned(dir.path(), "secret", 10);
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    in_child(dir.path().to_str().unwrap());
}

/// A FIFO whose writer waits: an open for reading would wake it.
#[test]
fn what_is_not_regular_is_not_opened() {
    let dir = scratch();
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let socket = dir.path().join("socket");
    // bind(2) takes short paths only.
    mknodat(CWD, &socket, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pty = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
    rustix::pty::grantpt(&pty).unwrap();
    rustix::pty::unlockpt(&pty).unwrap();
    let tty = rustix::pty::ptsname(&pty, Vec::new()).unwrap();
    let tty = PathBuf::from(tty.into_string().unwrap());
    let link = dir.path().join("link");
    symlink(&fifo, &link).unwrap();
    let mut bad = vec![fifo.clone(), socket, tty, link, "/dev/zero".into()];
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || {
            // Without O_NONBLOCK it would wait until the FIFO is opened for reading.
            let flags = OFlags::WRONLY | OFlags::NONBLOCK;
            for _ in 0..2000 {
                let opened = rustix::fs::open(&fifo, flags, Mode::empty());
                assert!(opened.is_err(), "the FIFO was opened for reading");
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        })
    };
    if let Some(device) = fs::read_dir("/dev").unwrap().find_map(|entry| {
        use std::os::unix::fs::FileTypeExt;
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        kind.is_block_device().then(|| entry.path())
    }) {
        bad.push(device);
    }
    let not_regular = |path| (path, ErrorKind::NotRegular);
    let bad: Vec<_> = bad.into_iter().map(not_regular).collect();
    while !writer.is_finished() {
        each(&bad, &Options::new());
    }
    writer.join().unwrap();
}

#[test]
fn a_file_larger_than_memory_is_an_error() {
    let dir = scratch();
    let huge = dir.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 43).unwrap();
    each(&[(huge, ErrorKind::Io(Std::OutOfMemory))], &Options::new());
}
