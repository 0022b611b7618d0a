//! `ReadAhead`: files with holes and with several names, chosen ranges, and disks that fail.
#![allow(
    clippy::single_range_in_vec_init,
    reason = "files with one range of data"
)]

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use nowait::residency::{page_map, page_size};
use nowait_page_cache::{Allowed, Chosen, ReadAhead, Report, Reporter, Stop};
use rustix::io::Errno;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::repeat::unless_reclaimed;

const MIB: u64 = 1 << 20;

/// The failures of files, in order.
#[derive(Default)]
struct Failures(Mutex<Vec<(PathBuf, Option<Errno>)>>);

impl Failures {
    fn sorted(&self) -> Vec<(PathBuf, Option<Errno>)> {
        let mut all = self.0.lock().unwrap().clone();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

impl Reporter for Failures {
    fn failure(&self, path: &Path, errno: Option<Errno>, _: &dyn Display) {
        self.0.lock().unwrap().push((path.to_path_buf(), errno));
    }

    fn note(&self, _: &Path, _: &dyn Display) {}
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file with data in these ranges, not cached.
fn file(path: PathBuf, size: u64, data: &[Range<u64>]) -> PathBuf {
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    for range in data {
        let bytes = vec![7; (range.end - range.start) as usize];
        file.write_all_at(&bytes, range.start).unwrap();
    }
    slowdisk::evict(&file).unwrap();
    path
}

fn ahead(chosen: Vec<Chosen>) -> ReadAhead {
    ReadAhead::new(chosen, Allowed::Percent(75), Stop::default())
}

/// Reads all, without a failure.
fn read(chosen: Vec<Chosen>) -> (ReadAhead, Report) {
    let (ahead, failures) = (ahead(chosen), Failures::default());
    ahead.run(&failures).unwrap();
    assert_eq!(failures.sorted(), []);
    let report = ahead.report(&Stop::default());
    (ahead, report)
}

fn cached(path: &Path) -> Vec<Range<u64>> {
    let map = page_map(File::open(path).unwrap(), 0..u64::MAX).unwrap();
    map.known().unwrap().resident().collect()
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[test]
fn the_data_of_a_file_with_holes_is_read_and_its_holes_are_not() {
    unless_reclaimed(|| {
        let dir = directory();
        let page = page_size();
        // More data than is read at once, with large holes; and small holes.
        let large: Vec<_> = (0..30).map(|i| 2 * i * MIB..(2 * i + 1) * MIB).collect();
        let small: Vec<_> = (0..200)
            .map(|i| 16 * i * page..(16 * i + 1) * page)
            .collect();
        for (name, data) in [("large", large), ("small", small)] {
            let path = file(dir.path().join(name), 64 * MIB, &data);
            let (ahead, report) = read(vec![(path.clone(), None)]);
            assert_eq!(cached(&path), data, "{name}");
            assert_eq!(report.read_bytes, bytes(&data), "{name}");
            ahead.evict(&Stop::default());
            assert_eq!(cached(&path), [], "{name}");
        }
    });
}

#[test]
fn a_file_with_several_names_is_read_and_counted_once() {
    let dir = directory();
    let path = file(dir.path().join("a"), 0, &[0..4 * MIB]);
    let (hard, soft) = (dir.path().join("hard"), dir.path().join("soft"));
    fs::hard_link(&path, &hard).unwrap();
    symlink(&path, &soft).unwrap();
    let names = [dir.path(), &path, &hard, &soft, &path];
    // The kernel keeps and reclaims pages as it likes, but few.
    let few = MIB / 2;
    let (_, report) = read(names.map(|name| (name.to_path_buf(), None)).to_vec());
    assert_eq!(report.read_bytes + report.was_resident_bytes, 4 * MIB);
    assert!(report.was_resident_bytes < few);
    let (_, report) = read(names.map(|name| (name.to_path_buf(), None)).to_vec());
    assert_eq!(report.read_bytes + report.was_resident_bytes, 4 * MIB);
    assert!(report.read_bytes < few);
    // Each name has other ranges.
    slowdisk::evict(&File::open(&path).unwrap()).unwrap();
    let chosen = [
        (path.clone(), 0..2 * MIB),
        (hard, MIB..3 * MIB),
        (path, 0..MIB),
    ];
    let (_, report) = read(
        chosen
            .map(|(path, range)| (path, Some(vec![range])))
            .to_vec(),
    );
    assert_eq!(report.read_bytes + report.was_resident_bytes, 3 * MIB);
    assert!(report.was_resident_bytes < few);
}

#[test]
fn bytes_between_chosen_ranges_are_not_read() {
    unless_reclaimed(|| {
        let dir = directory();
        let path = file(dir.path().join("a"), 0, &[0..4 * MIB]);
        let page = page_size();
        let ranges: Vec<_> = (0..64)
            .map(|i| 16 * i * page..(16 * i + 1) * page)
            .collect();
        let (ahead, report) = read(vec![(path.clone(), Some(ranges.clone()))]);
        assert_eq!(cached(&path), ranges);
        assert_eq!(report.read_bytes, 64 * page);
        ahead.evict(&Stop::default());
        assert_eq!(cached(&path), []);
        // Ranges that end within a page.
        let ranges = vec![100..200, 5 * page - 1..6 * page + 1];
        let (ahead, _) = read(vec![(path.clone(), Some(ranges))]);
        assert_eq!(cached(&path), [0..page, 4 * page..7 * page]);
        ahead.evict(&Stop::default());
        assert_eq!(cached(&path), []);
    });
}

#[test]
fn each_file_that_fails_is_reported_once_and_the_others_are_read() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(256 * MIB).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let folder = mount.path().join("files");
    fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name);
    // The parts of each file that cannot be read, in MiB.
    let bad = [
        ("first", 4, vec![0]),
        ("last", 4, vec![3]),
        ("all", 4, vec![0, 1, 2, 3]),
        ("long", 24, (0..24).collect()),
    ];
    for (name, size, _) in &bad {
        file(path(name), 0, &[0..size * MIB]);
        let file = File::open(path(name)).unwrap();
        // The kernel does not read ahead of the reads that fail.
        assert!(slowdisk::extents(&file).unwrap().len() < 8, "{name}");
    }
    let good = file(path("zgood"), 0, &[0..4 * MIB]);
    for (name, _, parts) in &bad {
        let extents = slowdisk::extents(&File::open(path(name)).unwrap()).unwrap();
        for part in parts {
            let mut at = part * MIB;
            for extent in &extents {
                let len = extent.end - extent.start;
                if at < len {
                    let start = extent.start + at;
                    disk.inject(Fault::eio(start..start + 4096).reads_only());
                    break;
                }
                at -= len;
            }
        }
    }
    // Latency: several reads of a file are in flight when the first one fails.
    disk.set_latency(Duration::from_millis(5));
    let names: Vec<Chosen> = bad.iter().map(|bad| (path(bad.0), None)).collect();
    let mut expected: Vec<_> = bad
        .iter()
        .map(|bad| (path(bad.0), Some(Errno::IO)))
        .collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    for chosen in [names, vec![(folder.clone(), None)]] {
        let (ahead, failures) = (ahead(chosen), Failures::default());
        ahead.run(&failures).unwrap();
        assert_eq!(failures.sorted(), expected);
        for (name, ..) in &bad {
            slowdisk::evict(&File::open(path(name)).unwrap()).unwrap();
        }
    }
    // The kernel may reclaim some pages meanwhile.
    assert!(bytes(&cached(&good)) > 3 * MIB);
}

#[test]
fn a_position_that_was_set_is_not_taken_for_reads() {
    unless_reclaimed(|| {
        let dir = directory();
        let path = file(dir.path().join("a"), 0, &[0..32 * MIB]);
        let mut opened = File::open(&path).unwrap();
        opened.seek(SeekFrom::End(0)).unwrap();
        let (_, report) = read(vec![(path.clone(), None)]);
        assert_eq!(report.read_bytes, 32 * MIB);
        assert_eq!(bytes(&cached(&path)), 32 * MIB);
    });
}
