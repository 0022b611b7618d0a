//! A path that leads to another file while it is opened, and the file of a descriptor that is opened again.
#![allow(unsafe_code, reason = "unshare(2)")]

use std::fs::{self, File};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;

use nowait::read_files::Options;
use nowait::{ErrorKind, OpenOptions};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, inotify, mknodat, open, renameat_with};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::common::children::{alone, role};
use crate::common::files::{pattern, patterned, scratch};
use crate::common::limit::Limit;
use crate::{FACES, engines, results, without_proc};

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
        return without_proc();
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
    // Rings honour O_NONBLOCK.
    for flags in [OFlags::empty(), OFlags::NONBLOCK] {
        let mut options = OpenOptions::new();
        options.read(true).regular(true);
        options.custom_flags(flags.bits().cast_signed());
        let blocking = options.blocking_open(&path).unwrap();
        let future = pollster::block_on(options.open(&path)).unwrap();
        for file in [blocking, future] {
            let set = rustix::fs::fcntl_getfl(file.handle()).unwrap();
            assert_eq!(set & OFlags::NONBLOCK, flags);
        }
    }
}

/// Without /proc the path is resolved twice. The file that it then leads to is not changed.
#[test]
fn a_file_that_takes_the_place_of_another_is_not_truncated_where_proc_is_not_mounted() {
    if role().is_none() {
        return without_proc();
    }
    let dir = scratch();
    let paths = [
        patterned(dir.path(), "path", 100),
        patterned(dir.path(), "other", 100),
    ];
    let mut options = OpenOptions::new();
    options.write(true).truncate(true).regular(true);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                renameat_with(CWD, &paths[0], CWD, &paths[1], RenameFlags::EXCHANGE).unwrap();
            }
        });
        let files = paths
            .each_ref()
            .map(|path| File::options().write(true).open(path).unwrap());
        let _limit = Limit::new("no exchange between the look-ups".into());
        let (mut refused, mut truncated) = (0, 0);
        while refused < 20 {
            files.iter().for_each(|file| file.set_len(100).unwrap());
            let opened = options.blocking_open(&paths[0]).is_ok();
            let lens = files.each_ref().map(|file| file.metadata().unwrap().len());
            truncated += usize::from(!opened && lens != [100, 100]);
            refused += usize::from(!opened);
        }
        over.store(true, Relaxed);
        assert_eq!(truncated, 0);
    });
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
