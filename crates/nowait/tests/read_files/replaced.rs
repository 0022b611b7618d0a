//! A path that leads to another file while it is opened, and the file of a descriptor that is opened again.
#![allow(unsafe_code, reason = "unshare(2)")]

use std::fs::{self, File};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;

use nowait::ErrorKind;
use nowait::read_files::Options;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, inotify, mknodat, open, renameat_with};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::common::children::{alone, in_child_by, role, this_program};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::limit::Limit;
use crate::{FACES, engines, results};

/// ```text
///   nowait:   look at the path (a file) ────────────► open it
///   exchange:                           file ◄─► FIFO
/// ```
#[test]
fn a_fifo_that_takes_the_place_of_a_file_is_not_opened() {
    let dir = scratch();
    let path = patterned(dir.path(), "path", 100);
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &fifo, inotify::WatchFlags::OPEN).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                renameat_with(CWD, &path, CWD, &fifo, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for engine in engines() {
            for face in FACES {
                let _limit = Limit::new(format!("{} {face:?}", engine.backend()));
                let options = Options::new().engine(&engine);
                let (mut read, mut refused) = (0, 0);
                while read < 1000 || refused < 1000 {
                    for result in results(&options, face, [&path; 100]) {
                        match result {
                            Ok(file) => {
                                assert!(file.bytes() == pattern(0, 100));
                                read += 1;
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::NotRegular, "{error}");
                                refused += 1;
                            }
                        }
                    }
                }
            }
        }
        over.store(true, Relaxed);
    });
    let mut events = [MaybeUninit::uninit(); 512];
    let mut events = inotify::Reader::new(&watch, &mut events);
    let opened = events.next();
    assert!(opened.is_err(), "the FIFO was opened");
}

#[test]
fn files_are_read_where_proc_is_not_mounted() {
    if role().is_none() {
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /proc && exec \"$@\"";
        command.args(["-m", "sh", "-c", script, "sh"]);
        command.arg(this_program());
        return in_child_by(command, "without /proc");
    }
    assert!(!fs::exists("/proc/self").unwrap());
    let dir = scratch();
    let path = patterned(dir.path(), "file", 5000);
    let fifo = dir.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for engine in engines() {
        for face in FACES {
            let _limit = Limit::new(format!("{} {face:?}", engine.backend()));
            let options = Options::new().engine(&engine).in_order(true);
            let mut files = results(&options, face, [&path, &fifo, &path]).into_iter();
            let mut next = || files.next().unwrap();
            assert!(next().unwrap().bytes() == pattern(0, 5000));
            assert_eq!(next().unwrap_err().kind(), ErrorKind::NotRegular);
            assert!(next().unwrap().bytes() == pattern(0, 5000));
        }
    }
    let held = open(&path, OFlags::PATH, Mode::empty()).unwrap();
    let error = nowait::reopen(&held, OFlags::RDONLY).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOENT.raw_os_error()));
}

/// A thread may have descriptors that the first thread does not have, or that are of other files there.
#[test]
fn a_file_is_opened_again_by_the_descriptor_of_the_thread() {
    alone(|| {
        let dir = scratch();
        fs::write(dir.path().join("first"), "first").unwrap();
        fs::write(dir.path().join("second"), "second").unwrap();
        let first = File::open(dir.path().join("first")).unwrap();
        let text = |file: &File| {
            let mut text = String::new();
            let mut file = File::from(nowait::reopen(file, OFlags::RDONLY).unwrap());
            file.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(text(&first), "first");
        let (number, numbers) = mpsc::channel();
        let (send_on, go_on) = mpsc::channel();
        let path = dir.path().join("second");
        let thread = std::thread::spawn(move || {
            // SAFETY: this thread uses no descriptor of another one, and closes its own.
            unsafe { unshare_unsafe(UnshareFlags::FILES) }.unwrap();
            let second = File::open(path).unwrap();
            number.send(second.as_raw_fd()).unwrap();
            // The first thread has another file at this number, or none.
            assert_eq!(go_on.recv(), Ok(()));
            text(&second)
        });
        let number = numbers.recv().unwrap();
        let mut others = Vec::new();
        while others.iter().all(|file: &File| file.as_raw_fd() != number) {
            others.push(first.try_clone().unwrap());
        }
        send_on.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), "second");
    });
}
