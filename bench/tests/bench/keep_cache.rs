//! `nowait-bench keep-cache`: its cells, what it finds in the page cache, and the removal of its files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{
    assert_nothing_is_left, assert_shape, bench, cells_of, directory, is_missing, report,
    rounds_of, row, run,
};

const SMALL: &str = "keep-cache --slow-disk 100us --queue 8 --files 20 --bytes 16K --large 4M";

/// The bytes of the tree.
const TREE: u64 = (4 << 20) + 20 * (16 << 10);

/// A program that stands for nowait: a shell script, whose words after `--` are the program. They are
/// run as `run` says.
fn stand_in(dir: &Path, run: &str) -> std::path::PathBuf {
    let path = dir.join("nowait");
    let text = format!("#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\n{run}\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A figure of each round.
fn figure(report: &Value, cell: usize, contender: &str, name: &str) -> Vec<u64> {
    let row = row(&cells_of(report)[cell], contender);
    let rounds = rounds_of(row).iter();
    rounds
        .map(|round| round[name].as_u64().unwrap_or_else(|| panic!("{row}")))
        .collect()
}

#[test]
fn programs_fill_the_page_cache() {
    slowdisk::require!(slowdisk::available());
    if is_missing(&["rsync"]) {
        return;
    }
    let (here, programs) = (directory(), directory());
    let nowait = stand_in(programs.path(), "exec \"$@\"");
    let args = format!(
        "{SMALL} --programs tar,rsync --contenders direct,nowait --rounds 1 --nowait {}",
        nowait.display()
    );
    let report = report(here.path(), &args);
    assert_nothing_is_left(here.path());
    let cells = ["tar-cold", "rsync-cold", "tar-half", "rsync-half"];
    let cells = cells
        .map(|cell| format!("{cell}: direct nowait\n"))
        .concat();
    assert_shape(&report, "keep-cache", 1, &cells);
    for contender in ["direct", "nowait"] {
        let of = |cell, name| figure(&report, cell, contender, name);
        assert_eq!(of(0, "left_bytes"), [TREE]);
        assert_eq!(of(1, "output_bytes"), [TREE]);
        assert!(of(0, "device_bytes")[0] >= TREE);
        let half = of(2, "left_bytes")[0];
        assert!((TREE / 3..=TREE / 2).contains(&half), "{half}");
        for cell in 0..4 {
            assert_eq!(of(cell, "lost_bytes"), [0]);
        }
    }
}

/// A program that evicts whole files loses what was cached before.
#[test]
fn lost_pages_are_found() {
    slowdisk::require!(slowdisk::available());
    let (here, programs) = (directory(), directory());
    let evict = "\"$@\"; [ -z \"$TREE\" ] || \
                 find \"$TREE\" -type f -exec dd if={} iflag=nocache count=0 status=none \\;";
    let nowait = stand_in(programs.path(), evict);
    let args = format!(
        "{SMALL} --programs tar --contenders direct,nowait --rounds 1 --nowait {}",
        nowait.display()
    );
    let report = report(here.path(), &args);
    assert_nothing_is_left(here.path());
    assert_eq!(figure(&report, 0, "nowait", "left_bytes"), [0]);
    assert!(figure(&report, 1, "nowait", "lost_bytes")[0] >= TREE / 2);
    assert_eq!(figure(&report, 1, "direct", "lost_bytes"), [0]);
}

/// The reason why `nowait run` keeps nothing is that of the contender that is left out.
#[test]
fn a_nowait_that_keeps_nothing_is_left_out() {
    slowdisk::require!(slowdisk::available());
    let (here, programs) = (directory(), directory());
    let nowait = stand_in(programs.path(), "echo 'no group' >&2; exec \"$@\"");
    let words = format!("{SMALL} --programs tar --states cold --rounds 1 --json");
    let run_with = |command: &mut Command| run(command.arg("--nowait").arg(&nowait));
    let said = run_with(&mut bench(here.path(), &words));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("no group"), "{said:?}");
    let said = run_with(bench(here.path(), &words).args(["--contenders", "nowait"]));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("no group"), "{said:?}");
    assert_nothing_is_left(here.path());
}
