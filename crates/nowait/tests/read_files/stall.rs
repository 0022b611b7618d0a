//! A device that does not answer delays the files on it, and nothing else.

use std::task::{Context, Waker};

use nowait::ErrorKind;
use nowait::read_files::Options;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};

use crate::common::cache::evict;
use crate::common::files::patterned;
use crate::common::limit::Limit;
use crate::common::open_paths::open_below;
use crate::common::rig::Rig;
use crate::common::wait::wait_until;
use crate::engines;

/// More files than there are workers wait for a device. All cached files are returned.
#[test]
fn cached_files_pass_those_that_wait() {
    slowdisk::require!(slowdisk::available());
    for engine in engines() {
        let _limit = Limit::new(format!("{}", engine.backend()));
        let rig = Rig::new();
        let mut paths = Vec::new();
        let mut faults = Vec::new();
        for i in 0..20 {
            let path = rig.cold(&format!("cold{i}"));
            faults.extend(rig.fault(&path, Fault::stall));
            paths.push(path);
        }
        let warm: Vec<_> = (0..300)
            .map(|i| patterned(rig.mount.path(), &format!("warm{i}"), 5000))
            .collect();
        // Cached and clean. The library knows the filesystem as long as a file of it is open.
        rig.mount.sync().unwrap();
        let _known = nowait::File::blocking_open(&warm[0]).unwrap();
        paths.extend(warm);
        // The stalled reads do not fill the queue of the device: a page that the kernel has taken back
        // meanwhile can be read again.
        let options = Options::new().engine(&engine).workers(8);
        let mut files = options.read(&paths);
        let mut nothing = Context::from_waker(Waker::noop());
        for _ in 0..300 {
            let file = pollster::block_on(files.next_file()).unwrap().unwrap();
            assert_eq!(file.bytes().len(), 5000, "{}", file.path().display());
        }
        wait_until("no request reaches the device", || rig.disk.stalled() > 0);
        assert!(files.poll_next_file(&mut nothing).is_pending());
        rig.release(faults);
        assert_eq!(files.filter(|file| file.is_ok()).count(), 20);
    }
}

#[test]
fn a_stream_on_a_stalled_disk_is_dropped_or_cancelled_at_once() {
    slowdisk::require!(slowdisk::available());
    for engine in engines() {
        for cancel in [false, true] {
            let _limit = Limit::new(format!("{} {cancel}", engine.backend()));
            let rig = Rig::new();
            let paths: Vec<_> = (0..50).map(|i| rig.cold(&format!("cold{i}"))).collect();
            let fault = rig
                .disk
                .inject(Fault::stall(0..rig.disk.size()).reads_only());
            let mut files = Options::new().engine(&engine).read(paths);
            let mut nothing = Context::from_waker(Waker::noop());
            assert!(files.poll_next_file(&mut nothing).is_pending());
            wait_until("no request reaches the device", || rig.disk.stalled() > 0);
            if cancel {
                let canceller = files.canceller();
                let waiting = std::thread::spawn(move || {
                    let error = files.next().unwrap().unwrap_err();
                    assert!(files.next().is_none());
                    error.kind()
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                canceller.cancel();
                assert_eq!(waiting.join().unwrap(), ErrorKind::Cancelled);
            } else {
                drop(files);
            }
            assert!(rig.disk.stalled() > 0, "the device has answered");
            rig.disk.release(fault);
            let path = rig.mount.path().to_owned();
            wait_until("files stay open", || open_below(&path).is_empty());
        }
    }
}

/// Its own error is returned with its path.
#[test]
fn a_bad_block_is_an_error_of_its_file() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(64 << 20).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let paths: Vec<_> = (0..10)
        .map(|i| patterned(mount.path(), &format!("f{i}"), 10_000))
        .collect();
    paths.iter().for_each(|path| evict(path));
    let bad = &paths[3];
    let file = std::fs::File::open(bad).unwrap();
    for range in slowdisk::extents(&file).unwrap() {
        disk.inject(Fault::eio(range).reads_only());
    }
    for engine in engines() {
        let _limit = Limit::new(format!("{}", engine.backend()));
        let results: Vec<_> = Options::new()
            .engine(&engine)
            .in_order(true)
            .read(&paths)
            .collect();
        assert_eq!(results.len(), 10);
        for (result, path) in results.into_iter().zip(&paths) {
            match result {
                Ok(file) => assert_eq!(file.bytes().len(), 10_000),
                Err(error) => {
                    assert_eq!((path, error.path()), (bad, Some(bad.as_path())));
                    assert_eq!(error.errno(), Some(libc::EIO));
                }
            }
        }
        evict(bad);
    }
}
