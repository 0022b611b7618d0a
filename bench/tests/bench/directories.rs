//! `nowait-bench dir`: its counts, charts and errors, and the removal of the disks and directories that it
//! makes. No test depends on a time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{
    Said, assert_nothing_is_left, contenders, directory, mounts, names, nowait_bench, row, rows,
    run, unprivileged,
};
use rustix::process::{Pid, Signal, kill_process};

/// The bench in a directory that also has its temporary files and mounts.
fn dir(here: &Path, args: &str) -> Command {
    let words = ["dir"].into_iter().chain(args.split_whitespace());
    let mut command = nowait_bench(words);
    command.current_dir(here).env("TMPDIR", here);
    command
}

#[test]
fn a_directory_is_never_an_option_of_the_programs() {
    let here = directory();
    let listed = here.path().join("-delete");
    fs::create_dir(&listed).unwrap();
    for name in ["a", "b"] {
        fs::write(listed.join(name), []).unwrap();
    }
    let args = "--dir=-delete --warm --rounds 1 --json \
                --contenders getdents+stat,xgetdents,ls,find,bfs,du";
    let said = run(&mut dir(here.path(), args));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(row(&said.json()["cells"][0], "find")["name"], "find");
    let mut left = names(&listed);
    left.sort();
    assert_eq!(left, ["a", "b"]);
}

