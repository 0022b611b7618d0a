//! A file with a lease (fcntl(2)) is opened when its holder has given the lease up.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::AsRawFd;

use nowait::read_files::Options;

use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;

#[test]
fn a_lease_is_waited_for() {
    let dir = scratch();
    let path = patterned(dir.path(), "leased", 100);
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
    let reader = std::thread::spawn(move || {
        let read = Options::new().caller(false).read([path]).next().unwrap();
        read.unwrap().bytes().len()
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!reader.is_finished());
    assert_eq!(lease(libc::F_UNLCK), 0);
    assert_eq!(reader.join().unwrap(), 100);
}
