//! Operations that may wait without end leave permits and workers to other operations. They give back their
//! own when nothing waits for them any more.

use std::ffi::CString;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::task::noop_waker;
use nowait::engine::{Engine, Options, Submit, Wait};
use nowait::op::{Call, Op, Openat2};
use nowait::{ErrorKind, OpenOptions};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tokio::io::AsyncReadExt;

use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{each, name};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::process_engine::each_process;
use crate::common::results::nothing_for_a_while;
use crate::common::shared_engine::each_shared;
use crate::common::wait::{LONG, wait_until};

/// The number of threads of tokio's pool.
const MANY: usize = 512;

fn fifo(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    path
}

fn pending<F: Future>(future: &mut Pin<Box<F>>) {
    let waker = noop_waker();
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Pending));
}

fn open(path: &Path, flags: OFlags) -> Openat2 {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    Openat2::new(path, flags.bits().cast_signed(), 0)
}

/// Opens, reads, writes and metadata of other files are served.
fn others_are_served(engine: &Engine, dir: &Path) {
    let path = patterned(dir, "other", 10_000);
    evict(&path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).engine(engine);
    let read = async {
        let file = options.open(&path).await.unwrap();
        let read = file.read_at(Vec::with_capacity(10_000), 0).await;
        assert_eq!(read.into_result().unwrap().1, pattern(0, 10_000));
        let written = file.write_all_at(pattern(0, 10), 0).await;
        written.into_result().unwrap();
        file.sync_all().await.unwrap();
    };
    pollster::block_on(read);
    let (tell, told) = std::sync::mpsc::channel();
    let metadata = Call::new(move || {
        tell.send(std::fs::metadata(path)?.len()).unwrap();
        Ok(0)
    });
    let Submit::Queued(_) = engine.submit(metadata.into()) else {
        panic!("full");
    };
    assert_eq!(told.recv_timeout(LONG), Ok(10_000));
    engine.reap(&mut Vec::new(), Wait::For(1)).unwrap();
}

#[test]
fn opens_of_fifos_do_not_keep_out_other_files() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = fifo(dir.path(), "fifo");
        let mut options = OpenOptions::new();
        options.read(true).engine(engine);
        let mut opening: Vec<_> = (0..MANY).map(|_| Box::pin(options.open(&path))).collect();
        opening.iter_mut().for_each(pending);
        others_are_served(engine, dir.path());
        let _writer = std::fs::File::options().read(true).write(true).open(&path);
        for opened in pollster::block_on(futures_util::future::join_all(opening)) {
            opened.unwrap();
        }
        wait_until("all permits are free", || engine.in_flight() == 0);
    });
}

#[test]
fn a_fifo_is_opened_as_open_does_it() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = fifo(dir.path(), "fifo");
        for (flags, other) in [(OFlags::RDONLY, true), (OFlags::WRONLY, false)] {
            queued(engine, open(&path, flags));
            nothing_for_a_while(engine);
            let other = std::fs::File::options()
                .read(!other)
                .write(other)
                .open(&path);
            assert!(
                finish(engine, 1).remove(0).result.is_ok(),
                "{}",
                name(engine)
            );
            drop(other);
        }
        // The open does not wait, as requested.
        let done = one(engine, open(&path, OFlags::WRONLY | OFlags::NONBLOCK));
        assert_eq!(said(&done), Err(libc::ENXIO), "{}", name(engine));
    });
}

#[test]
fn calls_on_a_mount_that_hangs_do_not_keep_out_other_files() {
    each_shared(Options::new(), |engine| {
        let Some(hung) = Hung::mount() else { return };
        let dir = scratch();
        let there = hung.0.path().join("file");
        for _ in 0..64 {
            let (stat, open) = (there.clone(), open(&there, OFlags::RDONLY));
            let stat = Call::new(move || std::fs::metadata(stat).map(|_| 0));
            for op in [Op::from(stat), Op::from(open)] {
                assert!(matches!(engine.submit(op), Submit::Queued(_)));
            }
        }
        let mine = engine.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let served = std::thread::spawn(move || {
            // These are reaped at the end.
            let path = patterned(dir.path(), "other", 10_000);
            let file = pollster::block_on(OpenOptions::new().read(true).engine(&mine).open(&path));
            let read = file.unwrap();
            let read = pollster::block_on(read.read_at(Vec::with_capacity(10_000), 0));
            assert_eq!(read.into_result().unwrap().1, pattern(0, 10_000));
            tell.send(()).unwrap();
        });
        told.recv_timeout(LONG).unwrap();
        served.join().unwrap();
        drop(hung);
        let mut done = Vec::new();
        engine.reap(&mut done, Wait::For(128)).unwrap();
        assert_eq!(done.len(), 128);
    });
}

/// A FUSE mount whose server never answers. After its drop, calls to it fail.
struct Hung(tempfile::TempDir, Option<std::os::fd::OwnedFd>);

impl Hung {
    fn mount() -> Option<Hung> {
        use std::os::fd::AsRawFd;
        let server =
            match rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Ok(server) => server,
                Err(e) => {
                    slowdisk::skip_or_fail(format!("no /dev/fuse: {e}"));
                    return None;
                }
            };
        let dir = scratch();
        let how = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let how = CString::new(how).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("hung", dir.path(), "fuse", flags, how.as_c_str()) {
            Ok(()) => Some(Hung(dir, Some(server))),
            Err(e) => {
                slowdisk::skip_or_fail(format!("no mount of FUSE: {e}"));
                None
            }
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        drop(self.1.take());
        let detach = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(self.0.path(), detach).unwrap();
    }
}

#[test]
fn abandoned_reads_of_a_fifo_give_their_permits_back() {
    each_process(|engine| {
        let dir = scratch();
        let path = fifo(dir.path(), "fifo");
        let both = std::fs::File::options().read(true).write(true).open(&path);
        let both = both.unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async {
            // More opens than permits.
            for _ in 0..2 * MANY {
                let reader = std::fs::File::open(&path).unwrap();
                let mut file = nowait::tokio::File::from_std(reader);
                let mut byte = [0];
                pending(&mut Box::pin(file.read(&mut byte)));
            }
            wait_until("all permits are free", || engine.in_flight() == 0);
            // Only this read gets the next bytes.
            let mut file = nowait::tokio::File::from_std(std::fs::File::open(&path).unwrap());
            rustix::io::write(&both, b"mine").unwrap();
            let mut bytes = [0; 4];
            file.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"mine");
        });
        others_are_served(engine, dir.path());
    });
}

#[test]
fn the_process_engine_has_the_limits_that_it_was_made_with() {
    each_process(|engine| {
        assert_eq!(engine.depth(), MANY, "as many as tokio's pool has threads");
        assert_eq!(Engine::process().unwrap().backend(), engine.backend());
        let again = Engine::make_process(&Options::new()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidInput);
    });
}
