//! Scans and walks with few descriptors, in a child process.

use nowait::walk;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::by_workers::by_workers;
use crate::common::children::{in_child, role};
use crate::common::mounts::{ON_DISK, mounted};
use crate::directories::{
    assert_same, engines, fill, listed, scanned, scanned_by_workers, with_metadata,
};

/// Limits the number of descriptors of this process.
pub fn limit(descriptors: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(descriptors),
            maximum,
        },
    )
    .unwrap();
}

#[test]
fn thirty_two_descriptors_are_enough() {
    if let Some(dir) = role() {
        let dir = std::path::Path::new(&dir);
        let large = dir.join("large");
        let expected = listed(&large);
        let directories = std::fs::read_dir(dir.join("tree")).unwrap().count();
        limit(32);
        for engine in engines() {
            let scan = with_metadata().engine(&engine).blocking_open(&large);
            assert_same(&scanned(scan.unwrap()), &expected, "32 descriptors");
            for descriptors in [2, 20, 64] {
                let options = walk::Options::new()
                    .engine(&engine)
                    .descriptors(descriptors);
                let walk = options.blocking_open(dir.join("tree")).unwrap();
                assert_eq!(walk.map(Result::unwrap).count(), 21 * directories);
            }
        }
        // No descriptor is left for parts, or for a second directory.
        let mut hoard = Vec::new();
        let engine = &engines()[0];
        let scan = with_metadata()
            .engine(engine)
            .blocking_open(&large)
            .unwrap();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            hoard.push(file);
        }
        assert_same(&scanned_by_workers(scan), &expected, "no descriptor left");
        // Two are enough for a walk, although its workers open more at once.
        hoard.truncate(hoard.len() - 2);
        for _ in 0..5 {
            let options = walk::Options::new().engine(engine).descriptors(64);
            let mut walk = options.blocking_open(dir.join("tree")).unwrap();
            let all = by_workers(&mut walk).map(Result::unwrap);
            assert_eq!(all.count(), 21 * directories);
        }
        return;
    }
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        fill(&mount.path().join("large"), "f", 20_000);
        for i in 0..200 {
            fill(&mount.path().join(format!("tree/directory{i}")), "f", 20);
        }
        in_child(mount.path().to_str().unwrap());
    }
}
