//! `nowait-bench ahead`: its cells and errors, and the removal of what it makes. No test depends on a time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{
    Said, assert_nothing_is_left, contenders, directory, mounts, nowait_bench, row, rows, run,
    unprivileged,
};
use rustix::process::{Pid, Signal, kill_process};

/// The bench in a directory that also has its temporary files and mounts. The preload library, which is built with the
/// program's workspace, is not needed.
fn ahead(here: &Path, args: &str) -> Command {
    let words = ["ahead"].into_iter().chain(args.split_whitespace());
    let mut command = nowait_bench(words);
    command.current_dir(here).env("TMPDIR", here);
    command
}

#[test]
fn trees_on_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    for (fs, programs) in [
        ("ext4", "ls,find,du,tar,cp,grep"),
        ("xfs", "du,tar"),
        ("btrfs", "du,tar"),
    ] {
        slowdisk::require!(fs.parse::<slowdisk::Filesystem>().unwrap().available());
        let here = directory();
        let args = format!(
            "--slow-disk 100us --queue 8 --fs {fs} --files 300 --trees many,small --rounds 3 \
             --programs {programs} --contenders direct,warm --json"
        );
        let report = run(&mut ahead(here.path(), &args)).done().json();
        assert_nothing_is_left(here.path());
        assert_eq!(report["area"], "ahead");
        assert_eq!(report["settings"]["slow_disk"]["filesystem"], fs);
        let cells = report["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2 * programs.split(',').count());
        for cell in cells {
            let small = cell["parameters"]["tree"] == "small";
            assert_eq!(cell["parameters"]["files"], if small { 40 } else { 300 });
            assert_eq!(contenders(cell), ["direct", "warm"]);
            for row in rows(cell) {
                assert_eq!(row["ours"], false);
                for turn in row["rounds"].as_array().unwrap() {
                    assert!(turn["seconds"].as_f64().unwrap() > 0.0);
                    assert!(small || turn["reads"].as_u64().unwrap() > 0, "{fs}: {cell}");
                }
            }
            assert!(cell["ratios"]["warm/direct"]["files_per_s"]["median"].is_number());
        }
        let reads = |name: &str| {
            let cell = cells.iter().find(|cell| cell["name"] == name).unwrap();
            row(cell, "direct")["median"]["reads"].as_f64().unwrap()
        };
        let all = ["tar", "cp", "grep"];
        for program in all.iter().filter(|program| programs.contains(*program)) {
            assert!(
                reads(&format!("{program}-many")) > reads("du-many"),
                "{program}"
            );
        }
    }
}

#[test]
fn the_preload_of_the_user_takes_part() {
    let here = directory();
    let library = here.path().join("empty.so");
    let source = here.path().join("empty.c");
    std::fs::write(&source, "int nothing;\n").unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.unwrap().success());
    let args = "--warm --files 60 --trees many --rounds 3 --programs du,true --contenders direct,preload --preload empty.so";
    let said = run(&mut ahead(here.path(), args)).done();
    for word in [
        "du: 60 files in one directory",
        "x direct",
        "preload",
        "warm",
        "true: 60",
    ] {
        assert!(said.text().contains(word), "{word}: {said:?}");
    }
    std::fs::remove_file(library).unwrap();
    std::fs::remove_file(source).unwrap();
    assert_nothing_is_left(here.path());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let here = directory();
    for (args, code, word) in [
        ("--files 0", 2, "number of files"),
        ("--trees none", 2, "small"),
        ("--programs none", 2, "restic"),
        ("--contenders none", 2, "preload"),
        ("--bytes x", 2, "size"),
        ("--fs xfs", 2, "--slow-disk"),
        ("--rounds 0", 2, "1000"),
        ("--warm --contenders data", 1, "libnowait_ahead.so"),
        ("--warm --contenders preload", 1, "--preload"),
        ("--warm --nowait /nowhere", 1, "/nowhere"),
        ("--warm --libraries / --contenders run", 1, "--libraries"),
    ] {
        let said = run(&mut ahead(here.path(), args));
        assert_eq!(said.code, Some(code), "{args}: {said:?}");
        assert!(said.err.contains(word), "{args}: {said:?}");
    }
    assert_nothing_is_left(here.path());
}

/// Ctrl-C during a turn on a mounted disk removes everything.
#[test]
fn an_interrupt_takes_everything_down() {
    slowdisk::require!(slowdisk::available());
    let here = directory();
    let long = "--slow-disk 1ms --files 500 --rounds 1000 --programs find,du --contenders direct,warm --json";
    let child = ahead(here.path(), long)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mounted = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        mounts(here.path()).len() >= 2
    });
    assert!(mounted, "no disk");
    std::thread::sleep(Duration::from_millis(1500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_nothing_is_left(here.path());
}

#[test]
fn without_rights_it_says_what_to_do() {
    let (mut command, _dir) = unprivileged(["ahead", "--files", "5"]);
    let said = run(&mut command);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--warm"), "{said:?}");
}
