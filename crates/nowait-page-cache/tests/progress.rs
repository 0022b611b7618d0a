//! The progress of a `Prefetcher`: the requested bytes that are done, and their total.
#![allow(
    clippy::single_range_in_vec_init,
    reason = "files with one requested range"
)]

use std::fmt::Display;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nowait_page_cache::{
    FileRef, Kinds, Limits, Prefetcher, Progress, Reporter, Request, SeenInodes, Selection, Stamp,
    Stop, Summary, Total, engine, visit,
};
use rustix::fs::FileType;
use rustix::io::Errno;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};

const MIB: u64 = 1 << 20;

/// Failures are expected, and counted by the caller.
struct Silent;

impl Reporter for Silent {
    fn failure(&self, _: &Path, _: Option<Errno>, _: &dyn Display) {}
    fn note(&self, _: &Path, _: &dyn Display) {}
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file with data in this range, of which nothing is cached.
fn file(path: &Path, size: u64, data: Range<u64>) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    let bytes = vec![7; (data.end - data.start) as usize];
    file.write_all_at(&bytes, data.start).unwrap();
    slowdisk::evict(&file).unwrap();
}

fn whole(path: &Path) -> Request {
    let inode = fs::metadata(path).map_or(0, |metadata| metadata.ino());
    Request {
        file: FileRef::given(path.to_path_buf(), inode, FileType::RegularFile),
        selection: None,
    }
}

/// Ranges of a file as it is now.
fn ranges(path: &Path, ranges: Vec<Range<u64>>) -> Request {
    let metadata = fs::metadata(path).unwrap();
    let stamp = Stamp {
        size: metadata.len(),
        mtime: (metadata.mtime(), metadata.mtime_nsec() as u32),
        inode: metadata.ino(),
    };
    Request {
        selection: Some(Selection { ranges, stamp }),
        ..whole(path)
    }
}

/// Reads requests, and calls `see` with the progress.
fn read(
    limits: Limits,
    requests: Vec<Request>,
    total: Total,
    stop: &Stop,
    see: &mut dyn FnMut(Progress),
) -> Summary {
    let engine = engine(&limits).unwrap();
    let seen = Some(SeenInodes::new(true));
    let mut prefetcher = Prefetcher::new(engine, limits, seen, &Silent, see, stop);
    prefetcher.set_total(total);
    for request in requests {
        prefetcher.add(request).unwrap();
    }
    prefetcher.finish()
}

/// Reads requests to the end. The bytes that are done never decrease. Returns the summary and the
/// last progress.
fn read_all(limits: Limits, requests: Vec<Request>, total: Total) -> (Summary, Progress) {
    let mut last: Option<Progress> = None;
    let summary = read(limits, requests, total, &Stop::default(), &mut |now| {
        assert!(last.is_none_or(|last| last.done_bytes <= now.done_bytes));
        assert!(now.total_bytes.is_none_or(|total| now.done_bytes <= total));
        last = Some(now);
    });
    (summary, last.unwrap())
}

#[test]
fn cached_bytes_and_holes_are_done_before_the_rest_is_read() {
    let dir = directory();
    let path = dir.path().join("file");
    file(&path, 8 * MIB, 2 * MIB..6 * MIB);
    let opened = File::open(&path).unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::Random).unwrap();
    opened
        .read_exact_at(&mut vec![0; 2 * MIB as usize], 3 * MIB)
        .unwrap();
    let mut seen = Vec::new();
    let limits = Limits {
        rate: Some(4 * MIB),
        ..Limits::default()
    };
    let stop = Stop::default();
    let total = Total::known(8 * MIB);
    let summary = read(limits, vec![whole(&path)], total, &stop, &mut |now| {
        seen.push(now);
    });
    // The kernel may have reclaimed cached pages.
    assert!(summary.cached_before > 0 && summary.read_bytes >= 2 * MIB);
    assert_eq!(summary.holes, 4 * MIB);
    for now in &seen {
        let begun = now.read_bytes > 0 || now.done_bytes > 0;
        let expected = match (begun, now.files) {
            (false, _) => 0,
            (true, 0) => summary.holes + summary.cached_before + now.read_bytes,
            (true, _) => 8 * MIB,
        };
        assert_eq!(now.done_bytes, expected, "{now:?}, {summary:?}");
        assert_eq!(
            now.percent().unwrap(),
            now.done_bytes as f64 / (8 * MIB) as f64 * 100.0
        );
    }
    let last = seen.last().unwrap();
    assert_eq!((last.percent(), last.left_bytes()), (Some(100.0), Some(0)));
}