/// On every filesystem each contender finds all entries and reads from the disk.
#[test]
fn directories_on_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    for fs in ["ext4", "xfs", "btrfs"] {
        slowdisk::require!(fs.parse::<slowdisk::Filesystem>().unwrap().available());
        let here = directory();
        let pictures = directory();
        let svg = format!("--svg {}", pictures.path().display());
        let args = format!(
            "--slow-disk 100us --queue 8 --fs {fs} --files 2k,20 --rounds 3 --windows default,d7 \
             --contenders getdents+stat,xgetdents,dirreadahead,ls,find,du --json {svg}"
        );
        let report = run(&mut dir(here.path(), &args)).done().json();
        assert_nothing_is_left(here.path());

        assert_eq!(
            (&report["area"], &report["interrupted"]),
            (&"dir".into(), &false.into())
        );
        assert_eq!(report["settings"]["slow_disk"]["latency_us"], 100.0);
        assert_eq!(report["settings"]["slow_disk"]["filesystem"], fs);
        let cells = report["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2);
        for (cell, files) in cells.iter().zip([20, 2000]) {
            assert_eq!(cell["parameters"]["files"], files);
            let six = [
                "getdents+stat",
                "xgetdents",
                "xgetdents d7",
                "dirreadahead",
                "ls",
                "find",
                "du",
            ];
            assert_eq!(contenders(cell), six);
            for row in rows(cell) {
                let rounds = row["rounds"].as_array().unwrap();
                assert_eq!(rounds.len(), 3);
                for turn in rounds {
                    assert!(turn["seconds"].as_f64().unwrap() > 0.0);
                    // Mounting may have read the whole directory if it has few files.
                    let reads = turn["reads"].as_u64().unwrap();
                    assert!(reads > 0 || files < 100, "{fs}, not cold: {row}");
                    assert_eq!(turn["deepest"] == 0, reads == 0, "{row}");
                }
            }
            for own in ["getdents+stat", "xgetdents", "xgetdents d7", "dirreadahead"] {
                let median = &row(cell, own)["median"];
                assert_eq!(
                    (median["entries"].as_f64(), median["failed"].as_f64()),
                    (Some(f64::from(files)), Some(0.0))
                );
                assert!(median["peak_kib"].as_f64().unwrap() > 0.0);
            }
            let best = cell["parameters"]["best"].as_str().unwrap();
            assert!(["ls", "find", "du"].contains(&best));
            for base in [best, "getdents+stat"] {
                let ratio = &cell["ratios"][format!("xgetdents/{base}")]["files_per_s"];
                assert!(ratio["median"].as_f64().unwrap() > 0.0, "{base}: {cell}");
            }
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
    let report = run(&mut dir(
        here.path(),
        "--slow-disk 0 --files 50 --rounds 1 --xattr --json",
    ));
    let report = report.done().json();
    let cell = &report["cells"][0];
    let own = [
        "getdents+stat",
        "xgetdents",
        "xgetdents v256d1000",
        "xgetdents v16384d10000",
        "nw-xgetdents",
    ];
    assert_eq!(
        contenders(cell),
        [&own[..], &["dirreadahead", "ls"]].concat()
    );
    for row in &rows(cell)[..6] {
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
    let args = "--warm --files 30 --rounds 3 --contenders getdents+stat,xgetdents,find";
    let said = run(&mut dir(here.path(), args)).done();
    for word in [
        "30 files",
        "getdents+stat",
        "xgetdents v16384d10000",
        "x find",
        "warm",
    ] {
        assert!(said.text().contains(word), "{word}: {said:?}");
    }
    assert_nothing_is_left(here.path());
}

#[test]
fn without_ratios_it_says_what_they_need() {
    let here = directory();
    for (contenders, rounds, why) in [
        ("find", 3, "No ratios: there is one contender."),
        ("xgetdents,find", 2, "No ratios: they need 3 rounds."),
        ("xgetdents,find", 3, "Ratios: median"),
    ] {
        let args = format!("--warm --files 30 --rounds {rounds} --contenders {contenders}");
        let said = run(&mut dir(here.path(), &args)).done();
        assert!(
            said.text().contains(why),
            "{contenders}, {rounds}: {said:?}"
        );
    }
}

#[test]
fn the_users_directory_is_only_read() {
    let (here, users) = (directory(), directory());
    for name in ["a", "b", "c"] {
        fs::write(users.path().join(name), name).unwrap();
    }
    fs::create_dir(users.path().join("d")).unwrap();
    fs::write(users.path().join("d/e"), "e").unwrap();
    let args = format!("--warm --rounds 1 --json --dir {}", users.path().display());
    let report = run(&mut dir(here.path(), &args)).done().json();
    let cell = &report["cells"][0];
    assert_eq!(cell["parameters"]["files"], 4);
    assert_eq!(row(cell, "xgetdents")["median"]["entries"], 4.0);
    // du would also list subdirectories.
    assert!(!contenders(cell).contains(&"du"));
    assert!(report["notes"].to_string().contains("subdirectories"));
    let mut left = names(users.path());
    left.sort();
    assert_eq!(left, ["a", "b", "c", "d"]);
    assert_nothing_is_left(here.path());
}

/// Ctrl-C during a turn on a mounted disk: prints what was measured, and removes everything.
#[test]
fn an_interrupt_takes_everything_down() {
    slowdisk::require!(slowdisk::available());
    let here = directory();
    let long = "--slow-disk 1ms --files 500 --rounds 1000 --contenders getdents+stat,find --json";
    let mut command = dir(here.path(), long);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mounted = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        mounts(here.path()).len() >= 2
    });
    assert!(mounted, "no disk");
    // Some turns must be over, or there is nothing to print.
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    if !said.out.is_empty() {
        let report = said.json();
        assert_eq!(report["interrupted"], true);
        assert!(!rows(&report["cells"][0]).is_empty());
    }
    assert_nothing_is_left(here.path());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let here = directory();
    let empty = directory();
    let dir_and = |more: &str| format!("--warm --dir {} {more}", empty.path().display());
    for (args, word) in [
        ("--files 0".into(), "number of files"),
        ("--files 10q".into(), "number of files"),
        ("--windows v0d1".into(), "v16384d10000"),
        ("--slow-disk 5".into(), "ms"),
        ("--slow-disk 1ms --fs tmpfs".into(), "ext4"),
        ("--queue 4".into(), "--slow-disk"),
        ("--fs xfs".into(), "--slow-disk"),
        ("--rounds 0".into(), "1000"),
        (dir_and("--files 10"), "--files"),
        (dir_and("--slow-disk 1ms"), "--slow-disk"),
        (dir_and(""), "empty"),
    ] {
        let said = run(&mut dir(here.path(), &args));
        assert_eq!(said.code, Some(2), "{args}: {said:?}");
        assert!(said.err.contains(word), "{args}: {said:?}");
    }
    let said = run(&mut dir(
        here.path(),
        "--warm --files 5 --xattr --contenders find",
    ))
    .in_part();
    assert!(said.err.contains("leave it or --xattr out"), "{said:?}");
    let said = run(&mut dir(here.path(), "--warm --dir /there/is/none")).in_part();
    assert!(said.err.contains("/there/is/none"), "{said:?}");
    assert_nothing_is_left(here.path());
}

/// Only root can drop caches and make slow disks. Messages tell other users what they can do.
#[test]
fn without_rights_it_says_what_to_do() {
    let (mut command, _dir) = unprivileged(["dir", "--files", "5"]);
    let said = run(&mut command);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--warm"), "{said:?}");
    let (mut command, _dir) = unprivileged(["dir", "--slow-disk", "1ms"]);
    let said = run(&mut command).in_part();
    assert!(
        said.err.contains("root") || said.err.contains("CAP_SYS_ADMIN"),
        "{said:?}"
    );
    let (mut command, _dir) = unprivileged(["dir", "--warm", "--rounds", "1", "--dir", "/usr"]);
    run(&mut command).done();
}
