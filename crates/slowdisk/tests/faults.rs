//! Requests fail where they are told to, and stall until released, while others go on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, evict, extents, require};
use test_support::limit::{LONG, wait_until};

const BLOCK: u64 = 4096;

/// Two files of 64 KiB on ext4 on a disk, not cached.
fn two_files() -> (SlowDisk, TestMount, [PathBuf; 2]) {
    let disk = SlowDisk::builder().queue(16).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let paths = ["bad", "good"].map(|name| mount.path().join(name));
    for path in &paths {
        fs::write(path, vec![1; 16 * BLOCK as usize]).unwrap();
        evict(&File::open(path).unwrap()).unwrap();
    }
    (disk, mount, paths)
}

fn read(path: &PathBuf, offset: u64) -> io::Result<()> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    file.read_exact_at(&mut [0; BLOCK as usize], offset)
}

#[test]
fn a_bad_block_gives_eio_through_ext4() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let (disk, _mount, [bad, good]) = two_files();
    let start = extents(&File::open(&bad).unwrap()).unwrap()[0].start;
    let block = start + 2 * BLOCK..start + 3 * BLOCK;
    let fault = disk.inject(Fault::eio(block).reads_only());

    let error = read(&bad, 2 * BLOCK).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    read(&bad, 0).unwrap();
    read(&good, 2 * BLOCK).unwrap();
    assert!(disk.counters().failed > 0);

    disk.release(fault);
    read(&bad, 2 * BLOCK).unwrap();
}

#[test]
fn a_failed_write_is_told_by_fsync() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let (disk, _mount, [bad, good]) = two_files();
    let file = File::options().write(true).open(&bad).unwrap();
    let range = extents(&file).unwrap()[0].clone();
    disk.inject(Fault::eio(range).writes_only());
    file.write_all_at(&[2; BLOCK as usize], 0).unwrap();
    let error = file.sync_data().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let other = File::options().write(true).open(&good).unwrap();
    other.write_all_at(&[2; BLOCK as usize], 0).unwrap();
    other.sync_data().unwrap();
}

#[test]
fn a_stall_holds_until_released() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let (disk, _mount, [bad, good]) = two_files();
    let range = extents(&File::open(&bad).unwrap()).unwrap()[0].clone();
    let fault = disk.inject(Fault::stall(range));
    let (done, finished) = mpsc::channel();
    let reader = thread::spawn(move || done.send(read(&bad, 0)).unwrap());

    wait_until("the read stalls", || disk.stalled() == 1);
    for block in 0..16 {
        read(&good, block * BLOCK).unwrap();
    }
    assert!(finished.try_recv().is_err(), "the read is still held");
    disk.release(fault);
    let read = finished.recv_timeout(LONG).unwrap();
    read.unwrap();
    reader.join().unwrap();
}

#[test]
fn dropping_the_rig_releases_what_is_stalled() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let (disk, mount, [bad, _]) = two_files();
    let root = mount.path().to_owned();
    disk.inject(Fault::stall(0..disk.size()));
    let reader = thread::spawn(move || read(&bad, 0));
    fs::write(root.join("dirty"), vec![3; 1 << 20]).unwrap();
    wait_until("the read stalls", || disk.stalled() > 0);
    let file = disk.path().to_owned();
    drop(disk);
    drop(mount);
    reader.join().unwrap().unwrap();
    assert!(!root.exists());
    assert!(!file.parent().unwrap().exists());
}

#[test]
fn a_file_left_open_does_not_keep_the_rig_up() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let (disk, mount, [bad, _]) = two_files();
    let file = File::open(&bad).unwrap();
    let root = mount.path().to_owned();
    drop((mount, disk));
    assert!(!root.exists());
    let error = file.read_exact_at(&mut [0; 4096], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}