#[test]
fn a_run_after_a_stopped_one_begins_where_that_ended() {
    let dir = directory();
    let path = dir.path().join("file");
    file(&path, 4 * MIB, 0..4 * MIB);
    let limits = Limits {
        rate: Some(4 * MIB),
        ..Limits::default()
    };
    let stop = Stop::default();
    let total = || Total::known(4 * MIB);
    let stopped = read(
        limits.clone(),
        vec![whole(&path)],
        total(),
        &stop,
        &mut |now| {
            assert!(now.done_bytes <= 4 * MIB);
            if now.done_bytes >= MIB {
                stop.request();
            }
        },
    );
    assert!(stopped.interrupted && stopped.read_bytes >= MIB);
    let mut first = None;
    let summary = read(
        limits,
        vec![whole(&path)],
        total(),
        &Stop::default(),
        &mut |now| {
            if now.read_bytes < 3 * MIB && now.done_bytes > 0 {
                first.get_or_insert(now);
            }
        },
    );
    let first = first.unwrap();
    assert!(summary.cached_before > 0, "{summary:?}");
    assert_eq!(first.done_bytes, summary.cached_before + first.read_bytes);
    assert_eq!(summary.cached_before + summary.read_bytes, 4 * MIB);
}

#[test]
fn bytes_that_are_not_read_because_of_the_budget_are_done() {
    let dir = directory();
    let requests = (0..3).map(|at| {
        let path = dir.path().join(format!("{at}"));
        file(&path, MIB, 0..MIB);
        whole(&path)
    });
    let limits = Limits {
        budget: "1M".parse().unwrap(),
        ..Limits::default()
    };
    let (summary, last) = read_all(limits, requests.collect(), Total::known(3 * MIB));
    assert!(summary.not_read_bytes >= 2 * MIB, "{summary:?}");
    assert_eq!(last.percent(), Some(100.0));
}

#[test]
fn a_dry_run_counts_what_it_would_read() {
    let dir = directory();
    let path = dir.path().join("file");
    file(&path, 3 * MIB, 0..MIB);
    let limits = Limits {
        dry_run: true,
        ..Limits::default()
    };
    let (summary, last) = read_all(limits, vec![whole(&path)], Total::known(3 * MIB));
    assert_eq!(summary.read_bytes, MIB);
    assert_eq!(last.percent(), Some(100.0));
}

#[test]
fn a_file_with_a_read_error_is_done_as_a_whole() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(64 * MIB).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let (bad, good) = (mount.path().join("bad"), mount.path().join("good"));
    file(&bad, 8 * MIB, 0..8 * MIB);
    file(&good, MIB, 0..MIB);
    let start = slowdisk::extents(&File::open(&bad).unwrap()).unwrap()[0].start;
    disk.inject(Fault::eio(start..start + 4096).reads_only());
    let requests = vec![whole(&bad), whole(&good)];
    let (summary, last) = read_all(Limits::default(), requests, Total::known(9 * MIB));
    assert!(summary.cached_after < 9 * MIB, "{summary:?}");
    assert_eq!(last.percent(), Some(100.0));
}

#[test]
fn entries_that_are_repeated_skipped_or_missing_are_done() {
    let dir = directory();
    let at = |name: &str| dir.path().join(name);
    for name in ["twice", "changed", "missing"] {
        file(&at(name), MIB, 0..MIB);
    }
    let requests = vec![
        ranges(&at("twice"), vec![0..4096, 8192..MIB]),
        ranges(&at("twice"), vec![0..MIB / 2]),
        ranges(&at("changed"), vec![0..MIB]),
        ranges(&at("missing"), vec![0..1000, 2000..3000]),
    ];
    fs::write(at("changed"), "changed").unwrap();
    fs::remove_file(at("missing")).unwrap();
    let total = MIB - 4096 + MIB / 2 + MIB + 2000;
    let (summary, last) = read_all(Limits::default(), requests, Total::known(total));
    assert_eq!((summary.files, summary.skipped), (2, 1), "{summary:?}");
    assert_eq!((last.done_bytes, last.percent()), (total, Some(100.0)));
}

#[test]
fn the_total_of_a_tree_is_what_a_run_of_it_does() {
    let dir = directory();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    file(&tree.join("a"), MIB, 0..4096);
    file(&tree.join("below/b"), 3 * MIB, 0..3 * MIB);
    fs::hard_link(tree.join("a"), tree.join("other name")).unwrap();
    let limits = Limits {
        // The run takes longer than the second after which the total is counted.
        rate: Some(MIB),
        ..Limits::default()
    };
    let paths: Vec<PathBuf> = vec![tree.clone(), tree.join("a")];
    let walking = nowait::walk::Options::new();
    let engine = engine(&limits).unwrap();
    let (stop, mut last, mut totals) = (Stop::default(), 0, Vec::new());
    let mut see = |now: Progress| {
        last = now.done_bytes;
        totals.extend(now.total_bytes);
    };
    let seen = Some(SeenInodes::new(true));
    let mut prefetcher = Prefetcher::new(engine, limits, seen, &Silent, &mut see, &stop);
    prefetcher.set_total(Total::of_paths(
        paths.clone(),
        Kinds::Regular,
        walking.clone(),
    ));
    for path in &paths {
        let mut add = |file| {
            prefetcher.add(Request {
                file,
                selection: None,
            })
        };
        visit(
            path,
            Kinds::Regular,
            walking.clone(),
            &Silent,
            &stop,
            &mut add,
        )
        .unwrap();
    }
    let summary = prefetcher.finish();
    assert_eq!((summary.files, summary.other_names), (2, 2));
    assert_eq!(last, 4 * MIB);
    // A slow machine may not have counted it before the run ends.
    assert!(totals.iter().all(|&total| total == 4 * MIB), "{totals:?}");
}
