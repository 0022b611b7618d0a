//! `nowait-bench dir`: its counts and charts, and the removal of the disks and directories that it makes.

use std::fs;

use crate::common::{
    assert_nothing_is_left, assert_says, assert_shape, bench, contenders, directory, names, report,
    row, rows, run,
};

#[test]
fn a_directory_is_never_an_option_of_the_programs() {
    let here = directory();
    let listed = here.path().join("-delete");
    fs::create_dir(&listed).unwrap();
    for name in ["a", "b"] {
        fs::write(listed.join(name), []).unwrap();
    }
    let args =
        "dir --dir=-delete --warm --rounds 1 --contenders getdents+stat,xgetdents,ls,find,bfs,du";
    let report = report(here.path(), args);
    assert_eq!(row(&report["cells"][0], "find")["name"], "find");
    assert_eq!(names(&listed).len(), 2);
}

/// On every filesystem each contender finds all entries and reads from the disk.
#[test]
fn directories_on_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    for (fs, rounds) in [("ext4", 3), ("xfs", 1), ("btrfs", 1)] {
        slowdisk::require!(fs.parse::<slowdisk::Filesystem>().unwrap().available());
        let (here, pictures) = (directory(), directory());
        let args = format!(
            "dir --slow-disk 100us --queue 8 --fs {fs} --files 1k,20 --rounds {rounds} --windows default,d7 \
             --contenders getdents+stat,xgetdents,dirreadahead,ls,find,du --svg {}",
            pictures.path().display()
        );
        let report = report(here.path(), &args);
        assert_nothing_is_left(here.path());
        let names = "getdents+stat xgetdents xgetdents d7 dirreadahead ls find du";
        assert_shape(
            &report,
            "dir",
            rounds,
            &format!("20: {names}\n1000: {names}"),
        );
        assert_eq!(report["settings"]["slow_disk"]["latency_us"], 100.0);
        assert_eq!(report["settings"]["slow_disk"]["filesystem"], fs);
        for (cell, files) in report["cells"].as_array().unwrap().iter().zip([20, 1000]) {
            assert_eq!(cell["parameters"]["files"], files);
            for turn in rows(cell)
                .iter()
                .flat_map(|row| row["rounds"].as_array().unwrap())
            {
                // Mounting may have read the whole directory if it has few files.
                let reads = turn["reads"].as_u64().unwrap();
                assert!(reads > 0 || files < 100, "{fs}, not cold: {turn}");
                assert_eq!(turn["deepest"] == 0, reads == 0, "{turn}");
            }
            for own in ["getdents+stat", "xgetdents", "xgetdents d7", "dirreadahead"] {
                let median = &row(cell, own)["median"];
                assert_eq!(median["entries"], f64::from(files));
                assert_eq!(median["failed"], 0.0);
                assert!(median["peak_kib"].as_f64() > Some(0.0));
            }
            assert!(["ls", "find", "du"].contains(&cell["parameters"]["best"].as_str().unwrap()));
        }
        for name in [
            "dir",
            "dir-seeks-getdents-stat",
            "dir-seeks-xgetdents",
            "dir-seeks-dirreadahead",
        ] {
            let svg = fs::read_to_string(pictures.path().join(name).with_extension("svg")).unwrap();
            assert!(svg.starts_with("<svg"), "{name}");
        }
    }
}

#[test]
fn extended_attributes_are_asked_for_by_those_who_do() {
    slowdisk::require!(slowdisk::available());
    let here = directory();
    let report = report(
        here.path(),
        "dir --slow-disk 0 --files 50 --rounds 1 --xattr",
    );
    let cell = "50: getdents+stat xgetdents xgetdents v256d1000 xgetdents v16384d10000 nw-xgetdents dirreadahead ls";
    assert_shape(&report, "dir", 1, cell);
    for row in &rows(&report["cells"][0])[..6] {
        assert_eq!(row["median"]["failed"], 0.0, "{row}");
    }
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("find does not ask for extended attributes"),
        "{notes}"
    );
    assert_nothing_is_left(here.path());
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

#[test]
fn the_users_directory_is_only_read() {
    let (here, users) = (directory(), directory());
    for name in ["a", "b", "c"] {
        fs::write(users.path().join(name), name).unwrap();
    }
    fs::create_dir(users.path().join("d")).unwrap();
    fs::write(users.path().join("d/e"), "e").unwrap();
    let args = format!("dir --warm --rounds 1 --dir {}", users.path().display());
    let report = report(here.path(), &args);
    let cell = &report["cells"][0];
    assert_eq!(cell["parameters"]["files"], 4);
    assert_eq!(row(cell, "xgetdents")["median"]["entries"], 4.0);
    // du would also list subdirectories.
    assert!(!contenders(cell).contains(&"du"));
    assert!(report["notes"].to_string().contains("subdirectories"));
    assert_eq!(names(users.path()).len(), 4);
    assert_nothing_is_left(here.path());
}
