//! `nowait-bench dir`: its counts and charts, and the removal of the disks and directories that it makes.

use crate::common::{
    assert_nothing_is_left, assert_says, assert_shape, bench, cells_of, charts, directory, report,
    rounds_of, rows, run,
};

/// On every filesystem each contender finds all entries and reads from the disk.
#[test]
fn directories_on_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    for (fs, rounds) in [("ext4", 3), ("xfs", 1), ("btrfs", 1)] {
        slowdisk::require!(fs.parse::<slowdisk::Filesystem>().unwrap().available());
        let here = directory();
        let args = format!(
            "dir --slow-disk 100us --queue 8 --fs {fs} --files 1k,20 --rounds {rounds} --windows default,d7 \
             --contenders getdents+stat,xgetdents,nw-xgetdents,dirreadahead,ls,find,du"
        );
        let report = report(here.path(), &args);
        assert_nothing_is_left(here.path());
        let names = "getdents+stat xgetdents xgetdents d7 nw-xgetdents dirreadahead ls find du";
        assert_shape(
            &report,
            "dir",
            rounds,
            &format!("20: {names}\n1000: {names}"),
        );
        assert_eq!(report["settings"]["slow_disk"]["latency_us"], 100.0);
        assert_eq!(report["settings"]["slow_disk"]["filesystem"], fs);
        for (cell, files) in cells_of(&report).iter().zip([20, 1000]) {
            assert_eq!(cell["parameters"]["files"], files);
            for turn in rows(cell).iter().flat_map(rounds_of) {
                // Mounting may have read the whole directory if it has few files.
                let reads = turn["reads"].as_u64().unwrap();
                assert!(reads > 0 || files < 100, "{fs}, not cold: {turn}");
            }
            for own in &rows(cell)[..5] {
                let median = &own["median"];
                assert_eq!(median["entries"], f64::from(files));
                assert_eq!(median["failed"], 0.0);
                assert!(median["peak_kib"].as_f64() > Some(0.0));
            }
            assert!(["ls", "find", "du"].contains(&cell["parameters"]["best"].as_str().unwrap()));
        }
        let seeks = ["getdents-stat", "xgetdents", "nw-xgetdents", "dirreadahead"];
        let seeks = seeks.map(|name| format!("dir-seeks-{name}"));
        assert_eq!(charts(&report)[0], "dir");
        assert_eq!(charts(&report)[1..], seeks);
    }
}

#[test]
fn a_directory_that_is_made_here_is_gone_at_the_end() {
    let here = directory();
    let args = "dir --warm --files 30 --rounds 3 --contenders getdents+stat,xgetdents,find";
    let said = run(&mut bench(here.path(), args)).done();
    assert_says(
        &said,
        &[
            "30 files",
            "getdents+stat",
            "xgetdents v16384d10000",
            "x find",
            "warm",
        ],
    );
    assert_nothing_is_left(here.path());
}
