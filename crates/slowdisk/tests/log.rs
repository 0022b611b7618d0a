//! The log tells what was read and written, where, and in what order.

use std::fs::File;
use std::os::unix::fs::FileExt;

use slowdisk::{Entry, Filesystem, Op, SlowDisk, TestMount, evict, extents, require};

#[test]
fn requests_are_logged_as_they_came() {
    require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 20).build().unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .open(disk.path())
        .unwrap();
    file.write_all_at(&[1; 8192], 40960).unwrap();
    file.read_exact_at(&mut [0; 4096], 4096).unwrap();
    file.read_exact_at(&mut [0; 512], 1024).unwrap();

    let log = disk.log();
    let what: Vec<_> = log
        .iter()
        .map(|e: &Entry| (e.op, e.offset, e.len))
        .collect();
    assert_eq!(
        what,
        [
            (Op::Write, 40960, 8192),
            (Op::Read, 4096, 4096),
            (Op::Read, 1024, 512)
        ]
    );
    assert!(log.is_sorted_by_key(|entry| entry.time));
    let counters = disk.counters();
    assert_eq!((counters.reads, counters.writes), (2, 1));
    assert_eq!((counters.bytes_read, counters.bytes_written), (4608, 8192));
    assert_eq!(disk.take_log(), log);
    assert!(disk.log().is_empty());
}

#[test]
fn a_files_blocks_are_where_its_extents_say() {
    require!(slowdisk::available());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        require!(filesystem.available());
        let disk = SlowDisk::builder().build().unwrap();
        let mount = TestMount::on(&disk, filesystem).unwrap();
        let path = mount.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let start = extents(&file).unwrap()[0].start;
        evict(&file).unwrap();
        disk.take_log();

        file.read_exact_at(&mut [0; 4096], 16384).unwrap();
        let expected = start + 16384;
        assert!(
            disk.log()
                .iter()
                .any(|e| e.op == Op::Read
                    && (e.offset..e.offset + u64::from(e.len)).contains(&expected)),
            "{filesystem}: no read at {expected} in {:?}",
            disk.log()
        );
    }
}
