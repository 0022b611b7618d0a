//! Opening a fifo waits for its other end, on every engine, also without openat2(2). No thread that drives
//! an engine waits.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nowait::engine::Options;
use nowait::op::{Nop, Openat2};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{Drive, each, name};
use crate::common::files::scratch;
use crate::common::kinds::each_kind;
use crate::common::results::nothing_for_a_while;
use crate::common::sandbox::{deny, sandboxed};
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

/// Makes a fifo of this name.
fn fifo(dir: &Path, name: &str) -> CString {
    let path = dir.join(name);
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Opens a fifo without waiting.
fn at_once(path: &CString, flags: OFlags) -> std::os::fd::OwnedFd {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap()
}

fn waits_for_the_other_end(engine: &mut dyn Drive) {
    let open =
        |path: &CString, flags: OFlags| Openat2::new(path.clone(), flags.bits().cast_signed(), 0);
    let dir = scratch();
    let (read, write) = (fifo(dir.path(), "read"), fifo(dir.path(), "write"));
    queued(engine, open(&read, OFlags::RDONLY));
    nothing_for_a_while(engine);
    // Other operations are served meanwhile.
    one(engine, Nop);
    // An O_NONBLOCK open for writing would fail: there is no reader.
    let _writer = at_once(&read, OFlags::WRONLY);
    assert_eq!(said(&finish(engine, 1)[0]), Ok(0), "{}", name(engine));
    queued(engine, open(&write, OFlags::WRONLY));
    nothing_for_a_while(engine);
    one(engine, Nop);
    let _reader = at_once(&write, OFlags::RDONLY);
    assert_eq!(said(&finish(engine, 1)[0]), Ok(0), "{}", name(engine));
}

#[test]
fn an_open_waits_for_the_other_end() {
    each_kind(Options::new(), |engine| {
        waits_for_the_other_end(engine);
    });
}

#[test]
fn so_does_one_that_is_submitted_again_after_it_has_opened_a_file() {
    each_kind(Options::new(), |engine| {
        let dir = scratch();
        let path = dir.path().join("path");
        std::fs::write(&path, "").unwrap();
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let flags = OFlags::RDONLY.bits().cast_signed();
        let opened = one(engine, Openat2::new(name, flags, 0));
        assert_eq!(said(&opened), Ok(0));
        std::fs::remove_file(&path).unwrap();
        let path = fifo(dir.path(), "path");
        queued(engine, opened.op);
        nothing_for_a_while(engine);
        let _writer = at_once(&path, OFlags::WRONLY);
        assert_eq!(said(&finish(engine, 1)[0]), Ok(0));
    });
}

#[test]
fn so_does_one_without_openat2() {
    sandboxed(|errno| {
        deny(&[libc::SYS_openat2], errno);
        each(Options::new(), |engine| {
            waits_for_the_other_end(engine);
        });
    });
}

#[test]
fn a_future_of_one_leaves_its_thread_alone() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = fifo(dir.path(), "fifo");
        let opened = std::thread::scope(|s| {
            let open = || {
                let file = nowait::OpenOptions::new()
                    .read(true)
                    .engine(engine)
                    .open(dir.path().join("fifo"));
                pollster::block_on(file)
            };
            let open = s.spawn(open);
            wait_until("the reader is about to open", || {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::open(&path, flags, Mode::empty()).is_ok()
            });
            open.join().unwrap()
        });
        opened.unwrap();
    });
}
