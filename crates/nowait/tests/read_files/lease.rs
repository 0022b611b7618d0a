//! A file with a lease, whose holder must give it up before others open the file (fcntl(2), F_SETLEASE).
#![allow(unsafe_code, reason = "F_SETLEASE")]

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use nowait::OpenOptions;
use nowait::read_files::Options;

use crate::common::children::role;
use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;
use crate::without_proc;

/// `len` opens the file, and must wait until the lease is given up.
fn waits_for_the_lease(len: fn(&Path) -> u64) {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 100);
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let lease = |kind: libc::c_int| {
        // SAFETY: F_SETLEASE takes an int.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }
    };
    // The holder is told by a signal, which is ignored here.
    // SAFETY: SIGIO has no handler in this program.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    assert_eq!(lease(libc::F_WRLCK), 0);
    let _limit = Limit::new("a lease".into());
    let reader = std::thread::spawn(move || len(&path));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!reader.is_finished());
    assert_eq!(lease(libc::F_UNLCK), 0);
    assert_eq!(reader.join().unwrap(), 100);
}

fn all_calls_wait() {
    waits_for_the_lease(|path| {
        let mut files = Options::new().read([path]);
        let read = pollster::block_on(files.next_file());
        read.unwrap().unwrap().bytes().len() as u64
    });
    waits_for_the_lease(|path| {
        let opened = OpenOptions::new()
            .read(true)
            .regular(true)
            .blocking_open(path);
        rustix::fs::fstat(opened.unwrap().handle()).unwrap().st_size as u64
    });
    waits_for_the_lease(|path| {
        let opened = OpenOptions::new().read(true).regular(true).open(path);
        let opened = pollster::block_on(opened).unwrap();
        rustix::fs::fstat(opened.handle()).unwrap().st_size as u64
    });
}

#[test]
fn a_file_with_a_lease_is_read_when_the_lease_is_given_up() {
    all_calls_wait();
}

#[test]
fn a_file_with_a_lease_is_waited_for_where_proc_is_not_mounted() {
    match role() {
        None => without_proc(),
        Some(_) => all_calls_wait(),
    }
}
